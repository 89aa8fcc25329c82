"""D = A B^T: two warpgroups share the tiles of A, which threads copy; one buffer, and a barrier before the next."""

import cutlass
import cutlass.utils.hopper_helpers as hopper
import torch
from cutlass import cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup

BM, BN, BK = 64, 64, 64
F16, F32 = cutlass.Float16, cutlass.Float32


@cute.struct
class Shared:
    a: cute.struct.Align[cute.struct.MemRange[F16, BM * BK], 1024]
    b: cute.struct.Align[cute.struct.MemRange[F16, 2 * BN * BK], 1024]


@cute.kernel
def halves(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mD: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    group = cute.arch.make_warp_uniform(thread // 128)
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    sA = shared.a.get_tensor(layout_a.outer, swizzle=layout_a.inner)
    sB = shared.b.get_tensor(layout_b.outer, swizzle=layout_b.inner)
    mine = mma.get_slice(thread % 128)
    tA = mma.make_fragment_A(mine.partition_A(sA))
    tB = mma.make_fragment_B(mine.partition_B(sB))
    sums = mma.make_fragment_C(mma.partition_shape_C((BM, BN)))
    mma.set(warpgroup.Field.ACCUMULATE, False)
    for step in cutlass.range(mA.shape[1] // BK, unroll=1):
        for i in cutlass.range(BM * BK // 256, unroll=4):
            at = i * 256 + thread
            sA[at // BK, at % BK, 0] = mA[at // BK, step * BK + at % BK]
        for i in cutlass.range(2 * BN * BK // 256, unroll=4):
            at = i * 256 + thread
            row = at // BK
            sB[row % BN, at % BK, row // BN] = mB[row, step * BK + at % BK]
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()
        warpgroup.fence()
        for k in cutlass.range_constexpr(cute.size(tA, mode=[2])):
            cute.gemm(mma, sums, tA[None, None, k, 0], tB[None, None, k, group], sums)
            mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        cute.arch.sync_threads()
    gD = cute.local_tile(mD, (BM, BN), (0, group))
    cute.autovec_copy(sums, mine.partition_C(gD))


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
    k_major = OperandMajorMode.K
    mma = hopper.make_trivial_tiled_mma(F16, F16, k_major, k_major, F32, (1, 1, 1), (BM, BN))
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, F16)
    layout_a = cute.tile_to_shape(atom, (BM, BK, 1), (0, 1, 2))
    layout_b = cute.tile_to_shape(atom, (BN, BK, 2), (0, 1, 2))
    halves(a, b, d, mma, layout_a, layout_b).launch(grid=(1, 1, 1), block=(256, 1, 1))


def main():
    torch.manual_seed(0)
    a, b = (torch.randint(-3, 4, (rows, 3 * BK)).half() for rows in (BM, 2 * BN))
    d = torch.empty(BM, 2 * BN)
    launch(a, b, d)
    assert torch.equal(d, a.float() @ b.float().T), "wrong values"


if __name__ == "__main__":
    main()
