"""Pictures of Blackwell's objects: tensor memory by element and by thread, its plan, and instruction descriptors.

References
----------
PTX ISA, "Data Path Layout Organization" and "Matrix fragments" of tcgen05: the figures.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..coordinates import idx2crd
from ..grids.grid import Axis, Cell, Grid, Picture, table
from ..grids.of_threads import tv_grid
from ..layout import Layout, make_identity_layout
from ..writer import to_text
from .arch import TMEM_COLUMN_BITS, TMEM_COLUMNS, TMEM_LANES, TMEM_QUARTER_LANES

_COARSE_LANES, _COARSE_COLUMNS = 16, 8
_QUARTER = "the quarter of the lanes, which warps of that number modulo 4 reach"


def instr_descriptor_grid(descriptor: Any) -> Grid:  # noqa: ANN401 - InstrDescriptor
    """Return a table of an instruction descriptor's fields."""
    rows = descriptor.rows()
    drawn = table(
        [[value, meaning] for _, value, meaning in rows],
        [bits for bits, _, _ in rows],
        ("value", "meaning"),
        corner="bits",
    )
    return drawn.but(title=f"instruction descriptor {int(descriptor):#010x} of kind::{descriptor.kind}")


def tmem_copy_picture(traits: Any, bits: int) -> Picture:  # noqa: ANN401 - TmemCopyTraits
    """Return tensor memory with the thread and the value of each element of a tcgen05.ld or tcgen05.st."""
    if bits == 16:
        layout, width, unit = traits.halves_layout, 2 * traits.columns, "halves of a column"
    else:
        layout, width, unit = traits.layout, traits.columns, "columns"
    grid = tv_grid(layout, make_identity_layout((traits.lanes, width)), title="tensor memory", names=("lane", unit))
    return Picture((grid.but(rows=grid.rows.tiled(8)),), f"{traits.name}: {traits.ptx}")


def tmem_cp_picture(traits: Any) -> Picture:  # noqa: ANN401 - TmemCpTraits
    """Return the lanes that a tcgen05.cp writes, with the row of shared memory that each gets."""
    rows, copies = traits.lanes[0], traits.lanes[1].size()
    coordinates = [idx2crd(row, rows.shape) for row in range(rows.size())]
    row_of = {traits.lanes((place, copy)): row for row, place in enumerate(coordinates) for copy in range(copies)}

    def cell(lane: int, unit: int) -> Cell:
        if lane not in row_of:
            return Cell("-")
        row = row_of[lane]
        return Cell(f"row {row}", colour=row // TMEM_QUARTER_LANES, notes=(("16 bytes of the row", str(unit)),))

    grid = Grid(
        Axis(TMEM_LANES, names="lanes").tiled(TMEM_QUARTER_LANES),
        Axis(traits.row_bits // 128, label=lambda unit: _range(4 * unit, 4 * unit + 3)),
        cell,
        title="tensor memory",
        caption=("lanes down, columns of 32 bits across; rows of shared memory",),
        colours="the 32 rows from which it comes",
        corner="lane\\column",
    )
    return Picture((grid,), f"{traits.name}: {traits.ptx}")


def tmem_tensor_grid(tensor: Any) -> Grid:  # noqa: ANN401 - TmemTensor
    """Return tensor memory, lanes down and columns across, with the coordinates of the elements of each cell."""
    held: dict[tuple[int, int], list[int]] = defaultdict(list)  # colexicographic indices
    shape = tensor.layout.shape
    rows = Layout(shape[0]).size()
    for index in range(tensor.layout.size()):
        place = tensor.place(index)
        held[place.lane, place.column].append(index)

    def cell(lane: int, column: int) -> Cell:
        inside = held.get((lane, column), [])
        if not inside:
            return Cell("-")
        first, last = _plain(inside[0], rows), _plain(inside[-1], rows)
        notes = (("address", f"{lane << 16 | column:#x}"), ("lane", str(lane)), ("column", str(column)))
        at = idx2crd(inside[0], shape)
        return Cell(_span(first, last), at, inside[0], colour=lane // TMEM_QUARTER_LANES, notes=notes)

    def coarser() -> Grid:
        return _coarse(tensor, held)

    names = " and ".join(tensor.modes)
    return Grid(
        Axis(TMEM_LANES, names="lanes").tiled(16, TMEM_QUARTER_LANES),
        Axis(tensor.columns, names="columns").tiled(_COARSE_COLUMNS),
        cell,
        title=str(tensor),
        caption=(f"lanes down, columns of {TMEM_COLUMN_BITS} bits across; {names} of the elements",),
        colours=_QUARTER,
        corner="lane\\column",
        coarser=coarser,
    )


def _coarse(tensor: Any, held: dict[tuple[int, int], list[int]]) -> Grid:  # noqa: ANN401 - TmemTensor
    """Return blocks of 16 lanes by 8 columns, each with the ranges of its elements' modes."""
    rows = Layout(tensor.layout.shape[0]).size()
    blocks: dict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)
    for (lane, column), inside in held.items():
        block = blocks[lane // _COARSE_LANES, column // _COARSE_COLUMNS]
        block += [_plain(index, rows) for index in inside]

    def cell(i: int, j: int) -> Cell:
        inside = blocks.get((i, j))
        if not inside:
            return Cell("-")
        ranges = (
            f"{name} {_range(min(found), max(found))}"
            for name, found in zip(tensor.modes, zip(*inside, strict=True), strict=True)
        )
        return Cell(",\n".join(ranges), colour=i * _COARSE_LANES // TMEM_QUARTER_LANES)

    columns = -(-tensor.columns // _COARSE_COLUMNS)
    return Grid(
        _axis(TMEM_LANES // _COARSE_LANES, _COARSE_LANES, TMEM_LANES).tiled(TMEM_QUARTER_LANES // _COARSE_LANES),
        _axis(columns, _COARSE_COLUMNS, tensor.columns),
        cell,
        title=str(tensor),
        caption=(f"lanes down, columns of {TMEM_COLUMN_BITS} bits across; ranges of the elements in each block",),
        colours=_QUARTER,
        corner="lane\\column",
    )


def tmem_plan_grid(plan: Any) -> Grid:  # noqa: ANN401 - TmemPlan
    """Return the columns of a plan: each region, and the rest of its allocation."""
    rows = [(name, f"{start}..{start + region - 1}", str(region)) for name, start, region in plan.rows()]
    if plan.spare:
        rows.append(("spare", f"{plan.used}..{plan.columns - 1}", str(plan.spare)))
    drawn = table([row[1:] for row in rows], [row[0] for row in rows], ("columns", "count"))
    of = f"allocation of {plan.columns} of {TMEM_COLUMNS} columns"
    return drawn.but(title="tensor memory", caption=(of,))


def _axis(size: int, step: int, end: int) -> Axis:
    return Axis(size, label=lambda i: _range(i * step, min(end, (i + 1) * step) - 1))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _plain(index: int, rows: int) -> tuple[int, int]:
    """Return an element's row and column of its colexicographic index."""
    return index % rows, index // rows


def _span(first: tuple[int, ...], last: tuple[int, ...]) -> str:
    return to_text(first) if first == last else ",".join(_range(*ends) for ends in zip(first, last, strict=True))
