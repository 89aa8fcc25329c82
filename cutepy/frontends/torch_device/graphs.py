"""CUDA graphs: the work of a captured stream is kept, and done at each replay."""

from __future__ import annotations

from collections.abc import Callable

from cutepy.frontends.backend import tell
from cutepy.frontends.torch_device import streams
from cutepy.sim.machine.host_events import StreamEvent


class Graph:
    """What `torch.cuda.CUDAGraph` makes, and what capturing a stream through cuda.bindings gives.

    Parameters
    ----------
    keep_graph : bool
        As torch's; without effect.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self.work: list[Callable[[], object]] = []
        self._stream = 0

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Keep what is issued to the current stream from now on."""
        self._stream = streams.current_stream().cuda_stream
        streams.captures.begin(self._stream)

    def capture_end(self) -> None:
        """Keep nothing more."""
        self.work = streams.captures.end(self._stream)

    def instantiate(self) -> None:
        """Do nothing: what was kept can be replayed."""

    def replay(self) -> None:
        """Do the work that was kept, in the current stream."""
        self.launch(streams.current_stream().cuda_stream)

    def launch(self, stream: int) -> None:
        """Do the work that was kept, in a stream."""
        tell(StreamEvent("graph", stream))
        for work in self.work:
            work()
        tell(StreamEvent("end_graph", stream))

    def reset(self) -> None:
        """Forget the work that was kept."""
        self.work = []

    def pool(self) -> tuple[int, int]:
        """Return the handle of the memory pool, of which there is one."""
        return pool_handle()


class Capturing:
    """What `torch.cuda.graph` makes: a context that captures a stream of its own, or the one that it is given."""

    def __init__(
        self,
        cuda_graph: Graph,
        pool: object = None,
        stream: streams.Stream | None = None,
        capture_error_mode: str = "global",
        **_: object,
    ) -> None:
        self._graph, self._stream = cuda_graph, stream or streams.Stream()

    def __enter__(self) -> None:
        self._stream.__enter__()
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()
        self._stream.__exit__()


def pool_handle() -> tuple[int, int]:
    """Return what stands for the memory pool of graphs."""
    return 0, 1
