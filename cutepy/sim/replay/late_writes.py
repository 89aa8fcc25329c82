"""Late writes: those that would come after a read that was too early, in a launch that hangs before them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from cutepy.sim.machine.policies import HoldBack
from cutepy.sim.replay.outcomes import Request
from cutepy.sim.replay.schedule_exploration import played
from cutepy.sim.replay.sites import site_of
from cutepy.sim.replay.snapshots import Snapshot
from cutepy.sim.sanitize.hazards import Hazard

_MOST = 4
"""Reads that are looked into."""


def late_writes(reads: Collection[Hazard], snapshot: Snapshot, processes: int) -> Iterator[tuple[Hazard, Hazard]]:
    """Yield reads of unwritten memory, with the hazard of each when it is held back until nothing else goes on.

    Parameters
    ----------
    reads : collection of Hazard
        Of one side each.
    snapshot : Snapshot
    processes : int
        Processes that play at the same time.
    """
    asked = [read for read in reads if read.before is None and read.after.instruction is not None][:_MOST]
    sites = [replace(site_of(read.after), is_operation=False, cta=None, warp=None, lane=None) for read in asked]
    outcomes = played(snapshot, [Request(HoldBack(site), sanitizes=True) for site in sites], processes)
    for read, outcome in zip(asked, outcomes, strict=True):
        same = (h for _, h in outcome.hazards if h.after.place == read.after.place and h.before is not None)
        found = next((h for h in same if h.kind in ("unordered-read", "uninitialised-read")), None)
        if found is not None:
            yield read, found
