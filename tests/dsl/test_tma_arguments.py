"""Tensors that TMA can't address are refused where a tensor map would be made of them, and others never."""

from typing import NamedTuple

import pytest

from tests.messages import pins, refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

import cutepy  # noqa: E402
from cutepy import TensorSpec  # noqa: E402
from cutepy.device import smem, tma  # noqa: E402
from cutepy.dsl.tma_arguments import tensor_names  # noqa: E402
from cutepy.dsl.tma_requirements import refused_stride, requirements  # noqa: E402
from cutepy.dsl.traced_names import SmemAllocator  # noqa: E402
from cutepy.host.arguments import ArgumentError  # noqa: E402

TILE = (64, 64)


@cute.kernel
def copy_tile(load: cute.CopyAtom, mA: cute.Tensor, store: cute.CopyAtom, mD: cute.Tensor, layout: cute.ComposedLayout):
    allocator = SmemAllocator()
    staged = smem.allocate(allocator, cutlass.Float16, layout)
    full = allocator.allocate_array(cutlass.Int64, 1)
    with cute.arch.elect_one():
        cute.arch.mbarrier_init(full, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    tAsA, tAgA = tma.partition(load, staged, cute.local_tile(mA, TILE, (0, 0)))
    tDsD, tDgD = tma.partition(store, staged, cute.local_tile(mD, TILE, (0, 0)))
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(full, 64 * 64 * 2)
    cute.copy(load, tAgA, tAsA[(None, 0)], tma_bar_ptr=full)
    cute.arch.mbarrier_wait(full, 0)
    cute.copy(store, tDsD[(None, 0)], tDgD)
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0)


def launch_copy(a, d):
    layout = smem.staged_layout(cutlass.Float16, TILE, 1, 1)
    load, mA = tma.make_load(a, layout, TILE, 1)
    store, mD = tma.make_store(d, layout, TILE)
    copy_tile(load, mA, store, mD, layout).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def copy(a: cute.Tensor, d: cute.Tensor):
    launch_copy(a, d)


@cute.jit
def copy_of_batch(a: cute.Tensor, d: cute.Tensor):
    """Copy product 1 of (batch, m, k)."""
    launch_copy(a[1, None, None], d)


class Pair(NamedTuple):
    d: cute.Tensor
    a: cute.Tensor


@cute.jit
def copy_pair(n: cutlass.Int32, pair: Pair):
    launch_copy(pair.a, pair.d)


def values(rows: int, columns: int) -> torch.Tensor:
    return (torch.arange(rows * columns) % 1000).half().view(rows, columns)


def output() -> torch.Tensor:
    return torch.zeros(TILE, dtype=torch.float16)


OUT = TensorSpec("float16", TILE)
PITCH_120 = "stride 0 is 60 elements, 120 bytes, and TMA needs a multiple of 16 bytes"


def test_a_plain_call_with_a_pitch_that_is_no_multiple_of_16_bytes_is_refused():
    with cutepy.simulate() as run, refuses(ValueError):
        copy(values(64, 60), output())
    assert not run.launches


def test_a_compiled_call_names_the_argument_and_what_to_declare():
    f = cutepy.compile(copy, TensorSpec("float16", ("m", "k")), OUT)
    with cutepy.simulate() as run, refuses(ArgumentError) as refused:
        f(values(64, 60), output())
    pins(str(refused.value))
    assert not run.launches
    a, d = values(64, 64), output()
    with cutepy.simulate():
        f(a, d)
    assert torch.equal(d, a)


@pytest.mark.gpu
def test_a_gpu_call_names_the_argument_and_what_to_declare():
    f = cutepy.compile(copy, TensorSpec("float16", ("m", "k")), OUT)
    with pytest.raises(ArgumentError, match=f"argument a: {PITCH_120}.*divisibility={{'k': 8}}"):
        f(values(64, 60).cuda(), output().cuda())
    a, d = values(64, 64).cuda(), output().cuda()
    f(a, d)
    assert torch.equal(d, a)


def test_a_named_stride_is_what_is_to_be_declared():
    f = cutepy.compile(copy, TensorSpec("float16", ("m", 64), strides=("lda", 1)), OUT)
    a, d = values(64, 72)[:, :64], output()
    with cutepy.simulate():
        f(a, d)
    assert torch.equal(d, a)
    with cutepy.simulate(), refuses(ArgumentError):
        f(values(64, 68)[:, :64], d)


def test_static_strides_are_refused_too():
    f = cutepy.compile(copy, TensorSpec("float16", (64, 60)), OUT)
    with cutepy.simulate(), refuses(ArgumentError):
        f(values(64, 60), output())
    with cutepy.simulate(), refuses(ValueError):
        copy(from_dlpack(values(64, 60)), output())


