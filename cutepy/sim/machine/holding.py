"""Lanes or an operation held back until nothing else can go on: the schedule in which what races with them is first.

It has a name, such as "hold:17,warp=1,cta=0.0.0": what the instruction of that index does is held back, for that warp
of that CTA. Of all lanes where none are named; ``operation`` holds what completes rather than the lanes that execute
the instruction, ``mmas`` all MMAs, ``poison`` puts NaN into shared memory where a CTA begins and ends; where something
is held too, others reach that memory only between the CTA's first step and its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.interleaving import Agent, Interleaving
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.translate import linked

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.lanes import Ctas, Threads
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction

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

    def __str__(self) -> str:
        words = [str(self.instruction)]
        words += ["mmas"] * (self.kind == "wgmma") + ["operation"] * self.is_operation
        words += [] if self.cta is None else ["cta=" + ".".join(map(str, self.cta))]
        words += [f"{name}={n}" for name, n in (("warp", self.warp), ("lane", self.lane)) if n is not None]
        return ",".join(words)

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

    def delays(self, agent: Agent) -> bool:
        """Tell whether an agent can't go on before what is held does: it is that, comes after it, or waits for it."""
        earlier = agent.awaits if agent.operation is None else agent.operation.after
        return self.holds(agent) or any(self.delays(_completion(one)) for one in earlier if not one.done)


def _completion(of: AsyncOperation) -> Agent:
    return Agent(-1, of.instruction, of.ctas, of.threads, of)


def _is_among(cta: tuple[int, ...] | None, ctas: Ctas) -> bool:
    if cta is None:
        return True
    slot = ctas.residents.slot_of(cta)
    return slot is not None and bool(np.isin(slot, ctas.slots))


class HoldBack(Interleaving):
    """Let one side go on only when nothing else can; all others take turns, and their operations complete at once.

    Who waits for an operation that is held, such as its issuer in `wait_group`, is held with it: what it has let others
    do before comes first.

    Parameters
    ----------
    site : Site or None
    poison : int or None
    """

    sees_awaited = True

    def __init__(self, site: Site | None, poison: int | None = None) -> None:
        self.site, self.poison = site, poison
        self.tells_absence = site is not None and poison is not None
        self.start()
        self.begin()

    def __repr__(self) -> str:
        words = ([] if self.site is None else [str(self.site)]) + ["poison"] * (self.poison is not None)
        return f"hold:{','.join(words)}"

    def start(self) -> None:
        """Begin with a launch."""
        self._has_held = False

    def missed(self, launch: Launch) -> str:
        """Say what of a launch there is not, or that nobody came to what is held."""
        site = self.site
        return "" if site is None or self._has_held else _absent(site, launch)

    def begin(self) -> None:
        """Forget the agents there were."""
        self._last, self._waited = 0, 0

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Say that all do but the one that is held."""
        return self.site is None or not self._delays(_completion(operation))

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
        free = [n for n, agent in enumerate(agents) if self.site is None or not self._delays(agent)]
        self._waited = self._waited + 1 if len(free) < len(agents) else 0
        if not free or self._waited > _PATIENCE:  # others may go around a loop for ever
            self._waited = 0
            return min(n for n in range(len(agents)) if n not in free)
        later = [n for n in free if agents[n].number > self._last]
        picked = min(later or free, key=lambda n: agents[n].number)
        self._last = agents[picked].number
        return picked

    def _delays(self, agent: Agent) -> bool:
        assert self.site is not None
        held = self.site.delays(agent)
        self._has_held |= held
        return held


def _absent(site: Site, launch: Launch) -> str:
    """Say what keeps a launch from having what is held."""
    code = linked(launch.ptx, launch.kernel).function.instructions
    x, y, z = launch.block
    threads = x * y * z
    warp, lane = site.warp, site.lane
    if site.instruction >= len(code):
        return f"{launch.name} has {len(code)} instructions, counted from 0, and no {site.instruction}"
    if site.cta is not None and any(c >= extent for c, extent in zip(site.cta, launch.grid, strict=True)):
        return f"the grid of {launch.name} is {launch.grid}, and has no CTA {site.cta}"
    if warp is not None and warp * WARP + (lane or 0) % WARP >= threads:
        return f"CTAs of {launch.name} have {threads} threads, and no {_who(site)}"
    does = "issues an operation by" if site.is_operation else "executes"
    cta = "" if site.cta is None else f" of CTA {site.cta}"
    text = code[site.instruction].text.strip()
    return f"in {launch.name} no {_who(site)}{cta} {does} instruction {site.instruction}, `{text}`"


def _who(site: Site) -> str:
    return "thread" if site.warp is None else f"warp {site.warp}" + ("" if site.lane is None else f", lane {site.lane}")


_NAME = re.compile(
    r"(?P<instruction>\d+)?(?P<mmas>,mmas(?=,operation))?(?P<operation>,operation)?(?:,cta=(?P<cta>\d+(?:\.\d+){2}))?"
    r"(?:,warp=(?P<warp>\d+))?(?:,lane=(?P<lane>\d+))?(?P<poison>,?poison)?"
)


def held_of(text: str) -> HoldBack:
    """Make a schedule of its text.

    Examples
    --------
    >>> held_of("17,operation,cta=0.1.0,warp=2,poison")
    hold:17,operation,cta=0.1.0,warp=2,poison

    Raises
    ------
    ValueError
        If it is none.
    """
    found = _NAME.fullmatch(text)
    names = None if found is None else found.groupdict()
    if names is not None and names["lane"] is not None and (names["warp"] is None or int(names["lane"]) >= WARP):
        raise ValueError(f"policy hold: names a lane, 0 to {WARP - 1}, of a warp, such as warp=1,lane=3, got {text!r}")
    if not text or names is None or repr(made := _held(names)) != f"hold:{text}":
        raise ValueError(
            f"policy hold: must be followed by what a witness names, such as hold:17,cta=0.0.0,warp=1, got {text!r}; "
            "take the whole name from a witness, hazard.replay().schedule"
        )
    return made


def _held(names: dict[str, str | None]) -> HoldBack:
    cta, warp, lane = names["cta"], names["warp"], names["lane"]
    site = None
    if names["instruction"] is not None:
        site = Site(
            int(names["instruction"]),
            "wgmma" if names["mmas"] else "",
            names["operation"] is not None,
            None if cta is None else tuple(map(int, cta.split("."))),
            None if warp is None else int(warp),
            None if lane is None else int(lane),
        )
    return HoldBack(site, POISON if names["poison"] else None)
