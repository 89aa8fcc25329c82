"""Columns of pixels of tensors in global memory, as copies in im2col mode read and write them.

References
----------
PTX ISA, "Tensors": "Im2col mode".
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from cutepy.layouts.sm90 import Im2colTensorMap
from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.sim.errors import MemoryAccessError
from cutepy.sim.machine.activity import Activity, Kind
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.mechanisms.tensor_boxes import (
    ADDRESSES,
    UNIT_KIND,
    Coordinates,
    combined,
    filled,
    kind_of,
    taken,
)
from cutepy.sim.ptx.model import Instruction


class Column:
    """Elements of one copy by a tensor map, in the form of `Box`.

    It is found by coordinates of which those of the tensor come first, and then the offsets along W, H and D that a
    filter adds to each pixel, if there are any.
    """

    def __init__(self, tensor: Im2colTensorMap) -> None:
        self.tensor = tensor
        self.rank = tensor.rank
        self.element_bytes = tensor.bits // 8
        self.unit_elems = UNIT_BYTES // self.element_bytes
        self.size_bytes = self.counted_bytes = tensor.box_bytes
        self.swizzle = tensor.swizzle
        self.units = self.size_bytes // UNIT_BYTES

    def rows(self, at: Coordinates) -> tuple[list[int], list[int]]:
        """Return which pixels are inside of the tensor, and the address of the first channel of each."""
        tensor = self.tensor
        offsets = (*at[self.rank :], *(0,) * (self.rank - 2))[: self.rank - 2]
        moved = _pixels(tensor, at[: self.rank]) + np.array([*offsets, 0])
        is_inside = ((moved >= 0) & (moved < np.array(tensor.dims[1:]))).all(axis=1)
        strides = tensor.strides_bytes
        first = tensor.global_address + at[0] * self.element_bytes
        inside = np.flatnonzero(is_inside).tolist()
        pixels = moved[is_inside].tolist()
        return inside, [
            (first + sum(c * s for c, s in zip(pixel, strides, strict=True))) % ADDRESSES for pixel in pixels
        ]

    def channels(self, at: Coordinates) -> slice:
        """Return the channels of the pixels that are inside of the tensor."""
        low, high = max(0, -at[0]), min(self.tensor.channels_per_pixel, self.tensor.dims[0] - at[0])
        return slice(low, max(low, high))

    def outside(self, at: Coordinates) -> Array | None:
        """Return which bytes of the copy, in order, are outside of the tensor; None if none is."""
        outside = np.ones(self.tensor.box[::-1], bool)
        outside[self.rows(at)[0], self.channels(at)] = False
        return np.repeat(outside.reshape(-1), self.element_bytes) if outside.any() else None


@lru_cache(maxsize=4096)
def _pixels(tensor: Im2colTensorMap, at: Coordinates) -> Array:
    return np.array(list(tensor.pixels(at)), np.int64)


@cache
def column_of(tensor: Im2colTensorMap) -> Column:
    """Return the column of a tensor map."""
    return Column(tensor)


class Columns:
    """Reads and writes columns in global memory."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def read(self, g: Group, i: Instruction, box: Column, at: Coordinates) -> Array:
        """Return a column as 16-byte units, with elements outside of the tensor filled in."""
        data = filled(box.tensor.box[::-1], box.tensor)
        for pixel, channels, elements in self._rows(g, i, box, at, "load"):
            data[pixel, channels] = taken(elements, box.tensor)
        return data.reshape(-1).view(UNIT_KIND)

    def write(self, g: Group, i: Instruction, box: Column, at: Coordinates, data: Array, reduction: str | None) -> None:
        """Write a column given as 16-byte units, without elements outside of the tensor."""
        values = np.ascontiguousarray(data).view(kind_of(box.tensor)).reshape(box.tensor.box[::-1])
        kind: Kind = "store" if reduction is None else "atomic"
        for pixel, channels, elements in self._rows(g, i, box, at, kind):
            new = values[pixel, channels]
            elements[...] = new if reduction is None else combined(elements, new, box.tensor.dtype, reduction)

    def _rows(
        self, g: Group, i: Instruction, box: Column, at: Coordinates, kind: Kind
    ) -> list[tuple[int, slice, Array]]:
        """Return each pixel's channels that are inside of the tensor: where in the column, and in global memory."""
        tensor, element_bytes = box.tensor, box.element_bytes
        channels = box.channels(at)
        if channels.start >= channels.stop:
            return []
        found = []
        for pixel, first in zip(*box.rows(at), strict=True):
            start = (first + channels.start * element_bytes) % ADDRESSES
            size = (channels.stop - channels.start) * element_bytes
            region = self._memory.known.find(start, start + size)
            if region is None:
                where = self._memory.known.nearest(start)
                raise MemoryAccessError(
                    f"pixel {pixel} of the column at {at} of the tensor at {tensor.global_address:#x} covers global "
                    f"{start:#x} to {start + size:#x}: {where}",
                    i,
                    g.describe(),
                )
            if kind != "load":
                self._memory.check_writable(g, i, np.array([start], np.uint64), size, g.describe())
            self._activity.traffic.run(kind, start, size)
            elements = np.ndarray((size // element_bytes,), kind_of(tensor), region.bytes, start - region.base)
            found.append((pixel, channels, elements))
        return found
