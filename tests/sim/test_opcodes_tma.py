"""TMA: tensor copies of rank 1 to 5, all swizzles, elements outside, multicast, reductions, tensor maps replaced."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.sim import DescriptorError, MemoryAccessError, Observer, Run
from cutepy.sim.mechanisms.tensor_columns import Column
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.opcode_runner import launch

START = """mov.u32 %r10, smem; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r9, %ctaid.x;
mov.b64 %rd1, p0; cvta.param.u64 %rd1, %rd1; add.u32 %r11, %r10, 1024; mov.u32 %r2, %cluster_ctarank;
createpolicy.fractional.L2::evict_last.b64 %rd8, 1.0; mov.u16 %rs1, 3;"""
AT = "{%r20, %r20, %r20, %r20}"
MASKS = {"INTER": (0, 4), "SW32": (1, 4), "SW64": (3, 4), "SW128": (7, 4), "SW128_32B": (3, 5)}


def tensor_map(array, box, **options):
    """Encode the map of an array whose last axis is contiguous; `box` counts from that axis on."""
    dtype = {"u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64", "i4": "s32", "f2": "f16", "f4": "f32"}[
        array.dtype.str[1:]
    ]
    dtype = options.pop("dtype", dtype)
    tensor = TensorMap(
        dtype, array.shape[::-1], array.strides[-2::-1], box, global_address=array.ctypes.data, **options
    )
    return np.array([*tensor.encode(), *[0] * 8], np.uint64).tobytes()


def aligned(shape, kind, seed=0):
    """Make an array at a multiple of 128 bytes whose rows are multiples of 16, with room behind them."""
    rng = np.random.default_rng(seed)
    size = np.dtype(kind).itemsize
    width = -(-shape[-1] * size // 16) * 16 // size + 16 // size
    raw = np.zeros(int(np.prod(shape[:-1])) * width * size + 256, np.uint8)
    start = -raw.ctypes.data % 128
    whole = raw[start : start + int(np.prod(shape[:-1])) * width * size].view(kind).reshape(*shape[:-1], width)
    whole[...] = rng.integers(1, 120, whole.shape)
    return whole[..., : shape[-1]]


def swizzled(data, mode):
    """Return where each byte of a box lies: bits 7 to 9 of its address flip bits 4 to 6, or 7 and 8 flip 5 and 6."""
    flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    address = np.arange(len(flat))
    result = np.zeros_like(flat)
    mask, unit = MASKS[mode]
    result[address ^ (address >> 7 & mask) << unit] = flat
    return result


def box_of(array, at, box, fill=0):
    """Cut a box out of an array, by coordinates from the last axis on; outside is `fill`."""
    result = np.full(box[::-1], fill, array.dtype)
    for position in itertools.product(*(range(e) for e in box[::-1])):
        index = tuple(p + c for p, c in zip(position, at[::-1], strict=True))
        if all(0 <= i < d for i, d in zip(index, array.shape, strict=True)):
            result[position] = array[index]
    return result


def coordinates(at):
    return ", ".join(f"%r{20 + n}" for n in range(len(at)))


def set_coordinates(at):
    return "".join(f"mov.u32 %r{20 + n}, {c};" for n, c in enumerate(at))


def dump(words, offset=1024):
    """Return PTX that copies shared memory to the array that p1 points at."""
    return f"""bar.sync 0; ld.param.u64 %rd60, [p1]; mul.lo.u32 %r50, %r9, {4 * words}; cvt.u64.u32 %rd61, %r50;
    add.u64 %rd60, %rd60, %rd61; mov.u32 %r50, %r1;
    DUMP: mul.lo.u32 %r51, %r50, 4; add.u32 %r52, %r51, %r10; ld.shared.u32 %r53, [%r52+{offset}];
    cvt.u64.u32 %rd61, %r51;
    add.u64 %rd61, %rd60, %rd61; st.global.u32 [%rd61], %r53; add.u32 %r50, %r50, 32; setp.lt.u32 %p60, %r50, {words};
    @%p60 bra DUMP;"""


def fill(words):
    """Return PTX that copies the array that p1 points at to shared memory."""
    return f"""ld.param.u64 %rd60, [p1]; mov.u32 %r50, %r1;
    FILL: mul.lo.u32 %r51, %r50, 4; add.u32 %r52, %r51, %r10; cvt.u64.u32 %rd61, %r51; add.u64 %rd61, %rd60, %rd61;
    ld.global.u32 %r53, [%rd61]; st.shared.u32 [%r52+1024], %r53; add.u32 %r50, %r50, 32;
    setp.lt.u32 %p60, %r50, {words}; @%p60 bra FILL; fence.proxy.async.shared::cta; bar.sync 0;"""


def load_body(opcode, at, size, more=""):
    return f"""@%p1 mbarrier.init.shared.b64 [%r10], 1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], {size};
    bar.sync 0;
    @%p1 {opcode} [%r11], [%rd1, {{{coordinates(at)}}}], [%r10]{more};
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0;
    @!%p2 bra WAIT;"""


SHAPES = {
    1: ((400,), (128,)),
    2: ((19, 72), (16, 8)),
    3: ((5, 7, 40), (16, 4, 3)),
    4: ((3, 4, 5, 24), (16, 2, 3, 2)),
    5: ((2, 3, 4, 5, 24), (16, 2, 2, 3, 2)),
}
LOADS = [
    "shared::cluster.global.tile.mbarrier::complete_tx::bytes",
    "shared::cluster.global.mbarrier::complete_tx::bytes",
    "shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint",
    "shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint",
]


def origin(where, shape, box):
    """Return coordinates; the innermost one is a multiple of 16 bytes of u16, as it must be."""
    steps = (8, *[1] * (len(box) - 1))
    return tuple(
        {"inside": n, "low": -n, "high": d - e + n}[where] for d, e, n in zip(shape[::-1], box, steps, strict=True)
    )


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("where", ["inside", "low", "high", "outside"])
def test_load(rank, where):
    """A box of every rank; inside, over the lower or the upper edge of the tensor, or wholly outside."""
    shape, box = SHAPES[rank]
    array = aligned(shape, "u2", rank)
    at = (0,) * (rank - 1) + (504,) if where == "outside" else origin(where, shape, box)
    size = int(np.prod(box)) * 2
    out = np.zeros(size // 4, np.uint32)
    for n, load in enumerate(LOADS if where == "inside" else LOADS[:1]):
        opcode = f"cp.async.bulk.tensor.{rank}d.{load}"
        body = load_body(opcode, at, size, ", %rd8" if "hint" in load else "")
        launch(
            body,
            tensor_map(array, box),
            out,
            before=START + set_coordinates(at),
            after=dump(len(out)),
            smem_bytes=8192,
            run=adopted(array),
            assembles="shared::cta" not in load,
        )
        np.testing.assert_array_equal(out.view("u2").reshape(box[::-1]), box_of(array, at, box), err_msg=str(n))


def adopted(*arrays):
    run = Run((), None)
    for array in arrays:
        run.register(array)
    return run


KINDS = ["u1", "u2", "u4", "u8", "i4", "f2", "f4"]


@pytest.mark.parametrize("mode", MASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_swizzles(mode, kind):
    """All swizzles, loads and stores, with rows as wide as the swizzle's pattern."""
    size = np.dtype(kind).itemsize
    row_bytes = {"INTER": 64, "SW32": 32, "SW64": 64, "SW128": 128, "SW128_32B": 128}[mode]
    target_of = "sm_100a" if mode == "SW128_32B" else "sm_90a"
    box, at = (row_bytes // size, 24), (16 // size, 3)
    array = aligned((40, 2 * box[0]), kind, 7)
    bytes_ = 24 * row_bytes
    out = np.zeros(bytes_ // 4, np.uint32)
    mapped = tensor_map(array, box, swizzle=mode)
    opcode = f"cp.async.bulk.tensor.2d.{LOADS[0]}"
    launch(
        load_body(opcode, at, bytes_),
        mapped,
        out,
        before=START + set_coordinates(at),
        after=dump(len(out)),
        smem_bytes=8192,
        run=adopted(array),
        target=target_of,
    )
    expected = swizzled(box_of(array, at, box), mode)
    np.testing.assert_array_equal(out.view(np.uint8), expected)
    target = np.zeros_like(array.base if array.base is not None else array)
    target = aligned(array.shape, kind, 8)
    before = target.copy()
    store = store_body("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", at)
    launch(
        store,
        tensor_map(target, box, swizzle=mode),
        out,
        before=START + set_coordinates(at) + fill(len(out)),
        smem_bytes=8192,
        run=adopted(target),
        target=target_of,
    )
    before[3:27, at[0] : at[0] + box[0]] = box_of(array, at, box)
    np.testing.assert_array_equal(target, before)


def store_body(opcode, at, more=""):
    return f"""@%p1 {opcode} [%rd1, {{{coordinates(at)}}}], [%r11]{more};
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    @%p1 cp.async.bulk.wait_group 0;"""


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize("where", ["inside", "high"])
@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_store(rank, where, hint):
    shape, box = SHAPES[rank]
    array = aligned(shape, "u2", rank)
    expected = array.copy()
    whole = array.base
    at = origin(where, shape, box)
    words = int(np.prod(box)) // 2
    data = np.random.default_rng(5).integers(0, 2**32, words).astype(np.uint32)
    values = data.view("u2").reshape(box[::-1])
    body = store_body(
        f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group{hint}", at, ", %rd8" if hint else ""
    )
    launch(
        body,
        tensor_map(array, box),
        data,
        before=START + set_coordinates(at) + fill(words),
        smem_bytes=8192,
        run=adopted(array),
    )
    for position in itertools.product(*(range(e) for e in box[::-1])):
        index = tuple(p + c for p, c in zip(position, at[::-1], strict=True))
        if all(0 <= i < d for i, d in zip(index, array.shape, strict=True)):
            expected[index] = values[position]
    np.testing.assert_array_equal(array, expected)
    assert whole is not None


class Dropped(Observer):
    """Bytes of shared memory that stores do not store."""

    def __init__(self):
        self.found = []

    def on_access(self, access):
        if access.space == "shared" and access.proxy == "async" and access.operation == "read":
            self.found.append(access.dropped)


@pytest.mark.parametrize("offset", [0, 128, 384])
@pytest.mark.parametrize(("swizzle", "columns"), [("INTER", 64), ("SW32", 32), ("SW64", 64), ("SW128", 128)])
def test_a_store_drops_the_bytes_that_a_load_fills(swizzle, columns, offset):
    """A load of the same box, in which no element is zero, leaves zeros where nothing is stored from."""
    array, at, box, seen = aligned((7, 48), "u1"), (32, 2), (columns, 8), Dropped()
    run, size = Run((seen,), None), columns * 8
    run.register(array)
    out = np.zeros(size // 4, np.uint32)
    load, store = LOADS[0], "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    opcode = f"cp.async.bulk.tensor.2d.{load}"
    launch(
        f"add.u32 %r11, %r11, {offset};" + load_body(opcode, at, size) + store_body(store, at),
        tensor_map(array, box, swizzle=swizzle),
        out,
        before=START + set_coordinates(at),
        after=dump(len(out), 1024 + offset),
        smem_bytes=8192,
        run=run,
    )
    (dropped,) = seen.found
    np.testing.assert_array_equal(dropped[0], out.view(np.uint8) == 0)
    assert 0 < dropped.sum() < size


REDUCTIONS = (
    [(op, k) for op in ("add", "min", "max") for k in ("u4", "i4", "f2")]
    + [(op, "u4") for op in ("inc", "dec", "and", "or", "xor")]
    + [("add", "f4"), ("add", "u8"), ("add", "bf16"), ("min", "bf16")]
)


@pytest.mark.parametrize(("operation", "kind"), REDUCTIONS)
def test_reduction(operation, kind):
    """A box combined with what is there; elements above the tensor's edges are left out."""
    bf16 = kind == "bf16"
    storage = "u2" if bf16 else kind
    unit = 16 // np.dtype(storage).itemsize
    box, at, inside = (16, 4), (24 + unit, 7), 16 - unit
    target = aligned((10, 40), storage, 1)
    data = np.random.default_rng(2).integers(-50 if kind in ("i4", "f2", "f4") else 1, 90, box[::-1]).astype(storage)
    if bf16:
        target[...] = (target.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        data = (data.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    widen = (lambda x: (x.astype(np.uint32) << 16).view(np.float32)) if bf16 else (lambda x: x)
    x, y = widen(target.copy()[7:10, at[0] :]), widen(data[:3, :inside])
    rules = {
        "add": lambda: x + y,
        "min": lambda: np.minimum(x, y),
        "max": lambda: np.maximum(x, y),
        "and": lambda: x & y,
        "or": lambda: x | y,
        "xor": lambda: x ^ y,
        "inc": lambda: np.where(x >= y, 0, x + 1),
        "dec": lambda: np.where((x == 0) | (x > y), y, x - 1),
    }
    expected = target.copy()
    result = rules[operation]()
    expected[7:10, at[0] :] = (result.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) if bf16 else result
    body = store_body(f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group", at)
    options = {"dtype": "bf16"} if bf16 else {}
    words = data.nbytes // 4
    launch(
        body,
        tensor_map(target, box, **options),
        data,
        before=START + set_coordinates(at) + fill(words),
        smem_bytes=8192,
        run=adopted(target),
    )
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_reduction_of_every_rank(hint):
    for rank in (1, 3, 4, 5):
        shape, box = SHAPES[rank]
        target = aligned(shape, "u4", rank)
        expected = target.copy()
        data = np.random.default_rng(1).integers(0, 99, box[::-1]).astype(np.uint32)
        expected[tuple(slice(0, e) for e in box[::-1])] += data
        at = (0,) * rank
        opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.tile.bulk_group{hint}"
        launch(
            store_body(opcode, at, ", %rd8" if hint else ""),
            tensor_map(target, box),
            data,
            before=START + set_coordinates(at) + fill(data.size),
            smem_bytes=8192,
            run=adopted(target),
        )
        np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("kind", ["f2", "f4"])
def test_nan_outside(kind):
    array = aligned((8, 8), kind, 1)
    box, at = (16, 4), (0, 6)
    size = int(np.prod(box)) * array.itemsize
    out = np.zeros(size // 4, np.uint32)
    mapped = tensor_map(array, box, oob_fill="nan")
    launch(
        load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", at, size),
        mapped,
        out,
        before=START + set_coordinates(at),
        after=dump(len(out)),
        smem_bytes=4096,
        run=adopted(array),
    )
    found = out.view(kind).reshape(box[::-1])
    np.testing.assert_array_equal(found[:2, :8], array[6:])
    assert np.isnan(found[2:]).all()
    assert np.isnan(found[:, 8:]).all()


def test_tf32_is_rounded():
    """Elements become tf32, NaNs one of them; what is outside is not rounded."""
    array = aligned((1, 8), "u4")
    array[0] = [0x3F7FFFFF, 0x3F801001, 0x7F7FFFFF, 1, 0xFF800001, 0x80800001, 0xFF800000, 0x400000]
    out = np.zeros(32, np.uint32)
    launch(
        load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", (0, 0), 128),
        tensor_map(array, (16, 2), dtype="tf32", oob_fill="nan"),
        out,
        before=START + set_coordinates((0, 0)),
        after=dump(32),
        smem_bytes=4096,
        run=adopted(array),
    )
    rounded = [0x3F800000, 0x3F802000, 0x7F800000, 0, 0x7FFFE000, 0x80800000, 0xFF800000, 0x400000]
    assert out.tolist() == [*rounded, *[0x7FF77FF7] * 24]


def test_tf32_is_rounded_where_the_box_is_inside():
    array = aligned((2, 16), "u4")
    array[:] = 0x3F801001
    out = np.zeros(32, np.uint32)
    launch(
        load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", (0, 0), 128),
        tensor_map(array, (16, 2), dtype="tf32"),
        out,
        before=START + set_coordinates((0, 0)),
        after=dump(32),
        smem_bytes=4096,
        run=adopted(array),
    )
    assert out.tolist() == [0x3F802000] * 32


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_multicast(rank, hint):
    """The second CTA of three loads for itself and the third: each of them counts the bytes."""
    shape, box = SHAPES[rank]
    array = aligned(shape, "u4", rank)
    at = (4, *[1] * (rank - 1))
    size = int(np.prod(box)) * 4
    out = np.zeros(3 * size // 4, np.uint32)
    opcode = f"cp.async.bulk.tensor.{rank}d.{LOADS[0]}.multicast::cluster{hint}"
    more = ", %rs2, %rd8" if hint else ", %rs2"
    body = f"""@%p1 mbarrier.init.shared.b64 [%r10], 1;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra END;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], {size};
    setp.eq.and.u32 %p5, %r2, 1, %p1;
    @%p5 {opcode} [%r11], [%rd1, {{{coordinates(at)}}}], [%r10]{more};
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0;
    @!%p2 bra WAIT;
    END: barrier.cluster.arrive;
    barrier.cluster.wait;"""
    before = START + set_coordinates(at) + "mov.u16 %rs2, 6;"
    launch(
        body,
        tensor_map(array, box),
        out,
        before=before,
        after=dump(size // 4),
        smem_bytes=8192,
        grid=3,
        cluster=3,
        run=adopted(array),
    )
    expected = box_of(array, at, box)
    found = out.reshape(3, *box[::-1])
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_array_equal(found[1], expected)
    np.testing.assert_array_equal(found[2], expected)


def test_prefetch_of_tensors():
    array = aligned((19, 72), "u2")
    body = """cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r20, %r21}];
    prefetch.tensormap [%rd1];"""
    launch(body, tensor_map(array, (16, 8)), before=START + set_coordinates((0, 0)), run=adopted(array))


ROWS = (8, 7, 2, 30, 2)
"""A column and four rows, of which one comes twice, and one lies outside."""


@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_reduction_into_four_rows(hint):
    """Rows are combined with those that the coordinates name, one after the other."""
    target = aligned((19, 40), "u4")
    expected = target.copy()
    data = np.random.default_rng(1).integers(0, 99, (4, 16)).astype(np.uint32)
    for row, values in zip(ROWS[1:], data, strict=True):
        if row < len(target):
            expected[row, 8:24] += values
    opcode = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group{hint}"
    launch(
        store_body(opcode, ROWS, ", %rd8" if hint else ""),
        tensor_map(target, (16, 1)),
        data,
        before=START + set_coordinates(ROWS) + fill(data.size),
        smem_bytes=8192,
        run=adopted(target),
        target="sm_100a",
    )
    np.testing.assert_array_equal(target, expected)


def test_prefetch_of_four_rows():
    """Nothing is fetched; a tensor map whose box has more than a row is refused, as in a copy."""
    array = aligned((19, 40), "u4")
    body = f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4 [%rd1, {{{coordinates(ROWS)}}}];"
    options = {"before": START + set_coordinates(ROWS), "target": "sm_100a"}
    launch(body, tensor_map(array, (16, 1)), run=adopted(array), **options)
    with refuses(DescriptorError):
        launch(body, tensor_map(array, (16, 4)), run=adopted(array), **options)


# tensormap.replace.


@pytest.mark.parametrize("space", ["global", "shared::cta"])
def test_tensormap_replace(space):
    """A map made for one tensor is made over for another, field by field, and then loads it."""
    first, second = aligned((8, 32), "u2", 1), aligned((5, 6, 24), "u4", 2)
    box, at = (16, 3, 2), (4, 2, 3)
    raw = np.zeros(256, np.uint8)
    work = raw[-raw.ctypes.data % 128 :][:128]
    work[:] = np.frombuffer(tensor_map(first, (16, 8)), np.uint8)
    size = int(np.prod(box)) * 4
    out = np.zeros(size // 4, np.uint32)
    shared = space != "global"
    address = "%r30" if shared else "%rd1"
    bits = ".shared::cta" if shared else ".global"
    fields = [("global_address", "b64", "", "%rd3"), ("rank", "b32", "", "2"), ("elemtype", "b32", "", "2")]
    fields += [("interleave_layout", "b32", "", "0"), ("swizzle_mode", "b32", "", "0"), ("fill_mode", "b32", "", "0")]
    strides = second.strides[-2::-1]
    for n in range(3):
        fields.append(("global_dim", "b32", f"{n}, ", "%r40"))
        fields.append(("box_dim", "b32", f"{n}, ", "%r41"))
        fields.append(("element_stride", "b32", f"{n}, ", "%r42"))
    lines = []
    for name, width, ordinal, value in fields:
        n = int(ordinal[0]) if ordinal else 0
        if value == "%r40":
            lines.append(f"mov.u32 %r40, {second.shape[::-1][n]};")
        if value == "%r41":
            lines.append(f"mov.u32 %r41, {box[n]};")
        lines.append(f"@%p1 tensormap.replace.tile.{name}{bits}.b1024.{width} [{address}], {ordinal}{value};")
    for n in range(2):
        lines.append(f"mov.u64 %rd4, {strides[n]};")
        lines.append(f"@%p1 tensormap.replace.tile.global_stride{bits}.b1024.b64 [{address}], {n}, %rd4;")
    if shared:
        lines.append("bar.sync 0;")
        lines.append(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
            "[%rd1], [%r30], 128;"
        )
    lines.append("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;")
    before = START + set_coordinates(at)
    before += "ld.param.u64 %rd1, [p0]; ld.param.u64 %rd3, [p2]; mov.u32 %r42, 1; add.u32 %r30, %r10, 4096;"
    before += "".join(f"ld.global.u32 %r43, [%rd1+{n}]; st.shared.u32 [%r30+{n}], %r43;" for n in range(0, 128, 4))
    body = "\n".join(lines) + "\n" + load_body(f"cp.async.bulk.tensor.3d.{LOADS[0]}", at, size)
    launch(body, work, out, second, before=before, after=dump(len(out)), smem_bytes=8192, run=adopted(first))
    np.testing.assert_array_equal(out.view("u4").reshape(box[::-1]), box_of(second, at, box))


def test_the_atoms_of_a_swizzle_are_replaced():
    """By PTX's code 1 they have 32 bytes; what codes 2 and 3 exchange no public document settles."""
    array, box, at = aligned((40, 64), "u4", 3), (32, 16), (4, 2)
    out = np.zeros(16 * 32, np.uint32)
    for code, said in ((0, "SW128"), (1, "SW128_32B"), (2, "_ATOM_32B_FLIP_8B"), (3, "_ATOM_64B")):
        raw = np.zeros(256, np.uint8)
        work = raw[-raw.ctypes.data % 128 :][:128]
        work[:] = np.frombuffer(tensor_map(array, box, swizzle="SW128"), np.uint8)
        body = f"@%p1 tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%rd1], {code};"
        body += "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;"
        body += load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", at, out.nbytes)
        before = START + set_coordinates(at) + "ld.param.u64 %rd1, [p0];"
        options = {"before": before, "after": dump(len(out)), "smem_bytes": 8192, "target": "sm_100a"}
        if code < 2:
            launch(body, work, out, run=adopted(array), **options)
            np.testing.assert_array_equal(out.view(np.uint8), swizzled(box_of(array, at, box), said))
        else:
            with refuses(DescriptorError):
                launch(body, work, out, run=adopted(array), **options)


def test_fields_beyond_the_rank_mean_nothing():
    """All that concerns the third to the fifth dimension is set, in a map of two."""
    array, box, at = aligned((19, 72), "u2", 3), (16, 8), (8, 3)
    bits = int.from_bytes(tensor_map(array, box)[:64], "little")
    for first, width, used in ((96, 32, 1), (224, 4, 1), (256, 32, 2), (416, 3, 2), (440, 8, 2)):
        count = (4 if first < 256 else 5) - used
        bits |= (1 << width * count) - 1 << first + width * used
    raw = np.zeros(256, np.uint8)
    work = raw[-raw.ctypes.data % 128 :][:128]
    work[:64] = np.frombuffer(bits.to_bytes(64, "little"), np.uint8)
    out = np.zeros(16 * 8 // 2, np.uint32)
    body = load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", at, 256)
    before = START + set_coordinates(at) + "ld.param.u64 %rd1, [p0];"
    launch(body, work, out, before=before, after=dump(len(out)), smem_bytes=8192, run=adopted(array))
    np.testing.assert_array_equal(out.view("u2").reshape(8, 16), box_of(array, at, box))


class Accesses(Observer):
    def __init__(self):
        self.seen = []

    def on_access(self, access):
        self.seen.append((access.operation, access.space, access.proxy, access.size_bytes))


@pytest.mark.parametrize(("at", "rows", "size"), [((0, 0), 8, 16), ((8, 16), 3, 16), ((0, 19), 0, 0), ((72, 0), 0, 0)])
def test_of_global_memory_a_load_reads_what_is_inside_of_the_tensor(at, rows, size):
    """Observers are told of no bytes of a box that is beyond the tensor along one mode."""

    class Reads(Observer):
        def __init__(self):
            self.seen = []

        def on_access(self, access):
            if (access.operation, access.space, access.proxy) == ("read", "global", "async"):
                self.seen.append((access.addresses.reshape(-1).tolist(), access.size_bytes))

    array, seen = aligned((19, 72), "u2"), Reads()
    run = Run((seen,), None)
    run.register(array)
    body = set_coordinates(at) + load_body(f"cp.async.bulk.tensor.2d.{LOADS[0]}", at, 128)
    launch(body, tensor_map(array, (8, 8)), before=START, smem_bytes=2048, run=run)
    first = array.ctypes.data + at[1] * array.strides[0] + 2 * at[0]
    assert seen.seen == ([([first + n * array.strides[0] for n in range(rows)], size)] if rows else [])


def test_what_a_store_reads_is_observed():
    array, seen = aligned((19, 72), "u2"), Accesses()
    run = Run((seen,), None)
    run.register(array)
    data = np.zeros(64, np.uint32)
    body = store_body("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", (8, 1))
    before = START + set_coordinates((8, 1)) + fill(64)
    launch(body, tensor_map(array, (16, 8)), data, before=before, smem_bytes=8192, run=run)
    assert seen.seen.count(("read", "shared", "async", 256)) == 1


# Errors.


def test_errors():
    array = aligned((19, 72), "u2")
    other = aligned((1 << 15, 72), "u2")[-19:]  # far from the first, so that the text does not depend on places
    mapped = tensor_map(array, (16, 8))
    before = START + set_coordinates((0, 0)) + "mov.u32 %r22, 0; mov.u32 %r24, 4; mov.u32 %r25, -1; mov.u32 %r26, -8;"
    init = "@%p1 mbarrier.init.shared.b64 [%r10], 1;\nbar.sync 0;\n"
    load = f"cp.async.bulk.tensor.2d.{LOADS[0]}"
    store = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    reduce = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
    cases = [
        (f"@%p1 {load} [%r11+64], [%rd1, {{%r20, %r21}}], [%r10];", mapped, MemoryAccessError),
        (f"@%p1 {load} [%r11], [%rd1, {{%r20, %r21}}], [%r10+1];", mapped, MemoryAccessError),
        (f"@%p1 {load} [%r11+7168], [%rd1, {{%r20, %r21}}], [%r10];", mapped, MemoryAccessError),
        (f"@%p1 {load.replace('2d', '3d')} [%r11], [%rd1, {{%r20, %r21, %r22}}], [%r10];", mapped, DescriptorError),
        (f"@%p1 {load} [%r11], [%rd1, {{%r24, %r21}}], [%r10];", mapped, MemoryAccessError),
        (f"@%p1 {store} [%rd1, {{%r20, %r25}}], [%r11];", mapped, MemoryAccessError),
        (f"@%p1 {reduce} [%rd1, {{%r26, %r21}}], [%r11];", mapped, MemoryAccessError),
        (f"@%p1 {load} [%r11], [%rd1+8, {{%r20, %r21}}], [%r10];", mapped, DescriptorError),
        (f"@%p1 {load} [%r11], [%rd1, {{%r20, %r21}}], [%r10];", bytes(128), DescriptorError),
        (f"@%p1 {load} [%r11], [%rd1, {{%r20, %r21}}], [%r10];", tensor_map(other, (16, 8)), MemoryAccessError),
    ]
    replaced = "@%p1 tensormap.replace.tile.{}.global.b1024.b64 [%rd1], {}{};"
    for field, ordinal, value in (("global_address", "", 0x7008), ("global_stride", "0, ", 24)):
        line = f"mov.u64 %rd4, {value}; {replaced.format(field, ordinal, '%rd4')}"
        cases.append((line, mapped, DescriptorError))
    for line, data, error in cases:
        with refuses(error) as caught:
            launch(init + line, data, before=before, smem_bytes=8192, run=adopted(array), assembles=False)
        assert "kernel.py:3" in str(caught.value)


def test_the_mode_of_copy_and_map_must_agree():
    array = aligned((4, 6, 72), "u2")
    before = START + set_coordinates((0, 0, 0)) + "mov.u16 %rs2, 0;"
    init = "@%p1 mbarrier.init.shared.b64 [%r10], 1;\nbar.sync 0;\n"
    load = f"cp.async.bulk.tensor.3d.{LOADS[0].replace('tile', 'im2col')} [%r11], [%rd1, {{%r20, %r21, %r22}}], [%r10]"
    for line, data in [
        (f"@%p1 {load}, {{%rs2}};", tensor_map(array, (16, 4, 1))),
        (f"@%p1 {load.replace('im2col', 'tile')};", im2col_map(array)),
    ]:
        with refuses(DescriptorError):
            launch(init + line, data, before=before, smem_bytes=8192, run=adopted(array))
    with refuses(MemoryAccessError):  # 8 bytes behind a multiple of 16
        body, beside = f"{init}@%p1 {load}, {{%rs2}};", START + set_coordinates((4, 0, 0)) + "mov.u16 %rs2, 0;"
        launch(body, im2col_map(array), before=beside, smem_bytes=8192, run=adopted(array))
    line = f"{load}, {{%rs2, %rs2}};"
    with refuses(PtxSyntaxError):
        launch(init + line, im2col_map(array), before=before, smem_bytes=8192, run=adopted(array), assembles=False)


# Copies in im2col mode.


def im2col_map(array, *corners, **options):
    return np.array([*im2col_tensor(array, *corners, **options).encode(), *[0] * 8], np.uint64).tobytes()


def im2col_tensor(array, lower=None, upper=None, pixels=16, channels=16, **options):
    none = (0,) * (array.ndim - 2)
    return Im2colTensorMap(
        {"u2": "u16", "u4": "u32"}[array.dtype.str[1:]],
        array.shape[::-1],
        array.strides[-2::-1],
        lower or none,
        upper or none,
        channels,
        pixels,
        global_address=array.ctypes.data,
        **options,
    )


def pixels_of(shape, at, count, lower, upper, steps):
    """Return the pixels (N, ..., W) of a column: walk from one to the next, by carrying from W to N."""
    extents, where, found = shape[-2::-1], list(at), []
    for _ in range(count):
        found.append(tuple(where[::-1]))
        where[0] += steps[0]
        for n in range(len(where) - 1):
            if where[n] <= extents[n] - 1 + upper[n]:
                break
            where[n] = lower[n]
            where[n + 1] += steps[n + 1]
    return found


def column_of(array, channel, channels, pixels, offsets):
    """Gather channels of pixels, zeros where there are none."""
    result = np.zeros((len(pixels), channels), array.dtype)
    moved = [(pixel[0], *(p + o for p, o in zip(pixel[1:], offsets[::-1], strict=True))) for pixel in pixels]
    for row, pixel in enumerate(moved):
        if all(0 <= p < e for p, e in zip(pixel, array.shape, strict=False)):
            inside = array[pixel][max(channel, 0) : channel + channels]
            result[row, max(-channel, 0) :][: len(inside)] = inside
    return result


COLUMNS = [
    # A shape (N, ..., C), where the column starts, corners, offsets, element strides and swizzle.
    ((3, 7, 24), (8, 2, 0), (0,), (0,), (0,), (1, 1, 1), "INTER"),
    ((3, 7, 24), (-8, 2, 0), (0,), (0,), (0,), (1, 1, 1), "INTER"),
    ((3, 7, 24), (0, -2, 0), (-2,), (-1,), (3,), (1, 2, 1), "SW32"),
    ((3, 7, 24), (0, -1, 0), (-2,), (0,), (0,), (1, 2, 1), "INTER"),  # starts between two steps from the corner
    ((2, 5, 6, 40), (16, -1, -1, 0), (-1, -1), (-1, -1), (2, 0), (1, 1, 1, 1), "INTER"),
    ((2, 5, 6, 40), (0, 1, 3, 1), (-1, -1), (1, 1), (0, 1), (1, 2, 2, 1), "SW32"),
    ((2, 3, 4, 5, 24), (0, -1, 0, 1, 0), (-1, 0, -2), (0, -1, 1), (1, 2, 0), (1, 1, 1, 1, 1), "INTER"),
    ((2, 3, 4, 5, 24), (16, 0, 0, 0, 1), (0, 0, 0), (0, 0, 0), (0, 0, 0), (1, 3, 1, 2, 1), "SW32"),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: f"{len(c[0])}d{'x'.join(map(str, c[0]))}")
@pytest.mark.parametrize("count", [16, 72])
def test_im2col_load(column, count):
    """Pixels go on from row to row, image to image and beyond; what a filter moves outside of the tensor is zero."""
    shape, at, lower, upper, offsets, steps, swizzle = column
    array = aligned(shape, "u2", 3)
    mapped = im2col_map(array, lower, upper, count, element_strides=steps, swizzle=swizzle)
    size = count * 32
    out = np.zeros(size // 4, np.uint32)
    for n, load in enumerate(x for x in LOADS[:3] if "tile" in x):
        hint = ", %rd8" if "hint" in load else ""
        given = ", ".join(f"%rs{10 + n}" for n in range(len(offsets)))
        opcode = f"cp.async.bulk.tensor.{len(shape)}d.{load.replace('tile', 'im2col')}"
        before = START + set_coordinates(at) + "".join(f"mov.u16 %rs{10 + n}, {o};" for n, o in enumerate(offsets))
        launch(
            load_body(opcode, at, size, f", {{{given}}}{hint}"),
            mapped,
            out,
            before=before,
            after=dump(len(out)),
            smem_bytes=8192,
            run=adopted(array),
        )
        expected = column_of(array, at[0], 16, pixels_of(shape, at[1:], count, lower, upper, steps[1:]), offsets)
        np.testing.assert_array_equal(out.view(np.uint8), swizzled(expected, swizzle), err_msg=str(n))


WRITTEN = [c for c in COLUMNS if min(c[1]) >= 0 and not any((*c[2], *c[3]))]


@pytest.mark.parametrize("column", WRITTEN, ids=lambda c: f"{len(c[0])}d")
@pytest.mark.parametrize(("operation", "kind"), [("store", "u2"), ("add", "u4")])
def test_im2col_store(column, operation, kind):
    shape, at, lower, upper, _, steps, swizzle = column
    channels = 32 // np.dtype(kind).itemsize
    array = aligned(shape, kind, 4)
    expected = array.copy()
    values = np.random.default_rng(5).integers(0, 2**15, (16, channels)).astype(kind)
    data, outside = swizzled(values, swizzle).view(np.uint32), np.ones(values.shape, bool)
    for row, pixel in enumerate(pixels_of(shape, at[1:], 16, lower, upper, steps[1:])):
        if all(0 <= p < e for p, e in zip(pixel, shape, strict=False)):
            count = min(channels, shape[-1] - at[0])
            outside[row, :count] = False
            into = expected[pixel][at[0] : at[0] + count]
            into[...] = values[row, :count] + (into if operation == "add" else 0)
    options = {"channels": channels, "element_strides": steps, "swizzle": swizzle}
    dropped = Column(im2col_tensor(array, lower, upper, **options)).outside(at)
    np.testing.assert_array_equal(
        np.zeros(values.nbytes, bool) if dropped is None else dropped,
        np.repeat(outside.reshape(-1), values.itemsize),
    )
    launch(
        store_body(im2col_store(len(shape), operation), at),
        im2col_map(array, lower, upper, **options),
        data,
        before=START + set_coordinates(at) + fill(len(data)),
        smem_bytes=8192,
        run=adopted(array),
    )
    np.testing.assert_array_equal(array, expected)


def im2col_store(rank, operation):
    words, after = ("reduce.async", ".add") if operation == "add" else ("async", "")
    return f"cp.{words}.bulk.tensor.{rank}d.global.shared::cta{after}.im2col_no_offs.bulk_group"


def test_what_stops_a_gpu():
    """As an H200 does: stores of columns whose corners are not 0, and reductions of 8 and 16-bit integers."""
    array = aligned((2, 5, 6, 40), "u2", 4)
    plain, cornered = im2col_map(array), im2col_map(array, (-1, -1), (1, 1))
    for tensor, operation in ((plain, "add"), (cornered, "store")):
        with refuses(DescriptorError):
            launch(
                store_body(im2col_store(4, operation), (0, 0, 0, 0)),
                tensor,
                before=START + set_coordinates((0, 0, 0, 0)),
                smem_bytes=8192,
                run=adopted(array),
            )


def test_im2col_multicast():
    """Both CTAs of a cluster get the column that the first asks for, and count its bytes."""
    shape, at, lower, upper, offsets, steps, _ = next(column for column in COLUMNS if len(column[0]) == 4)
    array = aligned(shape, "u2", 3)
    out = np.zeros(2 * 128, np.uint32)
    opcode = f"cp.async.bulk.tensor.4d.{LOADS[0].replace('tile', 'im2col')}.multicast::cluster"
    body = f"""@%p1 mbarrier.init.shared.b64 [%r10], 1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 512;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    setp.eq.and.u32 %p5, %r2, 0, %p1;
    @%p5 {opcode} [%r11], [%rd1, {{{coordinates(at)}}}], [%r10], {{%rs10, %rs11}}, %rs1;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0;
    @!%p2 bra WAIT;
    barrier.cluster.arrive;
    barrier.cluster.wait;"""
    before = START + set_coordinates(at) + f"mov.u16 %rs10, {offsets[0]}; mov.u16 %rs11, {offsets[1]};"
    options = {"before": before, "after": dump(128), "smem_bytes": 8192, "grid": 2, "cluster": 2}
    launch(body, im2col_map(array, lower, upper), out, run=adopted(array), **options)
    expected = column_of(array, at[0], 16, pixels_of(shape, at[1:], 16, lower, upper, steps[1:]), offsets)
    np.testing.assert_array_equal(out.view("u2").reshape(2, 16, 16), [expected] * 2)


@pytest.mark.parametrize("operation", ["store", "add"])
def test_store_with_element_strides(operation):
    """A box of every second and every third element along two modes goes where a load of it comes from."""
    target = aligned((9, 8, 24), "u4", 1)
    expected = target.copy()
    values = np.random.default_rng(2).integers(0, 99, (2, 3, 8)).astype(np.uint32)
    expected[1:5:3, 2:8:2, 4:12] = values + (expected[1:5:3, 2:8:2, 4:12] if operation == "add" else 0)
    opcode = "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"
    if operation == "add":
        opcode = "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
    launch(
        store_body(opcode, (4, 2, 1)),
        tensor_map(target, (8, 6, 6), element_strides=(1, 2, 3)),
        values,
        before=START + set_coordinates((4, 2, 1)) + fill(values.size),
        smem_bytes=8192,
        run=adopted(target),
    )
    np.testing.assert_array_equal(target, expected)
