"""Scales of blocks of an operand, in the registers of the threads whose accumulators they meet (traced)."""

from dataclasses import dataclass, replace

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from cutepy.device import rules
from cutepy.device.evaluation import select
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class BlockScales:
    """The scales of one operand that a thread's accumulators meet, one block of K after another.

    They come from global memory straight into registers, in any layout; few of them a block ahead of use.

    Attributes
    ----------
    scales : Tensor, (places, K blocks), or (places, K blocks, batch...), fp32
    rows : int
        Rows of A, or of B, that one scale stands for: 1 or 128.
    offsets : tuple of int
        Of each scale that this thread holds: its row in the tile, counted from the thread's first.
    here, ahead : Tensor
        Registers for the block at hand, and for the next one; the same where a thread holds many.
    first : Int32
        The thread's first row, in the operand.
    """

    scales: cute.Tensor
    rows: int
    offsets: tuple[int, ...]
    here: cute.Tensor
    ahead: cute.Tensor
    first: cutlass.Int32 | int = 0

    @property
    def prefetches(self) -> bool:
        """Whether they are loaded a block ahead."""
        return rules.prefetched(len(self.offsets))

    def at_tile(self, first, batch):
        """Give those of a tile that begins at a row of the operand; of a batch, where each product has its own."""
        scales = self.scales
        if cute.rank(scales) > 2:
            scales = scales[(None, None, *batch)]
        return replace(self, scales=scales, first=first + self.first)

    def load(self, values, block):
        """Load those of a block of K."""
        places, blocks = cute.size(self.scales, mode=[0]), cute.size(self.scales, mode=[1])
        for slot, offset in enumerate(self.offsets):
            # Rows beyond the last are never stored, so the last one's scale will do there.
            place = cutlass.min((self.first + offset) // self.rows, places - 1)
            values[slot] = self.scales[place, cutlass.min(block, blocks - 1)]

    def begin(self, block):
        """Ask for the first block's."""
        if self.prefetches:
            self.load(self.ahead, block)

    def advance(self, block, following):
        """Take those of a block, and ask for those of the one that follows."""
        if not self.prefetches:
            self.load(self.here, block)
        # Beyond the last block A and B are zeros, of which an infinite scale would make NaN.
        within = block < cute.size(self.scales, mode=[1])
        for slot in range(len(self.offsets)):
            self.here[slot] = select(within, self.ahead[slot], Float32(0.0))
        if self.prefetches:
            self.load(self.ahead, following)


@dataclass(frozen=True)
class RowScales(BlockScales):
    """Scales of A, by the rows of the accumulators."""

    def at(self, row: int):
        """Give the scale of a row, counted from the thread's first."""
        return self.here[self.offsets.index(row if self.rows == 1 else row // arch.WGMMA_M * arch.WGMMA_M)]


@dataclass(frozen=True)
class ColumnScales(BlockScales):
    """Scales of B, by the columns of the accumulators.

    Attributes
    ----------
    tile_n : int
    """

    tile_n: int = 0

    def key(self, column: int):
        """Tell columns apart, counted from the thread's first, as far as their scales may be."""
        if self.rows == 1:
            return column
        # Tiles start at multiples of what their extent and a block have in common: mostly only one block is possible.
        group = column // rules.COLUMN_GROUP * rules.COLUMN_GROUP
        least, most = rules.block_range(self.tile_n, self.rows, group)
        return (least, most, group if least < most else 0)

    def at(self, column: int):
        """Give the scale of a column, counted from the thread's first."""
        if self.rows == 1:
            return self.here[self.offsets.index(column)]
        least, most, group = self.key(column)
        if least == most:
            return self.here[least]
        return select(self.first % self.rows + group < most * self.rows, self.here[least], self.here[most])


def make_registers(offsets: tuple[int, ...]) -> tuple[cute.Tensor, cute.Tensor]:
    """Make the registers for scales at these offsets: `here` and `ahead`."""
    here = cute.make_rmem_tensor(len(offsets), Float32)
    return here, cute.make_rmem_tensor(len(offsets), Float32) if rules.prefetched(len(offsets)) else here
