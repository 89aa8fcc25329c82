"""Divisions of a layout by tiles, and products of layouts.

Every divide and product has the same elements as its logical form; the zipped, tiled and flat forms gather the modes
differently:

========  ============================================
logical   ``((tile_m, rest_m), (tile_n, rest_n), ...)``
zipped    ``((tile_m, tile_n, ...), (rest_m, rest_n, ...))``
tiled     ``((tile_m, tile_n, ...), rest_m, rest_n, ...)``
flat      ``(tile_m, tile_n, ..., rest_m, rest_n, ...)``
========  ============================================

References
----------
CuTe ``layout.hpp`` and ``layout_composed.hpp``.
"""

from __future__ import annotations

from typing import Any

from .algebra import AnyLayout, Tiler
from .composed import ComposedLayout, Swizzle, make_swizzle
from .coordinates import compact_col_major
from .errors import LayoutError, operation
from .exactness import check_division, check_product
from .int_tuple import IntTuple, ceil_div, evenly_divides, product_each, repeat_like, transform_leaf, tuple_rank
from .layout import Layout, by_mode, complement_layout, compose_layouts, make_ordered_layout, raw_layout
from .modes import LayoutBase, append, gather_flat, gather_tiles, require_layout, unzip, zip_modes

# ---------------------------------------------------------------------------------------------------------------------
# Divide
# ---------------------------------------------------------------------------------------------------------------------


@operation
def logical_divide(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Split a layout into (the elements that `layoutB` points at, the rest).

    Parameters
    ----------
    layoutA : Layout or ComposedLayout
    layoutB : Layout, int, None or tuple
        A Layout gives ``composition(layoutA, (layoutB, complement(layoutB)))``; an int n is ``n:1``; None, CuTe's
        ``_``, changes nothing; a tuple divides mode by mode and keeps the modes that it has no element for.
    exact : bool
        Refuse a result that does not have each element of `layoutA` once. CuTe rounds the rest up: 5 elements divided
        by 2 are 3 tiles, whose sixth cell lies beyond the layout and must be predicated. As `composition`, a divide may
        also give values other than ``layoutA``'s.

    Returns
    -------
    Layout or ComposedLayout
        ``((tile, rest), ...)``.

    Examples
    --------
    >>> print(logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2)))
    ((2,2),(2,3)):((4,1),(2,8))
    >>> print(logical_divide(Layout((8, 16)), (4, None)))
    ((4,2),16):((1,4),8)

    Raises
    ------
    LayoutError
        If the tiler's or the layout's shapes and strides do not divide as composition demands, or the tuple has too
        many elements.
    InexactError
        With `exact`, if the result's values are not those of `layoutA`, if cells lie beyond it, or if elements are
        repeated or left out.
    """
    require_layout("logical_divide", layoutA)
    result = layoutA._divided_by(layoutB)
    if exact:
        check_division("logical_divide", layoutA, layoutB, result)
    return result


@operation
def zipped_divide(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Divide and gather: ``((tiles), (rests))``.

    With `exact`, refuse operands that `logical_divide` refuses.

    >>> print(zipped_divide(Layout((8, 16)), (4, 2)))
    ((4,2),(2,8)):((1,8),(4,16))
    """
    return logical_divide(layoutA, layoutB, exact=exact)._on_modes(unzip, layoutB)


