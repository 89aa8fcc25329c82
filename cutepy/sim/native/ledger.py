"""Costs of each node in numpy, spent and expected, against which compiling is weighed.

The time to merge groups of lanes is charged to the node where the lanes go on, since a region that contains the merge
saves that time. The expected time of a node has three parts. The remaining waves of CTAs are expected to take as long
as the earlier ones. The current wave is expected to take half of its time so far once more, and further launches as
much as there has been. So a compilation at the wrong moment costs no more than a part of the time that numpy has taken
(the ski rental problem; Karlin et al., "Competitive snoopy caching").
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.native.regions import Region

WORTH = 1.25
"""Factor by which the expected saving must exceed the cost of compiling."""

_CALL = 30e-6
"""Seconds, about, that machine code takes before and after it does anything."""


class Ledger:
    """Seconds of numpy, by node.

    Attributes
    ----------
    spent, visits : list
        By node, since it was machine code last: seconds, and how often it was run.
    total : float
        Seconds of all nodes, ever.
    tried : float
        Seconds, about, that it took to write regions that have not been compiled: further ones must be worth that too.
    """

    def __init__(self, count: int) -> None:
        self.spent, self.visits = [0.0] * count, [0] * count
        self.total = self.tried = 0.0
        self._since = self._paused = 0.0
        self._interruptions = 0
        self._earlier, self._paid = [0.0] * count, [0.0] * count
        self._launch: weakref.ref[Launch] | None = None

    def of_nodes(self, count: int, main_of: Callable[[int], int]) -> Ledger:
        """Return a ledger of nodes, each of which takes over the seconds charged to a block here."""
        found = Ledger(count)
        found.total, found._since, found._launch = self.total, self._since, self._launch
        for block, visits in enumerate(self.visits):
            main = main_of(block)
            found.spent[main], found._earlier[main] = self.spent[block], self._earlier[block]
            found.visits[main] = visits
        return found

    def begin_wave(self, m: Engine) -> None:
        """Begin a wave of CTAs, of another launch it may be."""
        self.interrupt()
        if self._launch is None or self._launch() is not m.launch:
            self._launch = weakref.ref(m.launch)
            self._earlier, self._paid = list(self.spent), [0.0] * len(self.spent)

    def begin(self, m: Engine) -> float:
        """Return since when a node is charged that numpy runs next: since the one before ended, if that is known."""
        if m.interruptions != self._interruptions:
            self._interruptions = m.interruptions
            self.interrupt()
        start = (self._since or thread_time()) - self._paused
        self._paused = 0.0
        return start

    def pause(self) -> None:
        """Charge the time from now on to no node, until one begins."""
        if self._since:
            self._paused += thread_time() - self._since
            self._since = 0.0

    def charge(self, number: int, start: float) -> None:
        """Charge the time since a start to a node."""
        now = thread_time()
        self.spent[number] += now - start
        self.visits[number] += 1
        self.total += now - start
        self._since = now

    def interrupt(self) -> None:
        """Charge to no node the time since one ended, and the time until one begins."""
        self._since = self._paused = 0.0

    def expected(self, region: Region, m: Engine) -> float:
        """Return the time that a region may be expected to save from now on."""
        spent = sum(map(self.spent.__getitem__, region.numbers)) - _CALL * self.visits[region.entry]
        earlier = sum(map(self._earlier.__getitem__, region.numbers))
        waves = max(1.0, m.begun - max(map(self._paid.__getitem__, region.numbers)))
        return max(0.0, spent - earlier) * m.to_come / waves + earlier

    def pay(self, region: Region, m: Engine) -> None:
        """Forget the time of a region, which is machine code from now on."""
        for number in region.numbers:
            self.spent[number] = self._earlier[number] = 0.0
            self._paid[number] = m.begun
            self.visits[number] = 0
