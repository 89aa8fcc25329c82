"""Kernels whose resources are looked at."""

import cutlass
import cutlass.cute as cute

from cutepy.dsl.traced_names import SmemAllocator


@cute.kernel
def _staged(source: cute.Tensor, target: cute.Tensor, threads: cutlass.Constexpr, stages: cutlass.Constexpr):
    layout = cute.make_layout(threads * stages)
    held = SmemAllocator().allocate_tensor(cutlass.Float32, layout, byte_alignment=16)
    thread = cute.arch.thread_idx()[0]
    i = cute.arch.block_idx()[0] * threads + thread
    held[thread] = source[i]
    cute.arch.sync_threads()
    target[i] = held[threads - 1 - thread]


@cute.jit
def staged(
    source: cute.Tensor,
    target: cute.Tensor,
    blocks: cutlass.Int32,
    *,
    threads: cutlass.Constexpr[int],
    cluster: cutlass.Constexpr[int],
    stages: cutlass.Constexpr[int],
):
    """Reverse each run of `threads` elements, through shared memory for `stages` of them."""
    _staged(source, target, threads, stages).launch(
        grid=(blocks * cluster, 1, 1), block=(threads, 1, 1), cluster=(cluster, 1, 1)
    )


@cute.jit
def by_arguments(source: cute.Tensor, target: cute.Tensor, n: cutlass.Int32):
    """Launch as the arguments say."""
    _staged(source, target, 64, 1).launch(grid=(n, 1, 1), block=(n, 1, 1), cluster=(n, 1, 1), smem=1024 * n)


@cute.jit
def two(source: cute.Tensor, target: cute.Tensor):
    """Launch two kernels."""
    _staged(source, target, 128, 1).launch(grid=(1, 1, 1), block=(128, 1, 1))
    _staged(source, target, 64, 1).launch(grid=(1, 1, 1), block=(64, 2, 1))


@cute.jit
def wrong(source: cute.Tensor):
    """Fail to compile."""
    raise ValueError("this kernel is wrong")


@cute.jit
def without_kernels(a: cute.Tensor, n: cutlass.Int32):
    """Launch nothing."""
    cute.printf("n is {}", n)


@cute.kernel
def _in_tmem(target: cute.Tensor, columns: cutlass.Int32):
    held = SmemAllocator().allocate_array(cutlass.Int32)
    cute.arch.alloc_tmem(columns, held)
    cute.arch.relinquish_tmem_alloc_permit()
    cute.arch.sync_threads()
    base = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, held)
    target[cute.arch.thread_idx()[0]] = cutlass.Float32(1.0)
    cute.arch.dealloc_tmem(base, columns)


@cute.jit
def in_tmem(target: cute.Tensor, columns):
    """Allocate columns of tensor memory, and fill a vector of 32 with ones."""
    _in_tmem(target, columns).launch(grid=(1, 1, 1), block=(32, 1, 1))
