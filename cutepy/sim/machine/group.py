"""Groups of lanes that run in lockstep: rectangles of CTAs and threads with one program counter; and the set of groups.

A group has the lanes' registers, and accumulators as matrices as long as only MMAs touch them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.errors import NamedLanes
from cutepy.sim.machine.events import AsyncOperation
from cutepy.sim.machine.lanes import Array, Ctas, Index, Residents, Threads, as_index, select
from cutepy.sim.machine.spinning import Spin
from cutepy.sim.machine.thread_history import ExecutedInstruction, ExecutionCounts, first
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.control_flow import ControlFlow
from cutepy.sim.translate.wgmma_shapes import Shape


class Return(NamedTuple):
    """Return from a function: the block where lanes go on, and the work before that.

    Attributes
    ----------
    block : int
        Block where lanes go on.
    finish : callable
        Called with the group of those that go on, and the one that called, of which they are a part or all.
    """

    block: int
    finish: Callable[[Group, Group], None]


class Join:
    """Reconvergence point: the block where the parts of a group become one again.

    Attributes
    ----------
    block : int
        The block that all reach.
    parent : Group
        The group as it was when it parted: its registers are those of lanes that left them alone.
    expected : int
        Parts that have not arrived and have not ended.
    arrived : list of Group
    since : int
        Count of the schedule when the last lane arrived.
    parted : int
        The block at whose end they did.
    executed : ExecutionCounts
        Instructions that parts of units executed, since they diverged.
    back : Return or None
        Return of a call, if the parts are within one.
    depth : int
        Depth of calls of the parts.
    """

    def __init__(self, block: int, parent: Group, back: Return | None = None) -> None:
        self.block = block
        self.back = back
        self.parent = parent
        self.expected = 0
        self.arrived: list[Group] = []
        self.since = 0
        self.parted = parent.block
        self.depth: int = (0 if parent.join is None else parent.join.depth) + (back is not None)
        self.executed = ExecutionCounts()

    @property
    def goes_on(self) -> int:
        """The block where the lanes go on together."""
        return self.block if self.back is None else self.back.block


class Rendezvous(NamedTuple):
    """Rendezvous of lanes at a collective: the lanes that its masks name, and those that have come.

    Attributes
    ----------
    instruction : Instruction
    wanted : array of bool, (slots, threads)
        The lanes that their masks name.
    ended : int
        Number of groups that had ended at the last look.
    """

    instruction: Instruction
    wanted: Array
    ended: int


class Group:
    """Lanes that run together.

    Attributes
    ----------
    number : int
        Names the group in reports.
    block : int
        The block it runs next.
    registers : list
        Value of each register; None where it is as in the group it parted from.
    ctas, threads : Ctas, Threads
        The lanes.
    join : Join or None
        Reconvergence point with the lanes that it parted from.
    tiles : dict
        Accumulators that live as matrices, by number of their register tuple.
    issued : list
        MMAs since the last commit.
    committed : list
        Groups of MMAs that were committed and not waited for.
    token : array or None
        The phase in which the lanes arrived at the barrier where they wait.
    ready : array or None
        Lanes that could go on, if the group waits for others.
    waits_for : callable or None
        Names the object that the group waits for.
    spin : Spin or None
        State since memory changed, if the group is watched for spinning.
    unwatched : int
        Blocks that it ran in earlier turns without being watched.
    gathering : Rendezvous or None
        Rendezvous at a collective of its warps.
    is_gathered : bool
        True if its lanes are all that a collective, which comes next, takes together.
    """

    __slots__ = (
        "block",
        "committed",
        "ctas",
        "gathering",
        "is_gathered",
        "issued",
        "join",
        "number",
        "original",
        "ready",
        "registers",
        "spin",
        "threads",
        "tiles",
        "timed_out",
        "token",
        "unwatched",
        "waits_for",
    )

    def __init__(
        self, number: int, block: int, registers: list[Any], ctas: Ctas, threads: Threads, join: Join | None
    ) -> None:
        self.number = number
        self.block = block
        self.registers = registers
        self.original: list[Any] | None = None
        self.ctas = ctas
        self.threads = threads
        self.join = join
        self.tiles: dict[int, AccumulatorTile] = {}
        self.issued: list[IssuedMma] = []
        self.committed: list[AsyncOperation] = []
        self.token: Array | None = None
        self.ready: Array | None = None
        self.timed_out: int | None = None
        self.spin: Spin | None = None
        self.unwatched = 0
        self.gathering: Rendezvous | None = None
        self.is_gathered = False
        self.waits_for: Callable[[], AwaitedObject] | None = None

    def lane(self, row: int, column: int) -> NamedLanes:
        """Name one lane."""
        who = first(self.ctas, self.threads, row, column)
        return replace(who, text=f"thread {self.threads.ids[column]} (warp {who.warp}) of CTA {who.cta}")

    def describe(self) -> NamedLanes:
        """Name the lanes."""
        return first(self.ctas, self.threads)

    def did(self, i: Instruction) -> ExecutedInstruction:
        """Remember that the lanes executed an instruction."""
        return ExecutedInstruction(i, self.ctas, self.threads)


def is_unchanged(part: Group, index: int) -> bool:
    """Return whether a part has a register as it was in the group it parted from."""
    value = part.registers[index]
    return value is None or (part.original is not None and value is part.original[index])


def inherited(g: Group, index: int) -> Array:
    """Return a register that a group has not written since it split from its parent group.

    The parent is asked, not a copy in the part, since accumulators return to registers meanwhile.
    """
    assert g.join is not None
    parent = g.join.parent
    value: Array | None = parent.registers[index]
    if value is None or (parent.join is not None and is_unchanged(parent, index)):
        value = inherited(parent, index)
    return select(value, *places(g, parent))


def value_of(g: Group, index: int) -> Array | None:
    """Return a register as a group has it, of its own or as it was where the group parted; None if it has no value."""
    value: Array | None = g.registers[index]
    return inherited(g, index) if value is None and g.join is not None else value


def places(part: Group, whole: Group) -> tuple[Index | None, Index | None]:
    """Return where the CTAs and threads of a part are in a whole; None where they are all of them."""
    rows = None if part.ctas.count == whole.ctas.count else as_index(np.searchsorted(whole.ctas.slots, part.ctas.slots))
    same = part.threads.count == whole.threads.count
    columns = None if same else as_index(np.searchsorted(whole.threads.ids, part.threads.ids))
    return rows, columns


class Roster:
    """Roster of the resident CTAs: groups that run or wait, and lanes that have exited.

    Parameters
    ----------
    flow : ControlFlow
        Of the function that all run.
    block : (int, int, int)
        Extents of a CTA.

    Attributes
    ----------
    threads_per_cta : int
    groups : list of Group
        Those that run or wait, but for those that wait where they meet others.
    groups_ended : int
        Number of groups that have ended, in all launches of CTAs so far.
    residents : Residents
        The CTAs.
    ended : array of bool, (slots, threads)
        The lanes that have ended.
    """

    residents: Residents
    ended: Array

    def __init__(self, flow: ControlFlow, block: tuple[int, int, int]) -> None:
        self.flow = flow
        self.block = block
        self.threads_per_cta = block[0] * block[1] * block[2]
        self.groups: list[Group] = []
        self.groups_ended = 0
        self._numbers = 0
        self._thread_sets: dict[bytes, Threads] = {}
        self._cta_sets: dict[bytes, Ctas] = {}

    def start(self, residents: Residents, registers: Sequence[Array]) -> None:
        """Let CTAs begin: their lanes are one group."""
        self.residents = residents
        self.ended = np.zeros((residents.count, self.threads_per_cta), bool)
        self._cta_sets.clear()
        ctas, threads = self.ctas(np.arange(residents.count)), self.threads(np.arange(self.threads_per_cta))
        self.groups = [self.group(0, list(registers), ctas, threads, None)]

    def group(self, block: int, registers: list[Any], ctas: Ctas, threads: Threads, join: Join | None) -> Group:
        """Make a group with a new number."""
        self._numbers += 1
        return Group(self._numbers, block, registers, ctas, threads, join)

    def threads(self, ids: NDArray[np.intp]) -> Threads:
        """Return the set of these threads."""
        key = ids.tobytes()
        if key not in self._thread_sets:
            self._thread_sets[key] = Threads(ids, self.block)
        return self._thread_sets[key]

    def ctas(self, slots: NDArray[np.intp]) -> Ctas:
        """Return the set of these slots."""
        key = slots.tobytes()
        if key not in self._cta_sets:
            self._cta_sets[key] = Ctas(slots, self.residents)
        return self._cta_sets[key]

    def lanes_of(self, groups: Sequence[Group]) -> Array:
        """Tell which lanes are in some groups, by (slot, thread)."""
        here = np.zeros_like(self.ended)
        for g in groups:
            here[g.ctas.slots[:, None], g.threads.ids[None, :]] = True
        return here

    def replace(self, old: Sequence[Group], new: Sequence[Group]) -> None:
        """Put groups of the same lanes, which meet others at the same place, in the place of others."""
        self.groups = [g for g in self.groups if not any(g is other for other in old)] + list(new)
        if old[0].join is not None:
            old[0].join.expected += len(new) - len(old)

    def end(self, g: Group) -> None:
        """Note that lanes have ended."""
        self.ended[g.ctas.slots[:, None], g.threads.ids[None, :]] = True
        self.groups_ended += 1


@dataclass
class IssuedMma:
    """An MMA whose operands are known: descriptors by (CTA, warpgroup), or A's values.

    `where` says where in their rows the elements are that a sparse A keeps: (CTA, warpgroup, 64, K / 2).
    """

    shape: Shape
    instruction: Instruction
    a: Array
    b: Array
    accumulate: Array
    tile: AccumulatorTile
    where: Array | None = None


class AccumulatorTile:
    """Accumulators as a matrix, (CTA, warpgroup, 64, N); None while no MMA has completed on fresh ones."""

    def __init__(self, shape: Shape, matrix: Array | None) -> None:
        self.shape = shape
        self.matrix = matrix
        self.in_flight = 0
