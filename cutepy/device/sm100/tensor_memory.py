"""Allocation of a CTA's tensor memory by a plan (traced)."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from cutepy.layouts import sm100

ALIGNMENT_BYTES = 16


@dataclass(frozen=True)
class TensorMemory:
    """Tensor memory of a CTA, or of each CTA of a pair: allocated by one warp, and freed by the same.

    Attributes
    ----------
    holder : Pointer
        Shared memory for the address, an Int32.
    plan : TmemPlan
        Regions by name.
    ctas : 1 or 2
        2 if pairs of CTAs multiply together; both then allocate.
    """

    holder: cute.Pointer
    plan: sm100.TmemPlan
    ctas: int = 1

    @cute.jit
    def allocate(self):
        """Allocate the plan's columns, and let later CTAs of the SM allocate; all lanes of one warp call.

        A barrier of the CTA must follow before another warp reads the address. Where another CTA has the columns, the
        warp waits for them.
        """
        cute.arch.alloc_tmem(self.plan.columns, self.holder, is_two_cta=self.ctas == 2)
        cute.arch.relinquish_tmem_alloc_permit(is_two_cta=self.ctas == 2)

    def region(self, name: str, element_type: type[cutlass.Numeric] = cutlass.Float32) -> cute.Pointer:
        """Return the pointer to a region's first column, once the address may be read."""
        columns = cute.arch.retrieve_tmem_ptr(cutlass.Float32, ALIGNMENT_BYTES, self.holder) + self.plan[name]
        return columns if element_type is cutlass.Float32 else cute.recast_ptr(columns, dtype=element_type)

    @cute.jit
    def free(self):
        """Free the columns; all lanes of the warp that allocated call.

        All reads have ended by then, and so have the MMAs: a barrier of the CTA, of the pair's cluster, comes before.
        """
        base = cute.arch.retrieve_tmem_ptr(cutlass.Float32, ALIGNMENT_BYTES, self.holder)
        cute.arch.dealloc_tmem(base, self.plan.columns, is_two_cta=self.ctas == 2)
