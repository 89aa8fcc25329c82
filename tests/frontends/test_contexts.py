"""`simulate` leaves no state behind."""

import inspect
import sys

import pytest

import cutepy
from cutepy.frontends.triton.driver import _ImportHook
from tests.messages import refuses

pytest.importorskip("cutlass")


def test_imports_are_watched_while_a_run_is_active_only():
    before = list(sys.meta_path)
    with cutepy.simulate():
        with cutepy.simulate():
            pass
        watched = [finder for finder in sys.meta_path if isinstance(finder, _ImportHook)]
        assert len(watched) == ("triton" not in sys.modules)
    assert sys.meta_path == before


def test_a_module_is_seen_as_soon_as_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "module_of_this_test.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    finder = _ImportHook("module_of_this_test", lambda: seen.append(sys.modules["module_of_this_test"].value))
    sys.meta_path.insert(0, finder)
    try:
        import module_of_this_test
    finally:
        finder.remove()
    assert (seen, module_of_this_test.value, finder in sys.meta_path) == ([3], 3, False)


def test_the_documentation_is_that_of_the_simulator():
    from cutepy.frontends.dsl.context import simulate

    assert cutepy.simulate.__doc__ == simulate.__doc__
    with refuses(ValueError), cutepy.simulate(processes=0):
        pass


def test_a_context_is_entered_again_and_within_itself():
    context = cutepy.simulate()
    with context as outer, context as inner:
        pass
    with context as later:
        pass
    assert len({id(run) for run in (outer, inner, later)}) == 3


def test_the_served_device_takes_the_options_of_simulate_with_their_defaults():
    pytest.importorskip("torch")
    from cutepy.frontends.torch_device import serve_cuda

    ours, theirs = (inspect.signature(function).parameters for function in (serve_cuda, cutepy.simulate))
    assert {name: one.default for name, one in ours.items()} == {name: theirs[name].default for name in ours}
