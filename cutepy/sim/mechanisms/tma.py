"""TMA: bulk copies of boxes of tensors between global and shared memory, and of columns of pixels in im2col mode.

References
----------
PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "Tensors": "Tiled Mode", "Im2col mode", "Swizzling
Modes".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np

from cutepy.layouts import LayoutError
from cutepy.layouts.sm90 import Im2colTensorMap
from cutepy.layouts.sm90.arch import UNIT_BYTES, AnySwizzleMode, pattern_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.layouts.sm90.tensor_map import SMEM_ALIGNMENT
from cutepy.layouts.sm100 import FourRows
from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.events import Access, AsyncKind, AsyncOperation, TmaEvent
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.mechanisms.bulk_copies import BulkCopies
from cutepy.sim.mechanisms.clusters import reached
from cutepy.sim.mechanisms.global_runs import Operation, observe_boxes
from cutepy.sim.mechanisms.mbarriers import Mbarriers
from cutepy.sim.mechanisms.tensor_boxes import UNIT_KIND, Box, Boxes, Coordinates, NarrowBox, box_of
from cutepy.sim.mechanisms.tensor_columns import Column, Columns, column_of
from cutepy.sim.mechanisms.tensor_maps import TensorMaps
from cutepy.sim.ptx.model import Instruction

_PERIOD = pattern_bytes("SW128")
"""Of the longest pattern, and so of all."""
_MODES = {True: "im2col", False: "tiled"}


@cache
def swizzled_units(count: int, mode: AnySwizzleMode, start: int) -> Array | None:
    """Return where the 16-byte units of a box lie in shared memory, relative to its start.

    `start` is the box's address modulo 1024, in units. None if they lie in order.
    """
    if mode == "INTER":
        return None
    swizzle: Any = byte_swizzle(mode)  # bit operations, which arrays have too
    units: Array = swizzle(np.arange(start, start + count) * UNIT_BYTES) // UNIT_BYTES - start
    return units


class TensorCopies:
    """TMA copies of all groups of lanes."""

    def __init__(
        self, activity: Activity, memory: Memory, mbarriers: Mbarriers, tensormaps: TensorMaps, bulk: BulkCopies
    ) -> None:
        self._activity, self._memory = activity, memory
        self._mbarriers, self._tensormaps, self._bulk = mbarriers, tensormaps, bulk
        self._tiled, self._columns = Boxes(activity, memory), Columns(activity, memory)

    def load(
        self,
        g: Group,
        i: Instruction,
        to: Array,
        tensor: Array,
        coordinates: tuple[Array, ...],
        barrier: Array,
        mask: Array | None,
        offsets: tuple[Array, ...] | None = None,
    ) -> None:
        """Copy a box to shared memory, of several CTAs if there is a mask, and count its bytes at an mbarrier.

        In im2col mode there are offsets along W, H and D.
        """
        memory = self._memory
        boxes, targets = self._boxes(g, i, to, tensor, coordinates, offsets, g.threads.count)
        _, barrier = memory.resolve("shared" if barrier.dtype == np.uint32 else "generic", barrier)
        shape = (g.ctas.count, g.threads.count)
        barriers = np.broadcast_to(memory.locate(g, i, barrier, 8, 8), shape).reshape(-1).tolist()
        masks = None if mask is None else np.broadcast_to(mask, shape).reshape(-1).tolist()
        copies, notices = [], []
        every = len(boxes) // len(barriers)  # boxes of a lane
        for index, ((box, at), target) in enumerate(zip(boxes, targets, strict=True)):
            n = index // every
            if masks is None:
                copies.append((box, at, [target]))
                notices.append((barriers[n], box.counted_bytes, n))
            else:
                slots = reached(g, i, target // memory.slot_bytes, masks[n])
                offset, place = target % memory.slot_bytes, barriers[n] % memory.slot_bytes
                copies.append((box, at, [slot * memory.slot_bytes + offset for slot in slots]))
                signalled = self._signalled(i, slots, barriers[n] // memory.slot_bytes)
                notices += [(slot * memory.slot_bytes + place, box.counted_bytes, n) for slot in signalled]

        self._notify("load", i, boxes, targets)

        def apply() -> None:
            for box, at, targets in copies:
                self._write_shared(box, targets, self._read_global(g, i, box, at))
            if self._activity.observers:
                written = [(box, place) for box, _, targets in copies for place in targets]
                issuers = [n // every for n, (_, _, targets) in enumerate(copies) for _ in targets]
                self._observe_shared(g, i, "write", written, issuers)
                observe_boxes(self._activity, g, i, "read", boxes, [n // every for n in range(len(boxes))])
            positions, sizes, lanes = (np.array(column) for column in zip(*notices, strict=True))
            for offset in dict.fromkeys((positions % memory.slot_bytes).tolist()):
                here = positions % memory.slot_bytes == offset
                slots, inverse = np.unique(positions[here] // memory.slot_bytes, return_inverse=True)
                total = np.bincount(inverse, sizes[here]).astype(np.int64)
                brought = None
                if self._activity.observers:
                    brought = np.stack([slots[inverse], *np.divmod(lanes[here], shape[1])], axis=1)
                self._mbarriers.deliver(g, i, offset, slots, total, brought)

        self._issue("tma_load", g, i, boxes, apply)

    def _signalled(self, i: Instruction, slots: list[int], named: int) -> list[int]:
        """Return the CTAs whose mbarriers copies to some CTAs are counted at, given the one that is named.

        Of a pair it is the CTA whose rank has the parity of the one that is named.
        """
        if "cta_group::2" not in i.parts:
            return slots
        size = self._memory.residents.cluster_size
        return [slot - slot % size % 2 + named % size % 2 for slot in slots]

    def store(
        self,
        g: Group,
        i: Instruction,
        tensor: Array,
        coordinates: tuple[Array, ...],
        source: Array,
        reduction: str | None,
        offsets: tuple[Array, ...] | None = None,
    ) -> None:
        """Copy a box from shared memory, or combine it with the elements there; offsets are as of a load, but empty."""
        are_alike = reduction is None and all(x.shape[1] == 1 for x in (source, tensor, *coordinates))
        every = 1 if are_alike else g.threads.count
        boxes, sources = self._boxes(g, i, source, tensor, coordinates, offsets, every)
        rows = len(boxes) // (g.ctas.count * every)
        issuers = [n // rows for n in range(len(boxes))]
        if reduction is None and rows == 1:
            issuers, which = _once(g, boxes, sources, every)
            boxes, sources = [boxes[n] for n in which], [sources[n] for n in which]
        negative = next((at for _, at in boxes if min(at) < 0), None)
        if negative is not None:
            raise MemoryAccessError(
                f"coordinates of stores and reductions must not be negative, got {negative}; a GPU stops with an "
                "illegal instruction",
                i,
                g.describe(),
            )

        for box, _ in boxes:
            self._check_written(g, i, box, reduction)

        self._notify(reduction or "store", i, boxes, sources)

        taken: list[Array] = []

        def take() -> None:
            tiles = [(box, place) for (box, _), place in zip(boxes, sources, strict=True)]
            taken.extend(self._read_shared(box, place).copy() for box, place in tiles)
            if self._activity.observers:
                dropped = [self._dropped(box, at, place) for (box, at), place in zip(boxes, sources, strict=True)]
                self._observe_shared(g, i, "read", tiles, issuers, dropped)

        def apply() -> None:
            for (box, at), data in zip(boxes, taken, strict=True):
                self._write_global(g, i, box, at, data, reduction)
            if self._activity.observers:
                what: Operation = "write" if reduction is None else "atomic"
                observe_boxes(self._activity, g, i, what, boxes, issuers)

        operation = self._issue("tma_store", g, i, boxes, apply, take)
        for row in range(g.ctas.count if not operation.done else 0):
            for column in range(g.threads.count):
                self._bulk.track(g, (row, column), operation)

    @staticmethod
    def _check_written(g: Group, i: Instruction, box: Box | Column, reduction: str | None) -> None:
        """Stop where an H200 stops with an illegal instruction."""
        if reduction is not None and box.tensor.dtype in ("u8", "u16"):
            raise DescriptorError(f"TMA reduces no elements of type {box.tensor.dtype}", i, g.describe())
        if isinstance(box, Column) and any((*box.tensor.lower_corner, *box.tensor.upper_corner)):
            corners = f"{box.tensor.lower_corner} and {box.tensor.upper_corner}"
            raise DescriptorError(
                f"stores in im2col mode take tensor maps whose corners are 0, got {corners}: a GPU stopped with an "
                "illegal instruction at others",
                i,
                g.describe(),
            )

    def prefetch(self, g: Group, i: Instruction, tensor: Array, coordinates: tuple[Array, ...]) -> None:
        """Check the tensor map of a prefetch, and of four rows their places; nothing is fetched."""
        self._tensormaps.use(g, i, tensor)
        if "tile::gather4" in i.parts:
            shape = (g.ctas.count, g.threads.count)
            lanes = [np.broadcast_to(one, shape).reshape(-1).tolist() for one in (tensor, *coordinates)]
            known = {address: self._checked(g, i, address, 2, im2col=False) for address in set(lanes[0])}
            for address, *at in zip(*lanes, strict=True):
                _check_rows(g, i, known[address], tuple(at))

    def _issue(
        self,
        kind: AsyncKind,
        g: Group,
        i: Instruction,
        boxes: list[Any],
        apply: Callable[[], None],
        takes: Callable[[], None] | None = None,
    ) -> AsyncOperation:
        self._activity.stats["tma"] += len(boxes)
        self._activity.stats["tma_bytes"] += sum(box.size_bytes for box, _ in boxes)
        box, at = boxes[0]
        detail = f"{box.size_bytes} bytes at {at} of the tensor at {box.tensor.global_address:#x}"
        operation = AsyncOperation(kind, i, g.ctas, g.threads, detail, apply, takes=takes)
        self._activity.issue(operation)
        return operation

    def _read_global(self, g: Group, i: Instruction, box: Box | Column, at: Coordinates) -> Array:
        if isinstance(box, Column):
            return self._columns.read(g, i, box, at)
        data = self._tiled.read(g, i, box, at)
        return box.spread(data) if isinstance(box, NarrowBox) else data

    def _write_global(
        self, g: Group, i: Instruction, box: Box | Column, at: Coordinates, data: Array, reduction: str | None
    ) -> None:
        if isinstance(box, Column):
            self._columns.write(g, i, box, at, data, reduction)
        else:
            data = box.packed(data) if isinstance(box, NarrowBox) else data
            self._tiled.write(g, i, box, at, data, reduction)

    def _notify(
        self, operation: str, i: Instruction, boxes: list[tuple[Box | Column, Coordinates]], positions: list[int]
    ) -> None:
        for (box, at), place in zip(boxes, positions, strict=True) if self._activity.observers else ():
            slot, offset = divmod(place, self._memory.slot_bytes)
            where = at[: box.tensor.rank]
            event = TmaEvent(operation, box.tensor, where, self._memory.residents.coordinate(slot), offset, i)
            for observer in self._activity.observers:
                observer.on_tma(event)

    def _boxes(
        self,
        g: Group,
        i: Instruction,
        shared: Array,
        tensor: Array,
        coordinates: tuple[Array, ...],
        offsets: tuple[Array, ...] | None,
        lanes: int,
    ) -> tuple[list[tuple[Box | Column, Coordinates]], list[int]]:
        """Return each lane's box and where it is taken, by coordinates and offsets, and its place in shared memory."""
        memory = self._memory
        shape = (g.ctas.count, lanes)
        _, shared = memory.resolve("shared" if shared.dtype == np.uint32 else "generic", shared)
        positions = (
            np.broadcast_to(memory.locate(g, i, shared, SMEM_ALIGNMENT, SMEM_ALIGNMENT), shape).reshape(-1).tolist()
        )
        self._tensormaps.use(g, i, tensor)
        is_of_rows = not {"tile::gather4", "tile::scatter4"}.isdisjoint(i.parts)
        rank, im2col = 2 if is_of_rows else len(coordinates), offsets is not None
        known = {address: self._checked(g, i, address, rank, im2col) for address in set(tensor.reshape(-1).tolist())}
        maps = np.broadcast_to(tensor, shape).reshape(-1).tolist()
        origins = zip(
            *(np.broadcast_to(c, shape).reshape(-1).tolist() for c in (*coordinates, *(offsets or ()))), strict=True
        )
        boxes = [(known[address], at) for address, at in zip(maps, origins, strict=True)]
        boxes = [(box, box.to_bytes(at) if isinstance(box, NarrowBox) else at) for box, at in boxes]
        for box, at in boxes:
            if at[0] % box.unit_elems:
                raise MemoryAccessError(
                    f"the innermost coordinate must be a multiple of {box.unit_elems} elements, 16 bytes, got {at[0]} "
                    f"of {at}; a GPU stops with an illegal instruction",
                    i,
                    g.describe(),
                )
        if is_of_rows:
            boxes, positions = _by_rows(g, i, boxes, positions)
        largest = max(box.size_bytes for box in known.values())
        if int(max(positions)) % memory.slot_bytes + largest > memory.used_bytes:
            raise MemoryAccessError(
                f"a box of {largest} bytes at shared address {max(positions) % memory.slot_bytes:#x} ends beyond the "
                f"CTA's {memory.used_bytes} bytes",
                i,
                g.describe(),
            )
        return boxes, positions

    def _checked(self, g: Group, i: Instruction, address: int, rank: int, im2col: bool) -> Box | Column:
        tensor = self._tensormaps.read(g, i, address)
        if isinstance(tensor, Im2colTensorMap) != im2col:
            raise DescriptorError(
                f"the tensor map is of {_MODES[not im2col]} mode, and the copy of {_MODES[im2col]} mode",
                i,
                g.describe(),
            )
        box = column_of(tensor) if isinstance(tensor, Im2colTensorMap) else box_of(tensor)
        if rank != tensor.rank:
            raise DescriptorError(
                f"the tensor map has rank {tensor.rank}, and the copy gives {rank} coordinates", i, g.describe()
            )
        if im2col and tensor.interleave != "none":
            raise DescriptorError(f"im2col maps with interleave {tensor.interleave} are not simulated", i, g.describe())
        return box

    # Shared memory.

    def _observe_shared(
        self,
        g: Group,
        i: Instruction,
        operation: Literal["read", "write"],
        boxes: list[tuple[Box | Column, int]],
        issuers: list[int] | None = None,
        dropped: Sequence[Array | None] = (),
    ) -> None:
        """Tell the observers of all boxes in shared memory, those of a size at once."""
        by_size: dict[int, list[int]] = {}
        for n, (box, _) in enumerate(boxes):
            by_size.setdefault(box.size_bytes, []).append(n)
        for size, these in by_size.items():
            positions = np.array([[boxes[n][1]] for n in these])
            by = None if issuers is None else np.array([issuers[n] for n in these])
            part_of = self._activity.completing
            access = Access(operation, "shared", "async", i, g.ctas, g.threads, positions, size, part_of, issuers=by)
            masks = [dropped[n] for n in these] if dropped else []
            if any(mask is not None for mask in masks):
                bits = np.stack([np.zeros(size, bool) if mask is None else mask for mask in masks])
                access = replace(access, dropped=bits)
            for observer in self._activity.observers:
                observer.on_access(access)

    @staticmethod
    def _dropped(box: Box | Column, at: Coordinates, place: int) -> Array | None:
        """Return which bytes of shared memory, from where a box begins, lie outside of the tensor, or None."""
        outside = box.outside(at)
        order = swizzled_units(box.units, box.swizzle, place % _PERIOD // UNIT_BYTES)
        if outside is None or order is None:
            return outside
        dropped = np.zeros((box.units, UNIT_BYTES), bool)
        is_here = (order >= 0) & (order < box.units)
        dropped[order[is_here]] = outside.reshape(-1, UNIT_BYTES)[is_here]
        return dropped.reshape(-1)

    def _write_shared(self, box: Box | Column, positions: list[int], data: Array) -> None:
        memory = self._memory
        units = memory.shared_view(UNIT_KIND, 1)
        for place in positions:
            start = place // UNIT_BYTES
            order = swizzled_units(box.units, box.swizzle, place % _PERIOD // UNIT_BYTES)
            if order is None:
                units[start : start + box.units] = data.reshape(-1)
            else:
                # Swizzling may step back below the start, but stays within the pattern's 1024 bytes.
                units[start + order] = data.reshape(-1)

    def _read_shared(self, box: Box | Column, place: int) -> Array:
        memory = self._memory
        units = memory.shared_view(UNIT_KIND, 1)
        start = place // UNIT_BYTES
        order = swizzled_units(box.units, box.swizzle, place % _PERIOD // UNIT_BYTES)
        return units[start : start + box.units] if order is None else units[start + order]


def _by_rows(
    g: Group, i: Instruction, boxes: list[tuple[Box | Column, Coordinates]], positions: list[int]
) -> tuple[list[tuple[Box | Column, Coordinates]], list[int]]:
    """Return the four boxes of each copy of four rows, which lie one behind the other in shared memory."""
    for box, at in boxes:
        _check_rows(g, i, box, at)
    found: list[tuple[Box | Column, Coordinates]] = [(box, (at[0], row)) for box, at in boxes for row in at[1:]]
    return found, [
        place + n * box.size_bytes for (box, _), place in zip(boxes, positions, strict=True) for n in range(4)
    ]


def _check_rows(g: Group, i: Instruction, box: Box | Column, at: Coordinates) -> None:
    try:
        FourRows(box.tensor, at[0], at[1:])  # type: ignore[arg-type]
    except LayoutError as error:
        raise DescriptorError(str(error), i, g.describe()) from error


def _once(
    g: Group, boxes: Sequence[tuple[Box | Column, Coordinates]], sources: Sequence[int], lanes: int
) -> tuple[list[int], list[int]]:
    """Return the lanes whose stores no earlier lane of their warp repeats, and the boxes of each.

    A warp that stores one box with several lanes stores the same bytes again and again: once will do. `lanes` is 1
    where there is a box of each CTA only, which all lanes store.
    """
    every, warps = g.threads.count, g.threads.ids // WARP
    if lanes == 1:
        _, columns = np.unique(warps, return_index=True)
        both = [(row * every + column, row) for row in range(g.ctas.count) for column in columns.tolist()]
        return [n for n, _ in both], [row for _, row in both]
    first: dict[object, int] = {}
    for n, ((box, at), source) in enumerate(zip(boxes, sources, strict=True)):
        first.setdefault((n // every, int(warps[n % every]), id(box), at, source), n)
    issuers = list(first.values())
    return issuers, issuers
