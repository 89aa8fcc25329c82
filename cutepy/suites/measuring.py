"""What the benchmarks of kernels share: the GPU they need, and how they tell what they measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from cutepy.benchmark import Report, Row

_Problem = TypeVar("_Problem")

NOT_MEASURED = 2
"""Exit status of a benchmark without a GPU."""


def has_hopper() -> bool:
    """Tell whether torch's current GPU is a Hopper."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def require_hopper(command: str) -> bool:
    """Tell whether a Hopper GPU is here, and say so where none is."""
    found = has_hopper()
    if not found:
        typer.echo(f"cutepy {command} needs a Hopper GPU (compute capability 9.0), and none is here", err=True)
    return found


def measure_all(
    command: str,
    problems: Iterable[_Problem],
    measure: Callable[[_Problem], list[Row]],
    complaint: Callable[[_Problem, list[Row]], str | None],
    json_path: Path | None,
    sums: Callable[[Report], str] | None = None,
) -> int:
    """Measure problems one after another, print and save the report, and say what is wrong.

    Parameters
    ----------
    command : str
        Of `cutepy bench`.
    problems : iterable
        What to measure.
    measure : callable
        Gives the rows of a problem.
    complaint : callable
        Says what is wrong with a problem's results, or None.
    json_path : Path or None
        Where to write the figures.
    sums : callable, optional
        Sums up the report in a text.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong, `NOT_MEASURED` where no Hopper GPU is.
    """
    if not require_hopper(f"bench {command}"):
        return NOT_MEASURED
    from cutepy.benchmark import Report, environment

    rows: list[Row] = []
    wrong: list[str] = []
    for problem in problems:
        measured = measure(problem)
        rows += measured
        if (found := complaint(problem, measured)) is not None:
            wrong.append(found)
    report = Report(rows, environment())
    typer.echo(report.table())
    if sums is not None:
        typer.echo(sums(report))
    if json_path:
        report.save(json_path)
        typer.echo(f"saved {json_path}")
    for found in wrong:
        typer.echo(f"WRONG: {found}", err=True)
    return 1 if wrong else 0
