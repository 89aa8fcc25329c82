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


@pytest.mark.deep
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


RACES = """
import cutlass
import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def shift(a: cute.Tensor, ordered: cutlass.Constexpr):
    thread = cute.arch.thread_idx()[0]
    shared = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(64))
    shared[thread] = a[thread]
    if ordered:
        cute.arch.sync_threads()
    a[thread] = shared[(thread + 32) % 64]


@cute.jit
def launch(a: cute.Tensor, ordered: cutlass.Constexpr):
    shift(a, ordered).launch(grid=[1, 1, 1], block=[64, 1, 1])
"""

TESTS = """

def test_right():
    launch(from_dlpack(torch.arange(64.0).cuda()), True)


def test_race():
    launch(from_dlpack(torch.arange(64.0).cuda()), False)


def test_that_fails_anyway():
    launch(from_dlpack(torch.arange(64.0).cuda()), False)
    assert False


@pytest.mark.xfail(reason="known", strict=True)
def test_known():
    launch(from_dlpack(torch.arange(64.0).cuda()), False)


def test_without_launches():
    pass


def test_race_that_skips_itself():
    launch(from_dlpack(torch.arange(64.0).cuda()), False)
    pytest.skip("too late")


def test_race_in_a_run_of_its_own():
    import cutepy

    with cutepy.simulate():
        launch(from_dlpack(torch.arange(64.0)), False)
"""

WITH_SANITIZED = """

def test_right(sanitized):
    launch(from_dlpack(torch.arange(64.0).cuda()), True)
    assert sanitized.hazards == ()


def test_race(sanitized):
    launch(from_dlpack(torch.arange(64.0).cuda()), False)
    assert [hazard.kind for hazard in sanitized.hazards] == ["unordered-read"]


def test_that_is_not_sanitized(simulated):
    launch(from_dlpack(torch.arange(64.0).cuda()), False)
"""


@pytest.mark.parametrize(
    "options", [pytest.param(["-n", "0"], marks=pytest.mark.deep), ["-n", "2"]], ids=["here", "xdist"]
)
def test_sanitize_fails_tests_with_hazards(pytester, monkeypatch, options):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    result = outcomes(pytester.runpytest_subprocess, pytester, ["--sanitize", *options], test_it=RACES + TESTS)
    result.assert_outcomes(passed=2, failed=4, xfailed=1)
    text, _, summary = result.stdout.str().partition("short test summary info")
    assert "FAILED test_it.py::test_race - Failed: 1 hazard" in summary  # the rest is there only where CI is set
    assert "- Captured hazards call -" in text  # of the one that fails anyway
    assert "test_race_in_a_run_of_its_own - cutepy.sim.sanitize" in summary
    assert text.count("unordered-read: shared (shared memory at") == 4
    assert text.count("test_it.py:15 in shift") == 4
    assert "plugin.py" not in text


@pytest.mark.parametrize(
    "options", [[], pytest.param(["--simulate"], marks=pytest.mark.deep)], ids=["alone", "with --simulate"]
)
def test_the_fixture_fails_its_test_only(pytester, monkeypatch, options):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    source = RACES + WITH_SANITIZED
    result = outcomes(pytester.runpytest_subprocess, pytester, options, test_it=source)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED test_it.py::test_race*"])


