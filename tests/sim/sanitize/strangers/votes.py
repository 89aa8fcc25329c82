"""Rows divided by their sums, each row in the shared memory of four CTAs; then a second kernel, launched early."""

import cutlass
import torch
from cutlass import cute
from cutlass._mlir.dialects import nvvm

WARPS, PEERS, WIDTH = 4, 4, 64
F32 = cutlass.Float32
CLUSTER = nvvm.MemScopeKind.CLUSTER


@cute.struct
class Shared:
    arrived: cute.struct.MemRange[cutlass.Int64, 2]
    sums: cute.struct.MemRange[cutlass.Int32, 2 * WARPS * PEERS]
    largest: cute.struct.MemRange[F32, WARPS]
    told: cute.struct.MemRange[cutlass.Int64, 1]
    lowest: cute.struct.MemRange[F32, WARPS * PEERS]


@cute.kernel
def divide(x: cute.Tensor, y: cute.Tensor, peak: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    lane, warp = thread % 32, cute.arch.make_warp_uniform(thread // 32)
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    shared = cutlass.memory.SmemAllocator().allocate(Shared)
    arrived = shared.arrived.data_ptr()
    sums = shared.sums.data_ptr()
    told, lowest = shared.told.data_ptr(), shared.lowest.data_ptr()
    largest = shared.largest.get_tensor(cute.make_layout(WARPS))
    if thread == 0:
        cute.arch.mbarrier_init(arrived, 1)
        cute.arch.mbarrier_init(arrived + 1, 1)
        cute.arch.mbarrier_init(told, WARPS * PEERS)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive_relaxed()
    cute.arch.cluster_wait()

    top, low = F32(0.0), F32(1e9)
    rounds = x.shape[0] // WARPS
    for turn in cutlass.range(rounds, unroll=1):
        half = turn % 2
        row = turn * WARPS + warp
        if thread == 0:
            cute.arch.mbarrier_arrive_and_expect_tx(arrived + half, WARPS * PEERS * 4)
        left, right = x[row, rank * WIDTH + lane], x[row, rank * WIDTH + lane + 32]
        own = cute.arch.warp_reduction_sum(left + right)
        if lane < PEERS:
            bits = own.bitcast(cutlass.Int32)
            place = sums + half * WARPS * PEERS + warp * PEERS + rank
            cute.arch.store_async_dsmem(place, bits, arrived + half, lane)
        cute.arch.mbarrier_wait(arrived + half, (turn // 2) & 1)
        total = F32(0.0)
        for peer in cutlass.range_constexpr(PEERS):
            part = cute.make_tensor(sums + half * WARPS * PEERS + warp * PEERS + peer, cute.make_layout(1))
            total += part[0].bitcast(F32)
        y[row, rank * WIDTH + lane] = left / total
        y[row, rank * WIDTH + lane + 32] = right / total
        top, low = cutlass.max(top, own), cutlass.min(low, own)
        if turn % 2 == 1:
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()

    cute.arch.griddepcontrol_launch_dependents()
    if lane == 0:
        largest[warp] = top
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    if lane == 0:
        there = cute.arch.map_dsmem_ptr(lowest + rank * WARPS + warp, 0)
        cute.arch.inline_ptx("st.shared::cluster.f32 [{$r0}], {$r1};", read_only_args=[there.toint(), low])
        cute.arch.mbarrier_arrive(told, 0, scope=CLUSTER)
    if warp == 0:
        value = F32(0.0)
        if lane < WARPS * PEERS:
            theirs = cute.arch.map_dsmem_ptr(largest.iterator + lane % WARPS, lane // WARPS)
            value = cute.arch.inline_ptx(
                "ld.shared::cluster.f32 {$w0}, [{$r0}];", write_only_types=[F32], read_only_args=[theirs.toint()]
            )
        value = cute.arch.warp_reduction_max(value)
        if thread == 0 and rank == 0:
            peak[0] = value
    if rank == 0 and warp == 1:
        cute.arch.mbarrier_wait(told, 0)
        least = F32(1e9)
        if lane < WARPS * PEERS:
            least = cute.make_tensor(lowest + lane, cute.make_layout(1))[0]
        least = -cute.arch.warp_reduction_max(-least)
        if lane == 0:
            peak[1] = least
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.kernel
def weigh(y: cute.Tensor, peak: cute.Tensor, bias: cute.Tensor, z: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    shared = cutlass.memory.SmemAllocator().allocate_tensor(F32, cute.make_layout(256), byte_alignment=16)
    shared[thread] = bias[thread]
    cute.arch.griddepcontrol_wait()
    most = peak[0]
    cute.arch.sync_threads()
    z[row, thread] = y[row, thread] * most + shared[thread ^ 255]


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, peak: cute.Tensor, bias: cute.Tensor, z: cute.Tensor):
    divide(x, y, peak).launch(grid=(PEERS, 1, 1), block=(32 * WARPS, 1, 1), cluster=(PEERS, 1, 1))
    weigh(y, peak, bias, z).launch(grid=(x.shape[0], 1, 1), block=(PEERS * WIDTH, 1, 1), use_pdl=True)


def main():
    torch.manual_seed(0)
    x = torch.randint(1, 9, (6 * WARPS, PEERS * WIDTH)).float()
    bias = torch.rand(PEERS * WIDTH)
    y, z, peak = torch.empty_like(x), torch.empty_like(x), torch.empty(2)
    launch(x, y, peak, bias, z)
    expected = x / x.sum(1, keepdim=True)
    torch.testing.assert_close(y, expected)
    most = x.view(-1, PEERS, WIDTH).sum(2).max()
    assert peak[0] == most
    assert peak[1] == x.view(-1, PEERS, WIDTH).sum(2).min()
    torch.testing.assert_close(z, expected * most + bias.flip(0))


if __name__ == "__main__":
    main()
