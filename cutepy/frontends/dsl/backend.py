"""The simulator, as what the DSL's host code launches on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cutepy.frontends.dsl.execution import executing_on
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.host_calls import LaunchRequest
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.machine.observer import Observer
from cutepy.sim.run import Run


class Simulator:
    """Takes the launches of host code to a run.

    Attributes
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def adopt(self, tensor: object) -> None:
        """Learn of a tensor that was passed to a compiled function."""
        self.run.adopt(tensor)

    def launch(self, request: LaunchRequest) -> None:
        """Run a kernel to its end."""
        self.run.launch(kernel_call(request))


def kernel_call(request: LaunchRequest) -> KernelCall:
    """Copy what a launch of host code points at, which is there during its call only.

    Raises
    ------
    LaunchError
        If there is no such kernel.
    """
    memory = request.library.memory
    if request.ptx not in memory:
        memory[request.ptx] = LoadedModule(request.ptx)
    loaded: LoadedModule = memory[request.ptx]
    return KernelCall(
        loaded,
        request.kernel,
        request.grid,
        request.block,
        request.cluster,
        tuple(request.parameter(n, p.size_bytes) for n, p in enumerate(loaded.entry(request.kernel).parameters)),
        request.dynamic_smem_bytes,
        request.cooperative,
        request.stream,
    )


def active_run() -> Run | None:
    """Return the run that takes the launches of host code now, if there is one."""
    backend = EXECUTION.backend
    return backend.run if isinstance(backend, Simulator) else None


@contextmanager
def simulate(
    *,
    observers: Sequence[Observer] = (),
    policy: CompletionPolicy | str | None = None,
    inspect: bool = False,
    processes: int | None = None,
    exact_mma: bool = False,
) -> Iterator[Run]:
    """Run every compiled CuTe DSL function on the CPU while the context is active.

    Calls of `@cute.jit` functions, and of what `cute.compile` returns, run their real host code; kernels are
    interpreted from their PTX. Arguments are torch tensors and numpy arrays in host memory. It nests: the innermost run
    takes the launches. It is for all threads, whose launches take turns.

    Parameters
    ----------
    observers : sequence of Observer, optional
        See every memory access, barrier and asynchronous operation.
    policy : CompletionPolicy or str, optional
        Decides when asynchronous operations take effect, or the name of what does: "late", "youngest", "random" or
        "random:SEED". Default: as they are issued.
    inspect : bool
        Keep what `Run.trace`, `Run.conflicts`, `Run.waits` and `Run.smem` of any CTA need. Slower, and takes memory.
    processes : int, optional
        How many a long launch may be spread over, with the same results; 1: none but this one. Default: one for each
        core, on Linux. Launches that something watches, or whose CTAs may depend on each other's order, use one.
    exact_mma : bool
        Sum the products of wgmma in the order and with the rounding of an H200, bit for bit; much slower. Default: in
        float32, which differs in the last bits, with 8-bit floats in the last half of them.

    Yields
    ------
    Run

    Raises
    ------
    SimulationError
        From the call that launched the kernel, if that does what the hardware would not.
    RuntimeError
        If another thread is simulating.
    BreakpointError
        At the end, if no launch had code at a breakpoint.
    """
    run = Run(observers, policy, inspect=inspect, processes=processes, exact_mma=exact_mma)
    with executing_on(Simulator(run)):
        yield run
    run.check_breakpoints()
