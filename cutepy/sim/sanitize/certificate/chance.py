"""What operations that nothing orders leave in memory, and that depends on which of them came last, or first.

Reductions of one kind on integers commute: sums of one size, minima and maxima of one type, and, or, xor. So they leave
the same whatever their order, but for those of two kinds at one place, for increments that wrap, and for floats. Strong
stores may race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import type_bits
from cutepy.sim.translate.state_spaces import may_be_same, space_of

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction

RACING = frozenset(("volatile", "relaxed", "acquire", "mmio"))
"""Qualifiers of accesses that may meet others in no order; of stores also "release"."""
_FLOATS = frozenset("f16 f16x2 bf16 bf16x2 f32 f64".split())
_COMMUTE = frozenset("add and or xor min max".split())
_OTHERS = frozenset("inc dec exch cas".split())


def left_by_chance(instructions: Sequence[Instruction]) -> Iterator[tuple[Instruction, str, str]]:
    """Yield what may leave one thing or another, in which state space, and what it is called."""
    kinds: dict[str, set[str]] = {}
    for i in instructions:
        if _reduces(i):
            kinds.setdefault(space_of(i), set()).update(_kinds(i))
    for i in instructions:
        space = space_of(i)
        if i.parts[0] == "st" and "async" not in i.parts and {*i.parts} & (RACING | {"release"}):
            yield i, space, "strong stores"
        elif _reduces(i):
            every = set().union(*(some for where, some in kinds.items() if may_be_same(where, space)))
            if _depends(i) or len(every) > 1:
                yield i, space, "unordered atomics"


def _kinds(i: Instruction) -> Iterator[str]:
    """Yield what a reduction does: those commute that do the same. Of a tensor's elements its map says the type."""
    kind = i.parts[-1]
    for name in {*i.parts} & (_COMMUTE | _OTHERS):
        if name in ("and", "or", "xor") or "tensor" in i.parts:
            yield name
        else:
            yield f"{name}.{kind if name != 'add' else type_bits(kind)}"


def _reduces(i: Instruction) -> bool:
    return i.parts[0] in ("red", "atom") or i.parts[:2] == ("cp", "reduce")


def _depends(i: Instruction) -> bool:
    """Tell whether several of one reduction leave what depends on their order; a tensor's may be of floats."""
    parts = {*i.parts}
    return bool(parts & (_FLOATS | _OTHERS)) or ("tensor" in parts and "add" in parts)
