"""Weighted sums of sequences, of which some are empty: weights by a warp of their own, the sums stored in bulk."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

WIDTH, WARPS, STAGES = 128, 4, 2
F32 = cutlass.Float32


@cute.struct
class Shared:
    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    weights: cute.struct.MemRange[F32, 32 * STAGES]
    bias: cute.struct.Align[cute.struct.MemRange[F32, WIDTH], 16]
    sums: cute.struct.Align[cute.struct.MemRange[F32, WIDTH], 128]


@cute.jit
def load_weights(w: cute.Tensor, weights, full, empty, blocks):
    lane = cute.arch.lane_idx()
    for block in cutlass.range(blocks, unroll=1):
        stage = block % STAGES
        cute.arch.mbarrier_wait(empty + stage, ((block // STAGES) & 1) ^ 1)
        weights[lane, stage] = 2.0 * w[block * 32 + lane]
        cute.arch.sync_warp()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(full + stage)


@cute.jit
def add_up(x: cute.Tensor, first, weights, sums, full, empty, blocks):
    thread, _, _ = cute.arch.thread_idx()
    for block in cutlass.range(blocks, unroll=1):
        stage = block % STAGES
        cute.arch.mbarrier_wait(full + stage, (block // STAGES) & 1)
        total = F32(0.0)
        for i in cutlass.range(32, unroll=4):
            total += weights[i, stage] * x[first + block * 32 + i, thread]
        sums[thread] = sums[thread] + total
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_warp()
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(empty + stage)


@cute.kernel
def states(x: cute.Tensor, w: cute.Tensor, starts: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    sequence, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    full, empty = shared.full.data_ptr(), shared.empty.data_ptr()
    weights = shared.weights.get_tensor(cute.make_layout((32, STAGES)))
    offset = shared.bias.get_tensor(cute.make_layout(WIDTH))
    sums = shared.sums.get_tensor(cute.make_layout(WIDTH))
    if thread == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, WARPS)
        cute.arch.mbarrier_init_fence()
    if warp == 0:
        fetch = cute.make_copy_atom(cpasync.CopyG2SOp(), F32, num_bits_per_copy=128)
        source = cute.make_tensor((bias.iterator + thread * 4).align(16), cute.make_layout(4))
        place = cute.make_tensor((offset.iterator + thread * 4).align(16), cute.make_layout(4))
        cute.copy(fetch, source, place)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    first = starts[sequence]
    blocks = (starts[sequence + 1] - first) // 32
    if warp == WARPS:
        mine = cute.make_tensor(w.iterator + first, cute.make_layout(blocks * 32))
        load_weights(mine, weights, full, empty, blocks)
    else:
        sums[thread] = offset[thread]
        cute.arch.fence_proxy("async.shared", space="cta")
        add_up(x, first, weights, sums, full, empty, blocks)
        cute.arch.barrier(barrier_id=1, number_of_threads=WARPS * 32)
        if warp == 0:
            store = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), F32)
            with cute.arch.elect_one():
                out = cute.make_tensor((y.iterator + sequence * WIDTH).align(16), cute.make_layout(WIDTH))
                cute.copy(store, sums, out)
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, starts: cute.Tensor, bias: cute.Tensor, y: cute.Tensor):
    states(x, w, starts, bias, y).launch(grid=(y.shape[0], 1, 1), block=(32 * (WARPS + 1), 1, 1))


def main():
    torch.manual_seed(0)
    starts = torch.tensor([0, 96, 96, 128, 288], dtype=torch.int32)
    x, w = torch.randint(0, 9, (288, WIDTH)).float(), torch.randint(0, 9, (288,)).float()
    bias, y = torch.arange(WIDTH).float(), torch.empty(4, WIDTH)
    launch(x, w, starts, bias, y)
    found = [2 * w[a:b] @ x[a:b] + bias for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    assert torch.equal(y, torch.stack(found)), "wrong values"


if __name__ == "__main__":
    main()
