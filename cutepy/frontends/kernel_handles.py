"""Handles of loaded kernels and modules, and the answers to CUDA's questions about them.

CUDA's CUfunction, CUkernel and cudaKernel_t are one handle here, and so are CUmodule, CUlibrary and cudaLibrary_t.

References
----------
CUDA Driver API, "Execution Control", "Occupancy"; `cuda_occupancy.h`. The answers were compared with those of an H200
(driver 13.0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from cutepy.binaries.cubin import KernelResources
from cutepy.frontends.assembler import ask_ptxas
from cutepy.layouts.sm90.arch import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_CTA,
    REGISTERS_PER_SM,
    WARP_THREADS,
)
from cutepy.runtime import devices
from cutepy.sim.machine.launch import static_smem_bytes
from cutepy.sim.machine.loaded_module import LoadedModule

_CLUSTERS_PER_SM = 8
"""CTAs of clusters that an H200's SM holds, where fewer threads and less shared memory would allow more."""
_MOST_PORTABLE, _MOST_CTAS = 8, 16
"""CTAs of a cluster on every GPU of compute capability 9.0 or newer, and on a Hopper if the kernel allows it."""

MAX_DYNAMIC_SMEM, CARVEOUT, NON_PORTABLE_CLUSTER, SCHEDULING_POLICY = 8, 9, 14, 15
"""Attributes of functions that can be set, `CUfunction_attribute`."""
_CARVEOUTS, _POLICIES = range(-1, 101), range(3)
FUNCTION_ATTRIBUTES = {
    "sharedSizeBytes": 1,
    "constSizeBytes": 2,
    "localSizeBytes": 3,
    "maxThreadsPerBlock": 0,
    "numRegs": 4,
    "ptxVersion": 5,
    "binaryVersion": 6,
    "cacheModeCA": 7,
    "maxDynamicSharedSizeBytes": MAX_DYNAMIC_SMEM,
    "preferredShmemCarveout": CARVEOUT,
    "clusterDimMustBeSet": 10,
    "requiredClusterWidth": 11,
    "requiredClusterHeight": 12,
    "requiredClusterDepth": 13,
    "clusterSchedulingPolicyPreference": SCHEDULING_POLICY,
    "nonPortableClusterSizeAllowed": NON_PORTABLE_CLUSTER,
}
"""Fields of `cudaFuncAttributes`, and their numbers in `CUfunction_attribute`."""


