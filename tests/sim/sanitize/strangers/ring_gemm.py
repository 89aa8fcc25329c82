"""D = A B^T: one tile a CTA, three stages on bare mbarriers, the output staged in what held A."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup

BM, BN, BK, STAGES = 128, 64, 64, 3
F16, F32 = cutlass.Float16, cutlass.Float32
STAGE_BYTES = (BM + BN) * BK * 2
CONSUMERS = 256


@cute.struct
class Shared:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    a: cute.struct.Align[cute.struct.MemRange[F16, BM * BK * STAGES], 1024]
    b: cute.struct.Align[cute.struct.MemRange[F16, BN * BK * STAGES], 1024]


@cute.kernel
def ring_gemm(
    load_a: cute.CopyAtom,
    mA: cute.Tensor,
    load_b: cute.CopyAtom,
    mB: cute.Tensor,
    store_d: cute.CopyAtom,
    mD: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    layout_d: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    group = cute.arch.make_warp_uniform(thread // 128)
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    full, empty = shared.full.data_ptr(), shared.empty.data_ptr()
    sA = shared.a.get_tensor(layout_a.outer, swizzle=layout_a.inner)
    sB = shared.b.get_tensor(layout_b.outer, swizzle=layout_b.inner)
    sD = cute.make_tensor(cute.recast_ptr(shared.b.data_ptr(), layout_d.inner, dtype=F16), layout_d.outer)

    if thread == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, CONSUMERS)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(mA, (BM, BK), (row, None))
    gB = cute.local_tile(mB, (BN, BK), (column, None))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(load_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    tBsB, tBgB = cpasync.tma_partition(load_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2))
    steps = cute.size(gA, mode=[2])

    if group == 2:
        cute.arch.setmaxregister_decrease(40)
        if warp == 8:
            for step in cutlass.range(steps, unroll=1):
                stage = step % STAGES
                turn = step // STAGES
                cute.arch.mbarrier_wait(empty + stage, (turn & 1) ^ 1)
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STAGE_BYTES)
                cute.copy(load_a, tAgA[None, step], tAsA[None, stage], tma_bar_ptr=full + stage)
                cute.copy(load_b, tBgB[None, step], tBsB[None, stage], tma_bar_ptr=full + stage)
    else:
        cute.arch.setmaxregister_increase(232)
        mine = mma.get_slice(thread)
        tCrA = mma.make_fragment_A(mine.partition_A(sA))
        tCrB = mma.make_fragment_B(mine.partition_B(sB))
        sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), F32)
        sums.fill(0.0)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        for step in cutlass.range(steps, unroll=1):
            stage = step % STAGES
            cute.arch.mbarrier_wait(full + stage, (step // STAGES) & 1)
            warpgroup.fence()
            for k in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                cute.gemm(mma, sums, tCrA[None, None, k, stage], tCrB[None, None, k, stage], sums)
            warpgroup.commit_group()
            warpgroup.wait_group(1)
            if step > 0:
                cute.arch.mbarrier_arrive(empty + (step - 1) % STAGES)
        warpgroup.wait_group(0)
        cute.arch.barrier(barrier_id=1, number_of_threads=CONSUMERS)

        out = cute.make_rmem_tensor(sums.shape, F16)
        out.store(sums.load().to(F16))
        cute.autovec_copy(out, mine.partition_C(sD))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=2, number_of_threads=CONSUMERS)
        if warp == 0:
            gD = cute.local_tile(mD, (BM, BN), (row, column))
            tDsD, tDgD = cpasync.tma_partition(store_d, 0, one, cute.group_modes(sD, 0, 2), cute.group_modes(gD, 0, 2))
            cute.copy(store_d, tDsD, tDgD)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
    mma = hopper.make_trivial_tiled_mma(F16, F16, OperandMajorMode.K, OperandMajorMode.K, F32, (2, 1, 1), (64, BN))
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, F16)
    atom_d = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, F16)
    layout_a = cute.tile_to_shape(atom, (BM, BK, STAGES), order=(0, 1, 2))
    layout_b = cute.tile_to_shape(atom, (BN, BK, STAGES), order=(0, 1, 2))
    layout_d = cute.tile_to_shape(atom_d, (BM, BN), order=(0, 1))
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    load_a, mA = cpasync.make_tiled_tma_atom(load, a, cute.slice_(layout_a, (None, None, 0)), (BM, BK))
    load_b, mB = cpasync.make_tiled_tma_atom(load, b, cute.slice_(layout_b, (None, None, 0)), (BN, BK))
    store_d, mD = cpasync.make_tiled_tma_atom(store, d, layout_d, (BM, BN))
    ring_gemm(load_a, mA, load_b, mB, store_d, mD, mma, layout_a, layout_b, layout_d).launch(
        grid=(cute.ceil_div(d.shape[0], BM), cute.ceil_div(d.shape[1], BN), 1), block=(384, 1, 1), min_blocks_per_mp=1
    )


def main():
    torch.manual_seed(0)
    m, n, k = 128, 128, 64 * 8
    a, b = (torch.randint(-3, 4, (rows, k)).half() for rows in (m, n))
    d = torch.empty(m, n, dtype=torch.float16)
    launch(a, b, d)
    assert torch.equal(d, (a.float() @ b.float().T).half()), "wrong values"


if __name__ == "__main__":
    main()
