"""Loads, stores and atomics over the lanes of a warp, and the check that an instruction of any family is written.

References
----------
PTX ISA, "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

from cutepy.sim.native import warp  # noqa: F401  adds its own
from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.table import need, of, write_instruction as write_instruction
from cutepy.sim.ptx.instruction_set import reduction_of
from cutepy.sim.ptx.model import Address, Instruction, Symbol, Vector
from cutepy.sim.semantics.types import is_integer, kind_of, width
from cutepy.sim.translate.emitter import is_type
from cutepy.sim.translate.memory import space_of


def is_native(i: Instruction, kinds: list[str]) -> bool:
    """Return whether machine code can be written for an instruction."""
    try:
        write_instruction(Lanes(kinds, {}, True), i)
    except UnsupportedError:
        return False
    return True


@of("ld", "ldu")
def _ld(e: Lanes, i: Instruction) -> None:
    d, address = i.operands[:2]
    need(len(i.operands) == 2)
    kind = kind_of(i.parts[-1])
    items = d.items if isinstance(d, Vector) else (d,)
    if space_of(i) == "param":
        assert isinstance(address, Address)
        assert isinstance(address.base, Symbol)
        for n, item in enumerate(items):
            offset = address.offset + n * int(kind[1:])
            e.write(
                item, e.input(f"m.parameter({address.base.name!r}, {offset}, {kind!r})", width(kind)), kind[0] == "i"
            )
        return
    values = e.load(i, address, width(kind), len(items))
    for item, value in zip(items, values, strict=True):
        e.write(item, value, kind[0] == "i")


@of("st")
def _st(e: Lanes, i: Instruction) -> None:
    need(i.parts[1] not in ("async", "bulk") and space_of(i) != "const")
    need(len(i.operands) == 2)
    address, value = i.operands
    kind = kind_of(i.parts[-1])
    items = value.items if isinstance(value, Vector) else (value,)
    e.store(i, address, [e.read_wide(item, kind) for item in items])


@of("atom", "red")
def _atom(e: Lanes, i: Instruction) -> None:
    returns = i.traits.has_result
    operation = reduction_of(i.parts)
    name = next(p for p in reversed(i.parts) if is_type(p))
    need(is_integer(name) or (operation == "exch" and name in ("f32", "f64")))
    need("async" not in i.parts and len(i.operands) == 2 + returns + (operation == "cas"))
    address, *values = i.operands[returns:]
    need(not isinstance(values[0], Vector))
    kind = "u" + kind_of(name)[1:]
    need(kind in ("u4", "u8"))
    letter = "s" if name[0] == "s" else "u"
    old = e.combine(i, address, f"{operation}.{letter}", [e.read_wide(v, kind) for v in values])
    if returns:
        e.write(i.operands[0], old)


@of("membar", "fence")
def _fence(e: Lanes, i: Instruction) -> None:
    """Memory is sequentially consistent here, and nobody watches."""