class HandleError(ValueError):
    """Error of a question about a handle or value that CUDA does not know.

    Attributes
    ----------
    code : int
        CUDA's error code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error {code}")
        self.code = code


INVALID_VALUE, UNSUPPORTED_LIMIT, INVALID_HANDLE, NOT_FOUND = 1, 215, 400, 500


@dataclass(eq=False)
class LoadedKernel:
    """A kernel of a loaded module, as CUDA describes it.

    Parameters
    ----------
    module : LoadedModule
    name : str
    assembled : KernelResources, optional
        Resources of the machine code, where they are known. Default: those of ptxas.
    """

    module: LoadedModule
    name: str
    assembled: KernelResources | None = None
    _settings: dict[int, int] = field(default_factory=dict)

    @property
    def resources(self) -> KernelResources | None:
        """Resources of the machine code; None without an assembler."""
        if self.assembled is not None:
            return self.assembled
        assembly = ask_ptxas(self.module.ptx)
        found = () if assembly is None else assembly.resources
        return next((kernel for kernel in found if kernel.name == self.name), None)

    @property
    def static_smem_bytes(self) -> int:
        """Shared memory that the kernel declares."""
        return static_smem_bytes(self.module, self.name)

    @property
    def max_threads(self) -> int:
        """The most threads of a CTA."""
        threads = self.module.entry(self.name).directives.get("maxntid", (MAX_THREADS_PER_CTA,))
        return min(math.prod(threads), MAX_THREADS_PER_CTA)

    @property
    def registers(self) -> int:
        """Registers of a thread; without an assembler, as many as its largest CTA can have."""
        if self.resources is not None:
            return self.resources.registers
        return min(MAX_REGISTERS_PER_THREAD, REGISTERS_PER_SM // self.max_threads)

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread; 0 without an assembler."""
        return 0 if self.resources is None else self.resources.frame_bytes

    @property
    def max_dynamic_smem_bytes(self) -> int:
        """The most dynamic shared memory that a launch may have, until it is set."""
        return self._settings.get(MAX_DYNAMIC_SMEM, max(devices.DEFAULT_SMEM_BYTES_PER_CTA - self.static_smem_bytes, 0))

    def attribute(self, number: int) -> int:
        """Return one of `CUfunction_attribute`.

        Raises
        ------
        HandleError
            If no attribute has this number.
        """
        generation = 10 * devices.device().capability[0] + devices.device().capability[1]
        cluster = self.module.entry(self.name).directives.get("reqnctapercluster", ())
        width, height, depth = (*cluster, *(1,) * (3 - len(cluster))) if cluster else (0, 0, 0)
        known: dict[int, Callable[[], int]] = {
            0: lambda: self.max_threads,
            1: lambda: self.static_smem_bytes,
            2: lambda: 0,  # bytes of constant memory that the kernel declares itself
            3: lambda: self.local_bytes,
            4: lambda: self.registers,
            5: lambda: generation,  # of the PTX
            6: lambda: generation,  # of the machine code
            7: lambda: 0,  # whether its global loads are cached in L1, by an option of the assembler
            MAX_DYNAMIC_SMEM: lambda: self.max_dynamic_smem_bytes,
            CARVEOUT: lambda: self._settings.get(CARVEOUT, -1),
            10: lambda: int(bool(cluster)),
            11: lambda: width,
            12: lambda: height,
            13: lambda: depth,
            NON_PORTABLE_CLUSTER: lambda: self._settings.get(NON_PORTABLE_CLUSTER, 0),
            SCHEDULING_POLICY: lambda: self._settings.get(SCHEDULING_POLICY, 0),
        }
        if number not in known:
            raise HandleError(INVALID_VALUE)
        return known[number]()

    def set_attribute(self, number: int, value: int) -> None:
        """Set one of `CUfunction_attribute`.

        Raises
        ------
        HandleError
            If it can't be set, or to that value.
        """
        allowed = {
            MAX_DYNAMIC_SMEM: range(devices.device().smem_bytes_per_cta - self.static_smem_bytes + 1),
            CARVEOUT: _CARVEOUTS,
            NON_PORTABLE_CLUSTER: range(2),
            SCHEDULING_POLICY: _POLICIES,
        }
        if value not in allowed.get(number, ()):
            raise HandleError(INVALID_VALUE)
        self._settings[number] = value

    def ctas_per_sm(self, threads: int, smem_bytes: int) -> int:
        """Return the CTAs that an SM holds at a time; 0 where the kernel can't be launched so.

        Parameters
        ----------
        threads : int
            Threads of a CTA.
        smem_bytes : int
            Dynamic shared memory of a CTA.

        Raises
        ------
        HandleError
            If `threads` is less than 1 or `smem_bytes` is negative.
        """
        if threads < 1 or smem_bytes < 0:
            raise HandleError(INVALID_VALUE)
        if smem_bytes > self.max_dynamic_smem_bytes:
            return 0
        return devices.device().resident_ctas(self.registers, threads, self.static_smem_bytes + smem_bytes)

    def active_clusters(self, threads: int, smem_bytes: int, cluster_size: int) -> int:
        """Return the clusters that the GPU holds at a time, as if no GPC left an SM unused."""
        if not 1 <= cluster_size <= _MOST_CTAS:
            return 0
        ctas = min(self.ctas_per_sm(threads, smem_bytes), _CLUSTERS_PER_SM)
        return ctas * devices.device().attributes[16] // cluster_size

    def largest_cluster(self, threads: int, smem_bytes: int) -> int:
        """Return the most CTAs of a cluster."""
        if not self.ctas_per_sm(threads, smem_bytes):
            return 0
        return _MOST_CTAS if self.attribute(NON_PORTABLE_CLUSTER) else _MOST_PORTABLE

    def best_block(self, smem_bytes: Callable[[int], int], limit: int) -> tuple[int, int]:
        """Return the CTAs that fill the GPU and the threads of each, with the most threads at a time.

        Parameters
        ----------
        smem_bytes : callable
            Threads of a CTA -> its dynamic shared memory.
        limit : int
            The most threads of a CTA; 0: as many as the kernel may have.
        """
        most = min(limit or self.max_threads, self.max_threads)
        blocks, threads = 0, 0
        for rounded in range(-(-most // WARP_THREADS) * WARP_THREADS, 0, -WARP_THREADS):
            tried = min(most, rounded)
            held = self.ctas_per_sm(tried, smem_bytes(tried))
            if held * tried > blocks * threads:
                blocks, threads = held, tried
        return blocks * devices.device().attributes[16], threads

    def available_smem_bytes(self, ctas: int, threads: int) -> int:
        """Return the dynamic shared memory that each CTA may have, for a given number of CTAs on an SM."""
        if ctas < 1 or threads < 1:
            raise HandleError(INVALID_VALUE)
        each = devices.device().smem_bytes_per_sm // ctas // 128 * 128 - self.static_smem_bytes
        return max(0, min(each, self.max_dynamic_smem_bytes))

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """Offset and size of each parameter, in bytes."""
        placed, end = [], 0
        for parameter in self.module.entry(self.name).parameters:
            start = -(-end // parameter.alignment) * parameter.alignment
            end = start + parameter.size_bytes
            placed.append((start, parameter.size_bytes))
        return tuple(placed)


_numbers = count(0x1000, 0x10)
_kernels: dict[int, LoadedKernel] = {}
_modules: dict[int, LoadedModule] = {}
_handles: dict[tuple[int, str], int] = {}
"""Handle of each kernel that was asked for, by its module's handle and its name."""


def handle_of_kernel(kernel: LoadedKernel) -> int:
    """Give a kernel a handle, by which `kernel_of` finds it."""
    handle = next(_numbers)
    _kernels[handle] = kernel
    return handle


def handle_of_module(module: LoadedModule) -> int:
    """Return the handle of a module, the same each time."""
    for handle, known in _modules.items():
        if known is module:
            return handle
    handle = next(_numbers)
    _modules[handle] = module
    return handle


def kernel_of(handle: object) -> LoadedKernel:
    """Return the kernel of a handle: an integer, or the wrapper of CUDA's bindings.

    Raises
    ------
    HandleError
        If it is no kernel's.
    """
    found = _kernels.get(int(handle))  # type: ignore[call-overload]
    if found is None:
        raise HandleError(INVALID_HANDLE)
    return found


def module_of(handle: object) -> LoadedModule:
    """Return the module of a handle.

    Raises
    ------
    HandleError
        If it is no module's.
    """
    found = _modules.get(int(handle))  # type: ignore[call-overload]
    if found is None:
        raise HandleError(INVALID_HANDLE)
    return found


def find_kernel(module: object, name: bytes | str) -> int:
    """Return the handle of a module's kernel by its name, the same each time.

    Raises
    ------
    HandleError
        If the module has none of that name.
    """
    loaded, text = module_of(module), name.decode() if isinstance(name, bytes) else name
    if text not in loaded.module.functions:
        raise HandleError(NOT_FOUND)
    key = int(module), text  # type: ignore[call-overload]
    if key not in _handles:
        _handles[key] = handle_of_kernel(LoadedKernel(loaded, text))
    return _handles[key]


def find_variable(module: object, name: bytes | str) -> tuple[int, int]:
    """Return the address and the bytes of a module's variable.

    Raises
    ------
    HandleError
        If the module has none of that name.
    """
    placed = module_of(module).variables.get(name.decode() if isinstance(name, bytes) else name)
    if placed is None:
        raise HandleError(NOT_FOUND)
    return placed.address, len(placed.bytes)
