"""Strategies for shapes, other IntTuples, and coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import permutations
from math import prod
from typing import Any, TypeVar

from hypothesis import strategies as st

from cutepy.layouts import IntTuple, Layout, LayoutBase

T = TypeVar("T")


@cache
def _profiles(leaves: int, depth: int) -> tuple[IntTuple, ...]:
    """List all nestings of `leaves` zeros up to `depth` levels, the flattest and shortest first."""
    found: list[IntTuple] = [0] if leaves == 1 else []
    if depth > 0:
        found += _sequences(leaves, depth - 1)
    return tuple(sorted(found, key=lambda profile: (_depth(profile), str(profile).count("("), str(profile))))


@cache
def _sequences(leaves: int, depth: int) -> tuple[tuple[Any, ...], ...]:
    if leaves == 0:
        return ((),)
    return tuple(
        (head, *tail)
        for first in range(1, leaves + 1)
        for head in _profiles(first, depth)
        for tail in _sequences(leaves - first, depth)
    )


def _depth(t: IntTuple) -> int:
    return 1 + max(map(_depth, t), default=0) if isinstance(t, tuple) else 0


def fill(profile: IntTuple, leaves: Iterator[Any]) -> IntTuple:
    """Put `leaves` at the leaves of `profile`, left to right."""
    return tuple(fill(mode, leaves) for mode in profile) if isinstance(profile, tuple) else next(leaves)


def leaves_of(t: IntTuple) -> list[Any]:
    """Return the leaves of `t`, independently of the algebra under test."""
    return [leaf for mode in t for leaf in leaves_of(mode)] if isinstance(t, tuple) else [t]


# Strategies that draw the parts of an example are made once: hypothesis validates each new one before it draws.
integers = cache(st.integers)
flags = st.booleans()


@cache
def orders(count: int) -> st.SearchStrategy[Sequence[int]]:
    """Draw permutations of ``range(count)``: few are listed, which takes one draw."""
    return st.sampled_from(list(permutations(range(count)))) if count <= 4 else st.permutations(range(count))


def favouring(some: Sequence[T], of_all: Sequence[T]) -> st.SearchStrategy[T]:
    """Draw one of `some` as often as one of all, in one draw."""
    return st.sampled_from([*some] * max(1, round(len(of_all) / len(some))) + [*of_all])


@cache
def _nestings(leaves: int, max_rank: int, max_depth: int) -> st.SearchStrategy[IntTuple]:
    fitting = [p for p in _profiles(leaves, max_depth) if not isinstance(p, tuple) or len(p) <= max_rank]
    no_wraps = [p for p in fitting if "()" not in str(p) and ",)" not in str(p)]
    return favouring(no_wraps or fitting, fitting)


def nested_layout(draw: st.DrawFn, leaves: Sequence[tuple[int, Any]], max_rank: int, max_depth: int) -> Layout:
    """Draw a nesting for (extent, stride) leaves."""
    profile = draw(_nestings(len(leaves), max_rank, max_depth))
    return Layout(fill(profile, iter([s for s, _ in leaves])), fill(profile, iter([d for _, d in leaves])))


def leaf_limit(max_leaves: int, max_rank: int, max_depth: int) -> int:
    """Return the number of leaves that fit into `max_depth` levels."""
    return max_leaves if max_depth > 1 else min(max_leaves, max_rank) if max_depth else 1


@st.composite
def int_tuples(
    draw: st.DrawFn,
    elements: st.SearchStrategy[Any] | None = None,
    *,
    max_leaves: int = 4,
    max_rank: int = 4,
    max_depth: int = 2,
) -> IntTuple:
    """Draw an IntTuple: an integer, or nested tuples of integers.

    Parameters
    ----------
    elements : SearchStrategy, optional
        Strategy of its leaves; default: integers from -8 to 8.
    max_leaves, max_rank, max_depth : int
        Limits of the leaves in all, the outermost tuple's length and the levels of nesting.

    Returns
    -------
    IntTuple
    """
    leaf = st.integers(-8, 8) if elements is None else elements
    count = draw(integers(1, leaf_limit(max_leaves, max_rank, max_depth)))
    return fill(draw(_nestings(count, max_rank, max_depth)), iter([draw(leaf) for _ in range(count)]))


@st.composite
def shapes(
    draw: st.DrawFn,
    *,
    max_leaves: int = 4,
    max_rank: int = 3,
    max_depth: int = 2,
    max_extent: int = 8,
    max_size: int = 64,
    size_one: bool = True,
    size_zero: bool = False,
    powers_of_two: bool = False,
) -> IntTuple:
    """Draw a shape: an IntTuple of extents.

    Parameters
    ----------
    max_leaves, max_rank, max_depth : int
        Limits of the integer modes in all, the rank and the levels of nesting.
    max_extent, max_size : int
        Limits of an integer mode and of the product of all.
    size_one : bool
        True if modes of size 1 occur.
    size_zero : bool
        True if a mode may have size 0: the shape then has no coordinates.
    powers_of_two : bool
        Draw powers of two only.

    Returns
    -------
    IntTuple
    """
    extents = _draw_extents(
        draw, leaf_limit(max_leaves, max_rank, max_depth), max_extent, max_size, size_one, powers_of_two
    )
    if size_zero and draw(integers(0, 3)) == 3:
        extents[draw(integers(0, len(extents) - 1))] = 0
    return fill(draw(_nestings(len(extents), max_rank, max_depth)), iter(extents))


def _draw_extents(
    draw: st.DrawFn, max_leaves: int, max_extent: int, max_size: int, size_one: bool, powers_of_two: bool
) -> list[int]:
    smallest = 1 if size_one else 2
    budget, extents = max_size, []
    for _ in range(draw(integers(1, max_leaves))):
        limit = min(max_extent, budget)
        if limit < smallest:
            break
        if powers_of_two:
            extents.append(1 << draw(integers(smallest - 1, limit.bit_length() - 1)))
        else:
            extents.append(draw(integers(smallest, limit)))
        budget //= extents[-1]
    return extents


@st.composite
def coordinates(draw: st.DrawFn, shape: IntTuple | LayoutBase) -> IntTuple:
    """Draw a coordinate of a shape or layout: an integer or a coordinate of each mode, at any level.

    Parameters
    ----------
    shape : IntTuple or layout
        Its size must not be 0.

    Returns
    -------
    IntTuple
    """
    extents = shape.shape if isinstance(shape, LayoutBase) else shape
    if isinstance(extents, tuple) and draw(flags):
        return tuple(draw(_coordinates(mode)) for mode in extents)
    return draw(integers(0, max(0, prod(leaves_of(extents)) - 1)))


@st.composite
def slice_coordinates(draw: st.DrawFn, shape: IntTuple | LayoutBase) -> IntTuple:
    """Draw a coordinate some of whose modes are None, CuTe's ``_``: they are kept by a slice.

    Parameters
    ----------
    shape : IntTuple or layout

    Returns
    -------
    IntTuple
        Weakly congruent to `shape`, with at least one None.
    """
    extents = shape.shape if isinstance(shape, LayoutBase) else shape
    if not isinstance(extents, tuple) or not extents or not draw(integers(0, 3)):
        return None
    kept = draw(integers(0, len(extents) - 1))
    return tuple(draw(_slice_coordinates(mode) if i == kept else _kept_or_not(mode)) for i, mode in enumerate(extents))


# of a mode, whose extents are few
_coordinates, _slice_coordinates = lru_cache(coordinates), lru_cache(slice_coordinates)


@lru_cache
def _kept_or_not(extents: IntTuple) -> st.SearchStrategy[IntTuple]:
    return st.none() | coordinates(extents) | slice_coordinates(extents)


__all__ = ["coordinates", "int_tuples", "shapes", "slice_coordinates"]
