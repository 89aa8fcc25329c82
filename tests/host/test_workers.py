"""A process that compiles, without starting one: what it makes of a script's names, and when it ends."""

import signal
import sys
from functools import wraps
from types import ModuleType

import pytest

from tests.messages import refuses

pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy.host import workers  # noqa: E402
from cutepy.host.many import compile_many  # noqa: E402

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
