"""The layout algebra: coalesce, filter, composition, complement and the inverses.

Every function takes layouts as functions on integers and returns a layout whose values its docstring states. Composed
layouts are served by what CuTe defines for them, mostly the same operation on their domain.

References
----------
CuTe ``layout.hpp``, ``layout_composed.hpp`` and ``swizzle_layout.hpp``, whose results these functions equal mode for
mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import shape_stride
from .composed import ComposedLayout, Swizzle
from .coordinates import compact_col_major
from .errors import LayoutError, operation
from .exactness import check_composition
from .int_tuple import IntTuple, flatten_to_tuple, product, repeat_like, transform_leaf, unwrap
from .layout import Layout, by_mode, by_pair, concat_layouts, raw_layout
from .modes import IndexFunction, require_layout

# A Layout, ComposedLayout or Swizzle; or a tiler: a Layout, an int, None (CuTe's _) or a tuple of tilers.
AnyLayout = Any
Tiler = Any


@operation
def transform_layout(function: Callable[..., Layout], t: Any, u: Any = None) -> Layout:  # noqa: ANN401 - layouts, tilers
    """Make a layout of ``function(mode)``, or of ``function(mode of t, mode of u)`` and the longer one's modes.

    Parameters
    ----------
    function : callable
        Gives a Layout.
    t, u : Layout or tuple
        Taken mode by mode. The rest must be layouts.

    Examples
    --------
    >>> print(transform_layout(coalesce, Layout(((2, 3), (4, 5)))))
    (6,20):(1,6)
    """
    if u is None:
        return concat_layouts(tuple(map(function, t)))
    first, second = tuple(t), tuple(u)
    both = min(len(first), len(second))
    return concat_layouts((*map(function, first[:both], second[:both]), *first[both:], *second[both:]))


# ---------------------------------------------------------------------------------------------------------------------
# Coalesce and filter
# ---------------------------------------------------------------------------------------------------------------------


@operation
def coalesce(layout: AnyLayout, profile: IntTuple = None) -> AnyLayout:
    """Merge modes: the same function on integers ``0 <= i < size``, of the fewest modes.

    Parameters
    ----------
    layout : Layout or ComposedLayout
    profile : IntTuple, optional
        Coalesce separately at each of its leaves, keeping its nesting. A shape (integers) coalesces to its size.

    Examples
    --------
    >>> print(coalesce(Layout((2, (1, 6)), (1, (6, 2)))))
    12:1
    >>> print(coalesce(Layout((2, (1, 6)), (1, (6, 2))), (1, 1)))
    (2,6):(1,2)
    """
    if isinstance(layout, Layout):
        if profile.__class__ is tuple:
            return by_mode("coalesce", coalesce, layout, profile, keep=True)
        if layout._shape.__class__ is tuple:
            return raw_layout(*shape_stride.coalesce(layout._shape, layout._stride))
        return raw_layout(1, 0) if layout._shape == 1 else layout
    if isinstance(layout, ComposedLayout):
        return layout.on_domain(coalesce, profile)
    if isinstance(layout, (int, tuple)):
        return product(layout)
    require_layout("coalesce", layout)
    return layout


@operation
def filter(layout: AnyLayout, profile: IntTuple = None) -> AnyLayout:
    """Remove modes of stride 0 and size 1 and coalesce; ``1:0`` if none is left. With `profile`, at its leaves.

    >>> print(filter(Layout((2, 8, 4), (0, 1, 8))))
    32:1
    """
    if isinstance(layout, Layout):
        if isinstance(profile, tuple):
            return by_mode("filter", filter, layout, profile, keep=True)
        return raw_layout(*shape_stride.filter(layout._shape, layout._stride))
    require_layout("filter", layout)
    return layout.on_domain(filter, profile)


@operation
def filter_zeros(x: Any, profile: IntTuple = None) -> Any:  # noqa: ANN401 - IntTuple, Layout or ComposedLayout
    """Replace the extents of stride-0 modes by 1; with `profile`, those at its zeros instead.

    >>> print(filter_zeros(Layout((4, 8), (0, 1))))
    (1,8):(0,1)
    """
    if isinstance(x, ComposedLayout):
        return x.on_domain(filter_zeros, profile)
    shape, guide = (x.shape, x.stride) if isinstance(x, Layout) else (x, x)
    guide = guide if profile is None else profile
    kept = transform_leaf(lambda g, s: repeat_like(s, 1) if g == 0 else s, guide, shape)
    return raw_layout(kept, x.stride) if isinstance(x, Layout) else kept


# ---------------------------------------------------------------------------------------------------------------------
# Composition
# ---------------------------------------------------------------------------------------------------------------------


@operation
def composition(layoutA: AnyLayout, layoutB: Tiler, *, exact: bool = False) -> AnyLayout:
    """Compose two layouts mode by mode, as CuTe: ``c -> layoutA(layoutB(c))`` where no step carries.

    The result is that function on the domain of `layoutB` if two conditions hold. `layoutA` is coalesced here, and its
    last mode has no end.

    1. A step of `layoutB` divides the extent of a mode of `layoutA` from which it goes on into the next mode, and the
       extent of a mode that it steps over divides the step.
    2. For each mode of `layoutA` but the last, what the modes of `layoutB` take in it stays below its extent: the sum
       of (elements taken - 1) * step, and steps have one sign.

    Where the first holds, and steps have one sign, the second is necessary too. CuTe gives a layout where they do not
    hold, and so does this function: ``(6,2):(1,7)`` and ``(3,2):(2,3)`` take 2 * 2 + 1 * 3 = 7 in an extent of 6, so
    ``layoutA(layoutB(5))`` is 8, and the result's value is 7. ``exact=True`` refuses such a result;
    ``ComposedLayout(layoutA, 0, layoutB)`` is the function always.

    Parameters
    ----------
    layoutA : Layout, ComposedLayout or Swizzle
        Applied last. Its last mode goes on beyond its extent, as where a layout is called.
    layoutB : Layout, ComposedLayout, Swizzle, int, None or tuple
        Applied first. An int n is the layout ``n:1``; None, CuTe's ``_``, changes nothing; a tuple composes mode by
        mode and drops the modes that it has no element for.
    exact : bool
        Refuse a result that is not ``c -> layoutA(layoutB(c))``. The conditions above decide it, for layouts of any
        size. Up to 65,536 coordinates are compared where they do not hold and yet the function may be right: at strides
        of 0, steps of both signs, and swizzles in `layoutB` that cannot be seen to keep their bits in order.

    Returns
    -------
    Layout or ComposedLayout
        Compatible with `layoutB`. A swizzle before a layout gives a composed layout; one after a layout moves to its
        left, where its masks become runs of bits again; as CuTe, this trusts the layout to keep each mask's bits in
        order, which `exact` checks.

    Examples
    --------
    >>> print(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)), exact=True))
    ((2,2),3):((24,2),8)
    >>> print(composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), Layout(8, 2))))
    (3,(2,4)):(236,(26,1))

    Raises
    ------
    LayoutError
        If a stride or an extent does not divide as CuTe demands, or a tuple has more elements than `layoutA` modes.
    InexactError
        With `exact`, if the result is not the composition of the functions, or, beyond 65,536 coordinates, not shown to
        be.
    """
    if not isinstance(layoutA, IndexFunction):
        raise TypeError(f"composition: cannot compose {type(layoutA).__name__} with {type(layoutB).__name__}")
    result = layoutA._composed_with(layoutB)
    if exact:
        check_composition("composition", layoutA, layoutB, result)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Complement
# ---------------------------------------------------------------------------------------------------------------------


@operation
def complement(layout: AnyLayout, max_idx: Any = None) -> Layout:  # noqa: ANN401 - int, shape or layout
    """Return the ordered layout of indices that `layout` leaves free below `max_idx`.

    Its indices ascend, and no sum of one of `layout`'s and one of them occurs twice. The sums are all indices below
    `max_idx`, if each stride of `layout` is a multiple of what the smaller strides reach; otherwise some stay free:
    2 and 5 of ``(2,2):(1,3)`` below 6.

    Parameters
    ----------
    layout : Layout, ComposedLayout or int
        Injective but for modes of stride 0, of strides >= 0; of negative strides the result is C++'s, whose extents may
        be negative. An int n is the layout ``n:1``.
    max_idx : int, IntTuple or layout, optional
        The codomain to fill; a tuple shape is ceil-divided mode by mode from the left. Default: the layout's cosize.

    Examples
    --------
    >>> print(complement(Layout(4, 2), 24), complement(Layout((2, 2), (1, 6)), 24))
    (2,3):(1,8) (3,2):(2,12)

    Raises
    ------
    LayoutError
        If a stride is less than the reach of smaller strides: two modes of `layout` overlap, or interleave.
    """
    block = Layout(layout) if isinstance(layout, int) else layout
    require_layout("complement", block)
    return block._complement(max_idx)


# ---------------------------------------------------------------------------------------------------------------------
# Inverses
# ---------------------------------------------------------------------------------------------------------------------


@operation
def right_inverse(layout: AnyLayout) -> AnyLayout:
    """Return a layout R with ``layout(R(i)) == i`` for all ``0 <= i < size(R)``.

    It is the largest, if strides are >= 0 and no index occurs twice but for strides of 0. None, CuTe's ``_``, and an
    int n, the layout ``n:1``, are their own inverses; a swizzle is too.

    >>> print(right_inverse(Layout((4, 8), (8, 1))))
    (8,4):(4,1)

    Raises
    ------
    LayoutError
        If a stride is a scaled basis, or a composed layout's inverse needs a property that its parts lack.
    """
    return _inverse(right_inverse, shape_stride.right_inverse, layout)


@operation
def left_inverse(layout: AnyLayout) -> AnyLayout:
    """Return the quasi-inverse L with ``layout(L(layout(i))) == layout(i)`` on the domain of `layout`.

    `layout` must be injective but for modes of stride 0, and strides >= 0; of others the result is C++'s, and may be no
    inverse. If it is injective, ``L(layout(i)) == i``. L maps indices that `layout` does not reach to anything.

    >>> print(left_inverse(Layout((4, 8), (8, 1))), left_inverse(Layout(4, 2)))
    (8,4):(4,1) (2,4):(0,1)

    Raises
    ------
    LayoutError
        If a stride is not a multiple of the extent that smaller strides fill, or is a scaled basis.
    """
    return _inverse(left_inverse, shape_stride.left_inverse, layout)


def _inverse(inverse: Any, of_pair: Callable[..., shape_stride.Pair], layout: AnyLayout) -> AnyLayout:  # noqa: ANN401
    """Invert a layout with `of_pair`, and other operands of `inverse` by their kind."""
    if isinstance(layout, Layout):
        return by_pair(inverse.__name__, of_pair, layout)
    if isinstance(layout, ComposedLayout):
        return _invert_composed(inverse, layout)
    if isinstance(layout, int):
        return Layout(layout)
    if layout is None or isinstance(layout, Swizzle):
        return layout
    require_layout(inverse.__name__, layout)


def _invert_composed(inverse: Any, layout: ComposedLayout) -> AnyLayout:  # noqa: ANN401 - one of the inverses
    inner, outer = inverse(layout.layoutA), inverse(layout.layoutB)
    if not isinstance(layout.offset, int):
        raise LayoutError(inverse.__name__, (layout,), f"the offset must be an integer, got {layout.offset}")
    if layout.offset == 0 and isinstance(layout.layoutB, Swizzle):
        return inner._composed_with(outer)
    return ComposedLayout(inner, -layout.offset, outer)


# ---------------------------------------------------------------------------------------------------------------------
# Nullspace and distribution
# ---------------------------------------------------------------------------------------------------------------------


@operation
def nullspace(layout: AnyLayout) -> Layout:
    """Return the layout of the coordinates that `layout` maps to 0 because their strides are 0.

    >>> print(nullspace(Layout((2, 4, 8), (1, 0, 2))))
    4:2
    """
    if isinstance(layout, ComposedLayout):
        return raw_layout(1, 0)  # CuTe does not attempt it
    require_layout("nullspace", layout)
    flat_shape = flatten_to_tuple(layout.shape)
    starts = compact_col_major(flat_shape)
    zeros = [i for i, d in enumerate(flatten_to_tuple(layout.stride)) if d == 0]
    if not zeros:
        return raw_layout(1, 0)
    return raw_layout(unwrap(tuple(flat_shape[i] for i in zeros)), unwrap(tuple(starts[i] for i in zeros)))
