"""Grids of thread-value layouts: which thread holds an element, as which of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..basis import add_coordinates
from ..errors import LayoutError
from ..int_tuple import IntTuple
from ..layout import Layout, is_layout
from ..modes import LayoutBase, rank
from ..writer import to_text
from .axes import joined, orientation, sides
from .grid import Cell, Grid, Owner, ranges

_LONGEST = 11

Owners = dict[Any, tuple[Owner, ...]]
"""Index -> who holds it."""


def tv_grid(
    layout: Any,  # noqa: ANN401 - Layout or ComposedLayout
    tile: IntTuple | Layout | None = None,
    *,
    title: str | None = None,
    names: Sequence[str] = (),
) -> Grid:
    r"""Return the grid of a thread-value layout's tile: who holds each element.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        (thread, value) -> index. Values count the registers, or the elements seen in shared memory.
    tile : IntTuple or Layout, optional
        Coordinate -> index: a shape, indexed colexicographically as CuTe does, or a layout. Default: one mode as long
        as the layout reaches.
    title : str, optional
        Default: the layout's text.
    names : sequence of str, optional
        Of the tile's modes, for the caption.

    Raises
    ------
    LayoutError
        If the layout's rank is not 2, or it maps elements beyond the tile.

    Examples
    --------
    >>> grid = tv_grid(Layout(((2, 2), 2), ((2, 1), 4)), (2, 4))
    >>> [[cell.text.replace("\n", " ") for cell in row] for row in grid.cells]
    [['T0 V0', 'T1 V0', 'T0 V1', 'T1 V1'], ['T2 V0', 'T3 V0', 'T2 V1', 'T3 V1']]
    """
    if not is_layout(layout) or rank(layout) != 2:
        raise LayoutError("tv_grid", (layout, tile), f"a layout of rank 2, (thread, value), is needed, got {layout}")
    owners = owners_of(layout)
    called = title if title is not None else to_text(layout)
    untold = ("the tile's shape is not told: tile=(M, N) draws its rows and columns",) if tile is None else ()
    return owned_grid(
        owners, tile, threads=layout[0].size(), title=called, names=names, operands=(layout, tile), caption=untold
    )


def owned_grid(
    owners: Owners,
    tile: IntTuple | Layout | None,
    *,
    threads: int,
    title: str,
    names: Sequence[str] = (),
    operands: tuple[object, ...] = (),
    caption: Sequence[str] = (),
) -> Grid:
    """Return the grid of a tile whose elements' owners are known.

    Parameters
    ----------
    owners : dict
        Index -> owners.
    tile : IntTuple or Layout
        Coordinate -> index, as in `tv_grid`.
    threads : int
        How many there are: an element that all of them hold is written T*.
    title, names, caption
        As of `tv_grid` and `Grid`.
    operands : tuple
        What an error shows.

    Raises
    ------
    LayoutError
        If an index lies beyond the tile.
    """
    reach = max((index for index in owners if index.__class__ is int), default=-1) + 1
    to_index = tile if isinstance(tile, LayoutBase) else Layout(reach if tile is None else tile)
    beyond = sorted(set(owners) - {to_index(i) for i in range(to_index.size())}, key=repr)
    if beyond:
        raise LayoutError(
            "tv_grid", operands, f"the tile {to_text(to_index)} has no element {beyond[0]}, which the layout maps to"
        )
    rows, columns = sides(to_index.shape, names)

    def cell(i: int, j: int) -> Cell:
        coordinate = joined(to_index.shape, rows.coordinate(i), columns.coordinate(j))
        index = to_index(coordinate)
        held = owners.get(index, ())
        colour = held[0][0][0] % 8 if held and len(held[0][0]) < threads else None
        return Cell(
            _written(held, threads), coordinate, rows.flat(i) + columns.flat(j), index, owners=held, colour=colour
        )

    said = [f"{orientation(rows.axis, columns.axis)}; T thread, V its value", *caption]
    held_by_all = any(len(all_threads) == threads > 1 for held in owners.values() for all_threads, _ in held)
    if held_by_all:
        said.append(f"T*: each of the {threads} threads")
    if any("+" in _holders(some, threads) for some in {some for held in owners.values() for some, _ in held}):
        said.append("T0+1: thread 0 and 1 more")
    if len(owners) < to_index.size():
        said.append("- : no thread's")
    return Grid(
        rows.axis,
        columns.axis,
        cell,
        title=title,
        caption=said,
        colours="" if held_by_all else "thread mod 8",
    )


def owners_of(layout: Any) -> Owners:  # noqa: ANN401 - Layout or ComposedLayout
    """Return who holds each index of a (thread, value) layout: the inverse of the layout, where many may hold one.

    >>> owners_of(Layout((4, 2), (0, 1)))
    {0: (((0, 1, 2, 3), 0),), 1: (((0, 1, 2, 3), 1),)}
    """
    threads, values = layout[0].size(), layout[1].size()
    if not isinstance(layout, Layout):
        return inverted(
            {(thread, value): layout(thread, value) for thread in range(threads) for value in range(values)}
        )
    return owners_by_start([layout(thread, 0) for thread in range(threads)], [layout(0, v) for v in range(values)])


def owners_by_start(starts: Sequence[Any], parts: Sequence[Any]) -> Owners:
    """Return the owners where each thread's values lie alike: thread t holds, as value v, ``starts[t] + parts[v]``.

    >>> owners_by_start([0, 4], [0, 1])
    {0: (((0,), 0),), 1: (((0,), 1),), 4: (((1,), 0),), 5: (((1,), 1),)}
    """
    # Threads that begin at one index hold the same elements: of an operand in shared memory, all threads all elements.
    begin: dict[Any, list[int]] = {}
    for thread, start in enumerate(starts):
        begin.setdefault(start, []).append(thread)
    found: dict[Any, list[Owner]] = {}
    for start, alike in begin.items():
        holders = tuple(alike)
        for value, part in enumerate(parts):
            found.setdefault(_sum(start, part), []).append((holders, value))
    return {index: tuple(held) for index, held in found.items()}


def inverted(held: dict[tuple[int, int], Any]) -> Owners:
    """Return index -> owners of (thread, value) -> index.

    >>> inverted({(0, 0): 7, (1, 0): 7})
    {7: (((0, 1), 0),)}
    """
    threads: dict[Any, dict[int, list[int]]] = {}
    for (thread, value), index in held.items():
        threads.setdefault(index, {}).setdefault(value, []).append(thread)
    return {
        index: tuple((tuple(alike), value) for value, alike in by_value.items()) for index, by_value in threads.items()
    }


def _sum(a: Any, b: Any) -> Any:  # noqa: ANN401 - ints or coordinates
    if a.__class__ is b.__class__ is int:
        return a + b
    return add_coordinates(a, b)


def _written(held: tuple[Owner, ...], threads: int) -> str:
    if not held:
        return "-"
    first, _ = held[0]
    values = [value for alike, value in held if alike == first]
    others = "&" if len(values) < len(held) else ""
    return f"T{_holders(first, threads)}\nV{ranges(values)}{others}"


def _holders(some: tuple[int, ...], threads: int) -> str:
    """Write which threads hold an element: all as *, a run by its ends, and of many others the first and how many."""
    if len(some) == threads > 1:
        return "*"
    written = ranges(some)
    return written if len(written) <= _LONGEST else f"{some[0]}+{len(some) - 1}"
