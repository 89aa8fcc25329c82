"""Launches of tests that count are recorded: see `coverage`."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.sim import coverage


@pytest.fixture(autouse=True)
def _ptx_coverage(request: pytest.FixtureRequest) -> Iterator[None]:
    with coverage.recording() if coverage.counts(request.node) else nullcontext():
        yield
