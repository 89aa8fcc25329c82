"""cvt between integers.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: cvt", "cvt.pack".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.semantics.builder import Builder, V
from cutepy.sim.semantics.registry import meaning
from cutepy.sim.semantics.types import is_integer, kind_of, width


def _clamped(b: Builder[V], a: V, signed: bool, bits: int, to_signed: bool) -> V:
    """Clamp a number, signed or not, to the numbers that a type of some bits holds; its width stays."""
    most = (1 << bits - to_signed) - 1
    if most < 1 << a.bits - signed:
        a = b.extreme("min", a, b.constant(a.bits, most), signed)
    if signed and (not to_signed or bits < a.bits):
        a = b.extreme("max", a, b.constant(a.bits, -(1 << bits - 1) if to_signed else 0), signed)
    return a


@meaning("cvt", accepts="sat", applies=lambda parts: is_integer(parts[-1]) and is_integer(parts[-2]))
def _cvt(b: Builder[V], i: Instruction) -> None:
    to, source = i.parts[-2:]
    bits, signed, to_signed = width(kind_of(to)), source[0] == "s", to[0] == "s"
    value = b.read_wide(i.operands[1], kind_of(source))
    if "sat" in i.parts:
        value = _clamped(b, value, signed, bits, to_signed)
    b.write(i.operands[0], b.resized(value, bits, signed), to_signed)


@meaning("cvt.pack", accepts="sat u2 s2 u4 s4")
def _cvt_pack(b: Builder[V], i: Instruction) -> None:
    d, first, second, *third = i.operands
    to, source = i.parts[3:5]
    bits = int(to[1:])
    if source != "s32" or (not third and bits < 16):
        raise b.unknown("these types or operands")

    def packed(operand: Operand) -> V:
        clamped = _clamped(b, b.read(operand, "i4"), True, bits, to[0] == "s")
        return b.and_(clamped, b.constant(32, (1 << bits) - 1))

    value = b.or_(packed(second), b.shl(packed(first), b.constant(32, bits)))
    if third:
        value = b.or_(value, b.shl(b.read(third[0], "u4"), b.constant(32, 2 * bits)))
    b.write(d, value)
