"""Data and control dependence of a kernel's code: values depend on their sources, and on the branches above."""

from __future__ import annotations

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.order.uses import Uses
from cutepy.sim.translate.control_flow import ControlFlow
from cutepy.sim.translate.effects import written


class Dependence:
    """The values and branches of a kernel, and their sources.

    Parameters
    ----------
    flow : ControlFlow

    Attributes
    ----------
    flow : ControlFlow
    uses : Uses
    instructions : dict of int to Instruction
        All but branches, by index.
    over : list of list of int
        Of each block, those whose branch decides whether it runs.
    """

    def __init__(self, flow: ControlFlow) -> None:
        self.flow, self.uses = flow, Uses(flow)
        self.instructions = {i.index: i for block in flow.blocks for i in block.instructions}
        self._block_of = {i.index: n for n, block in enumerate(flow.blocks) for i in block.instructions}
        self._writers: dict[int, list[Instruction]] = {}
        for i in self.instructions.values():
            for register in written(i):
                self._writers.setdefault(register.index, []).append(i)
        self.over = self._over_all()

    def block_of(self, i: Instruction) -> int:
        """Return the block that an instruction is in."""
        return self._block_of[i.index]

    def makers(self, block: int, use: Instruction | None, register: int) -> list[Instruction]:
        """Return the possible sources of the value that an instruction, or a block's branch, reads in a register."""
        reads = self.uses.after
        return [
            i
            for i in self._writers.get(register, [])
            if any(u.block == block and u.instruction is use for u in reads(i, register))
        ]

    def _over_all(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.flow.blocks]
        for n, block in enumerate(self.flow.blocks):
            if block.condition is not None:
                sides = (self.flow.blocks_between(side, self.flow.join[n]) for side in block.successors)
                for inside in set().union(*sides):
                    found[inside].append(n)
        return found
