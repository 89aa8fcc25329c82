"""The machine: resident CTAs, groups of lanes, and the deterministic schedule that runs them.

Groups take turns, each running until it has to wait. When none can go on, in this order: a pending asynchronous
operation completes; lanes whose wait is over leave those whose is not; warps that met whole go on; a try_wait times
out; time passes; lanes that met where others of their warp are missing go ahead; and if there are none either, the
kernel is deadlocked. A group that spins can't go on until something changes; warps that met go on also if others keep
them waiting for long, and lanes that nothing takes together with the rest of their warp.

References
----------
PTX ISA, "Programming Model", "PTX Machine Model".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.errors import DeadlockError, SimulationError, TrapError
from cutepy.sim.machine.deadlock import report
from cutepy.sim.machine.events import AsyncOperation, BarrierEvent, BarrierState, CompletionPolicy, Observer
from cutepy.sim.machine.gathering import check_not_crossed, gather
from cutepy.sim.machine.group import Group, Join, Part, parts_of, split
from cutepy.sim.machine.lanes import WARP, Array, Ctas, Residents, Threads
from cutepy.sim.machine.memory import MAX_LOCAL_BYTES, GlobalMemory, Memory
from cutepy.sim.machine.merging import in_whole_units, lanes_of, merge
from cutepy.sim.machine.spinning import TRUSTED_BLOCKS, Spin, leap, together
from cutepy.sim.machine.stepping import Step
from cutepy.sim.machine.traffic import Traffic
from cutepy.sim.mechanisms.atomics import Atomics
from cutepy.sim.mechanisms.bulk_copies import BulkCopies
from cutepy.sim.mechanisms.calls import Calls
from cutepy.sim.mechanisms.clusters import Cluster
from cutepy.sim.mechanisms.cp_async import ThreadCopies
from cutepy.sim.mechanisms.heap import Heap
from cutepy.sim.mechanisms.ldmatrix import MatrixAccess
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.mechanisms.mma import WarpMma
from cutepy.sim.mechanisms.named_barriers import Barriers
from cutepy.sim.mechanisms.printing import Printing
from cutepy.sim.mechanisms.tensor_maps import TensorMaps
from cutepy.sim.mechanisms.tma import TensorCopies
from cutepy.sim.mechanisms.warp import Warp
from cutepy.sim.mechanisms.wgmma import Wgmma
from cutepy.sim.mechanisms.wide_atomics import WideAtomics
from cutepy.sim.mechanisms.wmma import Wmma
from cutepy.sim.ptx.instruction_classes import CLASSES, class_of
from cutepy.sim.translate import Program
from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.linking import Callee
    from cutepy.sim.ptx.model import Instruction

PARKED = -2
DIVERGED = -3
_COUNTS = "wgmma wgmma_flops wgmma_bytes tma tma_bytes bulk bulk_bytes barrier_waits splits".split()
_TURN_BLOCKS, _IDLE_TURN_BLOCKS = 1000, 256
"""Blocks that a group runs before others get a turn, and those of a group that changes nothing but its registers."""

_PATIENCE, _LONG_TURN = 1000, 250
"""How long lanes wait for others where they meet, and how much of that a turn counts that goes on to its end: they wait
for more than a thousand blocks that change nothing, or four thousand that change something. A round without a change
counts 1.
"""


class _Symbols(dict[str, Array]):
    """The addresses of variables and parameters."""

    def __missing__(self, name: str) -> Array:
        raise SimulationError(
            f"{name} has no address here: it is defined in another module, or is a function, a texture or a surface, "
            "which are not simulated"
        )


class Machine:
    """One launch in execution.

    Parameters
    ----------
    program : Program
        The translated kernel.
    launch : Launch
    known : GlobalMemory
    observers : sequence of Observer
    policy : CompletionPolicy or None
        None completes asynchronous operations as they are issued.
    stops : mapping of int to observers
        Who sees lanes before an instruction; those that the program was translated with.
    exact_mma : bool
        Whether wgmma sums as the hardware does, bit for bit.

    Attributes
    ----------
    each_round : callable or None
        Called before each round of turns.
    """

    def __init__(
        self,
        program: Program,
        launch: Launch,
        known: GlobalMemory,
        observers: Sequence[Observer] = (),
        policy: CompletionPolicy | None = None,
        stops: Mapping[int, Sequence[Observer]] = MappingProxyType({}),
        exact_mma: bool = False,
    ) -> None:
        self.program = program
        self._stops = stops
        self._told: set[int] = set()
        self.launch = launch
        self.observers = tuple(observers)
        self.policy = policy
        self.changes = 0
        self.pending: list[AsyncOperation] = []
        self.each_round: Callable[[], None] | None = None
        self.stats = dict.fromkeys(_COUNTS, 0)
        self.traffic = Traffic(self.stats)
        self._executed = [0] * len(program.blocks)
        self._numbers = 0
        self.time = 0
        self.leapt = -1, 0
        self.waited = 0
        self.groups_ended = 0
        self._thread_sets: dict[bytes, Threads] = {}
        self._cta_sets: dict[bytes, Ctas] = {}
        self._groups: list[Group] = []
        self._joins: list[Join] = []
        whole = program.linked
        local_bytes = MAX_LOCAL_BYTES if whole.is_deep else whole.frame_bytes
        self.memory = Memory(self, known, launch.slot_bytes, local_bytes)
        self.calls = Calls(self)
        self.heap = Heap(self)
        self.atomics = Atomics(self)
        self.wide_atomics = WideAtomics(self)
        self.barriers = Barriers(self)
        self.mbarriers = Mbarriers(self)
        self.cluster = Cluster(self)
        self.warp = Warp(self)
        self.matrix = MatrixAccess(self)
        self.mma = WarpMma(self)
        self.wmma = Wmma(self)
        self.wgmma = Wgmma(self, exact_mma)
        self.tensormaps = TensorMaps(self)
        self.tma = TensorCopies(self)
        self.bulk = BulkCopies(self)
        self.copies = ThreadCopies(self)
        self.printing = Printing(self)
        self.uniform = _uniform_registers(launch)
        self.symbols = _Symbols(
            (name, np.array([[address]], np.uint64))
            for name, address in {**launch.symbols, **launch.parameter_addresses}.items()
        )
        self._parameters: dict[tuple[str, int, str], Array] = {}
        self._zeros = [np.zeros((1, 1), bool if kind == "pred" else kind) for kind in program.kinds]

    # What translated code and mechanisms ask for.

    def parameter(self, name: str, offset: int, kind: str) -> Array:
        """Return the value of a kernel parameter."""
        key = name, offset, kind
        if key not in self._parameters:
            data = self.launch.parameters[name]
            self._parameters[key] = np.frombuffer(data, kind, 1, offset).reshape(1, 1)
        return self._parameters[key]

    def parameter_address(self, address: Array) -> Array:
        """Return addresses of parameters in full: code may keep 32 bits of them, which all of that space take."""
        block = self.launch.parameter_block
        assert block is not None
        base = np.uint64(block.ctypes.data)
        full: Array = base + ((address.astype(np.uint64) - base) & np.uint64(0xFFFFFFFF))
        return full

    def clock(self, name: str) -> Array:
        """Return a clock that advances whenever it is read, or the half of it that the name says."""
        self.time += 16
        if name in ("clock64", "globaltimer"):
            return np.array([[self.time]], np.uint64)
        return np.array([[self.time >> 32 if name.endswith("_hi") else self.time & 0xFFFFFFFF]], np.uint32)

    def fence(self, g: Group, i: Instruction) -> None:
        """Let observers see a fence; memory is sequentially consistent here."""
        self.notify("fence", i.opcode, g, i)

    def trap(self, g: Group, i: Instruction) -> None:
        """Stop the launch; a failed assertion has printed what it asserted."""
        printed = "".join(self.printing.text).strip()
        said = f" after it printed: {printed.splitlines()[-1]}" if printed else ""
        raise TrapError(f"the kernel executed a trap{said}", i, g.describe())

    def notify(
        self,
        operation: str,
        barrier: str,
        g: Group,
        i: Instruction,
        amounts: Array | int | None = None,
        lanes: Array | None = None,
        state: BarrierState | None = None,
    ) -> None:
        """Tell observers of an operation on a barrier, of the lanes that `lanes`, (CTAs, threads), picks."""
        if self.observers:
            counted = () if amounts is None else tuple(np.atleast_1d(amounts).tolist())
            ctas, threads = g.ctas, g.threads
            if lanes is not None and not lanes.all():
                if lanes.shape[0] > 1:
                    ctas = Ctas(ctas.slots[lanes.any(axis=1)], ctas.residents)
                if lanes.shape[1] > 1:
                    threads = Threads(threads.ids[lanes.any(axis=0)], threads.block)
            event = BarrierEvent(operation, barrier, i, ctas, threads, counted, state)
            for observer in self.observers:
                observer.on_barrier(event)

    def stop(self, g: Group, i: Instruction) -> None:
        """Let observers look at lanes before an instruction, once if it has to wait."""
        if g.waits_for is None:
            step = Step(self, g, i)
            for observer in self._stops[i.index]:
                observer.on_instruction(step)

    def issue(self, operation: AsyncOperation) -> None:
        """Take an asynchronous operation; it completes now or later, as the policy says."""
        for observer in self.observers:
            observer.on_issue(operation)
        if self.policy is None or self.policy.completes_at_issue(operation):
            self._complete(operation)
        else:
            self.pending.append(operation)

    def complete(self, operation: AsyncOperation) -> None:
        """Complete an operation if it has not been."""
        if not operation.done:
            self.pending.remove(operation)
            self._complete(operation)

    def _complete(self, operation: AsyncOperation) -> None:
        for earlier in operation.after:
            self.complete(earlier)
        operation.done, operation.after = True, ()
        self.changes += 1
        operation.apply()
        for observer in self.observers:
            observer.on_complete(operation)

    def instructions(self) -> Counter[str]:
        """Count the instructions that warps have executed, by the first part of their opcode."""
        count: Counter[str] = Counter()
        for times, block in zip(self._executed, self.program.flow.blocks, strict=True):
            branches = [] if block.branch is None else [block.branch]
            for i in (*block.instructions, *branches) if times else ():
                count[i.parts[0]] += times
        return count

    def counts(self) -> dict[str, int]:
        """Return the counts so far, with the instructions that warps have executed by class: see `Launch.stats`."""
        by_class = dict.fromkeys(CLASSES, 0)
        for times, block in zip(self._executed, self.program.flow.blocks, strict=True):
            branches = [] if block.branch is None else [block.branch]
            for i in (*block.instructions, *branches) if times else ():
                by_class[class_of(i)] += times
        named = {f"instructions_{name}": count for name, count in by_class.items()}
        return {"instructions": sum(by_class.values()), **named, **self.stats}

    @property
    def groups(self) -> list[Group]:
        """The groups that run or wait, but for those that wait where they meet others."""
        return self._groups

    @property
    def executed(self) -> list[int]:
        """How many warps have executed each block."""
        return self._executed

    def absorb(self, executed: Sequence[int], stats: Mapping[str, int], text: Sequence[str]) -> None:
        """Add what another machine counted and printed for other CTAs of the launch."""
        self._executed = [mine + theirs for mine, theirs in zip(self._executed, executed, strict=True)]
        for name, count in stats.items():
            self.stats[name] += count
        self.printing.text += text

    def next_number(self) -> int:
        """Return the number of a new group."""
        self._numbers += 1
        return self._numbers

    def threads(self, ids: NDArray[np.intp]) -> Threads:
        """Return the set of these threads."""
        key = ids.tobytes()
        if key not in self._thread_sets:
            self._thread_sets[key] = Threads(ids, self.launch.block)
        return self._thread_sets[key]

    def gather(self, g: Group, i: Instruction, wanted: Array) -> int:
        """Bring together the lanes that a collective names; 0 if they are all here, or what its block returns."""
        found = gather(self, g, i, wanted)
        if found:
            g.gathering = g.waits_for = None
            return 0
        if found is None:
            self._executed[g.block] -= g.ctas.count * len(g.threads.warps)
        return PARKED if found is False else DIVERGED

    def ctas(self, slots: NDArray[np.intp]) -> Ctas:
        """Return the set of these slots."""
        key = slots.tobytes()
        if key not in self._cta_sets:
            self._cta_sets[key] = Ctas(slots, self.residents)
        return self._cta_sets[key]

    def branch(self, g: Group, condition: Array, taken: int, other: int, join: int) -> int:
        """Go where all lanes go, or part the group."""
        if condition.all():
            return taken
        if not condition.any():
            return other
        self._part(g, parts_of(condition, (g.ctas.count, g.threads.count), taken, other), join)
        return DIVERGED

    def _part(self, g: Group, parts: list[Part], join_block: int) -> None:
        self.stats["splits"] += 1
        children = split(self, g, parts, join_block)
        join = children[0].join
        if join is not None and join not in self._joins:
            self._joins.append(join)
        at = self._groups.index(g)
        self._groups[at : at + 1] = children

    def fresh_registers(self) -> list[Array]:
        """Return the registers of lanes that have done nothing yet."""
        return list(self._zeros)

    def block_of(self, callee: Callee) -> int:
        """Return the block where a function begins."""
        return self.program.entries[callee.start]

    def descend(self, g: Group, join: Join, children: Sequence[Group]) -> int:
        """Let a group wait for those that run what it calls."""
        self._joins.append(join)
        at = self._groups.index(g)
        self._groups[at : at + 1] = children
        return DIVERGED

    # The schedule.

    def run(self, blocks: NDArray[np.intp]) -> None:
        """Run CTAs, given by linear index, to their end.

        Parameters
        ----------
        blocks : array of int
            The CTAs that are resident together, the CTAs of a cluster next to each other.
        """
        self.residents = Residents(self.launch.grid, self.launch.cluster, blocks)
        self._cta_sets.clear()
        threads = self.launch.block[0] * self.launch.block[1] * self.launch.block[2]
        self.memory.start(len(blocks), self.launch.reserved_smem[1], threads)
        self.barriers.start(len(blocks))
        self.mbarriers.start(len(blocks))
        self.cluster.start(len(blocks), threads)
        self.threads_per_cta = threads
        self.ended = np.zeros((len(blocks), threads), bool)
        everything = self.ctas(np.arange(len(blocks)))
        self._groups = [
            Group(self.next_number(), 0, list(self._zeros), everything, self.threads(np.arange(threads)), None)
        ]
        with np.errstate(all="ignore"):
            self._schedule()
        for operation in list(self.pending):
            self.complete(operation)

    def _schedule(self) -> None:
        while self._groups:
            if self.each_round is not None:
                self.each_round()
            ran, seen = False, self.changes
            for g in list(self._groups):
                if g in self._groups and self._turn(g):
                    ran = True
            self.waited += self.changes == seen
            if not (ran or self._unblock()):
                raise DeadlockError(report(self))
            for join in self._joins[::-1]:
                if join.arrived and self.waited - join.since > _PATIENCE:
                    join.since = self.waited
                    if not self._release_whole(join) and together(self.program.flow, join.goes_on) == 1:
                        self._meet(join)

    def _turn(self, g: Group) -> bool:
        """Run a group until it waits, spins, parts, meets others or ends; tells whether it got anywhere."""
        functions = self.program.blocks
        warps = g.ctas.count * len(g.threads.warps)
        join = g.join
        stop = join.block if join is not None else EXIT
        block = start = g.block
        if block == stop and join is not None and g in join.arrived:
            return False
        if block == EXIT:
            self._leave(g)
            return True
        spin, watched = g.spin, max(0, TRUSTED_BLOCKS - g.unwatched)
        if spin is not None and spin.changes == self.changes:
            if spin.asleep:
                return False
            watched = 0
        for count in range(_TURN_BLOCKS):
            if block == stop and join is not None:
                g.block = block
                self._arrive(g, join)
                return True
            if count >= watched:
                if spin is None or spin.changes != self.changes:
                    g.spin = spin = Spin(self.changes)
                    g.unwatched, watched = 0, count + TRUSTED_BLOCKS
                elif count - watched >= _IDLE_TURN_BLOCKS:
                    break
                elif spin.repeats(self, g, block):
                    g.block = block
                    return True
            g.block = block
            self._executed[block] += warps
            block = functions[block](g, g.registers, self)
            if block < 0:
                if block == PARKED:
                    g.spin = None
                    self._executed[g.block] -= warps
                    if count > 0 or g.number not in self._told:
                        self.stats["barrier_waits"] += warps
                        self._told.add(g.number)
                        if self.observers:
                            self._tell_waiting(g)
                    return count > 0 or g.block != start
                if block == EXIT:
                    self._leave(g)
                g.unwatched += count
                return True
        g.block = block
        self.waited += _LONG_TURN
        return True

    def _tell_waiting(self, g: Group) -> None:
        """Tell observers of lanes that begin to wait."""
        i = self.program.flow.blocks[g.block].instructions[0]
        event = BarrierEvent("wait", g.waits_for() if g.waits_for else "a barrier", i, g.ctas, g.threads)
        for observer in self.observers:
            observer.on_wait(event)

    def _arrive(self, g: Group, join: Join) -> None:
        """Let a group wait where it meets the others of its join, which go on if it was the last."""
        join.arrived.append(g)
        join.since = self.waited
        self._groups.remove(g)
        if len(join.arrived) == join.expected:
            self._meet(join)

    def _meet(self, join: Join, chosen: Array | None = None) -> None:
        """Let the lanes that have met go on, or those chosen of them."""
        parts = join.arrived
        merged, join.arrived = merge(self, join, parts, chosen)
        join.expected += len(join.arrived) - len(parts)
        is_over = join.expected == 0
        if is_over and join in self._joins:
            self._joins.remove(join)
        # Until all parts have come, the parent still counts as one that is awaited where it meets others.
        outer = join.parent.join
        if outer is not None:
            outer.expected += len(merged) - is_over
        self._groups += merged

    def _release_whole(self, join: Join) -> bool:
        """Let the warps go on that have met whole, or warpgroups if one is taken together; tells if there are any."""
        wanted = lanes_of(self, [join.parent]) & ~self.ended
        unit = max(WARP, together(self.program.flow, join.goes_on))
        chosen = in_whole_units(lanes_of(self, join.arrived), wanted, unit)
        if not chosen.any():
            return False
        self._meet(join, chosen)
        return True

    def replace(self, old: Sequence[Group], new: Sequence[Group]) -> None:
        """Put groups of the same lanes, which meet others at the same place, in the place of others."""
        self._groups = [g for g in self._groups if not any(g is other for other in old)] + list(new)
        if old[0].join is not None:
            old[0].join.expected += len(new) - len(old)

    def _leave(self, g: Group) -> None:
        """End a group's lanes."""
        self._groups.remove(g)
        if g.issued or g.committed:
            self.wgmma.drain(g)
        self.barriers.leave(g)
        self.cluster.leave(g)
        self.ended[g.ctas.slots[:, None], g.threads.ids[None, :]] = True
        self.changes += 1
        self.groups_ended += 1
        self._drop(g.join)

    def _drop(self, join: Join | None) -> None:
        """Count one part less at a join, and at those around it if it was the last."""
        if join is None:
            return
        join.expected -= 1
        if join.expected == 0:
            if join in self._joins:
                self._joins.remove(join)
            self._drop(join.parent.join)
        elif len(join.arrived) == join.expected:
            self._meet(join)

    def _unblock(self) -> bool:
        """Make something possible that is not yet; tells whether there was anything."""
        if self.pending:
            assert self.policy is not None
            self.complete(self.pending[self.policy.choose(self.pending)])
            return True
        for g in list(self._groups):
            if g.ready is not None and g.ready.any() and not g.ready.all():
                ready, g.ready = g.ready, None
                block = g.block
                self._part(g, parts_of(ready, (g.ctas.count, g.threads.count), block, block), EXIT)
                return True
        for join in self._joins[::-1]:
            if join.arrived and self._release_whole(join):
                return True
        for g in self._groups:
            if g.ready is not None and g.timed_out not in (self.changes, ~self.changes):
                g.timed_out = self.changes  # negated once it is used
                return True
        return leap(self) or self._go_ahead()

    def _go_ahead(self) -> bool:
        """Let lanes that have met go on without those that can't come before; tells whether there are any."""
        for join in self._joins[::-1]:
            if join.arrived:
                check_not_crossed(self, join)
                self._meet(join)
                return True
        return False


