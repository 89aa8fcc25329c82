"""The registers of a CTA: setmaxnreg gives warps more of them, as soon as others have given back enough.

Warps that end give nothing back (measured on an H200).

References
----------
PTX ISA, "Miscellaneous Instructions: setmaxnreg", "Performance-Tuning Directives: .maxnreg, .maxntid".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Place, SimulationError
from cutepy.sim.machine.activity import PickedLanes
from cutepy.sim.machine.events import RegistersBlocked, SetRegisters
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.ptx.model import Immediate

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.ptx.model import Function, Instruction

REGISTERS = 65536
"""Of an SM: CUDA C++ Programming Guide, "Compute Capabilities"."""
_UNIT, _MOST = 8, 256


def registers_at_launch(directives: Mapping[str, Sequence[int]], asked: Sequence[int] = ()) -> int | None:
    """Return how many registers a thread of a kernel has at first; None if the kernel doesn't limit its threads.

    A kernel that calls setmaxnreg is given all that its limits leave, but no more than the most that it asks for by
    setmaxnreg.inc: an assembler says 168 for 384 threads, 232 for 256 threads that ask for 232 (ptxas 13.0).

    Examples
    --------
    >>> registers_at_launch({"reqntid": (384, 1, 1)}), registers_at_launch({"maxntid": (512,), "minnctapersm": (1,)})
    (168, 128)
    >>> [registers_at_launch({"reqntid": (threads,)}, asked=(40, 232)) for threads in (256, 384)]
    [232, 168]
    >>> registers_at_launch({"maxnreg": (128,)}), registers_at_launch({})
    (128, None)
    """
    if "maxnreg" in directives:
        return min(directives["maxnreg"][0], max(asked, default=_MOST))
    extents = directives.get("reqntid", directives.get("maxntid"))
    if extents is None:
        return None
    warps = -(-prod(extents) // WARP) * directives.get("minnctapersm", (1,))[0]
    return min(max(asked, default=_MOST), REGISTERS // (warps * WARP) // _UNIT * _UNIT)


def held_at_launch(function: Function) -> int | None:
    """Return how many registers a thread of a kernel has at first; None if its setmaxnreg, if any, mean nothing."""
    uses = [i for i in function.instructions if i.traits.sets_registers]
    takes = (i for i in uses if i.traits.takes_registers)
    asked = [count.value for i in takes for count in i.operands if isinstance(count, Immediate)]
    return registers_at_launch(function.directives, asked) if uses else None


class RegisterPool(Mechanism):
    """Registers of each warp of each resident CTA, and those of the pool.

    Parameters
    ----------
    activity : Activity
    function : Function
        The kernel.
    """

    def __init__(self, activity: Activity, function: Function) -> None:
        self._activity = activity
        self._at_launch = held_at_launch(function)

    def start(self, residents: Residents, threads: int) -> None:
        """Give the warps of CTAs that become resident their initial registers."""
        shape = residents.count, -(-threads // WARP)
        self._held = np.full(shape, self._at_launch or 0, np.int64)
        self._free = np.zeros(residents.count, np.int64)

    def set(self, g: Group, i: Instruction, count: int, more: bool) -> bool:
        """Take registers from the pool, or give some back; tells whether there were enough."""
        slots, warps = g.ctas.slots, np.array(g.threads.warps)
        if self._at_launch is not None:
            held = self._held[slots[:, None], warps]
            change = (np.maximum(count - held, 0) if more else np.minimum(count - held, 0)) * WARP
            last = np.searchsorted(warps * WARP // WARPGROUP, g.threads.ids // WARPGROUP, "right") - 1
            enough = (np.cumsum(change, axis=1) <= self._free[slots][:, None])[:, last]
            if not enough.all():
                if self._activity.is_stuck and self._activity.observers:
                    picked = PickedLanes.of_group(g, ~enough)
                    self._activity.tell(RegistersBlocked(i, picked.ctas, picked.threads, count))
                g.ready = enough
                g.waits_for = lambda: self._awaited(slots, count)
                return False
            g.ready, g.waits_for = None, None
            self._check(g, i, count, more, held)
            self._free[slots] -= change.sum(axis=1)
            self._held[slots[:, None], warps] += change // WARP
            self._activity.changes += 1
        if self._activity.observers:
            self._activity.tell(SetRegisters(i, g.ctas, g.threads, count))
        return True

    def _check(self, g: Group, i: Instruction, count: int, more: bool, held: Array) -> None:
        """Report a warp that asks for fewer registers than it has, or gives back more: it keeps its number."""
        wrong = held > count if more else held < count
        if wrong.any():
            has = int(held[wrong][0])
            name, cannot, bound, other = (
                ("inc", "take any away", "more", "dec") if more else ("dec", "add any", "fewer", "inc")
            )
            said = f"the warp has {has} registers a thread, and setmaxnreg.{name} to {count} can't {cannot}"
            fix = Diagnosis("bound-of-setmaxnreg", held=has, bound=bound, other=other, at_launch=self._at_launch)
            error = SimulationError(said, i, g.describe(), fix=fix, kind="misused-setmaxnreg", at=Place("registers"))
            self._activity.fault(error, stops=False)

    def _awaited(self, slots: Array, count: int) -> AwaitedObject:
        slot = int(slots[0])
        counts = zip(*np.unique(self._held[slot], return_counts=True), strict=True)
        held = ", ".join(f"{warps} warps hold {registers} a thread" for registers, warps in counts)
        free = int(self._free[slot]) // WARP
        said = f"launched with {self._at_launch}, {held}, and {free * WARP} registers are free"
        asked = f"{count} registers a thread"
        return AwaitedObject(
            f"{asked}: {said}",
            Place("registers"),
            f"{asked} are asked for, and nobody gives back as many: {said}",
            Diagnosis("exhausted-registers"),
            "exhausted-registers",
            brings=lambda i: i.traits.sets_registers and not i.traits.takes_registers,
            is_of_a_cta=True,
        )
