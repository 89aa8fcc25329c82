"""The layout algebra: coalesce, filter, composition, complement and the inverses.

Every function takes layouts as functions on integers and returns a layout whose values its docstring states. Composed
layouts are served by what CuTe defines for them, mostly the same operation on their domain.

References
----------
CuTe ``layout.hpp``, ``layout_composed.hpp`` and ``swizzle_layout.hpp``, whose results these functions equal mode for
mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from .basis import ScaledBasis, basis_get, has_basis
from .composed import ComposedLayout, compose
from .coordinates import compact_col_major
from .errors import LayoutError, operation
from .int_tuple import IntTuple, ceil_div, flatten_modes, flatten_to_tuple, product, shape_of, truncated_div, unwrap
from .layout import Layout, LayoutBase, concat_layouts, raw_layout
from .modes import coprofile, filter_zeros
from .swizzle import Swizzle, make_swizzle

# A Layout, ComposedLayout or Swizzle; or what tiles a layout: a Layout, an int, None (CuTe's _) or a tuple of tilers.
AnyLayout = Any
Tiler = Any


def require_layout(name: str, x: object) -> None:
    """Raise the TypeError of public function `name` for an operand that is no layout."""
    if not isinstance(x, LayoutBase):
        raise TypeError(f"{name}: a layout is required, got {x!r} of type {type(x).__name__}")


def by_mode(name: str, function: Any, layout: Layout, tilers: tuple[Any, ...], *, keep: bool) -> Layout:  # noqa: ANN401
    """Apply `function(mode, tiler)` mode by mode; modes beyond the tilers are kept or dropped."""
    modes = list(layout)
    if len(tilers) > len(modes):
        raise LayoutError(name, (layout, tilers), f"too many modes: rank must be <= {len(modes)}, got {len(tilers)}")
    done = [function(mode, tiler) for mode, tiler in zip(modes, tilers, strict=False)]
    return concat_layouts(tuple(done + modes[len(tilers) :] if keep else done))


@operation
def transform_layout(function: Callable[..., Layout], t: Any, u: Any = None) -> Layout:  # noqa: ANN401 - layouts, tilers
    """Make a layout of ``function(mode)``, or of ``function(mode of t, mode of u)`` and the modes that one has more.

    Parameters
    ----------
    function : callable
        Gives a Layout.
    t, u : Layout or tuple
        Taken mode by mode. What is left over must be layouts.

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
            return raw_layout(*_merge(*flatten_modes(layout._shape, layout._stride)))
        return raw_layout(1, 0) if layout._shape == 1 else layout
    if isinstance(layout, ComposedLayout):
        return layout.on_domain(coalesce, profile)
    if isinstance(layout, (int, tuple)):
        return product(layout)
    require_layout("coalesce", layout)
    return layout


# The functions below work on flat shapes and strides and give (shape, stride) pairs, so that only results are made
# into layouts.
Pair = tuple[IntTuple, IntTuple]


def _coalesce(shape: IntTuple, stride: IntTuple) -> Pair:
    if shape.__class__ is not tuple:
        return (1, 0) if shape == 1 else (shape, stride)
    return _merge(*flatten_modes(shape, stride))


def _merge(shapes: Sequence[Any], strides: Sequence[Any]) -> Pair:
    """Drop modes of size 1 and merge neighbours that continue one another."""
    new_shapes: list[Any] = []
    new_strides: list[Any] = []
    follow: Any = None  # the stride with which a mode would continue the last one
    for s, d in zip(shapes, strides):  # noqa: B905 - hot; lengths are equal
        if s == 1:
            continue
        if d == follow:
            new_shapes[-1] *= s
        else:
            new_shapes.append(s)
            new_strides.append(d)
        follow = s * d
    if len(new_shapes) > 1:
        return tuple(new_shapes), tuple(new_strides)
    return (new_shapes[0], new_strides[0]) if new_shapes else (1, 0)


