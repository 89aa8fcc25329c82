"""Launches: kernel calls checked against the hardware's limits, and the order in which their CTAs may run.

References
----------
CUDA C++ Programming Guide, "Compute Capabilities": limits of 9.0. PTX ISA, "Performance-Tuning Directives".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutepy.layouts.capacity import SMEM_BYTES_PER_CTA_OF_SM120
from cutepy.layouts.sm90 import SmemPlan
from cutepy.layouts.sm90.arch import MAX_THREADS_PER_CTA, SM_COUNT, SMEM_BYTES_PER_CTA
from cutepy.layouts.sm90.occupancy import occupancy
from cutepy.sim.errors import LaunchError
from cutepy.sim.machine.lanes import Array, cluster_order
from cutepy.sim.machine.loaded_module import LoadedModule, PlacedVariable
from cutepy.sim.machine.selected_ctas import ChosenCtaError, Coordinates, in_whole_clusters
from cutepy.sim.ptx.header import parsed_target
from cutepy.sim.ptx.instruction_set import CLOCKS
from cutepy.sim.ptx.kernel_names import readable
from cutepy.sim.ptx.linking import function_addresses
from cutepy.sim.ptx.memory_order import strength
from cutepy.sim.ptx.model import Function, Module, Special, Symbol
from cutepy.sim.translate import Kernel

MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_CLUSTER = 16
_SLOT_ALIGNMENT = 1024
_PARAMETER_ALIGNMENT = 64
_WORKSPACE_BYTES = 16
"""Workspace of cooperative launches that synchronises the grid: a size and a barrier, in cooperative_groups.h."""
RESERVED_SMEM_BYTES = 1024
_SHARED_BASE = 0
"""Start of a CTA's variables. The hardware reserves the first 1024 bytes; addresses are relative to its own."""


@dataclass(frozen=True)
class KernelCall:
    """Request for a launch.

    Attributes
    ----------
    loaded : LoadedModule
        Defines the kernel.
    kernel : str
        Name of the entry function.
    grid, block : (int, int, int)
        Extents.
    cluster : (int, int, int) or None
        Extents of a cluster; None where the call has no such attribute.
    parameters : tuple of bytes
        One for each that the kernel declares.
    dynamic_smem_bytes : int
        Dynamic shared memory.
    cooperative : bool
        True if all CTAs must be resident at once.
    stream : int
        Handle of the stream.
    programmatic : bool
        True if it may begin before the kernel before it is over (programmatic stream serialization).
    early_events : tuple of int
        Handles of events that are recorded before it is over: at its beginning, or where it lets dependents begin.
    ctas : sequence of coordinates, or None
        The CTAs to run, with their clusters; None for all.
    plan : SmemPlan or None
        By which the kernel shares memory, where that is known.
    inputs : tuple of (int, int, str)
        Start, end and description of memory that it may read and not write.
    sm_count : int
        SMs of the GPU.
    """

    loaded: LoadedModule
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    parameters: tuple[bytes, ...] = field(default=(), repr=False)
    dynamic_smem_bytes: int = 0
    cooperative: bool = False
    stream: int = 0
    programmatic: bool = False
    early_events: tuple[int, ...] = ()
    ctas: Coordinates | None = None
    plan: SmemPlan | None = field(default=None, repr=False)
    inputs: tuple[tuple[int, int, str], ...] = field(default=(), repr=False)
    sm_count: int = SM_COUNT


