// What a dependent launch that does not wait sees of the launch before it, which triggers early, or not at all.
//
// nvcc -arch=sm_90a -o triggers triggers.cu && ./triggers: of 400 launches each, those that read old words.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void write(int* words, int count, int value, bool trigger) {
  if (trigger) asm volatile("griddepcontrol.launch_dependents;");
  for (long long start = clock64(); clock64() - start < 3000 + blockIdx.x % 7 * 900;) {}
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) words[i] = value;
}

__global__ void read(const int* words, int count, int value, bool wait, unsigned long long* old) {
  if (wait) asm volatile("griddepcontrol.wait;" ::: "memory");
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    int word;
    asm volatile("ld.global.ca.s32 %0, [%1];" : "=r"(word) : "l"(words + count - 1 - i));
    if (word != value) atomicAdd(old, 1ull);
  }
}

int main() {
  const int count = 1 << 20, launches = 400;
  int* words;
  unsigned long long* old;
  cudaStream_t stream;
  cudaMalloc(&words, count * sizeof(int));
  cudaMallocManaged(&old, sizeof(*old));
  cudaStreamCreate(&stream);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  for (int variant = 0; variant < 4; variant++) {
    bool trigger = variant & 1, wait = variant & 2;
    int wrong = 0;
    for (int launch = 0; launch < launches; launch++) {
      *old = 0;
      cudaLaunchConfig_t config{};
      config.gridDim = 132, config.blockDim = 256, config.stream = stream;
      int value = launch * 4 + variant + 1;
      cudaLaunchKernelEx(&config, write, words, count, value, trigger);
      config.attrs = &early, config.numAttrs = 1;
      cudaLaunchKernelEx(&config, read, (const int*)words, count, value, wait, old);
      if (cudaError_t error = cudaDeviceSynchronize()) return printf("%s\n", cudaGetErrorString(error)), 1;
      wrong += *old > 0;
    }
    printf("%s, %s: %d of %d launches read old words\n", trigger ? "triggers before it writes" : "never triggers",
           wait ? "waits" : "does not wait", wrong, launches);
  }
}
