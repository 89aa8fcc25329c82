"""TMA: bulk copies of boxes of tensors between global and shared memory.

References
----------
PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "Tensors": "Tiled Mode", "Swizzling Modes".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.layouts.sm90 import TensorMap
from cutepy.layouts.sm90.arch import SWIZZLE_BITS
from cutepy.sim import minifloat
from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.events import AsyncOperation
from cutepy.sim.lanes import Array

if TYPE_CHECKING:
    from cutepy.sim.group import Group
    from cutepy.sim.machine import Machine
    from cutepy.sim.ptx.model import Instruction

_UNIT = 16
_PERIOD = 1024
_ALIGNMENT = 128
_KINDS = {"u8": "u1", "u16": "u2", "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8", "f16": "f2", "f32": "f4"}


@cache
def swizzled_units(count: int, mask: int, start: int) -> Array | None:
    """Return where the 16-byte units of a box lie in shared memory, relative to its start.

    `start` is the box's address modulo 1024, in units. None if they lie in order.
    """
    if mask == 0:
        return None
    unit = np.arange(start, start + count)
    return (unit ^ (unit >> 3 & mask)) - start


def _mask(tensor: TensorMap) -> int:
    """Return the mask of the unit bits that a tensor map's swizzle changes."""
    return (1 << SWIZZLE_BITS[tensor.swizzle]) - 1


