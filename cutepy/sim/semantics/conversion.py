"""Conversion between integers, floats and the packed narrow floats.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt", "cvt.pack".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.semantics.builder import Builder, V
from cutepy.sim.semantics.floating import narrow, rounding_of, widen_halves, write_halves
from cutepy.sim.semantics.registry import meaning
from cutepy.sim.semantics.types import is_integer, kind_of, width

_FLOAT8 = ("e4m3x2", "e5m2x2")
_INTEGRAL = ("rni", "rzi", "rmi", "rpi")
_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}


def _clamped(b: Builder[V], a: V, signed: bool, bits: int, to_signed: bool) -> V:
    """Clamp a number, signed or not, to the numbers that a type of some bits holds; its width stays."""
    most = (1 << bits - to_signed) - 1
    if most < 1 << a.bits - signed:
        a = b.extreme("min", a, b.constant(a.bits, most), signed)
    if signed and (not to_signed or bits < a.bits):
        a = b.extreme("max", a, b.constant(a.bits, -(1 << bits - 1) if to_signed else 0), signed)
    return a


@meaning("cvt", accepts="rn rz rm rp rna rni rzi rmi rpi ftz sat satfinite relu")
def _cvt(b: Builder[V], i: Instruction) -> None:
    to, source = i.parts[-2:]
    d, s = i.operands[:2]
    if to in _FLOAT8:
        _to_float8(b, i, to, source)
    elif source in _FLOAT8:
        _from_float8(b, i, to, source)
    elif to in ("f16x2", "bf16x2"):
        high, low = (_halved(b, i, b.read_wide(x, "f4"), to) for x in i.operands[1:3])
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


def _to_float8(b: Builder[V], i: Instruction, to: str, source: str) -> None:
    if source == "f32":
        high, low = (b.read(s, "f4") for s in i.operands[1:])
    else:
        low, high = widen_halves(b, i.operands[1], source)
    if "satfinite" not in i.parts or rounding_of(i) != "rn":
        raise b.unknown("8-bit floats are rounded to nearest, with satfinite")
    if "relu" in i.parts:
        low, high = (b.floats("relu", 32, x) for x in (low, high))
    low, high = (b.floats("from_f32", 8, x, given=(to.removesuffix("x2"),)) for x in (low, high))
    b.write(i.operands[0], b.joined(low, high))


def _from_float8(b: Builder[V], i: Instruction, to: str, source: str) -> None:
    if to != "f16x2":
        raise b.unknown("8-bit floats become f16x2 only")
    bits = b.read_wide(i.operands[1], "u2")
    codes = b.part(bits, 0, 8), b.part(bits, 8, 8)
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
        value = b.floats("tf32", 32, value, given=("rna" if "rna" in i.parts else rounding,))
        b.write(i.operands[0], b.floats("finite_tf32", 32, value) if "satfinite" in i.parts else value)
    elif to in ("f16", "bf16"):
        code = _halved(b, i, value, to)
        b.write(i.operands[0], b.floats("keep_nan", 16, code, value, given=(to,)) if source == "f64" else code)
    elif to in ("f32", "f64"):
        b.write(i.operands[0], _resized(b, i, value, to, source, bool(integral)))
    else:
        raise b.unknown()


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


@meaning("cvt.pack", accepts="sat u2 s2 u4 s4")
def _cvt_pack(b: Builder[V], i: Instruction) -> None:
    d, first, second, *third = i.operands
    to, source = i.parts[3:5]
    bits = int(to[1:])
    if source != "s32" or (not third and bits < 16):
        raise b.unknown("these types or operands")

    def packed(operand: Operand) -> V:
        clamped = _clamped(b, b.read_wide(operand, "i4"), True, bits, to[0] == "s")
        return b.and_(clamped, b.constant(32, (1 << bits) - 1))

    value = b.or_(packed(second), b.shl(packed(first), b.constant(32, bits)))
    if third:
        value = b.or_(value, b.shl(b.read_wide(third[0], "u4"), b.constant(32, 2 * bits)))
    b.write(d, value)
