"""Trace of a coordinate through a layout: the result of each function, down to byte and bank."""

from __future__ import annotations

from typing import Any

from cutepy.layouts import ComposedLayout, Layout, SmemPtr, Swizzle, add_coordinates, idx2crd, product, to_text
from cutepy.layouts.int_tuple import flatten_to_tuple, wrap
from cutepy.layouts.modes import LayoutBase
from cutepy.layouts.sm90.arch import SMEM_BANK_BYTES, SMEM_BANKS

Step = dict[str, Any]
"""Step with ``name`` of the function, ``value``, an integer or a coordinate's text, and ``how``, in a few words."""


def follow(layout: Any, index: int, bits: int | None = None, address: int = 0) -> list[Step]:  # noqa: ANN401 - what was read
    """Return the steps of element `index` through a layout, function by function.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Swizzle
        A swizzle takes the index as it is.
    index : int
        Colexicographic.
    bits : int, optional
        Width of an element: with it the steps go on to byte and bank.
    address : int
        Byte at which the data begin.

    Raises
    ------
    ValueError
        If there is no such element.

    Examples
    --------
    >>> from cutepy.layouts import parse
    >>> for step in follow(parse("Sw<3,3,3> o 0 o (8,64):(64,1)"), 9, 16):
    ...     print(step["name"], step["value"], step["how"], sep=" | ")
    index | 9 | colexicographic, the first mode fastest
    coordinate | (1,1) | of the shape (8,64)
    layout (8,64):(64,1) | 65 | 1*64 + 1*1
    swizzle Sw<3,3,3> | 73 | 0b1000001 -> 0b1001001: bits 6..8, 1, change bits 3..5
    byte | 146 | offset 73 of 16 bits
    bank | 4 | byte 146 / 4 mod 32
    """
    steps = [_step("index", index, "colexicographic, the first mode fastest")]
    if isinstance(layout, Swizzle):
        offset: Any = _through(layout, index, steps)
    elif isinstance(layout, LayoutBase):
        if index >= product(layout.shape):
            raise ValueError(f"there is no element {index}: the layout {layout} has {product(layout.shape)}")
        coordinate = idx2crd(index, layout.shape)
        steps.append(_step("coordinate", to_text(coordinate), f"of the shape {to_text(layout.shape)}"))
        if isinstance(layout, ComposedLayout) and isinstance(layout.offset, SmemPtr):
            bits, address = layout.offset.bits, address or layout.offset.address or 0
        offset = _through(layout, coordinate, steps)
    else:
        raise ValueError(f"a layout or a swizzle has coordinates to follow, got {type(layout).__name__}")
    if bits is not None and isinstance(offset, int):
        byte = address + offset * bits // 8
        began = f"{address:#x} + " if address else ""
        steps.append(_step("byte", byte, f"{began}offset {offset} of {bits} bits"))
        steps.append(
            _step("bank", byte // SMEM_BANK_BYTES % SMEM_BANKS, f"byte {byte} / {SMEM_BANK_BYTES} mod {SMEM_BANKS}")
        )
    return steps


def _through(function: Any, x: Any, steps: list[Step]) -> Any:  # noqa: ANN401 - any layout, any coordinate
    """Apply a function, part by part, and record each part's result."""
    if isinstance(function, ComposedLayout):
        if isinstance(function.offset, SmemPtr):
            steps.append(
                _step(str(function.offset), 0, f"{function.layoutB} acts on bytes; here it is written for elements")
            )
            function = function.position_independent()
        x = _through(function.layoutA, x, steps)
        if function.offset != 0:
            x = add_coordinates(function.offset, x)
            steps.append(_step(f"offset {to_text(function.offset)}", _plain(x), "added before the next function"))
        return _through(function.layoutB, x, steps)
    result = function(x)
    if isinstance(function, Swizzle):
        steps.append(_step(f"swizzle {function}", result, _bits(function, x, result)))
    elif isinstance(function, Layout):
        steps.append(_step(f"layout {function}", _plain(result), _sum(function, x)))
    else:
        steps.append(_step(str(function), _plain(result), ""))
    return result


def _sum(layout: Layout, x: Any) -> str:  # noqa: ANN401 - IntTuple
    coordinate = idx2crd(x, layout.shape) if isinstance(x, int) and isinstance(layout.shape, tuple) else x
    parts = flatten_to_tuple(wrap(coordinate))
    strides = flatten_to_tuple(wrap(layout.stride))
    if len(parts) != len(strides):
        return ""
    return " + ".join(f"{part}*{to_text(stride)}" for part, stride in zip(parts, strides, strict=True))


def _bits(swizzle: Swizzle, before: int, after: int) -> str:
    if not swizzle.bits:
        return "changes nothing"
    low = swizzle.base + max(swizzle.shift, 0)
    target = swizzle.base + max(-swizzle.shift, 0)
    chosen = before >> low & (1 << swizzle.bits) - 1
    return (
        f"{bin(before)} -> {bin(after)}: bits {low}..{low + swizzle.bits - 1}, {chosen}, "
        f"change bits {target}..{target + swizzle.bits - 1}"
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - int or coordinate
    return value if isinstance(value, int) else to_text(value)


def _step(name: str, value: Any, how: str) -> Step:  # noqa: ANN401 - int or text
    return {"name": name, "value": value, "how": how}
