"""Kinds of hazards: the table of their names, one-line meanings, clauses and severities.

Reports, the documentation and what may be allowed at a line all read this table. A new kind is an entry here, a row of
its name in `sim/advice.py` and a page ``docs/hazards/NAME.md``. The check that finds it calls
``Findings.tell(NAME, ...)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cutepy.sim.advice import Diagnosis
from cutepy.text_tables import rows_of

Severity = Literal["hazard", "advisory"]
Defect = Literal["between", "before", "either", "place"]


@dataclass(frozen=True)
class Kind:
    """A kind of hazard.

    Attributes
    ----------
    name : str
        Lower case, words joined by hyphens.
    gist : str
        Definition in a line of Markdown, in lower case and without a full stop.
    section : str
        The clause that orders it otherwise: a section of the PTX ISA.
    severity : "hazard" or "advisory"
        True if a run fails by it. An advisory costs time, is repaired by the assembler, or affects no result.
    defect : "between", "before", "either" or "place"
        The place by which reports of one mistake are joined: both operations, the first operation with any second, one
        of them in any order, or the object alone with any operations.
    detail : str
        The forms in which it comes, if there are several.
    """

    name: str
    gist: str
    section: str
    severity: Severity = "hazard"
    defect: Defect = "between"
    detail: str = ""

    @property
    def meaning(self) -> str:
        """The gist, with the forms in which the kind comes."""
        return f"{self.gist}: {self.detail}" if self.detail else self.gist

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of a hazard of this kind whose check says nothing more closely."""
        return Diagnosis(self.name)

    @property
    def missing(self) -> str:
        """The text of the diagnosis."""
        return str(self.diagnosis)


