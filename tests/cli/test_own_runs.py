"""Options of commands, and of the pytest plugin, hold for launches within a script's own `cutepy.simulate()`."""

import importlib.util
import json
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from tests.messages import pins

pytest.importorskip("torch")
pytest.importorskip("cutlass")

pytestmark = [pytest.mark.dsl, pytest.mark.integration]

TICKETS = '''
import contextlib, sys
import numpy as np
import cutepy
k = cutepy.load_ptx(""".version 8.7
.target sm_90a
.address_size 64
.visible .entry tickets(.param .u64 x) {
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [x]; mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; setp.ne.u32 %p, %r1, 0; @%p bra END;
    atom.relaxed.gpu.global.add.u32 %r2, [%rd0], 1; shr.u32 %r0, %r0, 5; mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1+4], %r2;
END: ret; }
.visible .entry race() {
    .reg .b32 %r<4>; .shared .b8 data[256];
    mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; xor.b32 %r2, %r1, 128; mov.u32 %r3, data;
    add.u32 %r1, %r1, %r3; add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r1], %r0;
    ld.shared.u32 %r3, [%r2];
    ret; }""")
x = np.zeros(5, np.uint32)
def tickets(grid=1):
    k.launch("tickets", grid=grid, block=128, args=(x,))
def race():
    k.launch("race", grid=1, block=64, args=())
'''
FORMS = {
    "none": "{launch}",
    "own": "with cutepy.simulate():\n    {launch}",
    "of the sanitizer": "with cutepy.simulate(sanitize=True):\n    {launch}",
    "nested": "with cutepy.simulate(), cutepy.simulate(inspect=True):\n    {launch}",
    "decorated": "@cutepy.simulate()\ndef go():\n    {launch}\ngo()",
    "never left": "context = cutepy.simulate()\ncontext.__enter__()\n{launch}",
    "in a thread": "import threading\ndef go():\n    with cutepy.simulate():\n        {launch}\n"
    "each = threading.Thread(target=go)\neach.start()\neach.join()",
    "in a thread that nobody waits for": "import threading, time\ndef go():\n    time.sleep(0.2)\n    {launch}\n"
    "threading.Thread(target=go).start()",
    "in a pool that nobody ends": "from concurrent.futures import ThreadPoolExecutor\ndef go():\n"
    "    with cutepy.simulate():\n        {launch}\npool = ThreadPoolExecutor()\nfuture = pool.submit(go)",
    "one of many": "with cutepy.simulate():\n    pass\nwith cutepy.simulate():\n    {launch}",
}
SOME = ("none", "nested")
MORE = (*SOME, "decorated", "of the sanitizer")
THREADS = ("in a thread", "in a thread that nobody waits for", "in a pool that nobody ends")


@pytest.fixture
def run(tmp_path):
    """Run a command on a script that launches in one of the forms."""

    def invoke(command, launch, form="own", *options):
        path = tmp_path / "own.py"
        path.write_text(TICKETS + FORMS.get(form, form).format(launch=launch) + "\nprint('ended', x.tolist())\n")
        return CliRunner().invoke(app, [command, *options, str(path)])

    return invoke


@pytest.mark.parametrize("form", MORE)
def test_schedules_are_played_in_own_runs(run, form):
    result = run("sanitize", "tickets()", form, "--schedules", "8", "--seed", "3", "--format", "json")
    (played,) = json.loads(result.stdout)["schedules"]
    assert played["seeds"] == {"first": 3, "last": 10}
    assert result.exit_code == 1
    pins(result.stderr)
    assert "end with another result" not in result.stderr  # the report is on standard output, once


def test_all_schedules_are_played_in_own_runs(run):
    result = run("sanitize", "tickets()", "own", "--schedules", "all", "--limit", "5", "--format", "json")
    (played,) = json.loads(result.stdout)["schedules"]
    assert (played["seeds"], played["played"]) == (None, 5)


