"""Definedness of local and shared memory: which bits of each byte have no value, as stores of registers left them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.sanitize.undefined_bits import full

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Array

_BYTE = 8


class Element(NamedTuple):
    """The definedness of an element that lanes load or store.

    Attributes
    ----------
    lacks : array of uint64
        Mask of the bits that have no value, by lane; of more than 64 bits the mask of 64 stands for all.
    origins : array of int64
        Where that began, by lane: of lanes that lack no bit it is not asked.
    """

    lacks: Array
    origins: Array


class _Bytes:
    """The bytes of a state space, up to the last one that ever lacked a bit."""

    def __init__(self) -> None:
        self.lacks: Array = np.zeros(0, np.uint8)
        self.origins: Array = np.zeros(0, np.int64)

    def grow(self, end: int) -> None:
        more = max(0, 2 * end - len(self.lacks)) if end > len(self.lacks) else 0
        self.lacks, self.origins = np.pad(self.lacks, (0, more)), np.pad(self.origins, (0, more))


class UndefinedMemory:
    """Bits of local and shared memory that have no value."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Bytes] = {}

    def write(self, access: Access, elements: Sequence[Element]) -> None:
        """Take a write of elements that may lack bits; without elements, what it writes has values."""
        if not any(element.lacks.any() for element in elements):
            held = self._spaces.get(access.space)
            if held is not None:
                at = _places(access)
                held.lacks[at[at < len(held.lacks)]] = 0
                if not held.lacks.any():
                    del self._spaces[access.space]
            return
        shape = *elements[0].lacks.shape, access.size_bytes
        at = np.broadcast_to(_places(access), shape)
        held = self._spaces.setdefault(access.space, _Bytes())
        held.grow(int(at.max()) + 1)
        size = access.size_bytes // len(elements)
        held.lacks[at] = np.concatenate([_in_bytes(element.lacks, size) for element in elements], axis=-1)
        held.origins[at] = np.repeat(np.stack([element.origins for element in elements], axis=-1), size, axis=-1)

    def read(self, access: Access, count: int, is_signed: bool) -> list[Element]:
        """Return elements that lanes load, extended by signs or by zeros; nothing if the memory lacks no bit."""
        held = self._spaces.get(access.space)
        if held is None:
            return []
        shape = access.ctas.count, access.threads.count, access.size_bytes
        at = np.broadcast_to(_places(access), shape)
        is_here = at < len(held.lacks)
        at = np.where(is_here, at, 0)
        lacks, origins = np.where(is_here, held.lacks[at], 0), np.where(is_here, held.origins[at], 0)
        size = access.size_bytes // count
        found = []
        for start in range(0, access.size_bytes, size):
            part = lacks[..., start : start + size]
            first = np.expand_dims((part != 0).argmax(axis=-1), -1)
            origin = np.take_along_axis(origins[..., start : start + size], first, axis=-1)[..., 0]
            found.append(Element(_from_bytes(part, is_signed), origin))
        return found

    def copy(self, source: Array, to: Array, size_bytes: int) -> None:
        """Take a copy within local memory, of some bytes at each place to another."""
        held = self._spaces.get("local")
        if held is None:
            return
        within = np.arange(size_bytes)
        held.grow(int(max(source.max(), to.max())) + size_bytes)
        source, to = source[..., None] + within, to[..., None] + within
        held.lacks[to], held.origins[to] = held.lacks[source], held.origins[source]


def _places(access: Access) -> Array:
    places: Array = np.asarray(access.addresses).astype(np.int64)[..., None] + np.arange(access.size_bytes)
    return places


def _in_bytes(lacks: Array, size: int) -> Array:
    """Return the masks of an element's bytes."""
    if size > _BYTE:
        return np.repeat(np.where(lacks != 0, 0xFF, 0).astype(np.uint8)[..., None], size, axis=-1)
    return np.stack([(lacks >> np.uint64(_BYTE * n)).astype(np.uint8) for n in range(size)], axis=-1)


def _from_bytes(lacks: Array, is_signed: bool) -> Array:
    """Return the mask of an element, given those of its bytes."""
    size = lacks.shape[-1]
    if size > _BYTE:
        return np.where(lacks.any(axis=-1), full(64), np.uint64(0))
    mask = np.zeros(lacks.shape[:-1], np.uint64)
    for n in range(size):
        mask |= lacks[..., n].astype(np.uint64) << np.uint64(_BYTE * n)
    sign = mask >> np.uint64(_BYTE * size - 1) & np.uint64(1)
    extended = mask | ~full(_BYTE * size)
    return np.where((sign != 0) & is_signed, extended, mask)
