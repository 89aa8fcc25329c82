"""Fixtures of the tests of machine code."""

import pytest


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch):
    """Compile what is tested, and take nothing that was compiled before."""
    monkeypatch.setenv("CUTEPY_CACHE", "off")


@pytest.fixture(scope="module")
def patched():
    with pytest.MonkeyPatch.context() as patch:
        yield patch
