"""Operations on modes: what CuTe offers alike for IntTuples, layouts and composed layouts.

A layout is treated as a tuple of (shape, stride) pairs; a composed layout by its domain, under the same offset and
outer function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from .basis import add_coordinates, as_coordinate, has_basis
from .composed import ComposedLayout, slice_composed
from .coordinates import crd2idx, dice_tuple, slice_tuple
from .errors import LayoutError, operation
from .int_tuple import (
    IntTuple,
    flatten_to_tuple,
    product,
    repeat_like,
    replace_at,
    shape_of,
    transform_leaf,
    tuple_depth,
    tuple_get,
    tuple_rank,
    unflatten as unflatten_tuple,
    wrap,
)
from .layout import Layout, LayoutBase, raw_layout
from .swizzle import Swizzle

# What these functions take and give: an IntTuple, a Layout or a ComposedLayout.
Modes = Any

_MISSING: Any = object()


def _map(function: Callable[..., IntTuple], x: Modes, *args: object) -> Modes:
    """Apply a function on tuples to `x`: to shape and stride of a layout, to the domain of a composed layout."""
    if isinstance(x, Layout):
        return raw_layout(function(x.shape, *args), function(x.stride, *args))
    if isinstance(x, ComposedLayout):
        return x.on_domain(lambda inner: _map(function, inner, *args))
    return function(x, *args)


def _shape(x: Modes) -> IntTuple:
    return x.shape if isinstance(x, LayoutBase) else x


@operation
def rank(x: Modes, *path: int) -> int:
    """Return the number of modes of `x`, or of its mode at `path`: 1 for an integer.

    >>> rank((4, (2, 8))), rank((4, (2, 8)), 1), rank(5)
    (2, 2, 1)
    """
    return tuple_rank(tuple_get(_shape(x), *path))


@operation
def depth(x: Modes, *path: int) -> int:
    """Return the levels of nesting of `x`, or of its mode at `path`: 0 for an integer.

    >>> depth((4, (2, 8))), depth(Layout(4))
    (2, 0)
    """
    return tuple_depth(tuple_get(_shape(x), *path))


@operation
def shape(x: Modes, *path: int) -> IntTuple:
    """Return the shape of `x` (an IntTuple is its own), or of its mode at `path`.

    >>> shape(Layout((4, (2, 8))), 1)
    (2, 8)
    """
    return tuple_get(shape_of(x), *path)


@operation
def stride(x: Layout, *path: int) -> IntTuple:
    """Return the stride of a Layout, or of its mode at `path`. A composed layout has none.

    >>> stride(Layout((4, (2, 8)), (2, (1, 8))), 1)
    (1, 8)
    """
    if not isinstance(x, Layout):
        raise LayoutError("stride", (x, *path), "only a plain Layout has strides")
    return tuple_get(x.stride, *path)


@operation
def size(layout: Any, *path: int) -> int:  # noqa: ANN401 - IntTuple, layout or swizzle
    """Return the number of elements of `layout`, or of its mode at `path`.

    >>> size((4, (2, 8))), size(Layout((4, 8)), 1)
    (64, 8)
    """
    if path:
        return product(tuple_get(_shape(layout), *path))
    if isinstance(layout, (int, tuple)):
        return product(layout)
    if isinstance(layout, (LayoutBase, Swizzle)):
        return layout.size()
    raise TypeError(f"size: a shape, a layout or a swizzle is required, got {layout!r}")


@operation
def coshape(x: Modes, *path: int) -> IntTuple:
    """Return the extents of the codomain of a layout, or of its mode at `path`.

    >>> coshape(Layout((4, 8), (8, 1)))
    32
    """
    inner = get(x, *path)
    while isinstance(inner, ComposedLayout):
        inner = inner.layoutA
    return inner.coshape()


@operation
def cosize(layout: Modes, *path: int) -> int:
    """Return the size of the codomain: the largest index plus one, strides taken by magnitude.

    >>> cosize(Layout((8, 8, 2), (256, 4, 1)))
    1822
    """
    if not isinstance(layout, (LayoutBase, Swizzle)):
        raise TypeError(f"cosize: a layout or a swizzle is required, got {layout!r}")
    return product(coshape(layout, *path)) if path else layout.cosize()


@operation
def coprofile(x: Layout) -> IntTuple:
    """Return the profile of the codomain, as zeros: 0 for integer strides, a tuple for scaled bases.

    >>> from cutepy.layouts import make_identity_layout
    >>> coprofile(Layout((4, 8))), coprofile(make_identity_layout((4, 8)))
    (0, (0, 0))
    """
    if not has_basis(x.stride):
        return 0
    total = reduce(add_coordinates, map(abs, flatten_to_tuple(x.stride)))
    return repeat_like(as_coordinate(total), 0)


@operation
def get(x: Modes, *path: int) -> Modes:
    """Return the mode at `path`: ``get(x, 1, 0)`` is mode 0 of mode 1.

    >>> print(get(Layout((4, (2, 8)), (2, (1, 8))), 1, 0))
    2:1
    """
    return _map(tuple_get, x, *path) if path else x


@operation
def flatten(t: Modes) -> Modes:
    """Remove all nesting; an integer, or a layout of integer shape, stays as it is.

    >>> flatten((4, (2, 8))), flatten(4)
    ((4, 2, 8), 4)
    """
    if t.__class__ is tuple:
        return flatten_to_tuple(t)
    if t.__class__ is Layout:
        shape, stride = t._shape, t._stride
        flat = flatten_to_tuple(shape) if shape.__class__ is tuple else shape
        return t if flat is shape else raw_layout(flat, flatten_to_tuple(stride))
    return _map(flatten, t) if isinstance(t, LayoutBase) else t


@operation
def unflatten(x: Modes, profile: IntTuple) -> Modes:
    """Give the flat `x` the nesting of `profile`.

    >>> unflatten((4, 2, 8), (0, (0, 0)))
    (4, (2, 8))
    """
    return _map(unflatten_tuple, x, profile)


@operation
def take(x: Modes, begin: int, end: int) -> Modes:
    """Return modes `begin` to `end` (exclusive; -1 means all, for tuples).

    >>> take((4, 2, 8), 1, 3)
    (2, 8)
    """
    n = tuple_rank(_shape(x))
    stop = n if end == -1 and not isinstance(x, LayoutBase) else end
    if not 0 <= begin <= stop <= n or (begin == stop and isinstance(x, LayoutBase)):
        raise LayoutError("take", (x, begin, end), f"need 0 <= begin < end <= rank {n}, got {begin} and {end}")
    return _map(lambda t: wrap(t)[begin:stop], x)


@operation
def select(x: Modes, indices: tuple[int, ...] | int, *more: int) -> Modes:
    """Return the modes with the given indices, in that order.

    >>> print(select(Layout((4, 2, 8), (2, 1, 8)), (2, 0)))
    (8,4):(8,2)
    """
    chosen = (*wrap(indices), *more)
    return _map(lambda t: tuple(tuple_get(t, i) for i in chosen), x)


@operation
def group(x: Modes, begin: int, end: int) -> Modes:
    """Nest modes `begin` to `end` (exclusive; -1 means all) into one mode.

    >>> group((4, 2, 8, 3), 1, 3)
    (4, (2, 8), 3)
    """
    n = tuple_rank(_shape(x))
    stop = n if end == -1 else end
    if not 0 <= begin <= stop <= n:
        raise LayoutError("group", (x, begin, end), f"need 0 <= begin <= end <= rank {n}, got {begin} and {end}")
    if begin == stop:
        return _map(wrap, x)
    return _map(lambda t: (*wrap(t)[:begin], wrap(t)[begin:stop], *wrap(t)[stop:]), x)


@operation
def append(x: Modes, n_or_elem: Modes = _MISSING, elem: Modes = _MISSING) -> Modes:
    """Add a mode at the end: ``append(x, elem)``; or modes up to rank n: ``append(x, n, elem)``.

    For layouts `elem` is a layout, by default ``1:0``, and ``append(layout, n)`` pads to rank n.

    >>> print(append(Layout(8), Layout(4, 2)), append(Layout(8), 3), append((4, 8), 2))
    (8,4):(1,2) (8,1,1):(1,0,0) (4, 8, 2)
    """
    return _extend("append", x, n_or_elem, elem, at_end=True)


@operation
def prepend(x: Modes, n_or_elem: Modes = _MISSING, elem: Modes = _MISSING) -> Modes:
    """Add a mode in front: ``prepend(x, elem)``; or modes up to rank n: ``prepend(x, n, elem)``.

    >>> print(prepend(Layout(8), Layout(4, 2)), prepend(Layout(5, 8), 2))
    (4,8):(2,1) (1,5):(0,8)
    """
    return _extend("prepend", x, n_or_elem, elem, at_end=False)


def _extend(name: str, x: Modes, n: Modes, elem: Modes, *, at_end: bool) -> Modes:
    operands = (x, *(o for o in (n, elem) if o is not _MISSING))
    if isinstance(x, ComposedLayout):
        return x.on_domain(lambda inner: _extend(name, inner, n, elem, at_end=at_end))
    is_layout = isinstance(x, Layout)
    if elem is _MISSING and not (is_layout and n.__class__ is int):
        n, elem = None, n
    if elem is _MISSING:
        if not is_layout:
            raise LayoutError(name, operands, "an element to add is required")
        elem = raw_layout(1, 0)
    if is_layout != isinstance(elem, Layout):
        raise TypeError(f"{name}: the element must be a {'Layout' if is_layout else 'IntTuple'}, got {elem!r}")
    rank_x = tuple_rank(_shape(x))
    count = 1 if n is None else n - rank_x
    if count < 0:
        raise LayoutError(name, operands, f"target rank must be >= rank {rank_x}, got {n}")

    def extend(t: IntTuple, e: IntTuple) -> IntTuple:
        if not count:
            return t
        return wrap(t) + (e,) * count if at_end else (e,) * count + wrap(t)

    if is_layout:
        return raw_layout(extend(x.shape, elem.shape), extend(x.stride, elem.stride))
    return extend(x, elem)


@operation
def replace(x: Modes, n: int, elem: Modes) -> Modes:
    """Return `x` with mode `n` replaced by `elem`.

    >>> print(replace(Layout((4, 8)), 1, Layout(2, 64)))
    (4,2):(1,64)
    """
    if isinstance(x, LayoutBase) or isinstance(elem, LayoutBase):
        if not (isinstance(x, Layout) and isinstance(elem, Layout)):
            raise TypeError(f"replace: a mode of a Layout is replaced by a Layout, got {x!r} and {elem!r}")
        return raw_layout(replace_at(x.shape, n, elem.shape), replace_at(x.stride, n, elem.stride))
    return replace_at(x, n, elem)


@operation
def zip_modes(a: Modes, b: Modes = _MISSING) -> Modes:
    """Transpose the two outer levels of nesting: ``((a,b),(x,y))`` becomes ``((a,x),(b,y))``; CuTe's ``zip``.

    >>> zip_modes(((1, 2), (3, 4)))
    ((1, 3), (2, 4))
    """
    if b is _MISSING:
        return _map(_zip, a)
    if isinstance(a, Layout):
        return raw_layout(_zip((a.shape, b.shape)), _zip((a.stride, b.stride)))
    return _zip((a, b))


def _zip(t: IntTuple) -> IntTuple:
    if not isinstance(t, tuple) or not t:
        return t
    if not isinstance(t[0], tuple):
        return (t,)
    if any(tuple_rank(mode) != len(t[0]) or not isinstance(mode, tuple) for mode in t):
        raise LayoutError("zip", (t,), f"all modes must have rank {len(t[0])}")
    return tuple(zip(*t, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Slicing
# ---------------------------------------------------------------------------------------------------------------------


@operation
def slice_(crd: IntTuple, trg: Modes) -> Modes:
    """Keep the modes of `trg` that stand where `crd` has None, CuTe's ``_``.

    Under a swizzle the result is a plain layout with signed strides where that is possible.

    >>> print(slice_((2, None), Layout((4, 8))), slice_((None, (0, None)), (4, (2, 8))))
    (8):(4) (4, 8)
    """
    if isinstance(trg, ComposedLayout):
        return slice_composed(crd, trg)[0]
    return _map(lambda t: slice_tuple(crd, t), trg)


@operation
def slice_and_offset(crd: IntTuple, layout: Modes) -> tuple[Modes, Any]:
    """Slice a layout: the layout of the kept modes and the offset of the fixed ones.

    >>> kept, offset = slice_and_offset((2, None), Layout((4, 8)))
    >>> print(kept, offset)
    (8):(4) 2
    """
    if isinstance(layout, ComposedLayout):
        return slice_composed(crd, layout)
    shape, stride = layout.shape, layout.stride
    return raw_layout(slice_tuple(crd, shape), slice_tuple(crd, stride)), crd2idx(crd, shape, stride)


@operation
def dice(crd: IntTuple, trg: Modes) -> Modes:
    """Keep the modes of `trg` that stand where `crd` has integers.

    >>> dice((2, None), (4, 8))
    (4,)
    """
    return _map(lambda t: dice_tuple(crd, t), trg)


@operation
def filter_zeros(x: Modes, profile: IntTuple = _MISSING) -> Modes:
    """Give modes of stride 0 size 1; with `profile`, those at its zeros instead.

    >>> print(filter_zeros(Layout((4, 8), (0, 1))))
    (1,8):(0,1)
    """
    if isinstance(x, ComposedLayout):
        return x.on_domain(filter_zeros, *(() if profile is _MISSING else (profile,)))
    guide = profile if profile is not _MISSING else (x.stride if isinstance(x, Layout) else x)
    kept = transform_leaf(lambda g, s: repeat_like(s, 1) if g == 0 else s, guide, _shape(x))
    return raw_layout(kept, x.stride) if isinstance(x, Layout) else kept
