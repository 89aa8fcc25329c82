"""Near misses of a hazard: operations that look like what is missing, and why they do not count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.sanitize.hazards import Side

NEAR_MISSES = {
    "absent-peer": "a CTA of the cluster brought its part of earlier phases, and comes there no more",
    "counted-besides": "an asynchronous arrival without `.noinc` adds itself to what the phase expects",
    "early-release": "an arrival says that bytes are free, and stands before the wait for what still reads them",
    "expect-tx": "`expect_tx` announces bytes, and is no arrival",
    "first-parity": "the first wait at a new mbarrier is for parity 0 by who is to fill the stage",
    "multicast-mask": "the mask of a copy to several CTAs lacks the one that waits for its bytes",
    "no-barrier-behind": "another thread has waited, and nothing orders this thread after that one",
    "nothing-to-wait-for": "a wait for groups, by a thread that has committed none",
    "other-stage": "arrivals came at another stage of the ring",
    "own-arrival": "the thread that waits would arrive itself, after its wait",
    "shared-barrier": "two groups of threads use one named barrier",
}
"""Kinds of near misses, and what each is."""


@dataclass(frozen=True)
class NearMiss:
    """Something that was done, and looks like what is missing.

    Attributes
    ----------
    kind : str
        One of `NEAR_MISSES`.
    why : str
        Why it does not count.
    side : Side or None
        What was done, by whom and at which line.
    """

    kind: str
    why: str
    side: Side | None = None


@dataclass(frozen=True)
class Waiting:
    """Threads that wait for ever, and those that would let them go on.

    Attributes
    ----------
    at : str
        What is waited for, such as "mbarrier ring.full, stage 1 (0x410)".
    lacks : str
        What of it has come, and what has not.
    sides : tuple of Side
        Who waits, and where.
    bringers : tuple of (Side, str)
        Who would bring it, at which instruction, and what that one waits for first.
    """

    at: str
    lacks: str
    sides: tuple[Side, ...]
    bringers: tuple[tuple[Side, str], ...] = ()
