"""Coordinates and indices: how a shape and a stride map one to the other, and the compact strides of a shape.

A coordinate of a shape is an integer, or a tuple of coordinates of its modes; an integer coordinate of a tuple shape
counts colexicographically, the first mode fastest.

References
----------
CuTe ``stride.hpp`` (crd2idx, idx2crd, crd2crd, compact_major, compact_order) and ``underscore.hpp`` (slice, dice).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_index
from typing import Any

from .basis import E, add_coordinates, as_coordinate
from .errors import LayoutError, MismatchError, operation
from .int_tuple import IntTuple, flatten_modes, flatten_to_tuple, product, product_like, truncated_div, tuple_rank


@operation
def crd2idx(crd: IntTuple, shape: Any, stride: IntTuple = None) -> Any:  # noqa: ANN401 - int or coordinate
    """Map a coordinate within (shape, stride) to an index: the inner product of coordinate and stride.

    Parameters
    ----------
    crd : IntTuple
        Coordinate; None, CuTe's ``_``, counts as 0.
    shape : IntTuple or Layout
        Domain. A layout brings its own stride.
    stride : IntTuple, optional
        Congruent to `shape`; default: compact, the first mode fastest. Scaled bases give a coordinate as result.

    Examples
    --------
    >>> crd2idx((1, 2), (4, 8), (8, 1))
    10
    >>> crd2idx(9, (4, 8), (8, 1)), crd2idx((1, 2), (4, 8))
    (10, 9)
    """
    if stride is None and not isinstance(shape, (int, tuple)):
        return shape(crd)
    try:
        return _colex_index(crd, shape) if stride is None else _crd2idx(crd, shape, stride)
    except MismatchError as error:
        raise LayoutError("crd2idx", (crd, shape) + (() if stride is None else (stride,)), str(error)) from None


def _crd2idx(crd: IntTuple, shape: IntTuple, stride: IntTuple) -> Any:  # noqa: ANN401 - int or coordinate
    if shape.__class__ is not tuple:
        if crd.__class__ is tuple or stride.__class__ is tuple:
            raise MismatchError(
                f"an integer mode takes an integer coordinate and stride, got {crd} and {stride} for {shape}"
            )
        scaled = (crd if crd.__class__ is int else _integer(crd)) * stride
        return scaled if scaled.__class__ is int else as_coordinate(scaled)
    if stride.__class__ is not tuple or len(stride) != len(shape):
        raise MismatchError(f"the stride's rank must be the shape's, got {tuple_rank(stride)} and {len(shape)}")
    if crd.__class__ is not tuple:
        if crd.__class__ is int and crd >= 0:
            result = _flat_index(crd, shape, stride)
            if result is not None:
                return result
        crd = _split(_integer(crd), shape)
    elif len(crd) != len(shape):
        raise MismatchError(f"the coordinate's rank must be the shape's, got {len(crd)} and {len(shape)}")
    index, coordinate = 0, None
    for c, s, d in zip(crd, shape, stride):  # noqa: B905 - hot; lengths are equal
        if c.__class__ is int and d.__class__ is int and s.__class__ is int:
            index += c * d
            continue
        term = _crd2idx(c, s, d)
        if term.__class__ is int:
            index += term
        else:
            coordinate = term if coordinate is None else add_coordinates(coordinate, term)
    return index if coordinate is None else add_coordinates(coordinate, index)


def _integer(crd: Any) -> int:  # noqa: ANN401 - unchecked input
    if crd is None:
        return 0
    if hasattr(crd, "__index__"):
        return as_index(crd)
    raise TypeError(f"a coordinate is made of ints, None and tuples, got {crd!r} of type {type(crd).__name__}")


def _flat_index(rest: int, shape: Sequence[Any], stride: Sequence[Any]) -> int | None:
    """Map an integer coordinate >= 0 where shape and stride are flat tuples of ints; None where they are not."""
    result = s = d = 0
    for s, d in zip(shape, stride):  # noqa: B905 - hot; lengths are equal
        if s.__class__ is not int or d.__class__ is not int or s <= 0:
            return None
        result += rest % s * d
        rest //= s
    return result + rest * s * d if rest else result  # the last mode takes the rest


def index_of(crd: IntTuple, shape: IntTuple, stride: IntTuple) -> Any:  # noqa: ANN401 - int or coordinate
    """`crd2idx` where shape and stride are known to be congruent: an integer needs no nesting to be split."""
    if crd.__class__ is int and crd >= 0:
        if stride.__class__ is int:
            return crd * stride
        if shape.__class__ is tuple:
            result = _flat_index(crd, *flatten_modes(shape, stride))
            if result is not None:
                return result
    return crd2idx(crd, shape, stride)


def _split(index: int, shape: tuple[Any, ...]) -> list[int]:
    """Split an index over the modes of `shape`; the last one takes all that is left, also beyond its extent."""
    parts = []
    for s in shape[:-1]:
        extent = s if s.__class__ is int else product(s)
        quotient = index // extent if index >= 0 < extent else truncated_div(index, extent)
        parts.append(index - quotient * extent)
        index = quotient
    parts.append(index)
    return parts


def _colex_index(crd: IntTuple, shape: IntTuple) -> int:
    """Horner's rule over the modes of `shape`: ``c0 + s0 * (c1 + s1 * (...))``."""
    if not isinstance(crd, tuple):
        return _integer(crd)
    if not isinstance(shape, tuple) or len(crd) != len(shape):
        raise MismatchError(f"the coordinate's rank must be the shape's, got {len(crd)} and {tuple_rank(shape)}")
    index = 0
    for c, s in zip(reversed(crd), reversed(shape), strict=True):
        index = _colex_index(c, s) + product(s) * index
    return index


