"""Which loads may give what tells how often a loop has gone around, by way of memory.

What a loop leaves in memory, or what comes after it, says how often it went around: a count, who stored last, how
often something was added. Any thread may load that once it has waited for those that go around. So a load is a constant
only if nothing is stored where it loads from, or if it is of the beginning: it does not come after the loop, and no
thread has waited by then for what others do later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutepy.sim.ptx.model import Immediate
from cutepy.sim.sanitize.order.failing import is_try
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.state_spaces import may_be_same, state_spaces

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.dependence import Dependence


class LeftInMemory:
    """Tells loads that are constants from others.

    Parameters
    ----------
    code : Dependence
    """

    def __init__(self, code: Dependence) -> None:
        self._code = code
        instructions = code.instructions.values()
        self._stored = {space for i in instructions for space in state_spaces(i).stores}
        self._waits = [i for i in instructions if _waits(i)]
        self._after: dict[int, set[int]] = {}

    def is_constant(self, load: Instruction, head: int) -> bool:
        """Tell whether what is loaded does not depend on how often a loop goes around.

        Parameters
        ----------
        load : Instruction
        head : int
            The block where rounds of the loop begin.
        """
        spaces, block = set(state_spaces(load).loads), self._code.block_of(load)
        comes_after = block == head or block in self._following(head)
        if spaces == {"local"}:
            return not comes_after
        if spaces != {"global"}:
            return False
        if "nc" in load.parts or not any(may_be_same(space, "global") for space in self._stored):
            return True
        return not comes_after and all(self._is_of_all(i, head) for i in self._waits if self._may_precede(i, load))

    def _is_of_all(self, wait: Instruction, head: int) -> bool:
        """Tell whether whoever goes around a loop has come to a barrier before, as often as all others."""
        block, loops = self._code.block_of(wait), self._code.loops
        assert not isinstance(loops, int)
        is_once = not any(block in loop.blocks for loop in loops)
        is_one = not is_try(wait) and all(isinstance(operand, Immediate) for operand in wait.operands)
        return is_one and is_once and wait.predicate is None and block != head and block in self._code.above[head]

    def _may_precede(self, one: Instruction, other: Instruction) -> bool:
        first, second = self._code.block_of(one), self._code.block_of(other)
        return second in self._following(first) or (first == second and one.index < other.index)

    def _following(self, block: int) -> set[int]:
        """Return the blocks that may run after one."""
        if block not in self._after:
            flow = self._code.flow
            sides = (flow.blocks_between(side, EXIT) for side in flow.blocks[block].successors)
            self._after[block] = set[int]().union(*sides)
        return self._after[block]


def _waits(i: Instruction) -> bool:
    """Tell whether a thread may wait at an instruction for what others do."""
    return is_try(i) or (i.parts[0] in ("bar", "barrier") and "arrive" not in i.parts)
