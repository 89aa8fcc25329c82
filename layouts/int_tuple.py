"""IntTuples: integers and nested tuples of them; the shapes, strides and coordinates of layouts.

An IntTuple is an ``int`` or a ``tuple`` of IntTuples. Its *profile* is its nesting, its *rank* the length of the
outermost tuple (1 for an integer), its *size* the product of its integers.

References
----------
CuTe ``int_tuple.hpp`` and ``algorithm/tuple_algorithms.hpp``; pycute ``int_tuple.py`` for names and argument orders.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from functools import reduce
from math import gcd
from typing import Any, TypeAlias

from .basis import ScaledBasis, add_coordinates
from .errors import LayoutError, operation

# Recursive: int | tuple[IntTuple, ...]. Static type checkers cannot follow the algebra on it, so it is Any to them.
IntTuple: TypeAlias = Any


class Integer(ABC):  # noqa: B024 - for isinstance only
    """The class of integers for ``isinstance``: ``int`` and its subclasses, but not ``bool`` (pycute's name)."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return issubclass(subclass, int) and not issubclass(subclass, bool)


def is_int(x: object) -> bool:
    """Return whether `x` is an integer (a bool is not).

    >>> is_int(4), is_int(True), is_int((4,))
    (True, False, False)
    """
    return isinstance(x, int) and not isinstance(x, bool)


def is_tuple(x: object) -> bool:
    """Return whether `x` is a tuple.

    >>> is_tuple((4, 8)), is_tuple(4)
    (True, False)
    """
    return isinstance(x, tuple)


def has_none(a: object) -> bool:
    """Return whether `a` contains None, CuTe's ``_``.

    >>> has_none((0, (None, 1))), has_none((0, 1))
    (True, False)
    """
    if isinstance(a, tuple):
        return any(map(has_none, a))
    return a is None


def signum(a: int) -> int:
    """Return the sign of `a`: -1, 0 or 1.

    >>> signum(-7), signum(0), signum(3)
    (-1, 0, 1)
    """
    return (a > 0) - (a < 0)


def truncated_div(a: int, b: int) -> int:
    """Divide as C++ does, towards zero: ``truncated_div(-7, 2) == -3``; by 0 it is an error, as to its compiler."""
    if b == 0:
        condition = "division by zero: a shape or stride is 0 where one is divided by it"
        raise LayoutError("truncated_div", (a, b), condition)
    quotient = a // b
    return quotient + 1 if quotient < 0 and quotient * b != a else quotient


# ---------------------------------------------------------------------------------------------------------------------
# Structure
# ---------------------------------------------------------------------------------------------------------------------


def wrap(t: IntTuple) -> tuple[Any, ...]:
    """Return a tuple unchanged and anything else as a rank-1 tuple.

    >>> wrap(4), wrap((4, 8))
    ((4,), (4, 8))
    """
    return t if isinstance(t, tuple) else (t,)


def unwrap(t: IntTuple) -> IntTuple:
    """Take rank-1 tuples apart until an integer or a tuple of another rank is left.

    >>> unwrap(((4,),)), unwrap((4, 8))
    (4, (4, 8))
    """
    while isinstance(t, tuple) and len(t) == 1:
        t = t[0]
    return t


def flatten_to_tuple(t: IntTuple) -> tuple[Any, ...]:
    """Return the integers of `t`, left to right, as one flat tuple; ``4`` gives ``(4,)``.

    >>> flatten_to_tuple((4, (2, 8))), flatten_to_tuple(4)
    ((4, 2, 8), (4,))
    """
    if not isinstance(t, tuple):
        return (t,)
    for element in t:
        if element.__class__ is tuple:
            leaves: list[Any] = []
            _collect(t, leaves)
            return tuple(leaves)
    return t


def flatten_modes(shape: tuple[Any, ...], stride: tuple[Any, ...]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the leaves of a congruent shape and stride."""
    for s in shape:
        if s.__class__ is tuple:
            shapes: list[Any] = []
            strides: list[Any] = []
            _collect(shape, shapes)
            _collect(stride, strides)
            return shapes, strides
    return shape, stride


def _collect(t: tuple[Any, ...], leaves: list[Any]) -> None:
    for element in t:
        if isinstance(element, tuple):
            _collect(element, leaves)
        else:
            leaves.append(element)


@operation
def unflatten(flat: IntTuple, profile: IntTuple) -> IntTuple:
    """Nest the elements of the flat tuple `flat` as in `profile`.

    Examples
    --------
    >>> unflatten((1, 2, 3), (0, (0, 0)))
    (1, (2, 3))
    """
    leaves = list(reversed(wrap(flat)))

    def fill(p: IntTuple) -> IntTuple:
        if isinstance(p, tuple):
            return tuple(map(fill, p))
        if not leaves:
            raise LayoutError("unflatten", (flat, profile), "the profile has more leaves than the tuple has elements")
        return leaves.pop()

    result = fill(profile)
    if leaves:
        raise LayoutError("unflatten", (flat, profile), "the profile has fewer leaves than the tuple has elements")
    return result


def repeat_like(t: IntTuple, x: IntTuple) -> IntTuple:
    """Return `t` with every leaf replaced by `x`.

    >>> repeat_like((4, (2, 8)), 0)
    (0, (0, 0))
    """
    return tuple(repeat_like(e, x) for e in t) if isinstance(t, tuple) else x


@operation
def transform_leaf(function: Callable[..., Any], t: IntTuple, *more: IntTuple) -> IntTuple:
    """Apply `function` to the leaves of `t` and the entries at the same places of the other tuples.

    >>> transform_leaf(lambda s, d: s * d, (4, (2, 8)), (1, (4, 8)))
    (4, (8, 64))
    """
    if not isinstance(t, tuple):
        return function(t, *more)
    for other in more:
        if not isinstance(other, tuple) or len(other) != len(t):
            raise LayoutError("transform_leaf", (t, *more), f"ranks must match, got {len(t)} and {tuple_rank(other)}")
    return tuple(transform_leaf(function, *row) for row in zip(t, *more, strict=True))


def tuple_rank(t: IntTuple) -> int:
    """Return the number of modes of an IntTuple: its length, or 1 for an integer."""
    return len(t) if isinstance(t, tuple) else 1


def tuple_depth(t: IntTuple) -> int:
    """Return the levels of nesting: 0 for an integer, 1 for a flat tuple."""
    return 1 + max(map(tuple_depth, t), default=0) if isinstance(t, tuple) else 0


def tuple_get(t: IntTuple, *path: int) -> IntTuple:
    """Return the element at `path`: ``tuple_get(((1, 2), 3), 0, 1)`` is 2. An integer has the one element 0."""
    for index in path:
        elements = wrap(t)
        if not -len(elements) <= index < len(elements):
            raise LayoutError("get", (t, *path), f"index must be < rank {len(elements)}, got {index}")
        t = elements[index]
    return t


def replace_at(t: IntTuple, n: int, x: IntTuple) -> IntTuple:
    """Return `t` with element `n` replaced by `x`."""
    if not isinstance(t, tuple):
        if n:
            raise LayoutError("replace", (t, n, x), f"index must be 0 for an integer, got {n}")
        return x
    if not 0 <= n < len(t):
        raise LayoutError("replace", (t, n, x), f"index must be < rank {len(t)}, got {n}")
    return (*t[:n], x, *t[n + 1 :])


# ---------------------------------------------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------------------------------------------


@operation
def product(a: IntTuple) -> int:
    """Return the product of all integers in `a`: the size of a shape.

    Examples
    --------
    >>> product((2, (3, 4)))
    24
    """
    if not isinstance(a, tuple):
        return a  # type: ignore[no-any-return]
    result = 1
    for x in a:
        result *= x if x.__class__ is int else product(x)
    return result


@operation
def product_each(t: IntTuple) -> tuple[int, ...]:
    """Return the size of each mode: ``((2, 8), 4)`` gives ``(16, 4)``, ``4`` gives ``(4,)``.

    >>> product_each(((2, 8), 4)), product_each(4)
    ((16, 4), (4,))
    """
    return tuple(map(product, wrap(t)))


@operation
def product_like(t: IntTuple, guide: IntTuple) -> IntTuple:
    """Return the sizes of `t` at the leaves of `guide`: ``product_like(((2, 3), 4), (0, 0))`` is ``(6, 4)``.

    >>> product_like(((2, 3), 4), (0, 0))
    (6, 4)
    """
    return transform_leaf(lambda _, x: product(x), guide, t)


def tuple_sum(a: IntTuple) -> int:
    """Return the sum of all integers in `a`.

    >>> tuple_sum((4, (2, 8)))
    14
    """
    return sum(map(tuple_sum, a)) if isinstance(a, tuple) else a


@operation
def tuple_max(a: IntTuple) -> int:
    """Return the largest integer in `a`.

    >>> tuple_max((4, (2, 8)))
    8
    """
    return max(map(tuple_max, a)) if isinstance(a, tuple) else a


def tuple_min(a: IntTuple) -> int:
    """Return the smallest integer in `a`.

    >>> tuple_min((4, (2, 8)))
    2
    """
    return min(map(tuple_min, a)) if isinstance(a, tuple) else a


def tuple_gcd(a: IntTuple) -> int:
    """Return the greatest common divisor of all integers in `a`; CuTe's ``gcd``.

    >>> tuple_gcd((12, (18, 30)))
    6
    """
    return gcd(*map(tuple_gcd, a)) if isinstance(a, tuple) else abs(a)


@operation
def inner_product(a: IntTuple, b: IntTuple) -> Any:  # noqa: ANN401 - int, or a coordinate for scaled bases
    """Return the sum of the products of paired integers.

    Examples
    --------
    >>> inner_product(((2, 3), 4), ((2, 1), 2))
    15
    """
    if isinstance(a, tuple):
        if not isinstance(b, tuple) or len(a) != len(b):
            raise LayoutError("inner_product", (a, b), f"ranks must match, got {len(a)} and {tuple_rank(b)}")
        return reduce(add_coordinates, map(inner_product, a, b), 0)
    if isinstance(b, tuple):
        raise LayoutError("inner_product", (a, b), f"ranks must match, got 1 and {len(b)}")
    return a * b


@operation
def elem_scale(a: IntTuple, b: IntTuple) -> IntTuple:
    """Multiply each integer of `a` by the size of the entry at its place in `b`.

    Examples
    --------
    >>> elem_scale((2, 3), ((4, 5), 6))
    (40, 18)
    """
    if isinstance(a, tuple):
        if not isinstance(b, tuple) or len(a) != len(b):
            raise LayoutError("elem_scale", (a, b), f"ranks must match, got {len(a)} and {tuple_rank(b)}")
        return tuple(map(elem_scale, a, b))
    return a * product(b)


@operation
def ceil_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """Divide rounding up; a tuple by an integer folds the division through the modes from the left.

    Modes that `b` lacks count as 1. `b` may also be a Layout: the shape of what is left of `a` when tiled by it.

    Examples
    --------
    >>> ceil_div((10, 4), (4, 4))
    (3, 1)
    >>> ceil_div((4, 5, 6), 40)
    (1, 1, 3)

    References
    ----------
    CuTe ``int_tuple.hpp`` ``ceil_div``; for layouts ``layout.hpp`` ``ceil_div``.
    """
    if isinstance(a, tuple):
        if isinstance(b, tuple):
            if len(a) < len(b):
                raise LayoutError("ceil_div", (a, b), f"rank of the divisor must be <= {len(a)}, got {len(b)}")
            return tuple(map(ceil_div, a, b + (1,) * (len(a) - len(b))))
        if isinstance(b, int):
            result, rest = [], b
            for mode in a:
                result.append(ceil_div(mode, rest))
                rest = ceil_div(rest, mode)
            return tuple(result)
    elif isinstance(b, tuple):
        return ceil_div(a, product(b))
    if isinstance(b, int):
        return -(-a // b) if a > 0 < b else truncated_div(a + b - 1, b)
    if not hasattr(b, "_complement"):
        raise TypeError(f"ceil_div: the divisor must be an int, a tuple or a layout, got {b!r} of {type(b).__name__}")
    return b._complement(a).shape


@operation
def round_up(a: IntTuple, b: IntTuple) -> IntTuple:
    """Round each integer of `a` up to a multiple of its partner in `b`; missing partners count as 1.

    >>> round_up((10, 4), (4, 4))
    (12, 4)
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(a) < len(b):
            raise LayoutError("round_up", (a, b), f"rank of the divisor must be <= {len(a)}, got {len(b)}")
        return tuple(map(round_up, a, b + (1,) * (len(a) - len(b))))
    if isinstance(a, tuple) or isinstance(b, tuple):
        raise LayoutError("round_up", (a, b), f"ranks must match, got {tuple_rank(a)} and {tuple_rank(b)}")
    return ceil_div(a, b) * b


@operation
def shape_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """Divide a shape by another, where one of each pair divides the other.

    Examples
    --------
    >>> shape_div((4, 5, 6), 40)
    (1, 1, 3)

    Raises
    ------
    LayoutError
        If of some pair of integers neither divides the other, or ranks differ.
    """
    return _shape_div(a, b)


def _shape_div(a: IntTuple, b: IntTuple) -> IntTuple:
    if isinstance(a, tuple):
        if isinstance(b, tuple):
            if len(a) != len(b):
                raise LayoutError("shape_div", (a, b), f"ranks must match, got {len(a)} and {len(b)}")
            return tuple(map(_shape_div, a, b))
        result = []
        for mode in a:
            result.append(_shape_div(mode, b))
            b = _shape_div(b, mode)
        return tuple(result)
    if isinstance(b, tuple):
        return _shape_div(a, product(b))
    if not a or not b or (a % b and b % a):
        raise LayoutError("shape_div", (a, b), f"divisibility: one of {a} and {b} must divide the other")
    return -(-a // b) if a > 0 < b else ceil_div(a, b)


# ---------------------------------------------------------------------------------------------------------------------
# Predicates
# ---------------------------------------------------------------------------------------------------------------------


def shape_of(t: Any) -> IntTuple:  # noqa: ANN401 - IntTuple or layout
    """Return the shape of a layout; of a tuple, with the layouts in it replaced by their shapes; else itself."""
    if isinstance(t, tuple):
        return tuple(map(shape_of, t))
    if isinstance(t, (int, ScaledBasis)) or t is None:
        return t
    if not hasattr(t, "shape"):
        raise TypeError(f"a shape, a layout or a tuple of them is required, got {t!r} of type {type(t).__name__}")
    return t.shape


def check_extents(name: str, operands: tuple[object, ...], shape: IntTuple) -> None:
    """Raise the LayoutError of public function `name` where an extent of `shape` is negative."""
    if shape < 0 if shape.__class__ is int else min(flatten_to_tuple(shape), default=0) < 0:
        raise LayoutError(name, operands, "extents must be >= 0")


@operation
def congruent(a: Any, b: Any) -> bool:  # noqa: ANN401 - IntTuples or layouts
    """Return whether `a` and `b` have the same profile.

    Examples
    --------
    >>> congruent((2, (3, 4)), (1, (1, 1))), congruent((2, 12), (2, (3, 4)))
    (True, False)
    """
    return bool(repeat_like(shape_of(a), 0) == repeat_like(shape_of(b), 0))


@operation
def weakly_congruent(a: Any, b: Any) -> bool:  # noqa: ANN401 - IntTuples or layouts
    """Return whether `a` has the profile of `b` up to its own leaves: a partial order on profiles.

    >>> weakly_congruent((4, 3), (8, (3, 2))), weakly_congruent((4, 3), 24)
    (True, False)
    """
    shape_a, shape_b = shape_of(a), shape_of(b)
    if isinstance(shape_a, tuple):
        return _all_modes(weakly_congruent, shape_a, shape_b)
    return True


def _all_modes(predicate: Callable[[Any, Any], bool], a: tuple[Any, ...], b: IntTuple) -> bool:
    return isinstance(b, tuple) and len(a) == len(b) and all(map(predicate, a, b))


@operation
def compatible(a: Any, b: Any) -> bool:  # noqa: ANN401 - IntTuples or layouts
    """Return whether every coordinate of shape `a` is one of shape `b`: equal sizes at each leaf of `a`.

    Examples
    --------
    >>> compatible((2, 12), (2, (3, 4))), compatible(24, (2, (3, 4))), compatible((2, (3, 4)), 24)
    (True, True, False)
    """
    shape_a, shape_b = shape_of(a), shape_of(b)
    if isinstance(shape_a, tuple):
        return _all_modes(compatible, shape_a, shape_b)
    return bool(shape_a == product(shape_b))


@operation
def weakly_compatible(a: Any, b: Any) -> bool:  # noqa: ANN401 - IntTuples or layouts
    """Return whether the size of `b` at each leaf of `a` is a multiple of that leaf.

    >>> weakly_compatible((4, 3), (8, (3, 2)))
    True
    """
    shape_a, shape_b = shape_of(a), shape_of(b)
    if isinstance(shape_a, tuple):
        return _all_modes(weakly_compatible, shape_a, shape_b)
    size = product(shape_b)
    return bool(size == truncated_div(size, shape_a) * shape_a)


@operation
def evenly_divides(a: Any, tiler: Any) -> bool:  # noqa: ANN401 - IntTuples, layouts, tilers
    """Return whether tiles of `tiler` fill shape `a` without remainder.

    Examples
    --------
    >>> evenly_divides((8, 4), (4, 4)), evenly_divides((8, 4), (3, 4))
    (True, False)
    """
    shape = shape_of(a)
    if isinstance(tiler, tuple):
        modes = wrap(shape)
        return len(tiler) <= len(modes) and all(map(evenly_divides, modes, tiler))
    if tiler is None:
        return False  # CuTe's _ is an Int<0>
    tile = product(shape_of(tiler))
    return bool(tile) and bool(product(shape) == tile * product(ceil_div(shape, tiler)))


@operation
def elem_less(a: IntTuple, b: IntTuple) -> bool:
    """Return whether each integer of `a` is less than its partner in `b`: coordinate `a` lies in shape `b`.

    >>> elem_less((3, 7), (4, 8)), elem_less((3, 8), (4, 8))
    (True, False)
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) <= len(b) and all(elem_less(x, y) for x, y in zip(a, b, strict=False))
    return _ordered("elem_less", a, b)


@operation
def elem_leq(a: IntTuple, b: IntTuple) -> bool:
    """Return ``not elem_less(b, a)``, as CuTe defines it.

    >>> elem_leq((4, 8), (4, 8))
    True
    """
    return not elem_less(b, a)


@operation
def elem_gtr(a: IntTuple, b: IntTuple) -> bool:
    """Return ``elem_less(b, a)``.

    >>> elem_gtr((4, 8), (3, 7))
    True
    """
    return elem_less(b, a)


@operation
def elem_geq(a: IntTuple, b: IntTuple) -> bool:
    """Return ``not elem_less(a, b)``.

    >>> elem_geq((3, 8), (4, 8))
    True
    """
    return not elem_less(a, b)


@operation
def lex_less(a: IntTuple, b: IntTuple) -> bool:
    """Compare coordinates lexicographically: the order of a row-major walk.

    >>> lex_less((0, 7), (1, 0))
    True
    """
    return _walk_less("lex_less", a, b, reverse=False)


@operation
def lex_leq(a: IntTuple, b: IntTuple) -> bool:
    """Return ``not lex_less(b, a)``.

    >>> lex_leq((0, 7), (1, 0))
    True
    """
    return not lex_less(b, a)


@operation
def lex_gtr(a: IntTuple, b: IntTuple) -> bool:
    """Return ``lex_less(b, a)``.

    >>> lex_gtr((1, 0), (0, 7))
    True
    """
    return lex_less(b, a)


@operation
def lex_geq(a: IntTuple, b: IntTuple) -> bool:
    """Return ``not lex_less(a, b)``.

    >>> lex_geq((0, 7), (1, 0))
    False
    """
    return not lex_less(a, b)


@operation
def colex_less(a: IntTuple, b: IntTuple) -> bool:
    """Compare coordinates colexicographically: the order of a column-major walk.

    >>> colex_less((1, 0), (0, 1)), lex_less((1, 0), (0, 1))
    (True, False)
    """
    return _walk_less("colex_less", a, b, reverse=True)


@operation
def colex_leq(a: IntTuple, b: IntTuple) -> bool:
    """Return ``not colex_less(b, a)``.

    >>> colex_leq((1, 0), (0, 1))
    True
    """
    return not colex_less(b, a)


@operation
def colex_gtr(a: IntTuple, b: IntTuple) -> bool:
    """Return ``colex_less(b, a)``.

    >>> colex_gtr((0, 1), (1, 0))
    True
    """
    return colex_less(b, a)


@operation
def colex_geq(a: IntTuple, b: IntTuple) -> bool:
    """Return ``not colex_less(a, b)``.

    >>> colex_geq((1, 0), (0, 1))
    False
    """
    return not colex_less(a, b)


def _walk_less(name: str, a: IntTuple, b: IntTuple, *, reverse: bool) -> bool:
    if not (isinstance(a, tuple) and isinstance(b, tuple)):
        return _ordered(name, a, b)
    if reverse:
        a, b = a[::-1], b[::-1]
    for x, y in zip(a, b, strict=False):
        if _walk_less(name, x, y, reverse=reverse):
            return True
        if x != y:
            return False
    return len(a) < len(b)


def _ordered(name: str, a: IntTuple, b: IntTuple) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        raise LayoutError(name, (a, b), "an integer and a tuple have no order")
    return bool(a < b)
