"""Summary of measurements of many problems: speed against the best peer, in the mean and by classes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from cutepy.benchmark import Report

_TILES = (1, 16, 64, 132, 400)
"""Least number of 128 x 128 output tiles for each row of the table."""
_SHORT_K, _LONG_K = 512, 2048
_PERCENT = (1, 5, 25, 50, 75, 95)


def summary(extents: Mapping[str, tuple[int, int, int]], report: Report) -> str:
    """Summarise the ratios of a report.

    Parameters
    ----------
    extents : mapping of str to (int, int, int)
        M, N and K of each problem, by its name in the report.
    report : Report

    Returns
    -------
    str
        The geometric mean and quantiles of the speed against the best peer, and the mean by tiles and by K.

    Examples
    --------
    >>> from cutepy.benchmark import Report, Row
    >>> def rows(name, ours, theirs):
    ...     return [Row(name, who, us, us, 1, 1, 0) for who, us in (("cutepy", ours), ("cuBLAS", theirs))]
    >>> report = Report(rows("one", 1.0, 2.0) + rows("two", 4.0, 2.0))
    >>> print(summary({"one": (128, 128, 64), "two": (1024, 1024, 4096)}, report))
    speed against the best peer: geometric mean 1.000 of 2 problems
    quantiles: 1% 0.50, 5% 0.50, 25% 0.50, 50% 0.50, 75% 2.00, 95% 2.00
    tiles of 128x128     K < 512     to 2048       above
    from 1              2.00 (1)           -           -
    from 64                    -           -    0.50 (1)
    """
    ratios = {name: ratio for name in extents if (ratio := report.ratio(name)) is not None}
    if not ratios:
        return "nothing was measured against a peer"
    ordered = sorted(ratios.values())
    lines = [
        f"speed against the best peer: geometric mean {statistics.geometric_mean(ordered):.3f} of {len(ordered)} "
        "problems",
        "quantiles: " + ", ".join(f"{p}% {_quantile(ordered, p):.2f}" for p in _PERCENT),
        f"{'tiles of 128x128':16}" + "".join(f"{title:>12}" for title in ("K < 512", "to 2048", "above")),
    ]
    classes: dict[int, list[list[float]]] = {}
    for name, ratio in ratios.items():
        m, n, k = extents[name]
        row = max(least for least in _TILES if least <= math.ceil(m / 128) * math.ceil(n / 128))
        classes.setdefault(row, [[], [], []])[(k >= _SHORT_K) + (k >= _LONG_K)].append(ratio)
    for row, columns in sorted(classes.items()):
        cells = [f"{statistics.geometric_mean(cell):.2f} ({len(cell)})" if cell else "-" for cell in columns]
        lines.append(f"{f'from {row}':16}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def _quantile(ordered: Sequence[float], percent: int) -> float:
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
