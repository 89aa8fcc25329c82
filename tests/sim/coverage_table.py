"""The table of coverage, `tests/sim/coverage.txt`: which tests execute which PTX spelling.

It is written by running the tests, and each test checks its own rows.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

COMMAND = "CUTEPY_PTX_COVERAGE=write python -m pytest tests/sim"
PATH = Path(__file__).with_name("coverage.txt")
_HEADER = f"# PTX spelling, then the tests that execute it. Written by: {COMMAND}\n"


@cache
def by_spelling() -> dict[str, tuple[str, ...]]:
    """Return spelling -> tests."""
    table: dict[str, tuple[str, ...]] = {}
    if PATH.exists():
        for line in PATH.read_text().splitlines()[1:]:
            spelling, *tests = line.split("\t")
            table[spelling] = tuple(tests)
    return table


@cache
def by_test() -> dict[str, set[str]]:
    """Return test -> spellings."""
    table: dict[str, set[str]] = {}
    for spelling, tests in by_spelling().items():
        for test in tests:
            table.setdefault(test, set()).add(spelling)
    return table


def write(seen: dict[str, set[str]]) -> None:
    """Write the table from what each test executed; tests of files that did not run keep their rows."""
    ran = {_file(test) for test in seen}
    kept = {t: s for t, s in by_test().items() if _file(t) not in ran and PATH.with_name(_file(t)).exists()}
    rows: dict[str, list[str]] = {}
    for test, spellings in (kept | seen).items():
        for spelling in spellings:
            rows.setdefault(spelling, []).append(test)
    lines = ["\t".join((spelling, *sorted(tests))) + "\n" for spelling, tests in sorted(rows.items())]
    PATH.write_text(_HEADER + "".join(lines))


def _file(test: str) -> str:
    return test.partition("::")[0]
