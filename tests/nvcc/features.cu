// What device code may be made of: functions, pointers to them, classes, printf, malloc, local arrays, atomics.
#include <cstdio>
#include <cuda/std/tuple>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

struct Pair {
    int first;
    double second;
};
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ Pair scaled(Pair p, int by) {
    p.first *= by;
    p.second /= by;
    return p;
}
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
using Operation = int (*)(int, int);
__device__ Operation operations[2] = {add, multiply};

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float side) : side(side) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ explicit Circle(float radius) : radius(radius) {}
    __device__ float area() const override { return 3.0f * radius * radius; }
};

extern "C" __global__ void functions(int* fib, double* scaled_by, int* combined, float* areas) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    fib[i] = fibonacci(i % 12);
    Pair p = scaled(Pair{i, 1.0 * i}, 1 + i % 4);
    scaled_by[i] = p.first * 1000 + p.second;
    combined[i] = operations[i % 2](i, 7);
    Shape* shape = i % 3 ? static_cast<Shape*>(new Square(i)) : static_cast<Shape*>(new Circle(i));
    areas[i] = shape->area();
    delete shape;
}

__device__ __noinline__ void sort(int* data, int low, int high) {
    if (low >= high) return;
    int pivot = data[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (data[i] < pivot) i++;
        while (data[j] > pivot) j--;
        if (i <= j) {
            int t = data[i];
            data[i++] = data[j];
            data[j--] = t;
        }
    }
    sort(data, low, j);
    sort(data, i, high);
}

extern "C" __global__ void quicksort(int* data, int each) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int* mine = static_cast<int*>(malloc(each * sizeof(int)));
    for (int k = 0; k < each; k++) mine[k] = data[i * each + k];
    sort(mine, 0, each - 1);
    for (int k = 0; k < each; k++) data[i * each + k] = mine[k];
    free(mine);
}

extern "C" __global__ void prints(int limit) {
    if (threadIdx.x < limit) printf("thread %d of %u: %.2f %s\n", threadIdx.x, blockDim.x, threadIdx.x / 4.0, "done");
}

extern "C" __global__ void halves(const float* x, __half* h, __nv_bfloat16* b, unsigned char* f8, float* back) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 pair = __floats2half2_rn(x[i], -x[i]);
    pair = __hfma2(pair, __float2half2_rn(2.0f), __float2half2_rn(0.5f));
    h[i] = __hadd(__low2half(pair), __hmax(__high2half(pair), __float2half(0.25f)));
    b[i] = __hmul(__float2bfloat16(x[i]), __float2bfloat16(3.0f));
    __nv_fp8_e4m3 e(x[i]);
    f8[i] = e.__x;
    back[i] = static_cast<float>(e);
}

extern "C" __global__ void dpx(const int* a, const int* b, const int* c, int* out) {
    int i = threadIdx.x, n = blockDim.x;
    out[i] = __viaddmax_s32(a[i], b[i], c[i]);
    out[n + i] = __vimax3_s32_relu(a[i], b[i], c[i]);
    out[2 * n + i] = __viaddmin_s16x2_relu(a[i], b[i], c[i]);
    out[3 * n + i] = __vimin3_u16x2(a[i], b[i], c[i]);
    bool which;
    out[4 * n + i] = __vibmax_s32(a[i], b[i], &which) + which;
    out[5 * n + i] = __vabsdiffu4(a[i], b[i]) ^ __vadd2(a[i], c[i]) ^ __vsadu4(a[i], b[i]);
    out[6 * n + i] = __dp4a(a[i], b[i], c[i]) + __byte_perm(a[i], b[i], 0x5140) + __funnelshift_l(a[i], b[i], 7);
    out[7 * n + i] = __popc(a[i]) + __clz(b[i]) + __ffs(c[i]) + __brev(a[i]) + __sad(a[i], b[i], 3u);
}

extern "C" __global__ void warps(const unsigned* x, unsigned* out) {
    unsigned i = threadIdx.x, v = x[i], n = blockDim.x;
    out[i] = __shfl_down_sync(~0u, v, 3);
    out[n + i] = __ballot_sync(~0u, v & 1);
    out[2 * n + i] = __reduce_add_sync(~0u, v);
    out[3 * n + i] = __match_any_sync(~0u, v % 5);
    unsigned sum = 0;
    if (v & 1) {
        unsigned mask = __activemask();
        sum = __popc(mask) * 1000 + __reduce_max_sync(mask, v);
    }
    out[4 * n + i] = sum;
}
