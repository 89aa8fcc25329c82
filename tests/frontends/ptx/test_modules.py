"""`cutepy.load_ptx`: PTX of any compiler is launched by name."""

import struct
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

import cutepy
from cutepy.frontends import PtxModule, load_ptx
from cutepy.layouts.sm90 import TensorMap
from cutepy.runtime.tensor_maps import to_bytes
from cutepy.sim import LaunchError, MemoryAccessError, UnknownInstructionError
from tests.messages import refuses

_HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
_REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<4>;"


def module_of(body, parameters="", outside="", name="k"):
    return load_ptx(f"{_HEAD}{outside}\n.visible .entry {name}({parameters}) {{ {_REGISTERS} {body} ret; }}")


_COUNTER = """.visible .global .u32 counter = 40; .const .f32 steps[2] = {1.5, 2.5}; .extern .shared .b8 dynamic[];"""
_COUNT = "atom.global.add.u32 %r1, [counter], 1; ld.param.u64 %rd0, [out]; st.global.u32 [%rd0], %r1;"


def test_kernels_and_their_parameters_have_names():
    module = module_of("", ".param .u64 out, .param .align 8 .b8 pair[16]")
    assert [(p.name, p.size_bytes, p.type) for p in module.kernels["k"]] == [("out", 8, "u64"), ("pair", 16, "b8")]
    assert repr(module) == "PtxModule(k)"
    with refuses(ValueError):
        module.launch("q", 1, 1)


def test_variables_live_as_long_as_the_module():
    module, out = module_of(_COUNT, ".param .u64 out", _COUNTER), np.zeros(1, np.uint32)
    found = []
    for _ in range(2):
        module.launch("k", 1, 1, (out,))
        found.append(int(out[0]))
    module.variable("counter", np.uint32)[0] = 7
    module.launch("k", 1, 1, (out,))
    assert [*found, int(out[0]), module.variable("counter", "u4").tolist()] == [40, 41, 7, [8]]
    again = PtxModule(module.text)
    assert again.variable("counter", "u4")[0] == 40
    assert again.variable("steps", "float32").tolist() == [1.5, 2.5]
    assert again.variables == ("counter", "steps")
    with refuses(ValueError):
        again.variable("dynamic")
    with refuses(ValueError):
        again.variable("counter", "float64")


_CHASE = "ld.param.u64 %rd0, [pair]; ld.param.u32 %r0, [pair+8]; st.global.u32 [%rd0], %r0;"


def test_memory_behind_pointers_in_structs_is_named():
    module, out = module_of(_CHASE, ".param .align 8 .b8 pair[16]"), np.zeros(1, np.uint32)
    pair = struct.pack("<QIxxxx", out.ctypes.data, 9)
    with refuses(MemoryAccessError):
        module.launch("k", 1, 1, (pair,))
    module.launch("k", 1, 1, (pair,), known=[out])
    assert out[0] == 9


def test_a_launch_within_simulate_is_of_its_run():
    pytest.importorskip("cutlass")
    torch = pytest.importorskip("torch")
    module, out = module_of(_COUNT, ".param .u64 out", _COUNTER), torch.zeros(1, dtype=torch.int32)
    with cutepy.simulate() as outer, cutepy.simulate() as run:
        launch = module.launch("k", (2, 1), (32,), (out,), stream=5)
    assert (outer.launches, run.launches) == ([], [launch])
    assert (launch.grid, launch.block, launch.stream, launch.stats["instructions"] > 0) == (
        (2, 1, 1),
        (32, 1, 1),
        5,
        True,
    )


_RANKS = """ld.param.u64 %rd0, [out]; mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %dynamic_smem_size; mad.lo.u32 %r1, %r1, 4096, %r2;
st.global.u32 [%rd0], %r1;"""


def test_clusters_and_dynamic_shared_memory():
    module, out = module_of(_RANKS, ".param .u64 out", _COUNTER), np.zeros(4, np.uint32)
    launch = module.launch("k", 4, 1, (out,), cluster=2, smem=512, cooperative=True)
    assert out.tolist() == [512, 4608, 512, 4608]
    assert (launch.cluster, launch.cooperative) == ((2, 1, 1), True)
    with refuses(LaunchError):
        module.launch("k", 3, 1, (out,), cluster=2)
    with refuses(ValueError):
        module.launch("k", (1, 1, 1, 1), 1, (out,))


