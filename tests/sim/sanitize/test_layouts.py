"""Layouts of TMA loads and of MMAs: told where elements or types differ, and only there."""

import numpy as np
import pytest

from cutepy.layouts.sm90 import TensorMap
from cutepy.layouts.sm100 import SmemDescriptor
from cutepy.sim import Run
from cutepy.sim.sanitize.byte_layouts.layouts import agree, misread, of_map, of_umma
from cutepy.sim.translate.wgmma_shapes import SharedTile
from tests.messages import pins
from tests.sim.opcode_runner import launch

LAYOUT_TYPES = {"INTER": 0, "SW128": 1, "SW64": 2, "SW32": 3}
WIDTHS = {"SW128": 64, "SW64": 32, "SW32": 16, "INTER": 8}
B_AT = 8192
START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; add.u32 %r8, %r1, 16384; mov.u32 %r9, 0;
mov.u32 %r11, 8; add.u32 %r10, %r1, 8192; mov.b64 %rd8, p0; mov.b64 %rd9, p1; ld.param.u64 %rd1, [p2];
@%p1 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
LOAD = (
    "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [{}], [{}, {{{}, %r9}}], [%r8];\n"
)
WAIT = """AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0; @!%p2 bra AGAIN;
mov.b32 %f0, 0f00000000; mov.b32 %f1, %f0; mov.b32 %f2, %f0; mov.b32 %f3, %f0; wgmma.fence.sync.aligned;
mov.u64 %rd5, {a:#x}; mov.u64 %rd6, {b:#x};
"""
MMA = "wgmma.mma_async.sync.aligned.m64n8k{k}.{types} {{{sums}}}, %rd5, %rd6, 1{scales};\n"
END = """wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mul.wide.u32 %rd2, %r2, 16; add.u64 %rd2, %rd1, %rd2; st.global.v4.b32 [%rd2], {{{0}, {1}, {2}, {3}}};
"""
RNG = np.random.default_rng(0)
A, B = (RNG.integers(-4, 5, (rows, 64)).astype(np.float16) for rows in (64, 8))


def descriptor(at, lbo, sbo, swizzle):
    return at >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | LAYOUT_TYPES[swizzle] << 62


def tensor_map(x, dtype, box, swizzle):
    rows, columns = x.shape
    of = TensorMap(dtype, (columns, rows), (x.strides[0],), box, swizzle=swizzle, global_address=x.ctypes.data)
    return np.array([*of.encode(), *[0] * 8], np.uint64).tobytes()


