"""Benchmark report: rows with the machine, their JSON, and a table."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

_BAR_WIDTH = 20


@dataclass(frozen=True)
class Row:
    """One contender on one problem.

    Attributes
    ----------
    problem : str
        The problem, such as "float16 4096x4096x4096".
    contender : str
        The kernel or library that computed it; "cutepy" is ours.
    device_us, call_us : float
        As in `Timing`.
    flops : float
        Floating-point operations of a launch.
    bytes : float
        Bytes a launch must move at least: each input read once, each output written once.
    error : float
        Relative Frobenius error, taken before timing.
    noise : float, optional
        Relative difference of two device times of this contender, both taken in one run.
    peer : bool
        True if ratios compare our time with this contender; False for one that only explains our time.
    """

    problem: str
    contender: str
    device_us: float
    call_us: float
    flops: float
    bytes: float
    error: float
    noise: float | None = None
    peer: bool = True

    @property
    def tflops(self) -> float:
        """Achieved TFLOP/s of device time."""
        return self.flops / self.device_us / 1e6

    @property
    def terabytes_per_second(self) -> float:
        """Achieved TB/s of device time, counting the least bytes."""
        return self.bytes / self.device_us / 1e6


@dataclass(frozen=True)
class Report:
    """Rows with the machine and versions they were measured on.

    Examples
    --------
    >>> rows = [Row("4x4x4", "cutepy", 10.0, 12.0, 128, 96, 1e-4), Row("4x4x4", "torch", 8.0, 9.0, 128, 96, 1e-4)]
    >>> round(Report(rows, {}).ratio("4x4x4"), 2)
    0.8
    """

    rows: Sequence[Row]
    environment: dict[str, str] = field(default_factory=dict)
    ours: str = "cutepy"

    def ratio(self, problem: str) -> float | None:
        """Return the best peer's device time over cutepy's: above 1 cutepy is faster. None if either is missing."""
        ours = [row.device_us for row in self.rows if row.problem == problem and row.contender == self.ours]
        others = [row for row in self.rows if row.problem == problem and row.contender != self.ours]
        peers = [row.device_us for row in others if row.peer]
        return min(peers) / ours[0] if ours and peers else None

    def of(self, problem: str) -> dict[str, Row]:
        """Return the rows of a problem, by contender."""
        return {row.contender: row for row in self.rows if row.problem == problem}

    def table(self) -> str:
        """Format the rows as text, with a bar for each ratio ours / best peer (full width is 1)."""
        lines = [f"{key}: {value}" for key, value in self.environment.items()]
        width = max((len(row.problem) for row in self.rows), default=0)
        who = max([10, *(len(row.contender) for row in self.rows)])
        lines.append(
            f"{'problem':{width}}  {'contender':>{who}} {'device us':>10} {'call us':>9} {'TFLOP/s':>8} {'TB/s':>6} "
            f"{'rel error':>9} {'noise':>6}  speed against the best peer"
        )
        for row in self.rows:
            ratio = self.ratio(row.problem) if row.contender == self.ours else None
            bar = "" if ratio is None else f"{ratio:.3f} {'#' * min(2 * _BAR_WIDTH, round(ratio * _BAR_WIDTH))}"
            noise = "" if row.noise is None else f"{row.noise:.1%}"
            lines.append(
                f"{row.problem:{width}}  {row.contender:>{who}} {row.device_us:10.1f} {row.call_us:9.1f} "
                f"{row.tflops:8.1f} {row.terabytes_per_second:6.2f} {row.error:9.1e} {noise:>6}  {bar}".rstrip()
            )
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Write the report as JSON: environment, and every row with its ratio."""
        rows: list[dict[str, Any]] = [
            asdict(row)
            | {"tflops": row.tflops, "ratio": self.ratio(row.problem) if row.contender == self.ours else None}
            for row in self.rows
        ]
        path.write_text(json.dumps({"environment": self.environment, "rows": rows}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Report":
        """Load a saved report.

        Raises
        ------
        ValueError
            If the file holds none.
        """
        names = {each.name for each in fields(Row)}
        try:
            saved = json.loads(path.read_text())
            rows = [Row(**{name: value for name, value in row.items() if name in names}) for row in saved["rows"]]
            return cls(rows, saved["environment"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} must be a report that `cutepy bench ... --json` saved: {error!r}") from error


def environment() -> dict[str, str]:
    """Return the GPU, its clock and power limit, the driver, the CPU, the versions and the date."""
    import torch

    query = "name,driver_version,clocks.sm,clocks.max.sm,power.limit"
    try:
        asked = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        gpu, driver, clock, max_clock, power = (part.strip() for part in asked.stdout.splitlines()[0].split(","))
    except (OSError, subprocess.SubprocessError):
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
        gpu, driver, clock, max_clock, power = name, *["unknown"] * 4
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "gpu": "none" if gpu == "none" else f"{gpu}, power limit {power}, SM clock {clock} of {max_clock}",
        "driver": driver,
        "cpu": processor(),
        "versions": ", ".join(
            (
                f"python {platform.python_version()}",
                f"torch {torch.__version__}",
                f"nvidia-cutlass-dsl {importlib.metadata.version('nvidia-cutlass-dsl')}",
            )
        ),
    }


def processor() -> str:
    """Return the CPU's name and the number of cores this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"
