"""Reports of mistakes that end a launch, and of aligned instructions that part of a warp or warpgroup executes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Execution, NamedLanes, Place, SimulationError, Wait
from cutepy.sim.machine.events import PartialUnit
from cutepy.sim.machine.lanes import WARP, Array, listed
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.hazards import NearMiss, Side, WaitingThreads
from cutepy.sim.sanitize.kinds import KINDS

_HANGS = ("deadlock", "exhausted-registers")


class MistakeHazard(NamedTuple):
    """The hazard of a mistake of a kernel: kind, barrier or bytes, both sides, diagnosis.

    A deadlock also has its waits that do not end, and its near misses.
    """

    kind: str
    place: Place
    before: Side | None
    after: Side
    diagnosis: Diagnosis
    waits: tuple[WaitingThreads, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()


def hazard_of(error: SimulationError, *, ends: bool) -> MistakeHazard:
    """Return the hazard that a mistake is; `ends` tells whether the launch ends by it."""
    i, before, at = error.instruction, error.before, error.at
    after = Side(error.kind, str(error.who or "the kernel")) if i is None else _side(i, error.who)
    ends = ends and error.kind not in _HANGS  # of these all know that nothing comes after
    diagnosis = Diagnosis(
        "simulator-error-ends-launch" if ends else "simulator-error",
        message=error.message,
        fix=error.fix or KINDS[error.kind].diagnosis,
    )
    return MistakeHazard(
        error.kind,
        Place(_SUBJECTS[error.kind]) if at is None else at,
        None if before is None else _side(before.instruction, before.who),
        after,
        diagnosis,
        tuple(map(_waiting, error.waits)),
        tuple(
            NearMiss(
                one.kind,
                Diagnosis("simulator-near-miss", why=one.why),
                None if one.execution is None else _side(one.execution.instruction, one.execution.who),
            )
            for one in error.chances
        ),
    )


def _waiting(wait: Wait) -> WaitingThreads:
    return WaitingThreads(
        wait.at.name,
        wait.lacks,
        tuple(_all_of(execution) for execution in wait.executions),
        tuple((_all_of(one.execution), one.waits_at) for one in wait.bringers),
        tuple(one.is_sure for one in wait.bringers),
        wait.at.mbarrier,
    )


def _all_of(execution: Execution) -> Side:
    """Return a side that names all lanes, and not the first alone."""
    return replace(_side(execution.instruction, execution.who), who=str(execution.who))


_SUBJECTS = {"invalid-access": "memory", "invalid-descriptor": "a descriptor", "misused-barrier": "a barrier"}
"""Objects of the mistakes that name none."""


def _side(i: Instruction, who: NamedLanes | None) -> Side:
    name, access = i.name, i.traits.access
    if who is None:
        return Side(name, "the kernel", i, access=access)
    lane = f"warp {who.warp}, lane {who.lane} of CTA {who.cta}"
    return Side(name, lane, i, who.cta, who.warp, who.lane, access=access)


def part_of_a_unit(found: PartialUnit) -> tuple[str, Place, Side | None, Side, Diagnosis]:
    """Return the kind of the hazard, its place, its two sides, and the missing operation."""
    i, cta = found.instruction, found.residents.coordinate(found.slot)
    name = i.name
    warp, lane = divmod(int(found.executed[0]), WARP)
    many = len(np.unique(found.executed // WARP)) > 1
    executed = Side(name, f"{_threads(found.executed)} of CTA {cta}", i, cta, warp, lane, of_warps=many)
    branch = None
    if found.branch is not None and found.branch.index != i.index:
        warps = np.unique(np.concatenate([found.executed, found.lacking]) // WARP)
        who = f"{listed('warp', warps)} of CTA {cta}"
        branch = Side(found.branch.parts[0], who, found.branch, cta, warp, of_warps=len(warps) > 1)
    if found.unit != WARP:
        diagnosis = Diagnosis("warps-left-out", threads=_threads(found.lacking), instruction=name)
        return "partial-warpgroup", Place(name), branch, executed, diagnosis
    lanes = listed("lane", found.lacking % WARP)
    if i.traits.meets:
        unaligned = name.replace("bar.", "barrier.")
        diagnosis = Diagnosis("lanes-left-out-of-barrier", lanes=lanes, instruction=name, unaligned=unaligned)
    else:
        diagnosis = Diagnosis("lanes-left-out", lanes=lanes, instruction=name)
    return "partial-warp", Place(name), branch, executed, diagnosis


def _threads(threads: Array) -> str:
    """Name threads: whole warps, or lanes of the first warp that is here in part.

    Examples
    --------
    >>> _threads(np.arange(64)), _threads(np.array([32])), _threads(np.array([1, 2, 3, 9]))
    ('warps 0-1', 'warp 1, lane 0', 'warp 0, lanes 1-3, 9')
    """
    warps, sizes = np.unique(threads // WARP, return_counts=True)
    if (sizes == WARP).all():
        return listed("warp", warps)
    warp = warps[sizes < WARP][0]
    return f"warp {warp}, {listed('lane', threads[threads // WARP == warp] % WARP)}"
