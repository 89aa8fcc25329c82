"""TMA descriptors: the 128 bytes of a tensor map, decoded, and changed by tensormap.replace.

What the bytes mean is `cutepy.layouts.sm90.TensorMap`'s matter.

References
----------
PTX ISA, "Tensors", "Tensor-map", "tensormap.replace", "tensormap.cp_fenceproxy".
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts import LayoutError, sm90
from cutepy.sim.errors import DescriptorError, UnknownInstructionError
from cutepy.sim.machine.lanes import Array

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory, Region
    from cutepy.sim.ptx.model import Instruction

SIZE_BYTES = 128
_ALIGNMENT = 64
_USED_WORDS = 8
# Fields that tensormap.replace can set beside extents and strides: (bit, width).
_RANK, _TYPE, _INTERLEAVE, _SWIZZLE, _FILL = (68, 3), (71, 4), (75, 2), (77, 2), (79, 1)
_ROUNDS_TO_TF32 = (80, 1)
_TF32 = {11: 7, 12: 8}  # written as f32 and f32.ftz, as ptxas does


@lru_cache(maxsize=4096)
def decode(data: bytes) -> sm90.TensorMap:
    """Decode the first 64 bytes of a tensor map; the others are not used.

    Raises
    ------
    LayoutError
        If a field has a value that no tensor map has.
    """
    return sm90.TensorMap.decode(np.frombuffer(data, "<u8", _USED_WORDS).tolist())


class TensorMaps:
    """Reading and changing tensor maps in memory."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity = activity
        self._memory = memory

    def read(self, g: Group, i: Instruction, address: int) -> sm90.TensorMap:
        """Decode the tensor map at an address."""
        region = self._place(g, i, address)
        start = address - region.base
        try:
            return decode(region.bytes[start : start + 8 * _USED_WORDS].tobytes())
        except LayoutError as error:
            raise DescriptorError(f"what is at {address:#x} is no tensor map: {error}", i, g.describe()) from error

    def prefetch(self, g: Group, i: Instruction, address: Array) -> None:
        """Check that there can be a tensor map at an address; what is there may yet be written."""
        for value in {int(x) for x in address.flat}:
            self._place(g, i, value)

    def _place(self, g: Group, i: Instruction, address: int) -> Region:
        """Return the known memory where a tensor map can be."""
        if address % _ALIGNMENT:
            reason = f"the address is no multiple of {_ALIGNMENT}"
            raise DescriptorError(f"no tensor map can be at {address:#x}: {reason}", i, g.describe())
        region = self._memory.known.find(address, address + SIZE_BYTES)
        if region is None:
            known = self._memory.known.nearest(address)
            raise DescriptorError(f"no tensor map can be at {address:#x}: it is {known}", i, g.describe())
        return region

    def _bytes(self, g: Group, i: Instruction, address: Array, row: int) -> Array:
        """Return the 128 bytes of the tensor map that the lanes of a CTA address, to be written."""
        memory = self._memory
        space = "shared" if "shared::cta" in i.parts else "global"
        if address.dtype == np.uint64:
            space, address = memory.resolve("generic" if space == "global" else "shared", address)
        value = address[row if address.shape[0] > 1 else 0, 0]
        if space == "shared":
            offset = int(value) & 0xFFFFFF
            start = int(g.ctas.slots[row]) * memory.slot_bytes + offset
            return memory.shared[start : start + SIZE_BYTES]
        region = memory.known.find(int(value), int(value) + SIZE_BYTES)
        if region is None:
            known = memory.known.nearest(int(value))
            raise DescriptorError(f"the tensor map at {int(value):#x} is not in known memory: {known}", i, g.describe())
        return region.bytes[int(value) - region.base : int(value) - region.base + SIZE_BYTES]

    def replace(self, g: Group, i: Instruction, address: Array, field: str, ordinal: int, value: Array) -> None:
        """Set a field."""
        self._activity.changes += 1
        for row in range(g.ctas.count):
            data = self._bytes(g, i, address, row)
            number = int(value[row if value.shape[0] > 1 else 0, -1])
            _set_field(data, field, ordinal, number, i)

    def copy(self, g: Group, i: Instruction, to: Array, source: Array) -> None:
        """Copy tensor maps from shared to global memory."""
        self._activity.changes += 1
        memory = self._memory
        for row in range(g.ctas.count):
            offset = int(source[row if source.shape[0] > 1 else 0, 0]) & 0xFFFFFF
            start = int(g.ctas.slots[row]) * memory.slot_bytes + offset
            target = int(to[row if to.shape[0] > 1 else 0, 0])
            region = memory.known.find(target, target + SIZE_BYTES)
            if region is None:
                raise DescriptorError(
                    f"no tensor map can be at {target:#x}: it is {memory.known.nearest(target)}", i, g.describe()
                )
            region.bytes[target - region.base :][:SIZE_BYTES] = memory.shared[start : start + SIZE_BYTES]


def _set_field(data: Array, field: str, ordinal: int, value: int, i: Instruction) -> None:
    if field == "global_address":
        data[:8] = np.frombuffer(value.to_bytes(8, "little"), np.uint8)
    elif field == "global_dim":
        _set_bits(data, 256 + 32 * ordinal, 32, value - 1)
    elif field == "global_stride":
        if value % 16 or value >> 40:
            raise DescriptorError(f"a tensor map's strides must be a multiple of 16 bytes below 2**40, got {value}", i)
        _set_bits(data, 96 + 32 * ordinal, 32, value // 16 & 0xFFFFFFFF)
        _set_bits(data, 224 + 4 * ordinal, 4, value >> 36)
    elif field == "box_dim":
        _set_bits(data, 440 + 8 * ordinal, 8, value - 1)
    elif field == "element_stride":
        _set_bits(data, 416 + 3 * ordinal, 3, value - 1)
    elif field == "rank":
        _set_bits(data, *_RANK, value)
    elif field == "elemtype":
        _set_bits(data, *_TYPE, _TF32.get(value, value))
        if value in _TF32:
            _set_bits(data, *_ROUNDS_TO_TF32, 1)
    elif field == "interleave_layout":
        _set_bits(data, *_INTERLEAVE, value)
    elif field == "swizzle_mode":
        _set_bits(data, *_SWIZZLE, value)
    elif field == "fill_mode":
        _set_bits(data, *_FILL, value)
    else:
        raise UnknownInstructionError(i, f"field {field}")


def _set_bits(data: Array, position: int, width: int, value: int) -> None:
    whole = int.from_bytes(data.tobytes(), "little")
    mask = ((1 << width) - 1) << position
    whole = whole & ~mask | (value << position & mask)
    data[:] = np.frombuffer(whole.to_bytes(len(data), "little"), np.uint8)
