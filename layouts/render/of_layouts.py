"""Grids of layouts: offsets, bytes and banks of what they map coordinates to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..basis import add_coordinates
from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..coordinates import crd2idx
from ..errors import LayoutError
from ..int_tuple import IntTuple, elem_scale, flatten_to_tuple, transform_leaf, wrap
from ..layout import Layout
from ..modes import LayoutBase
from ..recast import recast_layout
from ..writer import to_text
from .axes import Side, joined, orientation, sides
from .grid import Cell, Grid

BANKS, BANK_BYTES = 32, 4
UNIT_BYTES = 16
"""What swizzles move whole, and a thread moves at most: the unit in which large pictures are drawn."""

_UNIT_BITS = 8 * UNIT_BYTES
_LINE_UNITS = BANKS * BANK_BYTES // UNIT_BYTES


def layout_grid(
    layout: Any,  # noqa: ANN401 - Layout or ComposedLayout
    *,
    bits: int | None = None,
    banks: bool = False,
    address: int = 0,
    title: str | None = None,
) -> Grid:
    """Return the grid of a layout: modes 0, 2, 4 ... run down, modes 1, 3, 5 ... across.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        Of any rank. Swizzles act on element offsets, those over a ``smem_ptr`` on byte addresses.
    bits : int, optional
        Width of an element; a ``smem_ptr`` tells it. With it, cells know their byte and bank.
    banks : bool
        Write banks into the cells in place of offsets; needs `bits`.
    address : int
        Byte at which the data begin.
    title : str, optional
        Default: the layout's text.

    Raises
    ------
    LayoutError
        If `bits` is no positive integer, contradicts the pointer, or is missing for banks; or the layout maps to
        coordinates, which lie in no bank.

    Examples
    --------
    >>> grid = layout_grid(Layout((2, 3), (3, 1)))
    >>> [[cell.text for cell in row] for row in grid.cells]
    [['0', '1', '2'], ['3', '4', '5']]
    >>> grid.caption
    ('mode 0 down, mode 1 across; offsets in elements',)
    """
    bits = _width(layout, bits)
    if banks and bits is None:
        raise LayoutError("layout_grid", (layout,), "banks need the width of an element", "pass bits=16 or so")
    if isinstance(address, bool) or not isinstance(address, int) or address < 0:
        raise LayoutError("layout_grid", (layout,), f"address must be an int >= 0, got {address!r}")
    start = layout.offset.address or 0 if _is_pointed(layout) else 0
    draw = _Elements(layout, bits, banks, address or start)
    rows, columns = draw.rows.axis, draw.columns.axis
    if banks and rows.size * columns.size and not isinstance(draw.offset(0, 0), int):
        raise LayoutError("layout_grid", (layout,), "coordinates lie in no bank: strides must be integers")
    coloured = not draw.maps_to_coordinates
    line = "the 16-byte unit of its line of 32 banks (byte / 16 mod 8)"
    return Grid(
        rows,
        columns,
        draw.cell,
        title=to_text(layout) if title is None else title,
        caption=(f"{orientation(rows, columns)}; {_units(draw, bits, banks)}", *_swizzle_words(layout)),
        colours="" if not coloured else "offset mod 8" if bits is None else line,
        coarser=_in_units(layout, bits, banks, address or start, title),
    )


class _Elements:
    """The cells of a layout: what a row and a column contribute is computed once each and added, where that is right."""

    def __init__(self, layout: Any, bits: int | None, banks: bool, address: int) -> None:  # noqa: ANN401 - any layout
        self.shape = layout.shape
        self.rows, self.columns = sides(self.shape)
        self.bits, self.banks, self.address = bits, banks, address
        inner, self.outer = _parted(layout)
        self.offset: Callable[[int, int], Any] = self._whole if inner is None else self._added
        self._down = cache(lambda i: inner(*self.rows.coordinate(i)))
        self._across = cache(lambda j: inner(*self.columns.coordinate(j)))
        self.maps_to_coordinates = bool(self.rows.axis.size * self.columns.axis.size) and not isinstance(
            self.offset(0, 0), int
        )

    def coordinate(self, i: int, j: int) -> Any:  # noqa: ANN401 - IntTuple
        return joined(self.shape, self.rows.coordinate(i), self.columns.coordinate(j))

    def _whole(self, i: int, j: int) -> Any:  # noqa: ANN401 - int or coordinate
        return self.outer(self.coordinate(i, j))

    def _added(self, i: int, j: int) -> Any:  # noqa: ANN401 - int or coordinate
        down, across = self._down(i), self._across(j)
        if down.__class__ is across.__class__ is int:
            return self.outer(down + across)
        return self.outer(add_coordinates(down, across))

    def cell(self, i: int, j: int) -> Cell:
        offset = self.offset(i, j)
        coordinate, index = self.coordinate(i, j), self.rows.index(i) + self.columns.index(j)
        if offset.__class__ is not int:
            return Cell(to_text(offset), coordinate, index, offset)
        if self.bits is None:
            return Cell(str(offset), coordinate, index, offset, colour=offset % 8)
        byte = self.address + offset * self.bits // 8
        bank = byte // BANK_BYTES % BANKS
        text = str(bank) if self.banks else str(offset)
        return Cell(text, coordinate, index, offset, byte, bank, colour=byte // UNIT_BYTES % _LINE_UNITS)


def _parted(layout: Any) -> tuple[Any, Callable[[Any], Any]]:  # noqa: ANN401 - Layout or ComposedLayout
    """Take a layout apart into a linear function on coordinates and one on its results; (None, whole) if it is not so."""
    if isinstance(layout, Layout):
        return layout, lambda offset: offset
    if _is_pointed(layout):
        return _parted(layout.position_independent())
    if not isinstance(layout.layoutA, LayoutBase):
        return None, layout
    inner, between = _parted(layout.layoutA)
    outer, start = layout.layoutB, layout.offset
    if inner is None:
        return None, layout
    if start == 0:
        return inner, lambda offset: outer(between(offset))
    return inner, lambda offset: outer(add_coordinates(start, between(offset)))


def _in_units(
    layout: Any,  # noqa: ANN401 - Layout or ComposedLayout
    bits: int | None,
    banks: bool,
    address: int,
    title: str | None,
) -> Callable[[], Grid] | None:
    """Return what draws a layout in units of 16 bytes, where its elements come in such units."""
    if bits is None or bits >= _UNIT_BITS or _UNIT_BITS % bits or address % UNIT_BYTES:
        return None
    per_unit = _UNIT_BITS // bits
    elements = layout.position_independent() if _is_pointed(layout) else layout
    try:
        units = recast_layout(elements, bits, _UNIT_BITS)
    except (LayoutError, TypeError):
        return None
    # What is narrower than a unit, or permuted within it, is rounded up by the cast: not the same elements.
    if units.size() * per_unit != layout.size() or not _moves_units(elements, per_unit):
        return None

    # A unit is called by its first element.
    ratio = transform_leaf(lambda whole, part: whole // part, layout.shape, units.shape)

    def draw() -> Grid:
        cells = _Elements(units, _UNIT_BITS, banks, address)
        rows, columns = (side.axis.called(_label(side, layout.shape, ratio)) for side in (cells.rows, cells.columns))

        def cell(i: int, j: int) -> Cell:
            unit = cells.cell(i, j)
            first = elem_scale(unit.coordinate, ratio)
            return unit._replace(
                coordinate=first,
                index=crd2idx(first, layout.shape),
                offset=unit.offset * per_unit,
                notes=(("elements", f"{per_unit} from offset {unit.offset * per_unit}"),),
            )

        what = "banks where units begin" if banks else f"offsets in units of 16 bytes ({per_unit} elements of {bits} bits)"
        return layout_grid(layout, bits=bits, banks=banks, address=address, title=title).but(
            rows=rows,
            columns=columns,
            cell=cell,
            caption=(
                f"{orientation(rows, columns)}; {what}",
                f"{layout.size()} elements are too many here: a cell is a unit, labelled by its first element",
                *_swizzle_words(layout),
            ),
            coarser=None,
        )

    return draw


def _moves_units(layout: Any, per_unit: int) -> bool:  # noqa: ANN401 - Layout or ComposedLayout
    """Tell whether each unit's elements stay together and in order: no swizzle within, no step backwards."""
    while isinstance(layout, ComposedLayout):
        swizzle = layout.layoutB
        if not isinstance(swizzle, Swizzle) or (swizzle.bits and 1 << swizzle.base < per_unit):
            return False
        if not isinstance(layout.offset, int) or layout.offset % per_unit:
            return False
        layout = layout.layoutA
    return isinstance(layout, Layout) and all(stride >= 0 for stride in flatten_to_tuple(wrap(layout.stride)))


