"""Definedness of local and shared memory: which bits of each byte have no value, as stores of registers left them.

References
----------
PTX ISA, "st", "ld", "stmatrix", "ldmatrix".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.mechanisms.ldmatrix import fragment
from cutepy.sim.sanitize.undefined_bits import full

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutepy.sim.machine.events import Access
    from cutepy.sim.machine.lanes import Array

_BYTE = 8
_PAGE = 4096


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
    """The bytes of a state space: pages of those that ever lacked a bit, and one page for all others."""

    def __init__(self) -> None:
        self._page: Array = np.zeros(0, np.int64)
        self.lacks: Array = np.zeros((1, _PAGE), np.uint8)
        self.origins: Array = np.zeros((1, _PAGE), np.int64)

    def put(self, at: Array, lacks: Array, origins: Array) -> None:
        numbers = np.unique(at // _PAGE)
        self._page = np.pad(self._page, (0, max(0, int(numbers[-1]) + 1 - len(self._page))))
        new = numbers[self._page[numbers] == 0]
        self._page[new] = len(self.lacks) + np.arange(len(new))
        more = ((0, len(new)), (0, 0))
        self.lacks, self.origins = np.pad(self.lacks, more), np.pad(self.origins, more)
        place = self._page[at // _PAGE], at % _PAGE
        self.lacks[place], self.origins[place] = lacks, origins

    def get(self, at: Array) -> tuple[Array, Array]:
        place = self._pages_of(at), at % _PAGE
        return self.lacks[place], self.origins[place]

    def clear(self, at: Array) -> None:
        pages = self._pages_of(at)
        if pages.any():
            self.lacks[pages, at % _PAGE] = 0

    def _pages_of(self, at: Array) -> Array:
        numbers = at // _PAGE
        is_here = numbers < len(self._page)
        pages: Array = np.zeros(numbers.shape, np.int64)
        pages[is_here] = self._page[numbers[is_here]]
        return pages


class UndefinedMemory:
    """Bits of local and shared memory that have no value."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Bytes] = {}

    def write(self, access: Access, elements: Sequence[Element]) -> None:
        """Take a write of elements that may lack bits; without elements, what it writes has values."""
        at = _places(access)
        if not any(element.lacks.any() for element in elements):
            self._clear(access.space, at)
            return
        size = access.size_bytes // len(elements)
        lacks = np.concatenate([_in_bytes(element.lacks, size) for element in elements], axis=-1)
        origins = np.repeat(np.stack([element.origins for element in elements], axis=-1), size, axis=-1)
        self._set(access.space, np.broadcast_to(at, lacks.shape), lacks, origins)

    def read(self, access: Access, count: int, is_signed: bool) -> list[Element]:
        """Return elements that lanes load, extended by signs or by zeros; nothing if the memory lacks no bit."""
        if access.space not in self._spaces:
            return []
        shape = access.ctas.count, access.threads.count, access.size_bytes
        lacks, origins = self._get(access.space, np.broadcast_to(_places(access), shape))
        size = access.size_bytes // count
        ends = range(0, access.size_bytes, size)
        return [_element(lacks[..., n : n + size], origins[..., n : n + size], is_signed) for n in ends]

    def take(self, access: Access) -> tuple[Array, int]:
        """Return where the bits began that a read of shared memory lacks, and the first byte that lacks one.

        These bits are taken for such as have values, from then on.
        """
        if access.space not in self._spaces:
            return np.zeros(0, np.int64), 0
        at = _places(access)
        lacks, origins = self._get(access.space, at)
        wrong = lacks != 0
        found = origins[wrong]
        first = int(at[wrong].min()) if len(found) else 0
        if len(found):
            self._clear(access.space, at)
        return found, first

    def write_matrices(self, access: Access, elements: Sequence[Element]) -> None:
        """Take a `stmatrix` of registers that may lack bits."""
        at = _places(access)
        if not any(element.lacks.any() for element in elements):
            self._clear("shared", at)
            return
        order = _halves(access, len(elements))
        words = np.stack([element.lacks.astype(np.uint32) for element in elements], axis=-1)
        rows = access.ctas.count, access.threads.count // WARP, -1
        lacks = np.empty((*rows[:2], order.size), np.uint16)
        lacks[:, :, order] = words.view(np.uint16).reshape(rows)
        origins = np.empty(lacks.shape, np.int64)
        origins[:, :, order] = np.repeat(np.stack([e.origins for e in elements], axis=-1), 2, axis=-1).reshape(rows)
        self._set(
            "shared", at, lacks.view(np.uint8).reshape(at.shape), np.repeat(origins, 2, axis=-1).reshape(at.shape)
        )

    def read_matrices(self, access: Access, count: int) -> list[Element]:
        """Return the registers that `ldmatrix` gives; nothing if shared memory lacks no bit."""
        if "shared" not in self._spaces:
            return []
        lacks, origins = self._get("shared", _places(access))
        order, warps = _halves(access, count), (access.ctas.count, access.threads.count // WARP)
        shape = access.ctas.count, access.threads.count, count, 4
        lacks = np.ascontiguousarray(lacks).reshape(*warps, -1, 2)[:, :, order].reshape(shape)
        origins = origins.reshape(*warps, -1, 2)[:, :, order].reshape(shape)
        return [_element(lacks[:, :, n], origins[:, :, n], is_signed=False) for n in range(count)]

    def copy(self, source: Array, to: Array, size_bytes: int) -> None:
        """Take a copy within local memory, of some bytes at each place to another."""
        if "local" in self._spaces:
            within = np.arange(size_bytes)
            self._set("local", to[..., None] + within, *self._get("local", source[..., None] + within))

    def _set(self, space: str, at: Array, lacks: Array, origins: Array) -> None:
        self._spaces.setdefault(space, _Bytes()).put(at, lacks, origins)

    def _get(self, space: str, at: Array) -> tuple[Array, Array]:
        return self._spaces[space].get(at)

    def _clear(self, space: str, at: Array) -> None:
        held = self._spaces.get(space)
        if held is not None:
            held.clear(at)
            if not held.lacks.any():
                del self._spaces[space]


def _places(access: Access) -> Array:
    places: Array = np.asarray(access.addresses).astype(np.int64)[..., None] + np.arange(access.size_bytes)
    return places


def _halves(access: Access, count: int) -> Array:
    """Return which 16-bit element of a warp's matrices each half of its registers is."""
    return fragment(count, "trans" in access.instruction.parts).reshape(-1)


def _in_bytes(lacks: Array, size: int) -> Array:
    """Return the masks of an element's bytes."""
    if size > _BYTE:
        return np.repeat(np.where(lacks != 0, 0xFF, 0).astype(np.uint8)[..., None], size, axis=-1)
    return np.stack([(lacks >> np.uint64(_BYTE * n)).astype(np.uint8) for n in range(size)], axis=-1)


def _element(lacks: Array, origins: Array, is_signed: bool) -> Element:
    """Return an element, given the masks of its bytes: it began where the first of them that lacks bits did."""
    first = np.expand_dims((lacks != 0).argmax(axis=-1), -1)
    origin = np.take_along_axis(origins, first, axis=-1)[..., 0]
    size = lacks.shape[-1]
    if size > _BYTE:
        return Element(np.where(lacks.any(axis=-1), full(64), np.uint64(0)), origin)
    mask = np.zeros(lacks.shape[:-1], np.uint64)
    for n in range(size):
        mask |= lacks[..., n].astype(np.uint64) << np.uint64(_BYTE * n)
    sign = mask >> np.uint64(_BYTE * size - 1) & np.uint64(1)
    extended = mask | ~full(_BYTE * size)
    return Element(np.where((sign != 0) & is_signed, extended, mask), origin)
