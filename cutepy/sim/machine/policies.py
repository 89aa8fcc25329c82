"""Named policies: completion orders, schedules as lists of choices, and schedules that hold an operation back.

Completion policies say when asynchronous operations take effect. A kernel that waits for all that it uses gives the
same results under each. A kernel that forgot a wait is right where copies and MMAs take effect as they are issued, as a
GPU nearly always does it.

"schedule:3=1,17=2" is a list of choices, one at each access to memory that others see and each synchronisation. Agents
are offered in an order of preference: pending operations, then the agent that went on last, then the others. A choice
is a position in that order; choices that are not listed are 0. Here choice 3 takes number 1, and choice 17 number 2.
Each request of launch control that may be granted is a choice too: 0 grants it, and 1 refuses.

"hold:17,warp=1,cta=0.0.0" holds back the instruction of index 17, for that warp of that CTA, until nothing else can go
on. So a race with it shows. Without a warp or CTA it holds all lanes back. ``operation`` holds the asynchronous
operation rather than the lanes that issue it, ``mmas`` holds all MMAs, and ``poison`` puts NaN into shared memory where
a CTA begins and ends; with ``poison`` others reach that memory only between the CTA's first step and its end.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.events import AsyncOperation, CompletionPolicy
from cutepy.sim.machine.interleaving import Agent, Interleaving, RandomSchedule
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.instruction_set import OWN_SPACES

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Ctas, Threads
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction


_CHOICES = re.compile(r"\d+=\d+(,\d+=\d+)*")


def is_seen(i: Instruction) -> bool:
    """Return whether an instruction accesses state that threads share, so that others may see it."""
    traits = i.traits
    return traits.signals or not OWN_SPACES.issuperset((*traits.loads, *traits.stores))


class Choices(Interleaving):
    """Play a list of choices, and from there on the preferred agent.

    Parameters
    ----------
    others : mapping of int to int
        The choices that are not the first of those offered, by their number in the launch.

    Examples
    --------
    >>> choices_of("3=1,17=2")
    schedule:3=1,17=2
    """

    watches = True
    parts_arrivals = True

    def __init__(self, others: Mapping[int, int]) -> None:
        self.others = dict(others)
        self.start()

    def __repr__(self) -> str:
        said = ",".join(f"{at}={choice}" for at, choice in sorted(self.others.items()))
        return f"schedule:{said or '0=0'}"

    def start(self) -> None:
        """Begin with a launch."""
        self._at, self._last = 0, -1
        self._refused: dict[int, int] = {}  # choices that were not offered, and of how many
        self.is_stuck = False

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Return True for lanes before an instruction that others may see."""
        return is_seen(instruction)

    def gives_up(self) -> bool:
        """Return True: every failed try returns, and waits by being picked later."""
        return not self.is_stuck

    def next(self, agents: Sequence[Agent]) -> int:
        """Pick the one that is chosen."""
        order = self.preferred(agents)
        choice = self.others.get(self._at, 0)
        if choice >= len(order):
            self._refused[self._at] = len(order)
        picked = order[min(choice, len(order) - 1)]
        self._at += 1
        self.note(agents[picked])
        return picked

    def grants(self, left: int, beyond: int) -> bool:
        """Grant a request, or refuse it if choice 1 is listed."""
        choice = self.others.get(self._at, 0)
        if choice > 1:
            self._refused[self._at] = 2
        self._at += 1
        return choice == 0

    def missed(self, launch: Launch) -> str:
        """Return the error of a choice that did not occur, or that had fewer alternatives."""
        for at, choice in sorted(self.others.items()):
            if at in self._refused:
                return f"at choice {at} {launch.name} has 0 to {self._refused[at] - 1}, and no {choice}"
            if choice and at >= self._at:
                return f"{launch.name} has {self._at} choices, counted from 0, and no choice {at}"
        return ""

    def note(self, agent: Agent) -> None:
        """Note the agent that goes on."""
        if agent.operation is None:
            self._last = agent.number

    def preferred(self, agents: Sequence[Agent]) -> list[int]:
        """Return the positions of agents in the order in which they are offered."""

        def rank(n: int) -> tuple[bool, bool]:
            return agents[n].operation is None, agents[n].number != self._last

        able = [n for n, agent in enumerate(agents) if _is_able(agent)]
        return sorted(able, key=rank)


def _is_able(agent: Agent) -> bool:
    """Tell whether all operations that must complete before this one have completed."""
    return agent.operation is None or all(earlier.done for earlier in agent.operation.after)


def choices_of(text: str) -> Choices:
    """Parse a schedule of choices, such as ``3=1,17=2``.

    Raises
    ------
    ValueError
        If the text is no schedule.
    """
    if not _CHOICES.fullmatch(text):
        raise ValueError(f"a schedule is a seed, or choices such as 3=1,17=2, got {text!r}")
    return Choices({int(at): int(choice) for at, choice in (pair.split("=") for pair in text.split(","))})


POISON = 0xFF
"""NaN as a float of any size, -1 as an integer."""

