"""TMA: bulk copies of boxes of tensors between global and shared memory.

References
----------
PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "Tensors": "Tiled Mode", "Swizzling Modes".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cutepy.layouts.sm90 import TensorMap
from cutepy.layouts.sm90.arch import UNIT_BYTES, SwizzleMode, pattern_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.layouts.sm90.tensor_map import SMEM_ALIGNMENT
from cutepy.sim.arithmetic.minifloat import f32_to_tf32
from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.machine.events import AsyncKind, AsyncOperation, TmaEvent
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.traffic import Kind
from cutepy.sim.mechanisms.atomics import combine

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.mechanisms.bulk_copies import BulkCopies
    from cutepy.sim.mechanisms.mbarriers import Mbarriers
    from cutepy.sim.mechanisms.tensor_maps import TensorMaps
    from cutepy.sim.ptx.model import Instruction

_PERIOD = pattern_bytes("SW128")
"""Of the longest pattern, and so of all."""
_UNIT_KIND = np.dtype("c16")
"""A type of 16 bytes that numpy moves fast; never computed with."""
_NAN = b"\xf7\x7f"
"""What elements outside of a tensor read as, repeated to their width, if not as zeros (measured on an H200)."""
_ADDRESSES = 1 << 64
"""Addresses are computed modulo this: descriptors may count on the way back."""

Coordinates = tuple[int, ...]
Piece = tuple[tuple[slice, ...], Array]
"""Where in a box, the contiguous mode last, and the elements of global memory there."""


@cache
def swizzled_units(count: int, mode: SwizzleMode, start: int) -> Array | None:
    """Return where the 16-byte units of a box lie in shared memory, relative to its start.

    `start` is the box's address modulo 1024, in units. None if they lie in order.
    """
    if mode == "INTER":
        return None
    swizzle: Any = byte_swizzle(mode)  # bit operations, which arrays have too
    units: Array = swizzle(np.arange(start, start + count) * UNIT_BYTES) // UNIT_BYTES - start
    return units


class Box:
    """The box of a tensor map, with what every copy of it needs worked out once."""

    def __init__(self, tensor: TensorMap) -> None:
        self.tensor = tensor
        self.dims, self.extents, self.every = tensor.dims, tensor.box_elems, tensor.element_strides
        self.rank = len(tensor.dims)
        self.element_bytes = tensor.bits // 8
        self.unit_elems = max(1, UNIT_BYTES // self.element_bytes)
        self.size_bytes = tensor.box_bytes
        self.units = self.size_bytes // UNIT_BYTES
        self.strides = (self.element_bytes, *tensor.strides_bytes)
        self.steps = tuple(s * n for s, n in zip(self.strides, self.every, strict=True))
        self.kind = np.dtype(f"u{self.element_bytes}")
        self.span_bytes = _span(self.extents, self.steps, self.element_bytes)
        row_units = self.extents[0] * self.element_bytes // UNIT_BYTES
        self.unit_shape = (*self.extents[:0:-1], row_units)
        self.unit_strides = (*self.steps[:0:-1], UNIT_BYTES)

    def is_inside(self, at: Coordinates) -> bool:
        """Tell whether the box at these coordinates lies inside of the tensor."""
        spans = zip(at, self.extents, self.every, self.dims, strict=True)
        return all(0 <= c and c + (e - 1) * n < d for c, e, n, d in spans)

    def inside(self, at: Coordinates) -> tuple[list[int], list[int]]:
        """Return the ranges of positions in the box at these coordinates whose elements are inside of the tensor."""
        lows = [max(0, -(c // n)) for c, n in zip(at, self.every, strict=True)]
        ends = zip(at, self.extents, self.every, self.dims, strict=True)
        return lows, [min(e, -((c - d) // n)) for c, e, n, d in ends]

    def address(self, at: Coordinates, positions: Sequence[int]) -> int:
        """Return the address of an element of the box at these coordinates."""
        first = self.tensor.global_address + sum(c * s for c, s in zip(at, self.strides, strict=True))
        return (first + sum(p * s for p, s in zip(positions, self.steps, strict=True))) % _ADDRESSES


@cache
def _box(tensor: TensorMap) -> Box:
    return Box(tensor)


class TensorCopies:
    """TMA copies of all groups of lanes."""

    def __init__(
        self, activity: Activity, memory: Memory, mbarriers: Mbarriers, tensormaps: TensorMaps, bulk: BulkCopies
    ) -> None:
        self._activity, self._memory = activity, memory
        self._mbarriers, self._tensormaps, self._bulk = mbarriers, tensormaps, bulk

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
        memory = self._memory
        boxes, targets = self._boxes(g, i, to, tensor, coordinates)
        _, barrier = memory.resolve("shared" if barrier.dtype == np.uint32 else "generic", barrier)
        shape = (g.ctas.count, g.threads.count)
        barriers = np.broadcast_to(memory.locate(g, i, barrier, 8, 8), shape).reshape(-1).tolist()
        masks = None if mask is None else np.broadcast_to(mask, shape).reshape(-1).tolist()
        copies, notices = [], []
        for n, ((box, at), target) in enumerate(zip(boxes, targets, strict=True)):
            if masks is None:
                copies.append((box, at, [target]))
                notices.append((barriers[n], box.size_bytes))
            else:
                slots = self._reached(target // memory.slot_bytes, masks[n])
                offset, place = target % memory.slot_bytes, barriers[n] % memory.slot_bytes
                copies.append((box, at, [slot * memory.slot_bytes + offset for slot in slots]))
                notices += [(slot * memory.slot_bytes + place, box.size_bytes) for slot in slots]

        self._notify("load", i, boxes, targets)

        def apply() -> None:
            for box, at, places in copies:
                self._write_shared(g, i, box, places, self._read_box(g, i, box, at))
            positions = np.array([position for position, _ in notices])
            sizes = np.array([size for _, size in notices])
            for offset in dict.fromkeys((positions % memory.slot_bytes).tolist()):
                here = positions % memory.slot_bytes == offset
                slots, inverse = np.unique(positions[here] // memory.slot_bytes, return_inverse=True)
                total = np.bincount(inverse, sizes[here]).astype(np.int64)
                self._mbarriers.deliver(g, i, offset, slots, total)

        self._issue("tma_load", g, i, boxes, apply)

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
        # A warp that stores one box with several lanes stores the same bytes again and again: once will do.
        lanes = 1 if reduction is None and all(x.shape[1] == 1 for x in (source, tensor, *coordinates)) else None
        boxes, sources = self._boxes(g, i, source, tensor, coordinates, lanes)
        negative = next((at for _, at in boxes if min(at) < 0), None)
        if negative is not None:
            raise MemoryAccessError(
                f"coordinates of stores and reductions must not be negative, got {negative}; a GPU stops with an "
                "illegal instruction",
                i,
                g.describe(),
            )
        strided = next((box.every for box, _ in boxes if any(n != 1 for n in box.every)), None)
        if strided is not None:
            raise DescriptorError(f"stores with element strides {strided} are not simulated", i, g.describe())

        self._notify(reduction or "store", i, boxes, sources)

        def apply() -> None:
            for (box, at), place in zip(boxes, sources, strict=True):
                self._write_box(g, i, box, at, self._read_shared(g, i, box, place), reduction)

        operation = self._issue("tma_store", g, i, boxes, apply)
        for row in range(g.ctas.count if not operation.done else 0):
            for column in range(g.threads.count):
                self._bulk.track(g, (row, column), operation)

    def _issue(self, kind: AsyncKind, g: Group, i: Instruction, boxes: list[Any], apply: Any) -> AsyncOperation:  # noqa: ANN401
        self._activity.stats["tma"] += len(boxes)
        self._activity.stats["tma_bytes"] += sum(box.size_bytes for box, _ in boxes)
        box, at = boxes[0]
        detail = f"{box.size_bytes} bytes at {at} of the tensor at {box.tensor.global_address:#x}"
        operation = AsyncOperation(kind, i, g.ctas, g.threads, detail, apply)
        self._activity.issue(operation)
        return operation

    def _notify(self, operation: str, i: Instruction, boxes: list[tuple[Box, Coordinates]], places: list[int]) -> None:
        for (box, at), place in zip(boxes, places, strict=True) if self._activity.observers else ():
            slot, offset = divmod(place, self._memory.slot_bytes)
            event = TmaEvent(operation, box.tensor, at, self._memory.residents.coordinate(slot), offset, i)
            for observer in self._activity.observers:
                observer.on_tma(event)

    def _boxes(
        self,
        g: Group,
        i: Instruction,
        shared: Array,
        tensor: Array,
        coordinates: tuple[Array, ...],
        lanes: int | None = None,
    ) -> tuple[list[tuple[Box, Coordinates]], list[int]]:
        """Return each lane's box and coordinates, and its place in shared memory, checked."""
        memory = self._memory
        shape = (g.ctas.count, g.threads.count if lanes is None else lanes)
        _, shared = memory.resolve("shared" if shared.dtype == np.uint32 else "generic", shared)
        places = (
            np.broadcast_to(memory.locate(g, i, shared, SMEM_ALIGNMENT, SMEM_ALIGNMENT), shape).reshape(-1).tolist()
        )
        known = {
            address: self._checked(g, i, address, len(coordinates)) for address in set(tensor.reshape(-1).tolist())
        }
        maps = np.broadcast_to(tensor, shape).reshape(-1).tolist()
        origins = zip(*(np.broadcast_to(c, shape).reshape(-1).tolist() for c in coordinates), strict=True)
        boxes = [(known[address], at) for address, at in zip(maps, origins, strict=True)]
        for box, at in boxes:
            if at[0] % box.unit_elems:
                raise MemoryAccessError(
                    f"the innermost coordinate must be a multiple of {box.unit_elems} elements, 16 bytes, got {at[0]} "
                    f"of {at}; a GPU stops with an illegal instruction",
                    i,
                    g.describe(),
                )
        largest = max(box.size_bytes for box in known.values())
        if int(max(places)) % memory.slot_bytes + largest > memory.used_bytes:
            raise MemoryAccessError(
                f"a box of {largest} bytes at shared address {max(places) % memory.slot_bytes:#x} ends beyond the "
                f"CTA's {memory.used_bytes} bytes",
                i,
                g.describe(),
            )
        return boxes, places

    def _checked(self, g: Group, i: Instruction, address: int, rank: int) -> Box:
        box = _box(self._tensormaps.read(g, i, address))
        if rank != box.rank:
            raise DescriptorError(
                f"the tensor map has rank {box.rank}, and the copy gives {rank} coordinates", i, g.describe()
            )
        tensor = box.tensor
        if tensor.interleave != "none":
            raise DescriptorError(f"tensor maps with interleave {tensor.interleave} are not simulated", i, g.describe())
        return box

    def _reached(self, own: int, mask: int) -> list[int]:
        """Return the CTAs that a multicast reaches."""
        size = self._memory.residents.cluster_size
        base = own - own % size
        return [base + rank for rank in range(size) if mask >> rank & 1]

    # Shared memory.

    def _write_shared(self, g: Group, i: Instruction, box: Box, places: list[int], data: Array) -> None:
        memory = self._memory
        units = memory.shared_view(_UNIT_KIND, 1)
        for place in places:
            start = place // UNIT_BYTES
            order = swizzled_units(box.units, box.tensor.swizzle, place % _PERIOD // UNIT_BYTES)
            if order is None:
                units[start : start + box.units] = data.reshape(-1)
            else:
                # Swizzling may step back below the start, but stays within the pattern's 1024 bytes.
                units[start + order] = data.reshape(-1)
            if self._activity.observers:
                memory.observe(g, i, "write", "shared", "async", np.array([[place]]), box.size_bytes)

    def _read_shared(self, g: Group, i: Instruction, box: Box, place: int) -> Array:
        memory = self._memory
        units = memory.shared_view(_UNIT_KIND, 1)
        start = place // UNIT_BYTES
        order = swizzled_units(box.units, box.tensor.swizzle, place % _PERIOD // UNIT_BYTES)
        if self._activity.observers:
            memory.observe(g, i, "read", "shared", "async", np.array([[place]]), box.size_bytes)
        return units[start : start + box.units] if order is None else units[start + order]

    # Global memory.

    def _units(self, box: Box, at: Coordinates, kind: Kind) -> Array | None:
        """Return a box that lies inside of its tensor and of one region, as 16-byte units, to load or store."""
        start = box.address(at, (0,) * box.rank)
        region = self._memory.known.find(start, start + box.span_bytes)
        if region is None:
            return None
        self._activity.traffic.box(kind, start, box.extents, box.steps, box.element_bytes)
        return np.ndarray(box.unit_shape, _UNIT_KIND, region.bytes, start - region.base, box.unit_strides)

    def _pieces(self, g: Group, i: Instruction, box: Box, at: Coordinates, kind: Kind) -> list[Piece]:
        """Return the part of a box that is inside of the tensor, as elements, in as few pieces as regions hold."""
        lows, highs = box.inside(at)
        if any(low >= high for low, high in zip(lows, highs, strict=True)):
            return []
        start = box.address(at, lows)
        extents = [high - low for low, high in zip(lows, highs, strict=True)]
        pieces = self._cut(box, at, lows, extents)
        if pieces is None:
            self._fail(g, i, box, at, start, start + _span(extents, box.steps, box.element_bytes))
        assert pieces is not None
        self._activity.traffic.box(kind, start, tuple(extents), box.steps, box.element_bytes)
        return pieces

    def _cut(self, box: Box, at: Coordinates, lows: list[int], extents: list[int]) -> list[Piece] | None:
        """Return a part of a box whole if one region holds it, else cut along its outermost mode; None if none does."""
        start = box.address(at, lows)
        region = self._memory.known.find(start, start + _span(extents, box.steps, box.element_bytes))
        if region is not None:
            view = np.ndarray(extents[::-1], box.kind, region.bytes, start - region.base, box.steps[::-1])
            ranges = zip(lows[::-1], extents[::-1], strict=True)
            return [(tuple(slice(low, low + extent) for low, extent in ranges), view)]
        mode = max((n for n in range(1, box.rank) if extents[n] > 1), default=0)
        pieces: list[Piece] = []
        for position in range(extents[mode]) if mode else ():
            low = [*lows[:mode], lows[mode] + position, *lows[mode + 1 :]]
            found = self._cut(box, at, low, [*extents[:mode], 1, *extents[mode + 1 :]])
            if found is None:
                return None
            pieces += found
        return pieces or None

    def _fail(self, g: Group, i: Instruction, box: Box, at: Coordinates, start: int, end: int) -> None:
        known = self._memory.known
        where = known.nearest(end if known.find(start, start + 1) else start)
        raise MemoryAccessError(
            f"the box at {at} of the tensor at {box.tensor.global_address:#x} covers global {start:#x} to "
            f"{end % _ADDRESSES:#x}: {where}",
            i,
            g.describe(),
        )

    def _read_box(self, g: Group, i: Instruction, box: Box, at: Coordinates) -> Array:
        """Return a box as 16-byte units, with what is outside of the tensor filled in."""
        rounds = box.tensor.dtype.startswith("tf32")  # measured on an H200
        units = self._units(box, at, "load") if box.is_inside(at) and not rounds else None
        if units is not None:
            return units
        data = np.zeros(box.extents[::-1], box.kind)
        if box.tensor.oob_fill == "nan":
            data[...] = np.frombuffer(_NAN * (box.element_bytes // len(_NAN)), box.kind)[0]
        for where, piece in self._pieces(g, i, box, at, "load"):
            data[where] = f32_to_tf32(piece.view(np.float32), "rn") if rounds else piece
        return data.reshape(-1).view(_UNIT_KIND)

    def _write_box(
        self, g: Group, i: Instruction, box: Box, at: Coordinates, data: Array, reduction: str | None
    ) -> None:
        """Write a box given as 16-byte units, without what is outside of the tensor."""
        units = self._units(box, at, "store") if reduction is None and box.is_inside(at) else None
        if units is not None:
            units[...] = data.reshape(box.unit_shape)
            return
        values = np.ascontiguousarray(data).view(box.kind).reshape(box.extents[::-1])
        for where, piece in self._pieces(g, i, box, at, "store" if reduction is None else "atomic"):
            new = values[where]
            piece[...] = new if reduction is None else _combined(piece, new, box.tensor.dtype, reduction)


def _span(extents: Sequence[int], steps: Sequence[int], element_bytes: int) -> int:
    """Return the bytes from the first element of a box to the end of the last."""
    return sum((e - 1) * s for e, s in zip(extents, steps, strict=True)) + element_bytes


def _combined(old: Array, new: Array, element: str, operation: str) -> Array:
    name, _, ftz = element.partition(".")
    return combine(operation, "f32" if name == "tf32" else name, old, new, flush=bool(ftz))
