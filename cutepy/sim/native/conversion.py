"""Conversion between integers and floats.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

from cutepy.sim.native.floating import canonical
from cutepy.sim.native.lanes import Lanes, UnsupportedError, width
from cutepy.sim.native.table import need, of
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import kind_of
from cutepy.sim.translate.floating import rounding_of
from cutepy.sim.translate.integer import is_integer


def _rounded(e: Lanes, x: Value, name: str) -> Value:
    """Round float32 to f16 or bf16, to nearest; NaNs are canonical."""
    w = e.w
    if name == "f16":
        bits = w.float_cast("fptrunc", x, 16)
    else:
        even = w.binary("and", w.binary("lshr", x, w.constant(32, 16)), w.constant(32, 1))
        up = w.binary("add", w.binary("add", x, w.constant(32, 0x7FFF)), even)
        bits = w.resized(w.binary("lshr", up, w.constant(32, 16)), 16)
    return w.select(w.compare_floats("uno", x, x), w.constant(16, 0x7FFF), bits)


@of("cvt")
def _cvt(e: Lanes, i: Instruction) -> None:
    need(i.parts[1] != "pack" and not {"sat", "satfinite", "relu", "ftz", "rna"} & set(i.parts))
    to, source = i.parts[-2], i.parts[-1]
    w = e.w
    if to in ("f16x2", "bf16x2"):
        need(source == "f32" and rounding_of(i) == "rn")
        high, low = (_rounded(e, e.read(s, "f4"), to.removesuffix("x2")) for s in i.operands[1:3])
        high = w.binary("shl", w.resized(high, 32), w.constant(32, 16))
        e.write(i.operands[0], w.binary("or", w.resized(low, 32), high))
    elif is_integer(to) and is_integer(source):
        value = e.read_wide(i.operands[1], kind_of(source))
        bits = width(kind_of(to))
        value = w.resized(value, bits, source[0] == "s")
        e.write(i.operands[0], value, kind_of(to)[0] == "i")
    elif is_integer(source):
        need(to in ("f32", "f64") and rounding_of(i) == "rn")
        value = e.read_wide(i.operands[1], kind_of(source))
        e.write(i.operands[0], w.from_integer(value, int(to[1:]), source[0] == "s"))
    elif source == "f32" and to in ("f16", "bf16"):
        need(rounding_of(i) == "rn" and not {"rni", "rzi", "rmi", "rpi"} & set(i.parts))
        e.write(i.operands[0], _rounded(e, e.read(i.operands[1], "f4"), to))
    elif to == "f32" and source in ("f16", "bf16"):
        need(not {"rni", "rzi", "rmi", "rpi"} & set(i.parts))
        half = e.read(i.operands[1], "u2")
        if source == "f16":
            e.write(i.operands[0], canonical(e, w.float_cast("fpext", half, 32)))
        else:
            e.write(i.operands[0], w.binary("shl", w.resized(half, 32), w.constant(32, 16)))
    else:
        raise UnsupportedError
