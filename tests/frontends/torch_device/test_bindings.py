"""The calls of cuda.bindings and of the DSL's HardwareInfo, served."""

import ctypes

import cutlass
import numpy as np
import pytest
import torch
from cuda.bindings import driver, runtime
from cutlass import cute

import cutepy
from cutepy.frontends.kernel_handles import LoadedKernel, handle_of_kernel
from cutepy.frontends.torch_device import NotServedError, serve_cuda
from tests.messages import refuses

pytestmark = pytest.mark.dsl


@pytest.fixture(scope="module", autouse=True)
def run():
    with serve_cuda() as run:
        yield run


def checked(result):
    assert result[0] in (driver.CUresult.CUDA_SUCCESS, runtime.cudaError_t.cudaSuccess)
    return result[1] if len(result) == 2 else result[1:]


def test_hardware_info():
    info = cutlass.utils.HardwareInfo()
    assert info.get_device_multiprocessor_count() == 132
    assert info.get_l2_cache_size_in_bytes() == torch.cuda.get_device_properties().L2_cache_size
    assert [info.get_max_active_clusters(n) for n in (1, 2, 4)] == [132, 66, 33]
    assert info.get_max_active_clusters(cluster_size=8) == 16


def test_device():
    checked(driver.cuInit(0))
    assert checked(driver.cuDeviceGetCount()) == 1 == checked(runtime.cudaGetDeviceCount())
    device = checked(driver.cuDeviceGet(0))
    major = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    assert checked(driver.cuDeviceGetAttribute(major, device)) == 9
    assert checked(driver.cuDeviceGetName(64, device)).rstrip(b"\0") == b"NVIDIA H200"


@pytest.mark.parametrize(("ending", "stream"), [("", ()), ("Async", (0,))])
def test_memory(ending, stream):
    def call(name, *args):
        return checked(getattr(driver, name + ending)(*args, *stream))

    pointer, host = call("cuMemAlloc", 64), np.zeros(16, np.int32)
    call("cuMemsetD32", pointer, 7, 16)
    call("cuMemcpyDtoH", host, pointer, 64)
    assert (host == 7).all()
    call("cuMemcpyHtoD", pointer, np.arange(16, dtype=np.int32), 64)
    assert list((ctypes.c_int32 * 16).from_address(int(pointer))) == list(range(16))
    call("cuMemFree", pointer)


def test_memset_stays_inside_of_the_device():
    pointer = checked(driver.cuMemAlloc(64))
    with refuses(NotServedError):
        driver.cuMemsetD8(pointer, 0, 1 << 40)


def test_events_and_streams():
    stream = checked(driver.cuStreamCreate(0))
    events = [checked(driver.cuEventCreate(0)) for _ in range(2)]
    for event in events:
        checked(driver.cuEventRecord(event, stream))
        checked(driver.cuEventSynchronize(event))
    assert checked(driver.cuEventElapsedTime(*events)) > 0
    over, not_over = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_NOT_READY
    asked = [driver.cuStreamQuery(stream) for _ in range(50)]
    assert set(asked) <= {(over,), (not_over,)}
    assert asked[-1] == (over,)
    assert int(driver.CUstream(torch.cuda.Stream().cuda_stream)) != int(stream)


