"""Accesses of 256 bits, zeros in bulk, and matrices of bytes: what sm_100 adds to loads and stores, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import BarrierError, LaunchError, MemoryAccessError, Observer, Run
from cutepy.sim.machine.events import Access
from tests.messages import refuses
from tests.sim.opcode_runner import launch
from tests.sim.operands import aligned

TARGET = "sm_100a"
WIDE = ["v8.b32", "v8.u32", "v8.s32", "v8.f32", "v4.b64", "v4.u64", "v4.s64", "v4.f64"]
ADDRESSES = """mov.u32 %r90, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mul.lo.u32 %r91, %r90, 5;
and.b32 %r91, %r91, 31; mad.wide.u32 %rd1, %r91, 32, %rd1; mad.wide.u32 %rd2, %r90, 32, %rd2;"""


def registers(spelling, start=0):
    vector, kind = spelling.rsplit(".", 2)[-2:]
    name = {"f32": "%f", "f64": "%fd"}.get(kind, "%r" if kind.endswith("32") else "%rd3")
    return "{" + ", ".join(f"{name}{start + n}" for n in range(int(vector[1:]))) + "}"


class Seen(Observer):
    def __init__(self):
        self.accesses = []

    def on_access(self, access: Access):
        self.accesses.append((access.operation, access.space, access.size_bytes, access.addresses.size))


@pytest.mark.parametrize("spelling", WIDE)
@pytest.mark.parametrize("space", [".global", "", ".relaxed.gpu.global", ".global.L1::no_allocate"])
def test_loads_and_stores_of_256_bits(spelling, space):
    """A lane takes 32 bytes of a permutation; each access is one of 32 bytes, and asks for one sector a lane."""
    data, out = aligned(32 * 32), aligned(32 * 32)
    data[:] = np.random.default_rng(0).integers(0, 256, data.size)
    seen = Seen()
    body = f"ld{space}.{spelling} {registers(spelling)}, [%rd1];\nst{space}.{spelling} [%rd2], {registers(spelling)};"
    made = launch(body, data, out, before=ADDRESSES, target=TARGET, run=Run((seen,), None))
    np.testing.assert_array_equal(out.reshape(32, 32), data.reshape(32, 32)[np.arange(32) * 5 % 32])
    assert seen.accesses == [("read", "global", 32, 32), ("write", "global", 32, 32)]
    assert {n: made.stats[f"l2_{n}"] for n in ("load_sectors", "load_bytes", "store_sectors", "store_bytes")} == {
        "load_sectors": 32,
        "load_bytes": 1024,
        "store_sectors": 32,
        "store_bytes": 1024,
    }


@pytest.mark.parametrize("first", [8, 16, 24])
def test_256_bits_behind_the_beginning_of_an_array(first):
    """Arrays may begin anywhere; what they hold at multiples of 32 bytes is loaded, and its neighbours stay."""
    data, out = aligned(32 * 34)[first:], aligned(32 * 34)[first:]
    data[:] = np.random.default_rng(0).integers(0, 256, data.size)
    body = f"ld.global.v8.b32 {registers('v8.b32')}, [%rd1+{32 - first}];\n"
    body += f"st.global.v8.b32 [%rd2+{32 - first}], {registers('v8.b32')};"
    launch(body, data, out, before=ADDRESSES, target=TARGET)
    expected = np.zeros_like(out)
    rows = data[32 - first :][: 32 * 32].reshape(32, 32)
    expected[32 - first :][: 32 * 32] = rows[np.arange(32) * 5 % 32].reshape(-1)
    np.testing.assert_array_equal(out, expected)


def test_sectors_of_256_bits_are_inspected():
    data, out = aligned(32 * 32), aligned(32 * 32)
    run = Run((), None, inspect=True)
    launch(
        "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%rd1];",
        data,
        out,
        before=ADDRESSES,
        target=TARGET,
        run=run,
    )
    (site,) = run.uncoalesced()
    assert (site.sectors, site.excess) == (32, 0)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("%rd1+16", "is no multiple of 32; numpy aligns"),
        ("%rd1+1024", "is not in known memory"),
        ("%rd9", "is not in global memory"),
    ],
)
@pytest.mark.parametrize("spelling", ["ld.v8.b32 {R}, [A];", "st.v4.b64 [A], {R};"])
def test_mistakes_of_256_bits(spelling, where, said):
    before = ADDRESSES + "mov.u64 %rd9, smem; cvta.shared.u64 %rd9, %rd9;"
    text = spelling.replace("{R}", registers(spelling.split()[0])).replace("A", where)
    with refuses(MemoryAccessError) as caught:
        launch(text, aligned(1024), aligned(1024), before=before, target=TARGET, smem_bytes=1024)
    assert said in str(caught.value)


@pytest.mark.parametrize("space", [".weak.shared::cta", ""])
@pytest.mark.parametrize("sizes", ["one", "each", "none"])
def test_zeros_in_bulk(space, sizes):
    """Lanes store zeros over what was there, as many bytes each as it says, and no others."""
    out = np.zeros(2048, np.uint8)
    size = {"one": "mov.u64 %rd9, 48;", "each": "cvt.u64.u32 %rd9, %r5;", "none": "mov.u64 %rd9, 0;"}[sizes]
    before = """mov.u32 %r1, %tid.x; mov.u32 %r2, smem; mad.lo.u32 %r3, %r1, 64, %r2; mov.u32 %r8, -1;
    and.b32 %r5, %r1, 7; shl.b32 %r5, %r5, 3; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd2, %r1, 64, %rd1;"""
    before += "".join(f"st.shared.b32 [%r3+{4 * n}], %r8;" for n in range(16))
    before += f"{size} add.u32 %r6, %r3, 8; cvt.u64.u32 %rd4, %r6; cvta.shared.u64 %rd5, %rd4;"
    after = "".join(f"ld.shared.b32 %r7, [%r3+{4 * n}]; st.global.b32 [%rd2+{4 * n}], %r7;" for n in range(16))
    seen = Seen()
    at = "%r6" if space else "%rd5"
    launch(
        f"st.bulk{space} [{at}], %rd9, 0;",
        out,
        before=before,
        after=after,
        smem_bytes=2048,
        target=TARGET,
        run=Run((seen,), None),
    )
    expected = np.full((32, 64), 0xFF, np.uint8)
    for lane in range(32):
        expected[lane, 8 : 8 + {"one": 48, "each": lane % 8 * 8, "none": 0}[sizes]] = 0
    np.testing.assert_array_equal(out.reshape(32, 64), expected)
    stores = [(size, count) for what, space, size, count in seen.accesses if what == "write" and space == "shared"][16:]
    assert (
        stores == {"one": [(48, 32)], "each": [(lane % 8 * 8, 1) for lane in range(32) if lane % 8], "none": []}[sizes]
    )


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("mov.u64 %rd9, 12;", "needs a size that is a multiple of 8"),
        ("mov.u64 %rd9, 72;", "is beyond the CTA's 64 bytes"),
        ("mov.u64 %rd9, 16; add.u32 %r3, %r3, 4;", "is no multiple of 8"),
        ("mov.u64 %rd9, 64; mbarrier.init.shared.b64 [%r3+48], 1;", "overwrites an mbarrier"),
        ("mov.u64 %rd9, 64; ld.param.u64 %rd4, [p0];", "is not in shared memory"),
    ],
)
def test_mistakes_of_zeros_in_bulk(before, said):
    head = "mov.u32 %r3, smem; cvt.u64.u32 %rd4, %r3; cvta.shared.u64 %rd4, %rd4;"
    store = "st.bulk.weak.shared::cta [%r3], %rd9, 0;" if "p0" not in before else "st.bulk [%rd4], %rd9, 0;"
    with refuses((MemoryAccessError, BarrierError)) as caught:
        launch(store, np.zeros(64, np.uint8), before=head + before, block=1, smem_bytes=64, target=TARGET)
    assert said in str(caught.value)


def held(matrices, loads):
    """Return the registers of a warp that hold matrices of bytes, (matrix, 16, 16 or 8): (lane, register).

    PTX ISA, "ldmatrix" and "stmatrix", shapes m16n16 and m16n8, as NVIDIA's examples of both in CUTLASS use them: of a
    16x16 matrix, register r of lane 4 p + q has rows 4 q to 4 q + 3 of column p + 8 r; of a 16x8 one, rows p and p + 8
    of columns 2 q and 2 q + 1.
    """
    words = np.zeros((32, matrices.shape[0] * (2 if loads else 1)), np.uint32)
    for lane in range(32):
        p, q = divmod(lane, 4)
        for n, matrix in enumerate(matrices.astype(np.uint32)):
            if loads:
                for r in range(2):
                    words[lane, 2 * n + r] = sum(int(matrix[4 * q + b, p + 8 * r]) << 8 * b for b in range(4))
            else:
                found = matrix[p, 2 * q], matrix[p, 2 * q + 1], matrix[p + 8, 2 * q], matrix[p + 8, 2 * q + 1]
                words[lane, n] = sum(int(x) << 8 * b for b, x in enumerate(found))
    return words


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("instruction", ["ldmatrix", "stmatrix"])
def test_matrices_of_bytes(count, instruction):
    loads = instruction == "ldmatrix"
    if loads and count == 4:
        pytest.skip("ldmatrix of bytes takes two matrices at most")
    rng = np.random.default_rng(count)
    matrices = rng.integers(0, 256, (count, 16, 16 if loads else 8)).astype(np.uint8)
    words = held(matrices, loads)
    # A row of a 16x16 matrix, or a column of a 16x8 one, is 16 bytes that a lane addresses.
    rows = np.ascontiguousarray((matrices if loads else matrices.transpose(0, 2, 1)).reshape(-1, 16))
    order = rng.permutation(len(rows))
    memory = np.zeros_like(rows)
    addresses = np.full(32, 0xFFFFFFF0, np.uint32)
    addresses[: len(rows)] = 16 * order
    names = "{" + ", ".join(f"%r{n}" for n in range(words.shape[1])) + "}"
    size, own = 16 * len(rows), 4 * words.shape[1]
    before = f"""mov.u32 %r50, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
    mad.wide.u32 %rd2, %r50, 4, %rd2; mad.wide.u32 %rd3, %r50, {own}, %rd3; ld.global.b32 %r51, [%rd2];
    mov.u32 %r52, smem; add.u32 %r53, %r51, %r52; mad.lo.u32 %r54, %r50, {size // 32}, %r52;
    mad.wide.u32 %rd4, %r50, {size // 32}, %rd1;"""
    each = range(0, size // 32, 4)
    if loads:
        memory[order] = rows
        found = np.zeros_like(words)
        before += "".join(f"ld.global.b32 %r60, [%rd4+{n}]; st.shared.b32 [%r54+{n}], %r60;" for n in each)
        after = "".join(f"st.global.b32 [%rd3+{4 * n}], %r{n};" for n in range(words.shape[1]))
        body = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {names}, [%r53];"
        launch(
            body, memory, addresses, found, before=before + "bar.sync 0;", after=after, smem_bytes=size, target=TARGET
        )
        np.testing.assert_array_equal(found, words)
        return
    before += "".join(f"ld.global.b32 %r{n}, [%rd3+{4 * n}];" for n in range(words.shape[1]))
    after = "bar.sync 0;" + "".join(f"ld.shared.b32 %r60, [%r54+{n}]; st.global.b32 [%rd4+{n}], %r60;" for n in each)
    body = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r53], {names};"
    launch(body, memory, addresses, words, before=before, after=after, smem_bytes=size, target=TARGET)
    np.testing.assert_array_equal(memory[order], rows)


def packed(rows, bits):
    """Return rows of 16 bytes that begin with 16 elements of 4 or 6 bits each; the padding is noise."""
    found = np.full((len(rows), 16), 0xA5, np.uint8)
    for at, row in enumerate(rows.tolist()):
        number = sum(element << bits * n for n, element in enumerate(row))
        found[at, : 2 * bits] = np.frombuffer(number.to_bytes(2 * bits, "little"), np.uint8)
    return found


@pytest.mark.parametrize("bits", [4, 6])
@pytest.mark.parametrize("shape", ["m8n16.x1", "m8n16.x4", "m16n16.x2.trans"])
def test_matrices_of_narrow_elements_are_loaded_into_bytes(shape, bits):
    """PTX ISA: of an 8x16 matrix a lane gets four columns of a row; 16x16 ones are as those of bytes."""
    rng, count = np.random.default_rng(bits), int(shape.split(".")[1][1:])
    is_wide = shape.startswith("m16")
    matrices = rng.integers(0, 1 << bits, (count, 16 if is_wide else 8, 16))
    if is_wide:
        words = held(matrices.astype(np.uint8), loads=True)
    else:
        octets = np.zeros((32, count, 4), np.uint8)
        for lane in range(32):
            octets[lane] = matrices[:, lane // 4, 4 * (lane % 4) :][:, :4]
        words = octets.view(np.uint32)[..., 0]
    rows = packed(matrices.reshape(-1, 16), bits)
    order = rng.permutation(len(rows))
    memory, addresses, found = np.zeros((32, 16), np.uint8), np.full(32, 0xFFFFFFF0, np.uint32), np.zeros_like(words)
    memory[order], addresses[: len(rows)] = rows, 16 * order
    names = "{" + ", ".join(f"%r{n}" for n in range(words.shape[1])) + "}"
    format = {4: "b4x16_p64", 6: "b6x16_p32"}[bits]
    before = f"""mov.u32 %r50, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
    mad.wide.u32 %rd2, %r50, 4, %rd2; mad.wide.u32 %rd3, %r50, {4 * words.shape[1]}, %rd3; ld.global.b32 %r51, [%rd2];
    mov.u32 %r52, smem; add.u32 %r53, %r51, %r52; mad.lo.u32 %r54, %r50, 16, %r52; mad.wide.u32 %rd4, %r50, 16, %rd1;
    ld.global.v4.b32 {{%r60, %r61, %r62, %r63}}, [%rd4]; st.shared.v4.b32 [%r54], {{%r60, %r61, %r62, %r63}};
    bar.sync 0;"""
    after = "".join(f"st.global.b32 [%rd3+{4 * n}], %r{n};" for n in range(words.shape[1]))
    body = f"ldmatrix.sync.aligned.{shape}.shared.b8x16.{format} {names}, [%r53];"
    launch(body, memory, addresses, found, before=before, after=after, smem_bytes=512, target="sm_120a")
    np.testing.assert_array_equal(found, words)


def test_a_cta_of_sm120_has_99_kib_of_shared_memory():
    launch("", smem_bytes=99 * 1024, target="sm_120a")
    with refuses(LaunchError):
        launch("", smem_bytes=99 * 1024 + 1, target="sm_120a")


@pytest.mark.parametrize(("bits", "missing", "is_told"), [(4, 8, False), (4, 6, True), (6, 12, False), (6, 8, True)])
def test_padding_of_narrow_elements_is_not_read(bits, missing, is_told):
    """Of each row the bytes from some place on have no value."""
    format = {4: "b4x16_p64", 6: "b6x16_p32"}[bits]
    stores = "".join(f"st.shared.b16 [%r2+{n}], %rs1;" for n in range(0, missing, 2))
    run = Run((), None, sanitize=True)
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, smem; mad.lo.u32 %r2, %r1, 16, %r2; mov.u16 %rs1, 3;
    {stores} bar.sync 0; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd1;
    ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{format} {{%r3, %r4, %r5, %r6}}, [%r2];
    xor.b32 %r3, %r3, %r4; xor.b32 %r3, %r3, %r5; xor.b32 %r3, %r3, %r6; st.global.b32 [%rd1], %r3;"""
    launch(body, np.zeros(32, np.uint32), smem_bytes=512, target="sm_120a", run=run)
    assert any(hazard.kind == "uninitialised-read" for hazard in run.hazards) == is_told


@pytest.mark.parametrize(("bits", "at", "is_told"), [(4, 8, False), (4, 6, True), (6, 12, False), (6, 10, True)])
def test_padding_of_narrow_elements_may_be_written_meanwhile(bits, at, is_told):
    """Another warp writes two bytes of each row, with no barrier in between."""
    form = {4: "b4x16_p64", 6: "b6x16_p32"}[bits]
    run = Run((), None, sanitize=True)
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, smem; and.b32 %r3, %r1, 31; mad.lo.u32 %r2, %r3, 16, %r2;
    mov.u16 %rs1, 3; mov.u32 %r4, 7; setp.lt.u32 %p1, %r1, 32; setp.ge.u32 %p2, %r1, 32;
    @%p1 st.shared.v4.b32 [%r2], {{%r4, %r4, %r4, %r4}}; bar.sync 0; @%p2 st.shared.b16 [%r2+{at}], %rs1;
    @%p2 bra END; ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{form} {{%r5, %r6, %r7, %r8}}, [%r2];
    END:"""
    launch(body, smem_bytes=512, block=64, target="sm_120a", run=run)
    assert bool(run.hazards) == is_told


MASKED = """mov.u32 %r1, %tid.x; mov.u32 %r2, smem; mad.lo.u32 %r3, %r1, 2, %r2; cvt.u16.u32 %rs1, %r1;
    st.shared.b16 [%r3], %rs1;
    ld.param.u64 %rd1, [p0]; ld.param.u32 %r4, [p1]; cvt.u16.u32 %rs2, %r4; fence.proxy.async; bar.sync 0;
    setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r2], 64, %rs2; cp.async.bulk.commit_group;
    OTHER
    cp.async.bulk.wait_group 0;
END:"""


@pytest.mark.parametrize("mask", [0xFFFF, 0x0F0F, 0x8001, 0])
def test_a_bulk_store_keeps_the_bytes_of_each_16_that_a_mask_names(mask):
    out = aligned(64)
    out[:] = 0xEE
    launch(MASKED.replace("OTHER", ""), out, mask, smem_bytes=64, target=TARGET)
    stored = np.arange(32, dtype=np.uint16).view(np.uint8)
    kept = np.tile([mask >> n & 1 for n in range(16)], 4).astype(bool)
    np.testing.assert_array_equal(out, np.where(kept, stored, 0xEE))


@pytest.mark.parametrize(("mask", "is_told"), [(0x0FF0, False), (0x0FF1, True)])
def test_a_bulk_store_does_not_touch_the_bytes_that_a_mask_leaves_out(mask, is_told):
    """Its thread writes the first byte meanwhile."""
    run = Run((), None, sanitize=True)
    launch(
        MASKED.replace("OTHER", "st.global.b8 [%rd1], %rs1;"),
        aligned(64),
        mask,
        smem_bytes=64,
        target=TARGET,
        run=run,
    )
    assert any(hazard.kind == "unordered-write" for hazard in run.hazards) == is_told
