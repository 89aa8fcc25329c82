"""`cutepy bench launch`: what a call costs the host."""

import json
from pathlib import Path

import typer

from cutepy.cli.bench_report import NOT_MEASURED, require_hopper


def run_launch(json_path: Path | None = None) -> int:
    """Measure the host time of a call by each way there is, and print it.

    Parameters
    ----------
    json_path : Path, optional
        Where to write the figures.

    Returns
    -------
    int
        Exit status: 2 where nothing could be measured.
    """
    if not require_hopper("launch"):
        return NOT_MEASURED
    from rich.console import Console
    from rich.table import Table

    from cutepy.benchmark import environment
    from cutepy.benchmark.launch import CALLS, ROUNDS, launch_costs

    costs = launch_costs()
    table = Table(caption=f"median of {ROUNDS} rounds of {CALLS} calls, ways in turns")
    table.add_column("call")
    table.add_column("host time, us", justify="right")
    for name, cost in costs.items():
        table.add_row(name, f"{cost:.2f}")
    Console().print(table)
    if json_path:
        json_path.write_text(json.dumps({"environment": environment(), "call_us": costs}, indent=2) + "\n")
        typer.echo(f"saved {json_path}")
    return 0
