"""Grids of layouts: offsets, bytes and banks of their coordinates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..algebra import composition
from ..basis import add_coordinates
from ..capacity import smem_overrun
from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..coordinates import crd2idx
from ..errors import InexactError, LayoutError
from ..int_tuple import IntTuple, elem_scale, flatten_to_tuple, wrap
from ..layout import Layout
from ..modes import LayoutBase, cosize
from ..writer import to_text
from .axes import Side, joined, orientation, parts_of, place_of, sides
from .grid import Cell, Grid
from .units import UNIT_BITS, UNIT_BYTES, in_units

# As in sm90.arch, which would load all of Hopper; a test compares them.
BANKS, BANK_BYTES = 32, 4

_LINE_UNITS = BANKS * BANK_BYTES // UNIT_BYTES
_LINE = "the 16-byte unit of its line of 32 banks (byte / 16 mod 8)"


def layout_grid(
    layout: Any,  # noqa: ANN401 - Layout or ComposedLayout
    *,
    bits: int | None = None,
    banks: bool = False,
    address: int = 0,
    units: bool = False,
    title: str | None = None,
) -> Grid:
    """Return the grid of a layout: modes 0, 2, 4 ... run down, modes 1, 3, 5 ... across.

    Parameters
    ----------
    layout : Layout or ComposedLayout
        Layout of any rank. Swizzles act on element offsets, those over a ``smem_ptr`` on byte addresses.
    bits : int, optional
        Width of an element; a ``smem_ptr`` tells it. With it, cells know their byte and bank.
    banks : bool
        Write banks into the cells in place of offsets; needs `bits`.
    address : int
        Byte at which the data begin; default: where the pointer points.
    units : bool
        Draw units of 16 bytes in place of elements; needs `bits`.
    title : str, optional
        Default: the layout's text.

    Raises
    ------
    LayoutError
        If `bits` is no positive integer, contradicts the pointer, or is missing for banks or units; or the layout maps
        to coordinates, which lie in no bank, or has no whole units of 16 bytes.

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
    if address == 0 and _is_pointed(layout):
        address = layout.offset.address or 0
    title = to_text(layout) if title is None else title
    coarse = None if bits is None else _in_units(layout, bits, banks, address, title)
    if units:
        if coarse is None:
            condition = "its elements do not come in whole units of 16 bytes, or their width is not known"
            raise LayoutError("layout_grid", (layout,), condition, "pass bits=, or leave out units")
        return coarse("")
    draw = _Elements(layout, bits, banks, address)
    rows, columns = draw.rows.axis, draw.columns.axis
    if banks and draw.maps_to_coordinates:
        raise LayoutError("layout_grid", (layout,), "coordinates lie in no bank: strides must be integers")
    return Grid(
        rows,
        columns,
        draw.cell,
        title=title,
        caption=(
            f"{orientation(rows, columns)}; {_units(draw, bits, banks)}",
            *_swizzle_words(layout),
            *_composition_words(layout),
        ),
        colours="" if draw.maps_to_coordinates else "offset mod 8" if bits is None else _LINE,
        coarser=None if coarse is None else lambda: coarse(f"{layout.size()} elements are too many here: "),
        bulk=None if draw.maps_to_coordinates else draw.bulk,
        parts=parts_of(draw.rows, draw.columns),
        place=place_of(draw.rows, draw.columns),
    )


