"""Kinds of hazards: the table of their names, one-line meanings, severities and missing steps.

Reports, the documentation and what may be allowed at a line all read this table. A new kind is an entry here, a page
``docs/hazards/NAME.md``, and whoever finds it calls ``Findings.tell(NAME, ...)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["hazard", "advisory"]

FIRST = "here the read came first, and nothing had written these bytes before"
"""Problem of a hazard whose read came first."""


class Diagnosis(NamedTuple):
    """Problem of a hazard, and the wanted order.

    Attributes
    ----------
    wrong : str
        Empty if the gist of the kind says it.
    wanted : str
        What there should be, and where.
    read_first : bool
        Whether the read came first in this execution, and nothing had written its bytes before.

    Examples
    --------
    >>> print(Diagnosis("the MMAs may still read it", "wgmma.wait_group must come before"))
    the MMAs may still read it: wgmma.wait_group must come before
    """

    wrong: str
    wanted: str
    read_first: bool = False

    @property
    def problem(self) -> str:
        """Return what is wrong, in this execution too."""
        return "; ".join(filter(None, (FIRST * self.read_first, self.wrong)))

    def __str__(self) -> str:
        return f"{self.problem}: {self.wanted}" if self.problem else self.wanted


@dataclass(frozen=True)
class Kind:
    """A kind of hazard.

    Attributes
    ----------
    name : str
        Lower case, words joined by hyphens.
    gist : str
        What it is, in a line: of Markdown, in lower case and without a full stop.
    wanted : str
        What there should be, and where; some findings say it more closely.
    section : str
        The clause that orders it otherwise: a section of the PTX ISA.
    severity : "hazard" or "advisory"
        Whether a run fails by it. What costs time, what the assembler repairs, or what nothing comes of is an advisory.
    defect : "between", "before", "either" or "place"
        Where the mistake is: between the two operations, at the first, whatever comes after it, at one of them, in
        whatever order they come, or at what they are at, whoever they are. One mistake is told once.
    detail : str
        The forms in which it comes, if there are several.
    wrong : str
        What is wrong, if that says more than the gist.
    """

    name: str
    gist: str
    wanted: str
    section: str
    severity: Severity = "hazard"
    defect: Literal["between", "before", "either", "place"] = "between"
    detail: str = ""
    wrong: str = ""

    @property
    def meaning(self) -> str:
        """Return what it is, with the forms in which it comes."""
        return f"{self.gist}: {self.detail}" if self.detail else self.gist

    @property
    def diagnosis(self) -> Diagnosis:
        """Return what is said of a hazard of this kind if its finding says nothing more closely."""
        return Diagnosis(self.wrong, self.wanted)

    @property
    def missing(self) -> str:
        """Return the same as text."""
        return str(self.diagnosis)


_ENTRIES = (
    Kind(
        "repeated-init",
        "an mbarrier is made, or ended, by several threads at once, or made again without `mbarrier.inval`",
        "one thread must make it, once, and mbarrier.inval must come before it is made again",
        "Parallel Synchronization and Communication Instructions: mbarrier.init; mbarrier.inval",
    ),
    Kind(
        "overwritten-mbarrier",
        "a store, or a copy, writes over an mbarrier",
        "mbarrier.inval, and a barrier, must come before its memory is used for something else",
        "Parallel Synchronization and Communication Instructions: mbarrier.inval",
    ),
    Kind(
        "uninitialised-mbarrier",
        "an mbarrier is used where there is none",
        "mbarrier.init must come before an mbarrier is used, and mbarrier.inval after its last use",
        "Parallel Synchronization and Communication Instructions: mbarrier.init; mbarrier.inval",
        detail="before `mbarrier.init`, after `mbarrier.inval`, or elsewhere",
    ),
    Kind(
        "missing-init-fence",
        "a copy or another CTA uses an mbarrier, and no `fence.mbarrier_init`, or `fence.proxy.async` and a release, "
        "came after `mbarrier.init`",
        "fence.mbarrier_init.release.cluster must come after mbarrier.init, and then a barrier",
        "Parallel Synchronization and Communication Instructions: membar/fence, fence.mbarrier_init",
        defect="before",
    ),
    Kind(
        "unpublished-mbarrier",
        "an mbarrier is used by who cannot know that it has been made",
        "a barrier that both take part in must come after mbarrier.init and before it is used",
        "Parallel Synchronization and Communication Instructions: mbarrier, mbarrier.init",
        defect="before",
    ),
    Kind(
        "mixed-generation",
        "a thread may come to a named or cluster barrier before all have come the time before",
        "between two arrivals at a barrier a thread must wait for all who came the first time",
        "Parallel Synchronization and Communication Instructions: bar, barrier; barrier.cluster",
    ),
    Kind(
        "mismatched-count",
        "a named barrier is given a number of threads that is not that of those who come",
        "all who take part must give a barrier the number of all threads that do, a multiple of 32",
        "Parallel Synchronization and Communication Instructions: bar, barrier",
        defect="either",
        detail="others give it another one, more come, or it is no multiple of 32",
    ),
    Kind(
        "unpaired-arrival",
        "a thread arrives at the barrier of its cluster again before it has waited, or waits and has not arrived",
        "each thread must alternate barrier.cluster.arrive and barrier.cluster.wait",
        "Parallel Synchronization and Communication Instructions: barrier.cluster",
    ),
    Kind(
        "misused-barrier",
        "a barrier is used against its protocol",
        "a phase of an mbarrier must get as many arrivals as mbarrier.init says",
        "Parallel Synchronization and Communication Instructions: mbarrier; bar, barrier; st.async; red.async",
        defect="either",
        detail="more arrivals than a phase of an mbarrier expects, a count or a number that there "
        "isn't, a wait by the state of a phase too far back or of another mbarrier, an mbarrier "
        "that is loaded as data, or `st.async` with data and mbarrier in two CTAs",
    ),
    Kind(
        "byte-count-overflow",
        "some order of announcements and copies leaves the 2^20 - 1 bytes that an mbarrier counts",
        "use more phases",
        "Parallel Synchronization and Communication Instructions: mbarrier, mbarrier.expect_tx",
        wrong="a phase announces and counts too many bytes",
    ),
    Kind(
        "premature-completion",
        "a phase of an mbarrier may complete without what was announced for it",
        "announce with the arrival, by mbarrier.arrive.expect_tx, or before it",
        "Parallel Synchronization and Communication Instructions: mbarrier, phase completion",
    ),
    Kind(
        "early-wait",
        "a wait at an mbarrier may begin before the phase before is over, and pass on the parity of an earlier one",
        "wait for that too",
        "Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait",
        wrong="who waits for a phase must know that the one before is over",
    ),
    Kind(
        "early-arrival",
        "an arrival, an announcement or a copy may count in the phase before",
        "wait for it",
        "Parallel Synchronization and Communication Instructions: mbarrier, phase completion",
        wrong="who arrives must know that the phase before is over",
    ),
    Kind(
        "lapped-wait",
        "a phase may complete while a slow thread still waits for the one before",
        "one of those who complete a phase must hear from each thread that waits for the one before",
        "Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait",
        detail="it hangs, or passes too late",
    ),
    Kind(
        "missing-wgmma-fence",
        "registers of MMAs were used by something else, and no `wgmma.fence` came after",
        "wgmma.fence must come after other accesses to these registers, and before the MMAs",
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence",
    ),
    Kind(
        "accumulator-in-flight",
        "registers are used that MMAs still write, on some path through the kernel",
        "wgmma.wait_group must come before these registers are used",
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group",
        wrong="the MMAs may not be complete",
    ),
    Kind(
        "fragment-in-flight",
        "registers of A are written that MMAs still read",
        "wgmma.wait_group must come before these registers are written",
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group",
        wrong="the MMAs may still read it",
    ),
    Kind(
        "missing-proxy-fence",
        "threads wrote, and a TMA store, a bulk copy or wgmma reads, in order, but without `fence.proxy.async` "
        "between, in the CTA of the copy",
        "fence.proxy.async is missing between, after the write and before a barrier or the copy",
        "Memory Consistency Model: Proxies; Async proxy",
        wrong="the generic proxy wrote it, and the async proxy touches it",
    ),
    Kind(
        "unfenced-overwrite",
        "threads read, and a TMA load, a bulk copy or another write of the async proxy overwrites that, in order, but "
        "without `fence.proxy.async` between, in the CTA that read",
        "fence.proxy.async is missing between, after the read and before its thread hands the "
        "bytes back, or in the thread that issues the copy, once it has waited",
        "Memory Consistency Model: Proxies; Async proxy",
        wrong="the generic proxy read it, and the async proxy overwrites it",
    ),
    Kind(
        "unmet-warps",
        "wgmma reads A from shared memory, and each warp wrote and fenced its own 16 rows of it",
        "a barrier of the four warps, such as a named one of 128 threads, must come between each warp's "
        "fence.proxy.async and the MMA, or A must come from registers",
        "wgmma: Async Proxy; wgmma.mma_async; Memory Consistency Model: Causality Order",
        detail="no barrier of the warpgroup came between",
    ),
    Kind(
        "missing-tensormap-fence",
        "a copy uses a tensor map in global memory, which the kernel, an earlier launch or the host wrote, and no "
        "`fence.proxy.tensormap` has shown it to copies",
        "each CTA that copies by a tensor map in global memory must acquire it first "
        "(fence.proxy.tensormap::generic.acquire of its address, with the scope .gpu, or .sys if the host wrote it) or "
        "take it as a `const __grid_constant__` parameter; who changes it in the kernel must release it before "
        "(tensormap.cp_fenceproxy, or fence.proxy.tensormap::generic.release)",
        "Parallel Synchronization and Communication Instructions: membar/fence, fence.proxy.tensormap",
    ),
    Kind(
        "too-narrow-scope",
        "a flag or a counter is accessed with a scope that does not include the other thread, `.cta` between CTAs; or "
        "memory after an mbarrier's arrival, or global memory after its wait, with the scope `.cta`, between CTAs of a "
        "cluster",
        ".cluster within a cluster, .gpu within a GPU",
        "Memory Consistency Model: Scope; Morally strong operations",
        wrong="both accesses need a scope that the other thread is in",
    ),
    Kind(
        "partial-overlap",
        "bytes are accessed by two threads with strong accesses of different sizes, such as a flag of 4 bytes that "
        "another thread reads with its neighbour as 8, and nothing else orders them",
        "both must be of one size, or something else must order them",
        "Memory Consistency Model: Morally strong operations; Limitations on Mixed-size Data-races",
        wrong="strong accesses of different sizes race, and neither need see the other as a whole",
    ),
    Kind(
        "too-weak-semantics",
        "an arrival or a wait at a barrier, or a flag in memory, that should show what came before is `.relaxed`, with "
        "no `fence.acq_rel` beside it",
        "it must be .release or .acquire, or fence.acq_rel must come before the arrival or the "
        "flag is raised, after the wait or the flag is read",
        "Memory Consistency Model: Release and Acquire Patterns; mbarrier.arrive, mbarrier.try_wait",
        wrong="what is relaxed counts, and shows nothing",
    ),
    Kind(
        "early-access",
        "a kernel of a programmatic dependent launch touches what the kernel before it, or one further back, may still "
        "write or read",
        "griddepcontrol.wait must come before the access, in its thread or before a barrier",
        "Parallel Synchronization and Communication Instructions: griddepcontrol",
    ),
    Kind(
        "non-coherent-read",
        "a load through the cache that is not coherent (`ld.global.nc`) reads what the same launch writes",
        "use a plain load, without __ldg, or __restrict__ with const",
        "Data Movement and Conversion Instructions: ld.global.nc",
        wrong="ld.global.nc reads through a cache that does not see what this launch writes",
    ),
    Kind(
        "unordered-read",
        "bytes are read, and nothing orders that after what wrote them",
        "a barrier that both take part in, or an arrival and a wait at an mbarrier, must come between",
        "Memory Consistency Model: Causality Order; Data-Races",
        detail="no barrier between threads, no wait for the mbarrier of a TMA or bulk copy, no "
        "`cp.async.wait_group`, no release that the other CTA acquires, no event between two "
        "streams",
    ),
    Kind(
        "unordered-write",
        "bytes are written that somebody may still read or write",
        "a barrier that both take part in, or an arrival and a wait at an mbarrier, must come between",
        "Memory Consistency Model: Causality Order; Data-Races",
        detail="a stage released before `wgmma.wait_group`, shared memory reused before "
        "`cp.async.bulk.wait_group.read`",
    ),
    Kind(
        "layout-mismatch",
        "what a TMA load wrote is read through another swizzle, by MMAs or by a TMA store, or by "
        "MMAs in rows of another length or across the rows of its swizzle",
        "the tensor map and the descriptor must name one swizzle",
        "Asynchronous Warpgroup Level Matrix Instructions: Shared Memory Matrix Layout; Tensors: Swizzling Modes",
        detail="by the other major, or by strides that are no patterns; or MMAs walk out of a tile, "
        "into the other operand's or the next one of its tensor",
    ),
    Kind(
        "uninitialised-read",
        "shared memory is read that nothing has written since the CTA began, or global memory that nothing has written "
        "since it was allocated, or since `discard`; or registers and local memory of a thread that nothing has "
        "written",
        "write them first, or wait for what does",
        "State Spaces, Types, and Variables: Shared State Space, Global State Space",
        wrong="nothing has written these bytes since the CTA began, and they hold what another CTA left there",
    ),
    Kind(
        "uneven-bytes",
        "a CTA ends, and an mbarrier has bytes pending that no copy brings, or got some that nobody expected",
        "expect_tx must say what the copies bring",
        "Parallel Synchronization and Communication Instructions: mbarrier, Tracking asynchronous operations",
    ),
    Kind(
        "partial-warp",
        "some lanes of a warp execute an instruction that is `.aligned`, such as `bar.sync`, `ldmatrix` or `mma`, and "
        "others do not; or lanes of a warp are at two barriers of the CTA, and wait for each other",
        "all threads of a warp must execute the same instruction that is .aligned, where they have met again",
        "Parallel Synchronization and Communication Instructions: bar, barrier; barrier.cluster; Warp Level Matrix "
        "Instructions",
        defect="either",
    ),
    Kind(
        "partial-warpgroup",
        "some warps of a warpgroup execute `setmaxnreg`, or an instruction of `wgmma`, and others do not",
        "all warps of a warpgroup must execute the same setmaxnreg, and the same wgmma",
        "Miscellaneous Instructions: setmaxnreg; Asynchronous Warpgroup Level Matrix Instructions",
        defect="either",
    ),
    Kind(
        "mismatched-mask",
        "a `.sync` instruction of a warp is executed by a lane that its mask lacks, or its mask names a lane that is "
        "elsewhere or gives another mask",
        "a mask must name the lanes that execute it, all of which give the same mask",
        "Data Movement and Conversion Instructions: shfl.sync; Parallel Synchronization and Communication "
        "Instructions: vote.sync, match.sync, redux.sync, elect.sync, bar.warp.sync",
        defect="either",
    ),
    Kind(
        "undefined-shuffle",
        "a shuffle reads from a lane that its mask lacks, or that has ended",
        "shuffle among lanes of the mask that have not ended, or clamp it to these",
        "Data Movement and Conversion Instructions: shfl.sync",
        defect="either",
    ),
    Kind(
        "exhausted-registers",
        "a warpgroup asks for more registers than there are, by `setmaxnreg.inc`, and nobody gives any back, or nobody "
        "would if others were served first",
        "give as many back before, by setmaxnreg.dec in all warps of other warpgroups, or ask for fewer",
        "Miscellaneous Instructions: setmaxnreg",
        defect="either",
    ),
    Kind(
        "misused-setmaxnreg",
        "a `setmaxnreg.inc` names fewer registers than a warp has, a `.dec` more, or a warp comes to a second "
        "`setmaxnreg` while another one of its warpgroup may not have come to the first",
        ".inc must name as many registers as a warp has or more, .dec as many or fewer, and a barrier of the four "
        "warps must come between two setmaxnreg",
        "Miscellaneous Instructions: setmaxnreg",
        defect="either",
    ),
    Kind(
        "invalid-access",
        "memory is accessed that is not the kernel's",
        "an access must be within an allocation, or within the shared memory of a CTA, at a multiple of its size",
        "Instruction Operands: Addresses as Operands; Data Movement and Conversion Instructions",
        defect="either",
        detail="out of range, freed, or at an address that is not aligned; or a `cp.async` takes more "
        "bytes than it copies",
    ),
    Kind(
        "invalid-descriptor",
        "a tensor map or a matrix descriptor is given that the hardware refuses, or reads otherwise, or that differs "
        "between threads of a warpgroup",
        "the descriptor must be one that the instruction takes, and one for all that execute it",
        "Tensors: Tensor-map; Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor",
        defect="either",
    ),
    Kind(
        "unstarted-peer",
        "shared memory of another CTA is accessed by who cannot know that this CTA has begun",
        "barrier.cluster.arrive and .wait must come before the first access to another CTA's shared memory",
        "State Spaces, Types, and Variables: Shared State Space; Parallel Synchronization and Communication "
        "Instructions: barrier.cluster",
    ),
    Kind(
        "exited-peer",
        "shared memory of another CTA is accessed, or its mbarrier arrived at, and nothing orders that before its end",
        "barrier.cluster.arrive and .wait must come after it and before that CTA ends, or a wait there for what it "
        "arrives in",
        "State Spaces, Types, and Variables: Shared State Space; Parallel Synchronization and Communication "
        "Instructions: barrier.cluster",
    ),
    Kind(
        "in-flight-at-exit",
        "a CTA ends while a copy reads or writes its shared memory, or MMAs read it",
        "the wait for what is in flight must come before the end",
        "Data Movement and Conversion Instructions: cp.async.bulk.wait_group, cp.async.wait_group",
    ),
    Kind(
        "deadlock",
        "threads wait for ever",
        "what is waited for must come, by threads that do not wait for this one first",
        "Parallel Synchronization and Communication Instructions: bar, barrier; barrier.cluster; mbarrier.try_wait",
        defect="place",
        detail="for arrivals that nobody makes, at a barrier that others do not come to, or in a loop "
        "for memory that nobody writes any more",
    ),
    Kind(
        "discarded-read",
        "shared memory is read that nothing has written, and the launch writes the same whatever is there; or a load "
        "races, and its lane stores nothing that is made of it",
        "with other values there the launch writes the same to global memory",
        "State Spaces, Types, and Variables: Shared State Space",
        "advisory",
        wrong="nothing has written these bytes since the CTA began, and nothing comes of them",
    ),
    Kind(
        "type-mismatch",
        "what a tensor map calls elements of one type, such as `f16`, is of another to the MMAs, such as `bf16`",
        "the tensor map and the MMA should name one type",
        "Tensors; Asynchronous Warpgroup Level Matrix Instructions: Data-types",
        "advisory",
    ),
    Kind(
        "injected-wgmma-fence",
        "a `wgmma.fence` is missing, and the assembler puts it",
        "wgmma.fence must come after other accesses to these registers, and before the MMAs; it costs nothing more",
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence",
        "advisory",
        detail="a hazard by the ISA, not on this hardware",
    ),
    Kind(
        "injected-wgmma-wait",
        "registers are used that MMAs still write, and the assembler puts a wait before",
        "wgmma.wait_group must come where it is meant, or the registers must not be touched until then",
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group",
        "advisory",
        detail="nothing overlaps there",
        wrong="the assembler waits here for the MMAs, which then overlap with nothing",
    ),
    Kind(
        "serialised-wgmma",
        "the assembler makes each MMA wait for the one before, for what is done to their registers or for want of them",
        "registers of MMAs in flight must not be touched, and must all fit",
        "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async",
        "advisory",
    ),
    Kind(
        "spilled-registers",
        "a kernel keeps values in local memory for want of registers",
        "use a smaller tile, or give the warps more registers by setmaxnreg",
        "State Spaces, Types, and Variables: Local State Space",
        "advisory",
    ),
    Kind(
        "ignored-setmaxnreg",
        "the assembler ignores `setmaxnreg`, as the kernel doesn't say how many registers a thread begins with",
        "the launch must bound the CTAs of an SM, by min_blocks_per_mp=1 in the DSL, __launch_bounds__(threads, 1) in "
        "CUDA C++, and .maxnreg, or .maxntid or .reqntid with .minnctapersm, in PTX",
        "Miscellaneous Instructions: setmaxnreg",
        "advisory",
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ENTRIES}
"""By name, causes before what follows from them."""
