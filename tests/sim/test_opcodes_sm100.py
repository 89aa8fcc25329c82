"""Instructions of sm_100 that compute: pairs of float32, sums of mixed types, three operands, narrow floats, scales.

Each is compared with exact fractions, rounded once; the narrow formats are written out here from the ISA.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest

from cutepy.sim.errors import UnknownInstructionError
from tests.messages import refuses
from tests.sim.opcode_runner import apply, launch
from tests.sim.operands import assert_same_bits, float_bits, flushed, is_nan, round_bits, value_of
from tests.sim.test_opcodes_float import reference

COUNT = 320
TARGET = "sm_100a"
NAN = 0x7FFFFFFF
PAIRS = [f"{op}{mode}.f32x2" for op in ("add", "sub", "mul") for mode in ("", ".rn", ".rz", ".rm", ".rp")]
PAIRS += [f"{op}{mode}.ftz.f32x2" for op in ("add", "sub", "mul") for mode in ("", ".rn", ".rp")]
PAIRS += [f"fma.{mode}{ftz}.f32x2" for mode in ("rn", "rz", "rm", "rp") for ftz in ("", ".ftz")]


def pair(low, high):
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


@pytest.mark.parametrize("spelling", PAIRS)
def test_pairs_of_float32(spelling):
    name, *modifiers = spelling.split(".")
    halves = [[float_bits("f32", COUNT, spelling, 2 * n + k) for k in range(2)] for n in range(2 + (name == "fma"))]
    if name != "mul":  # cancellation
        halves[-1][0][::5] = halves[0][0][::5] ^ np.uint32(1 << 31)
    text = f"{spelling} %d, {', '.join(f'%{x}' for x in 'abc'[: len(halves)])};"
    got = apply(text, *(pair(*each) for each in halves), out="u8", target=TARGET)
    mode = next((m for m in modifiers if m in ("rn", "rz", "rm", "rp")), "rn")
    for k, part in enumerate((got & np.uint64(0xFFFFFFFF), got >> np.uint64(32))):
        lanes = [*zip(*(each[k].tolist() for each in halves), strict=True)]
        expected = [reference(name, "f32", lane, mode, ftz="ftz" in modifiers) for lane in lanes]
        assert_same_bits(part.astype(np.uint32), expected, "f32", [each[k] for each in halves])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("spelling", ["add", "add.rz", "sub.rm", "sub", "add.rp.sat", "fma.rn", "fma.rz.sat", "fma.rm"])
def test_sums_of_mixed_types(spelling, kind):
    """All but the last operand have 16 bits; a product and its sum are rounded once."""
    name, *modifiers = spelling.split(".")
    halves = [float_bits(kind, COUNT, spelling + kind, n) for n in range(1 + (name == "fma"))]
    last = float_bits("f32", COUNT, spelling, 7)
    last[::4] = [round_bits(value_of(x, kind), "f32") ^ (name == "add") << 31 for x in halves[0][::4].tolist()]
    text = f"{spelling}.f32.{kind} %d, {', '.join(f'%{x}' for x in 'abc'[: len(halves) + 1])};"
    got = apply(text, *halves, last.view("f4"), out="f4", target=TARGET).view("u4")
    mode = next((m for m in modifiers if m != "sat"), "rn")
    wide = [[round_bits(value_of(x, kind), "f32") for x in half.tolist()] for half in halves]
    expected = [
        reference(name, "f32", lane, mode, sat="sat" in modifiers) for lane in zip(*wide, last.tolist(), strict=True)
    ]
    assert_same_bits(got, expected, "f32", (*halves, last))


def extreme(operation, values, modifiers):
    """Return the bits of the least or greatest of some float32, given as bits."""
    values = [flushed(x, "f32") for x in values] if "ftz" in modifiers else values
    values = [x & 0x7FFFFFFF for x in values] if "abs" in modifiers else values
    numbers = [x for x in values if not is_nan(x, "f32")]
    if not numbers or (len(numbers) < len(values) and "NaN" in modifiers):
        return NAN
    ordered = sorted(numbers, key=lambda x: (float(value_of(x, "f32")), -(x >> 31)))
    return ordered[0 if operation == "min" else -1]


@pytest.mark.parametrize("modifiers", ["", ".NaN", ".ftz", ".abs", ".ftz.NaN.abs", ".NaN.abs"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_extremes_of_three(operation, modifiers):
    inputs = [float_bits("f32", COUNT, operation + modifiers, n) for n in range(3)]
    inputs[1][::9] = inputs[0][::9] ^ np.uint32(1 << 31)
    text = f"{operation}{modifiers}.f32 %d, %a, %b, %c;"
    got = apply(text, *(x.view("f4") for x in inputs), out="f4", target=TARGET).view("u4")
    lanes = zip(*(x.tolist() for x in inputs), strict=True)
    assert_same_bits(got, [extreme(operation, lane, modifiers) for lane in lanes], "f32", inputs)


@pytest.mark.parametrize("modifiers", ["", ".NaN", ".abs", ".abs.NaN"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_extremes_of_a_warp(operation, modifiers):
    """Of lanes that a mask names, with few and with only NaNs among them, and zeros of both signs."""
    spelling = f"redux.sync.{operation}{modifiers}.f32"
    values = float_bits("f32", 12 * 32, spelling).reshape(12, 32)
    values[:3][np.isnan(values[:3].view("f4"))] = 0x80000000
    values[3], values[4] = 0x7FC00001, np.where(np.arange(32) % 2, 0x80000000, 0)
    mask = 0x0F0FFFF1
    body = f"{{ .reg .pred %q; and.b32 %r1, %a, 0; mov.u32 %r2, %laneid; shr.u32 %r3, {mask}, %r2; and.b32 %r3, %r3, 1;"
    body += f"setp.eq.u32 %q, %r3, 1; mov.b32 %d, 0f00000000; @%q {spelling} %d, %b, {mask}; }}"
    whole = apply(f"{spelling} %d, %a, -1;", values.ravel().view("f4"), out="f4", target=TARGET).view("u4")
    some = apply(body, np.zeros(384, np.uint32), values.ravel().view("f4"), out="f4", target=TARGET).view("u4")
    named = np.array([mask >> lane & 1 for lane in range(32)], bool)
    for row, found, masked in zip(values, whole.reshape(12, 32), some.reshape(12, 32), strict=True):
        assert_same_bits(found, [extreme(operation, row.tolist(), modifiers)] * 32, "f32")
        expected = extreme(operation, row[named].tolist(), modifiers)
        assert_same_bits(masked, [expected if n else 0 for n in named.tolist()], "f32")


@pytest.mark.parametrize("modifiers", ["rn.satfinite", "rz.satfinite", "rn.satfinite.relu"])
def test_tf32_is_clamped(modifiers):
    """Beyond the largest finite number comes that number, and of a NaN the NaN, as without .satfinite."""
    largest = 0x7F7FE000
    values = float_bits("f32", COUNT, modifiers)
    values[:7] = 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7FC01234, largest, 0x7F7FF000
    plain = modifiers.replace(".satfinite", "")
    got = apply(f"cvt.{modifiers}.tf32.f32 %d, %a;", values.view("f4"), out="u4", target=TARGET)
    free = apply(f"cvt.{plain}.tf32.f32 %d, %a;", values.view("f4"), out="u4", target=TARGET)
    is_infinite = free & 0x7FFFFFFF == 0x7F800000
    assert is_infinite[0]
    assert is_infinite[6] == ("rz" not in modifiers)
    np.testing.assert_array_equal(got, np.where(is_infinite, free & 0x80000000 | largest, free))
    assert got[4] & 0x7FFFFFFF > 0x7F800000


@pytest.mark.parametrize("kept", ["L2::evict_last", "L1::no_allocate.L2::evict_last.L2::256B"])
def test_four_words_of_64_bits_are_kept_in_l2(kept):
    room = [np.zeros(32 * 4 + 4, np.uint64) for _ in range(2)]
    data, out = (raw[-raw.ctypes.data % 32 // 8 :][: 32 * 4] for raw in room)
    data[:] = np.arange(32 * 4, dtype=np.uint64) * np.uint64(0x123456789ABC)
    body = f"""ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 32;
    add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
    ld.global.{kept}.v4.b64 {{%rd4, %rd5, %rd6, %rd7}}, [%rd1];
    st.global.{kept.removesuffix(".L2::256B")}.v4.b64 [%rd2], {{%rd4, %rd5, %rd6, %rd7}};"""
    launch(body, data, out, target=TARGET)
    np.testing.assert_array_equal(out, data)


@pytest.mark.parametrize("modifiers", ["", ".satfinite", ".relu", ".satfinite.relu"])
def test_stochastic_rounding_carries_random_bits_into_what_is_kept(modifiers):
    spelling = f"cvt.rs{modifiers}.bf16x2.f32"
    inputs = [float_bits("f32", COUNT, spelling, n) for n in range(2)]
    random = np.random.default_rng(8).integers(0, 1 << 32, COUNT, np.uint32)
    random[:4], inputs[0][:4] = 0xFFFF0000, [0x7F7F0001, 0x7F7F0000, 0x3F800000, 0x80000001]
    got = apply(f"{spelling} %d, %a, %b, %c;", *(x.view("f4") for x in inputs), random, out="u4", target=TARGET)

    def rounded(x, bits):
        if is_nan(x, "f32"):
            return 0x7FFF
        if "relu" in modifiers and x >> 31:
            return 0
        kept, cut_off = (x & 0x7FFFFFFF) >> 16, x & 0xFFFF
        kept += cut_off + bits >> 16 if kept < 0x7F80 else 0
        return (min(kept, 0x7F7F) if "satfinite" in modifiers else kept) | x >> 16 & 0x8000

    for position, of in ((16, inputs[0]), (0, inputs[1])):
        expected = [rounded(x, r >> position & 0xFFFF) for x, r in zip(of.tolist(), random.tolist(), strict=True)]
        assert_same_bits((got >> position & 0xFFFF).astype(np.uint16), expected, "bf16", (of, random))


@pytest.mark.parametrize("form", ["f16x2.f32 %d, %a, %a, %b;", "satfinite.e4m3x4.f32 %d, {%a, %a, %a, %a}, %b;"])
def test_stochastic_rounding_with_fewer_random_bits_is_refused(form):
    values = np.ones(32, np.float32)
    with refuses(UnknownInstructionError):
        apply(f"cvt.rs.{form}", values, values.view("u4"), out="u4", target=TARGET)


NARROW = {
    # PTX ISA, "Alternate Floating-Point Data Formats"; OCP Microscaling Formats, tables of e2m3, e3m2 and e2m1.
    "e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6],
    "e2m3": [*(n / 8 for n in range(16)), *(2 + n / 4 for n in range(8)), *(4 + n / 2 for n in range(8))],
    "e3m2": [
        *(n / 16 for n in range(4)),
        *((1 + n / 4) * 2.0**e for e in range(-2, 5) for n in range(4)),
    ],
}
"""The numbers of each format that are not negative, in the order of their codes."""


def to_narrow(value, kind, relu):
    """Round to the nearer of two numbers of a format, ties to the even code; a NaN to the largest."""
    values = NARROW[kind]
    if value != value:
        return len(values) - 1
    sign = len(values) if math.copysign(1, value) < 0 else 0
    if relu and (sign or value == 0):
        return 0
    magnitude = abs(value)
    if magnitude >= values[-1]:
        return sign | len(values) - 1
    above = bisect_right(values, magnitude)
    return sign | min((above - 1, above), key=lambda c: (abs(values[c] - Fraction(magnitude)), c & 1))


FROM = [(kind, "f32") for kind in NARROW] + [("e2m1", "f16x2")]


@pytest.mark.parametrize(("kind", "source"), FROM, ids=lambda x: x)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_to_narrow_floats(kind, source, relu):
    spelling = f"cvt.rn.satfinite{relu}.{kind}x2.{source}"
    rng, values, half = np.random.default_rng(5), NARROW[kind], source == "f16x2"
    form = "f16" if half else "f32"
    inputs = [float_bits(form, COUNT, spelling, n) for n in range(2)]
    for x in inputs:
        for n in range(0, COUNT, 2):
            code = int(rng.integers(0, len(values) - 1))
            middle = (Fraction(values[code]) + Fraction(values[code + 1])) / 2
            x[n] = round_bits(middle * (-1) ** int(rng.integers(0, 2)), form) + int(rng.integers(-1, 2))
    high, low = inputs
    given = [(high.astype(np.uint32) << 16) | low] if half else [x.view("f4") for x in inputs]
    names = ", ".join("%a %b".split()[: len(given)])
    if kind == "e2m1":
        body = f"{{ .reg .b8 %e; {spelling} %e, {names}; cvt.u32.u8 %d, %e; }}"
        steps = 4
    else:
        body, steps = f"{{ .reg .b16 %e; {spelling} %e, {names}; cvt.u32.u16 %d, %e; }}", 8
    got = apply(body, *given, target=TARGET)
    for part, x in ((got >> steps, high), (got & (1 << steps) - 1, low)):
        expected = [to_narrow(value_of(v, form), kind, bool(relu)) for v in x.tolist()]
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_from_narrow_floats(kind, relu):
    """All pairs of numbers of 4 bits, and each number of 6."""
    values, step = NARROW[kind], 4 if kind == "e2m1" else 8
    every = [*values, *(-float(x) for x in values)]
    codes = np.arange(256) if step == 4 else np.arange(64) | (np.arange(64) * 37 % 64) << 8
    register = "b8" if step == 4 else "b16"
    convert = f"{{ .reg .{register} %e; cvt.u{register[1:]}.u32 %e, %a; cvt.rn{relu}.f16x2.{kind}x2 %d, %e; }}"
    got = apply(convert, codes.astype(np.uint32), target=TARGET)
    for part, places in ((got >> 16, codes >> step), (got & 0xFFFF, codes & (1 << step) - 1)):
        expected = np.array([every[x] for x in places.tolist()], np.float16)
        expected = np.where((expected > 0) | (relu == ""), expected, np.float16(0))
        np.testing.assert_array_equal(part.astype(np.uint16), expected.view(np.uint16))


def test_four_pairs_of_e2m1_in_a_register():
    """A register of 32 bits is made of bytes, as NVIDIA's DSL does, and taken apart again."""
    values = np.array([0, 0.5, -1, 1.5, 2, -3, 4, -6], np.float32)
    outputs = np.zeros(4, np.uint32)
    words = np.zeros(1, np.uint32)
    lines = [f"mov.f32 %f{n}, 0f{bits:08X};" for n, bits in enumerate(values.view(np.uint32).tolist())]
    lines += [f"cvt.rn.satfinite.e2m1x2.f32 %c{n}, %f{2 * n + 1}, %f{2 * n};" for n in range(4)]
    lines += ["mov.b32 %r0, {%c0, %c1, %c2, %c3};", "ld.param.u64 %rd0, [p0];", "ld.param.u64 %rd1, [p1];"]
    lines += ["st.global.u32 [%rd0], %r0;", "mov.b32 {%c4, %c5, %c6, %c7}, %r0;"]
    for n in range(4):
        lines += [f"cvt.rn.f16x2.e2m1x2 %r{n + 1}, %c{n + 4};", f"st.global.u32 [%rd1+{4 * n}], %r{n + 1};"]
    body = "\n".join([".reg .b8 %c<8>;", *lines])
    launch(body, words, outputs, block=1, target=TARGET)
    codes = [to_narrow(float(x), "e2m1", False) for x in values]
    assert words[0] == sum(code << 4 * n for n, code in enumerate(codes))
    np.testing.assert_array_equal(outputs.view(np.float16), values.astype(np.float16))