class _Elements:
    """Cells of a layout; contributions of rows and columns are computed once and added where the layout is additive."""

    def __init__(self, layout: Any, bits: int | None, banks: bool, address: int) -> None:  # noqa: ANN401 - any layout
        self.shape = layout.shape
        self.rows, self.columns = sides(self.shape)
        self.bits, self.banks, self.address = bits, banks, address
        inner, self.outer = parted(layout)
        self._inner = inner
        self.offset: Callable[[int, int], Any] = self._whole if inner is None else self._added
        at = inner if isinstance(self.shape, tuple) else lambda crd: inner(crd[0])
        self._down = cache(lambda i: at(self.rows.coordinate(i)))
        self._across = cache(lambda j: at(self.columns.coordinate(j)))
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
        coordinate, flat = self.coordinate(i, j), self.rows.flat(i) + self.columns.flat(j)
        if offset.__class__ is not int:
            return Cell(to_text(offset), coordinate, flat, offset)
        if self.bits is None:
            return Cell(str(offset), coordinate, flat, offset, colour=offset % 8)
        byte = self.address + offset * self.bits // 8
        bank = byte // BANK_BYTES % BANKS
        text = str(bank) if self.banks else str(offset)
        return Cell(text, coordinate, flat, offset, byte, bank, colour=byte // UNIT_BYTES % _LINE_UNITS)

    def bulk(self) -> dict[str, Any]:
        """Compute `cell` for all cells at once, row by row: a fifth of the time."""
        rows, columns = range(self.rows.axis.size), range(self.columns.axis.size)
        if self.offset == self._whole:
            offsets = [self._whole(i, j) for i in rows for j in columns]
        else:
            down, across = (images(*[self._inner[mode] for mode in side.modes]) for side in (self.rows, self.columns))
            offsets = each(self.outer, [start + step for start in down for step in across])
        if self.bits is None:
            return {"text": "offset", "offset": offsets, "colour": [offset % 8 for offset in offsets]}
        address, bits = self.address, self.bits
        bytes_ = [address + offset * bits // 8 for offset in offsets]
        line = range(BANKS * BANK_BYTES)
        in_line = list(map((len(line) - 1).__and__, bytes_))
        return {
            "text": "bank" if self.banks else "offset",
            "offset": offsets,
            "byte": bytes_,
            "bank": list(map([byte // BANK_BYTES for byte in line].__getitem__, in_line)),
            "colour": list(map([byte // UNIT_BYTES % _LINE_UNITS for byte in line].__getitem__, in_line)),
        }


def parted(layout: Any) -> tuple[Any, Callable[[Any], Any]]:  # noqa: ANN401 - Layout or ComposedLayout
    """Decompose a layout into a linear function of coordinates and a function of its results; else (None, layout)."""
    if isinstance(layout, Layout):
        return layout, _same
    if _is_pointed(layout):
        return parted(layout.position_independent())
    if not isinstance(layout.layoutA, LayoutBase):
        return None, layout
    inner, between = parted(layout.layoutA)
    outer, start = layout.layoutB, layout.offset
    if inner is None:
        return None, layout
    if start == 0:
        return inner, outer if between is _same else lambda offset: outer(between(offset))
    return inner, lambda offset: outer(add_coordinates(start, between(offset)))


def images(*modes: Layout) -> list[int]:
    """List the values of a layout, the first mode fastest, by adding modes: no call for each coordinate.

    Strides must be integers.

    >>> images(Layout(((2, 2), 3), ((1, 10), 100)))
    [0, 1, 10, 11, 100, 101, 110, 111, 200, 201, 210, 211]
    """
    found = [0]
    for mode in modes:
        for extent, stride in zip(flatten_to_tuple(wrap(mode.shape)), flatten_to_tuple(wrap(mode.stride)), strict=True):
            found = [start + step for step in map(stride.__mul__, range(extent)) for start in found]
    return found


def each(outer: Callable[[Any], Any], offsets: list[Any]) -> list[Any]:
    """Return a function that applies a swizzle, or the identity, to a list of integers: no call for each.

    >>> each(Swizzle(1, 0, 1), [0, 1, 2, 3])
    [0, 1, 3, 2]
    """
    if outer is _same:
        return offsets
    if isinstance(outer, Swizzle) and outer.shift >= 0:
        mask, shift = (1 << outer.bits) - 1 << outer.base + outer.shift, outer.shift
        return [offset ^ (offset & mask) >> shift for offset in offsets]
    return list(map(outer, offsets))


def _same(offset: Any) -> Any:  # noqa: ANN401 - int or coordinate
    return offset


def _in_units(
    layout: Any,  # noqa: ANN401 - Layout or ComposedLayout
    bits: int,
    banks: bool,
    address: int,
    title: str,
) -> Callable[[str], Grid] | None:
    """Return the cells of a layout in units of 16 bytes, with a remark, where its elements form such units."""
    found = in_units(layout, bits) if address % UNIT_BYTES == 0 else None
    if found is None:
        return None
    units, ratio = found
    per_unit = UNIT_BITS // bits

    def draw(why: str) -> Grid:
        cells = _Elements(units, UNIT_BITS, banks, address)
        rows, columns = (side.axis.called(_label(side, layout.shape, ratio)) for side in (cells.rows, cells.columns))

        def cell(i: int, j: int) -> Cell:
            unit = cells.cell(i, j)
            first = elem_scale(unit.coordinate, ratio)
            offset = unit.offset * per_unit
            notes = (("elements", f"{per_unit} from offset {offset}"),)
            return unit._replace(coordinate=first, flat=crd2idx(first, layout.shape), offset=offset, notes=notes)

        unit = f"units of 16 bytes ({per_unit} elements of {bits} bits)"
        what = f"banks where {unit} begin" if banks else f"offsets in {unit}"
        return Grid(
            rows,
            columns,
            cell,
            title=title,
            caption=(
                f"{orientation(rows, columns)}; {what}",
                f"{why}a cell is a unit, labelled by its first element",
                *_swizzle_words(layout),
            ),
            colours=_LINE,
        )

    return draw


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
        return bits
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


def _composition_words(layout: Any) -> tuple[str, ...]:  # noqa: ANN401 - Layout or ComposedLayout
    """Describe the difference between a composed layout and the result of `composition`."""
    if not isinstance(layout, ComposedLayout) or layout.offset != 0:
        return ()
    if not isinstance(layout.layoutA, Layout) or not isinstance(layout.layoutB, Layout):
        return ()
    try:
        composition(layout.layoutB, layout.layoutA, exact=True)
    except InexactError as error:
        made = composition(layout.layoutB, layout.layoutA)
        return (f"composition gives another function, {made}: {error.condition}",)
    except LayoutError:
        return ()
    return ()


def _overrun(bits: int, tile: LayoutBase) -> tuple[str, ...]:
    """Describe by how much a tile exceeds the shared memory of a CTA; empty if it fits."""
    elements = cosize(tile) if isinstance(tile, Layout) else 0
    if not isinstance(elements, int) or elements * bits < 1 << 20:
        return ()
    told = smem_overrun(elements * bits // 8, "take a smaller tile, or fewer stages")
    return (told,) if told else ()


def _swizzle_words(layout: Any) -> tuple[str, ...]:  # noqa: ANN401 - Layout or ComposedLayout
    if not isinstance(layout, ComposedLayout) or not isinstance(layout.layoutB, Swizzle):
        return ()
    if _is_pointed(layout):
        words = f"{layout.layoutB} acts on byte addresses; offsets are relative to the pointer"
        return (words, *_overrun(layout.offset.bits, layout.layoutA))
    if not layout.layoutB.bits:
        return (f"{layout.layoutB} is no swizzle, it moves nothing; offsets start at {to_text(layout.offset)}",)
    return (f"{layout.layoutB} acts on offsets of elements",)
