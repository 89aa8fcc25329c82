"""Conversion between CuTe's layouts and linear ones: exact, or refused with a smallest counterexample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from ..algebra import coalesce
from ..composed import ComposedLayout, Swizzle
from ..errors import LayoutError
from ..int_tuple import IntTuple, flatten_to_tuple, product
from ..layout import Layout
from ..modes import rank
from .bits import log2_size, pack, unpack
from .layout import LinearLayout

Dims = Sequence[str] | Mapping[str, int]


def to_linear(layout: Any, ins: Dims | None = None, outs: Dims | None = None) -> LinearLayout:  # noqa: ANN401
    """Return a layout or swizzle of CuTe's as a linear map over F2: the same function, exactly.

    Parameters
    ----------
    layout : Layout, ComposedLayout or Swizzle
        Its extents must be powers of two.
    ins : sequence of str, or mapping of str to int
        Names of the in-dimensions, one for each mode; or sizes into which the coordinate, taken as one integer, is
        parted: ``{"lane": 32, "warp": 4, "register": 8}`` of a thread-value layout of 128 threads. Default: dim0,
        dim1 ..., or offset for a swizzle.
    outs : sequence of str, or mapping of str to int
        Likewise for the outputs: by sizes, an index is parted into coordinates, as ``{"dim0": 64, "dim1": 16}`` parts
        an index in a tile of 64 by 16. Default: offset, or dim0, dim1 ... where the layout maps to coordinates.

    Raises
    ------
    LayoutError
        If the layout is not linear. It then carries where two coordinates are added, is moved by an offset, has a
        negative stride, or an extent that is no power of two; the message shows the smallest input for which it fails.

    Examples
    --------
    >>> from cutepy.layouts import Layout, parse
    >>> to_linear(Layout((4, 2), (1, 4)))
    LinearLayout({'dim0': [[1], [2]], 'dim1': [[4]]}, {'offset': 8})
    >>> to_linear(parse("Sw<1,0,2> o 0 o (4,2):(1,4)"))
    LinearLayout({'dim0': [[1], [2]], 'dim1': [[5]]}, {'offset': 8})
    >>> tv = parse("((4,8),(2,2)):((32,1),(16,8))")  # a 16x8 accumulator
    >>> to_linear(tv, {"lane": 32, "register": 4}, {"dim0": 16, "dim1": 8})
    LinearLayout({'lane': [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]], 'register': [[0, 1], [8, 0]]}, \
{'dim0': 16, 'dim1': 8})
    >>> to_linear(Layout((4, 2), (1, 3)))
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.LayoutError: to_linear((4,2):(1,3)): not linear over F2: at 5, that is (1,1), it is 4, \
but 1 ^ 3 = 2 is the sum of its values at 1 and 4
    """
    domain = _domain(layout)
    columns = _columns(layout, sum(domain))
    modes = {"offset": domain[0]} if isinstance(layout, Swizzle) else {f"dim{i}": b for i, b in enumerate(domain)}
    if ins is not None and not isinstance(ins, Mapping):
        if len(ins) != len(domain):
            raise LayoutError("to_linear", (layout,), f"need a name for each of {len(domain)} modes, got {len(ins)}")
        modes = dict(zip(ins, domain, strict=True))
    width = len(columns[0]) if columns else len(_flat(layout(0)))
    bits = [max((column[i].bit_length() for column in columns), default=0) for i in range(width)]
    names = ["offset"] if width == 1 and not _is_coordinate(layout) else [f"dim{i}" for i in range(width)]
    sizes = dict(zip(names, (1 << b for b in bits), strict=True))
    if isinstance(outs, Mapping):
        sizes, bits = dict(outs), _out_bits(layout, outs, bits)
    elif outs is not None:
        if len(outs) != width:
            raise LayoutError("to_linear", (layout,), f"need a name for each of {width} outputs, got {len(outs)}")
        sizes = dict(zip(outs, sizes.values(), strict=True))
    linear = LinearLayout.of_columns(
        (pack(column, bits) for column in columns), {name: 1 << b for name, b in modes.items()}, sizes
    )
    return linear.reshape_ins(ins) if isinstance(ins, Mapping) else linear


def _domain(layout: Any) -> list[int]:  # noqa: ANN401 - unchecked input
    """Return log2 of the size of each mode."""
    if isinstance(layout, Swizzle):
        return [layout.size().bit_length() - 1]
    if not isinstance(layout, Layout | ComposedLayout):
        raise TypeError(f"to_linear: need a Layout, ComposedLayout or Swizzle, got {layout!r}")
    for extent in flatten_to_tuple(layout.shape):
        if extent < 1 or extent & (extent - 1):
            raise LayoutError("to_linear", (layout,), f"extents must be powers of two, got {extent}")
    shape = layout.shape
    return [product(mode).bit_length() - 1 for mode in (shape if isinstance(shape, tuple) else (shape,))]


def _columns(layout: Any, bits: int) -> list[tuple[int, ...]]:  # noqa: ANN401 - a layout
    """Return the value at each power of two, after proving that they determine the function."""
    origin = _flat(layout(0))
    if any(origin):
        raise LayoutError("to_linear", (layout,), f"not linear over F2: at 0 it is {_shown(origin)}, not 0")
    columns = [_flat(layout(1 << i)) for i in range(bits)]
    for i, column in enumerate(columns):
        if min(column) < 0:
            raise LayoutError("to_linear", (layout,), f"not linear over F2: at {1 << i} it is negative, {column}")
    witness = _carry(layout, columns)
    if witness is not None:
        x = witness
        top = 1 << (x.bit_length() - 1)
        parts = [_flat(layout(part)) for part in (x ^ top, top)]
        at = f", that is {_coordinate(layout, x)}" if rank(layout) > 1 else ""
        sums = tuple(a ^ b for a, b in zip(*parts, strict=True))
        raise LayoutError(
            "to_linear",
            (layout,),
            f"not linear over F2: at {x}{at}, it is {_shown(_flat(layout(x)))}, but"
            f" {_shown(parts[0])} ^ {_shown(parts[1])} = {_shown(sums)} is the sum of its values at"
            f" {x ^ top} and {top}",
        )
    return columns


def _carry(layout: Any, columns: list[tuple[int, ...]]) -> int | None:  # noqa: ANN401 - a layout
    """Return the smallest input at which a layout is not the exclusive or of its columns; None if there is none.

    A plain layout adds its columns, and a sum is an exclusive or for every input if and only if it is one for every
    pair: no two columns share a bit. A swizzle is linear and keeps signs, and `_columns` has refused offsets but 0 and
    negative columns: what stands under the swizzle decides. Other functions are compared at every input.
    """
    if isinstance(layout, Swizzle):
        return None
    plain = layout
    if isinstance(layout, ComposedLayout):
        plain = layout.layoutA
        if not isinstance(layout.layoutB, Swizzle) or not isinstance(plain, Layout):
            return _first_difference(layout, columns)
        columns = [_flat(plain(1 << i)) for i in range(len(columns))]
    sums = [
        (1 << i) + (1 << j)
        for (i, a), (j, b) in combinations(enumerate(columns), 2)
        if any(x & y for x, y in zip(a, b, strict=True))
    ]
    return min(sums, default=None)


def _first_difference(layout: Any, columns: list[tuple[int, ...]]) -> int | None:  # noqa: ANN401 - a layout
    values = [_flat(layout(0))]
    for i, column in enumerate(columns):
        values += [tuple(a ^ b for a, b in zip(value, column, strict=True)) for value in values]
        for x in range(1 << i, 2 << i):
            if _flat(layout(x)) != values[x]:
                return x
    return None


def _out_bits(layout: object, outs: Mapping[str, int], bits: list[int]) -> list[int]:
    """Return the widths at which outputs are packed into dimensions of these sizes."""
    wanted = [log2_size("to_linear", name, size) for name, size in outs.items()]
    if len(bits) == 1:
        if sum(wanted) < bits[0]:
            condition = (
                f"the outputs reach {1 << bits[0]}, and dimensions of {', '.join(map(str, outs.values()))} do not"
            )
            raise LayoutError("to_linear", (layout,), condition)
        return [sum(wanted)]
    if len(wanted) != len(bits) or any(w < b for w, b in zip(wanted, bits, strict=True)):
        reached = ", ".join(str(1 << b) for b in bits)
        raise LayoutError("to_linear", (layout,), f"need sizes of at least {reached}, got {tuple(outs.values())}")
    return wanted


def _flat(value: IntTuple) -> tuple[int, ...]:
    return flatten_to_tuple(value) if isinstance(value, tuple) else (value,)


def _is_coordinate(layout: Any) -> bool:  # noqa: ANN401 - a layout
    return isinstance(layout(0), tuple)


def _shown(value: tuple[int, ...]) -> str:
    return str(value[0]) if len(value) == 1 else str(value)


def _coordinate(layout: Any, index: int) -> str:  # noqa: ANN401 - a layout
    at = unpack(index, [product(mode).bit_length() - 1 for mode in layout.shape])
    return f"({','.join(map(str, at))})"


def to_layout(linear: LinearLayout) -> Layout | ComposedLayout:
    """Return a linear map as a layout of CuTe's: a plain one, or one under a swizzle; the same function, exactly.

    A mode for each in-dimension; several outputs are taken together as one index, the first the fastest.

    Raises
    ------
    LayoutError
        If it is neither: under no swizzle are the bases free of common bits. The message shows two that share one.

    Examples
    --------
    >>> print(to_layout(LinearLayout({"i": [1, 2], "j": [8, 4]}, ["offset"])))
    (4,(2,2)):(1,(8,4))
    >>> print(to_layout(LinearLayout({"i": [1, 2, 4], "j": [9, 18, 36]}, ["offset"])))
    Sw<3,0,3> o 0 o (8,8):(1,8)
    """
    columns = linear.columns
    swizzles: list[Callable[[int], int]] = [_as_it_is, *_swizzles(columns)]
    for swizzle in swizzles:
        plain = [swizzle(column) for column in columns]
        if not _shares_a_bit(plain):
            modes = _modes(linear, plain)
            return modes if swizzle is _as_it_is else ComposedLayout(swizzle, 0, modes)
    i, j = next((i, j) for (i, a), (j, b) in combinations(enumerate(columns), 2) if a & b)
    raise LayoutError(
        "to_layout",
        (linear,),
        f"not a layout of strides, nor one under a swizzle: inputs {1 << i} and {1 << j} go to {columns[i]} and"
        f" {columns[j]}, which share bits, and so do some under every swizzle",
    )


def _as_it_is(index: int) -> int:
    return index


def _shares_a_bit(columns: Sequence[int]) -> bool:
    seen = 0
    for column in columns:
        if seen & column:
            return True
        seen |= column
    return False


def _swizzles(columns: Sequence[int]) -> list[Callable[[int], int]]:
    """Return every swizzle of as many bits as there are, those of few bits first."""
    top = max((column.bit_length() for column in columns), default=0)
    return [
        Swizzle(bits, base, sign * shift)
        for bits in range(1, top // 2 + 1)
        for base in range(top)
        for shift in range(bits, top - base - bits + 1)
        for sign in (1, -1)
    ]


def _modes(linear: LinearLayout, columns: Sequence[int]) -> Layout:
    modes = []
    start = 0
    for size in linear.shape:
        bits = size.bit_length() - 1
        strides = tuple(columns[start : start + bits])
        modes.append(coalesce(Layout((2,) * bits, strides)) if bits else Layout(1, 0))
        start += bits
    if len(modes) == 1:
        return modes[0]
    return Layout(tuple(mode.shape for mode in modes), tuple(mode.stride for mode in modes))
