"""Products C (+)= A B^T by tcgen05.mma: A and B staged in shared memory, C in tensor memory (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import tcgen05

from cutepy.device.sm100 import rules as umma_rules
from cutepy.device.sm100.block_scales import BlockScales
from cutepy.device.sm100.tensor_memory import TensorMemory
from cutepy.device.staging import contiguous_mode
from cutepy.dsl.element_types import dtype_of
from cutepy.dsl.umma import to_tiled_umma
from cutepy.layouts import sm100


@dataclass(frozen=True)
class Product:
    """Product of one tile of A and one of B, of a CTA or a pair, with its accumulators.

    Attributes
    ----------
    tiled_mma : TiledMma
    tCrA, tCrB : Tensor
        Descriptors (MMA, 1, MMA_K, stages) of a CTA's own part.
    tCtC : Tensor
        Accumulators in tensor memory, (MMA, 1, 1, sets).
    scales : BlockScales, optional
        Scale factors of block-scaled operands.
    """

    tiled_mma: cute.TiledMma
    tCrA: cute.Tensor
    tCrB: cute.Tensor
    tCtC: cute.Tensor
    scales: BlockScales | None = None

    @cute.jit
    def issue(self, stage, accumulators, accumulate: cutlass.Boolean):
        """Issue the MMAs of a stage into a set of accumulators: C = A B^T, or C += A B^T.

        One warp calls, of a pair's even CTA. Nothing may touch the stage or the accumulators until a `commit` behind
        these MMAs has arrived.

        Parameters
        ----------
        stage, accumulators : Int32
            Indices of the stage and of the set.
        accumulate : Boolean
            True to add to C, False to overwrite it.
        """
        if cutlass.const_expr(self.scales is not None):
            self.scales.copy(stage)
        sums = self.tCtC[(None, None, None, accumulators)]
        for step in cutlass.range_constexpr(cute.size(self.tCrA, mode=[2])):
            atom = self.tiled_mma.__new_from_mlir_values__(self.tiled_mma.__extract_mlir_values__())
            atom.set(tcgen05.Field.ACCUMULATE, accumulate if step == 0 else True)
            if cutlass.const_expr(self.scales is not None):
                atom.set(tcgen05.Field.SFA, self.scales.of_a(step))
                atom.set(tcgen05.Field.SFB, self.scales.of_b(step))
            cute.gemm(atom, sums, self.tCrA[(None, None, step, stage)], self.tCrB[(None, None, step, stage)], sums)


def make_product(
    traits: sm100.UmmaTraits,
    sA: cute.Tensor,
    sB: cute.Tensor,
    memory: TensorMemory,
    sets: int,
    scales: BlockScales | None = None,
    region: str = "C",
) -> Product:
    """Make the product of staged tiles, whose accumulators lie in a region of tensor memory.

    Parameters
    ----------
    traits : UmmaTraits
        The MMA, of 128 rows a CTA, which `cutepy.dsl.umma.to_tiled_umma` takes.
    sA : Tensor (M, K, stages)
        Stages of a CTA's rows of A: all that the MMA multiplies, or half of a pair's.
    sB : Tensor (N, K, stages)
        The same of B.
    memory : TensorMemory
    sets : int
        Sets of accumulators.
    scales : BlockScales, optional
    region : str
        Region of the accumulators.

    Raises
    ------
    TypeError
        If stages hold another element type than the MMA multiplies.
    ValueError
        If stages or the region don't fit the MMA.
    """
    for name, staged in (("A", sA), ("B", sB)):
        shape = cute.size(staged, mode=[0]), cute.size(staged, mode=[1])
        major = {0: "MN", 1: "K"}.get(contiguous_mode(staged))
        umma_rules.check_stages(name, traits, shape, dtype_of(staged.element_type), major)
    umma_rules.check_accumulators(traits, memory.plan, region, sets)
    tiled_mma = to_tiled_umma(traits)
    tCrA, tCrB = tiled_mma.make_fragment_A(as_mmas(tiled_mma, sA)), tiled_mma.make_fragment_B(as_mmas(tiled_mma, sB))
    shape = tiled_mma.partition_shape_C(tiled_mma.shape_mnk[:2])
    layout = tiled_mma.make_fragment_C(cute.append(shape, sets)).layout
    return Product(tiled_mma, tCrA, tCrB, cute.make_tensor(memory.region(region), layout), scales)


def as_mmas(tiled_mma: cute.TiledMma, staged: cute.Tensor) -> cute.Tensor:
    """View stages (rows, K, stages) as ((rows, K of an MMA), 1, MMAs along K, stages)."""
    rows, step = cute.size(staged, mode=[0]), tiled_mma.shape_mnk[2]
    return cute.group_modes(cute.flat_divide(staged, (rows, step)), 0, 2)
