"""Atomic operations: atom, red, red.async, and the arithmetic of bulk reductions.

Lanes that hit the same address do so one after the other, in the order of CTAs and threads.

Atomics one lane at a time: those of 128 bits, and those whose lanes are in several allocations.

References
----------
PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red, red.async", "cp.reduce.async.bulk". PTX
ISA, "Parallel Synchronization and Communication Instructions: atom", .b128.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from cutepy.sim.arithmetic import floats, minifloat
from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.events import Space
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.mechanisms.async_stores import issue
from cutepy.sim.mechanisms.collisions import one_after_another
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.ptx.model import Instruction

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_INTEGER: dict[str, Callable[..., Any]] = {
    "add": lambda old, x: old + x,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda old, x: x,
    "cas": lambda old, x, y: np.where(old == x, y, old),
    "inc": lambda old, x: np.where(old >= x, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, x: np.where((old == 0) | (old > x), x, old - old.dtype.type(1)),
    "min": np.minimum,
    "max": np.maximum,
}
_FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda old, x: old + x,
    "min": floats.minimum,
    "max": floats.maximum,
    "exch": lambda old, x: x,
}


_sums_integers = False


@contextmanager
def integer_sums(active: bool) -> Iterator[None]:
    """Add the bits of floats as integers, if `active`: a sum shows lost or doubled addends, whatever their order."""
    global _sums_integers
    before, _sums_integers = _sums_integers, active
    try:
        yield
    finally:
        _sums_integers = before


def _type(operation: str, name: str) -> str:
    """Return the type that an operation takes elements for."""
    return "u" if _sums_integers and operation == "add" else name


def combine(operation: str, name: str, old: Array, *values: Array, flush: bool = False) -> Array:
    """Return the bits of old values after an operation.

    Parameters
    ----------
    operation : str
        "add", "min", "max", "inc", "dec", "and", "or", "xor", "exch" or "cas".
    name : str
        PTX type of the elements; packed ones are combined half by half.
    old, *values : array
        Bits of one width; the result has the type of `old`.
    flush : bool
        True if float32 subnormals count as zero.
    """
    bits, name = old.dtype, _type(operation, name)
    if name in _HALVES and operation != "exch":
        widen = _widen_f16 if name.startswith("f16") else minifloat.bf16_to_f32
        narrow = minifloat.to_f16 if name.startswith("f16") else minifloat.to_bf16
        wide = [widen(np.ascontiguousarray(x).view(np.uint16)) for x in (old, *values)]
        return np.ascontiguousarray(narrow(_FLOAT[operation](*wide))).view(bits)
    kind = ("f" if name[0] == "f" else "i" if name[0] == "s" else "u") + str(bits.itemsize)
    operands = [np.ascontiguousarray(x).view(kind) for x in (old, *values)]
    if kind[0] == "f" and operation in _FLOAT:
        flush = flush and kind == "f4"
        if flush:
            operands = [floats.flush(x) for x in operands]
        result = _FLOAT[operation](*operands)
        result = floats.flush(result) if flush else result
        if operation == "add":
            result = floats.canonical(result) if kind == "f4" else floats.last_nan(result, *operands)
    else:
        result = _INTEGER[operation](*operands)
    return np.ascontiguousarray(result).view(bits)


def _widen_f16(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float32)


class Atomics:
    """Atomic operations of all groups of lanes."""

    def __init__(self, activity: Activity, memory: Memory, mbarriers: Mbarriers) -> None:
        self._activity = activity
        self._memory = memory
        self._mbarriers = mbarriers

    def apply(
        self, g: Group, i: Instruction, space: str, address: Array, operation: str, name: str, values: tuple[Array, ...]
    ) -> Array:
        """Apply an operation of each lane; returns the old values."""
        place, address = self._memory.resolve(space, address)
        if place == "global":
            self._activity.traffic.access("atomic", g, address, values[0].itemsize)
        old = self._apply(g, i, place, address, operation, name, values)
        if self._activity.observers:
            stores = old == values[0] if operation == "cas" else None
            self._observe(g, i, place, address, values[0].itemsize, stores)
        return old

    def _observe(self, g: Group, i: Instruction, place: Space, address: Array, size: int, stores: Array | None) -> None:
        if place == "shared":
            address = self._memory.locate(g, i, address, size, size)
        address = np.broadcast_to(address, (g.ctas.count, g.threads.count))
        self._memory.observe(g, i, "atomic", place, "generic", address, size, stores)

    def _apply(
        self,
        g: Group,
        i: Instruction,
        place: Space,
        address: Array,
        operation: str,
        name: str,
        values: tuple[Array, ...],
    ) -> Array:
        memory, kind = self._memory, values[0].dtype
        shape = (g.ctas.count, g.threads.count)
        size = kind.itemsize
        if place == "local":
            raise MemoryAccessError("local memory has no atomics", i, g.describe())
        if place == "shared":
            address = np.broadcast_to(memory.locate(g, i, address, size, size), shape)
            view, index = memory.shared_view(kind, 1), address // size
        else:
            address = np.broadcast_to(address, shape)
            region = memory.region(g, i, address, size, size)
            memory.check_writable(g, i, address, size)
            if region is None:
                return self._one_by_one(g, i, address, operation, name, values)
            view, index = region.view(kind, 1), (address - np.uint64(region.base)).astype(np.int64) // size
        # Additions of float32 in global memory flush, in shared memory they do not.
        flush = place == "global" and operation == "add"
        old = _in_order(view, index, operation, name, [np.broadcast_to(v, shape) for v in values], flush)
        # A compare-and-swap that fails is no change: who waits for one has not got on.
        if view[index].tobytes() != old.tobytes():
            self._activity.changes += 1
        return old

    def _one_by_one(
        self, g: Group, i: Instruction, address: Array, operation: str, name: str, values: tuple[Array, ...]
    ) -> Array:
        """Apply an operation of lanes that are in several allocations."""
        kind = values[0].dtype
        old = np.empty(address.shape, kind)
        lanes = [np.broadcast_to(v, address.shape).reshape(-1) for v in values]
        places = bytes_by_lane(self._activity, self._memory, g, i, "global", address, kind.itemsize)
        for n, place in enumerate(places):
            before = place.view(kind).copy()
            old.reshape(-1)[n] = before[0]
            after = combine(operation, name, before, *(v[n : n + 1] for v in lanes), flush=operation == "add")
            place.view(kind)[:] = after
        self._activity.changes += 1
        return old

    def vector(
        self, g: Group, i: Instruction, space: str, address: Array, operation: str, name: str, values: tuple[Array, ...]
    ) -> list[Array]:
        """Apply an operation to neighbouring elements, each atomically; returns the old values."""
        size = values[0].dtype.itemsize
        whole = size * len(values)
        place, address = self._memory.resolve(space, address)
        if place == "global":
            self._memory.region(g, i, address, whole, whole)
            self._memory.check_writable(g, i, address, whole)
        self._activity.traffic.access("atomic", g, address, whole)
        step = address.dtype.type(size)
        old = [
            self._apply(g, i, place, address + address.dtype.type(n) * step, operation, name, (value,))
            for n, value in enumerate(values)
        ]
        if self._activity.observers:
            self._observe(g, i, place, address, whole, None)
        return old

    def reduce_async(
        self, g: Group, i: Instruction, address: Array, operation: str, name: str, value: Array, barrier: Array
    ) -> None:
        """Combine with a CTA's shared memory some time later, and count the bytes at an mbarrier there."""
        memory, size = self._memory, value.dtype.itemsize
        wide = np.array(np.broadcast_to(value, (g.ctas.count, g.threads.count)))

        def combine_there(position: Array) -> None:
            _in_order(memory.shared_view(value.dtype, 1), position // size, operation, name, [wide], False)

        issue(self._activity, memory, self._mbarriers, g, i, address, barrier, size, "atomic", combine_there)


def _in_order(view: Array, index: Array, operation: str, name: str, values: list[Array], flush: bool) -> Array:
    """Apply an operation at positions of an array, one after the other where they are equal."""
    name = _type(operation, name)
    apply = partial(combine, operation, name, flush=flush)
    flat = index.reshape(-1)
    steps = np.diff(flat)
    if (steps > 0).all() or ((steps != 0).all() and len(np.unique(flat)) == len(flat)):
        found: Array = view[index]
        view[index] = apply(found, *values)
        return found
    return one_after_another(view, index, values, apply, operation, name, flush)


_BYTES = 16


def bytes_by_lane(
    activity: Activity, memory: Memory, g: Group, i: Instruction, space: str, address: Array, size_bytes: int
) -> Iterator[Array]:
    """Yield the bytes at the address of each lane, CTA by CTA, to be read and changed."""
    shape = (g.ctas.count, g.threads.count)
    place, address = memory.resolve(space, address)
    if place == "local":
        raise MemoryAccessError("local memory has no atomics", i, g.describe())
    if place == "shared":
        whole = memory.shared_view(np.dtype("u1"), 1)
        for start in np.broadcast_to(memory.locate(g, i, address, size_bytes, size_bytes), shape).flat:
            yield whole[start : start + size_bytes]
        return
    memory.region(g, i, address, size_bytes, size_bytes)
    memory.check_writable(g, i, address, size_bytes)
    activity.traffic.access("atomic", g, address, size_bytes)
    for start in np.broadcast_to(address, shape).flat:
        region = memory.known.find(int(start), int(start) + size_bytes)
        assert region is not None
        yield region.bytes[int(start) - region.base :][:size_bytes]


class WideAtomics:
    """Atomics of 128 bits, as two words of 64."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def apply(
        self,
        g: Group,
        i: Instruction,
        space: str,
        address: Array,
        expected: tuple[Array, ...],
        values: tuple[Array, ...],
    ) -> list[Array]:
        """Exchange the words of each lane, only where they are as expected if that is given; returns the old ones."""
        shape = (g.ctas.count, g.threads.count)
        new, wanted = (_words(words, shape) for words in (values, expected or values))
        old = np.empty_like(new)
        for n, place in enumerate(bytes_by_lane(self._activity, self._memory, g, i, space, address, _BYTES)):
            words = place.view(np.uint64)
            old[n] = words
            if not expected or (words == wanted[n]).all():
                words[:] = new[n]
                self._activity.changes += 1
        if self._activity.observers:
            found = (old == wanted).all(axis=1).reshape(shape) if expected else None
            where, address = self._memory.resolve(space, address)
            if where == "shared":
                address = self._memory.locate(g, i, address, _BYTES, _BYTES)
            self._memory.observe(g, i, "atomic", where, "generic", address, _BYTES, found)
        return [np.ascontiguousarray(old[:, n]).reshape(shape) for n in range(2)]


def _words(words: tuple[Array, ...], shape: tuple[int, int]) -> Array:
    return np.stack([np.broadcast_to(word, shape).reshape(-1) for word in words], axis=1)
