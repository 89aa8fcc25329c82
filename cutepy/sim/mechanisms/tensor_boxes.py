"""Boxes of tensors in global memory, as tiled copies read and write them.

Elements of tensors as TMA copies take them, fill them in, and combine them.

References
----------
PTX ISA, "Tensors": "Tiled Mode".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from cutepy.layouts.sm90 import Im2colTensorMap, TensorMap
from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.layouts.sm100.narrow_map import NARROW_TYPES, NarrowTensorMap
from cutepy.sim.arithmetic.minifloat import f32_to_tf32
from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity, Kind
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.mechanisms.atomics import combine
from cutepy.sim.ptx.model import Instruction

UNIT_KIND = np.dtype("c16")
"""A type of 16 bytes that numpy moves fast; never computed with."""
ADDRESSES = 1 << 64
"""Addresses are computed modulo this: descriptors may count on the way back."""
_NAN = b"\xf7\x7f"
"""Value of elements outside of a tensor, repeated to their width, if they are not zeros (measured on an H200)."""

Coordinates = tuple[int, ...]
AnyTensorMap = TensorMap | Im2colTensorMap


def kind_of(tensor: AnyTensorMap) -> np.dtype[np.unsignedinteger]:
    """Return the kind of a tensor's elements, as bits."""
    return np.dtype(f"u{tensor.bits // 8}")


