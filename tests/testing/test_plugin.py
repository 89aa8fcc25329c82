"""The pytest plugin, in runs of pytest of its own, and once in a process of its own."""

import os
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cutlass")

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.integration, pytest.mark.dsl]

ROOT = Path(__file__).parents[2]

FOR_A_GPU = """
import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def double(a: cute.Tensor):
    a[cute.arch.thread_idx()[0]] = a[cute.arch.thread_idx()[0]] * cutlass.Float32(2.0)


@cute.jit
def launch(a: cute.Tensor):
    double(a).launch(grid=[1, 1, 1], block=[32, 1, 1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_that_needs_a_gpu():
    x = torch.arange(32.0).cuda()
    launch(from_dlpack(x))
    assert x.cpu().tolist() == [2.0 * n for n in range(32)]
"""

WITH_FIXTURE = """

@pytest.mark.parametrize("times", [1, 2])
def test_with_fixture(simulated, times):
    x = torch.ones(32, device="cuda")
    for _ in range(times):
        launch(from_dlpack(x))
    assert x.sum().item() == 32 * 2**times
    assert len(simulated.launches) == times


def test_after_it():
    assert torch.cuda.is_available() is SIMULATE
"""


def outcomes(run, pytester, options=(), **sources):
    pytester.makepyfile(**sources)
    installed = any(point.value == "cutepy.testing.plugin" for point in entry_points(group="pytest11"))
    load = () if installed else ("-p", "cutepy.testing.plugin")  # an installed package is loaded by its entry point
    return run(*load, "-p", "no:cacheprovider", *options)


def test_without_the_flag_the_fixture_serves_its_test_only(pytester):
    source = FOR_A_GPU + WITH_FIXTURE.replace("SIMULATE", "False")
    outcomes(pytester.runpytest_inprocess, pytester, test_it=source).assert_outcomes(passed=3, skipped=1)


def test_simulate_runs_tests_for_a_gpu(pytester, monkeypatch):
    """And they can fail. In a process of its own, as a GPU is served to its end."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    sources = {"test_it": FOR_A_GPU + WITH_FIXTURE.replace("SIMULATE", "True")}
    sources["test_wrong"] = FOR_A_GPU.replace("(2.0)", "(3.0)")
    sources["conftest"] = "import torch\n\nHAS_A_GPU = torch.cuda.is_available()\n"
    sources["test_conftest"] = "import conftest\n\n\ndef test_conftests_find_it():\n    assert conftest.HAS_A_GPU\n"
    sources["test_exact"] = "def test_that_products_are_exact(simulated):\n    assert simulated._exact_mma"
    result = outcomes(pytester.runpytest_subprocess, pytester, ["--simulate", "--exact-mma"], **sources)
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_wrong.py::test_that_needs_a_gpu*"])


def test_pytest_finds_the_plugin_where_cutepy_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"cutepy": "cutepy.testing.plugin"}
