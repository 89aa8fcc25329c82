"""The suite's own rules, each in a run of pytest that breaks it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    """Run pytest on a file of the given text, below this suite's conftest; returns its exit status and output."""

    def run(text, *options, **settings):
        folder = tmp_path / "its"  # not "tests", whose modules the conftest imports
        folder.mkdir(exist_ok=True)
        (folder / "conftest.py").unlink(missing_ok=True)
        (folder / "conftest.py").symlink_to(ROOT / "tests/conftest.py")
        (folder / "test_it.py").write_text(text)
        config = ("-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider")
        command = [sys.executable, "-m", "pytest", *config, *options, folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **settings)
        return done.returncode, done.stdout + done.stderr

    return run


def test_ctrl_c_reaches_tests_of_a_background_job(run):
    """A shell's background jobs are started with SIGINT ignored, and so are nohup's, with all that they start."""
    text = """
import signal, subprocess, sys

def test_here():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return
    raise AssertionError

def test_in_a_child():
    code = "import signal; signal.raise_signal(signal.SIGINT)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == -signal.SIGINT
"""
    status, output = run(text, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert status == 0, output


def test_names_hold_no_addresses(run):
    text = "import pytest\n@pytest.mark.parametrize('of', [object()], ids=str)\ndef test_it(of): ..."
    status, output = run(text)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "is called by an address" in output


@pytest.mark.deep
def test_what_hangs_fails_and_the_rest_runs(run):
    text = """
import collections, itertools, time

def test_in_python():
    time.sleep(60)

def test_in_compiled_code():
    collections.deque(itertools.repeat(0), maxlen=0)  # never lets Python handle a signal

def test_after(): ...
"""
    status, output = run(text, "-o", "timeout=1", "-o", "faulthandler_timeout=2", "-n", "1")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "Timeout (>1.0s)" in output
    assert "crashed while running 'its/test_it.py::test_in_compiled_code'" in output
    assert "2 failed, 1 passed" in output


def test_what_takes_too_long_fails_the_run(run, tmp_path):
    text = """
import subprocess, sys

def test_it():
    subprocess.run([sys.executable, "-c", "sum(range(5_000_000))"], check=True)
"""
    (tmp_path / "limits.py").write_text("from tests import budget\nbudget.ONE_TEST = budget.ALL_TESTS = 0.05")
    path = os.pathsep.join((str(tmp_path), *sys.path))
    status, output = run(text, "-p", "tests.budget", "-p", "limits", "-n", "1", env=os.environ | {"PYTHONPATH": path})
    assert ("1 passed" in output, status) == (True, pytest.ExitCode.TESTS_FAILED), output
    assert "its/test_it.py::test_it took 0 s" in output
    assert "all tests took 0 s" in output


TIERS = """
import pytest

def test_quick(): ...

@pytest.mark.parametrize("case", [0, 1])
def test_costly(case):
    sum(range(2_000_000))
"""


def test_a_costly_test_is_left_to_make_check(run, tmp_path):
    """The list is written by one run, and read by the others."""
    (tmp_path / "costly.txt").write_text("its/test_it.py::test_quick\nits/gone.py::test_gone\n")
    text = f"from pathlib import Path\nfrom tests import tiers\ntiers.LIST = Path({str(tmp_path / 'costly.txt')!r})\n"
    (tmp_path / "short.py").write_text(f"{text}tiers.COSTLY, tiers.ROOT = 0.02, Path({str(tmp_path)!r})")
    path = os.pathsep.join((str(tmp_path), *sys.path))
    plugins, environment = ("-p", "short", "-p", "tests.budget"), os.environ | {"PYTHONPATH": path}
    status, output = run(TIERS, *plugins, "--note-costs", "-n", "1", env=environment)
    assert status == 0, output
    assert (tmp_path / "costly.txt").read_text() == "its/test_it.py::test_costly\n"
    for tier, passed in (("not integration", 1), ("integration", 2)):
        _, output = run(TIERS, *plugins, "-m", tier, env=environment)
        assert f"{passed} passed" in output


def test_costly_tests_are_there():
    gone = [
        name
        for name in tiers.costly()
        for file, _, function in [name.partition("::")]
        if not (ROOT / file).exists() or f"def {function}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert gone == [], "rename them in tests/costly.txt, or: make costs"


COMPILES = """
import pytest

@pytest.mark.first(1)
@pytest.mark.parametrize("case", CASES)
def test_it(case): ...
"""


@pytest.mark.parametrize(("cases", "refused"), [("[2, 1]", False), ("[1, 2]", True), ("[1]", True)])
def test_a_case_that_alone_compiles_a_kernel_must_be_an_integration_test(run, tmp_path, cases, refused):
    """It may be gone, or behind the first ones."""
    (tmp_path / "short.py").write_text("from tests import tiers\ntiers.COMPILING = ('its/test_it.py::test_it[2]',)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    status, output = run(COMPILES.replace("CASES", cases), "-p", "short", env=environment)
    assert status == (pytest.ExitCode.USAGE_ERROR if refused else pytest.ExitCode.OK)
    assert ("test_it[2] must be an integration test" in output) == refused


def test_cases_that_alone_compile_a_kernel_are_not_dear(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "DEAR_LIST", tmp_path / "dear.txt")
    monkeypatch.setattr(tiers, "dear", frozenset)
    tiers.write_dear(dict.fromkeys(tiers.COMPILING, 99.0) | {"a.py::test_cheap": 0.1, "a.py::test_it[1]": 99.0})
    assert tiers.DEAR_LIST.read_text() == "a.py::test_it[1]\n"
    for file, _, function in (tiers.function_of(name).partition("::") for name in tiers.COMPILING):
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8")


def test_a_file_of_integration_tests_is_not_imported(run):
    text = "import nothing_of_that_name\nimport pytest\npytestmark = pytest.mark.integration"
    assert run(text, "-m", "integration")[0] == pytest.ExitCode.INTERRUPTED
    assert run(text, "-m", "not integration")[0] == pytest.ExitCode.NO_TESTS_COLLECTED
