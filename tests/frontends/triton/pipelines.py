"""Kernels in Gluon that move tiles themselves: cp.async, TMA into a ring, specialised warps, multicast."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def streamed_sum(a, b, out, count, BLOCK: gl.constexpr, STAGES: gl.constexpr):
    """Tiles come by cp.async, some ahead of their sum."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    left = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], plain)
    right = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], plain)
    at = gl.arange(0, BLOCK, layout)
    steps = count // BLOCK
    for step in gl.static_range(STAGES - 1):
        async_copy.async_load(left.index(step), a + step * BLOCK + at)
        async_copy.async_load(right.index(step), b + step * BLOCK + at)
        async_copy.commit_group()
    for step in range(steps):
        ahead = step + STAGES - 1
        if ahead < steps:
            async_copy.async_load(left.index(ahead % STAGES), a + ahead * BLOCK + at)
            async_copy.async_load(right.index(ahead % STAGES), b + ahead * BLOCK + at)
        async_copy.commit_group()
        async_copy.wait_group(STAGES - 1)
        gl.store(
            out + step * BLOCK + at, left.index(step % STAGES).load(layout) + right.index(step % STAGES).load(layout)
        )


@gluon.jit
def _fetch(a, b, k, left, right, full, empty, STAGES: gl.constexpr):
    depth: gl.constexpr = a.block_type.shape[1]
    for step in range(k // depth):
        stage = step % STAGES
        mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
        mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_load(a, [0, step * depth], full.index(stage), left.index(stage))
        tma.async_load(b, [step * depth, 0], full.index(stage), right.index(stage))


@gluon.jit
def _multiply(k, c, left, right, full, empty, DEPTH: gl.constexpr, STAGES: gl.constexpr):
    M: gl.constexpr = c.block_type.shape[0]
    N: gl.constexpr = c.block_type.shape[1]
    total = gl.zeros((M, N), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16]))
    for step in range(k // DEPTH):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), (step // STAGES) & 1)
        total = warpgroup_mma(left.index(stage), right.index(stage), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
        mbarrier.arrive(empty.index(stage), count=1)
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    out.store(total.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], out)
    tma.store_wait(pendings=0)


@gluon.jit
def specialised_matmul(a, b, c, k, STAGES: gl.constexpr, num_warps: gl.constexpr):
    """One warp fetches tiles into a ring, a warpgroup multiplies them."""
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005 - Gluon takes no unpacking
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    depth: gl.constexpr = a.block_type.shape[1]
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_multiply, (k, c, left, right, full, empty, depth, STAGES)),
            (_fetch, (a, b, k, left, right, full, empty, STAGES)),
        ],
        [1],
        [24],
    )


@gluon.jit
def reduced_by_tma(x, out, rows, columns, B: gl.constexpr):
    """Tensor maps that the kernel makes, and adding by TMA."""
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([B, B], gl.float32)
    source = tma.make_tensor_descriptor(x, [rows, columns], [columns, 1], [B, B], layout)
    target = tma.make_tensor_descriptor(out, [rows, columns], [columns, 1], [B, B], layout)
    tile = gl.allocate_shared_memory(gl.float32, [B, B], layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    at = [gl.program_id(0) * B, gl.program_id(1) * B]
    mbarrier.init(full, count=1)
    mbarrier.expect(full, B * B * 4)
    tma.async_load(source, at, full, tile)
    mbarrier.wait(full, 0)
    mbarrier.invalidate(full)
    tma.async_atomic_add(target, at, tile)
    tma.store_wait(0)


@gluon.jit
def multicast(x, out, tiled: gl.constexpr):
    """Every CTA of the cluster gets the tile, by one copy."""
    tile = gl.allocate_shared_memory(x.dtype, x.block_type.shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    cluster.barrier()
    mbarrier.expect(full, x.nbytes_per_cta)
    tma.async_load(x, [0, 0], full, tile, multicast=True)
    mbarrier.wait(full, 0, deps=[tile])
    mbarrier.invalidate(full)
    rows = gl.arange(0, x.block_type.shape[0], gl.SliceLayout(1, tiled))
    columns = gl.arange(0, x.block_type.shape[1], gl.SliceLayout(0, tiled))
    gl.store(out + rows[:, None] * x.block_type.shape[1] + columns[None, :], tile.load(tiled))


@gluon.jit
def product_of_warps(a, b, c, K: gl.constexpr):
    """mma.sync, with operands that change their layouts."""
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
    rows = gl.arange(0, 64, gl.SliceLayout(1, blocked))
    columns = gl.arange(0, 64, gl.SliceLayout(0, blocked))
    along = gl.arange(0, K, gl.SliceLayout(0, blocked))
    down = gl.arange(0, K, gl.SliceLayout(1, blocked))
    left = gl.convert_layout(gl.load(a + rows[:, None] * K + along[None, :]), gl.DotOperandLayout(0, mma, 2))
    right = gl.convert_layout(gl.load(b + down[:, None] * 64 + columns[None, :]), gl.DotOperandLayout(1, mma, 2))
    total = mma_v2(left, right, gl.zeros((64, 64), gl.float32, mma))
    gl.store(c + rows[:, None] * 64 + columns[None, :], gl.convert_layout(total, blocked))
