"""Pytest plugin to run GPU tests on a machine without one: `--simulate`, `--sanitize`, and fixtures.

With `--sanitize`, or the fixture `sanitized`, a test also fails where the sanitizer finds a hazard in its launches, and
the summary lists the advisories. With `--sanitize-strict`, or the ini option `sanitize_strict`, advisories fail tests
too.

pytest finds it by itself where cutepy is installed; importing it loads neither torch nor the DSL.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cutepy.extras import MissingPackagesError, require

if TYPE_CHECKING:
    from cutepy.frontends.inherited import Inheritance
    from cutepy.frontends.torch_device import ServedRun
    from cutepy.sim.run import Run
    from cutepy.sim.sanitize import Hazards

_OPTIONS = {"exact_mma": "exact-mma", "strict": "sanitize-strict"}
"""Options of pytest by the option of `cutepy.simulate`, where the names differ."""
_TESTS = 3
"""Number of tests to name for each advisory."""
_SESSION = pytest.StashKey["ServedRun"]()
_INHERITANCE: pytest.StashKey[Inheritance] = pytest.StashKey()
_OF_TEST = pytest.StashKey["ServedRun"]()
_OF_WORKERS = pytest.StashKey[list[str]]()
_TOLD = pytest.StashKey[set[object]]()
_TEST: pytest.StashKey[str] = pytest.StashKey()
"""The test that runs."""
_ADVISORIES = pytest.StashKey[dict[str, list[str]]]()
"""Advisories of the session, one line each, with the tests that have them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--simulate`, `--sanitize`, `--sanitize-strict` and `--exact-mma`."""
    group = parser.getgroup("cutepy")
    group.addoption(
        "--simulate",
        action="store_true",
        help="serve torch's cuda device from host memory, and simulate every kernel on the CPU",
    )
    group.addoption(
        "--sanitize",
        action="store_true",
        help="as --simulate, and a test fails whose kernels race, or lack a fence or a wait, also in cutepy.simulate()",
    )
    group.addoption(
        "--sanitize-strict",
        action="store_true",
        help="as --sanitize, and a test fails by advisories too: what ptxas repairs, costs time, or comes to nothing",
    )
    parser.addini("sanitize_strict", "whether sanitized tests fail by advisories too", "bool", default=False)
    group.addoption(
        "--exact-mma",
        action="store_true",
        help="where launches are simulated: wgmma sums bit for bit as on the hardware, a hundred times as slow",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Serve device `cuda` before any conftest is imported, which may look for a GPU, to the end."""
    _serve(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Serve device `cuda` from here where a conftest loaded this plugin."""
    _serve(config, config.option)


def _serve(config: pytest.Config, options: argparse.Namespace) -> None:
    sanitize = options.sanitize or options.sanitize_strict
    asked = {"exact_mma": options.exact_mma, "sanitize": sanitize, "strict": sanitize and _is_strict(config, options)}
    if not (options.simulate or any(asked.values())) or _INHERITANCE in config.stash:
        return
    names = ("sanitize_strict", "sanitize", "simulate", "exact_mma")
    option = next(f"--{name.replace('_', '-')}" for name in names if vars(options)[name])
    try:
        require(f"pytest {option}", "numpy", "torch", "cutlass")
    except MissingPackagesError as error:
        raise pytest.UsageError(str(error)) from error
    from cutepy.frontends import serve_cuda
    from cutepy.frontends.inherited import inherited_by_runs

    stack = ExitStack()
    inherited = {name: True for name, value in asked.items() if value}
    inheritance = stack.enter_context(inherited_by_runs(inherited, partial(_note_advisories, config), tells=False))
    config.stash[_INHERITANCE] = inheritance
    if not (options.simulate or sanitize):
        config.add_cleanup(stack.close)
        return
    try:
        run = stack.enter_context(serve_cuda())
    except (RuntimeError, ImportError) as error:
        raise pytest.UsageError(f"{option}: {error}") from error
    config.stash[_SESSION] = run

    def close() -> None:
        run.restart()  # the hazards of the last test are reported
        stack.close()

    config.add_cleanup(close)


def _is_strict(config: pytest.Config, options: argparse.Namespace) -> bool:
    return bool(options.sanitize_strict or config.getini("sanitize_strict"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send options that runs set themselves, and advisories, from a worker of pytest-xdist to the controller."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cutepy_stated"] = _stated(session.config)
        session.config.workeroutput["cutepy_advisories"] = session.config.stash.get(_ADVISORIES, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ANN401 - of pytest-xdist
    """Receive options that runs set themselves, and advisories, from a worker of pytest-xdist."""
    output = getattr(node, "workeroutput", {})
    node.config.stash.setdefault(_OF_WORKERS, []).extend(output.get("cutepy_stated", ()))
    advisories = node.config.stash.setdefault(_ADVISORIES, {})
    for line, tests in output.get("cutepy_advisories", {}).items():
        advisories.setdefault(line, []).extend(tests)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List advisories with their tests, and options that a test sets otherwise than the session."""
    config = terminalreporter.config
    advisories = config.stash.get(_ADVISORIES, {})
    if advisories:
        terminalreporter.section("advisories of the sanitizer", yellow=True)
    for line, tests in advisories.items():
        terminalreporter.write_line(line)
        more = f", and {len(tests) - _TESTS} more tests" if len(tests) > _TESTS else ""
        terminalreporter.write_line(f"    in {', '.join(tests[:_TESTS])}{more}")
    for line in dict.fromkeys([*config.stash.get(_OF_WORKERS, []), *_stated(config)]):
        terminalreporter.write_line(line)


def _stated(config: pytest.Config) -> list[str]:
    inheritance = config.stash.get(_INHERITANCE, None)
    return [
        f"cutepy: {line}: simulate({name}={value!r}) overrides --{_OPTIONS.get(name, name)}"
        for line, name, value in (inheritance.stated if inheritance is not None else ())
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Drop the launches of earlier tests; a setup that fails reports the hazards of its own."""
    item.config.stash[_TEST] = item.nodeid
    run = item.config.stash.get(_SESSION, None)
    if run is not None:
        run.restart()
    yield from _telling(item, "setup")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test whose launches have hazards; one that fails anyway reports them too."""
    yield from _telling(item, "call")
    _fail_by_hazards(item, _run_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a teardown whose launches have hazards beyond the test's."""
    yield
    _fail_by_hazards(item, item.config.stash.get(_SESSION, None))


def _run_of(item: pytest.Item) -> ServedRun | None:
    """Return the run of a test: its own, or that of all tests."""
    return item.stash.get(_OF_TEST, None) or item.config.stash.get(_SESSION, None)


def _telling(item: pytest.Item, when: str) -> Generator[None, None, None]:
    """Add the hazards to the report of a failing phase."""
    try:
        yield
    except pytest.skip.Exception:
        _fail_by_hazards(item, _run_of(item))
        raise
    except BaseException:
        run = _run_of(item)
        if run is not None and run.hazards:
            item.add_report_section(when, "hazards", str(run.hazards))
            item.stash.setdefault(_TOLD, set()).update(hazard.key for hazard in run.hazards)
        raise


def _fail_by_hazards(item: pytest.Item, run: ServedRun | None) -> None:
    """Fail by hazards that neither an earlier phase nor the test itself has raised.

    Advisories are kept for the summary.
    """
    if run is not None:
        _note_advisories(item.config, run)
    told = item.stash.setdefault(_TOLD, set())
    new = [hazard.key for hazard in run.hazards if hazard.key not in run.raised | told] if run is not None else []
    if run is not None and new:
        told.update(new)
        raise _failure(run.hazards)


def _note_advisories(config: pytest.Config, run: Run) -> None:
    """Keep a run's advisories, with the test that runs; a strict run has them as hazards."""
    for advisory in run.hazards.advisories:
        tests = config.stash.setdefault(_ADVISORIES, {}).setdefault(advisory.summary, [])
        test = config.stash.get(_TEST, "the collection of tests")
        if test not in tests:
            tests.append(test)


def _failure(hazards: Hazards) -> BaseException:
    """Make a failure without a traceback, of the HazardError that a mark for an expected failure names."""
    from cutepy.sim.sanitize import HazardError

    class Failed(HazardError, pytest.fail.Exception):  # type: ignore[misc, name-defined]
        __module__, __qualname__ = "builtins", "Failed"
        msg, pytrace = str(hazards), False

        def __repr__(self) -> str:
            return self.msg

    return Failed(hazards)


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> Iterator[ServedRun]:
    """Serve device `cuda` from host memory, and simulate every launch of the test.

    Yields
    ------
    ServedRun
        Its `launches` and `stats` are those of the test.
    """
    run = request.config.stash.get(_SESSION, None)
    if run is not None:
        yield run
        return
    from cutepy.frontends import serve_cuda

    with serve_cuda(exact_mma=request.config.option.exact_mma) as run:
        yield run


@pytest.fixture
def sanitized(request: pytest.FixtureRequest) -> Iterator[ServedRun]:
    """Serve device `cuda` from host memory, simulate every launch of the test, and fail it on hazards.

    Runs of its own, by `cutepy.simulate`, look for hazards too.

    Yields
    ------
    ServedRun
        Its `hazards` are those of the launches so far. A test that expects them raises them, by its `check_hazards`.
    """
    from cutepy.frontends.inherited import inherited_by_runs

    with ExitStack() as stack:
        run = request.config.stash.get(_SESSION, None)
        if run is None:
            from cutepy.frontends import serve_cuda

            run = stack.enter_context(serve_cuda(exact_mma=request.config.option.exact_mma))
        strict = _is_strict(request.config, request.config.option)
        stack.enter_context(run.sanitized(strict=strict))
        inherited = {"sanitize": True, **({"strict": True} if strict else {})}
        stack.enter_context(inherited_by_runs(inherited, partial(_note_advisories, request.config), tells=False))
        request.node.stash[_OF_TEST] = run
        yield run
        _fail_by_hazards(request.node, run)
