"""Divergence: groups of lanes split at branches, reconverge at immediate post-dominators, and meet at warp collectives.

A branch that goes both ways splits a group into smaller rectangles. They wait for each other where all paths meet, and
become one group again. That wait is only a matter of speed: if nothing else can run, the schedule lets a part go ahead
alone, as threads of Volta and later GPUs may. A group spans warps and CTAs, each of which is independent of the others:
whole warps go on while others wait. Lanes that went ahead of their warp wait at a collective for the other lanes that
its mask names, and are one group again.

References
----------
PTX ISA, "SIMT architecture", "Independent Thread Scheduling", "Control Flow Instructions: bra". "shfl.sync",
"vote.sync", "match.sync", "redux.sync", "elect.sync": the executing thread waits until all threads of its mask that
have not exited execute the instruction. "bar.warp.sync" may be executed in different places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.sim.advice import Diagnosis
from cutepy.sim.errors import Execution, Place, SimulationError
from cutepy.sim.machine.group import Group, Join, Rendezvous, Roster, inherited, is_unchanged, places
from cutepy.sim.machine.lanes import WARP, Array, as_index, mask_of, select
from cutepy.sim.machine.wait_sources import AwaitedObject
from cutepy.sim.ptx.model import Instruction

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
    return here & ~lacks.repeat(unit, axis=1)[:, :count]


def regroup(
    roster: Roster, parts: Sequence[Group], chosen: Array, block: int, join: Join | None
) -> tuple[list[Group], list[Group]]:
    """Make as few groups as possible of the chosen lanes, and of the rest of each part.

    Parameters
    ----------
    roster : Roster
    parts : sequence of Group
        Without MMAs in flight.
    chosen : array of bool, (slots, threads)
    block : int
        Block where they go on.
    join : Join or None
        Reconvergence point of the new groups.
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
    """Give a group the registers of its pieces; where it stays at a meeting point, note the registers left alone."""
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
        Reconvergence point where they are.
    parts : list of Group
    chosen : array of bool, (slots, threads), or None
    to_registers : callable
        Brings to a group's registers the values that are kept elsewhere.

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


def gather(roster: Roster, g: Group, i: Instruction, wanted: Array) -> bool | None:
    """Bring together the lanes that a collective names, which come one after another.

    Parameters
    ----------
    roster : Roster
    g : Group
    i : Instruction
        The first of its block.
    wanted : array of uint32, (CTAs, warps)
        The lanes that the masks of the group name.

    Returns
    -------
    bool or None
        True if they are all here; False if the group waits for some; None if it has become other groups.
    """
    if g.is_gathered:
        g.is_gathered = False
        return True
    if g.gathering is None:
        named = np.zeros_like(roster.ended)
        bits = np.unpackbits(np.ascontiguousarray(wanted).view(np.uint8), axis=1, bitorder="little").astype(bool)
        threads = (g.threads.warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
        exist = threads < roster.threads_per_cta
        named[np.ix_(g.ctas.slots, threads[exist])] = np.broadcast_to(bits, (g.ctas.count, len(threads)))[:, exist]
        if not (named & ~roster.ended & ~roster.lanes_of([g])).any():
            return True
        g.gathering = Rendezvous(i, named, roster.groups_ended)
    elif g.gathering.ended == roster.groups_ended:
        return False
    g.gathering = g.gathering._replace(ended=roster.groups_ended)
    fellows = [h for h in roster.groups if h.gathering is not None and h.join is g.join and _is_met(g, h)]
    named = np.logical_or.reduce([h.gathering.wanted for h in fellows if h.gathering is not None])
    chosen = in_whole_units(roster.lanes_of(fellows), named & ~roster.ended, WARP)
    if not chosen.any():
        g.waits_for = lambda: _awaited(roster, g, i)
        return False
    for block in {h.block for h in fellows}:
        parts = [h for h in fellows if h.block == block]
        merged, rest = regroup(roster, parts, chosen & roster.lanes_of(parts), block, g.join)
        for one in merged:
            one.is_gathered = True
        roster.replace(parts, [*merged, *rest])
    return None


def _is_met(g: Group, h: Group) -> bool:
    """Return whether the collectives of two groups are one: at the same place, but for bar.warp.sync."""
    assert g.gathering is not None
    assert h.gathering is not None
    ours, theirs = g.gathering.instruction.traits, h.gathering.instruction.traits
    return h.block == g.block or ours.barrier == theirs.barrier == "of_warp"


def absent(roster: Roster, g: Group) -> str:
    """Name the lanes that a group waits for at a collective, of the first warp that lacks some."""
    assert g.gathering is not None
    missing = g.gathering.wanted & ~roster.ended & ~roster.lanes_of([g])
    slot, thread = (int(x[0]) for x in missing.nonzero())
    first = thread // WARP * WARP
    lanes = np.zeros(WARP, bool)
    lanes[: len(missing[slot, first : first + WARP])] = missing[slot, first : first + WARP]
    return f"lanes {int(mask_of(lanes)):#010x} of warp {thread // WARP}"


def _awaited(roster: Roster, g: Group, i: Instruction) -> AwaitedObject:
    lanes = absent(roster, g)
    return AwaitedObject(
        f"{lanes}, which its mask names,",
        Place(lanes),
        f"the mask of {i.opcode} names them, and they do not come",
        Diagnosis("lanes-to-instruction"),
        brings=lambda other: other.opcode == i.opcode,
        is_of_a_cta=True,
        nobody="they cannot come there any more",
    )


def check_not_crossed(roster: Roster, join: Join) -> None:
    """Raise an error where lanes at a meeting point and lanes at a collective wait for each other.

    Raises
    ------
    SimulationError
    """
    met = roster.lanes_of(join.arrived)
    for g in roster.groups:
        if g.gathering is not None and _is_within(g, join) and (g.gathering.wanted & met).any():
            i, branch = g.gathering.instruction, roster.flow.blocks[join.parted].branch
            raise SimulationError(
                f"{i.opcode} waits for {absent(roster, g)}, which took another path",
                i,
                g.describe(),
                fix=Diagnosis("lanes-of-mask-together"),
                kind="mismatched-mask",
                at=Place("a mask of lanes"),
                before=None if branch is None else Execution(branch, join.parent.describe()),
            )


def _is_within(g: Group, join: Join) -> bool:
    """Return whether a join waits for a group."""
    at = g.join
    while at is not None and at is not join:
        at = at.parent.join
    return at is join
