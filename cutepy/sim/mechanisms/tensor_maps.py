"""TMA descriptors: the 128 bytes of a tensor map, decoded, and changed by tensormap.replace.

What the bytes mean is the matter of `TensorMap` and `Im2colTensorMap` in `cutepy.layouts.sm90`, and where in them, of
`tensor_map_bits` there.

References
----------
PTX ISA, "Tensors", "Tensor-map", "tensormap.replace", "tensormap.cp_fenceproxy".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np

from cutepy.layouts import LayoutError
from cutepy.layouts.sm90 import tensor_map_bits as fields
from cutepy.layouts.sm90.arch import UNIT_BYTES
from cutepy.layouts.sm90.tensor_map_bits import ALIGNMENT, SIZE_BYTES, USED_BYTES
from cutepy.layouts.sm100.narrow_map import tensor_map_class
from cutepy.sim.errors import DescriptorError, UnknownInstructionError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.events import Fence, Proxy, Space
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import OFFSET_MASK, Memory, Region
from cutepy.sim.mechanisms.tensor_boxes import AnyTensorMap
from cutepy.sim.ptx.model import Instruction


@lru_cache(maxsize=4096)
def decode(data: bytes) -> AnyTensorMap:
    """Decode the first 64 bytes of a tensor map, of either mode; the others are not used.

    Raises
    ------
    LayoutError
        If a field has a value that no tensor map has.
    """
    # Kernels may have set fields that mean nothing: CUTLASS's grouped GEMMs set all strides, whatever the rank.
    bits = fields.of_its_rank(int.from_bytes(data[:USED_BYTES], "little"))
    return tensor_map_class(bits).decode(np.frombuffer(bits.to_bytes(USED_BYTES, "little"), "<u8").tolist())


class TensorMaps:
    """Reading and changing tensor maps in memory."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity = activity
        self._memory = memory

    def read(self, g: Group, i: Instruction, address: int) -> AnyTensorMap:
        """Decode the tensor map at an address."""
        region = self._place(g, i, address)
        start = address - region.base
        try:
            return decode(region.bytes[start : start + USED_BYTES].tobytes())
        except LayoutError as error:
            raise DescriptorError(f"what is at {address:#x} is no tensor map: {error}", i, g.describe()) from error

    def acquire(self, g: Group, i: Instruction, address: Array) -> None:
        """Let observers see a fence that shows tensor maps to copies."""
        self._observe(g, i, "read", "global", "tensormap", address)
        if self._activity.observers:
            self._activity.tell(Fence(i, g.ctas, g.threads))

    def use(self, g: Group, i: Instruction, address: Array) -> None:
        """Let observers see which tensor maps copies use."""
        self._observe(g, i, "read", "global", "tensormap", address)

    def _observe(
        self,
        g: Group,
        i: Instruction,
        what: Literal["read", "write"],
        space: Space,
        proxy: Proxy,
        address: Array,
        values: tuple[Array, ...] | None = None,
    ) -> None:
        if self._activity.observers:
            if space == "shared":
                address = self._memory.locate(g, i, address, SIZE_BYTES, ALIGNMENT)
            elif address.dtype == np.uint64:
                _, address = self._memory.resolve("generic", address)
            self._memory.observe(g, i, what, space, proxy, address, SIZE_BYTES, values=values)

    def prefetch(self, g: Group, i: Instruction, address: Array) -> None:
        """Check that there can be a tensor map at an address; its bytes may yet be written."""
        for value in {int(x) for x in address.flat}:
            self._place(g, i, value)

    def _place(self, g: Group, i: Instruction, address: int) -> Region:
        """Return the known memory where a tensor map can be."""
        if address % ALIGNMENT:
            reason = f"the address is no multiple of {ALIGNMENT}"
            raise DescriptorError(f"no tensor map can be at {address:#x}: {reason}", i, g.describe())
        region = self._memory.known.find(address, address + SIZE_BYTES)
        if region is None:
            known = self._memory.known.nearest(address)
            raise DescriptorError(f"no tensor map can be at {address:#x}: it is {known}", i, g.describe())
        return region

    def _bytes(self, g: Group, i: Instruction, space: str, slot: int, address: int) -> Array:
        """Return the 128 bytes of a tensor map, to be written."""
        memory = self._memory
        if space == "shared":
            start = slot * memory.slot_bytes + (address & OFFSET_MASK)
            return memory.shared[start : start + SIZE_BYTES]
        region = memory.known.find(address, address + SIZE_BYTES)
        if region is None:
            known = memory.known.nearest(address)
            raise DescriptorError(f"no tensor map can be at {address:#x}: it is {known}", i, g.describe())
        memory.check_writable(g, i, np.array([address], np.uint64), SIZE_BYTES, g.describe())
        return region.bytes[address - region.base : address - region.base + SIZE_BYTES]

    def replace(self, g: Group, i: Instruction, address: Array, field: str, ordinal: int, value: Array) -> None:
        """Set a field."""
        self._activity.changes += 1
        space: Space = "shared" if "shared::cta" in i.parts else "global"
        if address.dtype == np.uint64:
            space, address = self._memory.resolve("generic" if space == "global" else "shared", address)
        for slot, at, number in _lanes(g, address, value):
            _set_field(self._bytes(g, i, space, slot, at), field, ordinal, number, i)
        self._observe(g, i, "write", space, "generic", address, (value,))

    def copy(self, g: Group, i: Instruction, to: Array, source: Array) -> None:
        """Copy tensor maps from shared to global memory."""
        self._activity.changes += 1
        for slot, target, start in _lanes(g, to, source):
            self._bytes(g, i, "global", slot, target)[:] = self._bytes(g, i, "shared", slot, start)
        self._observe(g, i, "read", "shared", "generic", source)
        if self._activity.observers:  # lanes that copy from one place write the same
            sources = self._memory.locate(g, i, source, SIZE_BYTES, ALIGNMENT)
            self._observe(g, i, "write", "global", "generic", to, (sources,))


