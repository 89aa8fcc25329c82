"""Parts of a group that become one again where they meet, all of them or those that are whole by themselves.

A group spans warps and CTAs, of which each is a matter of its own: what is whole of them may go on while others wait.

References
----------
PTX ISA, "SIMT Architecture", "Independent Thread Scheduling".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.sim.machine.group import Group, inherited, is_unchanged, places
from cutepy.sim.machine.lanes import Array, as_index, select
from cutepy.sim.machine.parting import parts_of

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Join
    from cutepy.sim.machine.roster import Roster


def in_whole_units(here: Array, wanted: Array, unit: int) -> Array:
    """Pick the lanes of units of threads, such as warps, of which all that are wanted are here.

    Examples
    --------
    >>> here = np.array([[True, True, True, False], [True, False, True, True]])
    >>> in_whole_units(here, np.ones((2, 4), bool), 2).astype(int)
    array([[1, 1, 0, 0],
           [0, 0, 1, 1]])
    """
    count = here.shape[1]
    missing = np.zeros((len(here), -(-count // unit) * unit), bool)
    missing[:, :count] = wanted & ~here
    lacks = missing.reshape(len(here), -1, unit).any(axis=2)
    chosen: Array = here & ~lacks.repeat(unit, axis=1)[:, :count]
    return chosen


def regroup(
    roster: Roster, parts: Sequence[Group], chosen: Array, block: int, join: Join | None
) -> tuple[list[Group], list[Group]]:
    """Make as few groups as can be of the lanes that were chosen, and of each part what is left.

    Parameters
    ----------
    roster : Roster
    parts : sequence of Group
        Without MMAs in flight.
    chosen : array of bool, (slots, threads)
    block : int
        Where they go on.
    join : Join or None
        Where the new groups meet others.
    """
    live = roster.flow.live_in[block]
    merged, rest = [], []
    slots, ids = (np.flatnonzero(np.logical_or.reduce(chosen, axis=axis)) for axis in (1, 0))
    inside = chosen[np.ix_(slots, ids)]
    for rows, columns, is_chosen in parts_of(inside, inside.shape, 1, 0):
        if is_chosen and len(rows):
            ctas, threads = roster.ctas(slots[rows]), roster.threads(ids[columns])
            whole = roster.group(block, [None] * len(parts[0].registers), ctas, threads, join)
            pieces = [piece for part in parts if (piece := _within(roster, part, ctas.slots, threads.ids)) is not None]
            _gather_registers(whole, pieces, live, join is not None and parts[0].join is join)
            merged.append(whole)
    for part in parts:
        left = ~chosen[np.ix_(part.ctas.slots, part.threads.ids)]
        for rows, columns, is_left in parts_of(left, left.shape, 1, 0):
            if is_left and len(rows):
                piece = _within(roster, part, part.ctas.slots[rows], part.threads.ids[columns])
                assert piece is not None
                rest.append(piece)
    return merged, rest


def _gather_registers(whole: Group, pieces: list[Group], live: frozenset[int], stays: bool) -> None:
    """Give a group the registers of its pieces; where it stays where they meet others, note what they left alone."""
    whole.original = [None] * len(whole.registers) if stays else None
    for index in live:
        if stays and all(piece.registers[index] is None for piece in pieces):
            continue
        value = whole.registers[index] = assemble(whole, pieces, index)
        if whole.original is not None and all(is_unchanged(piece, index) for piece in pieces):
            whole.original[index] = value


def _within(roster: Roster, g: Group, slots: Array, ids: Array) -> Group | None:
    """Return a group's lanes within a rectangle, as a group; None if there are none."""
    rows, columns = np.isin(g.ctas.slots, slots).nonzero()[0], np.isin(g.threads.ids, ids).nonzero()[0]
    if not (len(rows) and len(columns)):
        return None
    if len(rows) == g.ctas.count and len(columns) == g.threads.count:
        return g
    at = as_index(rows), as_index(columns)
    registers: list[Any] = [None if value is None else select(value, *at) for value in g.registers]
    ctas, threads = roster.ctas(g.ctas.slots[rows]), roster.threads(g.threads.ids[columns])
    piece = roster.group(g.block, registers, ctas, threads, g.join)
    if g.original is not None:
        piece.original = [
            value if before is original else None
            for value, before, original in zip(registers, g.registers, g.original, strict=True)
        ]
    piece.gathering, piece.waits_for = g.gathering, g.waits_for
    return piece


def merge(
    roster: Roster, join: Join, parts: list[Group], chosen: Array | None, to_registers: Callable[[Group], None]
) -> tuple[list[Group], list[Group]]:
    """Make the parts of a group that have met one again, or as few rectangles as they or those chosen of them fill.

    Parameters
    ----------
    roster : Roster
    join : Join
        Where they have met.
    parts : list of Group
    chosen : array of bool, (slots, threads), or None
    to_registers : callable
        Brings to a group's registers what is kept elsewhere.

    Returns
    -------
    tuple
        The groups that go on, and what is left of the parts.
    """
    parent = join.parent
    for part in parts:
        to_registers(part)
    if join.back is not None:
        return _returned(roster, join, parts, roster.lanes_of(parts) if chosen is None else chosen)
    if (
        chosen is None
        and sum(p.ctas.count * p.threads.count for p in parts) == parent.ctas.count * parent.threads.count
    ):
        registers = list(parent.registers)
        for index in roster.flow.live_in[join.block]:
            if not all(is_unchanged(part, index) for part in parts):
                registers[index] = assemble(parent, parts, index)
        parent.registers = registers
        parent.block = join.block
        parent.token = None
        return [parent], []
    ancestor: Group | None = parent
    while ancestor is not None:
        to_registers(ancestor)
        ancestor = ancestor.join.parent if ancestor.join is not None else None
    taken = roster.lanes_of(parts) if chosen is None else chosen
    return regroup(roster, parts, taken, join.block, parent.join)


def _returned(roster: Roster, join: Join, parts: list[Group], taken: Array) -> tuple[list[Group], list[Group]]:
    """Let lanes that return from a function go on in the group that called it: all of it, or some rectangles."""
    parent = join.parent
    if taken.sum() == parent.ctas.count * parent.threads.count:
        parent.block, parent.token = join.goes_on, None
        return [parent], []
    merged, _ = regroup(roster, [parent], taken, join.goes_on, parent.join)
    _, rest = regroup(roster, parts, taken, join.block, None)
    return merged, rest


def _value(part: Group, index: int) -> Array:
    value: Array | None = part.registers[index]
    return inherited(part, index) if value is None or (part.join and is_unchanged(part, index)) else value


def assemble(whole: Group, parts: list[Group], index: int) -> Array:
    """Put a register together from the values of all parts."""
    values = [_value(part, index) for part in parts]
    rows_differ = any(p.ctas.count != whole.ctas.count for p in parts)
    columns_differ = any(p.threads.count != whole.threads.count for p in parts)
    rows = whole.ctas.count if rows_differ or any(v.shape[0] > 1 for v in values) else 1
    columns = whole.threads.count if columns_differ or any(v.shape[1] > 1 for v in values) else 1
    result = np.empty((rows, columns), values[0].dtype)
    for part, value in zip(parts, values, strict=True):
        at_rows, at_columns = places(part, whole)
        row_index = slice(None) if at_rows is None or rows == 1 else at_rows
        column_index = slice(None) if at_columns is None or columns == 1 else at_columns
        if isinstance(row_index, slice) or isinstance(column_index, slice):
            result[row_index, column_index] = value
        else:
            result[np.ix_(row_index, column_index)] = value
    return result
