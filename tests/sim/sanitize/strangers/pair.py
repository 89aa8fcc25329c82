"""Two CTAs share what each loads: halves of tiles multicast to both, two stages; each adds up its own columns."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

ROWS, WIDTH, STAGES, WARPS = 16, 64, 2, 4
F32 = cutlass.Float32
TILE_BYTES = ROWS * WIDTH * 4


@cute.struct
class Shared:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    tiles: cute.struct.Align[cute.struct.MemRange[F32, ROWS * WIDTH * STAGES], 128]


@cute.kernel
def pair(load: cute.CopyAtom, mX: cute.Tensor, y: cute.Tensor, layout: cute.Layout):
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    full, empty = shared.full.data_ptr(), shared.empty.data_ptr()
    tiles = shared.tiles.get_tensor(layout)
    if thread == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, 2 * WARPS)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()

    gX = cute.local_tile(mX, (ROWS, WIDTH), (None, 0))
    place, source = cpasync.tma_partition(
        load, rank, cute.make_layout(2), cute.group_modes(tiles, 0, 2), cute.group_modes(gX, 0, 2)
    )
    steps = cute.size(gX, mode=[2])
    both = cutlass.Int16(3)
    if warp == WARPS:
        for step in cutlass.range(steps, unroll=1):
            stage = step % STAGES
            cute.arch.mbarrier_wait(empty + stage, ((step // STAGES) & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, TILE_BYTES)
            cute.copy(load, source[None, step], place[None, stage], tma_bar_ptr=full + stage, mcast_mask=both)
        for last in cutlass.range(steps, steps + STAGES, unroll=1):
            cute.arch.mbarrier_wait(empty + last % STAGES, ((last // STAGES) & 1) ^ 1)
    else:
        total = F32(0.0)
        row = warp * (ROWS // WARPS)
        column = rank * 32 + thread % 32
        for step in cutlass.range(steps, unroll=1):
            stage = step % STAGES
            cute.arch.mbarrier_wait(full + stage, (step // STAGES) & 1)
            for i in cutlass.range_constexpr(ROWS // WARPS):
                total += tiles[row + i, column, stage]
            cute.arch.fence_proxy("async.shared", space="cta")  # TMA overwrites what the generic proxy has read
            cute.arch.sync_warp()
            if thread % 32 < 2:
                cute.arch.mbarrier_arrive(empty + stage, thread % 32)
        y[warp, column] = total


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    layout = cute.make_layout((ROWS, WIDTH, STAGES), stride=(WIDTH, 1, ROWS * WIDTH))
    one, op = cute.slice_(layout, (None, None, 0)), cpasync.CopyBulkTensorTileG2SMulticastOp()
    load, mX = cpasync.make_tiled_tma_atom(op, x, one, (ROWS, WIDTH), num_multicast=2)
    pair(load, mX, y, layout).launch(grid=(2, 1, 1), block=(32 * (WARPS + 1), 1, 1), cluster=(2, 1, 1))


def main():
    torch.manual_seed(0)
    x, y = torch.randint(0, 9, (6 * ROWS, WIDTH)).float(), torch.empty(WARPS, WIDTH)
    launch(x, y)
    assert torch.equal(y, x.view(-1, WARPS, ROWS // WARPS, WIDTH).sum((0, 2))), "wrong values"


if __name__ == "__main__":
    main()
