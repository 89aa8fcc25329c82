"""Every launch is recorded: see `coverage`."""

from collections.abc import Iterator

import pytest

from tests.sim import coverage


@pytest.fixture(autouse=True)
def _ptx_coverage() -> Iterator[None]:
    with coverage.recording():
        yield