@operation
def idx2crd(idx: IntTuple, shape: Any, stride: IntTuple = None) -> IntTuple:  # noqa: ANN401 - IntTuple or layout
    """Split an index into a coordinate of (shape, stride): ``(idx / stride) % shape`` in every mode.

    Right for compact layouts only. Without `stride` the index is split colexicographically and the last mode takes
    what is left, also beyond its extent.

    Examples
    --------
    >>> idx2crd(11, (4, 8)), idx2crd(11, (4, 8), (8, 1)), idx2crd(11, (2, (2, 8)))
    ((3, 2), (1, 3), (1, (1, 2)))

    Raises
    ------
    LayoutError
        If ranks do not match, or a mode of size other than 1 has stride 0.
    """
    if not isinstance(shape, (int, tuple)):
        return idx2crd(idx, shape.shape, shape.stride if stride is None else stride)
    try:
        return _split_colex(idx, shape) if stride is None else _idx2crd(idx, shape, stride)
    except MismatchError as error:
        raise LayoutError("idx2crd", (idx, shape) + (() if stride is None else (stride,)), str(error)) from None


def _idx2crd(idx: IntTuple, shape: IntTuple, stride: IntTuple) -> IntTuple:
    if shape.__class__ is tuple:
        if stride.__class__ is not tuple:
            stride = compact_col_major(shape, stride)
        if len(stride) != len(shape):
            raise MismatchError(f"the stride's rank must be the shape's, got {len(stride)} and {len(shape)}")
        if idx.__class__ is not tuple:
            index = _integer(idx)
            if index < 0:
                return tuple([_idx2crd(index, s, d) for s, d in zip(shape, stride, strict=True)])
            return tuple(
                [
                    index // d % s if s.__class__ is int and d.__class__ is int and s > 0 < d else _idx2crd(index, s, d)
                    for s, d in zip(shape, stride)  # noqa: B905 - hot; lengths are equal
                ]
            )
        if len(idx) != len(shape):
            raise MismatchError(f"the index's rank must be the shape's, got {len(idx)} and {len(shape)}")
        return tuple(map(_idx2crd, idx, shape, stride))
    if idx.__class__ is tuple or stride.__class__ is not int:
        raise MismatchError(f"an integer mode takes an integer index and stride, got {idx} and {stride} for {shape}")
    if shape == 1:
        return 0
    if not stride or not shape:
        raise MismatchError(f"the mode {shape}:{stride} divides by zero")
    if idx >= 0 < stride:
        return idx // stride % shape
    quotient = truncated_div(idx, stride)
    return quotient - truncated_div(quotient, shape) * shape


def _split_colex(idx: IntTuple, shape: IntTuple) -> IntTuple:
    if isinstance(idx, tuple):
        if not isinstance(shape, tuple) or len(idx) != len(shape):
            raise MismatchError(f"the index's rank must be the shape's, got {len(idx)} and {tuple_rank(shape)}")
        return tuple(map(_split_colex, idx, shape))
    if not isinstance(shape, tuple):
        return idx
    parts = []
    last = len(shape) - 1
    for mode, s in enumerate(shape):
        rest = idx
        if mode != last:  # the last mode takes all that is left
            extent = s if s.__class__ is int else product(s)
            idx = rest // extent if rest >= 0 < extent else truncated_div(rest, extent)
            rest -= idx * extent
        parts.append(rest if s.__class__ is int else _split_colex(rest, s))
    return tuple(parts)


