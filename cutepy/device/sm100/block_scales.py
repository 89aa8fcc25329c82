"""Scale factors of block-scaled operands: from global memory to shared memory by TMA, to tensor memory by tcgen05.cp.

Scale factors lie in blocks of 128 rows by 4 of them along K, 512 bytes each, as cuBLAS and torch have them: the factor
of row r and place k of a block is byte 16 (r mod 32) + 4 (r / 32) + k. (traced)

References
----------
PTX ISA, "Scale factor" layouts of tcgen05; cuBLAS, "1D Block Scaling Factors Layout".
"""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.utils import blockscaled_layout

from cutepy.device.sm100.pipeline import cta_group
from cutepy.device.sm100.rules import BLOCK_WORDS
from cutepy.device.sm100.tensor_memory import TensorMemory
from cutepy.dsl.umma import to_tiled_umma
from cutepy.layouts import sm100


@dataclass(frozen=True)
class BlockScales:
    """Scale factors of A and B in tensor memory, and their copies from the stages.

    Attributes
    ----------
    copies : tuple of (TiledCopy, Tensor, Tensor)
        For A and B: the copy, descriptors of the stages, and the place in tensor memory.
    tCtSA, tCtSB : Tensor
        Scale factors as MMAs read them, (MMA, 1, MMA_K).
    """

    copies: tuple
    tCtSA: cute.Tensor
    tCtSB: cute.Tensor

    @cute.jit
    def copy(self, stage):
        """Copy a stage's scale factors to tensor memory; the warp that issues the MMAs calls, before it does.

        MMAs and copies of one thread complete in order: the copy waits for MMAs that read the factors before.
        """
        for copy, source, destination in self.copies:
            cute.copy(copy, source[(None, None, None, None, stage)], destination)

    def of_a(self, step: int) -> cute.Pointer:
        """Return the address of A's factors for one MMA along K."""
        return self.tCtSA[(None, None, step)].iterator

    def of_b(self, step: int) -> cute.Pointer:
        """Return the address of B's factors for one MMA along K."""
        return self.tCtSB[(None, None, step)].iterator


def make_block_scales(
    traits: sm100.UmmaTraits,
    tile_k: int,
    stages: int,
    pointers: tuple[cute.Pointer, cute.Pointer],
    memory: TensorMemory,
    element_type: type[cutlass.Numeric],
) -> BlockScales:
    """Make the copies and views of staged scale factors.

    Parameters
    ----------
    traits : UmmaTraits
        The MMA, with scale factors.
    tile_k, stages : int
        Elements along K of a stage, and stages.
    pointers : (Pointer, Pointer)
        Stages of the factors of A, of a CTA's rows, and of B, of all columns.
    memory : TensorMemory
        Its plan has the regions "SA" and "SB".
    element_type : type
        Type of the factors.
    """
    m, n, _ = traits.shape_mnk
    tiled_mma, tiler, vector = to_tiled_umma(traits), (m, n, tile_k), traits.scale_vector
    copies, views = [], []
    makers = (
        (blockscaled_layout.make_smem_layout_sfa, blockscaled_layout.make_tmem_layout_sfa),
        (blockscaled_layout.make_smem_layout_sfb, blockscaled_layout.make_tmem_layout_sfb),
    )
    atom = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(cta_group(traits.cta_group)), element_type)
    for (of_smem, of_tmem), pointer, region in zip(makers, pointers, ("SA", "SB"), strict=True):
        staged = of_smem(tiled_mma, tiler, vector, stages)
        layout = of_tmem(tiled_mma, tiler, vector, cute.slice_(staged, (None, None, None, 0)))
        view = cute.make_tensor(memory.region(region, element_type), layout)
        compact = cute.filter_zeros(view)
        copy = tcgen05.make_s2t_copy(atom, compact)
        thread = copy.get_slice(0)
        bytes_ = cute.make_tensor(cute.recast_ptr(pointer, dtype=element_type), staged)
        source = tcgen05.get_s2t_smem_desc_tensor(copy, thread.partition_S(cute.filter_zeros(bytes_)))
        copies.append((copy, source, thread.partition_D(compact)))
        views.append(view)
    return BlockScales(tuple(copies), *views)


def stage_layout(row_blocks: int, k_blocks: int, stages: int) -> cute.Layout:
    """Lay out stages of scale factors: (row blocks, K blocks, words, stages)."""
    return cute.make_layout(
        (row_blocks, k_blocks, BLOCK_WORDS, stages),
        stride=(k_blocks * BLOCK_WORDS, BLOCK_WORDS, 1, row_blocks * k_blocks * BLOCK_WORDS),
    )


def make_scale_load(
    tensor: cute.Tensor, row_blocks: int, k_blocks: int, ctas: int
) -> tuple[cute.CopyAtom, cute.Tensor]:
    """Make the TMA copy of a stage's factors from a tensor (row blocks, K blocks, words, batch...) of Int32."""
    layout = cute.select(stage_layout(row_blocks, k_blocks, 1), mode=[0, 1, 2])
    op = cpasync.CopyBulkTensorTileG2SOp(cta_group(ctas))
    return cpasync.make_tiled_tma_atom(op, tensor, layout, (row_blocks, k_blocks, BLOCK_WORDS))


@dataclass(frozen=True)
class ScaleLoads:
    """TMA loads of an operand's scale factors.

    Attributes
    ----------
    copy : CopyAtom
    tSs, tSg : Tensor
        Shared memory ((TMA, iterations), stages) and global memory ((TMA, iterations), rows, columns, 1, batch...).
    """

    copy: cute.CopyAtom
    tSs: cute.Tensor
    tSg: cute.Tensor

    def load(self, coordinate, stage, full):
        """Issue the loads of the factors of the tile at (row, K tile, batch...) into a stage."""
        row, k_tile, *batch = coordinate
        cute.copy(self.copy, self.tSg[(None, row, k_tile, 0, *batch)], self.tSs[(None, stage)], tma_bar_ptr=full)


def make_scale_loads(
    copy: cute.CopyAtom, tensor: cute.Tensor, pointer: cute.Pointer, row_blocks: int, k_blocks: int, stages: int
) -> ScaleLoads:
    """Partition a coordinate tensor of `make_scale_load` into tiles, for stages at a pointer to Int32."""
    staged = cute.make_tensor(pointer, stage_layout(row_blocks, k_blocks, stages))
    tiles = cute.local_tile(tensor, (row_blocks, k_blocks, BLOCK_WORDS), (None,) * cute.rank(tensor))
    grouped = cute.group_modes(staged, 0, 3), cute.group_modes(tiles, 0, 3)
    return ScaleLoads(copy, *cpasync.tma_partition(copy, 0, cute.make_layout(1), *grouped))