def to_scale(value, mode, satfinite):
    """Return the exponent of a power of two at or next to a magnitude, as ue8m0."""
    if isinstance(value, float) and value != value:
        return 0xFF
    if isinstance(value, float) and math.isinf(value):
        return 0xFE if satfinite else 0xFF
    size = abs(Fraction(value))
    code = 0
    while Fraction(2) ** (code + 1 - 127) <= size:
        code += 1
    if mode == "rp" and size > Fraction(2) ** (code - 127):
        code += 1
    return min(code, 0xFE) if satfinite else code


@pytest.mark.parametrize("satfinite", ["", ".satfinite"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("source", ["f32", "bf16x2"])
def test_to_scales(source, mode, satfinite):
    spelling = f"cvt.{mode}{satfinite}.ue8m0x2.{source}"
    form = source.removesuffix("x2")
    high, low = (float_bits(form, COUNT, spelling, n) for n in range(2))
    one = [round_bits(Fraction(2) ** e, form) for e in (-127, -126, 0, 126, 127)]
    edges = [x + step for x in one for step in (-1, 0, 1)]
    high[: len(edges)], low[10 : 10 + len(edges)] = edges, edges
    given = [(high.astype(np.uint32) << 16) | low] if form == "bf16" else [high.view("f4"), low.view("f4")]
    got = apply(f"{spelling} %d, {', '.join('%a %b'.split()[: len(given)])};", *given, out="u2", target=TARGET)
    for part, x in ((got >> 8, high), (got & 0xFF, low)):
        expected = [to_scale(value_of(v, form), mode, bool(satfinite)) for v in x.tolist()]
        np.testing.assert_array_equal(part, expected)


def test_from_scales():
    codes = np.arange(256, dtype=np.uint16)
    got = apply("cvt.rn.bf16x2.ue8m0x2 %d, %a;", codes | codes[::-1] << 8, target=TARGET)
    for part, places in ((got >> 16, codes[::-1]), (got & 0xFFFF, codes)):
        expected = [round_bits(float("nan") if c == 255 else Fraction(2) ** (c - 127), "bf16") for c in places.tolist()]
        assert_same_bits(part.astype(np.uint16), expected, "bf16")
