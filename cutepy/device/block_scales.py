"""Block scales of an operand: from global memory into the stages, and from there to the accumulators (traced).

The scales of a tile, for the blocks of K of a stage, pass through shared memory beside the stage. TMA loads them where
each row has one, and the scales of neighbouring rows are contiguous. Otherwise threads copy them from any layout, by
cp.async of 4 bytes, and `cutepy.device.pipeline.MixedRing` passes them on with the stage. A consumer thread reads the
few scales that apply to its accumulators.
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
    """Loads of an operand's scales by the threads of a CTA: one tile, neighbouring scales by neighbouring threads.

    Attributes
    ----------
    scales : Tensor, (places, K blocks), or (places, K blocks, batch...), fp32
        In global memory, of any strides.
    staged : Tensor, (places, K blocks, stages), fp32
        Shared memory, for one tile.
    rows : int
        Rows of A, or of B, that one scale stands for: 1 or 128.
    threads : int
        Number of threads that share a stage.
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
        """Issue cp.async of this thread's scales into a stage, for the tile at a row, from a block of K on.

        All threads call, and have acquired the stage; `MixedRing.commit` signals the end of the copies. Scales beyond
        the last row or block become zero, and are not read: A and B are zeros there, of which an infinite scale would
        make NaN. `batch` is not used where all products have the same scales.
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
        """Issue cp.async of one scale, or of a zero where there is none."""
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
    """Scales of one operand that apply to a thread's accumulators, one block of K after another.

    Attributes
    ----------
    staged : Tensor, (places, K blocks, stages), fp32
        Shared memory, for one tile.
    rows : int
        Rows of A, or of B, that one scale stands for: 1 or 128.
    offsets : tuple of int
        Row in the tile of each scale that this thread holds, relative to the thread's first.
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
        """Return the scales for the tile that begins at a row of the operand."""
        return self if self.rows == 1 else replace(self, within=first % self.rows)

    def read(self, k, stage):
        """Read the scales of a block of K from a full stage; after it all lanes of the warp may release the stage."""
        for slot, offset in enumerate(self.offsets):
            self.here[slot] = self.staged[self.place(offset), k, stage]

    def place(self, offset: int):
        """Return the row of a scale in the stage."""
        return self.first + offset if self.rows == 1 else (self.within + self.first + offset) // self.rows


@dataclass(frozen=True)
class RowScales(BlockScales):
    """Scales of A, by rows of the accumulators."""

    def at(self, row: int):
        """Return the scale of a row, counted from the thread's first."""
        return self.here[self.offsets.index(row if self.rows == 1 else row // arch.WGMMA_M * arch.WGMMA_M)]


@dataclass(frozen=True)
class ColumnScales(BlockScales):
    """Scales of B, by columns of the accumulators.

    Attributes
    ----------
    tile_n : int
    """

    tile_n: int = 0

    def place(self, offset: int):
        """Return the row of a scale in the stage: blocks are counted from the one in which the tile begins."""
        return self.first + offset if self.rows == 1 else offset // self.rows

    def key(self, column: int):
        """Return a key of a column, counted from the thread's first: equal keys have equal scales."""
        if self.rows == 1:
            return column
        # Tiles start at multiples of the gcd of their extent and a block: mostly only one block is possible.
        group = column // rules.COLUMN_GROUP * rules.COLUMN_GROUP
        least, most = rules.block_range(self.tile_n, self.rows, group)
        return (least, most, group if least < most else 0)

    def at(self, column: int):
        """Return the scale of a column, counted from the thread's first."""
        if self.rows == 1:
            return self.here[self.offsets.index(column)]
        least, most, group = self.key(column)
        if least == most:
            return self.here[least]
        return select(self.within + group < most * self.rows, self.here[least], self.here[most])


def stage_scales(pointer: cute.Pointer, stage: rules.ScaleStage, stages: int) -> cute.Tensor:
    """View shared memory as an operand's scales in a given number of stages: (places, K blocks, stages)."""
    check_room(pointer, stage.stride * stages, 32, f"scales of {stages} stages")
    shape, stride = (stage.places, stage.k_blocks, stages), (1, stage.places, stage.stride)
    return cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))
