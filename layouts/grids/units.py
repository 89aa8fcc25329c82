"""Layouts in units of 16 bytes: the unit of swizzles, the widest access of a thread, and the unit of large pictures."""

from __future__ import annotations

from typing import Any

from ..composed import ComposedLayout, SmemPtr, Swizzle
from ..errors import LayoutError
from ..int_tuple import IntTuple, flatten_to_tuple, transform_leaf, wrap
from ..layout import Layout
from ..recast import recast_layout

# As in sm90.arch, which would load all of Hopper; a test compares them.
UNIT_BYTES = 16
UNIT_BITS = 8 * UNIT_BYTES


def in_units(layout: Any, bits: int) -> tuple[Any, IntTuple] | None:  # noqa: ANN401 - Layout or ComposedLayout
    """Return a layout in units of 16 bytes, and the elements of each mode in a unit; None if there is no such layout.

    Each unit must hold neighbours in memory, in the order of their coordinates, and begin at a multiple of 16 bytes.

    Examples
    --------
    >>> units, elements = in_units(Layout((8, 64), (64, 1)), 16)
    >>> print(units, elements)
    (8,8):(8,1) (1, 8)
    >>> in_units(Layout((8, 64)), 16) is None, in_units(Layout((4, 2), (1, 2)), 16) is None
    (False, True)
    """
    if bits >= UNIT_BITS or UNIT_BITS % bits:
        return None
    per_unit = UNIT_BITS // bits
    if isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr):
        layout = layout.position_independent()
    inner = layout
    while isinstance(inner, ComposedLayout):
        swizzle = inner.layoutB
        if not isinstance(swizzle, Swizzle) or (swizzle.bits and 1 << swizzle.base < per_unit):
            return None  # the swizzle moves elements within units
        inner = inner.layoutA
    if not isinstance(inner, Layout) or not layout.size():
        return None
    try:
        units = recast_layout(layout, bits, UNIT_BITS)
    except (LayoutError, TypeError):
        return None
    if any(whole % part for whole, part in _leaves(layout.shape, units.shape)):
        return None
    ratio = transform_leaf(lambda whole, part: whole // part, layout.shape, units.shape)
    reach = 1
    for step, count in sorted((step, count) for step, count in _leaves(inner.stride, ratio) if count > 1):
        if step != reach:
            return None
        reach *= count
    backwards = any(step < 0 for step in flatten_to_tuple(wrap(inner.stride)))
    return None if backwards or reach != per_unit else (units, ratio)


def _leaves(a: IntTuple, b: IntTuple) -> list[tuple[Any, Any]]:
    return list(zip(flatten_to_tuple(wrap(a)), flatten_to_tuple(wrap(b)), strict=True))