def _label(side: Side, shape: IntTuple, ratio: IntTuple) -> Callable[[int], str]:
    def label(position: int) -> str:
        first = [
            crd2idx(elem_scale(part, factor), extent)
            for part, factor, extent in zip(side.coordinate(position), wrap(ratio), wrap(shape), strict=True)
        ]
        return ",".join(str(first[mode]) for mode in side.modes)

    return label


def _is_pointed(layout: Any) -> bool:  # noqa: ANN401 - Layout or ComposedLayout
    return isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr)


def _width(layout: Any, bits: Any) -> int | None:  # noqa: ANN401 - unchecked input
    if bits is not None and (isinstance(bits, bool) or not isinstance(bits, int) or bits < 1):
        raise LayoutError("layout_grid", (layout,), f"bits must be a positive int, got {bits!r}")
    if not _is_pointed(layout):
        return bits  # type: ignore[no-any-return]
    pointed: int = layout.offset.bits
    if bits not in (None, pointed):
        raise LayoutError("layout_grid", (layout,), f"the pointer is to {pointed}-bit elements, not {bits}-bit")
    return pointed


def _units(draw: _Elements, bits: int | None, banks: bool) -> str:
    if draw.maps_to_coordinates:
        return "coordinates"
    if banks:
        return f"banks of 4 bytes; elements of {bits} bits"
    return "offsets in elements" if bits is None else f"offsets in elements of {bits} bits"


def _swizzle_words(layout: Any) -> tuple[str, ...]:  # noqa: ANN401 - Layout or ComposedLayout
    if not isinstance(layout, ComposedLayout) or not isinstance(layout.layoutB, Swizzle):
        return ()
    if _is_pointed(layout):
        return (f"{layout.layoutB} acts on byte addresses; offsets are relative to the pointer",)
    return (f"{layout.layoutB} acts on offsets of elements",)