@dataclass(repr=False)
class Launch:
    """One kernel launch.

    Attributes
    ----------
    kernel : str
        Name of the entry function, in full; `name` is its readable form.
    grid, block, cluster : (int, int, int)
    dynamic_smem_bytes, smem_bytes : int
        Dynamic shared memory, and all of it.
    parameters : dict of str to bytes
        By PTX name, byte for byte.
    stream : int
    chosen : sequence of coordinates, or None
        The CTAs that run, with their clusters; None for all.
    ptx, ptx_file : str
        The PTX, and the file that it was read from, if it was.
    seconds : float
        Time that the kernel took in the simulator, without translation.
    processes : int
        Processes that ran its CTAs.
    printf : str
        Output of the kernel's printf.
    stats : dict
        Counts of the run so far, once it has ended or was stopped.

        - instructions, instructions_*: that warps executed, all and of each class.
        - wgmma, wgmma_flops, wgmma_bytes: MMAs of a warpgroup, and the bytes that they read from shared memory.
        - tma, tma_bytes: tensor copies and the bytes of their boxes, once where several CTAs get them; bulk,
          bulk_bytes: copies of plain bytes from and to global memory.
        - l2_load_sectors, l2_load_bytes, and so for store and atomic: what the L2 cache is asked for, in sectors of 32
          bytes (`cutepy.sim.machine.activity` says what is counted).
        - splits: how often lanes of a warp parted.
        - cancel_requests, cancelled_clusters: of cluster launch control, and the clusters that others got the work of,
          which have not begun.
    instructions : Counter
        Instructions that warps executed, by the first part of their opcode.
    plan : SmemPlan or None
        By which the kernel shares memory, where that is known, as of cutepy's own products.
    number : int
        Place among the launches of the run, from 1 on: %gridid.
    sm_count : int
        SMs of the GPU.
    in_clusters : bool
        False without clusters, which differ from clusters of one CTA: st.async is an illegal instruction there.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem_bytes: int
    smem_bytes: int
    parameters: dict[str, bytes]
    stream: int = 0
    cooperative: bool = False
    programmatic: bool = False
    early_events: tuple[int, ...] = ()
    chosen: Coordinates | None = None
    ptx: str = ""
    symbols: dict[str, int] = field(default_factory=dict)
    parameter_addresses: dict[str, int] = field(default_factory=dict)
    parameter_block: Array | None = None
    variables: tuple[PlacedVariable, ...] = ()
    grid_workspace: Array | None = None
    module_memory: dict[str, Any] = field(default_factory=dict)
    ptx_file: str = ""
    seconds: float = 0.0
    processes: int = 1
    stats: dict[str, int] = field(default_factory=dict)
    printf: str = ""
    instructions: Counter[str] = field(default_factory=Counter)
    plan: SmemPlan | None = None
    sm_count: int = SM_COUNT
    in_clusters: bool = True
    number: int = 0

    def __repr__(self) -> str:
        clusters = f", cluster={self.cluster}" if self.cluster != (1, 1, 1) else ""
        return f"Launch({self.name}, grid={self.grid}, block={self.block}{clusters}, smem_bytes={self.smem_bytes})"

    @property
    def name(self) -> str:
        """The kernel's name as people read it: its function's, or the one that was chosen for it."""
        return readable(self.kernel)

    @cached_property
    def entry(self) -> Kernel:
        """The kernel, with all that is made of it."""
        return Kernel(self.ptx, self.kernel)

    @property
    def reserved_smem(self) -> tuple[int, int]:
        """Range of the system's shared memory: behind the kernel's, if the kernel asks for its address."""
        start = -(-self.smem_bytes // _PARAMETER_ALIGNMENT) * _PARAMETER_ALIGNMENT
        return (start, start + RESERVED_SMEM_BYTES) if "%reserved_smem_offset" in self.ptx else (start, self.smem_bytes)

    @property
    def slot_bytes(self) -> int:
        """Shared memory of a CTA, rounded so that swizzle patterns keep their alignment."""
        return max(_SLOT_ALIGNMENT, -(-self.reserved_smem[1] // _SLOT_ALIGNMENT) * _SLOT_ALIGNMENT)

    @property
    def ctas(self) -> int:
        """Number of CTAs in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """The linear indices of the CTAs that run, in order, those of a cluster next to each other."""
        if self.chosen is None:
            return cluster_order(self.grid, self.cluster)
        try:
            return in_whole_clusters(self.chosen, self.grid, self.cluster)
        except ChosenCtaError as error:
            raise ChosenCtaError(f"{self.name}: {error}") from None

    @property
    def windows(self) -> dict[str, list[tuple[int, int]]]:
        """The first address, and the one after the last, of each constant and of the block of parameters."""
        constants = [(v.address, v.address + len(v.bytes)) for v in self.variables if v.variable.space == "const"]
        block = self.parameter_block
        parameters = [] if block is None else [(block.ctypes.data, block.ctypes.data + len(block))]
        return {"const": constants, "param": parameters}

    @property
    def absent_ctas(self) -> int:
        """CTAs of the grid that do not run."""
        return 0 if self.chosen is None else self.ctas - len(self.order)

    @property
    def resident_ctas(self) -> int:
        """CTAs of this size that the GPU holds at once; registers, which PTX does not tell, may allow fewer."""
        x, y, z = self.block
        return self.sm_count * occupancy(0, x * y * z, self.smem_bytes).ctas_per_sm