def _coalesce_unbounded(shape: IntTuple, stride: IntTuple) -> Pair:
    """Coalesce keeping the function also beyond the domain, where the last mode goes on."""
    if shape.__class__ is not tuple:
        return (shape, stride) if shape != 1 else (2, stride)
    shapes, strides = flatten_modes(shape, stride)
    if shapes and shapes[-1] == 1:
        shapes = (*shapes[:-1], 2)  # any extent but 1, so that the last stride survives
    return _merge(shapes, strides)


def _coalesce_by_profile(layout: Layout, profile: IntTuple) -> Layout:
    """Coalesce unboundedly at each leaf of `profile`: what composition with scaled bases needs."""
    if isinstance(profile, tuple):
        return by_mode("composition", _coalesce_by_profile, layout, profile, keep=True)
    return raw_layout(*_coalesce_unbounded(layout._shape, layout._stride))


@operation
def filter(layout: AnyLayout, profile: IntTuple = None) -> AnyLayout:
    """Remove modes of stride 0 and size 1 and coalesce; ``1:0`` if none is left. With `profile`, at its leaves.

    >>> print(filter(Layout((2, 8, 4), (0, 1, 8))))
    32:1
    """
    if isinstance(layout, Layout):
        if isinstance(profile, tuple):
            return by_mode("filter", filter, layout, profile, keep=True)
        return raw_layout(*_filter(layout._shape, layout._stride))
    require_layout("filter", layout)
    return layout.on_domain(filter, profile)


def _filter(shape: IntTuple, stride: IntTuple) -> Pair:
    if shape.__class__ is not tuple:
        return (1, 0) if shape == 1 or stride == 0 else (shape, stride)
    shapes, strides = flatten_modes(shape, stride)
    if 0 in strides:
        shapes = tuple([s if d != 0 else 1 for s, d in zip(shapes, strides)])  # noqa: B905 - hot
    return _merge(shapes, strides)


# ---------------------------------------------------------------------------------------------------------------------
# Composition
# ---------------------------------------------------------------------------------------------------------------------


@operation
def composition(layoutA: AnyLayout, layoutB: Tiler) -> AnyLayout:
    """Compose two functions: ``c -> layoutA(layoutB(c))`` on the domain of `layoutB`.

    Parameters
    ----------
    layoutA : Layout, ComposedLayout or Swizzle
        Applied last.
    layoutB : Layout, ComposedLayout, Swizzle, int, None or tuple
        Applied first. An int n is the layout ``n:1``; None, CuTe's ``_``, changes nothing; a tuple composes mode by
        mode and drops the modes that it has no element for.

    Returns
    -------
    Layout or ComposedLayout
        Compatible with `layoutB`. A swizzle before a layout gives a composed layout; one after a layout moves to its
        left, where its masks become runs of bits again; as CuTe, this trusts the layout to keep each mask's bits in
        order.

    Examples
    --------
    >>> print(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    ((2,2),3):((24,2),8)
    >>> print(composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), Layout(8, 2))))
    (3,(2,4)):(236,(26,1))

    Raises
    ------
    LayoutError
        If strides or shapes do not divide as they must, or a tuple has more elements than `layoutA` modes.
    """
    return _composition(layoutA, layoutB)


def _composition(a: AnyLayout, b: Tiler) -> AnyLayout:
    if isinstance(a, Layout):
        if isinstance(b, Layout):
            return compose_layouts(a, b)
        if b is None:
            return a
        if isinstance(b, tuple):
            return by_mode("composition", _composition, a, b, keep=False)
        if isinstance(b, Swizzle):
            return _composition(make_swizzle(a(b.yyy_msk), a(b.zzz_msk)), a)
        if isinstance(b, ComposedLayout):
            if b.offset != 0:
                raise LayoutError("composition", (a, b), f"the offset of the right operand must be 0, got {b.offset}")
            return _composition(_composition(a, b.layoutB), b.layoutA)
        if isinstance(b, int):
            return compose_layouts(a, raw_layout(b, 1))
    elif isinstance(a, ComposedLayout):
        return compose(a.layoutB, a.offset, _composition(a.layoutA, b))
    elif isinstance(a, Swizzle):
        if isinstance(b, Layout):
            return compose(a, 0, b)
        if isinstance(b, Swizzle):
            if a.shift != b.shift:
                raise LayoutError("composition", (a, b), f"swizzles must have one shift, got {a.shift} and {b.shift}")
            return make_swizzle(a.yyy_msk ^ b.yyy_msk, a.zzz_msk ^ b.zzz_msk)
        if isinstance(b, ComposedLayout):
            return ComposedLayout(a, 0, b)
    raise TypeError(f"composition: cannot compose {type(a).__name__} with {type(b).__name__}")


