"""wgmma: every type, sizes from 8 to 256, operands in shared memory and in registers, all layouts, scales, groups.

Operands are small integers, so that every sum is exact. Shared memory is written by the PTX ISA's canonical layouts,
descriptors are packed here bit by bit, fragments follow the ISA's figures.
"""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import DescriptorError, MemoryAccessError, SimulationError
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.opcode_runner import launch
from tests.sim.operands import value_of

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
WIDTHS = {"INTER": 16, "SW32": 32, "SW64": 64, "SW128": 128}
LAYOUT_TYPES = {"INTER": 0, "SW128": 1, "SW64": 2, "SW32": 3}
M = 64
B_OFFSET = 65536


def encode(values, kind):
    """Return integers as bits of a type."""
    if kind in ("s8", "u8"):
        return values.astype(np.int8 if kind == "s8" else np.uint8).view(np.uint8)
    single = values.astype(np.float32)
    if kind == "f16":
        return single.astype(np.float16).view(np.uint16)
    if kind == "bf16":
        return (single.view(np.uint32) >> 16).astype(np.uint16)
    if kind == "tf32":
        return single.view(np.uint32)
    known = np.array([float(value_of(code, kind)) for code in range(0x7F if kind == "e4m3" else 0x7C)])
    code = np.searchsorted(known, np.abs(single))
    return np.where(values == 0, 0, code | (single.view(np.uint32) >> 31) << 7).astype(np.uint8)


def numbers(shape, kind, seed):
    rng = np.random.default_rng(seed)
    if kind == "u8":
        return rng.integers(0, 256, shape)
    return rng.integers(-128, 128, shape) if kind == "s8" else rng.integers(-4, 5, shape)


