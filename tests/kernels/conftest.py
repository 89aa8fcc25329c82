"""Fixtures of the tests of kernels."""

import pytest


@pytest.fixture
def complete_launches(monkeypatch):
    """Fail launches that leave arguments out: on a GPU, each of these fails first, and is repeated."""
    pytest.importorskip("cutlass")
    from cutepy.host.function import Function

    simulate = Function._simulate

    def look(self, backend, arguments):
        count = sum(parameter.kind != "stream" for parameter in self.parameters)
        assert len(arguments) == count, f"{self.__name__} has {count} arguments, and was passed {len(arguments)}"
        simulate(self, backend, arguments)

    monkeypatch.setattr(Function, "_simulate", look)
