"""Operations of floats on the lanes of a warp: those of `arithmetic.floats`, to nearest.

References
----------
PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions". Boldo and Melquiond: "Emulation of
FMA and correctly rounded sums: proved algorithms using rounding to odd".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from cutepy.sim.arithmetic.minifloat import EXPONENT_BITS, LARGEST, MANTISSA_BITS
from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.writer import Value
from cutepy.sim.semantics.types import width

_CANONICAL = 0x7FFFFFFF
_TINY = 2.0**-126
_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def compute(e: Lanes, operation: str, bits: int, values: tuple[Value, ...], given: tuple[Any, ...]) -> Value:
    """Compute an operation of floats, as the builder names it.

    Raises
    ------
    UnsupportedError
        If numpy computes it.
    """
    if operation not in _OPERATIONS:
        raise UnsupportedError
    return _OPERATIONS[operation](e, bits, values, given)


def _need(condition: object) -> None:
    if not condition:
        raise UnsupportedError


def float_bits(number: float, bits: int) -> int:
    """Return the bits of a float."""
    return int.from_bytes(struct.pack("<f" if bits == 32 else "<d", number), "little")


def magnitude_below(e: Lanes, x: Value, limit: float) -> Value:
    """Return whether a number's magnitude is below a positive limit."""
    w = e.w
    size = w.binary("and", x, w.constant(x.bits, (1 << x.bits - 1) - 1))
    return w.compare("ult", size, w.constant(x.bits, float_bits(limit, x.bits)))


def flushed(e: Lanes, x: Value) -> Value:
    """Replace subnormals of float32 by zeros of their sign."""
    w = e.w
    sign = w.binary("and", x, w.constant(32, 0x80000000))
    return w.select(magnitude_below(e, x, 2.0**-126), sign, x)


def flushed_rounded(e: Lanes, result: Value, exact: Value) -> Value:
    """Flush a float32 that is subnormal when rounded to nearest with an exponent without bounds.

    `exact` is the float64 that was rounded, itself rounded to odd: see `arithmetic.floats.flush_rounded`.
    """
    w = e.w
    border = w.compare("eq", w.binary("and", result, w.constant(32, 0x7FFFFFFF)), w.constant(32, 0x00800000))
    lost = w.binary("and", border, magnitude_below(e, exact, 2.0**-126 - 2.0**-151))
    return flushed(e, w.select(lost, w.binary("and", result, w.constant(32, 0x80000000)), result))


def canonical(e: Lanes, x: Value) -> Value:
    """Replace the NaNs of float32 by the one that arithmetic returns."""
    return e.w.select(e.w.compare_floats("uno", x, x), e.w.constant(32, _CANONICAL), x)


def quiet(e: Lanes, x: Value) -> Value:
    """Set the bit of a float64 that makes a NaN a quiet one."""
    return e.w.binary("or", x, e.w.constant(64, 1 << 51))


def last_nan(e: Lanes, result: Value, *operands: Value) -> Value:
    """Let a float64 result be the last operand that is a NaN, quiet."""
    for x in operands:
        result = e.w.select(e.w.compare_floats("uno", x, x), quiet(e, x), result)
    return result


def saturated_float(e: Lanes, x: Value) -> Value:
    """Clamp float32 to [0, 1]; a NaN becomes 0."""
    w = e.w
    zero, one = w.constant(32, 0), w.constant(32, 0x3F800000)
    capped = w.select(w.compare_floats("olt", x, one), x, one)
    return w.select(w.compare_floats("ogt", x, zero), capped, zero)


