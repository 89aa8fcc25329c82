"""Operations on mbarriers: init, arrive, expect_tx, complete_tx, and waits for a phase.

Their state is kept beside shared memory, by the object's address; the eight bytes there are opaque, as PTX says.

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import BarrierError, Place
from cutepy.sim.machine.activity import Activity, PickedLanes
from cutepy.sim.machine.events import (
    BarrierState,
    MbarrierArrive,
    MbarrierBlocked,
    MbarrierCompleteTx,
    MbarrierCount,
    MbarrierExpectArrivals,
    MbarrierExpectTx,
    MbarrierInit,
    MbarrierInvalidate,
    MbarrierTry,
    MbarrierWait,
)
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.machine.memory import Memory
from cutepy.sim.machine.schedule import Mechanism
from cutepy.sim.machine.thread_history import ExecutedInstruction
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.mechanisms import mbarrier_states as states
from cutepy.sim.mechanisms.mbarrier_objects import NEVER, Mbarrier, positions, targets
from cutepy.sim.mechanisms.mbarrier_waits import MbarrierWaits
from cutepy.sim.ptx.barrier_names import barrier_name
from cutepy.sim.ptx.model import Instruction, Register

_TRUE = np.array([[True]])
_NO_STATE = np.zeros((1, 1), np.uint64)
MAX_COUNT = (1 << 20) - 1
"""Of arrivals; of bytes it is the largest count either way."""


class Mbarriers(Mechanism):
    """The mbarrier objects of resident CTAs."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity = activity
        self._memory = memory
        self._objects: dict[int, Mbarrier] = {}

    def start(self, residents: Residents, threads: int) -> None:
        """Forget all objects: new CTAs become resident."""
        self._slots, self._blocks = residents.count, residents.blocks
        self._objects = {}
        self._seen_by: dict[int, Array] = {}  # by offset, the last phase that each thread has waited for
        self._threads = threads
        self._cluster = residents.cluster_size
        self._waits = MbarrierWaits(self._objects, residents)

    def _object(self, g: Group, i: Instruction, offset: int, slots: Array) -> Mbarrier:
        found = self._objects.get(offset)
        if found is None or not found.valid[slots].all():
            ended = found is not None and not found.valid[slots].any() and "inval" in found.done
            raise BarrierError(
                f"there is no initialised mbarrier at shared address {offset:#x}"
                + (", where mbarrier.inval has ended one" if ended else ""),
                i,
                g.describe(),
                kind="uninitialised-mbarrier",
                at=Place.of_mbarrier(offset),
                before=found.done["inval"].execution if found is not None and ended else None,
            )
        return found

    def _wrong(
        self,
        g: Group,
        i: Instruction,
        offset: int,
        message: str,
        fix: Diagnosis,
        kind: str | None = None,
        after: str = "",
    ) -> BarrierError:
        """Return the error that an operation is, which does not agree with the last one of some kind."""
        before = self._objects[offset].done.get(after)
        at, execution = Place.of_mbarrier(offset), None if before is None else before.execution
        return BarrierError(message, i, g.describe(), fix=fix, kind=kind, at=at, before=execution)

    def _check_own(self, g: Group, i: Instruction, address: Array) -> Array:
        """Return where lanes address an object, which must be of their own CTA."""
        position = positions(self._memory, g, i, address)
        slots, offsets = np.divmod(position, self._memory.slot_bytes)
        if (slots != g.ctas.slots[:, None]).any():
            raise BarrierError(
                f"{'.'.join(i.parts[:2])} takes an mbarrier of the thread's own CTA, and this is another one's",
                i,
                g.describe(),
                fix=Diagnosis("remote-mbarrier"),
                at=Place.of_mbarrier(int(offsets.flat[0]), self._name(int(offsets.flat[0]))),
            )
        return position

    def init(self, g: Group, i: Instruction, address: Array, count: Array) -> None:
        """Make an object that expects `count` arrivals in each phase: of lanes that make the same one each does so."""
        self._activity.changes += 1
        if int(count.min()) < 1 or int(count.max()) > MAX_COUNT:
            wrong = int(count.max()) if int(count.min()) else 0
            raise BarrierError(f"the count of an mbarrier must be 1 to {MAX_COUNT}, got {wrong}", i, g.describe())
        every, counts = np.broadcast_arrays(self._check_own(g, i, address), count)
        counts = counts.astype(np.int64)
        for offset, slots, _ in targets(self._memory, g, i, address, 1):
            found = self._objects.setdefault(offset, Mbarrier(self._slots))
            here = every % self._memory.slot_bytes == offset
            of_lanes = every[here] // self._memory.slot_bytes
            found.count[of_lanes] = counts[here]
            if (found.count[of_lanes] != counts[here]).any():
                raise self._differs(g, i, offset, counts[here])
            found.valid[slots] = True
            found.done["init"] = g.did(i)
            found.pending[slots] = found.count[slots]
            found.transactions[slots] = 0
            found.phase[slots] = 0
            found.life[slots] += 1
            found.passed[slots] = NEVER
            found.sources.clear()
            found.multicasts.clear()
            found.rounds.clear()
            self._seen_by.pop(offset, None)
            self._memory.objects.mark(offset, slots, found.done["init"])
            if self._activity.observers:
                state, lanes, of = self._seen(offset, slots, g, i, address)
                about = i, lanes.ctas, lanes.threads, state, of, self._activity.completing
                self._activity.tell(MbarrierInit(*about, tuple(found.count[slots].tolist())))

    @staticmethod
    def _differs(g: Group, i: Instruction, offset: int, counts: Array) -> BarrierError:
        return BarrierError(
            f"lanes initialise the mbarrier at shared address {offset:#x} with counts of {int(counts.min())} to "
            f"{int(counts.max())}: which of them it gets is undefined",
            i,
            g.describe(),
            fix=Diagnosis("one-thread-initialises"),
            at=Place.of_mbarrier(offset),
        )

    def invalidate(self, g: Group, i: Instruction, address: Array) -> None:
        """Invalidate mbarriers: `mbarrier.inval`."""
        self._check_own(g, i, address)
        for offset, slots, _ in targets(self._memory, g, i, address, 1):
            found = self._object(g, i, offset, slots)
            found.valid[slots] = False
            found.done["inval"] = g.did(i)
            self._memory.objects.mark(offset, slots, None)
            if self._activity.observers:
                state, lanes, of = self._seen(offset, slots, g, i, address)
                about = i, lanes.ctas, lanes.threads, state, of, self._activity.completing
                self._activity.tell(MbarrierInvalidate(*about))

    def arrive(self, g: Group, i: Instruction, address: Array, count: Array | None, expects: bool, drop: bool) -> Array:
        """Arrive, after expecting bytes if `expects`; returns the state, which names the phase."""
        if expects:
            assert count is not None
            self.expect_tx(g, i, address, count)
            count = None
        if count is not None and not 1 <= int(count.min()) <= int(count.max()) <= MAX_COUNT:
            got = int(count.max()) if int(count.min()) else 0
            raise BarrierError(f"the count of an arrival must be 1 to {MAX_COUNT}, got {got}", i, g.describe())
        self._activity.changes += 1
        objects = targets(self._memory, g, i, address, 1 if count is None else count)
        state = self._states(g, i, address) if isinstance(i.operands[0], Register) else _NO_STATE
        for offset, slots, total in objects:
            found = self._object(g, i, offset, slots)
            if drop:
                found.count[slots] -= total
            self._count_arrivals(g, i, offset, slots, total)
            if "noComplete" in i.parts and not (found.pending[slots] | found.transactions[slots]).all():
                wrong = f"an arrival at {self._name(offset)} completes the phase in spite of noComplete"
                raise self._wrong(g, i, offset, wrong, Diagnosis("leave-no-complete-out"), after="arrive")
            found.done["arrive"] = g.did(i)
            found.arrivals[i.index] = i
            is_own = len(objects) == 1 and np.array_equal(slots, g.ctas.slots)
            found.note_rounds(found.done["arrive"], slots, is_own)
            if self._cluster > 1:
                self._note_sources(g, i, offset, address)
            before = found.phase.copy()
            found.settle(slots)
            self._tell_count(MbarrierArrive, offset, slots, g, i, total, address, before)
        return state

    def arrive_from(self, g: Group, i: Instruction, offset: int, slots: Array, lane: ExecutedInstruction) -> None:
        """Arrive once at the objects of some CTAs: the operations of a lane's commit are complete."""
        self._activity.changes += 1
        found = self._object(g, i, offset, slots)
        self._count_arrivals(g, i, offset, slots, 1)
        found.done["arrive"] = lane
        found.arrivals[i.index] = i
        found.note_rounds(lane, slots, False)
        if self._cluster > 1:
            found.note_sources(lane, slots, np.full(len(slots), lane.ctas.slots[0]))
        before = found.phase.copy()
        found.settle(slots)
        for slot in slots if self._activity.observers else ():
            state, _, _ = self._seen(offset, np.array([slot]), g, i, None)
            of = np.array([[slot]])
            about = i, lane.ctas, lane.threads, state, of, self._activity.completing
            self._activity.tell(MbarrierArrive(*about, before[of], (1,)))

    def _count_arrivals(self, g: Group, i: Instruction, offset: int, slots: Array, total: Array | int) -> None:
        """Count arrivals at objects, none of which may get more than its phase expects."""
        found = self._objects[offset]
        found.pending[slots] -= total
        if (found.pending[slots] < 0).any():
            expected = int(found.count[slots[0]])
            raise self._wrong(
                g,
                i,
                offset,
                f"{self._name(offset)} got {int(-found.pending[slots].min())} arrivals more than the {expected} "
                "that a phase expects: the next phase would complete early",
                Diagnosis("count-all-arrivals"),
                after="init",
            )

    def _note_sources(self, g: Group, i: Instruction, offset: int, address: Array) -> None:
        """Note which CTAs arrive at which objects."""
        position = positions(self._memory, g, i, address)
        here = position % self._memory.slot_bytes == offset
        by = np.broadcast_to(g.ctas.slots[:, None], position.shape)
        self._objects[offset].note_sources(g.did(i), (position // self._memory.slot_bytes)[here], by[here])

    def _states(self, g: Group, i: Instruction, address: Array) -> Array:
        """Return the states of the objects that lanes address, as they are before an arrival."""
        position = positions(self._memory, g, i, address)
        phase = self._read(g, i, position, lambda found, _, slots: found.phase[slots])
        pending = self._read(g, i, position, lambda found, _, slots: found.pending[slots])
        return states.state_of(self._read(g, i, position, self._numbers), phase, pending)

    def _read(self, g: Group, i: Instruction, position: Array, what: Callable[[Mbarrier, int, Array], Array]) -> Array:
        """Return a property of the objects at positions, by lane: `what` takes an object, its offset, and slots."""
        slots, offsets = np.divmod(position, self._memory.slot_bytes)
        first = int(offsets.flat[0])
        if (offsets == first).all():
            return what(self._object(g, i, first, slots), first, slots)
        result = np.empty(position.shape, np.int64)
        for offset in np.unique(offsets).tolist():
            here = offsets == offset
            result[here] = what(self._object(g, i, offset, slots[here]), offset, slots[here])
        return result

    def _numbers(self, found: Mbarrier, offset: int, slots: Array) -> Array:
        return states.object_of(offset, self._blocks[slots], found.life[slots])

    def expect_arrivals(self, g: Group, i: Instruction, address: Array) -> None:
        """Expect an arrival of each lane in the current phase, beside those of the count."""
        self._activity.changes += 1
        for offset, slots, total in targets(self._memory, g, i, address, 1):
            found = self._object(g, i, offset, slots)
            found.pending[slots] += total
            found.done["expect_arrivals"] = g.did(i)
            self._tell_count(MbarrierExpectArrivals, offset, slots, g, i, total, address, found.phase)

    def expect_tx(self, g: Group, i: Instruction, address: Array, size: Array) -> None:
        """Expect bytes in the current phase; this may not complete it.

        PTX ISA, "expect-tx operation", has no step that completes a phase, as "complete-tx operation" and "Arrive-on
        operation" have; "Phase Completion" has a phase complete when nothing is pending, by whatever.
        """
        self._activity.changes += 1
        for offset, slots, total in targets(self._memory, g, i, address, size):
            found = self._count_bytes(g, i, offset, slots, total)
            if not (found.pending[slots] | found.transactions[slots]).all():
                wrong = (
                    f"{self._name(offset)} lacks nothing once its bytes are announced, all of which came before that, "
                    "as all arrivals did: whether this completes the phase the PTX ISA does not say"
                )
                fix = Diagnosis("announce-with-arrival")
                self._activity.fault(self._wrong(g, i, offset, wrong, fix, "premature-completion", "complete_tx"))
            found.done["expect_tx"] = g.did(i)
            self._tell_count(MbarrierExpectTx, offset, slots, g, i, total, address, found.phase)

    def complete_tx(self, g: Group, i: Instruction, address: Array, size: Array) -> None:
        """Count bytes as arrived."""
        for offset, slots, total in targets(self._memory, g, i, address, size):
            self.deliver(g, i, offset, slots, total, address=address)

    def may_complete_within(self, offsets: Array, slots: Array, size: int) -> bool:
        """Return whether copies of a size, which each count at an offset, complete a phase before all of them have."""
        for offset, copies in zip(*np.unique(offsets, return_counts=True), strict=True):
            found = self._objects.get(int(offset))
            if found is not None:
                lacks = found.transactions[slots]
                if ((found.pending[slots] == 0) & (lacks > 0) & (lacks < size * copies)).any():
                    return True
        return False

    def deliver(
        self,
        g: Group,
        i: Instruction,
        offset: int,
        slots: Array,
        size: Array | int,
        copies: Array | None = None,
        address: Array | None = None,
        by: Array | None = None,
    ) -> None:
        """Count bytes as arrived at the objects of some CTAs.

        `copies` is `MbarrierCompleteTx.deliveries`; `address` is what threads address that count themselves.
        """
        self._activity.changes += 1
        found = self._count_bytes(g, i, offset, slots, -size)
        before = found.phase.copy()
        if copies is not None and self._cluster > 1:
            issuers = g.ctas.slots[copies[:, 1]] if by is None else by
            found.note_sources(g.did(i), copies[:, 0], issuers)
            if any(part.startswith("multicast::cluster") for part in i.parts):
                each = int(np.broadcast_to(size, slots.shape).sum()) // len(copies)
                found.note_multicasts(g.did(i), copies, issuers, each)
        found.settle(slots)
        found.done["complete_tx"] = g.did(i)
        found.copies[i.index] = i
        kind = partial(MbarrierCompleteTx, deliveries=copies)
        self._tell_count(kind, offset, slots, g, i, size, address, before)

    def _count_bytes(self, g: Group, i: Instruction, offset: int, slots: Array, size: Array | int) -> Mbarrier:
        """Add to the bytes that the current phase lacks."""
        found = self._object(g, i, offset, slots)
        found.transactions[slots] += size
        if (np.abs(found.transactions[slots]) > MAX_COUNT).any():
            most = int(np.abs(found.transactions[slots]).max())
            wrong = (
                f"{self._name(offset)} counts at most {MAX_COUNT} bytes of a phase, got {most}: the phase would "
                "complete at another count"
            )
            fix, kind, after = Diagnosis("byte-count-overflow"), "byte-count-overflow", "expect_tx"
            self._activity.fault(self._wrong(g, i, offset, wrong, fix, kind, after))
        return found

    def wait(
        self, g: Group, i: Instruction, address: Array, state: Array, parity: bool, may_wait: bool
    ) -> Array | None:
        """Test whether a phase has completed; None says that the lanes had better wait."""
        memory = self._memory
        if address.dtype == np.uint64:
            _, address = memory.resolve("generic", address)
        position = self._check_own(g, i, address)
        phase = self._read(g, i, position, lambda found, _, slots: found.phase[slots])
        # Of the parity the hardware takes the lowest bit: pipelines xor the number of phases passed into it.
        done = (phase & 1) != (state & 1)
        if not parity:
            since = states.phases_since(state, phase)
            done = since != 0
            self._check_state(g, i, position, state, phase)
        tried = np.where(done, phase - 1, phase) if self._activity.observers else None
        if tried is not None:
            peeked = self._peek(g, i, position, tried, done)
            if peeked is not None:
                done, may_wait = peeked, False
        changes = self._activity.changes
        policy = self._activity.policy
        if policy is not None and may_wait and not done.all() and g.timed_out != ~changes and policy.gives_up():
            g.timed_out = changes
        if not may_wait or done.all() or g.timed_out == changes:
            if g.timed_out == changes:
                g.timed_out = ~changes
            g.ready, g.waits_for = None, None
            if done.all():
                self._note_waits(position, phase)
                if self._seen_by:
                    self._note_threads(g, position, phase)
            self._tell_try(MbarrierWait, g, i, address, position, done, tried)
            return _TRUE if done.all() else done
        if self._activity.is_stuck:
            self._tell_try(MbarrierBlocked, g, i, address, position, done, tried)
        g.ready = done
        g.waits_for = lambda: self._awaited(position, state, parity)
        return None

    def phases(self, g: Group, i: Instruction, offset: int, slots: Array) -> list[int]:
        """Return the current phases of the objects of some CTAs at an offset."""
        found: list[int] = self._object(g, i, offset, slots).phase[slots].tolist()
        return found

    def follow(self, offset: int) -> None:
        """Note from now on which threads wait for which phases of the objects at an offset."""
        if offset not in self._seen_by:
            self._seen_by[offset] = np.full((self._slots, self._threads), -1, np.int64)

    def has_seen(self, offset: int, slot: int, thread: int, phase: int) -> bool:
        """Return whether a thread of a CTA has waited for a phase, or a later one, of an object that is followed."""
        seen = self._seen_by.get(offset)
        return seen is not None and bool(seen[slot, thread] >= phase)

    def _note_threads(self, g: Group, position: Array, phase: Array) -> None:
        """Note the threads that have waited for phases before these."""
        shape = g.ctas.count, g.threads.count
        offsets, passed = (np.broadcast_to(x, shape) for x in (position % self._memory.slot_bytes, phase - 1))
        at = np.ix_(g.ctas.slots, g.threads.ids)
        for offset, seen in self._seen_by.items():
            seen[at] = np.where(offsets == offset, passed, seen[at])

    def _note_waits(self, position: Array, phase: Array) -> None:
        """Note at which objects waits have passed, in the phases that these are in."""
        slots, offsets = np.divmod(position, self._memory.slot_bytes)
        for offset in np.unique(offsets).tolist() if offsets.size > 1 else offsets.flat:
            here = offsets == offset
            self._objects[int(offset)].passed[slots[here]] = phase[here] - 1

    def _check_state(self, g: Group, i: Instruction, position: Array, state: Array, phase: Array) -> None:
        """Refuse a state that a wait cannot take: too old, or of something else."""
        is_own, since = (
            states.is_of(state, self._read(g, i, position, self._numbers)),
            states.phases_since(state, phase),
        )
        is_valid = is_own & (since >= 0) & (since <= 1)
        if is_valid.all():
            return
        shape = is_valid.shape
        at = np.unravel_index(int((~is_valid).argmax()), shape)
        offset = int(np.broadcast_to(position, shape)[at]) % self._memory.slot_bytes
        value, now, old, own = (np.broadcast_to(x, shape)[at].item() for x in (state, phase, since, is_own))
        names = {at: self._name(at) for at in (offset, states.offset_in(value)) if at in self._objects}
        wrong = states.said_of(value, offset, names, now, old if own else -1)
        fix = Diagnosis("state-of-last-arrival")
        raise self._wrong(g, i, offset, wrong, fix, after="arrive")

    def _peek(self, g: Group, i: Instruction, position: Array, phase: Array, done: Array) -> Array | None:
        """Return where a try succeeds that may fail for a thread without the order; None if it is no such try."""
        asked = [observer for observer in self._activity.observers if i.index in observer.peeks]
        if not asked:
            return None
        slots, offsets = np.divmod(np.broadcast_to(position, (g.ctas.count, g.threads.count)), self._memory.slot_bytes)
        phases, result = np.broadcast_to(phase, slots.shape), np.zeros(slots.shape, bool)
        if (offsets == offsets[0, 0]).all() and (phases == phases[:, :1]).all():
            for observer in asked:
                knows = observer.knows_complete(int(offsets[0, 0]), slots, phases, g.ctas, g.threads)
                result |= knows & done
        return result

    def _tell_try(
        self,
        kind: type[MbarrierTry],
        g: Group,
        i: Instruction,
        address: Array,
        position: Array,
        done: Array,
        tried: Array | None,
    ) -> None:
        """Tell observers, if there are any, of tries: the phases that they are for, and which of them are complete."""
        if tried is None:
            return
        slot_bytes = self._memory.slot_bytes
        offsets, seen = position % slot_bytes, np.where(done, tried, -2)
        for offset in np.unique(offsets).tolist():
            slots = np.unique(position[offsets == offset] // slot_bytes)
            state, lanes, of = self._seen(offset, slots, g, i, address)
            about = i, lanes.ctas, lanes.threads, state, of, self._activity.completing
            self._activity.tell(kind(*about, lanes.values(seen), lanes.values(tried)))

    def _seen(
        self, offset: int, slots: Array, g: Group, i: Instruction, address: Array | None
    ) -> tuple[BarrierState, PickedLanes, Array | None]:
        """Return the observers' view of the objects at an offset: their state, the lanes, and the CTA each addresses.

        All lanes act, and none addresses an object, if `address` is None: copies do.
        """
        found, memory = self._objects[offset], self._memory
        state = BarrierState(
            offset, slots, found.phase[slots], found.pending[slots], found.count[slots], found.transactions[slots]
        )
        if address is None:
            return state, PickedLanes.of_group(g, None), None
        position = positions(memory, g, i, address)
        lanes = PickedLanes.of_group(g, position % memory.slot_bytes == offset)
        return state, lanes, lanes.values(position // memory.slot_bytes)

    def _tell_count(
        self,
        kind: Callable[..., MbarrierCount],
        offset: int,
        slots: Array,
        g: Group,
        i: Instruction,
        amounts: Array | int,
        address: Array | None,
        phases: Array,
    ) -> None:
        """Tell observers, if there are any, of an operation that counts; `phases` are those of all CTAs' objects."""
        if not self._activity.observers:
            return
        state, lanes, of = self._seen(offset, slots, g, i, address)
        amount = tuple(np.atleast_1d(amounts).tolist())
        counted = phases[slots if of is None else of]
        who = lanes.ctas, lanes.threads
        self._activity.tell(kind(i, *who, state, of, self._activity.completing, counted, amount))

    def pending_count(self, state: Array) -> Array:
        """Return the pending count that a state held."""
        return states.pending_in(state)

    def _name(self, offset: int) -> str:
        return barrier_name(offset, {at: found.done["init"].instruction for at, found in self._objects.items()})

    def _awaited(self, position: Array, state: Array, parity: bool) -> AwaitedObject:
        """Return the object of a wait, which may be at several mbarriers: the first is reported."""
        shape = np.broadcast_shapes(position.shape, state.shape)
        flat, values = (np.broadcast_to(x, shape).reshape(-1) for x in (position, state))
        offsets = flat % self._memory.slot_bytes
        _, first = np.unique(offsets, return_index=True)
        each = [
            replace(self._at(int(flat[n]), int(values[n]), parity), lanes=(offsets == offsets[n]).reshape(shape))
            for n in sorted(first.tolist())
        ]
        return replace(each[0], beside=tuple(each[1:]))

    def _at(self, where: int, value: int, parity: bool) -> AwaitedObject:
        offset, slot = where % self._memory.slot_bytes, where // self._memory.slot_bytes
        if parity:
            return self._waits.at(offset, slot, f"the phase of parity {value & 1}", value & 1)
        since = states.phases_since(np.array(value, np.uint64), self._objects[offset].phase[slot])
        wanted = f"phase {int(self._objects[offset].phase[slot] - since)}"
        return self._waits.at(offset, slot, wanted)
