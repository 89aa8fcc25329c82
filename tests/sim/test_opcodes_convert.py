"""cvt between all types, comparisons and selections, moves: bit for bit."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.sim.opcode_runner import apply
from tests.sim.operands import KINDS, assert_same_bits, float_bits, flushed, integers, is_nan, round_bits, value_of

COUNT = 320
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
REGISTER = {8: "u2", 16: "u2", 32: "u4", 64: "u8"}
NAN = float("nan")


def bits_of(kind):
    return {"bf16": 16}.get(kind) or int(kind[1:])


def wrap(value, kind):
    bits = bits_of(kind)
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> bits - 1 else value


def clamp(value, kind):
    bits = bits_of(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def as_register(values, bits):
    return np.array([v & (1 << bits) - 1 for v in values], REGISTER[bits])


@pytest.mark.parametrize("sat", ["", ".sat"])
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", INTEGERS)
def test_between_integers(to, source, sat):
    kind = REGISTER[bits_of(source)]
    if sat and clamp(-(2**70), to) <= clamp(-(2**70), source) and clamp(2**70, source) <= clamp(2**70, to):
        pytest.skip("nothing to clamp: .sat is not allowed")
    # The register may hold more than the type: only its low bits count.
    a = integers(kind, COUNT, f"{to}{source}{sat}")
    out = max(bits_of(to), 32)
    got = apply(f"cvt{sat}.{to}.{source} %d, %a;", a, out=REGISTER[out])
    rule = clamp if sat else wrap
    expected = [rule(wrap(x, source), to) for x in a.tolist()]
    # What is narrower than the register is extended by its sign.
    np.testing.assert_array_equal(got, as_register(expected, out))


INTEGER_ROUNDING = {"rzi": math.trunc, "rni": round, "rmi": math.floor, "rpi": math.ceil}


def float_inputs(kind, name):
    bits = float_bits(kind, COUNT, name)
    # Halves and neighbours of the integers' limits.
    for n, value in enumerate(
        [0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 255.5, 32767.5, 2.0**31, 2.0**32, -(2.0**31) - 1, 2.0**63, 2.0**64]
    ):
        bits[3 * n] = round_bits(value, kind)
    return bits


@pytest.mark.parametrize("rounding", INTEGER_ROUNDING)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
def test_float_to_integer(to, source, rounding):
    if source == "bf16" and bits_of(to) == 8:
        pytest.skip("no cvt from bf16 to 8 bits")
    spelling = f"cvt.{rounding}.{to}.{source}"
    a = float_inputs(source, spelling)
    view = a if a.itemsize == 2 else a.view(f"f{a.itemsize}")
    got = apply(f"{spelling} %d, %a;", view, out=REGISTER[max(bits_of(to), 16)])
    expected = []
    for x in a.tolist():
        value = value_of(x, source)
        if isinstance(value, float) and value != value:
            expected.append(1 << bits_of(to) - 1 if source == "f64" or bits_of(to) == 64 else 0)
            expected[-1] = wrap(expected[-1], to)
        elif isinstance(value, float) and math.isinf(value):
            expected.append(clamp(-(2**99) if value < 0 else 2**99, to))
        else:
            expected.append(clamp(INTEGER_ROUNDING[rounding](value), to))
    np.testing.assert_array_equal(got, as_register(expected, max(bits_of(to), 16)))


def test_float_to_integer_flushes():
    a = np.array([1, 0x80000001, 0x00800000], np.uint32).view("f4")
    np.testing.assert_array_equal(apply("cvt.rpi.ftz.s32.f32 %d, %a;", a), [0, 0, 1])
    np.testing.assert_array_equal(apply("cvt.rpi.s32.f32 %d, %a;", a), [1, 0, 1])


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", FLOATS)
def test_integer_to_float(to, source, rounding):
    if to == "bf16" and bits_of(source) == 8:
        pytest.skip("no cvt from 8 bits to bf16")
    a = integers(REGISTER[bits_of(source)], COUNT, f"{to}{source}{rounding}")
    if bits_of(source) == 64:
        # Halfway between float32 values, but for the last bit: two roundings would give another result.
        a[:4] = [2**63 + 2**39 + 1, 2**62 + 2**38 + 1, 2**53 + 2**29 + 1, 2**63 + 2**39 - 1]
    got = apply(
        f"cvt.{rounding}.{to}.{source} %d, %a;", a, out=KINDS[to] if bits_of(to) == 16 else f"f{bits_of(to) // 8}"
    )
    expected = [round_bits(Fraction(wrap(x, source)), to, rounding) for x in a.tolist()]
    assert_same_bits(got.view(KINDS[to]), expected, to, (a,))


NARROWING = [(to, source) for source in FLOATS for to in FLOATS if FLOATS.index(to) < FLOATS.index(source)]


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("pair", [*NARROWING, ("bf16", "f16")], ids="{0[0]}-{0[1]}".format)
def test_narrower_float(pair, rounding):
    to, source = pair
    a = float_bits(source, COUNT, f"{to}{source}{rounding}")
    rng = np.random.default_rng(1)
    for n in range(0, COUNT, 4):
        # Ties of the narrow format, and the neighbours of ties.
        code = int(rng.integers(0, (1 << bits_of(to) - 1) - (1 << bits_of(to) - 3)))
        low, high = value_of(code, to), value_of(code + 1, to)
        if not isinstance(low, float) and not isinstance(high, float):
            a[n] = max(round_bits((low + high) / 2, source) + int(rng.integers(-1, 2)), 0)
    view = a if a.itemsize == 2 else a.view(f"f{a.itemsize}")
    got = apply(
        f"cvt.{rounding}.{to}.{source} %d, %a;", view, out=KINDS[to] if bits_of(to) == 16 else f"f{bits_of(to) // 8}"
    )
    expected = [round_bits(value_of(x, source), to, rounding) for x in a.tolist()]
    assert_same_bits(got.view(KINDS[to]), expected, to, (a,))
    if bits_of(to) == 16:
        nans = [n for n, x in enumerate(a.tolist()) if is_nan(x, source)]
        assert nans
        quiet = 0x7E00 if to == "f16" else 0x7FC0
        signs = (a[nans] >> a.dtype.type(8 * a.itemsize - 1)).astype(np.uint16) << np.uint16(15)
        # Measured on an H200: only NaNs of f64 keep their sign, and what there is room for.
        wanted = quiet | signs if source == "f64" else 0x7FFF
        assert ((got[nans] & (0x8000 | quiet) == wanted) if source == "f64" else (got[nans] == wanted)).all()


@pytest.mark.parametrize(
    "pair",
    [("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "f32"), ("f64", "bf16")],
    ids="{0[0]}-{0[1]}".format,
)
def test_wider_float(pair):
    to, source = pair
    a = float_bits(source, COUNT, f"{to}{source}")
    view = a if a.itemsize == 2 else a.view(f"f{a.itemsize}")
    got = apply(f"cvt.{to}.{source} %d, %a;", view, out=f"f{bits_of(to) // 8}")
    assert_same_bits(got.view(KINDS[to]), [round_bits(value_of(x, source), to) for x in a.tolist()], to, (a,))


@pytest.mark.parametrize(
    "spelling",
    [
        "cvt.rn.f32.f64",
        "cvt.rn.ftz.f32.f64",
        "cvt.ftz.f32.f16",
        "cvt.rn.ftz.f16.f32",
        "cvt.ftz.f64.f32",
        "cvt.sat.f32.f32",
        "cvt.ftz.sat.f32.f32",
        "cvt.rn.sat.f16.f32",
        "cvt.rn.sat.f32.f64",
        "cvt.rn.relu.f16.f32",
        "cvt.rn.relu.bf16.f32",
        "cvt.rz.relu.bf16.f32",
        "cvt.rn.satfinite.f16.f32",
        "cvt.rn.satfinite.bf16.f32",
        "cvt.rn.relu.satfinite.f16.f32",
    ],
)
def test_modifiers(spelling):
    to, source = spelling.split(".")[-2:]
    a = float_bits(source, COUNT, spelling)
    view = a if a.itemsize == 2 else a.view(f"f{a.itemsize}")
    got = apply(f"{spelling} %d, %a;", view, out=KINDS[to] if bits_of(to) == 16 else f"f{bits_of(to) // 8}")
    expected = []
    for x in a.tolist():
        x = flushed(x, source) if "ftz" in spelling and source == "f32" else x
        value = value_of(x, source)
        if "sat." in spelling:
            value = Fraction(0) if value != value or value < 0 or value == 0 else min(value, Fraction(1))
        if "relu" in spelling and value == value:
            value = max(value, Fraction(0)) if value != 0 else Fraction(0)
        if "satfinite" in spelling and value == value:
            largest = value_of(0x7BFF if to == "f16" else 0x7F7F, to)
            value = max(min(value, largest), -largest) if value != 0 else value
        result = round_bits(value, to, "rz" if ".rz" in spelling else "rn")
        expected.append(flushed(result, to) if "ftz" in spelling and to == "f32" else result)
    assert_same_bits(got.view(KINDS[to]), expected, to, (a,))


@pytest.mark.parametrize("rounding", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_integral_rounding(kind, rounding):
    if kind == "bf16":
        pytest.skip("bf16 is not rounded to integers in its own type")
    a = float_inputs(kind, rounding)
    view = a if a.itemsize == 2 else a.view(f"f{a.itemsize}")
    got = apply(f"cvt.{rounding}.{kind}.{kind} %d, %a;", view, out=view.dtype.str[1:])
    expected = []
    for x in a.tolist():
        value = value_of(x, kind)
        if not isinstance(value, float):
            whole = INTEGER_ROUNDING[rounding](value)
            value = (-0.0 if value < 0 else 0.0) if whole == 0 else Fraction(whole)
        expected.append(round_bits(value, kind))
    assert_same_bits(got.view(a.dtype), expected, kind, (a,))


@pytest.mark.parametrize("to", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("modifiers", ["rn", "rz", "rn.relu", "rz.relu", "rn.satfinite", "rn.relu.satfinite"])
def test_packed(to, modifiers):
    kind = to.removesuffix("x2")
    a, b = (float_bits("f32", COUNT, modifiers, n) for n in range(2))
    got = apply(f"cvt.{modifiers}.{to}.f32 %d, %a, %b;", a.view("f4"), b.view("f4"))
    largest = value_of(0x7BFF if kind == "f16" else 0x7F7F, kind)

    def one(x):
        value = value_of(x, "f32")
        if "relu" in modifiers and value == value and (value < 0 or value == 0):
            value = Fraction(0)
        if "satfinite" in modifiers and value == value and value != 0:
            value = max(min(value, largest), -largest)
        return round_bits(value, kind, modifiers[:2])

    for part, source in ((got >> 16, a), (got & 0xFFFF, b)):
        assert_same_bits(part.astype(np.uint16), [one(x) for x in source.tolist()], kind, (source,))


@cache
def float8_values(kind):
    """List the values of a format, in the order of their codes: ascending."""
    return [value_of(code, kind) for code in range(0x7F if kind == "e4m3" else 0x7C)]


def round_float8(value, kind, relu):
    """Round to the nearer of the two values of the format that are next to it."""
    if value != value:
        return 0x7F
    values = float8_values(kind)
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    if relu and (sign or value == 0):
        return 0
    magnitude = abs(value)
    if magnitude >= values[-1]:
        return sign | len(values) - 1
    above = bisect_right(values, magnitude)
    best = min((above - 1, above), key=lambda c: (abs(values[c] - Fraction(magnitude)), c & 1))
    return sign | best


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("source", ["f32", "f16x2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_to_float8(kind, source, relu):
    spelling = f"cvt.rn.satfinite{relu}.{kind}x2.{source}"
    rng = np.random.default_rng(3)
    half = source == "f16x2"
    inputs = [float_bits("f16" if half else "f32", COUNT, spelling, n) for n in range(2)]
    for x in inputs:
        for n in range(0, COUNT, 3):
            code = int(rng.integers(0, 0x7A))
            middle = (value_of(code, kind) + value_of(code + 1, kind)) / 2
            x[n] = round_bits(middle, "f16" if half else "f32") + int(rng.integers(-1, 2))
    if half:
        got = apply(f"{spelling} %d, %a;", (inputs[0].astype(np.uint32) << 16) | inputs[1], out="u2")
    else:
        got = apply(f"{spelling} %d, %a, %b;", *(x.view("f4") for x in inputs), out="u2")
    for part, x in ((got >> 8, inputs[0]), (got & 0xFF, inputs[1])):
        values = [value_of(v, "f16" if half else "f32") for v in x.tolist()]
        np.testing.assert_array_equal(part, [round_float8(v, kind, bool(relu)) for v in values])


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_from_float8(kind, relu):
    codes = np.arange(2**16, dtype=np.uint32)[::131].astype(np.uint16)
    got = apply(f"cvt.rn{relu}.f16x2.{kind}x2 %d, %a;", codes)

    def one(code):
        value = value_of(code, kind)
        return round_bits(Fraction(0) if relu and value == value and value <= 0 else value, "f16")

    for part, x in ((got >> 16, codes >> 8), (got & 0xFFFF, codes & 0xFF)):
        assert_same_bits(part.astype(np.uint16), [one(c) for c in x.tolist()], "f16", (x,))


@pytest.mark.parametrize("rounding", ["rna", "rn", "rz", "rn.relu"])
def test_tf32(rounding):
    a = float_bits("f32", COUNT, rounding)
    a[::3] = a[::3] & np.uint32(0xFFFFE000) | np.uint32(0x1000)
    got = apply(f"cvt.{rounding}.tf32.f32 %d, %a;", a.view("f4"))
    expected = []
    for x in a.tolist():
        value = value_of(x, "f32")
        if "relu" in rounding and value == value and value <= 0:
            value = Fraction(0)
        nan = x & 0xFFFFE000 if rounding == "rna" else 0x7FFFE000  # measured on an H200
        expected.append(nan if value != value else round_bits(value, "tf32", rounding.partition(".")[0]) << 13)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("to", ["s16", "u16", "s8", "u8", "s4", "u4"])
@pytest.mark.parametrize("third", [False, True])
def test_pack(to, third):
    bits = int(to[1:])
    if bits == 4 or (bits == 16 and third) or (bits == 8 and not third):
        pytest.skip("not for 4 bits here; c belongs to 8 bits")
    a, b, c = (integers("i4", COUNT, to, n) for n in range(3))
    text = f"cvt.pack.sat.{to}.s32{'.b32' if third else ''} %d, %a, %b{', %c' if third else ''};"
    got = apply(text, a, b, *([c] if third else []))
    mask = (1 << bits) - 1
    expected = [
        (clamp(y, to) & mask) | (clamp(x, to) & mask) << bits | ((z << 2 * bits) & 0xFFFFFFFF if third else 0)
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(got, np.array(expected, np.uint32))


# Comparisons.

ORDERS = {"eq": 0b010, "ne": 0b101, "lt": 0b001, "le": 0b011, "gt": 0b100, "ge": 0b110}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(operation, a, b):
    """Compare two numbers; `num`, `nan` and the endings in u tell of NaNs."""
    nan = a != a or b != b
    if operation in ("num", "nan"):
        return nan == (operation == "nan")
    if operation not in ORDERS and operation.removesuffix("u") in ORDERS:
        return nan or compare(operation.removesuffix("u"), a, b)
    if nan:
        return False
    return bool(ORDERS[UNSIGNED.get(operation, operation)] >> (a > b) * 2 + (a == b) & 1)


COMPARISONS = [(op, t) for t in ("s16", "s32", "s64") for op in ORDERS]
COMPARISONS += [(op, t) for t in ("u16", "u32", "u64") for op in (*ORDERS, *UNSIGNED)]
COMPARISONS += [(op, t) for t in ("b16", "b32", "b64") for op in ("eq", "ne")]
COMPARISONS += [
    (op, t) for t in ("f32", "f64", "f16", "bf16") for op in (*ORDERS, *(f"{o}u" for o in ORDERS), "num", "nan")
]


def operands_of(kind, name):
    if kind in FLOATS:
        bits = [float_bits(kind, COUNT, name, n) for n in range(2)]
        values = [[value_of(x, kind) for x in b.tolist()] for b in bits]
        arrays = [b if b.itemsize == 2 else b.view(f"f{b.itemsize}") for b in bits]
    else:
        arrays = [integers(KINDS[kind], COUNT, name, n) for n in range(2)]
        arrays[1][::4] = arrays[0][::4]
        values = [a.tolist() for a in arrays]
    return arrays, values


@pytest.mark.parametrize(("operation", "kind"), COMPARISONS)
def test_setp(operation, kind):
    arrays, values = operands_of(kind, operation)
    got = apply(f"setp.{operation}.{kind} %d, %a, %b;", *arrays, out="pred")
    np.testing.assert_array_equal(got, [compare(operation, a, b) for a, b in zip(*values, strict=True)])


@pytest.mark.parametrize("boolean", ["and", "or", "xor"])
@pytest.mark.parametrize("negated", ["", "!"])
@pytest.mark.parametrize("kind", ["s32", "f32"])
def test_setp_with_predicates(boolean, negated, kind):
    arrays, values = operands_of(kind, boolean)
    c = np.random.default_rng(1).random(COUNT) < 0.5
    p, q = apply(f"setp.lt.{boolean}.{kind} %d0|%d1, %a, %b, {negated}%c;", *arrays, c, out=("pred", "pred"))
    x = np.array([compare("lt", a, b) for a, b in zip(*values, strict=True)])
    y = ~c if negated else c
    rule = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[boolean]
    np.testing.assert_array_equal(p, rule(x, y))
    np.testing.assert_array_equal(q, rule(~x, y))


def test_setp_reads_before_it_writes():
    """The predicate that is combined may be the one that is written."""
    a, c = np.arange(64, dtype=np.int32), np.arange(64) % 3 == 0
    p, q = apply("mov.pred %d0, %b;\nsetp.lt.and.s32 %d0|%d1, %a, 32, %d0;", a, c, out=("pred", "pred"))
    np.testing.assert_array_equal(p, (a < 32) & c)
    np.testing.assert_array_equal(q, (a >= 32) & c)


def test_setp_without_second_result():
    a = np.arange(64, dtype=np.int32)
    np.testing.assert_array_equal(apply("setp.ge.s32 %d|_, %a, 9;", a, out="pred"), a >= 9)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("operation", ["lt", "neu", "nan"])
def test_setp_packed(kind, operation):
    name = kind.removesuffix("x2")
    x, y = (float_bits(name, 2 * COUNT, operation, n) for n in range(2))
    p, q = apply(f"setp.{operation}.{kind} %d0|%d1, %a, %b;", x.view("u4"), y.view("u4"), out=("pred", "pred"))
    expected = [
        compare(operation, value_of(a, name), value_of(b, name)) for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(p, expected[::2])
    np.testing.assert_array_equal(q, expected[1::2])


def test_comparisons_flush():
    tiny = np.array([1, 0x80000001], np.uint32).view("f4")
    zero = np.zeros(2, np.float32)
    np.testing.assert_array_equal(apply("setp.eq.ftz.f32 %d, %a, %b;", tiny, zero, out="pred"), [True, True])
    np.testing.assert_array_equal(apply("setp.eq.f32 %d, %a, %b;", tiny, zero, out="pred"), [False, False])
    half = np.array([1, 0x8001], np.uint16)
    none = np.zeros(2, np.uint16)
    np.testing.assert_array_equal(apply("setp.eq.ftz.f16 %d, %a, %b;", half, none, out="pred"), [True, True])


@pytest.mark.parametrize(
    "spelling",
    [
        "set.lt.u32.s32",
        "set.gtu.s32.f32",
        "set.le.f32.u32",
        "set.ne.ftz.f32.f32",
        "set.eq.and.u32.s32",
        "set.ge.xor.f32.f32",
        "set.lt.u32.f16",
        "set.lt.f16.f16",
        "set.ge.bf16.bf16",
        "set.gt.u16.f16",
    ],
)
def test_set(spelling):
    _, operation, *_, to, kind = spelling.split(".")
    arrays, values = operands_of(kind, spelling)
    boolean = next((b for b in ("and", "or", "xor") if b in spelling.split(".")), None)
    c = np.arange(COUNT) % 3 == 0
    if "ftz" in spelling:
        values = [[value_of(flushed(x, kind), kind) for x in a.view("u4").tolist()] for a in arrays]
    out = {"f32": "f4", "f16": "u2", "bf16": "u2", "u16": "u2"}.get(to, "u4")
    got = apply(f"{spelling} %d, %a, %b{', %c' if boolean else ''};", *arrays, *([c] if boolean else []), out=out)
    result = np.array([compare(operation, a, b) for a, b in zip(*values, strict=True)])
    if boolean:
        result = {"and": result & c, "or": result | c, "xor": result ^ c}[boolean]
    true = {"f32": 1.0, "f16": 0x3C00, "bf16": 0x3F80, "u16": 0xFFFF}.get(to, 0xFFFFFFFF)
    np.testing.assert_array_equal(got, np.where(result, true, 0).astype(out))


@pytest.mark.parametrize(("to", "true"), [("f16x2", 0x3C00), ("u32", 0xFFFF), ("s32", 0xFFFF)])
def test_set_packed(to, true):
    x, y = (float_bits("f16", 2 * COUNT, "set", n) for n in range(2))
    less = [compare("lt", value_of(a, "f16"), value_of(b, "f16")) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    got = apply(f"set.lt.{to}.f16x2 %d, %a, %b;", x.view("u4"), y.view("u4"))
    np.testing.assert_array_equal(got.view("u2"), np.where(less, true, 0))


@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"])
def test_selp(kind):
    numpy_kind = {"f32": "f4", "f64": "f8"}.get(kind, KINDS[kind])
    a, b = (integers(f"u{numpy_kind[1]}", COUNT, kind, n).view(numpy_kind) for n in range(2))
    p = np.arange(COUNT) % 3 == 1
    got = apply(f"selp.{kind} %d, %a, %b, %c;", a, b, p, out=numpy_kind)
    unsigned = f"u{a.itemsize}"
    np.testing.assert_array_equal(got.view(unsigned), np.where(p, a.view(unsigned), b.view(unsigned)))


@pytest.mark.parametrize(
    "spelling", ["slct.b32.s32", "slct.u64.s32", "slct.f32.s32", "slct.s32.f32", "slct.ftz.b32.f32", "slct.b16.s32"]
)
def test_slct(spelling):
    kind, sign = spelling.split(".")[-2:]
    numpy_kind = {"f32": "f4"}.get(kind, KINDS[kind])
    a, b = (np.arange(n, n + 8).astype(numpy_kind) for n in (1, 21))
    if sign == "s32":
        c = np.array([0, 1, -1, 5, -5, 2**31 - 1, -(2**31), 7], np.int32)
        chosen = c >= 0
    else:
        c = np.array([0, -0.0, 1, -1, np.nan, np.inf, -np.inf, -1e-40], np.float32)
        chosen = np.array([1, 1, 1, 0, 0, 1, 0, "ftz" in spelling], bool)
    np.testing.assert_array_equal(apply(f"{spelling} %d, %a, %b, %c;", a, b, c, out=numpy_kind), np.where(chosen, a, b))


@pytest.mark.parametrize("operation", ["and", "or", "xor", "not", "mov"])
def test_predicate_logic(operation):
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    if operation in ("not", "mov"):
        got = apply(f"{operation}.pred %d, %a;", a, out="pred")
        np.testing.assert_array_equal(got, ~a if operation == "not" else a)
    else:
        got = apply(f"{operation}.pred %d, %a, %b;", a, b, out="pred")
        np.testing.assert_array_equal(got, {"and": a & b, "or": a | b, "xor": a ^ b}[operation])


# Moves.


@pytest.mark.parametrize("kind", ["b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"])
def test_mov(kind):
    numpy_kind = {"f32": "f4", "f64": "f8"}.get(kind, KINDS[kind])
    a = integers(f"u{numpy_kind[1]}", COUNT, kind).view(numpy_kind)
    got = apply(f"mov.{kind} %d, %a;", a, out=numpy_kind)
    np.testing.assert_array_equal(got.view(f"u{a.itemsize}"), a.view(f"u{a.itemsize}"))


def test_mov_of_constants():
    zeros = np.zeros(32, np.uint32)
    assert apply("mov.f32 %d, 0f3FC00000;", zeros, out="f4")[0] == 1.5
    assert apply("mov.f32 %d, 1.25;", zeros, out="f4")[0] == 1.25
    assert apply("mov.f64 %d, 0d3FF8000000000000;", zeros, out="f8")[0] == 1.5
    assert apply("mov.b32 %d, 0f3FC00000;", zeros)[0] == 0x3FC00000
    assert apply("mov.b64 %d, -1;", zeros, out="u8")[0] == 2**64 - 1
    assert apply("mov.u32 %d, WARP_SZ;", zeros)[0] == 32
    assert apply("mov.pred %d, 1;", zeros, out="pred")[0]


def test_pack_and_unpack():
    a, b = (integers("u4", COUNT, "pack", n) for n in range(2))
    whole = apply("mov.b64 %d, {%a, %b};", a, b, out="u8")
    np.testing.assert_array_equal(whole, a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32))
    low, high = apply("mov.b64 {%d0, %d1}, %a;", whole, out=("u4", "u4"))
    np.testing.assert_array_equal(low, a)
    np.testing.assert_array_equal(high, b)
    swapped = apply("{ .reg .b32 x, y; mov.b64 {x, y}, %a;\nmov.b64 %d, {y, x}; }", whole, out="u8")
    np.testing.assert_array_equal(swapped, b.astype(np.uint64) | a.astype(np.uint64) << np.uint64(32))
    halves = apply("mov.b64 {%d0, %d1, %d2, %d3}, %a;", whole, out=("u2",) * 4)
    np.testing.assert_array_equal(np.stack(halves, 1), whole.view(np.uint16).reshape(-1, 4))
    again = apply("mov.b64 %d, {%a, %b, %c, %e};", *halves, out="u8")
    np.testing.assert_array_equal(again, whole)
    packed = apply("mov.b32 %d, {%a, %b};", *halves[:2])
    np.testing.assert_array_equal(packed, a)
    upper = apply("mov.b32 {_, %d}, %a;", a, out="u2")
    np.testing.assert_array_equal(upper, a >> 16)


def test_float_bits_move_between_types():
    """The bits of a register do not change with the type of who reads it."""
    bits = float_bits("f32", COUNT, "move")
    got = apply("{ .reg .f32 f; mov.b32 f, %a;\nmov.b32 %d, f; }", bits)
    np.testing.assert_array_equal(got, bits)
    got = apply("add.f32 %a, %a, %a;\nxor.b32 %d, %a, 0x80000000;", bits.view("f4"))
    with np.errstate(all="ignore"):
        doubled = bits.view("f4") * np.float32(2)
    same = np.isnan(doubled) | (got.view("f4") == -doubled)
    assert same.all()
