"""simulate(): run compiled kernels on the CPU."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cutepy.dsl.execution import LaunchRequest, executing_on
from cutepy.sim.capture import Launch, capture
from cutepy.sim.events import CompletionPolicy, Observer
from cutepy.sim.lanes import cluster_order
from cutepy.sim.machine import Machine
from cutepy.sim.memory import GlobalMemory
from cutepy.sim.translate import load_module, translate

_RESIDENT_CTAS = 32
"""CTAs that run in lockstep: enough to spread the cost of dispatch, few enough for their tiles to stay in cache."""

_DEVICE_CTAS = 132
_SHARES_GLOBAL = ("atom.", "red.", "ld.acquire", "ld.volatile", "ld.relaxed")


class Run:
    """What was simulated.

    Attributes
    ----------
    launches : list of Launch
        In order; each with its parameters and statistics.
    """

    def __init__(self, observers: Sequence[Observer], policy: CompletionPolicy | None) -> None:
        self.launches: list[Launch] = []
        self._observers = tuple(observers)
        self._policy = policy
        self._memory = GlobalMemory()

    @property
    def printf(self) -> str:
        """What kernels have printed."""
        return "".join(launch.printf for launch in self.launches)

    @property
    def instructions(self) -> Counter[str]:
        """Instructions that warps executed, by the first part of their opcode, over all launches."""
        return sum((launch.instructions for launch in self.launches), Counter())

    @property
    def stats(self) -> dict[str, int]:
        """Counts summed over all launches."""
        total: dict[str, int] = {}
        for launch in self.launches:
            for name, value in launch.stats.items():
                total[name] = total.get(name, 0) + value
        return total

    def register(self, tensor: Any) -> None:  # noqa: ANN401
        """Let kernels access a tensor or array that they reach by a raw pointer.

        Parameters
        ----------
        tensor : torch.Tensor or numpy.ndarray
            Its whole storage becomes known memory.
        """
        self.adopt(tensor)

    def adopt(self, tensor: object) -> None:
        """Learn of a tensor that was passed to a compiled function."""
        address, size = _storage(tensor)
        self._memory.register(address, size, tensor, _describe(tensor))

    def launch(self, request: LaunchRequest) -> None:
        """Run a kernel to its end."""
        module = load_module(request.ptx)
        launch = capture(request, module)
        program = translate(request.ptx, request.kernel)
        self.launches.append(launch)
        assert launch.parameter_block is not None
        block = launch.parameter_block
        self._memory.register(block.ctypes.data, block.nbytes, block, "the kernel's parameters")
        for variable, data in launch.variables:
            self._memory.register(data.ctypes.data, data.nbytes, data, variable.name)
        for observer in self._observers:
            observer.on_launch(launch)
        start = time.perf_counter()
        machine = Machine(program, launch, self._memory, self._observers, self._policy)
        try:
            for blocks in _waves(launch):
                machine.run(blocks)
        finally:
            launch.seconds = time.perf_counter() - start
            launch.stats = machine.stats
            launch.instructions = machine.instructions()
            launch.printf = "".join(machine.printing.text)


def _waves(launch: Launch) -> list[np.ndarray[Any, np.dtype[np.intp]]]:
    """Deal the grid out to waves of CTAs that are resident together."""
    order = cluster_order(launch.grid, launch.cluster)
    cluster = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
    # CTAs that wait for each other through global memory must all be resident, as far as the hardware can.
    together = launch.cooperative or any(text in launch.ptx for text in _SHARES_GLOBAL)
    size = max(_DEVICE_CTAS if together else _RESIDENT_CTAS, cluster) // cluster * cluster
    return [order[start : start + size] for start in range(0, len(order), size)]


def _storage(tensor: Any) -> tuple[int, int]:  # noqa: ANN401
    """Return address and bytes of the memory that a tensor or array lives in."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    if isinstance(tensor, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(tensor)
        return int(low), int(high - low)
    interface = getattr(tensor, "__array_interface__", None)
    if interface is None:
        raise TypeError(f"expected a torch tensor or a numpy array in host memory, got {type(tensor).__name__}")
    return _storage(np.asarray(tensor))


def _describe(tensor: Any) -> str:  # noqa: ANN401
    return f"a tensor of shape {tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')},"


@contextmanager
def simulate(*, observers: Sequence[Observer] = (), policy: CompletionPolicy | None = None) -> Iterator[Run]:
    """Run every compiled CuTe DSL function on the CPU while the context is active.

    Calls of `@cute.jit` functions, and of what `cute.compile` returns, run their real host code; kernels are
    interpreted from their PTX. Arguments are torch tensors and numpy arrays in host memory.

    Parameters
    ----------
    observers : sequence of Observer, optional
        See every memory access, barrier and asynchronous operation.
    policy : CompletionPolicy, optional
        Decides when asynchronous operations take effect. Default: as they are issued.

    Yields
    ------
    Run

    Raises
    ------
    SimulationError
        From the call that launched the kernel, if that does what the hardware would not.
    """
    run = Run(observers, policy)
    with executing_on(run):
        yield run