def extreme_float(e: Lanes, operation: str, a: Value, b: Value) -> Value:
    """Return the smaller or the larger; a NaN loses to a number, and -0 is below +0."""
    w = e.w
    found = w.select(w.compare_floats("olt" if operation == "min" else "ogt", a, b), a, b)
    # Of equal numbers the bits are equal too, or they are zeros of two signs.
    both = w.binary("or" if operation == "min" else "and", a, b)
    found = w.select(w.compare_floats("oeq", a, b), both, found)
    found = w.select(w.compare_floats("uno", b, b), a, found)
    if a.bits == 32:
        found = w.select(w.compare_floats("uno", a, a), b, found)
        return canonical(e, found)
    found = w.select(w.compare_floats("uno", a, a), b, found)
    return w.select(w.compare_floats("uno", found, found), quiet(e, found), found)


def extreme_nan(e: Lanes, operation: str, a: Value, b: Value) -> Value:
    """Return the smaller or the larger float32; a NaN wins, canonical (.NaN)."""
    found = extreme_float(e, operation, a, b)
    return e.w.select(e.w.compare_floats("uno", a, b), e.w.constant(32, _CANONICAL), found)


def widened(e: Lanes, half: Value, name: str) -> Value:
    """Return the float32 of an f16 or bf16, given as bits."""
    w = e.w
    if name == "f16":
        return w.float_cast("fpext", half, 32)
    return w.binary("shl", w.resized(half, 32), w.constant(32, 16))


def narrowed(e: Lanes, x: Value, name: str) -> Value:
    """Round float32 to f16 or bf16, to nearest; NaNs are canonical."""
    w = e.w
    if name == "f16":
        bits = w.float_cast("fptrunc", x, 16)
    else:
        even = w.binary("and", w.binary("lshr", x, w.constant(32, 16)), w.constant(32, 1))
        up = w.binary("add", w.binary("add", x, w.constant(32, 0x7FFF)), even)
        bits = w.resized(w.binary("lshr", up, w.constant(32, 16)), 16)
    return w.select(w.compare_floats("uno", x, x), w.constant(16, 0x7FFF), bits)


def _stepped(e: Lanes, x: Value, inexact: Value, up: Value) -> Value:
    """Move numbers whose last bit is even, and that are not exact, to the neighbour on the exact value's side."""
    w = e.w
    one = w.constant(x.bits, 1)
    is_even = w.compare("eq", w.binary("and", x, one), w.constant(x.bits, 0))
    step = w.select(up, one, w.constant(x.bits, -1))
    return w.select(w.binary("and", inexact, is_even), w.binary("add", x, step), x)


def add_odd(e: Lanes, a: Value, b: Value) -> Value:
    """Add float64 values, rounded to odd."""
    w = e.w
    zero = w.constant(64, 0)
    total = w.floats("fadd", a, b)
    back = w.floats("fsub", total, a)
    error = w.floats("fadd", w.floats("fsub", a, w.floats("fsub", total, back)), w.floats("fsub", b, back))
    # Ordered: an error of infinite totals is a NaN.
    inexact = w.compare_floats("one", error, zero)
    up = w.compare("eq", w.compare_floats("ogt", error, zero), w.compare_floats("ogt", total, zero))
    return _stepped(e, total, inexact, up)


def to_f32_odd(e: Lanes, x: Value) -> Value:
    """Return float64 as float32, rounded to odd."""
    w = e.w
    single = w.float_cast("fptrunc", x, 32)
    back = w.float_cast("fpext", single, 64)
    size = w.constant(64, (1 << 63) - 1)
    up = w.compare_floats("ogt", w.binary("and", x, size), w.binary("and", back, size))
    return _stepped(e, single, w.compare_floats("one", back, x), up)


def _flushed_product(e: Lanes, value: Value, values: list[Value], operation: str = "mul") -> Value:
    """Flush a product, or a sum of one, of float32 operands; `value` may have been saturated."""
    _need(operation in ("mul", "fma"))
    wide = [e.w.float_cast("fpext", v, 64) for v in values]
    exact = e.w.floats("fmul", *wide[:2])
    return flushed_rounded(e, value, add_odd(e, exact, wide[2]) if len(values) == 3 else exact)


