"""Operations of the algebra as rows of pictures: operands, intermediate layouts, result.

Operands and results of a division or product hold the same offsets, so a colour follows each tile through all of them.
Tile 0 is marked too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from operator import lt
from typing import Any

from ..algebra import composition
from ..basis import add_coordinates
from ..coordinates import idx2crd
from ..errors import InexactError
from ..exactness import tile_and_rest
from ..grids.grid import Cell, Grid, Picture
from ..grids.of_layouts import each, layout_grid, parted
from ..int_tuple import ceil_div, flatten_to_tuple, product_each
from ..layout import Layout, make_identity_layout, make_ordered_layout
from ..modes import LayoutBase, append
from ..tiling import (
    blocked_product,
    flat_divide,
    flat_product,
    logical_divide,
    logical_product,
    raked_product,
    tile_to_shape,
    tiled_divide,
    tiled_product,
    zipped_divide,
    zipped_product,
)
from ..writer import to_text
from .drawing import picture_of

MAX_FOLLOWED = 1 << 16
"""Elements up to which tiles are followed by colour: each takes a call."""

_DIVIDES = (logical_divide, zipped_divide, tiled_divide, flat_divide)
_PRODUCTS = (logical_product, zipped_product, tiled_product, flat_product)
_RANKED_PRODUCTS = (blocked_product, raked_product)
_TAKE_EXACT = (composition, *_DIVIDES, *_PRODUCTS, *_RANKED_PRODUCTS, tile_to_shape)


def steps(operation: Callable[..., Any], *operands: Any) -> Picture:  # noqa: ANN401 - the operation's
    """Return an operation on layouts as a row of pictures, for `show` and `save`.

    Parameters
    ----------
    operation : callable
        A function of `cutepy.layouts`: the divides and products, `tile_to_shape` and `composition` show what comes
        between and follow tiles by colour; a partition of a TiledMMA (``mma.partition_C``) marks what the thread gets;
        of any other function operands and result are drawn.
    *operands
        Its arguments.

    Returns
    -------
    Picture
        A result that ``exact=True`` refuses is drawn too. Its caption has a line that begins with "inexact", and tells
        the first coordinate at which it is another function, or points beyond the layout.

    Raises
    ------
    LayoutError
        Error that the operation raises.
    TypeError
        If it is no function, or neither takes nor gives a layout.

    Examples
    --------
    >>> row = steps(logical_divide, Layout((4, 6)), (2, 3))
    >>> [grid.title for grid in row.grids]
    ['layout (4,6):(1,4)', 'logical_divide ((2,2),(3,2)):((1,2),(4,12))']
    >>> [cell.colour for cell in row.grids[0].cells[0]]
    [0, 0, 0, 2, 2, 2]
    """
    if not callable(operation):
        raise TypeError(f"steps: operation must be a function such as logical_divide, got {operation!r}")
    name = getattr(operation, "__name__", type(operation).__name__)
    result = operation(*operands)
    title = f"{name}({', '.join(map(_written, operands))})"
    if operation in _DIVIDES:
        grids = _division(operation, name, result, *operands)
    elif operation in _PRODUCTS or operation in _RANKED_PRODUCTS or operation is tile_to_shape:
        grids = _product(operation, name, result, *operands)
    elif operation is composition:
        grids = _composition(result, *operands)
    else:
        grids = _any(name, result, operands)
    if not grids:
        raise TypeError(f"steps: {title} has no layout to draw")
    remark = _inexact(operation, operands, result)
    if remark:
        grids[-1] = grids[-1].but(caption=(*grids[-1].caption, f"inexact: {remark}"))
    return Picture(tuple(grids), title)


def _inexact(operation: Any, operands: tuple[Any, ...], result: Any) -> str:  # noqa: ANN401 - the operation's
    """Describe where a result differs from its defining function, or exceeds the layout; empty if nowhere."""
    if operation in _TAKE_EXACT:
        try:
            operation(*operands, exact=True)
        except InexactError as error:
            return error.condition
        return ""
    layout = operands[0] if operands else None
    if not _is_part(result) or not isinstance(layout, LayoutBase):
        return ""
    try:  # a partition takes the layout's coordinates as it takes the layout
        part, start = operation(make_identity_layout(layout.shape), *operands[1:])
    except (TypeError, ValueError):
        return ""
    extents = flatten_to_tuple(layout.shape)
    for index in range(min(part.size(), MAX_FOLLOWED)):
        element = add_coordinates(part(index), start)
        if not all(map(lt, flatten_to_tuple(element), extents)):
            crd = to_text(idx2crd(index, part.shape))
            return (
                f"cells beyond the layout: coordinate {crd} of the result points at {to_text(element)}, "
                f"but the layout has shape {to_text(layout.shape)}"
            )
    return ""


def _is_part(result: object) -> bool:
    """Return whether an operation returned a layout and the offset at which it begins."""
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], LayoutBase)


def _division(operation: Any, name: str, result: Any, layout: Any, tiler: Any) -> list[Grid]:  # noqa: ANN401
    parts = logical_divide(layout, tiler)
    follow = _followed(layout, lambda: zipped_divide(layout, tiler), "tile")
    grids = [follow(layout_grid(layout, title=f"layout {layout}"))]
    if isinstance(tiler, Layout):
        rest = tile_and_rest(layout, tiler)[1]
        grids += [
            layout_grid(tiler, title=f"tiler {tiler}"),
            layout_grid(rest, title=f"its complement {rest}"),
        ]
    if operation is not logical_divide:
        grids.append(follow(layout_grid(parts, title=f"logical_divide {parts}")))
    return [*grids, follow(layout_grid(result, title=f"{name} {result}"))]


def _product(operation: Any, name: str, result: Any, block: Any, tiler: Any, *order: Any) -> list[Grid]:  # noqa: ANN401
    if operation is tile_to_shape:
        copies = ceil_div(product_each(tiler), product_each(append(block, len(tiler)).shape))
        tiler = make_ordered_layout(copies, *order) if order else Layout(copies)
    ranked = operation in _RANKED_PRODUCTS or operation is tile_to_shape

    def parts() -> Any:  # noqa: ANN401 - Layout or ComposedLayout
        if not ranked:
            return zipped_product(block, tiler)
        arrangement = Layout(tiler) if isinstance(tiler, int) else tiler
        modes = max(block.rank(), arrangement.rank())
        return logical_product(append(block, modes), append(arrangement, modes))

    follow = _followed(result, parts, "copy")
    grids = [follow(layout_grid(block, title=f"block {block}"))]
    if isinstance(tiler, LayoutBase):
        grids.append(_numbered(layout_grid(tiler, title=f"copies {tiler}")))
    if ranked or operation is not logical_product:
        between = parts() if ranked else logical_product(block, tiler)
        grids.append(follow(layout_grid(between, title=f"logical_product {between}")))
    return [*grids, follow(layout_grid(result, title=f"{name} {result}"))]


def _composition(result: Any, layout: Any, tiler: Any) -> list[Grid]:  # noqa: ANN401 - as composition
    grids = [_marked(picture_of(layout), _offsets(result), "in the composition")]
    if isinstance(tiler, LayoutBase):
        grids.append(layout_grid(tiler, title=f"right operand {tiler}"))
    return [*grids, layout_grid(result, title=f"composition {result}")]


def _any(name: str, result: Any, operands: tuple[Any, ...]) -> list[Grid]:  # noqa: ANN401 - the operation's
    drawn, offset = result, 0
    if _is_part(result):
        drawn, offset = result
    grids = [layout_grid(operand) for operand in operands if isinstance(operand, LayoutBase)]
    if drawn is not result:
        taken = {add_coordinates(index, offset) for index in _offsets(drawn)}
        grids = [_marked(grid, taken, "in the result") for grid in grids]
    if isinstance(drawn, LayoutBase):
        moved = "" if drawn is result else f", {to_text(offset)} onwards"
        grids.append(layout_grid(drawn, title=f"{name} {drawn}{moved}"))
    return grids


def _followed(layout: Any, parts: Callable[[], Any], what: str) -> Callable[[Grid], Grid]:  # noqa: ANN401 - any layout
    """Return the colours of a grid's cells by the tile that contains their offset; none for too many."""
    if layout.size() > MAX_FOLLOWED:
        return lambda grid: grid
    try:
        tiles = parts()
    except ValueError:  # a tiler that keeps a mode has no gathered form
        return lambda grid: grid
    inner, outer = parted(tiles)
    sizes = tiles[0].size(), tiles[1].size()
    if inner is None:
        offsets = [tiles(element, number) for number in range(sizes[1]) for element in range(sizes[0])]
    else:  # the modes of the tile add up
        within, starts = ([mode(i) for i in range(mode.size())] for mode in (inner[0], inner[1]))
        if all(part.__class__ is int for part in (*within, *starts)):
            offsets = each(outer, [start + step for start in starts for step in within])
        else:
            offsets = [outer(add_coordinates(start, step)) for start in starts for step in within]
    numbered = [number for number in range(sizes[1]) for _ in range(sizes[0])]
    # the first tile that has the offset
    tile_of: dict[Any, int] = dict(zip(reversed(offsets), reversed(numbered), strict=True))

    def follow(grid: Grid) -> Grid:
        def cell(i: int, j: int) -> Cell:
            found = grid.cell(i, j)
            number = tile_of.get(found.offset)
            marks = (f"{what} 0",) if number == 0 else ()
            notes = found.notes if number is None else ((what, str(number)),)
            return found._replace(colour=None if number is None else number % 8, marks=marks, notes=notes)

        def bulk() -> dict[str, Any]:
            assert grid.bulk is not None
            tiles = range(sizes[1])
            known = {name: column for name, column in grid.bulk().items() if name != "colour"}
            groups = {
                "colour": [*(number % 8 for number in tiles), None],
                "marks": [*([f"{what} 0"] if number == 0 else None for number in tiles), None],
                "notes": {what: [*map(str, tiles), None]},
            }
            in_none = repeat(len(tiles))
            return {**known, "group": list(map(tile_of.get, known["offset"], in_none)), "groups": groups}

        said = f"marked (* or outlined): {what} 0"
        return grid.but(
            cell=cell,
            colours=f"{what} mod 8",
            caption=(*grid.caption, said),
            coarser=None,
            bulk=None if grid.bulk is None else bulk,
        )

    return follow


