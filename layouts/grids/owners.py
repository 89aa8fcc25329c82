"""Owners: the threads that hold an element, and its index among their values; the inverse of a thread-value layout."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping, Sequence
from typing import Any

from ..basis import add_coordinates
from ..errors import LayoutError
from ..layout import Layout
from .grid import Owner
from .of_layouts import each, parted

MAX_INVERTED = 1 << 22
"""Elements of the largest thread-value layout that is inverted: each takes a hundred bytes."""


class Owners(Mapping[Any, tuple[Owner, ...]]):
    """Index -> owners, where each index has one group of threads and one group of values.

    An index is kept with one number, not with its owners, so that a million of them cost a third of a second.

    Parameters
    ----------
    numbers : dict
        Index -> ``group * len(values) + part``.
    groups : sequence of tuple of int
        Threads that hold the same elements.
    values : sequence of tuple of int
        Values that are the same element.

    Examples
    --------
    >>> owners = Owners({7: 0, 9: 1}, [(0, 1)], [(0,), (1,)])
    >>> owners[9], owners.get(8, ())
    ((((0, 1), 1),), ())
    """

    __slots__ = ("groups", "numbers", "values_of")

    def __init__(
        self, numbers: dict[Any, int], groups: Sequence[tuple[int, ...]], values: Sequence[tuple[int, ...]]
    ) -> None:
        self.numbers, self.groups, self.values_of = numbers, groups, values

    def __getitem__(self, index: Any) -> tuple[Owner, ...]:  # noqa: ANN401 - int or coordinate
        group, part = divmod(self.numbers[index], len(self.values_of))
        held = self.groups[group]
        return tuple([(held, value) for value in self.values_of[part]])

    def alone(self, indices: Sequence[Any]) -> tuple[list[int], list[int]] | None:
        """Return the thread and the value of each index, if every index has one thread and one value.

        >>> Owners({7: 0, 9: 1}, [(5,)], [(0,), (1,)]).alone([9, 7])
        ([5, 5], [1, 0])
        """
        numbers: list[Any] = list(map(self.numbers.get, indices))
        if None in numbers or any(len(alike) != 1 for alike in (*self.groups, *self.values_of)):
            return None
        threads = [group[0] for group in self.groups for _ in self.values_of]
        values = [part[0] for part in self.values_of] * len(self.groups)
        return list(map(threads.__getitem__, numbers)), list(map(values.__getitem__, numbers))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def keys(self) -> KeysView[Any]:
        """Return the indices, as fast as a dict's keys."""
        return self.numbers.keys()

    def __contains__(self, index: object) -> bool:
        return index in self.numbers


def groups_of(owners: Mapping[Any, tuple[Owner, ...]]) -> set[tuple[int, ...]]:
    """Return every set of threads that holds an element."""
    if isinstance(owners, Owners):
        return set(owners.groups) if owners.numbers else set()
    return {some for held in owners.values() for some, _ in held}


def owners_of(layout: Any) -> Mapping[Any, tuple[Owner, ...]]:  # noqa: ANN401 - Layout or ComposedLayout
    """Return the owners of each index of a (thread, value) layout: its inverse, with several owners where it repeats.

    Raises
    ------
    LayoutError
        If the layout has more elements than are looked at one by one.

    Examples
    --------
    >>> dict(owners_of(Layout((4, 2), (0, 1))))
    {0: (((0, 1, 2, 3), 0),), 1: (((0, 1, 2, 3), 1),)}
    """
    threads, values = layout[0].size(), layout[1].size()
    if threads * values > MAX_INVERTED:
        condition = f"{threads * values} elements are too many to look at one by one: at most {MAX_INVERTED}"
        raise LayoutError("owners_of", (layout,), condition, "draw a part of the layout")
    inner, outer = parted(layout)
    if inner is None:
        held = {(thread, value): layout(thread, value) for thread in range(threads) for value in range(values)}
        return _inverted(held)
    starts, parts = [inner(thread, 0) for thread in range(threads)], [inner(0, value) for value in range(values)]
    return owners_by_start(starts, parts, outer=None if isinstance(layout, Layout) else outer)


def owners_by_start(
    starts: Sequence[Any],
    parts: Sequence[Any],
    numbers: Sequence[int] | None = None,
    *,
    outer: Any = None,  # noqa: ANN401 - a function of an index
) -> Mapping[Any, tuple[Owner, ...]]:
    """Return the owners where all threads have the same pattern: thread t's value v is ``starts[t] + parts[v]``.

    `numbers` are the threads' own, of which those of an MMA's atoms may be others than 0, 1, 2 ...; `outer` maps the
    sums to indices, as a swizzle does.

    >>> dict(owners_by_start([0, 4], [0, 1]))
    {0: (((0,), 0),), 1: (((0,), 1),), 4: (((1,), 0),), 5: (((1,), 1),)}
    >>> dict(owners_by_start([0, 4], [0], [16, 2]))
    {0: (((16,), 0),), 4: (((2,), 0),)}
    """
    # Threads that begin at one index hold the same elements: of an operand in shared memory, all threads all elements.
    begin = _grouped(starts, range(len(starts)) if numbers is None else numbers)
    within = _grouped(parts, range(len(parts)))
    if all(key.__class__ is int for keys in (begin, within) for key in keys):
        indices = [start + part for start in begin for part in within]
        indices = indices if outer is None else each(outer, indices)
    else:
        indices = [_sum(start, part) for start in begin for part in within]
        indices = indices if outer is None else list(map(outer, indices))
    groups, values = list(begin.values()), list(within.values())
    found = dict(zip(indices, range(len(indices)), strict=True))
    if len(found) == len(indices):
        return Owners(found, groups, values)
    several: dict[Any, list[tuple[int, int]]] = {}
    for number, index in enumerate(indices):
        group, part = divmod(number, len(values))
        several.setdefault(index, []).extend((group, value) for value in values[part])
    return {index: tuple([(groups[group], value) for group, value in sorted(held)]) for index, held in several.items()}


def _grouped(keys: Sequence[Any], names: Sequence[int]) -> dict[Any, tuple[int, ...]]:
    groups: dict[Any, list[int]] = {}
    for place, name in zip(keys, names, strict=True):
        groups.setdefault(place, []).append(name)
    return {place: tuple(sorted(group)) for place, group in groups.items()}


def _inverted(held: dict[tuple[int, int], Any]) -> dict[Any, tuple[Owner, ...]]:
    """Return index -> owners of (thread, value) -> index.

    >>> _inverted({(0, 0): 7, (1, 0): 7})
    {7: (((0, 1), 0),)}
    """
    threads: dict[Any, dict[int, list[int]]] = {}
    for (thread, value), index in held.items():
        threads.setdefault(index, {}).setdefault(value, []).append(thread)
    return {
        index: tuple((tuple(alike), value) for value, alike in by_value.items()) for index, by_value in threads.items()
    }


def _sum(a: Any, b: Any) -> Any:  # noqa: ANN401 - ints or coordinates
    if a.__class__ is b.__class__ is int:
        return a + b
    return add_coordinates(a, b)
