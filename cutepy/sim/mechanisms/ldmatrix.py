"""ldmatrix and stmatrix: 8x8 matrices of 16-bit elements, a row of which one lane addresses.

Which lane holds what is computed from the layouts in `cutepy.layouts.sm90`.

References
----------
PTX ISA, "ldmatrix", "stmatrix".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts import sm90
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.layout_tables import by_value_and_thread

if TYPE_CHECKING:
    from cutepy.sim.machine.activity import Activity
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.memory import Memory
    from cutepy.sim.ptx.model import Instruction

_ROW_BYTES = 16


@cache
def fragment(count: int, transpose: bool) -> Array:
    """Return (lane, 16-bit value) -> element, counted through the matrices row by row."""
    layout = sm90.ldmatrix_traits(count, transpose=transpose).in_elements(16).dst_layout
    return by_value_and_thread(layout).T


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
        position = memory.locate(g, i, used.reshape(g.ctas.count, -1), _ROW_BYTES, _ROW_BYTES)
        return position.reshape(g.ctas.count, -1, WARP)[:, :, : 8 * count]

    def load(self, g: Group, i: Instruction, address: Array, count: int, transpose: bool) -> list[Array]:
        """Read matrices into registers."""
        rows = self._rows(g, i, address, count)
        memory = self._memory
        elements = memory.shared_view(np.dtype("u2"), 8)[rows // _ROW_BYTES]
        flat = elements.reshape(*rows.shape[:2], -1)[:, :, fragment(count, transpose)]
        words = np.ascontiguousarray(flat).view(np.uint32).reshape(g.ctas.count, g.threads.count, count)
        if self._activity.observers:
            memory.observe(g, i, "read", "shared", "generic", rows.reshape(g.ctas.count, -1), _ROW_BYTES)
        return [words[..., n] for n in range(count)]

    def store(self, g: Group, i: Instruction, address: Array, values: tuple[Array, ...], transpose: bool) -> None:
        """Write matrices from registers."""
        count = len(values)
        rows = self._rows(g, i, address, count)
        memory = self._memory
        shape = (g.ctas.count, g.threads.count)
        words = np.empty((*shape, count), np.uint32)
        for n, value in enumerate(values):
            words[..., n] = value
        halves = words.view(np.uint16).reshape(*rows.shape[:2], -1)
        elements = np.empty((*rows.shape[:2], 64 * count), np.uint16)
        elements[:, :, fragment(count, transpose).reshape(-1)] = halves
        memory.shared_view(np.dtype("u2"), 8)[rows // _ROW_BYTES] = elements.reshape(*rows.shape, 8)
        self._activity.changes += 1
        if self._activity.observers:
            memory.observe(g, i, "write", "shared", "generic", rows.reshape(g.ctas.count, -1), _ROW_BYTES)