def test_a_captured_graph_tells_how_many_nodes_it_has():
    stream, pointer = checked(driver.cuStreamCreate(0)), checked(driver.cuMemAlloc(64))
    checked(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    for _ in range(2):
        checked(driver.cuMemsetD32Async(pointer, 7, 16, stream))
    graph = checked(driver.cuStreamEndCapture(stream))
    assert checked(driver.cuGraphGetNodes(graph)) == ([], 2) == checked(runtime.cudaGraphGetNodes(graph))
    checked(driver.cuMemFree(pointer))


@pytest.mark.parametrize("name", ["cuModuleLoadData", "cuLaunchKernel", "cuTensorMapEncodeTiled"])
def test_what_is_not_served_raises_by_name(name):
    with refuses(NotServedError):
        getattr(driver, name)(b"")


def test_all_attributes_of_an_h200_are_answered():
    refused = set()
    for attribute in driver.CUdevice_attribute:
        code, value = driver.cuDeviceGetAttribute(attribute, 0)
        if code != driver.CUresult.CUDA_SUCCESS:
            assert code == driver.CUresult.CUDA_ERROR_INVALID_VALUE
            refused.add(int(attribute))
        else:
            assert isinstance(value, int)
    assert min(refused) == 148  # newer than its driver


def test_device_properties():
    found = checked(runtime.cudaGetDeviceProperties(0))
    assert (found.name, found.major, found.minor) == (b"NVIDIA H200", 9, 0)
    assert (found.multiProcessorCount, found.sharedMemPerBlockOptin, found.clusterLaunch) == (132, 232448, 1)
    assert list(found.maxThreadsDim) == [1024, 1024, 64]
    of_driver = checked(driver.cuDeviceGetProperties(0))
    assert (of_driver.maxThreadsPerBlock, of_driver.regsPerBlock, of_driver.SIMDWidth) == (1024, 65536, 32)
    numbers = {
        "maxThreadsPerBlock": 1,
        "sharedMemPerBlock": 8,
        "totalConstantMemory": 9,
        "SIMDWidth": 10,
        "memPitch": 11,
    }
    numbers |= {"regsPerBlock": 12, "clockRate": 13, "textureAlign": 14}
    answers = [checked(driver.cuDeviceGetAttribute(driver.CUdevice_attribute(n), 0)) for n in range(1, 15)]
    assert {name: getattr(of_driver, name) for name in numbers} == {name: answers[n - 1] for name, n in numbers.items()}
    assert [*of_driver.maxThreadsDim, *of_driver.maxGridSize] == answers[1:7]


RENAMED = {
    "accessPolicyMaxWindowSize": "MaxAccessPolicyWindowSize",
    "ipcEventSupported": "IpcEventSupport",
    "major": "ComputeCapabilityMajor",
    "memPitch": "MaxPitch",
    "memoryBusWidth": "GlobalMemoryBusWidth",
    "minor": "ComputeCapabilityMinor",
    "persistingL2CacheMaxSize": "MaxPersistingL2CacheSize",
    "regsPerBlock": "MaxRegistersPerBlock",
    "regsPerMultiprocessor": "MaxRegistersPerMultiprocessor",
    "reservedSharedMemPerBlock": "ReservedSharedMemoryPerBlock",
    "sharedMemPerBlock": "MaxSharedMemoryPerBlock",
    "sharedMemPerBlockOptin": "MaxSharedMemoryPerBlockOptin",
    "sharedMemPerMultiprocessor": "MaxSharedMemoryPerMultiprocessor",
    "totalConstMem": "TotalConstantMemory",
}
"""Properties whose attributes have other names."""


def test_properties_are_those_of_the_attributes():
    found = checked(runtime.cudaGetDeviceProperties(0))
    attributes = {name.removeprefix("cudaDevAttr").lower(): n for name, n in runtime.cudaDeviceAttr.__members__.items()}
    of = {name: attributes.get(RENAMED.get(name, name).lower()) for name in dir(found)}
    known = {name: checked(runtime.cudaDeviceGetAttribute(n, 0)) for name, n in of.items() if n is not None}
    unanswered = {"gpuPciDeviceID", "gpuPciSubsystemID"}  # of a device that is on no bus
    assert len(known) > 40
    assert {name: getattr(found, name) for name in known if name not in unanswered} == {
        name: value for name, value in known.items() if name not in unanswered
    }


QUESTIONS = [
    ("cuDeviceComputeCapability", (0,), (9, 0)),
    ("cuCtxGetLimit", (driver.CUlimit.CU_LIMIT_STACK_SIZE,), 1024),
    ("cuDeviceGetPCIBusId", (13, 0), b"0000:00:00.0\0"),
    ("cuDeviceGetPCIBusId", (5, 0), b"0000\0"),
    ("cuDeviceGetPCIBusId", (15, 0), b"0000:00:00.0\0\0\0"),
    ("cuDeviceCanAccessPeer", (0, 0), 0),
    ("cuDevicePrimaryCtxGetState", (0,), (0, 1)),
]


@pytest.mark.parametrize(("name", "arguments", "answer"), QUESTIONS, ids=[name for name, *_ in QUESTIONS])
def test_questions_about_the_device(name, arguments, answer):
    assert checked(getattr(driver, name)(*arguments)) == answer


@pytest.mark.parametrize(
    ("ask", "results"),
    [
        (lambda: runtime.cudaSetDevice(1), 1),
        (lambda: runtime.cudaDeviceGetAttribute(runtime.cudaDeviceAttr.cudaDevAttrWarpSize, 1), 2),
        (lambda: runtime.cudaGetDeviceProperties(device=1), 2),
        (lambda: driver.cuDeviceGet(1), 2),
        (lambda: driver.cuDeviceGet(-1), 2),
        (lambda: driver.cuDeviceGetName(20, driver.CUdevice(1)), 2),
        (lambda: driver.cuDeviceCanAccessPeer(0, 1), 2),
        (lambda: driver.cuDevicePrimaryCtxRelease(1), 1),
    ],
)
def test_a_device_beside_the_one_is_no_device(ask, results):
    answer = ask()
    assert (int(answer[0]), len(answer)) == (101, results)  # invalid device


def test_the_version_of_nccl_is_unknown_without_it():
    assert torch.cuda.nccl.version() is None


@cute.kernel
def reverse_kernel(a: cute.Tensor):
    a[cute.arch.thread_idx()[0]] = cutlass.Float32(1)


@cute.jit
def reverse(a: cute.Tensor):
    reverse_kernel(a).launch(grid=(1, 1, 1), block=(32, 1, 1))


def test_kernels_of_a_compiled_library():
    argument = cute.runtime.from_dlpack(torch.zeros(32, device="cuda"))
    compiled = cute.compile(reverse, argument)
    library = compiled.library
    assert isinstance(library, runtime.cudaLibrary_t)
    assert int(compiled.library) == int(library)
    (kernel,) = checked(runtime.cudaLibraryEnumerateKernels(9, library))
    assert isinstance(kernel, runtime.cudaKernel_t)
    name = checked(driver.cuKernelGetName(kernel))
    assert b"reverse_kernel" in name
    assert int(checked(runtime.cudaLibraryGetKernel(library, name))) == int(kernel)
    assert checked(runtime.cudaFuncGetAttributes(kernel)).maxThreadsPerBlock in (32, 1024)
    assert runtime.cudaLibraryGetKernel(library, b"none") == (runtime.cudaError_t.cudaErrorSymbolNotFound, None)
    assert compiled.to(0) is compiled
    packed = cute.compile(reverse, argument, options="--enable-tvm-ffi")
    with pytest.raises(RuntimeError, match="no cudaLibrary_t"):  # as on a GPU
        packed.library  # noqa: B018


# The PTX of which an H200 (driver 13.0) was asked what follows, and its answers.
ASKED = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry plain(.param .u64 a, .param .u32 b) {
    .shared .align 4 .b8 s[512]; .reg .b32 r; mov.u32 r, s; st.shared.u32 [r], r; ret; }
.visible .entry bounded(.param .u64 a) .maxntid 96, 1, 1 { ret; }
.visible .entry paired(.param .u64 a) .reqntid 128, 1, 1 .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }
"""
ATTRIBUTES = {
    "plain": {0: 1024, 1: 512, 2: 0, 3: 0, 5: 90, 6: 90, 7: 0, 8: 48640, 9: -1, 10: 0, 11: 0, 14: 0, 15: 0},
    "bounded": {0: 96, 1: 0, 8: 49152, 10: 0},
    "paired": {0: 1024, 1: 0, 8: 49152, 10: 1, 11: 2, 12: 1, 13: 1},
}
BLOCKS = [(128, 0, 16), (32, 0, 32), (1024, 0, 2), (2048, 0, 0), (128, 40000, 5), (128, 100000, 0), (96, 0, 21)]
BEST = {
    "plain": {(0, 0): (264, 1024), (0, 256): (1056, 256), (0, 100): (4224, 64), (40000, 256): (660, 256),
              (40000, 100): (660, 100), (100000, 0): (0, 0)},
    "bounded": {(0, 0): (4224, 64), (40000, 0): (660, 96)},
}  # fmt: skip
CLUSTERS = {(128, 0): (1056, 528), (128, 30000): (924, 462), (512, 60000): (396, 198), (1024, 0): (264, 132)}


@pytest.fixture
def asked():
    module = cutepy.load_ptx(ASKED).loaded
    return {name: driver.CUfunction(handle_of_kernel(LoadedKernel(module, name))) for name in ATTRIBUTES}


def test_attributes_of_functions(asked):
    numbers = {int(each): each for each in driver.CUfunction_attribute}
    for name, expected in ATTRIBUTES.items():
        assert {n: checked(driver.cuFuncGetAttribute(numbers[n], asked[name])) for n in expected} == expected
        assert 0 < checked(driver.cuFuncGetAttribute(numbers[4], asked[name])) <= 255
        assert checked(driver.cuFuncGetName(asked[name])) == name.encode()
    bad = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    unknown = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX
    assert driver.cuFuncGetAttribute(unknown, asked["plain"])[0] == bad
    assert driver.cuFuncGetAttribute(numbers[4], driver.CUfunction(3))[0] == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    for number, value in ((8, 240000), (4, 5), (9, 101)):
        assert driver.cuFuncSetAttribute(asked["plain"], numbers[number], value)[0] == bad
    assert checked(driver.cuFuncGetParamInfo(asked["plain"], 1)) == (8, 4)
    assert checked(driver.cuFuncGetParamCount(asked["plain"])) == 2


def test_occupancy(asked):
    kernel = asked["plain"]
    for threads, smem, blocks in BLOCKS:
        for module, prefix in ((driver, "cu"), (runtime, "cuda")):
            ask = getattr(module, f"{prefix}OccupancyMaxActiveBlocksPerMultiprocessor")
            assert checked(ask(kernel, threads, smem)) == blocks
    assert (
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 0, 0)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    )
    for name, answers in BEST.items():
        for (smem, limit), best in answers.items():
            assert checked(driver.cuOccupancyMaxPotentialBlockSize(asked[name], 0, smem, limit)) == best
    for ctas, threads, available in ((1, 128, 48640), (32, 32, 6784), (3, 100, 48640)):
        assert checked(driver.cuOccupancyAvailableDynamicSMemPerBlock(kernel, ctas, threads)) == available
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(kernel, most, 200000))
    assert checked(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 128, 100000)) == 2


def test_values_that_attributes_of_a_kernel_may_be(asked):
    names = driver.CUfunction_attribute
    carveout, policy = (
        getattr(names, f"CU_FUNC_ATTRIBUTE_{name}")
        for name in ("PREFERRED_SHARED_MEMORY_CARVEOUT", "CLUSTER_SCHEDULING_POLICY_PREFERENCE")
    )
    for attribute, taken, refused in ((carveout, (-1, 0, 100), (-2, 101)), (policy, (0, 2), (-1, 3))):
        for value in taken:
            checked(driver.cuFuncSetAttribute(asked["bounded"], attribute, value))
            assert checked(driver.cuFuncGetAttribute(attribute, asked["bounded"])) == value
        for value in refused:
            assert driver.cuFuncSetAttribute(asked["bounded"], attribute, value)[0] != driver.CUresult.CUDA_SUCCESS


def test_clusters(asked):
    for (threads, smem), (one, two) in CLUSTERS.items():
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = 2, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = smem
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(asked["bounded"], most, 200000))
        assert checked(driver.cuOccupancyMaxActiveClusters(asked["bounded"], config)) == one
        extents = attribute.value.clusterDim
        extents.x, extents.y, extents.z = 2, 1, 1
        config.attrs, config.numAttrs = [attribute], 1
        assert checked(driver.cuOccupancyMaxActiveClusters(asked["bounded"], config)) == two
        assert checked(driver.cuOccupancyMaxPotentialClusterSize(asked["bounded"], config)) == 8