def _approximate_quotient(e: Lanes, values: list[Value], full: bool, flush: bool) -> Value:
    """Multiply by a reciprocal, scaled where it would be lost: see `floats.div_approx`."""
    w, (a, b) = e.w, values
    _need(a.bits == 32)
    scale = w.constant(32, 0x3F800000)
    if full:
        large = w.compare_floats("ogt", w.binary("and", b, w.constant(32, 0x7FFFFFFF)), w.constant(32, 0x7E800000))
        scale = w.select(large, w.constant(32, 0x3E800000), scale)
    if not flush:
        scale = w.select(magnitude_below(e, b, _TINY), w.constant(32, 0x4B800000), scale)
    divisor = w.floats("fmul", b, scale)
    divisor = flushed(e, divisor) if flush else divisor
    inverse = w.floats("fdiv", w.constant(64, 0x3FF << 52), w.float_cast("fpext", divisor, 64))
    factors = [flushed(e, w.float_cast("fptrunc", inverse, 32)), w.floats("fmul", a, scale)]
    if not flush:
        return w.floats("fmul", *factors)
    factors[1] = flushed(e, factors[1])
    return _flushed_product(e, w.floats("fmul", *factors), factors)


def _narrow_operation(e: Lanes, operation: str, name: str, values: tuple[Value, ...]) -> Value:
    """Compute an operation of f16 or bf16 values, given as float32, to be rounded once: see `arithmetic.floats`."""
    w = e.w
    if operation in ("add", "sub") or (operation == "mul" and name == "f16"):
        return w.floats(f"f{operation}", *values)
    _need(operation in ("mul", "fma"))
    wide = [w.float_cast("fpext", v, 64) for v in values]
    exact = w.floats("fmul", *wide[:2])
    return to_f32_odd(e, add_odd(e, exact, wide[2]) if len(wide) == 3 else exact)


def _inverse(e: Lanes, x: Value, *, of_root: bool) -> Value:
    """Return the reciprocal of a number, or of its square root."""
    w = e.w
    wide = x if x.bits == 64 else w.float_cast("fpext", x, 64)
    wide = w.floats("intr.sqrt", wide) if of_root else wide
    found = w.floats("fdiv", w.constant(64, 0x3FF << 52), wide)
    return found if x.bits == 64 else w.float_cast("fptrunc", found, 32)


def _to_integer(e: Lanes, value: Value, kind: str, rounding: str) -> Value:
    """Round to an integral value and clamp; NaNs become zero, or the result of `floats.float_to_int`."""
    w, bits, signed, is_double = e.w, width(kind), kind[0] == "i", value.bits == 64
    value = value if is_double else w.float_cast("fpext", value, 64)
    value = w.floats(f"intr.{_INTEGRAL[rounding]}", value)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    least, most = (w.constant(64, float_bits(float(x), 64)) for x in (low, high))
    inside = w.binary("and", w.compare_floats("ogt", value, least), w.compare_floats("olt", value, most))
    found = w.to_integer(w.select(inside, value, w.constant(64, 0)), bits, signed)
    found = w.select(w.compare_floats("ole", value, least), w.constant(bits, low), found)
    found = w.select(w.compare_floats("oge", value, most), w.constant(bits, high), found)
    lost = 1 << bits - 1 if is_double or bits == 64 else 0
    return w.select(w.compare_floats("uno", value, value), w.constant(bits, lost), found)


def _from_integer(e: Lanes, bits: int, value: Value, kind: str, rounding: str, letter: str) -> Value:
    _need(kind != "odd" and rounding == "rn")
    return e.w.from_integer(value, bits, letter == "i")


def _convert(e: Lanes, bits: int, value: Value, rounding: str) -> Value:
    _need(rounding == "rn")
    if bits == value.bits:
        return value
    return e.w.float_cast("fpext" if bits > value.bits else "fptrunc", value, bits)


