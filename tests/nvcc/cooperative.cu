// Cooperative groups: tiles, reductions, the grid's barrier, clusters.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grid_sum(const float* x, float* partial, float* total, int n) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    __shared__ float warps[32];
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
    sum = cg::reduce(tile, sum, cg::plus<float>());
    if (tile.thread_rank() == 0) warps[tile.meta_group_rank()] = sum;
    block.sync();
    if (block.thread_rank() == 0) {
        float s = 0;
        for (int w = 0; w < tile.meta_group_size(); w++) s += warps[w];
        partial[blockIdx.x] = s;
    }
    grid.sync();
    if (grid.thread_rank() == 0) {
        float s = 0;
        for (int b = 0; b < gridDim.x; b++) s += partial[b];
        *total = s;
    }
    grid.sync();
    if (block.thread_rank() == 0) partial[blockIdx.x] = *total;
}

extern "C" __global__ void tiles(const int* x, int* sums, int* scans, int* labelled, int* coalesced) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int i = block.thread_rank();
    sums[i] = cg::reduce(tile, x[i], cg::plus<int>());
    scans[i] = cg::exclusive_scan(tile, x[i], cg::plus<int>());
    auto warp = cg::tiled_partition<32>(block);
    auto same = cg::labeled_partition(warp, x[i] % 3);
    labelled[i] = cg::reduce(same, x[i], cg::greater<int>());
    coalesced[i] = -1;
    if (x[i] % 2) {
        auto active = cg::coalesced_threads();
        coalesced[i] = active.thread_rank() * 100 + active.size();
    }
}

extern "C" __global__ void wide_tiles(const int* x, int* sums) {
    __shared__ cg::block_tile_memory<256> memory;
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<64>(block);
    sums[block.thread_rank()] = cg::reduce(tile, x[block.thread_rank()], cg::plus<int>());
}

extern "C" __global__ void __cluster_dims__(4, 1, 1) histogram(const int* x, int* counts, int n, int bins) {
    extern __shared__ int own[];
    auto cluster = cg::this_cluster();
    auto block = cg::this_thread_block();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) own[b] = 0;
    cluster.sync();
    for (int i = cg::this_grid().thread_rank(); i < n; i += cg::this_grid().size()) {
        int value = x[i];
        int* there = cluster.map_shared_rank(own, value / bins);
        atomicAdd(there + value % bins, 1);
    }
    cluster.sync();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) atomicAdd(counts + cluster.block_rank() * bins + b, own[b]);
}

extern "C" __global__ void copied(const float* x, float* y) {
    extern __shared__ float tile[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, x + blockIdx.x * 256, sizeof(float) * 256);
    cg::wait(block);
    for (int i = threadIdx.x; i < 256; i += blockDim.x) y[blockIdx.x * 256 + i] = 2 * tile[255 - i];
}
