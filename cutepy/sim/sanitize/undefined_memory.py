"""Definedness of local and shared memory: which bits of each byte have no value, as stores of registers leave them.

References
----------
PTX ISA, "st", "ld", "stmatrix", "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.events import Access
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.mechanisms.ldmatrix import ROW_BYTES, fragment_of, in_bytes
from cutepy.sim.sanitize.undefined_bits import full

_BYTE = 8
_PAGE = 4096
_BLOCK = 16
"""Alignment of the largest vectors: a structure that is copied by them has no padding that fills more."""
BESIDE_VALUES = 1 << 62
"""Origin of unwritten bytes of local memory that may be padding; of others it is 0."""


class Element(NamedTuple):
    """The definedness of an element that lanes load or store.

    Attributes
    ----------
    lacks : array of uint64
        Mask of the bits that have no value, by lane; of more than 64 bits the mask of 64 stands for all.
    origins : array of int64
        Origin of the missing bits, by lane; unused for lanes that lack none.
    """

    lacks: Array
    origins: Array


class _Pages:
    """Numbers by address: pages of those that were put, and one page of all others, which are alike."""

    def __init__(self, others: int, dtype: type) -> None:
        self._page: Array = np.zeros(0, np.int64)
        self._held: Array = np.full((1, _PAGE), others, dtype)
        self._count = 1

    def put(self, at: Array, values: Array | int) -> None:
        pages = self._pages_of(at)
        if pages.all():
            self._held[pages, at % _PAGE] = values
            return
        numbers = np.unique(at // _PAGE)
        if numbers[-1] >= len(self._page):
            self._page = np.pad(self._page, (0, int(numbers[-1]) + 1))
        new = numbers[self._page[numbers] == 0]
        end = self._count + len(new)
        if end > len(self._held):
            grown = np.empty((2 * end, _PAGE), self._held.dtype)
            grown[: self._count] = self._held[: self._count]
            self._held = grown
        self._held[self._count : end] = self._held[0]
        self._page[new] = self._count + np.arange(len(new))
        self._count = end
        self._held[self._page[at // _PAGE], at % _PAGE] = values

    def get(self, at: Array) -> Array:
        found: Array = self._held[self._pages_of(at), at % _PAGE]
        return found

    def update(self, at: Array, value: int) -> None:
        """Put a number where numbers were put before, and nowhere else."""
        pages = self._pages_of(at)
        if pages.any():
            is_put = pages != 0
            self._held[pages[is_put], (at % _PAGE)[is_put]] = value

    def any(self) -> bool:
        return bool(self._held[: self._count].any())

    def _pages_of(self, at: Array) -> Array:
        numbers = at // _PAGE
        if numbers.size and int(numbers.max()) < len(self._page):
            known: Array = self._page[numbers]
            return known
        is_here = numbers < len(self._page)
        pages: Array = np.zeros(numbers.shape, np.int64)
        pages[is_here] = self._page[numbers[is_here]]
        return pages


class _Bytes:
    """The bytes of a state space: which bits they lack, and where that began, if a store of registers left it so."""

    def __init__(self, *, begins_undefined: bool) -> None:
        self._begins_undefined = begins_undefined
        self._lacks = _Pages(0xFF if begins_undefined else 0, np.uint8)
        self._origins = _Pages(0, np.int64)

    def put(self, at: Array, lacks: Array, origins: Array) -> None:
        self._lacks.put(at, lacks)
        if lacks.any():
            self._origins.put(at, origins)

    def get(self, at: Array) -> tuple[Array, Array]:
        return self._lacks.get(at), self._origins.get(at)

    def clear(self, at: Array) -> None:
        if self._begins_undefined:
            self._lacks.put(at, 0)
        else:
            self._lacks.update(at, 0)

    def lack(self, at: Array) -> bool:
        """Return whether some of these bytes lack a bit."""
        return bool(self._lacks.get(at).any())

    def has_values(self) -> bool:
        """Return whether all bytes have values."""
        return not self._lacks.any()


class UndefinedMemory:
    """Bits of local and shared memory that have no value: of local memory all where a thread begins.

    Shared memory that nothing has written is left to `memory/shadow.py`.
    """

    def __init__(self) -> None:
        self._spaces = {"local": _Bytes(begins_undefined=True)}

    def write(self, access: Access, elements: Sequence[Element]) -> None:
        """Record a write of elements that may lack bits; without elements, all written bits have values."""
        at = _places(access)
        if not any(element.lacks.any() for element in elements):
            self._clear(access.space, at)
            return
        size = access.size_bytes // len(elements)
        lacks = np.concatenate([_in_bytes(element.lacks, size) for element in elements], axis=-1)
        origins = np.repeat(np.stack([element.origins for element in elements], axis=-1), size, axis=-1)
        self._set(access.space, np.broadcast_to(at, lacks.shape), lacks, origins)

    def read(self, access: Access, count: int, is_signed: bool) -> list[Element]:
        """Return elements that lanes load, extended by signs or by zeros; nothing if they lack no bit."""
        if access.space not in self._spaces:
            return []
        shape = access.ctas.count, access.threads.count, access.size_bytes
        at = np.broadcast_to(_places(access), shape)
        if not self._spaces[access.space].lack(at):
            return []
        lacks, origins = self._get(access.space, at)
        if access.space == "local":
            unwritten = (lacks != 0) & (origins == 0)
            if unwritten.any():
                origins = np.where(unwritten, np.where(self._is_beside_values(access), BESIDE_VALUES, 0), origins)
        size = access.size_bytes // count
        ends = range(0, access.size_bytes, size)
        return [_element(lacks[..., n : n + size], origins[..., n : n + size], is_signed) for n in ends]

    def _is_beside_values(self, access: Access) -> Array:
        """Return whether each byte's aligned 16 bytes of local memory have a byte that was written, as padding does."""
        blocks = _places(access) // _BLOCK
        within = blocks[..., None] * _BLOCK + np.arange(_BLOCK)
        found: Array = (self._get("local", within)[0] == 0).any(axis=-1)
        return found

    def take(self, access: Access) -> tuple[Array, int]:
        """Return where the bits began that a read of shared memory lacks, and the first byte that lacks one.

        These bits are taken for such as have values, from then on.
        """
        if access.space not in self._spaces:
            return np.zeros(0, np.int64), 0
        at = _places(access)
        lacks, origins = self._get(access.space, at)
        wrong = lacks != 0
        if access.dropped is not None:
            wrong &= ~access.dropped.reshape(at.shape)
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
        kind, order = fragment_of(access.instruction, len(elements))
        words = np.stack([element.lacks.astype(np.uint32) for element in elements], axis=-1)
        rows = access.ctas.count, access.threads.count // WARP, -1
        lacks = np.empty((*rows[:2], order.size), kind)
        lacks[:, :, order.reshape(-1)] = words.view(kind).reshape(rows)
        origins = np.empty(lacks.shape, np.int64)
        of_registers, size = np.stack([e.origins for e in elements], axis=-1), kind.itemsize
        origins[:, :, order.reshape(-1)] = np.repeat(of_registers, words.itemsize // size, axis=-1).reshape(rows)
        of_bytes = np.repeat(origins, size, axis=-1).reshape(at.shape)
        self._set("shared", at, lacks.view(np.uint8).reshape(at.shape), of_bytes)

    def read_matrices(self, access: Access, count: int) -> list[Element]:
        """Return the registers that `ldmatrix` gives; nothing if shared memory lacks no bit."""
        if "shared" not in self._spaces:
            return []
        lacks, origins = self._get("shared", _places(access))
        i = access.instruction
        if access.size_bytes < ROW_BYTES:  # elements of 4 or 6 bits, of which each gets a byte
            lacks, of_bytes = in_bytes(i, lacks), np.arange(ROW_BYTES) * access.size_bytes // ROW_BYTES
            origins = origins[..., of_bytes]
        (kind, order), warps = fragment_of(i, count), (access.ctas.count, access.threads.count // WARP)
        shape = access.ctas.count, access.threads.count, count, 4
        lacks, origins = (
            np.ascontiguousarray(x).reshape(*warps, -1, kind.itemsize)[:, :, order.reshape(-1)].reshape(shape)
            for x in (lacks, origins)
        )
        return [_element(lacks[:, :, n], origins[:, :, n], is_signed=False) for n in range(count)]

    def copy(self, space: str, source: Array, to: Array, size_bytes: int) -> None:
        """Take a copy within local or shared memory, of some bytes at each place to another."""
        within = np.arange(size_bytes)
        if space in self._spaces:
            self._set(space, to[..., None] + within, *self._get(space, source[..., None] + within))

    def _set(self, space: str, at: Array, lacks: Array, origins: Array) -> None:
        self._spaces.setdefault(space, _Bytes(begins_undefined=False)).put(at, lacks, origins)

    def _get(self, space: str, at: Array) -> tuple[Array, Array]:
        return self._spaces[space].get(at)

    def _clear(self, space: str, at: Array) -> None:
        held = self._spaces.get(space)
        if held is not None:
            held.clear(at)
            if space != "local" and held.has_values():
                del self._spaces[space]


def _places(access: Access) -> Array:
    return np.asarray(access.addresses).astype(np.int64)[..., None] + np.arange(access.size_bytes)


def _in_bytes(lacks: Array, size: int) -> Array:
    """Return the masks of an element's bytes."""
    if size > _BYTE:
        return np.repeat(np.where(lacks != 0, 0xFF, 0).astype(np.uint8)[..., None], size, axis=-1)
    return np.stack([(lacks >> np.uint64(_BYTE * n)).astype(np.uint8) for n in range(size)], axis=-1)


def _element(lacks: Array, origins: Array, is_signed: bool) -> Element:
    """Return an element, given the masks of its bytes: of those that lack bits, one that is no padding says where."""
    origin = np.where(lacks != 0, origins, np.iinfo(np.int64).max).min(axis=-1)
    size = lacks.shape[-1]
    if size > _BYTE:
        return Element(np.where(lacks.any(axis=-1), full(64), np.uint64(0)), origin)
    mask = np.zeros(lacks.shape[:-1], np.uint64)
    for n in range(size):
        mask |= lacks[..., n].astype(np.uint64) << np.uint64(_BYTE * n)
    sign = mask >> np.uint64(_BYTE * size - 1) & np.uint64(1)
    extended = mask | ~full(_BYTE * size)
    return Element(np.where((sign != 0) & is_signed, extended, mask), origin)
