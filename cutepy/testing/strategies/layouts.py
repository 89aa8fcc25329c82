"""Strategies for layouts, swizzles and composed layouts."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from cutepy.layouts import ComposedLayout, IntTuple, Layout, LayoutBase, ScaledBasis, SmemPtr, Swizzle
from cutepy.testing.strategies.shapes import favouring, fill, flags, int_tuples, integers, leaves_of, orders, shapes

_shapes = cache(shapes)
_SIGNS = st.sampled_from((1, -1))
_GAPS, _POWERS = st.sampled_from((1, 2, 3)), st.sampled_from((1, 2, 4))
_BASES = st.builds(ScaledBasis, st.integers(1, 4), st.sampled_from(((1,), (0, 0), (0, 1))))
_BITS = st.sampled_from((8, 16, 32))
_ADDRESSES = st.none() | st.integers(0, 7).map(lambda i: i << 10)
_SWIZZLES_OF_BYTES = st.sampled_from((Swizzle(1, 4, 3), Swizzle(2, 4, 3), Swizzle(3, 4, 3)))


@st.composite
def layouts(
    draw: st.DrawFn,
    shape: IntTuple | st.SearchStrategy[IntTuple] | None = None,
    *,
    max_leaves: int = 4,
    max_rank: int = 3,
    max_depth: int = 2,
    max_extent: int = 8,
    max_size: int = 64,
    max_stride: int = 64,
    compact: bool = False,
    injective: bool = False,
    signed: bool = False,
    zero_strides: bool | None = None,
    size_one: bool = True,
    size_zero: bool = False,
    powers_of_two: bool = False,
) -> Layout:
    """Draw a Layout.

    Parameters
    ----------
    shape : IntTuple or SearchStrategy, optional
        Shape of the layout; default: drawn with the limits below.
    max_leaves, max_rank, max_depth, max_extent, max_size, size_one, powers_of_two
        Limits of the shape; see `shapes`.
    max_stride : int
        Limit of the strides' magnitudes where neither `compact` nor `injective` determines them.
    compact : bool
        Draw bijections onto ``range(size)``: the modes in any order, no gaps.
    injective : bool
        Draw layouts whose modes, by stride, each begin at a multiple of what the smaller ones reach: no index occurs
        twice, and `complement` fills the gaps exactly.
    signed : bool
        Let strides be negative too.
    zero_strides : bool, optional
        True if strides of 0 occur; default: unless `compact` or `injective`. With those, the layout is what they say
        but for the modes of stride 0.
    size_one : bool
        True if modes of size 1 occur. Their strides are arbitrary.
    size_zero : bool
        True if a mode may have size 0.

    Returns
    -------
    Layout

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> always_the_same = settings(database=None, derandomize=True)
    >>> print(find(layouts(compact=True), lambda layout: layout(1) > 1, settings=always_the_same))
    (2,2):(2,1)
    """
    if shape is None:
        shape = draw(
            _shapes(
                max_leaves=max_leaves,
                max_rank=max_rank,
                max_depth=max_depth,
                max_extent=max_extent,
                max_size=max_size,
                size_one=size_one,
                size_zero=size_zero,
                powers_of_two=powers_of_two,
            )
        )
    elif isinstance(shape, st.SearchStrategy):
        shape = draw(shape)
    extents = leaves_of(shape)
    zeros = not (compact or injective) if zero_strides is None else zero_strides
    if compact or injective or draw(flags):
        strides = _draw_ordered_strides(draw, extents, gaps=not compact, powers_of_two=powers_of_two)
        if zeros:
            strides = [d * draw(integers(0, 1)) for d in strides]
    else:
        smallest = 0 if zeros else 1
        strides = [draw(_exponential(smallest, max_stride, powers_of_two)) for _ in extents]
    if signed:
        strides = [d * draw(_SIGNS) for d in strides]
    return Layout(shape, fill(shape, iter(strides)))


def _draw_ordered_strides(draw: st.DrawFn, extents: list[int], *, gaps: bool, powers_of_two: bool) -> list[int]:
    """Draw strides in a random order of the modes, each a multiple of the reach of the smaller ones."""
    strides, reach = [0] * len(extents), 1
    for mode in draw(orders(len(extents))):
        if gaps:
            reach *= draw(_POWERS if powers_of_two else _GAPS)
        strides[mode] = reach
        reach *= extents[mode]
    return strides


@cache
def _exponential(smallest: int, largest: int, powers_of_two: bool) -> st.SearchStrategy[int]:
    """Draw integers that favour the small and the powers of two."""
    powers = [n for n in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256) if smallest <= n <= largest]
    if powers_of_two:
        return st.sampled_from(powers)
    if largest > 1024:
        return st.sampled_from(powers) | st.integers(smallest, largest)
    return favouring(powers, range(smallest, largest + 1))


@st.composite
def basis_layouts(draw: st.DrawFn, *, max_size: int = 64, signed: bool = False, zero_strides: bool = False) -> Layout:
    """Draw a layout whose strides are scaled bases, and so map coordinates to coordinates.

    Parameters
    ----------
    max_size : int
        Limit of the layout's size.
    signed : bool
        Let the scales be negative too.
    zero_strides : bool
        True if integer strides of 0 occur beside the bases.

    Returns
    -------
    Layout
        Its codomain has the profile ``((0, 0), 0)`` or one with fewer modes.
    """
    shape = draw(_shapes(max_size=max_size))
    strides: list[Any] = [draw(_BASES) * (draw(_SIGNS) if signed else 1) for _ in leaves_of(shape)]
    if zero_strides:
        kept = draw(integers(0, len(strides) - 1))
        strides = [d if i == kept or draw(flags) else 0 for i, d in enumerate(strides)]
    return Layout(shape, fill(shape, iter(strides)))


@st.composite
def swizzles(
    draw: st.DrawFn, *, max_bits: int = 3, max_base: int = 4, max_gap: int = 2, negative_shifts: bool = True
) -> Swizzle:
    """Draw a Swizzle.

    Parameters
    ----------
    max_bits, max_base : int
        Limits of the mask's width and of the number of constant low bits.
    max_gap : int
        Limit of ``abs(shift) - bits``, the bits between the two masks.
    negative_shifts : bool
        True if the mask that is read may lie below the one that is changed.

    Returns
    -------
    Swizzle
    """
    bits = draw(integers(0, max_bits))
    shift = bits + draw(integers(0, max_gap))
    if negative_shifts and draw(flags):
        shift = -shift
    return Swizzle(bits, draw(integers(0, max_base)), shift)


_LAYOUTS, _SWIZZLES = layouts(), swizzles()


@st.composite
def composed_layouts(
    draw: st.DrawFn,
    inner: st.SearchStrategy[Layout] | None = None,
    *,
    max_offset: int = 32,
    nested: bool = False,
    pointers: bool = False,
) -> ComposedLayout:
    """Draw a ComposedLayout: a swizzle, an offset and a layout.

    Parameters
    ----------
    inner : SearchStrategy, optional
        The layouts that are applied first; default ``layouts()``.
    max_offset : int
        Limit of the offset; 0 for none.
    nested : bool
        Draw also composed layouts on either side, and plain layouts as the outer function.
    pointers : bool
        Draw also offsets that are shared-memory pointers, whose swizzles act on byte addresses.

    Returns
    -------
    ComposedLayout
    """
    layout: Any = draw(_LAYOUTS if inner is None else inner)
    offset: Any = draw(integers(0, max_offset))
    outer: Any = draw(_SWIZZLES)
    if pointers and draw(flags):
        offset = SmemPtr(draw(_BITS), draw(_ADDRESSES))
        outer = draw(_SWIZZLES_OF_BYTES)
    elif nested and draw(flags):
        inside = ComposedLayout(draw(_SWIZZLES), draw(integers(0, max_offset)), layout)
        if draw(flags):
            layout = inside
        else:
            outer = draw(_LAYOUTS | st.just(inside))
    return ComposedLayout(outer, offset, layout)


def any_layouts() -> st.SearchStrategy[LayoutBase]:
    """Draw a Layout with any strides, scaled bases included, or a ComposedLayout of any kind.

    Returns
    -------
    SearchStrategy of Layout or ComposedLayout
    """
    signed = layouts(signed=True)
    bases = basis_layouts(signed=True, zero_strides=True)
    return st.one_of(signed, bases, composed_layouts(signed, nested=True, pointers=True))


def values() -> st.SearchStrategy[Any]:
    """Draw any value of the notation that `to_text` writes and `parse` reads.

    Returns
    -------
    SearchStrategy
    """
    basis = st.builds(ScaledBasis, st.integers(-4, 4), st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
    pointer = st.builds(SmemPtr, st.sampled_from((1, 4, 8, 16, 32)), st.none() | st.integers(0, 1 << 20))
    element = st.one_of(st.none(), st.integers(-8, 8), layouts(signed=True), swizzles(), basis)
    return st.one_of(
        int_tuples(), int_tuples(element), any_layouts(), swizzles(), basis, pointer, st.none(), st.just(())
    )


__all__ = ["any_layouts", "basis_layouts", "composed_layouts", "layouts", "swizzles", "values"]
