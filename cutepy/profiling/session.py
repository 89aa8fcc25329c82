"""`profile`: record the launches of a program; views of the recording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cutepy.profiling.cupti_source import CuptiSource
from cutepy.profiling.recorder import Recorder
from cutepy.profiling.recording import Recording
from cutepy.profiling.scopes import STATE, listen
from cutepy.profiling.sources import Source, SourceError
from cutepy.profiling.torch_source import TorchSource
from cutepy.profiling.tree import Node
from cutepy.runtime.launch_watch import WATCHERS


class ProfileError(RuntimeError):
    """Error of a profile that cannot begin, or that is read before it has ended."""


class Profile:
    """Profile of a program, complete once its context has ended.

    Attributes
    ----------
    recording : Recording
    """

    def __init__(self, recording: Recording | None = None) -> None:
        self._recording = recording

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read a saved profile.

        Raises
        ------
        OSError
            If there is no such file.
        RecordingError
            If the file holds no profile.
        """
        return cls(Recording.load(Path(path)))

    @property
    def recording(self) -> Recording:
        """The records and scopes.

        Raises
        ------
        ProfileError
            If the context has not ended.
        """
        if self._recording is None:
            raise ProfileError("a profile is complete at the end of its context; read it after the `with` block")
        return self._recording

    def tree(self) -> Node:
        """Sum times, calls and rates by scope and kernel."""
        from cutepy.profiling.tree import tree

        return tree(self.recording)

    def print(self) -> None:
        """Print the tree, and the limits that apply."""
        from cutepy.profiling.text import print_tree

        print_tree(self.recording)

    def save(self, path: str | Path) -> None:
        """Write the recording as JSON, which `Profile.load` and `cutepy profile --against` read."""
        self.recording.save(Path(path))

    def save_trace(self, path: str | Path) -> None:
        """Write a trace that Perfetto and Chrome show: kernels by stream, with their scopes above them."""
        from cutepy.profiling.trace import save_trace

        save_trace(self.recording, Path(path))


@contextmanager
def profile(*, source: Source | None = None) -> Iterator[Profile]:
    """Record every kernel that any compiler's code launches within the context: on the GPU, and in the simulator.

    Records of a GPU come from CUPTI (`pip install 'cutepy[profile]'`), else from torch's profiler. Where neither can
    be had, only simulated launches are recorded, which have no times; the profile's notes say why.

    Parameters
    ----------
    source : Source, optional
        Source of the GPU's records. Default: the first that can begin.

    Yields
    ------
    Profile

    Raises
    ------
    ProfileError
        If a profile is active.
    SourceError
        If the given source cannot begin.

    Examples
    --------
    >>> from cutepy.profiling import scope
    >>> with profile() as p:
    ...     with scope("outer"), scope("inner"):
    ...         pass
    >>> [p.recording.path(n) for n in range(2)]
    [('outer',), ('outer', 'inner')]
    """
    if STATE.recorder is not None:
        raise ProfileError("one profile at a time may be active, and one is; end it first")
    reasons: list[str] = []
    if source is None:
        source, reasons = started_source()
    else:
        source.start()
    recorder = Recorder(source)
    result = Profile()
    recorder.backward.start()
    WATCHERS.append(recorder.issued)
    listen(recorder)
    try:
        yield result
    finally:
        listen(None)
        WATCHERS.remove(recorder.issued)
        recorder.backward.stop()
        result._recording = recorder.recording(reasons)


def started_source() -> tuple[Source | None, list[str]]:
    """Begin to record with the first source that can: CUPTI, else torch's profiler.

    Returns
    -------
    source : Source or None
        None if no GPU can be recorded.
    reasons : list of str
        Why the sources before it could not begin.
    """
    reasons: list[str] = []
    sources: tuple[Source, ...] = CuptiSource(), TorchSource()
    for source in sources:
        try:
            source.start()
        except SourceError as error:
            if str(error) not in reasons:
                reasons.append(str(error))
        else:
            return source, reasons
    return None, reasons