_COPY = """.reg .b32 %s<3>; mov.u32 %s0, tile; mov.u32 %s1, bar;
mov.b64 %rd0, map; cvta.param.u64 %rd1, %rd0; ld.param.u64 %rd2, [out];
mbarrier.init.shared.b64 [%s1], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%s1], 128;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%s0], [%rd1, {%r0, %r1}], [%s1];
WAIT: mbarrier.try_wait.parity.shared.b64 %p0, [%s1], 0; @!%p0 bra WAIT;
ld.shared.u32 %r3, [tile+36]; st.global.u32 [%rd2], %r3;"""


def test_tensor_maps_are_bytes():
    tile = np.arange(64, dtype=np.uint32).reshape(8, 8)
    words = TensorMap("u32", (8, 8), (32,), (8, 4), global_address=-(-tile.ctypes.data // 16) * 16).encode()
    if tile.ctypes.data % 16:
        pytest.skip("numpy's memory is aligned to 16 bytes")
    data = struct.pack(f"<{len(words)}Q", *words).ljust(128, b"\0")
    shared = ".shared .align 128 .b8 tile[128]; .shared .align 8 .b8 bar[8];"
    module = module_of(
        "mov.b32 %r0, 0; mov.b32 %r1, 4;" + _COPY, ".param .align 64 .b8 map[128], .param .u64 out", shared
    )
    out = np.zeros(1, np.uint32)
    module.launch("k", 1, 1, (data, out), known=[tile])
    assert out[0] == tile[5, 1]


@pytest.mark.parametrize(
    "load",
    [
        "mov.b32 %r0, pair; ld.param.u32 %r1, [%r0+4];",
        "mov.b32 %r0, pair+4; cvt.u64.u32 %rd1, %r0; cvta.param.u64 %rd2, %rd1; ld.u32 %r1, [%rd2];",
        "mov.b64 %rd1, pair; cvta.param.u64 %rd2, %rd1; ld.u32 %r1, [%rd2+4];",
        "mov.b64 %rd1, pair; ld.param.u32 %r1, [%rd1+4];",
    ],
)
def test_addresses_of_parameters_have_32_or_64_bits(load):
    """LLVM keeps 32 bits of them, as do Triton's kernels with tensor maps."""
    module = module_of(
        f"{load} ld.param.u64 %rd0, [out]; st.global.u32 [%rd0], %r1;", ".param .b8 pair[8], .param .u64 out"
    )
    out = np.zeros(1, np.uint32)
    module.launch("k", 1, 1, (struct.pack("<II", 3, 5), out))
    assert out[0] == 5


def test_generic_addresses_have_64_bits():
    module = module_of("mapa.u32 %r2, %r1, 0;")
    with refuses(UnknownInstructionError):
        module.launch("k", 1, 32)


def test_extents_may_be_integers_of_numpy():
    module, out = module_of(_COUNT, ".param .u64 out", _COUNTER), np.zeros(1, np.uint32)
    made = module.launch("k", np.int64(2), (np.uint8(1), 1), (out,))
    assert made.grid == (2, 1, 1)


@pytest.mark.parametrize("grid", [1.0, "1", None, (1, 2.5), (1, 1, 1, 1), ()])
def test_extents_are_one_to_three_integers(grid):
    with refuses((TypeError, ValueError)):
        module_of("").launch("k", grid, 1)


def test_dynamic_shared_memory_is_no_less_than_none():
    with refuses(LaunchError):
        module_of("").launch("k", 1, 1, smem=-1)


@pytest.mark.parametrize(
    ("directive", "block", "cluster"),
    [
        (".maxntid 8, 4", (33, 1, 1), 1),
        (".reqnctapercluster 2", 1, 4),
        (".maxclusterrank 2", 1, 4),
    ],
)
def test_launches_are_as_the_kernel_was_compiled_for(directive, block, cluster):
    module = load_ptx(f"{_HEAD}.visible .entry k() {directive} {{ ret; }}")
    module.launch("k", 4, 32 if block != 1 else 1, cluster=2)
    with refuses(LaunchError):
        module.launch("k", 4, block, cluster=cluster)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (_HEAD.encode(), TypeError),
        (_HEAD.replace("sm_90a", "sm_130a"), ValueError),
        (_HEAD.replace("size 64", "size 32"), ValueError),
        (_HEAD + ".visible .entry k() { ret; } .visible .entry k() { ret; }", ValueError),
    ],
)
def test_what_no_gpu_of_this_kind_loads(text, error):
    with refuses(error):
        load_ptx(text)


