"""The sanitizer's results for a case, as a record: hazards, schedules that differ, certificates.

It is imported by the process of a source, by its file's name.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

_TOLD = 8
"""Hazards and schedules of a case that are told one by one."""

_CHARACTERS = 8000
"""Of a report that are kept."""


def explore_once(run: Any) -> None:
    """Play schedules of the first launch of each kernel and grid only, of those since the run restarted."""
    replays = run._replays
    around, schedules, restart = replays.around, replays._asked, replays.restart
    seen: set[tuple[object, ...]] = set()

    def once(launch: Any, *known: Any) -> AbstractContextManager[None]:
        key = launch.ptx, launch.kernel, launch.grid
        replays._asked = 0 if key in seen else schedules
        seen.add(key)
        entered: AbstractContextManager[None] = around(launch, *known)
        return entered

    def forget() -> None:
        seen.clear()
        restart()

    replays.around, replays.restart = once, forget


def facts(run: Any) -> dict[str, Any]:
    """Return what is known of the launches of a run, and forget them."""
    hazards, explorations, certificates = run.hazards, run.explorations, run.certificates
    found = {
        "launches": len(run.launches),
        "kernels": sorted({launch.name for launch in run.launches}),
        "hazards": Counter(hazard.kind for hazard in hazards),
        "report": str(hazards)[:_CHARACTERS] if hazards else "",
        "witnesses": [_witness(hazard) for hazard in hazards[:_TOLD]],
        "schedules": sum(len(explored.seeds) for explored in explorations),
        "differ": [f"{e.kernel}: {d}" for e in explorations for d in e.divergences][:_TOLD],
        "reordered": sum(len(explored.reordered) for explored in explorations),
        "certified": sum(certificate.is_certified for certificate in certificates),
        "uncertified": Counter(_plain(reason) for c in certificates for reason in c.reasons[:1]),
    }
    run.restart()
    return found


def _witness(hazard: Any) -> str:
    try:
        return f"{hazard.kind}: {hazard.replay()}"
    except Exception as error:
        return f"{hazard.kind}: {type(error).__name__}: {error}"


def _plain(reason: str) -> str:
    """Return a reason without what differs from launch to launch."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", reason.splitlines()[0])[:160]
