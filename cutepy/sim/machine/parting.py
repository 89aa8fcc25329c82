"""How a group parts at a branch.

Where a branch goes both ways the group parts into smaller rectangles, which wait for each other where all paths meet
(the immediate post-dominator) and become one again. Waiting there is only a matter of speed: if nothing else can go
on, the schedule lets a part go ahead alone, as threads of Volta and later GPUs may.

References
----------
PTX ISA, "SIMT architecture", "Control Flow Instructions: bra".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.machine.group import Group, Join, inherited
from cutepy.sim.machine.lanes import Array, as_index, select

if TYPE_CHECKING:
    from cutepy.sim.machine.roster import Roster

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


def split(roster: Roster, g: Group, parts: list[Part], join_block: int) -> list[Group]:
    """Part a group; the parts meet at `join_block`, or never if it is negative."""
    flow = roster.flow
    join = _join_for(g, join_block, len(parts))
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
        child = roster.group(
            block,
            registers,
            g.ctas if row_index is None else roster.ctas(g.ctas.slots[rows]),
            g.threads if column_index is None else roster.threads(g.threads.ids[columns]),
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
        child.waits_for = g.waits_for
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
