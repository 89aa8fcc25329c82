"""Strategies for operands that fit one another: of composition, divides, products and tile_to_shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from hypothesis import strategies as st

from cutepy.layouts import Layout, LayoutBase
from cutepy.testing.strategies.layouts import layouts
from cutepy.testing.strategies.shapes import flags, integers, leaf_limit, leaves_of, nested_layout, orders

Leaf = tuple[int, int]  # the extent and the stride of an integer mode


_LAYOUTS = layouts()
_STEPS = st.sampled_from(("begin", "skip", "go on"))
_SIGNS = st.sampled_from((1, -1))
_BESIDE = st.sampled_from(((2, 0), (1, 0), (1, 1), (3, 0)))
_DIGITS = st.lists(st.integers(2, 4), min_size=2, max_size=5)


@cache
def _divisors(n: int) -> st.SearchStrategy[int]:
    return st.sampled_from([i for i in range(1, n + 1) if n % i == 0])


def _draw_order(draw: st.DrawFn, leaves: Sequence[Leaf]) -> list[Leaf]:
    return [leaves[i] for i in draw(orders(len(leaves)))]


def _draw_digits(draw: st.DrawFn, extents: Sequence[int]) -> list[int]:
    """Draw factors of the extents, in order: the digits of a mixed radix in which the extents are groups of digits."""
    digits = []
    for extent in extents:
        divisor = draw(_divisors(extent))
        digits += [divisor, extent // divisor]
    return [digit for digit in digits if digit != 1]


def _draw_runs(draw: st.DrawFn, digits: Sequence[int], *, whole: bool, goes_on: bool = False) -> list[Leaf]:
    """Draw modes that each step through a run of neighbouring digits, so that no carry leaves a run.

    With `whole` false the last digit of a run may be cut short, the topmost run be repeated, and a mode take steps
    within a digit that do not divide it. With `goes_on` the topmost digit goes on for ever.
    """
    runs: list[Leaf] = []
    place, is_open = 1, False
    for digit in digits:
        choice = draw(_STEPS)
        if choice == "skip":
            is_open = False
        elif choice == "begin" or not is_open:
            is_open = True
            if whole or digit < 3 or draw(integers(0, 3)) < 3:
                runs.append((digit, place))
            else:
                step = draw(integers(2, digit - 1))
                runs.append((draw(integers(2, (digit - 1) // step + 1)), step * place))
                is_open = False
        else:
            runs[-1] = (runs[-1][0] * digit, runs[-1][1])
        if is_open and not whole and draw(integers(0, 7)) == 7:
            extent, stride = runs[-1]
            runs[-1] = (extent // digit * draw(integers(1, digit)), stride)
            is_open = False
        place *= digit
    if not whole and draw(integers(0, 3)) == 3:
        if is_open:
            extent, stride = runs[-1]
            unit = digits[-1] if goes_on else 1
            runs[-1] = (extent // unit * draw(integers(1 if goes_on else 2, 3 * unit)), stride)
        else:
            runs.append((draw(integers(2, 3)), place))
    return _draw_order(draw, runs) if runs else [(1, 0)]


def _draw_steps_of_one_mode(draw: st.DrawFn, extents: Sequence[int], *, signed: bool) -> list[Leaf]:
    """Draw modes that step within one mode of the extents, by any step and with a sign each.

    Their coordinates sum to at most the mode's last, so nothing carries; the last mode goes on for ever.
    """
    chosen = draw(integers(0, len(extents) - 1))
    start, is_last = prod(extents[:chosen]), chosen == len(extents) - 1
    left = 2 * extents[chosen] if is_last else extents[chosen] - 1
    leaves = []
    for _ in range(draw(integers(1, 2))):
        if left < 1:
            break
        step = draw(integers(1, left))
        count = draw(integers(1, max(3, prod(extents)) if is_last else left // step))
        left -= 0 if is_last else count * step
        leaves.append((count + 1, step * start * (draw(_SIGNS) if signed else 1)))
    return leaves or [(1, 0)]


def _draw_signs(draw: st.DrawFn, runs: Sequence[Leaf], extents: Sequence[int]) -> list[Leaf]:
    """Draw a sign for all runs; those of one mode, which cannot borrow from another, a sign each."""
    starts = [prod(extents[:mode]) for mode in range(len(extents))]
    modes = {sum(start <= step for start in starts[1:]) for _, step in runs if step}
    within = all(extent * step <= start for extent, step in runs for start in starts[1:] if step < start)
    together = 1 if len(modes) == 1 and within else draw(_SIGNS)
    return [(extent, step * (draw(_SIGNS) if len(modes) == 1 and within else together)) for extent, step in runs]


@st.composite
def composable_pairs(
    draw: st.DrawFn,
    left: st.SearchStrategy[Layout] | None = None,
    *,
    max_rank: int = 3,
    max_depth: int = 2,
    signed: bool = True,
) -> tuple[Layout, Layout]:
    """Draw layouts A and B for which ``composition(A, B)`` exists and is the composition of the functions.

    Each mode of B steps through a run of neighbouring factors of A's shape, or all step within one mode of A,
    at steps that need not divide it, so nothing carries, for every A. B may also repeat (stride 0), hold modes of size
    1, step backwards, and run past the domain of A, whose last mode then goes on.

    Parameters
    ----------
    left : SearchStrategy, optional
        Strategy of A; default ``layouts()``.
    max_rank, max_depth : int
        Limits of B.
    signed : bool
        True if strides of B may be negative: all of them, or some where all step within one mode of A. A of a negative
        index is the negative of A of its magnitude.

    Returns
    -------
    tuple of Layout
        (A, B)
    """
    a = draw(_LAYOUTS if left is None else left)
    extents = leaves_of(a.shape)
    if draw(flags):
        leaves = _draw_steps_of_one_mode(draw, extents, signed=signed)
    else:
        leaves = _draw_runs(draw, _draw_digits(draw, extents), whole=False, goes_on=extents[-1] > 1)
        if signed and draw(integers(0, 3)) == 3:
            leaves = _draw_signs(draw, leaves, extents)
    if draw(integers(0, 3)) == 3:
        leaves.insert(draw(integers(0, len(leaves))), draw(_BESIDE))
    leaves = leaves[: leaf_limit(6, max_rank, max_depth)]
    return a, nested_layout(draw, leaves, max_rank, max_depth)


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
    runs = _draw_runs(draw, _draw_digits(draw, leaves_of(layout.shape)), whole=True)
    return nested_layout(draw, runs[:6], 3, 2)


@st.composite
def tilers(draw: st.DrawFn, layout: Layout, *, keep: bool = True) -> Any:  # noqa: ANN401 - Layout, int, None or tuple
    """Draw a tiler that divides `layout` evenly: a Layout, an int, or a tuple of them by mode.

    Parameters
    ----------
    layout : Layout
    keep : bool
        True if None, CuTe's ``_``, may occur in tuples: it leaves a mode whole.

    Returns
    -------
    Layout, int or tuple
    """
    if isinstance(layout.shape, tuple) and draw(flags):
        modes = draw(integers(1, len(layout.shape)))
        none = st.none() if keep else st.nothing()
        return tuple(draw(none | tilers(layout[i], keep=keep)) for i in range(modes))
    if draw(flags):
        return draw(tiler_layouts(layout))
    digits = _draw_digits(draw, leaves_of(layout.shape))
    return prod(digits[: draw(integers(0, len(digits)))])


@st.composite
def product_operands(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Draw a block and a tiler for which the products exist: the tiler's copies fit the gaps that the block leaves.

    Returns
    -------
    tuple of Layout
        (block, tiler), both injective.
    """
    digits = draw(_DIGITS)
    block, free, place = [], [], 1
    for digit in digits:
        if draw(flags):
            block.append((digit, place))
        else:
            free.append(digit)
        place *= digit
    block = _draw_order(draw, block) if block else [(1, 0)]
    runs = [run for run in _draw_runs(draw, free, whole=False) if run[0] > 1]
    return nested_layout(draw, block, 3, 2), nested_layout(draw, (runs or [(1, 0)])[:5], 3, 2)


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
    sizes = [prod(leaves_of(mode)) for mode in modes] + [1] * draw(integers(0, 1))
    copies, target = max_copies, []
    for size in sizes:
        factor = draw(integers(1, max(1, min(4, copies))))
        copies //= factor
        target.append(size * factor)
    return tuple(target)


__all__ = ["composable_pairs", "product_operands", "target_shapes", "tiler_layouts", "tilers"]
