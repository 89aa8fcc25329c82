"""Operands of the tensor core: tiles in shared memory by their descriptors, and A and scale factors in tensor memory.

References
----------
PTX ISA, "Matrix Descriptor", "Canonical Layouts", "Data Path Layout Organization", "Block Scaling" of tcgen05;
"Packing formats of sub-byte types": elements of 4 and 6 bits that share a kind with those of 8 lie 16 by 16, each group
at the start of 16 bytes of shared memory, and in bytes of their own in tensor memory.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from cutepy.layouts import LayoutError
from cutepy.layouts.hardware import UNIT_BITS, UNIT_BYTES, Major, byte_swizzle
from cutepy.layouts.sm100 import SmemDescriptor, tmem_operand, tmem_scale_factors
from cutepy.sim.arithmetic import minifloat
from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.wgmma_shapes import SharedTile

_GROUP = 16
_NARROW_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}


class SharedTiles:
    """Reads tiles of shared memory, as operations complete."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def units(
        self,
        g: Group,
        i: Instruction,
        slot: int,
        word: int,
        major: Major,
        extents: tuple[int, int],
        is_read: Array | None = None,
        operand: tuple[int, str, SharedTile] | None = None,
    ) -> Array:
        """Return the bytes of a tile of a CTA, by (rows, 16-byte units, byte).

        `extents` are rows and bits of a row: those along MN of a K-major tile, and along K of an MN-major one. Units
        that `is_read`, which is broadcast to (rows, units), leaves out are zeros.
        """
        try:
            units = _unit_addresses(word, major, *extents)
        except LayoutError as error:
            raise DescriptorError(str(error), i, g.describe()) from error
        if is_read is not None:
            is_read = np.broadcast_to(is_read, units.shape)
            whole = np.zeros((*units.shape, UNIT_BYTES), np.uint8)
            if is_read.any():
                whole[is_read] = self._read(g, i, slot, word, units[is_read], operand)
            return whole
        return self._read(g, i, slot, word, units, operand)

    def _read(
        self,
        g: Group,
        i: Instruction,
        slot: int,
        word: int,
        units: Array,
        operand: tuple[int, str, SharedTile] | None,
    ) -> Array:
        memory = self._memory
        highest = int(units.max()) + UNIT_BYTES
        if highest > memory.used_bytes:
            raise MemoryAccessError(
                f"the descriptor {word:#018x} reaches shared address {highest - 1:#x}, beyond the CTA's "
                f"{memory.used_bytes} bytes",
                i,
                g.describe(),
            )
        units = units + slot * memory.slot_bytes
        if self._activity.observers:
            memory.observe(g, i, "read", "shared", "async", units.reshape(1, -1), UNIT_BYTES, operand=operand)
        rows: Array = memory.shared_view(np.dtype("c16"), 1)[units // UNIT_BYTES]
        return rows.view(np.uint8).reshape(*units.shape, UNIT_BYTES)

    def matrix(
        self,
        g: Group,
        i: Instruction,
        slot: int,
        word: int,
        major: Major,
        shape: tuple[int, int],
        name: str,
        bits: int,
        used: Array | None = None,
    ) -> Array:
        """Return an operand as float32, (extent along MN, extent along K); unused elements along MN are zeros."""
        extent, k = shape
        operand = word, name, SharedTile(major, extent, k, bits)
        if major == "K":
            is_read = None if used is None else used[:, None]
            data = self.units(g, i, slot, word, major, (extent, k * bits), is_read, operand)
            return numbers(data.reshape(extent, -1), name, bits)[:, :k]
        is_read = None if used is None else _by_unit(used, bits)
        data = self.units(g, i, slot, word, major, (k, extent * bits), is_read, operand)
        found = numbers(data.reshape(k, -1), name, bits)[:, :extent].T
        return found if used is None else np.where(used[:, None], found, found.dtype.type(0))


def _by_unit(used: Array, bits: int) -> Array:
    """Return which 16-byte units of a row have an element that is used."""
    count = UNIT_BITS // bits
    return np.asarray(np.pad(used, (0, -len(used) % count)).reshape(-1, count).any(axis=1))


@lru_cache(maxsize=4096)
def _unit_addresses(word: int, major: Major, rows: int, bits: int) -> Array:
    """Return the addresses of a tile's 16-byte units, (rows, units of a row)."""
    descriptor = SmemDescriptor.decode(word)
    units = -(-bits // UNIT_BITS)
    if descriptor.lbo_mode:
        walk = descriptor.walk(major=major, bits=8)
        return np.array([[walk.address(row, UNIT_BYTES * unit) for unit in range(units)] for row in range(rows)])
    descriptor.walk(major=major, bits=8)  # checks the major
    linear = _linear(descriptor.lbo, descriptor.sbo, descriptor.layout_type, major, rows, units)
    swizzle: Any = byte_swizzle(descriptor.swizzle)  # bit operations, which arrays have too
    found: Array = swizzle(linear + descriptor.start_address)
    return found


@cache
def _linear(lbo: int, sbo: int, layout_type: int, major: Major, rows: int, units: int) -> Array:
    """Return the offsets of a tile's units from where it begins, before swizzling."""
    at_zero = SmemDescriptor(0, lbo, sbo, layout_type=layout_type)
    walk, pattern = at_zero.walk(major=major, bits=8), byte_swizzle(at_zero.swizzle)
    along = range(0, units * UNIT_BYTES, UNIT_BYTES)
    addresses = [
        [walk.address(row, at) if major == "K" else walk.address(at, row) for at in along] for row in range(rows)
    ]
    # A swizzle is its own inverse.
    return np.array([[pattern(place) for place in row] for row in addresses])


def numbers(rows: Array, name: str, bits: int) -> Array:
    """Return elements of rows of bytes in shared memory as float32."""
    if name in _NARROW_BITS:
        groups = rows.reshape(len(rows), -1, UNIT_BYTES)
        codes = (
            minifloat.unpacked(groups, 4) if bits == 4 else minifloat.unpacked(groups, _NARROW_BITS[name])[..., :_GROUP]
        )
        return minifloat.table(name)[codes.reshape(len(rows), -1)]
    return minifloat.to_numbers(np.ascontiguousarray(rows).view(f"u{bits // 8}"), name)


def in_tensor_memory(words: Array, shape: tuple[int, int], name: str, bits: int, group: int, address: int) -> Array:
    """Return A as float32, (rows of this CTA, K), from the tensor memory of a CTA."""
    m, k = shape
    rows = words[operand_places(m, k, bits, group, address)]
    data = np.ascontiguousarray(rows).view(np.uint8)
    if name in _NARROW_BITS and bits == 8:
        return minifloat.from_bytes(data, name)
    return numbers(data, name, bits)


def operand_places(m: int, k: int, bits: int, group: int, address: int) -> tuple[Array, Array]:
    """Return lanes, (rows, 1), and columns, (1, words), of A in tensor memory."""
    lanes, columns = _operand_places(m, k, bits, group)
    return lanes + (address >> 16), columns + (address & 0xFFFF)


@cache
def _operand_places(m: int, k: int, bits: int, group: int) -> tuple[Array, Array]:
    """Return lanes, (rows, 1), and columns of the words of A, (1, words)."""
    tensor = tmem_operand(m, k, bits=bits, cta_group=group)
    rows, per_word = m // group, 32 // bits
    lanes = np.array([[tensor.place((row, 0)).lane] for row in range(rows)])
    columns = np.array([[tensor.place((0, per_word * word)).column for word in range(k // per_word)]])
    return lanes, columns


def scale_factors(words: Array, rows: int, count: int, start: int, name: str, halves: bool, address: int) -> Array:
    """Return scale factors as float32, (rows, count), from the tensor memory of a CTA.

    `start` is the byte of a column at which they begin, and `halves` as of `tmem_scale_factors`.
    """
    lanes, columns, shifts = _scale_places(rows, count, start, halves)
    found = words[lanes, columns + (address & 0xFFFF)] >> shifts & np.uint32(0xFF)
    return minifloat.scales_to_f32(found, name)


def scale_places(rows: int, count: int, start: int, halves: bool, address: int) -> tuple[Array, Array]:
    """Return lanes and columns of scale factors in tensor memory."""
    lanes, columns, _ = _scale_places(rows, count, start, halves)
    return lanes, columns + (address & 0xFFFF)


@cache
def _scale_places(rows: int, count: int, start: int, halves: bool) -> tuple[Array, Array, Array]:
    whole = start + count if start + count < 4 else -(-(start + count) // 4) * 4
    tensor = tmem_scale_factors(rows, whole, vector=32, halves=halves)
    cells = np.array([[tensor.place((row, 32 * (start + n))) for n in range(count)] for row in range(rows)])
    return cells[..., 0], cells[..., 1], cells[..., 2].astype(np.uint32)
