"""Whether a CTA's shared memory outlives what others do to it: premise 0, for the ends of CTAs.

What a thread does to its own CTA's memory comes before its own exit. What threads of other CTAs do there, and what
copies bring, must be known to some thread of the CTA before that exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.sanitize.certificate.actors import Actors
from cutepy.sim.sanitize.certificate.violations import Violation
from cutepy.sim.sanitize.hazards import Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutepy.sim.machine.events import Access, BarrierEvent
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.wave import Wave

_MISSING = (
    "nothing orders this before the end of the CTA whose shared memory it uses: some thread of that CTA must wait for "
    "it before it exits, for a copy at its mbarrier, for another CTA at barrier.cluster"
)


class Lifetimes:
    """What was done to the shared memory of each resident CTA by others, and by copies.

    Parameters
    ----------
    wave : Wave
    report : callable
        Called with each `Violation`.
    """

    def __init__(self, wave: Wave, report: Callable[[Violation], None]) -> None:
        self._wave, self._clocks, self._report = wave, wave.clocks, report
        self._foreign = np.zeros((wave.residents.count, wave.clocks.cluster, 0), np.int32)
        self._last: dict[tuple[int, int], tuple[Instruction, str]] = {}

    def see(self, event: BarrierEvent) -> None:
        """Note an operation on an mbarrier of another CTA, or an asynchronous one."""
        assert event.state is not None
        clocks, state = self._clocks, event.state
        self._widen()
        if event.part_of is not None:
            first = self._wave.first_phase(state.address)
            column = clocks.column(("mbarrier", state.address))
            targets, phases = state.slots, event.counted
            if event.slots is not None:
                targets = np.broadcast_to(event.slots, (len(event.ctas.slots), len(event.threads.ids)))[:, 0]
            assert phases is not None
            at = np.broadcast_to(phases, (*targets.shape, *phases.shape[1:])).reshape(len(targets), -1)[:, 0]
            ranks = targets % clocks.cluster
            self._foreign[targets, ranks, column] = np.maximum(
                self._foreign[targets, ranks, column], at + first[targets] + 1
            )
            self._last[-1, column] = event.part_of.instruction, f"{event.part_of.kind.replace('_', ' ')} write"
        elif event.slots is not None and clocks.cluster > 1:
            what = event.operation.replace("_", " ")
            self._remote(event.ctas.slots, event.threads.ids, event.slots, event.instruction, f"{what} at an mbarrier")

    def access(self, access: Access, slot_bytes: int) -> None:
        """Note an access to another CTA's shared memory."""
        if self._clocks.cluster > 1 and access.part_of is None:
            self._widen()
            owners = access.addresses // slot_bytes
            shape = len(access.ctas.slots), len(access.threads.ids)
            if owners.shape[1] in (1, shape[1]):
                i = access.instruction
                self._remote(access.ctas.slots, access.threads.ids, owners, i, f"{i.parts[0]} {access.operation}")

    def _remote(self, slots: Array, threads: Array, owners: Array, i: Instruction, what: str) -> None:
        shape = len(slots), len(threads)
        owners = np.broadcast_to(owners, shape)
        away = owners != slots[:, None]
        if not away.any():
            return
        clocks = self._clocks
        rows, lanes = np.nonzero(away)
        of, ranks = owners[rows, lanes], slots[rows] % clocks.cluster
        counts = clocks.counts(slots, threads)[rows, lanes]
        self._foreign[of, ranks, threads[lanes]] = np.maximum(self._foreign[of, ranks, threads[lanes]], counts)
        self._last.update(dict.fromkeys(zip(ranks.tolist(), threads[lanes].tolist(), strict=True), (i, what)))

    def _widen(self) -> None:
        more = self._clocks.capacity - self._foreign.shape[-1]
        if more:
            self._foreign = np.pad(self._foreign, [(0, 0), (0, 0), (0, more)])

    def end(self, ended: Array) -> None:
        """Check, of CTAs that have ended, that they knew of all."""
        if not self._foreign.any():
            return
        slots = np.arange(len(self._foreign))
        final = Actors.now(self._clocks, slots, np.arange(self._clocks.threads)).joint()
        self._widen()
        late = self._foreign > final[..., : self._foreign.shape[-1]]
        late &= np.isin(slots, ended)[:, None, None]
        if late.any():
            slot, rank, column = np.argwhere(late)[0].tolist()
            residents, owner = self._wave.residents, int(self._clocks.owner[column])
            i, what = self._last[(rank, column) if owner >= 0 else (-1, column)]
            by = residents.coordinate(slot - slot % self._clocks.cluster + rank)
            before = Side(what, f"the async proxy for CTA {by}", i, by)
            if owner >= 0:
                warp, lane = divmod(owner, WARP)
                before = Side(what, f"warp {warp}, lane {lane} of CTA {by}", i, by, warp, lane)
            where = residents.coordinate(slot)
            after = Side("exit", f"CTA {where}", None, where)
            self._report(Violation("barrier-outlived", "shared memory", before, after, _MISSING))
