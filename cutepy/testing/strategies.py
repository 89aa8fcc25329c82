"""Hypothesis strategies for layouts: what to draw when a property must hold for every layout.

Every strategy builds what it draws, so nothing is filtered out, and shrinks towards small flat values: a failing
layout ends as something like ``(2,2):(1,0)``. Sizes are small by default, so that a test can compare a whole function
with a table of its values.

>>> from hypothesis import given
>>> from cutepy.layouts import coalesce
>>> from cutepy.testing import strategies as lst
>>> @given(lst.layouts())
... def test_coalesce_keeps_the_function(layout):
...     flat = coalesce(layout)
...     assert [flat(i) for i in range(flat.size())] == [layout(i) for i in range(layout.size())]
>>> test_coalesce_keeps_the_function()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

from hypothesis import strategies as st

from cutepy.layouts import ComposedLayout, IntTuple, Layout, LayoutBase, ScaledBasis, SmemPtr, Swizzle

Leaf = tuple[int, int]  # the extent and the stride of an integer mode


# ---------------------------------------------------------------------------------------------------------------------
# Nesting
# ---------------------------------------------------------------------------------------------------------------------


@cache
def _profiles(leaves: int, depth: int) -> tuple[IntTuple, ...]:
    """All nestings of `leaves` zeros up to `depth` levels, the flattest and shortest first."""
    found: list[IntTuple] = [0] if leaves == 1 else []
    if depth > 0:
        found += _sequences(leaves, depth - 1)
    return tuple(sorted(found, key=lambda profile: (_depth(profile), str(profile).count("("), str(profile))))


@cache
def _sequences(leaves: int, depth: int) -> tuple[tuple[Any, ...], ...]:
    if leaves == 0:
        return ((),)
    return tuple(
        (head, *tail)
        for first in range(1, leaves + 1)
        for head in _profiles(first, depth)
        for tail in _sequences(leaves - first, depth)
    )


def _depth(t: IntTuple) -> int:
    return 1 + max(map(_depth, t), default=0) if isinstance(t, tuple) else 0


def _fill(profile: IntTuple, leaves: Iterator[Any]) -> IntTuple:
    return tuple(_fill(mode, leaves) for mode in profile) if isinstance(profile, tuple) else next(leaves)


def _leaves(t: IntTuple) -> list[Any]:
    return [leaf for mode in t for leaf in _leaves(mode)] if isinstance(t, tuple) else [t]


@cache
def _nestings(leaves: int, max_rank: int, max_depth: int) -> st.SearchStrategy[IntTuple]:
    fitting = [p for p in _profiles(leaves, max_depth) if not isinstance(p, tuple) or len(p) <= max_rank]
    if not fitting:
        raise ValueError(f"{leaves} leaves need max_rank >= {leaves} or max_depth >= 2, got {max_rank} and {max_depth}")
    no_wraps = [p for p in fitting if "()" not in str(p) and ",)" not in str(p)]
    return st.sampled_from(no_wraps or fitting) | st.sampled_from(fitting)


def _nested_layout(draw: st.DrawFn, leaves: Sequence[tuple[int, Any]], max_rank: int, max_depth: int) -> Layout:
    profile = draw(_nestings(len(leaves), max_rank, max_depth))
    return Layout(_fill(profile, iter([s for s, _ in leaves])), _fill(profile, iter([d for _, d in leaves])))


@st.composite
def int_tuples(
    draw: st.DrawFn,
    elements: st.SearchStrategy[Any] | None = None,
    *,
    max_leaves: int = 4,
    max_rank: int = 4,
    max_depth: int = 2,
) -> IntTuple:
    """Draw an IntTuple: an integer, or nested tuples of integers.

    Parameters
    ----------
    elements : SearchStrategy, optional
        What its leaves are; default: integers from -8 to 8.
    max_leaves, max_rank, max_depth : int
        Limits of the leaves in all, the outermost tuple's length and the levels of nesting.

    Returns
    -------
    IntTuple
    """
    leaf = st.integers(-8, 8) if elements is None else elements
    count = draw(st.integers(1, max_leaves if max_depth > 1 else min(max_leaves, max_rank)))
    return _fill(draw(_nestings(count, max_rank, max_depth)), iter([draw(leaf) for _ in range(count)]))


@st.composite
def shapes(
    draw: st.DrawFn,
    *,
    max_leaves: int = 4,
    max_rank: int = 3,
    max_depth: int = 2,
    max_extent: int = 8,
    max_size: int = 64,
    size_one: bool = True,
    powers_of_two: bool = False,
) -> IntTuple:
    """Draw a shape: an IntTuple of positive extents.

    Parameters
    ----------
    max_leaves, max_rank, max_depth : int
        Limits of the integer modes in all, the rank and the levels of nesting.
    max_extent, max_size : int
        Limits of an integer mode and of the product of all.
    size_one : bool
        Whether modes of size 1 occur.
    powers_of_two : bool
        Draw powers of two only.

    Returns
    -------
    IntTuple
    """
    extents = _draw_extents(
        draw, max_leaves if max_depth > 1 else min(max_leaves, max_rank), max_extent, max_size, size_one, powers_of_two
    )
    return _fill(draw(_nestings(len(extents), max_rank, max_depth)), iter(extents))


def _draw_extents(
    draw: st.DrawFn, max_leaves: int, max_extent: int, max_size: int, size_one: bool, powers_of_two: bool
) -> list[int]:
    smallest = 1 if size_one else 2
    budget, extents = max_size, []
    for _ in range(draw(st.integers(1, max_leaves))):
        limit = min(max_extent, budget)
        if limit < smallest:
            break
        if powers_of_two:
            extents.append(1 << draw(st.integers(smallest - 1, limit.bit_length() - 1)))
        else:
            extents.append(draw(st.integers(smallest, limit)))
        budget //= extents[-1]
    return extents


# ---------------------------------------------------------------------------------------------------------------------
# Layouts
# ---------------------------------------------------------------------------------------------------------------------


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
        Whether strides of 0 occur; default: unless `compact` or `injective`. With those, the layout is what they say
        but for the modes of stride 0.
    size_one : bool
        Whether modes of size 1 occur. Their strides are arbitrary.

    Returns
    -------
    Layout

    Examples
    --------
    >>> from hypothesis import find
    >>> print(find(layouts(compact=True), lambda layout: layout(1) > 1))
    (2,2):(2,1)
    """
    if shape is None:
        shape = draw(
            shapes(
                max_leaves=max_leaves,
                max_rank=max_rank,
                max_depth=max_depth,
                max_extent=max_extent,
                max_size=max_size,
                size_one=size_one,
                powers_of_two=powers_of_two,
            )
        )
    elif isinstance(shape, st.SearchStrategy):
        shape = draw(shape)
    extents = _leaves(shape)
    zeros = not (compact or injective) if zero_strides is None else zero_strides
    if compact or injective or draw(st.booleans()):
        strides = _draw_ordered_strides(draw, extents, gaps=not compact, powers_of_two=powers_of_two)
        if zeros:
            strides = [d * draw(st.integers(0, 1)) for d in strides]
    else:
        smallest = 0 if zeros else 1
        strides = [draw(_exponential(smallest, max_stride, powers_of_two)) for _ in extents]
    if signed:
        strides = [draw(st.sampled_from((d, -d))) for d in strides]
    return Layout(shape, _fill(shape, iter(strides)))


