"""The sanitizer's observer: synchronisation updates the vector clocks, accesses are checked in shadow memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, ParamSpec

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import REGISTERS, Place
from cutepy.sim.machine.events import BLOCKED, Fence, MbarrierTry, NamedBarrierPartialArrive
from cutepy.sim.machine.host_events import HostAccess, HostEvent, StreamEvent
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.machine.observer import Observer, stops
from cutepy.sim.ptx.memory_order import WEAK, fenced_spaces, strength
from cutepy.sim.ptx.model import Register
from cutepy.sim.ptx.source_lines import line_of
from cutepy.sim.sanitize.byte_layouts.layouts import AccessLayout, of_map
from cutepy.sim.sanitize.certificate.examiner import Examiner
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.memory.access_record import AccessRecord, Conflict
from cutepy.sim.sanitize.memory.global_accesses import GlobalAccesses
from cutepy.sim.sanitize.memory.shadow import granule_bytes
from cutepy.sim.sanitize.memory.shared_accesses import SharedAccesses
from cutepy.sim.sanitize.memory.tensor_memory import Lack, TensorRecord, TensorShadow, first_thread, place_of
from cutepy.sim.sanitize.order.collectives import ALL_LANES, arrives_relaxed, is_collective
from cutepy.sim.sanitize.order.cta_ends import ends, uneven
from cutepy.sim.sanitize.order.flags import Flags
from cutepy.sim.sanitize.order.launches import Launches
from cutepy.sim.sanitize.order.messages import Messages
from cutepy.sim.sanitize.order.published import observers
from cutepy.sim.sanitize.order.synchronisation import converge, overlook, synchronise
from cutepy.sim.sanitize.order.tries import is_try
from cutepy.sim.sanitize.order.wave import BULK, COPIES, FAILED, MMAS, IssuedOperation, Wave
from cutepy.sim.sanitize.registers import register_hazards
from cutepy.sim.sanitize.repairs import MADE_GOOD, judged, remarks
from cutepy.sim.sanitize.reports.findings import Findings
from cutepy.sim.sanitize.reports.global_memory import GlobalFindings
from cutepy.sim.sanitize.reports.last_writers import with_last_writer
from cutepy.sim.sanitize.reports.mistakes import hazard_of, part_of_a_unit
from cutepy.sim.sanitize.reports.near_misses import (
    beside_the_end,
    global_near_misses,
    groups_of_one_barrier,
    near_misses,
)
from cutepy.sim.sanitize.reports.reasons import reason
from cutepy.sim.sanitize.reports.scene import SceneRecorder
from cutepy.sim.sanitize.tensor_loads import ended_by_use
from cutepy.sim.sanitize.undefined import PADDING, UndefinedUse, UndefinedValues, is_copied, is_used, loaded_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cutepy.sim.errors import SimulationError
    from cutepy.sim.machine.events import (
        Access,
        AsyncOperation,
        BarrierEvent,
        CancelRequest,
        LocalCopy,
        PartialUnit,
        TensorMemoryAccess,
        TensorMemoryAllocation,
        TmaEvent,
        WgmmaEvent,
    )
    from cutepy.sim.machine.lanes import Array, Ctas, Residents, Threads
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Function, Instruction
    from cutepy.sim.sanitize.certificate.certificates import Certificate
    from cutepy.sim.sanitize.certificate.violations import Violation
    from cutepy.sim.sanitize.hazards import Hazard, NearMiss
    from cutepy.sim.sanitize.memory.global_access_record import GlobalConflict
    from cutepy.sim.sanitize.order.cta_ends import EndHazard
    from cutepy.sim.sanitize.reports.collection import Hazards
    from cutepy.sim.sanitize.reports.mistakes import MistakeHazard
    from cutepy.sim.sanitize.reports.reasons import Reason


_Told = ParamSpec("_Told")
_ASSEMBLED = "ptxas puts each wgmma.fence and each wait for MMAs that is missing, as the advisories say"
_ALLOCATED = "tcgen05.alloc gives the columns that it gave here, and comes to an end: CTAs of one SM free theirs"
_PERMIT = Place("permit to allocate tensor memory")
_IN_ORDER = (
    "MMAs, copies and shifts of tensor memory take effect in the order in which a thread issues them, which the PTX "
    "ISA leaves open of pairs such as"
)
_COMMITS_IN_ORDER = "with a commit that is waited for those before it, and of the same operations, arrive too"
_BY_THE_LETTER = "tensor memory needs no tcgen05.fence and tcgen05.wait::ld where the advisories miss them"
_NO_VALUE = "it leaves bytes of global memory without a value"
_FORGOTTEN = "64 touches of one place in memory are in no order with each other, and those before are forgotten"


class Sanitizer(Observer):
    """Finds accesses that no happens-before orders.

    Parameters
    ----------
    known : callable
        Returns the global memory that kernels may touch.
    allow : mapping of str to str, optional
        Kinds of hazards that are allowed, and why.

    Attributes
    ----------
    observers : tuple of Observer
        Observers of a run: this one, after the observer that names are read from.
    """

    def __init__(self, known: Callable[[], GlobalMemory], allow: Mapping[str, str] | None = None) -> None:
        self._allow, self._surroundings = allow, SceneRecorder()
        self.observers: tuple[Observer, ...] = (self._surroundings, self)
        self._findings = Findings(self._surroundings, allow)
        self._known, self._launches, self._messages, self._flags = known, Launches(), Messages(), Flags()
        self._of_global = GlobalFindings(
            lambda *told, **with_more: self._findings.tell(*told, **with_more),  # `restart` begins with new ones
            self._launches,
            self._flags,
            known,
            self._near_in_global,
        )
        self._examiner = Examiner(self._violated)
        self._polled: Access | None = None  # the last event, if it is a strong read, of which there was nothing to tell
        self._has_told = False
        of_global = self._of_global
        told = self._telling(of_global.conflict), self._telling(of_global.unwritten), self._forgotten
        unacquired = self._telling(of_global.unacquired)
        self._global = GlobalAccesses(self._launches, self._messages, known, *told, unacquired, self._examiner.assume)
        self._launch: Launch | None = None
        self._wave: Wave | None = None
        self._through: dict[int, AccessLayout | None] = {}
        self._mistakes: set[tuple[str, str]] = set()  # of the launch, by kind and barrier
        self._undefined = UndefinedValues()
        self._waits = False
        self._ends_loads: dict[int, frozenset[int]] = {}
        self._spinning: Array = np.zeros((0, 0), bool)
        self._reasons: dict[tuple[int, int, str], tuple[Reason | None, tuple[NearMiss, ...]]] = {}
        self._near: dict[tuple[int, int, str], tuple[NearMiss, ...]] = {}  # of conflicts in global memory

    def fresh(self) -> Sanitizer:
        """Return one that allows the same, and knows of no launch."""
        return Sanitizer(self._known, self._allow)

    def withdraw(self, launch: Launch, reason: str) -> None:
        """Withdraw the certificate of a launch, because another schedule gave another result."""
        self._examiner.withdraw(launch, reason)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Certificates of the launches that have ended."""
        self._finish()
        return tuple(self._examiner.certificates)

    @property
    def peeks(self) -> frozenset[int]:  # type: ignore[override]
        """The tries of the kernel that a wait follows where they fail."""
        return self._examiner.peeks

    @property
    def hazards(self) -> Hazards:
        """Hazards found, each pair of lines once, the likeliest causes first."""
        self._of_global.tell_held(is_over=False)
        return self._findings.hazards

    @property
    def unwritten_reads(self) -> list[Hazard]:
        """The reads of shared memory that nothing wrote which the last launch was the first to have."""
        return self._findings.unwritten_reads

    def explain_unwritten(self, read: Hazard, found: Hazard) -> None:
        """Report a read of unwritten memory as the hazard that another schedule shows."""
        self._findings.explain(read, found)

    def discard_unwritten(self) -> None:
        """Note that no result of the last launch depends on its unwritten reads."""
        self._findings.discard_unwritten()

    def _finish(self) -> None:
        """End a launch, if there is one: of loads that race and that are still held, anything may have come."""
        self._of_global.tell_held(is_over=False)
        self._examiner.finish(self._findings.of_launch)

    def restart(self) -> None:
        """Discard all findings except the certificates of launches that ended."""
        self._finish()
        self._findings = Findings(self._surroundings, self._allow)

    # Launches and waves.

    def on_launch(self, launch: Launch) -> None:
        """Begin with a launch."""
        self._finish()
        self._launch, self._wave, self._reasons, self._near, self._polled = launch, None, {}, {}, None
        self._mistakes.clear()
        self._findings.begin(launch)
        own = stops(launch.entry.function, (self,))
        program = launch.entry.program(frozenset(own))
        self._examiner.begin(launch, program)
        found = judged(launch.entry, register_hazards(program.flow), program.flow)
        for hazard in found:
            self._findings.registers(hazard)
            if hazard.kind in MADE_GOOD:
                self._examiner.assume(_ASSEMBLED)
        for remark in remarks(launch.entry):
            self._findings.tell(*remark)
        is_alone = self._global.begin(launch, self._examiner.elections)
        self._messages.begin(self._launches.now, launch, self._launches.before, is_alone)
        self._flags.begin(self._messages.launch, is_observed=bool(observers(launch.entry)))
        self._of_global.begin(launch, program.function, self._examiner.is_steered)
        self._granule, self._slot_bytes = granule_bytes(launch.entry), launch.slot_bytes

    def _of(self, residents: Residents) -> Wave:
        wave = self._wave
        if wave is None or wave.residents is not residents:
            assert self._launch is not None
            x, y, z = self._launch.block
            instructions = self._launch.entry.instructions
            has_relaxed = any(map(arrives_relaxed, instructions))
            fences = {fenced_spaces(i.opcode) for i in instructions if i.traits.fences} - {frozenset()}
            ends_mbarriers = any(i.traits.ends_mbarrier for i in instructions)
            wave = self._wave = Wave(residents, x * y * z, ends_mbarriers, has_relaxed, fences)
            told = self._telling(self._conflict), self._telling(self._unwritten), self._needed
            more = self._telling(self._findings.tell), self._forgotten, self._telling(self._filled)
            elections = self._examiner.elections
            self._shared = SharedAccesses(wave, self._granule, self._slot_bytes, elections, *told, *more)
            self._tensor = TensorShadow(wave, self._telling(self._in_tensor_memory), self._of_tensor_order)
            self._premises = self._examiner.premises(wave)
        return wave

    def on_end(self, residents: Residents) -> None:
        """Check operations in flight on shared memory, and the results of racing loads, when CTAs end."""
        wave = self._of(residents)
        self._of_global.tell_held(is_over=True)
        self._examiner.leave(self._premises)
        self._tell(ends(wave, np.arange(residents.count)))
        if wave.peers.rests_on_order:
            self._examiner.assume(_COMMITS_IN_ORDER)
        self._tell(uneven(wave))

    def _tell(self, found: Iterable[EndHazard]) -> None:
        for end in found:
            near = self._near_the_end(end)
            self._findings.tell(*end[:-1], cause=end.cause, near_misses=near)

    def _near_the_end(self, end: EndHazard) -> tuple[NearMiss, ...]:
        """Return the wait that looks as if it ended the operations in flight."""
        before, i = end.before, None if end.before is None else end.before.instruction
        if end.kind != "in-flight-at-exit" or before is None or before.cta is None or i is None or self._wave is None:
            return ()
        kind = MMAS if i.traits.kind == "wgmma" else BULK if i.traits.is_bulk else COPIES
        slot = self._wave.residents.slot_of(before.cta)
        return () if slot is None else beside_the_end(self._wave, kind, slot, before)

    def on_error(self, error: SimulationError, *, ends: bool) -> bool:
        """Report an error of the kernel: the launch may go on, if it can."""
        for mistake in error.mistakes:
            found = self._in_memory(hazard_of(mistake, ends=ends))
            self._mistakes |= {(found.kind, where) for where in (found.place.name, *(wait.at for wait in found.waits))}
            address, size = found.place.address, found.place.size_bytes
            self._findings.tell(*found[:5], address, size, waits=found.waits, near_misses=found.near_misses)
            self._findings.relate(found)
        return bool(error.mistakes)

    def _in_memory(self, found: MistakeHazard) -> MistakeHazard:
        """Name the memory that a loop waits for, and its last writer."""
        if self._wave is None:
            return found
        of = self._wave.residents, self._spinning, self._shared
        return with_last_writer(found, *of, self._of_global, self._global.shadow)

    def on_deadlock(self, ended: Array, spinning: Array) -> list[str]:
        """Tell whether every schedule deadlocks."""
        self._of_global.tell_held(is_over=False)
        self._spinning = spinning
        if self._wave is not None:
            self._premises.check_stuck(spinning)
            ended_ctas = np.flatnonzero(ended.all(axis=1))
            self._premises.stick(ended_ctas)
            self._tell(ends(self._wave, ended_ctas))
        verdict = self._examiner.verdict(self._findings.of_launch)
        if self._wave is not None:
            self._tell(uneven(self._wave))
        return [verdict]

    # Accesses.

    def on_access(self, access: Access) -> None:
        """Check an access to shared or global memory."""
        self._of_global.note(access)
        self._tell_lacking(access.instruction, self._undefined.access(access))
        if access.space == "local":
            return
        if access.instruction.traits.kind == "wgmma":
            return
        wave = self._of(access.ctas.residents)
        self._examiner.access(wave.clocks, access)
        if self._polled is not None and _is_repeated(access, self._polled):
            return
        self._polled, self._has_told = None, False
        if access.proxy == "async" and access.part_of is not None:
            issued = wave.issued[id(access.part_of)]
            if access.space == "shared" and access.part_of.kind in ("tma_store", "bulk_store"):
                self._shared.took(access.part_of, issued, [access])  # it may write much later
            else:
                (issued.runs if access.space == "global" else issued.accesses).append(access)
            return
        self._messages.before(wave, access)
        if access.space == "global":
            self._global.access(wave, access)
        else:
            self._shared.access(access)
        self._messages.after(wave, access)
        self._flags.see(wave, access, self._messages)
        is_poll = access.operation == "read" and strength(access.instruction.opcode).scope > WEAK
        if is_poll and not self._has_told:
            self._polled = access

    def on_accesses(self, accesses: Sequence[Access]) -> None:
        """Check weak loads of the same lanes, which leave no messages, raise no flags, and write no tensor maps."""
        wave = self._of(accesses[0].ctas.residents)
        self._polled, self._has_told = None, False
        for access in accesses:
            self._tell_lacking(access.instruction, self._undefined.access(access))
            for election in self._examiner.elections:
                election.access(wave.clocks, access)
        for space, found in groupby(accesses, lambda access: access.space):
            if space == "shared":
                self._shared.loads(list(found))
            else:
                for access in found:
                    self._global.access(wave, access)

    def on_local_copy(self, copy: LocalCopy) -> None:
        """Follow arguments and results of calls that have no value."""
        self._undefined.copy(copy)

    def _telling(self, tell: Callable[_Told, None]) -> Callable[_Told, None]:
        """Return a callback that also notes that an access had something to tell: each time counts, if it is polled."""

        def telling(*what: _Told.args, **named: _Told.kwargs) -> None:
            self._has_told = True
            tell(*what, **named)

        return telling

    def on_wgmma(self, event: WgmmaEvent) -> None:
        """Check the reads of an MMA from shared memory."""
        self._polled = None
        self._of(event.ctas.residents)
        self._shared.wgmma(event)

    def _tell_undefined(
        self,
        what: str,
        who: Threads,
        i: Instruction,
        diagnosis: Diagnosis,
        address: int | None = None,
        kind: str = "uninitialised-read",
    ) -> None:
        """Report a use of an undefined value; at an address of shared memory it may be harmless: see `replay`."""
        where = REGISTERS if address is None else Place.of_shared(address)
        warp = int(who.ids[0]) // WARP if who.count == 1 else None
        side = Side(what, who.describe(), i, warp=warp, of_warps=True)
        self._findings.tell(kind, where, None, side, diagnosis, address)

    def on_tensor_memory(self, access: TensorMemoryAccess) -> None:
        """Check an access to tensor memory."""
        self._polled = None
        self._of(access.ctas.residents)
        self._tensor.access(access, self._undefined.lacking_columns(access))
        if access.of_registers is not None and not access.writes:
            self._undefined.load_columns(access, self._tensor.unwritten(access))

    def on_tensor_allocation(self, allocation: TensorMemoryAllocation) -> None:
        """Begin anew with columns of tensor memory."""
        self._polled = None
        self._of(allocation.ctas.residents)
        self._premises.allocate(allocation)
        if allocation.instruction.traits.allocates:
            self._examiner.assume(_ALLOCATED)
            self._tensor.allocate(allocation)
        elif allocation.instruction.parts[1] == "relinquish_alloc_permit":
            new, earlier = self._tensor.give_up(allocation)
            for old in earlier:
                sides = self._tensor_side(old), self._tensor_side(new)
                self._findings.tell("unordered-write", _PERMIT, *sides, Diagnosis("allocate-before-giving-up"))

    def _in_tensor_memory(self, old: TensorRecord | None, new: TensorRecord, slot: int, granule: int) -> None:
        """Report two accesses to tensor memory that nothing orders, or a read of unwritten tensor memory."""
        before, after = None if old is None else self._tensor_side(old), self._tensor_side(new)
        if old is None:
            self._findings.tell(
                "uninitialised-read", Place(place_of(granule)), None, after, Diagnosis("unwritten-columns")
            )
            return
        kind = "unordered-write" if new.writes else "unordered-read"
        advice = Diagnosis(
            "commit-before-use"
            if old.is_async
            else "allocate-before-use"
            if old.name == "alloc"
            else ("wait-for-stores" if old.writes else "wait-for-loads")
            if old.is_open
            else "release-after-use"
        )
        self._findings.tell(kind, Place(place_of(granule)), before, after, advice)

    def _of_tensor_order(self, lack: Lack, old: TensorRecord, new: TensorRecord, granule: int) -> None:
        """Report the operation that an order of tensor memory lacks by the ISA's letter, or assume the order."""
        if lack == "pipeline":
            said = (
                f"`{one.instruction.name}` ({line_of(one.instruction)}) that {'writes' if one.writes else 'reads'}"
                for one in (old, new)
            )
            self._examiner.assume(f"{_IN_ORDER} {' and '.join(said)}")
            return
        self._examiner.assume(_BY_THE_LETTER)
        kind = "unwaited-tensor-load" if lack == "wait" else "missing-tensor-fence"
        advice = Diagnosis(
            "tensor-memory-wait"
            if lack == "wait"
            else "tensor-memory-before"
            if lack == "before"
            else "tensor-memory-after"
        )
        sides = self._tensor_side(old), self._tensor_side(new)
        self._findings.tell(kind, Place(place_of(granule)), *sides, advice)

    def _tensor_side(self, record: TensorRecord) -> Side:
        assert self._wave is not None
        warp, lane = first_thread(record)
        cta = self._wave.residents.coordinate(record.agent)
        who = f"the tensor core for warp {warp} of CTA {cta}" if record.is_async else f"warp {warp} of CTA {cta}"
        side = Side(record.instruction.name, who, record.instruction, cta, warp, lane)
        return replace(side, is_async=record.is_async, access="write" if record.writes else "read")

    # Asynchronous operations.

    def on_cancel(self, request: CancelRequest) -> None:
        """Count clusters that do not begin."""
        self._examiner.cancel(request)

    def on_tma(self, event: TmaEvent) -> None:
        """Note the layout by which the next tensor copy writes its box, by the box's address in shared memory."""
        self._through[event.shared_address] = of_map(event.tensor_map, event.shared_address)

    def on_issue(self, operation: AsyncOperation) -> None:
        """Note the knowledge of the threads that issue an operation."""
        self._polled = None
        self._undefined.issue(operation)
        wave = self._of(operation.ctas.residents)
        slots, threads = operation.ctas.slots, operation.threads.ids
        view, place = wave.clocks.view(slots, threads)
        known = view.kept()
        issued = IssuedOperation(
            wave.clocks, slots, threads, known, place, wave.counted(operation), number=wave.steps.number
        )
        wave.issued[id(operation)] = issued
        if operation.kind in ("tma_load", "tma_store"):
            issued.through, self._through = self._through, {}
            self._global.issue(wave, operation, issued)
        wave.clocks.tick(slots, threads)  # what the threads do from now on does not come before it
        for election in self._examiner.elections:
            election.issue(operation)

    def on_complete(self, operation: AsyncOperation) -> None:
        """Check the reads and writes of an operation."""
        self._polled = None
        wave = self._of(operation.ctas.residents)
        issued = wave.issued.pop(id(operation), None)
        if issued is not None and operation.kind not in ("wgmma", "cp_async"):
            self._shared.took(operation, issued, issued.accesses)
            self._global.completed(wave, operation, issued)

    # Synchronisation.

    def on_barrier(self, event: BarrierEvent) -> None:
        """Publish the clocks of threads, and join the published ones to theirs."""
        self._polled = None
        wave = self._of(event.ctas.residents)
        if event.instruction.index in self._examiner.guesses:  # who goes on may have failed, and knows no more
            assert isinstance(event, MbarrierTry)
            overlook(wave, event)
            event = replace(event, counted=np.full_like(event.counted, FAILED))
        if "aligned" in event.instruction.parts:
            converge(wave, event.ctas.slots, event.threads.ids)
        wave.comes(event)
        self._premises.see(event)
        for election in self._examiner.elections:
            election.barrier(wave.clocks, event)
        if isinstance(event, BLOCKED):
            return
        wave.steps.note(event)
        wave.passes(event)
        is_tensor, name = event.instruction.traits.kind == "tcgen05", event.instruction.parts[1:2]
        if is_tensor and name != ("fence::after_thread_sync",):
            self._of_tensor_core(event)
        synchronise(wave, event, self._findings.tell)
        if is_tensor and name == ("fence::after_thread_sync",):  # it shows what a relaxed wait before it has seen
            self._of_tensor_core(event)
        if isinstance(event, Fence):
            self._messages.fence(wave, event)
            self._flags.fence(event)
            self._global.fence(wave, event)

    def _of_tensor_core(self, event: BarrierEvent) -> None:
        """Take waits for loads and stores, and fences of the tensor core."""
        who, name = (event.ctas.slots, event.threads.ids), event.instruction.parts[1]
        if name in ("wait::ld", "wait::st"):
            self._tensor.wait(*who, name.removeprefix("wait::"))
        elif name.startswith("fence::"):
            self._tensor.fence(*who, is_before=name == "fence::before_thread_sync")

    def on_apart(self, apart: PartialUnit) -> None:
        """Report that a part of a warp, or of a warpgroup, executed an instruction that all of it must."""
        self._findings.tell(*part_of_a_unit(apart))

    def on_begin(self, event: BarrierEvent) -> None:
        """Publish the clocks of threads that come to a barrier, and the groups that they close."""
        if not isinstance(event, NamedBarrierPartialArrive):
            self.on_barrier(event)

    def look_at(self, function: Function) -> None:
        """Find the waits whose ends must be observed."""
        self._waits = any(map(is_try, function.instructions))
        self._ends_loads = ended_by_use(function)
        self._undefined.look_at(function)

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Stop where whole warps come together, which says that their waits are over."""
        waits = self._waits and is_collective(instruction)
        return waits or instruction.index in self._ends_loads or self._undefined.stops_at(instruction)

    def on_instruction(self, step: Step) -> None:
        """Note that the waits of a warp are over, or that something has no value."""
        i = step.instruction
        self._tell_lacking(i, self._undefined.execute(step))
        if i.index in self._ends_loads and self._wave is not None and self._wave.residents is step.ctas.residents:
            self._tensor.end_by_use(step.ctas.slots, step.threads.ids, self._ends_loads[i.index])
        if self._waits and is_collective(step.instruction) and self._wave is not None:
            mask = step.instruction.operands[-1]
            is_whole = not isinstance(mask, Register) or bool((step.value(mask.index) & ALL_LANES == ALL_LANES).all())
            self._polled = None
            if is_whole and self._wave.residents is step.ctas.residents:
                converge(self._wave, step.ctas.slots, step.threads.ids)

    def on_guard(self, step: Step) -> None:
        """Report that the guard of an instruction has no value."""
        self._tell_lacking(step.instruction, self._undefined.guard(step))

    def _tell_lacking(self, i: Instruction, lacking: UndefinedUse | None) -> None:
        if lacking is not None:
            address = None if lacking.address is None else lacking.address % self._slot_bytes
            self._tell_undefined(i.parts[0], lacking.who, i, lacking.diagnosis, address, lacking.kind)
            if lacking.kind == PADDING:
                assert self._launch is not None
                self._examiner.withdraw(self._launch, _NO_VALUE)

    def knows_complete(self, address: int, slots: Array, phases: Array, ctas: Ctas, threads: Threads) -> Array:
        """Tell which lanes know that a phase of an mbarrier is complete."""
        self._of(ctas.residents)
        return self._premises.knows_complete(address, slots, phases, ctas, threads)

    # Calls of the host.

    def on_host(self, event: HostEvent) -> None:
        """Take host operations that order launches, and accesses to memory outside of kernels."""
        self._polled = None
        if isinstance(event, StreamEvent):
            self._launches.tell(event)
        elif isinstance(event, HostAccess):
            self._global.host(event)
        else:
            self._global.shadow.allocate(event.address, event.size_bytes, event.written)

    # Reports.

    def _violated(self, violation: Violation) -> None:
        if (violation.kind, str(violation.where)) not in self._mistakes:  # told as it came to pass
            has_guessed = self._wave is not None and bool(self._wave.patterns.overlooked)
            near = () if self._wave is None else groups_of_one_barrier(self._wave, *violation[:4])
            kind, where, before, after, diagnosis = violation
            if near:
                diagnosis = Diagnosis("groups-share-a-barrier", mixed=diagnosis)
            self._findings.tell(kind, where, before, after, diagnosis, follows=has_guessed, near_misses=near)

    def _near_in_global(self, found: GlobalConflict) -> tuple[NearMiss, ...]:
        """Return the near misses of a conflict in global memory: those of the first one of two instructions."""
        if self._wave is None:
            return ()
        key = found.before.instruction.index, found.after.instruction.index, found.kind
        if key not in self._near:
            self._near[key] = global_near_misses(self._wave, found)
        return self._near[key]

    def _conflict(self, found: Conflict) -> None:
        assert self._wave is not None
        assert self._launch is not None
        key = found.before.instruction.index, found.after.instruction.index, found.lacks
        if key not in self._reasons:
            code = self._launch.entry.instructions
            self._reasons[key] = reason(self._wave, self._flags, code, found), near_misses(self._wave, found)
        self._findings.conflict(found, self._wave.residents, self._granule, *self._reasons[key])

    def _forgotten(self) -> None:
        if self._launch is not None:  # else the host alone has touched anything
            self._examiner.withdraw(self._launch, _FORGOTTEN)

    def _needed(self, i: Instruction, granules: int) -> Array:
        """Mark the loaded granules of each lane whose value is used."""
        assert self._launch is not None
        into, function = loaded_into(i, granules, self._granule), self._launch.entry.function
        if into is None:
            return np.ones(granules, bool)
        return np.array([any(is_used(function, i, r) for r in registers) for registers in into])

    def _unwritten(self, touch: AccessRecord, row: int, granule: int, is_beside: bool, of_lane: Array) -> None:
        assert self._wave is not None
        assert self._launch is not None
        i, into = touch.instruction, loaded_into(touch.instruction, touch.granules.shape[-1], self._granule)
        lacking = [register for n in of_lane.tolist() for register in into[n]] if into else []
        is_padding = is_beside and is_copied(self._launch.entry.function, i, lacking)
        self._findings.unwritten(touch, row, self._wave.residents, granule * self._granule, is_padding)
        if is_padding:
            self._examiner.withdraw(self._launch, _NO_VALUE)

    def _filled(self, read: AccessRecord, write: AccessRecord, row: int, granule: int) -> None:
        assert self._wave is not None
        self._findings.filled(read, write, row, self._wave.residents, granule * self._granule)


def _is_repeated(access: Access, before: Access) -> bool:
    """Return whether an access is that before it once more: the same lanes read the same addresses again."""
    return (
        access.instruction is before.instruction
        and access.ctas.residents is before.ctas.residents
        and np.array_equal(access.ctas.slots, before.ctas.slots)
        and np.array_equal(access.threads.ids, before.threads.ids)
        and np.array_equal(access.addresses, before.addresses)
    )