@operation
def tiled_divide(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Divide and gather the tiles: ``((tiles), rest, rest, ...)``.

    With `exact`, refuse operands that `logical_divide` refuses.

    >>> print(tiled_divide(Layout((8, 16)), (4, 2)))
    ((4,2),2,8):((1,8),4,16)
    """
    return logical_divide(layoutA, layoutB, exact=exact)._on_modes(gather_tiles, layoutB)


@operation
def flat_divide(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Divide into one flat list of modes: ``(tile, tile, ..., rest, rest, ...)``.

    With `exact`, refuse operands that `logical_divide` refuses.

    >>> print(flat_divide(Layout((8, 16)), (4, 2)))
    (4,2,2,8):(1,8,4,16)
    """
    return logical_divide(layoutA, layoutB, exact=exact)._on_modes(gather_flat, layoutB)


@operation
def hier_unzip(splitter: Any, layoutA: Layout, layoutB: Tiler) -> Layout:  # noqa: ANN401 - pycute's names
    """Apply `splitter` (a logical divide or product) mode by mode and gather its two halves; pycute's function.

    >>> print(hier_unzip(logical_divide, Layout((8, 16)), (4, 2)))
    ((4,2),(2,8)):((1,8),(4,16))
    """
    gathered: Layout = tile_unzip(splitter(layoutA, layoutB), layoutB)
    return gathered


@operation
def tile_unzip(layout: AnyLayout, tiler: Tiler) -> AnyLayout:
    """Gather the (tile, rest) modes of a logical divide or product, following the nesting of `tiler`.

    >>> print(tile_unzip(Layout(((4, 2), (2, 8))), (4, 2)))
    ((4,2),(2,8)):((1,8),(4,16))
    """
    return layout._on_modes(unzip, tiler)


# ---------------------------------------------------------------------------------------------------------------------
# Product
# ---------------------------------------------------------------------------------------------------------------------


@operation
def logical_product(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Reproduce a layout over another: ``(block, copies)``, the copies in the complement of `layoutA`.

    Copy c begins at ``free(layoutB(c))``, where `free` is the complement of `layoutA` in as many indices as the copies
    need. As `composition`, the product may give other places; `exact` refuses them.

    Parameters
    ----------
    layoutA : Layout or ComposedLayout
    layoutB : Layout, ComposedLayout, int, None or tuple
        Arranges the copies; as in `logical_divide`. A swizzled tiler gives a swizzled result.
    exact : bool
        Refuse a result whose copies are at other places.

    Returns
    -------
    Layout or ComposedLayout
        ``(block, copies)``; of a tuple tiler, such a pair for each mode.

    Examples
    --------
    >>> print(logical_product(Layout((2, 2), (4, 1)), Layout(6)))
    ((2,2),(2,3)):((4,1),(2,8))

    Raises
    ------
    LayoutError
        If `layoutA` overlaps itself, or its complement does not compose with `layoutB`.
    InexactError
        With `exact`, if a copy is at another place than ``free(layoutB(c))``.
    """
    result = _product(layoutA, layoutB)
    if exact:
        check_product("logical_product", layoutA, layoutB, result)
    return result


def _product(block: AnyLayout, tiler: Tiler) -> AnyLayout:
    if isinstance(block, ComposedLayout):
        return block.on_domain(_product, tiler)
    require_layout("logical_product", block)
    if isinstance(tiler, int):
        tiler = Layout(tiler)
    if isinstance(tiler, Layout):
        free = complement_layout(block, block.size() * tiler.cosize())
        copies = compose_layouts(free, tiler)
        return raw_layout((block._shape, copies._shape), (block._stride, copies._stride))
    if tiler is None:
        return block
    if isinstance(tiler, tuple):
        return by_mode("logical_product", _product, block, tiler, keep=True)
    if isinstance(tiler, ComposedLayout) and isinstance(tiler.layoutB, Swizzle):
        return _product_swizzled(block, tiler)
    raise TypeError(f"logical_product: the tiler must be a layout, int, None or tuple, got {type(tiler).__name__}")


def _product_swizzled(block: Layout, tiler: ComposedLayout) -> AnyLayout:
    """Move the bits that the tiler's swizzle acts on to the strides of the product."""
    swizzle, arrangement = tiler.layoutB, tiler.layoutA
    if tiler.offset != 0:
        raise LayoutError("logical_product", (block, tiler), f"the tiler's offset must be 0, got {tiler.offset}")
    result = _product(block, arrangement)
    bits, base, gap = swizzle.bits, swizzle.base, abs(swizzle.shift)
    fields = (1 << base, 1 << bits, 1 << (gap - bits), 1 << bits, 1)
    projection = Layout(fields, (0, 1 << base, 0, 1 << (base + gap), 0))
    active = compose_layouts(projection, arrangement)
    reached = active(active.size() - 1)
    yyy, zzz = (result(0, arrangement(reached & mask)) for mask in (swizzle.yyy_msk, swizzle.zzz_msk))
    return make_swizzle(yyy, zzz)._composed_with(result)


@operation
def zipped_product(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Multiply and gather: ``((blocks), (copies))``.

    With `exact`, refuse operands that `logical_product` refuses.

    >>> print(zipped_product(Layout((2, 5), (5, 1)), (3, 4)))
    ((2,5),(3,4)):((5,1),(1,5))
    """
    return logical_product(layoutA, layoutB, exact=exact)._on_modes(unzip, layoutB)


@operation
def tiled_product(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Multiply and gather the blocks: ``((blocks), copies, copies, ...)``.

    With `exact`, refuse operands that `logical_product` refuses.

    >>> print(tiled_product(Layout((2, 2)), Layout((3, 4))))
    ((2,2),3,4):((1,2),4,12)
    """
    return logical_product(layoutA, layoutB, exact=exact)._on_modes(gather_tiles, layoutB)


@operation
def flat_product(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Multiply into one flat list of modes: ``(block, block, ..., copies, copies, ...)``.

    With `exact`, refuse operands that `logical_product` refuses.

    >>> print(flat_product(Layout((2, 2)), Layout((3, 4))))
    (2,2,3,4):(1,2,4,12)
    """
    return logical_product(layoutA, layoutB, exact=exact)._on_modes(gather_flat, layoutB)


@operation
def blocked_product(block: AnyLayout, tiler: AnyLayout, *, exact: bool = False) -> AnyLayout:
    """Reproduce a block over a tiler mode by mode, the block's modes inside: ``((block_m, copies_m), ...)``.

    With `exact`, refuse operands that `logical_product` refuses.

    >>> print(blocked_product(Layout((2, 5), (5, 1)), Layout((3, 4))))
    ((2,3),(5,4)):((5,10),(1,30))
    """
    return _ranked_product("blocked_product", block, tiler, raked=False, exact=exact)


@operation
def raked_product(block: AnyLayout, tiler: AnyLayout, *, exact: bool = False) -> AnyLayout:
    """Reproduce a block over a tiler mode by mode, the copies interleaved: ``((copies_m, block_m), ...)``.

    With `exact`, refuse operands that `logical_product` refuses.

    >>> print(raked_product(Layout((2, 5), (5, 1)), Layout((3, 4))))
    ((3,2),(4,5)):((10,5),(30,1))
    """
    return _ranked_product("raked_product", block, tiler, raked=True, exact=exact)


def _ranked_product(name: str, block: AnyLayout, tiler: AnyLayout, *, raked: bool, exact: bool) -> AnyLayout:
    if isinstance(block, ComposedLayout):
        return block.on_domain(lambda inner: _ranked_product(name, inner, tiler, raked=raked, exact=exact))
    if isinstance(tiler, int):
        tiler = Layout(tiler)
    require_layout(name, block)
    if not isinstance(tiler, Layout):
        raise TypeError(f"{name}: the tiler must be a Layout, got {type(tiler).__name__}")
    modes = max(block.rank(), tiler.rank())
    pair = logical_product(append(block, modes), append(tiler, modes), exact=exact)
    return zip_modes(pair[1], pair[0]) if raked else zip_modes(pair[0], pair[1])


@operation
def tile_to_shape(
    block: AnyLayout, trg_shape: IntTuple, ord_shape: IntTuple = None, *, exact: bool = False
) -> AnyLayout:
    """Repeat a layout until it fills a shape.

    Parameters
    ----------
    block : Layout or ComposedLayout
        Repeated layout, e.g. a GMMA layout atom.
    trg_shape : IntTuple
        Shape to fill; its rank may exceed the block's. Each mode's size must be a multiple of the block's.
    ord_shape : IntTuple, optional
        Order in which the modes are repeated, the smallest first; default: from the left.
    exact : bool
        Refuse operands that `logical_product` of the block and its copies refuses.

    Examples
    --------
    >>> print(tile_to_shape(Layout((64, 8)), (128, 64, 3)))
    ((64,2),(8,8),(1,3)):((1,512),(64,1024),(0,8192))
    >>> print(tile_to_shape(Layout((64, 8)), (128, 64, 3), (2, 1, 3)))
    ((64,2),(8,8),(1,3)):((1,4096),(64,512),(0,8192))

    Raises
    ------
    LayoutError
        If the rank is too small, or a mode of the block does not divide the shape's.
    """
    if isinstance(block, ComposedLayout):
        return block.on_domain(lambda inner: tile_to_shape(inner, trg_shape, ord_shape, exact=exact))
    require_layout("tile_to_shape", block)
    rank = tuple_rank(trg_shape)
    if block.rank() > rank:
        raise LayoutError(
            "tile_to_shape", (block, trg_shape), f"rank of the block must be <= {rank} of the shape, got {block.rank()}"
        )
    padded = append(block, rank)
    tile, target = product_each(padded.shape), product_each(trg_shape)
    if not evenly_divides(target, tile):
        raise LayoutError("tile_to_shape", (block, trg_shape), f"the block's shape {tile} must divide {target}")
    copies = ceil_div(target, tile)
    if ord_shape is None:
        arrangement = raw_layout(copies, compact_col_major(copies))
    else:
        arrangement = make_ordered_layout(copies, ord_shape)
    return _ranked_product("tile_to_shape", padded, arrangement, raked=False, exact=exact)


@operation
def make_fragment_like(layout: Any) -> Layout:  # noqa: ANN401 - Layout, ComposedLayout or shape
    """Return the register layout CuTe gives a fragment of `layout`: mode 0 compact and fastest, the rest in order.

    >>> print(make_fragment_like(Layout(((2, 2), 4, 3), ((1, 64), 8, 2))))
    ((2,2),4,3):((1,2),12,4)
    """
    if not isinstance(layout, LayoutBase):
        return Layout(layout)
    if not isinstance(layout, Layout):
        return make_fragment_like(layout.layoutA)  # type: ignore[attr-defined]
    if layout.rank() == 1:
        return Layout(layout.shape)
    shape, stride = layout.shape, layout.stride
    kept = transform_leaf(lambda d, s: repeat_like(s, 1) if d == 0 else s, stride[0], shape[0])
    head = raw_layout(shape[0], compact_col_major(kept))
    return tiled_product(head, make_ordered_layout(shape[1:], stride[1:]))  # type: ignore[no-any-return]
