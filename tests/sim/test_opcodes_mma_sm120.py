"""mma of sm_120: kinds of narrow floats and block scales, dense and sparse, against numpy, element by element."""

import numpy as np
import pytest

from cutepy.sim.errors import SimulationError
from tests.messages import refuses
from tests.sim.opcode_runner import launch

M, N = 16, 8
VALUES = {
    # PTX ISA, "Alternate Floating-Point Data Formats": the numbers that are not negative, in the order of their codes.
    "e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6],
    "e2m3": [*(n / 8 for n in range(16)), *(2 + n / 4 for n in range(8)), *(4 + n / 2 for n in range(8))],
    "e3m2": [*(n / 16 for n in range(4)), *((1 + n / 4) * 2.0**e for e in range(-2, 5) for n in range(4))],
    "e4m3": [*(n / 512 for n in range(8)), *((1 + n / 8) * 2.0**e for e in range(-6, 0) for n in range(8))],
    "e5m2": [*(n / 65536 for n in range(4)), *((1 + n / 4) * 2.0**e for e in range(-14, 0) for n in range(4))],
}
SIGN = {"e2m1": 8, "e2m3": 32, "e3m2": 32, "e4m3": 128, "e5m2": 128}
ORDERED = [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110]
"""Places of two of four, the first in the lower bits."""


def operand(rng, rows, k, dtype, packed):
    """Return codes as registers hold them, 4 bits each or a byte, (rows, k), and their values."""
    code = rng.integers(0, len(VALUES[dtype]), (rows, k))
    negative = rng.integers(0, 2, (rows, k))
    values = np.array(VALUES[dtype])[code] * (1 - 2 * negative)
    bits = code + SIGN[dtype] * negative
    return bits if packed or dtype != "e2m1" else bits << 2, values  # of a byte the central 4 bits


