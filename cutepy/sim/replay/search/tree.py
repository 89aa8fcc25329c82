"""Tree of the schedules of a launch, searched depth first: one schedule for each order of steps that do not commute.

The search is dynamic partial-order reduction with source sets and sleep sets. It looks for races in each played
schedule: two steps that do not commute, with no order between them by other steps. For each race the search also plays
the reverse order. It returns to the node of the first step and picks an agent that can lead to the second step without
the first. An agent that the search has tried at a node goes into the sleep set of the node, and leaves the set at the
first step that does not commute with the agent's.

A step that changes no state, neither the agent's own nor shared state, does not count as a step, as of an agent that
waits or goes around a loop. Its reads still race with the steps that change what it read, since it might have come
after them.

References
----------
P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas, "Optimal Dynamic Partial Order Reduction", POPL 2014: algorithm 1.
C. Flanagan, P. Godefroid, "Dynamic Partial-Order Reduction for Model Checking Software", POPL 2005: disabled steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cutepy.sim.replay.search.step_accesses import StepAccesses

NOBODY = 1 << 60
"""The number of a step that is nobody's: lanes have parted since nothing else could go on."""
ANSWERS = (NOBODY + 1, NOBODY + 2)
"""The numbers of steps that go on with a request of launch control granted, or refused."""


class AlreadyPlayedError(Exception):
    """Whatever comes now has been played, in another order."""


@dataclass(slots=True, eq=False)
class Event:
    """A step that was taken.

    Attributes
    ----------
    number : int
        Of the agent.
    lanes : int
        A bit for each lane that took it; 0 for an operation.
    touched : StepAccesses
    issued_in : int
        Of an operation, the event that issued it; -1 for lanes.
    before : int
        A bit for each event that comes before it in every order.
    """

    number: int
    lanes: int
    touched: StepAccesses
    issued_in: int = -1
    before: int = 0

    def commutes(self, other: Event) -> bool:
        """Return whether they may come in either order, where each may come next."""
        if NOBODY in (self.number, other.number):
            return False
        return not self.lanes & other.lanes and self.touched.keeps(other.touched)


@dataclass(slots=True, eq=False)
class Node:
    """A place in a schedule, before a step.

    Attributes
    ----------
    sleeping : dict
        Those that need not go on here, with the step that they would take.
    held : set of int
        Those that can't go on before an operation is complete.
    offered : frozenset of int
        Those that might.
    idle : list of int
        Those that were tried, in order, and got nowhere.
    wanted : set of int
        Those that are to go on here, or have.
    choice : int or None
        Agent that goes on in the current schedule.
    event : Event or None
        Event of that agent.
    """

    sleeping: dict[int, Event] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    offered: frozenset[int] = frozenset()
    idle: list[int] = field(default_factory=list)
    wanted: set[int] = field(default_factory=set)
    choice: int | None = None
    event: Event | None = None

    def is_open(self, number: int) -> bool:
        """Tell whether an agent of the node has not been tried."""
        return number not in self.sleeping and number not in self.held and number not in self.idle


