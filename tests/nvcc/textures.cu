// Textures and surfaces by their objects: of an array, of layers, of three dimensions, of linear and of pitched memory.
#include <cuda_runtime.h>

__global__ void sample(cudaTextureObject_t image, cudaTextureObject_t line, float4* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    float2 found = tex2D<float2>(image, (x + 0.5f) / width, (y + 0.5f) / height);
    out[y * width + x] = make_float4(found.x, found.y, tex1Dfetch<float>(line, x), tex1Dfetch<float>(line, -1));
}

__global__ void transpose(cudaTextureObject_t from, cudaSurfaceObject_t to, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width) surf2Dwrite(tex2D<unsigned char>(from, x, y), to, y, x);
}

__global__ void deep(cudaTextureObject_t cube, cudaTextureObject_t layers, float* out) {
    int x = threadIdx.x;
    out[x] = tex3D<float>(cube, x + 0.5f, 1.5f, 1.0f);
    out[32 + x] = tex2DLayered<float>(layers, x + 0.5f, 0.5f, 1);
}

static cudaTextureObject_t texture(cudaResourceDesc resource, bool normalized, cudaTextureFilterMode filter) {
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = cudaAddressModeClamp;
    how.filterMode = filter;
    how.readMode = cudaReadModeElementType;
    how.normalizedCoords = normalized;
    cudaTextureObject_t made = 0;
    cudaCreateTextureObject(&made, &resource, &how, nullptr);
    return made;
}

static cudaResourceDesc resource_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

extern "C" int sampled(float2* image, float* line, float4* out, int width, int height) {
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    if (cudaMallocArray(&array, &format, width, height)) return 1;
    if (cudaMemcpy2DToArray(array, 0, 0, image, width * 8, width * 8, height, cudaMemcpyHostToDevice)) return 2;
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = line;
    linear.res.linear.desc = cudaCreateChannelDesc<float>();
    linear.res.linear.sizeInBytes = width * 4;
    cudaTextureObject_t of_array = texture(resource_of(array), true, cudaFilterModePoint);
    cudaTextureObject_t of_line = texture(linear, false, cudaFilterModePoint);
    sample<<<dim3((width + 31) / 32, height), 32>>>(of_array, of_line, out, width, height);
    return cudaDeviceSynchronize() + cudaDestroyTextureObject(of_array) + cudaDestroyTextureObject(of_line) +
           cudaFreeArray(array);
}

extern "C" int transposed(unsigned char* from, unsigned char* to, int width, int height) {
    void* pitched;
    size_t pitch;
    cudaMallocPitch(&pitched, &pitch, width, height);
    cudaMemcpy2D(pitched, pitch, from, width, width, height, cudaMemcpyHostToDevice);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = pitched;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
    resource.res.pitch2D.width = width;
    resource.res.pitch2D.height = height;
    resource.res.pitch2D.pitchInBytes = pitch;
    cudaArray_t array;
    cudaMallocArray(&array, &resource.res.pitch2D.desc, height, width, cudaArraySurfaceLoadStore);
    cudaResourceDesc of_array = resource_of(array);
    cudaSurfaceObject_t surface;
    cudaCreateSurfaceObject(&surface, &of_array);
    cudaTextureObject_t source = texture(resource, false, cudaFilterModePoint);
    transpose<<<dim3((width + 31) / 32, height), 32>>>(source, surface, width, height);
    cudaMemcpy2DFromArray(to, height, array, 0, 0, height, width, cudaMemcpyDeviceToHost);
    return cudaDestroySurfaceObject(surface) + cudaDestroyTextureObject(source) + cudaFreeArray(array) +
           cudaFree(pitched);
}

extern "C" int deepened(float* cube, float* layers, float* out) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t arrays[2];
    cudaTextureObject_t made[2];
    float* from[] = {cube, layers};
    for (int n = 0; n < 2; n++) {
        cudaExtent extent = make_cudaExtent(32, 3, 2);
        if (cudaMalloc3DArray(&arrays[n], &format, extent, n ? cudaArrayLayered : cudaArrayDefault)) return 1;
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(from[n], 32 * 4, 32, 3);
        copy.dstArray = arrays[n];
        copy.extent = extent;
        copy.kind = cudaMemcpyHostToDevice;
        if (cudaMemcpy3D(&copy)) return 2;
        made[n] = texture(resource_of(arrays[n]), false, cudaFilterModeLinear);
    }
    deep<<<1, 32>>>(made[0], made[1], out);
    return cudaDeviceSynchronize();
}