def compose_layouts(a: Layout, b: Layout) -> Layout:
    """Compose two plain layouts."""
    shape, stride = b._shape, b._stride
    if has_basis(stride):
        flat = _coalesce_by_profile(a, coprofile(b))
        return raw_layout(*_compose_modes(a, flat._shape, flat._stride, shape, stride))
    shapes, strides = _coalesce_unbounded(a._shape, a._stride)
    return raw_layout(*_compose_modes(a, shapes, strides, shape, stride))


def _compose_modes(a: Layout, shapes: IntTuple, strides: IntTuple, shape: IntTuple, stride: IntTuple) -> Pair:
    """Compose coalesced modes ``shapes:strides`` with each leaf of ``shape:stride``."""
    if shape.__class__ is not tuple:
        return _compose_leaf(a, shapes, strides, shape, stride)
    if not shape:
        raise LayoutError("composition", (a, raw_layout(shape, stride)), "the right operand must have a mode")
    new_shapes, new_strides = [], []
    for s, d in zip(shape, stride):  # noqa: B905 - hot; a layout is congruent
        compose_mode = _compose_modes if s.__class__ is tuple else _compose_leaf
        new_shape, new_stride = compose_mode(a, shapes, strides, s, d)
        new_shapes.append(new_shape)
        new_strides.append(new_stride)
    return tuple(new_shapes), tuple(new_strides)