def test_the_stored_tensor_is_named():
    with cutepy.simulate(), refuses(ValueError):
        copy(values(64, 64), values(64, 60))


def test_what_the_dsl_compiles_itself_is_checked_in_the_simulator():
    a, d = values(64, 60), output()
    for options in ("", "--enable-tvm-ffi"):
        with cutepy.simulate() as run:
            arguments = [from_dlpack(t, enable_tvm_ffi=bool(options)).mark_layout_dynamic() for t in (a, d)]
            f = cute.compile(copy, *arguments, options=options)
            with refuses(ValueError):
                f(*((a, d) if options else arguments))
            assert not run.launches
            f(*(arguments[1:] * 2))  # the next call is a call of its own
            assert len(run.launches) == 1


def test_an_address_that_is_no_multiple_of_16_bytes_is_refused():
    shifted = torch.zeros(64 * 64 + 1, dtype=torch.float16)[1:].view(64, 64)
    with cutepy.simulate(), refuses(ValueError):
        copy(shifted, output())
    f = cutepy.compile(copy, TensorSpec("float16", TILE, align=2), OUT)
    with cutepy.simulate(), refuses(ArgumentError):
        f(shifted, output())


def test_a_contiguous_mode_that_is_not_is_refused():
    a, d = values(64, 128)[:, ::2], output()
    f = cutepy.compile(copy, TensorSpec("float16", ("m", "k"), strides=("s", "t"), divisibility={"s": 8}), OUT)
    with cutepy.simulate():
        f(values(64, 64), d)  # whose stride happens to be 1
        with refuses(ArgumentError):
            f(a, d)
        with refuses(ValueError):
            copy(from_dlpack(a), d)
    assert torch.equal(d, values(64, 64))


def test_the_stride_of_an_extent_of_1_is_not_used():
    f = cutepy.compile(copy, TensorSpec("float16", ("m", 64), strides=("lda", 1)), OUT)
    a, d = values(1, 68)[:, :64], output()
    assert a.stride(0) == 68
    with cutepy.simulate():
        f(a, d)
    assert torch.equal(d[:1], a)
    assert not d[1:].any()


def test_tma_does_not_transpose():
    """A tile that is contiguous along rows in shared memory asks for a tensor that is so in global memory."""

    @cute.jit
    def transposed(a: cute.Tensor, d: cute.Tensor):
        layout = smem.staged_layout(cutlass.Float16, TILE, 0, 1)
        load, mA = tma.make_load(a, layout, TILE, 1)
        store, mD = tma.make_store(d, layout, TILE)
        copy_tile(load, mA, store, mD, layout).launch(grid=(1, 1, 1), block=(32, 1, 1))

    with cutepy.simulate(), refuses(ValueError):
        transposed(values(64, 64), output())


def test_a_tensor_that_host_code_derives_is_traced_back_to_its_argument():
    a = torch.zeros(3, 64, 60, dtype=torch.float16)
    with cutepy.simulate(), refuses(ValueError):
        copy_of_batch(a, output())
    f = cutepy.compile(copy_of_batch, TensorSpec("float16", (3, "m", "k")), OUT)
    with cutepy.simulate(), refuses(ArgumentError):
        f(a, output())


def test_tensors_within_tuples_are_named_by_their_place():
    with cutepy.simulate(), refuses(ValueError):
        copy_pair(1, Pair(from_dlpack(output()), from_dlpack(values(64, 60)).mark_layout_dynamic()))


def test_names_of_tensors_within_tuples():
    def tensor():
        return from_dlpack(output())

    given = {"n": 1, "t": (tensor(), [2, tensor()]), "pair": Pair(tensor(), tensor()), "a": tensor()}
    assert tensor_names(given) == ["t[0]", "t[1][1]", "pair.d", "pair.a", "a"]


@pytest.mark.parametrize("declared", [True, False])
def test_what_the_types_prove_adds_no_code(declared):
    from cutepy.dsl.fakes import Symbols, fake_tensor
    from cutepy.dsl.program import compile_program

    symbols = Symbols({"k": 8} if declared else {})
    a, d = fake_tensor("float16", ("m", "k"), symbols), fake_tensor("float16", TILE, symbols)
    assert (b"TMA needs" in compile_program(copy, [a, d]).object) is not declared


