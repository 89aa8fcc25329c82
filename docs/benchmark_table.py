"""The table of docs/benchmarks.md, from saved reports: `python docs/benchmark_table.py` writes it into the page.

`cutepy bench ... --json FILE` saves a report. Add the keys `title`, `command` and `peer`, and put the file into
`tests/kernels/timed/reports`. A report without rows has `quantiles` instead. A test compares the table.
"""

import json
import math
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("benchmarks.md")
REPORTS = Path(__file__).parents[1] / "tests" / "kernels" / "timed" / "reports"
MARKS = "<!-- table: begin -->\n", "<!-- table: end -->"
QUANTILES = {"5%": 0.05, "50%": 0.5, "95%": 0.95}


def quantile(ordered: list[float], share: float) -> float:
    """Interpolate between the two values that lie beside a share of a sorted list."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    return ordered[below] + (place - below) * (ordered[min(below + 1, len(ordered) - 1)] - ordered[below])


def summary(report: dict[str, Any]) -> dict[str, float]:
    """Summarise a report's ratios: how many, their geometric mean, and three quantiles."""
    ratios = sorted(row["ratio"] for row in report["rows"] if row.get("ratio") is not None)
    if not ratios:
        return dict(report["quantiles"])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return {"problems": len(ratios), "mean": mean} | {name: quantile(ratios, at) for name, at in QUANTILES.items()}


def row(report: dict[str, Any]) -> str:
    """Write the line of a report."""
    found = summary(report)
    environment = report["environment"]
    speeds = " | ".join(f"{found[name]:.2f}" for name in ("mean", *QUANTILES))
    who = f"{environment['gpu'].partition(',')[0]}, {environment['date'].partition(' ')[0]}"
    return (
        f"| {report['title']} | {report['peer']} | {who} | {found['problems']:.0f} | {speeds} | `{report['command']}` |"
    )


def in_company(report: dict[str, Any]) -> bool:
    """Tell whether another library's kernel ran between every two launches, as it does for users."""
    return "--between" in report["command"] or report["command"].startswith("bench layer")


def table() -> str:
    """Write the table of all saved reports, those beside other kernels first."""
    head = f"| problems | peer | GPU, date | count | mean | {' | '.join(QUANTILES)} | command |"
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(REPORTS.glob("*.json"))]
    reports.sort(key=in_company, reverse=True)
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *map(row, reports), ""])


def with_table(page: str) -> str:
    """Return the page with the table between its marks."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (begin and end):
        raise ValueError(
            f"the page must have {MARKS[0].strip()} and {MARKS[1]} to put the table between, got neither or one"
        )
    return f"{before}{begin}\n{table()}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
