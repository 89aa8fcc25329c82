"""Whether a group that ran has got anywhere: it has not if it, and all that it could change, is as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.translate.control_flow import ControlFlow


class Look(NamedTuple):
    """A group as it was at some time.

    Attributes
    ----------
    changes : int
        What had changed by then, in all.
    block : int
    gathering : object
    values : list
        Of the registers that it will still read.
    """

    changes: int
    block: int
    gathering: object
    values: list[Any]

    def is_like(self, other: Look) -> bool:
        """Tell whether nothing that a program can see has changed between two looks at one group."""
        return self[:3] == other[:3] and all(map(_equal, self.values, other.values))


def look(g: Group, flow: ControlFlow, changes: int) -> Look:
    """Return a group as it is: arrays of registers are replaced, and never written to."""
    live = flow.live_in[g.block] if g.block >= 0 else ()
    return Look(changes, g.block, g.gathering, [g.registers[index] for index in live])


def _equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    if one is other:
        return True
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool(one.tobytes() == other.tobytes())
