// Host code of CUDA C++: launches, memory, variables of the device, clusters and cooperative launches.
#include <cooperative_groups.h>
#include <cstdio>

__device__ int offset = 3;
__constant__ float factors[2] = {1.0f, 2.0f};

__global__ void fill(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i + offset;
}

__global__ void ranks(int* x) {
    if (threadIdx.x == 0) x[blockIdx.x] = cooperative_groups::this_cluster().block_rank() * factors[1];
}

__global__ void meet(int* x, int* y) {
    x[blockIdx.x] = blockIdx.x;
    cooperative_groups::this_grid().sync();
    y[blockIdx.x] = x[gridDim.x - 1 - blockIdx.x];
}

extern "C" int filled(int* out, int n) {
    int *device, value = 40, back = 0;
    if (cudaMalloc(&device, n * sizeof(int)) != cudaSuccess) return 1;
    cudaMemcpyToSymbol(offset, &value, sizeof(value));
    fill<<<(n + 31) / 32, 32>>>(device, n);
    cudaMemcpy(out, device, n * sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&back, offset, sizeof(back));
    cudaFree(device);
    return cudaDeviceSynchronize() == cudaSuccess && back == 40 ? 0 : 2;
}

extern "C" int ranked(int* out, int ctas, int cluster) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(32);
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, ranks, out);
}

extern "C" int met(int* x, int* y, int ctas) {
    void* arguments[] = {&x, &y};
    return cudaLaunchCooperativeKernel(reinterpret_cast<void*>(meet), dim3(ctas), dim3(1), arguments, 0, 0);
}

extern "C" int overrun(int* x, int n) {
    fill<<<1, 32>>>(x, n);
    return cudaGetLastError();
}
