"""Advice: the table of all advice that reports and errors of kernels print, one row a case.

A check that finds a hazard names a case and the values of its fields. Reports render the row. Each kind of hazard of
`sanitize/kinds.py` has a row of its own name, which is printed where a check says nothing more closely. The cases that
say more stand below the kind that they mostly belong to. Errors that end a launch say themselves what is wrong, and
their rows what to do. Near misses have rows too: the reasons why an arrival, a wait or a fence that looks right does
not count.

A new case is a row here, and a call ``Diagnosis("case-name", field=value)`` where the hazard or the error is found.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from cutepy.text_tables import rows_of


class Case(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    wrong : str
        Template of the problem, with named fields in braces; empty if the gist of the kind says it.
    wanted : str
        Template of the wanted order, and its place; empty of a near miss.
    unknown : str
        Words for a field whose value is None.
    read_first : bool
        True if the read came first in this execution, and nothing had written its bytes before.
    """

    wrong: str
    wanted: str = ""
    unknown: str = ""
    read_first: bool = False


@cache
def fields_of(case: str) -> frozenset[str]:
    """Return the names of the fields of a case.

    Examples
    --------
    >>> sorted(fields_of("other-swizzle"))
    ['read', 'written']
    """
    row = CASES[case]
    names = (name for text in (row.wrong, row.wanted) for _, name, _, _ in string.Formatter().parse(text))
    return frozenset(name.partition(".")[0] for name in names if name)


@dataclass(frozen=True, init=False, repr=False)
class Diagnosis:
    """Problem of a hazard, and the wanted order: a case of the table, and the values of its fields.

    Two diagnoses of one case and equal values are equal.

    Parameters
    ----------
    case : str
        A name of the table `CASES`.
    **values : int, str, Diagnosis or None
        The fields of the case's templates: all of them, and no others. A template may take the problem or the wanted
        order of another diagnosis, as ``{otherwise.wanted}``. None is a value that is not known.

    Raises
    ------
    TypeError
        If the case is not in the table, or has other fields.

    Examples
    --------
    >>> print(Diagnosis("store-may-be-reading"))
    the store may still read it: cp.async.bulk.wait_group.read must come before, then a barrier
    >>> Diagnosis("other-swizzle", written="SW128", read="SW64").wrong
    'it was written through SW128, and is read through SW64'
    """

    case: str
    values: tuple[tuple[str, Value], ...]

    def __init__(self, case: str, /, **values: Value) -> None:
        if case not in CASES:
            raise TypeError(f"no case is named {case!r}: the table is CASES in {__name__}")
        if fields_of(case) != values.keys():
            raise TypeError(f"the case {case!r} has the fields {sorted(fields_of(case))}, not {sorted(values)}")
        object.__setattr__(self, "case", case)
        object.__setattr__(self, "values", tuple(sorted(values.items())))

    @property
    def wrong(self) -> str:
        """The problem; empty if the gist of the kind says it."""
        return self._rendered(CASES[self.case].wrong)

    @property
    def wanted(self) -> str:
        """The wanted order, and its place; empty of a near miss."""
        return self._rendered(CASES[self.case].wanted)

    @property
    def read_first(self) -> bool:
        """True if the read came first in this execution, and nothing had written its bytes before."""
        others = (value for _, value in self.values if isinstance(value, Diagnosis))
        return CASES[self.case].read_first or any(other.read_first for other in others)

    def _rendered(self, template: str) -> str:
        unknown = CASES[self.case].unknown
        return template.format_map({name: unknown if value is None else value for name, value in self.values})

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.wrong, self.wanted)))

    def __repr__(self) -> str:
        values = "".join(f", {name}={value!r}" for name, value in self.values)
        return f"Diagnosis({self.case!r}{values})"


Value = int | str | Diagnosis | None
"""A value of a field: a number, a name, a line of the source, an instruction's text, or another diagnosis."""

