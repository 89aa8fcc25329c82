"""The observer that follows a run: what synchronises goes to the clocks, what touches memory to the shadow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm90.arch import DTYPE_BITS, UNIT_BYTES
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.machine.observer import Observer
from cutepy.sim.mechanisms.wgmma.operands import tile_units
from cutepy.sim.sanitize.clocks import DONE, SEEN, Clocks, Meeting, View
from cutepy.sim.sanitize.hazards import Hazard, Side
from cutepy.sim.sanitize.registers import register_hazards
from cutepy.sim.sanitize.shadow import Conflict, Shadow, Touch
from cutepy.sim.sanitize.sizes import granule_bytes
from cutepy.sim.translate import translate
from cutepy.sim.translate.wgmma_shapes import M

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, BarrierEvent, WgmmaEvent
    from cutepy.sim.machine.lanes import Residents
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction

_INITS = "inits"
_BULK, _COPIES, _MMAS = "bulk_group", "cp.async group", "wgmma group"


@dataclass
class _Issued:
    """An asynchronous operation, until it completes.

    Attributes
    ----------
    known : array of int, (plane, CTA, rank, column)
        What its threads knew.
    accesses : list of Access
    signals : list of (offset, slots, phases)
        The mbarriers that count its bytes.
    """

    known: Array
    accesses: list[Access] = field(default_factory=list)
    signals: list[tuple[int, Array, Array]] = field(default_factory=list)


@dataclass
class _Init:
    """The making of an mbarrier, by CTA.

    Attributes
    ----------
    instruction : Instruction
    threads, agents, counts : array of int
        Who made it, and how far they had come; a count of 0 where it is not made.
    fenced : array of int
        How often its thread had executed a fence that shows it to copies and to other CTAs; 0 before that.
    """

    instruction: Instruction
    threads: Array
    agents: Array
    counts: Array
    fenced: Array


class _Wave:
    """What is known of the CTAs that are resident together."""

    def __init__(self, residents: Residents, launch: Launch, threads: int, granule: int, sanitizer: Sanitizer) -> None:
        self.residents = residents
        slots = residents.count
        self.clocks = Clocks(slots, threads, residents.cluster_size)
        granules = -(-launch.slot_bytes // granule)
        self.shadow = Shadow(self.clocks, slots, granules, sanitizer.conflict, sanitizer.unwritten)
        self.meetings: dict[object, Meeting] = {}
        self.closed: dict[str, Array] = {
            kind: np.zeros((slots, threads), np.int64) for kind in (_BULK, _COPIES, _MMAS)
        }
        self.issued: dict[int, _Issued] = {}
        # By column of a thread's bulk groups, or of MMAs: what was issued last, in which group of each CTA.
        self.last: dict[int, tuple[Instruction, Array]] = {}
        self.inits: dict[int, _Init] = {}

    def note(self, column: int, i: Instruction, slots: Array, counts: Array) -> None:
        """Note in which groups something was issued."""
        _, groups = self.last.get(column, (i, np.zeros(self.residents.count, np.int64)))
        groups[slots] = counts.reshape(len(slots), -1)[:, 0]
        self.last[column] = i, groups

    def meeting(self, what: object) -> Meeting:
        if what not in self.meetings:
            self.meetings[what] = Meeting(self.residents.count)
        return self.meetings[what]


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
        self._wave: _Wave | None = None
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
            sides = (Side(i.parts[0] if i.parts[0] != "wgmma" else "wgmma", who, i) for i in (one.before, one.after))
            self._tell(Hazard(one.kind, launch.name, "registers", *sides, _REGISTERS[one.kind]))
        self._granule = granule_bytes(launch.ptx, launch.kernel)

    def _of(self, residents: Residents) -> _Wave:
        wave = self._wave
        if wave is None or wave.residents is not residents:
            assert self._launch is not None
            x, y, z = self._launch.block
            wave = self._wave = _Wave(residents, self._launch, x * y * z, self._granule, self)
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
                        self._by_threads(wave, access, at, slots[row : row + 1], threads[here], offsets[row : row + 1, here])

    def _by_threads(
        self, wave: _Wave, access: Access, slots: Array, agents: Array, threads: Array, offsets: Array
    ) -> None:
        clocks = wave.clocks
        copies = access.part_of is not None
        columns = threads
        if copies:
            columns = np.array([clocks.column((_COPIES, t), t) for t in threads.tolist()])
            counts = wave.closed[_COPIES][agents[:, None], threads] + 1
        else:
            counts = clocks.counts(agents, threads)
        view, row_of = clocks.view(agents, threads)
        places = self._places(offsets, access.size_bytes)
        i = access.instruction
        what = f"{i.parts[0]} {access.operation}" if not copies else "cp.async write"
        touch = Touch(what, i, access.operation != "read", False, access.operation == "atomic", slots, agents, threads,
                      columns, counts, places, view, row_of)
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
        words = [(event.b, shape.b_major, shape.n, shape.b)]
        if event.a is not None:
            words.append((event.a, shape.a_major, M, shape.a))
        for n, group in enumerate(groups.tolist()):
            threads = np.arange(group * WARPGROUP, (group + 1) * WARPGROUP)
            column = np.array([clocks.column((_MMAS, group))])
            counts = wave.closed[_MMAS][slots, group * WARPGROUP][:, None] + 1
            view, _ = clocks.view(slots, threads)
            together = View(view.known.min(axis=2, keepdims=True), None)
            places = []
            for word, major, extent, kind in words:
                of_group = np.broadcast_to(word, (word.shape[0], len(groups)))[:, n]
                of_group = of_group[:1] if (of_group == of_group[0]).all() else of_group
                units = [tile_units(int(w), major, extent, shape.k, DTYPE_BITS[kind]).reshape(-1) for w in of_group]
                places.append(np.stack(units))
            rows = max(map(len, places))
            flat = np.concatenate([np.broadcast_to(p, (rows, p.shape[1])) for p in places], axis=1)
            flat = self._places(flat * UNIT_BYTES, UNIT_BYTES).reshape(rows, 1, -1)
            touch = Touch("wgmma read", event.instruction, False, True, False, slots, slots, None, column, counts, flat,
                          together, np.zeros((1, 1), int))
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
            end = Side("the end of the CTA", f"CTA {cta}")
            self._tell(Hazard("in-flight-at-exit", self._launch.name, "shared memory", Side(what, who, i), end, missing))

    # Asynchronous operations.

    def on_issue(self, operation: AsyncOperation) -> None:
        """Note what the threads know that issue an operation."""
        wave = self._of(operation.ctas.residents)
        known = wave.clocks.joint(operation.ctas.slots, operation.threads.ids)
        wave.issued[id(operation)] = _Issued(known)

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
        self, wave: _Wave, operation: AsyncOperation, issued: _Issued, what: str, offset: int, size: int, slots: Array
    ) -> None:
        clocks, issuers = wave.clocks, operation.ctas.slots
        # Of a multicast or a copy to a peer it is one CTA of the cluster that issued it.
        issuer_of = np.array([self._issuer(clocks.cluster, issuers, int(s)) for s in slots])
        agents = slots
        if operation.kind in ("tma_store", "bulk_store"):
            thread = int(operation.threads.ids[0])
            column = clocks.column((_BULK, "read", thread), thread)
            agents = issuers[issuer_of]
            counts = wave.closed[_BULK][agents, thread][:, None] + 1
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
        touch = Touch(f"{name} {what}", operation.instruction, what != "read", True, what == "atomic", slots, agents,
                      None, np.array([column]), counts, places, view, np.zeros((1, 1), int))
        wave.shadow.touch(touch)

    @staticmethod
    def _issuer(cluster: int, issuers: Array, slot: int) -> int:
        """Return the position of the CTA that issued what touches a CTA's memory: itself, or one of its cluster."""
        own = np.flatnonzero(issuers == slot)
        if len(own):
            return int(own[0])
        return int(np.flatnonzero(issuers // cluster == slot // cluster)[0])

    # What synchronises.

    def on_barrier(self, event: BarrierEvent) -> None:
        """Pass on what threads publish, and let them know what others have."""
        wave = self._of(event.ctas.residents)
        kind = event.barrier.partition(" ")[0]
        slots, threads = event.ctas.slots, event.threads.ids
        if event.operation == "fence":
            self._fence(wave, event)
        elif event.operation == "commit":
            wave.closed[event.barrier][np.ix_(slots, threads)] += 1
        elif kind == "mbarrier":
            self._mbarrier(wave, event)
        elif event.barrier == "bar.warp":
            wave.clocks.synchronise(slots, threads)
        elif kind == "bar":
            assert event.counted is not None
            meeting = wave.meeting(event.barrier)
            generation = np.broadcast_to(event.counted, (len(slots), len(threads)))[:, 0]
            if event.operation == "sync":
                what = meeting.published(slots, generation)
                assert what is not None
                wave.clocks.learn(slots, threads, what, together=True)
            else:
                meeting.add(slots, generation, wave.clocks.publish(slots, threads))
        elif event.operation.startswith("cluster"):
            self._cluster(wave, event)
        elif event.operation == "wait":
            self._group(wave, event)

    def _fence(self, wave: _Wave, event: BarrierEvent) -> None:
        parts = event.instruction.parts
        slots, threads = event.ctas.slots, event.threads.ids
        if parts[0] == "fence" and "proxy" in parts:
            wave.clocks.fence(slots, threads)
        if parts[0] == "fence" and ("proxy" in parts or "mbarrier_init" in parts):
            for made in wave.inits.values():
                here = np.isin(made.agents, slots) & np.isin(made.threads, threads) & (made.counts > 0)
                here &= made.fenced == 0
                made.fenced[here] = self._shown(wave, made, here)

    @staticmethod
    def _shown(wave: _Wave, made: _Init, here: Array) -> Array:
        """Count a fence after the making of an mbarrier in a column of its own, which relaxed arrivals publish too."""
        clocks = wave.clocks
        result = np.zeros(here.sum(), np.int64)
        for thread in np.unique(made.threads[here]).tolist():
            column = np.array([clocks.column((_INITS, thread), thread)])
            of = made.threads[here] == thread
            agents = made.agents[here][of]
            counts = clocks.counts(agents, column) + 1
            for plane in (DONE, SEEN):
                clocks.set_own(plane, agents, column, counts)
            result[of] = counts[:, 0]
        return result

    def _cluster(self, wave: _Wave, event: BarrierEvent) -> None:
        assert event.counted is not None
        slots, threads, size = event.ctas.slots, event.threads.ids, wave.clocks.cluster
        meeting = wave.meeting("cluster")
        generation = np.broadcast_to(event.counted, (len(slots), len(threads)))[:, 0]
        if event.operation == "cluster_arrive":
            if "relaxed" in event.instruction.parts:
                what = wave.clocks.joint(slots, threads)
                what[..., ~wave.clocks.is_channel(_INITS, what.shape[-1])] = 0
            else:
                what = wave.clocks.publish(slots, threads)
            for rank in range(size):
                here = slots % size == rank
                if here.any():
                    meeting.add(slots[here] // size * size, generation[here], what[:, here])
            return
        found = meeting.published(slots // size * size, generation)
        if found is not None:
            wave.clocks.learn(slots, threads, found)

    def _mbarrier(self, wave: _Wave, event: BarrierEvent) -> None:
        state, clocks = event.state, wave.clocks
        assert state is not None
        slots, threads = event.ctas.slots, event.threads.ids
        meeting = wave.meeting(("mbarrier", state.address))
        self._check_made(wave, event)
        parts = event.instruction.parts
        if event.operation == "wait":
            assert event.counted is not None and event.slots is not None
            self._wait(wave, event, meeting)
        elif event.operation == "complete_tx" and event.part_of is not None:
            assert event.counted is not None
            issued = wave.issued[id(event.part_of)]
            phases = np.broadcast_to(event.counted, state.slots.shape)
            issued.signals.append((state.address, state.slots, phases))
            column = clocks.column(("mbarrier", state.address))
            issuers = event.part_of.ctas.slots
            at = np.array([self._issuer(clocks.cluster, issuers, int(s)) for s in state.slots])
            what = clocks._padded(issued.known[:, at].copy())
            what[..., event.part_of.threads.ids] = 0  # an issue releases nothing
            what[:, np.arange(len(at)), state.slots % clocks.cluster, column] = phases + 1
            meeting.add(state.slots, phases, what)
        elif event.operation == "arrive" and "relaxed" not in parts:
            self._arrive(wave, event, meeting)

    def _check_made(self, wave: _Wave, event: BarrierEvent) -> None:
        """See whether those who use an mbarrier know that it has been made."""
        state, clocks = event.state, wave.clocks
        assert state is not None
        i, of = event.instruction, state.slots
        if event.operation == "init":
            made = wave.inits.setdefault(state.address, _Init(i, *np.zeros((4, wave.residents.count), np.int64)))
            thread = event.threads.ids[:1]
            made.instruction = i
            made.agents[of], made.threads[of], made.fenced[of] = event.ctas.slots, thread, 0
            made.counts[of] = clocks.counts(event.ctas.slots, thread)[:, 0]
            return
        made_ = wave.inits.get(state.address)
        if made_ is None:
            return
        if event.part_of is not None:
            known = wave.issued[id(event.part_of)].known
            issuers = event.part_of.ctas.slots
            rows = np.array([self._issuer(clocks.cluster, issuers, int(s)) for s in of])
            ranks = made_.agents[of] % clocks.cluster
            seen = known[SEEN][rows, ranks, made_.threads[of]] >= made_.counts[of]
            shown = clocks.known_column((_INITS, int(made_.threads[of[0]])))
            if shown is not None and shown < known.shape[-1]:
                seen |= (made_.fenced[of] > 0) & (known[SEEN][rows, ranks, shown] >= made_.fenced[of])
            who, fenced = f"{event.part_of.kind} ", bool((made_.fenced[of] > 0).all())
        else:
            assert event.slots is not None
            slots, threads = event.ctas.slots, event.threads.ids
            whose = np.broadcast_to(event.slots, (len(slots), len(threads)))
            view, rows_of = clocks.view(slots, threads)
            rows = np.broadcast_to(rows_of, whose.shape)
            at = made_.agents[whose] % clocks.cluster
            held = view.known[SEEN][np.arange(len(slots))[:, None], rows, at, made_.threads[whose]]
            own = (made_.agents[whose] == slots[:, None]) & (made_.threads[whose] == threads)
            seen = own | (held >= made_.counts[whose])
            shown = clocks.known_column((_INITS, int(made_.threads[of[0]])))
            if shown is not None:
                held = view.known[SEEN][np.arange(len(slots))[:, None], rows, at, shown]
                seen |= (made_.fenced[whose] > 0) & (held >= made_.fenced[whose])
            who, fenced = "", bool(((made_.fenced[whose] > 0) | (whose == slots[:, None])).all())
        first = event.ctas.slots[0]
        agent = f"warp {int(event.threads.ids[0]) // WARP} of CTA {wave.residents.coordinate(int(first))}"
        assert self._launch is not None
        before = Side("mbarrier.init", f"thread {int(made_.threads[of[0]])}", made_.instruction)
        after = Side(who + event.operation, agent, i)
        if not seen.all():
            missing = "a barrier that both take part in must come after mbarrier.init and before it is used"
        elif not fenced:
            missing = "fence.mbarrier_init.release.cluster must come after mbarrier.init, and then a barrier"
        else:
            return
        kind = "unpublished-mbarrier" if not seen.all() else "missing-init-fence"
        self._tell(Hazard(kind, self._launch.name, event.barrier, before, after, missing))

    def _arrive(self, wave: _Wave, event: BarrierEvent, meeting: Meeting) -> None:
        clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
        assert event.counted is not None and event.slots is not None
        shape = (len(slots), len(threads))
        of, phases = np.broadcast_to(event.slots, shape), np.broadcast_to(event.counted, shape)
        if (of == slots[:, None]).all():
            meeting.add(slots, phases[:, 0], clocks.publish(slots, threads))
            return
        wide = "cluster" in event.instruction.parts
        for column, thread in enumerate(threads.tolist()):
            what = clocks.publish(slots, np.array([thread]))
            for rank in range(clocks.cluster):
                here = slots % clocks.cluster == rank
                if here.any():
                    sent = what[:, here].copy()
                    if not wide:  # others learn that it is over, and see nothing of it
                        sent[DONE + 1 :, of[here, column] != slots[here]] = 0
                    meeting.add(of[here, column], phases[here, column], sent)

    def _wait(self, wave: _Wave, event: BarrierEvent, meeting: Meeting) -> None:
        slots, threads = event.ctas.slots, event.threads.ids
        assert event.counted is not None and event.slots is not None
        shape = (len(slots), len(threads))
        seen, of = np.broadcast_to(event.counted, shape), np.broadcast_to(event.slots, shape)
        for at in np.unique(of - slots[:, None]).tolist():
            lanes = (of - slots[:, None] == at) & (seen >= 0)
            if not lanes.any():
                continue
            columns = lanes.any(axis=0)
            rows = lanes[:, columns].all(axis=1)
            what = meeting.published(slots[rows] + at, seen[rows][:, columns][:, 0]) if rows.any() else None
            if what is not None:
                wave.clocks.learn(slots[rows], threads[columns], what)
            for row in np.flatnonzero(lanes.any(axis=1) & ~rows).tolist():
                here = lanes[row]
                what = meeting.published(slots[row : row + 1] + at, seen[row, here][:1])
                if what is not None:
                    wave.clocks.learn(slots[row : row + 1], threads[here], what)

    def _group(self, wave: _Wave, event: BarrierEvent) -> None:
        """Let threads know that their groups are complete."""
        clocks, slots, threads = wave.clocks, event.ctas.slots, event.threads.ids
        words = event.barrier.split()
        kind = {"bulk_group": _BULK, "wgmma.wait_group": _MMAS, "cp.async": _COPIES}.get(words[0])
        if kind is None:
            return
        everything = event.barrier == "cp.async"
        left = next((int(w) for w in words if w.isdecimal()), 0)
        closed = wave.closed[kind][np.ix_(slots, threads)]
        done = closed + 1 if everything else np.maximum(closed - left, 0)
        if kind == _MMAS:
            for group in np.unique(threads // WARPGROUP).tolist():
                column = clocks.column((_MMAS, group))
                here = threads // WARPGROUP == group
                what = np.zeros((SEEN + 2, len(slots), clocks.cluster, len(clocks.owner)), np.int32)
                what[: SEEN + 1, np.arange(len(slots)), slots % clocks.cluster, column] = done[:, here][:, 0]
                clocks.learn(slots, threads[here], what)
            return
        names: tuple[object, ...] = (_BULK, "read") if kind == _BULK else (kind,)
        for n, thread in enumerate(threads.tolist()):
            column = clocks.known_column((*names, thread))
            if column is not None:
                at = np.array([column])
                for plane in (DONE, SEEN):
                    clocks.set_own(plane, slots, at, done[:, n : n + 1])

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
