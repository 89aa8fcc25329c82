"""The table of docs/benchmarks.md is the one that docs/benchmark_table.py writes of the saved reports."""

import importlib.util
import json
from pathlib import Path

from cutepy.benchmark.report import Report, Row
from tests.messages import refuses

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("benchmark_table", ROOT / "docs" / "benchmark_table.py")
benchmark_table = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(benchmark_table)


def test_the_page_has_the_table_that_the_command_writes():
    page = benchmark_table.PAGE.read_text(encoding="utf-8")
    assert page == benchmark_table.with_table(page), "run python docs/benchmark_table.py"


def test_each_report_is_a_row():
    assert benchmark_table.table().count("\n") == 2 + len(list(benchmark_table.REPORTS.glob("*.json")))


def test_a_report_that_the_command_saved_is_read(tmp_path, monkeypatch):
    times = {"a": (1.0, 2.5), "b": (1.0, 0.5)}
    rows = [
        Row(problem, who, us, us, 1, 1, 0.0)
        for problem, pair in times.items()
        for who, us in zip(("cutepy", "cuBLAS"), pair, strict=True)
    ]
    path = tmp_path / "x.json"
    Report(rows, {"gpu": "NVIDIA H100, power limit 700 W", "date": "2026-11-28 10:00 UTC"}).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"title": "t", "command": "c", "peer": "p"}))
    monkeypatch.setattr(benchmark_table, "REPORTS", tmp_path)
    last = benchmark_table.table().splitlines()[-1]
    assert last == "| t | p | NVIDIA H100, 2026-11-28 | 2 | 1.12 | 0.60 | 1.50 | 2.40 | `c` |"


def test_a_page_without_marks_is_refused():
    with refuses(ValueError):
        benchmark_table.with_table("no table\n")


def test_quantiles_lie_between_neighbours():
    assert benchmark_table.quantile([1.0, 2.0, 4.0], 0.75) == 3.0
    assert benchmark_table.quantile([5.0], 0.95) == 5.0
