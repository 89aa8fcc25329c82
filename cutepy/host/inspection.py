"""Resources of a compiled function's kernels, and the seconds of its compilation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cutepy.binaries.cubin import KernelResources, read_resources
from cutepy.layouts.sm90.occupancy import Occupancy, occupancy
from cutepy.runtime.devices import DEVICES
from cutepy.runtime.program import LaunchFacts, Program
from cutepy.runtime.ptx_text import tmem_columns
from cutepy.runtime.residency import max_active_clusters


@dataclass(frozen=True)
class Resources:
    """GPU resources of one kernel of a compiled function.

    Facts that depend on the arguments of a call are None.

    Attributes
    ----------
    kernel : str
        Mangled name.
    registers : int
        32-bit registers a thread at launch; warps may trade them later with setmaxnreg.
    spill_store_bytes, spill_load_bytes : int
        Bytes that a thread writes to local memory for want of registers, and reads back, if each instruction that does
        runs once: what `ptxas -v` calls spill stores and spill loads.
    stack_bytes : int
        Local memory a thread: spilled registers, and arrays that are indexed at run time.
    static_smem_bytes : int
        Shared memory that the kernel declares itself.
    tmem_columns : int or None
        Columns of tensor memory that a CTA allocates, of the 512 of an SM; 0 if it allocates none, None if the number
        is computed, or there are several allocations. A CTA waits at its allocation while others of the SM hold
        columns that it needs, which `occupancy` doesn't count.
    dynamic_smem_bytes : int or None
        Shared memory that it is launched with.
    block : (int, int, int) or None
        Threads of a CTA.
    cluster : (int, int, int) or None
        CTAs of a cluster; (1, 1, 1) where it is launched without.
    occupancy : Occupancy or None
        CTAs that an SM holds at a time, and the resource that sets the limit.
    max_active_clusters : int or None
        Clusters that the GPU holds at a time, by CUDA's own reckoning for the current GPU; None also where there is no
        GPU, and in the simulator. It is no multiple of `occupancy`: a cluster stays in one GPC, and GPCs differ in
        their SMs.
    """

    kernel: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    dynamic_smem_bytes: int | None
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    occupancy: Occupancy | None
    max_active_clusters: int | None
    tmem_columns: int | None = 0

    @property
    def threads(self) -> int | None:
        """Threads of a CTA."""
        return None if self.block is None else math.prod(self.block)


@dataclass(frozen=True)
class Cost:
    """Seconds that it took to make a function.

    Attributes
    ----------
    stages : mapping of str to float
        Seconds that the call of `cutepy.compile` spent in this process. If the function was found on the disk, "trace",
        unless it was found by declared sources, and "load". Otherwise the stages of compilation, and "store": to keep
        it, and to wait for other processes.
    compilation : mapping of str to float
        Seconds of compilation, now or when the program was made: "trace" (Python to MLIR), "lower" (MLIR to PTX),
        "assemble" (PTX to machine code), "host" (host code to machine code). The assembler's share is told by the times
        of files, so it is true to some milliseconds.
    """

    stages: Mapping[str, float]
    compilation: Mapping[str, float]
    total: float = field(init=False)
    """Sum of the stages in this process."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", MappingProxyType(dict(self.stages)))
        object.__setattr__(self, "compilation", MappingProxyType(dict(self.compilation)))
        object.__setattr__(self, "total", sum(self.stages.values()))

    def __reduce__(self) -> tuple[type[Cost], tuple[dict[str, float], dict[str, float]]]:
        """Pickle and copy the mappings, whose read-only views can't be pickled."""
        return Cost, (dict(self.stages), dict(self.compilation))

    @property
    def cached(self) -> bool:
        """True if the function was found on the disk."""
        return "load" in self.stages


def resources(program: Program) -> tuple[Resources, ...]:
    """List the resources of a program's kernels, in the order in which it launches them."""
    kernels = {kernel.name: kernel for kernel in (read_resources(program.cubin) if program.cubin else ())}
    launched = dict.fromkeys(launch.kernel for launch in program.launches if launch.kernel in kernels)
    names = [*launched, *(name for name in kernels if name not in launched)]
    return tuple(_resources(program, kernels[name]) for name in names)


def _resources(program: Program, kernel: KernelResources) -> Resources:
    facts = _agreed([launch for launch in program.launches if launch.kernel == kernel.name])
    block, smem = facts.block or kernel.required_threads, facts.dynamic_smem_bytes
    fits = active = None
    if block is not None and smem is not None:
        fits = occupancy(kernel.registers, math.prod(block), kernel.static_smem_bytes + smem)
        if facts.cluster is not None:
            capability = DEVICES[program.arch].capability
            active = max_active_clusters(program.cubin, kernel.name, block, facts.cluster, smem, capability)
    return Resources(
        kernel.name,
        kernel.registers,
        kernel.spill_store_bytes,
        kernel.spill_load_bytes,
        kernel.frame_bytes,
        kernel.static_smem_bytes,
        smem,
        block,
        facts.cluster,
        fits,
        active,
        tmem_columns(program.ptx, kernel.name),
    )


def _agreed(launches: list[LaunchFacts]) -> LaunchFacts:
    """Combine the launches of one kernel: facts that differ become None."""
    known = ({getattr(launch, name) for launch in launches} for name in ("block", "cluster", "dynamic_smem_bytes"))
    kernel = launches[0].kernel if launches else ""
    return LaunchFacts(kernel, *(values.pop() if len(values) == 1 else None for values in known))