_STORE = "ld.param.u64 %rd0, [p]; st.global.u32 [%rd0], 5;"


def test_arrays_that_may_not_be_written_to_are_inputs():
    """A store there is an error, and changes nothing."""
    text = bytes(range(16))
    module, array = module_of(_STORE, ".param .u64 p"), np.frombuffer(text, np.uint32)
    with refuses(MemoryAccessError):
        module.launch("k", 1, 1, (array,))
    assert [*text] == [*range(16)]
    with refuses(MemoryAccessError):
        module.launch("k", 1, 1, (struct.pack("<Q", array.ctypes.data),), known=[array])
    assert [*text] == [*range(16)]


_FIRST = "mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; .shared .align 16 .b8 data[128]; mov.u32 %r1, data;"
_BULK = f"{_FIRST} st.shared.u32 [%r1], 0; fence.proxy.async;"
_DONE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


@pytest.mark.parametrize(
    "store",
    [
        "st.global.u32 [%rd0], 0;",
        "st.global.v4.u32 [%rd0], {0, 0, 0, 0};",
        "st.u8 [%rd0], 0;",
        "mov.u32 %r0, %tid.x; mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0], 0;",
        "atom.global.add.u32 %r1, [%rd0], 0;",
        "atom.global.cas.b32 %r1, [%rd0], 7, 9;",
        "red.global.add.u32 [%rd0], 0;",
        "red.global.add.v2.f32 [%rd0], {0f00000000, 0f00000000};",
        "mov.b128 %q, {%rd1, %rd1}; atom.global.exch.b128 %q, [%rd0], %q;",
        "discard.global.L2 [%rd0], 128;",
        f"{_BULK} @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16; {_DONE}",
        f"{_BULK} @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r1], 16; {_DONE}",
    ],
)
def test_a_store_of_the_bytes_that_are_there_is_a_store(store):
    memory = np.zeros(128, np.uint32)
    first = -memory.ctypes.data % 128 // 4
    array = memory[first : first + 32]
    text = ".reg .b128 %q; mov.u64 %rd1, 0; ld.param.u64 %rd0, [p]; " + store
    module = module_of(text, ".param .u64 p")
    module.launch("k", 1, 32, (array,))
    array.flags.writeable = False
    with refuses(MemoryAccessError) as caught:
        module.launch("k", 1, 32, (array,))
    assert caught.value.instruction.text in text
    memory = np.zeros(128, np.uint32)  # beside one that is read-only
    first = -memory.ctypes.data % 128 // 4
    array, before, after = memory[first : first + 32], memory[:first], memory[first + 32 :]
    before.flags.writeable = after.flags.writeable = False
    module.launch("k", 1, 32, (array,), known=[before, after])


@pytest.mark.parametrize("operation", ["tile", "add.tile"])
def test_boxes_are_stored_to_no_array_that_is_read_only(operation):
    """Rows of a box touch the bytes of their own, and none between them."""
    memory = np.zeros(16 * 16 + 32, np.float32)
    first = -memory.ctypes.data % 128 // 4
    matrix = memory[first : first + 256].reshape(16, 16)
    name = "cp.async.bulk.tensor" if operation == "tile" else "cp.reduce.async.bulk.tensor"
    store = f"{name}.2d.global.shared::cta.{operation}.bulk_group [%rd3, {{%r2, %r3}}], [%r1];"
    module = module_of(
        f"{_FIRST} mov.b64 %rd3, map; mov.u32 %r2, 4; mov.u32 %r3, 8; fence.proxy.async; @%p1 {store} {_DONE}",
        ".param .align 64 .b8 map[128]",
    )
    tensor_map = to_bytes(TensorMap("f32", (16, 16), (64,), (4, 8), global_address=matrix.ctypes.data))
    for part, is_written in (
        (matrix[:8], False),
        (matrix[9, :4], False),
        (matrix[9, 8:], False),
        (matrix[15, 7:8], True),
        (matrix[8:], True),
    ):
        part.flags.writeable = False
        with refuses(MemoryAccessError) if is_written else nullcontext():
            launch_beside(module, tensor_map, matrix, part)


