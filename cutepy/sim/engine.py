"""A launch in execution: the machine with all its mechanisms, as translated code calls them.

Each mechanism is handed what it needs of the others, and no more; the schedule knows of them what `Mechanism` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import MemoryAccessError, SimulationError, TrapError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.cluster_queue import ClusterQueue
from cutepy.sim.machine.events import Fence
from cutepy.sim.machine.interleaved_schedule import InterleavedSchedule
from cutepy.sim.machine.interleaving import Interleaving
from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.machine.launch import RESERVED_SMEM_BYTES
from cutepy.sim.machine.limits import Watchdog
from cutepy.sim.machine.memory import MAX_LOCAL_BYTES, OFFSET_MASK, GlobalMemory, Memory, own_field
from cutepy.sim.machine.observer import Step
from cutepy.sim.machine.schedule import Schedule
from cutepy.sim.mechanisms.atomics import Atomics
from cutepy.sim.mechanisms.bulk_copies import BulkCopies
from cutepy.sim.mechanisms.calls import Calls
from cutepy.sim.mechanisms.clusters import Cluster
from cutepy.sim.mechanisms.cp_async import ThreadCopies
from cutepy.sim.mechanisms.heap import Heap
from cutepy.sim.mechanisms.launch_control import LaunchControl
from cutepy.sim.mechanisms.ldmatrix import MatrixAccess
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.mechanisms.mma import WarpMma
from cutepy.sim.mechanisms.named_barriers import Barriers
from cutepy.sim.mechanisms.printing import Printing
from cutepy.sim.mechanisms.register_pool import RegisterPool
from cutepy.sim.mechanisms.tcgen05 import TensorCore
from cutepy.sim.mechanisms.tensor_maps import TensorMaps
from cutepy.sim.mechanisms.tma import TensorCopies
from cutepy.sim.mechanisms.warp import Warp
from cutepy.sim.mechanisms.wgmma.issue import Wgmma
from cutepy.sim.mechanisms.wide_atomics import WideAtomics
from cutepy.sim.mechanisms.wmma import Wmma
from cutepy.sim.ptx.instruction_set import CLASSES
from cutepy.sim.translate.unknown_forms import InstructionNamed

if TYPE_CHECKING:
    from cutepy.sim.machine.events import CompletionPolicy
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.machine.observer import Observer
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate import Program


class _Symbols(dict[str, Array]):
    """The addresses of variables and parameters."""

    def __missing__(self, name: str) -> Array:
        raise SimulationError(
            f"{name} has no address here: it is defined in another module, or is a texture or a surface, which are "
            "not simulated"
        )


class Engine:
    """One launch in execution: the object that translated code calls ``m``.

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
        Observers of lanes before an instruction: those that the program was translated with.
    exact_mma : bool
        True if wgmma sums as the hardware does, bit for bit.
    watchdog : Watchdog, optional
        Stops the launch at its limit.
    clusters : ClusterQueue, optional
        The waves of the launch, which launch control takes clusters from; without, it refuses.

    Attributes
    ----------
    activity : Activity
    memory : Memory
    schedule : Schedule
    begun, to_come : float
        Waves of CTAs that have begun, and the expected number of waves that this process still runs, with the rest of
        the current wave.
    interruptions : int
        Number of times that work of others ran between two turns of the launch.
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
        watchdog: Watchdog | None = None,
        clusters: ClusterQueue | None = None,
    ) -> None:
        self.program, self.launch = program, launch
        self._stops = stops
        self.activity = activity = Activity(observers, policy)
        whole = program.linked
        local_bytes = MAX_LOCAL_BYTES if whole.is_deep else whole.frame_bytes
        self.memory = memory = Memory(activity, known, launch.slot_bytes, local_bytes)
        self.barriers = Barriers(activity)
        self.mbarriers = mbarriers = Mbarriers(activity, memory)
        self.cluster = Cluster(activity, memory, mbarriers)
        self.warp = Warp(activity)
        self.atomics = Atomics(activity, memory, mbarriers)
        self.wide_atomics = WideAtomics(activity, memory)
        self.heap = Heap(activity, memory, launch.module_memory)
        self.copies = ThreadCopies(activity, memory, mbarriers)
        self.bulk = BulkCopies(activity, memory, mbarriers)
        self.tensormaps = TensorMaps(activity, memory)
        self.tma = TensorCopies(activity, memory, mbarriers, self.tensormaps, self.bulk)
        self.matrix = MatrixAccess(activity, memory)
        self.mma = WarpMma()
        self.wmma = Wmma(activity, memory)
        self.wgmma = Wgmma(activity, memory, program, exact_mma)
        self.tcgen05 = TensorCore(activity, memory, mbarriers, whole.target.number)
        self.clusters = clusters or ClusterQueue((), 1)
        self.launch_control = LaunchControl(activity, memory, mbarriers, self.clusters)
        self.printing = Printing(activity, memory)
        self.registers = registers = RegisterPool(activity, program.function)
        of_threads = self.wgmma, self.barriers, mbarriers, self.cluster, registers
        mechanisms = *of_threads, self.copies, self.bulk, self.tcgen05, self.launch_control
        self.schedule: Schedule
        if isinstance(policy, Interleaving):
            self.schedule = schedule = InterleavedSchedule(program, launch, activity, mechanisms, policy)
            self.pause = schedule.pause
        else:
            self.schedule = Schedule(program, launch, activity, mechanisms)
        self.schedule.watchdog = watchdog
        self.calls = Calls(program, memory, self.schedule)
        self.branch, self.gather = self.schedule.branch, self.schedule.gather
        self.uniform = _uniform_registers(launch)
        self.symbols = _Symbols(
            (name, np.array([[address]], np.uint64))
            for name, address in {**launch.symbols, **launch.parameter_addresses}.items()
        )
        memory.windows = launch.windows
        self.begun, self.to_come = 1.0, 0.5
        self.interruptions = 0
        self.native_state: Any = None  # what machine code knows of memory: see `native`
        self._parameters: dict[tuple[str, int, str], Array] = {}

    def run(self, blocks: NDArray[np.intp]) -> None:
        """Run CTAs, given by linear index, to their end.

        Parameters
        ----------
        blocks : array of int
            The CTAs that are resident together, the CTAs of a cluster next to each other.
        """
        launch = self.launch
        residents = Residents(
            launch.grid,
            launch.cluster,
            blocks,
            ranked=self.program.linked.is_ranked,
            sm_count=launch.sm_count,
            in_clusters=launch.in_clusters,
        )
        self.memory.start(residents, launch.reserved_smem[1], self.schedule.roster.threads_per_cta)
        try:
            with InstructionNamed(), np.errstate(all="ignore"):
                self.schedule.run(self, residents)
        except SimulationError as error:
            for observer in self.activity.observers:
                observer.on_error(error, ends=True)
            raise
        except KeyboardInterrupt as error:
            error.add_note("\n  ".join([f"{launch.name} was stopped; its lanes were", *self.schedule.lanes()]))
            raise
        for observer in self.activity.observers:
            observer.on_end(residents)

    # Requests of translated code.

    def parameter(self, name: str, offset: int, kind: str) -> Array:
        """Return the value of a kernel parameter."""
        key = name, offset, kind
        if key not in self._parameters:
            data = self.launch.parameters[name]
            size = np.dtype(kind).itemsize
            if not 0 <= offset <= len(data) - size:
                raise MemoryAccessError(
                    f"ld.param reads {size} bytes at [{name}{offset:+}], and the parameter {name} has {len(data)}"
                )
            self._parameters[key] = np.frombuffer(data, kind, 1, offset).reshape(1, 1)
        return self._parameters[key]

    def parameter_address(self, address: Array) -> Array:
        """Return addresses of parameters in full: code may keep 32 bits of them, which all of that space take."""
        block = self.launch.parameter_block
        assert block is not None
        base = np.uint64(block.ctypes.data)
        full: Array = base + ((address.astype(np.uint64) - base) & np.uint64(0xFFFFFFFF))
        return full

    def address_of(self, g: Group, name: str) -> Array:
        """Return the address of a variable, with the rank of the CTA if it is in shared memory."""
        address = self.symbols[name]
        is_shared = int(address[0, 0]) <= OFFSET_MASK
        return address | own_field(g.ctas).astype(np.uint64) if is_shared and g.ctas.residents.ranked else address

    def clock(self, name: str) -> Array:
        """Return a clock that advances whenever it is read, or the half of it that the name says."""
        activity = self.activity
        activity.time += 16
        if name in ("clock64", "globaltimer"):
            return np.array([[activity.time]], np.uint64)
        return np.array([[activity.time >> 32 if name.endswith("_hi") else activity.time & 0xFFFFFFFF]], np.uint32)

    def fence(self, g: Group, i: Instruction) -> None:
        """Let observers see a fence; memory is sequentially consistent here."""
        if self.activity.observers:
            self.activity.tell(Fence(i, g.ctas, g.threads))

    def trap(self, g: Group, i: Instruction) -> None:
        """Stop the launch; a failed assertion has printed its message."""
        printed = "".join(self.activity.printed).strip()
        said = f" after it printed: {printed.splitlines()[-1]}" if printed else ""
        raise TrapError(f"the kernel executed a trap{said}", i, g.describe())

    def beyond(self, g: Group, i: Instruction, index: Array, count: int) -> None:
        """Stop where the index of a branch is beyond its targets."""
        raise MemoryAccessError(
            f"the index of brx.idx must be less than its {count} targets, got {int(np.asarray(index).max())}: where it "
            "goes is undefined",
            i,
            g.describe(),
            fix=Diagnosis("index-of-branch"),
        )

    def in_part(self, g: Group, i: Instruction) -> None:
        """Note an aligned instruction that a group executes with only part of a warp or warpgroup."""
        if self.activity.observers and g.token is None and g.waits_for is None:
            self.schedule.alignment.execute(g, i)

    def stop(self, g: Group, i: Instruction) -> None:
        """Let observers look at lanes before an instruction, once if it has to wait."""
        if g.waits_for is None:
            step = Step(self.program, g, i, self.memory.now())
            for observer in self._stops[i.index]:
                observer.on_instruction(step)

    def guard(self, g: Group, i: Instruction) -> None:
        """Let observers look at lanes before the guard of an instruction at which they stop."""
        step = Step(self.program, g, i, self.memory.now())
        for observer in self._stops[i.index]:
            observer.on_guard(step)

    # Counts.

    def instructions(self) -> Counter[str]:
        """Count the instructions that warps have executed, by the first part of their opcode."""
        count: Counter[str] = Counter()
        for times, block in zip(self.schedule.executed, self.program.flow.blocks, strict=True):
            branches = [] if block.branch is None else [block.branch]
            for i in (*block.instructions, *branches) if times else ():
                count[i.parts[0]] += times
        return count

    def counts(self) -> dict[str, int]:
        """Return the counts so far, with the instructions that warps have executed by class: see `Launch.stats`."""
        by_class = dict.fromkeys(CLASSES, 0)
        for times, block in zip(self.schedule.executed, self.program.flow.blocks, strict=True):
            branches = [] if block.branch is None else [block.branch]
            for i in (*block.instructions, *branches) if times else ():
                by_class[i.traits.kind] += times
        named = {f"instructions_{name}": count for name, count in by_class.items()}
        return {"instructions": sum(by_class.values()), **named, **self.activity.stats}

    def absorb(self, executed: Sequence[int], stats: Mapping[str, int], text: Sequence[str]) -> None:
        """Add the counts and output of another engine, of other CTAs of the launch."""
        schedule, activity = self.schedule, self.activity
        schedule.executed = [mine + theirs for mine, theirs in zip(schedule.executed, executed, strict=True)]
        for name, count in stats.items():
            activity.stats[name] += count
        activity.printed += text


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
        "nsmid": launch.sm_count,
        "gridid": launch.number,
        "dynamic_smem_size": launch.dynamic_smem_bytes,
        # As an H200 counts: the total in blocks of 128 bytes, and the aggregate with what the system reserves.
        "total_smem_size": -(-launch.smem_bytes // 128) * 128,
        "aggr_smem_size": launch.smem_bytes + RESERVED_SMEM_BYTES,
    }
    start, end = launch.reserved_smem
    at = {"begin": start, "end": end, "cap": RESERVED_SMEM_BYTES, "0": start, "1": (start + end) // 2}
    values |= {f"reserved_smem_offset_{name}": value for name, value in at.items()} | {"current_graph_exec": 0}
    workspace = 0 if launch.grid_workspace is None else launch.grid_workspace.ctypes.data
    # cooperative_groups/details/driver_abi.h takes the address of the grid's workspace from these two.
    given = {1: workspace >> 32, 2: workspace & 0xFFFFFFFF}
    values |= {f"envreg{n}": given.get(n, 0) for n in range(32)}
    return {name: np.array([[value]], np.uint32) for name, value in values.items()}
