"""Groups of lanes that run in lockstep, and how they part at a branch.

A group is a rectangle of CTAs and threads with one program counter. Where a branch goes both ways the group parts
into smaller rectangles, which wait for each other where all paths meet (the immediate post-dominator) and become one
again. Waiting there is only a matter of speed: if nothing else can go on, the machine lets a part go ahead alone, as
threads of Volta and later GPUs may.

References
----------
PTX ISA, "SIMT architecture", "Control Flow Instructions: bra".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.machine.lanes import Array, Ctas, Index, Threads, as_index, select

if TYPE_CHECKING:
    from cutepy.sim.machine.events import AsyncOperation
    from cutepy.sim.machine.gathering import Gathering
    from cutepy.sim.machine.machine import Machine
    from cutepy.sim.machine.spinning import Spin
    from cutepy.sim.mechanisms.calls import Return
    from cutepy.sim.mechanisms.wgmma import Issued, Tile


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
        What `Machine.waited` was when one arrived last.
    back : Return or None
        What is done where the parts are those of a call, and return.
    """

    def __init__(self, block: int, parent: Group, back: Return | None = None) -> None:
        self.block = block
        self.back = back
        self.parent = parent
        self.expected = 0
        self.arrived: list[Group] = []
        self.since = 0

    @property
    def goes_on(self) -> int:
        """The block where the lanes go on together."""
        return self.block if self.back is None else self.back.block


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
        self.timed_out = -1
        self.spin: Spin | None = None
        self.unwatched = 0
        self.gathering: Gathering | None = None
        self.is_gathered = False
        self.waits_for: Callable[[], str] | None = None

    def lane(self, row: int, column: int) -> str:
        """Name one lane."""
        thread = int(self.threads.ids[column])
        coordinate = self.ctas.residents.coordinate(int(self.ctas.slots[row]))
        return f"thread {thread} (warp {thread // 32}) of CTA {coordinate}"

    def describe(self) -> str:
        """Name the lanes."""
        return f"{self.threads.describe()} of {self.ctas.describe()}"


Part = tuple[NDArray[np.intp], NDArray[np.intp], int]
"""Rows, columns, and the block where these lanes go on."""


def parts_of(condition: Array, shape: tuple[int, int], taken: int, other: int) -> list[Part]:
    """Cut a rectangle of lanes into rectangles of one outcome each.

    Examples
    --------
    >>> for rows, columns, block in parts_of(np.array([[True, False], [False, False]]), (2, 2), 7, 9):
    ...     print(rows, columns, block)
    [0] [0] 7
    [0] [1] 9
    [1] [0 1] 9
    """
    every_row, every_column = np.arange(shape[0]), np.arange(shape[1])
    if condition.shape[1] == 1:
        column = condition[:, 0]
        return [(np.flatnonzero(column), every_column, taken), (np.flatnonzero(~column), every_column, other)]
    if condition.shape[0] == 1:
        patterns: list[tuple[NDArray[np.intp], Array]] = [(every_row, condition[0])]
    else:
        packed = np.packbits(condition, axis=1)
        _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        inverse = inverse.reshape(-1)
        patterns = [(np.flatnonzero(inverse == n), condition[first[n]]) for n in np.argsort(first)]
    parts: list[Part] = []
    for rows, pattern in patterns:
        parts += [(rows, np.flatnonzero(pattern), taken), (rows, np.flatnonzero(~pattern), other)]
    return [part for part in parts if len(part[1])]


def split(machine: Machine, g: Group, parts: list[Part], join_block: int) -> list[Group]:
    """Part a group; the parts meet at `join_block`, or never if it is negative."""
    flow = machine.program.flow
    join = _join_for(g, join_block, len(parts))
    _release_accumulators(machine, g, parts, join_block)
    children = []
    for rows, columns, block in parts:
        row_index = as_index(rows) if len(rows) < g.ctas.count else None
        column_index = as_index(columns) if len(columns) < g.threads.count else None
        if block < 0:
            needed: frozenset[int] = frozenset()
        elif join is None or join.parent is not g:
            needed = flow.live_in[block]
        else:
            needed = flow.used_between(block, join.block)
        registers: list[Any] = [None] * len(g.registers)
        for index in needed:
            value = g.registers[index]
            if value is None:
                value = inherited(g, index)
            registers[index] = select(value, row_index, column_index)
        child = Group(
            machine.next_number(),
            block,
            registers,
            g.ctas if row_index is None else machine.ctas(g.ctas.slots[rows]),
            g.threads if column_index is None else machine.threads(g.threads.ids[columns]),
            join,
        )
        if join is None or join.parent is g:
            child.original = list(registers)
        elif g.original is not None:
            # A part of a part: what it leaves alone is still as in the common parent.
            child.original = [
                value if g.registers[n] is None or g.original[n] is g.registers[n] else None
                for n, value in enumerate(registers)
            ]
        if g.token is not None:
            child.token = select(g.token, row_index, column_index)
        children.append(child)
    return children


def _join_for(g: Group, block: int, parts: int) -> Join | None:
    """Return where the parts of a group meet: a new place, or the one where the group itself is awaited."""
    outer = g.join
    if block < 0 or (outer is not None and outer.block == block):
        if outer is not None:
            outer.expected += parts - 1
        return outer
    join = Join(block, g)
    join.expected = parts
    return join


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


def _release_accumulators(machine: Machine, g: Group, parts: list[Part], join_block: int) -> None:
    """Bring back to registers the accumulators that a part may touch, once their MMAs are complete.

    MMAs stay with the group that parted: they complete too where a part may commit them or wait for them.
    """
    if not (g.tiles or g.issued or g.committed):
        return
    apart = join_block < 0 or (g.join is not None and g.join.block == join_block)
    sets_with, flow = machine.program.sets_with, machine.program.flow
    if apart or any(index in sets_with for _, _, b in parts for index in flow.touched_between(b, join_block)):
        machine.wgmma.drain(g)
        for number in list(g.tiles):
            machine.wgmma.flush(g, number)
    elif any(flow.has_between(b, join_block, "wgmma") for _, _, b in parts):
        machine.wgmma.drain(g)
