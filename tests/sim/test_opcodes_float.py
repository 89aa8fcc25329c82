"""Floating point instructions, bit for bit against exact fractions; approximate ones within the ISA's error."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.sim.opcode_runner import apply
from tests.sim.operands import FORMATS, KINDS, assert_same_bits, float_bits, flushed, is_nan, round_bits, value_of

COUNT = 384
INF, NAN = float("inf"), float("nan")
TINY = {"f16": Fraction(1, 2**14), "f32": Fraction(1, 2**126)}
SIGN = {"f16": 1 << 15, "f32": 1 << 31}


def is_zero(x):
    return x == 0


def negative(x):
    return math.copysign(1.0, x) < 0 if isinstance(x, float) else x < 0


def add(a, b, mode):
    if (isinstance(a, float) and not is_zero(a)) or (isinstance(b, float) and not is_zero(b)):
        return float(a if isinstance(a, float) and not is_zero(a) else 0) + float(
            b if isinstance(b, float) and not is_zero(b) else 0
        )
    total = Fraction(a) + Fraction(b)
    if total == 0:
        if is_zero(a) and is_zero(b) and negative(a) == negative(b):
            return -0.0 if negative(a) else 0.0
        return -0.0 if mode == "rm" else 0.0
    return total


def multiply(a, b, mode=""):
    special = [x for x in (a, b) if isinstance(x, float) and not is_zero(x)]
    if special:
        if any(x != x for x in special) or is_zero(a) or is_zero(b):
            return NAN
        return -INF if negative(a) != negative(b) else INF
    if is_zero(a) or is_zero(b):
        return -0.0 if negative(a) != negative(b) else 0.0
    return a * b


def divide(a, b, mode=""):
    if any(isinstance(x, float) and x != x for x in (a, b)):
        return NAN
    sign = negative(a) != negative(b)
    a_inf, b_inf = (isinstance(x, float) and abs(x) == INF for x in (a, b))
    if (a_inf and b_inf) or (is_zero(a) and is_zero(b)):
        return NAN
    if a_inf or is_zero(b):
        return -INF if sign else INF
    if b_inf or is_zero(a):
        return -0.0 if sign else 0.0
    return Fraction(a) / Fraction(b)


def root(bits, kind, mode):
    """Return the bits of a square root, found by comparing squares."""
    a = value_of(bits, kind)
    if isinstance(a, float):
        return round_bits(a if a != -INF else NAN, kind)
    if a <= 0:
        return round_bits(NAN if a else a, kind)
    mantissa = 60
    shift = 2 * mantissa + 2 * 1100
    scaled = a * Fraction(2) ** shift
    low = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(low) / Fraction(2) ** (shift // 2)
    if exact * exact != a:
        exact += Fraction(1, 2 ** (shift // 2 + 1))  # between two candidates: rounds as the root does
    return round_bits(exact, kind, mode)


def operate(name, values, mode):
    if name in ("add", "sub"):
        return add(values[0], values[1] if name == "add" else multiply(values[1], Fraction(-1)), mode)
    if name == "mul":
        return multiply(*values)
    if name == "div":
        return divide(*values)
    if name == "rcp":
        return divide(Fraction(1), values[0])
    return add(multiply(values[0], values[1]), values[2], mode)


def reference(name, kind, lane, mode="rn", ftz=False, sat=False, relu=False):
    lane = [flushed(x, kind) for x in lane] if ftz else list(lane)
    if name == "sqrt":
        result = root(lane[0], kind, mode)
    else:
        exact = operate(name, [value_of(x, kind) for x in lane], mode)
        result = round_bits(exact, kind, mode)
        if ftz and isinstance(exact, Fraction) and 0 < abs(exact) < TINY[kind]:
            # Rounded where no exponent is too small: see test_flushing.
            unbounded = value_of(round_bits(exact / TINY[kind], kind, mode), kind)
            result = result if abs(unbounded) == 1 else result & SIGN[kind]
    value = value_of(result, kind)
    if sat:
        result = 0 if value != value or negative(value) or value == 0 else min(result, round_bits(Fraction(1), kind))
    if relu:
        result = round_bits(NAN, kind) if value != value else 0 if negative(value) or value == 0 else result
    return flushed(result, kind) if ftz else result


ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "mad": 3, "rcp": 1, "sqrt": 1}
EXACT = [f"{op}.f32" for op in ("add", "sub", "mul")] + ["mad.rn.f32", "mad.rm.f64"]
EXACT += [
    f"{op}.{m}.f32" for op in ("add", "sub", "mul", "div", "fma", "rcp", "sqrt") for m in ("rn", "rz", "rm", "rp")
]
EXACT += [
    f"{op}.{m}.f64" for op in ("add", "sub", "mul", "div", "fma", "rcp", "sqrt") for m in ("rn", "rz", "rm", "rp")
]
EXACT += [f"{op}.rn.ftz.f32" for op in ("add", "sub", "mul", "div", "fma", "rcp", "sqrt")]
EXACT += [f"{op}.ftz.f32" for op in ("add", "sub", "mul")] + ["fma.rp.ftz.f32", "div.rz.ftz.f32"]
EXACT += ["add.sat.f32", "sub.rz.sat.f32", "mul.ftz.sat.f32", "fma.rn.sat.f32", "fma.rm.ftz.sat.f32"]
EXACT += ["add.f64", "sub.f64", "mul.f64"]
HALF = [f"{op}.{t}" for op in ("add", "sub", "mul", "fma.rn") for t in ("f16", "f16x2", "bf16", "bf16x2")]
HALF += ["add.rn.f16", "add.ftz.f16", "sub.ftz.f16x2", "mul.ftz.f16", "fma.rn.ftz.f16", "add.sat.f16", "mul.sat.f16x2"]
HALF += ["fma.rn.relu.f16", "fma.rn.relu.bf16x2", "fma.rn.sat.f16", "fma.rn.ftz.relu.f16x2", "mul.ftz.sat.f16"]


def same_as_reference(spelling, operands):
    """Compare an instruction's results, of the bits of operands, with those of exact fractions."""
    name, *modifiers, suffix = spelling.split(".")
    kind, packed = suffix.removesuffix("x2"), suffix.endswith("x2")
    inputs = [x.view("u4") if packed else x for x in operands]
    text = f"{spelling} %d, {', '.join(f'%{x}' for x in 'abc'[: len(inputs)])};"
    views = [x.view(f"f{x.itemsize}") if x.itemsize > 2 and not packed else x for x in inputs]
    got = apply(text, *views, out=views[0].dtype.str[1:]).view(operands[0].dtype)
    mode = next((m for m in modifiers if m in ("rn", "rz", "rm", "rp")), "rn")
    flags = {flag: flag in modifiers for flag in ("ftz", "sat", "relu")}
    lanes = zip(*(x.tolist() for x in operands), strict=True)
    assert_same_bits(got, [reference(name, kind, lane, mode, **flags) for lane in lanes], kind, operands)


