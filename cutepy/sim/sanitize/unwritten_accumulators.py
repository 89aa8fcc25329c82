"""Accumulators of MMAs that nothing has written.

Sums begin with an MMA that does not accumulate, or with registers that something else has given a value. Where nothing
else in the kernel gives them one, the first MMA of a warpgroup must not accumulate. What rescales the sums, or moves
them away and back, gives them none: it is made of them.

References
----------
PTX ISA, "wgmma.mma_async": scale-d.
"""

from __future__ import annotations

from cutepy.sim.advice import Diagnosis
from cutepy.sim.ptx.model import Function
from cutepy.sim.sanitize.definitions import defining_instructions
from cutepy.sim.sanitize.order.uses import once
from cutepy.sim.translate.effects import accumulators, is_wgmma

NOT_BEGUN = Diagnosis("sums-not-begun")


@once
def begun_by_mmas(function: Function) -> set[int]:
    """Return the accumulators, by index, that only MMAs begin."""
    firsts: dict[int, set[int]] = {}
    groups: dict[int, int] = {}
    for i in filter(is_wgmma, function.instructions):
        held = {register.index for register in accumulators(i)}
        if held:
            groups[i.index] = min(held)
            firsts.setdefault(min(held), set()).update(held)
    others = {
        first
        for first, held in firsts.items()
        if any(groups.get(i.index) != first for i in defining_instructions(function, frozenset(held)))
    }
    return set[int]().union(*(held for first, held in firsts.items() if first not in others))