class TensorCopies:
    """TMA copies of all groups of lanes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def load(
        self,
        g: Group,
        i: Instruction,
        to: Array,
        tensor: Array,
        coordinates: tuple[Array, ...],
        barrier: Array,
        mask: Array | None,
    ) -> None:
        """Copy a box to shared memory, of several CTAs if there is a mask, and count its bytes at an mbarrier."""
        machine, memory = self._machine, self._machine.memory
        shape = (g.ctas.count, g.threads.count)
        _, to = memory.resolve("shared" if to.dtype == np.uint32 else "generic", to)
        _, barrier = memory.resolve("shared" if barrier.dtype == np.uint32 else "generic", barrier)
        targets = np.broadcast_to(memory.locate(g, i, to, _ALIGNMENT, _ALIGNMENT), shape)
        barriers = np.broadcast_to(memory.locate(g, i, barrier, 8, 8), shape)
        maps = np.broadcast_to(tensor, shape)
        origin = [np.broadcast_to(c, shape) for c in coordinates]
        masks = None if mask is None else np.broadcast_to(mask, shape)
        for row in range(shape[0]):
            for column in range(shape[1]):
                descriptor = machine.tensormaps.read(g, i, int(maps[row, column]))
                at = tuple(int(c[row, column]) for c in origin)
                self._check(g, i, descriptor, at, int(targets[row, column]) % memory.slot_bytes)
                slots = self._slots(int(targets[row, column]) // memory.slot_bytes, masks, row, column)
                self._load_one(g, i, descriptor, at, int(targets[row, column]), int(barriers[row, column]), slots)

    def _slots(self, own: int, masks: Array | None, row: int, column: int) -> list[int] | None:
        """Return the CTAs that a multicast reaches, or None for the addressed one alone."""
        if masks is None:
            return None
        size = self._machine.residents.cluster_size
        base = own - own % size
        mask = int(masks[row, column])
        return [base + rank for rank in range(size) if mask >> rank & 1]

    def _check(self, g: Group, i: Instruction, tensor: TensorMap, at: tuple[int, ...], offset: int) -> None:
        if len(at) != len(tensor.dims):
            raise DescriptorError(
                f"the tensor map has rank {len(tensor.dims)}, and the copy gives {len(at)} coordinates", i, g.describe()
            )
        if tensor.interleave != "none" or any(s != 1 for s in tensor.element_strides):
            raise DescriptorError(
                f"interleave {tensor.interleave} and element strides {tensor.element_strides} are not simulated",
                i,
                g.describe(),
            )
        if offset + tensor.box_bytes > self._machine.memory.used_bytes:
            raise MemoryAccessError(
                f"a box of {tensor.box_bytes} bytes at shared address {offset:#x} ends beyond the CTA's "
                f"{self._machine.memory.used_bytes} bytes",
                i,
                g.describe(),
            )

    def _load_one(
        self, g: Group, i: Instruction, tensor: TensorMap, at: tuple[int, ...], target: int, barrier: int, slots: list[int] | None
    ) -> None:
        machine, memory = self._machine, self._machine.memory
        own, offset = divmod(target, memory.slot_bytes)
        barrier_slot, barrier_offset = divmod(barrier, memory.slot_bytes)
        reached = [own] if slots is None else slots
        notified = np.array([barrier_slot] if slots is None else slots)

        def apply() -> None:
            data = self.read_box(g, i, tensor, at)
            place = swizzled_units(len(data), _mask(tensor), offset % _PERIOD // _UNIT)
            units = memory.shared_view(np.dtype("c16"), 1)
            for slot in reached:
                start = (slot * memory.slot_bytes + offset) // _UNIT
                # Swizzling may step back below the start, but stays within the pattern's 1024 bytes.
                units[slice(start, start + len(data)) if place is None else start + place] = data
                if machine.observers:
                    address = np.array([[slot * memory.slot_bytes + offset]])
                    memory.observe(g, i, "write", "shared", "async", address, tensor.box_bytes)
            machine.mbarriers.deliver(g, i, barrier_offset, notified, tensor.box_bytes)

        machine.stats["tma"] += 1
        detail = f"{tensor.box_bytes} bytes of the tensor at {tensor.global_address:#x}, {at}, to shared {offset:#x}"
        machine.issue(AsyncOperation("tma_load", i, g.ctas, g.threads, detail, apply))

    def store(
        self,
        g: Group,
        i: Instruction,
        tensor: Array,
        coordinates: tuple[Array, ...],
        source: Array,
        reduction: str | None,
    ) -> None:
        """Copy a box from shared memory, or combine it with what is there."""
        machine, memory = self._machine, self._machine.memory
        shape = (g.ctas.count, g.threads.count)
        _, source = memory.resolve("shared" if source.dtype == np.uint32 else "generic", source)
        sources = np.broadcast_to(memory.locate(g, i, source, _ALIGNMENT, _ALIGNMENT), shape)
        maps = np.broadcast_to(tensor, shape)
        origin = [np.broadcast_to(c, shape) for c in coordinates]
        # A warp that stores one box with several lanes stores the same bytes again and again: once will do.
        uniform = reduction is None and all(x.shape[1] == 1 for x in (source, tensor, *coordinates))
        for row in range(shape[0]):
            for column in range(1 if uniform else shape[1]):
                descriptor = machine.tensormaps.read(g, i, int(maps[row, column]))
                at = tuple(int(c[row, column]) for c in origin)
                self._check(g, i, descriptor, at, int(sources[row, column]) % memory.slot_bytes)
                self._store_one(g, i, descriptor, at, int(sources[row, column]), reduction, (row, column))

    def _store_one(
        self, g: Group, i: Instruction, tensor: TensorMap, at: tuple[int, ...], source: int, reduction: str | None, lane: tuple[int, int]
    ) -> None:
        machine, memory = self._machine, self._machine.memory

        def apply() -> None:
            units = memory.shared_view(np.dtype("c16"), 1)
            count = tensor.box_bytes // _UNIT
            place = swizzled_units(count, _mask(tensor), source % memory.slot_bytes % _PERIOD // _UNIT)
            start = source // _UNIT
            data = units[slice(start, start + count) if place is None else start + place]
            if machine.observers:
                memory.observe(g, i, "read", "shared", "async", np.array([[source]]), tensor.box_bytes)
            self.write_box(g, i, tensor, at, data, reduction)

        machine.stats["tma"] += 1
        detail = f"{tensor.box_bytes} bytes of shared {source % memory.slot_bytes:#x} to the tensor at {tensor.global_address:#x}, {at}"
        operation = AsyncOperation("tma_store", i, g.ctas, g.threads, detail, apply)
        machine.issue(operation)
        machine.bulk.track(g, lane, operation)

    # Boxes.

    def _inside(
        self, g: Group, i: Instruction, tensor: TensorMap, at: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[Array, tuple[slice, ...]] | None:
        """Return the part of a box that is inside of the tensor: in global memory, and where in the box."""
        lows = [max(0, -c) for c in at]
        highs = [min(b, d - c) for b, d, c in zip(tensor.box, tensor.dims, at, strict=True)]
        if any(low >= high for low, high in zip(lows, highs, strict=True)):
            return None
        steps = ((tensor.bits // 8), *tensor.strides_bytes)
        start = tensor.global_address + sum((c + low) * s for c, low, s in zip(at, lows, steps, strict=True))
        extents = [high - low for low, high in zip(lows, highs, strict=True)]
        end = start + sum((e - 1) * s for e, s in zip(extents, steps, strict=True)) + (tensor.bits // 8)
        memory = self._machine.memory
        region = memory.known.find(start, end)
        if region is None:
            raise MemoryAccessError(
                f"the box at {at} of the tensor at {tensor.global_address:#x} covers {start:#x} to {end:#x}, which is "
                f"{memory.known.nearest(start if memory.known.find(start, start + 1) is None else end)}",
                i,
                g.describe(),
            )
        scale = dtype.itemsize // (tensor.bits // 8)
        view = np.ndarray(
            (*extents[:0:-1], extents[0] // scale), dtype, region.bytes, start - region.base, (*steps[:0:-1], dtype.itemsize)
        )
        return view, tuple(slice(low, high) for low, high in zip(lows[::-1], highs[::-1], strict=True))

    def read_box(self, g: Group, i: Instruction, tensor: TensorMap, at: tuple[int, ...]) -> Array:
        """Return a box as 16-byte units, with what is outside of the tensor filled in."""
        whole = all(0 <= c and c + b <= d for c, b, d in zip(at, tensor.box, tensor.dims, strict=True))
        if whole:
            found = self._inside(g, i, tensor, at, np.dtype("c16"))
            assert found is not None
            return found[0].reshape(-1)
        kind = np.dtype(f"u{(tensor.bits // 8)}")
        box = np.zeros(tensor.box[::-1], kind)
        if tensor.oob_fill == "nan":
            box[...] = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF}.get(tensor.dtype, 0)
        found = self._inside(g, i, tensor, at, kind)
        if found is not None:
            box[found[1]] = found[0]
        return box.reshape(-1).view("c16")

    def write_box(
        self, g: Group, i: Instruction, tensor: TensorMap, at: tuple[int, ...], data: Array, reduction: str | None
    ) -> None:
        """Write a box given as 16-byte units, without what is outside of the tensor."""
        whole = all(0 <= c and c + b <= d for c, b, d in zip(at, tensor.box, tensor.dims, strict=True))
        if whole and reduction is None:
            found = self._inside(g, i, tensor, at, np.dtype("c16"))
            assert found is not None
            found[0][...] = data.reshape(found[0].shape)
            return
        kind = np.dtype(f"u{(tensor.bits // 8)}")
        found = self._inside(g, i, tensor, at, kind)
        if found is None:
            return
        box = np.ascontiguousarray(data).view(kind).reshape(tensor.box[::-1])[found[1]]
        found[0][...] = box if reduction is None else combine(found[0], box, tensor.dtype, reduction)


def combine(old: Array, new: Array, element: str, operation: str) -> Array:
    """Return the bits of old and new values combined (add, min, max, and, or, xor, inc, dec)."""
    bits = old.dtype
    if element == "bf16":
        a, b = minifloat.bf16_to_f32(np.ascontiguousarray(old)), minifloat.bf16_to_f32(np.ascontiguousarray(new))
        return minifloat.f32_to_bf16(_COMBINE[operation](a, b))
    kind = _KINDS.get(element, f"u{bits.itemsize}")
    a, b = np.ascontiguousarray(old).view(kind), np.ascontiguousarray(new).view(kind)
    return np.ascontiguousarray(_COMBINE[operation](a, b)).view(bits)


_COMBINE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
