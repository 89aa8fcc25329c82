"""Progress bar of `compile_many`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console


class ProgressBoard:
    """Progress bar with the numbers of variants compiled, found on disk, failed, and in progress.

    Parameters
    ----------
    total : int
        Variants.
    shown : bool
        True to show it, if the console is a terminal.
    console : rich.console.Console, optional
        Where; the standard error if not given.
    """

    def __init__(self, total: int, *, shown: bool = True, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = console or Console(stderr=True)
        self._counts = {"compiled": 0, "cached": 0, "failed": 0}
        self._running: list[str] = []
        self._progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            disable=not (shown and total and console.is_terminal),
        )
        self._bar = self._progress.add_task("", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.clear()
        self._show()
        self._progress.stop()

    def started(self, name: str) -> None:
        """Show that a variant is being compiled."""
        self._running.append(name)
        self._show()

    def done(self, name: str, how: str = "compiled") -> None:
        """Count a variant that was "compiled", or found on the disk, "cached"."""
        self._count(name, how)

    def failed(self, name: str) -> None:
        """Count a variant that could not be compiled, and print its name."""
        if not self._progress.disable:
            self._progress.console.print(f"failed: {name}", markup=False, highlight=False)
        self._count(name, "failed")

    def _count(self, name: str, kind: str) -> None:
        self._counts[kind] += 1
        if name in self._running:
            self._running.remove(name)
        self._progress.advance(self._bar)
        self._show()

    def _show(self) -> None:
        counts = [f"{count} {kind}" for kind, count in self._counts.items() if count]
        self._progress.update(self._bar, description="  ".join([", ".join(counts), *self._running]).strip())