@pytest.mark.parametrize(
    ("tensor", "coordinates", "leaves"),
    [
        ('f16, gmem, align<16>, "(?,?):(?{i64},1)"', "(?,?):(1@1,1@0)", [0]),
        ('f16, gmem, align<16>, "(?,?):(?{i64 div=8},1)"', "(?,?):(1@1,1@0)", []),
        ('f16, gmem, align<16>, "(?,?):(?{i64 div=4},1)"', "(?,?):(1@1,1@0)", [0]),
        ('f32, gmem, align<16>, "(?,?):(?{i64 div=4},1)"', "(?,?):(1@1,1@0)", []),
        ('f8E4M3FN, gmem, align<16>, "(?,?):(?{i64 div=8},1)"', "(?,?):(1@1,1@0)", [0]),
        ('f8E4M3FN, gmem, align<16>, "(?,?):(?{i64 div=16},1)"', "(?,?):(1@1,1@0)", []),
        ('f16, gmem, align<16>, "(?,?):(1,?{i64})"', "(?,?):(1@0,1@1)", [1]),
        ('f16, gmem, align<16>, "(64,60):(60,1)"', "(64,60):(1@1,1@0)", [0]),
        ('f16, gmem, align<16>, "(64,64):(64,1)"', "(64,64):(1@1,1@0)", []),
        ('f16, gmem, align<128>, "(?,?):(0,1)"', "(?,?):(1@1,1@0)", []),
        ('f16, gmem, align<8>, "(64,64):(64,1)"', "(64,64):(1@1,1@0)", [None]),
        ('f16, gmem, "(64,64):(64,1)"', "(64,64):(1@1,1@0)", [None]),
        ('f16, gmem, align<16>, "(?,?,?):(?{i64},1,?{i64 div=8})"', "(?,?,?):(1@1,1@0,1@2)", [0]),
        ('f16, gmem, align<16>, "((8,?),?):((?,?{div=8}),1)"', "((8,?),?):((1@1,1@2),1@0)", [0]),
        ('f16, gmem, align<16>, "(?,(8,?)):(8,(1,8))"', "(?,(8,?)):(1@1,(1@0,8@0))", []),
        ('f16, gmem, align<16>, "(?,(8,?)):(8,(8,1))"', "(?,(8,?)):(1@1,(8@0,1@0))", []),
        ('f16, gmem, align<16>, "(64,64):(64,2)"', "(64,64):(1@1,2@0)", [1]),
        ('f16, gmem, align<16>, "(?,?):(?{i64 div=8},?{i64})"', "(?,?):(1@1,?{i64}@0)", [1]),
        ('f16, gmem, align<16>, "(64,1):(?{i64 div=8},?{i64})"', "(64,1):(1@1,0)", []),
    ],
)
def test_what_the_types_leave_open(tensor, coordinates, leaves):
    found = requirements(f"!cute.memref<{tensor}>", f'!cute.coord_tensor<"(0,0)", "{coordinates}">')
    assert [need.leaf for need in found] == leaves


@pytest.mark.parametrize(
    ("dtype", "fine", "refused"),
    [
        ("f16", (0, 8, 64, (1 << 39) - 8), (-8, 1, 4, 60, 1 << 39, 1 << 41)),
        ("i8", (16, (1 << 40) - 16), (8, -16, 1 << 40)),
        ("f32", (4, 60), (1, 2, 6, 1 << 38)),
    ],
)
def test_strides_are_multiples_of_16_bytes_below_2_to_the_40(dtype, fine, refused):
    tensor, coordinates = f'!cute.memref<{dtype}, gmem, align<16>, "(?,?):(?,1)">', '"(?,?):(1@1,1@0)">'
    (need,) = requirements(tensor, coordinates)
    wrong = [stride for stride in (*fine, *refused) if (stride * need.factor ^ need.expected) & need.mask]
    assert wrong == list(refused)


def test_what_host_code_said_is_read_back():
    assert refused_stride("argument p.a[1]: a stride is 6 elements, 24 bytes, and TMA needs a multiple") == (
        "p.a[1]",
        6,
        4,
    )
    assert refused_stride("argument a: stride 1 is 2 elements, and TMA needs 1: it copies") is None


def test_where_rows_are_apart_by_choice_nothing_is_to_be_padded():
    f = cutepy.compile(copy, TensorSpec("float16", ("m", "k")), OUT)
    with cutepy.simulate(), refuses(ArgumentError):
        f(values(64, 68)[:, :64], output())


