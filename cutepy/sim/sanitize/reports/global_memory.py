"""Reports of hazards in global memory: conflicts become findings, with both accesses and the missing order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.errors import Place
from cutepy.sim.machine.host_events import REUSE
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.machine.launch import Launch
from cutepy.sim.ptx.memory_order import NAMES
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.kinds import KINDS, Diagnosis
from cutepy.sim.sanitize.memory.discarded import Discarded
from cutepy.sim.sanitize.order.flags import Did
from cutepy.sim.sanitize.reports.reasons import TOGETHER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.memory import GlobalMemory
    from cutepy.sim.ptx.model import Function
    from cutepy.sim.sanitize.hazards import NearMiss
    from cutepy.sim.sanitize.memory.global_access_record import GlobalAccessRecord, GlobalConflict
    from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow
    from cutepy.sim.sanitize.order.flags import Flags
    from cutepy.sim.sanitize.order.launches import Launches


_MAP_IN_USE = Diagnosis(
    "the copy may still read this tensor map",
    "a wait for the mbarrier that its bytes arrive at must come before the change; or "
    "cp.async.bulk.commit_group and cp.async.bulk.wait_group.read 0 by its thread, and a "
    "barrier",
)
_EARLY = Diagnosis(
    "the kernel began before the one before it was over (programmatic dependent launch)",
    "griddepcontrol.wait must come before this access, in its thread or before a barrier",
)
_NOT_SHOWN = Diagnosis(
    "the kernel was launched when the threads of the one before it had ended (programmatic "
    "dependent launch), which shows it nothing of what they wrote",
    "griddepcontrol.wait must come before this access, in its thread or before a barrier",
)
_IN_A_GRAPH = Diagnosis(
    "the kernel follows one that did not wait for those before it, and in a graph it waits for that one alone",
    "that must execute griddepcontrol.wait, or be launched without the attribute",
)
_FURTHER_BACK = Diagnosis(
    "griddepcontrol.wait waits for the kernel just before only, and that did not wait itself for the ones before it",
    "it must execute griddepcontrol.wait, or this launch must go without the attribute",
)
_GIVEN_AWAY = Diagnosis(
    "the tensor was freed while another stream uses it, and torch's allocator may give its "
    "memory to the next one of the stream that it was made in",
    "tensor.record_stream(that other stream) must come before it is freed, or the stream "
    "that it was made in must wait for the other one",
)
NEVER_WRITTEN = Diagnosis(
    "nothing has written these bytes since they were allocated, or discarded, and they hold what was there before",
    "write them first, such as by torch.zeros in place of torch.empty, or order this after what does",
)
COMES_TO_NOTHING = Diagnosis(
    "nothing orders these, and nothing comes of what this lane reads",
    "the lanes that store what is made of it are others; let these alone read it, and there is no race",
)


def sides(found: GlobalConflict, launches: Launches) -> tuple[Side, Side]:
    """Return both sides of a conflict."""
    different = found.before.launch != found.after.launch
    before, after = (
        side(touch, lane, launches, named=different)
        for touch, lane in ((found.before, found.before_lane), (found.after, found.after_lane))
    )
    return before, after


def side(touch: GlobalAccessRecord, lane: int, launches: Launches, named: bool = False) -> Side:
    """Return who touched global memory, with the launch if it is to be named."""
    launch = launches.operation(touch.launch)
    if not isinstance(launch, Launch):
        return Side(touch.what, f"the host in stream {launch.stream:#x}", touch.instruction)
    x, y, _ = launch.grid
    row, column = divmod(lane, touch.lanes)
    block = int(touch.ctas[row])
    cta = block % x, block // x % y, block // (x * y)
    of, own = (f" of {launch.name} in stream {launch.stream:#x}", launch) if named else ("", None)
    if touch.threads is None:
        return Side(touch.what, f"the async proxy for CTA {cta}{of}", touch.instruction, cta, launch=own, is_async=True)
    warp, within = divmod(int(touch.threads[column]), WARP)
    who = f"warp {warp}, lane {within} of CTA {cta}{of}"
    return Side(touch.what, who, touch.instruction, cta, warp, within, launch=own)


def place(address: int, known: GlobalMemory, launch: Launch | None) -> Place:
    """Say where an address is: in which allocation, and how far from its start, or from what the kernel was given."""
    region = known.find(address, address + 1)
    if region is None:
        return Place.of_global(address)
    start, name = region.start, region.name.rstrip(",") or "an allocation"
    given = [(at, -number) for at, number in _pointers(launch) if start <= at <= address]
    if given:
        start, number = max(given)
        name = f"argument {-number}, {'in ' * name.startswith('an ')}{name}"
    return Place(f"global memory, byte {address - start:#x} of {name}", global_address=address)


def last_writer(address: int, shadow: GlobalShadow, launches: Launches, blocks: Array, waiting: Array) -> Side | None:
    """Return who wrote last to what threads wait for, (slot, thread), of the CTAs in the slots, beside these."""
    those = {(int(blocks[slot]), thread) for slot, thread in np.argwhere(waiting).tolist()}
    for touch, lane in shadow.writers(address):
        row, column = divmod(lane, touch.lanes)
        thread = -1 if touch.threads is None else int(touch.threads[column])
        if (int(touch.ctas[row]), thread) not in those:
            return side(touch, lane, launches)
    return None


def _pointers(launch: Launch | None) -> Iterator[tuple[int, int]]:
    """Yield what may be an address in what a kernel was given, and the number of its parameter."""
    for number, data in enumerate(() if launch is None else launch.parameters.values()):
        yield from ((word, number) for word in np.frombuffer(data, "<u8", len(data) // 8).tolist())


def told(found: GlobalConflict, launches: Launches, flags: Flags) -> tuple[str, Diagnosis]:
    """Return the kind of hazard that two touches are, and what is missing between them."""
    why = None
    if found.kind.startswith("unordered"):
        old, new = found.before, found.after
        row, lane = divmod(found.before_lane, old.lanes)
        shape = len(old.ctas), old.lanes
        column, count = (int(np.broadcast_to(x, shape)[row, lane]) for x in (old.columns, old.counts))
        before = Did((old.launch, int(old.clusters[row])), int(old.ranks[row]), column, count)
        why = flags.too_weak(before, int(new.ctas[found.after_lane // new.lanes]))
    return (found.kind, _advice(found, launches)) if why is None else ("too-weak-semantics", why)


def _advice(found: GlobalConflict, launches: Launches) -> Diagnosis:
    """Say what is missing between two touches."""
    before, after, kind = found.before, found.after, found.kind
    if kind == "early-access":
        if not launches.is_programmatic:
            return _IN_A_GRAPH
        if not launches.waits(before.launch):
            return _FURTHER_BACK
        return _NOT_SHOWN if launches.reads_no_more(before.launch) else _EARLY
    if kind == "missing-proxy-fence":
        return _between_proxies("wrote it", "touches it", "write")
    if kind == "unfenced-overwrite":
        return _between_proxies("read it", "overwrites it", "read")
    if kind in ("non-coherent-read", "missing-tensormap-fence", "partial-overlap"):
        return KINDS[kind].diagnosis
    if kind == "too-narrow-scope":
        return _about_scope(found)
    if after.instruction.opcode == REUSE:
        return _GIVEN_AWAY
    if before.proxy == "tensormap":
        return _MAP_IN_USE
    row_before, row_after = found.before_lane // before.lanes, found.after_lane // after.lanes
    same_cta = int(before.ctas[row_before]) == int(after.ctas[row_after])
    if before is after and before.threads is not None and same_cta:
        return TOGETHER
    if before.launch != after.launch:
        return Diagnosis(
            "the launches are in streams that nothing orders",
            "record an event after the first and let the other's stream wait for it",
        )
    if before.proxy == "async" and before.writes:
        done = "cp.async.bulk.wait_group (without .read) must come before"
        then = "a barrier" if same_cta else "a release that the other CTA acquires"
        return Diagnosis("the store may not be complete", f"{done}, then {then}")
    if same_cta:
        return Diagnosis(
            "", "a barrier that both take part in, or a release that the other acquires, must come between"
        )
    return Diagnosis(
        "nothing orders these CTAs",
        "a release (fence.acq_rel.gpu and an atomic, or st.release.gpu) must come after the "
        "first, and an acquire that sees it (ld.acquire.gpu) before the second; or two launches; "
        "or atomics on both",
    )


def _between_proxies(did: str, does: str, first: str) -> Diagnosis:
    return Diagnosis(
        f"threads {did}, and a copy by the async proxy {does}",
        "fence.proxy.async is missing between, in the CTA that issues the copy, after it knows of the "
        f"{first} and before the copy",
    )


def _about_scope(found: GlobalConflict) -> Diagnosis:
    before, after = found.before, found.after
    if not (before.scope and after.scope):
        return Diagnosis(
            "it is over by then, and nothing shows it to this CTA",
            "the arrival at another CTA's mbarrier must be mbarrier.arrive.release.cluster, and the "
            "wait there mbarrier.try_wait.acquire.cluster, which without a scope are .cta",
        )
    narrow = before if before.scope <= after.scope else after
    row_before, row_after = found.before_lane // before.lanes, found.after_lane // after.lanes
    near = before.launch == after.launch and int(before.clusters[row_before]) == int(after.clusters[row_after])
    needed = "cluster" if near else "gpu"
    return Diagnosis(
        f"the scope of the {narrow.instruction.parts[0]} is {NAMES[narrow.scope]}, and the other "
        "thread is outside of it",
        f"both need .{needed} or wider",
    )


class GlobalFindings:
    """Tells conflicts in global memory, those of loads once it is known what comes of what they loaded.

    Parameters
    ----------
    tell : callable
        Tells one, as `Findings.tell` does.
    launches : Launches
    flags : Flags
    known : callable
        Returns the memory that kernels may touch.
    near : callable
        Returns the near misses of a conflict.

    Attributes
    ----------
    launches : Launches
    """

    def __init__(
        self,
        tell: Callable[..., None],
        launches: Launches,
        flags: Flags,
        known: Callable[[], GlobalMemory],
        near: Callable[[GlobalConflict], Sequence[NearMiss]],
    ) -> None:
        self._tell_one, self.launches, self._flags, self._known, self._near = tell, launches, flags, known, near
        self._launch: Launch | None = None
        self._discarded = Discarded()

    def begin(self, launch: Launch, function: Function, is_steered: bool) -> None:
        """Begin with a launch, which something that depends on the schedule may steer."""
        self._launch = launch
        self._discarded.begin(launch, function, is_steered)

    def note(self, access: Access) -> None:
        """See an access, which may store what was loaded."""
        self._discarded.note(access)

    def conflict(self, found: GlobalConflict) -> None:
        """Tell a conflict, or hold it."""
        if self._launch is None or not self._discarded.hold(found):
            self._tell(found)

    def tell_held(self, *, is_over: bool) -> None:
        """Tell those that were held, when CTAs have ended, or can't go on."""
        for found, comes_to_nothing in self._discarded.decided(is_over=is_over):
            self._tell(found, comes_to_nothing)

    def unwritten(self, touch: GlobalAccessRecord, lane: int, address: int) -> None:
        """Tell that something is read which nothing wrote."""
        after = side(touch, lane, self.launches)
        where = self.place(address)
        self._tell_one("uninitialised-read", where, None, after, NEVER_WRITTEN)

    def unacquired(self, touch: GlobalAccessRecord, lane: int, address: int) -> None:
        """Tell that a copy uses a tensor map of the host, or of a launch that is forgotten, without a fence."""
        after = side(touch, lane, self.launches)
        self._tell_one("missing-tensormap-fence", self.place(address), None, after)

    def place(self, address: int) -> Place:
        """Say where an address is."""
        return place(address, self._known(), self._launch)

    def _tell(self, found: GlobalConflict, comes_to_nothing: bool = False) -> None:
        before, after = sides(found, self.launches)
        where = self.place(found.address)
        kind, diagnosis = told(found, self.launches, self._flags)
        near = self._near(found)
        if comes_to_nothing:
            kind, diagnosis, near = "discarded-read", COMES_TO_NOTHING, ()
        self._tell_one(kind, where, before, after, diagnosis, near_misses=near)