_PATIENCE = 20_000


@dataclass(frozen=True)
class Site:
    """Site of a hold: the instruction, lanes or operation that is held back.

    Attributes
    ----------
    instruction : int
        Its index.
    kind : str
        "wgmma" for MMAs, which complete in groups; otherwise the instruction says which operations it issues.
    is_operation : bool
        True if the operation's completion is held, and not the lanes that execute the instruction.
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
        """Return whether an agent is the held one."""
        if (agent.operation is not None) != self.is_operation or not _is_among(self.cta, agent.ctas):
            return False
        if self.warp is None:
            return self.names(agent)
        ids = agent.threads.ids
        is_here = self.warp in ids // WARP if self.lane is None else self.warp * WARP + self.lane in ids
        return is_here and self.names(agent)

    def names(self, agent: Agent) -> bool:
        """Return whether the instruction is the agent's."""
        if agent.operation is not None and self.kind == "wgmma":
            return agent.operation.kind == "wgmma"
        return agent.instruction is not None and agent.instruction.index == self.instruction

    def delays(self, agent: Agent) -> bool:
        """Return whether an agent must wait for the held one: it is that, comes after it, or waits for it."""
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
    """Policy that holds one side back until nothing else can run; other agents take turns.

    An agent that waits for the held operation, such as its issuer in `wait_group`, is held back too, so that all agents
    that it has released run first.

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
        """Name the held instruction or thread that a launch lacks, or tell that no lane reached it."""
        site = self.site
        return "" if site is None or self._has_held else _absent(site, launch)

    def begin(self) -> None:
        """Discard the agents of an earlier launch."""
        self._last, self._waited = 0, 0

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Return True for every operation except the one that is held back."""
        return self.site is None or not self._delays(_completion(operation))

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Return True for lanes at the held instruction, after it, and where they synchronise."""
        held = None if self.site is None else self.site.instruction
        at = instruction.index == held or (before is not None and before.index == held)
        return at or super().stops_at(instruction, before)

    def parts_lanes(self, ctas: Ctas, threads: Threads) -> bool:
        """Return True for the warp of which one lane is held back."""
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
    """Name the reason why a launch lacks the held instruction or operation."""
    code = launch.entry.instructions
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
    """Parse a schedule that holds operations back.

    Examples
    --------
    >>> held_of("17,operation,cta=0.1.0,warp=2,poison")
    hold:17,operation,cta=0.1.0,warp=2,poison

    Raises
    ------
    ValueError
        If the text is no such schedule.
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


class LateCompletion(CompletionPolicy):
    """Complete an operation only when a thread waits for it, or no group can run: then the oldest one."""

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Return False: the operation stays pending until the policy picks it."""
        return False


class YoungestCompletion(LateCompletion):
    """Complete an operation only when a thread waits for it, or no group can run: then the youngest one."""

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        """Pick the last."""
        return len(pending) - 1


class RandomCompletion(CompletionPolicy):
    """Decide at random whether an operation takes effect at its issue, and which pending operation completes next.

    Parameters
    ----------
    seed : int
        The same one gives the same order, for the same launches.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def completes_at_issue(self, operation: AsyncOperation) -> bool:
        """Return True or False at random, with equal odds."""
        return self._random.random() < 0.5

    def grants(self, left: int, beyond: int) -> bool:
        """Return True or False at random, with equal odds."""
        return self._random.random() < 0.5

    def choose(self, pending: Sequence[AsyncOperation]) -> int:
        """Draw one."""
        return self._random.randrange(len(pending))


NAMED: dict[str, type[CompletionPolicy]] = {
    "late": LateCompletion,
    "youngest": YoungestCompletion,
    "random": RandomCompletion,
    "schedule": RandomSchedule,
}
_SEEDED: dict[str, type[RandomCompletion | RandomSchedule]] = {"random": RandomCompletion, "schedule": RandomSchedule}


def policy_named(name: str) -> CompletionPolicy:
    """Make a policy of its name: "late", "youngest", "random" or "schedule", the last two also with ":SEED" behind.

    A schedule that `Run.explore` tells may also be its choices, as "schedule:3=1,17=2", and one that shows a hazard
    what it holds back, as "hold:17,warp=1".

    Raises
    ------
    ValueError
        If no policy has this name.

    Examples
    --------
    >>> policy_named("random:7").seed
    7
    """
    kind, colon, seed = name.partition(":")
    if kind == "schedule" and "=" in seed:
        return choices_of(seed)
    if kind == "hold" and colon:
        return held_of(seed)
    if kind in _SEEDED and colon and seed.isdecimal():
        return _SEEDED[kind](int(seed))
    if kind not in NAMED or colon:
        near = [] if kind in NAMED else get_close_matches(kind, NAMED, 1)
        raise ValueError(
            f"policy must be {', '.join(NAMED)}, random:SEED, schedule:SEED or a CompletionPolicy, got {name!r}"
            f"{'; did you mean ' + near[0] + '?' if near else ''}"
        )
    return NAMED[kind]()
