"""Sources of records: CUPTI through cupti-python, else torch's profiler."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from cutepy.profiling.recording import Record


class SourceError(RuntimeError):
    """Error of a source of records that cannot begin on this machine, or not now."""


class Source(Protocol):
    """Source of records of a GPU's work.

    Attributes
    ----------
    name : str
    notes : sequence of str
        Limits of the records; to be read after `stop`.
    """

    name: str
    notes: Sequence[str]

    def start(self) -> None:
        """Begin to record.

        Raises
        ------
        SourceError
            If that is impossible on this machine, or now.
        """

    def push(self, scope: int) -> None:
        """Let the calling thread's launches belong to a scope, until `pop`."""

    def pop(self) -> None:
        """Let the calling thread's launches belong to the scope of before the last `push`."""

    def stop(self) -> Sequence[Record]:
        """Wait for the device, and return all records."""


def started_source() -> tuple[Source | None, list[str]]:
    """Begin to record with the first source that can.

    Returns
    -------
    source : Source or None
        None if no GPU can be recorded.
    reasons : list of str
        Why the sources before it could not begin.
    """
    from cutepy.profiling.cupti_source import CuptiSource

    reasons = []
    sources: list[Source] = [CuptiSource()]
    if "torch" in sys.modules:  # or nothing of torch runs, and importing it takes seconds
        from cutepy.profiling.torch_source import TorchSource

        sources.append(TorchSource())
    for source in sources:
        try:
            source.start()
        except SourceError as error:
            reasons.append(f"{source.name}: {error}")
        else:
            return source, reasons
    return None, reasons