@pytest.mark.parametrize("spelling", [*EXACT, *HALF])
def test_zeros_and_what_rounds_to_zero(spelling):
    """All pairs or triples of zeros, ones, the smallest numbers and those whose product is less than these."""
    name, *_, suffix = spelling.split(".")
    kind = suffix.removesuffix("x2")
    exponent, mantissa = FORMATS[kind]
    bias = (1 << exponent - 1) - 1
    magnitudes = [0, 1, 1 << mantissa, bias << mantissa, bias // 3 << mantissa]
    if ARITY[name] < 3:
        magnitudes += [(1 << mantissa) - 1, (bias << mantissa) + 1, (2 * bias) << mantissa]
    values = [bits | sign << exponent + mantissa for bits in magnitudes for sign in (0, 1)]
    every = np.array(list(itertools.product(values, repeat=ARITY[name])), KINDS[kind])
    same_as_reference(spelling, [np.ascontiguousarray(column) for column in every.T])


@pytest.mark.parametrize("spelling", [*EXACT, *HALF])
def test_arithmetic(spelling):
    name, *_, suffix = spelling.split(".")
    kind, packed = suffix.removesuffix("x2"), suffix.endswith("x2")
    count = COUNT // 2 if kind == "f64" else COUNT
    operands = [float_bits(kind, 2 * count if packed else count, spelling, n) for n in range(ARITY[name])]
    if name in ("add", "sub", "fma", "mad"):
        # Cancellation: the last operand is often near the others' product or sum.
        near = operands[0] ^ np.array(1 << np.dtype(KINDS[kind]).itemsize * 8 - 1, KINDS[kind])
        operands[-1][::5] = near[::5] + np.array(0 if name == "add" else 1, KINDS[kind])
        if ARITY[name] == 3:
            operands[1][::5] = round_bits(Fraction(1), kind)
            # Ties of the exact product, broken by a tiny addend.
            operands[2][1::7] = 1
    same_as_reference(spelling, operands)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16", "f16x2", "bf16x2"])
@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".ftz", ".NaN.ftz", ".xorsign.abs", ".NaN.xorsign.abs"])
def test_min_max(operation, kind, modifiers):
    name = kind.removesuffix("x2")
    if kind == "f64" and modifiers:
        pytest.skip("f64 has no modifiers")
    if name == "bf16" and "ftz" in modifiers:
        pytest.skip("bf16 has no ftz")
    modifiers = modifiers.replace(".NaN.ftz", ".ftz.NaN")
    spelling = f"{operation}{modifiers}.{kind}"
    count = 2 * COUNT if kind.endswith("x2") else COUNT
    a, b = (float_bits(name, count, spelling, n) for n in range(2))
    b[::9] = a[::9] ^ np.array(1 << 8 * a.itemsize - 1, a.dtype)
    inputs = [
        x.view("u4") if kind.endswith("x2") else x.view(f"f{x.itemsize}") if x.itemsize > 2 else x for x in (a, b)
    ]
    got = apply(f"{spelling} %d, %a, %b;", *inputs, out=inputs[0].dtype.str[1:]).view(a.dtype)
    sign = 1 << 8 * a.itemsize - 1
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if "ftz" in modifiers:
            x, y = flushed(x, name), flushed(y, name)
        signs = (x ^ y) & sign
        if "xorsign" in modifiers:
            x, y = x & ~sign, y & ~sign
        nans = is_nan(x, name), is_nan(y, name)
        if all(nans) or (any(nans) and "NaN" in modifiers):
            expected.append(sign - 1)
            continue
        if any(nans):
            result = y if nans[0] else x
        else:
            # Order by sign and magnitude: -0 is below +0.
            order = sorted((x, y), key=lambda v: -(v & ~sign) if v & sign else v + 1)
            result = order[1] if operation == "max" else order[0]
        expected.append(result & ~sign | signs if "xorsign" in modifiers else result)
    assert_same_bits(got, expected, name, (a, b))