def _draw_ordered_strides(draw: st.DrawFn, extents: list[int], *, gaps: bool, powers_of_two: bool) -> list[int]:
    """Strides in a random order of the modes, each a multiple of what the smaller ones reach."""
    strides, reach = [0] * len(extents), 1
    gap = st.sampled_from((1, 2, 4) if powers_of_two else (1, 2, 3))
    for mode in draw(st.permutations(range(len(extents)))):
        if gaps:
            reach *= draw(gap)
        strides[mode] = reach
        reach *= extents[mode]
    return strides


@cache
def _exponential(smallest: int, largest: int, powers_of_two: bool) -> st.SearchStrategy[int]:
    """Integers that favour the small and the powers of two."""
    powers = [n for n in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256) if smallest <= n <= largest]
    return st.sampled_from(powers) if powers_of_two else st.sampled_from(powers) | st.integers(smallest, largest)


@st.composite
def basis_layouts(draw: st.DrawFn, *, max_size: int = 64) -> Layout:
    """Draw a layout whose strides are scaled bases, and so map coordinates to coordinates.

    Parameters
    ----------
    max_size : int
        Limit of the layout's size.

    Returns
    -------
    Layout
        Its codomain has the profile ``((0, 0), 0)`` or one with fewer modes.
    """
    shape = draw(shapes(max_size=max_size))
    basis = st.builds(ScaledBasis, st.integers(1, 4), st.sampled_from(((1,), (0, 0), (0, 1))))
    return Layout(shape, _fill(shape, iter([draw(basis) for _ in _leaves(shape)])))


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
        Whether the mask that is read may lie below the one that is changed.

    Returns
    -------
    Swizzle
    """
    bits = draw(st.integers(0, max_bits))
    shift = bits + draw(st.integers(0, max_gap))
    if negative_shifts and draw(st.booleans()):
        shift = -shift
    return Swizzle(bits, draw(st.integers(0, max_base)), shift)


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
    layout: Any = draw(layouts() if inner is None else inner)
    offset: Any = draw(st.integers(0, max_offset))
    outer: Any = draw(swizzles())
    if pointers and draw(st.booleans()):
        offset = SmemPtr(draw(st.sampled_from((8, 16, 32))), draw(st.none() | st.integers(0, 7).map(lambda i: i << 10)))
        outer = draw(st.sampled_from((Swizzle(1, 4, 3), Swizzle(2, 4, 3), Swizzle(3, 4, 3))))
    elif nested and draw(st.booleans()):
        inside = ComposedLayout(draw(swizzles()), draw(st.integers(0, max_offset)), layout)
        if draw(st.booleans()):
            layout = inside
        else:
            outer = draw(layouts() | st.just(inside))
    return ComposedLayout(outer, offset, layout)


# ---------------------------------------------------------------------------------------------------------------------
# Coordinates
# ---------------------------------------------------------------------------------------------------------------------


@st.composite
def coordinates(draw: st.DrawFn, shape: IntTuple | LayoutBase) -> IntTuple:
    """Draw a coordinate of a shape or layout: an integer or a coordinate of each mode, at any level.

    Parameters
    ----------
    shape : IntTuple or layout
        Its size must not be 0.

    Returns
    -------
    IntTuple
    """
    extents = shape.shape if isinstance(shape, LayoutBase) else shape
    if isinstance(extents, tuple) and draw(st.booleans()):
        return tuple(draw(coordinates(mode)) for mode in extents)
    return draw(st.integers(0, max(0, prod(_leaves(extents)) - 1)))


@st.composite
def slice_coordinates(draw: st.DrawFn, shape: IntTuple | LayoutBase) -> IntTuple:
    """Draw a coordinate some of whose modes are None, CuTe's ``_``: they are kept by a slice.

    Parameters
    ----------
    shape : IntTuple or layout

    Returns
    -------
    IntTuple
        Weakly congruent to `shape`, with at least one None.
    """
    extents = shape.shape if isinstance(shape, LayoutBase) else shape
    if not isinstance(extents, tuple) or not extents or not draw(st.integers(0, 3)):
        return None
    kept = draw(st.integers(0, len(extents) - 1))
    return tuple(
        draw(slice_coordinates(mode)) if i == kept else draw(st.none() | coordinates(mode) | slice_coordinates(mode))
        for i, mode in enumerate(extents)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Operands that fit
# ---------------------------------------------------------------------------------------------------------------------


def _draw_digits(draw: st.DrawFn, extents: Sequence[int]) -> list[int]:
    """Factors of the extents, in order: the digits of a mixed radix in which the extents are groups of digits."""
    digits = []
    for extent in extents:
        divisor = draw(st.sampled_from([n for n in range(1, extent + 1) if extent % n == 0]))
        digits += [divisor, extent // divisor]
    return [digit for digit in digits if digit != 1]


def _draw_runs(draw: st.DrawFn, digits: Sequence[int], *, whole: bool) -> list[Leaf]:
    """Modes that each step through a run of neighbouring digits, so that no carry leaves a run.

    With `whole` false the last digit of a run may be cut short, and the topmost digit go on for ever.
    """
    runs: list[Leaf] = []
    place, is_open = 1, False
    for digit in digits:
        choice = draw(st.sampled_from(("begin", "skip", "go on")))
        if choice == "skip":
            is_open = False
        elif choice == "begin" or not is_open:
            runs.append((digit, place))
            is_open = True
        else:
            runs[-1] = (runs[-1][0] * digit, runs[-1][1])
        if is_open and not whole and draw(st.integers(0, 7)) == 7:
            extent, stride = runs[-1]
            runs[-1] = (extent // digit * draw(st.integers(1, digit)), stride)
            is_open = False
        place *= digit
    if not whole and draw(st.integers(0, 3)) == 3:
        further = draw(st.integers(2, 3))
        if is_open:
            runs[-1] = (runs[-1][0] * further, runs[-1][1])
        else:
            runs.append((further, place))
    return draw(st.permutations(runs)) if runs else [(1, 0)]


@st.composite
def composable_pairs(
    draw: st.DrawFn, left: st.SearchStrategy[Layout] | None = None, *, max_rank: int = 3, max_depth: int = 2
) -> tuple[Layout, Layout]:
    """Draw layouts A and B for which ``composition(A, B)`` exists and is the composition of the functions.

    CuTe requires that the strides and shapes of B divide those of A. Here each mode of B steps through a run of
    neighbouring factors of A's shape, so they do, for every A. B may also repeat (stride 0), hold modes of size 1, and
    run past the domain of A, whose last mode then goes on.

    Parameters
    ----------
    left : SearchStrategy, optional
        Strategy of A; default ``layouts()``.
    max_rank, max_depth : int
        Limits of B.

    Returns
    -------
    tuple of Layout
        (A, B)
    """
    a = draw(layouts() if left is None else left)
    leaves = _draw_runs(draw, _draw_digits(draw, _leaves(a.shape)), whole=False)
    if draw(st.integers(0, 3)) == 3:
        leaves.insert(draw(st.integers(0, len(leaves))), draw(st.sampled_from(((2, 0), (1, 0), (1, 1), (3, 0)))))
    leaves = leaves[: max_rank if max_depth < 2 else 6]
    return a, _nested_layout(draw, leaves, max_rank, max_depth)


@st.composite
def tiler_layouts(draw: st.DrawFn, layout: Layout) -> Layout:
    """Draw a Layout tiler that divides `layout` evenly: an injective selection of its coordinates.

    Parameters
    ----------
    layout : Layout

    Returns
    -------
    Layout
    """
    runs = _draw_runs(draw, _draw_digits(draw, _leaves(layout.shape)), whole=True)
    return _nested_layout(draw, runs[:6], 3, 2)


@st.composite
def tilers(draw: st.DrawFn, layout: Layout, *, keep: bool = True) -> Any:  # noqa: ANN401 - Layout, int, None or tuple
    """Draw a tiler that divides `layout` evenly: a Layout, an int, or a tuple of them by mode.

    Parameters
    ----------
    layout : Layout
    keep : bool
        Whether None, CuTe's ``_``, occurs in tuples: it leaves a mode whole.

    Returns
    -------
    Layout, int or tuple
    """
    if isinstance(layout.shape, tuple) and draw(st.booleans()):
        modes = draw(st.integers(1, len(layout.shape)))
        none = st.none() if keep else st.nothing()
        return tuple(draw(none | tilers(layout[i], keep=keep)) for i in range(modes))
    if draw(st.booleans()):
        return draw(tiler_layouts(layout))
    digits = _draw_digits(draw, _leaves(layout.shape))
    return prod(digits[: draw(st.integers(0, len(digits)))])


@st.composite
def product_operands(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Draw a block and a tiler for which the products exist: the tiler's copies fit the gaps that the block leaves.

    Returns
    -------
    tuple of Layout
        (block, tiler), both injective.
    """
    digits = draw(st.lists(st.integers(2, 4), min_size=2, max_size=5))
    block, free, place = [], [], 1
    for digit in digits:
        if draw(st.booleans()):
            block.append((digit, place))
        else:
            free.append(digit)
        place *= digit
    block = draw(st.permutations(block)) if block else [(1, 0)]
    runs = [run for run in _draw_runs(draw, free, whole=False) if run[0] > 1]
    return _nested_layout(draw, block, 3, 2), _nested_layout(draw, (runs or [(1, 0)])[:5], 3, 2)