def prepare(call: KernelCall) -> Launch:
    """Check a call against the limits of the hardware, and place the variables that the kernel names.

    Raises
    ------
    LaunchError
        If the launch would be refused.
    """
    function = call.loaded.entry(call.kernel)
    shared, static = place_shared(call.loaded.module, Kernel(call.loaded.ptx, call.kernel).function)
    launch = Launch(
        call.kernel,
        call.grid,
        call.block,
        _cluster(call, function),
        call.dynamic_smem_bytes,
        static + call.dynamic_smem_bytes,
        {p.name: data for p, data in zip(function.parameters, call.parameters, strict=True)},
        call.stream,
        call.cooperative,
        call.programmatic,
        call.early_events,
        call.ctas,
        call.loaded.ptx,
        shared,
        plan=call.plan,
        sm_count=call.sm_count,
        in_clusters=call.cluster is not None or not _CLUSTERED.isdisjoint(function.directives),
    )
    _check(launch, function, call.loaded.module.target)
    _place_parameters(launch, function)
    _place_variables(launch, call.loaded)
    return launch


_CLUSTERED = frozenset({"reqnctapercluster", "explicitcluster"})
"""Directives of kernels that are launched in clusters, with or without the launch's attribute."""


def _cluster(call: KernelCall, function: Function) -> tuple[int, int, int]:
    if call.cluster not in (None, (1, 1, 1)):
        return call.cluster
    required = (*function.directives.get("reqnctapercluster", ()), 1, 1, 1)
    return required[0], required[1], required[2]


