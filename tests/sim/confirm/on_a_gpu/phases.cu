// Does an mbarrier.expect_tx that leaves nothing pending complete the phase? The PTX ISA does not say.
//
// nvcc -arch=sm_90a -o phases phases.cu && ./phases: a line for each step, 1 where the phase has completed.
#include <cstdint>
#include <cstdio>

__device__ int over(uint32_t barrier, int parity) {
  int completed;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.s32 %0, 1, 0, p;}"
               : "=r"(completed) : "r"(barrier), "r"(parity) : "memory");
  return completed;
}

#define DO(instruction) asm volatile(instruction :: "r"(barrier) : "memory")

__global__ void phases(int* completed) {
  __shared__ alignas(8) uint64_t object;
  uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&object);
  DO("mbarrier.init.shared::cta.b64 [%0], 1;");
  DO("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;");
  completed[0] = over(barrier, 0);
  DO("mbarrier.arrive.shared::cta.b64 _, [%0];");
  completed[1] = over(barrier, 0);
  DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;");
  completed[2] = over(barrier, 0);
  DO("mbarrier.arrive.shared::cta.b64 _, [%0];");
  completed[3] = over(barrier, 1);
  DO("mbarrier.inval.shared::cta.b64 [%0];");
  DO("mbarrier.init.shared::cta.b64 [%0], 1;");
  DO("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;");
  DO("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;");
  completed[4] = over(barrier, 0);
  DO("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;");
  completed[5] = over(barrier, 0);
}

int main() {
  const char* steps[] = {"16 bytes have come", "one arrival of one", "16 bytes are announced", "the next phase, an arrival",
                         "32 bytes of 16, and the arrival", "16 more are announced"};
  int* completed;
  cudaMallocManaged(&completed, sizeof(int) * 6);
  phases<<<1, 1>>>(completed);
  if (cudaError_t error = cudaDeviceSynchronize()) return printf("%s\n", cudaGetErrorString(error)), 1;
  for (int step = 0; step < 6; step++) printf("%-32s %d\n", steps[step], completed[step]);
}