def _signed_by(e: Lanes, size: Value, sign: Value) -> Value:
    w = e.w
    top = w.constant(size.bits, 1 << size.bits - 1)
    return w.binary("or", w.binary("and", sign, top), w.binary("and", size, e.invert(top)))


def _one_bit(e: Lanes, x: Value, operation: str) -> Value:
    top = 1 << x.bits - 1
    return e.w.binary(operation, x, e.w.constant(x.bits, top if operation == "xor" else top - 1))


def _from_minifloat(e: Lanes, code: Value, name: str) -> Value:
    """Widen a float of 8, 6 or 4 bits: its exponent and mantissa are those of a small float32, scaled."""
    w = e.w
    if name == "ue8m0":
        wide = w.resized(code, 32)
        least = w.constant(32, 0x00400000)  # subnormal
        found = w.select(w.compare("eq", wide, w.constant(32, 0)), least, w.binary("shl", wide, w.constant(32, 23)))
        return w.select(w.compare("eq", wide, w.constant(32, 0xFF)), w.constant(32, _CANONICAL), found)
    exponent_bits, mantissa_bits = EXPONENT_BITS[name], MANTISSA_BITS[name]
    size_bits, bias = exponent_bits + mantissa_bits, (1 << exponent_bits - 1) - 1
    wide = w.resized(code, 32)
    size = w.binary("and", wide, w.constant(32, (1 << size_bits) - 1))
    small = w.binary("shl", size, w.constant(32, 23 - mantissa_bits))
    found = w.floats("fmul", small, w.constant(32, float_bits(2.0 ** (127 - bias), 32)))
    if name == "e5m2":
        found = w.select(w.compare("uge", size, w.constant(32, 0x7C)), w.constant(32, 0x7F800000), found)
    if name in ("e4m3", "e5m2"):
        least_nan = w.constant(32, 0x7F if name == "e4m3" else 0x7D)
        found = w.select(w.compare("uge", size, least_nan), w.constant(32, _CANONICAL), found)
    sign = w.binary("and", w.binary("shl", wide, w.constant(32, 31 - size_bits)), w.constant(32, 1 << 31))
    return w.binary("or", found, sign)


def _to_minifloat(e: Lanes, x: Value, name: str) -> Value:
    """Round float32 to a signed float of 8, 6 or 4 bits, to nearest and clamped: see `arithmetic.minifloat`."""
    w, exponent_bits, mantissa_bits = e.w, EXPONENT_BITS[name], MANTISSA_BITS[name]
    size_bits, bias, cut = exponent_bits + mantissa_bits, (1 << exponent_bits - 1) - 1, 23 - mantissa_bits
    size = w.binary("and", x, w.constant(32, 0x7FFFFFFF))
    even = w.binary("and", w.binary("lshr", size, w.constant(32, cut)), w.constant(32, 1))
    rounded = w.binary("add", w.binary("add", size, w.constant(32, (1 << cut - 1) - 1)), even)
    offset = w.constant(32, 127 - bias << mantissa_bits)
    code = w.binary("sub", w.binary("lshr", rounded, w.constant(32, cut)), offset)
    # Of subnormals: the last bit of the sum is worth as much as theirs.
    unit = w.constant(32, float_bits(2.0 ** (24 - bias - mantissa_bits), 32))
    fixed = w.binary("sub", w.floats("fadd", size, unit), unit)
    code = w.select(magnitude_below(e, x, 2.0 ** (1 - bias)), fixed, code)
    code = w.intrinsic("umin", code, w.constant(32, LARGEST[name]))
    sign = w.binary("and", w.binary("lshr", x, w.constant(32, 31 - size_bits)), w.constant(32, 1 << size_bits))
    nan = w.constant(32, (1 << size_bits) - 1)
    return w.resized(w.select(w.compare_floats("uno", x, x), nan, w.binary("or", code, sign)), 8)