def place_shared(module: Module, function: Function) -> tuple[dict[str, int], int]:
    """Give each shared variable its address, and where they end; dynamic shared memory follows the static."""
    variables = [v for v in (*module.variables, *function.variables) if v.space == "shared"]
    addresses, end = {}, _SHARED_BASE
    for variable in sorted(variables, key=lambda v: v.size_bytes is None):
        start = -(-end // variable.alignment) * variable.alignment
        addresses[variable.name] = start
        if variable.size_bytes is not None:
            end = start + variable.size_bytes
        elif start > end:
            end = start
    return addresses, end


def static_smem_bytes(loaded: LoadedModule, kernel: str) -> int:
    """Return how much shared memory a kernel declares."""
    return place_shared(loaded.module, Kernel(loaded.ptx, kernel).function)[1] - _SHARED_BASE


def _place_parameters(launch: Launch, function: Function) -> None:
    """Lay the parameters out in memory that kernels can take the address of: TMA descriptors are there."""
    offsets, end = {}, 0
    for parameter in function.parameters:
        alignment = max(parameter.alignment, _PARAMETER_ALIGNMENT)
        offsets[parameter.name] = -(-end // alignment) * alignment
        end = offsets[parameter.name] + parameter.size_bytes
    block = np.zeros(end + 128, np.uint8)
    base = -(-block.ctypes.data // 128) * 128
    start = base - block.ctypes.data
    for parameter in function.parameters:
        data = np.frombuffer(launch.parameters[parameter.name], np.uint8)
        at = start + offsets[parameter.name]
        block[at : at + parameter.size_bytes] = data
        launch.parameter_addresses[parameter.name] = base + offsets[parameter.name]
    launch.parameter_block = block


def _place_variables(launch: Launch, loaded: LoadedModule) -> None:
    """Give the variables and functions of the module their addresses."""
    placed = loaded.variables
    launch.variables = tuple(placed.values())
    launch.symbols |= {name: one.address for name, one in placed.items()} | function_addresses(loaded.module)
    launch.module_memory, launch.ptx_file = loaded.memory, loaded.file
    if launch.cooperative:
        launch.grid_workspace = np.zeros(_WORKSPACE_BYTES, np.uint8)


def _check(launch: Launch, function: Function, target: str) -> None:
    smem_bytes = SMEM_BYTES_PER_CTA_OF_SM120 if parsed_target(target).number // 10 == 12 else SMEM_BYTES_PER_CTA
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    name = launch.name
    if not 0 < threads <= MAX_THREADS_PER_CTA or any(b > m for b, m in zip(launch.block, MAX_BLOCK, strict=True)):
        raise LaunchError(
            f"{name}: a block must have 1 to {MAX_THREADS_PER_CTA} threads within {MAX_BLOCK}, got {launch.block}"
        )
    if any(not 0 < g <= m for g, m in zip(launch.grid, MAX_GRID, strict=True)):
        raise LaunchError(f"{name}: the grid must be within {MAX_GRID} and not empty, got {launch.grid}")
    _check_directives(launch, function, threads, cluster)
    if not 0 < cluster <= MAX_CLUSTER or any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True)):
        raise LaunchError(
            f"{name}: a cluster must have 1 to {MAX_CLUSTER} CTAs and divide the grid {launch.grid}, "
            f"got {launch.cluster}"
        )
    if launch.chosen is not None and not len(launch.order):
        raise ValueError(f"{name}: ctas names no CTA to run; leave it out to run all of the grid")
    if launch.dynamic_smem_bytes < 0:
        raise LaunchError(
            f"{name}: a CTA has 0 to {smem_bytes} bytes of shared memory, got {launch.dynamic_smem_bytes}"
        )
    if launch.smem_bytes > smem_bytes:
        raise LaunchError(
            f"{name}: a CTA has at most {smem_bytes} bytes of shared memory, got {launch.smem_bytes}; use fewer stages"
        )
    if launch.cooperative and launch.ctas > launch.resident_ctas:
        raise LaunchError(
            f"{name}: all CTAs of a cooperative launch must be resident at once, {launch.resident_ctas} of this size, "
            f"got {launch.ctas}",
            LaunchError.COOPERATIVE_TOO_LARGE,
        )


def _check_directives(launch: Launch, function: Function, threads: int, cluster: int) -> None:
    """Check a launch against the directives that the kernel was compiled with."""
    block, most, extents, rank = (
        function.directives.get(name) for name in ("reqntid", "maxntid", "reqnctapercluster", "maxclusterrank")
    )
    compiled = f"{launch.name} was compiled for"
    if block is not None and tuple(block) != launch.block[: len(block)]:
        raise LaunchError(f"{compiled} blocks of {block}, got {launch.block}")
    if most is not None and threads > prod(most):
        raise LaunchError(f"{compiled} blocks of at most {prod(most)} threads, got {threads}")
    if extents is not None and (*extents, 1, 1)[:3] != launch.cluster:
        raise LaunchError(f"{compiled} clusters of {(*extents, 1, 1)[:3]}, got {launch.cluster}")
    if rank is not None and cluster > rank[0]:
        raise LaunchError(f"{compiled} clusters of at most {rank[0]} CTAs, got {cluster}")


def may_run_in_any_order(launch: Launch) -> bool:
    """Return whether CTAs can know of each other only by plain loads of others' stores."""
    return not waits_for_others(launch) and not _shows_order(launch.entry)


def waits_for_others(launch: Launch) -> bool:
    """Return whether CTAs may wait for each other through global memory."""
    return launch.cooperative or _polls(launch.entry)


def cancels_clusters(launch: Launch) -> bool:
    """Return whether CTAs may take over the work of clusters that have not begun."""
    return _cancels(launch.entry)


@lru_cache(maxsize=128)
def _cancels(kernel: Kernel) -> bool:
    return any("cancels" in i.traits.effects for i in kernel.instructions)


@lru_cache(maxsize=128)
def _polls(kernel: Kernel) -> bool:
    """Return whether a kernel, or a function that it calls, has strong reads of memory that other clusters write."""
    return any(
        i.traits.is_access and strength(i.opcode).scope and any(space != "shared" for space in i.traits.loads)
        for i in kernel.instructions
    )


@lru_cache(maxsize=128)
def has_tiles(kernel: Kernel) -> bool:
    """Return whether a kernel has instructions on tiles, which take most of its time."""
    return any("tiles" in i.traits.effects for i in kernel.instructions)


@lru_cache(maxsize=128)
def _shows_order(kernel: Kernel) -> bool:
    """Return whether a kernel, or a function that it calls, sees the order of CTAs; malloc's addresses follow it."""
    return any(
        "serial" in i.traits.effects
        or any(isinstance(x, Special) and x.name in CLOCKS for x in i.operands)
        or (i.traits.calls and Symbol("malloc") in i.operands)
        for i in kernel.instructions
    )
