// Algorithms over the whole device: CUB's and Thrust's, which ask the runtime for attributes, occupancy and memory.
#include <cub/cub.cuh>
#include <thrust/device_ptr.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

template <class Algorithm>
int with_storage(Algorithm algorithm) {
    void* storage = nullptr;
    size_t bytes = 0;
    if (cudaError_t error = algorithm(storage, bytes)) return error;
    if (cudaError_t error = cudaMalloc(&storage, bytes)) return error;
    cudaError_t error = algorithm(storage, bytes);
    cudaFree(storage);
    return error ? error : cudaDeviceSynchronize();
}

extern "C" int sorted(const float* keys, float* to, const int* values, int* moved, int n) {
    return with_storage([=](void* storage, size_t& bytes) {
        return cub::DeviceRadixSort::SortPairsDescending(storage, bytes, keys, to, values, moved, n);
    });
}

extern "C" int scanned(const int* x, int* out, int n) {
    return with_storage([=](void* storage, size_t& bytes) {
        return cub::DeviceScan::InclusiveSum(storage, bytes, x, out, n);
    });
}

extern "C" int merged(int* x, int* total, int n) {
    thrust::device_ptr<int> first(x);
    thrust::sort(first, first + n, thrust::greater<int>());
    *total = thrust::reduce(first, first + n);
    return 0;
}
