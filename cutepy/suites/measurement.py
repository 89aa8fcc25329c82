"""Common parts of the kernel benchmarks: the required GPU, repeated timing, and output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import torch
import typer

from cutepy import benchmark
from cutepy.benchmark import Report, Row
from cutepy.benchmark.protocol import Contender
from cutepy.suites.progress import shown_progress

_Problem = TypeVar("_Problem")

NOT_MEASURED = 2
"""Exit status of a benchmark without a GPU."""
STEADY = 0.02
"""Largest difference of a kernel from itself; a problem with more noise is measured again."""
_TRIES = 3


class MeasuredProblem(Protocol):
    """Problem to measure: its text is its name."""

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""

    @property
    def bytes(self) -> float:
        """Least bytes to move."""


def has_hopper() -> bool:
    """Return whether torch's current GPU is a Hopper."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def require_hopper(command: str) -> bool:
    """Return whether a Hopper GPU is here, and print a message if none is."""
    if has_hopper():
        return True
    here = f"here is {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "none is here"
    typer.echo(f"cutepy {command} needs a Hopper GPU (compute capability 9.0), and {here}", err=True)
    return False


class Output(NamedTuple):
    """Destinations of a report, besides being printed.

    Attributes
    ----------
    json : Path or None
        File to save the figures to.
    picture : Path or None
        File to draw them to.
    against : Path or None
        A saved report: a row that is slower now is printed, and fails.
    """

    json: Path | None = None
    picture: Path | None = None
    against: Path | None = None


def elementwise() -> Contender:
    """Return a contender that launches a kernel of torch's on 65,536 floats: company between two launches."""
    floats = torch.ones(1 << 16, device="cuda")
    return lambda index: floats.mul_(1.0)


def norm() -> Contender:
    """Return a contender that launches our normalisation of 16 rows, which overlaps with its neighbours."""
    from cutepy.ops import rms_norm

    x, weight = (torch.ones(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((16, 4096), (4096,)))
    return lambda index: rms_norm(x, (4096,), weight)


COMPANY: dict[str, Callable[[], Contender] | None] = {"none": None, "elementwise": elementwise, "norm": norm}
"""Kernels that `--between` knows."""


def timed(
    problem: MeasuredProblem,
    contenders: Mapping[str, Contender],
    errors: Mapping[str, float],
    *,
    sets: int,
    between: str = "none",
) -> list[Row]:
    """Time the contenders of a problem, "cutepy" among them, up to three times until our two rows agree.

    Parameters
    ----------
    problem : MeasuredProblem
    contenders : mapping of str to callable
        As `cutepy.benchmark.compare` takes them.
    errors : mapping of str to float
        Of their results.
    sets : int
        Buffer sets there are.
    between : str
        Kernel of `COMPANY` to launch between two launches.
    """
    make = COMPANY[between]
    company = None if make is None else make()
    noise = math.inf
    for _ in range(_TRIES):
        # Ours twice, first and last: the difference is the noise.
        timings = dict(benchmark.compare({**contenders, "again": contenders["cutepy"]}, sets=sets, company=company))
        noise = abs(timings.pop("again").device_us / timings["cutepy"].device_us - 1)
        if noise <= STEADY:
            break
    return [
        Row(
            problem=str(problem),
            contender=name,
            device_us=timing.device_us,
            call_us=timing.call_us,
            flops=problem.flops,
            bytes=problem.bytes,
            error=errors[name],
            noise=noise if name == "cutepy" else None,
        )
        for name, timing in timings.items()
    ]


def measure_all(
    command: str,
    problems: Sequence[_Problem],
    measure: Callable[[_Problem], list[Row]],
    complaint: Callable[[_Problem, list[Row]], str | None],
    output: Output,
    sums: Callable[[Report], str] | None = None,
) -> int:
    """Measure problems one after another, print and save the report, and report errors.

    Where a problem can't be measured, or Ctrl-C is pressed, the report is of those before it.

    Parameters
    ----------
    command : str
        Of `cutepy bench`.
    problems : sequence
        Problems to measure.
    measure : callable
        Gives the rows of a problem.
    complaint : callable
        Describes the fault of a problem's results, or None.
    output : Output
        Files to write and to compare with.
    sums : callable, optional
        Sums up the report in a text.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, `NOT_MEASURED` where no Hopper GPU is.
    """
    if not require_hopper(f"bench {command}"):
        return NOT_MEASURED
    earlier = Report.load(output.against) if output.against else None
    rows: list[Row] = []
    wrong: list[str] = []
    try:
        with shown_progress() as note:
            for done, problem in enumerate(problems):
                note(str(problem), done, len(problems))
                measured = measure(problem)
                rows += measured
                if (found := complaint(problem, measured)) is not None:
                    wrong.append(found)
    finally:
        report = Report(rows, benchmark.environment())
        _tell(report, output, sums)
    slower = benchmark.regressions(report, earlier) if earlier else []
    for kind, texts in (("WRONG", wrong), ("SLOWER", slower)):
        for text in texts:
            typer.echo(f"{kind}: {text}", err=True)
    return 1 if wrong or slower else 0


def _tell(report: Report, output: Output, sums: Callable[[Report], str] | None) -> None:
    """Print, save and draw a report, if it has any rows."""
    if not report.rows:
        return
    typer.echo(report.table())
    if sums is not None:
        typer.echo(sums(report))
    if output.json:
        report.save(output.json)
        typer.echo(f"saved {output.json}")
    if output.picture:
        from cutepy.benchmark.roofline import draw

        draw(report, output.picture)
        typer.echo(f"drew {output.picture}")
