"""The pytest plugin: the `simulated` fixture, and `--simulate`, which runs tests for a GPU on a machine without one.

pytest finds it by itself where cutepy is installed; importing it loads neither torch nor the DSL.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cutepy.frontends.torch_device import ServedRun

_SESSION = pytest.StashKey["ServedRun"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--simulate` and `--exact-mma`."""
    group = parser.getgroup("cutepy")
    group.addoption(
        "--simulate",
        action="store_true",
        help="serve torch's cuda device from host memory, and simulate every kernel on the CPU",
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
    if not options.simulate or _SESSION in config.stash:
        return
    from cutepy.frontends import serve_cuda

    stack = ExitStack()
    try:
        config.stash[_SESSION] = stack.enter_context(serve_cuda(exact_mma=options.exact_mma))
    except (RuntimeError, ImportError) as error:
        raise pytest.UsageError(f"--simulate: {error}") from error
    config.add_cleanup(stack.close)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget the launches of the tests before."""
    run = item.config.stash.get(_SESSION, None)
    if run is not None:
        run.restart()


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