def filled(shape: tuple[int, ...], tensor: AnyTensorMap) -> Array:
    """Make an array of the values of elements outside of a tensor."""
    data = np.zeros(shape, kind_of(tensor))
    if tensor.oob_fill == "nan":
        data[...] = np.frombuffer(_NAN * (data.itemsize // len(_NAN)), data.dtype)[0]
    return data


def taken(elements: Array, tensor: AnyTensorMap) -> Array:
    """Return elements as a load takes them: tensors of tf32 are rounded (measured on an H200)."""
    return f32_to_tf32(elements.view(np.float32), "rn") if tensor.dtype.startswith("tf32") else elements


def combined(old: Array, new: Array, element: str, operation: str) -> Array:
    """Return the results of a reduction of elements of a type."""
    name, _, ftz = element.partition(".")
    return combine(operation, "f32" if name == "tf32" else name, old, new, flush=bool(ftz))


Piece = tuple[tuple[slice, ...], Array]
"""Positions in a box, the contiguous mode last, and the elements of global memory there."""


class Box:
    """The box of a tensor map, with values that every copy needs computed once.

    The elements of an interleaved tensor's pixels are a mode of their own before its dimensions, copied whole.

    Attributes
    ----------
    size_bytes, counted_bytes : int
        Bytes of shared memory, and those that an mbarrier counts.
    swizzle : AnySwizzleMode
        Of the box in shared memory.
    """

    def __init__(self, tensor: TensorMap) -> None:
        self.tensor = tensor
        self.element_bytes = tensor.bits // 8
        channels = () if tensor.interleave == "none" else (tensor.item_bytes // self.element_bytes,)
        self._before = (0,) * len(channels)
        self.dims, self.extents = (*channels, *tensor.dims), (*channels, *tensor.box_elems)
        self.every = (*(1 for _ in channels), *tensor.element_strides)
        self.rank = len(self.dims)
        self.unit_elems = max(1, UNIT_BYTES // tensor.item_bytes)
        self.size_bytes = self.counted_bytes = tensor.box_bytes
        self.swizzle = tensor.swizzle
        self.units = self.size_bytes // UNIT_BYTES
        self.strides = (*(self.element_bytes for _ in channels), tensor.item_bytes, *tensor.strides_bytes)
        self.steps = tuple(s * n for s, n in zip(self.strides, self.every, strict=True))
        self.kind = np.dtype(f"u{self.element_bytes}")
        self.span_bytes = _span(self.extents, self.steps, self.element_bytes)
        row_units = self.extents[0] * self.element_bytes // UNIT_BYTES
        self.unit_shape = (*self.extents[:0:-1], row_units)
        self.unit_strides = (*self.steps[:0:-1], UNIT_BYTES)

    def is_inside(self, at: Coordinates) -> bool:
        """Return whether the box at these coordinates lies inside of the tensor."""
        spans = zip((*self._before, *at), self.extents, self.every, self.dims, strict=True)
        return all(0 <= c and c + (e - 1) * n < d for c, e, n, d in spans)

    def inside(self, at: Coordinates) -> tuple[list[int], list[int]]:
        """Return the ranges of positions in the box at these coordinates whose elements are inside of the tensor."""
        at = (*self._before, *at)
        lows = [max(0, -(c // n)) for c, n in zip(at, self.every, strict=True)]
        ends = zip(at, self.extents, self.every, self.dims, strict=True)
        return lows, [min(e, -((c - d) // n)) for c, e, n, d in ends]

    def outside(self, at: Coordinates) -> Array | None:
        """Return which bytes of the box at these coordinates, in order, are outside of the tensor; None if none is."""
        if self.is_inside(at):
            return None
        outside = np.ones(self.extents[::-1], bool)
        ranges = (slice(low, max(low, high)) for low, high in zip(*(x[::-1] for x in self.inside(at)), strict=True))
        outside[tuple(ranges)] = False
        return np.repeat(outside.reshape(-1), self.element_bytes)

    def address(self, at: Coordinates, positions: Sequence[int]) -> int:
        """Return the address of an element of the box at these coordinates."""
        steps = zip((*self._before, *at), self.strides, strict=True)
        first = self.tensor.global_address + sum(c * s for c, s in steps)
        return (first + sum(p * s for p, s in zip(positions, self.steps, strict=True))) % ADDRESSES


class NarrowBox(Box):
    """The box of a tensor map of elements below 8 bits: in global memory a box of bytes, in which they are packed.

    Attributes
    ----------
    group_bytes : int
        Bytes that 16 elements take in shared memory, where they have `packed_bytes` in global memory.
    """

    def __init__(self, tensor: NarrowTensorMap) -> None:
        super().__init__(_in_bytes(tensor))
        narrow = NARROW_TYPES[tensor.dtype]
        self.bits, self.group_bytes, self.packed_bytes = narrow.bits, narrow.group_bytes, 2 * narrow.bits
        self.counted_bytes, self.swizzle = tensor.box_bytes, tensor.swizzle
        self.size_bytes = tensor.smem_bytes
        self.units = self.size_bytes // UNIT_BYTES

    def to_bytes(self, at: Coordinates) -> Coordinates:
        """Return coordinates in bytes, of those in elements."""
        return (at[0] * self.bits // 8, *at[1:])

    def spread(self, units: Array) -> Array:
        """Return a box of global memory, as 16-byte units, as it lies in shared memory."""
        if self.group_bytes == self.packed_bytes:
            return units
        packed = np.ascontiguousarray(units).reshape(-1).view(np.uint8).reshape(-1, self.packed_bytes)
        wide = np.zeros((len(packed), self.group_bytes), np.uint8)
        wide[:, : self.packed_bytes] = packed
        return wide.reshape(-1).view(UNIT_KIND)

    def packed(self, units: Array) -> Array:
        """Return a box of shared memory, as 16-byte units, as it lies in global memory."""
        groups = np.ascontiguousarray(units).reshape(-1).view(np.uint8).reshape(-1, self.group_bytes)
        return np.ascontiguousarray(groups[:, : self.packed_bytes]).reshape(-1).view(UNIT_KIND)


def _in_bytes(tensor: NarrowTensorMap) -> TensorMap:
    """Return the tensor map of a narrow tensor's bytes."""
    return TensorMap(
        "u8",
        (tensor.dims[0] * tensor.bits // 8, *tensor.dims[1:]),
        tensor.strides_bytes,
        (tensor.box[0] * tensor.bits // 8, *tensor.box[1:]),
        global_address=tensor.global_address,
        element_strides=tensor.element_strides,
    )


@cache
def box_of(tensor: TensorMap) -> Box:
    """Return the box of a tensor map."""
    return NarrowBox(tensor) if isinstance(tensor, NarrowTensorMap) else Box(tensor)


class Boxes:
    """Reads and writes boxes in global memory."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def _units(self, box: Box, at: Coordinates, kind: Kind) -> Array | None:
        """Return a box that lies inside of its tensor and of one region, as 16-byte units, to load or store."""
        start = box.address(at, (0,) * box.rank)
        region = self._memory.known.find(start, start + box.span_bytes)
        if region is None:
            return None
        self._activity.traffic.box(kind, start, box.extents, box.steps, box.element_bytes)
        return np.ndarray(box.unit_shape, UNIT_KIND, region.bytes, start - region.base, box.unit_strides)

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
            f"{end % ADDRESSES:#x}: {where}",
            i,
            g.describe(),
        )

    def read(self, g: Group, i: Instruction, box: Box, at: Coordinates) -> Array:
        """Return a box as 16-byte units, with elements outside of the tensor filled in."""
        rounds = box.tensor.dtype.startswith("tf32")
        units = self._units(box, at, "load") if box.is_inside(at) and not rounds else None
        if units is not None:
            return units
        data = filled(box.extents[::-1], box.tensor)
        for where, piece in self._pieces(g, i, box, at, "load"):
            data[where] = taken(piece, box.tensor)
        return data.reshape(-1).view(UNIT_KIND)

    def write(self, g: Group, i: Instruction, box: Box, at: Coordinates, data: Array, reduction: str | None) -> None:
        """Write a box given as 16-byte units, without elements outside of the tensor."""
        if self._memory.known.inputs:
            self._check_writable(g, i, box, at)
        units = self._units(box, at, "store") if reduction is None and box.is_inside(at) else None
        if units is not None:
            units[...] = data.reshape(box.unit_shape)
            return
        values = np.ascontiguousarray(data).view(box.kind).reshape(box.extents[::-1])
        for where, piece in self._pieces(g, i, box, at, "store" if reduction is None else "atomic"):
            new = values[where]
            piece[...] = new if reduction is None else combined(piece, new, box.tensor.dtype, reduction)

    def _check_writable(self, g: Group, i: Instruction, box: Box, at: Coordinates) -> None:
        """Raise an error where a row of a box, without elements outside of the tensor, is part of a read-only array."""
        lows, highs = box.inside(at)
        if any(low >= high for low, high in zip(lows, highs, strict=True)):
            return
        starts = np.array([box.address(at, lows)], np.uint64)
        extents = [high - low for low, high in zip(lows, highs, strict=True)]
        for extent, step in zip(extents[1:], box.steps[1:], strict=True):
            starts = (starts[:, None] + np.arange(extent, dtype=np.uint64) * np.uint64(step)).reshape(-1)
        row_bytes = (extents[0] - 1) * box.steps[0] + box.element_bytes
        self._memory.check_writable(g, i, starts, row_bytes, g.describe())


def _span(extents: Sequence[int], steps: Sequence[int], element_bytes: int) -> int:
    """Return the bytes from the first element of a box to the end of the last."""
    return sum((e - 1) * s for e, s in zip(extents, steps, strict=True)) + element_bytes