def fragment(matrix, packed):
    """Return (32 lanes, registers) of A, (16, K), or of B, (8, K): as the ISA's formulas have them."""
    rows, k = matrix.shape
    each = 8 if packed else 4
    count = rows * k // 32 // each
    words = np.zeros((32, count), np.uint32)
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for register in range(count):
            row = group + 8 * (register % 2) if rows == M else group
            far = register // 2 if rows == M else register
            for n in range(each):
                at = inside * each + n + 4 * each * far
                words[lane, register] |= np.uint32(int(matrix[row, at]) << 32 // each * n)
    return words


def compress(rng, bits, values, packed):
    """Thin A out at random: returns bits of what is kept, (16, K / 2), A with its zeros, and the words of 32 lanes.

    The ISA, m16n8k64 of 8 bits and m16n8k128 of 4: all lanes of a quad give metadata, two of them of each row.
    """
    pair, k = (2 if packed else 1), bits.shape[1]
    kept, whole, words = np.zeros((M, k // 2), int), np.zeros(values.shape), np.zeros(32, np.uint32)
    for row in range(M):
        for chunk in range(k // (4 * pair)):
            code = int(rng.choice(ORDERED))
            for n, place in enumerate((code & 3, code >> 2)):
                start = (chunk * 4 + place) * pair
                kept[row, (2 * chunk + n) * pair :][:pair] = bits[row, start : start + pair]
                whole[row, start : start + pair] = values[row, start : start + pair]
            lane = 4 * (row % 8) + row // 8 + 2 * (chunk // 8)
            words[lane] |= np.uint32(code << 4 * (chunk % 8))
    return kept, whole, words


CASES = [
    *((32, f"kind::f8f6f4.{d}.{a}.{b}.{d}", a, b) for d, a, b in (("f32", "e2m1", "e3m2"), ("f16", "e2m3", "e4m3"))),
    (32, "kind::mxf8f6f4.block_scale.f32.e5m2.e2m1.f32.ue8m0", "e5m2", "e2m1"),
    (32, "kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e2m3.f32.ue8m0", "e2m1", "e2m3"),
    (64, "kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "e2m1", "e2m1"),
    (64, "kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", "e2m1", "e2m1"),
    (64, "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "e2m1", "e2m1"),
]


def run(opcode, arrays, operands, before="", results=4):
    """Run an mma of one warp on registers of arrays, (32, registers); returns D's registers."""
    out = np.zeros((32, results), np.uint32)
    names, lines, start = [], ["mov.u32 %r0, %tid.x;"], 1
    for n, array in enumerate(arrays):
        count = array.shape[1]
        names.append([f"%r{start + w}" for w in range(count)])
        start += count
        lines.append(f"mad.wide.u32 %rd10, %r0, {4 * count}, %rd{n};")
        lines += [f"ld.global.u32 {name}, [%rd10+{4 * w}];" for w, name in enumerate(names[-1])]
    vectors = ["{" + ", ".join(one) + "}" for one in names]
    d = ", ".join(f"%r{start + n}" for n in range(results))
    lines += [before, f"{opcode} {{{d}}}, {', '.join(vectors[:3])}{operands(names)};"]
    lines.append(f"mad.wide.u32 %rd10, %r0, {4 * results}, %rd{len(arrays)};")
    lines += [f"st.global.u32 [%rd10+{4 * n}], %r{start + n};" for n in range(results)]
    every = [*(np.ascontiguousarray(array) for array in arrays), out]
    loads = "".join(f"ld.param.u64 %rd{n}, [p{n}];" for n in range(len(every)))
    launch(loads + "\n".join(lines), *every, target="sm_120a")
    return out


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("k", "form", "a_type", "b_type"), CASES, ids=[case[1] for case in CASES])
def test_products_are_those_of_numpy(k, form, a_type, b_type, sparse):
    rng = np.random.default_rng(k + len(form))
    packed, k = "kind::mxf4" in form, k * (1 + sparse)
    count = next((n for n in (1, 2, 4) if f"scale_vec::{n}X" in form), 2 if packed else 1)
    a_bits, a = operand(rng, M, k, a_type, packed)
    b_bits, b = operand(rng, N, k, b_type, packed)
    metadata = None
    if sparse:
        a_bits, a, metadata = compress(rng, a_bits, a, packed)
    c = rng.integers(-8, 9, (M, N)).astype(np.float32)
    arrays = [fragment(a_bits, packed), fragment(b_bits, packed)]
    position = [(lane // 4 + 8 * (n // 2), lane % 4 * 2 + n % 2) for lane in range(32) for n in range(4)]
    rows, columns = np.array(position).T.reshape(2, 32, 4)
    is_half = form.endswith("f16")
    of_c = c[rows, columns].astype(np.float16 if is_half else np.float32)
    arrays.append(np.ascontiguousarray(of_c).view(np.uint32))
    byte, a_thread, b_thread = (4 - count if count < 4 else 0), 1, 2
    if metadata is not None:
        arrays.append(metadata[:, None])
    if "block_scale" in form:
        factors = [rng.integers(0, 256, (32, 4), np.uint8) for _ in range(2)]
        for one in factors:
            one[:] = rng.integers(122, 132, one.shape) if "ue8m0" in form else rng.integers(1, 0x60, one.shape)
        arrays += [one.view(np.uint32) for one in factors]
        value = (
            (lambda x: 2.0 ** (int(x) - 127))
            if "ue8m0" in form
            else (lambda x: VALUES["e4m3"][x] if x < 56 else _e4m3(x))
        )
        for matrix, data, lane_of in (
            (a, factors[0], lambda row: 4 * (row % 8) + 2 * a_thread + row // 8),
            (b, factors[1], lambda row: 4 * row + b_thread),
        ):
            for row in range(len(matrix)):
                for block in range(count):
                    part = slice(block * k // count, (block + 1) * k // count)
                    matrix[row, part] *= value(data[lane_of(row), byte + block])

    def operands(names):
        said = f", {names[3][0]}, 0" if sparse else ""
        if "block_scale" in form:
            said += f", {names[-2][0]}, {{{byte}, {a_thread}}}, {names[-1][0]}, {{%rs1, %rs2}}"
        return said

    shape = f"mma{'.sp::ordered_metadata' * sparse}.sync.aligned.m16n8k{k}.row.col."
    before = f"mov.u16 %rs1, {byte}; mov.u16 %rs2, {b_thread};"
    found = run(shape + form, arrays, operands, before, 2 if is_half else 4)
    got = found.view(np.float16 if is_half else np.float32).astype(np.float64)
    expected = (a @ b.T + c)[rows, columns]
    assert np.allclose(got, expected, rtol=2e-3 if is_half else 1e-5, atol=1e-5 * np.abs(expected).max())


def _e4m3(code):
    return (1 + code % 8 / 8) * 2.0 ** (code // 8 - 7)


@pytest.mark.parametrize(("selectors", "before"), [("1, 0", ""), ("0, 2", ""), ("0, %rs1", "cvt.u16.u32 %rs1, %r0;")])
def test_selectors_of_scale_factors_without_a_meaning_are_refused(selectors, before):
    arrays = [np.zeros((32, count), np.uint32) for count in (4, 2, 4, 1, 1)]
    opcode = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    with refuses(SimulationError):
        run(opcode, arrays, lambda n: f", {n[3][0]}, {{{selectors}}}, {n[4][0]}, {{0, 0}}", before)
