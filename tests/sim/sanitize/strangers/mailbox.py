"""Rows handed from CTA to CTA through global memory: a flag says that one is written, and it is fetched in bulk."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

WIDTH = 128
F32, I32 = cutlass.Float32, cutlass.Int32


@cute.struct
class Shared:
    here: cute.struct.MemRange[cutlass.Int64, 1]
    row: cute.struct.Align[cute.struct.MemRange[F32, WIDTH], 128]


@cute.kernel
def mailbox(x: cute.Tensor, rows: cute.Tensor, flags: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    here = shared.here.data_ptr()
    row = shared.row.get_tensor(cute.make_layout(WIDTH))
    if thread == 0:
        cute.arch.mbarrier_init(here, 1)
        cute.arch.mbarrier_init_fence()
    rows[block, thread] = 2.0 * x[block, thread]
    cute.arch.sync_threads()
    if thread == 0:
        flag = (flags.iterator + block).toint()
        cute.arch.inline_ptx("st.release.gpu.global.s32 [{$r0}], {$r1};", read_only_args=[flag, I32(1)])
        other = block ^ 1
        flag = (flags.iterator + other).toint()
        seen = I32(0)
        while seen == 0:
            seen = cute.arch.inline_ptx(
                "ld.acquire.gpu.global.s32 {$w0}, [{$r0}];", write_only_types=[I32], read_only_args=[flag]
            )
        cute.arch.fence_proxy("async")
        cute.arch.mbarrier_arrive_and_expect_tx(here, WIDTH * 4)
        load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), F32)
        source = cute.make_tensor((rows.iterator + other * WIDTH).align(16), cute.make_layout(WIDTH))
        cute.copy(load, source, row, mbar_ptr=here)
    cute.arch.mbarrier_wait(here, 0)
    y[block, thread] = row[thread]


@cute.jit
def launch(x: cute.Tensor, rows: cute.Tensor, flags: cute.Tensor, y: cute.Tensor):
    mailbox(x, rows, flags, y).launch(grid=(2, 1, 1), block=(WIDTH, 1, 1))


def main():
    x, y = torch.arange(2 * WIDTH).float().view(2, WIDTH), torch.empty(2, WIDTH)
    launch(x, torch.empty(2, WIDTH), torch.zeros(2, dtype=torch.int32), y)
    assert torch.equal(y, 2 * x.flip(0)), "wrong values"


if __name__ == "__main__":
    main()
