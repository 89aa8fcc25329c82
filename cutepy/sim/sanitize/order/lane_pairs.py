"""Pairs of lanes in order, of which one belongs to a warp whose other lanes took part and are not in that order.

`elect.sync` may elect any lane of a warp. A release, or a wait, by the elected lane orders what that lane did, or does,
with its whole warp: one word of each lane, say. For the other lanes of the warp it orders nothing. So a pair of lanes
that the vector clocks order, where they do not order the other lanes of the warp, may rest on which lane is elected.
An `Election` says of which pairs that is to be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutepy.sim.ptx.model import Instruction


class LanePairs(NamedTuple):
    """Pairs of lanes of an older and a newer access to the same bytes, which are in order.

    Attributes
    ----------
    before, after : Instruction
    old_ctas, new_ctas : array of int, (pair,)
        By index in the grid.
    old_threads, new_threads : array of int, (pair,)
        Of the CTA; of an operation that groups wait for, the issuing thread; -1 of others of the async proxy.
    counts : array of int, (pair,)
        Progress of the older thread's column.
    known : array of int, (pair,)
        Progress of that column that the newer thread knows; -1 if that is not known.
    """

    before: Instruction
    after: Instruction
    old_ctas: Array
    new_ctas: Array
    old_threads: Array
    new_threads: Array
    counts: Array
    known: Array

    @property
    def are_of_one_thread(self) -> Array:
        """Mark the pairs of which one thread did both accesses."""
        one: Array = (self.old_ctas == self.new_ctas) & (self.old_threads == self.new_threads) & (self.old_threads >= 0)
        return one


class Election(Protocol):
    """Election of a lane from one mask, whose lane is lane 0 here, or the first of the mask."""

    @property
    def lane(self) -> int:
        """The lane that is elected here, within its warp."""

    @property
    def is_told(self) -> bool:
        """True if the certificate names this election already."""

    def asks(self, pairs: LanePairs) -> tuple[Array, Array]:
        """Tell of which pairs the order rests on this election, unless it holds for other lanes of a warp, too.

        The first answer is about the warp of the older lane, the second about that of the newer one.
        """

    def rest(self, before: Instruction, after: Instruction, *, of_one_thread: bool) -> None:
        """Take the order of two accesses for granted."""


class OtherLanes(Protocol):
    """Says of pairs, by position, whether the order holds for other lanes of the older and of the newer lane's warp."""

    def are_known(self, pairs: Array) -> Array:
        """Return whether the newer lane knows all accesses that the older lane's warp made together with it."""

    def know(self, pairs: Array) -> Array:
        """Return whether all lanes of the newer lane's warp that take part with it know the older lane's access."""


def candidates(elections: Sequence[Election], old_threads: Array, new_threads: Array) -> Array:
    """Return the positions of pairs of which one thread is a lane that an election, not told so far, elects."""
    lanes = [one.lane for one in elections if not one.is_told]
    if not lanes:
        return np.zeros(0, np.intp)
    return np.flatnonzero(
        ((old_threads >= 0) & np.isin(old_threads % WARP, lanes))
        | ((new_threads >= 0) & np.isin(new_threads % WARP, lanes))
    )


def tell(elections: Sequence[Election], pairs: LanePairs, others: OtherLanes) -> None:
    """Pass the pairs whose order depends on an election to that election."""
    one = pairs.are_of_one_thread
    for election in elections:
        if election.is_told:
            continue
        of_old, of_new = (np.flatnonzero(asked) for asked in election.asks(pairs))
        rests = np.concatenate([of_old[~others.are_known(of_old)], of_new[~others.know(of_new)]])
        if len(rests):
            election.rest(pairs.before, pairs.after, of_one_thread=bool(one[rests[0]]))


def mates(threads: Array, positions: Array) -> tuple[Array, Array]:
    """Return the positions of the other lanes of some lanes' warps, in order, and which of these there are.

    Examples
    --------
    >>> at, there = mates(np.array([0, 1, 32, 33, 34]), np.array([0, 3]))
    >>> [at[n][there[n]].tolist() for n in range(2)]
    [[1], [2, 4]]
    """
    warps = threads[positions] // WARP
    start, end = (np.searchsorted(threads, bound)[:, None] for bound in (warps * WARP, (warps + 1) * WARP))
    at = start + np.arange(int((end - start).max(initial=0)))
    there = (at < end) & (at != positions[:, None])
    return np.minimum(at, len(threads) - 1), there
