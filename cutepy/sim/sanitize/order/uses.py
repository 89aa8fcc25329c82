"""Which instructions and branches may read what an instruction wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import ControlFlow


class Use(NamedTuple):
    """Where a value is read.

    Attributes
    ----------
    block : int
    instruction : Instruction or None
        None where the block's end branches by it.
    """

    block: int
    instruction: Instruction | None


class Uses:
    """The uses of values in a kernel.

    Parameters
    ----------
    flow : ControlFlow
    """

    def __init__(self, flow: ControlFlow) -> None:
        self._flow = flow
        self._at = {i.index: (b, n) for b, block in enumerate(flow.blocks) for n, i in enumerate(block.instructions)}
        self._reads = [[{r.index for r in read(i)} for i in block.instructions] for block in flow.blocks]
        self._writes = [
            [frozenset(r.index for r in written(i)) if i.predicate is None else frozenset() for i in block.instructions]
            for block in flow.blocks
        ]
        self._kept: dict[tuple[int, int], list[Use]] = {}

    def after(self, i: Instruction, register: int) -> list[Use]:
        """Return what may read the value that an instruction gives to a register."""
        block, place = self._at[i.index]
        return self._from(block, place + 1, register)

    def on_entry(self, block: int, register: int) -> list[Use]:
        """Return what may read the value that a register has where a block begins."""
        return self._from(block, 0, register)

    def _from(self, block: int, place: int, register: int) -> list[Use]:
        key = block << 20 | place, register
        if key not in self._kept:
            self._kept[key] = self._walk(block, place, register)
        return self._kept[key]

    def _walk(self, block: int, place: int, register: int) -> list[Use]:
        found: list[Use] = []
        seen: set[int] = set()
        waiting = [(block, place)]
        while waiting:
            number, start = waiting.pop()
            here = self._flow.blocks[number]
            for n in range(start, len(here.instructions)):
                if register in self._reads[number][n]:
                    found.append(Use(number, here.instructions[n]))
                if register in self._writes[number][n]:
                    break
            else:
                if here.condition is not None and here.condition[0].index == register:
                    found.append(Use(number, None))
                for following in here.successors:
                    if following != EXIT and following not in seen and register in self._flow.live_in[following]:
                        seen.add(following)
                        waiting.append((following, 0))
        return found
