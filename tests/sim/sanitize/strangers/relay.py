"""Rows copied through shared memory by one warp, in bulk: two stages, and what comes next is fetched early."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

WIDTH, STAGES = 256, 2
F32 = cutlass.Float32


@cute.struct
class Shared:
    here: cute.struct.MemRange[cutlass.Int64, STAGES]
    rows: cute.struct.Align[cute.struct.MemRange[F32, WIDTH * STAGES], 128]


@cute.jit
def fetch(x: cute.Tensor, row, rows, here, stage):
    load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), F32)
    cute.arch.mbarrier_arrive_and_expect_tx(here + stage, WIDTH * 4)
    source = cute.make_tensor((x.iterator + row * WIDTH).align(16), cute.make_layout(WIDTH))
    cute.copy(load, source, rows[None, stage], mbar_ptr=here + stage)


@cute.kernel
def relay(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    here = shared.here.data_ptr()
    rows = shared.rows.get_tensor(cute.make_layout((WIDTH, STAGES)))
    many = x.shape[0] // blocks
    if thread == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(here + stage, 1)
        cute.arch.mbarrier_init_fence()
        for turn in cutlass.range_constexpr(STAGES - 1):
            if turn < many:
                fetch(x, turn * blocks + block, rows, here, turn)
        store = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), F32)
        for turn in cutlass.range(many, unroll=1):
            stage = turn % STAGES
            ahead = turn + STAGES - 1
            if ahead < many:
                cute.arch.cp_async_bulk_wait_group(0, read=True)
                fetch(x, ahead * blocks + block, rows, here, ahead % STAGES)
            cute.arch.mbarrier_wait(here + stage, (turn // STAGES) & 1)
            out = cute.make_tensor((y.iterator + (turn * blocks + block) * WIDTH).align(16), cute.make_layout(WIDTH))
            cute.copy(store, rows[None, stage], out)
            cute.arch.cp_async_bulk_commit_group()
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    relay(x, y).launch(grid=(2, 1, 1), block=(32, 1, 1))


def main():
    x = torch.arange(12 * WIDTH).float().view(12, WIDTH)
    y = torch.empty_like(x)
    launch(x, y)
    assert torch.equal(x, y), "wrong values"


if __name__ == "__main__":
    main()
