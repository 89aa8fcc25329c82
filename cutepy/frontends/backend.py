"""Backend of host code: launches run in the simulator, or join a captured graph."""

from __future__ import annotations

from dataclasses import replace

from cutepy.frontends.stream_state import captures, current, handle_of, is_replaying, issue
from cutepy.host.arguments import ArgumentError
from cutepy.runtime.device_tensors import inputs_now
from cutepy.runtime.devices import device
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.host_calls import LaunchRequest, Library
from cutepy.runtime.launch_watch import WATCHERS
from cutepy.runtime.timeline_state import TIMELINE
from cutepy.sim.errors import ReadOnlyMemoryError
from cutepy.sim.machine.host_events import HostEvent, StreamEvent
from cutepy.sim.machine.launch import KernelCall
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.run import Run


class ReadOnlyArgumentError(ReadOnlyMemoryError, ArgumentError):
    """A function that was given an array that is read-only stores to it."""

    @classmethod
    def of(cls, error: ReadOnlyMemoryError) -> ReadOnlyArgumentError:
        """Report a kernel's error as an error of the function that launched it."""
        message = f"the function wrote to an array that is read-only: {error.message}"
        return cls(message, error.instruction, error.who, fix=error.advice, at=error.at)


class Simulator:
    """Backend that simulates the launches of host code in a run.

    Attributes
    ----------
    run : Run
    """

    def __init__(self, run: Run) -> None:
        self.run = run

    def adopt(self, tensor: object) -> None:
        """Register a tensor that was passed to a compiled function."""
        adopt(self.run, tensor)

    def launch(self, request: LaunchRequest) -> None:
        """Run a kernel to its end, or keep it where its stream is captured."""
        try:
            launch(self.run, kernel_call(request))
        except ReadOnlyMemoryError as error:
            raise ReadOnlyArgumentError.of(error) from error

    def current_stream(self) -> int:
        """Return the handle of the stream that host code finds as its environment's."""
        return current()

    def capture_of(self, stream: int) -> int:
        """Return the number of the capture that a stream takes part in; 0 if it takes part in none."""
        capture = captures.of(stream)
        return 0 if capture is None else capture.number

    def synchronise(self, stream: int | None) -> None:
        """Tell observers that host code waits for a stream, or for all."""
        captures.refuse_waiting(stream)
        tell(StreamEvent("synchronise", None if stream is None else handle_of(stream)))


def adopt(run: Run, tensor: object) -> None:
    """Register memory that is passed to a kernel with the run, and keep the memory alive in captured graphs."""
    captures.adopt(tensor)
    run.adopt(tensor)


def launch(run: Run, call: KernelCall) -> None:
    """Run a kernel to its end, or keep it where its stream is captured: a replay is of the run that is active then.

    Parameters
    ----------
    run : Run
        Takes the launch where none is active.
    call : KernelCall
    """
    noted = [watch(call) for watch in WATCHERS]

    for timeline in TIMELINE.kept:
        # Only kernels with probes may reach a buffer, which has many megabytes; a GPU's is not there.
        if timeline.remark in call.loaded.ptx and not hasattr(timeline.memory, "is_cuda"):
            adopt(run, timeline.memory)

    def work(stream: int) -> None:
        (active_run() or run).launch(replace(call, stream=stream))
        for note in noted:
            note(stream, is_replaying())

    issue(call.stream, work)


def kernel_call(request: LaunchRequest) -> KernelCall:
    """Copy the data behind the pointers of a host launch, which exist during its call only.

    Raises
    ------
    LaunchError
        If there is no such kernel.
    """
    loaded = loaded_module(request.library, request.ptx)
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
        request.programmatic,
        request.early_events,
        plan=request.plan,
        inputs=inputs_now(),
        sm_count=device().sm_count,
    )


def loaded_module(library: Library, ptx: str) -> LoadedModule:
    """Return the PTX of a library as it was loaded, which is done once."""
    if ptx not in library.memory:
        library.memory[ptx] = LoadedModule(ptx)
    loaded: LoadedModule = library.memory[ptx]
    return loaded


def active_run() -> Run | None:
    """Return the run that takes the launches of host code now, if there is one."""
    backend = EXECUTION.backend
    return backend.run if isinstance(backend, Simulator) else None


_streams: dict[int | None, StreamEvent] = {}
"""Flags with which each stream was made, the last of its handle."""


def tell_of_streams(run: Run) -> None:
    """Notify the observers of a new run of the existing streams."""
    for event in _streams.values():
        run.tell(event)


def tell(event: HostEvent) -> None:
    """Tell the observers of the active run of host operations beside launches."""
    if isinstance(event, StreamEvent) and event.operation == "create":
        _streams[event.stream] = event
        captures.made(event.stream or 0, blocking=event.blocking)
    run = active_run()
    if run is not None:
        run.tell(event)


def is_watched() -> bool:
    """Return whether anybody observes the active run."""
    run = active_run()
    return run is not None and run.is_watched