def _compose_leaf(a: Layout, shapes: IntTuple, strides: IntTuple, shape: int, stride: Any) -> Pair:  # noqa: ANN401
    """Walk the modes of the left operand with one integer mode: divide its stride out, then its shape."""
    if stride.__class__ is ScaledBasis:
        shapes, strides = basis_get(stride, shapes), basis_get(stride, strides)
        stride = stride.value
    if stride == 0:
        return shape, 0
    if shapes.__class__ is not tuple:
        return shape, stride * strides
    new_shapes: list[int] = []
    new_strides: list[Any] = []
    rest, step = shape, stride
    for mode in range(len(shapes) - 1):
        extent = shapes[mode]
        if step >= extent:
            if extent == 0 or step % extent:
                raise _stride_error(a, shape, stride, mode, extent, step)
            if extent > 0:
                step //= extent
                continue
        magnitude = step if step > 0 else -step
        if extent > 0:
            reach = -(-extent // magnitude)  # how many steps fit into this mode
            left = -(-magnitude // extent)
        else:  # complements of negative strides have such extents; CuTe divides them like any other
            reach, left = ceil_div(extent, magnitude), ceil_div(magnitude, extent)
        if reach != 1 and rest != 1:
            taken = reach if reach < rest else rest
            if taken == 0 or rest % taken:
                raise _shape_error(a, shape, stride, mode, extent, step, rest, reach)
            new_shapes.append(taken)
            new_strides.append(step * strides[mode])
            rest //= taken
        step = left if step > 0 else -left
    if not new_shapes:
        return rest, step * strides[-1]
    if rest != 1:
        new_shapes.append(rest)
        new_strides.append(step * strides[-1])
    if len(new_shapes) == 1:
        return new_shapes[0], new_strides[0]
    return tuple(new_shapes), tuple(new_strides)


def _stride_error(a: Layout, shape: int, stride: int, mode: int, extent: int, step: int) -> LayoutError:
    condition = (
        f"stride divisibility: the step of {step} that the right operand takes at mode {mode} of the left operand "
        f"must divide by, or be smaller than, its shape {extent}"
    )
    return LayoutError("composition", (a, raw_layout(shape, stride)), condition)


def _shape_error(
    a: Layout, shape: int, stride: int, mode: int, extent: int, step: int, rest: int, reach: int
) -> LayoutError:
    condition = (
        f"shape divisibility: the {rest} elements left of the right operand must be a multiple of the {reach} "
        f"that mode {mode} of the left operand (shape {extent}) takes at step {step}"
    )
    return LayoutError("composition", (a, raw_layout(shape, stride)), condition)


# ---------------------------------------------------------------------------------------------------------------------
# Complement
# ---------------------------------------------------------------------------------------------------------------------


@operation
def complement(layout: AnyLayout, max_idx: Any = None) -> Layout:  # noqa: ANN401 - int, shape or layout
    """Return the layout of the indices that `layout` leaves free below `max_idx`.

    Its indices are disjoint from `layout`'s (but for 0), ordered, and together the two reach `max_idx`.

    Parameters
    ----------
    layout : Layout, ComposedLayout or int
        Injective but for modes of stride 0. An int n is the layout ``n:1``.
    max_idx : int, IntTuple or layout, optional
        The codomain to fill; a tuple shape is ceil-divided mode by mode from the left. Default: the layout's cosize.

    Examples
    --------
    >>> print(complement(Layout(4, 2), 24), complement(Layout((2, 2), (1, 6)), 24))
    (2,3):(1,8) (3,2):(2,12)

    Raises
    ------
    LayoutError
        If two modes of `layout` overlap.
    """
    if isinstance(layout, ComposedLayout):
        return complement(layout.layoutA, layout.cosize() if max_idx is None else max_idx)
    block = Layout(layout) if isinstance(layout, int) else layout
    require_layout("complement", block)
    return complement_layout(block, None if max_idx is None else shape_of(max_idx))


def complement_layout(layout: Layout, cotarget: IntTuple | None) -> Layout:
    """Complement of a plain layout in a shape; None stands for its own cosize."""
    shape, stride = _filter(layout._shape, layout._stride)
    if has_basis(stride):
        raise LayoutError("complement", (layout, cotarget), "strides must be integers, not scaled bases")
    if cotarget is None:
        cotarget = raw_layout(shape, stride).cosize()
    if stride == 0:
        return raw_layout(*_coalesce(product(cotarget), 1))
    if stride.__class__ is int:
        pairs = [(stride, shape)]
    else:
        # of equal strides the first comes first, as in CuTe
        pairs = sorted(zip(stride, shape), key=_first)  # noqa: B905 - hot; lengths are equal
    new_shapes: list[int] = []
    new_strides: list[int] = []
    reached = 1
    for d, s in pairs:
        gap = d // reached if d > 0 < reached else truncated_div(d, reached)
        if gap == 0:
            raise LayoutError(
                "complement",
                (layout, cotarget),
                f"layout must be injective: stride {d} falls below {reached}, which smaller strides already reach",
            )
        new_shapes.append(gap)
        new_strides.append(reached)
        reached = d * s
    left = (
        -(-cotarget // reached) if cotarget.__class__ is int and reached > 0 else product(ceil_div(cotarget, reached))
    )
    new_shapes.append(left)
    new_strides.append(reached)
    return raw_layout(*_merge(new_shapes, new_strides))


_first = itemgetter(0)


# ---------------------------------------------------------------------------------------------------------------------
# Inverses
# ---------------------------------------------------------------------------------------------------------------------


def _sorted_modes(name: str, layout: Layout) -> tuple[tuple[Any, ...], tuple[Any, ...], list[int], Sequence[int]]:
    """Coalesced shapes and strides, their prefix products, and the order of the modes by stride."""
    shape, stride = _coalesce(layout._shape, layout._stride)
    if has_basis(stride):
        raise LayoutError(name, (layout,), "strides must be integers, not scaled bases")
    if shape.__class__ is int:
        return (shape,), (stride,), [1], (0,)
    prefix, total = [], 1
    for s in shape:
        prefix.append(total)
        total *= s
    order = list(range(len(stride)))
    if len(set(stride)) == len(order):
        order.sort(key=stride.__getitem__)
        return shape, stride, prefix, order
    for i in range(len(order)):  # CuTe's exchange sort, which does not keep the order of equal strides
        for j in range(i + 1, len(order)):
            if stride[order[j]] < stride[order[i]]:
                order[i], order[j] = order[j], order[i]
    return shape, stride, prefix, order


@operation
def right_inverse(layout: AnyLayout) -> AnyLayout:
    """Return the largest layout R with ``layout(R(i)) == i`` for all ``0 <= i < size(R)``.

    None, CuTe's ``_``, and an int n, the layout ``n:1``, are their own inverses; a swizzle is too.

    >>> print(right_inverse(Layout((4, 8), (8, 1))))
    (8,4):(4,1)

    Raises
    ------
    LayoutError
        If a stride is a scaled basis, or a composed layout's inverse needs what its parts lack.
    """
    return _inverse(right_inverse, _right_inverse, layout)


def _right_inverse(layout: Layout) -> Layout:
    shapes, strides, prefix, order = _sorted_modes("right_inverse", layout)
    new_shapes: list[int] = []
    new_strides: list[int] = []
    reached = 1
    for mode in order:
        if strides[mode] == reached:
            new_shapes.append(shapes[mode])
            new_strides.append(prefix[mode])
            reached = shapes[mode] * strides[mode]
    return raw_layout(*_merge(new_shapes, new_strides))


@operation
def left_inverse(layout: AnyLayout) -> AnyLayout:
    """Return the quasi-inverse L with ``layout(L(layout(i))) == layout(i)`` on the domain of `layout`.

    For an injective layout ``L(layout(i)) == i``. Indices that `layout` does not reach map to whatever fills the gap.

    >>> print(left_inverse(Layout((4, 8), (8, 1))), left_inverse(Layout(4, 2)))
    (8,4):(4,1) (2,4):(0,1)

    Raises
    ------
    LayoutError
        If a stride is not a multiple of what smaller strides fill, or is a scaled basis.
    """
    return _inverse(left_inverse, _left_inverse, layout)


def _left_inverse(layout: Layout) -> Layout:
    shapes, strides, prefix, order = _sorted_modes("left_inverse", layout)
    new_shapes: list[int] = []
    new_strides: list[int] = [0]
    filled = 1
    for mode in order:
        stride = strides[mode]
        if stride == 0:
            continue
        if stride % filled:
            raise LayoutError(
                "left_inverse", (layout,), f"stride divisibility: stride {stride} must be a multiple of {filled}"
            )
        gap = truncated_div(stride, filled)
        new_shapes.append(gap)
        new_strides.append(prefix[mode])
        filled *= gap
    return raw_layout(*_merge((*new_shapes, shapes[order[-1]]), new_strides))


def _inverse(inverse: Any, of_layout: Callable[[Layout], Layout], layout: AnyLayout) -> AnyLayout:  # noqa: ANN401
    """Invert a layout by `of_layout`, and what else `inverse` takes by what it is."""
    if isinstance(layout, ComposedLayout):
        return _invert_composed(inverse, layout)
    if layout is None or isinstance(layout, Swizzle):
        return layout
    if isinstance(layout, int):
        return Layout(layout)
    require_layout(inverse.__name__, layout)
    return of_layout(layout)


def _invert_composed(inverse: Any, layout: ComposedLayout) -> AnyLayout:  # noqa: ANN401 - one of the inverses
    inner, outer = inverse(layout.layoutA), inverse(layout.layoutB)
    if not isinstance(layout.offset, int):
        raise LayoutError(inverse.__name__, (layout,), f"the offset must be an integer, got {layout.offset}")
    if layout.offset == 0 and isinstance(layout.layoutB, Swizzle):
        return _composition(inner, outer)
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


__all__ = [
    "coalesce",
    "complement",
    "composition",
    "filter",
    "filter_zeros",
    "left_inverse",
    "nullspace",
    "right_inverse",
]
