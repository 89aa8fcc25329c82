"""The table of coverage is made of the opcode tests alone: what runs here is left out of it."""

import pytest


@pytest.fixture(autouse=True)
def _ptx_coverage() -> None:
    """Take the place of the fixture of this name one folder up."""