_TABLE = """
repeated-init: => one thread must make it, once, and mbarrier.inval must come before it is made again
made-by-several-threads: {threads} threads make the same mbarrier => one thread must, elect it
invalidated-by-several-threads: {threads} threads invalidate the same mbarrier => one thread must, elect it
made-while-valid: mbarrier.init makes it again while it is valid => mbarrier.inval must come before that
overwritten-mbarrier: => mbarrier.inval, and a barrier, must come before its memory is used for something else
uninitialised-mbarrier: => mbarrier.init must come before an mbarrier is used, and mbarrier.inval after its last use
missing-init-fence: => fence.mbarrier_init.release.cluster must come after mbarrier.init, and then a barrier
unpublished-mbarrier: => a barrier that both take part in must come after mbarrier.init and before it is used
mixed-generation: => a thread must wait at the barrier before it arrives there again
barrier-overtaken: this thread may arrive here before the barrier has completed its previous generation
  => {participation} is not ordered before that, so arrivals of two generations mix: the thread must wait there in
  between | an arrival of that generation
groups-share-a-barrier: {mixed.wrong} => give each group of threads a named barrier of its own
mismatched-count: => each bar instruction must give the number of all threads that arrive at the barrier, a multiple of
  32
unpaired-arrival: => each thread must alternate barrier.cluster.arrive and barrier.cluster.wait
misused-barrier: => a phase of an mbarrier must get as many arrivals as mbarrier.init says
mbarrier-read-as-data: only mbarrier operations know the format of an mbarrier
  => mbarrier.test_wait says whether a phase is complete
byte-count-overflow: a phase announces and counts too many bytes => use more phases
announced-bytes-overflow: {count} bytes are announced in phase {phase}, and an mbarrier counts at most {most}
  => some order of them overflows; use more phases
brought-bytes-overflow: {count} bytes are brought in phase {phase}, and an mbarrier counts at most {most}
  => some order of them overflows; use more phases
premature-completion: => announce with the arrival, by mbarrier.arrive.expect_tx, or before it
no-arrivals-left: no arrivals are expected after this arrive_drop, and what the next phase does is undefined
  => keep a count of 1
announcement-may-be-late: phase {phase} may complete without {announcement}
  => nothing orders that before the last arrival. Announce with the arrival, by mbarrier.arrive.expect_tx, or before it
  | what was announced
more-bytes-than-announced: {brought} bytes are brought in phase {phase}, and {announced} are announced
  => announce all that copies bring, or the phase completes early or never
early-wait: a wait for a phase must be ordered after the end of the phase before => wait for that too
wait-overtakes-phase: this wait is for phase {phase}, and may begin before phase {last} is over: its parity then passes
  a phase too early
  => {count} must come before it, by a barrier or by a wait for phase {last} too | all that counts there
early-arrival: an arrival must be ordered after the end of the phase before => wait for it
count-overtakes-phase: it counts in phase {phase} here, and nothing orders it after the end of phase {last}: it may
  count in that phase instead
  => {count} must come before it, by a barrier or by a wait for phase {last} | all that counts there
lapped-wait: => an arrival of the next phase must be ordered after each wait for this phase
parity-lapped: phase {phase} completes here, and nothing makes it wait until that wait for phase {last} is over
  => a slow thread then finds the parity of another phase, and waits for ever or passes too early. An arrival of that
  phase must be ordered after the thread's wait
parity-before-first: phase {phase} completes here, and nothing makes it wait until that wait is over; it is for phase
  {last}, which a new mbarrier counts as complete
  => a thread that reads what phase {phase} brings must wait for parity 0 first; of one that fills what others read, an
  arrival of that phase must be ordered after the wait
state-lapped: phase {phase} completes here, and nothing makes it wait until that wait for phase {last} is over
  => a slow thread then has a state that is neither of the current phase nor of the one before, which is undefined. An
  arrival of that phase must be ordered after the thread's wait
mbarrier-outlived: nothing orders {operation} before the barrier ends here
  => the threads that use it must meet this thread first, at a bar.sync for example | an operation on it
missing-wgmma-fence: => wgmma.fence must come after other accesses to these registers, and before the MMAs
accumulator-in-flight: the MMAs may not be complete => wgmma.wait_group must come before these registers are used
fragment-in-flight: the MMAs may still read it => wgmma.wait_group must come before these registers are written
missing-proxy-fence: the generic proxy wrote these bytes, and the async proxy accesses them
  => fence.proxy.async is missing between, after the write and before a barrier or the copy
unfenced-write-of-threads: threads wrote these bytes, and a copy accesses them through the async proxy
  => fence.proxy.async is missing between, in the CTA that issues the copy, after it knows of the write and before the
  copy
unfenced-overwrite: the generic proxy read these bytes, and the async proxy overwrites them
  => fence.proxy.async is missing between, after the read and before its thread hands the bytes back, or in the thread
  that issues the copy, once it has waited
unfenced-read-of-threads: threads read these bytes, and a copy overwrites them through the async proxy
  => fence.proxy.async is missing between, in the CTA that issues the copy, after it knows of the read and before the
  copy
unmet-warps: => a barrier of the four warps, such as a named one of 128 threads, must come between each warp's
  fence.proxy.async and the MMA, or A must come from registers
missing-tensormap-fence: => each CTA that copies by a tensor map in global memory must acquire it first
  (fence.proxy.tensormap::generic.acquire of its address, with the scope .gpu, or .sys if the host wrote it) or take it
  as a `const __grid_constant__` parameter; a thread that changes it in the kernel must release it before
  (tensormap.cp_fenceproxy, or fence.proxy.tensormap::generic.release)
too-narrow-scope: both accesses need a scope that the other thread is in => .cluster within a cluster, .gpu within a GPU
arrival-of-one-cta: the arrival at {line} is of scope .cta, and the thread that waits for it is in another CTA
  => it must be {arrival}.release.cluster
shown-to-one-cta: it is complete by then, and nothing makes it visible to this CTA
  => the arrival at another CTA's mbarrier must be mbarrier.arrive.release.cluster, and the wait there
  mbarrier.try_wait.acquire.cluster, which without a scope are .cta
thread-outside-scope: the scope of the {opcode} is {scope}, and the other thread is outside of it
  => both need .{needed} or wider
partial-overlap: strong accesses of different sizes race, and neither need see the other as a whole
  => both must be of one size, or something else must order them
too-weak-semantics: a relaxed arrival or wait counts, and orders no memory
  => it must be .release or .acquire, or fence.acq_rel must come before the arrival or the flag is raised, after the
  wait or the flag is read
relaxed-arrival: the arrival at {line} is .relaxed, and orders nothing that came before it
  => it must be .release, which it is by default, or fence.acq_rel of the same scope must come before it
relaxed-wait: the wait at {line} is .relaxed, and orders nothing after the phase's end
  => it must be .acquire, which it is by default, or fence.acq_rel must come after it
relaxed-flag: the flag that {line} raises is .relaxed, and orders nothing that came before it
  => it must be .release, or fence.acq_rel must come before it, in its thread
relaxed-read-of-flag: the flag is read at {line} by .relaxed, which orders nothing after the write of the flag
  => it must be .acquire, or fence.acq_rel must come after it, in its thread
early-access: => griddepcontrol.wait must come before the access, in its thread or before a barrier
launch-before-end: the kernel began before the previous kernel was complete (programmatic dependent launch)
  => griddepcontrol.wait must come before this access, in its thread or before a barrier
launch-shows-nothing: the kernel was launched when the threads of the previous kernel had ended (programmatic dependent
  launch), which makes none of their writes visible to it
  => griddepcontrol.wait must come before this access, in its thread or before a barrier
graph-waits-for-one: the previous kernel did not wait for the kernels before it, and in a graph this kernel waits for
  the previous one alone
  => the previous kernel must execute griddepcontrol.wait, or be launched without the attribute
launch-further-back: griddepcontrol.wait waits for the previous kernel alone, and that kernel did not wait for the
  kernels before it
  => the previous kernel must execute griddepcontrol.wait, or this kernel must be launched without the attribute
non-coherent-read: ld.global.nc reads through a cache that does not see what this launch writes
  => use a plain load, without __ldg, or __restrict__ with const
unordered-read: => a barrier that both take part in, or an arrival and a wait at an mbarrier, must come between
unordered-write: => a barrier that both take part in, or an arrival and a wait at an mbarrier, must come between
# Asynchronous operations that nobody has waited for.
copy-may-be-in-flight: the copy may not be complete
  => wait for the mbarrier that counts its bytes, in the threads that go on
cp-async-may-be-in-flight: the copy may not be complete => cp.async.wait_group, then a barrier, must come before
copy-may-be-reading: the copy may still read it
  => the CTA that receives the bytes must wait at the mbarrier that counts them, and then signal before these bytes are
  written
store-may-be-reading: the store may still read it => cp.async.bulk.wait_group.read must come before, then a barrier
store-may-be-in-flight: the store may not be complete
  => cp.async.bulk.wait_group (without .read) must come before, then a barrier
store-may-be-in-flight-to-another-cta: the store may not be complete
  => cp.async.bulk.wait_group (without .read) must come before, then a release that the other CTA acquires
mmas-may-be-reading: the MMAs may still read it
  => the arrival or barrier that lets other threads write must come after the MMAs and their wgmma.wait_group
tensor-map-may-be-in-use: the copy may still read this tensor map
  => a wait for the mbarrier that its bytes arrive at must come before the change; or cp.async.bulk.commit_group and
  cp.async.bulk.wait_group.read 0 by its thread, and a barrier
# Waits and arrivals that do not order the two.
try-may-fail: the try at {line} may fail, and its thread goes on all the same => loop until it succeeds
wait-for-earlier-phase: the wait at {line} passed when phase {over} was over, and the copy's bytes count in phase
  {phase}
  => wait for the parity of that phase, {parity}, in the threads that go on
wait-at-new-mbarrier: the wait at {line} passed at once, since the phase before the first counts as complete, and the
  copy's bytes count in phase {phase}
  => wait for the parity of that phase, {parity}, in the threads that go on
access-after-arrival: the arrival at {line} stands before the {access}, and does not order it => it must come after
invalidated-while-used: => a barrier must come between the last use of an mbarrier, by any thread, and mbarrier.inval
# Threads, CTAs and launches.
elected-lane-alone: lane {lane} of that warp has released its own accesses only, and elect.sync orders no memory
  => bar.warp.sync must come between, before the elected lane arrives
lanes-write-together: lanes of several warps write these bytes in one instruction, which is a race though they write the
  same
  => let one of them write, or give each its own place
st-async-in-no-order: stores of one instruction are in no order => one lane must store there, or red.async combine them
unordered-threads: => a barrier that both take part in, or a release that the other acquires, must come between
unordered-ctas: nothing orders these CTAs
  => a release (fence.acq_rel.gpu and an atomic, or st.release.gpu) must come after the first, and an acquire that sees
  it (ld.acquire.gpu) before the second; or two launches; or atomics on both
unordered-streams: the launches are in streams that nothing orders
  => record an event after the first and let the other's stream wait for it
freed-while-in-use: the tensor was freed while another stream uses it, and torch's allocator may give its memory to the
  next one of the stream that it was made in
  => tensor.record_stream(that other stream) must come before it is freed, or the stream that it was made in must wait
  for the other one
# More to say of another diagnosis.
race-both-ways: {race.wrong} => {race.wanted}, and again before the first repeats
read-first: here the read came first, and nothing had written these bytes before => {otherwise.wanted}
read-first-by-phase: here the read came first, and nothing had written these bytes before; {otherwise.wrong}
  => {otherwise.wanted}
read-first-in-this-schedule: here the read came first, and nothing had written these bytes before; if the copy comes
  first, {otherwise.wrong}
  => {otherwise.wanted}
layout-mismatch: => the tensor map and the descriptor must name one swizzle
other-swizzle: it was written through {written}, and is read through {read} => both must name one swizzle
other-row-length: it was written in rows of {written} bytes, and is read in rows of {read}
  => the inner extent of the box must be {read} bytes, or both must name a swizzle of {written}
mma-crosses-rows: the MMA begins {offset} bytes into a row of {row}, and reads on into the next
  => the major that it names, or the step from one descriptor to the next, is not the tile's
stride-of-no-pattern: the descriptor strides by {stride} bytes, no multiple of the {pattern} of a pattern
  => it reads rows twice, or misses them
rows-left-out: {operand} also takes rows of this copy, and leaves out rows of another one in between
  => its strides (leading {leading}, stride {stride} bytes) must go from 8 rows to the next 8 of its tile
bytes-of-other-operand: {operand} also takes bytes of this copy, which are {other}'s in the same MMA
  => its descriptor must start in its own tile, and its strides (leading {leading}, stride {stride} bytes) stay there
uninitialised-read: nothing has written these bytes since the CTA began, and they hold what another CTA left there
  => write them first, or wait for what does
global-memory-not-written: nothing has written these bytes since they were allocated, or discarded, and they hold what
  was there before
  => write them first, such as by torch.zeros in place of torch.empty, or order this after what does
local-memory-not-written: the value of {made} depends on {load}, which loads from bytes of local memory that nothing has
  written since the thread began
  => write it before it is loaded
tensor-memory-not-written: the value of {made} depends on {load}, which loads from columns that nothing has written
  since their allocation
  => an MMA that does not accumulate, a tcgen05.st or a tcgen05.cp must write them first
local-memory-beside-values: the value of {made} is what {load} loads from bytes of local memory that nothing has written
  since the thread began, though the bytes beside them were written: padding of a structure, or a forgotten part
  => write it before it is loaded, or copy the structure's members
shared-memory-beside-values: nothing has written these bytes since the CTA began, though the bytes beside them were
  written, and they are copied to global memory: padding of a structure, or a forgotten part
  => write them before they are loaded, or copy the structure's members
undefined-output: the stored bytes have no value => write them before they are stored, or store only what has values
sums-not-begun: nothing has written these sums, and the MMA adds to them
  => the first MMA must not accumulate, or zeros must be written before
register-without-value: no instruction of the kernel gives {register} a value
  => write {register} before it is read: sums begin with zeros
register-made-without-value: no instruction of the kernel gives {register} a value; the value of {made} depends on it
  => write {register} before it is read, or store only what has values
register-of-other-paths: {register} is written only by {writes}, which {threads} did not execute before
  => write {register} before the paths part
register-of-more-paths: {register} is written only by {writes} and {more} more, which {threads} did not execute before
  => write {register} before the paths part
register-made-of-other-paths: {register} is written only by {writes}, which {threads} did not execute before; the value
  of {made} depends on it
  => write {register} before the paths part
register-made-of-more-paths: {register} is written only by {writes} and {more} more, which {threads} did not execute
  before; the value of {made} depends on it
  => write {register} before the paths part
uneven-bytes: => expect_tx must say what the copies bring
bytes-never-came: {count} bytes were expected and never came => expect_tx must say what the copies bring
bytes-not-expected: {count} bytes came that no expect_tx announced => expect_tx must say what the copies bring
bytes-of-a-deadlock: {bytes.wrong} => {deadlock.wanted}
partial-warp: => all threads of a warp must execute the same instruction that is .aligned, where they have met again
lanes-left-out: {lanes} of that warp did not execute it
  => all threads of a warp must execute the same {instruction}, where they have met again
lanes-left-out-of-barrier: {lanes} of that warp did not execute it
  => all threads of a warp must execute the same {instruction}, where they have met again, or use {unaligned} without
  .aligned
partial-warpgroup: => all warps of a warpgroup must execute the same setmaxnreg, and the same wgmma
warps-left-out: {threads} did not execute it
  => all threads of a warpgroup must execute the same {instruction}, where they have met again
mismatched-mask: => a mask must name the lanes that execute it, all of which give the same mask
undefined-shuffle: => shuffle among lanes of the mask that have not ended, or clamp the source lane to them
exhausted-registers: => give as many back before, by setmaxnreg.dec in all warps of other warpgroups, or ask for fewer
registers-run-out: in another order the first thread takes the registers that the second then waits for forever
  => give back more before either of them, or ask for fewer
registers-given-back-late: in another order the first thread takes the registers that the second then waits for forever,
  since `{instruction}` ({line}), which gives registers back, comes after the second
  => give back more before either of them, or ask for fewer
misused-setmaxnreg: => .inc must name as many registers as a warp has or more, .dec as many or fewer, and a barrier of
  the four warps must come between two setmaxnreg
warps-not-met: a warp may come to the second setmaxnreg while another warp of its warpgroup has not come to the first
  => a barrier of the four warps, such as a named one of 128 threads, must come between
invalid-access: => an access must be within an allocation, or within the shared memory of a CTA, at a multiple of its
  size
invalid-descriptor: => the descriptor must be one that the instruction takes, and one for all that execute it
unstarted-peer: => barrier.cluster.arrive and .wait must come before the first access to another CTA's shared memory
exited-peer: => barrier.cluster.arrive and .wait must come after the access and before that CTA ends, or that CTA must
  wait at the mbarrier of the arrival
in-flight-at-exit: => the wait for what is in flight must come before the end
mmas-at-exit: => wgmma.commit_group and wgmma.wait_group 0 must come before the end
bulk-store-at-exit: => cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 must come before the end
cp-async-at-exit: => cp.async.commit_group and cp.async.wait_group 0, or a wait for the mbarrier that tracks it, must
  come before the end
copy-at-exit: => a wait for the mbarrier that counts its bytes must come before the end
asynchronous-arrival-at-exit: => a wait for the mbarrier that counts it must come before the end
copy-to-a-peer-at-exit: => CTA {cta}, whose mbarrier counts its bytes, must say that they have come, by barrier.cluster
  for example, before the end
deadlock: => threads that do not wait for this one must bring what it waits for
discarded-read: nothing has written these bytes since the CTA began, and no result depends on them
  => with other values there the launch writes the same to global memory
nothing-comes-of-load: nothing orders these, and no result depends on the value that this lane reads
  => other lanes store the results of this load; if only those lanes read, there is no race
type-mismatch: => the tensor map and the MMA should name one type
other-element-type: => it was written as {written}, and is read as {read}
injected-wgmma-fence: => wgmma.fence must come after other accesses to these registers, and before the MMAs; it costs
  nothing more
injected-wgmma-wait: the assembler waits here for the MMAs, which then overlap with nothing
  => wgmma.wait_group must come where the wait is meant to be, or no instruction may access the registers before it
serialised-wgmma: => no instruction may access the registers of MMAs in flight, and all of them must fit
assembler-remark: ptxas says {remark!r} ({code}) => {otherwise}
spilled-registers: => use a smaller tile, or give the warps more registers by setmaxnreg
spills: {stored} bytes a thread are stored and {loaded} loaded for want of registers, at lines that nvdisasm would name
  (pip install 'cutepy[inspect]')
  => {remedy}
spills-in-no-loop: {stored} bytes a thread are stored and {loaded} loaded for want of registers, in no loop ({lines})
  => {remedy}
spills-in-a-loop: {stored} bytes a thread are stored and {loaded} loaded for want of registers, {inside} in a loop
  ({lines})
  => {remedy}
spills-in-a-loop-with-mmas: {stored} bytes a thread are stored and {loaded} loaded for want of registers, {inside} in a
  loop with MMAs ({lines})
  => {remedy}
fewer-values: => keep fewer values at a time, or let threads have more by .maxnreg, or by fewer threads in
  __launch_bounds__
smaller-tile: => use a smaller tile, or give these warps more by setmaxnreg
ignored-setmaxnreg: => the launch must bound the CTAs of an SM, by min_blocks_per_mp=1 in the DSL,
  __launch_bounds__(threads, 1) in CUDA C++, and .maxnreg, or .maxntid or .reqntid with .minnctapersm, in PTX
# Errors of the simulator, which say themselves what is wrong, and what to do about each.
simulator-error: {message} => {fix}
simulator-error-ends-launch: {message}; the launch ends there, and what would come after was not looked at => {fix}
inval-before-reuse: => call mbarrier.inval before its memory is used for something else
one-thread-initialises: => let one thread initialise it
count-all-arrivals: => let mbarrier.init count all arrivals, or let fewer threads arrive
leave-no-complete-out: => leave .noComplete out
announce-with-arrival: => announce before, or with, an arrival
state-of-last-arrival: => wait with the state that the last arrival at this mbarrier has returned
remote-mbarrier: => only arrivals and announcements reach an mbarrier of another CTA
launch-without-clusters: => launch it with clusters, of one CTA at least, or use st.shared and mbarrier.arrive
mbarrier-of-other-cta: => both must be of the same CTA, so take the mbarrier's address in CTA {cta} too, by mapa
no-such-barrier: => use 0 to {last}
warps-to-one-barrier: => let whole warps come to one barrier, or use an mbarrier
barrier-of-each-group: => give each group of threads a named barrier of its own
count-of-callers: => give it the number of threads that call it
one-count: => all who take part must give it one count
count-of-whole-warps: => give it {count}, and let whole warps call it
wait-between-arrivals: => barrier.cluster.wait must come between
arrive-before-wait: => barrier.cluster.arrive must come before, by the same threads
mask-of-executing-lanes: => a mask names the lanes that execute it
one-mask: => all lanes of a mask must name the same
lanes-of-mask-together: => call it where all lanes of its mask come together
uniform-operand: => compute it of what the {unit} has in common, or take one lane's by shfl.sync
bound-of-setmaxnreg: => name {held} or {bound}, or use setmaxnreg.{other} (warps began with {at_launch})
ranks-of-multicast: => set the bits of the ranks that get a copy, and no others
source-size: => give it a src-size up to its cp-size (PTX ISA, "cp.async")
commit-at-exit: => tcgen05.commit, and a wait at its mbarrier or that of a later commit, must come before the end
commit-before-use: the tensor core may not be done with it
  => tcgen05.commit after the operation, and a wait at its mbarrier by the next user
release-after-use: => an arrival after the access, and a wait at its mbarrier by the next user, or a barrier of both,
  must come between
wait-for-loads: the load may not be done with it
  => tcgen05.wait::ld before the arrival, or the barrier, that lets others write these columns
wait-for-stores: the store may not be done with it
  => tcgen05.wait::st before the arrival, the barrier or the access that comes next
allocate-before-use: the columns may not be allocated yet
  => the address that tcgen05.alloc writes must be read after it, behind a barrier
allocate-before-giving-up: the permit may be given up before, and tcgen05.alloc ends in an error then
  => a barrier must come between tcgen05.alloc and tcgen05.relinquish_alloc_permit of another warp, or one warp must
  execute both
missing-tensor-fence: => tcgen05.fence::before_thread_sync must come before the arrival, and ::after_thread_sync after
  the wait
tensor-memory-before: the arrival that orders them is no tcgen05 operation, and nothing orders the first one before it
  => tcgen05.fence::before_thread_sync must come between, and ::after_thread_sync after the wait
tensor-memory-after: the wait that orders them is no tcgen05 operation, and nothing orders the second one after it
  => tcgen05.fence::after_thread_sync must come between
unwaited-tensor-load: => tcgen05.wait::ld must come before these columns are written again, and before other threads may
  write them
tensor-memory-wait: reading a register of a load orders no later access to memory
  => tcgen05.wait::ld must come before these columns are written again, and before other threads may write them
unwritten-columns: => an MMA that does not accumulate, a tcgen05.st or a tcgen05.cp must write them first
free-tensor-memory: => free columns by tcgen05.dealloc before, or allocate fewer
launch-pairs: => launch it with a cluster of an even number of CTAs along x, or use .cta_group::1
free-before-the-end: => a warp must execute tcgen05.dealloc on every way to the end
free-what-was-allocated: => free each allocation once, with the address that tcgen05.alloc wrote and the same number of
  columns
answer-of-own-cta: => with .multicast::cluster::all each CTA of the cluster gets the answer at the same offsets
ask-until-refused: => ask no more once query_cancel.is_canceled is false
lanes-of-the-warp: => add 32 << 16 for each warp beyond a multiple of 4, or let another warp do it
writable-array: => pass an array that may be written to, such as a copy
endless-recursion: => a recursion needs a condition that ends it: this one looks endless
index-of-branch: => compare the index before, and branch around it
# Deadlocks, by what threads wait for; a near miss says it more closely.
arrivals-of-each-phase: => let as many arrivals come in each phase as mbarrier.init says, {count}, from threads that do
  not wait for this one first, or let it say fewer
forgotten-arrival: => call what arrives there: of a ring, release behind the last use of a stage, or acquire before it
  is filled
bytes-from-others: => expect_tx must say what the copies bring, and these must come from threads that do not wait for
  this one first
arrivals-and-bytes: => each phase needs the arrivals that mbarrier.init says, and the bytes that are announced
warp-to-barrier: => all threads of a warp that have not ended must come to the barrier
threads-to-barrier: => all {count} threads must come to the barrier, or it must be given the number of those that do
cluster-to-barrier: => all threads of the cluster that have not ended must execute barrier.cluster.arrive
lanes-to-instruction: => all lanes that a mask names must come to the instruction, or end, or the mask must name those
  that do
unit-to-instruction: => all threads that take an instruction together must come to it, and wait for nothing else before
write-for-loop: => a thread that does not wait for this one must write what the loop waits for
endless-loop: => change the value that the loop tests, or end the loop
begin-with-parity-1: => the thread that fills an empty stage must wait for parity 1 first: this passes at once, since
  the phase before the first counts as complete
begin-with-parity-0: => the thread that reads a stage must wait for parity 0 first, the parity of the first phase
arrive-with-expect-tx: => let that thread arrive as well, as mbarrier.arrive.expect_tx does
arrive-noinc: => use cp.async.mbarrier.arrive.noinc, which is one of the arrivals that mbarrier.init says
arrive-at-each-cta: => arrive at the mbarrier of each CTA that waits for it
mask-of-waiting-ctas: => give the copy a mask with a bit for each CTA that waits for it
rounds-of-all-ctas: => let all CTAs of the cluster go through as many rounds, or let each announce what does come
one-mbarrier-for-bytes: => the copy and the announcement of its bytes must name one mbarrier
advance-each-stage: => advance the state of the ring with each stage that is taken, on both sides
# Near misses: reasons why a step that looks as if it ordered two accesses does not count.
#
# Groups, their commits and waits.
no-commit: this thread has issued an operation, and committed no group: the commit is missing
no-bulk-group: bulk groups are each thread's own, and this thread has none
no-group-of-copies: groups of copies are each thread's own, and this thread has none
no-group-of-mmas: groups of MMAs are each warpgroup's own, and this thread has none
commit-behind-wait: the commit of this operation's group stands behind this wait
commit-before-operation: no commit stands between this operation and this wait: the last one stands before the operation
leaves-one-group: it leaves the latest group in flight, and this operation is in that group
leaves-many-groups: it leaves the latest {left} groups in flight, and this operation is in one of them
waits-for-the-source: with .read it waits until the operation has read its source, and the operation may still write
# Arrivals, waits and barriers.
two-groups-at-one-barrier: two groups come to this barrier: {first}, which are the {threads} threads that it expects
  there, and {others}, which are the {others_threads} that it expects at the other line
waits-for-own-groups: groups are each thread's own: this wait is for those of {waiter}, and {issuer} has not waited for
  its own
free-before-mmas-end: it says that the bytes are free, and stands before the wait for the MMAs
free-before-copy-ends: it says that the bytes are free, and stands before the wait for the copy
filled-before-copy-ends: it says that the bytes are there, and stands before the wait for the copy
free-before-use: it says that the bytes are free, and stands before {use}
free-before-write: it says that the bytes are free, and stands before the access that writes them
lane-not-after-wait: nothing orders lane {lane} of warp {warp} after this wait: bar.warp.sync must come after it
warp-not-after-wait: nothing orders warp {warp} after this wait: a barrier must come after it
wait-for-other-bytes: it is for {wait}, and the copy's bytes count at {bytes}
arrives-and-goes-on: it arrives, and does not wait for the others: {instruction} does
passed-at-earlier-phase: it passed when phase {over} was over, and the other side arrives in phase {phase}
passed-before-first-phase: it passed when the phase before the first was over, and the other side arrives in phase
  {phase}
arrives-elsewhere: it is at {arrival}, and warp {warp} waits for {wait}
waits-elsewhere: it is for {wait}, and warp {warp} arrives at {arrival}
orders-each-cta-alone: it orders the threads of each CTA alone, and these are of CTAs {first} and {second}
orders-each-warp-alone: it orders the threads of each warp alone, and these are of warps {first} and {second}
no-part-in-barrier: warp {warp} has no part in {barrier}
# Fences.
fence-in-another-cta: it is in CTA {cta}, and for global memory the fence must be in CTA {other}, which issues the copy
fence-before-wait: it stands before the wait for the copy that it should follow
fence-before-access: it stands before the access that it should follow, and orders nothing after it
fence-behind-warp-sync: it comes behind bar.warp.sync, which tells others of the access
fence-behind-arrival: it comes behind the arrival at {barrier}, which tells others of the access
copy-not-after-fence: nothing orders the copy after this fence
fence-does-not-know: this thread does not know there of what warp {warp} did: a fence counts in the thread that did it,
  or in one that a barrier has told of it
fence-of-other-memory: it fences {fenced} memory, and these bytes are in {space} memory
fence-of-another-proxy: it is of another proxy: these accesses are of the generic and the async proxy
fence-of-threads: it orders threads, and no proxies
# Near misses of a deadlock, for which the simulator has words.
simulator-near-miss: {why}
"""
"""Rows ``NAME: problem => wanted order | words for a value that is not known``, of which parts may be missing.

The kinds stand in their order, each with its closer cases, then errors and near misses. The problem is missing where
the gist of the kind, or the error, says it, and the wanted order of a near miss.
"""


def _read(table: str) -> dict[str, Case]:
    """Read the cases of the table."""
    found = {}
    for row in rows_of(table):
        name, _, told = row.partition(":")
        texts, _, unknown = told.partition(" | ")
        wrong, _, wanted = texts.partition("=> ")
        found[name] = Case(wrong.strip(), wanted, unknown, name.startswith("read-first"))
    return found


CASES = _read(_TABLE)
"""The rows of the table, by name."""
