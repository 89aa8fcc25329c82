"""Patterns of addresses: the distances of lanes' addresses from the lowest one, each array of which is kept once.

A loop mostly shifts the addresses of an access by one distance for all lanes. What follows from the distances alone, as
which lanes touch the same bytes, is then found once, and not in each round.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cutepy.sim.machine.lanes import Array

_KEPT = 64
"""Patterns, those used last."""

_RECENT = 8
"""Arrays of addresses whose pattern is known without a look at them."""

_FEWEST = 1 << 12
"""Lanes of fewer of which a pattern costs more than it saves."""

_LARGEST = 1 << 62

T = TypeVar("T")


class AddressPattern:
    """Distances of lanes' addresses from the lowest one.

    Attributes
    ----------
    offsets : array of int64, (CTA or 1, lane or 1)
    highest : int
    uses : int
        Number of accesses that had this pattern.
    """

    def __init__(self, offsets: Array) -> None:
        self.offsets = offsets
        self.highest = int(offsets.max())
        self.uses = 0
        self._bits = int(np.bitwise_or.reduce(offsets, axis=None))
        self._derived: dict[Any, Any] = {}

    def is_aligned(self, low: int, size: int) -> bool:
        """Return whether all addresses are multiples of a power of two, if the lowest is at `low`."""
        return not (low | self._bits) & (size - 1)

    def once(self, key: Any, derive: Callable[[], T]) -> T:  # noqa: ANN401
        """Return a value that follows from the pattern and a key, and is derived once."""
        if key not in self._derived:
            self._derived[key] = derive()
        found: T = self._derived[key]
        return found

    def rows(self, size: int) -> Array:
        """Return the distances in units of a power of two."""
        shift = size.bit_length() - 1
        found: Array = self.once(("rows", size), lambda: self.offsets >> shift)
        return found

    def cells(self, size: int, granule: int) -> Array | slice:
        """Return the granules from the lowest address on that ranges of `size` bytes touch, each once, in order."""
        return self.once(("cells", size, granule), lambda: _cells(self.offsets.reshape(-1), size, granule))


def _cells(offsets: Array, size: int, granule: int) -> Array | slice:
    each = size // granule
    first = offsets // granule
    found = np.unique(first)
    if each > 1:
        found = np.unique(found[:, None] + np.arange(each))
    is_gapless = len(found) == int(found[-1]) - int(found[0]) + 1
    return slice(int(found[0]), int(found[-1]) + 1) if is_gapless else found


class LocatedPattern(NamedTuple):
    """Addresses: a pattern, and where its lowest is."""

    pattern: AddressPattern
    low: int

    def addresses(self) -> Array:
        """Return the addresses."""
        found: Array = (self.pattern.offsets + self.low).view(np.uint64)
        return found


class InOwnCta(NamedTuple):
    """Addresses in shared memory, each in the CTA of its lane.

    Attributes
    ----------
    offsets : array of int64, (CTA or 1, lane or 1)
        Offsets in that memory.
    slots : array of int, (CTA, 1)
    slot_bytes : int
    """

    offsets: Array
    slots: Array
    slot_bytes: int

    def addresses(self) -> Array:
        """Return the addresses in the shared memory of all CTAs."""
        found: Array = self.offsets + self.slots * self.slot_bytes
        return found


class AddressPatterns:
    """The patterns of a launch's accesses."""

    def __init__(self) -> None:
        self._recent: deque[tuple[Array, LocatedPattern]] = deque(maxlen=_RECENT)
        self._patterns: OrderedDict[tuple[Any, ...], AddressPattern] = OrderedDict()

    def of(self, addresses: Array) -> LocatedPattern | None:
        """Return the pattern of addresses, the same one for equal distances; None if they are too few for it to pay."""
        if addresses.size < _FEWEST:
            return None
        for array, known in self._recent:
            if array is addresses:
                return known
        low = int(addresses.min())
        if low >= _LARGEST:
            return None
        offsets = (addresses - addresses.dtype.type(low)).astype(np.int64, copy=False)
        key = (offsets.shape, *offsets[:: max(1, len(offsets) // 2), :: max(1, offsets.shape[1] // 2)].flat)
        found = self._patterns.get(key)
        if found is None or not np.array_equal(found.offsets, offsets):
            found = self._patterns[key] = AddressPattern(offsets)
            while len(self._patterns) > _KEPT:
                self._patterns.popitem(last=False)
        self._patterns.move_to_end(key)
        located = LocatedPattern(found, low)
        if addresses.flags.owndata:  # nobody changes it in place
            self._recent.appendleft((addresses, located))
        return located
