"""`cutepy predict --vary`: the predicted times of a script with each of several values of its own options."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutepy.cli.failure import fail
from cutepy.cli.scripts import Script

if TYPE_CHECKING:
    from rich.table import Table

MOST = 64
"""Configurations of one table."""


def read(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read options with their values.

    Examples
    --------
    >>> read(["stages=2,3,4", "tile-m=64,128"])
    {'stages': ['2', '3', '4'], 'tile-m': ['64', '128']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        every = values.split(",")
        if not (name and equals and all(every)):
            fail(f"--vary takes NAME=VALUE,VALUE,..., an option of the script and its values, got {text!r}")
        if name in found:
            fail(f"--vary takes each option once, got {name} twice")
        found[name] = every
    return found


def configurations(varied: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield all combinations of values, those of the last option the fastest.

    Examples
    --------
    >>> [*configurations({"stages": ["2", "3"], "tile": ["64"]})]
    [{'stages': '2', 'tile': '64'}, {'stages': '3', 'tile': '64'}]
    """
    for values in itertools.product(*varied.values()):
        yield dict(zip(varied, values, strict=True))


def run(
    script: Script,
    varied: Mapping[str, Sequence[str]],
    gpu: str,
    json_path: Path | None = None,
) -> int:
    """Predict a script with each combination of options, in processes of their own, and print a table.

    Parameters
    ----------
    script : Script
        Its arguments come before the options.
    varied : mapping of str to sequence of str
        Values by option: "stages" is passed as ``--stages``.
    gpu : str
    json_path : Path, optional
        File to write the configurations with their predictions to.

    Returns
    -------
    int
        0, or 2 if no configuration was predicted.
    """
    from rich.console import Console

    every = [*configurations(varied)]
    if len(every) > MOST:
        fail(f"--vary takes at most {MOST} configurations, got {len(every)}")
    rows: list[dict[str, Any]] = []
    for options in every:
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        found, error = _predicted(script.path, [*script.arguments, *given], gpu)
        rows.append({"options": options, "predictions": found})
        if error:
            script.echo(f"cutepy: {' '.join(given)}: {error}")
    Console().print(table(rows))
    for line in waits(rows):
        print(line)
    if json_path is not None:
        json_path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if any(row["predictions"] for row in rows) else 2


def _predicted(script: Path, arguments: Sequence[str], gpu: str) -> tuple[list[dict[str, Any]], str]:
    """Predict one configuration; returns why there is nothing, else an empty text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predictions.json"
        command = [sys.executable, "-m", "cutepy", "predict", "--gpu", gpu, "--json", str(path), str(script)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if found:
        return found, ""
    said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("cutepy: ")]
    return [], said[-1].strip() if said else "the script launched no kernel"


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make the table: a row for each configuration, the fastest marked; shares are those of its longest launch."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in (*rows[0]["options"], "us", "/best", "bound", "tensor", "KiB in flight", "CTAs"):
        made.add_column(name, justify="left" if name == "bound" else "right", no_wrap=True)
    times = [sum(each["us"] for each in row["predictions"]) for row in rows]
    best = min((us for us in times if us), default=0.0)
    for row, us in zip(rows, times, strict=True):
        if not us:
            made.add_row(*row["options"].values(), "", "", "not predicted")
            continue
        long = max(row["predictions"], key=lambda each: float(each["us"]))
        made.add_row(
            *row["options"].values(),
            f"{us:.2f}",
            "best" if us == best else f"{us / best:.2f}",
            long["bound"],
            f"{long['use'].get('tensor cores', 0.0):.0%}",
            f"{long['in_flight_bytes'] / 1024:.0f} of {long['needed_bytes'] / 1024:.0f}",
            str(long["occupancy"]["ctas_per_sm"]),
        )
    return made


def waits(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield for each configuration the line at which the warps of its longest launch wait most."""
    for row in rows:
        long = max(row["predictions"], key=lambda each: float(each["us"]), default=None)
        stall = None if long is None else next(iter(long["stalls"]), None)
        if stall is not None:
            given = ", ".join(f"{name} {value}" for name, value in row["options"].items())
            yield f"{given}: warps wait most for {stall['cause']}, at {Path(stall['line']).name}"
