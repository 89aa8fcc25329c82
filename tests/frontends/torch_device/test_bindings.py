"""The calls of cuda.bindings and of the DSL's HardwareInfo, served."""

import ctypes

import cutlass
import numpy as np
import pytest
import torch
from cuda.bindings import driver, runtime

from cutepy.frontends.torch_device import NotServedError, serve_cuda

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
    with pytest.raises(NotServedError, match="no memory of the cuda device"):
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
    with pytest.raises(NotServedError, match=rf"cuda\.bindings\.driver\.{name} is not served"):
        getattr(driver, name)(b"")


def test_unknown_attributes_raise_by_name():
    with pytest.raises(NotServedError, match="TEXTURE1D"):
        driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 0)
