"""Sums over the rows of a matrix, in an order that its shape alone decides (traced)."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream
from cutlass import Float32

from cutepy.device import smem
from cutepy.device.overlap import follow_launch
from cutepy.layouts import sm90


class SumOfRows:
    """Sum of the rows of a matrix: a callable that the DSL compiles.

    A CTA has 32 columns, and so many warps, of which each sums every `warps`-th row.
    """

    def __init__(self, warps: int):
        self.warps = warps

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream: CUstream):
        """Launch on x (rows, columns), fp32, and y (columns,), to whose type sums are rounded."""
        self.kernel.set_name_prefix("cutepy_sum_of_rows", remove_cutlass_symbol=True, keep_mangled_name=False)
        grid = (cute.ceil_div(cute.size(x, mode=[1]), 32), 1, 1)
        self.kernel(x, y).launch(grid=grid, block=(32 * self.warps, 1, 1), stream=stream, use_pdl=True)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        """Sum 32 columns."""
        plan = sm90.SmemPlan.of(sums=sm90.SmemArray(32 * self.warps, bits=32, alignment_bytes=16))
        sums = cute.make_tensor(smem.share(plan, sums=Float32)["sums"], cute.make_layout((32, self.warps)))
        lane, warp = cute.arch.lane_idx(), cute.arch.warp_idx()
        column, columns = cute.arch.block_idx()[0] * 32 + lane, cute.size(x, mode=[1])
        follow_launch(True)
        own = Float32(0.0)
        if column < columns:
            for row in cutlass.range(warp, cute.size(x, mode=[0]), self.warps, unroll=4):
                own = own + x[row, column]
        sums[lane, warp] = own
        cute.arch.sync_threads()
        if warp == 0 and column < columns:
            for other in cutlass.range_constexpr(1, self.warps):
                own = own + sums[lane, other]
            y[column] = own.to(y.element_type)
