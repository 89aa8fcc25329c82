"""Groups of lanes that run in lockstep: rectangles of CTAs and threads with one program counter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cutepy.sim.errors import Who
from cutepy.sim.machine.deeds import Done, first
from cutepy.sim.machine.executions import Executions
from cutepy.sim.machine.lanes import Array, Ctas, Index, Threads, as_index, select

if TYPE_CHECKING:
    from cutepy.sim.machine.awaited import Awaited
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.spinning import Spin
    from cutepy.sim.machine.tiles import Issued, Tile
    from cutepy.sim.ptx.model import Instruction


class Return(NamedTuple):
    """What there is to do where lanes return from a function.

    Attributes
    ----------
    block : int
        Where they go on.
    finish : callable
        Called with the group of those that go on, and the one that called, of which they are a part or all.
    """

    block: int
    finish: Callable[[Group, Group], None]


class Join:
    """Where the parts of a group meet.

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
        What the schedule's count of what it waited was when one arrived last.
    parted : int
        The block at whose end they did.
    executed : Executions
        What parts of units executed, since they parted.
    back : Return or None
        What is done where the parts are those of a call, and return.
    depth : int
        How many calls the parts are in.
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
        self.executed = Executions()

    @property
    def goes_on(self) -> int:
        """The block where the lanes go on together."""
        return self.block if self.back is None else self.back.block


class Gathering(NamedTuple):
    """What lanes that wait at a collective wait for.

    Attributes
    ----------
    instruction : Instruction
    wanted : array of bool, (slots, threads)
        The lanes that their masks name.
    ended : int
        How many groups had ended when it was looked at last.
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
        Where it meets the lanes it parted from.
    tiles : dict
        Accumulators that live as matrices, by number of their register tuple.
    issued : list
        MMAs since the last commit.
    committed : list
        Groups of MMAs that were committed and not waited for.
    token : array or None
        The phase in which the lanes arrived at the barrier where they wait.
    ready : array or None
        Which lanes could go on, if the group waits for some.
    waits_for : callable or None
        Tells what the group waits for.
    spin : Spin or None
        What it has been like since memory changed, if it is watched.
    unwatched : int
        Blocks that it ran in earlier turns without being watched.
    gathering : Gathering or None
        What it waits for at a collective of its warps.
    is_gathered : bool
        Whether its lanes are all that a collective, which comes next, takes together.
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
        self.tiles: dict[int, Tile] = {}
        self.issued: list[Issued] = []
        self.committed: list[AsyncOperation] = []
        self.token: Array | None = None
        self.ready: Array | None = None
        self.timed_out: int | None = None
        self.spin: Spin | None = None
        self.unwatched = 0
        self.gathering: Gathering | None = None
        self.is_gathered = False
        self.waits_for: Callable[[], Awaited] | None = None

    def lane(self, row: int, column: int) -> Who:
        """Name one lane."""
        who = first(self.ctas, self.threads, row, column)
        return replace(who, text=f"thread {self.threads.ids[column]} (warp {who.warp}) of CTA {who.cta}")

    def describe(self) -> Who:
        """Name the lanes."""
        return first(self.ctas, self.threads)

    def did(self, i: Instruction) -> Done:
        """Remember that the lanes executed an instruction."""
        return Done(i, self.ctas, self.threads)


def is_unchanged(part: Group, index: int) -> bool:
    """Tell whether a part has a register as it was in the group it parted from."""
    value = part.registers[index]
    return value is None or (part.original is not None and value is part.original[index])


def inherited(g: Group, index: int) -> Array:
    """Return a register that a group left as it was in the group it parted from.

    That is asked itself, and not the copy that a part may have: accumulators come back to registers meanwhile.
    """
    assert g.join is not None
    parent = g.join.parent
    value: Array | None = parent.registers[index]
    if value is None or (parent.join is not None and is_unchanged(parent, index)):
        value = inherited(parent, index)
    return select(value, *places(g, parent))


def places(part: Group, whole: Group) -> tuple[Index | None, Index | None]:
    """Return where the CTAs and threads of a part are in a whole; None where they are all of them."""
    rows = None if part.ctas.count == whole.ctas.count else as_index(np.searchsorted(whole.ctas.slots, part.ctas.slots))
    same = part.threads.count == whole.threads.count
    columns = None if same else as_index(np.searchsorted(whole.threads.ids, part.threads.ids))
    return rows, columns
