"""The interleaved schedule: a policy picks the warp or asynchronous operation that goes on next.

All lanes begin as one group, and split at once into CTAs and warps, or into warpgroups of kernels with wgmma. Where no
MMA comes before all paths meet again, the warps of a warpgroup split too, and reconverge there. Elsewhere no warp waits
for another where paths meet: in hardware none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.deadlock import deadlock
from cutepy.sim.machine.divergence import Part
from cutepy.sim.machine.events import AsyncOperation
from cutepy.sim.machine.group import Group, Join
from cutepy.sim.machine.interleaving import Agent, Interleaving
from cutepy.sim.machine.lanes import WARP
from cutepy.sim.machine.launch import Launch
from cutepy.sim.machine.progress import GroupSnapshot, look, together
from cutepy.sim.machine.schedule import Mechanism, Schedule
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate import Program
from cutepy.sim.translate.control_flow import EXIT


class InterleavedSchedule(Schedule):
    """Schedule whose next group or operation a policy chooses.

    Parameters
    ----------
    program : Program
        Translated with the pauses that the policy wants.
    launch : Launch
    activity : Activity
    mechanisms : sequence of Mechanism
    policy : Interleaving
    """

    def __init__(
        self,
        program: Program,
        launch: Launch,
        activity: Activity,
        mechanisms: Sequence[Mechanism],
        policy: Interleaving,
    ) -> None:
        super().__init__(program, launch, activity, mechanisms)
        self._policy = policy
        policy.start()
        self._passes: tuple[int, int] | None = None
        self._meets: dict[tuple[int, int], int] = {}

    def pause(self, g: Group, i: Instruction) -> bool:
        """Return whether a group stops before an instruction; it goes on from there once it is picked."""
        if self._passes == (g.number, g.block) or self._activity.is_stuck:
            self._passes = None
            return False
        self.executed[g.block] -= g.ctas.count * len(g.threads.warps)
        return True

    def _rounds(self) -> None:
        """Let one agent go on after another, as the policy picks them."""
        policy, activity, roster = self._policy, self._activity, self.roster
        policy.begin()
        residents = roster.residents
        self._changes = [0] * (residents.count // residents.cluster_size + 1)  # by cluster; after them, of all
        self._stuck: dict[int, tuple[int, int]] = {}  # where nothing has changed since a group could not go on
        self._lanes: dict[tuple[int, int], Agent] = {}
        self._operations: dict[AsyncOperation, Agent] = {}
        self._whole: set[tuple[int, int]] = set()  # groups, and blocks where they are not taken apart
        self._looks: dict[int, list[GroupSnapshot]] = {}  # at each group, since something has changed
        if policy.poison is not None:
            self._m.memory.shared[:] = policy.poison
        self._m.memory.absent = np.ones(residents.count, bool) if policy.tells_absence else None
        for g in list(roster.groups):
            self._take_apart(g)
        while roster.groups or activity.pending:
            if policy.watches:
                self._take_all_apart()
            if self.watchdog is not None:
                self.watchdog.check(self.executed, roster, self._joins)
            agents, groups = self._agents()
            if not agents:
                self._stuck.clear()
                if not self._unblock():
                    if policy.watches:
                        self._park_tries()
                    raise deadlock(roster, self._launch, said=self._tell_stuck())
                policy.unblocked()
                continue
            picked = policy.next(agents)
            agent, one, before = agents[picked], groups[picked], activity.changes
            if one is None:
                assert agent.operation is not None
                (activity.complete if agent.operation.takes is None else activity.take)(agent.operation)
                policy.went(False)
            elif not self._take_apart(one):
                self._step(one)
            if activity.changes != before:
                for cluster in {*(agent.ctas.slots // residents.cluster_size).tolist(), -1}:
                    self._changes[cluster] += 1

    def _step(self, g: Group) -> None:
        """Let a group go on to where it stops next."""
        watches, activity = self._policy.watches, self._activity
        absent = self._m.memory.absent
        if absent is not None:
            absent[g.ctas.slots] = False
        if watches:
            g.timed_out = None  # each try returns: to wait is to be picked later
            before = look(g, self._flow, activity.changes)
        ran = self._run(g)
        if not ran or g.waits_for is not None:
            self._sleep(g)
        if watches:
            is_here = g in self.roster.groups
            now = look(g, self._flow, activity.changes)
            is_idle = is_here and now.is_like(before)
            if is_here and (is_idle or self._was_like(g.number, before, now)):
                self._sleep(g)
            self._policy.went(is_idle)

    def _run(self, g: Group) -> bool:
        self._passes = g.number, g.block
        ran = self._turn(g)
        self._passes = None
        return ran

    def _was_like(self, number: int, before: GroupSnapshot, now: GroupSnapshot) -> bool:
        """Return whether a group has been as it is now since anything has changed: it goes around a loop."""
        looks = self._looks.setdefault(number, [before])
        if looks[0].changes != now.changes:
            looks[:] = [now]
            return False
        is_back = any(now.is_like(earlier) for earlier in looks)
        looks.append(now)
        return is_back

    def _park_tries(self) -> None:
        """Let groups that sleep around a try wait there, so that deadlock reports name the object of the wait."""
        self._policy.is_stuck = True
        for g in list(self.roster.groups):
            first = self._flow.blocks[g.block].instructions[:1]
            if g.waits_for is None and first and first[0].traits.tries:
                self._run(g)

    def _take_all_apart(self) -> None:
        while any(self._take_apart(g) for g in list(self.roster.groups)):
            pass

    def _time_out(self) -> bool:
        """Let a try_wait return, unless each does by itself; tells whether one does."""
        return not self._policy.watches and super()._time_out()

    def _sleep(self, g: Group) -> None:
        """Let a group sleep: one that waits at a barrier, which its cluster alone can change, or one that spins."""
        clusters = g.ctas.slots // self.roster.residents.cluster_size
        where = int(clusters[0]) if g.waits_for is not None and clusters[0] == clusters[-1] else -1
        self._stuck[g.number] = where, self._changes[where]

    def _agents(self) -> tuple[list[Agent], list[Group | None]]:
        """Return the agents that may be able to go on, each with its group if it is one."""
        changes, blocks, stuck, known = self._changes, self._flow.blocks, self._stuck, self._lanes
        agents: list[Agent] = []
        groups: list[Group | None] = []
        for g in self.roster.groups:
            asleep = stuck.get(g.number)
            if asleep is None or changes[asleep[0]] != asleep[1]:
                key = g.number, g.block
                agent = known.get(key)
                if agent is None:
                    block = blocks[g.block] if g.block != EXIT else None
                    first = None if block is None else block.instructions[0] if block.instructions else block.branch
                    agent = known[key] = Agent(g.number, first, g.ctas, g.threads)
                agents.append(self._with_awaited(agent, g) if self._policy.sees_awaited else agent)
                groups.append(g)
        for operation in self._activity.pending:
            agent = self._operations.get(operation)
            if agent is None:
                number = ~len(self._operations)
                agent = Agent(number, operation.instruction, operation.ctas, operation.threads, operation)
                self._operations[operation] = agent
            agents.append(agent)
            groups.append(None)
        return agents, groups

    def _with_awaited(self, agent: Agent, g: Group) -> Agent:
        i = agent.instruction
        found = [] if i is None else [one for mechanism in self._mechanisms for one in mechanism.awaited(g, i)]
        return replace(agent, awaits=tuple(one for one in found if not one.done)) if found else agent

    def _take_apart(self, g: Group) -> bool:
        """Part a group into pieces that go on separately from here; return whether it was more than one."""
        if (g.number, g.block) in self._whole:
            return False
        if g.block == EXIT or g.gathering is not None or (g.join is not None and g in g.join.arrived):
            return False
        unit, meet = max(WARP, together(self._flow, g.block)), EXIT
        if unit > WARP and not (g.issued or g.committed):  # MMAs in flight stay so
            meet = self._next_meeting(g.block, EXIT if g.join is None else g.join.block)
            unit = WARP if meet != g.block else unit
        parts = self._in_units(g, unit)
        if len(parts) == 1 and unit == WARP and self._policy.parts_lanes(g.ctas, g.threads):
            parts = self._in_units(g, together(self._flow, g.block))
        if len(parts) == 1:
            if not (g.issued or g.committed):
                self._whole.add((g.number, g.block))
            return False
        self._part(g, parts, meet)
        return True

    def _in_units(self, g: Group, unit: int) -> list[Part]:
        rows = np.arange(g.ctas.count)
        of_ctas = np.split(rows, len(rows)) if self._policy.splits_ctas else [rows]
        cuts = np.flatnonzero(np.diff(g.threads.ids // unit)) + 1
        columns = np.split(np.arange(g.threads.count), cuts)
        return [(ctas, lanes, g.block) for ctas in of_ctas for lanes in columns]

    def _next_meeting(self, block: int, last: int) -> int:
        """Return the last place that all paths from a block meet at before an MMA; the block if there is none."""
        key = block, last
        if key not in self._meets:
            at = block
            while at != last:
                following = self._flow.join[at] if at != EXIT else EXIT
                if following == EXIT or self._flow.has_between(at, following, "wgmma"):
                    break
                at = following
            self._meets[key] = at
        return self._meets[key]

    def _leave(self, g: Group) -> None:
        """End a group's lanes; of CTAs that have none left, the shared memory is another's."""
        self._policy.left(g)
        super()._leave(g)
        memory, ended = self._m.memory, g.ctas.slots[self.roster.ended[g.ctas.slots].all(axis=1)]
        if memory.absent is not None:
            memory.absent[ended] = True
        if self._policy.poison is not None:
            for slot in ended.tolist():
                start = slot * memory.slot_bytes
                memory.shared[start : start + memory.slot_bytes] = self._policy.poison

    def _arrive(self, g: Group, join: Join) -> None:
        """Let warps that have met whole go on: in hardware none waits for others there."""
        super()._arrive(g, join)
        if join.arrived:
            self._release_whole(join)