def place(matrix, kind, major, mode):
    """Lay a matrix (MN, K) out in shared memory; returns its bytes, LBO, SBO, and what a K step of 32 bytes adds."""
    size, width = BYTES[kind], WIDTHS[mode]
    extent, k = matrix.shape
    mn, at_k = np.meshgrid(np.arange(extent), np.arange(k), indexing="ij")
    step = 32 // size
    if major == "K":
        byte = at_k * size
        if mode == "INTER":
            lbo, sbo = 128, 128 * (k * size // 16)
            address = mn // 8 * sbo + byte // 16 * lbo + mn % 8 * 16 + byte % 16
            advance = 2 * lbo
        else:
            assert k * size == width
            lbo, sbo = 16, 8 * width
            address = mn // 8 * sbo + mn % 8 * width + byte
            advance = 32
    else:
        row = width // size
        if mode == "INTER":
            sbo, lbo = 128 * (k // 8), 128
            address = mn // 8 * sbo + at_k // 8 * lbo + at_k % 8 * 16 + mn % 8 * size
            advance = lbo * step // 8
        else:
            sbo, lbo = 8 * width, 8 * width * (k // 8)
            address = mn // row * lbo + at_k // 8 * sbo + at_k % 8 * width + mn % row * size
            advance = sbo * step // 8
    address = address ^ (address >> 7 & (width // 16 - 1)) << 4
    data = np.zeros(-(-int(address.max() + 16) // 1024) * 1024 + 1024, np.uint8)
    codes = encode(matrix, kind)
    for n in range(size):
        data[address + n] = codes.astype(np.uint32) >> 8 * n & 0xFF
    return data, lbo, sbo, advance


def descriptor(start, lbo, sbo, mode):
    return start >> 4 | lbo >> 4 << 16 | sbo >> 4 << 32 | LAYOUT_TYPES[mode] << 62


def fragment_of_a(matrix, kind, step):
    """Return the four registers of A of each thread, for one K step."""
    per = 4 // BYTES[kind]
    codes = encode(matrix, kind).astype(np.uint32)
    out = np.zeros((128, 4), np.uint32)
    for t in range(128):
        for r in range(4):
            row = t // 32 * 16 + t % 32 // 4 + 8 * (r & 1)
            column = step * 32 // BYTES[kind] + t % 4 * per + 4 * per * (r >> 1)
            for b in range(per):
                out[t, r] |= codes[row, column + b] << np.uint32(8 * BYTES[kind] * b)
    return out


def matrix_of_d(values, n):
    """Return D (64, n) of the values of each thread, (128, n / 2)."""
    t, v = np.meshgrid(np.arange(128), np.arange(n // 2), indexing="ij")
    row = t // 32 * 16 + t % 32 // 4 + 8 * (v >> 1 & 1)
    column = v >> 2 << 3 | t % 4 * 2 + (v & 1)
    result = np.zeros((M, n), values.dtype)
    result[row, column] = values
    return result


def multiply(
    d,
    a,
    b,
    n,
    source="SS",
    majors=("K", "K"),
    modes=("SW128", "SW128"),
    signs=(1, 1),
    start=None,
    satfinite=False,
    steps=0,
    matrices=None,
    run=None,
):
    """Run D = A * B + start over as many K steps as the layouts hold; returns D and what it should be.

    A and B are small integers, or the given `matrices` (M, K) and (N, K): then D need not be exact, and is all.
    """
    k_bytes = (
        min(WIDTHS[m] if m != "INTER" else 64 for m, j in zip(modes, majors, strict=True)) if "K" in majors else 64
    )
    k = k_bytes // BYTES[a]
    matrix_a, matrix_b = (numbers((M, k), a, 1), numbers((n, k), b, 2)) if matrices is None else matrices
    repeats = 1
    if steps:
        # The same large operands again and again.
        matrix_a, matrix_b, repeats = matrix_a % 16 + 240, matrix_b % 16 + 240, steps
    data_b, lbo_b, sbo_b, advance_b = place(matrix_b, b, majors[1], modes[1])
    smem = np.zeros(B_OFFSET + len(data_b), np.uint8)
    smem[B_OFFSET : B_OFFSET + len(data_b)] = data_b
    if source == "SS":
        data_a, lbo_a, sbo_a, advance_a = place(matrix_a, a, majors[0], modes[0])
        smem[: len(data_a)] = data_a
    kind = f"{d}.{a}.{b}"
    count = n // (4 if d == "f16" else 2)
    letter, first = ("%f", 0) if d == "f32" else ("%r", 200)
    registers = [f"{letter}{first + v}" for v in range(count)]
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{32 // BYTES[a]}{'.satfinite' if satfinite else ''}.{kind}"
    lines = ["wgmma.fence.sync.aligned;"]
    count_of_steps = k * BYTES[a] // 32
    loads = []
    for step in range(count_of_steps):
        tail = []
        if source == "SS":
            word = descriptor(step * advance_a, lbo_a, sbo_a, modes[0])
            loads.append(f"mov.b64 %rd{2 * step}, {word:#x}; add.s64 %rd{2 * step}, %rd{2 * step}, %rd50;")
            first_operand = f"%rd{2 * step}"
        else:
            names = [f"%r{20 + 4 * step + r}" for r in range(4)]
            loads += [f"ld.global.b32 {name}, [%rd53+{2048 * step + 4 * r}];" for r, name in enumerate(names)]
            first_operand = "{" + ", ".join(names) + "}"
        word = descriptor(B_OFFSET + step * advance_b, lbo_b, sbo_b, modes[1])
        loads.append(f"mov.b64 %rd{2 * step + 1}, {word:#x}; add.s64 %rd{2 * step + 1}, %rd{2 * step + 1}, %rd50;")
        if d != "s32":
            tail = [str(s) for s in signs]
            if BYTES[a] == 2:
                tail += [str(int(m == "MN")) for m in (majors if source == "SS" else majors[1:])]
        predicate = "%p1" if step == 0 and repeats == 1 else "%p2"
        operands = ", ".join([f"{{{', '.join(registers)}}}", first_operand, f"%rd{2 * step + 1}", predicate, *tail])
        lines += [f"{opcode} {operands};"]
    lines += lines[1:] * (repeats - 1)
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    accumulators = np.zeros((128, count), np.float32 if d == "f32" else np.uint32)
    fragments = np.zeros((count_of_steps, 128, 4), np.uint32)
    if source == "RS":
        fragments = np.stack([fragment_of_a(matrix_a, a, step) for step in range(count_of_steps)])
    initial = np.zeros((M, n), np.int64) if start is None else start
    if start is not None:
        # The fragment of the start: invert the map of D.
        order = matrix_of_d(np.arange(128 * (n // 2)).reshape(128, -1), n)
        flat = np.zeros(128 * (n // 2), np.int64)
        flat[order.reshape(-1)] = initial.reshape(-1)
        values = flat.reshape(128, -1)
        if d == "f16":
            halves = values.astype(np.float16).view(np.uint16).astype(np.uint32)
            accumulators[...] = halves[:, ::2] | halves[:, 1::2] << 16
        else:
            accumulators[...] = values if d == "f32" else values.astype(np.int32).view(np.uint32)
    before = f"""mov.u32 %r1, %tid.x; ld.param.u64 %rd60, [p0]; ld.param.u64 %rd51, [p1]; ld.param.u64 %rd53, [p2];
    mov.u32 %r2, smem; mov.u32 %r3, %r1; shr.u32 %r10, %r2, 4; cvt.u64.u32 %rd50, %r10;
    COPY: mul.lo.u32 %r4, %r3, 16; add.u32 %r5, %r4, %r2; cvt.u64.u32 %rd61, %r4; add.u64 %rd61, %rd60, %rd61;
    ld.global.v4.u32 {{%r6, %r7, %r8, %r9}}, [%rd61]; st.shared.v4.u32 [%r5], {{%r6, %r7, %r8, %r9}};
    add.u32 %r3, %r3, 128; setp.lt.u32 %p60, %r3, {len(smem) // 16}; @%p60 bra COPY;
    fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, {int(start is not None)}, 0; setp.eq.u32 %p2, %r1, %r1;
    mad.wide.u32 %rd51, %r1, {4 * count}, %rd51; mad.wide.u32 %rd53, %r1, 16, %rd53;"""
    before += "".join(f"ld.global.b32 {name}, [%rd51+{4 * v}];" for v, name in enumerate(registers)) + "\n".join(loads)
    after = "".join(f"st.global.b32 [%rd51+{4 * v}], {name};" for v, name in enumerate(registers))
    launch(
        "\n".join(lines),
        smem,
        accumulators,
        fragments,
        block=128,
        before=before,
        after=after,
        smem_bytes=len(smem),
        directives=".maxntid 128, 1, 1",
        run=run,
    )
    found = accumulators
    if d == "f16":
        found = accumulators.view(np.float16)
    elif d == "s32":
        found = accumulators.view(np.int32)
    if matrices is not None:
        return matrix_of_d(found, n)
    expected = repeats * signs[0] * signs[1] * (matrix_a.astype(np.int64) @ matrix_b.astype(np.int64).T) + initial
    return matrix_of_d(found, n), np.clip(expected, -(2**31), 2**31 - 1) if satfinite else expected


TYPES = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
TYPES += [(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
TYPES += [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]


@pytest.mark.parametrize("types", TYPES, ids=".".join)
@pytest.mark.parametrize("source", ["SS", "RS"])
def test_types(types, source):
    found, expected = multiply(*types, 32, source)
    np.testing.assert_array_equal(found, expected)


PUBLIC = [("f32", "bf16", "bf16", n) for n in (32, 64, 80, 128, 192, 256)] + [
    ("f32", "f16", "f16", n) for n in (64, 128, 256)
]
PUBLIC += [("f32", "e4m3", "e4m3", n) for n in (64, 128)] + [("f16", "f16", "f16", n) for n in (8, 24, 104, 256)]
PUBLIC += [("f32", "f16", "f16", n) for n in (8, 16, 40, 56, 72, 96, 160, 200, 248)] + [
    ("s32", "u8", "s8", n) for n in (8, 24, 48, 224, 256)
]
PUBLIC += [("f32", "tf32", "tf32", n) for n in (8, 120, 256)] + [("f32", "e5m2", "e4m3", n) for n in (8, 136, 256)]


@pytest.mark.parametrize("case", PUBLIC, ids=lambda c: f"n{c[3]}.{'.'.join(c[:3])}")
def test_sizes(case):
    found, expected = multiply(*case)
    np.testing.assert_array_equal(found, expected)


def test_listed_integer_form():
    found, expected = multiply("s32", "s8", "s8", 128, satfinite=True)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", WIDTHS)
@pytest.mark.parametrize("majors", [("K", "K"), ("MN", "K"), ("K", "MN"), ("MN", "MN")], ids="-".join)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_layouts(mode, majors, kind):
    found, expected = multiply("f32", kind, kind, 64, "SS", majors, (mode, mode))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", WIDTHS)
@pytest.mark.parametrize("kind", ["tf32", "e4m3", "s8"])
def test_layouts_of_other_widths(mode, kind):
    found, expected = multiply("s32" if kind == "s8" else "f32", kind, kind, 48, "SS", ("K", "K"), (mode, mode))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [24, 128, 200])
@pytest.mark.parametrize("mode", ["SW64", "SW128"])
def test_registers_with_transposed_b(n, mode):
    found, expected = multiply("f32", "bf16", "bf16", n, "RS", ("K", "MN"), ("INTER", mode))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("types", [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "e4m3", "e4m3")], ids=".".join)
@pytest.mark.parametrize("source", ["SS", "RS"])
def test_signs_and_start(signs, types, source):
    start = np.random.default_rng(4).integers(-60, 60, (M, 40))
    found, expected = multiply(*types, 40, source, signs=signs, start=start)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("satfinite", [False, True])
def test_integer_overflow(satfinite):
    """Sums wrap, or are clamped after each instruction."""
    start = np.where(np.random.default_rng(1).random((M, 64)) < 0.5, 2**31 - 5, -(2**31) + 5)
    found, expected = multiply("s32", "s8", "s8", 64, modes=("SW32", "SW32"), start=start, satfinite=satfinite)
    np.testing.assert_array_equal(found, expected if satfinite else expected.astype(np.int32))


def test_saturation_in_each_instruction():
    """Four instructions: what the first clamps, the others start from."""
    start = np.full((M, 16), 2**31 - 1)
    found, _ = multiply("s32", "s8", "s8", 16, start=start, satfinite=True)
    k = 128
    a, b = numbers((M, k), "s8", 1).astype(np.int64), numbers((16, k), "s8", 2).astype(np.int64)
    expected = start.astype(np.int64)
    for step in range(4):
        part = slice(32 * step, 32 * step + 32)
        expected = np.clip(expected + a[:, part] @ b[:, part].T, -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(found, expected)


def test_integer_sums_are_exact():
    """The longest run of full-scale products: float32 would not hold their sum."""
    found, expected = multiply("s32", "u8", "u8", 16, majors=("K", "K"), steps=3)
    np.testing.assert_array_equal(found, expected)


# Refusals.

WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, 1, 0, 0;"
FINISH = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"


def test_errors():
    with refuses(SimulationError):
        launch(WGMMA, block=96, smem_bytes=4096)
    with refuses(MemoryAccessError):
        launch(f"mov.b64 %rd1, 0x3fff;\nmov.b64 %rd2, 0x3fff;\n{WGMMA}\n{FINISH}", block=128, smem_bytes=4096)
    with pytest.raises(DescriptorError):
        launch(f"mov.b64 %rd1, 0x4002000000010000;\nmov.b64 %rd2, %rd1;\n{WGMMA}\n{FINISH}", block=128, smem_bytes=4096)


@pytest.mark.parametrize("bits", [5, 0])
@pytest.mark.parametrize(
    "differs",
    [
        "add.u64 %rd1, %rd3, %rd4;",
        "add.u64 %rd2, %rd3, %rd4;",
        "setp.eq.u64 %p1, %rd4, 0;",
    ],
)
def test_a_warpgroup_gives_one_descriptor(differs, bits):
    """PTX ISA, "Matrix Descriptor": all warps of a warpgroup give the same; here it differs by warp, or by lane."""
    start = f"""mov.b64 %rd3, 0x1000010000; mov.b64 %rd1, %rd3; mov.b64 %rd2, %rd3; setp.eq.u32 %p1, 0, 0;
    mov.u32 %r20, %tid.x; shr.u32 %r20, %r20, {bits}; and.b32 %r20, %r20, 3; cvt.u64.u32 %rd4, %r20;
    """
    launch(f"{start}\n{WGMMA}\n{FINISH}", block=128, smem_bytes=4096)
    with refuses(DescriptorError):
        launch(f"{start}{differs}\n{WGMMA}\n{FINISH}", block=128, smem_bytes=4096)


@pytest.mark.parametrize(
    "form",
    ["m64n8k256.s32.b1.b1.xor.popc", "m64n8k32.s32.b1.b1.and.popc"],
)
def test_refused(form):
    line = f"wgmma.mma_async.sync.aligned.{form} {{%r0, %r1, %r2, %r3}}, %rd1, %rd2, %p1;"
    with refuses(PtxSyntaxError):
        launch(line, block=128, assembles=False)


def test_accumulators_must_be_as_many_as_the_shape_says():
    line = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1}, %rd1, %rd2, %p1, 1, 1, 0, 0;"
    with refuses(PtxSyntaxError):
        launch(line, block=128, assembles=False)
