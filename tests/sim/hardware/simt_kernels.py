"""SIMT kernels in the DSL, as people write them first: a softmax, an RMS norm, a scan, a transpose through smem."""

import cutlass
import cutlass.cute as cute

WARPS = 4
THREADS = 32 * WARPS


@cute.jit
def block_reduce(value: cutlass.Float32, scratch: cute.Tensor, is_max: cutlass.Constexpr):
    """Reduce a value of each thread over the block: in each warp by shuffles, then over the warps through smem."""
    for step in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_bfly(value, offset=1 << step)
        value = cute.arch.fmax(value, other) if cutlass.const_expr(is_max) else value + other
    thread = cute.arch.thread_idx()[0]
    if thread % 32 == 0:
        scratch[thread // 32] = value
    cute.arch.barrier()
    total = scratch[0]
    for warp in cutlass.range_constexpr(1, WARPS):
        total = cute.arch.fmax(total, scratch[warp]) if cutlass.const_expr(is_max) else total + scratch[warp]
    cute.arch.barrier()
    return total


@cute.kernel
def softmax_kernel(x: cute.Tensor, y: cute.Tensor):
    scratch = cute.arch.alloc_smem(cutlass.Float32, WARPS, alignment=16)
    shared = cute.make_tensor(scratch, cute.make_layout(WARPS))
    row, column = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    value = x[row, column].to(cutlass.Float32)
    largest = block_reduce(value, shared, True)
    power = cute.math.exp(value - largest, fastmath=True)
    y[row, column] = (power / block_reduce(power, shared, False)).to(y.element_type)


@cute.jit
def softmax(x: cute.Tensor, y: cute.Tensor):
    softmax_kernel(x, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def rms_norm_kernel(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor):
    scratch = cute.arch.alloc_smem(cutlass.Float32, WARPS, alignment=16)
    shared = cute.make_tensor(scratch, cute.make_layout(WARPS))
    row, column = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    value = x[row, column].to(cutlass.Float32)
    mean = block_reduce(value * value, shared, False) / THREADS
    scaled = value * cute.math.rsqrt(mean + 1e-5, fastmath=True) * weight[column].to(cutlass.Float32)
    y[row, column] = scaled.to(y.element_type)


@cute.jit
def rms_norm(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor):
    rms_norm_kernel(x, weight, y).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@cute.kernel
def scan_kernel(x: cute.Tensor, y: cute.Tensor):
    lane = cute.arch.thread_idx()[0]
    i = cute.arch.block_idx()[0] * 32 + lane
    total = x[i]
    for step in cutlass.range_constexpr(5):
        other = cute.arch.shuffle_sync_up(total, offset=1 << step, mask_and_clamp=0)
        if lane >= (1 << step):
            total = total + other
    y[i] = total


@cute.jit
def scan(x: cute.Tensor, y: cute.Tensor):
    scan_kernel(x, y).launch(grid=(cute.size(x) // 32, 1, 1), block=(32, 1, 1))


@cute.kernel
def transpose_kernel(x: cute.Tensor, y: cute.Tensor):
    tile = cute.make_tensor(
        cute.arch.alloc_smem(x.element_type, 32 * 33, alignment=16), cute.make_layout((32, 32), stride=(33, 1))
    )
    row, column = cute.arch.thread_idx()[1], cute.arch.thread_idx()[0]
    bx, by = cute.arch.block_idx()[0], cute.arch.block_idx()[1]
    for step in cutlass.range_constexpr(4):
        tile[row + 8 * step, column] = x[by * 32 + row + 8 * step, bx * 32 + column]
    cute.arch.barrier()
    for step in cutlass.range_constexpr(4):
        y[bx * 32 + row + 8 * step, by * 32 + column] = tile[column, row + 8 * step]


@cute.jit
def transpose(x: cute.Tensor, y: cute.Tensor):
    transpose_kernel(x, y).launch(grid=(x.shape[1] // 32, x.shape[0] // 32, 1), block=(32, 8, 1))
