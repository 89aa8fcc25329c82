"""Copies from shared to tensor memory, and shifts of rows in tensor memory.

References
----------
PTX ISA, "tcgen05.cp", "Optional Decompression", "tcgen05.shift".
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cutepy.layouts.sm100 import tmem_cp_traits
from cutepy.layouts.sm100.arch import TMEM_LANE_SHIFT, TMEM_QUARTER_LANES
from cutepy.layouts.sm100.tmem_cp import DECOMPRESSIONS
from cutepy.sim.arithmetic import minifloat
from cutepy.sim.machine.lanes import Array
from cutepy.sim.mechanisms.tcgen05.operands import SharedTiles
from cutepy.sim.mechanisms.tcgen05.tensor_memory import pair_of

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.mechanisms.tcgen05.tensor_memory import TensorMemory
    from cutepy.sim.ptx.model import Instruction

_SHIFTED_COLUMNS = 8


class Copies:
    """Copies to tensor memory, and within it."""

    def __init__(self, tiles: SharedTiles, tensor_memory: TensorMemory) -> None:
        self._tiles, self._memory = tiles, tensor_memory

    def copy(self, g: Group, i: Instruction, slot: int, cluster_size: int, address: int, word: int) -> None:
        """Copy rows of shared memory, given by a descriptor, to lanes of each CTA that takes part."""
        opcode = ".".join(i.parts[3:])
        packed = next((name for name in DECOMPRESSIONS if opcode.endswith(name)), "")
        lanes, rows, row_bits = _lanes(opcode.removesuffix(packed).rstrip("."))
        column, first = address & 0xFFFF, address >> TMEM_LANE_SHIFT
        self._memory.check_lane(g, i, f"a copy of {opcode}", first, int(lanes.max()), step=1)
        for one in pair_of(slot, cluster_size) if i.traits.cta_group == 2 else [slot]:
            data = self._tiles.units(g, i, one, word, "K", (rows, row_bits))
            if packed:
                data = minifloat.unpacked(data, DECOMPRESSIONS[packed])[..., :16]
                data = data << np.uint8(2) if DECOMPRESSIONS[packed] == 4 else data
            words = np.ascontiguousarray(data).view(np.uint32).reshape(rows, -1)
            self._memory.check(g, i, one, column, words.shape[1])
            columns = np.arange(column, column + words.shape[1])
            reached = (lanes.reshape(-1) + first)[:, None], columns[None]
            self._memory.observe_operation(g, i, one, *reached, writes=True, needs_value=False)
            for copies in lanes.T:  # of each row, one lane
                self._memory.words[one, copies + first, column : column + words.shape[1]] = words

    def shift(self, g: Group, i: Instruction, slot: int, cluster_size: int, address: int) -> None:
        """Let each of 32 lanes, but the last, take 32 bytes of the next."""
        column, first = address & 0xFFFF, address >> TMEM_LANE_SHIFT
        self._memory.check_lane(g, i, "a shift", first, TMEM_QUARTER_LANES - 1, TMEM_QUARTER_LANES)
        for one in pair_of(slot, cluster_size) if i.traits.cta_group == 2 else [slot]:
            self._memory.check(g, i, one, column, _SHIFTED_COLUMNS)
            reached = np.arange(first, first + TMEM_QUARTER_LANES)[:, None], np.arange(_SHIFTED_COLUMNS)[None] + column
            self._memory.observe_operation(g, i, one, *reached, writes=False, needs_value=True)
            self._memory.observe_operation(g, i, one, *reached, writes=True, needs_value=False)
            part = self._memory.words[one, first : first + TMEM_QUARTER_LANES, column : column + _SHIFTED_COLUMNS]
            part[:-1] = part[1:].copy()


@cache
def _lanes(shape: str) -> tuple[Array, int, int]:
    """Return lanes, (rows, copies), and rows and bits of a row in shared memory."""
    traits = tmem_cp_traits(shape)
    count = traits.lanes.size() // traits.rows
    lanes = np.array([[traits.lanes(row + traits.rows * copy) for copy in range(count)] for row in range(traits.rows)])
    return lanes, traits.rows, traits.row_bits
