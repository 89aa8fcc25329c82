"""Progress bar of a long command, on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cutepy.tune.timing import Note


@contextlib.contextmanager
def shown_progress(shown: bool = True) -> Iterator[Note]:
    """Show a progress bar on the standard error, if that is a terminal; the given function updates it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        bar = progress.add_task("")
        yield lambda what, done, total: progress.update(bar, description=what, completed=done, total=total)