class Tree:
    """Schedules that have been played, and those to be played.

    Parameters
    ----------
    reduces : bool
        True if steps that commute do; if not, every order is played.
    """

    def __init__(self, reduces: bool = True) -> None:
        self._reduces = reduces
        self.nodes = [Node()]
        self.restart()

    def restart(self) -> None:
        """Begin with the schedule that is to be played next."""
        self.depth = self._tried = 0

    @property
    def is_known(self) -> bool:
        """True if the step that comes now has been taken before."""
        return self.depth < len(self.nodes) - 1

    def choose(self, numbers: Sequence[int]) -> int:
        """Return the agent that goes on, of those that may, in the order of preference.

        Raises
        ------
        AlreadyPlayedError
            If every agent leads to schedules that were played.
        """
        node = self.nodes[self.depth]
        if self._tried < len(node.idle):
            return node.idle[self._tried]
        if node.choice is None:
            node.offered |= frozenset(numbers)
            if not self._reduces:
                node.wanted |= node.offered
            # Once somebody has gone on here, only those that are wanted have to.
            able = [n for n in numbers if node.is_open(n)]
            node.choice = next((n for n in able if not node.wanted or n in node.wanted), None)
            if node.choice is None and not any(n in node.sleeping for n in node.wanted):
                node.choice = next(iter(able), None)
            if node.choice is None:
                raise AlreadyPlayedError
        return node.choice

    def decide(self, numbers: Sequence[int]) -> int:
        """Return which of several steps comes, none of which may be left out: they are no orders of one another."""
        if not self.is_known:
            self.nodes[self.depth].wanted.update(numbers)
        return self.choose(numbers)

    def idle(self, event: Event) -> None:
        """Note that the step of the chosen agent changed no state."""
        node = self.nodes[self.depth]
        self._tried += 1
        if self._tried > len(node.idle):
            node.idle.append(event.number)
            node.choice = None
            self._order(event, self.depth)

    def hold(self, number: int) -> None:
        """Note that the chosen agent waits for a pending operation: the schedule begins again."""
        node = self.nodes[self.depth]
        node.held.add(number)
        node.choice = None

    def take(self, event: Event) -> None:
        """See the step of the chosen agent."""
        node = self.nodes[self.depth]
        if not self.is_known:
            node.choice = event.number
            node.wanted.add(event.number)
            node.event = event
            self._order(event, self.depth)
            is_operation = event.issued_in >= 0
            sleeping = {n: step for n, step in node.sleeping.items() if self._commute(step, event)}
            self.nodes.append(Node(sleeping, set() if is_operation else set(node.held)))
        self.depth, self._tried = self.depth + 1, 0

    def fail(self, event: Event) -> None:
        """See a step that ends the launch: the next steps of other agents race with it, too."""
        node = self.nodes[self.depth]
        node.wanted |= node.offered
        event.touched.is_everything = True
        self.take(event)

    def advance(self) -> bool:
        """Go to the schedule that comes next; tells whether there is one."""
        while self.nodes:
            node = self.nodes[-1]
            if node.event is not None:
                node.sleeping[node.event.number] = node.event
            node.choice, node.event = None, None
            if any(node.is_open(n) for n in node.wanted):
                return True
            self.nodes.pop()
        return False

    def _commute(self, one: Event, other: Event) -> bool:
        return self._reduces and one.commutes(other)

    def _order(self, event: Event, depth: int) -> None:
        """Find the steps before a step, and want the other order of those that race with it."""
        nodes, before, behind, races = self.nodes, 0, 0, []
        if event.issued_in >= 0:
            issue = nodes[event.issued_in].event
            assert issue is not None
            before = behind = issue.before | 1 << event.issued_in
        left = ((1 << depth) - 1) & ~before
        while left:
            at = left.bit_length() - 1
            earlier = nodes[at].event
            assert earlier is not None
            if NOBODY in (event.number, earlier.number) or earlier.lanes & event.lanes:
                before |= earlier.before | 1 << at
                behind |= earlier.before
            elif earlier.touched.meets(event.touched):
                before |= earlier.before | 1 << at
                # Who waits for a phase may have come before what let that phase begin, and gone on from an older one.
                if earlier.touched.meets(event.touched, or_enables=False):
                    races.append(at - (earlier.number in ANSWERS))  # an answer is of one step with its request
                    behind |= earlier.before
            left &= ~(behind | 1 << at)
        event.before = before
        if self._reduces:
            for at in races:
                self._reverse(at, event, depth)

    def _reverse(self, at: int, event: Event, depth: int) -> None:
        """Want at a place that something begins which comes to a step without the one that was taken there."""
        node = self.nodes[at]
        without = [n for n in range(at + 1, depth) if not self._event(n).before >> at & 1]
        among = sum(1 << n for n in without)
        first = [self._event(n).number for n in without if not self._event(n).before & among]
        if not event.before & among:
            first.insert(0, event.number)
        if any(n in node.wanted or n in node.sleeping for n in first):
            return
        able = [n for n in first if n in node.offered and node.is_open(n)]
        node.wanted.update(able[:1])

    def _event(self, at: int) -> Event:
        event = self.nodes[at].event
        assert event is not None
        return event
