"""Loads from tensor memory that end where their registers are first read, since no wait comes before.

References
----------
PTX ISA, "tcgen05.wait": a load is asynchronous, and its registers are there after ``tcgen05.wait::ld``. Many compiled
kernels do without: ptxas waits for the registers of a load where they are read.
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Function, Instruction
from cutepy.sim.sanitize.order.uses import once, uses_of, whole_flow
from cutepy.sim.translate.effects import read, written


def waits_for_loads(i: Instruction) -> bool:
    """Return whether an instruction waits for all loads from tensor memory."""
    return i.parts[:2] == ("tcgen05", "wait::ld")


@once
def ended_by_use(function: Function) -> dict[int, frozenset[int]]:
    """Return the loads that an instruction ends by reading a register of theirs, all by index."""
    found: dict[int, set[int]] = {}
    blocks = whole_flow(function).blocks
    for block in blocks:
        for place, i in enumerate(block.instructions):
            if i.traits.is_tensor_load and not _is_awaited(i, block.instructions[place + 1 :]):
                for register in {r.index for r in written(i)}:
                    for use in uses_of(function).after(i, register):
                        user = use.instruction or blocks[use.block].branch
                        assert user is not None
                        found.setdefault(user.index, set()).add(i.index)
    return {index: frozenset(loads) for index, loads in found.items()}


def _is_awaited(load: Instruction, rest: list[Instruction]) -> bool:
    """Return whether a wait follows in the same block before a register of the load is read."""
    registers = {r.index for r in written(load)}
    for i in rest:
        if waits_for_loads(i):
            return True
        if not registers.isdisjoint(r.index for r in read(i)):
            return False
    return False
