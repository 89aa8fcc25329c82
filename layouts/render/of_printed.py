"""Pictures of printed MMAs and copies: who holds, reads and writes each element, from the fields alone.

References
----------
CuTe ``atom/mma_atom.hpp``, ``TiledMMA``; ``atom/copy_atom.hpp``, ``TiledCopy::tidfrg_S`` and ``tile2thrfrg``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..algebra import composition, right_inverse
from ..coordinates import idx2crd
from ..errors import LayoutError
from ..int_tuple import product
from ..layout import Layout
from ..sm90.thrfrg import thrfrg
from ..tiling import zipped_divide
from ..writer import to_text
from .grid import Axis, Cell, Grid, Picture
from .of_threads import Owners, owned_grid, owners_by_start
from .units import UNIT_BITS

_OPERANDS = {"A": ("M", "K"), "B": ("N", "K"), "C": ("M", "N")}
_CORE_ROWS = 8


def mma_picture(mma: Any, operand: str | None) -> Grid | Picture:  # noqa: ANN401 - PrintedMMA
    """Return who holds each element of A, B and C, or of one of them.

    Raises
    ------
    LayoutError
        If the operand is another, or the printed layouts don't fit the printed shape.
    """
    m, n, k = mma.tile_shape
    threads = f"{mma.threads.size()} thread{'' if mma.threads.size() == 1 else 's'}"
    title = f"{'TiledMMA' if mma.is_tiled else 'MMA_Atom'} {m}x{n}x{k}, {threads}"
    if operand is None:
        return Picture(tuple(_operand(mma, name) for name in _OPERANDS), title)
    if operand not in _OPERANDS:
        raise LayoutError("show", (title,), f"operand must be one of {', '.join(_OPERANDS)}, got {operand!r}")
    drawn = _operand(mma, operand)
    return drawn.but(title=f"{title}: {drawn.title}")


def _operand(mma: Any, name: str) -> Grid:  # noqa: ANN401 - PrintedMMA
    x, y = ("MNK".index(mode) for mode in _OPERANDS[name])
    atom = mma.shape_mnk[x], mma.shape_mnk[y]
    extents = mma.tile_shape[x], mma.tile_shape[y]
    layout: Layout = {"A": mma.a_layout, "B": mma.b_layout, "C": mma.c_layout}[name]
    threads: Layout = mma.threads
    beside = threads[x + 1].size(), threads[y + 1].size()
    # ((ThrV,(ThrX,ThrY)),(FrgV,(RestX,RestY)))
    parted = thrfrg(Layout(extents), (mma.tilers[x], mma.tilers[y]), atom, layout, beside)
    of_thread, of_value = parted[0], parted[1]
    sizes = tuple(threads[mode].size() for mode in range(4))
    starts = []
    for index in range(threads.size()):
        crd: Any = idx2crd(index, sizes)
        starts.append(of_thread((crd[0], (crd[x + 1], crd[y + 1]))))
    values = [of_value(value) for value in range(of_value.size())]
    owners = _numbered(owners_by_start(starts, values), [threads(index) for index in range(threads.size())])
    seen, remarks = "", []
    if threads[0].size() > 1 and len({layout(thread, 0) for thread in range(layout[0].size())}) == 1:
        seen = ", in shared memory"
        remarks.append("each thread of the atom sees the whole operand: a descriptor tells it to the instruction")
    if name == "C" and sizes[3] > 1:
        remarks.append(f"{sizes[3]} atoms along K: their threads hold partial sums of the same element")
    grid = owned_grid(
        owners,
        extents,
        threads=threads.size(),
        title=f"{name}, {extents[0]}x{extents[1]}{seen}",
        names=_OPERANDS[name],
        operands=(to_text(layout),),
        caption=remarks,
    )
    return _marked(_lined(grid, *atom), None if mma.thr_vmnk is None else threads(_flat(mma.thr_vmnk, sizes)))


def copy_picture(copy: Any) -> Grid | Picture:  # noqa: ANN401 - PrintedCopy
    """Return which thread reads each element and which writes it; one grid where they are the same.

    Raises
    ------
    LayoutError
        If the printed layouts don't fit one another.
    """
    tile = "" if copy.tiler_mn is None else f" {'x'.join(str(mode.size()) for mode in _modes(copy.tiler_mn))}"
    what = f", {copy.bits}-bit elements" if copy.bits else ""
    title = f"{'TiledCopy' if copy.is_tiled else 'Copy_Atom'}{tile}{what}"
    if copy.src_layout is None:
        return _tiled_side(copy, None, f"{title}: (thread, value)")
    if copy.src_layout == copy.dst_layout:
        return _side(copy, copy.src_layout, f"{title}: source and destination alike")
    sides = (("source", copy.src_layout), ("destination", copy.dst_layout))
    grids = []
    for name, layout in sides:
        where = "registers" if layout == copy.reference else "each thread's addresses"
        grids.append(_side(copy, layout, f"{name}: {where}"))
    return Picture(tuple(grids), title)


def _side(copy: Any, layout: Layout, title: str) -> Grid:  # noqa: ANN401 - PrintedCopy
    if copy.is_tiled:
        return _tiled_side(copy, layout, title)
    starts = [layout(thread, 0) for thread in range(layout[0].size())]
    values = [layout(0, value) for value in range(layout[1].size())]
    tile, names = _atom_tile(layout, copy.bits)
    grid = owned_grid(
        owners_by_start(starts, values), tile, threads=len(starts), title=title, names=names, operands=(layout,)
    )
    return grid


def _atom_tile(layout: Layout, bits: int | None) -> tuple[Layout, tuple[str, ...]]:
    """Return how to lay out an atom's elements: a warp's as matrices of 8 rows of 16 bytes, others in a row."""
    total = layout.cosize()
    across = UNIT_BITS // bits if bits and UNIT_BITS % bits == 0 else 0
    if across and layout[0].size() > 1 and total % (_CORE_ROWS * across) == 0:
        matrices = total // (_CORE_ROWS * across)
        shape, stride = (_CORE_ROWS, across, matrices), (across, 1, _CORE_ROWS * across)
        return Layout(shape, stride), ("row", "column", "matrix")
    return Layout((1, total), (0, 1)), ("", "element")


def _tiled_side(copy: Any, layout: Layout | None, title: str) -> Grid:  # noqa: ANN401 - PrintedCopy
    starts, values = _tiled(copy.layout_tv, copy.reference, layout)
    modes = _modes(copy.tiler_mn)
    extents = tuple(mode.size() for mode in modes)
    taken = [sorted(mode(i) for i in range(mode.size())) for mode in modes]
    found = owners_by_start(starts, values)
    places = [{coordinate: place for place, coordinate in enumerate(coordinates)} for coordinates in taken]
    inside = {_in_order(index, modes, places): held for index, held in found.items() if index < prod(extents)}
    remarks = [
        f"of mode {number} the tile takes {to_text(mode)}"
        for number, (mode, coordinates) in enumerate(zip(modes, taken, strict=True))
        if [mode(i) for i in range(mode.size())] != list(range(mode.size()))
    ]
    outside = sorted({thread for index, held in found.items() if index >= prod(extents) for thread in held[0][0]})
    if outside:
        who = f"thread {outside[0]} maps" if len(outside) == 1 else f"threads {outside[0]} to {outside[-1]} map"
        remarks.append(f"{who} beyond the tile, as those of several atoms along K do")
    grid = owned_grid(
        inside,
        extents if len(extents) > 1 else (extents[0], 1),
        threads=len(starts),
        title=title,
        names=("M", "N") if len(extents) == 2 else (),
        operands=(copy.layout_tv,),
        caption=remarks,
    )
    if len(extents) <= 2:
        grid = _called(grid, taken if len(taken) == 2 else [*taken, [0]])
    return _marked(grid, copy.thr_idx)


def _in_order(index: int, modes: list[Layout], places: list[dict[int, int]]) -> int:
    """Return the index of a tile's element among the coordinates that the tile takes, in their order."""
    crd: Any = idx2crd(index, tuple(mode.size() for mode in modes))
    placed = [place[mode(c)] for mode, c, place in zip(modes, crd, places, strict=True)]
    return sum(part * prod(mode.size() for mode in modes[:i]) for i, part in enumerate(placed))


