/* A libcuda.so.1 for tests: Hopper devices by default, without a GPU. It counts calls and keeps the last launch. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct Launch {
  uint32_t extents[6];
  uint32_t smem_bytes;
  uint32_t cluster[3];
  uint64_t stream;
  uint64_t kernel;
  int32_t device;
  int32_t programmatic;
};

struct Launch last;
int launches, libraries_loaded, kernels_set_up, contexts_pushed;
int major = 9, sm_count = 132, fails_to_load, slow_to_load;
int wanted_parameter = -1; /* index of a kernel's parameter to keep 4 bytes of */
uint32_t parameter;
uint64_t capture;          /* id of the capture that all streams take part in; 0 for none */
static void* last_node[1]; /* of the capture */
static uintptr_t nodes;
static __thread int current_device = 0; /* -1: no context */
static __thread int pushed[8], depth;

/* Make a device current in this thread; -1 for none. */
void make_current(int device) { current_device = device; }

int cuInit(unsigned flags) { return (int)flags; }
int cuda_version = 12000;
int cuDriverGetVersion(int* version) {
  *version = cuda_version;
  return 0;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 209 ? "no kernel image is available" : "unknown error";
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 16: *value = sm_count; return 0;
    case 75: *value = major; return 0;
    case 76: *value = 0; return 0;
    case 97: *value = 232448; return 0;
  }
  return 1;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = (void*)(uintptr_t)(0x100 + device);
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = current_device;
  return current_device < 0 ? 201 : 0;
}
int cuCtxPushCurrent_v2(void* context) {
  pushed[depth++] = current_device;
  current_device = (int)((uintptr_t)context - 0x100);
  ++contexts_pushed;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = NULL;
  current_device = pushed[--depth];
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  (void)mode;
  return 0;
}
int cuLibraryLoadData(void** library, const void* image, void* a, void* b, unsigned c, void* d, void* e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  if (fails_to_load) return 209;
  if (memcmp(image, "\x50\xed\x55\xba", 4)) return 200; /* a fat binary */
  *library = (void*)(uintptr_t)(0x1000 + __atomic_fetch_add(&libraries_loaded, 1, __ATOMIC_SEQ_CST));
  return 0;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  if (slow_to_load) usleep(20000); /* so that other threads come meanwhile */
  *kernel = (void*)((uintptr_t)library << 8);
  return name[0] ? 0 : 500;
}
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
  (void)attribute, (void)kernel, (void)device;
  *value = 0;
  return 0;
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  (void)value, (void)kernel, (void)device;
  if (attribute == 8) __atomic_fetch_add(&kernels_set_up, 1, __ATOMIC_SEQ_CST);
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* kernel, int threads, size_t smem_bytes) {
  (void)kernel, (void)threads, (void)smem_bytes;
  *blocks = 1;
  return 0;
}

int cuStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  *status = capture != 0;
  return 0;
}
int capture_fails;
int cuStreamGetCaptureInfo_v3(void* stream, int* status, uint64_t* id, void** graph, void*** dependencies, void** edges,
                              size_t* count) {
  (void)stream, (void)graph;
  *status = capture != 0;
  *id = capture;
  *dependencies = last_node;
  *edges = NULL;
  *count = last_node[0] != NULL;
  return capture_fails;
}
/* Add a node to the capture. */
void follow(void) { last_node[0] = (void*)(++nodes); }
void begin_capture(uint64_t id) {
  capture = id;
  last_node[0] = NULL;
}

/* CUlaunchConfig and CUlaunchAttribute. */
struct Config {
  uint32_t extents[6];
  uint32_t smem_bytes;
  void* stream;
  const unsigned char* attributes;
  uint32_t count;
};
int cuLaunchKernelEx(const struct Config* config, void* kernel, void** parameters, void** extra) {
  memset(&last, 0, sizeof last);
  memcpy(last.extents, config->extents, sizeof last.extents);
  last.smem_bytes = config->smem_bytes;
  last.stream = (uint64_t)(uintptr_t)config->stream;
  last.kernel = (uint64_t)(uintptr_t)kernel;
  last.device = current_device;
  for (uint32_t n = 0; n < config->count; ++n) {
    const unsigned char* attribute = config->attributes + 72 * n;
    if (*(const int32_t*)attribute == 4) memcpy(last.cluster, attribute + 8, 12);
    if (*(const int32_t*)attribute == 6) memcpy(&last.programmatic, attribute + 8, 4);
  }
  if (wanted_parameter >= 0) memcpy(&parameter, parameters[wanted_parameter], 4);
  __atomic_fetch_add(&launches, 1, __ATOMIC_SEQ_CST);
  if (capture) follow();
  return extra || !parameters || current_device < 0;
}
int cuLaunchKernel(void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned smem_bytes, void* stream, void** parameters, void** extra) {
  struct Config config = {{gx, gy, gz, bx, by, bz}, smem_bytes, stream, NULL, 0};
  return cuLaunchKernelEx(&config, kernel, parameters, extra);
}

/* What no test calls. */
int cuDeviceGet(int* device, int ordinal) { return (void)device, (void)ordinal, 1; }
int cuDeviceGetCount(int* count) { return (void)count, 1; }
int cuTensorMapReplaceAddress(void* map, void* address) { return (void)map, (void)address, 1; }
int cuTensorMapEncodeTiled(void* map) { return (void)map, 1; }