@pytest.mark.parametrize(
    "spelling",
    [
        "abs.f32",
        "neg.f32",
        "abs.ftz.f32",
        "neg.ftz.f32",
        "abs.f64",
        "neg.f64",
        "abs.f16",
        "neg.f16",
        "abs.bf16",
        "neg.bf16",
        "abs.f16x2",
        "neg.f16x2",
        "abs.bf16x2",
        "neg.bf16x2",
        "abs.ftz.f16",
        "neg.ftz.f16x2",
    ],
)
def test_sign(spelling):
    suffix = spelling.split(".")[-1]
    kind = suffix.removesuffix("x2")
    bits = float_bits(kind, COUNT, spelling)
    a = bits.view("u4") if suffix.endswith("x2") else bits.view(f"f{bits.itemsize}") if bits.itemsize > 2 else bits
    got = apply(f"{spelling} %d, %a;", a, out=a.dtype.str[1:]).view(bits.dtype)
    sign = 1 << 8 * bits.itemsize - 1
    expected = [x & ~sign if spelling.startswith("abs") else x ^ sign for x in bits.tolist()]
    assert_same_bits(got, [flushed(x, kind) for x in expected] if "ftz" in spelling else expected, kind, (bits,))
    if kind != "f64":
        # Measured on an H200: arithmetic like any other, that returns one NaN only.
        assert {x for x in got.tolist() if is_nan(x, kind)} == {sign - 1}


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_copysign(kind):
    a, b = (float_bits(kind, COUNT, "copysign", n) for n in range(2))
    view = f"f{a.itemsize}"
    got = apply(f"copysign.{kind} %d, %a, %b;", a.view(view), b.view(view), out=view).view(a.dtype)
    sign = np.array(1 << 8 * a.itemsize - 1, a.dtype)
    np.testing.assert_array_equal(got, a & sign | b & ~sign)


