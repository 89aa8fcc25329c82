"""The pytest plugin, by which tests for a GPU run on a machine without one: `--simulate`, and the fixture `simulated`.

With `--sanitize`, or the fixture `sanitized`, a test also fails where the sanitizer finds a hazard in its launches.

pytest finds it by itself where cutepy is installed; importing it loads neither torch nor the DSL.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cutepy.frontends.torch_device import ServedRun

_SESSION = pytest.StashKey["ServedRun"]()
_OF_TEST = pytest.StashKey["ServedRun"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--simulate`, `--sanitize` and `--exact-mma`."""
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
        "--exact-mma",
        action="store_true",
        help="with --simulate: wgmma sums bit for bit as the hardware does, which takes a hundred times as long",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Serve device `cuda` before any conftest is imported, which may ask for a GPU, to the end."""
    _serve(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Serve it from here where a conftest loaded this plugin."""
    _serve(config, config.option)


def _serve(config: pytest.Config, options: argparse.Namespace) -> None:
    if not (options.simulate or options.sanitize) or _SESSION in config.stash:
        return
    from cutepy.frontends import serve_cuda
    from cutepy.sim.sanitize.everywhere import everywhere

    stack = ExitStack()
    if options.sanitize:
        stack.enter_context(everywhere())
    try:
        run = stack.enter_context(serve_cuda(exact_mma=options.exact_mma, sanitize=options.sanitize))
    except (RuntimeError, ImportError) as error:
        raise pytest.UsageError(f"--{'sanitize' if options.sanitize else 'simulate'}: {error}") from error
    config.stash[_SESSION] = run

    def close() -> None:
        run.restart()  # the hazards of the last test are told
        stack.close()

    config.add_cleanup(close)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the launches of the tests before."""
    run = item.config.stash.get(_SESSION, None)
    if run is not None:
        run.restart()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test whose launches have hazards; one that fails anyway tells them too."""
    run = item.stash.get(_OF_TEST, None) or item.config.stash.get(_SESSION, None)
    try:
        yield
    except BaseException:
        if run is not None and run.hazards:
            item.add_report_section("call", "hazards", str(run.hazards))
        raise
    if run is not None and run.hazards:
        pytest.fail(str(run.hazards), pytrace=False)


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

    with serve_cuda() as run:
        yield run


@pytest.fixture
def sanitized(request: pytest.FixtureRequest) -> Iterator[ServedRun]:
    """Serve device `cuda` from host memory, simulate every launch of the test, and fail it if there are hazards.

    Yields
    ------
    ServedRun
        Its `hazards` are those of the launches so far.
    """
    with ExitStack() as stack:
        run = request.config.stash.get(_SESSION, None)
        if run is None:
            from cutepy.frontends import serve_cuda

            run = stack.enter_context(serve_cuda())
        stack.enter_context(run.sanitized())
        request.node.stash[_OF_TEST] = run
        yield run
