"""Moves between registers, and addresses of state spaces.

References
----------
PTX ISA, "Data Movement and Conversion Instructions: mov", "cvta".
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction, Operand, Register, Sink, Vector
from cutepy.sim.semantics.builder import Builder, V, meaning
from cutepy.sim.semantics.types import canonical_bits, kind_of, width

SHARED_WINDOW, LOCAL_WINDOW = 1 << 56, 1 << 57
"""Generic addresses of the first byte of shared and of local memory."""
SPACES = "shared shared::cta shared::cluster global local const param param::entry param::func"


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@meaning("mov", refuses="v2 v4")
def _mov(b: Builder[V], i: Instruction) -> None:
    d, s = i.operands
    if i.parts[-1] == "b128":  # registers of 128 bits are pairs
        for to, source in zip(_items(d), _items(s), strict=True):
            b.write(to, b.read(source, "u8"))
        return
    kind = kind_of(i.parts[-1])
    if isinstance(s, Vector):
        bits = width(kind) // len(s.items)
        value = b.constant(width(kind), 0)
        for n, item in enumerate(s.items):
            part = b.resized(b.read(item, f"u{bits // 8}"), width(kind))
            value = b.or_(value, b.shl(part, b.constant(32, n * bits)))
        b.write(d, value)
    elif isinstance(d, Vector):
        bits = width(kind) // len(d.items)
        whole = b.read(s, kind)
        for n, item in enumerate(d.items):
            if not isinstance(item, Sink):
                b.write(item, b.part(whole, n * bits, bits))
    else:
        b.write(d, b.read(s, canonical_bits(s) if isinstance(s, Register) else kind))


@meaning("cvta", applies=lambda parts: not any(p.startswith("param") for p in parts))
def _cvta(b: Builder[V], i: Instruction) -> None:
    d, s = i.operands
    value = b.read(s, kind_of(i.parts[-1]))
    is_from_generic = i.parts[1] == "to"
    space = i.parts[2] if is_from_generic else i.parts[1]
    if space.startswith("shared") or space == "local":
        window = b.constant(value.bits, LOCAL_WINDOW if space == "local" else SHARED_WINDOW)
        value = b.sub(value, window) if is_from_generic else b.add(value, window)
    b.write(d, value)
