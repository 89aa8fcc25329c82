"""Kernels of three and of eight tensors with almost no work, to time the launch overhead."""

import cutlass
import cutlass.cute as cute
from cuda.bindings.driver import CUstream

THREADS = 128


@cute.kernel
def _sum(tensors: tuple, out: cute.Tensor):
    i = cute.arch.block_idx()[0] * THREADS + cute.arch.thread_idx()[0]
    if i < cute.size(out):
        total = cutlass.Float32(0)
        for tensor in tensors:
            total += tensor[i]
        out[i] = total


@cute.jit
def sum_2(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, stream: CUstream):
    """Add two vectors."""
    _sum((a, b), out).launch(grid=(cute.ceil_div(cute.size(out), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream)


@cute.jit
def sum_7(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    d: cute.Tensor,
    e: cute.Tensor,
    f: cute.Tensor,
    g: cute.Tensor,
    out: cute.Tensor,
    stream: CUstream,
):
    """Add seven vectors."""
    _sum((a, b, c, d, e, f, g), out).launch(
        grid=(cute.ceil_div(cute.size(out), THREADS), 1, 1), block=(THREADS, 1, 1), stream=stream
    )
