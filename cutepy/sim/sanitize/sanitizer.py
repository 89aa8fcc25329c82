"""The observer that follows a run: what synchronises goes to the clocks, what touches memory to the shadow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.machine.observer import Observer
from cutepy.sim.mechanisms.wgmma.operands import tile_units
from cutepy.sim.sanitize.clocks import View
from cutepy.sim.sanitize.hazards import Hazard, Side
from cutepy.sim.sanitize.registers import register_hazards
from cutepy.sim.sanitize.shadow import Conflict, Touch
from cutepy.sim.sanitize.sizes import granule_bytes
from cutepy.sim.sanitize.synchronisation import synchronise
from cutepy.sim.sanitize.wave import BULK, COPIES, MMAS, Issued, Wave
from cutepy.sim.translate import translate

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent, WgmmaEvent
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.launch import Launch


class Sanitizer(Observer):
    """Finds what nothing orders.

    Attributes
    ----------
    hazards : list of Hazard
        Each pair of instructions once.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Hazard] = {}
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._launch: Launch | None = None
        self._wave: Wave | None = None
        self._granule = UNIT_BYTES

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """What was found, each pair of instructions once."""
        return tuple(replace(hazard, count=self._counts[key]) for key, hazard in self._found.items())

    # Launches and waves.

    def on_launch(self, launch: Launch) -> None:
        """Begin with a launch."""
        self._launch, self._wave = launch, None
        for one in register_hazards(translate(launch.ptx, launch.kernel).flow):
            who = "a warpgroup"
            before, after = (Side(i.parts[0], who, i) for i in (one.before, one.after))
            self._tell(Hazard(one.kind, launch.name, "registers", before, after, _REGISTERS[one.kind]))
        self._granule = granule_bytes(launch.ptx, launch.kernel)

    def _of(self, residents: Residents) -> Wave:
        wave = self._wave
        if wave is None or wave.residents is not residents:
            assert self._launch is not None
            x, y, z = self._launch.block
            granules = -(-self._launch.slot_bytes // self._granule)
            wave = self._wave = Wave(residents, x * y * z, granules, self.conflict, self.unwritten)
        return wave

    # Accesses.

    def on_access(self, access: Access) -> None:
        """Check an access to shared memory."""
        if access.space != "shared" or access.instruction.parts[0] == "wgmma":
            return
        wave = self._of(access.ctas.residents)
        if access.part_of is not None:
            wave.issued[id(access.part_of)].accesses.append(access)
            if access.part_of.kind != "cp_async":
                return
        slots, threads = access.ctas.slots, access.threads.ids
        addresses = np.broadcast_to(access.addresses, (len(slots), access.addresses.shape[1]))
        if addresses.shape[1] not in (1, len(threads)):  # rows of matrices, which the first lanes of each warp address
            warps = np.unique(threads // WARP)
            rows = addresses.shape[1] // len(warps)
            threads = (warps[:, None] * WARP + np.arange(rows)).reshape(-1)
        assert self._launch is not None
        where, offsets = np.divmod(addresses, self._launch.slot_bytes)
        where, offsets = (np.broadcast_to(x, (len(slots), len(threads))) for x in (where, offsets))
        if (where == slots[:, None]).all():
            self._by_threads(wave, access, slots, slots, threads, offsets)
            return
        for rank in range(wave.clocks.cluster):
            mine = np.flatnonzero(slots % wave.clocks.cluster == rank)
            for target in np.unique(where[mine] % wave.clocks.cluster).tolist() if len(mine) else ():
                for row in mine.tolist():
                    here = where[row] % wave.clocks.cluster == target
                    if here.any():
                        at = where[row, here][:1]
                        self._by_threads(
                            wave, access, at, slots[row : row + 1], threads[here], offsets[row : row + 1, here]
                        )

    def _by_threads(
        self, wave: Wave, access: Access, slots: Array, agents: Array, threads: Array, offsets: Array
    ) -> None:
        clocks = wave.clocks
        copies = access.part_of is not None
        columns = threads
        if copies:
            columns = np.array([clocks.column((COPIES, t), t) for t in threads.tolist()])
            counts = wave.closed[COPIES][agents[:, None], threads] + 1
        else:
            counts = clocks.counts(agents, threads)
        view, row_of = clocks.view(agents, threads)
        places = self._places(offsets, access.size_bytes)
        i = access.instruction
        what = f"{i.parts[0]} {access.operation}" if not copies else "cp.async write"
        touch = Touch(
            what,
            i,
            access.operation != "read",
            False,
            access.operation == "atomic",
            slots,
            agents,
            threads,
            columns,
            counts,
            places,
            view,
            row_of,
        )
        wave.shadow.touch(touch)

    def _places(self, offsets: Array, size: int) -> Array:
        """Return the granules of ranges of bytes, (CTA or 1, lane, n)."""
        if len(offsets) > 1 and (offsets == offsets[:1]).all():
            offsets = offsets[:1]
        count = -(-size // self._granule)
        return (offsets // self._granule)[..., None] + np.arange(count)

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """Check what an MMA reads from shared memory."""
        wave = self._of(event.ctas.residents)
        clocks, shape, slots = wave.clocks, event.shape, event.ctas.slots
        groups = np.unique(event.threads.ids // WARPGROUP)
        words = [(event.b, shape.b_tile)]
        if event.a is not None:
            words.append((event.a, shape.a_tile))
        for n, group in enumerate(groups.tolist()):
            threads = np.arange(group * WARPGROUP, (group + 1) * WARPGROUP)
            column = np.array([clocks.column((MMAS, group))])
            counts = wave.closed[MMAS][slots, group * WARPGROUP][:, None] + 1
            view, _ = clocks.view(slots, threads)
            together = View(view.known.min(axis=2, keepdims=True), None)
            places = []
            for word, tile in words:
                of_group = np.broadcast_to(word, (word.shape[0], len(groups)))[:, n]
                of_group = of_group[:1] if (of_group == of_group[0]).all() else of_group
                units = [tile_units(int(w), tile).reshape(-1) for w in of_group]
                places.append(np.stack(units))
            rows = max(map(len, places))
            flat = np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in places], axis=1)
            flat = self._places(flat * UNIT_BYTES, UNIT_BYTES).reshape(rows, 1, -1)
            touch = Touch(
                "wgmma read",
                event.instruction,
                False,
                True,
                False,
                slots,
                slots,
                None,
                column,
                counts,
                flat,
                together,
                np.zeros((1, 1), int),
            )
            wave.shadow.touch(touch)
            wave.note(int(column[0]), event.instruction, slots, counts)

    def on_end(self, residents: Residents) -> None:
        """See whether something is in flight that uses shared memory."""
        wave = self._wave
        if wave is None or wave.residents is not residents:
            return
        for column, (i, groups) in wave.last.items():
            owner = int(wave.clocks.owner[column])
            done = wave.clocks.best(column)
            late = np.flatnonzero(groups > done)
            if not len(late):
                continue
            cta = residents.coordinate(int(late[0]))
            if i.parts[0] == "wgmma":
                what, missing = "wgmma read", "wgmma.commit_group and wgmma.wait_group 0 must come before the end"
                who = f"the async proxy for CTA {cta}"
            else:
                what = "bulk store read"
                missing = "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 must come before the end"
                who = f"warp {owner // WARP}, lane {owner % WARP} of CTA {cta}"
            assert self._launch is not None
            end = Side("exit", f"CTA {cta}")
            self._tell(
                Hazard("in-flight-at-exit", self._launch.name, "shared memory", Side(what, who, i), end, missing)
            )

    # Asynchronous operations.

    def on_issue(self, operation: AsyncOperation) -> None:
        """Note what the threads know that issue an operation."""
        wave = self._of(operation.ctas.residents)
        known = wave.clocks.joint(operation.ctas.slots, operation.threads.ids)
        wave.issued[id(operation)] = Issued(known)

    def on_complete(self, operation: AsyncOperation) -> None:
        """Check what an operation read and wrote."""
        wave = self._of(operation.ctas.residents)
        issued = wave.issued.pop(id(operation), None)
        if issued is None or operation.kind in ("wgmma", "cp_async"):
            return
        assert self._launch is not None
        by_place: dict[tuple[str, int, int], list[int]] = {}
        for access in issued.accesses:
            for position in access.addresses.reshape(-1).tolist():
                slot, offset = divmod(position, self._launch.slot_bytes)
                by_place.setdefault((access.operation, offset, access.size_bytes), []).append(slot)
        for (what, offset, size), found in by_place.items():
            self._by_proxy(wave, operation, issued, what, offset, size, np.unique(found))

    def _by_proxy(
        self, wave: Wave, operation: AsyncOperation, issued: Issued, what: str, offset: int, size: int, slots: Array
    ) -> None:
        clocks, issuers = wave.clocks, operation.ctas.slots
        # Of a multicast or a copy to a peer it is one CTA of the cluster that issued it.
        issuer_of = wave.issuers(issuers, slots)
        agents = slots
        if operation.kind in ("tma_store", "bulk_store"):
            thread = int(operation.threads.ids[0])
            column = clocks.column((BULK, "read", thread), thread)
            agents = issuers[issuer_of]
            counts = wave.closed[BULK][agents, thread][:, None] + 1
            wave.note(column, operation.instruction, agents, counts)
        else:
            place, of, phases = issued.signals[-1]
            for signal in issued.signals:
                if np.isin(slots, signal[1]).all():
                    place, of, phases = signal
            column = clocks.column(("mbarrier", place))
            at = np.minimum(np.searchsorted(of, slots), len(of) - 1)
            agents, counts = of[at], np.broadcast_to(phases, of.shape)[at][:, None] + 1
        view = View(issued.known[:, issuer_of][:, :, None], None)
        places = self._places(np.array([[offset]]), size)
        name = {"tma_load": "TMA", "tma_store": "TMA store", "st_async": "st.async"}.get(operation.kind, "bulk copy")
        touch = Touch(
            f"{name} {what}",
            operation.instruction,
            what != "read",
            True,
            what == "atomic",
            slots,
            agents,
            None,
            np.array([column]),
            counts,
            places,
            view,
            np.zeros((1, 1), int),
        )
        wave.shadow.touch(touch)

    # What synchronises.

    def on_barrier(self, event: BarrierEvent) -> None:
        """Pass on what threads publish, and let them know what others have."""
        synchronise(self._of(event.ctas.residents), event, self._unpublished)

    def on_begin(self, event: BarrierEvent) -> None:
        """Pass on what threads publish that come to a barrier, and the groups that they close."""
        self.on_barrier(event)

    def _unpublished(self, kind: str, barrier: str, before: Side, after: Side) -> None:
        assert self._launch is not None
        self._tell(Hazard(kind, self._launch.name, barrier, before, after, _INITS[kind]))

    # Reports.

    def conflict(self, found: Conflict) -> None:
        """Report two touches that nothing orders."""
        before, after = found.before, found.after
        if found.fenced_only:
            kind = "missing-proxy-fence"
            missing = (
                "the generic proxy wrote it, and the async proxy touches it: fence.proxy.async is missing between, "
                "after the write and before a barrier or the copy"
            )
        else:
            kind = "unordered-" + ("read" if not after.writes else "write")
            missing = _advice(before, after)
        old = self._side(before, found.before_lane, np.searchsorted(before.slots, after.slots[found.row]))
        self._add(kind, found.granule, old, self._side(after, found.after_lane, found.row), missing)

    def unwritten(self, touch: Touch, row: int, granule: int) -> None:
        """Report a touch that reads what nothing has written."""
        missing = "nothing has written these bytes since the CTA began: they hold what another CTA left there"
        self._add("uninitialised-read", granule, None, self._side(touch, 0, row), missing)

    def _side(self, touch: Touch, lane: int, row: int | np.intp) -> Side:
        assert self._wave is not None
        cta = self._wave.residents.coordinate(int(touch.agents[int(row)]))
        if touch.threads is None:
            return Side(touch.what, f"the async proxy for CTA {cta}", touch.instruction)
        thread = int(touch.threads[lane])
        return Side(touch.what, f"warp {thread // WARP}, lane {thread % WARP} of CTA {cta}", touch.instruction)

    def _add(self, kind: str, granule: int, before: Side | None, after: Side, missing: str) -> None:
        assert self._launch is not None
        at = granule * self._granule
        self._tell(Hazard(kind, self._launch.name, f"shared memory at {at:#x}", before, after, missing))

    def _tell(self, hazard: Hazard) -> None:
        self._counts[hazard.key] += 1
        self._found.setdefault(hazard.key, hazard)


_INITS = {
    "unpublished-mbarrier": "a barrier that both take part in must come after mbarrier.init and before it is used",
    "missing-init-fence": "fence.mbarrier_init.release.cluster must come after mbarrier.init, and then a barrier",
}
_REGISTERS = {
    "accumulator-in-flight": "the MMAs may not be complete: wgmma.wait_group must come before these registers are used",
    "fragment-in-flight": "the MMAs may still read it: wgmma.wait_group must come before these registers are written",
    "missing-wgmma-fence": "wgmma.fence must come after other accesses to these registers, and before the MMAs",
}


def _advice(before: Touch, after: Touch) -> str:
    """Say what is missing between two touches."""
    if before.asynchronous and before.writes:
        return "the copy may not be complete: wait for the mbarrier that counts its bytes, in the threads that go on"
    if before.instruction.parts[0] == "wgmma":
        return "the MMAs may still read it: wgmma.wait_group must come before whoever writes is told to"
    if before.asynchronous:
        return "the store may still read it: cp.async.bulk.wait_group.read must come before, then a barrier"
    if before.what.startswith("cp.async"):
        return "the copy may not be complete: cp.async.wait_group, then a barrier, must come before"
    return "a barrier that both take part in, or an arrival and a wait at an mbarrier, must come between"
