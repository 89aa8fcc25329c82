"""Scales of blocks of an operand: from global memory into the stages, and from there to the accumulators (traced).

Those of a tile, for the blocks of K of a stage, pass through shared memory beside the stage. TMA loads them where each
row has one, and these lie beside each other; threads copy them from any layout, by cp.async of 4 bytes, and
`cutepy.device.pipeline.MixedRing` passes them on with the stage. Who multiplies it reads the few that its accumulators
meet.
"""

from dataclasses import dataclass, replace

import cutlass
import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import cpasync

from cutepy.device import rules
from cutepy.device.primitives import select
from cutepy.device.smem import check_room
from cutepy.layouts.sm90 import arch


@dataclass(frozen=True)
class ScaleLoads:
    """What threads of one CTA load of an operand's scales: those of a tile, neighbouring ones by neighbouring threads.

    Attributes
    ----------
    scales : Tensor, (places, K blocks), or (places, K blocks, batch...), fp32
        In global memory, of any strides.
    staged : Tensor, (places, K blocks, stages), fp32
        Shared memory, for one tile.
    rows : int
        Rows of A, or of B, that one scale stands for: 1 or 128.
    threads : int
        Which share a stage.
    tidx : Int32
        Index of this one.
    """

    scales: cute.Tensor
    staged: cute.Tensor
    rows: int
    threads: int
    tidx: cutlass.Int32

    @cute.jit
    def load(self, first, batch: cutlass.Constexpr, block, stage):
        """Begin to copy this thread's scales of the tile that begins at a row, from a block of K on, into a stage.

        All threads call, which have acquired the stage; the copies end some time later, of which `MixedRing.commit`
        tells. What lies beyond the last row or block becomes zero, and is not read: A and B are zeros there, of which
        an infinite scale would make NaN. `batch` is not used where all products have the same scales.
        """
        staged, scales = self.staged, self.scales
        if cutlass.const_expr(cute.rank(scales) > 2):
            scales = scales[(None, None, *batch)]
        places, blocks = cute.size(staged, mode=[0]), cute.size(staged, mode=[1])
        for k in cutlass.range_constexpr(blocks):
            for group in cutlass.range_constexpr(0, places, self.threads):
                place = group + self.tidx
                if cutlass.const_expr(group + self.threads <= places):
                    self.copy(scales, (first // self.rows + place, block + k), (place, k, stage))
                elif place < places:
                    self.copy(scales, (first // self.rows + place, block + k), (place, k, stage))

    def copy(self, scales, source, destination):
        """Begin to copy one scale, or a zero where there is none."""
        copy = cute.make_copy_atom(cpasync.CopyG2SOp(), Float32, num_bits_per_copy=32)
        one, exists = cute.make_layout(((1, 1), 1)), cute.make_rmem_tensor((1, 1), cutlass.Boolean)
        exists[0] = (source[0] < scales.shape[0]) & (source[1] < scales.shape[1])
        taken, put = (
            cute.make_tensor(tensor.iterator + cute.crd2idx(at, tensor.layout), one)
            for tensor, at in ((scales, source), (self.staged, destination))
        )
        cute.copy(copy, taken, put, pred=exists)


def make_scale_load(scales: cute.Tensor, stage: rules.ScaleStage) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the copy atom and the coordinate tensor by which TMA loads scales (rows, K blocks, batch...) into stages."""
    tile = (stage.places, stage.k_blocks)
    layout = cute.make_layout(tile, stride=(1, stage.places))
    return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), scales, layout, tile)


@dataclass(frozen=True)
class BlockScales:
    """The scales of one operand that a thread's accumulators meet, one block of K after another.

    Attributes
    ----------
    staged : Tensor, (places, K blocks, stages), fp32
        Shared memory, for one tile.
    rows : int
        Rows of A, or of B, that one scale stands for: 1 or 128.
    offsets : tuple of int
        Of each scale that this thread holds: its row in the tile, counted from the thread's first.
    here : Tensor
        Registers for the block at hand.
    first : Int32
        The thread's first row, in the tile.
    within : Int32
        Rows from the beginning of a block of scales to the tile's.
    """

    staged: cute.Tensor
    rows: int
    offsets: tuple[int, ...]
    here: cute.Tensor
    first: cutlass.Int32 | int = 0
    within: cutlass.Int32 | int = 0

    def at_tile(self, first):
        """Give those of a tile that begins at a row of the operand."""
        return self if self.rows == 1 else replace(self, within=first % self.rows)

    def read(self, k, stage):
        """Read those of a block of K of a stage, which is full; then the stage may be released, by all of the warp."""
        for slot, offset in enumerate(self.offsets):
            self.here[slot] = self.staged[self.place(offset), k, stage]

    def place(self, offset: int):
        """Give the place of a scale in the stage."""
        return self.first + offset if self.rows == 1 else (self.within + self.first + offset) // self.rows


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

    def place(self, offset: int):
        """Give the place of a scale in the stage: blocks are counted from that in which the tile begins."""
        return self.first + offset if self.rows == 1 else offset // self.rows

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
        return select(self.within + group < most * self.rows, self.here[least], self.here[most])


def stage_scales(pointer: cute.Pointer, stage: rules.ScaleStage, stages: int) -> cute.Tensor:
    """See shared memory as an operand's scales in so many stages: (places, K blocks, stages)."""
    check_room(pointer, stage.stride * stages, 32, f"scales of {stages} stages")
    shape, stride = (stage.places, stage.k_blocks, stages), (1, stage.places, stage.stride)
    return cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))
