"""Source of records without a GPU: what a test launches, a microsecond after each other, on one stream."""

from __future__ import annotations

import threading

from cutepy.profiling import Record


class FakeSource(threading.local):
    """Source whose launches a test makes.

    A thread has scopes of its own, as CUPTI's external correlation ids have; the records are those of all threads.
    """

    name = "fake"
    notes: tuple[str, ...] = ()
    shared: list[Record]

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.scopes: list[int] = []

    def start(self) -> None:
        """Begin."""

    def push(self, scope: int) -> None:
        """Enter a scope."""
        self.scopes.append(scope)

    def pop(self) -> None:
        """Leave a scope."""
        self.scopes.pop()

    def stop(self) -> list[Record]:
        """Return the launches."""
        return self.records

    def launch(self, name: str, us: int = 1, gap_us: int = 0, graph_launch: int | None = None) -> None:
        """Launch a kernel after those before."""
        start = (self.records[-1].end_ns or 0) + 1000 * gap_us if self.records else 0
        scope = self.scopes[-1] if self.scopes else None
        self.records.append(
            Record(name, start_ns=start, end_ns=start + 1000 * us, scope=scope, graph_launch=graph_launch)
        )


def fake_source() -> FakeSource:
    """Return a source without records."""
    return FakeSource([])
