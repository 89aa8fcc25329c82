"""Pictures of copies: the reader of each element beside its writer, as CuTe's ``print_latex`` has them.

References
----------
CuTe ``util/print_latex.hpp``, ``print_latex_copy``.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..coordinates import idx2crd
from ..errors import LayoutError
from ..grids.axes import sides
from ..grids.grid import Axis, Cell, Grid, Picture
from ..grids.of_threads import owned_grid, tv_grid
from ..grids.owners import owners_of
from ..layout import Layout
from ..modes import cosize
from .arch import CORE_MATRIX_ROWS, UNIT_BITS

_SIDES = {"S": "source", "D": "destination"}


def copy_picture(
    atom: Any,  # noqa: ANN401 - CopyAtom, or CopyTraits in elements
    bits: int,
    title: str | None = None,
) -> Picture:
    """Return both sides of a copy instruction: its elements in rows of 16 bytes, in the order of the atom's own."""
    count = max(cosize(atom.src_layout), cosize(atom.dst_layout))
    across = UNIT_BITS // bits if count * bits % UNIT_BITS == 0 else count
    tile = Layout((count // across, across), (across, 1))
    grids = [
        tv_grid(layout, tile, title=_called(atom, side), names=("row", "column"))
        for side, layout in zip(_SIDES, (atom.src_layout, atom.dst_layout), strict=True)
    ]
    lined = tuple(grid.but(rows=grid.rows.tiled(CORE_MATRIX_ROWS)) for grid in grids)
    return Picture(lined, f"{atom.name}, elements of {bits} bits" if title is None else title)


def tiled_copy_picture(copy: Any, title: str | None = None) -> Picture:  # noqa: ANN401 - TiledCopy
    """Return the reader and the writer of each element of a tile; the title is the tiling's text."""
    return Picture(tuple(_side(copy, name) for name in _SIDES), str(copy) if title is None else title)


def side_grid(copy: Any, side: str) -> Grid:  # noqa: ANN401 - TiledCopy
    """Return the reader, or the writer, of each element of a tile."""
    if side not in _SIDES:
        raise LayoutError("show", (str(copy),), f"side must be one of {', '.join(_SIDES)}, got {side!r}")
    drawn = _side(copy, side)
    return drawn.but(title=f"{copy}: {drawn.title}")


def _called(atom: Any, side: str) -> str:  # noqa: ANN401 - CopyAtom or CopyTraits
    """Name a side; registers are the side after which copies are tiled."""
    if atom.src_layout == atom.dst_layout:
        return _SIDES[side]
    layout = atom.src_layout if side == "S" else atom.dst_layout
    seen = "registers" if layout == atom.ref_layout else "each thread's addresses"
    return f"{_SIDES[side]}: {seen}"


def _side(copy: Any, side: str) -> Grid:  # noqa: ANN401 - TiledCopy
    layout = copy.get_layoutS_TV() if side == "S" else copy.get_layoutD_TV()
    extents = copy.tile_shape
    tiles = [_order(tiler) for tiler in copy.tiler_mn]
    ranks = [{position: place for place, position in enumerate(order)} for order, _ in tiles]
    found = owners_of(layout)
    inside = {index: held for index, held in found.items() if index < prod(extents)}

    def in_order(index: int) -> int:
        """Index in the tile -> index with its modes in the tensor's order."""
        coordinate: Any = idx2crd(index, extents)
        placed = [place[part] for place, part in zip(ranks, coordinate, strict=True)]
        return sum(part * prod(extents[:mode]) for mode, part in enumerate(placed))

    beyond = sorted({thread for index in found.keys() - inside.keys() for some, _ in found[index] for thread in some})
    remarks = [f"of mode {mode} the tile takes {tiler}" for mode, tiler in enumerate(copy.tiler_mn) if _permutes(tiler)]
    if beyond:
        who = f"thread {beyond[0]} maps" if len(beyond) == 1 else f"threads {beyond[0]} to {beyond[-1]} map"
        remarks.append(f"{who} beyond the tile, as those of several atoms along K do")
    names = ("M", "N") if len(extents) == 2 else ()
    grid = owned_grid(
        {in_order(index): held for index, held in inside.items()} if any(map(_permutes, copy.tiler_mn)) else inside,
        extents,
        threads=copy.thr_size,
        title=_called(copy.atom, side),
        names=names,
        operands=(str(copy), side),
        caption=remarks,
    )
    labels = [labels for _, labels in tiles]
    rows, columns = sides(extents, names)
    bulk = grid.bulk

    def cell(i: int, j: int) -> Cell:
        drawn = grid.cell(i, j)
        return drawn._replace(
            coordinate=tuple(at[place] for at, place in zip(labels, drawn.coordinate, strict=True)), offset=None
        )

    return grid.but(
        rows=_labelled(grid.rows, rows.modes, labels).tiled(*_lines(copy, 0)),
        columns=_labelled(grid.columns, columns.modes, labels).tiled(*_lines(copy, 1)),
        cell=cell,
        bulk=None if bulk is None else lambda: {name: known for name, known in bulk().items() if name != "offset"},
    )


def _order(tiler: Any) -> tuple[list[int], list[int]]:  # noqa: ANN401 - extent or Layout
    """Return a mode's positions in the order of the tensor's coordinates, and those coordinates."""
    if not isinstance(tiler, Layout):
        whole = list(range(Layout(tiler).size()))
        return whole, whole
    order = sorted(range(tiler.size()), key=tiler)
    return order, [tiler(position) for position in order]


def _permutes(tiler: Any) -> bool:  # noqa: ANN401 - extent or Layout
    return isinstance(tiler, Layout) and any(tiler(position) != position for position in range(tiler.size()))


def _labelled(axis: Axis, modes: range, labels: list[list[int]]) -> Axis:
    """Return an axis labelled by the tensor's coordinates."""

    def label(position: int) -> str:
        parts = axis.label(position).split(",") if modes else []
        return ",".join(str(labels[mode][int(part)]) for mode, part in zip(modes, parts, strict=True))

    return axis.called(label)


def _lines(copy: Any, axis: int) -> tuple[int, ...]:  # noqa: ANN401 - TiledCopy
    """Return the positions of lines in a matrix: every 8 rows and every 16 bytes; for other ranks, at mode ends."""
    extents = copy.tile_shape
    if len(extents) == 2:
        return (CORE_MATRIX_ROWS,) if axis == 0 else (UNIT_BITS // copy.atom.bits,)
    return sides(extents)[axis].axis.tiles
