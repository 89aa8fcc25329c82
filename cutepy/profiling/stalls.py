"""Stalls of warps by line of Python, from the samples of NVIDIA's `ncu`.

`ncu` samples the warps' program counters, and its report joins them with the lines that the compiler has written into
the code (`.loc`): of Triton, nvcc and the DSL alike. A line is that of the innermost function: of a block of
`cutepy.device` the block's own.

References
----------
Nsight Compute CLI: `--page source --csv --print-source cuda,sass`; sections SourceCounters and WarpStateStats.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from cutepy.profiling.counters import CountersError, reason, run_ncu
from cutepy.profiling.names import short_name

MEANINGS = {
    "barrier": "a barrier of threads",
    "branch resolving": "a branch",
    "dispatch": "the dispatcher",
    "drain": "stores at the end",
    "warpgroup arrive": "earlier MMAs of the warpgroup",
    "imc": "constants",
    "lg": "the queue of global accesses",
    "long sb": "global memory, or an mbarrier",
    "math": "a pipe",
    "membar": "a fence",
    "mio": "the queue of shared memory",
    "no inst": "instructions",
    "not selected": "other warps",
    "selected": "nothing: it issues",
    "short sb": "shared memory",
    "sleep": "a sleep",
    "tex": "textures",
    "wait": "a fixed latency",
}
"""Reasons for a stall, by ncu's names."""
_LINES = 8


@dataclass
class LineStalls:
    """Samples of one line.

    Attributes
    ----------
    file : str
    line : int
    text : str
        Of the source, as ncu read it.
    samples : int
    stalls : Counter of str to int
        Samples by reason, of `MEANINGS`.
    excessive_sectors, excessive_wavefronts : int
        Beyond the fewest, of global and of shared memory.
    """

    file: str
    line: int
    text: str
    samples: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    excessive_sectors: int = 0
    excessive_wavefronts: int = 0

    def __str__(self) -> str:
        reasons = ", ".join(
            f"{MEANINGS.get(name, name)} {count / max(self.samples, 1):.0%}"
            for name, count in self.stalls.most_common(2)
        )
        more = [
            f"{count} {what} too many"
            for count, what in (
                (self.excessive_sectors, "sectors"),
                (self.excessive_wavefronts, "wavefronts of shared memory"),
            )
            if count
        ]
        return "; ".join([f"{PurePath(self.file).name}:{self.line}: {reasons}", *more])


@dataclass
class KernelStalls:
    """Samples of the launches of a kernel.

    Attributes
    ----------
    kernel : str
    lines : list of LineStalls
        Those with the most samples first.
    """

    kernel: str
    lines: list[LineStalls]

    @property
    def samples(self) -> int:
        """Samples of all lines."""
        return sum(line.samples for line in self.lines)

    def __str__(self) -> str:
        told = [f"{short_name(self.kernel)}: {self.samples} samples of its warps"]
        for line in self.lines[:_LINES]:
            if line.samples:
                told.append(f"  {line.samples / self.samples:4.0%}  {line}")
                told.append(f"        {line.text.strip()}")
        return "\n".join(told)


def sample(script: Path, arguments: Sequence[str], launches: int) -> list[KernelStalls]:
    """Run a script under ncu, in a process of its own, and read where the warps of its first launches stall.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
    launches : int

    Raises
    ------
    CountersError
        If ncu is missing, the machine does not permit counters, nothing was launched, or no code has lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, report = Path(folder) / "log.txt", Path(folder) / "report.ncu-rep"
        sections = ["--section", "SourceCounters", "--section", "WarpStateStats", "--import-source", "yes"]
        code = run_ncu(
            [*sections, "-o", str(report), "--launch-count", str(launches), "--log-file", str(log)], script, arguments
        )
        if not report.exists():
            raise CountersError(reason(log.read_text(errors="replace") if log.exists() else "", code))
        page = Path(folder) / "page.csv"
        run_ncu(
            [
                "--import",
                str(report),
                "--page",
                "source",
                "--csv",
                "--print-source",
                "cuda,sass",
                "--log-file",
                str(page),
            ]
        )
        found = read(page.read_text(errors="replace") if page.exists() else "")
    if not found:
        raise CountersError(
            f"ncu told no line of the first {launches} launches; take more, or compile with line information "
            "(nvcc -lineinfo, --generate-line-info)"
        )
    return found


def read(text: str) -> list[KernelStalls]:
    """Parse the output of `ncu --page source --csv --print-source cuda,sass`.

    Examples
    --------
    >>> text = '''"File Path","/a/k.py"
    ... "Function Name","copy"
    ... "Line No","Source","Address","Source","# Samples","stall_long_sb","stall_wait"
    ... "7","x = load(p)","-","-","10","8","2"
    ... "","","0x10","LDG R0, [R2]","10","8","2"
    ... '''
    >>> print(*read(text))
    copy: 10 samples of its warps
      100%  k.py:7: global memory, or an mbarrier 80%, a fixed latency 20%
            x = load(p)
    """
    kernels: dict[str, dict[tuple[str, int], LineStalls]] = {}
    file, kernel, head = "", "", []
    for row in map(_fields, text.splitlines()):
        if row[0] == "File Path":
            file = row[1]
        elif row[0] in ("Function Name", "Kernel Name"):
            kernel = row[1]
        elif row[0] == "Line No":
            head = row
        elif row[0].isdigit() and len(row) >= len(head) > 2:
            beyond = len(head) - 2  # quotes within the source are not doubled: its text may look like several fields
            source, numbers = '","'.join(row[1:-beyond]), row[-beyond:]
            line = kernels.setdefault(kernel, {}).setdefault((file, int(row[0])), LineStalls(file, int(row[0]), source))
            _add(line, head[2:], numbers)
    for line in (line for lines in kernels.values() for line in lines.values()):
        # The page of ncu 2025.3 has no column of waits for wgmma, which its samples count: of the recorded product's
        # busiest line 680 of 775 are smsp__pcsamp_warps_issue_stalled_warpgroup_arrive.
        if rest := line.samples - line.stalls.total():
            line.stalls["warpgroup arrive"] += rest
    return [
        KernelStalls(name, sorted(lines.values(), key=lambda line: -line.samples)) for name, lines in kernels.items()
    ]


def _fields(row: str) -> list[str]:
    return row.strip().removeprefix('"').rstrip(",").removesuffix('"').split('","')


def _add(line: LineStalls, head: Sequence[str], row: Sequence[str]) -> None:
    """Add a row's samples to a line."""
    for name, text in zip(head, row, strict=True):
        count = int(text) if text.isdigit() else 0
        if name == "# Samples":
            line.samples += count
        elif name.startswith("stall_") and "(" not in name and count:
            line.stalls[name.removeprefix("stall_").replace("_", " ")] += count
        elif name == "L2 Theoretical Sectors Global Excessive":
            line.excessive_sectors += count
        elif name == "L1 Wavefronts Shared Excessive":
            line.excessive_wavefronts += count
