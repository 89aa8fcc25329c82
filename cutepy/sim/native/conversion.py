"""Conversion between integers and floats.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

from cutepy.sim.native.floating import write_halves
from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.table import need, of
from cutepy.sim.native.values import canonical, float_bits, flushed, flushed_rounded, narrowed, saturated_float, widened
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics.types import is_integer, kind_of, width
from cutepy.sim.translate.floating import rounding_of

_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


@of("cvt")
def _cvt(e: Lanes, i: Instruction) -> None:
    need(i.parts[1] != "pack" and not {"satfinite", "relu", "rna"} & set(i.parts))
    to, source = i.parts[-2], i.parts[-1]
    w = e.w
    if to in ("f16x2", "bf16x2"):
        need(source == "f32" and rounding_of(i) == "rn")
        high, low = (narrowed(e, e.read(s, "f4"), to.removesuffix("x2")) for s in i.operands[1:3])
        write_halves(e, i.operands[0], [low, high])
    elif is_integer(source):
        need(to in ("f32", "f64") and rounding_of(i) == "rn")
        value = w.from_integer(e.read_wide(i.operands[1], kind_of(source)), int(to[1:]), source[0] == "s")
        need("sat" not in i.parts or to == "f32")
        e.write(i.operands[0], saturated_float(e, value) if "sat" in i.parts else value)
    elif is_integer(to):
        rounding = next((p for p in i.parts if p in _INTEGRAL), "rzi")
        e.write(i.operands[0], _to_integer(e, i, to, source, rounding), to[0] == "s")
    else:
        _float_to_float(e, i, to, source)


def _source(e: Lanes, i: Instruction, kind: str) -> Value:
    """Return the source as float32 or float64."""
    if kind in ("f16", "bf16"):
        return widened(e, e.read(i.operands[1], "u2"), kind)
    need(kind in ("f32", "f64"))
    value = e.read(i.operands[1], kind_of(kind))
    return flushed(e, value) if "ftz" in i.parts and kind == "f32" else value


def _to_integer(e: Lanes, i: Instruction, to: str, source: str, rounding: str) -> Value:
    """Round to an integral value and clamp; NaNs become zero, or what `floats.float_to_int` says."""
    w, bits, signed = e.w, width(kind_of(to)), to[0] == "s"
    value = _source(e, i, source)
    value = value if source == "f64" else w.float_cast("fpext", value, 64)
    value = w.floats(f"intr.{_INTEGRAL[rounding]}", value)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    least, most = (w.constant(64, float_bits(float(x), 64)) for x in (low, high))
    inside = w.binary("and", w.compare_floats("ogt", value, least), w.compare_floats("olt", value, most))
    found = w.to_integer(w.select(inside, value, w.constant(64, 0)), bits, signed)
    found = w.select(w.compare_floats("ole", value, least), w.constant(bits, low), found)
    found = w.select(w.compare_floats("oge", value, most), w.constant(bits, high), found)
    lost = 1 << bits - 1 if source == "f64" or bits == 64 else 0
    return w.select(w.compare_floats("uno", value, value), w.constant(bits, lost), found)


def _float_to_float(e: Lanes, i: Instruction, to: str, source: str) -> None:
    w = e.w
    need(rounding_of(i) == "rn")
    value = _source(e, i, source)
    integral = next((p for p in i.parts if p in _INTEGRAL), None)
    if integral:
        value = w.floats(f"intr.{_INTEGRAL[integral]}", value)
    if "sat" in i.parts:
        need(value.bits == 32)
        value = saturated_float(e, value)
    if to in ("f16", "bf16"):
        need(source != "f64")
        e.write(i.operands[0], narrowed(e, value, to))
        return
    if to not in ("f32", "f64"):
        raise UnsupportedError
    bits, exact = int(to[1:]), value
    if bits != value.bits:
        value = w.float_cast("fpext" if bits > value.bits else "fptrunc", value, bits)
    # Only bf16, f64 and plain copies keep a NaN's bits.
    if bits == 32 and (source == "f16" or (source == "f32" and (integral or "ftz" in i.parts))):
        value = canonical(e, value)
    if "ftz" in i.parts and bits == 32:
        value = flushed_rounded(e, value, exact) if source == "f64" else flushed(e, value)
    e.write(i.operands[0], value)
