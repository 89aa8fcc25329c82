"""Host code in C that calls the CUDA runtime as nvcc's does: it launches in the simulator."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import cutepy
from cutepy.frontends.cuda_runtime import load_cuda_library
from cutepy.layouts.sm90 import Im2colTensorMap
from cutepy.sim import MemoryAccessError
from tests.messages import refuses

pytestmark = pytest.mark.integration

_PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .global .u32 offset = 3;
.visible .entry fill(.param .u64 out, .param .u32 n) {
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
    ld.param.u32 %r3, [n]; setp.ge.u32 %p, %r0, %r3; @%p ret;
    ld.global.u32 %r4, [offset]; add.u32 %r4, %r4, %r0; ld.param.u64 %rd0, [out];
    mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r4; ret; }
.visible .entry ranks(.param .u64 out) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 tile[256]; ld.param.u64 %rd0, [out]; mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %cluster_ctarank; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.u32 [%rd1], %r1; ret; }"""

_C = """
typedef struct { unsigned x, y, z; } dim3;
typedef struct { int id; char pad[4]; unsigned value[16]; } attribute;
typedef struct { dim3 grid, block; unsigned long smem; void *stream; attribute *attributes; unsigned count; } config;
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
int __cudaRegisterFunction(void **, void *, char *, char *, int, void *, void *, void *, void *, void *);
int __cudaRegisterVar(void **, void *, char *, char *, int, unsigned long, int, int);
int cudaLaunchKernel(void *, dim3, dim3, void **, unsigned long, void *);
int cudaLaunchKernelExC(config *, void *, void **);
int cudaMalloc(void **, unsigned long);
int cudaFree(void *);
int cudaMemcpy(void *, void *, unsigned long, int);
int cudaMemcpyToSymbol(void *, void *, unsigned long, unsigned long, int);
int cudaDeviceGetAttribute(int *, int, int);
void __cudaUnregisterFatBinary(void **);
int atexit(void (*)(void));
static void unload(void) { __cudaUnregisterFatBinary(0); }
static void fill(void) {}
static void ranks(void) {}
static int offset;
__attribute__((constructor)) static void load(void) {
    void **handle = __cudaRegisterFatBinary(0);
    __cudaRegisterFunction(handle, fill, "fill", "fill", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, ranks, "ranks", "ranks", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(handle, &offset, "offset", "offset", 0, 4, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
    atexit(unload);
}
int filled(int *out, int n, int from) {
    void *device;
    cudaMalloc(&device, 4 * n);
    cudaMemcpyToSymbol(&offset, &from, 4, 0, 1);
    void *arguments[] = {&device, &n};
    dim3 grid = {(n + 31) / 32, 1, 1}, block = {32, 1, 1};
    int code = cudaLaunchKernel(fill, grid, block, arguments, 0, 0);
    cudaMemcpy(out, device, 4 * n, 2);
    return code + cudaFree(device);
}
int ranked(int *out, int ctas, int cluster) {
    attribute attributes[] = {{4, {0}, {cluster, 1, 1}}};
    config how = {{ctas, 1, 1}, {1, 1, 1}, 0, 0, attributes, 1};
    void *arguments[] = {&out};
    return cudaLaunchKernelExC(&how, ranks, arguments);
}
typedef struct { unsigned long shared, constant, local; int threads, registers, ptx, binary, rest[25]; } function;
int cudaFuncGetAttributes(function *, void *);
int described(long *out) {
    function found;
    int code = cudaFuncGetAttributes(&found, ranks);
    out[0] = found.shared; out[1] = found.threads; out[2] = found.registers; out[3] = found.ptx; out[4] = found.binary;
    out[5] = found.local; out[6] = found.rest[1];
    return code + (cudaFuncGetAttributes(&found, out) != 98);
}
int cudaFuncSetAttribute(void *, int, int); int cudaOccupancyMaxActiveClusters(int *, void *, config *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, void *, int, unsigned long);
int occupied(int *out, int threads, int smem, int cluster) {
    attribute attributes[] = {{4, {0}, {cluster, 1, 1}}};
    config how = {{cluster, 1, 1}, {threads, 1, 1}, smem, 0, attributes, 1};
    int code = cudaFuncSetAttribute(fill, 8, 200000);
    out[2] = cudaFuncSetAttribute(fill, 8, 300000);
    code += cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, fill, threads, smem);
    return code + cudaOccupancyMaxActiveClusters(out + 1, fill, &how);
}
int cudaEventCreate(void **); int cudaEventRecord(void *, void *); int cudaEventElapsedTime(float *, void *, void *);
int cudaEventDestroy(void *); int cudaStreamCreateWithFlags(void **, int); int cudaStreamIsCapturing(void *, int *);
int cudaLaunchHostFunc_ptsz(void *, void (*)(void *), void *); int cudaStreamWaitEvent(void *, void *, int);
static void doubled(void *data) { *(int *)data *= 2; }
int timed(int *out, float *milliseconds) {
    void *start, *end, *stream, *arguments[] = {&out};
    dim3 grid = {2, 1, 1}, block = {1, 1, 1};
    int capturing = 1;
    cudaEventCreate(&start); cudaEventCreate(&end); cudaStreamCreateWithFlags(&stream, 1);
    if (cudaEventElapsedTime(milliseconds, start, end) != 400) return 1;
    cudaEventRecord(start, stream);
    cudaLaunchKernel(ranks, grid, block, arguments, 0, stream);
    out[1] = 21;
    cudaLaunchHostFunc_ptsz(stream, doubled, out + 1);
    cudaEventRecord(end, stream);
    cudaStreamWaitEvent(stream, end, 0); cudaStreamIsCapturing(stream, &capturing);
    cudaEventElapsedTime(milliseconds, start, end);
    return capturing + cudaEventDestroy(start) + cudaEventDestroy(end) + (cudaEventDestroy(end) != 400);
}
int cudaMallocHost(void **, unsigned long); int cudaFreeHost(void *); int cudaMemset2D(void *, long, int, long, long);
int cudaMemcpy2D(void *, long, void *, long, long, long, int); int cudaGetSymbolSize(unsigned long *, void *);
int cudaMemGetInfo(unsigned long *, unsigned long *); int cudaMemset(void *, int, unsigned long);
int rows(char *out) {
    void *pinned;
    unsigned long before, after, total, size = 0;
    cudaMemGetInfo(&before, &total); cudaMallocHost(&pinned, 12); cudaMemGetInfo(&after, &total);
    cudaMemset2D(pinned, 4, 1, 3, 3); cudaMemset2D(pinned, 4, 2, 2, 2);
    int code = cudaMemcpy2D(out, 3, pinned, 4, 3, 3, 4);
    cudaGetSymbolSize(&size, &offset);
    return code + cudaFreeHost(pinned) + (cudaMemcpy2D(out, 2, out, 4, 3, 1, 0) != 1) + (before - after != 12)
        + (size != 4) + (cudaMemcpy(out, out, 1, 7) != 21) + (cudaMemcpy(0, out, 1, 1) != 1)
        + (cudaMemset(0, 1, 1) != 1) + (cudaMemset2D(0, 1, 1, 1, 1) != 1)
        + (cudaMemcpy2D(out, 4, 0, 4, 1, 1, 1) != 1) + cudaMemcpy(0, 0, 0, 4);
}
int cudaGetDeviceProperties(char *, int);
int named(char *out) { return cudaGetDeviceProperties(out, 0) + (cudaGetDeviceProperties(out, 1) != 101); }
char *cudaGetErrorString(int);
int text(char **out) { out[0] = cudaGetErrorString(0); out[1] = cudaGetErrorString(719); return 0; }
int cudaDriverGetVersion(int *);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *);
int columns(void *map, void *tensor) {
    int (*encode)(void *, int, unsigned, void *, const unsigned long *, const unsigned long *, const int *, const int *,
                  unsigned, unsigned, const unsigned *, int, int, int, int) = 0;
    int version = 0, unknown = 0;
    void *none = 0;
    const unsigned long dims[] = {64, 10, 12, 5}, strides[] = {128, 1280, 15360};
    const int lower[] = {-1, -2}, upper[] = {-3, 1};
    const unsigned steps[] = {1, 2, 3, 1};
    cudaDriverGetVersion(&version);
    cudaGetDriverEntryPoint("cuTensorMapNever", &none, 0, &unknown);
    cudaGetDriverEntryPoint("cuTensorMapEncodeIm2col", (void **)&encode, 0, 0);
    if (version < 12000 || none || !unknown || !encode) return 1;
    return encode(map, 6, 4, tensor, dims, strides, lower, upper, 32, 128, steps, 0, 2, 2, 0);
}
int multiprocessors(void) {
    int count = 0;
    cudaDeviceGetAttribute(&count, 16, 0);
    return count;
}
"""