def _called(grid: Grid, taken: list[list[int]]) -> Grid:
    """Call rows and columns by the coordinates that the tile takes."""
    down, across = taken

    def cell(i: int, j: int) -> Cell:
        return grid.cell(i, j)._replace(coordinate=(down[i], across[j]), offset=None)

    rows, columns = grid.rows.called(lambda i: str(down[i])), grid.columns.called(lambda j: str(across[j]))
    return grid.but(rows=rows, columns=columns, cell=cell)


def _tiled(layout_tv: Layout, reference: Layout | None, layout: Layout | None) -> tuple[list[int], list[int]]:
    """Return where each thread of a side starts, and where its values lie from there."""
    if reference is None or layout is None:
        threads, values = layout_tv[0], layout_tv[1]
        return [threads(t) for t in range(threads.size())], [values(v) for v in range(values.size())]
    to_side = composition(right_inverse(reference), layout)
    by_atom = zipped_divide(layout_tv, (reference[0].size(), reference[1].size()))
    by_side = composition(by_atom, (to_side, None))  # ((thread, value) in the atom, (atoms of threads, of values))
    inner, outer = by_side[0], by_side[1]
    starts = [inner(t, 0) + outer(rest, 0) for rest in range(outer[0].size()) for t in range(inner[0].size())]
    values_of = [inner(0, v) + outer(0, rest) for rest in range(outer[1].size()) for v in range(inner[1].size())]
    return starts, values_of


def _modes(tiler: Any) -> list[Layout]:  # noqa: ANN401 - a tiler
    return [
        mode if isinstance(mode, Layout) else Layout(product(mode))
        for mode in (tiler if isinstance(tiler, tuple) else (tiler,))
    ]


def _numbered(owners: Owners, threads: Sequence[int]) -> Owners:
    """Return the same owners under their threads' own numbers."""
    if list(threads) == list(range(len(threads))):
        return owners
    return {
        index: tuple((tuple(sorted(threads[place] for place in places)), value) for places, value in held)
        for index, held in owners.items()
    }


def _flat(coordinate: tuple[int, ...], sizes: tuple[int, ...]) -> int:
    return sum(c * prod(sizes[:i]) for i, c in enumerate(coordinate))


def _lined(grid: Grid, *atom: int) -> Grid:
    """Draw lines where atoms end, and within them every 8 elements."""

    def lined(axis: Axis, extent: int) -> Axis:
        inner = (_CORE_ROWS,) if extent % _CORE_ROWS == 0 and extent > _CORE_ROWS else ()
        return axis.tiled(*inner, *((extent,) if extent > 1 else ()))

    return grid.but(rows=lined(grid.rows, atom[0]), columns=lined(grid.columns, atom[1]))


def _marked(grid: Grid, thread: int | None) -> Grid:
    """Mark the elements of one thread."""
    if thread is None:
        return grid

    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        holds = any(thread in threads for threads, _ in found.owners)
        return found._replace(marks=(*found.marks, f"thread {thread}")) if holds else found

    return grid.but(cell=cell, caption=(*grid.caption, f"marked: what thread {thread} holds"))
