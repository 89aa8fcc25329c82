"""ldmatrix and stmatrix: 8x8 matrices of 16-bit elements, 16x16, 16x8 and 8x16 ones of bytes.

A lane addresses 16 bytes. These are a row of a matrix, or a column of a 16x8 matrix of bytes, which is stored
transposed. Layouts tell the lane that holds an element; those of 16-bit elements are in `cutepy.layouts.sm90`. Elements
of 4 and 6 bits are packed by sixteen at the start of their row, and each is loaded to the low bits of a byte.

References
----------
PTX ISA, "ldmatrix", "stmatrix"; "Optional Decompression" of tcgen05. CuTe ``atom/mma_traits_sm120.hpp``,
``fp4_shift_A``: what ldmatrix gives of 4 bits is shifted to where mma takes it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cutepy.layouts import Layout, sm90
from cutepy.sim.arithmetic import minifloat
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.layout_tables import by_value_and_thread

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction

ROW_BYTES = 16
_BYTES = {
    "m16n16": ((4, 8), (4, 2, 2), (64, 1), (16, 8, 256)),
    "m16n8": ((4, 8), (2, 2, 4), (32, 1), (16, 8, 128)),
    "m8n16": ((4, 8), (4, 4), (4, 16), (1, 128)),
}
"""Layout of bytes by shape: (lane, byte of its registers) -> byte, counted through the rows that lanes address."""


_NARROW_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}
"""Width of packed elements, by the format of the source."""


def row_bytes(i: Instruction) -> int:
    """Return how many bytes of each row are read or written: all 16, or those of 16 elements of 4 or 6 bits."""
    return 2 * _NARROW_BITS.get(i.parts[-1], 8)


def in_bytes(i: Instruction, rows: Array) -> Array:
    """Return rows, (..., their bytes), with each element of 4 or 6 bits in a byte of its own."""
    bits = _NARROW_BITS.get(i.parts[-1])
    return rows if bits is None else minifloat.unpacked(rows[..., : 2 * bits], bits)


class Fragment(NamedTuple):
    """Fragment of a warp in the matrices of an instruction.

    Attributes
    ----------
    kind : dtype
        Of elements.
    order : array of int, (32, elements)
        Lane and element of its registers -> element, counted through the rows that lanes address.
    """

    kind: np.dtype[Any]
    order: Array


def fragment_of(i: Instruction, registers: int) -> Fragment:
    """Return the fragment of an instruction that reads or writes some registers of each lane."""
    return _fragment(i.parts[3], registers, "trans" in i.parts)


@cache
def _fragment(shape: str, registers: int, transpose: bool) -> Fragment:
    if shape == "m8n8":
        layout = sm90.ldmatrix_traits(registers, transpose=transpose).in_elements(16).dst_layout
        return Fragment(np.dtype("u2"), by_value_and_thread(layout).T)
    lanes, values, lane_strides, strides = _BYTES[shape]
    order = by_value_and_thread(Layout((lanes, values), (lane_strides, strides))).T
    return Fragment(np.dtype("u1"), np.ascontiguousarray(order[:, : 4 * registers]))


class MatrixAccess:
    """Matrices in shared memory, read and written by whole warps."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity = activity
        self._memory = memory

    def _rows(self, g: Group, i: Instruction, address: Array, count: int) -> Array:
        """Return the positions of the matrices' rows in shared memory: (CTA, warp, row)."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        memory = self._memory
        _, address = memory.resolve("shared" if address.dtype == np.uint32 else "generic", address)
        lanes = np.broadcast_to(address, (g.ctas.count, g.threads.count)).reshape(g.ctas.count, -1, WARP)
        # Lanes beyond those that address a row may hold anything.
        used = np.where(np.arange(WARP) < 8 * count, lanes, lanes[:, :, :1])
        position = memory.locate(g, i, used.reshape(g.ctas.count, -1), ROW_BYTES, ROW_BYTES)
        return position.reshape(g.ctas.count, -1, WARP)[:, :, : 8 * count]

    def load(self, g: Group, i: Instruction, address: Array, count: int) -> list[Array]:
        """Read matrices into registers, so many of each lane."""
        rows = self._rows(g, i, address, count)
        memory, (kind, order) = self._memory, fragment_of(i, count)
        elements = memory.shared_view(kind, ROW_BYTES // kind.itemsize)[rows // ROW_BYTES]
        elements = in_bytes(i, elements)
        flat = elements.reshape(*rows.shape[:2], -1)[:, :, order]
        words = np.ascontiguousarray(flat).view(np.uint32).reshape(g.ctas.count, g.threads.count, count)
        if self._activity.observers:
            memory.observe(g, i, "read", "shared", "generic", rows.reshape(g.ctas.count, -1), row_bytes(i))
        return [words[..., n] for n in range(count)]

    def store(self, g: Group, i: Instruction, address: Array, values: tuple[Array, ...]) -> None:
        """Write matrices from registers."""
        count = len(values)
        rows = self._rows(g, i, address, count)
        memory, (kind, order) = self._memory, fragment_of(i, count)
        shape = (g.ctas.count, g.threads.count)
        words = np.empty((*shape, count), np.uint32)
        for n, value in enumerate(values):
            words[..., n] = value
        given = words.view(kind).reshape(*rows.shape[:2], -1)
        elements = np.empty_like(given)
        elements[:, :, order.reshape(-1)] = given
        each = ROW_BYTES // kind.itemsize
        memory.shared_view(kind, each)[rows // ROW_BYTES] = elements.reshape(*rows.shape, each)
        self._activity.changes += 1
        if self._activity.observers:
            memory.observe(g, i, "write", "shared", "generic", rows.reshape(g.ctas.count, -1), ROW_BYTES)
