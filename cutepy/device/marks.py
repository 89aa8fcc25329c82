"""Ranges of a timeline, in traced code: written only where a compile asks for them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from cutepy.runtime.timeline_state import TIMELINE, TimelineBuffer

_NOTHING = nullcontext()


class _Range:
    """Context that writes an event at its begin, and one at its end."""

    def __init__(self, buffer: TimelineBuffer, name: str, argument: Any) -> None:
        self._buffer, self._tag, self._argument = buffer, buffer.tag(name), argument

    def __enter__(self) -> None:
        self._write(0)

    def __exit__(self, *_: object) -> None:
        self._write(1)

    def _write(self, end: int) -> None:
        from cutepy.dsl.probes import probe

        probe(self._buffer, self._tag + end, self._argument)


def mark(name: str, argument: Any = 0) -> AbstractContextManager[None]:
    """Name a range of a kernel for its timeline: `with mark("load", stage):` in traced code.

    Ranges nest. All lanes of a warp that are there must leave the range together. Without a timeline
    (`cutepy.compile(..., timeline=True)`, `cutepy profile --timeline`) nothing is compiled in.

    Parameters
    ----------
    name : str
    argument : Int32 or int
        Number to show with the range, such as a stage or a tile.
    """
    buffer = TIMELINE.buffer
    return _NOTHING if buffer is None else _Range(buffer, name, argument)
