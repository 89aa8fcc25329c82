"""Accesses to shared memory by threads, MMAs and copies, checked against shadow memory with vector clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Place
from cutepy.sim.machine.address_patterns import InOwnCta
from cutepy.sim.machine.events import MbarrierAt
from cutepy.sim.machine.lanes import WARP, WARPGROUP, Array
from cutepy.sim.ptx.memory_order import WEAK, strength
from cutepy.sim.sanitize.byte_layouts.layouts import AccessLayout, Span, described, misread, of_umma
from cutepy.sim.sanitize.hazards import AccessKind, Side
from cutepy.sim.sanitize.memory.access_record import AccessRecord, Conflict, Issue, LaneCopies, Warps, needed
from cutepy.sim.sanitize.memory.operands import ReadOperands, granules_of, strayed
from cutepy.sim.sanitize.memory.shadow import Shadow
from cutepy.sim.sanitize.order.clocks import DONE, SEEN, View
from cutepy.sim.sanitize.order.lane_pairs import LanePairs, candidates, mates, tell
from cutepy.sim.sanitize.order.wave import ALLOCATION, BULK, COPIES, GENERIC, GROUP, MMAS, TENSOR, IssuedOperation, Wave

if TYPE_CHECKING:
    from cutepy.sim.machine.events import Access, AsyncOperation, WgmmaEvent
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.order.lane_pairs import Election
    from cutepy.sim.sanitize.order.synchronisation import Report as Tell


_NONE: Array = np.zeros(0, bool)
_OPAQUE = Diagnosis("mbarrier-read-as-data")


class _Signals(NamedTuple):
    """The mbarriers that count a lane's copies: their offset; and of each CTA that these touch, whose and when."""

    address: int
    slots: Array
    phases: Array


class _OthersOfRecords(NamedTuple):
    """Other lanes of the warps of pairs of lanes, `before` and `after`: see `OtherLanes`.

    `known` tells by row of knowledge of the newer record and lane of the older one whether that is known. It leaves out
    what a thread knows of itself. `is_near`: both are of one CTA. `of_old`, `of_new`: positions of these CTAs in the
    records. Lanes that each issue a copy have records of their own: see `LaneCopies`.
    """

    old: AccessRecord
    new: AccessRecord
    before: Array
    after: Array
    known: Array
    is_near: bool
    of_old: int
    of_new: int
    rank: int
    pairs: LanePairs

    def are_known(self, pairs: Array) -> Array:
        """Return whether the newer lane knows all accesses that the older lane's warp made together with it."""
        if self.old.together is not None and len(self.old.together.columns) and len(pairs):
            return self._are_copies_known(self.old.together, pairs)
        if self.old.threads is None or not len(pairs):
            return np.ones(len(pairs), bool)
        at, there = mates(self.old.threads, self.before[pairs])
        if self.is_near and self.new.threads is not None:
            there &= self.old.threads[at] != self.new.threads[self.after[pairs]][:, None]
        known = self.known[self.new.row_of[self.after[pairs]][:, None], at] | ~there
        result: Array = np.logical_and.reduce(known, axis=1)
        return result

    def know(self, pairs: Array) -> Array:
        """Return whether all lanes of the newer lane's warp that take part with it know the older lane's access."""
        if self.new.together is not None and len(pairs):
            return self._do_copies_know(self.new.together, pairs)
        if self.new.threads is None or not len(pairs):
            return np.ones(len(pairs), bool)
        at, there = mates(self.new.threads, self.after[pairs])
        if self.is_near and self.old.threads is not None:
            there &= self.new.threads[at] != self.old.threads[self.before[pairs]][:, None]
        known = self.known[self.new.row_of[at], self.before[pairs][:, None]] | ~there
        result: Array = np.logical_and.reduce(known, axis=1)
        return result

    def _are_copies_known(self, old: LaneCopies, pairs: Array) -> Array:
        """Tell whether the newer lane knows the completion of the copies of all lanes of the older lane's warp."""
        at, there = _mates_of(old, self.pairs.old_threads[pairs])
        rows = self.new.row_of[self.after[pairs]][:, None]
        columns, known = old.columns[at], self.new.view.known
        within = np.minimum(columns, known.shape[-1] - 1)
        held = needed(self.old, self.new).of(lambda plane: known[plane, self.of_new, rows, self.rank, within])
        counts = old.issued.count[old.rows[self.of_old], at]
        result: Array = np.logical_and.reduce((held >= counts) & (columns <= within) | ~there, axis=1)
        return result

    def _do_copies_know(self, new: LaneCopies, pairs: Array) -> Array:
        """Return whether all lanes of the newer lane's warp that issue copies with it know the older lane's access."""
        at, there = _mates_of(new, self.pairs.new_threads[pairs])
        if self.is_near:
            there &= new.issued.threads[at] != self.pairs.old_threads[pairs][:, None]
        lanes, which = np.unique(at, return_inverse=True)
        known = new.issued.lanes(np.full(len(lanes), new.rows[self.of_new]), lanes)
        column = np.minimum(self.old.columns[self.before[pairs]], known.shape[-1] - 1)[:, None]
        held = needed(self.old, self.new).of(lambda plane: known[plane, which.reshape(at.shape), self.rank, column])
        result: Array = np.logical_and.reduce((held >= self.pairs.counts[pairs][:, None]) | ~there, axis=1)
        return result


