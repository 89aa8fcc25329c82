"""The schedule that a tree asks for, with a report to the tree on each step."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.machine.policies import Choices
from cutepy.sim.replay.search.step_accesses import CLUSTERS, WRITE, Mode, StepObserver
from cutepy.sim.replay.search.tree import ANSWERS, NOBODY, Event, Tree

if TYPE_CHECKING:
    from cutepy.sim.engine import Engine
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.interleaving import Agent
    from cutepy.sim.machine.lanes import Ctas, Threads
    from cutepy.sim.ptx.model import Instruction

MOST_STEPS = 20_000
_COPIED: Mode = ("copied",)
_WAITED: Mode = ("waited",)
_GROUPED = {"cp_async": "cp", "bulk_store": "bulk", "tma_store": "bulk", "wgmma": "wgmma"}


class BlockedPickError(Exception):
    """Error of a pick that cannot go on: its thread waits for a pending operation."""


class StepLimitError(Exception):
    """Error of a schedule that takes more steps than the limit."""


class GuidedInterleaving(Choices):
    """Play the steps that a tree asks for.

    Parameters
    ----------
    tree : Tree
    touching : StepObserver
        An observer of the launch.
    """

    def __init__(self, tree: Tree, touching: StepObserver) -> None:
        super().__init__({})
        self._tree, self._touching = tree, touching
        self._lanes: dict[tuple[bytes, bytes], int] = {}

    def start(self) -> None:
        """Begin with a launch."""
        super().start()
        self.others.clear()
        self._agent: Agent | None = None

    def attach(self, engine: Engine) -> None:
        """Take the engine that plays the launch."""
        self._engine = engine
        self._tree.restart()

    def begin(self) -> None:
        """Begin with CTAs that become resident: all before them have ended."""
        self._issued: dict[int, int] = {}
        if self._tree.depth:
            self.unblocked()

    def next(self, agents: Sequence[Agent]) -> int:
        """Pick the one that the tree asks for."""
        tree = self._tree
        order = self.preferred(agents)
        for n in order:
            if agents[n].operation is not None:
                self._issued.setdefault(agents[n].number, tree.depth - 1)
        numbers = [agents[n].number for n in order]
        choice = numbers.index(tree.choose(numbers))
        if choice:
            self.others[self._at] = choice
        self._at += 1
        if self._at > MOST_STEPS:
            raise StepLimitError
        self._agent = agent = agents[order[choice]]
        self._number = agent.number
        self.note(agent)
        self._touching.begin()
        self._changes = self._engine.activity.changes
        return order[choice]

    def grants(self, left: int, beyond: int) -> bool:
        """Grant or refuse a request as the tree asks for: both are tried, each as a step after the picked one.

        That step takes from the queue of clusters already, so that requests of others are tried before it and after.
        """
        self._touching.touched.add(CLUSTERS, WRITE)
        self._tree.take(self._event())
        choice = ANSWERS.index(self._tree.decide(ANSWERS))
        if choice:
            self.others[self._at] = choice
        self._at += 1
        self._number = ANSWERS[choice]
        self._touching.begin()
        return choice == 0

    def completes(self, operation: AsyncOperation) -> None:
        """Refuse to complete an operation that was not picked."""
        if self._agent is None or operation is not self._agent.operation:
            raise BlockedPickError

    def hold(self) -> None:
        """Tell the tree that the picked agent cannot go on before a pending operation completes."""
        assert self._agent is not None
        self._tree.hold(self._agent.number)

    def left(self, g: Group) -> None:
        """Note that barriers expect fewer threads, those of a count where others of the warp stay."""
        touched, barriers, cluster = self._touching.touched, self._engine.barriers, self._engine.cluster
        size = g.ctas.residents.cluster_size
        kinds = ("bar of all", "bar")[: 1 + barriers.leaves_others(g)]
        for slot in g.ctas.slots.tolist():
            for number, generation in enumerate(barriers.generations(slot).tolist()):
                for kind in kinds:
                    touched.add((kind, slot, number), ("leave", generation))
            if size > 1:
                touched.add(("cluster", slot // size), ("leave", cluster.generation(slot)))

    def went(self, is_idle: bool) -> None:
        """Tell the tree of the step."""
        event = self._event()
        if is_idle:
            assert self._agent is not None
            i = self._agent.instruction
            if i is not None and i.traits.sets_registers:
                self._touching.set_registers(self._agent.ctas.slots)
            self._tree.idle(event)
        else:
            self._tree.take(event)

    def failed(self) -> None:
        """Tell the tree of a step that ended in an error."""
        self._tree.fail(self._event())

    def unblocked(self) -> None:
        """Tell the tree that the next steps come after all earlier ones."""
        self._touching.begin()
        self._tree.take(Event(NOBODY, 0, self._touching.touched))

    def _event(self) -> Event:
        agent, touching = self._agent, self._touching
        assert agent is not None
        if self._engine.activity.changes == self._changes and CLUSTERS not in touching.touched.objects:
            touching.keep_reads()
        touched = touching.touched
        touched.ends |= {key for key, modes in touched.objects.items() if self._is_over(key, modes)}
        operation = agent.operation
        if operation is None:
            family = _waits_for(agent.instruction)
            mode = _WAITED
        else:
            family = _GROUPED.get(operation.kind, "")
            mode = WRITE if family == "wgmma" else _WAITED if "mbarrier" in operation.instruction.parts else _COPIED
        if family:
            warps = sorted({*(agent.threads.ids // WARP).tolist()})
            for slot in agent.ctas.slots.tolist():
                for warp in warps:
                    touched.add((family, slot, warp), mode)
        if operation is None:
            return Event(self._number, self._lanes_of(agent.ctas, agent.threads), touched)
        return Event(agent.number, 0, touched, self._issued[agent.number])

    def _is_over(self, key: tuple[Any, ...], modes: Set[Mode]) -> bool:
        """Return whether the generation of a named or cluster barrier is over that a step counted in."""
        counted = [mode[1] for mode in modes if mode[0] in ("join", "leave")]
        if not counted:
            return False
        if key[0] == "cluster":
            assert self._agent is not None
            now = self._engine.cluster.generation(key[1] * self._agent.ctas.residents.cluster_size)
        else:
            now = self._engine.barriers.generations(key[1])[key[2]]
        return bool(now > max(counted))

    def _lanes_of(self, ctas: Ctas, threads: Threads) -> int:
        key = ctas.slots.tobytes(), threads.ids.tobytes()
        if key not in self._lanes:
            x, y, z = threads.block
            of_a_cta = sum(1 << n for n in threads.ids.tolist())
            self._lanes[key] = sum(of_a_cta << slot * x * y * z for slot in ctas.slots.tolist())
        return self._lanes[key]


def _waits_for(i: Instruction | None) -> str:
    """Return the family of operations that an instruction may wait for; empty if it doesn't wait."""
    if i is None or not {"wait_group", "wait_all"} & set(i.parts):
        return ""
    return "wgmma" if i.traits.kind == "wgmma" else "bulk" if i.traits.is_bulk else "cp"
