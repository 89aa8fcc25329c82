"""Accesses by whole warps that touch the same bytes as an elected lane does.

Where all lanes of a warp access memory, each at an address of its own, the program order of the lane that
`elect.sync` elects orders its part of that access with what it does as the elected lane. If another lane is elected,
that program order does not help. So a second lane of the warp, the *witness*, stands for all that are not elected:

- the elected lane touches bytes, then the whole warp does: the witness must know of the first touch;
- the whole warp touches bytes, then the elected lane does: the elected lane must know that the witness has come so far.

Who knows of whom is told by the vector clocks. Of a copy that the elected lane issues, its wait counts as the touch.
Of an access by a whole warp only those bytes count that the elected lane's part touches: if the elected lane touches
bytes of another lane, the sanitizer reports that itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.ptx.model import Immediate
from cutepy.sim.sanitize.order.clocks import SEEN

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent
    from cutepy.sim.machine.lanes import Threads
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.clocks import Clocks


_MOST_THREADS = 256
"""Sets of threads whose lanes are kept."""


class _Key(NamedTuple):
    """Kind of touch: by an elected lane or a whole warp, from one instruction."""

    is_elected: bool
    number: int
    operation: str
    space: str

    def conflicts(self, other: _Key) -> bool:
        """Tell whether two touches of the same bytes need an order."""
        kinds = {self.operation, other.operation}
        return self.space == other.space and kinds not in ({"read"}, {"atomic"})


@dataclass
class _Touches:
    """Touches of one kind, by CTA and warp.

    Attributes
    ----------
    instruction : Instruction
    group : str or None
        Of copies, how their end is waited for.
    low, high : array of int, (CTA, warp)
        The first byte, and the one behind the last.
    counts : array of int, (CTA, warp)
        Count of the lane that the other side must know: the elected one, or the witness of a whole warp.
    is_done, is_pending : array of bool, (CTA, warp)
        Whether there is a touch that is over, and a copy that may not be.
    """

    instruction: Instruction
    group: str | None
    low: Array
    high: Array
    counts: Array
    is_done: Array
    is_pending: Array


class _Lanes(NamedTuple):
    """Warps that take part in an event, the positions of their elected lanes among its threads, and two lanes each."""

    warps: Array
    places: Array
    elected: Array
    witnesses: Array


class WholeWarps:
    """Compares what elected lanes touch with what their whole warps touch.

    Parameters
    ----------
    lane : int
        The lane that is elected, within its warp.
    assume : callable
        Called with the earlier and the later instruction of a pair whose order rests on that lane.
    """

    def __init__(self, lane: int, assume: Callable[[Instruction, Instruction], None]) -> None:
        self._lane, self._assume = lane, assume
        self._touches: dict[_Key, _Touches] = {}
        self._issued: dict[int, list[tuple[_Key, _Touches]]] = {}
        self._of_threads: dict[tuple[int, bool], tuple[Threads, _Lanes]] = {}  # by identity

    def restart(self) -> None:
        """Forget all: other CTAs are resident."""
        self._touches, self._issued = {}, {}

    def access(self, clocks: Clocks, access: Access, group: str | None, *, is_elected: bool) -> None:
        """Take an access by an elected lane or by whole warps, or by a copy of theirs, which waits for a `group`."""
        by = access if access.part_of is None else access.part_of
        lanes = self._lanes_of(clocks, by.threads, is_elected=is_elected)
        if not len(lanes.warps) or access.space == "local":
            return
        low, high = _bytes(access, lanes)
        key = _Key(is_elected, access.instruction.index, access.operation, access.space)
        slots = by.ctas.slots
        if access.part_of is None:
            against = [one for one in self._touches.items() if one[0].is_elected != is_elected]
        else:
            against = self._issued.get(id(by), [])
        known, at = None, (slots[:, None], lanes.warps)
        for other, before in against:
            if not other.conflicts(key):
                continue
            meets = before.is_done[at] & (low < before.high[at]) & (before.low[at] < high)
            if not meets.any():
                continue
            if known is None and access.part_of is None:
                known = self._known(clocks, slots, lanes, by_elected=is_elected)
            if known is None or (meets & (known < before.counts[at])).any():
                self._assume(before.instruction, access.instruction)
                return
        self._note(clocks, key, access, (lanes, low, high), group)

    def issue(self, clocks: Clocks, operation: AsyncOperation) -> None:
        """Note of a copy by elected lanes which touches by their warps they do not know of."""
        lanes, slots = self._lanes_of(clocks, operation.threads, is_elected=True), operation.ctas.slots
        if not len(lanes.warps):
            return
        found, at = [], (slots[:, None], lanes.warps)
        known = self._known(clocks, slots, lanes, by_elected=True)
        for key, before in self._touches.items():
            unknown = before.is_done[at] & (known < before.counts[at])
            if not key.is_elected and unknown.any():
                is_done = np.zeros_like(before.is_done)
                is_done[at] = unknown
                kept = before.low.copy(), before.high.copy(), before.counts.copy(), is_done
                found.append((key, _Touches(before.instruction, before.group, *kept, before.is_pending)))
        if found:
            self._issued[id(operation)] = found

    def complete(self, operation: AsyncOperation) -> None:
        """Forget what a copy was issued without knowing of."""
        self._issued.pop(id(operation), None)

    def wait(self, clocks: Clocks, event: BarrierEvent, group: str) -> None:
        """Let copies be over that lanes have waited for."""
        slots = event.ctas.slots
        is_last = any(o == Immediate(0) for o in event.instruction.operands) or "wait_all" in event.instruction.parts
        for key, touches in self._touches.items():
            if touches.group != group:
                continue
            lanes = self._lanes_here(clocks, event.threads)
            whole = _is_whole(clocks, event.threads, lanes.warps)
            at = (slots[:, None], lanes.warps)
            pending = touches.is_pending[at]
            if group == "mbarrier" and key.is_elected:  # the other lanes wait for the copy, too
                touches.is_pending[at] = pending & ~whole
                touches.is_done[at] &= ~whole
                pending = pending & ~whole
            elif not key.is_elected:
                pending = pending & whole
            counted = lanes.elected if key.is_elected else lanes.witnesses
            touches.counts[at] = np.where(pending, clocks.counts(slots, counted), touches.counts[at])
            touches.is_done[at] |= pending
            if is_last and group != "mbarrier":
                touches.is_pending[at] &= ~pending

    def _note(
        self, clocks: Clocks, key: _Key, access: Access, where: tuple[_Lanes, Array, Array], group: str | None
    ) -> None:
        (lanes, low, high), by = where, access if access.part_of is None else access.part_of
        shape, slots = (by.ctas.residents.count, clocks.warps), by.ctas.slots
        touches = self._touches.get(key)
        if touches is None:
            numbers = (np.zeros(shape, np.int64) for _ in range(3))
            flags = (np.zeros(shape, bool) for _ in range(2))
            touches = self._touches[key] = _Touches(access.instruction, group, *numbers, *flags)
        at = (slots[:, None], lanes.warps)
        counts = clocks.counts(slots, lanes.elected if key.is_elected else lanes.witnesses)
        stays = touches.is_done[at]
        if (stays & (touches.counts[at] != counts)).any():  # else they have not met since
            stays = stays & (self._known(clocks, slots, lanes, by_elected=not key.is_elected) < touches.counts[at])
        stays = stays | touches.is_pending[at]
        touches.low[at] = np.where(stays, np.minimum(low, touches.low[at]), low)
        touches.high[at] = np.where(stays, np.maximum(high, touches.high[at]), high)
        if access.part_of is None:
            touches.counts[at], touches.is_done[at] = counts, True
        else:
            touches.is_done[at] = stays & touches.is_done[at]
            touches.is_pending[at] |= low < high

    @staticmethod
    def _known(clocks: Clocks, slots: Array, lanes: _Lanes, *, by_elected: bool) -> Array:
        """Return the counts that elected lanes know of their witnesses, or these of them: (CTA, warp)."""
        knows, column = (lanes.elected, lanes.witnesses) if by_elected else (lanes.witnesses, lanes.elected)
        view, rows = clocks.view(slots, knows, SEEN + 1)
        ranks = (slots % clocks.cluster)[:, None]
        known: Array = view.known[SEEN][np.arange(len(slots))[:, None], rows[None, :], ranks, column[None, :]]
        return known

    def _lanes_here(self, clocks: Clocks, threads: Threads) -> _Lanes:
        """Return the warps whose elected lane is among some threads."""
        ids = threads.warps * WARP + self._lane
        places = np.minimum(np.searchsorted(threads.ids, ids), threads.count - 1)
        is_here = threads.ids[places] == ids
        warps, sizes = threads.warps[is_here], clocks.sizes
        return _Lanes(warps, places[is_here], ids[is_here], warps * WARP + sizes[warps] - 1)

    def _lanes_of(self, clocks: Clocks, threads: Threads, *, is_elected: bool) -> _Lanes:
        """Return the warps of which an elected lane does something, or all lanes do."""
        of, lanes = self._of_threads.get((id(threads), is_elected), (None, None))
        if lanes is None or of is not threads:
            lanes = self._lanes_here(clocks, threads)
            takes = _is_whole(clocks, threads, lanes.warps) != is_elected
            lanes = lanes if takes.all() else _Lanes(*(part[takes] for part in lanes))
            if len(self._of_threads) >= _MOST_THREADS:
                self._of_threads.clear()
            self._of_threads[id(threads), is_elected] = threads, lanes
        return lanes


def _is_whole(clocks: Clocks, threads: Threads, warps: Array) -> Array:
    """Tell of which warps all lanes are among some threads."""
    present: Array = threads.extents[np.searchsorted(threads.warps, warps), 1] == clocks.sizes[warps]
    return present


def _bytes(access: Access, lanes: _Lanes) -> tuple[Array, Array]:
    """Return the first byte that the elected lane of each warp touches, and the one behind the last: (CTA, warp).

    An empty range stands for a warp whose lane touches none.
    """
    addresses, size = access.addresses, access.size_bytes
    if access.part_of is None:
        rows, places = addresses.shape[1], lanes.places
        if rows not in (1, access.threads.count):  # rows of matrices
            each = rows // len(access.threads.warps)
            places = np.searchsorted(access.threads.warps, lanes.warps) * each + lanes.elected % WARP % each
        shape = access.ctas.count, access.threads.count if rows == 1 else rows
        low = np.broadcast_to(addresses, shape)[:, places].astype(np.int64)
        return low, low + size
    by, slots, ids = access.part_of, access.ctas.slots, access.threads.ids
    shape = by.ctas.count, by.threads.count
    low, high = np.full(shape, np.iinfo(np.int64).max), np.zeros(shape, np.int64)
    if access.issuers is not None:
        by_whom, flat = np.broadcast_to(access.issuers.ravel(), addresses.size), addresses.ravel().astype(np.int64)
        np.minimum.at(low.reshape(-1), by_whom, flat)
        np.maximum.at(high.reshape(-1), by_whom, flat + size)
    else:
        first = last = addresses if len(addresses) in (1, len(slots)) else addresses.reshape(1, -1)
        if first.shape[1] not in (1, len(ids)) or len(ids) == 1:  # runs of bytes by one thread
            first, last = first.min(axis=1, keepdims=True), first.max(axis=1, keepdims=True)
        rows, columns = np.isin(slots, by.ctas.slots), np.isin(ids, by.threads.ids)
        here, there = (len(slots), len(ids)), np.ix_(rows, columns)
        at = np.ix_(np.searchsorted(by.ctas.slots, slots[rows]), np.searchsorted(by.threads.ids, ids[columns]))
        low[at], high[at] = np.broadcast_to(first, here)[there], np.broadcast_to(last, here)[there].astype(int) + size
    return low[:, lanes.places], high[:, lanes.places]
