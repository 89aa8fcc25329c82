"""Maximum number of active clusters of a kernel, queried from the driver."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

from cutepy.extras import is_installed
from cutepy.runtime.cuda import check, driver, runtime
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.launch_structures import (
    CLUSTER,
    MAX_DYNAMIC_SMEM,
    NON_PORTABLE_CLUSTER,
    LaunchAttribute,
    LaunchConfig,
)

_Dim3 = tuple[int, int, int]


def max_active_clusters(
    cubin: bytes, kernel: str, block: _Dim3, cluster: _Dim3, smem_bytes: int, capability: tuple[int, int] = (9, 0)
) -> int | None:
    """Return the number of clusters the current GPU holds at a time; None without such a GPU, or simulated.

    Parameters
    ----------
    cubin : bytes
        ELF image that defines the kernel.
    kernel : str
        Its name.
    block, cluster : (int, int, int)
        Threads of a CTA, CTAs of a cluster.
    smem_bytes : int
        Dynamic shared memory of a CTA.
    capability : (int, int)
        Compute capability that the ELF image is for.

    Raises
    ------
    CudaError
        If CUDA refuses: the kernel can't be launched so.
    """
    if EXECUTION.backend is not None or not is_installed("torch"):  # a served device exists without a driver
        return None
    import torch

    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != capability:
        return None
    check(runtime().cudaSetDevice(torch.cuda.current_device()), "making the device current")
    attribute = LaunchAttribute(CLUSTER, 0, (ctypes.c_uint32 * 16)(*cluster))
    config = LaunchConfig((*cluster,), (*block,), smem_bytes, None, ctypes.pointer(attribute), 1)

    def ask(function: ctypes.c_void_p) -> int:
        clusters = ctypes.c_int32()
        asked = driver().cuOccupancyMaxActiveClusters(ctypes.byref(clusters), function, ctypes.byref(config))
        check(asked, "asking for the number of active clusters")
        return clusters.value

    limits = {MAX_DYNAMIC_SMEM: smem_bytes, NON_PORTABLE_CLUSTER: int(math.prod(cluster) > 8)}
    return _with_function(cubin, kernel, limits, ask)


def _with_function(cubin: bytes, kernel: str, limits: dict[int, int], ask: Callable[[ctypes.c_void_p], int]) -> int:
    """Load a kernel for a query, apart from the launched one, whose limits stay unchanged."""
    library, handle, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    null, none = ctypes.c_void_p(), ctypes.c_uint32(0)
    loaded = driver().cuLibraryLoadData(ctypes.byref(library), cubin, null, null, none, null, null, none)
    check(loaded, "loading the kernels")
    try:
        check(driver().cuLibraryGetKernel(ctypes.byref(handle), library, kernel.encode()), f"finding {kernel}")
        check(driver().cuKernelGetFunction(ctypes.byref(function), handle), f"loading {kernel}")
        for attribute, value in limits.items():
            check(driver().cuFuncSetAttribute(function, attribute, value), f"setting attribute {attribute}")
        return ask(function)
    finally:
        driver().cuLibraryUnload(library)
