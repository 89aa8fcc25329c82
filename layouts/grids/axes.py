"""Axes of a shape: modes that run down and across, and the natural coordinate of each position."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from ..coordinates import idx2crd
from ..int_tuple import IntTuple, flatten_to_tuple, product, wrap
from .grid import Axis, Parts


class Side(NamedTuple):
    """One axis of a shape."""

    axis: Axis
    coordinate: Callable[[int], tuple[Any, ...]]
    """Position -> natural coordinate of all modes; 0 of those of the other axis."""
    flat: Callable[[int], int]
    """Position -> its part of the colexicographic index."""
    modes: range
    """Modes that run along the axis."""
    position: Callable[[int], int]
    """Colexicographic index of the whole -> position."""
    parts: Callable[[], Parts]
    """Contributions of all positions to indices and coordinates."""


def place_of(rows: Side, columns: Side) -> Callable[[int], tuple[int, int]]:
    """Return a function from a colexicographic index to its row and column.

    >>> place_of(*sides((4, 3, 5)))(4 * 2 + 12 * 1 + 3)
    (7, 2)
    """
    return lambda flat: (rows.position(flat), columns.position(flat))


def parts_of(rows: Side, columns: Side) -> Callable[[], tuple[Parts, Parts]]:
    """Return a function that lists the contributions of rows and columns.

    >>> rows, columns = parts_of(*sides(((2, 2), 3)))()
    >>> rows.coordinates, columns.indices
    ([['(0,0)'], ['(1,0)'], ['(0,1)'], ['(1,1)']], [0, 4, 8])
    """
    return lambda: (rows.parts(), columns.parts())


def sides(shape: IntTuple, names: Sequence[str] = ()) -> tuple[Side, Side]:
    """Return the rows and the columns of a shape: modes 0, 2, 4 ... run down, modes 1, 3, 5 ... across.

    Parameters
    ----------
    shape : IntTuple
    names : sequence of str, optional
        Names of the modes; default ``mode 0`` and so on.

    Examples
    --------
    >>> rows, columns = sides(((4, 2), 3, 5))
    >>> rows.axis.size, rows.axis.tiles, columns.axis.size, rows.axis.label(39), rows.coordinate(39), rows.flat(39)
    (40, (4, 8), 3, '7,4', ((3, 1), 0, 4), 103)
    """
    modes = wrap(shape)
    called = tuple(names) or tuple(f"mode {i}" for i in range(len(modes)))
    return _side(modes, range(0, len(modes), 2), called), _side(modes, range(1, len(modes), 2), called)


def _side(modes: tuple[Any, ...], mine: range, names: Sequence[str]) -> Side:
    extents = tuple(product(modes[mode]) for mode in mine)
    steps = {mode: product(modes[:mode]) for mode in mine}
    zeros = [idx2crd(0, shape) if product(shape) else 0 for shape in modes]

    @cache
    def parted(position: int) -> tuple[int, ...]:
        found = []
        for extent in extents:
            position, rest = divmod(position, extent)
            found.append(rest)
        return tuple(found)

    @cache
    def coordinate(position: int) -> tuple[Any, ...]:
        whole = list(zeros)
        for mode, part in zip(mine, parted(position), strict=True):
            whole[mode] = idx2crd(part, modes[mode])
        return tuple(whole)

    def label(position: int) -> str:
        return ",".join(map(str, parted(position)))

    def flat(position: int) -> int:
        return sum(part * steps[mode] for mode, part in zip(mine, parted(position), strict=True))

    def position(flat: int) -> int:
        found, outer = 0, 1
        for mode, extent in zip(mine, extents, strict=True):
            found += flat // steps[mode] % extent * outer
            outer *= extent
        return found

    def parts() -> Parts:
        index = [0]
        for mode, extent in zip(mine, extents, strict=True):
            index = [start + part * steps[mode] for part in range(extent) for start in index]
        return Parts(index, _colexicographic([_coordinates(modes[mode]) for mode in mine]))

    leaves = [leaf for mode in mine for leaf in flatten_to_tuple(wrap(modes[mode])) if leaf != 1]
    tiles, reached = [], 1
    for leaf in leaves[:-1]:
        reached *= leaf
        tiles.append(reached)
    axis = Axis(
        product(extents),
        label=label if len(mine) else lambda position: "",
        tiles=tiles if 0 not in leaves else (),
        names=" and ".join(names[mode] for mode in mine),
    )
    return Side(axis, coordinate, cache(flat), mine, position, parts)


def _coordinates(shape: IntTuple) -> list[str]:
    """List the texts of all coordinates of a shape, the first mode fastest."""
    if isinstance(shape, tuple):
        return [f"({','.join(parts)})" for parts in _colexicographic([_coordinates(mode) for mode in shape])]
    return list(map(str, range(shape)))


def _colexicographic(modes: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(parts[::-1]) for parts in itertools.product(*modes[::-1])]


def orientation(rows: Axis, columns: Axis) -> str:
    """Describe the axes: ``mode 0 down, mode 1 across``; a shape without modes is one element."""
    said = ", ".join(f"{axis.names} {where}" for axis, where in ((rows, "down"), (columns, "across")) if axis.names)
    return said or "a single element"


def joined(shape: IntTuple, down: tuple[Any, ...], across: tuple[Any, ...]) -> IntTuple:
    """Return the coordinate whose even modes are `down`'s and odd ones `across`'s; an integer for an integer shape.

    >>> joined((2, 3, 4), (1, 0, 3), (0, 2, 0))
    (1, 2, 3)
    """
    both = tuple([across[mode] if mode % 2 else down[mode] for mode in range(len(down))])
    return both if isinstance(shape, tuple) else both[0]
