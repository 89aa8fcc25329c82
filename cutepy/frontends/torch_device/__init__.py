"""The `cuda` device of torch and of cuda.bindings, served from host memory, so that GPU scripts run unmodified.

Torch gets real `cuda` tensors whose memory is the host's (`storage`) and computes on them with the CPU's kernels
(`operators`); kernels of the CuTe DSL are simulated on the same memory. Why not otherwise:

- a Tensor subclass that claims to be on `cuda`: every path through C++ that makes a tensor of its own loses the claim
  (operators of torch.library, DLPack exchange in C, tensors made in other threads);
- a mode that intercepts factories: it is per thread, and custom operators with a kernel for CUDA find no such tensor;
- torch's out-of-tree backend `privateuse1`: `torch.device("cuda")` never names it, and registering it is for good.

What is not served raises NotServedError, by name. Random numbers are the CPU generator's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from cutepy.dsl.version import require
from cutepy.frontends import stream_state
from cutepy.frontends.backend import Simulator, tell_of_streams
from cutepy.frontends.chosen_device import simulating_chosen
from cutepy.frontends.dsl.execution import executing_on
from cutepy.frontends.timing import timer_of
from cutepy.frontends.torch_device.errors import NotServedError as NotServedError, refused_launch
from cutepy.predict.timer import Timer
from cutepy.sim.errors import LaunchError
from cutepy.sim.machine.events import CompletionPolicy
from cutepy.sim.machine.host_events import HostAccess, HostEvent
from cutepy.sim.machine.host_memory import storage_range
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.machine.observer import Observer
from cutepy.sim.machine.selected_ctas import Coordinates
from cutepy.sim.replay import Schedules
from cutepy.sim.run import Run
from cutepy.sim.sanitize import Sanitizer

__all__ = ["NotServedError", "ServedRun", "is_served", "serve_cuda"]


_serving = threading.Lock()


def is_served() -> bool:
    """Return whether device `cuda` is served, for launches of any run."""
    return _serving.locked()


class ServedRun(Run):
    """A run whose kernels may access memory of the served device, while it is allocated.

    Attributes
    ----------
    raised : set
        The keys of hazards that `check_hazards` has raised: its caller knows them.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - those of a run
        super().__init__(*args, **options)
        self.raised: set[object] = set()
        self._host_tensors: dict[tuple[int, int], Any] = {}

    def restart(self) -> None:
        """Forget the launches so far, their hazards, and captures that did not end."""
        stream_state.captures.drop()
        self.launches.clear()
        self.raised.clear()
        if self._sanitizer is not None:
            self._sanitizer.restart()
        self._replays.restart()
        self._recorder.clear()
        self._sites.clear()
        self._host_tensors.clear()

    def check_hazards(self) -> None:
        """Raise the hazards that the sanitizer found."""
        self.raised.update(hazard.key for hazard in self.hazards)
        super().check_hazards()

    @contextmanager
    def sanitized(self, *, strict: bool = False) -> Iterator[None]:
        """Look for hazards in the launches of the context, if the run does not already.

        Parameters
        ----------
        strict : bool
            True if advisories are hazards in the context.
        """
        before, self.is_strict = self.is_strict, self.is_strict or strict
        try:
            with contextlib.nullcontext() if self._sanitizer is not None else self._observed_by_a_sanitizer():
                yield
        finally:
            self.is_strict = before

    @contextmanager
    def _observed_by_a_sanitizer(self) -> Iterator[None]:
        sanitizer = self._sanitizer = Sanitizer(lambda: self._memory)
        self._observers = (*self._observers, *sanitizer.observers)
        self._replays.judge_for(sanitizer)
        try:
            yield
        finally:
            self._sanitizer = None
            self._replays.judge_for(None)
            self._observers = tuple(o for o in self._observers if o not in sanitizer.observers)

    def adopt(self, tensor: object) -> None:
        """Register a host tensor that was passed to a compiled function; tensors of the device are known."""
        if not getattr(tensor, "is_cuda", False):
            self._host_tensors.setdefault(storage_range(tensor), tensor)

    def tell(self, event: HostEvent) -> None:
        """Tell the observers of host operations beside launches; observers of memory also get the allocations."""
        if isinstance(event, HostAccess) and len(event.starts):
            low, high = int(event.starts.min()), int(event.starts.max()) + event.size_bytes
            if self._memory.find(low, high) is None:
                self._learn_memory()
        super().tell(event)

    def _learn_memory(self) -> None:
        """Register the memory that the device has now, and the host memory that was passed to functions."""
        from cutepy.frontends.torch_device import storage

        self._memory = GlobalMemory()
        for address, size in storage.allocations.ranges():
            self._memory.register(address, size, None, "an allocation of the cuda device")
        for tensor in self._host_tensors.values():
            super().adopt(tensor)

    def launch(self, call: KernelCall) -> None:
        """Run a kernel to its end and print its output."""
        self._learn_memory()
        before = len(self.launches)
        try:
            super().launch(call)
        except LaunchError as error:
            raise refused_launch(error) from error
        finally:
            print(*(launch.printf for launch in self.launches[before:]), sep="", end="", flush=True)


