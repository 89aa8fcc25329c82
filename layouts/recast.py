"""Layouts of the same bytes in elements of another width.

References
----------
CuTe ``layout.hpp`` (upcast, downcast, recast_layout), ``swizzle_layout.hpp`` and ``pointer_flagged.hpp``.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from .basis import ScaledBasis
from .composed import ComposedLayout, SmemPtr, Swizzle, compose
from .errors import LayoutError, operation
from .int_tuple import IntTuple, flatten_to_tuple, signum
from .layout import Layout, raw_layout
from .modes import IndexFunction

AnyLayout = Any


@operation
def upcast(layout: AnyLayout, n: int) -> AnyLayout:
    """Return the layout in elements `n` times as wide: stride-1 extents and all other strides are divided by n.

    Extents are rounded up: 5 elements take 3 of twice the width. If n divides ``max_alignment(layout)``, each of these
    is used whole.

    Parameters
    ----------
    layout : Layout, ComposedLayout, Swizzle or int
    n : int
        Elements that make a new one, >= 1; a power of two for swizzles.

    Examples
    --------
    >>> print(upcast(Layout((8, 4), (1, 8)), 2), upcast(Swizzle(3, 4, 3), 2))
    (4,4):(1,4) Sw<3,3,3>

    Raises
    ------
    LayoutError
        If of some stride and `n` neither divides the other.
    """
    _require_factor("upcast", layout, n)
    if isinstance(layout, Layout):
        return raw_layout(*_upcast(layout.shape, layout.stride, n))
    if isinstance(layout, ComposedLayout):
        if isinstance(layout.offset, SmemPtr):
            widened = SmemPtr(layout.offset.bits * n, layout.offset.address)
            return compose(layout.layoutB, widened, upcast(layout.layoutA, n))
        # Not compose(): CuTe's scaled offset is unsigned, so an identity swizzle stays.
        return ComposedLayout(upcast(layout.layoutB, n), upcast(layout.offset, n), upcast(layout.layoutA, n))
    if isinstance(layout, Swizzle):
        return layout.upcast(n)
    if isinstance(layout, int):
        if layout % n:
            raise LayoutError("upcast", (layout, n), f"the offset {layout} must be a multiple of {n}")
        return layout // n
    raise TypeError(f"upcast: a layout is required, got {type(layout).__name__}")


def _upcast(shape: IntTuple, stride: IntTuple, n: int) -> tuple[IntTuple, IntTuple]:
    if isinstance(shape, tuple):
        parts = [_upcast(s, d, n) for s, d in zip(shape, stride, strict=True)]
        return tuple([s for s, _ in parts]), tuple([d for _, d in parts])
    if stride == 0:
        return shape, stride
    if isinstance(stride, ScaledBasis) or (stride % n and n % stride):
        raise LayoutError(
            "upcast", (raw_layout(shape, stride), n), f"divisibility: one of {stride} and {n} must divide the other"
        )
    step = abs(stride)
    return -(-shape // -(-n // step)), signum(stride) * -(-step // n)


@operation
def downcast(layout: AnyLayout, n: int) -> AnyLayout:
    """Return the layout in elements `n` times as narrow: stride-1 extents and all other strides are multiplied by n.

    >>> print(downcast(Layout((8, 4), (1, 8)), 2), downcast(Swizzle(3, 3, 3), 2))
    (16,4):(1,16) Sw<3,4,3>

    Raises
    ------
    LayoutError
        If no mode has stride 1: then the elements are not adjacent.
    """
    _require_factor("downcast", layout, n)
    if isinstance(layout, Layout):
        if 1 not in flatten_to_tuple(layout.stride):
            raise LayoutError("downcast", (layout, n), "requires adjacent elements: some mode must have stride 1")
        return raw_layout(*_downcast(layout.shape, layout.stride, n))
    if isinstance(layout, ComposedLayout):
        if isinstance(layout.offset, SmemPtr):
            if layout.offset.bits % n:
                raise LayoutError(
                    "downcast", (layout, n), f"the pointer's {layout.offset.bits} bits must divide by {n}"
                )
            narrowed = SmemPtr(layout.offset.bits // n, layout.offset.address)
            return compose(layout.layoutB, narrowed, downcast(layout.layoutA, n))
        return ComposedLayout(downcast(layout.layoutB, n), downcast(layout.offset, n), downcast(layout.layoutA, n))
    if isinstance(layout, Swizzle):
        return layout.downcast(n)
    if isinstance(layout, int):
        return layout * n
    raise TypeError(f"downcast: a layout is required, got {type(layout).__name__}")


def _downcast(shape: IntTuple, stride: IntTuple, n: int) -> tuple[IntTuple, IntTuple]:
    if isinstance(shape, tuple):
        parts = [_downcast(s, d, n) for s, d in zip(shape, stride, strict=True)]
        return tuple([s for s, _ in parts]), tuple([d for _, d in parts])
    return (shape * n, stride) if stride in (1, -1) else (shape, stride * n)


@operation
def recast_layout(layout: AnyLayout, old_bits: int, new_bits: int) -> AnyLayout:
    """Return the layout of the same bytes seen as elements of `new_bits` instead of `old_bits`.

    Wider elements are rounded up, as in `upcast`.

    >>> print(recast_layout(Layout((8, 64), (64, 1)), 16, 128))
    (8,8):(8,1)
    """
    if old_bits <= 0 or new_bits <= 0:
        raise LayoutError("recast_layout", (layout, old_bits, new_bits), "widths must be positive")
    common = gcd(old_bits, new_bits)
    widen, narrow = new_bits // common, old_bits // common
    widened = upcast(layout, widen) if widen > 1 else layout
    return downcast(widened, narrow) if narrow > 1 else widened


def _require_factor(name: str, layout: AnyLayout, n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise LayoutError(name, (layout, n), f"the factor must be an int >= 1, got {n!r}")
    if not isinstance(layout, (IndexFunction, int)):
        raise TypeError(f"{name}: a layout is required, got {type(layout).__name__}")
