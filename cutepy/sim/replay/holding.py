"""One side of a hazard held back, until nothing else can go on: the schedule in which the other side comes first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.interleaving import Agent, Interleaving
from cutepy.sim.machine.lanes import WARP

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.lanes import Ctas, Threads
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.hazards import Side

_CTA = re.compile(r"CTA \((\d+), (\d+), (\d+)\)")
_THREAD = re.compile(r"(warp|thread) (\d+)")
_LANE = re.compile(r"lane (\d+)")

POISON = 0xFF
"""NaN as a float of any size, -1 as an integer."""

_PATIENCE = 20_000


@dataclass(frozen=True)
class Site:
    """What is held back.

    Attributes
    ----------
    instruction : int
        Its index.
    kind : str
        "wgmma" for MMAs, which complete in groups; otherwise the instruction says which operations it issues.
    is_operation : bool
        Whether what completes is held, and not the lanes that execute the instruction.
    cta : (int, int, int) or None
    warp, lane : int or None
        Whose; None for all.
    """

    instruction: int
    kind: str = ""
    is_operation: bool = False
    cta: tuple[int, ...] | None = None
    warp: int | None = None
    lane: int | None = None

    def holds(self, agent: Agent) -> bool:
        """Tell whether an agent is what is held."""
        if (agent.operation is not None) != self.is_operation or not _is_among(self.cta, agent.ctas):
            return False
        if self.warp is None:
            return self.names(agent)
        ids = agent.threads.ids
        is_here = self.warp in ids // WARP if self.lane is None else self.warp * WARP + self.lane in ids
        return is_here and self.names(agent)

    def names(self, agent: Agent) -> bool:
        """Tell whether the instruction is the agent's."""
        if agent.operation is not None and self.kind == "wgmma":
            return agent.operation.kind == "wgmma"
        return agent.instruction is not None and agent.instruction.index == self.instruction

    def issues(self, operation: AsyncOperation) -> bool:
        """Tell whether an operation that is issued is what is held."""
        return self.holds(Agent(-1, operation.instruction, operation.ctas, operation.threads, operation))


def _is_among(cta: tuple[int, ...] | None, ctas: Ctas) -> bool:
    if cta is None:
        return True
    slot = ctas.residents.slot_of(cta)
    return slot is not None and bool(np.isin(slot, ctas.slots))


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
    if side.cta is None and (named := _CTA.search(side.who)):
        return tuple(map(int, named.groups()))
    return side.cta


class HoldBack(Interleaving):
    """Let one side go on only when nothing else can; all others take turns, and their operations complete at once.

    Parameters
    ----------
    site : Site or None
    poison : int or None
    """

    def __init__(self, site: Site | None, poison: int | None = None) -> None:
        self.site, self.poison = site, poison
        self.begin()

    def start(self) -> None:
        """Begin with a launch."""

    def begin(self) -> None:
        """Forget the agents there were."""
        self._last, self._waited = 0, 0

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Say that all do but the one that is held."""
        return self.site is None or not self.site.issues(operation)

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Say that lanes stop at what is held, behind it, and where they synchronise."""
        held = None if self.site is None else self.site.instruction
        at = instruction.index == held or (before is not None and before.index == held)
        return at or super().stops_at(instruction, before)

    def parts_lanes(self, ctas: Ctas, threads: Threads) -> bool:
        """Say that those of the warp do of which one lane is held."""
        site = self.site
        if site is None or site.lane is None or site.warp is None:
            return False
        return bool(_is_among(site.cta, ctas) and threads.ids[0] // WARP == site.warp)

    def next(self, agents: Sequence[Agent]) -> int:
        """Pick the next in turn of those that are not held."""
        free = [n for n, agent in enumerate(agents) if self.site is None or not self.site.holds(agent)]
        self._waited = self._waited + 1 if len(free) < len(agents) else 0
        if not free or self._waited > _PATIENCE:  # others may go around a loop for ever
            self._waited = 0
            return min(n for n in range(len(agents)) if n not in free)
        later = [n for n in free if agents[n].number > self._last]
        picked = min(later or free, key=lambda n: agents[n].number)
        self._last = agents[picked].number
        return picked
