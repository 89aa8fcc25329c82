"""Conversion between integers, floats and the packed narrow floats.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt", "cvt.pack".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.semantics.builder import Builder, V, meaning
from cutepy.sim.semantics.floating import narrow, rounding_of, widen_halves, write_halves
from cutepy.sim.semantics.types import is_integer, kind_of, width

_NARROW = {"e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 8, "e3m2x2": 8, "e2m1x2": 4}
"""Pair of narrow floats -> the bits from one to the other."""
_INTEGRAL = ("rni", "rzi", "rmi", "rpi")
_INFINITY = 0x7F800000
_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}


def _clamped(b: Builder[V], a: V, signed: bool, bits: int, to_signed: bool) -> V:
    """Clamp a number, signed or not, to the numbers that a type of some bits holds; its width stays."""
    most = (1 << bits - to_signed) - 1
    if most < 1 << a.bits - signed:
        a = b.extreme("min", a, b.constant(a.bits, most), signed)
    if signed and (not to_signed or bits < a.bits):
        a = b.extreme("max", a, b.constant(a.bits, -(1 << bits - 1) if to_signed else 0), signed)
    return a


@meaning("cvt")
def _cvt(b: Builder[V], i: Instruction) -> None:
    to, source = i.parts[-2:]
    d, s = i.operands[:2]
    if to in _NARROW:
        _to_narrow(b, i, to, source)
    elif source in _NARROW:
        _from_narrow(b, i, source)
    elif to == "ue8m0x2":
        _to_scales(b, i, source)
    elif source == "ue8m0x2":
        codes = _pair(b, b.read_wide(s, "u2"), 8)
        write_halves(b, d, [narrow(b, b.floats("to_f32", 32, x, given=("ue8m0",)), to) for x in codes])
    elif to in ("f16x2", "bf16x2"):
        high, low = (_halved(b, i, b.read_wide(x, "f4"), to) for x in i.operands[1:])
        b.write(d, b.joined(low, high))
    elif is_integer(to) and is_integer(source):
        bits, signed, to_signed = width(kind_of(to)), source[0] == "s", to[0] == "s"
        value = b.read_wide(s, kind_of(source))
        if "sat" in i.parts:
            value = _clamped(b, value, signed, bits, to_signed)
        b.write(d, b.resized(value, bits, signed), to_signed)
    elif is_integer(source):
        _from_integer(b, i, to, source)
    elif is_integer(to):
        rounding = next((p for p in i.parts if p in _INTEGRAL), "rzi")
        kind = kind_of(to)
        b.write(d, b.floats("float_to_int", width(kind), _float(b, i, source), given=(kind, rounding)), to[0] == "s")
    else:
        _float_to_float(b, i, to, source)


def _float(b: Builder[V], i: Instruction, kind: str) -> V:
    """Return the source as float32 or float64."""
    if kind in ("f32", "f64"):
        value = b.read_wide(i.operands[1], kind_of(kind))
        return b.floats("flush", 32, value) if "ftz" in i.parts and kind == "f32" else value
    return b.floats("widen", 32, b.read_wide(i.operands[1], "u2"), given=(kind,))


def _halved(b: Builder[V], i: Instruction, value: V, kind: str) -> V:
    """Return the bits of a float rounded to f16 or bf16, with relu and saturation to finite values."""
    name = kind.removesuffix("x2")
    if "relu" in i.parts:
        value = b.floats("relu", value.bits, value)
    if "satfinite" in i.parts:
        value = b.floats("clip", 32, value, given=(_LARGEST[name],))
    return narrow(b, value, name, rounding_of(i))


@meaning("cvt.rs", applies=lambda parts: "bf16x2" in parts)
def _stochastic(b: Builder[V], i: Instruction) -> None:
    """Round float32 to bf16 away from zero where random bits and the 16 that are cut off have a carry."""
    high, low, random = i.operands[1:]
    bits, codes = b.read(random, "u4"), []
    for source, position in ((low, 0), (high, 16)):
        value = b.read(source, "f4")
        value = b.floats("relu", 32, value) if "relu" in i.parts else value
        magnitude = b.and_(value, b.constant(32, 0x7FFFFFFF))
        rounded = b.add(magnitude, b.resized(b.part(bits, position, 16), 32))
        is_finite = b.compare("ult", magnitude, b.constant(32, _INFINITY))
        rounded = b.select(is_finite, rounded, magnitude)
        if "satfinite" in i.parts:
            rounded = b.extreme("min", rounded, b.constant(32, 0x7F7FFFFF), signed=False)
        sign = b.and_(value, b.constant(32, 0x80000000))
        signed = b.or_(rounded, sign)
        is_nan = b.compare("ugt", magnitude, b.constant(32, _INFINITY))
        codes.append(b.part(b.select(is_nan, b.constant(32, 0x7FFFFFFF), signed), 16, 16))
    b.write(i.operands[0], b.joined(*codes))


def _sources(b: Builder[V], i: Instruction, source: str) -> list[V]:
    """Return the float32 values of a pair: two operands of float32, the upper one first, or the halves of one."""
    if source == "f32":
        return [b.read(s, "f4") for s in reversed(i.operands[1:])]
    return widen_halves(b, i.operands[1], source)


def _pair(b: Builder[V], value: V, step: int) -> tuple[V, V]:
    """Return the 8 or 4 low bits of a value, and the next, each as 8 bits."""
    ones = b.constant(value.bits, (1 << step) - 1)
    high = b.lshr(value, b.constant(32, step))
    return b.resized(b.and_(value, ones), 8), b.resized(b.and_(high, ones), 8)


def _to_narrow(b: Builder[V], i: Instruction, to: str, source: str) -> None:
    values = _sources(b, i, source)
    if "relu" in i.parts:
        values = [b.floats("relu", 32, x) for x in values]
    low, high = (b.floats("from_f32", 8, x, given=(to.removesuffix("x2"),)) for x in values)
    if _NARROW[to] == 4:  # the upper bits are zeros
        low, high = b.and_(low, b.constant(8, 0x0F)), b.shl(high, b.constant(32, 4))
        b.write(i.operands[0], b.or_(low, high))
    else:
        b.write(i.operands[0], b.joined(low, high))


def _to_scales(b: Builder[V], i: Instruction, source: str) -> None:
    """Keep exponents: of infinities and NaNs all ones, which an overflow is too, but with .satfinite.

    Signs count for nothing, as in NVIDIA's cuda_fp8.hpp.
    """
    codes = []
    for value in _sources(b, i, source):
        size = b.and_(value, b.constant(32, 0x7FFFFFFF))
        code = b.lshr(size, b.constant(32, 23))
        is_finite = b.compare("ult", size, b.constant(32, 0x7F800000))
        if rounding_of(i) == "rp":
            is_between = b.invert(b.is_zero(b.and_(size, b.constant(32, 0x7FFFFF))))
            is_above_least = b.compare("ugt", size, b.constant(32, 0x00400000))  # 2**-127 is subnormal
            up = b.and_(b.and_(is_between, is_above_least), is_finite)
            code = b.add(code, b.resized(up, 32))
        if "satfinite" in i.parts:
            is_number = b.compare("ule", size, b.constant(32, 0x7F800000))
            code = b.select(is_number, b.extreme("min", code, b.constant(32, 0xFE), signed=False), code)
        codes.append(b.resized(code, 8))
    b.write(i.operands[0], b.joined(*codes))


def _from_narrow(b: Builder[V], i: Instruction, source: str) -> None:
    codes = _pair(b, b.read_wide(i.operands[1], kind_of(source)), _NARROW[source])
    halves = [b.floats("to_f32", 32, code, given=(source.removesuffix("x2"),)) for code in codes]
    if "relu" in i.parts:
        halves = [b.floats("relu", 32, x) for x in halves]
    write_halves(b, i.operands[0], [narrow(b, x, "f16") for x in halves])


def _from_integer(b: Builder[V], i: Instruction, to: str, source: str) -> None:
    rounding, kind = rounding_of(i), kind_of(source)
    is_half = to in ("f16", "bf16")
    bits, given = (32, ("odd", "rn")) if is_half else (width(kind_of(to)), (kind_of(to), rounding))
    value = b.floats("from_int", bits, b.read_wide(i.operands[1], kind), given=(*given, kind[0]))
    if "sat" in i.parts:
        value = b.floats("saturate", bits, value)
    b.write(i.operands[0], narrow(b, value, to, rounding) if is_half else value)


def _float_to_float(b: Builder[V], i: Instruction, to: str, source: str) -> None:
    value, rounding = _float(b, i, source), rounding_of(i)
    integral = next((p for p in i.parts if p in _INTEGRAL), None)
    if integral:
        value = b.floats("round_to_integral", value.bits, value, given=(integral,))
    if "sat" in i.parts:
        value = b.floats("saturate", value.bits, value)
    if to == "tf32":
        value = b.floats("relu", 32, value) if "relu" in i.parts else value
        rounding = "rna" if "rna" in i.parts else rounding
        value = b.floats("tf32", 32, value, given=(rounding,))
        is_finite = "satfinite" in i.parts
        b.write(i.operands[0], b.floats("finite_tf32", 32, value, given=(rounding,)) if is_finite else value)
    elif to in ("f16", "bf16"):
        code = _halved(b, i, value, to)
        b.write(i.operands[0], b.floats("keep_nan", 16, code, value, given=(to,)) if source == "f64" else code)
    else:
        b.write(i.operands[0], _resized(b, i, value, to, source, bool(integral)))


def _resized(b: Builder[V], i: Instruction, exact: V, to: str, source: str, integral: bool) -> V:
    """Convert to float32 or float64, with the NaNs and the flushing of the hardware."""
    rounding, flush, bits = rounding_of(i), "ftz" in i.parts and to == "f32", int(to[1:])
    # Only float64 is rounded here.
    value = b.floats("convert", bits, exact, given=(rounding if bits < exact.bits else "rn",))
    # Measured on an H200: only bf16 without .ftz, f64 and plain copies keep a NaN's bits.
    if bits == 32 and (source == "f16" or (source == "f32" and integral) or (source != "f64" and flush)):
        value = b.floats("canonical", 32, value)
    if flush and source == "f64":
        return b.floats("flush_rounded", 32, value, exact, given=(rounding,))
    return b.floats("flush", 32, value) if flush else value


@meaning("cvt.pack")
def _cvt_pack(b: Builder[V], i: Instruction) -> None:
    d, first, second, *third = i.operands
    to = i.parts[3]
    bits = int(to[1:])
    if not third and bits < 16:
        raise b.unknown("these types or operands")

    def packed(operand: Operand) -> V:
        clamped = _clamped(b, b.read_wide(operand, "i4"), True, bits, to[0] == "s")
        return b.and_(clamped, b.constant(32, (1 << bits) - 1))

    value = b.or_(packed(second), b.shl(packed(first), b.constant(32, bits)))
    if third:
        value = b.or_(value, b.shl(b.read_wide(third[0], "u4"), b.constant(32, 2 * bits)))
    b.write(d, value)