def _uniform_registers(launch: Launch) -> dict[str, Array]:
    values: dict[str, int] = {}
    cluster = launch.cluster
    for n, axis in enumerate("xyz"):
        values[f"ntid.{axis}"] = launch.block[n]
        values[f"nctaid.{axis}"] = launch.grid[n]
        values[f"nclusterid.{axis}"] = launch.grid[n] // cluster[n]
        values[f"cluster_nctaid.{axis}"] = cluster[n]
    values |= {
        "cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
        "is_explicit_cluster": int(cluster != (1, 1, 1)),
        "nwarpid": 64,  # of the SM, not of the CTA: PTX ISA, "Special Registers: %nwarpid"
        "nsmid": 132,
        "gridid": 0,
        "dynamic_smem_size": launch.dynamic_smem_bytes,
        "total_smem_size": launch.smem_bytes,
        "aggr_smem_size": launch.smem_bytes,
    }
    start, end = launch.reserved_smem
    at = {"begin": start, "end": end, "cap": end, "0": start, "1": (start + end) // 2}
    values |= {f"reserved_smem_offset_{name}": value for name, value in at.items()} | {"current_graph_exec": 0}
    workspace = 0 if launch.grid_workspace is None else launch.grid_workspace.ctypes.data
    # cooperative_groups/details/driver_abi.h takes the address of the grid's workspace from these two.
    given = {1: workspace >> 32, 2: workspace & 0xFFFFFFFF}
    values |= {f"envreg{n}": given.get(n, 0) for n in range(32)}
    return {name: np.array([[value]], np.uint32) for name, value in values.items()}
