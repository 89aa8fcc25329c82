"""What is found of global memory, as it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutepy.sim.errors import Place
from cutepy.sim.sanitize.memory.discarded import Discarded
from cutepy.sim.sanitize.reports import global_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.ptx.model import Function
    from cutepy.sim.sanitize.hazards import NearMiss
    from cutepy.sim.sanitize.memory.global_touch import GlobalConflict, GlobalTouch
    from cutepy.sim.sanitize.order.flags import Flags
    from cutepy.sim.sanitize.order.launches import Launches


class GlobalFindings:
    """Tells conflicts in global memory, those of loads once it is known what comes of what they loaded.

    Parameters
    ----------
    tell : callable
        Tells one, as `Findings.tell` does.
    launches : Launches
    flags : Flags
    known : callable
        Returns the memory that kernels may touch.
    near : callable
        Returns the near misses of a conflict.

    Attributes
    ----------
    launches : Launches
    """

    def __init__(
        self,
        tell: Callable[..., None],
        launches: Launches,
        flags: Flags,
        known: Callable[[], GlobalMemory],
        near: Callable[[GlobalConflict], Sequence[NearMiss]],
    ) -> None:
        self._tell_one, self.launches, self._flags, self._known, self._near = tell, launches, flags, known, near
        self._launch: Launch | None = None
        self._discarded = Discarded()

    def begin(self, launch: Launch, function: Function, is_steered: bool) -> None:
        """Begin with a launch, which something that depends on the schedule may steer."""
        self._launch = launch
        self._discarded.begin(launch, function, is_steered)

    def note(self, access: Access) -> None:
        """See an access, which may store what was loaded."""
        self._discarded.note(access)

    def conflict(self, found: GlobalConflict) -> None:
        """Tell a conflict, or hold it."""
        if self._launch is None or not self._discarded.hold(found):
            self._tell(found)

    def tell_held(self, *, is_over: bool) -> None:
        """Tell those that were held, when CTAs have ended, or can't go on."""
        for found, comes_to_nothing in self._discarded.decided(is_over=is_over):
            self._tell(found, comes_to_nothing)

    def unwritten(self, touch: GlobalTouch, lane: int, address: int) -> None:
        """Tell that something is read which nothing wrote."""
        after = global_memory.side(touch, lane, self.launches)
        where = self.place(address)
        self._tell_one("uninitialised-read", where, None, after, global_memory.NEVER_WRITTEN)

    def unacquired(self, touch: GlobalTouch, lane: int, address: int) -> None:
        """Tell that a copy uses a tensor map of the host, or of a launch that is forgotten, without a fence."""
        after = global_memory.side(touch, lane, self.launches)
        self._tell_one("missing-tensormap-fence", self.place(address), None, after)

    def place(self, address: int) -> Place:
        """Say where an address is."""
        return global_memory.place(address, self._known(), self._launch)

    def _tell(self, found: GlobalConflict, comes_to_nothing: bool = False) -> None:
        before, after = global_memory.sides(found, self.launches)
        where = self.place(found.address)
        kind, diagnosis = global_memory.told(found, self.launches, self._flags)
        near = self._near(found)
        if comes_to_nothing:
            kind, diagnosis, near = "discarded-read", global_memory.COMES_TO_NOTHING, ()
        self._tell_one(kind, where, before, after, diagnosis, near_misses=near)
