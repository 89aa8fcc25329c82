"""Roofline picture of a report: each row against the limits of memory and tensor cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutepy.benchmark.report import Report
from cutepy.extras import require

BYTES_PER_US = 4.24e6
"""Measured copy rate of an H200, of the 4.8 TB/s in its data sheet."""
FLOPS_PER_US: Mapping[str, float] = {"tf32": 494e6, "16-bit": 989e6, "8-bit": 1979e6}
"""Dense rate of an H200 at 1.83 GHz, by its data sheet; at 700 W large products reach about 0.8 of it."""
_EIGHT = "float8"


def draw(report: Report, path: Path) -> None:
    """Draw speed over arithmetic intensity, a point for each row, beneath the roofs of memory and tensor cores.

    Parameters
    ----------
    report : Report
    path : Path
        Ends in .svg, .png or .pdf.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.
    ValueError
        If the file's ending is none that matplotlib writes.
    """
    require("the picture of measurements", "matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes: Any = figure.add_subplot()
    intensities = [row.flops / row.bytes for row in report.rows]
    low, high = min(intensities, default=1.0) / 2, max(intensities, default=1000.0) * 2
    for name, peak in FLOPS_PER_US.items():
        ridge = peak / BYTES_PER_US
        roof = sorted({low, min(max(ridge, low), high), high})
        axes.plot(roof, [min(x * BYTES_PER_US, peak) / 1e6 for x in roof], color="0.6", linewidth=1)
        axes.annotate(
            name, (high, min(high * BYTES_PER_US, peak) / 1e6), fontsize="small", color="0.4", ha="right", va="bottom"
        )
    for contender in dict.fromkeys(row.contender for row in report.rows):
        rows = [row for row in report.rows if row.contender == contender]
        x, y = [row.flops / row.bytes for row in rows], [row.tflops for row in rows]
        axes.plot(x, y, "o" if contender == report.ours else "x", markersize=4, alpha=0.7, label=contender)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("flops for each byte that must be moved")
    axes.set_ylabel("TFLOP/s of device time")
    axes.set_title(report.environment.get("gpu", ""), fontsize="small")
    axes.legend(fontsize="small")
    figure.savefig(path)