@st.composite
def target_shapes(draw: st.DrawFn, block: LayoutBase, *, max_copies: int = 8) -> tuple[int, ...]:
    """Draw a shape that `tile_to_shape` can fill with `block`: of its rank or more, each mode a multiple of its mode.

    Parameters
    ----------
    block : Layout or ComposedLayout
    max_copies : int
        Limit of the number of blocks that fill it.

    Returns
    -------
    tuple of int
    """
    modes = block.shape if isinstance(block.shape, tuple) else (block.shape,)
    sizes = [prod(_leaves(mode)) for mode in modes] + [1] * draw(st.integers(0, 1))
    copies, target = max_copies, []
    for size in sizes:
        factor = draw(st.integers(1, max(1, min(4, copies))))
        copies //= factor
        target.append(size * factor)
    return tuple(target)


# ---------------------------------------------------------------------------------------------------------------------
# Any value
# ---------------------------------------------------------------------------------------------------------------------


def any_layouts() -> st.SearchStrategy[LayoutBase]:
    """Draw a Layout with any strides, scaled bases included, or a ComposedLayout of any kind.

    Returns
    -------
    SearchStrategy of Layout or ComposedLayout
    """
    return st.one_of(layouts(signed=True), basis_layouts(), composed_layouts(nested=True, pointers=True))


def values() -> st.SearchStrategy[Any]:
    """Draw any value of the notation: what `to_text` writes and `parse` reads.

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
