"""`cutepy bench compile`: times of compiling the GEMM, and of finding it compiled.

Each figure is of a process of its own, as the DSL and the disk cache remember what a process has done before. The ways
take turns, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import cutepy
from cutepy.extras import require
from cutepy.host.environment import of_child
from cutepy.suites import compile_times

ROUNDS = 7
LIMIT_RATIO = 1.2
"""Limit of the ratio of a cold compilation to the DSL's own."""
COLD, WARM, DECLARED, OPS = (
    "cutepy.compile, nothing kept",
    "cutepy.compile, traced and found",
    "cutepy.compile, found by its sources",
    "cutepy.ops.gemm, found, import",
)
LIMITS_MS = {WARM: 200.0, DECLARED: 60.0, OPS: 150.0}
"""Limits of warm starts, in milliseconds."""

DSL, DSL_LINES = "cute.compile", "cute.compile --generate-line-info"


@dataclass(frozen=True)
class Start:
    """Measurement of one process.

    Attributes
    ----------
    wall_s, processor_s : float
        Seconds by the clock, and of this process's threads.
    compiled : bool
        True if the GEMM was compiled, not found.
    """

    wall_s: float
    processor_s: float
    compiled: bool


def run_compile(rounds: int = ROUNDS, json_path: Path | None = None) -> int:
    """Measure compilations and warm starts, and print them.

    Parameters
    ----------
    rounds : int
        Processes of each way.
    json_path : Path, optional
        File to write the figures to.

    Returns
    -------
    int
        Exit status.

    Raises
    ------
    MissingPackagesError
        If a needed package is not installed.
    """
    require("cutepy bench compile", "cutlass", "torch", "tvm_ffi")
    from rich.console import Console
    from rich.table import Table

    from cutepy.benchmark import environment

    starts = measure(rounds)
    wall = {name: [1e3 * start.wall_s for start in found] for name, found in starts.items()}
    medians = {name: statistics.median(times) for name, times in wall.items()}
    described = environment()
    caption = f"median of {rounds} processes each, in turns; without a Hopper GPU a launch is ready but for the driver"
    table = Table(title="\n".join(f"{key}: {value}" for key, value in described.items()), caption=caption)
    for column in ("of the GEMM", "ms", "range", f"of {DSL}", "with line info", "at most"):
        table.add_column(column, justify="left" if column == "of the GEMM" else "right")
    for name, median in medians.items():
        compiles = name not in LIMITS_MS
        ratios = [f"{median / medians[peer]:.2f}" if compiles else "" for peer in (DSL, DSL_LINES)]
        limit = f"{LIMIT_RATIO:g} x" if name == COLD else f"{LIMITS_MS[name]:g} ms" if name in LIMITS_MS else ""
        table.add_row(name, f"{median:.0f}", f"{min(wall[name]):.0f} to {max(wall[name]):.0f}", *ratios, limit)
    Console().print(table)
    if json_path:
        json_path.write_text(json.dumps({"environment": described, "wall_ms": wall}, indent=1) + "\n")
        typer.echo(f"saved {json_path}")
    return 0


def measure(rounds: int) -> dict[str, list[Start]]:
    """Start processes of each way in turns: way -> measurements."""
    found: dict[str, list[Start]] = {name: [] for name in (DSL, DSL_LINES, COLD, WARM, DECLARED, OPS)}
    with tempfile.TemporaryDirectory(prefix="cutepy-bench-") as folder:
        kept = Path(folder) / "kept"
        # Not counted: these runs fill the folder, and Python's and the system's caches of files.
        for way in (compile_times.OURS, compile_times.DECLARED, compile_times.OPS):
            _start(way, kept)
        for turn in range(rounds):
            empty = Path(folder) / f"empty{turn}"
            empty.mkdir()
            # The compiler's libraries are read once a machine, which takes 0.2 s or so, and not for each program.
            (empty / "libraries.json").write_bytes((kept / "libraries.json").read_bytes())
            for name, way, cache in (
                (DSL, compile_times.DSL, kept),
                (DSL_LINES, compile_times.DSL_LINES, kept),
                (COLD, compile_times.OURS, empty),
                (WARM, compile_times.OURS, kept),
                (DECLARED, compile_times.DECLARED, kept),
                (OPS, compile_times.OPS, kept),
            ):
                start = _start(way, cache)
                if start.compiled != (name not in LIMITS_MS):
                    raise RuntimeError(f"{name}: the GEMM was {'compiled' if start.compiled else 'found'}")
                found[name].append(start)
    return found


def _start(way: str, cache: Path) -> Start:
    """Measure a way in a process of its own, that keeps programs in a folder."""
    assert cutepy.__file__ is not None
    environment = of_child(cache, Path(cutepy.__file__).parents[1])
    # -P: nothing is imported from the script's folder
    command = [sys.executable, "-P", compile_times.__file__, way]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"measuring {way} failed:\n{done.stderr}")
    measured: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Start(**measured)