_TABLE = """
repeated-init: several threads initialise or invalidate one mbarrier, or it is initialised again without
  `mbarrier.inval`
  @ Parallel Synchronization and Communication Instructions: mbarrier.init; mbarrier.inval
overwritten-mbarrier: a store, or a copy, writes over an mbarrier
  @ Parallel Synchronization and Communication Instructions: mbarrier.inval
uninitialised-mbarrier: an mbarrier operation is executed on memory that holds no mbarrier | before `mbarrier.init`,
  after `mbarrier.inval`, or elsewhere
  @ Parallel Synchronization and Communication Instructions: mbarrier.init; mbarrier.inval
missing-init-fence, before: a copy or another CTA uses an mbarrier, and no `fence.mbarrier_init`, or `fence.proxy.async`
  and a release, came after `mbarrier.init`
  @ Parallel Synchronization and Communication Instructions: membar/fence, fence.mbarrier_init
unpublished-mbarrier, before: an mbarrier is used, and nothing orders that after its mbarrier.init
  @ Parallel Synchronization and Communication Instructions: mbarrier, mbarrier.init
mixed-generation: a thread may arrive at a named or cluster barrier again before the barrier has completed its previous
  generation
  @ Parallel Synchronization and Communication Instructions: bar, barrier; barrier.cluster
mismatched-count, either: the thread count given to a named barrier differs from the number of threads that arrive |
  other threads give another count, more threads arrive, or the count is no multiple of 32
  @ Parallel Synchronization and Communication Instructions: bar, barrier
unpaired-arrival: a thread arrives at the barrier of its cluster again before it has waited, or waits and has not
  arrived
  @ Parallel Synchronization and Communication Instructions: barrier.cluster
misused-barrier, either: a barrier is used against its protocol | more arrivals than a phase of an mbarrier expects, a
  thread count or a barrier number that does not exist, a wait by the state of a phase too far back or of another
  mbarrier, an mbarrier that is loaded as data, or `st.async` with data and mbarrier in two CTAs
  @ Parallel Synchronization and Communication Instructions: mbarrier; bar, barrier; st.async; red.async
byte-count-overflow: in some order of expect_tx and copies more bytes are pending at an mbarrier than the 2^20 - 1 that
  it counts
  @ Parallel Synchronization and Communication Instructions: mbarrier, mbarrier.expect_tx
premature-completion: a phase of an mbarrier may complete without what was announced for it
  @ Parallel Synchronization and Communication Instructions: mbarrier, phase completion
early-wait: a wait at an mbarrier may begin before the phase before is over, and pass on the parity of an earlier one
  @ Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait
early-arrival: an arrival, an expect_tx or a copy may count in the phase before the one that it is meant for
  @ Parallel Synchronization and Communication Instructions: mbarrier, phase completion
lapped-wait: a phase may complete while a slow thread still waits for the one before | it hangs, or passes too late
  @ Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait
missing-wgmma-fence: registers of MMAs were used by something else, and no `wgmma.fence` came after
  @ Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence
accumulator-in-flight: on some path through the kernel an instruction uses registers that MMAs still write
  @ Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group
fragment-in-flight: an instruction writes registers of A that MMAs still read
  @ Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group
missing-proxy-fence: threads wrote bytes that a TMA store, a bulk copy or wgmma reads, in order, but without
  `fence.proxy.async` between, in the CTA of the copy
  @ Memory Consistency Model: Proxies; Async proxy
unfenced-overwrite: threads read bytes that a TMA load, a bulk copy or another write of the async proxy overwrites, in
  order, but without `fence.proxy.async` between, in the CTA that read
  @ Memory Consistency Model: Proxies; Async proxy
unmet-warps: wgmma reads A from shared memory, and each warp wrote and fenced its own 16 rows of it | no barrier of the
  warpgroup came between
  @ wgmma: Async Proxy; wgmma.mma_async; Memory Consistency Model: Causality Order
missing-tensormap-fence: a copy uses a tensor map in global memory, which the kernel, an earlier launch or the host
  wrote, and no `fence.proxy.tensormap` has shown it to copies
  @ Parallel Synchronization and Communication Instructions: membar/fence, fence.proxy.tensormap
too-narrow-scope: a flag or a counter is accessed with a scope that does not include the other thread, `.cta` between
  CTAs; or memory after an mbarrier's arrival, or global memory after its wait, with the scope `.cta`, between CTAs of a
  cluster
  @ Memory Consistency Model: Scope; Morally strong operations
partial-overlap: bytes are accessed by two threads with strong accesses of different sizes, such as a flag of 4 bytes
  that another thread reads with its neighbour as 8, and nothing else orders them
  @ Memory Consistency Model: Morally strong operations; Limitations on Mixed-size Data-races
too-weak-semantics: an arrival or a wait at a barrier, or a flag in memory, that should show what came before is
  `.relaxed`, with no `fence.acq_rel` beside it
  @ Memory Consistency Model: Release and Acquire Patterns; mbarrier.arrive, mbarrier.try_wait
early-access: a kernel of a programmatic dependent launch touches what the kernel before it, or one further back, may
  still write or read
  @ Parallel Synchronization and Communication Instructions: griddepcontrol
non-coherent-read: a load through the cache that is not coherent (`ld.global.nc`) reads what the same launch writes
  @ Data Movement and Conversion Instructions: ld.global.nc
unordered-read: a read is not ordered after the write of the same bytes | no barrier between threads, no wait for the
  mbarrier of a TMA or bulk copy, no `cp.async.wait_group`, no release that the other CTA acquires, no event between two
  streams
  @ Memory Consistency Model: Causality Order; Data-Races
unordered-write: a write is not ordered after an earlier read or write of the same bytes | a stage released before
  `wgmma.wait_group`, shared memory reused before `cp.async.bulk.wait_group.read`
  @ Memory Consistency Model: Causality Order; Data-Races
layout-mismatch: a TMA load wrote bytes through another swizzle than MMAs or a TMA store read them, or MMAs read them in
  rows of another length or across the rows of their swizzle | by the other major, or by strides that are no patterns;
  or MMAs walk out of a tile, into the other operand's or the next one of its tensor
  @ Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout; Tensors: Swizzling Modes
uninitialised-read: a read of shared memory that nothing has written since the CTA began, of global memory that nothing
  has written since it was allocated, or since `discard`, or of registers and local memory of a thread that nothing has
  written
  @ State Spaces, Types, and Variables: Shared State Space, Global State Space
uneven-bytes: a CTA ends, and an mbarrier has bytes pending that no copy brings, or got bytes that no `expect_tx`
  announced
  @ Parallel Synchronization and Communication Instructions: mbarrier, Tracking asynchronous operations
partial-warp, either: some lanes of a warp execute an instruction that is `.aligned`, such as `bar.sync`, `ldmatrix` or
  `mma`, and others do not; or lanes of a warp are at two barriers of the CTA, and wait for each other
  @ Parallel Synchronization and Communication Instructions: bar, barrier; barrier.cluster; Warp Level Matrix
  Instructions
partial-warpgroup, either: some warps of a warpgroup execute `setmaxnreg`, or an instruction of `wgmma`, and others do
  not
  @ Miscellaneous Instructions: setmaxnreg; Asynchronous Warpgroup Level Matrix Instructions
mismatched-mask, either: a `.sync` instruction of a warp is executed by a lane that its mask lacks, or its mask names a
  lane that is elsewhere or gives another mask
  @ Data Movement and Conversion Instructions: shfl.sync; Parallel Synchronization and Communication Instructions:
  vote.sync, match.sync, redux.sync, elect.sync, bar.warp.sync
undefined-shuffle, either: a shuffle reads from a lane that its mask lacks, or that has ended
  @ Data Movement and Conversion Instructions: shfl.sync
exhausted-registers, either: a `setmaxnreg.inc` asks for more registers than are free, and no warpgroup gives any back,
  or none would if others were served first
  @ Miscellaneous Instructions: setmaxnreg
misused-setmaxnreg, either: a `setmaxnreg.inc` names fewer registers than a warp has, a `.dec` more, or a warp comes to
  a second `setmaxnreg` while another one of its warpgroup may not have come to the first
  @ Miscellaneous Instructions: setmaxnreg
invalid-access, either: an access is outside of the memory that the kernel may access | out of range, freed, or at an
  address that is not aligned; or a `cp.async` takes more bytes than it copies
  @ Instruction Operands: Addresses as Operands; Data Movement and Conversion Instructions
invalid-descriptor, either: the hardware refuses a tensor map or a matrix descriptor, or reads it otherwise, or it
  differs between threads of a warpgroup
  @ Tensors: Tensor-map; Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor
unstarted-peer: a CTA accesses the shared memory of another CTA, and nothing orders that after the other CTA starts
  @ State Spaces, Types, and Variables: Shared State Space; Parallel Synchronization and Communication Instructions:
  barrier.cluster
exited-peer: a CTA accesses the shared memory of another CTA, or arrives at its mbarrier, and nothing orders that before
  the other CTA ends
  @ State Spaces, Types, and Variables: Shared State Space; Parallel Synchronization and Communication Instructions:
  barrier.cluster
in-flight-at-exit: a CTA ends while a copy reads or writes its shared memory, or MMAs read it
  @ Data Movement and Conversion Instructions: cp.async.bulk.wait_group, cp.async.wait_group
deadlock, place: threads wait, and nothing can end their wait | for arrivals that no thread makes, at a barrier that
  other threads do not reach, or in a loop on memory that no thread writes any more
  @ Parallel Synchronization and Communication Instructions: bar, barrier; barrier.cluster; mbarrier.try_wait
discarded-read, advisory: a read of shared memory that nothing has written, where the launch writes the same for all
  values there; or a load that races, where its lane stores nothing that depends on it
  @ State Spaces, Types, and Variables: Shared State Space
undefined-output, advisory: a kernel stores bytes without a value to global memory, such as padding of a structure
  @ State Spaces, Types, and Variables: Local State Space
type-mismatch, advisory: a tensor map and the MMAs give the same elements two types, such as `f16` and `bf16`
  @ Tensors; Asynchronous Warpgroup Level Matrix Instructions: Data-types
injected-wgmma-fence, advisory: a `wgmma.fence` is missing, and the assembler inserts it | a hazard by the ISA, not on
  this hardware
  @ Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence
injected-wgmma-wait, advisory: an instruction uses registers that MMAs still write, and the assembler inserts a wait
  before it | nothing overlaps there
  @ Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group
missing-tensor-fence, advisory: two threads use tensor memory in order, without `tcgen05.fence::before_thread_sync`
  before the first one's arrival, or `::after_thread_sync` after the second one's wait
  @ TensorCore 5th Generation Family Instructions: tcgen05 Memory Consistency Model, Specialized Inter-thread
  Synchronization; tcgen05.fence
unwaited-tensor-load, advisory: columns of tensor memory are written again after a `tcgen05.ld` whose registers were
  read, and no `tcgen05.wait::ld` came between
  @ TensorCore 5th Generation Family Instructions: tcgen05 Memory Consistency Model, Register dependencies
serialised-wgmma, advisory: the assembler makes each MMA wait for the previous one, because of accesses to their
  registers or a lack of registers
  @ Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async
spilled-registers, advisory: a kernel keeps values in local memory for want of registers
  @ State Spaces, Types, and Variables: Local State Space
ignored-setmaxnreg, advisory: the assembler ignores `setmaxnreg`, as the kernel doesn't say how many registers a thread
  begins with
  @ Miscellaneous Instructions: setmaxnreg
"""
"""Rows ``NAME, severity, defect: gist | detail @ section``, of which severity, defect and detail may be missing.

A hazard whose defect is between two operations has neither.
"""


def _read(table: str) -> dict[str, Kind]:
    """Read the kinds of the table."""
    found = {}
    for row in rows_of(table):
        names, _, told = row.partition(": ")
        name, *traits = names.split(", ")
        assert {*traits} <= {*get_args(Severity), *get_args(Defect)}, row
        texts, _, section = told.partition(" @ ")
        gist, _, detail = texts.partition(" | ")
        defect: Defect = next((each for each in get_args(Defect) if each in traits), "between")
        found[name] = Kind(name, gist, section, "advisory" if "advisory" in traits else "hazard", defect, detail)
    return found


KINDS = _read(_TABLE)
"""By name, causes before what follows from them."""
RACES = frozenset(("unordered-read", "unordered-write"))
"""Kinds of two accesses without an order; the direction depends on the access that comes first."""