@pytest.mark.parametrize("test", ["finite", "infinite", "number", "notanumber", "normal", "subnormal"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_testp(test, kind):
    bits = float_bits(kind, COUNT, test)
    got = apply(f"testp.{test}.{kind} %d, %a;", bits.view(f"f{bits.itemsize}"), out="pred")
    mantissa = 23 if kind == "f32" else 52
    top = (1 << 8 * bits.itemsize - 1 - mantissa) - 1
    exponent = [x >> mantissa & top for x in bits.tolist()]
    fraction = [x & (1 << mantissa) - 1 for x in bits.tolist()]
    rules = {
        "finite": lambda e, f: e != top,
        "infinite": lambda e, f: e == top and f == 0,
        "number": lambda e, f: e != top or f == 0,
        "notanumber": lambda e, f: e == top and f != 0,
        "normal": lambda e, f: 0 < e < top or e == f == 0,  # zeros are normal numbers, says the ISA
        "subnormal": lambda e, f: e == 0 and f != 0,
    }
    np.testing.assert_array_equal(got, [rules[test](e, f) for e, f in zip(exponent, fraction, strict=True)])


@pytest.mark.parametrize("spelling", ["mul.ftz.f32", "fma.rn.ftz.f32", "fma.rp.ftz.f32"])
def test_what_is_tiny_before_rounding_is_flushed(spelling):
    a, b = np.array([0x800000, 0x80800000, 0x800000], np.uint32), np.array([0x3F7FFFFF] * 2 + [0x3F800000], np.uint32)
    operands = [a.view("f4"), b.view("f4"), *([np.zeros(3, "f4")] if "fma" in spelling else [])]
    got = apply(f"{spelling} %d, {', '.join(f'%{x}' for x in 'abc'[: len(operands)])};", *operands, out="f4")
    np.testing.assert_array_equal(got.view("u4"), [0, 0x80000000, 0x800000])


def angles(count):
    return np.random.default_rng(5).uniform(-math.pi, math.pi, count).astype(np.float32)


def positive(count):
    return np.ldexp(
        np.random.default_rng(6).uniform(1, 2, count), np.random.default_rng(7).integers(-100, 100, count)
    ).astype("f4")


# Errors by PTX ISA 8.7: relative, absolute or in units of the last place.
APPROXIMATE = {
    "rcp.approx.f32": (positive, lambda x: 1 / x, "ulp", 1),
    "rcp.approx.ftz.f32": (positive, lambda x: 1 / x, "ulp", 1),
    "rsqrt.approx.f32": (positive, lambda x: 1 / math.sqrt(x), "relative", 2.0**-22.9),
    "rsqrt.approx.ftz.f32": (positive, lambda x: 1 / math.sqrt(x), "relative", 2.0**-22.9),
    "sqrt.approx.f32": (positive, math.sqrt, "relative", 2.0**-23),
    "sqrt.approx.ftz.f32": (positive, math.sqrt, "relative", 2.0**-23),
    "lg2.approx.f32": (
        lambda n: np.random.default_rng(8).uniform(0.5, 2, n).astype("f4"),
        math.log2,
        "absolute",
        2.0**-22,
    ),
    "lg2.approx.ftz.f32": (positive, math.log2, "relative", 2.0**-22),
    "ex2.approx.f32": (
        lambda n: np.random.default_rng(9).uniform(-120, 120, n).astype("f4"),
        lambda x: 2.0**x,
        "ulp",
        2,
    ),
    "ex2.approx.ftz.f32": (
        lambda n: np.random.default_rng(9).uniform(-120, 120, n).astype("f4"),
        lambda x: 2.0**x,
        "ulp",
        2,
    ),
    "sin.approx.f32": (angles, math.sin, "absolute", 2.0**-20.5),
    "cos.approx.f32": (angles, math.cos, "absolute", 2.0**-20.5),
    "sin.approx.ftz.f32": (angles, math.sin, "absolute", 2.0**-20.5),
    "cos.approx.ftz.f32": (angles, math.cos, "absolute", 2.0**-20.5),
    "tanh.approx.f32": (
        lambda n: np.random.default_rng(3).uniform(-9, 9, n).astype("f4"),
        math.tanh,
        "relative",
        2.0**-11,
    ),
}


@pytest.mark.parametrize("spelling", APPROXIMATE)
def test_approximation(spelling):
    make, function, measure, limit = APPROXIMATE[spelling]
    a = make(COUNT)
    got = apply(f"{spelling} %d, %a;", a, out="f4").astype(np.float64)
    exact = np.array([function(x) for x in a.astype(np.float64).tolist()])
    error = np.abs(got - exact)
    scale = {"absolute": 1.0, "relative": np.abs(exact), "ulp": np.spacing(exact.astype(np.float32)).astype(float)}[
        measure
    ]
    assert (error <= limit * np.abs(scale)).all()


# By the ISA's tables of special values: argument, result; +0 and -0 differ.
SPECIAL = {
    "rcp.approx.ftz.f32": [
        (-INF, -0.0),
        (-1e-39, -INF),
        (-0.0, -INF),
        (0.0, INF),
        (1e-39, INF),
        (INF, 0.0),
        (NAN, NAN),
    ],
    "rsqrt.approx.ftz.f32": [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (1e-39, INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "sqrt.approx.ftz.f32": [(-INF, NAN), (-1.0, NAN), (-0.0, -0.0), (1e-39, 0.0), (0.0, 0.0), (INF, INF), (NAN, NAN)],
    "lg2.approx.ftz.f32": [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (1e-39, -INF), (0.0, -INF), (INF, INF), (NAN, NAN)],
    "ex2.approx.ftz.f32": [(-INF, 0.0), (1e-39, 1.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (NAN, NAN), (-140.0, 0.0)],
    "ex2.approx.f32": [(-140.0, 2.0**-140), (128.0, INF), (-INF, 0.0)],
    "tanh.approx.f32": [(-INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (NAN, NAN)],
    "sin.approx.f32": [(-INF, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, NAN), (NAN, NAN)],
    "cos.approx.f32": [(-INF, NAN), (-0.0, 1.0), (0.0, 1.0), (INF, NAN), (NAN, NAN)],
}


@pytest.mark.parametrize("spelling", SPECIAL)
def test_special_values(spelling):
    a, expected = (np.array(x, np.float32) for x in zip(*SPECIAL[spelling], strict=True))
    got = apply(f"{spelling} %d, %a;", a, out="f4")
    assert_same_bits(got.view("u4"), expected.view("u4").tolist(), "f32", (a.view("u4"),))


@pytest.mark.parametrize("spelling", ["div.approx.f32", "div.full.f32", "div.approx.ftz.f32", "div.full.ftz.f32"])
def test_approximate_division(spelling):
    rng = np.random.default_rng(4)
    a, b = (
        rng.uniform(0.5, 2, COUNT).astype("f4") * np.ldexp(np.float32(1), rng.integers(-20, 20, COUNT))
        for _ in range(2)
    )
    got = apply(f"{spelling} %d, %a, %b;", a, b.astype("f4"), out="f4")
    exact = a.astype(np.float64) / b.astype(np.float64)
    assert (np.abs(got - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()
    if "approx" in spelling:
        large = np.array([2.0**127, 2.0**127], np.float32)
        got = apply(f"{spelling} %d, %a, %b;", np.array([1.0, INF], np.float32), large, out="f4")
        assert got[0] == 0
        assert np.isnan(got[1])


@pytest.mark.parametrize("spelling", ["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"])
def test_coarse_f64(spelling):
    """The result has the upper half of a float64's bits only."""
    a = np.random.default_rng(2).uniform(0.1, 100, COUNT)
    got = apply(f"{spelling} %d, %a;", a, out="f8")
    exact = 1 / a if spelling.startswith("rcp") else 1 / np.sqrt(a)
    assert (got.view("u8") & np.uint64(0xFFFFFFFF) == 0).all()
    assert (np.abs(got - exact) <= 2.0**-19 * exact).all()


@pytest.mark.parametrize("kind", ["f16", "f16x2", "bf16", "bf16x2"])
@pytest.mark.parametrize("operation", ["ex2", "tanh"])
def test_half_approximation(operation, kind):
    name = kind.removesuffix("x2")
    spelling = f"{operation}.approx.{'ftz.' if operation == 'ex2' and name == 'bf16' else ''}{kind}"
    x = np.random.default_rng(1).uniform(-3, 3, COUNT)
    bits = np.array([round_bits(Fraction(v), name) for v in x.tolist()], np.uint16)
    got = apply(
        f"{spelling} %d, %a;",
        bits.view("u4") if kind.endswith("x2") else bits,
        out="u4" if kind.endswith("x2") else "u2",
    )
    exact_inputs = np.array([float(value_of(b, name)) for b in bits.tolist()])
    results = np.array([float(value_of(b, name)) for b in got.view(np.uint16).tolist()])
    exact = np.exp2(exact_inputs) if operation == "ex2" else np.tanh(exact_inputs)
    limit = {"f16": {"ex2": 2.0**-9.9, "tanh": 2.0**-10.987}, "bf16": {"ex2": 2.0**-7, "tanh": 2.0**-8}}[name][
        operation
    ]
    scale = np.abs(exact) if operation == "ex2" or name == "bf16" else 1.0
    assert (np.abs(results - exact) <= limit * scale).all()


@pytest.mark.parametrize("kind", ["f16", "f16x2", "bf16", "bf16x2"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_fma_out_of_bounds(kind, relu):
    """A factor that is the NaN for out of bounds makes the result zero, whatever its sign; other NaNs do not."""
    name, packed = kind.removesuffix("x2"), kind.endswith("x2")
    one, two = (0x3F80, 0x4000) if name == "bf16" else (0x3C00, 0x4000)
    three, minus = (0x4040, 0xC000) if name == "bf16" else (0x4200, 0xC000)
    out, other = 0x7FF7, [0x7FFF, 0x7FF6, 0xFFF7, 0x7FF8]
    nan = 0x7FFF
    cases = [(one, two, one, three), (out, two, one, 0), (two, out, minus, 0), (out, out, out, 0)]
    cases += [(two, two, out, nan), (one, minus, 0, 0 if relu else minus), (out, nan, two, 0)]
    cases += [(x, one, one, 0 if x == 0xFFF7 else nan) for x in other] + [(one, one, x, nan) for x in other[1:]]
    cases += cases[: len(cases) % 2]
    a, b, c, expected = (np.array(x, np.uint16) for x in zip(*cases, strict=True))
    values = [x.view("u4") if packed else x for x in (a, b, c)]
    got = apply(f"fma.rn.oob{relu}.{kind} %d, %a, %b, %c;", *values, out="u4" if packed else "u2").view("u2")
    np.testing.assert_array_equal(got, expected)
