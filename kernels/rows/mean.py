"""Sum and mean of the losses of rows, in an order that their number alone decides (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32, Int32

from cutepy.device import reduce, rules, smem
from cutepy.device.overlap import follow_launch
from cutepy.device.primitives import select
from cutepy.kernels.rows.cross_entropy import element, read_label
from cutepy.layouts import sm90

BARRIERS = rules.named_barriers(rows=1)


class MeanOfLosses:
    """Sum of losses, or their sum divided by that of the weights of their labels: a callable that the DSL compiles.

    One CTA reads them all: they are 4 bytes for each row of logits, which has thousands.
    """

    def __init__(self, warps: int):
        self.warps = warps

    @cute.jit
    def __call__(
        self,
        losses: cute.Tensor,
        targets: cute.Tensor,
        weight: cute.Tensor | None,
        total: cute.Tensor,
        divisor: cute.Tensor | None,
        classes: Int32,
        ignore_index: Int32,
        stream: CUstream,
    ):
        """Launch on losses, targets (rows,), weight (columns,), and total, divisor (1,); a sum has no divisor."""
        self.kernel.set_name_prefix("cutepy_mean_of_losses", remove_cutlass_symbol=True, keep_mangled_name=False)
        given = losses, targets, weight, total, divisor, classes, ignore_index
        self.kernel(*given).launch(grid=(1, 1, 1), block=(32 * self.warps, 1, 1), stream=stream, use_pdl=True)

    @cute.kernel
    def kernel(
        self,
        losses: cute.Tensor,
        targets: cute.Tensor,
        weight: cute.Tensor | None,
        total: cute.Tensor,
        divisor: cute.Tensor | None,
        classes: Int32,
        ignore_index: Int32,
    ):
        """Sum up all losses, and the weights of their labels."""
        plan = sm90.SmemPlan.of(sums=sm90.SmemArray(self.warps, bits=32, alignment_bytes=16))
        slots = smem.as_vector(smem.share(plan, sums=Float32)["sums"], plan["sums"])
        threads, thread = 32 * self.warps, cute.arch.thread_idx()[0]
        follow_launch(True)
        loss, counted = Float32(0.0), Float32(0.0)
        for row in cutlass.range(thread, cute.size(losses), threads, unroll=4):
            loss = loss + losses[row]
            if cutlass.const_expr(divisor is not None):
                label, counts = read_label(targets, row, classes, ignore_index)
                if cutlass.const_expr(weight is None):
                    counted = counted + select(counts, Float32(1.0), Float32(0.0))
                else:
                    counted = counted + element(weight, 0, label)  # 0 of a label that is no class
        loss = reduce.block_reduce(loss, slots, thread, threads, BARRIERS["rows"], reduce.add)
        if cutlass.const_expr(divisor is not None):
            counted = reduce.block_reduce(counted, slots, thread, threads, BARRIERS["rows"], reduce.add)
            loss = loss / counted
        if thread == 0:
            total[0] = loss.to(total.element_type)
            if cutlass.const_expr(divisor is not None):
                divisor[0] = counted
