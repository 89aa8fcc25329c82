"""Grids of tensors with data: any object with a shape and elements, without importing its library."""

from __future__ import annotations

from typing import Any

from ..errors import LayoutError
from ..modes import LayoutBase
from ..writer import to_text
from .axes import joined, orientation, place_of, sides
from .grid import Cell, Grid
from .of_layouts import layout_grid

_DIGITS = 5


def is_tensor(value: object) -> bool:
    """Return whether a value has a shape and elements."""
    shape = getattr(value, "shape", None)
    elements = hasattr(value, "tolist") or hasattr(value, "__getitem__")
    return isinstance(shape, tuple) and all(hasattr(extent, "__index__") for extent in shape) and elements


def tensor_grid(
    tensor: Any,  # noqa: ANN401 - numpy, torch, or alike
    *,
    layout: Any = None,  # noqa: ANN401 - Layout or ComposedLayout
    bits: int | None = None,
    title: str | None = None,
) -> Grid:
    """Return the grid of a tensor's elements: modes 0, 2, 4 ... run down, modes 1, 3, 5 ... across.

    Parameters
    ----------
    tensor : array or sequence
        Something with ``shape`` and ``tolist()`` or ``tensor[i, j]``; with `layout`, the elements in memory.
    layout : Layout or ComposedLayout, optional
        Coordinate -> index of the element in memory.
    bits : int, optional
        With `layout`: width of an element.
    title : str, optional
        Default: the type, its shape, and the layout.

    Raises
    ------
    LayoutError
        If bits are given without a layout; and, once the cell is asked for, if the layout reaches beyond the memory.

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> grid = tensor_grid([10, 11, 12, 13], layout=Layout((2, 2), (2, 1)))
    >>> [[cell.text for cell in row] for row in grid.cells]
    [['10', '11'], ['12', '13']]
    """
    if not (is_tensor(tensor) or (layout is not None and hasattr(tensor, "__getitem__"))):
        raise TypeError(f"tensor_grid: something with a shape and elements is needed, got {type(tensor).__name__}")
    if layout is not None:
        return _in_memory(tensor, layout, bits, title)
    if bits is not None:
        raise LayoutError("tensor_grid", (type(tensor).__name__,), "bits say where elements lie: they need layout=")
    shape = tuple(extent.__index__() for extent in tensor.shape)
    elements = tensor.tolist() if hasattr(tensor, "tolist") else None
    rows, columns = sides(shape)

    def cell(i: int, j: int) -> Cell:
        coordinate = joined(shape, rows.coordinate(i), columns.coordinate(j)) if shape else ()
        element = elements if elements is not None else tensor[coordinate]
        for index in coordinate if elements is not None else ():
            element = element[index]
        return Cell(written(element), coordinate, rows.flat(i) + columns.flat(j), data=str(element))

    name = type(tensor).__name__
    dtype = f" of {tensor.dtype}" if hasattr(tensor, "dtype") else ""
    said = f"{orientation(rows.axis, columns.axis)}; elements" if shape else "a single element"
    return Grid(
        rows.axis,
        columns.axis,
        cell,
        title=title or f"{name} {shape}{dtype}",
        caption=(said,),
        place=place_of(rows, columns),
    )


def written(element: object) -> str:
    """Format an element shortly: floats to five digits.

    >>> written(1 / 3), written(2.0), written(7), written(1e-30)
    ('0.33333', '2', '7', '1e-30')
    """
    return f"{element:.{_DIGITS}g}" if isinstance(element, float) else str(element)


def _in_memory(tensor: Any, layout: Any, bits: int | None, title: str | None) -> Grid:  # noqa: ANN401 - as tensor_grid
    if not isinstance(layout, LayoutBase):
        raise TypeError(f"tensor_grid: layout must be a Layout or a ComposedLayout, got {layout!r}")
    shape = getattr(tensor, "shape", None)
    if shape is not None:
        tensor = tensor.reshape(-1).tolist() if len(shape) > 1 else tensor.tolist()
    held = len(tensor)
    grid = layout_grid(layout, bits=bits)

    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        if not isinstance(found.offset, int) or not 0 <= found.offset < held:
            at = to_text(found.offset)
            raise LayoutError("tensor_grid", (layout,), f"the layout reaches element {at}; the memory has {held}")
        element = tensor[found.offset]
        return found._replace(text=written(element), data=str(element))

    said = f"{grid.caption[0].partition(';')[0]}; elements of a memory of {held}"
    return grid.but(cell=cell, caption=(said, *grid.caption[1:]), title=title or grid.title, coarser=None)
