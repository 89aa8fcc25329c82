"""What is told of mistakes that the machine finds: most end the launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.errors import Place
from cutepy.sim.sanitize.hazards import NearMiss, Side, Waiting
from cutepy.sim.sanitize.kind import Diagnosis
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.reports.parts import opcode

if TYPE_CHECKING:
    from cutepy.sim.errors import Deed, SimulationError, Wait, Who
    from cutepy.sim.ptx.model import Instruction

_HANGS = ("deadlock", "exhausted-registers")
_ENDS = "; the launch ends there, and what would come after was not looked at"


class Told(NamedTuple):
    """A hazard: its kind, the barrier or the bytes that it is at, its two sides, and what is wrong.

    A deadlock has the waits that do not end, and near misses.
    """

    kind: str
    place: Place
    before: Side | None
    after: Side
    diagnosis: Diagnosis
    waits: tuple[Waiting, ...] = ()
    near_misses: tuple[NearMiss, ...] = ()


def told(error: SimulationError, *, ends: bool) -> Told:
    """Return the hazard that a mistake is; `ends` tells whether the launch ends by it."""
    i, before, at = error.instruction, error.before, error.at
    after = Side(error.kind, str(error.who or "the kernel")) if i is None else _side(i, error.who)
    ends = ends and error.kind not in _HANGS  # of these all know that nothing comes after
    wrong, wanted = error.message + _ENDS * ends, error.fix or KINDS[error.kind].missing
    return Told(
        error.kind,
        Place(_SUBJECTS[error.kind]) if at is None else at,
        None if before is None else _side(before.instruction, before.who),
        after,
        Diagnosis(wrong, wanted),
        tuple(map(_waiting, error.waits)),
        tuple(
            NearMiss(one.kind, one.why, None if one.deed is None else _side(one.deed.instruction, one.deed.who))
            for one in error.chances
        ),
    )


def _waiting(wait: Wait) -> Waiting:
    return Waiting(
        wait.at.name,
        wait.lacks,
        tuple(_all_of(deed) for deed in wait.deeds),
        tuple((_all_of(one.deed), one.waits_at) for one in wait.bringers),
        tuple(one.is_sure for one in wait.bringers),
        wait.at.mbarrier,
    )


def _all_of(deed: Deed) -> Side:
    """Return a side that names all lanes, and not the first alone."""
    return replace(_side(deed.instruction, deed.who), who=str(deed.who))


_SUBJECTS = {"invalid-access": "memory", "invalid-descriptor": "a descriptor", "misused-barrier": "a barrier"}
"""What those are at that don't say it."""


_ACCESSES = {
    **dict.fromkeys(("ld", "ldu", "ldmatrix"), "read"),
    **dict.fromkeys(("st", "stmatrix"), "write"),
    **dict.fromkeys(("atom", "red"), "atomic"),
}


def _side(i: Instruction, who: Who | None) -> Side:
    first = i.parts[0]
    what = f"{first} {_ACCESSES[first]}" if first in _ACCESSES else opcode(i.parts)
    if who is None:
        return Side(what, "the kernel", i)
    return Side(what, f"warp {who.warp}, lane {who.lane} of CTA {who.cta}", i, who.cta, who.warp, who.lane)