def launch_beside(module, tensor_map, matrix, part):
    """Launch with all of a matrix known, of which a part is read-only."""
    frozen = matrix.view()
    frozen.flags.writeable = False
    low = (part.ctypes.data - matrix.ctypes.data) // 4
    flat = matrix.reshape(-1)
    module.launch("k", 1, 32, (tensor_map,), known=[flat[:low], frozen.reshape(-1), flat[low + part.size :]])


@pytest.mark.parametrize("last", [True, False])
def test_machine_code_refuses_it_too(last):
    """A loop that has become machine code stores to an array that may be written to, and at its end to one that not."""
    text = """
    ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [q]; ld.param.u32 %r5, [n]; mov.u32 %r0, %tid.x; mov.u32 %r1, 0;
    mul.wide.u32 %rd2, %r0, 4;
    LOOP:
    setp.eq.u32 %p1, %r1, %r5; selp.b64 %rd3, %rd1, %rd0, %p1; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], 0;
    add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 30000; @%p2 bra LOOP;
    """
    module = module_of(text, ".param .u64 p, .param .u64 q, .param .u32 n")
    memory = np.zeros(3 * 64 + 1, np.uint32)
    out, array, tail = memory[1:65], memory[65:129], memory[129:]
    array.flags.writeable = False
    launch = partial(module.launch, "k", 1, 64)
    n = 29_990 if last else 40_000
    with refuses(MemoryAccessError) if last else nullcontext():
        launch((out, array, n), known=[tail])
    launch((array, out, 29_990), known=[memory])  # all of it is known by an array that may be written to


_MOVE = "ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [q]; ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd1], %r1;"


@pytest.mark.parametrize("step", [1, -1, 2])
def test_memory_that_is_mapped_for_reading_is_an_input(tmp_path, step):
    """A write there would end the process; of a view with other strides the kernel gets the first element's address."""
    np.arange(100, 116, dtype=np.uint32).tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", dtype=np.uint32, mode="r")[4:12][::step]
    module, out = module_of(_MOVE, ".param .u64 p, .param .u64 q"), np.zeros(16, np.uint32)
    module.launch("k", 1, 1, (mapped, out))
    assert out[0] == mapped[0]
    with refuses(MemoryAccessError):
        module.launch("k", 1, 1, (out[1:], mapped))
    assert (np.fromfile(tmp_path / "data", np.uint32) == np.arange(100, 116)).all()


def test_a_read_only_view_of_what_may_be_written_to():
    """A kernel may write to a read-only view if the launch passes the array too."""
    array = np.zeros(4, np.uint32)
    view = array[::-1]
    view.flags.writeable = False
    module = module_of(_STORE, ".param .u64 p, .param .u64 q")
    module.launch("k", 1, 1, (array, view))
    assert array[0] == 5
    torch = pytest.importorskip("torch")
    module.launch("k", 1, 1, (torch.from_numpy(array)[1:], view))
    assert array[1] == 5
    array.flags.writeable = False
    module_of("ld.param.u64 %rd0, [p]; ld.global.u32 %r1, [%rd0];", ".param .u64 p").launch("k", 1, 1, (array,))


@pytest.mark.parametrize("load", ["v4.b32 {%r0, %r1, %r2, %r3}, [p]", "b32 %r1, [p+-4]"])
def test_loads_past_a_parameter(load):
    with refuses(MemoryAccessError):
        module_of(f"ld.param.{load};", ".param .u64 p, .param .u64 q").launch("k", 1, 1, (None, None))


def test_errors_at_a_launch_name_file_line_column_and_statement(tmp_path):
    file = tmp_path / "kernel.ptx"
    head = ".version 8.7\n.target sm_90a\n.address_size 64\n"
    file.write_text(
        head
        + ".visible .entry k(.param .u64 x) {\n .reg .f32 %f; .reg .b64 %x;\n  multimem.red.global.add.f32 [%x], %f; }"
    )
    module = load_ptx(file)
    with refuses(TypeError):
        module.launch("k", 1, 1, ())
    with refuses(UnknownInstructionError) as found:
        module.launch("k", 1, 1, (None,))
    error = found.value
    assert (error.file, error.line, error.column) == (str(file), 6, 3)
    assert error.statement == "multimem.red.global.add.f32 [%x], %f"