def built(folder, name, source):
    (folder / f"{name}.c").write_text(source)
    made = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", f"{folder / name}.c", "-o", made], check=True)
    return made


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return load_cuda_library(built(tmp_path_factory.mktemp("host"), "host", _C), _PTX)


def test_a_process_with_a_library_ends_in_peace(tmp_path):
    """Calls of nvcc's host code at exit are harmless after Python has ended."""
    made = built(tmp_path, "host", _C)
    (tmp_path / "empty.ptx").write_text(_PTX)
    script = f"""
from cutepy.frontends.cuda_runtime import load_cuda_library
load_cuda_library({str(made)!r}, open({str(tmp_path / "empty.ptx")!r}).read())"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_launches_memory_and_variables(library):
    out = np.zeros(100, np.int32)
    with cutepy.simulate() as run:
        assert library.call("filled", out, 100, 40) == 0
    np.testing.assert_array_equal(out, np.arange(100) + 40)
    assert [(launch.kernel, launch.grid) for launch in run.launches] == [("fill", (4, 1, 1))]


def test_attributes_of_launches(library):
    out = np.zeros(8, np.int32)
    assert library.call("ranked", out, 8, 4) == 0
    np.testing.assert_array_equal(out, [0, 1, 2, 3] * 2)


def test_tensor_maps_of_im2col_mode(library):
    words, tensor = np.zeros(32, np.uint64), 0x7F00_0000_1000
    target = words[-words.ctypes.data % 64 // 8 :][:16]
    assert library.call("columns", target, tensor) == 0
    strides, corners = (128, 1280, 15360), ((-1, -2), (-3, 1))
    options = {"global_address": tensor, "element_strides": (1, 2, 3, 1), "swizzle": "SW64"}
    expected = Im2colTensorMap("f16", (64, 10, 12, 5), strides, *corners, 32, 128, **options)
    assert target[:8].tolist() == list(expected.encode())


def test_the_device_is_an_h200(library):
    assert library.call("multiprocessors") == 132


def test_errors_of_kernels_reach_python(library):
    with refuses(MemoryAccessError):
        library.call("ranked", np.zeros(2, np.int32), 8, 1)
    test_attributes_of_launches(library)


def test_modules_are_told_apart(library, tmp_path):
    other = load_cuda_library(
        built(tmp_path, "other", _C), _PTX.replace("add.u32 %r4, %r4, %r0", "sub.u32 %r4, %r4, %r0")
    )
    for one, sign in ((library, 1), (other, -1)):
        out = np.zeros(40, np.int32)
        assert one.call("filled", out, 40, 7) == 0
        np.testing.assert_array_equal(out, 7 + sign * np.arange(40))


def test_attributes_of_kernels(library):
    """Registers are those that ptxas takes."""
    out = np.zeros(7, np.int64)
    assert library.call("described", out) == 0
    assert out.tolist()[:2] + out.tolist()[3:] == [256, 1024, 90, 90, 0, 48 * 1024 - 256]
    assert 0 < out[2] <= 64


@pytest.mark.parametrize(
    ("threads", "smem", "cluster", "blocks", "clusters"),
    [(128, 0, 1, 16, 1056), (128, 30000, 2, 7, 462), (1024, 0, 4, 2, 66), (512, 100000, 8, 2, 33), (2048, 0, 1, 0, 0)],
)
def test_occupancy_of_kernels(library, threads, smem, cluster, blocks, clusters):
    """As an H200 answers, but for the SMs that its GPCs leave over: 62 and 30 clusters of 4 and 8."""
    out = np.zeros(3, np.int32)
    assert library.call("occupied", out, threads, smem, cluster) == 0
    assert out.tolist() == [blocks, clusters, 1]


def test_registers_and_local_memory_are_those_of_the_kernel(library, monkeypatch):
    resources = [
        SimpleNamespace(name=name, registers=n, frame_bytes=8 * n) for name, n in (("ranks", 12), ("fill", 20))
    ]
    calls = "cutepy.frontends.kernel_handles.ask_ptxas"
    for listed in (resources, resources[::-1]):
        monkeypatch.setattr(calls, lambda ptx, listed=listed: SimpleNamespace(resources=listed))
        out = np.zeros(7, np.int64)
        assert library.call("described", out) == 0
        assert (out[2], out[5]) == (12, 96)


def test_unknown_registers_are_as_many_as_a_thread_of_so_large_a_cta_can_have(library, monkeypatch):
    monkeypatch.setattr("cutepy.frontends.kernel_handles.ask_ptxas", lambda ptx: None)
    out = np.zeros(7, np.int64)
    assert library.call("described", out) == 0
    assert out.tolist() == [256, 1024, 64, 90, 90, 0, 48 * 1024 - 256]


def test_events_streams_and_functions_of_the_host(library):
    out, milliseconds = np.zeros(2, np.int32), np.zeros(1, np.float32)
    assert library.call("timed", out, milliseconds) == 0
    assert out.tolist() == [0, 42]
    assert 0 < milliseconds[0] < 60_000


def test_copies_of_rows_and_pinned_memory(library):
    out = np.zeros((3, 3), np.int8)
    assert library.call("rows", out) == 0
    assert out.tolist() == [[2, 2, 1], [2, 2, 1], [1, 1, 1]]


def test_properties_of_the_device(library):
    """At the offsets of CUDA 13's cudaDeviceProp."""
    out = np.zeros(1008, np.int8)
    assert library.call("named", out) == 0
    assert out.tobytes().startswith(b"NVIDIA H200\0")
    words = out.view(np.int32)
    assert words[324 // 4 :][:6].tolist() == [1024, 1024, 64, 2**31 - 1, 65535, 65535]
    assert words[[384 // 4, 672 // 4, 748 // 4]].tolist() == [132, 227 * 1024, 1]


def test_texts_of_errors(library):
    out = np.zeros(2, np.uint64)
    assert library.call("text", out) == 0
    assert [ctypes.string_at(int(address)) for address in out] == [b"no error", b"see the Python exception"]


def test_what_is_not_served_is_named_when_it_is_called(tmp_path):
    source = """int cudaGraphLaunch(void *, void *); int cublasCreate_v2(void *); int fine(void) { return 0; }
    int f(void) { return cudaGraphLaunch(0, 0); } int g(void) { return cublasCreate_v2(0); }"""
    library = load_cuda_library(built(tmp_path, "graphs", source), _PTX)
    assert library.call("fine") == 0
    for function in ("f", "g"):
        with refuses(NotImplementedError):
            library.call(function)


def test_other_missing_functions_end_the_loading(tmp_path):
    source = "int elsewhere(void); int f(void) { return elsewhere(); }"
    with pytest.raises(OSError, match="undefined symbol: elsewhere"):
        load_cuda_library(built(tmp_path, "missing", source), _PTX)
