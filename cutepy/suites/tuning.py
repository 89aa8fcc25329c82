"""Tuning of a kernel family's problems by a command: on all GPUs that torch sees, with the winners printed."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence

import torch
import typer

from cutepy.host import environment
from cutepy.suites.measurement import NOT_MEASURED, require_hopper
from cutepy.tune import Settings, Tunable, Tuning, TuningError, Winner
from cutepy.tune.timing import Note


def run(
    command: str,
    tunable: Tunable,
    problems: Sequence[tuple[object, Settings]],
    *,
    resume: bool,
    note: Note,
    prune: float | None = None,
) -> int:
    """Tune problems, on all GPUs that torch sees, and print the winners.

    Parameters
    ----------
    command : str
        Whose GPUs it is that are missing, such as "tune gemm".
    tunable : Tunable
    problems : sequence of (object, mapping)
        Each as it is printed, and as tuning describes it.
    resume : bool
        True if earlier times count.
    note : callable
        Is told of the progress.
    prune : float, optional
        As of `Tuning`.

    Returns
    -------
    int
        Exit status: 1 where a problem has no winner, 2 where nothing could be measured.
    """
    if not require_hopper(command):
        return NOT_MEASURED
    started = environment.torchrun()
    if torch.cuda.device_count() > 1 and started is None:
        return _on_every_gpu(torch.cuda.device_count())
    try:
        found = Tuning(tunable, resume=resume, note=note, prune=prune).run([settings for _, settings in problems])
    except TuningError as error:
        typer.echo(str(error), err=True)
        return 1
    if started is None or started.rank == 0:
        typer.echo(table([str(name) for name, _ in problems], found))
    return 0


def _on_every_gpu(count: int) -> int:
    """Run the same command once for each GPU."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return subprocess.run([*torchrun, "-m", "cutepy", *sys.argv[1:]], check=False).returncode


def table(names: Sequence[str], winners: Sequence[Winner]) -> str:
    """Format the winners, and their gain over the choice without tuning, in the geometric mean too.

    Examples
    --------
    >>> candidate = {"transposed": False, "tile_m": 64, "tile_n": 32, "split_k": 1}
    >>> print(table(["float16 512x512x512"], [Winner({"m": 512}, candidate, 5.0, 5.5, 100)]))
    float16 512x512x512: 5.0 us, 1.100 times as fast as the 5.5 us of the model's choice, of 100 candidates; tile_m=64 tile_n=32 split_k=1
    1 problem, 1.100 times as fast in the geometric mean
    """  # noqa: E501
    lines = []
    for name, won in zip(names, winners, strict=True):
        chosen = " ".join(
            each if value is True else f"{each}={value}" for each, value in won.candidate.items() if value is not False
        )
        lines.append(
            f"{name}: {won.us:.1f} us, {won.gain:.3f} times as fast as the {won.default_us or won.us:.1f} us of the "
            f"model's choice, of {won.compared} candidates; {chosen}"
        )
    mean = math.exp(sum(math.log(won.gain) for won in winners) / max(len(winners), 1))
    count = f"{len(winners)} problem{'s' if len(winners) > 1 else ''}"
    return "\n".join([*lines, f"{count}, {mean:.3f} times as fast in the geometric mean"])