@pytest.mark.parametrize(
    ("strides", "wrong"),
    [
        ("(128,1280,15360),1", []),
        ("(100,1280,15360),1", [0]),
        ("(128,1280,15360),2", [3]),
        ("(?,1280,?),1", [0, 2]),
        ("(128,1280,15360),(1,2)", []),
        ("(128,1280,15360),(2,4)", [3]),
    ],
)
def test_im2col_mode_takes_the_last_mode_for_the_contiguous_one(strides, wrong):
    tensor = f'!cute.memref<f16, gmem, align<128>, "((10,12,5),128):({strides})">'
    coordinates = (
        '!cute.coord_tensor<"(0,(-1,-2),0,(0,0))", "((11,14,5),(128,1,1)):((1@0@1,1@1@1,1@2),(1@0,1@0@3,1@1@3)) o '
        '(0,(0,0,0)) o (770,(128,1,1)):(1@0,(1@0@1,1@1@1,1@2@1))">'
    )
    assert sorted(r.leaf for r in requirements(tensor, coordinates)) == wrong


SCALES = '"(((32,4),?),((16,4),?),(1,?)):(((16,4),?{div=512}),((0,1),512),(0,?{div=512}))"'
SCALE_STEPS = '"(((32,4),?),((16,4),?),(1,?)):(((8@0,2@0),1@2),((0,1/2@0),1@1),(0,1@3))"'


@pytest.mark.parametrize(
    ("tensor", "steps", "wrong"),
    [
        # Scale factors of a block-scaled product: bytes that are moved in pairs.
        (f"f8E4M3FN, gmem, align<32>, {SCALES}", SCALE_STEPS, []),
        (f"f8E8M0FNU, gmem, align<32>, {SCALES}", SCALE_STEPS, []),
        (f"i8, gmem, align<32>, {SCALES}", SCALE_STEPS, []),
        # The neighbours of each pair are 2 apart.
        (f"f8E4M3FN, gmem, align<32>, {SCALES.replace('(0,1)', '(0,2)')}", SCALE_STEPS, [4]),
        (f"f8E4M3FN, gmem, align<32>, {SCALES.replace('(0,1)', '(0,?)')}", SCALE_STEPS, [4]),
        # 4-bit elements that are moved as bytes, and as words of 16 and of 32 bits.
        ('f4E2M1FN, gmem, align<16>, "((2,64),128):((1,2),128)"', '"((2,64),128):((1/2@0,1@0),1@1)"', []),
        ('f4E2M1FN, gmem, align<16>, "((4,32),128):((1,4),128)"', '"((4,32),128):((1/4@0,1@0),1@1)"', []),
        ('i4, gmem, align<16>, "((64,8),128):((8,1),512)"', '"((64,8),128):((1@0,1/8@0),1@1)"', []),
        ('f4E2M1FN, gmem, align<16>, "((2,64),128):((2,4),256)"', '"((2,64),128):((1/2@0,1@0),1@1)"', [0]),
        ('f4E2M1FN, gmem, align<16>, "((2,64),128):((1,2),16)"', '"((2,64),128):((1/2@0,1@0),1@1)"', [2]),  # 8 bytes
        # Wide elements that are moved in halves, and blocks along the contiguous dimension.
        ('f64, gmem, align<16>, "(64,128):(1,64)"', '"(64,128):(2@0,1@1)"', []),
        ('f32, gmem, align<16>, "((8,8),128):((8,1),64)"', '"((8,8),128):((8@0,1@0),1@1)"', []),
        ('f32, gmem, align<16>, "((8,8),128):((8,2),64)"', '"((8,8),128):((8@0,1@0),1@1)"', [1]),
        # A step that is known at run time only is not the smallest.
        ('f16, gmem, align<16>, "((8,8),128):((?,1),64)"', '"((8,8),128):((?@0,1@0),1@1)"', []),
        # Two modes with the same step, of which one is of extent 1.
        ('f16, gmem, align<16>, "((1,64),128):((64,1),64)"', '"((1,64),128):((1@0,1@0),1@1)"', []),
    ],
)
def test_the_smallest_step_along_the_first_dimension_is_contiguous(tensor, steps, wrong):
    found = requirements(f"!cute.memref<{tensor}>", f'!cute.coord_tensor<"(0,0)", {steps}>')
    assert [need.leaf for need in found] == wrong


def test_modes_within_an_element_of_tma_are_contiguous():
    """Scale factors of blocks, 4 of a row in 4 bytes: the mode that TMA counts has stride 4."""
    tensor = '!cute.memref<f8E8M0FNU, gmem, align<16>, "(((32,4),?),((32,4),?)):(((16,4),?{div=512}),((0,1),512))">'
    coordinates = '!cute.coord_tensor<"(0,0,0)", "(((32,4),?),((32,4),?)):(((2@0,1/2@0),1@1),((0,0),1@2))">'
    assert requirements(tensor, coordinates) == []
    (need,) = requirements(tensor.replace("(0,1),512", "(0,2),512"), coordinates)
    assert need.leaf == 1
