"""Scales of a product's operands: per block of K in the main loop, or in the epilogue."""

from __future__ import annotations

from typing import NamedTuple

import torch

from cutepy.epilogues.graph import Graph
from cutepy.epilogues.operations import Shape
from cutepy.epilogues.scaling import scaled
from cutepy.kernels.gemm.operands import UNIT_BYTES


class Block(NamedTuple):
    """Block of elements that one scale multiplies: rows, and elements along K (128); 0 for all."""

    rows: int
    k: int


TENSOR, ROW = Block(0, 0), Block(1, 0)


class Scales(NamedTuple):
    """Scales of A and B.

    Attributes
    ----------
    a, b : Tensor, float32
        (M, K) and (N, K) in blocks, of any strides; (M,) and (N,) for rows, () for all.
    of_a, of_b : Block
    promotes : bool
        True if sums are promoted to fp32 every 128 of K, as they are in any case where scales differ along K.
    """

    a: torch.Tensor
    b: torch.Tensor
    of_a: Block
    of_b: Block
    promotes: bool

    @property
    def rows(self) -> tuple[int, int] | None:
        """`scale_rows` of the kernel's signature."""
        if not self.promotes:
            return None
        return self.of_a.rows if self.of_a.k else 0, self.of_b.rows if self.of_b.k else 0

    @property
    def by_tma(self) -> tuple[bool, bool]:
        """`tma_scales` of the kernel's signature: True for A, and for B, if TMA reaches the scales in place."""
        rows = self.rows or (0, 0)
        return rows[0] == 1 and _is_reached(self.a), rows[1] == 1 and _is_reached(self.b)

    @property
    def how(self) -> tuple[Block, Block, bool, tuple[bool, bool]]:
        """Return the part of the scales that determines which kernel is launched."""
        return self.of_a, self.of_b, self.promotes, self.by_tma

    @property
    def of_results(self) -> tuple[torch.Tensor, ...]:
        """Scales that are constant along K: the epilogue's first operands."""
        return tuple(scale for scale, block in ((self.a, self.of_a), (self.b, self.of_b)) if not block.k)

    def before(self, graph: Graph) -> Graph:
        """Prepend the scales that are constant along K to an epilogue."""
        kinds: tuple[tuple[Block, Shape], ...] = ((self.of_a, "column"), (self.of_b, "row"))
        return scaled(graph, tuple(shape if block == ROW else "scalar" for block, shape in kinds if not block.k))

    @property
    def along_k(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Scales of A and B that differ along K; the kernel takes them."""
        return self.a if self.of_a.k else None, self.b if self.of_b.k else None


def _is_reached(scales: torch.Tensor) -> bool:
    """Return whether TMA reaches scales of rows: contiguous, and whole units apart in all other modes."""
    *batch, rows, k = scales.stride()
    unit = UNIT_BYTES // scales.itemsize
    apart = rows == 1 and all(step > 0 and step % unit == 0 for step in (*batch, k))
    return apart and scales.data_ptr() % UNIT_BYTES == 0
