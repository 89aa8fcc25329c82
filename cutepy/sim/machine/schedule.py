"""The deterministic schedule: groups of lanes take turns, each until it must wait. `Mechanism` is its interface.

When no group can run, the schedule takes the first possible of these steps:

1. A pending asynchronous operation completes.
2. Lanes whose wait has ended leave the lanes of their group that still wait.
3. Whole warps leave a join at which their group waits for other warps.
4. A try_wait times out, unless its lanes wait in the same state as at an earlier time-out.
5. Time passes.
6. Lanes leave a join at which other lanes of their warp are missing.

If no step is possible, the kernel is deadlocked. A spinning group runs again only when memory changes. Whole warps also
leave a join after a long wait, and so do lanes whose warp executes no further instruction together.

References
----------
PTX ISA, "Programming Model", "PTX Machine Model".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.machine.alignment import Alignment
from cutepy.sim.machine.deadlock import PartOfAUnit, deadlock
from cutepy.sim.machine.divergence import Part, check_not_crossed, gather, in_whole_units, merge, parts_of, split
from cutepy.sim.machine.group import Group, Join, Roster
from cutepy.sim.machine.lanes import WARP, Array, Residents
from cutepy.sim.machine.limits import Watchdog, lanes
from cutepy.sim.machine.progress import TRUSTED_BLOCKS, TimeOuts, together
from cutepy.sim.machine.spinning import Spin
from cutepy.sim.machine.wait_sources import WaitBegins
from cutepy.sim.ptx.model import Immediate
from cutepy.sim.translate.control_flow import EXIT

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.events import AsyncOperation, PartialUnit
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate import Program


PARKED = -2
DIVERGED = -3
_TURN_BLOCKS, _IDLE_TURN_BLOCKS = 1000, 256
"""Blocks that a group runs before others get a turn, and those of a group that changes nothing but its registers."""

_PATIENCE, _LONG_TURN = 1000, 250
"""Patience of lanes that wait where they meet, and the part of it that a turn to the end counts: they wait
for more than a thousand blocks that change nothing, or four thousand that change something. A round without a change
counts 1.
"""

_FIRST_LEAP, _LAST_LEAP = 1 << 12, 1 << 40


class Schedule:
    """Schedule of groups: picks the next one, splits and merges them, and lets them wait.

    Parameters
    ----------
    program : Program
        The translated kernel.
    launch : Launch
    activity : Activity
    mechanisms : sequence of Mechanism
        Mechanisms that are notified when lanes begin, split and end.

    Attributes
    ----------
    roster : Roster
    alignment : Alignment
    executed : list of int
        Number of warps that have executed each block.
    each_round : callable or None
        Called before each round of turns.
    watchdog : Watchdog or None
        Stops a launch that takes more than its limit.
    """

    def __init__(
        self, program: Program, launch: Launch, activity: Activity, mechanisms: Sequence[Mechanism] = ()
    ) -> None:
        self.roster = Roster(program.flow, launch.block)
        self.alignment = Alignment(self.roster, self._tell_apart)
        self.executed = [0] * len(program.blocks)
        self.each_round: Callable[[], None] | None = None
        self.watchdog: Watchdog | None = None
        self._program, self._flow = program, program.flow
        self._launch = launch
        self._activity = activity
        self._mechanisms = mechanisms
        self._zeros = [np.zeros((1, 1), bool if kind == "pred" else kind) for kind in program.kinds]
        self._joins: list[Join] = []
        self._met: set[Join] = set()  # those where parts have arrived: few, where calls are nested deep
        self._told: set[int] = set()  # groups that wait, of which observers know
        self._waited = 0
        self._leapt = -1, 0
        self._time_outs = TimeOuts(program.flow, activity)
        self._followers = [each for each in activity.observers if each.follows_blocks]

    def gather(self, g: Group, i: Instruction, mask: Array) -> int:
        """Bring together the lanes that masks name; 0 if they are all here, or the return value of their block."""
        wanted = np.bitwise_or.reduce(g.threads.by_warp(mask, 0), axis=2)
        found = gather(self.roster, g, i, wanted)
        if found:
            g.gathering = g.waits_for = None
            return 0
        if found is None:
            self.executed[g.block] -= g.ctas.count * len(g.threads.warps)
        return PARKED if found is False else DIVERGED

    def branch(self, g: Group, condition: Array, taken: int, other: int, join: int) -> int:
        """Go where all lanes go, or part the group."""
        if condition.all():
            return taken
        if not condition.any():
            return other
        self._activity.stats["splits"] += g.threads.parted(condition) * (g.ctas.count // condition.shape[0])
        self._part(g, parts_of(condition, (g.ctas.count, g.threads.count), taken, other), join)
        return DIVERGED

    def _part(self, g: Group, parts: list[Part], join_block: int) -> None:
        blocks = {block for _, _, block in parts}
        for mechanism in self._mechanisms:
            mechanism.before_parting(g, blocks, join_block)
        children = split(self.roster, g, parts, join_block)
        if g.spin is not None:
            for child in children:
                child.spin = g.spin.of_a_part()
        join = children[0].join
        if join is not None and join not in self._joins:
            self._joins.append(join)
        groups = self.roster.groups
        at = groups.index(g)
        groups[at : at + 1] = children
        g.ready = g.waits_for = None  # its parts wait, and when they have met it does no more

    def fresh_registers(self) -> list[Array]:
        """Return the registers of lanes that have done nothing yet."""
        return list(self._zeros)

    def fill_registers(self, byte: int) -> None:
        """Let registers that nothing has written hold these bytes; by default they hold zeros."""
        for register in self._zeros:
            register.view(np.uint8)[...] = bool(byte) if register.dtype == bool else byte

    def descend(self, g: Group, join: Join, children: Sequence[Group]) -> int:
        """Let a group wait for others of its lanes, which run the called function."""
        self._to_registers(g)
        join.expected = len(children)
        self._joins.append(join)
        groups = self.roster.groups
        at = groups.index(g)
        groups[at : at + 1] = children
        return DIVERGED

    def run(self, m: Any, residents: Residents) -> None:  # noqa: ANN401 - what translated code calls
        """Run CTAs to their end.

        Parameters
        ----------
        m : object
            Passed on to translated code.
        residents : Residents
        """
        self._m = m
        roster, threads = self.roster, self.roster.threads_per_cta
        roster.start(residents, self._zeros)
        self.alignment.start()
        for mechanism in self._mechanisms:
            mechanism.start(residents, threads)
        try:
            self._rounds()
        except PartOfAUnit as part:
            raise part.meaning(roster, self._launch) from None
        for operation in list(self._activity.pending):
            self._activity.complete(operation)
        self.alignment.end()
        for mechanism in self._mechanisms:
            mechanism.end()

    def lanes(self) -> list[str]:
        """Return a line for each place where lanes are now."""
        return lanes(self.roster, self._joins)

    def _rounds(self) -> None:
        while self.roster.groups:
            if self.each_round is not None:
                self.each_round()
            if self.watchdog is not None:
                self.watchdog.check(self.executed, self.roster, self._joins)
            ran, seen = False, self._activity.changes
            for g in list(self.roster.groups):
                if g in self.roster.groups and self._turn(g):
                    ran = True
            self._waited += self._activity.changes == seen
            if not (ran or self._unblock()):
                raise deadlock(self.roster, self._launch, said=self._tell_stuck())
            for join in self._joins[::-1] if self._met else ():
                if join.arrived and self._waited - join.since > _PATIENCE:
                    join.since = self._waited
                    if not self._release_whole(join) and together(self._flow, join.goes_on) == 1:
                        self._meet(join)

    def _turn(self, g: Group) -> bool:
        """Run a group until it waits, spins, parts, meets others or ends; tells whether it got anywhere."""
        functions, m = self._program.blocks, self._m
        activity, executed, watchdog = self._activity, self.executed, self.watchdog
        warps = g.ctas.count * len(g.threads.warps)
        join = g.join
        stop = join.block if join is not None else EXIT
        block = start = g.block
        if block == stop and join is not None and g in join.arrived:
            return False
        if block == EXIT:
            self._leave(g)
            return True
        spin, trust = g.spin, TRUSTED_BLOCKS
        watched = max(0, trust - g.unwatched)
        if spin is not None and spin.changes == activity.changes:
            if spin.asleep:
                return False
            watched = 0
        elif spin is not None and spin.asleep:
            watched = trust = 0
        for count in range(_TURN_BLOCKS):
            if block == stop and join is not None:
                g.block = block
                self._arrive(g, join)
                return True
            if count >= watched:
                if spin is None or spin.changes != activity.changes:
                    g.spin = spin = Spin(activity.changes, trust == 0)
                    g.unwatched, watched, trust = 0, count + trust, TRUSTED_BLOCKS
                # At 0 it goes on from where it came to in the turn before, and has been compared.
                elif count and spin.repeats(g.registers, block, self._flow, activity.time):
                    g.block = block
                    self._told.discard(g.number)
                    return True
                elif count - watched >= _IDLE_TURN_BLOCKS:
                    break
            g.block = block
            if watchdog is not None and watchdog.is_late:
                watchdog.check(executed, self.roster, self._joins)
            executed[block] += warps
            if self._followers:
                block = self._followed(g, block)
            else:
                block = functions[block](g, g.registers, m)
            if block < 0:
                if block == PARKED:
                    g.spin = None
                    executed[g.block] -= warps
                    if activity.observers and (count > 0 or g.number not in self._told):
                        self._told.add(g.number)
                        self._tell_waiting(g)
                    return count > 0 or g.block != start
                if block == EXIT:
                    self._leave(g)
                g.unwatched += count
                return True
        g.block = block
        self._told.discard(g.number)
        self._waited += _LONG_TURN
        return True

    def _followed(self, g: Group, block: int) -> int:
        """Run a block, and tell observers of it unless the lanes wait in it or come to it again with others."""
        ctas, threads, before = g.ctas, g.threads, self.executed[block]
        found: int = self._program.blocks[block](g, g.registers, self._m)
        if found != PARKED and self.executed[block] == before:
            for follower in self._followers:
                follower.on_block(block, ctas, threads)
        return found

    def _tell_waiting(self, g: Group) -> None:
        """Tell observers of lanes that begin to wait."""
        i = self._flow.blocks[g.block].instructions[0]
        event = WaitBegins(i, g.ctas, g.threads, g.waits_for() if g.waits_for else None)
        for observer in self._activity.observers:
            observer.on_wait(event)

    def _tell_stuck(self) -> list[str]:
        """Tell observers of the phases and registers that stuck lanes wait for, and return the observers' lines."""
        observers = self._activity.observers
        self._activity.is_stuck = True
        for g in list(self.roster.groups) if observers else ():
            first = self._flow.blocks[g.block].instructions[:1]
            if g.waits_for is not None and first and first[0].traits.polls:
                self._program.blocks[g.block](g, g.registers, self._m)
        self.alignment.stick(self._joins)
        spinning = self.roster.lanes_of([g for g in self.roster.groups if g.waits_for is None])
        said = [line for observer in observers for line in observer.on_deadlock(self.roster.ended, spinning)]
        return self._time_outs.told() + said

    def _tell_apart(self, apart: PartialUnit) -> None:
        for observer in self._activity.observers:
            observer.on_apart(apart)

    def _arrive(self, g: Group, join: Join) -> None:
        """Let a group wait where it meets the others of its join, which go on if it was the last."""
        join.arrived.append(g)
        self._met.add(join)
        join.since = self._waited
        self.roster.groups.remove(g)
        if len(join.arrived) == join.expected:
            self._meet(join)

    def _to_registers(self, g: Group) -> None:
        for mechanism in self._mechanisms:
            mechanism.to_registers(g)

    def _meet(self, join: Join, chosen: Array | None = None) -> None:
        """Let the lanes that have met go on, or those chosen of them."""
        parts = join.arrived
        if join.executed:
            self.alignment.pass_by(join, self.roster.lanes_of(parts) if chosen is None else chosen)
        merged, join.arrived = merge(self.roster, join, parts, chosen, self._to_registers)
        if not join.arrived:
            self._met.discard(join)
        if join.back is not None:
            for whole in merged:
                join.back.finish(whole, join.parent)
        join.expected += len(join.arrived) - len(parts)
        is_over = join.expected == 0
        if is_over and join in self._joins:
            self._joins.remove(join)
        # Until all parts have come, the parent still counts as one that is awaited where it meets others.
        outer = join.parent.join
        if outer is not None:
            outer.expected += len(merged) - is_over
        self.roster.groups += merged

    def _release_whole(self, join: Join) -> bool:
        """Let the warps go on that have met whole, or warpgroups if one is taken together; tells if there are any."""
        roster = self.roster
        wanted = roster.lanes_of([join.parent]) & ~roster.ended
        unit = max(WARP, together(self._flow, join.goes_on))
        chosen = in_whole_units(roster.lanes_of(join.arrived), wanted, unit)
        if not chosen.any():
            return False
        self._meet(join, chosen)
        return True

    def _leave(self, g: Group) -> None:
        """End a group's lanes."""
        self.roster.groups.remove(g)
        for mechanism in self._mechanisms:
            mechanism.leave(g)
        self.roster.end(g)
        self._activity.changes += 1
        self._drop(g.join)

    def _drop(self, join: Join | None) -> None:
        """Count one part less at a join, and at those around it if it was the last."""
        if join is None:
            return
        join.expected -= 1
        if join.expected == 0:
            if join in self._joins:
                self._joins.remove(join)
            self._drop(join.parent.join)
        elif len(join.arrived) == join.expected:
            self._meet(join)

    def _unblock(self) -> bool:
        """Make something possible that is not yet; tells whether there was anything."""
        if self._activity.pending:
            self._activity.complete_next()
            return True
        for g in list(self.roster.groups):
            if g.ready is not None and g.ready.any() and not g.ready.all():
                self._part(g, parts_of(g.ready, (g.ctas.count, g.threads.count), g.block, g.block), EXIT)
                return True
        for join in self._joins[::-1]:
            if join.arrived and self._release_whole(join):
                return True
        return self._time_out() or self._leap() or self._go_ahead()

    def _time_out(self) -> bool:
        """Let a try_wait return; tells whether one does."""
        g = self._time_outs.pick(self.roster.groups)
        if g is not None:
            g.timed_out = self._activity.changes  # negated once it is used
        return g is not None

    def _leap(self) -> bool:
        """Let time pass if some group reads clocks while it spins or tries again; tells whether it does.

        The leaps double, and time ends some minutes of a GPU's cycles after the last change.
        """
        changes = self._activity.changes
        sleepers = [
            g.spin
            for g in self.roster.groups
            if g.spin is not None and g.spin.asleep and g.spin.by_clock and g.spin.changes == changes
        ]
        since, size = self._leapt if self._leapt[0] == changes else (changes, _FIRST_LEAP)
        if not (sleepers or self._time_outs.by_clock) or size > _LAST_LEAP:
            return False
        self._activity.time += size
        self._time_outs.leap()
        self._leapt = since, 2 * size
        for spin in sleepers:
            spin.wake()
        return True

    def _go_ahead(self) -> bool:
        """Let lanes that have met go on without those that can't come before; tells whether there are any."""
        for join in self._joins[::-1]:
            if join.arrived:
                check_not_crossed(self.roster, join)
                self._meet(join)
                return True
        return False


class Mechanism:
    """A part of the hardware beside arithmetic: override the methods of the events that concern it."""

    def start(self, residents: Residents, threads: int) -> None:
        """Begin anew with CTAs of a given number of threads, which become resident."""

    def before_parting(self, g: Group, blocks: Collection[int], join_block: int) -> None:
        """Bring to a group's registers the values that its parts may access.

        Parameters
        ----------
        g : Group
            Its lanes are about to part.
        blocks : collection of int
            Blocks where the parts go on.
        join_block : int
            Block where they meet; negative for never.
        """

    def to_registers(self, g: Group) -> None:
        """Bring to a group's registers all that is kept elsewhere: its lanes become part of other groups."""

    def awaited(self, g: Group, i: Instruction) -> list[AsyncOperation]:
        """Return the operations that a wait of a group completes, under any policy; none if `i` is no wait."""
        return []

    def leave(self, g: Group) -> None:
        """Take note that a group's lanes end."""

    def end(self) -> None:
        """Note that all resident CTAs have ended, and the operations that they issued are complete."""


def left_by(i: Instruction) -> int:
    """Return how many of the youngest groups a wait for groups leaves incomplete."""
    count = i.operands[0] if i.operands else None
    return count.value if isinstance(count, Immediate) else 0
