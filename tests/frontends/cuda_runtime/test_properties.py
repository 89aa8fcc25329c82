"""Properties of the device in the runtime's structure, against its attributes by the names that CUDA gives them."""

import ctypes

import pytest

from cutepy.frontends.cuda_runtime.properties import DeviceCalls, _Properties
from cutepy.runtime import devices

runtime = pytest.importorskip("cuda.bindings.runtime")

SAME = {
    "sharedMemPerBlock": "MaxSharedMemoryPerBlock",
    "regsPerBlock": "MaxRegistersPerBlock",
    "warpSize": "WarpSize",
    "maxThreadsPerBlock": "MaxThreadsPerBlock",
    "totalConstMem": "TotalConstantMemory",
    "major": "ComputeCapabilityMajor",
    "minor": "ComputeCapabilityMinor",
    "multiProcessorCount": "MultiProcessorCount",
    "unifiedAddressing": "UnifiedAddressing",
    "memoryBusWidth": "GlobalMemoryBusWidth",
    "l2CacheSize": "L2CacheSize",
    "maxThreadsPerMultiProcessor": "MaxThreadsPerMultiProcessor",
    "sharedMemPerMultiprocessor": "MaxSharedMemoryPerMultiprocessor",
    "regsPerMultiprocessor": "MaxRegistersPerMultiprocessor",
    "cooperativeLaunch": "CooperativeLaunch",
    "sharedMemPerBlockOptin": "MaxSharedMemoryPerBlockOptin",
    "maxBlocksPerMultiProcessor": "MaxBlocksPerMultiprocessor",
    "reservedSharedMemPerBlock": "ReservedSharedMemoryPerBlock",
    "clusterLaunch": "ClusterLaunch",
}
AXES = {"maxThreadsDim": "MaxBlockDim", "maxGridSize": "MaxGridDim"}
SUPPORTED = [
    "canMapHostMemory", "concurrentKernels", "streamPrioritiesSupported", "globalL1CacheSupported",
    "localL1CacheSupported", "managedMemory", "memoryPoolsSupported",
]  # fmt: skip


def attribute(name):
    return devices.H200.attributes[int(getattr(runtime.cudaDeviceAttr, f"cudaDevAttr{name}"))]


def test_properties_are_what_the_attributes_say():
    memory = ctypes.create_string_buffer(ctypes.sizeof(_Properties))
    assert DeviceCalls().do_cudaGetDeviceProperties(ctypes.addressof(memory), 0) == 0
    found = _Properties.from_buffer(memory)
    assert {name: getattr(found, name) for name in SAME} == {name: attribute(other) for name, other in SAME.items()}
    assert [getattr(found, name) for name in SUPPORTED] == [1] * len(SUPPORTED)
    for name, other in AXES.items():
        extents = (ctypes.c_int32 * 3).from_buffer(memory, getattr(_Properties, name).offset)
        assert list(extents) == [attribute(other + axis) for axis in "XYZ"]
    assert (found.memPitch, found.textureAlignment, found.surfaceAlignment) == (2**31 - 1, 512, 512)
    assert found.texturePitchAlignment == 32