def run_of(wrote, read, lbo, sbo, width=None, dtype="f16", types="f32.f16.f16", b_wrote=None, boxes=1, a=A, b=B):
    """Multiply A and B, (64, 16) and (8, 16) of what a box has; return the kinds of hazards, and if values are right.

    `boxes`: how many are loaded side by side, one after the other.
    """
    width = WIDTHS[wrote] if width is None else width
    steps = boxes * width * a.itemsize * np.array([64, 8]) // boxes
    body = START + f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {int(steps.sum()) * boxes};\n"
    for n in range(boxes):
        column = "%r9" if n == 0 else "%r11"
        for to, of, step in (("%r1", "%rd8", steps[0]), ("%r10", "%rd9", steps[1])):
            body += f"add.u32 %r12, {to}, {n * int(step)};\n" + LOAD.format("%r12", of, column)
    integer = types.startswith("s32")
    sums = "%r20, %r21, %r22, %r23" if integer else "%f0, %f1, %f2, %f3"
    scales = "" if integer else ", 1, 1" + ", 0, 0" * ("16" in types)
    bits = {"f16": 16, "bf1": 16, "tf3": 32}.get(types.split(".")[1][:3], 8)
    body += WAIT.format(a=descriptor(0, *lbo[:1], sbo, read), b=descriptor(B_AT, *lbo[1:], sbo, b_wrote or read))
    body += "mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0; wgmma.fence.sync.aligned;\n" * integer
    body += MMA.format(k=256 // bits, types=types, sums=sums, scales=scales) + END.format(*sums.split(", "))
    run, out = Run((), None, sanitize=True), np.zeros((128, 2, 2), np.float32)
    maps = [tensor_map(x, dtype, (width, len(x)), wrote) for x in (a, b)]
    launch(body, *maps, out, a, b, block=128, smem_bytes=16400, run=run, assembles=False)
    t = np.arange(128)
    rows, columns = (t // 32 * 16 + t % 32 // 4)[:, None] + [0, 8], (t % 4 * 2)[:, None] + [0, 1]
    product = a[:, :16].astype(np.float32) @ b[:, :16].astype(np.float32).T
    wanted = product[rows[:, :, None], columns[:, None, :]]
    return {hazard.kind for hazard in (*run.hazards, *run.hazards.advisories)}, np.array_equal(out, wanted)


@pytest.mark.parametrize(
    ("wrote", "read", "sbo"),
    [
        ("SW128", "SW128", 1024),
        ("SW128", "SW64", 1024),
        ("SW128", "SW128", 512),
        ("SW64", "SW64", 512),
        ("SW64", "SW32", 256),
        ("SW32", "SW128", 256),
        ("SW32", "SW32", 256),
    ],
)
def test_swizzles_that_differ_are_told_where_values_are_wrong(wrote, read, sbo):
    kinds, right = run_of(wrote, read, (16, 16), sbo)
    assert right == (kinds == set())
    assert "layout-mismatch" in kinds or wrote == read


@pytest.mark.parametrize("wrote", ["SW128_32B", "SW128", "SW64", "INTER"])
@pytest.mark.parametrize("read", ["SW128_32B", "SW128"])
def test_atoms_of_32_bytes_are_told_from_others(wrote, read):
    """Of tf32 along M: 8 rows of 32 elements, which are two patterns of the one swizzle and one of the other."""
    layout_type, sbo = {"SW128_32B": (1, 512), "SW128": (2, 1024)}[read]
    width = {"SW64": 16}.get(wrote, 32)
    box = of_map(TensorMap("tf32", (64, 64), (256,), (width, 16), swizzle=wrote), 0)
    operand = of_umma(int(SmemDescriptor(0, 2048, sbo, layout_type=layout_type)), "tf32", SharedTile("MN", 32, 8, 32))
    said = misread(box, operand, np.arange(0, 1024, 16))
    assert said == (None if wrote == read else "layout-mismatch")
    assert agree(box, operand) == (wrote == read)


def test_a_stride_within_a_pattern_of_32_byte_atoms_is_told():
    for sbo, is_fault in ((512, False), (1024, False), (256, True)):
        word = int(SmemDescriptor(0, 2048, sbo, layout_type=1))
        assert bool(of_umma(word, "tf32", SharedTile("MN", 32, 8, 32)).fault) == is_fault


@pytest.mark.parametrize(
    ("wrote", "read", "lbo", "sbo", "width", "boxes"),
    [
        ("INTER", "INTER", (1024, 128), 128, 8, 2),  # core matrices below each other, a box for each 8 columns
        ("INTER", "SW32", (16, 16), 256, 16, 1),
        ("INTER", "SW128", (16, 16), 1024, 64, 1),
        ("SW128", "INTER", (16, 16), 1024, 64, 1),
        ("SW128", "SW128", (16, 16), 1024, 32, 1),  # a box narrower than its swizzle
        ("SW128", "SW64", (16, 16), 512, 32, 1),
    ],
)
def test_rows_that_differ_are_told_where_values_are_wrong(wrote, read, lbo, sbo, width, boxes):
    kinds, right = run_of(wrote, read, lbo, sbo, width, boxes=boxes)
    assert right == (boxes == 2)
    assert right == (kinds == set())
    assert "layout-mismatch" in kinds or right


@pytest.mark.parametrize(("sbo", "width"), [(256, 16), (1024, 64)])
def test_boxes_without_swizzle_are_not_judged_even_where_values_are_wrong(sbo, width):
    """Packed operands look the same: bytes one after the other, by a map of any rows."""
    assert run_of("INTER", "INTER", (128, 128), sbo, width, boxes=1) == (set(), False)


@pytest.mark.parametrize(
    ("dtype", "types", "found"),
    [
        ("f16", "f32.f16.f16", set()),
        ("u16", "f32.f16.f16", set()),
        ("u16", "f32.bf16.bf16", set()),
        ("bf16", "f32.f16.f16", {"type-mismatch"}),
        ("f16", "f32.e4m3.e4m3", {"type-mismatch"}),
        ("f16", "s32.s8.s8", {"type-mismatch"}),
        ("f16", "f32.tf32.tf32", {"type-mismatch"}),
        ("u8", "f32.e4m3.e4m3", set()),
        ("u8", "f32.e5m2.e4m3", set()),
        ("u8", "s32.s8.s8", set()),
        ("u8", "s32.u8.s8", set()),
        ("u8", "f32.f16.f16", {"type-mismatch"}),
        ("f32", "f32.tf32.tf32", set()),
        ("tf32", "f32.tf32.tf32", set()),
        ("u32", "f32.tf32.tf32", set()),
        ("s32", "f32.tf32.tf32", {"type-mismatch"}),
        ("f32", "f32.f16.f16", {"type-mismatch"}),
    ],
)
def test_elements_are_of_the_type_that_the_map_names(dtype, types, found):
    kind = {"8": np.uint8, "2": np.float32}.get(dtype[-1], np.float16)
    a, b = (x.astype(np.float16).view(np.uint8).view(kind) for x in (A, B))
    assert run_of("SW128", "SW128", (16, 16), 1024, 128 // a.itemsize, dtype, types, a=a, b=b)[0] == found


def test_lanes_of_one_instruction_may_have_maps_that_differ():
    """B is loaded through another swizzle than A, by another lane of the same instruction."""
    assert run_of("SW128", "SW128", (16, 16), 1024)[0] == set()
    one = """setp.lt.u32 %p3, %r2, 2; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {bytes};
selp.b64 %rd10, %rd8, %rd9, %p1; selp.b32 %r12, %r1, %r10, %p1; bar.sync 0;
"""
    load = LOAD.format("%r12", "%rd10", "%r9").replace("%p1", "%p3")
    for read, found in (("SW64", set()), ("SW128", {"layout-mismatch", "uninitialised-read"})):
        run, out = Run((), None, sanitize=True), np.zeros((128, 2, 2), np.float32)
        sbo = {"SW64": 512, "SW128": 1024}[read]
        ends = WAIT.format(a=descriptor(0, 16, 1024, "SW128"), b=descriptor(B_AT, 16, sbo, read))
        mma = MMA.format(k=16, types="f32.f16.f16", sums="%f0, %f1, %f2, %f3", scales=", 1, 1, 0, 0")
        body = START + one.format(bytes=8192 + 512) + load + ends + mma + END.format("%f0", "%f1", "%f2", "%f3")
        maps = tensor_map(A, "f16", (64, 64), "SW128"), tensor_map(B, "f16", (32, 8), "SW64")
        launch(body, *maps, out, A, B, block=128, smem_bytes=16400, run=run, assembles=False)
        assert {hazard.kind for hazard in run.hazards} == found


def strays(a_sbo, a_start=0, rows=8, same_tensor=False, b_at=B_AT):
    """Multiply A at 0 by B at `b_at`, each loaded by a box of its own; return what is told."""
    b = np.ascontiguousarray(np.resize(B, (rows, 64)))
    a = np.concatenate([A, b])[: len(A)] if not same_tensor else np.concatenate([A, b])
    maps = [tensor_map(x, "f16", (64, n), "SW128") for x, n in ((a, 64), (a if same_tensor else b, rows))]
    body = START.replace("8192; mov.b64", f"{b_at}; mov.b64")
    body += f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {128 * (64 + rows)};\n"
    body += LOAD.format("%r1", "%rd8", "%r9") + LOAD.format("%r10", "%rd9", "%r9")
    body += WAIT.format(a=descriptor(a_start, 16, a_sbo, "SW128"), b=descriptor(b_at, 16, 1024, "SW128"))
    sums = ", ".join(f"%f{n}" for n in range(rows // 2))
    body += "".join(f"mov.b32 %f{n}, 0f00000000; " for n in range(rows // 2)) + "wgmma.fence.sync.aligned;\n"
    body += MMA.replace("n8", f"n{rows}").format(k=16, types="f32.f16.f16", sums=sums, scales=", 1, 1, 0, 0")
    body += END.format("%f0", "%f1", "%f2", "%f3")
    run, out = Run((), None, sanitize=True), np.zeros((128, 2, 2), np.float32)
    launch(body, *maps, out, a, b, block=128, smem_bytes=16400, run=run, assembles=False)
    return run.hazards


@pytest.mark.parametrize("rows", [8, 32, 64])
@pytest.mark.parametrize(("sbo", "start"), [(2048, 0), (1024, 4096)])
def test_an_operand_that_walks_into_the_other_ones_tile_is_told(rows, sbo, start):
    """A's stride is twice what it should be, or it begins in the middle: what follows is B."""
    hazards = strays(sbo, start, rows)
    told = [hazard for hazard in hazards if hazard.kind == "layout-mismatch"]
    if sbo == 1024 and rows <= 32:  # all of B follows A without a gap, as where two tensors are one operand
        assert not told
        return
    (found,) = told
    pins(found.missing)


def test_tiles_that_are_read_as_they_were_written_are_not_told():
    assert not strays(1024, rows=64)


@pytest.mark.parametrize("b_at", [0, 4096])
def test_one_tensor_may_be_both_operands(b_at):
    """A product with the own transpose takes bytes twice."""
    assert not [h for h in strays(1024, rows=32, same_tensor=True, b_at=b_at) if h.kind == "layout-mismatch"]


def walks(sbo, rows_of_a_box=64, boxes=2, stages=2):
    """Multiply 64 rows of A at 0, `sbo` bytes from 8 to the next 8, of boxes below each other, by B."""
    b_at, full = 16384, 20480
    a = np.concatenate([A, A])[: rows_of_a_box * boxes]
    maps = [tensor_map(x, "f16", (64, n), "SW128") for x, n in ((a, rows_of_a_box), (B, 8))]
    body = START.replace("%r1, 16384", f"%r1, {full}").replace("8192; mov.b64", f"{b_at}; mov.b64")
    body = body.replace(
        "@%p1 mbarrier.init", "add.u32 %r14, %r8, 8; @%p1 mbarrier.init.shared.b64 [%r14], 1; @%p1 mbarrier.init"
    )
    last = boxes - 1 if stages > 1 else boxes  # it has an mbarrier of its own
    body += f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {128 * (rows_of_a_box * last + 8)};\n"
    body += f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r14], {128 * rows_of_a_box};\n" * (last < boxes)
    for n in range(boxes):
        body += f"mov.u32 %r13, {n * rows_of_a_box}; add.u32 %r12, %r1, {n * rows_of_a_box * 128};\n"
        load = LOAD.format("%r12", "%rd8", "%r9").replace("%r9}", "%r13}")
        body += load if n < last else load.replace("%r8", "%r14")
    body += LOAD.format("%r10", "%rd9", "%r9")
    if last < boxes:
        body += "BOTH: mbarrier.try_wait.parity.shared.b64 %p2, [%r14], 0; @!%p2 bra BOTH;\n"
    body += WAIT.format(a=descriptor(0, 16, sbo, "SW128"), b=descriptor(b_at, 16, 1024, "SW128"))
    body += MMA.format(k=16, types="f32.f16.f16", sums="%f0, %f1, %f2, %f3", scales=", 1, 1, 0, 0")
    run, out = Run((), None, sanitize=True), np.zeros((128, 2, 2), np.float32)
    body += END.format("%f0", "%f1", "%f2", "%f3")
    launch(body, *maps, out, a, B, block=128, smem_bytes=full + 32, run=run, assembles=False)
    return [hazard for hazard in run.hazards if hazard.kind == "layout-mismatch"]


@pytest.mark.parametrize("rows", [64])
def test_an_operand_that_leaves_out_rows_of_a_copy_and_goes_on_in_the_next_is_told(rows):
    (found,) = walks(2048, rows, 128 // rows)
    assert not walks(2048, rows, 128 // rows, stages=1), "one tile, of which every other 8 rows are multiplied"
    pins(found.missing)


@pytest.mark.parametrize(("sbo", "rows", "boxes"), [(1024, 64, 2), (1024, 32, 4), (2048, 128, 1), (2048, 8, 16)])
def test_operands_of_one_box_or_of_boxes_of_8_rows_may_leave_some_out(sbo, rows, boxes):
    assert not walks(sbo, rows, boxes)


def test_a_stride_of_nothing_reads_rows_twice():
    (found,) = walks(0)
    pins(found.missing)