@operation
def crd2crd(crd: IntTuple, dst_shape: IntTuple, src_shape: IntTuple = None) -> IntTuple:
    """Express a coordinate of `src_shape` as one of `dst_shape` with the same colexicographic index.

    Parameters
    ----------
    crd : IntTuple
        Coordinate in `src_shape`.
    dst_shape : IntTuple
        Shape of the result. pycute's order of arguments; in C++ the source shape comes first.
    src_shape : IntTuple, optional
        Needed where a tuple coordinate must become an integer.

    Examples
    --------
    >>> crd2crd(7, (4, 8)), crd2crd((3, 1), 32, (4, 8))
    ((3, 1), 7)
    """
    if isinstance(crd, tuple) and isinstance(dst_shape, tuple) and (src_shape is None or isinstance(src_shape, tuple)):
        if len(crd) != len(dst_shape) or (src_shape is not None and len(src_shape) != len(crd)):
            raise LayoutError("crd2crd", (crd, dst_shape), f"ranks must match, got {len(crd)} and {len(dst_shape)}")
        return tuple(map(crd2crd, crd, dst_shape, src_shape or (None,) * len(crd)))
    if isinstance(crd, tuple):
        if src_shape is None:
            raise LayoutError("crd2crd", (crd, dst_shape), "a tuple coordinate needs src_shape to become an integer")
        return idx2crd(crd2idx(crd, src_shape), dst_shape)
    return idx2crd(crd, dst_shape)


# ---------------------------------------------------------------------------------------------------------------------
# Slicing
# ---------------------------------------------------------------------------------------------------------------------


def slice_tuple(crd: IntTuple, trg: IntTuple) -> IntTuple:
    """Keep the elements of `trg` at the places of None in `crd`; nested modes are lifted to the top.

    Examples
    --------
    >>> slice_tuple((0, None), (4, 8)), slice_tuple((None, (None, 1)), (4, (2, 3)))
    ((8,), (4, 2))
    """
    if crd is None:
        return trg
    return _pick(crd, trg, keep_none=True, name="slice")


def dice_tuple(crd: IntTuple, trg: IntTuple) -> IntTuple:
    """Keep the elements of `trg` at the places of integers in `crd`: those that `slice_tuple` drops."""
    if crd is not None and not isinstance(crd, tuple):
        return trg
    return _pick(crd, trg, keep_none=False, name="dice")


def _pick(crd: IntTuple, trg: IntTuple, *, keep_none: bool, name: str) -> tuple[Any, ...]:
    if not isinstance(crd, tuple):
        _integer(crd)
        return (trg,) if (crd is None) == keep_none else ()
    if not isinstance(trg, tuple) or len(trg) != len(crd):
        raise LayoutError(name, (crd, trg), f"the coordinate's rank must be {tuple_rank(trg)}, got {len(crd)}")
    result: tuple[Any, ...] = ()
    for c, t in zip(crd, trg, strict=True):
        if c is None or c.__class__ is int:
            if (c is None) == keep_none:
                result += (t,)
        else:
            result += _pick(c, t, keep_none=keep_none, name=name)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Compact strides
# ---------------------------------------------------------------------------------------------------------------------


@operation
def prefix_product(a: IntTuple, init: IntTuple = 1) -> IntTuple:
    """Return the exclusive prefix products of `a`, congruent to it: ``(2, (3, 4))`` gives ``(1, (2, 6))``.

    pycute's function. CuTe's compact strides differ from it in giving modes of size 1 stride 0: `compact_col_major`.

    >>> prefix_product((2, (3, 4)))
    (1, (2, 6))
    """
    if isinstance(init, tuple):
        if not isinstance(a, tuple) or len(a) != len(init):
            raise LayoutError("prefix_product", (a, init), f"ranks must match, got {tuple_rank(a)} and {len(init)}")
        return tuple(map(prefix_product, a, init))
    if not isinstance(a, tuple):
        return init
    result, reached = [], init
    for mode in a:
        result.append(prefix_product(mode, reached))
        reached *= product(mode)
    return tuple(result)


