"""A process that compiles, without starting one: what it makes of a script's names, and when it ends."""

import signal
import sys
from functools import wraps
from types import ModuleType, SimpleNamespace

import pytest

from tests.messages import refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy.host import compilation, workers  # noqa: E402
from cutepy.host.parallel_compilation import compile_many  # noqa: E402

SCRIPT = """
from functools import wraps

class Tile:
    def size(self):
        return 4

def function():
    return __name__

@wraps(function)
def wrapped():
    return function()

tile = Tile()
"""


class Ended:
    """A connection whose other end is closed."""

    def __init__(self, error):
        self.error = error

    def recv_bytes(self):
        raise self.error

    def send_bytes(self, data):
        raise AssertionError(data)


@pytest.fixture
def handled(monkeypatch):
    found = []
    monkeypatch.setattr(signal, "signal", lambda *given: found.append(given))
    return found


@pytest.mark.parametrize("error", [EOFError(), BrokenPipeError()])
def test_a_process_without_a_script_ends_with_its_connection(monkeypatch, handled, error):
    monkeypatch.delitem(sys.modules, "__mp_main__", raising=False)
    assert workers._serve(Ended(error)) is None
    assert handled == [(signal.SIGINT, signal.SIG_IGN)]


def test_what_a_script_defines_has_the_name_that_it_has_in_the_parent(monkeypatch, handled):
    """As spawned processes import it; what a script imports keeps its name."""
    script = ModuleType("__mp_main__")
    exec(SCRIPT, vars(script))
    monkeypatch.setitem(sys.modules, "__mp_main__", script)
    workers._serve(Ended(EOFError()))
    mine = (script.Tile, script.Tile.size, script.function, script.wrapped, script.wrapped.__wrapped__, script.tile)
    assert {each.__module__ for each in mine} == {"__main__"}
    assert script.wrapped() == script.function() == "__main__"
    assert script.wraps is wraps
    assert wraps.__module__ == "functools"


def test_nothing_needs_no_process(monkeypatch):
    for processes in (None, 1, 2):
        assert compile_many([], processes, progress=False) == []
    for processes in (0, -1):
        with refuses(ValueError):
            compile_many([], processes, progress=False)


@pytest.mark.parametrize("built", [True, False])
def test_a_declared_function_took_the_time_since_its_caller_began(monkeypatch, built):
    found = []
    monkeypatch.setattr(compilation, "opened", lambda *given, **named: found.append((given, named)))
    monkeypatch.setattr(compilation.time, "perf_counter", lambda: 1000.25)
    entry = SimpleNamespace(metadata={"files": {}, "parameters": []}, sections={})
    monkeypatch.setattr(compilation, "_as_here", lambda entry, paths: entry)
    object.__new__(compilation._DeclaredFunction)._opened(entry, 1000.0, built=built)
    assert found == [((entry, (), 0.25), {"built": built})]
