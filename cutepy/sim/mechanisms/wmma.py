"""wmma: the fragments of warps' matrices, loaded from memory and stored there; and the transposition of one.

The ISA leaves open which lane holds what: here it is as in `mma.sync` (`fragments`). Those of f16 have registers for
twice as many elements as A and B have, and hold them twice.

References
----------
PTX ISA, "Warp-level Matrix Load Instruction: wmma.load", "Warp-level Matrix Store Instruction: wmma.store",
"Warp-level matrix transpose instruction: movmatrix".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutepy.sim.arithmetic.fragments import BITS, Fragment, elements, packed
from cutepy.sim.machine.activity import Activity
from cutepy.sim.machine.alignment import check_uniform
from cutepy.sim.machine.deadlock import PartOfAUnit
from cutepy.sim.machine.group import Group
from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.memory import Memory
from cutepy.sim.mechanisms.mma import registers_of, words_of
from cutepy.sim.ptx.model import Instruction


class Wmma:
    """Fragments of warps."""

    def __init__(self, activity: Activity, memory: Memory) -> None:
        self._activity, self._memory = activity, memory

    def load(
        self, g: Group, i: Instruction, fragment: Fragment, space: str, address: Array, stride: Array | None
    ) -> list[Array]:
        """Return the registers of a fragment in memory."""
        codes = []
        for at, kind in self._addresses(g, i, fragment, address, stride):
            codes.append(np.broadcast_to(self._memory.load(g, i, space, at, kind, 1), at.shape))
        shape = (g.ctas.count, g.threads.count)
        whole = np.stack([np.broadcast_to(one, shape) for one in codes], axis=-1)
        return registers_of(g, packed(whole), fragment.kind)

    def store(
        self,
        g: Group,
        i: Instruction,
        fragment: Fragment,
        space: str,
        address: Array,
        stride: Array | None,
        values: tuple[Array, ...],
    ) -> None:
        """Write the registers of a fragment to memory."""
        bits = BITS[fragment.kind]
        codes = elements(words_of(g, values), bits).reshape(g.ctas.count, g.threads.count, -1)
        for n, (at, kind) in enumerate(self._addresses(g, i, fragment, address, stride)):
            self._memory.store(g, i, space, at, (codes[..., n].view(kind),))

    def _addresses(
        self, g: Group, i: Instruction, fragment: Fragment, address: Array, stride: Array | None
    ) -> list[tuple[Array, np.dtype[Any]]]:
        """Return the address, (CTAs, threads), and type of each element; of packs of those of fewer than 8 bits."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        check_uniform(self._activity, g, i, address, "the address of the matrix")
        if stride is not None:
            check_uniform(self._activity, g, i, stride, "the stride of the matrix")
        bits = BITS[fragment.kind]
        offsets = fragment.offsets(g.threads.ids % WARP, stride)
        step = max(1, 32 // bits) if bits < 8 else 1
        kind = np.dtype(f"u{max(bits, 32 if bits < 8 else 8) // 8}")
        positions = offsets[..., ::step] * bits // 8
        return [(address + positions[..., n].astype(address.dtype), kind) for n in range(positions.shape[-1])]

    def transpose(self, g: Group, i: Instruction, value: Array) -> Array:
        """Transpose an 8 x 8 matrix of 16-bit elements, of which each lane has two of a row."""
        if not g.threads.full:
            raise PartOfAUnit(g, i, WARP, f"{i.opcode} needs all lanes of each warp")
        words = words_of(g, (value,))
        matrix = words.view(np.uint16).reshape(*words.shape[:2], 8, 8)
        transposed = np.ascontiguousarray(matrix.swapaxes(-1, -2)).reshape(*words.shape[:2], WARP, 2)
        return registers_of(g, transposed.view(np.uint32), "b32")[0]
