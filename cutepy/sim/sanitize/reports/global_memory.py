"""Reports of hazards in global memory: conflicts become findings, with both accesses and the missing order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Place
from cutepy.sim.machine.host_events import REUSE
from cutepy.sim.machine.launch import Launch
from cutepy.sim.ptx.memory_order import NAMES
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.kinds import KINDS, RACES
from cutepy.sim.sanitize.memory.discarded_loads import DiscardedLoads
from cutepy.sim.sanitize.order.flags import ThreadProgress
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


def sides(found: GlobalConflict, launches: Launches) -> tuple[Side, Side]:
    """Return both sides of a conflict."""
    different = found.before.launch != found.after.launch
    before, after = (
        side(touch, lane, launches, named=different)
        for touch, lane in ((found.before, found.before_lane), (found.after, found.after_lane))
    )
    return before, after


def side(touch: GlobalAccessRecord, lane: int, launches: Launches, named: bool = False) -> Side:
    """Return the thread or copy that touched global memory, with the launch if it is to be named."""
    launch = launches.operation(touch.launch)
    if not isinstance(launch, Launch):
        return Side(touch.name, f"the host in stream {launch.stream:#x}", touch.instruction, access=touch.access)
    x, y, _ = launch.grid
    row, column = divmod(lane, touch.lanes)
    block = int(touch.ctas[row])
    cta = block % x, block // x % y, block // (x * y)
    own = launch if named else None
    if touch.threads is None:
        return Side.of_proxy(touch.name, cta, touch.instruction, touch.access, own)
    return Side.of_thread(touch.name, cta, int(touch.threads[column]), touch.instruction, touch.access, own)


def place(address: int, known: GlobalMemory, launch: Launch | None) -> Place:
    """Describe an address: its allocation, and its distance from the start, or from a kernel's argument."""
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
    """Return the last writer of words that threads wait for, (slot, thread), of the CTAs in the slots."""
    those = {(int(blocks[slot]), thread) for slot, thread in np.argwhere(waiting).tolist()}
    for touch, lane in shadow.writers(address):
        row, column = divmod(lane, touch.lanes)
        thread = -1 if touch.threads is None else int(touch.threads[column])
        if (int(touch.ctas[row]), thread) not in those:
            return side(touch, lane, launches)
    return None


