"""Vectorisation of layouts: common vectors, alignments, and tiles of any elements.

References
----------
CuTe ``layout.hpp`` and ``swizzle_layout.hpp``.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from .algebra import coalesce, right_inverse
from .composed import ComposedLayout, SmemPtr, Swizzle
from .coordinates import compact_col_major
from .errors import LayoutError, operation
from .int_tuple import IntTuple, check_extents, flatten_to_tuple, shape_of, wrap
from .layout import Layout, compose_layouts, raw_layout
from .modes import require_layout
from .tiling import logical_divide

AnyLayout = Any


@operation
def max_common_layout(a: AnyLayout, b: AnyLayout) -> Layout:
    """Return the layout R of the most contiguous elements in which `a` and `b` agree: ``a(R(i)) == b(R(i)) == i``.

    Both are injective but for strides of 0. Extents and strides that composition cannot divide are a LayoutError.

    >>> print(max_common_layout(Layout((4, 8), (8, 1)), Layout((4, 8), (16, 1))))
    8:4
    """
    if isinstance(b, ComposedLayout) and not isinstance(a, ComposedLayout):
        return max_common_layout(b, a)
    if isinstance(a, ComposedLayout):
        vector = 1 << _swizzle(a, "max_common_layout").base
        common = max_common_layout(a.layoutA, b)
        return compose_layouts(common, raw_layout(vector, 1)) if vector < common.size() else common
    require_layout("max_common_layout", a)
    require_layout("max_common_layout", b)
    inverse = right_inverse(b)
    common = coalesce(compose_layouts(a, inverse))
    if wrap(common.stride)[0] != 1:
        return raw_layout(1, 0)
    return compose_layouts(inverse, common[0])


@operation
def max_common_vector(a: AnyLayout, b: AnyLayout) -> int:
    """Return the number of contiguous elements in which `a` and `b` agree, at least 1.

    >>> max_common_vector(Layout((4, 8), (8, 1)), Layout((4, 8), (16, 1)))
    8
    """
    if isinstance(b, ComposedLayout) and not isinstance(a, ComposedLayout):
        return max_common_vector(b, a)
    if isinstance(a, ComposedLayout):
        swizzled = [x for x in (a, b) if isinstance(x, ComposedLayout)]
        inner = max_common_vector(*(x.layoutA if isinstance(x, ComposedLayout) else x for x in (a, b)))
        swizzles = [_swizzle(x, "max_common_vector") for x in swizzled]
        if len(swizzles) == 2 and swizzles[0] == swizzles[1]:
            return inner
        return min(inner, *(1 << swizzle.base for swizzle in swizzles))
    require_layout("max_common_vector", a)
    require_layout("max_common_vector", b)
    common = coalesce(compose_layouts(a, right_inverse(b)))
    return int(wrap(common.shape)[0]) if wrap(common.stride)[0] == 1 else 1


@operation
def max_alignment(layout: AnyLayout) -> int:
    """Return the largest n such that the indices of `layout` are whole runs of n, each at a multiple of n.

    So an aligned vector of n elements holds elements of `layout` only, or none. `layout` must be injective; of one that
    overlaps itself the result is C++'s, and may be too small.

    >>> max_alignment(Layout((8, 4), (4, 1))), max_alignment(Swizzle(3, 3, 3))
    (32, 8)
    """
    if isinstance(layout, Swizzle):
        return 1 << layout.base
    if isinstance(layout, int):
        return layout
    if isinstance(layout, ComposedLayout):
        if not isinstance(layout.layoutB, Swizzle):
            return 1  # CuTe does not attempt it
        offset = 0 if isinstance(layout.offset, SmemPtr) else layout.offset
        return gcd(max_alignment(layout.layoutB), max_alignment(offset), max_alignment(layout.layoutA))
    require_layout("max_alignment", layout)
    flat = coalesce(layout)
    permuted = logical_divide(flat, right_inverse(flat))
    return gcd(permuted[0].size(), *flatten_to_tuple(permuted.stride[1]))


@operation
def domain_distribute(a: Any, b: int) -> Layout:  # noqa: ANN401 - shape or layout
    """Return a tile of up to `b` elements of shape `a` that divides it, taken from the left modes first.

    >>> print(domain_distribute((15, 14), 6))
    (3,2):(1,15)
    """
    if isinstance(b, bool) or not isinstance(b, int) or b < 1:
        raise LayoutError("domain_distribute", (a, b), f"the number of elements must be an int >= 1, got {b!r}")
    extents = flatten_to_tuple(shape_of(a))
    check_extents("domain_distribute", (a, b), extents)
    taken, rest = [], b
    for extent in extents:
        taken.append(gcd(extent, rest))
        rest //= taken[-1]
    starts: IntTuple = compact_col_major(extents)
    return coalesce(raw_layout(tuple(taken), starts))  # type: ignore[no-any-return]


def _swizzle(layout: ComposedLayout, name: str) -> Swizzle:
    if not isinstance(layout.layoutB, Swizzle):
        raise LayoutError(name, (layout,), "the outer function of a composed layout must be a swizzle")
    return layout.layoutB