EXPECTED = """

from cutepy.sim import HazardError


def race():
    launch(from_dlpack(torch.arange(64.0).cuda()), False)


@pytest.mark.parametrize("ordered", [True, False, True])
def test_of_three(sanitized, ordered):
    launch(from_dlpack(torch.arange(64.0).cuda()), ordered)


def test_that_expects_them(sanitized):
    race()
    with pytest.raises(HazardError):
        sanitized.check_hazards()


@pytest.mark.xfail(raises=HazardError, strict=True)
def test_that_is_marked(sanitized):
    race()


def test_without_launches(sanitized):
    assert sanitized.hazards == ()


def test_of_a_run_of_its_own(sanitized):
    import cutepy

    with pytest.raises(HazardError), cutepy.simulate():
        launch(from_dlpack(torch.arange(64.0)), False)


@pytest.fixture
def racing_later(sanitized):
    yield
    race()


def test_whose_fixture_races_at_its_end(racing_later):
    pass


@pytest.fixture
def racing_before(sanitized):
    race()


def test_whose_fixture_races(racing_before):
    pass


@pytest.fixture
def failing(sanitized):
    race()
    assert False


def test_whose_fixture_fails(failing):
    pass


def test_after_all_that(sanitized):
    launch(from_dlpack(torch.arange(64.0).cuda()), True)
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    "options",
    [pytest.param([], marks=pytest.mark.deep), ["--sanitize"], pytest.param(["--simulate"], marks=pytest.mark.deep)],
    ids=["alone", "sanitize", "simulate"],
)
def test_hazards_are_told_once_and_may_be_expected(pytester, monkeypatch, options):
    """In whatever phase of a test they are found."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    result = outcomes(pytester.runpytest_subprocess, pytester, options, test_it=RACES + EXPECTED)
    result.assert_outcomes(passed=7, failed=2, errors=2, xfailed=1)
    summary = result.stdout.str().partition("short test summary info")[2]
    for name in (
        "FAILED test_it.py::test_of_three[False] - Failed: 1 hazard",
        "test_whose_fixture_races - Failed: 1 h",
    ):
        assert name in summary
    assert "ERROR test_it.py::test_whose_fixture_races_at_its_end - Failed: 1 hazard" in summary
    assert "ERROR test_it.py::test_whose_fixture_fails - assert False" in summary


ADVISORIES = """
import pytest
import torch

import cutepy

PTX = '''.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b32 %r<5>; .reg .b64 %rd<3>;
.shared .align 8 .b8 tile[256];
ld.param.u64 %rd1, [out];
ld.shared.u32 %r2, [tile]; and.b32 %r2, %r2, 0; st.global.u32 [%rd1], %r2;
ret;
}
'''


def launch(device="cuda"):
    cutepy.load_ptx(PTX).launch("kernel", 1, 1, [torch.zeros(32, dtype=torch.int32, device=device)])


def test_with_fixture(sanitized):
    launch()
    assert [advisory.kind for advisory in sanitized.advisories] == ["discarded-read"] or STRICT
    assert [hazard.kind for hazard in sanitized.hazards] == ["discarded-read"] * STRICT


def test_of_a_run_of_its_own(sanitized):
    with cutepy.simulate():
        launch("cpu")
"""


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("options", "strict"),
    [
        ([], False),
        pytest.param(["--sanitize", "-n", "2"], False, marks=pytest.mark.deep),
        (["--sanitize-strict"], True),
        (["-o", "sanitize_strict=true"], True),
        pytest.param(["--sanitize", "-o", "sanitize_strict=true", "-n", "2"], True, marks=pytest.mark.deep),
        pytest.param(["--simulate", "-o", "sanitize_strict=true"], True, marks=pytest.mark.deep),
    ],
    ids=["fixture", "xdist", "strict", "ini", "ini with xdist", "ini with --simulate"],
)
def test_advisories_are_in_the_summary_or_fail_their_tests(pytester, monkeypatch, options, strict):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    source = ADVISORIES.replace("STRICT", str(strict))
    result = outcomes(pytester.runpytest_subprocess, pytester, options, test_it=source)
    result.assert_outcomes(passed=0 if strict else 2, failed=2 * strict, warnings=1 - strict)
    if strict:
        result.stdout.fnmatch_lines(["FAILED test_it.py::test_with_fixture - Failed: 1 hazard*"])
        assert "advisories of the sanitizer" not in result.stdout.str()
    else:
        result.stdout.fnmatch_lines(
            [
                "*advisories of the sanitizer*",
                "discarded-read: *",
                "    in test_it.py::test_with_fixture, test_it.py::test_of_a_run_of_its_own",
            ]
        )
        assert result.stdout.str().count("AdvisoryWarning: 0 hazards, 1 advisory") == 1


def test_exact_products_are_for_the_fixtures_too(pytester):
    source = "def test_it(simulated):\n    assert simulated._exact_mma\n"
    outcomes(pytester.runpytest_inprocess, pytester, ["--exact-mma"], test_it=source).assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_where_cutepy_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"cutepy": "cutepy.testing.plugin"}
