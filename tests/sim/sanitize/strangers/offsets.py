"""Sums of groups of rows, whose bounds a kernel before has just counted: it is launched early, and waits for them."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

WIDTH, WARPS = 128, 4
F32 = cutlass.Float32


@cute.struct
class Shared:
    full: cute.struct.MemRange[cutlass.Int64, 1]
    empty: cute.struct.MemRange[cutlass.Int64, 1]
    row: cute.struct.Align[cute.struct.MemRange[F32, WIDTH], 128]


@cute.kernel
def count(sizes: cute.Tensor, bounds: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    cute.arch.griddepcontrol_wait()
    cute.arch.griddepcontrol_launch_dependents()
    if thread <= sizes.shape[0]:
        before = cutlass.Int32(0)
        for i in cutlass.range(thread, unroll=1):
            before += sizes[i]
        bounds[thread] = before


@cute.kernel
def add(x: cute.Tensor, bounds: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    group, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(thread // 32)
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    full, empty = shared.full.data_ptr(), shared.empty.data_ptr()
    row = shared.row.get_tensor(cute.make_layout(WIDTH))
    if thread == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(empty, WARPS)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if warp == WARPS:
        cute.arch.griddepcontrol_wait()
        first, last = bounds[group], bounds[group + 1]
        load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), F32)
        for turn in cutlass.range(last - first, unroll=1):
            cute.arch.mbarrier_wait(empty, (turn & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, WIDTH * 4)
                source = cute.make_tensor((x.iterator + (first + turn) * WIDTH).align(16), cute.make_layout(WIDTH))
                cute.copy(load, source, row, mbar_ptr=full)
    else:
        cute.arch.griddepcontrol_wait()
        first, last = bounds[group], bounds[group + 1]
        total = F32(0.0)
        for turn in cutlass.range(last - first, unroll=1):
            cute.arch.mbarrier_wait(full, turn & 1)
            total += row[thread]
            cute.arch.fence_proxy("async.shared", space="cta")
            cute.arch.sync_warp()
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(empty)
        y[group, thread] = total


@cute.jit
def launch(x: cute.Tensor, sizes: cute.Tensor, bounds: cute.Tensor, y: cute.Tensor):
    count(sizes, bounds).launch(grid=(1, 1, 1), block=(32, 1, 1), use_pdl=True)
    add(x, bounds, y).launch(grid=(y.shape[0], 1, 1), block=(32 * (WARPS + 1), 1, 1), use_pdl=True)


def main():
    torch.manual_seed(0)
    sizes = torch.tensor([3, 0, 5], dtype=torch.int32)
    x, y = torch.randint(0, 9, (8, WIDTH)).float(), torch.empty(3, WIDTH)
    launch(x, sizes, torch.empty(4, dtype=torch.int32), y)
    assert torch.equal(y, torch.stack([part.sum(0) for part in x.split(sizes.tolist())])), "wrong values"


if __name__ == "__main__":
    main()
