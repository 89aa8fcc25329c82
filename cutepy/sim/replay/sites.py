"""Lanes or operation to hold back, so that one side of a hazard comes later."""

from __future__ import annotations

from cutepy.sim.machine.policies import Site
from cutepy.sim.sanitize.hazards import Side


def site_of(side: Side) -> Site:
    """Return the site to hold, to hold back one side of a hazard."""
    i = side.instruction
    assert i is not None
    kind = i.parts[0]
    warp = None if kind == "wgmma" else side.warp
    return Site(i.index, kind, i.traits.issues, side.cta, warp, None if warp is None else side.lane)
