"""Compare what each test executed with the table of coverage, or write the table (CUTEPY_PTX_COVERAGE=write)."""

import os
from collections.abc import Iterator

import pytest

from tests.sim import coverage_table, opcode_runner

_seen: dict[str, set[str]] = {}


@pytest.fixture(autouse=True)
def _ptx_coverage(request: pytest.FixtureRequest) -> Iterator[None]:
    opcode_runner.executed.clear()
    yield
    name = request.node.nodeid.removeprefix("tests/sim/")
    if os.environ.get("CUTEPY_PTX_COVERAGE") == "write":
        _seen[name] = set(opcode_runner.executed)
        return
    expected = coverage_table.by_test().get(name, set())
    if opcode_runner.executed != expected:
        pytest.fail(
            f"{name} executed {sorted(opcode_runner.executed - expected)}, not in tests/sim/coverage.txt, and not "
            f"{sorted(expected - opcode_runner.executed)}, which is there; write the table anew: "
            f"{coverage_table.COMMAND}"
        )


def pytest_sessionfinish() -> None:
    if _seen:
        coverage_table.write(_seen)