def _numbered(grid: Grid) -> Grid:
    """Colour each copy's place in the arrangement as the copy."""

    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        number = found.flat or 0
        return found._replace(colour=number % 8, marks=("copy 0",) if number == 0 else ())

    said = "marked (* or outlined): copy 0"
    return grid.but(cell=cell, colours="copy mod 8", caption=(*grid.caption, said), coarser=None)


def _marked(grid: Grid | Picture, offsets: set[Any], mark: str) -> Grid:
    assert isinstance(grid, Grid)

    def cell(i: int, j: int) -> Cell:
        found = grid.cell(i, j)
        return found._replace(marks=(mark,)) if found.offset in offsets else found

    def bulk() -> dict[str, Any]:
        assert grid.bulk is not None
        base = grid.bulk()
        return {**base, "marks": [[mark] if offset in offsets else None for offset in base["offset"]]}

    said = f"marked (* or outlined): {mark}"
    return grid.but(cell=cell, caption=(*grid.caption, said), coarser=None, bulk=None if grid.bulk is None else bulk)


def _offsets(layout: Any) -> set[Any]:  # noqa: ANN401 - Layout or ComposedLayout
    return {layout(i) for i in range(min(layout.size(), MAX_FOLLOWED))}


def _written(operand: object) -> str:
    try:
        return to_text(operand)
    except TypeError:
        return repr(operand)
