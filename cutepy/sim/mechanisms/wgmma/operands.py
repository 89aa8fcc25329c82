"""Operand tiles in shared memory: their 16-byte units, by the descriptors, and the contents."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from cutepy.layouts import LayoutError, sm90
from cutepy.layouts.sm90.arch import UNIT_BYTES, span_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.sim.errors import DescriptorError, MemoryAccessError
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import Array, Index
from cutepy.sim.machine.memory import Memory
from cutepy.sim.mechanisms.wgmma.registers import numbers
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.wgmma_shapes import SharedTile


@cache
def tile_units(word: int, tile: SharedTile) -> Array:
    """Return the 16-byte units of an operand tile, by position in shared memory in units.

    (MN, K / T) for K-major, (K, MN / T) for MN-major, with T elements in a unit.
    """
    descriptor = sm90.GmmaDescriptor.decode(word)
    if tile.major == "K" and descriptor.swizzle != "INTER" and tile.k * tile.bits // 8 > span_bytes(descriptor.swizzle):
        raise LayoutError(
            "wgmma",
            (descriptor,),
            f"{tile.k * tile.bits // 8} bytes along K do not fit in the {span_bytes(descriptor.swizzle)} of "
            f"{descriptor.swizzle}: rows would overlap",
            "lay the tile out with SW64 or SW128, or without a swizzle",
        )
    linear = _linear_units(descriptor.leading_byte_offset, descriptor.stride_byte_offset, descriptor.layout_type, tile)
    address = linear + descriptor.start_address
    if descriptor.base_offset:
        raise LayoutError("wgmma", (descriptor,), "base_offset must be 0", "align the tile to its pattern")
    swizzle: Any = byte_swizzle(descriptor.swizzle)  # bit operations, which arrays have too
    result: Array = swizzle(address) // UNIT_BYTES
    return result


@cache
def _linear_units(lbo: int, sbo: int, layout_type: int, tile: SharedTile) -> Array:
    """Return the byte offsets of a tile's units, before swizzling."""
    major, extent, k, bits = tile
    at_zero = sm90.GmmaDescriptor(0, lbo, sbo, layout_type=layout_type)
    pattern = byte_swizzle(at_zero.swizzle)
    per_unit = 8 * UNIT_BYTES // bits
    if major == "K":
        addresses = [
            [at_zero.address(r, c, major="K", bits=bits) for c in range(0, k, per_unit)] for r in range(extent)
        ]
    else:
        addresses = [
            [at_zero.address(c, r, major="MN", bits=bits) for c in range(0, extent, per_unit)] for r in range(k)
        ]
    # A swizzle is its own inverse.
    return np.array([[pattern(place) for place in row] for row in addresses])


@cache
def _run_units(words: tuple[tuple[int, ...], ...], tile: SharedTile) -> Array:
    axis = 1 if tile.major == "K" else 0
    return np.stack([np.concatenate([tile_units(word, tile) for word in run], axis=axis) for run in words])


class Operands:
    """Reads operand tiles, as MMAs complete."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity = activity
        self._memory = memory

    def read(
        self,
        words: Sequence[Array],
        tile: SharedTile,
        kind: str,
        rows: Index,
        i: Instruction,
        g: Group,
    ) -> Array:
        """Gather operand tiles from shared memory: (CTA, 1 or warpgroup, extent, K of all MMAs)."""
        memory = self._memory
        units = memory.shared_view(np.dtype("c16"), memory.slot_bytes // UNIT_BYTES)[rows]
        by_cta = np.stack(np.broadcast_arrays(*words), axis=-1)
        if (by_cta == by_cta[:, :1]).all():
            by_cta = by_cta[:, :1]
        if (by_cta == by_cta[:1]).all():
            by_cta = by_cta[:1]
        tables = [self._table(tuple(map(tuple, row.tolist())), tile, i, g) for row in by_cta]
        if len(tables) == 1:
            gathered = np.take(units, tables[0], axis=1)
        else:
            gathered = np.stack([units[n][table] for n, table in enumerate(tables)])
        if self._activity.observers:
            slots = np.arange(memory.shared.size // memory.slot_bytes)[rows]
            positions = (
                np.stack([table.reshape(-1) for table in tables]) * UNIT_BYTES + slots[:, None] * memory.slot_bytes
            )
            memory.observe(g, i, "read", "shared", "async", positions, UNIT_BYTES)
        values = numbers(np.ascontiguousarray(gathered).view(f"u{tile.bits // 8}"), kind)
        return values if tile.major == "K" else values.swapaxes(2, 3)

    def _table(self, words: tuple[tuple[int, ...], ...], tile: SharedTile, i: Instruction, g: Group) -> Array:
        """Return the units of the tiles of a run of MMAs, side by side along K, for each warpgroup."""
        try:
            table = _run_units(words, tile)
        except LayoutError as error:
            raise DescriptorError(str(error), i, g.describe()) from error
        limit = self._memory.used_bytes
        if int(table.max()) * UNIT_BYTES + UNIT_BYTES > limit:
            raise MemoryAccessError(
                f"the descriptor {words[0][0]:#018x} reaches shared address {int(table.max()) * UNIT_BYTES:#x}, "
                f"beyond the CTA's {limit} bytes",
                i,
                g.describe(),
            )
        return table
