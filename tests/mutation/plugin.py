"""Pytest plugin of the mutation runs: short, repeatable properties, and each test's coverage under its own name."""

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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Name the test to coverage; its own guess is hypothesis's engine for every property."""
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.switch_context(item.nodeid.partition("[")[0])