def _pointers(launch: Launch | None) -> Iterator[tuple[int, int]]:
    """Yield the possible addresses in a kernel's arguments, and the number of the parameter of each."""
    for number, data in enumerate(() if launch is None else launch.parameters.values()):
        yield from ((word, number) for word in np.frombuffer(data, "<u8", len(data) // 8).tolist())


def told(found: GlobalConflict, launches: Launches, flags: Flags) -> tuple[str, Diagnosis]:
    """Return the kind of hazard of two touches, and the operation missing between them."""
    why = None
    if found.kind in RACES:
        old, new = found.before, found.after
        row, lane = divmod(found.before_lane, old.lanes)
        shape = len(old.ctas), old.lanes
        column, count = (int(np.broadcast_to(x, shape)[row, lane]) for x in (old.columns, old.counts))
        before = ThreadProgress((old.launch, int(old.clusters[row])), int(old.ranks[row]), column, count)
        why = flags.too_weak(before, int(new.ctas[found.after_lane // new.lanes]))
    return (found.kind, _advice(found, launches)) if why is None else ("too-weak-semantics", why)


def _advice(found: GlobalConflict, launches: Launches) -> Diagnosis:
    """Name the operation missing between two touches."""
    before, after, kind = found.before, found.after, found.kind
    if kind == "early-access":
        if not launches.is_programmatic:
            return Diagnosis("graph-waits-for-one")
        if not launches.waits(before.launch):
            return Diagnosis("launch-further-back")
        has_ended = launches.reads_no_more(before.launch)
        return Diagnosis("launch-shows-nothing" if has_ended else "launch-before-end")
    if kind == "missing-proxy-fence":
        return Diagnosis("unfenced-write-of-threads")
    if kind == "unfenced-overwrite":
        return Diagnosis("unfenced-read-of-threads")
    if kind in ("non-coherent-read", "missing-tensormap-fence", "partial-overlap"):
        return KINDS[kind].diagnosis
    if kind == "too-narrow-scope":
        return _about_scope(found)
    if after.instruction.opcode == REUSE:
        return Diagnosis("freed-while-in-use")
    if before.proxy == "tensormap":
        return Diagnosis("tensor-map-may-be-in-use")
    row_before, row_after = found.before_lane // before.lanes, found.after_lane // after.lanes
    same_cta = int(before.ctas[row_before]) == int(after.ctas[row_after])
    if before is after and before.threads is not None and same_cta:
        return TOGETHER
    if before.launch != after.launch:
        return Diagnosis("unordered-streams")
    if before.proxy == "async" and before.writes:
        return Diagnosis("store-may-be-in-flight" if same_cta else "store-may-be-in-flight-to-another-cta")
    return Diagnosis("unordered-threads" if same_cta else "unordered-ctas")


def _about_scope(found: GlobalConflict) -> Diagnosis:
    before, after = found.before, found.after
    if not (before.scope and after.scope):
        return Diagnosis("shown-to-one-cta")
    narrow = before if before.scope <= after.scope else after
    row_before, row_after = found.before_lane // before.lanes, found.after_lane // after.lanes
    near = before.launch == after.launch and int(before.clusters[row_before]) == int(after.clusters[row_after])
    return Diagnosis(
        "thread-outside-scope",
        opcode=narrow.instruction.parts[0],
        scope=NAMES[narrow.scope],
        needed="cluster" if near else "gpu",
    )


class GlobalFindings:
    """Reports conflicts in global memory; those of loads once the use of the loaded values is known.

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
        self._discarded = DiscardedLoads()

    def begin(self, launch: Launch, function: Function, is_steered: bool) -> None:
        """Begin with a launch, which something that depends on the schedule may steer."""
        self._launch = launch
        self._discarded.begin(launch, function, is_steered)

    def note(self, access: Access) -> None:
        """Observe an access, which may store loaded values."""
        self._discarded.note(access)

    def conflict(self, found: GlobalConflict) -> None:
        """Report a conflict, or hold it for later."""
        if self._launch is None or not self._discarded.hold(found):
            self._tell(found)

    def tell_held(self, *, is_over: bool) -> None:
        """Report deferred conflicts, when CTAs ended or are stuck."""
        for found, comes_to_nothing in self._discarded.decided(is_over=is_over):
            self._tell(found, comes_to_nothing)

    def unwritten(self, touch: GlobalAccessRecord, lane: int, address: int) -> None:
        """Report a read of bytes that nothing has written."""
        after = side(touch, lane, self.launches)
        where = self.place(address)
        self._tell_one("uninitialised-read", where, None, after, Diagnosis("global-memory-not-written"))

    def unacquired(self, touch: GlobalAccessRecord, lane: int, address: int) -> None:
        """Report a copy by a tensor map of the host, or of a discarded launch, without a fence."""
        after = side(touch, lane, self.launches)
        self._tell_one("missing-tensormap-fence", self.place(address), None, after)

    def place(self, address: int) -> Place:
        """Describe the place of an address."""
        return place(address, self._known(), self._launch)

    def _tell(self, found: GlobalConflict, comes_to_nothing: bool = False) -> None:
        before, after = sides(found, self.launches)
        where = self.place(found.address)
        kind, diagnosis = told(found, self.launches, self._flags)
        near = self._near(found)
        if comes_to_nothing:
            kind, diagnosis, near = "discarded-read", Diagnosis("nothing-comes-of-load"), ()
        self._tell_one(kind, where, before, after, diagnosis, near_misses=near)
