"""Pytest plugin of the mutation runs: short, repeatable properties, and which tests run which lines.

With MUTATION_COVERAGE set to a folder, every process, those of xdist included, leaves its coverage there, each test's
under its own name, and how long its tests took and which of them failed. With MUTATION_FAILURE set to a file, it gets
the name of the test that failed.
"""

import json
import os
import uuid
import warnings
from collections import Counter
from pathlib import Path

import coverage
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "mutation",
    max_examples=30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

_measuring = None
_seconds: Counter[str] = Counter()
_failed: set[str] = set()
if folder := os.environ.get("MUTATION_COVERAGE"):
    data = Path(folder) / f"coverage.{uuid.uuid4().hex}"
    _measuring = coverage.Coverage(
        data_file=data, config_file=False, include=["*/cutepy/*", "*/kernels/*", "*/layouts/*"]
    )
    _measuring.start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Name the test to coverage; its own guess is hypothesis's engine for every property."""
    if _measuring is not None:
        _measuring.switch_context(item.nodeid.partition("[")[0])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.partition("[")[0]
    _seconds[name] += report.duration
    if report.failed:
        _failed.add(name)
        if told := os.environ.get("MUTATION_FAILURE"):
            Path(told).write_text(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    if _measuring is not None:
        _measuring.stop()
        with warnings.catch_warnings(action="ignore"):  # xdist's first process runs no test
            _measuring.save()
        told = {"seconds": _seconds, "failed": sorted(_failed)}
        data.with_name(f"told.{uuid.uuid4().hex}").write_text(json.dumps(told))
