"""CUDA graphs: the work of captured streams is kept, and done at each replay."""

from __future__ import annotations

from cutepy.frontends import stream_state
from cutepy.frontends.backend import active_run, tell
from cutepy.frontends.stream_state import LEGACY, Capture, captures
from cutepy.frontends.torch_device import streams
from cutepy.runtime.host_calls import RUNNING
from cutepy.sim.machine.events import StreamEvent


class Graph:
    """Result of `torch.cuda.CUDAGraph`, and of a capture through cuda.bindings.

    A replay issues what was captured again: the launch's stream takes the place of the stream whose capture began, and
    each stream that joined has a stream of the graph's own in its place, so that branches are ordered by their events
    alone.

    Parameters
    ----------
    keep_graph : bool
        As torch's; without effect.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._capture: Capture | None = None
        self._stream = LEGACY
        self._streams_of: dict[int, int] = {}
        self._done = streams.Event()

    @classmethod
    def of(cls, capture: Capture) -> Graph:
        """Make a graph of the captured work."""
        graph = cls()
        graph.take(capture)
        return graph

    @property
    def nodes(self) -> int:
        """Number of pieces of work."""
        return 0 if self._capture is None else self._capture.nodes

    def take(self, capture: Capture) -> None:
        """Replace the graph's work by the captured work."""
        self._capture = capture
        self._streams_of = {
            stream: streams.Stream().cuda_stream for stream in capture.streams if stream != capture.origin
        }

    def updated_by(self, other: Graph) -> None:
        """Take the work of another graph."""
        if other._capture is not None:
            self.take(other._capture)

    def copy(self) -> Graph:
        """Return a graph of the same work."""
        graph = Graph()
        graph.updated_by(self)
        return graph

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Capture the work that is issued to the current stream from now on."""
        self._stream = stream_state.current()
        if self._stream == LEGACY:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
                "on the default stream.)"
            )
        captures.begin(self._stream)

    def capture_end(self) -> None:
        """Keep nothing more."""
        self.take(captures.end(self._stream))

    def instantiate(self) -> None:
        """Do nothing: captured work can be replayed as it is."""

    def replay(self) -> None:
        """Do the work that was kept, in the current stream."""
        self.launch(stream_state.current())

    def launch(self, stream: int) -> None:
        """Replay the captured work in a stream, after the stream's earlier work and the graph's previous launch.

        Raises
        ------
        RuntimeError
            If nothing was captured.
        """
        if self._capture is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        capture, streams_of = self._capture, self._streams_of
        stream_state.issue(stream, lambda place: self._replay(capture, streams_of, place))

    def _replay(self, capture: Capture, streams_of: dict[int, int], stream: int) -> None:
        streams_of = {**streams_of, capture.origin: stream}
        with RUNNING:
            if (run := active_run()) is not None:
                for tensor in capture.memory.values():
                    run.adopt(tensor)
            if self._done.time_ns is not None:
                self._done.wait(streams.ExternalStream(stream))
            tell(StreamEvent("graph", stream))
            try:
                for captured, work in capture.work:
                    with stream_state.using(streams_of[captured]), stream_state.replaying():
                        work(streams_of[captured])
            finally:
                tell(StreamEvent("end_graph", stream))
            self._done.record(streams.ExternalStream(stream))

    def reset(self) -> None:
        """Forget the work that was kept."""
        self._capture = None

    def pool(self) -> tuple[int, int]:
        """Return the handle of the memory pool, of which there is one."""
        return pool_handle()


class GraphCapture:
    """Result of `torch.cuda.graph`: a context that captures a stream of its own, or the given one."""

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
        streams.synchronize()  # as torch does, so that the capture needs no event to come after what was before
        self._stream.__enter__()
        try:
            self._graph.capture_begin()
        except BaseException:
            self._stream.__exit__()
            raise

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._graph.capture_end()
        except stream_state.CaptureError:
            if kind is None:  # else what the script raised says more
                raise
        finally:
            self._stream.__exit__()


def pool_handle() -> tuple[int, int]:
    """Return the handle of the memory pool of graphs."""
    return 0, 1
