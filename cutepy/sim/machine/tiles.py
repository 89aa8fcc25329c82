"""Accumulators that live as matrices as long as only MMAs touch them, and the MMAs that are to change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutepy.sim.machine.lanes import Array

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.wgmma_shapes import Shape


@dataclass
class Issued:
    """An MMA whose operands are known: descriptors by (CTA, warpgroup), or A's values.

    `where` says where in their rows the elements are that a sparse A keeps: (CTA, warpgroup, 64, K / 2).
    """

    shape: Shape
    instruction: Instruction
    a: Array
    b: Array
    accumulate: Array
    tile: Tile
    where: Array | None = None


class Tile:
    """Accumulators as a matrix, (CTA, warpgroup, 64, N); None while no MMA has completed on fresh ones."""

    def __init__(self, shape: Shape, matrix: Array | None) -> None:
        self.shape = shape
        self.matrix = matrix
        self.in_flight = 0