@pytest.mark.parametrize("form", [*MORE, *THREADS, "never left", "one of many"])
def test_hazards_of_own_runs_are_told_once_and_can_be_played(run, form, tmp_path):
    folder = tmp_path / "scripts"
    result = run("sanitize", "race()", form, "--replay", "--reproducers", str(folder))
    assert result.exit_code == 1
    assert result.stderr.count("1 hazard") == 1
    assert result.stderr.count("unordered-read: ") == 1
    assert "not played" not in result.stderr
    assert len([*folder.iterdir()]) == 1
    assert "Traceback" not in result.stderr
    raised = form == "of the sanitizer"  # it asks for that itself
    assert ("raised HazardError, and the script ended" in result.stderr) == raised
    assert ("ended" in result.stdout) != raised


@pytest.mark.parametrize("command", ["simulate", "sanitize"])
@pytest.mark.parametrize("form", SOME)
def test_chosen_ctas_are_chosen_in_own_runs(run, command, form):
    result = run(command, "tickets(4)", form, "--ctas", "0 -1")
    assert "ended [8, " in result.stdout  # of two CTAs, whose tickets race
    assert result.exit_code == (command == "sanitize")
    pins(result.stderr)


@pytest.mark.parametrize("form", SOME)
def test_own_runs_are_inspected(run, form):
    result = run("simulate", "tickets()", form, "--inspect")
    assert "  instructions_atomic 4\n" in result.stderr
    pins(result.stderr)


@pytest.mark.parametrize("form", SOME)
def test_the_policy_is_that_of_own_runs(run, form):
    result = run("simulate", "tickets()", form, "--policy", "schedule:1")
    assert result.exit_code == 0
    assert "ended [4, 0, 1, 2, 3]" not in result.stdout  # the order without a policy
    result = run("simulate", "tickets()", form, "--policy", "hold:1,cta=0.0.0,warp=9")
    assert result.exit_code == 2
    pins(result.stderr)
    assert "ended [4, " in result.stdout


@pytest.mark.parametrize("form", ["own", "in a thread"])
def test_own_runs_are_explained(run, form):
    result = run("explain", "tickets()", form, "--no-ptxas", "--json")
    assert result.exit_code == 0
    (kernel,) = json.loads(result.stdout)["kernels"]
    assert (kernel["name"], kernel["launch"]["launches"]) == ("tickets", 1)


def test_own_observers_see_the_launches_too(run):
    form = (
        "from cutepy.sim import Observer\nclass Seen(Observer):\n    def on_launch(self, launch):\n"
        "        print('seen', launch.kernel)\nwith cutepy.simulate(observers=[Seen()]):\n    {launch}"
    )
    result = run("explain", "tickets()", form, "--no-ptxas")
    pins(result.stdout)
    pins(result.stderr)


@pytest.mark.parametrize(
    ("stated", "options", "exit_code"),
    [
        ("schedules=0", ["--schedules", "8"], 1),
        ("schedules=2, seed=1", ["--schedules", "8", "--seed", "3"], 1),
        ("ctas=[1]", ["--ctas", "0"], 0),
        ("sanitize=False", [], 2),
    ],
)
def test_the_stated_stands_and_is_told(run, stated, options, exit_code):
    result = run("sanitize", "tickets(2)", "with cutepy.simulate(" + stated + "):\n    {launch}", *options)
    assert result.exit_code == exit_code
    name, value = stated.split(",")[0].split("=")
    told = [line for line in result.stderr.splitlines() if line.startswith("cutepy: own.py:")]
    (line,) = (line for line in told if f"simulate({name}={value}" in line and "overrides" in line)
    assert line.partition("overrides ")[2].startswith(f"{name}=")
    pins(result.stderr)


def test_the_same_value_stated_is_not_told(run):
    result = run("sanitize", "tickets()", "with cutepy.simulate(sanitize=True):\n    {launch}")
    assert result.exit_code == 0
    assert "overrides" not in result.stderr