@operation
def suffix_product(a: IntTuple, init: IntTuple = 1) -> IntTuple:
    """Return the exclusive suffix products of `a`, congruent to it: ``(2, (3, 4))`` gives ``(12, (4, 1))``.

    >>> suffix_product((2, (3, 4)))
    (12, (4, 1))
    """
    if isinstance(init, tuple):
        if not isinstance(a, tuple) or len(a) != len(init):
            raise LayoutError("suffix_product", (a, init), f"ranks must match, got {tuple_rank(a)} and {len(init)}")
        return tuple(map(suffix_product, a, init))
    if not isinstance(a, tuple):
        return init
    result, reached = [], init
    for mode in reversed(a):
        result.append(suffix_product(mode, reached))
        reached *= product(mode)
    return tuple(reversed(result))


@operation
def compact_col_major(shape: IntTuple, current: IntTuple = 1) -> IntTuple:
    """Return the compact strides of `shape`, leftmost mode fastest, starting at `current`.

    Modes of size 1 get stride 0, as in CuTe.

    Examples
    --------
    >>> compact_col_major((4, (1, 2), 8))
    (1, (0, 4), 8)
    """
    if shape.__class__ is tuple and current.__class__ is int:
        strides, _ = _compact(shape, current)
        return strides
    return _compact_at(shape, current, reverse=False)


@operation
def compact_row_major(shape: IntTuple, current: IntTuple = 1) -> IntTuple:
    """Return the compact strides of `shape`, rightmost mode fastest: ``(4, (1, 2), 8)`` gives ``(16, (0, 8), 1)``.

    >>> compact_row_major((4, (1, 2), 8))
    (16, (0, 8), 1)
    """
    return _compact_at(shape, current, reverse=True)


def _compact(shape: tuple[Any, ...], current: int) -> tuple[tuple[Any, ...], int]:
    strides: list[Any] = []
    for s in shape:
        if s.__class__ is int:
            if s == 1:
                strides.append(0)
            else:
                strides.append(current)
                current *= s
        else:
            inner, current = _compact(s, current)
            strides.append(inner)
    return tuple(strides), current


def _compact_at(shape: IntTuple, current: IntTuple, *, reverse: bool) -> IntTuple:
    if isinstance(current, tuple):
        if not isinstance(shape, tuple) or len(shape) != len(current):
            name = "compact_row_major" if reverse else "compact_col_major"
            raise LayoutError(name, (shape, current), f"ranks must match, got {tuple_rank(shape)} and {len(current)}")
        return tuple(_compact_at(s, c, reverse=reverse) for s, c in zip(shape, current, strict=True))
    if not isinstance(shape, tuple):
        return 0 if shape == 1 else current
    if not reverse:
        return _compact(shape, current)[0]
    result = []
    for mode in reversed(shape):
        result.append(_compact_at(mode, current, reverse=True))
        current *= product(mode)
    return tuple(reversed(result))


@operation
def compact_order(shape: IntTuple, order: IntTuple) -> IntTuple:
    """Return compact strides of `shape` whose modes are ordered by `order`: the smallest is the fastest.

    Examples
    --------
    >>> compact_order((2, 2, 2, 2), (0, 2, 3, 1))
    (1, 4, 8, 2)
    """
    flat_order = flatten_to_tuple(order)
    if not all(isinstance(rank, int) for rank in flat_order):
        raise LayoutError("compact_order", (shape, order), "the order must hold integers only")
    flat_shape = flatten_to_tuple(product_like(shape, order))

    def strides(s: IntTuple, o: IntTuple) -> IntTuple:
        if isinstance(o, tuple):
            return tuple(map(strides, s, o))
        start = 1
        for extent, rank in zip(flat_shape, flat_order, strict=True):
            if rank < o:
                start *= extent
        return compact_col_major(s, start)

    return strides(shape, order)


@operation
def make_basis_like(shape: IntTuple) -> IntTuple:
    """Return the unit scaled bases of the modes of `shape`: ``(8, (2, 2))`` gives ``(1@0, (1@0@1, 1@1@1))``.

    >>> print(*make_basis_like((8, 4)))
    1@0 1@1
    """

    def bases(s: IntTuple, path: tuple[int, ...]) -> IntTuple:
        return tuple(bases(mode, (*path, i)) for i, mode in enumerate(s)) if isinstance(s, tuple) else E(*path)

    return bases(shape, ())
