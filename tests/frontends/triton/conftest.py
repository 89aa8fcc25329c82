"""Triton's cache of a session, and a run for each test."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def seeded(tmp_path_factory, monkeypatch):
    torch.manual_seed(3)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))


@pytest.fixture
def run():
    import cutepy

    with cutepy.simulate() as active:
        yield active
