"""Questions of `cuda.bindings` about loaded kernels, their occupancy and the device, answered as an H200 would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cutepy.frontends import kernel_handles as handles
from cutepy.frontends.cuda_runtime.properties import device_properties
from cutepy.frontends.kernel_handles import HandleError, kernel_of, module_of
from cutepy.runtime import devices

_CLUSTER = 4
"""CUlaunchAttributeID of the extents of a cluster."""

_Answers = dict[str, Callable[..., tuple[Any, ...]]]


def of_driver(module: Any, ok: Callable[..., tuple[Any, ...]]) -> _Answers:  # noqa: ANN401
    """List the answers of `cuda.bindings.driver`; `ok` puts the code of success before values."""
    function, kernel, library, loaded = module.CUfunction, module.CUkernel, module.CUlibrary, module.CUmodule
    context = module.CUcontext(1)

    def uuid(device: object) -> tuple[Any, ...]:
        found = module.CUuuid()
        found.bytes = devices.UUID
        return ok(found)

    def properties(device: object) -> tuple[Any, ...]:
        found, of = module.CUdevprop(), devices.device().attributes
        found.maxThreadsPerBlock, found.sharedMemPerBlock, found.totalConstantMemory = of[1], of[8], of[9]
        found.maxThreadsDim, found.maxGridSize = [of[n] for n in (2, 3, 4)], [of[n] for n in (5, 6, 7)]
        found.SIMDWidth, found.memPitch, found.regsPerBlock = of[10], of[11], of[12]
        found.clockRate, found.textureAlign = of[13], of[14]
        return ok(found)

    served: _Answers = {
        "cuFuncGetModule": lambda func: ok(loaded(handles.handle_of_module(kernel_of(func).module))),
        "cuFuncIsLoaded": lambda func: ok(
            *_known(kernel_of(func)), module.CUfunctionLoadingState.CU_FUNCTION_LOADING_STATE_LOADED
        ),
        "cuFuncLoad": lambda func: ok(*_known(kernel_of(func))),
        "cuKernelGetFunction": lambda kernel: ok(function(_kept(kernel))),
        "cuKernelGetLibrary": lambda kernel: ok(library(handles.handle_of_module(kernel_of(kernel).module))),
        "cuKernelGetAttribute": lambda attrib, kernel, dev=0: ok(kernel_of(kernel).attribute(int(attrib))),
        "cuKernelSetAttribute": lambda attrib, val, kernel, dev=0: ok(
            *_set(kernel_of(kernel).set_attribute, attrib, val)
        ),
        "cuKernelSetCacheConfig": lambda kernel, config, dev=0: ok(),
        "cuFuncSetCacheConfig": lambda hfunc, config: ok(),
        "cuFuncSetSharedMemConfig": lambda hfunc, config: ok(),
        "cuFuncGetAttribute": lambda attrib, hfunc: ok(kernel_of(hfunc).attribute(int(attrib))),
        "cuFuncSetAttribute": lambda hfunc, attrib, value: ok(*_set(kernel_of(hfunc).set_attribute, attrib, value)),
        "cuLibraryGetModule": lambda library: ok(loaded(handles.handle_of_module(module_of(library)))),
        "cuLibraryGetKernel": lambda library, name: ok(kernel(handles.find_kernel(library, name))),
        "cuLibraryGetKernelCount": lambda lib: ok(len(module_of(lib).module.functions)),
        "cuLibraryEnumerateKernels": lambda numKernels, lib: ok(_some(kernel, lib, numKernels)),
        "cuLibraryUnload": lambda library: ok(*_known(module_of(library))),
        "cuModuleGetFunction": lambda hmod, name: ok(function(handles.find_kernel(hmod, name))),
        "cuModuleGetFunctionCount": lambda mod: ok(len(module_of(mod).module.functions)),
        "cuModuleEnumerateFunctions": lambda numFunctions, mod: ok(_some(function, mod, numFunctions)),
        "cuOccupancyMaxActiveClusters": lambda func, config: ok(
            kernel_of(func).active_clusters(*_shape(config), _cluster_size(config))
        ),
        "cuOccupancyMaxPotentialClusterSize": lambda func, config: ok(kernel_of(func).largest_cluster(*_shape(config))),
        "cuDeviceComputeCapability": lambda dev: ok(*devices.device().capability),
        "cuDeviceGetUuid": uuid,
        "cuDeviceGetLuid": lambda dev: ok(bytes(8), 0),
        "cuDeviceGetProperties": properties,
        "cuDeviceGetPCIBusId": lambda length, dev: ok(_padded(length)),
        "cuDeviceGetByPCIBusId": lambda pciBusId: ok(module.CUdevice(0)),
        "cuDeviceCanAccessPeer": lambda dev, peerDev: ok(0),
        "cuDevicePrimaryCtxGetState": lambda dev: ok(0, 1),
        "cuCtxGetLimit": lambda limit: ok(_limit(limit)),
        "cuCtxGetApiVersion": lambda ctx: ok(3020),
        "cuCtxGetFlags": lambda: ok(0),
        "cuCtxGetId": lambda ctx: ok(1),
        "cuCtxGetCacheConfig": lambda: ok(module.CUfunc_cache.CU_FUNC_CACHE_PREFER_NONE),
        "cuCtxPushCurrent": lambda ctx: ok(),
        "cuCtxPopCurrent": lambda: ok(context),
    }
    for kind in ("Func", "Kernel"):
        served |= {
            f"cu{kind}GetName": lambda hfunc: ok(kernel_of(hfunc).name.encode()),
            f"cu{kind}GetParamCount": lambda func: ok(len(kernel_of(func).parameters)),
            f"cu{kind}GetParamInfo": lambda func, paramIndex: ok(*_parameter(func, paramIndex)),
        }
    for owner in ("Library", "Module"):
        served[f"cu{owner}GetGlobal"] = lambda owner, name: ok(*_variable(module.CUdeviceptr, owner, name))
    return served | _of_both("cu", ok)


def of_runtime(module: Any, ok: Callable[..., tuple[Any, ...]]) -> _Answers:  # noqa: ANN401
    """List the answers of `cuda.bindings.runtime`; `ok` puts the code of success before values."""

    def attributes(func: object) -> tuple[Any, ...]:
        found, asked = module.cudaFuncAttributes(), kernel_of(func)
        for name, number in handles.FUNCTION_ATTRIBUTES.items():
            if hasattr(found, name):  # older bindings have fewer
                setattr(found, name, asked.attribute(number))
        return ok(found)

    def properties(device: int = 0) -> tuple[Any, ...]:
        found, image = module.cudaDeviceProp(), device_properties()
        ctypes.memmove(found.getPtr(), image, len(image))
        return ok(found)

    kernel = module.cudaKernel_t
    served: _Answers = {
        "cudaFuncGetAttributes": attributes,
        "cudaFuncSetAttribute": lambda func, attr, value: ok(*_set(kernel_of(func).set_attribute, attr, value)),
        "cudaFuncSetCacheConfig": lambda func, cacheConfig: ok(),
        "cudaFuncGetParamCount": lambda func: ok(len(kernel_of(func).parameters)),
        "cudaKernelSetAttributeForDevice": lambda kernel, attr, value, device=0: ok(
            *_set(kernel_of(kernel).set_attribute, attr, value)
        ),
        "cudaLibraryGetKernel": lambda library, name: ok(kernel(handles.find_kernel(library, name))),
        "cudaLibraryGetKernelCount": lambda lib: ok(len(module_of(lib).module.functions)),
        "cudaLibraryEnumerateKernels": lambda numKernels, lib: ok(_some(kernel, lib, numKernels)),
        "cudaLibraryGetGlobal": lambda library, name: ok(*_variable(int, library, name)),
        "cudaLibraryUnload": lambda library: ok(*_known(module_of(library))),
        "cudaGetDeviceProperties": properties,
        "cudaDeviceGetLimit": lambda limit: ok(_limit(limit)),
        "cudaDeviceGetPCIBusId": lambda length, device: ok(_padded(length)),
        "cudaDeviceGetByPCIBusId": lambda pciBusId: ok(0),
        "cudaDeviceCanAccessPeer": lambda device, peerDevice: ok(0),
        "cudaGetDeviceFlags": lambda: ok(0),
        "cudaSetDeviceFlags": lambda flags: ok(),
    }
    return served | _of_both("cuda", ok)


def _of_both(prefix: str, ok: Callable[..., tuple[Any, ...]]) -> _Answers:
    """List the questions about occupancy that both modules have."""

    def blocks(func: object, blockSize: int, dynamicSMemSize: int, flags: int = 0) -> tuple[Any, ...]:
        return ok(kernel_of(func).ctas_per_sm(blockSize, dynamicSMemSize))

    def potential(
        func: object,
        blockSizeToDynamicSMemSize: Any,  # noqa: ANN401
        dynamicSMemSize: int,
        blockSizeLimit: int,
        flags: int = 0,
    ) -> tuple[Any, ...]:
        return ok(*kernel_of(func).best_block(_smem_of(blockSizeToDynamicSMemSize, dynamicSMemSize), blockSizeLimit))

    served: _Answers = {
        f"{prefix}OccupancyAvailableDynamicSMemPerBlock": lambda func, numBlocks, blockSize: ok(
            kernel_of(func).available_smem_bytes(numBlocks, blockSize)
        )
    }
    for ending in ("", "WithFlags"):
        served[f"{prefix}OccupancyMaxActiveBlocksPerMultiprocessor{ending}"] = blocks
        served[f"{prefix}OccupancyMaxPotentialBlockSize{ending}"] = potential
    return served


def _smem_of(function: Any, fixed: int) -> Callable[[int], int]:  # noqa: ANN401
    """Return the shared memory of a CTA of so many threads, by a C function (`CUoccupancyB2DSize`) or fixed."""
    address = int(function or 0)
    return ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(address) if address else lambda threads: fixed


def _set(setter: Callable[[int, int], None], attribute: object, value: int) -> tuple[()]:
    setter(int(attribute), value)  # type: ignore[call-overload]
    return ()


def _known(found: object) -> tuple[()]:
    """Accept a handle whose kind is known, where no question is asked of it."""
    return ()


def _kept(handle: object) -> int:
    kernel_of(handle)
    number: int = int(handle)  # type: ignore[call-overload]
    return number


def _some(wrap: Callable[[int], object], module: object, count: int) -> list[object]:
    names = list(module_of(module).module.functions)[:count]
    return [wrap(handles.find_kernel(module, name)) for name in names]


def _variable(wrap: Callable[[int], object], module: object, name: bytes) -> tuple[object, int]:
    address, size_bytes = handles.find_variable(module, name)
    return wrap(address), size_bytes


def _parameter(kernel: object, index: int) -> tuple[int, int]:
    parameters = kernel_of(kernel).parameters
    if not 0 <= index < len(parameters):
        raise HandleError(handles.INVALID_VALUE)
    return parameters[index]


def _shape(config: Any) -> tuple[int, int]:  # noqa: ANN401
    return config.blockDimX * config.blockDimY * config.blockDimZ, config.sharedMemBytes


def _cluster_size(config: Any) -> int:  # noqa: ANN401
    for attribute in config.attrs[: config.numAttrs]:
        if int(attribute.id) == _CLUSTER:
            extents = attribute.value.clusterDim
            return int(extents.x * extents.y * extents.z)
    return 1


def _limit(limit: object) -> int:
    if int(limit) not in devices.LIMITS:  # type: ignore[call-overload]
        raise HandleError(handles.UNSUPPORTED_LIMIT)
    return devices.LIMITS[int(limit)]  # type: ignore[call-overload]


def _padded(length: int) -> bytes:
    return devices.PCI_BUS_ID.encode()[: length - 1].ljust(length, b"\0")
