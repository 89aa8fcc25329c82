// Libraries: CUB's primitives of a block, cuda::barrier and cuda::pipeline, atomics of libcu++, wmma.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <mma.h>

extern "C" __global__ void cub_block(const int* keys, int* sorted, int* scanned, int* sums) {
    constexpr int threads = 128, items = 4;
    using Sort = cub::BlockRadixSort<int, threads, items>;
    using Scan = cub::BlockScan<int, threads>;
    using Reduce = cub::BlockReduce<int, threads, cub::BLOCK_REDUCE_RAKING>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } shared;
    int mine[items];
    int first = (blockIdx.x * threads + threadIdx.x) * items;
    for (int k = 0; k < items; k++) mine[k] = keys[first + k];
    Sort(shared.sort).Sort(mine);
    for (int k = 0; k < items; k++) sorted[first + k] = mine[k];
    __syncthreads();
    int scans[items];
    Scan(shared.scan).ExclusiveSum(mine, scans);
    for (int k = 0; k < items; k++) scanned[first + k] = scans[k];
    __syncthreads();
    int sum = Reduce(shared.reduce).Sum(mine);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

using Barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init

extern "C" __global__ void barriers(const float* x, float* y, int tiles) {
    constexpr int tile = 256;
    alignas(128) __shared__ float buffer[2][tile];
    __shared__ Barrier ready[2];
    if (threadIdx.x == 0) {
        init(&ready[0], blockDim.x);
        init(&ready[1], blockDim.x);
    }
    __syncthreads();
    auto fetch = [&](int t) {
        if (threadIdx.x == 0) {
            cuda::memcpy_async(buffer[t % 2], x + t * tile, cuda::aligned_size_t<16>(sizeof(float) * tile), ready[t % 2]);
        }
    };
    fetch(0);
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) fetch(t + 1);
        ready[t % 2].arrive_and_wait();
        for (int i = threadIdx.x; i < tile; i += blockDim.x) y[t * tile + i] = buffer[t % 2][tile - 1 - i];
        __syncthreads();
    }
}

extern "C" __global__ void pipelined(const float* x, float* y, int tiles) {
    constexpr int tile = 128, stages = 2;
    __shared__ float buffer[stages][tile];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    for (int t = 0, fetched = 0; t < tiles; t++) {
        for (; fetched < tiles && fetched < t + stages; fetched++) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, buffer[fetched % stages], x + fetched * tile, sizeof(float) * tile, pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        y[t * tile + threadIdx.x] = 3 * buffer[t % stages][(threadIdx.x + 1) % tile];
        pipeline.consumer_release();
    }
}

extern "C" __global__ void atomics(unsigned* count, float* sum, unsigned long long* most, int* order) {
    cuda::atomic_ref<unsigned, cuda::thread_scope_device> counter(*count);
    unsigned mine = counter.fetch_add(1, cuda::std::memory_order_relaxed);
    order[mine] = 1;
    atomicAdd(sum, 0.5f);
    atomicMax(most, static_cast<unsigned long long>(threadIdx.x) << 33);
}

extern "C" __global__ void wmma_product(const half* a, const half* b, float* d, int n) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    int row = blockIdx.y * 16, column = blockIdx.x * 16;
    for (int k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(fa, a + row * n + k, n);
        wmma::load_matrix_sync(fb, b + column * n + k, n);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    for (int e = 0; e < fc.num_elements; e++) fc.x[e] *= 2;
    wmma::store_matrix_sync(d + row * n + column, fc, n, wmma::mem_row_major);
}