def test_a_script_goes_on_after_a_hazard_that_it_did_not_ask_for(run):
    """Launches after the first with a hazard are watched, and so are those in forked processes told of."""
    result = run("sanitize", "race()", "with cutepy.simulate():\n    {launch}\nwith cutepy.simulate():\n    tickets()")
    assert result.exit_code == 1
    pins(result.stderr)


FORK = """
import os
with cutepy.simulate():
    tickets()
if not os.fork():
    with cutepy.simulate():
        {launch}
    os._exit(0)
os.wait()
"""


@pytest.mark.deep
def test_own_runs_of_forked_processes_are_said_to_be_unwatched(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(TICKETS + FORK.replace("{launch}", "race()"))
    command = [sys.executable, "-m", "cutepy", "sanitize", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "launches in forked processes were not sanitized" in result.stderr


TRITON = """
import torch
import triton
import triton.language as tl
import cutepy

@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

x, y = torch.ones(256), torch.zeros(256)
with cutepy.simulate():
    add[(2,)](x, y, 256, 128)
print(y.sum())
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
def test_triton_kernels_of_own_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    script = tmp_path / "own.py"
    script.write_text(TRITON)
    result = CliRunner().invoke(app, ["sanitize", "--schedules", "2", "--format", "json", str(script)])
    assert result.exit_code == 0, result.output
    assert [one["seeds"] for one in json.loads(result.stdout)["schedules"]] == [{"first": 0, "last": 1}]
    result = CliRunner().invoke(app, ["simulate", "--ctas", "1", str(script)])
    assert "tensor(256.)" in result.stdout
    result = CliRunner().invoke(app, ["explain", "--no-ptxas", str(script)])
    pins(result.stdout)


TESTS = (
    TICKETS
    + """
def test_own():
    with cutepy.simulate():
        {launch}

def test_own_without():
    with cutepy.simulate(sanitize=False):
        {launch}

def test_nested():
    with cutepy.simulate(inspect=True), cutepy.simulate() as run:
        {launch}
"""
)


@pytest.mark.deep
@pytest.mark.parametrize("workers", [pytest.param([], marks=pytest.mark.deep), ["-n1"]])
def test_options_of_pytest_hold_in_own_runs(tmp_path, workers):
    (tmp_path / "test_own.py").write_text(TESTS.replace("{launch}", "race()"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--sanitize",
        "-q",
        "--noconftest",
        "--rootdir",
    ]
    result = subprocess.run([*command, tmp_path, tmp_path], capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed" in result.stdout, result.stdout + result.stderr
    assert "simulate(sanitize=False) overrides --sanitize" in result.stdout


EXACT = """
import pytest
import cutepy

def test_own():
    with cutepy.simulate() as run:
        assert run._exact_mma
    with cutepy.simulate(exact_mma=False) as run:
        assert not run._exact_mma
"""


@pytest.mark.parametrize(
    "options", [["--exact-mma"], pytest.param(["--simulate", "--exact-mma"], marks=pytest.mark.deep)]
)
def test_exact_sums_hold_in_own_runs(tmp_path, options):
    (tmp_path / "test_own.py").write_text(EXACT)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--noconftest", *options, "--rootdir"]
    result = subprocess.run([*command, tmp_path, tmp_path], capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout + result.stderr
    assert "simulate(exact_mma=False) overrides --exact-mma" in result.stdout


ENDLESS = '''
import numpy as np, cutepy
k = cutepy.load_ptx(""".version 8.7
.target sm_90a
.address_size 64
.visible .entry endless(.param .u64 x) { .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [x];
LOOP: atom.global.add.u32 %r1, [%rd0], 1; bra LOOP; }""")
x = np.zeros(5, np.uint32)
def endless():
    k.launch("endless", grid=1, block=64, args=(x,))
'''


@pytest.mark.parametrize(
    ("command", "form", "limit"),
    [
        ("simulate", "none", ["--limit-instructions", "2000"]),
        ("sanitize", "own", ["--limit-instructions", "2000"]),
        ("simulate", "nested", ["--limit-seconds", "0.2"]),
        ("sanitize", "none", ["--limit-seconds", "0.2"]),
    ],
)
def test_limits_hold_in_own_runs(tmp_path, command, limit, form):
    script = tmp_path / "own.py"
    script.write_text(ENDLESS + FORMS[form].format(launch="endless()"))
    result = CliRunner().invoke(app, [command, *limit, str(script)])
    assert result.exit_code == (1 if command == "simulate" else 2)
    assert f"{limit[0][2:].replace('-', '_')}={limit[1]} stops it" in result.stderr
    assert "line 6 of the PTX" in result.stderr or "line 5 of the PTX" in result.stderr
    assert "simulated 1 launches" in result.stderr


@pytest.mark.parametrize("arguments", [["--limit-seconds", "0"], ["--limit-instructions", "0"]])
def test_what_is_no_limit_is_refused(tmp_path, arguments):
    script = tmp_path / "own.py"
    script.write_text("")
    result = CliRunner().invoke(app, ["simulate", *arguments, str(script)])
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


@pytest.mark.parametrize("command", ["simulate", "sanitize", "explain"])
def test_ctrl_c_says_where_the_lanes_were(tmp_path, command):
    script = tmp_path / "own.py"
    # On a busy machine the first may come before the launch, where nothing is to be told of lanes.
    press = "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.3, 10)\n"
    handler = "signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))\n"
    script.write_text(ENDLESS + press + handler + "with cutepy.simulate():\n    endless()\n")
    try:
        result = CliRunner().invoke(app, [command, str(script)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert "endless was stopped; its lanes were" in result.stderr
    assert "threads 0-63 of CTA (0, 0, 0)" in result.stderr
    assert result.exit_code == {"simulate": 130, "sanitize": 2, "explain": 130}[command]


# Ctrl-C may come within a callback of the garbage collector, hypothesis has one, and is pressed again then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_ctrl_c_nothing_is_replayed(tmp_path, monkeypatch):
    """The kernel that was stopped would run for ever again."""
    from cutepy.sim.replay import Report

    monkeypatch.setattr(Report, "played", lambda report: pytest.fail("it is replayed"))
    script = tmp_path / "own.py"
    # On a busy machine the first may come before the launch, where nothing is to be told of lanes.
    press = "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.3, 10)\n"
    handler = "signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))\n"
    script.write_text(ENDLESS + press + handler + "with cutepy.simulate():\n    endless()\n")
    result = CliRunner().invoke(app, ["sanitize", "--replay", str(script)])
    assert "endless was stopped; its lanes were" in result.stderr
    assert "it is replayed" not in str(result.exception)
    assert result.exit_code == 2


TWO_RUNS = """
import numpy as np
import cutepy

module = cutepy.load_ptx(".version 8.7\\n.target sm_90a\\n.address_size 64\\n.visible .entry k(.param .u64 p) { ret; }")
for _ in range(RUNS):
    with cutepy.simulate():
        module.launch("k", 4, 32, (np.zeros(4),))
"""


@pytest.mark.parametrize("runs", [1, 2])
def test_launches_of_several_runs_are_told_apart(tmp_path, runs):
    script = tmp_path / "script.py"
    script.write_text(TWO_RUNS.replace("RUNS", str(runs)))
    done = CliRunner().invoke(app, ["sanitize", "--schedules", "2", str(script)])
    lines = [line.split(":")[0] for line in done.output.splitlines() if ", k: 2 schedules" in line]
    assert lines == (["launch 0, k"] if runs == 1 else ["run 0, launch 0, k", "run 1, launch 0, k"])


@pytest.mark.parametrize("command", ["sanitize", "simulate"])
def test_ctas_that_no_grid_has_end_without_a_traceback(tmp_path, command):
    script = tmp_path / "script.py"
    script.write_text(TWO_RUNS.replace("RUNS", "1"))
    done = CliRunner().invoke(app, [command, "--ctas", "9", str(script)])
    assert done.exit_code in (1, 2)
    pins(done.output)
    assert "Traceback" not in done.output
