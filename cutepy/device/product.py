"""Products C (+)= A B^T by wgmma: A staged in shared memory or in registers, B staged (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup

from cutepy.device import operand, rules
from cutepy.device.mma import with_accumulate
from cutepy.device.staging import check_accumulators, check_factors, make_fragment_b, multiplied_columns
from cutepy.dsl.atoms import a_source


@dataclass(frozen=True)
class Product:
    """Product of one tile of A and one of B, with its accumulators.

    Attributes
    ----------
    tiled_mma : TiledMma
    tCrA : Tensor or tuple of Tensor
        Descriptors (MMA, MMA_M, MMA_K, stages) of an A in shared memory; of one in registers, a fragment
        (MMA, MMA_M, 1) for each MMA along K.
    tCrB : Tensor
        Descriptors (MMA, MMA_N, MMA_K, stages).
    tCrC : Tensor
        This thread's accumulators, (MMA, MMA_M, MMA_N).
    """

    tiled_mma: cute.TiledMma
    tCrA: cute.Tensor | tuple
    tCrB: cute.Tensor
    tCrC: cute.Tensor

    @property
    def steps(self) -> int:
        """MMAs along K."""
        return cute.size(self.tCrB, mode=[2])

    @cute.jit
    def issue(self, a=0, b=0, accumulate: cutlass.Constexpr = False, steps: cutlass.Constexpr = None):
        """Issue the MMAs of stage `a` of A and stage `b` of B as one group: C = A B^T, or C += A B^T.

        All threads of the MMAs call. C, and an A in registers, may be touched only after a `warpgroup.wait_group` that
        covers the group; the stages may be refilled only then.

        Parameters
        ----------
        a, b : Int32 or int
            Stages; that of A is not read where A is in registers.
        accumulate : bool
            True to add to C, False to overwrite it.
        steps : range, optional
            MMAs along K to issue; all if not given.
        """
        # wgmma reads and writes its registers asynchronously. The fence orders every earlier access of this warpgroup
        # to C, and to an A in registers, before the MMAs below; without it the compiler may keep or move register
        # values across the instruction, and the sum is wrong.
        warpgroup.fence()
        for step in range(self.steps) if steps is None else steps:
            # scale-d = 0 on the first MMA of a tile: it writes C instead of adding, so no zero-fill is needed.
            is_first = step == (0 if steps is None else steps.start)
            atom = with_accumulate(self.tiled_mma, accumulate or not is_first)
            cute.gemm(atom, self.tCrC, self.a_of(step, a), self.tCrB[(None, None, step, b)], self.tCrC)
        # Closes the group: `wait_group(n)` counts these, and means "all but the n youngest have finished".
        warpgroup.commit_group()

    def a_of(self, step: int, stage):
        """Return A's descriptor, or its registers, for one MMA along K."""
        if isinstance(self.tCrA, tuple):
            return self.tCrA[step][(None, None, 0)]
        return self.tCrA[(None, None, step, stage)]


def make_product(tiled_mma: cute.TiledMma, a: cute.Tensor | int, b: cute.Tensor, tidx: cutlass.Int32) -> Product:
    """Make the product of staged tiles, its registers and its descriptors.

    Parameters
    ----------
    tiled_mma : TiledMma
    a : Tensor (M, K, stages) or int
        Stages of A; or M, if A comes from registers (`operand.from_accumulators`).
    b : Tensor (N, K, stages)
        Stages of B.
    tidx : Int32
        Index among the threads of `tiled_mma`.

    Raises
    ------
    TypeError
        If the stages hold another element type than the MMAs multiply.
    ValueError
        If A is not where the MMAs take it from, the stages have not one K, are no whole MMAs or are not major as the
        MMAs read them, the accumulators don't fit into registers, or the kernel has fewer threads than the MMAs.
    """
    in_registers = isinstance(a, int)
    rules.check_operand_source(a_source(tiled_mma), "rmem" if in_registers else "smem")
    check_factors(tiled_mma, (a, cute.size(b, mode=[1])) if in_registers else a, b)
    tile = (a if in_registers else cute.size(a, mode=[0]), multiplied_columns(tiled_mma, b))
    check_accumulators(tiled_mma, tile)
    if in_registers:
        tCrA = operand.make_fragments(tiled_mma, (a, cute.size(b, mode=[1])))
    else:
        tCrA = tiled_mma.make_fragment_A(tiled_mma.get_slice(tidx).partition_A(a))
    sums = cute.make_rmem_tensor(tiled_mma.partition_shape_C(tile), tiled_mma.op.acc_dtype)
    return Product(tiled_mma, tCrA, make_fragment_b(tiled_mma, b, tidx), sums)
