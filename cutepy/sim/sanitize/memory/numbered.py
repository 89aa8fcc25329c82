"""Things by number, which is given again when its thing is no longer needed: tables that don't grow forever."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

_FEWEST = 1024

T = TypeVar("T")


class Numbered(Generic[T]):
    """A table of things, numbered from 1.

    Examples
    --------
    >>> table = Numbered()
    >>> table.add("a"), table.add("b"), table.add("c")
    (1, 2, 3)
    >>> table.keep({2})
    ['a', 'c']
    >>> table.add("d"), table[2]
    (3, 'b')
    """

    def __init__(self) -> None:
        self._things: dict[int, T] = {}
        self._free: list[int] = []
        self._most = _FEWEST

    def __getitem__(self, number: int) -> T:
        """Return the thing of a number."""
        return self._things[number]

    def __len__(self) -> int:
        """Return how many things there are."""
        return len(self._things)

    @property
    def is_full(self) -> bool:
        """Whether it is time to look which are no longer needed: as many have come as were kept the last time."""
        return len(self._things) >= self._most

    def add(self, thing: T) -> int:
        """Give a thing a number."""
        number = self._free.pop() if self._free else len(self._things) + 1
        self._things[number] = thing
        return number

    def keep(self, needed: Collection[int]) -> list[T]:
        """Forget all but those of some numbers; returns them."""
        gone = [number for number in self._things if number not in needed]
        self._free += gone
        self._most = max(_FEWEST, 2 * (len(self._things) - len(gone)))
        return [self._things.pop(number) for number in gone]
