"""Last writer of a polled word, for threads that wait by reading it again and again."""

from __future__ import annotations

from cutepy.sim.machine.lanes import Array, Residents
from cutepy.sim.sanitize.hazards import Side
from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow
from cutepy.sim.sanitize.memory.shared_accesses import SharedAccesses
from cutepy.sim.sanitize.reports import global_memory
from cutepy.sim.sanitize.reports.findings import side
from cutepy.sim.sanitize.reports.global_memory import GlobalFindings
from cutepy.sim.sanitize.reports.mistakes import MistakeHazard


def with_last_writer(
    found: MistakeHazard,
    residents: Residents,
    waiting: Array,
    shared: SharedAccesses,
    of_global: GlobalFindings,
    shadow: GlobalShadow,
) -> MistakeHazard:
    """Return a deadlock at a polled word with the last writer of the word that is not among the waiting threads."""
    place, before = found.place, found.before
    if found.kind != "deadlock":
        return found
    if place.address is not None:
        before = before or _last_writer(place.address, found.after, residents, waiting, shared)
    elif place.global_address is not None:
        at = place.global_address
        before = before or global_memory.last_writer(at, shadow, of_global.launches, residents.blocks, waiting)
        place = of_global.place(at)
    return found._replace(place=place, before=before)


def _last_writer(
    address: int, after: Side, residents: Residents, waiting: Array, shared: SharedAccesses
) -> Side | None:
    """Return the last writer of shared memory of the reading CTA: None if it is the waiting thread, by atomics."""
    slot = None if after.cta is None else residents.slot_of(after.cta)
    for touch, row, lane in () if slot is None else shared.last_writers(slot, address):
        if touch.threads is None or not waiting[touch.agents[row], touch.threads[lane]]:
            return side(residents, touch, lane, row)
    return None
