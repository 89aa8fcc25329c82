"""A sum over many CTAs: each leaves a part in global memory and takes a ticket; whoever takes the last adds them up."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync

THREADS = 128
F32 = cutlass.Float32


@cute.struct
class Shared:
    here: cute.struct.MemRange[cutlass.Int64, 1]
    parts: cute.struct.MemRange[F32, THREADS // 32]
    ticket: cute.struct.MemRange[cutlass.Int32, 1]
    row: cute.struct.Align[cute.struct.MemRange[F32, 4 * THREADS], 128]


@cute.kernel
def turnstile(x: cute.Tensor, parts: cute.Tensor, tickets: cute.Tensor, total: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    here = shared.here.data_ptr()
    row = shared.row.get_tensor(cute.make_layout(4 * THREADS))
    own = shared.parts.get_tensor(cute.make_layout(THREADS // 32))
    ticket = shared.ticket.get_tensor(cute.make_layout(1))
    if thread == 0:
        cute.arch.mbarrier_init(here, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(here, 4 * THREADS * 4)
    if thread < 32:
        load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), F32)
        with cute.arch.elect_one():
            source = cute.make_tensor((x.iterator + block * 4 * THREADS).align(16), row.layout)
            cute.copy(load, source, row, mbar_ptr=here)
    cute.arch.sync_threads()
    cute.arch.mbarrier_wait(here, 0)
    mine = row[thread] + row[thread + THREADS] + row[thread + 2 * THREADS] + row[thread + 3 * THREADS]
    mine = cute.arch.warp_reduction_sum(mine)
    if thread % 32 == 0:
        own[thread // 32] = mine
    cute.arch.sync_threads()
    if thread == 0:
        parts[block] = own[0] + own[1] + own[2] + own[3]
        cute.arch.fence_acq_rel_gpu()
        ticket[0] = cute.arch.atomic_add(tickets.iterator, cutlass.Int32(1), sem="relaxed", scope="gpu")
        cute.arch.fence_acq_rel_gpu()
    cute.arch.sync_threads()
    if ticket[0] == blocks - 1:
        if thread < 32:
            value = F32(0.0)
            if thread < blocks:
                value = parts[thread]
            value = cute.arch.warp_reduction_sum(value)
            if thread == 0:
                total[0] = value
                tickets[0] = 0


@cute.jit
def launch(x: cute.Tensor, parts: cute.Tensor, tickets: cute.Tensor, total: cute.Tensor):
    turnstile(x, parts, tickets, total).launch(grid=(parts.shape[0], 1, 1), block=(THREADS, 1, 1))


def main():
    torch.manual_seed(0)
    x = torch.randint(0, 9, (8, 4 * THREADS)).float()
    parts, tickets, total = torch.empty(8), torch.zeros(1, dtype=torch.int32), torch.empty(1)
    launch(x, parts, tickets, total)
    launch(x, parts, tickets, total)
    assert total[0] == x.sum()


if __name__ == "__main__":
    main()