def _lanes(g: Group, *values: Array) -> Iterator[tuple[int, ...]]:
    """Yield slot and values of the lanes; of a CTA once where all of its lanes have the same."""
    wide = np.broadcast_arrays(g.ctas.column, *values)
    for at in np.ndindex(wide[0].shape):
        yield tuple(int(one[at]) for one in wide)


_AS_THEY_ARE = {
    "global_address": fields.GLOBAL_ADDRESS,
    "rank": fields.RANK,
    "interleave_layout": fields.INTERLEAVE,
    "swizzle_mode": fields.SWIZZLE,
    "swizzle_atomicity": fields.SWIZZLE_ATOM,
    "fill_mode": fields.FILL,
}
_LESS_ONE = {"global_dim": fields.EXTENT, "box_dim": fields.BOX, "element_stride": fields.ELEMENT_STRIDE}


def _set_field(data: Array, field: str, ordinal: int, value: int, i: Instruction) -> None:
    bits = int.from_bytes(data.tobytes(), "little")
    if field == "global_address" and value % UNIT_BYTES:
        raise DescriptorError(f"a tensor map's address must be a multiple of 16 bytes, got {value:#x}", i)
    if field in _AS_THEY_ARE:
        bits = _AS_THEY_ARE[field].write(bits, value)
    elif field in _LESS_ONE:
        bits = _LESS_ONE[field].write(bits, value - 1, ordinal)
    elif field == "global_stride":
        if value % UNIT_BYTES or value >> 40:
            raise DescriptorError(f"a tensor map's strides must be a multiple of 16 bytes below 2**40, got {value}", i)
        bits = fields.write_stride(bits, ordinal, value)
    elif field == "elemtype":
        bits = fields.write_element_type(bits, value)
    else:
        raise UnknownInstructionError(i, f"field {field}")
    data[:] = np.frombuffer(bits.to_bytes(len(data), "little"), np.uint8)
