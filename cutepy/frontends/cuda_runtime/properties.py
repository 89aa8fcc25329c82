"""Device properties and error texts of the CUDA runtime: the device is an H200."""

from __future__ import annotations

import ctypes

from cutepy.frontends.cuda_runtime.streams import put
from cutepy.runtime import devices
from cutepy.runtime.host_calls import INVALID_DEVICE

_PROPERTIES = (
    "name:256 uuid:16 luid:8 luidDeviceNodeMask totalGlobalMem=l sharedMemPerBlock=l regsPerBlock warpSize memPitch=l "
    "maxThreadsPerBlock maxThreadsDim:12 maxGridSize:12 totalConstMem=l major minor textureAlignment=l "
    "texturePitchAlignment=l multiProcessorCount integrated canMapHostMemory textures:156 surfaceAlignment=l "
    "concurrentKernels ECCEnabled pciBusID pciDeviceID pciDomainID tccDriver asyncEngineCount unifiedAddressing "
    "memoryBusWidth l2CacheSize persistingL2CacheMaxSize maxThreadsPerMultiProcessor streamPrioritiesSupported "
    "globalL1CacheSupported localL1CacheSupported sharedMemPerMultiprocessor=l regsPerMultiprocessor managedMemory "
    "isMultiGpuBoard multiGpuBoardGroupID hostNativeAtomicSupported pageableMemoryAccess concurrentManagedAccess "
    "computePreemptionSupported canUseHostPointerForRegisteredMem cooperativeLaunch sharedMemPerBlockOptin=l "
    "pageableMemoryAccessUsesHostPageTables directManagedMemAccessFromHost maxBlocksPerMultiProcessor "
    "accessPolicyMaxWindowSize reservedSharedMemPerBlock=l hostRegisterSupported sparseCudaArraySupported "
    "hostRegisterReadOnlySupported timelineSemaphoreInteropSupported memoryPoolsSupported gpuDirectRDMASupported "
    "gpuDirectRDMAFlushWritesOptions gpuDirectRDMAWritesOrdering memoryPoolSupportedHandleTypes "
    "deferredMappingCudaArraySupported ipcEventSupported clusterLaunch rest:256"
)
"""`cudaDeviceProp` of CUDA 13: ints, what has 64 bits, and bytes."""


def _field(text: str) -> tuple[str, type]:
    name, _, count = text.partition(":")
    if count:
        return name, ctypes.c_char * int(count)
    name, _, wide = text.partition("=")
    return name, ctypes.c_uint64 if wide else ctypes.c_int32


class _Properties(ctypes.Structure):
    _fields_ = [_field(text) for text in _PROPERTIES.split()]


def device_properties() -> bytes:
    """Return a `cudaDeviceProp` with the values of `torch.cuda.get_device_properties` and of the attributes."""
    found = _Properties()
    device = devices.device()
    of = device.attributes
    values = {
        "name": device.name.encode(), "uuid": devices.UUID, "totalGlobalMem": device.total_bytes,
        "sharedMemPerBlock": of[8],
        "regsPerBlock": of[12], "warpSize": of[10], "memPitch": of[11], "maxThreadsPerBlock": of[1],
        "totalConstMem": of[9], "major": of[75], "minor": of[76], "textureAlignment": of[14],
        "texturePitchAlignment": of[51], "multiProcessorCount": of[16], "integrated": of[18],
        "canMapHostMemory": of[19], "surfaceAlignment": of[30], "concurrentKernels": of[31], "ECCEnabled": of[32],
        "asyncEngineCount": of[40], "unifiedAddressing": of[41], "memoryBusWidth": of[37], "l2CacheSize": of[38],
        "persistingL2CacheMaxSize": of[108], "maxThreadsPerMultiProcessor": of[39],
        "streamPrioritiesSupported": of[78], "globalL1CacheSupported": of[79], "localL1CacheSupported": of[80],
        "sharedMemPerMultiprocessor": of[81], "regsPerMultiprocessor": of[82], "managedMemory": of[83],
        "concurrentManagedAccess": of[89], "computePreemptionSupported": of[90],
        "canUseHostPointerForRegisteredMem": of[91], "cooperativeLaunch": of[95], "sharedMemPerBlockOptin": of[97],
        "maxBlocksPerMultiProcessor": of[106], "accessPolicyMaxWindowSize": of[109],
        "reservedSharedMemPerBlock": of[111], "hostRegisterSupported": of[99], "sparseCudaArraySupported": of[112],
        "hostRegisterReadOnlySupported": of[113], "timelineSemaphoreInteropSupported": of[114],
        "memoryPoolsSupported": of[115], "gpuDirectRDMASupported": of[116],
        "gpuDirectRDMAFlushWritesOptions": of[117], "gpuDirectRDMAWritesOrdering": of[118],
        "memoryPoolSupportedHandleTypes": of[119], "deferredMappingCudaArraySupported": of[121],
        "ipcEventSupported": of[125], "clusterLaunch": of[120],
    }  # fmt: skip
    for name, value in values.items():
        setattr(found, name, value)
    for name, first in (("maxThreadsDim", 2), ("maxGridSize", 5)):
        extents = (ctypes.c_int32 * 3)(*(of[first + n] for n in range(3)))
        ctypes.memmove(ctypes.addressof(found) + getattr(_Properties, name).offset, extents, 12)
    return bytes(found)


class DeviceCalls:
    """Properties of the device."""

    _texts = ctypes.create_string_buffer(b"no error"), ctypes.create_string_buffer(b"see the Python exception")

    def do_cudaGetDeviceProperties(self, properties: int, device: int) -> int:
        """Return the values of `torch.cuda.get_device_properties` and of the attributes."""
        if device:
            return INVALID_DEVICE
        image = device_properties()
        ctypes.memmove(properties, image, len(image))
        return 0

    def do_cudaDriverGetVersion(self, version: int) -> int:
        """Answer with the version of CUDA."""
        return put(version, devices.DRIVER_VERSION, ctypes.c_int32)

    do_cudaRuntimeGetVersion = do_cudaDriverGetVersion

    def do_cudaFuncSetCacheConfig(self, *_: object) -> int:
        """Do nothing: there are no caches."""
        return 0

    do_cudaDeviceSetCacheConfig = do_cudaFuncSetCacheConfig

    def do_cudaGetErrorString(self, code: int) -> int:
        """Refer to the exception that names the error."""
        return ctypes.addressof(self._texts[code != 0])

    do_cudaGetErrorName = do_cudaGetErrorString
