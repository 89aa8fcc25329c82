"""Lanes or operation to hold back, so that one side of a hazard comes later."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.machine.policies import Site

if TYPE_CHECKING:
    from cutepy.sim.sanitize.hazards import Side

_CTA = re.compile(r"CTA \((\d+), (\d+), (\d+)\)")
_THREAD = re.compile(r"(warp|thread) (\d+)")
_LANE = re.compile(r"lane (\d+)")


def site_of(side: Side) -> Site:
    """Return what is held to hold back one side of a hazard."""
    i = side.instruction
    assert i is not None
    kind = i.parts[0]
    is_operation = kind in ("wgmma", "cp") or i.opcode.startswith(("st.async", "red.async"))
    cta, warp = cta_of(side), side.warp
    if warp is None and (thread := _THREAD.search(side.who)):
        warp = int(thread[2]) // (WARP if thread[1] == "thread" else 1)
    lane = side.lane
    if lane is None and (numbered := _LANE.search(side.who)):
        lane = int(numbered[1])
    if kind == "wgmma":
        warp = lane = None
    return Site(i.index, kind, is_operation, cta, warp, None if warp is None else lane)


def cta_of(side: Side) -> tuple[int, ...] | None:
    """Return which CTA a side of a hazard is in, if that is known."""
    return cta_named(side.who) if side.cta is None else side.cta


def cta_named(text: str) -> tuple[int, ...] | None:
    """Return the first CTA that a text names, if it does.

    Examples
    --------
    >>> cta_named("shared memory of CTA (1, 0, 0)")
    (1, 0, 0)
    """
    named = _CTA.search(text)
    return None if named is None else tuple(map(int, named.groups()))