def _mates_of(together: LaneCopies, threads: Array) -> tuple[Array, Array]:
    """Return the positions of the other lanes that issue copies with some threads, and which of these there are."""
    return mates(together.issued.threads, np.searchsorted(together.issued.threads, threads))


class _LoadedWord(NamedTuple):
    """Loads of lanes from one place in each of several CTAs.

    Attributes
    ----------
    given, offsets : array, (1, lane)
        In bytes: as they came, and of each lane.
    granules : array of int, (1, lane, n)
        The granules that each lane touches.
    touched : array of int
        All of these, each once, in order.
    """

    given: Array
    offsets: Array
    granules: Array
    touched: Array


class SharedAccesses:
    """Hands the accesses to shared memory to its shadow.

    Parameters
    ----------
    wave : Wave
    granule : int
        Bytes that are watched as one.
    slot_bytes : int
        Of shared memory, from one CTA to the next.
    elections : tuple of Election
        Told of accesses whose order may rest on them.
    report, unwritten, needed, forgot, filled : callable
        As of `Shadow`.
    tell : callable
        Takes the fault beside that.
    """

    def __init__(
        self,
        wave: Wave,
        granule: int,
        slot_bytes: int,
        elections: tuple[Election, ...],
        report: Callable[[Conflict], None],
        unwritten: Callable[[AccessRecord, int, int, bool, Array], None],
        needed: Callable[[Instruction, int], Array],
        tell: Tell,
        forgot: Callable[[], None],
        filled: Callable[[AccessRecord, AccessRecord, int, int], None],
    ) -> None:
        self._tell = tell
        self._wave, self._granule, self._slot_bytes, self._elections = wave, granule, slot_bytes, elections
        self._granules = granules = -(-slot_bytes // granule)
        self._last_loaded: dict[int, _LoadedWord] = {}  # by instruction
        self._allocations = 0
        self._operands = ReadOperands(granule)
        callbacks = report, unwritten, needed, self._misread, self._in_order, forgot, filled
        self._shadow = Shadow(wave.clocks, wave.residents.count, granules, *callbacks)

    def last_writers(self, slot: int, address: int) -> Iterator[tuple[AccessRecord, int, int]]:
        """Yield the last writes to a byte of a CTA, with the row and lane of each."""
        granule = address // self._granule
        for touch in self._shadow.writers(slot, np.array([granule]))[-1:]:
            row = int(np.searchsorted(touch.slots, slot))
            granules, lanes = touch.touched(row)
            yield from ((touch, row, lane) for lane in lanes[granules == granule].tolist())

    def access(self, access: Access) -> None:
        """Take an access by threads."""
        wave = self._wave
        slots, threads = access.ctas.slots, access.threads.ids
        if isinstance(access.where, InOwnCta):
            offsets = access.where.offsets
            self._by_threads(access, slots, slots, threads, np.broadcast_to(offsets, (len(offsets), len(threads))))
            return
        addresses = np.broadcast_to(access.addresses, (len(slots), access.addresses.shape[1]))
        if addresses.shape[1] not in (1, len(threads)):  # rows of matrices, which the first lanes of each warp address
            warps = np.unique(threads // WARP)
            rows = addresses.shape[1] // len(warps)
            threads = (warps[:, None] * WARP + np.arange(rows)).reshape(-1)
        where, offsets = np.divmod(addresses, self._slot_bytes)
        where, offsets = (np.broadcast_to(x, (len(slots), len(threads))) for x in (where, offsets))
        if (where == slots[:, None]).all():
            self._by_threads(access, slots, slots, threads, offsets)
            return
        for rank in range(wave.clocks.cluster):
            mine = np.flatnonzero(slots % wave.clocks.cluster == rank)
            for target in np.unique(where[mine] % wave.clocks.cluster).tolist() if len(mine) else ():
                for row in mine.tolist():
                    here = where[row] % wave.clocks.cluster == target
                    if here.any():
                        at = where[row, here][:1]
                        if not wave.peers.access(access.instruction, int(at[0]), int(slots[row]), threads[here]):
                            self._unstarted(access, int(at[0]), int(slots[row]), threads[here])
                        self._by_threads(access, at, slots[row : row + 1], threads[here], offsets[row : row + 1, here])

    def loads(self, accesses: Sequence[Access]) -> None:
        """Take weak loads of the same lanes, one after the other.

        Those of one place of each CTA that touch different granules are handed on together.
        """
        wave, clocks = self._wave, self._wave.clocks
        ctas, threads = accesses[0].ctas, accesses[0].threads.ids
        slots, counts = ctas.slots, clocks.counts_now(ctas.slots, threads)
        view, row_of = clocks.view(slots, threads)
        together: list[tuple[AccessRecord, Array]] = []
        used = np.zeros(0, bool)
        for access in accesses:
            i, where = access.instruction, access.where
            loaded = self._loaded(access, where, len(threads)) if isinstance(where, InOwnCta) else None
            if loaded is None:
                self._shadow.loads(together)
                together = []
                self.access(access)
                continue
            if self._read_as_a_word(i, i.parts[0], slots, loaded.offsets, access.size_bytes):
                continue
            if not together:
                used = np.zeros(self._granules, bool)
            elif used[loaded.touched].any():
                self._shadow.loads(together)
                together, used = [], np.zeros(self._granules, bool)
            used[loaded.touched] = True
            new = AccessRecord(
                i.parts[0],
                i,
                False,
                False,
                WEAK,
                slots,
                slots,
                threads,
                threads,
                counts,
                loaded.granules,
                view,
                row_of,
                when=wave.steps.number,
                access="read",
            )
            together.append((new, loaded.touched))
        self._shadow.loads(together)

    def _loaded(self, access: Access, where: InOwnCta, lanes: int) -> _LoadedWord | None:
        """Return the granules that a load touches in each CTA; None if they differ from CTA to CTA."""
        i, offsets = access.instruction, where.offsets
        known = self._last_loaded.get(i.index)
        if known is not None and known.given is offsets and known.offsets.shape[1] == lanes:
            return known
        every = np.broadcast_to(offsets, (len(offsets), lanes))
        granules = self._granules_of(every, access.size_bytes)
        if len(granules) > 1:
            return None
        found = _LoadedWord(offsets, every[:1], granules, np.unique(granules))
        self._last_loaded[i.index] = found
        return found

    def _by_threads(self, access: Access, slots: Array, agents: Array, threads: Array, offsets: Array) -> None:
        wave, clocks = self._wave, self._wave.clocks
        copies = access.part_of is not None
        if copies:
            issued = wave.issued[id(access.part_of)]
            columns = np.array([clocks.column((COPIES, t), t) for t in threads.tolist()])
            counts, view, row_of = issued.count, issued.view, issued.place
            wave.copied.note(access.instruction, agents, threads, counts)
        else:
            columns, counts = threads, clocks.counts_now(agents, threads)
            view, row_of = clocks.view(agents, threads)
        is_of_warp = access.instruction.traits.allocates
        if is_of_warp:
            self._allocations += 1
            columns = np.full(len(threads), clocks.column((ALLOCATION, int(threads[0]) // WARP)))
            counts = np.full((len(agents), len(threads)), self._allocations)
            view, row_of = View(clocks.joint(agents, threads)[:, :, None], None), np.zeros(len(threads), np.intp)
        granules = self._granules_of(offsets, access.size_bytes)
        i = access.instruction
        name: str = "cp.async" if copies else i.parts[0]
        touches: AccessKind = "write" if copies else access.operation
        if access.operation != "read" and i.parts[0] != "st":  # the simulator refuses stores
            last = int(offsets.max()) + access.size_bytes
            self._overwritten(i, name, touches, slots, int(offsets.min()), last)
        if access.operation == "read" and self._read_as_a_word(i, name, slots, offsets, access.size_bytes):
            return
        touch = AccessRecord(
            name,
            i,
            access.operation != "read",
            False,
            WEAK if copies else strength(i.opcode).scope,
            slots,
            agents,
            threads,
            columns,
            counts,
            granules,
            view,
            row_of,
            when=wave.steps.number,
            access=touches,
        )
        self._shadow.touch(touch)
        if is_of_warp:
            self._let_know(agents, threads, int(columns[0]), self._allocations)

    def _let_know(self, slots: Array, threads: Array, column: int, count: int) -> None:
        """Raise the column of one channel in the clocks of its CTA's threads, and no other column."""
        clocks = self._wave.clocks
        what = clocks.nothing(len(slots), 1)
        what[[SEEN, DONE], np.arange(len(slots))[:, None], (slots % clocks.cluster)[:, None]] = count
        clocks.learn(slots, threads, what, first=column)

    def _unstarted(self, access: Access, target: int, agent: int, threads: Array) -> None:
        coordinate = self._wave.residents.coordinate
        i = access.instruction
        side = Side.of_thread(i.parts[0], coordinate(agent), int(threads[0]), i, access.operation)
        self._tell("unstarted-peer", Place.of_cta(coordinate(target)), None, side, None)

    def _overwritten(self, i: Instruction, name: str, access: AccessKind, slots: Array, first: int, last: int) -> None:
        """Report a write over an mbarrier."""
        objects, coordinate = self._wave.objects, self._wave.residents.coordinate
        address = objects.written(slots, first, last)
        if address is not None:
            cta = coordinate(int(slots[0]))
            before = Side("mbarrier.init", f"CTA {cta}", objects.made_by[address], cta)
            after = Side(name, f"CTA {cta}", i, cta, access=access)
            self._tell("overwritten-mbarrier", MbarrierAt(address), before, after, None)

    def _read_as_a_word(self, i: Instruction, name: str, slots: Array, offsets: Array, size: int) -> bool:
        """Report a read of an mbarrier as if it were data."""
        objects, coordinate = self._wave.objects, self._wave.residents.coordinate
        address = objects.read(slots, offsets, size)
        if address is not None:
            cta = coordinate(int(slots[0]))
            before = Side("mbarrier.init", f"CTA {cta}", objects.made_by[address], cta)
            after = Side(name, f"CTA {cta}", i, cta, access="read")
            self._tell("misused-barrier", MbarrierAt(address), before, after, _OPAQUE)
        return address is not None

    def _in_order(
        self, old: AccessRecord, new: AccessRecord, row: int, of_old: int, before: Array, after: Array, known: Array
    ) -> None:
        """Tell elections of pairs of lanes that are in order, where they may rest on which lane is elected."""
        if all(election.is_told for election in self._elections):
            return
        clocks, blocks = self._wave.clocks, self._wave.residents.blocks
        old_threads = clocks.owner[old.columns[before]] if old.threads is None else old.threads[before]
        new_threads = np.full(len(after), -1)
        if new.threads is not None:
            new_threads = new.threads[after]
        elif new.issue is not None and len(new.issue.threads) == new.granules.shape[1]:
            new_threads = new.issue.threads[after]
        here = candidates(self._elections, old_threads, new_threads)
        if not len(here):
            return
        first = np.unique(before[here] * new.granules.shape[1] + after[here], return_index=True)[1]
        here = here[first]
        before, after, old_threads, new_threads = before[here], after[here], old_threads[here], new_threads[here]
        by_old, by_new = int(old.agents[of_old]), int(new.agents[row])
        last, plane = new.view.known.shape[-1] - 1, SEEN if old.writes else DONE
        columns, rank = np.minimum(old.columns[before], last), by_old % clocks.cluster
        pairs = LanePairs(
            old.instruction,
            new.instruction,
            np.full(len(here), blocks[by_old]),
            np.full(len(here), blocks[by_new]),
            old_threads,
            new_threads,
            old.counts[min(of_old, len(old.counts) - 1)][before],
            new.view.known[plane, row, new.row_of[after], rank, columns],
        )
        others = _OthersOfRecords(
            old, new, before, after, known, by_old == by_new, min(of_old, len(old.agents) - 1), row, rank, pairs
        )
        tell(self._elections, pairs, others)

    def _misread(
        self, old: AccessRecord, new: AccessRecord, row: int, granules: Array, written: AccessLayout, read: AccessLayout
    ) -> bool:
        kind = misread(written, read, granules * self._granule)
        if kind is None:
            return False
        coordinate = self._wave.residents.coordinate
        cta = coordinate(int(new.agents[row]))
        before, after = old.of_proxy(cta), new.of_proxy(cta)
        where = Place.of_shared(int(granules[0]) * self._granule)
        self._tell(kind, where, before, after, described(written, read))
        return True

    def _granules_of(self, offsets: Array, size: int) -> Array:
        """Return the granules of ranges of bytes, (CTA or 1, lane, n)."""
        if len(offsets) > 1 and (offsets == offsets[:1]).all():
            offsets = offsets[:1]
        return granules_of(offsets, size, self._granule)

    def wgmma(self, event: WgmmaEvent) -> None:
        """Take the reads of an MMA."""
        wave = self._wave
        clocks, slots = wave.clocks, event.ctas.slots
        groups = event.threads.ids[::WARPGROUP] // WARPGROUP
        for group, operands in zip(groups.tolist(), self._operands.of(event, len(groups)), strict=True):
            if operands.flat.max() >= self._slot_bytes // self._granule:
                continue  # beyond the shared memory of a CTA, which is told as the MMA is computed
            threads = np.arange(group * WARPGROUP, (group + 1) * WARPGROUP)
            column = np.array([clocks.column((MMAS, group))])
            view, place = clocks.view(slots, threads)
            by_warp = place.reshape(-1, WARP)
            alike = (by_warp == by_warp[:, :1]).all(axis=1)
            issuers = Warps(group * WARPGROUP // WARP, np.where(alike, by_warp[:, 0], -1), operands.warps)
            counts = wave.closed[MMAS][slots, group * WARPGROUP][:, None] + 1
            wave.mma_groups.issue(slots, group, counts[:, 0] // GROUP + 1)
            touch = AccessRecord(
                "wgmma",
                event.instruction,
                False,
                True,
                WEAK,
                slots,
                slots,
                None,
                column,
                counts,
                operands.flat,
                view,
                np.zeros(1, int),
                operands.spans,
                warps=threads[::WARP] // WARP,
                when=wave.steps.number,
                issue=Issue(slots, threads, wave.steps.number),
                issuers=issuers,
                access="read",
            )
            for n in operands.may_stray:
                self._stray(touch, n)
            self._shadow.touch(touch)
            wave.note(int(column[0]), event.instruction, slots, counts)

    def _stray(self, new: AccessRecord, n: int) -> None:
        """Report an operand that has come out of its tile."""
        found = strayed(new, n, self._shadow.writers, self._granule)
        if found is not None:
            wrote, row, granule, wrong = found
            cta = self._wave.residents.coordinate(int(new.slots[row]))
            before, after = wrote.of_proxy(cta), new.of_proxy(cta)
            self._tell("layout-mismatch", Place.of_shared(granule * self._granule), before, after, wrong)

    def _tensor_core_took(self, operation: AsyncOperation, issued: IssuedOperation, access: Access) -> None:
        """Take the reads of an operation of the tensor core, of its own CTA and of the peer's."""
        wave, agents, threads = self._wave, operation.ctas.slots, operation.threads.ids
        thread = int(threads[0])
        column = np.array([wave.clocks.column((TENSOR, thread), thread)])
        through = None if access.operand is None else of_umma(*access.operand)
        where, offsets = np.divmod(access.addresses.reshape(-1), self._slot_bytes)
        for slot in np.unique(where).tolist():
            granules = np.unique(self._granules_of(offsets[where == slot][None], access.size_bytes))[None, None]
            known = issued.lanes(np.array([0]), np.array([0]))
            view = View(known.reshape(len(known), 1, 1, *known.shape[2:]), None)
            touch = AccessRecord(
                operation.instruction.name,
                operation.instruction,
                False,
                True,
                WEAK,
                np.array([slot]),
                agents,
                None,
                column,
                issued.count,
                granules,
                view,
                np.zeros(1, np.intp),
                () if through is None else (Span(0, granules.size, (through,)),),
                when=wave.steps.number,
                issue=Issue(agents, threads, issued.number),
                access="read",
            )
            self._shadow.touch(touch)
        wave.note(int(column[0]), operation.instruction, agents, issued.count)

    def took(self, operation: AsyncOperation, issued: IssuedOperation, accesses: Sequence[Access]) -> None:
        """Take the reads, or writes, or both, of an operation."""
        if operation.kind == "tcgen05":
            for access in accesses:
                self._tensor_core_took(operation, issued, access)
            return
        of = operation.ctas.slots
        by_place: dict[tuple[AccessKind, int, int, int, int, bytes], list[Array]] = {}
        for access in accesses:
            slots, offsets = np.divmod(access.addresses.reshape(-1), self._slot_bytes)
            if (
                operation.kind in ("bulk_load", "bulk_store") and access.addresses.shape[1] > 1
            ):  # each lane's in its own CTA
                rows = np.arange(len(of))
                (channel, _), *_ = self._channels(operation, issued, of, rows, 0)  # lanes of one mbarrier of each CTA
                of_lanes = offsets.reshape(access.addresses.shape)
                at = rows, np.arange(access.addresses.shape[1])
                self._by_proxy(operation, issued, access.operation, of_lanes, access.size_bytes, of, channel, *at)
                continue
            rows, lanes = self._issuers(operation, access, slots)
            apart = of[rows] - slots  # of a multicast, a copy to a peer and st.async
            drops = [b""] * len(slots) if access.dropped is None else [x.tobytes() for x in access.dropped]
            alike: dict[tuple[int, int, int, bytes], list[int]] = {}
            for n, key in enumerate(zip(offsets.tolist(), apart.tolist(), lanes.tolist(), drops, strict=True)):
                alike.setdefault(key, []).append(n)
            for (offset, by, lane, dropped), these in alike.items():
                one = access.operation, offset, access.size_bytes, by, lane, dropped
                by_place.setdefault(one, []).append(slots[these])
        for (touches, offset, size, by, lane, dropped), found in by_place.items():
            for part in _apart(np.concatenate(found)):
                rows = np.searchsorted(of, part + by)
                for channel, here in self._channels(operation, issued, part, rows, lane):
                    at = rows[here], np.array([lane])
                    to = np.array([[offset]]), size, part[here], channel
                    self._by_proxy(operation, issued, touches, *to, *at, np.frombuffer(dropped, bool))

    def _issuers(self, operation: AsyncOperation, access: Access, slots: Array) -> tuple[Array, Array]:
        """Return the accessing lane of each address, as positions among the CTAs and lanes of an operation."""
        lanes, numbers = operation.threads.count, access.issuers
        if numbers is None and len(slots) == len(operation.ctas.slots) * lanes:
            numbers = np.arange(len(slots))
        if numbers is None:
            return self._wave.issuers(operation.ctas.slots, slots), np.zeros(len(slots), int)
        rows, columns = np.divmod(numbers, lanes)
        return rows, columns

    @staticmethod
    def _channels(
        operation: AsyncOperation, issued: IssuedOperation, slots: Array, rows: Array, lane: int
    ) -> list[tuple[_Signals | None, Array]]:
        """Part the CTAs that copies of one lane touch by the mbarrier that says so; a store of a group has none.

        `rows`: who issued each, by position. Returned are positions in `slots`.
        """
        if operation.kind in ("tma_store", "bulk_store"):
            return [(None, np.arange(len(slots)))]
        parted: dict[int, list[tuple[int, int, int]]] = {}
        for n, (slot, row) in enumerate(zip(slots.tolist(), rows.tolist(), strict=True)):
            address, agent, phase = issued.signal(row, lane, slot)
            parted.setdefault(address, []).append((n, agent, phase))
        result: list[tuple[_Signals | None, Array]] = []
        for address, each in parted.items():
            here, agents, phases = (np.array(x) for x in zip(*each, strict=True))
            result.append((_Signals(address, agents, phases), here))
        return result

    def _by_proxy(
        self,
        operation: AsyncOperation,
        issued: IssuedOperation,
        access: AccessKind,
        offsets: Array,
        size: int,
        slots: Array,
        channel: _Signals | None,
        issuer_of: Array,
        lanes: Array,
        dropped: Array = _NONE,
    ) -> None:
        """Take the accesses of lanes' copies at offsets, (CTA or 1, lane), in the memory of some CTAs.

        Bytes that a store drops, as they are outside of its tensor, reach nothing, so that they count as not read.
        """
        wave, clocks, issuers = self._wave, self._wave.clocks, operation.ctas.slots
        if channel is None:
            columns = [clocks.column((BULK, "read", t), t) for t in operation.threads.ids[lanes].tolist()]
            agents = issuers[issuer_of]
            counts = issued.count[issuer_of[:, None], lanes]
            for n, column in enumerate(columns):
                wave.note(column, operation.instruction, agents, counts[:, n])
        else:
            column = clocks.column(("mbarrier", channel.address))
            agents, counts = channel.slots, channel.phases[:, None] + 1
            columns = [column] * len(lanes)
            wave.note(column, operation.instruction, agents, counts)
            for slot, agent, count in zip(slots.tolist(), agents.tolist(), counts[:, 0].tolist(), strict=True):
                if slot != agent:
                    wave.lent[slot, agent, column] = operation.instruction, count
        rows = np.repeat(issuer_of, len(lanes))
        one = len(issued.threads) == 1
        known = issued.known[:, rows] if one else issued.lanes(rows, np.tile(lanes, len(issuer_of)))
        view = View(known.reshape(len(known), len(issuer_of), len(lanes), *known.shape[2:]), None)
        granules = self._granules_of(offsets, size)
        if dropped.any():
            granules = np.unique(self._granules_of(offsets + np.flatnonzero(~dropped), 1))[None, None]
            if not granules.size:
                return
        for first in offsets.ravel().tolist() if access != "read" else ():
            self._overwritten(operation.instruction, operation.kind, access, slots, first, first + size)
        through = issued.through.get(int(offsets[0, 0]))
        name = _NAMES.get(operation.kind, "bulk copy")
        touch = AccessRecord(
            name,
            operation.instruction,
            access != "read",
            operation.kind not in GENERIC,
            WEAK if access == "read" else strength(operation.instruction.opcode).scope,
            slots,
            agents,
            None,
            np.array(columns),
            np.broadcast_to(counts, (len(slots), len(lanes))),
            granules,
            view,
            np.arange(len(lanes)),
            () if through is None else (Span(0, granules.shape[-1], (through,)),),
            when=wave.steps.number,
            issue=Issue(issuers[issuer_of], operation.threads.ids[lanes], issued.number),
            access=access,
        )
        if not one:
            every = operation.threads.ids.tolist()
            channels = [clocks.column((BULK, "read", t), t) for t in every] if channel is None else []
            touch.together = LaneCopies(issued, issuer_of, np.array(channels, np.intp))
        self._shadow.touch(touch)


_NAMES = {"tma_load": "TMA", "tma_store": "TMA store", "st_async": "st.async", "launch_control": "launch control"}
"""Names of asynchronous operations that are no bulk copies."""


def _apart(slots: Array) -> list[Array]:
    """Part accesses to one place of CTAs, so that each part has the place once for each: one after the other."""
    if len(slots) == 1:
        return [slots]
    which, times = np.unique(slots, return_counts=True)
    return [which[times > n] for n in range(int(times.max()))]
