"""Kernels in Triton and Gluon: what its tutorials teach, written anew, and what a launch can pass."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@triton.jit
def scaled_sum(x, y, out, count, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, inside) * scale + tl.load(y + at, inside), inside)


@triton.jit
def softmax(x, out, columns, row_stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * row_stride
    value = tl.load(x + row + at, at < columns, -float("inf"))
    powers = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + at, powers / tl.sum(powers, 0), at < columns)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.program_id(0) * columns
    value = tl.load(x + row + at, inside, 0.0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    apart = tl.where(inside, value - mean, 0.0)
    norm = apart * tl.rsqrt(tl.sum(apart * apart, 0) / columns + eps)
    tl.store(out + row + at, norm * tl.load(weight + at, inside) + tl.load(bias + at, inside), inside)


@triton.jit
def column_sums(x, locks, out, rows, columns, BLOCK: tl.constexpr):
    """Each program adds a row to the sums, which a lock guards."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * columns + at, at < columns, 0.0)
    while tl.atomic_cas(locks, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at, at < columns, 0.0) + value, at < columns)
    tl.debug_barrier()
    tl.atomic_xchg(locks, 0)


@triton.jit
def dropout(x, out, count, keep, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, at) < keep
    tl.store(out + at, tl.where(kept, tl.load(x + at, at < count, 0.0) / keep, 0.0), at < count)


@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=8, num_warps=4),  # more than shared memory holds
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=3, num_warps=4),
        triton.Config({"BM": 128, "BN": 64, "BK": 32}, num_stages=3, num_warps=4),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def tuned_matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    matmul_body(a, b, c, m, n, k, BM, BN, BK)


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    matmul_body(a, b, c, m, n, k, BM, BN, BK)


@triton.jit
def matmul_body(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        along = start + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + along, (rows[:, None] < m) & (along < k), 0.0)
        right = tl.load(b + along[:, None] * n + columns, (along[:, None] < k) & (columns < n), 0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns, total.to(c.dtype.element_ty), (rows[:, None] < m) & (columns < n))


@triton.jit
def tma_matmul(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The operands and the product are host-side tensor descriptors."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def descriptors_of_rank_3(source, target, DEPTH: tl.constexpr, ROWS: tl.constexpr):
    at = [tl.program_id(0) * DEPTH, tl.program_id(1) * ROWS, 0]
    target.store(at, source.load(at) + 1)


@triton.jit
def device_descriptors(x, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    """Tensor maps that the kernel makes itself, in memory that the allocator gave."""
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row, column]) * 2)


@triton.jit
def attention(q, k, v, out, length, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """One head a program along y; online softmax."""
    head = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + depth)
    highest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else length
    for start in range(0, end, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + head + columns[None, :] * D + depth[:, None])
        score = tl.dot(query, key) * (scale * 1.44269504)
        if CAUSAL:
            score = tl.where(rows[:, None] >= columns, score, -float("inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        powers = tl.exp2(score - higher[:, None])
        fade = tl.exp2(highest - higher)
        weight = weight * fade + tl.sum(powers, 1)
        value = tl.load(v + head + columns[:, None] * D + depth)
        total = tl.dot(powers.to(value.dtype), value, total * fade[:, None])
        highest = higher
    tl.store(out + head + rows[:, None] * D + depth, (total / weight[:, None]).to(tl.float16))


@triton.jit
def numbers(out, pair, flag, small, large, half, brain, double, nothing, CASE: tl.constexpr):
    tl.store(out + 0, pair[0].to(tl.float64))
    tl.store(out + 1, pair[1].to(tl.float64))
    tl.store(out + 2, flag.to(tl.float64))
    tl.store(out + 3, small.to(tl.float64))
    tl.store(out + 4, large.to(tl.float64))
    tl.store(out + 5, half.to(tl.float64))
    tl.store(out + 6, brain.to(tl.float64))
    tl.store(out + 7, tl.load(double))
    if nothing is None:
        tl.store(out + 8, CASE)


@gluon.jit
def gluon_matmul(a, b, c, M: gl.constexpr, N: gl.constexpr):
    """One tile, by the instructions themselves: TMA to shared memory, wgmma from it, and TMA back."""
    left = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, a.block_type.nbytes + b.block_type.nbytes)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right)
    mbarrier.wait(full, 0)
    mbarrier.invalidate(full)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    total = warpgroup_mma(left, right, gl.zeros((M, N), gl.float32, layout), is_async=True)
    total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    out.store(total.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], out)
    tma.store_wait(pendings=0)