@contextmanager
def serve_cuda(
    *,
    observers: Sequence[Observer] = (),
    policy: CompletionPolicy | str | None = None,
    inspect: bool = False,
    exact_mma: bool = False,
    sanitize: bool = False,
    ctas: Coordinates | None = None,
    schedules: Schedules = 0,
    seed: int | None = None,
    limit: int | None = None,
    replay: bool = False,
    allow: Mapping[str, str] | None = None,
    limit_seconds: float | None = None,
    limit_instructions: int | None = None,
    strict: bool = False,
    arch: str | None = None,
    time: str | bool | Timer = False,
) -> Iterator[ServedRun]:
    """Serve device `cuda` from host memory, and simulate every launch, while the context is active.

    Within it, any thread may enter `simulate`, one at a time.

    Parameters
    ----------
    observers, policy, inspect, exact_mma, sanitize, ctas, schedules, seed, limit, replay, allow, limit_seconds,
    limit_instructions, strict, arch, time
        As for `simulate`.

    Yields
    ------
    ServedRun

    Raises
    ------
    RuntimeError
        If torch is not built for the CPU, or the device is already served.
    ImportError
        If this torch or DSL is not one that this was written for.
    """
    began = perf_counter()
    import torch

    if _serving.locked():
        raise RuntimeError("the cuda device is already served")
    if torch.version.cuda is not None or torch.version.hip is not None:
        raise RuntimeError(
            f"serving the cuda device needs torch's build for the CPU, got {torch.__version__}, whose kernels for CUDA "
            "would be called; install the CPU build in another environment"
        )
    from cutepy.frontends.torch_device import accelerator, bindings, device_guard, operators, profiling, torch_cuda
    from cutepy.runtime import devices

    device_guard.install()
    hardware = require("cutlass.utils", "HardwareInfo").HardwareInfo
    run = ServedRun(
        observers,
        policy,
        inspect=inspect,
        exact_mma=exact_mma,
        sanitize=sanitize,
        ctas=ctas,
        schedules=schedules,
        seed=seed,
        limit=limit,
        replay=replay,
        allow=allow,
        limit_seconds=limit_seconds,
        limit_instructions=limit_instructions,
        strict=strict,
    )
    run.timer = timer_of(time)
    with simulating_chosen(arch), run.checked(), _serving, ExitStack() as stack:
        stack.callback(stream_state.restart)

        def put(owner: Any, name: str, value: Any) -> None:  # noqa: ANN401
            if hasattr(owner, name):
                stack.callback(setattr, owner, name, getattr(owner, name))
            else:
                stack.callback(delattr, owner, name)
            setattr(owner, name, value)

        torch_cuda.serve(put)
        bindings.serve(put)
        profiling.serve(put, run)
        put(
            hardware,
            "get_max_active_clusters",
            lambda _, cluster_size, stream=None: devices.device().max_active_clusters(cluster_size),
        )
        stack.enter_context(accelerator.accelerating())
        stack.enter_context(operators.serving_operators())
        stack.enter_context(executing_on(Simulator(run), lends=True))
        tell_of_streams(run)
        run.loading_seconds = perf_counter() - began
        yield run
