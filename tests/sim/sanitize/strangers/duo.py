"""Rows scaled, times weights: two warpgroups take tiles in turn; A comes by cp.async, B by TMA, one ring for both."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup

BM, BN, BK, STAGES = 64, 64, 32, 4
F16, F32 = cutlass.Float16, cutlass.Float32
LOADERS = 128
B_BYTES = BN * BK * 2
SLACK = 1


@cute.struct
class Shared:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    scale: cute.struct.Align[cute.struct.MemRange[F32, 2 * BM], 16]
    a: cute.struct.Align[cute.struct.MemRange[F16, BM * BK * STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[F16, BN * BK * STAGES], 1024]


@cute.jit
def load_tiles(full, empty, load_b, tBsB, tBgB, fetch, tAsA, tAgA, tiles, steps):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    total = tiles * steps
    for count in cutlass.range(total, unroll=1):
        stage = count % STAGES
        parity = (count // STAGES) & 1
        cute.arch.mbarrier_wait(empty + stage, parity ^ 1)
        tile, step = count // steps, count % steps
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, B_BYTES)
            cute.copy(load_b, tBgB[None, step], tBsB[None, stage], tma_bar_ptr=full + stage)
        cute.copy(fetch, tAgA[None, None, None, tile, step], tAsA[None, None, None, stage])
        cute.arch.cp_async_commit_group()
        if count >= SLACK:
            cute.arch.cp_async_wait_group(SLACK)
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.mbarrier_arrive(full + (count - SLACK) % STAGES)
    cute.arch.cp_async_wait_group(0)
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.mbarrier_arrive(full + (total - 1) % STAGES)


@cute.jit
def take_tiles(full, empty, mma, thread, player, sA, sB, sScale, mScale, gD, tiles, steps):
    mine = mma.get_slice(thread)
    tCrA = mma.make_fragment_A(mine.partition_A(sA))
    tCrB = mma.make_fragment_B(mine.partition_B(sB))
    sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), F32)
    where = mine.partition_C(cute.make_identity_tensor((BM, BN)))
    my_turn, their_turn = 1 + player, 2 - player
    if player == 1:
        cute.arch.barrier_arrive(barrier_id=their_turn, number_of_threads=256)
    for tile in cutlass.range(player, tiles, 2, unroll=1):
        if thread < BM:
            sScale[thread, player] = mScale[tile * BM + thread]
        cute.arch.barrier(barrier_id=my_turn, number_of_threads=256)
        mma.set(warpgroup.Field.ACCUMULATE, False)
        for step in cutlass.range(steps, unroll=1):
            count = tile * steps + step
            stage = count % STAGES
            cute.arch.mbarrier_wait(full + stage, (count // STAGES) & 1)
            warpgroup.fence()
            for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                cute.gemm(mma, sums, tCrA[None, None, k, stage], tCrB[None, None, k, stage], sums)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            if thread % 32 == 0:
                cute.arch.mbarrier_arrive(empty + stage)
        if tile + 1 < tiles:
            cute.arch.barrier_arrive(barrier_id=their_turn, number_of_threads=256)
        cute.arch.barrier(barrier_id=3 + player, number_of_threads=128)
        tDgD = mine.partition_C(gD[None, None, tile])
        for i in cutlass.range_constexpr(cute.size(sums)):
            tDgD[i] = (sums[i] * sScale[where[i][0], player]).to(F16)
        cute.arch.barrier(barrier_id=3 + player, number_of_threads=128)


@cute.kernel
def duo(
    load_b: cute.CopyAtom,
    mB: cute.Tensor,
    mA: cute.Tensor,
    mScale: cute.Tensor,
    mD: cute.Tensor,
    fetch: cute.TiledCopy,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    group = cute.arch.make_warp_uniform(thread // 128)
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    full, empty = shared.full.data_ptr(), shared.empty.data_ptr()
    sA = shared.a.get_tensor(layout_a.outer, swizzle=layout_a.inner)
    sB = shared.b.get_tensor(layout_b.outer, swizzle=layout_b.inner)
    sScale = shared.scale.get_tensor(cute.make_layout((BM, 2)))
    if thread < STAGES:
        cute.arch.mbarrier_init(full + thread, LOADERS + 1)
        cute.arch.mbarrier_init(empty + thread, 4)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(mA, (BM, BK), (None, None))
    gB = cute.local_tile(mB, (BN, BK), (0, None))
    gD = cute.local_tile(mD, (BM, BN), (None, 0))
    tiles, steps = cute.size(gA, mode=[2]), cute.size(gA, mode=[3])
    if group == 0:
        one = cute.make_layout(1)
        tBsB, tBgB = cpasync.tma_partition(load_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
        own = fetch.get_slice(thread)
        load_tiles(full, empty, load_b, tBsB, tBgB, fetch, own.partition_D(sA), own.partition_S(gA), tiles, steps)
    else:
        take_tiles(full, empty, mma, thread % 128, group - 1, sA, sB, sScale, mScale, gD, tiles, steps)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, scale: cute.Tensor, d: cute.Tensor):
    mma = hopper.make_trivial_tiled_mma(F16, F16, OperandMajorMode.K, OperandMajorMode.K, F32, (1, 1, 1), (64, BN))
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW64, F16)
    layout_a = cute.tile_to_shape(atom, (BM, BK, STAGES), order=(0, 1, 2))
    layout_b = cute.tile_to_shape(atom, (BN, BK, STAGES), order=(0, 1, 2))
    load_b, mB = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), b, cute.slice_(layout_b, (None, None, 0)), (BN, BK)
    )
    piece = cute.make_copy_atom(cpasync.CopyG2SOp(), F16, num_bits_per_copy=128)
    fetch = cute.make_tiled_copy_tv(piece, cute.make_ordered_layout((32, 4), order=(1, 0)), cute.make_layout((1, 8)))
    duo(load_b, mB, a, scale, d, fetch, mma, layout_a, layout_b).launch(grid=(1, 1, 1), block=(384, 1, 1))


def main():
    torch.manual_seed(0)
    m, n, k = 5 * BM, BN, 6 * BK
    a, b = (torch.randint(-3, 4, (rows, k)).half() for rows in (m, n))
    scale = torch.randint(1, 4, (m,)).float()
    d = torch.empty(m, n, dtype=torch.float16)
    from cutlass.cute.runtime import from_dlpack

    launch(from_dlpack(a, assumed_align=16), from_dlpack(b, assumed_align=16), scale, d)
    assert torch.equal(d, (a.float() @ b.float().T * scale[:, None]).half()), "wrong values"


if __name__ == "__main__":
    main()