def _relu(e: Lanes, x: Value) -> Value:
    """Clamp float32 to 0 from below; a NaN stays one, canonical (.relu)."""
    zero = e.w.constant(32, 0)
    return canonical(e, e.w.select(e.w.compare_floats("ole", x, zero), zero, x))


def _to_nearest(function: Callable[..., Value], *, of_bits: int = 0, place: int = -1) -> Callable[..., Value]:
    """Return an operation of operands of some bits, whose parameter at a place is a rounding to nearest."""

    def operation(e: Lanes, bits: int, x: Any, g: Any) -> Value:  # noqa: ANN401
        _need((not g or place < 0 or g[place] == "rn") and (not of_bits or x[0].bits == of_bits))
        return function(e, x, g)

    return operation


_OPERATIONS: dict[str, Callable[[Lanes, int, Any, Any], Value]] = {
    "add": lambda e, bits, x, g: e.w.floats("fadd", *x),
    "sub": lambda e, bits, x, g: e.w.floats("fsub", *x),
    "mul": lambda e, bits, x, g: e.w.floats("fmul", *x),
    "div": lambda e, bits, x, g: e.w.floats("fdiv", *x),
    "fma": lambda e, bits, x, g: e.w.floats("intr.fma", *x),
    "sqrt": lambda e, bits, x, g: e.w.floats("intr.sqrt", *x),
    "rcp": lambda e, bits, x, g: _inverse(e, x[0], of_root=False),
    "rsqrt": lambda e, bits, x, g: _inverse(e, x[0], of_root=True),
    "neg": lambda e, bits, x, g: _one_bit(e, x[0], "xor"),
    "abs": lambda e, bits, x, g: _one_bit(e, x[0], "and"),
    "copysign": lambda e, bits, x, g: _signed_by(e, *x),
    "min": lambda e, bits, x, g: extreme_float(e, "min", *x),
    "max": lambda e, bits, x, g: extreme_float(e, "max", *x),
    "min_nan": lambda e, bits, x, g: extreme_nan(e, "min", *x),
    "max_nan": lambda e, bits, x, g: extreme_nan(e, "max", *x),
    "div_approx": lambda e, bits, x, g: _approximate_quotient(e, [*x], *g),
    "canonical": lambda e, bits, x, g: canonical(e, *x),
    "last_nan": lambda e, bits, x, g: last_nan(e, *x),
    "compare": lambda e, bits, x, g: e.w.compare_floats(*g, *x),
    "convert": lambda e, bits, x, g: _convert(e, bits, *x, *g),
    "from_int": lambda e, bits, x, g: _from_integer(e, bits, *x, *g),
    "float_to_int": lambda e, bits, x, g: _to_integer(e, *x, *g),
    "round_to_integral": lambda e, bits, x, g: e.w.floats(f"intr.{_INTEGRAL[g[0]]}", *x),
    "widen": lambda e, bits, x, g: widened(e, *x, *g),
    "to_f32": lambda e, bits, x, g: _from_minifloat(e, *x, *g),
    "from_f32": lambda e, bits, x, g: _to_minifloat(e, *x, *g),
    "narrow_operation": lambda e, bits, x, g: _narrow_operation(e, g[0], g[1], x),
    "flush": _to_nearest(lambda e, x, g: flushed(e, *x), of_bits=32),
    "relu": _to_nearest(lambda e, x, g: _relu(e, *x), of_bits=32),
    "saturate": _to_nearest(lambda e, x, g: saturated_float(e, *x), of_bits=32),
    "narrow": _to_nearest(lambda e, x, g: narrowed(e, x[0], g[0]), of_bits=32, place=1),
    "flush_rounded": _to_nearest(lambda e, x, g: flushed_rounded(e, *x), of_bits=32, place=0),
    "flush_tiny": _to_nearest(lambda e, x, g: _flushed_product(e, x[0], [*x[1:]], g[0]), of_bits=32, place=1),
}
"""Operation -> its machine code, of the lanes, the bits of the result, operands and parameters."""
