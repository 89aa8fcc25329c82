"""Search over all schedules of a launch for their outcomes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cutepy.sim.replay.outcomes import Outcome
from cutepy.sim.replay.search.guided_interleaving import BlockedPickError, GuidedInterleaving, StepLimitError
from cutepy.sim.replay.search.step_accesses import StepObserver
from cutepy.sim.replay.search.tree import AlreadyPlayedError, Tree

if TYPE_CHECKING:
    from cutepy.sim.machine.observer import Observer


@dataclass(frozen=True)
class Search:
    """Parameters of a search.

    Attributes
    ----------
    limit : int
        Of schedules.
    reduces : bool
        True to play one of those that differ in the order of steps that commute.
    """

    limit: int
    reduces: bool = True


@dataclass
class SearchResult:
    """Result of a search.

    Attributes
    ----------
    schedules, redundant : int
        Numbers of schedules that were played to their end, and of schedules that were stopped as equivalent to one of
        these.
    is_complete : bool
        True if the search played every schedule.
    steps : int
        Length of the longest schedule.
    found : list of (str, Outcome)
        Each distinct outcome once, with the choices of its first schedule. A hazard is listed with the first outcome
        that has it.
    endless : str
        The choices of the first schedule that was stopped because it does not end; empty if there is none.
    """

    schedules: int = 0
    redundant: int = 0
    is_complete: bool = False
    steps: int = 0
    found: list[tuple[str, Outcome]] = field(default_factory=list)
    endless: str = ""


Play = Callable[[GuidedInterleaving, Sequence["Observer"]], Outcome]


def search(play: Play, request: Search, reads_counts: bool, waits: frozenset[int] = frozenset()) -> SearchResult:
    """Play all schedules.

    Parameters
    ----------
    play : callable
        Plays one on memory as it was, and raises what a policy raises.
    request : Search
    reads_counts : bool
        True if the kernel looks at how many arrivals an mbarrier lacks.
    waits : frozenset of int
        The tries that are made again until they succeed, by index of the instruction.
    """
    tree, touching = Tree(request.reduces), StepObserver(reads_counts, waits)
    policy, result, parent = GuidedInterleaving(tree, touching), SearchResult(), os.getppid()
    known: dict[tuple[str, bytes], None] = {}
    hazards: set[str] = set()
    while result.schedules < request.limit:
        if os.getppid() != parent:  # nobody waits for it any more
            break
        try:
            outcome = play(policy, (touching,))
        except BlockedPickError:
            policy.hold()
            continue
        except AlreadyPlayedError:
            result.redundant += 1
        except StepLimitError:
            result.endless = result.endless or repr(policy)
            result.schedules += 1
        else:
            result.schedules += 1
            result.steps = max(result.steps, len(tree.nodes) - 1)
            key = outcome.kind, outcome.error.encode() or outcome.digest
            new = [h for h in outcome.hazards if h[0] not in hazards]
            if key not in known or new:
                known[key] = None
                hazards |= {name for name, _ in new}
                result.found.append((repr(policy), outcome.with_hazards(new)))
        if not tree.advance():
            result.is_complete = not result.endless
            break
    return result
