"""The functions of the CUDA runtime and driver that are served, and their parameters."""

from __future__ import annotations

import re

DRIVER = {
    "cuTensorMapEncodeTiled": "piipppppiiii",
    "cuTensorMapEncodeIm2col": "piipppppiipiiii",
    "cuTensorMapReplaceAddress": "pp",
}
"""The functions of the driver that host code may ask for."""

_SERVED = """
    __cudaRegisterFatBinary(p) __cudaRegisterFatBinaryEnd(p) __cudaUnregisterFatBinary(p) __cudaInitModule(p)
    __cudaRegisterFunction(ppppipppppp) __cudaRegisterVar(ppppilii) __cudaPushCallConfiguration(lililp)
    __cudaPopCallConfiguration(pppp) __cudaGetKernel(pp) __cudaLaunchKernel(pliliplp)
    cudaLaunchKernel(pliliplp) cudaLaunchKernelExC(ppp) cudaLaunchCooperativeKernel(pliliplp) cudaLaunchHostFunc(ppp)
    cudaFuncGetAttributes(pp) cudaFuncSetAttribute(pii) cudaFuncSetCacheConfig(pi)
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(ppil) cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(ppili)
    cudaOccupancyMaxActiveClusters(ppp)
    cudaMalloc(pl) cudaMallocAsync(plp) cudaMallocPitch(ppll) cudaMallocFromPoolAsync(plpp) cudaMallocManaged(pli)
    cudaMallocHost(pl) cudaHostAlloc(pli) cudaFree(p) cudaFreeAsync(pp) cudaFreeHost(p)
    cudaMemcpy(ppli) cudaMemcpyAsync(pplip) cudaMemcpy2D(plpllli) cudaMemcpy2DAsync(plplllip) cudaMemset(pil)
    cudaMemsetAsync(pilp) cudaMemset2D(plill) cudaMemset2DAsync(plillp) cudaMemcpyToSymbol(pplli)
    cudaMemcpyToSymbolAsync(ppllip) cudaMemcpyFromSymbol(pplli) cudaMemcpyFromSymbolAsync(ppllip)
    cudaGetSymbolAddress(pp) cudaGetSymbolSize(pp) cudaMemGetInfo(pp)
    cudaDeviceGetDefaultMemPool(pi) cudaDeviceGetMemPool(pi) cudaMemPoolSetAttribute(pip) cudaMemPoolTrimTo(pl)
    cudaGetDevice(p) cudaSetDevice(i) cudaGetDeviceCount(p) cudaGetDeviceProperties(pi) cudaDeviceGetAttribute(pii)
    cudaDeviceGetStreamPriorityRange(pp) cudaDeviceSetCacheConfig(i) cudaDeviceReset() cudaDeviceSynchronize()
    cudaDriverGetVersion(p) cudaRuntimeGetVersion(p) cudaGetDriverEntryPoint(pplp)
    cudaGetDriverEntryPointByVersion(ppilp)
    cudaStreamCreate(p) cudaStreamCreateWithFlags(pi) cudaStreamCreateWithPriority(pii) cudaStreamDestroy(p)
    cudaStreamSynchronize(p) cudaStreamQuery(p) cudaStreamWaitEvent(ppi) cudaStreamIsCapturing(pp)
    cudaEventCreate(p) cudaEventCreateWithFlags(pi) cudaEventDestroy(p) cudaEventRecord(pp)
    cudaEventRecordWithFlags(ppi) cudaEventQuery(p) cudaEventSynchronize(p) cudaEventElapsedTime(ppp)
    cudaGetLastError() cudaPeekAtLastError() cudaGetErrorString(i) cudaGetErrorName(i)
"""
_REFUSED = """
    cudaCreateChannelDesc cudaMallocArray cudaMalloc3DArray cudaFreeArray cudaMemcpy2DToArray cudaMemcpy2DToArrayAsync
    cudaMemcpy2DFromArray cudaMemcpy2DFromArrayAsync cudaMemcpy3D cudaMemcpy3DAsync cudaCreateTextureObject
    cudaDestroyTextureObject cudaCreateSurfaceObject cudaDestroySurfaceObject
"""
SIGNATURES = {
    **DRIVER,
    **dict(re.findall(r"(\w+)\((\w*)\)", _SERVED)),
    **dict.fromkeys(_REFUSED.split(), ""),
}
"""Parameters of each function: pointers (p), ints (i) and 64-bit integers (l). A dim3 is one of 64 and one of 32 bits.

CUDA arrays, textures and surfaces are not served: a call of these functions fails by name.
"""

POINTER_RESULTS = ("__cudaRegisterFatBinary", "cudaGetErrorString", "cudaGetErrorName")
"""Functions that return a pointer instead of an error code; they can't fail."""
