"""Two small functions, as people write them, to export."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream


@cute.kernel
def scale_kernel(x: cute.Tensor, out: cute.Tensor, alpha: cutlass.Float32, threads: cutlass.Constexpr):
    """Multiply one element."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    index = bidx * threads + tidx
    if index < cute.size(x):
        out[index] = (x[index].to(cutlass.Float32) * alpha).to(out.element_type)


@cute.jit
def scale(x: cute.Tensor, out: cute.Tensor, alpha: cutlass.Float32, threads: cutlass.Constexpr, stream: CUstream):
    """Write x * alpha to out."""
    blocks = cute.ceil_div(cute.size(x), threads)
    scale_kernel(x, out, alpha, threads).launch(grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream)


@cute.kernel
def add_kernel(y: cute.Tensor, x: cute.Tensor):
    """Add one row; a thread strides over its columns."""
    tidx, _, _ = cute.arch.thread_idx()
    bdim, _, _ = cute.arch.block_dim()
    row, _, _ = cute.arch.block_idx()
    for column in range(tidx, cute.size(x, mode=[1]), bdim):
        y[row, column] = y[row, column] + x[row, column]


@cute.jit
def add_to(y: cute.Tensor, x: cute.Tensor, stream: CUstream):
    """Add x to y in place."""
    add_kernel(y, x).launch(grid=(cute.size(x, mode=[0]), 1, 1), block=(128, 1, 1), stream=stream)
