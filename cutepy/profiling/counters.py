"""Hardware counters of launches, by NVIDIA's `ncu`, and the sentence that names a kernel's bound.

References
----------
Nsight Compute CLI: `--page raw --csv`; sections SpeedOfLight, ComputeWorkloadAnalysis, WarpStateStats.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from cutepy.profiling.names import short_name

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "Occupancy",
)
BUSY = 60.0
"""Utilisation from which a unit is said to bound a kernel, in percent of its peak."""
FULL_DRAM = 75.0
"""Utilisation of DRAM from which it bounds a kernel, however busy L2 is, which fills and empties with it: a copy gets
82% of an H200's peak (h200.json, 2026-11-30)."""

_UNITS: Mapping[str, str] = {
    "tensor cores": r"sm__.*pipe_tensor.*\.avg\.pct_of_peak_sustained_(active|elapsed)",
    "DRAM": r"(gpu__dram|dram__)_?throughput\.avg\.pct_of_peak_sustained_elapsed",
    "L2": r"lts__throughput\.avg\.pct_of_peak_sustained_elapsed",
    "L1 and shared memory": r"l1tex__throughput\.avg\.pct_of_peak_sustained_(active|elapsed)",
    "issue slots": r"(sm|smsp)__(inst_issued|issue_active)\.avg\.pct_of_peak_sustained_active",
}
"""Utilisation metric of ncu -> unit. The names of tensor pipes differ between architectures."""
_STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio")
_DURATION = "gpu__time_duration.sum"


class CountersError(RuntimeError):
    """Error of hardware counters that this machine lacks or forbids."""


@dataclass(frozen=True)
class Counters:
    """Counters of one launch.

    Attributes
    ----------
    kernel : str
    ns : float
        Duration, under ncu's clocks.
    busy : mapping of str to float
        Unit -> utilisation in percent of its peak, for the units that ncu reports.
    stalls : mapping of str to float
        Stall reason -> cycles of a warp for each instruction that it issues.
    """

    kernel: str
    ns: float
    busy: Mapping[str, float]
    stalls: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The unit that bounds the launch: DRAM from `FULL_DRAM` percent on, else the busiest from `BUSY` on.

        It is "latency" if there is none.
        """
        if self.busy.get("DRAM", 0.0) >= max(FULL_DRAM, self.busy.get("tensor cores", 0.0)):
            return "DRAM"
        name, percent = max(self.busy.items(), key=lambda each: each[1], default=("", 0.0))
        return name if percent >= BUSY else "latency"

    def __str__(self) -> str:
        units = sorted(self.busy.items(), key=lambda each: -each[1])
        told = ", ".join(f"{name} {percent:.0f}%" for name, percent in units)
        if self.bound == "latency":
            why = f"bound by latency, no unit is at {BUSY:.0f}% of its peak"
        else:
            why = f"bound by its {self.bound}"
        waits = ""
        if self.stalls:
            stall, cycles = max(self.stalls.items(), key=lambda each: each[1])
            waits = f"; warps wait most for {stall}, {cycles:.1f} of {sum(self.stalls.values()):.1f} cycles"
        return f"{short_name(self.kernel)}: {self.ns / 1000:.1f} us, {why} ({told}){waits}"


def count(script: Path, arguments: Sequence[str], launches: int) -> list[Counters]:
    """Run a script under ncu, in a process of its own.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
    launches : int
        Number of launches to measure, from the first on; ncu replays each several times.

    Returns
    -------
    list of Counters

    Raises
    ------
    CountersError
        If ncu is missing, the machine does not permit counters, or nothing was launched.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        sections = [each for name in SECTIONS for each in ("--section", name)]
        how = ["--csv", "--page", "raw", "--print-units", "base"]
        code = run_ncu([*how, *sections, "--launch-count", str(launches), "--log-file", str(log)], script, arguments)
        text = log.read_text(errors="replace") if log.exists() else ""
    found = read(text)
    if not found:
        raise CountersError(reason(text, code))
    return found


def run_ncu(options: Sequence[str], script: Path | None = None, arguments: Sequence[str] = ()) -> int:
    """Run ncu with options, on a script if there is one, under the clocks that a program has; returns its exit code.

    Raises
    ------
    CountersError
        If there is no ncu.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise CountersError("counters need ncu, of Nsight Compute, and there is none; add its folder to PATH")
    if script is None:
        return subprocess.run([ncu, *options], check=False, stdout=subprocess.DEVNULL).returncode
    how = ["--clock-control", "none", "--target-processes", "all"]
    return subprocess.run([ncu, *how, *options, sys.executable, str(script), *arguments], check=False).returncode


def reason(text: str, code: int) -> str:
    """Explain why ncu measured no launch.

    Examples
    --------
    >>> reason("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1).partition(";")[0]
    'this machine permits counters to administrators only'
    """
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "this machine permits counters to administrators only; ask for the module option "
            "NVreg_RestrictProfilingToAdminUsers=0 of the driver (in /etc/modprobe.d, then a reboot), or, in a "
            "container, for the capability SYS_ADMIN"
        )
    errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    told = errors[0].removeprefix("==ERROR==").strip() if errors else "no kernel was launched"
    return f"ncu counted nothing and ended with {code}: {told}"


def read(text: str) -> list[Counters]:
    """Parse the output of `ncu --csv --page raw`.

    Examples
    --------
    >>> text = '''==PROF== Connected to process 7
    ... "ID","Kernel Name","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum"
    ... "","","%","nsecond"
    ... "0","copy","91.5","1,234,000"
    ... '''
    >>> print(*read(text))
    copy: 1234.0 us, bound by its DRAM (DRAM 92%)
    """
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(StringIO("\n".join(line for line in lines[begin:] if not line.startswith("==")))))
    return [_counters(row) for row in rows if row["ID"]]


def _counters(row: Mapping[str, str]) -> Counters:
    values = {name: value for name, text in row.items() if (value := _number(text)) is not None}
    busy = {}
    for unit, pattern in _UNITS.items():
        of_unit = [value for name, value in values.items() if re.fullmatch(pattern, name)]
        if of_unit:
            busy[unit] = max(of_unit)
    stalls = {found[1].replace("_", " "): value for name, value in values.items() if (found := _STALL.fullmatch(name))}
    return Counters(row["Kernel Name"], values.get(_DURATION, 0.0), busy, stalls)


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
