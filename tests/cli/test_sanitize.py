"""`cutepy sanitize`: what it writes where, and its exit code."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from tests.messages import pins

pytest.importorskip("torch")
pytest.importorskip("cutlass")

pytestmark = [pytest.mark.dsl, pytest.mark.integration]

SCRIPT = """
import sys

import torch

import cutepy

PTX = '''.version 8.7
.target sm_90a
.address_size 64
.visible .entry race() {
    .reg .b32 %r<4>; .shared .b8 data[256];
    mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; xor.b32 %r2, %r1, 128;
    mov.u32 %r3, data; add.u32 %r1, %r1, %r3; add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r1], %r0;
    BARRIER
    ld.shared.u32 %r3, [%r2];
    ret;
}'''
cutepy.load_ptx(PTX.replace("BARRIER", "bar.sync 0;" * ("right" in sys.argv))).launch("race", 1, 64, ())
print("the script's own", torch.cuda.is_available())
if "fails" in sys.argv:
    sys.exit(5)
if "raises" in sys.argv:
    raise ValueError("of the script")
"""
RIGHT = SCRIPT.replace('"right" in sys.argv', "True")


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script that launches a kernel with a race, or without."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    return "script.py"


def sanitize(*arguments):
    return CliRunner().invoke(app, ["sanitize", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 1), (["right"], 0), (["fails"], 1), (["right", "fails"], 2), (["right", "raises"], 2)],
)
def test_the_exit_code_tells_hazards_from_failures(script, arguments, code):
    result = sanitize(script, *arguments)
    assert result.exit_code == code
    pins(result.stdout)
    assert ("1 hazard\nunordered-read: data[32] (shared memory at" in result.stderr) == (code == 1)
    assert ("0 hazards" in result.stderr) == (code != 1)
    assert ("nothing is known of the rest" in result.output) == (code == 2)


REFUSED = {
    "none.py": "there is no file none.py",
    ".": "FILE.py must be a script, got '.', which is a folder",
    "--shedules 5": "there is no option --shedules; options stand before FILE.py",
    "--format xml": "--format",
    "--format= ": "--format",
    "--output no/folder": "there is no folder no for --output",
    "--output .": "--output takes a file, got '.', which is a folder",
    "--output script.py": "--output script.py would write over the script",
    "--reproducers script.py": "--reproducers takes a folder, got 'script.py', which is a file",
    "--schedules al": "--schedules must be a number or all, got 'al'",
    "--schedules -1": "--schedules must be a number or all, got '-1'",
    f"--schedules {'9' * 5000}": "--schedules must be at most 1000000, got 999",
    "--seed 3": "--seed 3 is the first of a number of schedules: give --schedules 100 with it",
    "--seed 0": "--seed 0 is the first of a number of schedules: give --schedules 100 with it",
    "--seed 3 --schedules all": "give --schedules 100 with it",
    "--seed -1 --schedules 3": "--seed",
    "--limit 5": "--limit 5 is how many are played of all: give --schedules all with it",
    "--limit 0 --schedules all": "--limit",
    "--ctas x": "CTAs are coordinates with spaces between",
    "--ctas 0,1,2,3": "CTAs are coordinates with spaces between",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_cannot_be_meant_is_refused(script, arguments):
    """Before the script runs, and in words."""
    given = [*arguments.split(), *([] if arguments in ("none.py", ".") else [script])]
    result = sanitize(*given)
    assert result.exit_code == 2
    assert not result.stdout
    assert REFUSED[arguments] in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["sanitize", "simulate"])
def test_ptx_is_no_script(script, tmp_path, command):
    (tmp_path / "kernel.ptx").write_text(".version 8.0\n")
    result = CliRunner().invoke(app, [command, "kernel.ptx"])
    assert (result.exit_code, result.stdout) == (2, "")
    pins(result.stderr)


@pytest.mark.parametrize(
    ("ctas", "said"),
    [
        ("9", "which the grid (1, 1, 1) does not have"),
        ("0,-1", 'several are a list, or have spaces between, as in "0 -1"'),
    ],
)
def test_ctas_that_no_grid_has_are_told_where_they_are_launched(script, ctas, said):
    result = sanitize("--ctas", ctas, script, "right")
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("option", [["--output", "/proc/none"], ["--reproducers", "/proc/none/none"]])
def test_what_cannot_be_written_is_an_error_and_no_hazard(script, option):
    result = sanitize(*option, script)
    assert result.exit_code == 2
    assert f"error: {option[0]} /proc/none" in result.stderr
    pins(result.stderr)
    assert ("unordered-read" in result.stderr) == (option[0] == "--output")  # the folder is made before


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 2),
        ("import sys; sys.exit()", 2),
        ("import sys; sys.exit(0)", 2),
        ("import sys; sys.exit('no GPU')", 2),
        ("raise KeyError('x')", 2),
        ("def f(:", 2),
        (SCRIPT + "\nsys.exit()", 1),
        (RIGHT + "\nsys.exit()", 0),
        (RIGHT + "\nsys.exit(True)", 2),
    ],
)
def test_a_script_that_launches_nothing_or_fails_is_not_clean(script, tmp_path, text, code):
    (tmp_path / script).write_text(text)
    assert sanitize(script).exit_code == code


def test_what_follows_the_script_is_its_own(script, tmp_path):
    """As Python has it, options and two dashes too."""
    (tmp_path / script).write_text("import sys\nprint(sys.argv)\n")
    result = sanitize(script, "--seed", "3", "--", "--limit")
    assert result.stdout == "['script.py', '--seed', '3', '--', '--limit']\n"
    result = sanitize("--", script, "x")
    assert result.stdout == "['script.py', 'x']\n"


def test_json_has_schedules_and_witnesses(script):
    result = sanitize("--format", "json", "--schedules", "2", "--seed", "4", "--replay", script)
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["schedules"][0]["seeds"] == {"first": 4, "last": 5}
    assert {*report["hazards"][0]["witness"]} == {"policy", "how", "kind", "what"}


@pytest.mark.parametrize("arguments", [["--polcy", "late"], ["."], ["none.py"], ["--policy", "lat"], ["--ctas", "x"]])
def test_simulate_refuses_such_too(script, arguments):
    given = arguments if arguments in (["."], ["none.py"]) else [*arguments, script]
    result = CliRunner().invoke(app, ["simulate", *given])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert not result.stdout


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_a_form_that_is_asked_for_is_all_of_standard_output(script, form):
    result = sanitize("--format", form, script)
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    found = report["hazards"] if form == "json" else report["runs"][0]["results"]
    assert len(found) == 1
    pins(result.stderr)


@pytest.mark.parametrize("form", [None, "sarif"])
def test_a_file_is_written_and_the_text_shown(script, tmp_path, form):
    result = sanitize(*(() if form is None else ("--format", form)), "--output", "report", script)
    assert result.exit_code == 1
    pins(result.stderr)
    written = (tmp_path / "report").read_text()
    assert written.startswith("{" if form in ("json", "sarif") else "1 hazard\n")
    assert "unordered-read" in written


def test_a_script_may_change_its_folder(script, tmp_path, monkeypatch):
    """Reports and source lines are found from the folder that Python started in."""
    monkeypatch.chdir(tmp_path)  # undone at the end
    (tmp_path / script).write_text("import os\nos.chdir('/')\nassert os.path.isabs(__file__)\n" + SCRIPT)
    assert sanitize("--output", "told.txt", "--reproducers", "of", script).exit_code == 1
    assert "1 hazard" in (tmp_path / "told.txt").read_text()
    assert len(list((tmp_path / "of").iterdir())) == 1


def test_what_is_allowed_fails_nothing(script, tmp_path):
    text = SCRIPT.replace("[%r1], %r0;", "[%r1], %r0;  // cutepy: allow[unordered-read] only a hint")
    (tmp_path / script).write_text(text)
    result = sanitize(script)
    assert result.exit_code == 0
    pins(result.stderr)
    assert "= only a hint" in result.stderr


@pytest.mark.parametrize(
    ("written", "said"), [("", "must have a reason, got none: write"), (" x", "the PTX:8 must name")]
)
def test_what_cannot_be_meant_is_told_in_a_line(script, tmp_path, written, said):
    kind = "unordered-read" if not written else "unordered-raed"
    text = SCRIPT.replace("[%r1], %r0;", f"[%r1], %r0;  // cutepy: allow[{kind}]{written}")
    (tmp_path / script).write_text(text)
    result = sanitize(script)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert "0 hazards" not in result.stderr  # nothing ran
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("error: "))
    assert said in line


PRINTING = """
import cutlass.cute as cute

@cute.kernel
def kernel():
    cute.printf("thread {} is here", cute.arch.thread_idx()[0])

@cute.jit
def run():
    kernel().launch(grid=(1, 1, 1), block=(2, 1, 1))

run()
print("and the host")
"""


@pytest.mark.parametrize(("command", "stream"), [("simulate", 0), ("sanitize", 0), ("sanitize --format json", 1)])
def test_what_kernels_print_comes_between_what_the_script_prints(script, tmp_path, command, stream):
    (tmp_path / script).write_text(PRINTING)
    result = CliRunner().invoke(app, [*command.split(), script])
    assert result.exit_code == 0
    said = (result.stdout, result.stderr)[stream]
    pins(said)


def test_runs_of_the_script_itself_are_watched(tmp_path):
    """Runs are sanitized with and without `sanitize=True`; a script that launches nothing is not called clean."""
    script = tmp_path / "own.py"
    script.write_text(
        "import numpy as np, cutepy\n"
        'k = cutepy.load_ptx(""".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n'
        ".reg .b32 %r<4>; .shared .b32 word;\nmov.u32 %r0, %tid.x; st.shared.u32 [word], %r0;\n"
        'ld.shared.u32 %r1, [word];\nret; }""")\n'
        "with cutepy.simulate():\n"
        "    k.launch('k', grid=1, block=64, args=())\n"
    )
    result = CliRunner().invoke(app, ["sanitize", "--format", "json", str(script)])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert {hazard["kind"] for hazard in told["hazards"]} <= {"unordered-read", "unordered-write"}
    assert [one["is_certified"] for one in told["certificates"]] == [False]
    script.write_text("print('nothing')\n")
    result = CliRunner().invoke(app, ["sanitize", str(script)])
    assert result.exit_code == 2
    pins(result.output)
    assert "failed" not in result.output
    script.write_text("raise SystemExit(3)\n")
    result = CliRunner().invoke(app, ["sanitize", str(script)])
    assert result.exit_code == 2
    pins(result.output)


RACE = (
    "import numpy as np, os, threading, cutepy\n"
    'k = cutepy.load_ptx(""".version 8.7\\n.target sm_90a\\n.address_size 64\\n.visible .entry k() {\\n'
    ".reg .b32 %r<4>; .shared .b32 word;\\nmov.u32 %r0, %tid.x; st.shared.u32 [word], %r0;\\n"
    'ld.shared.u32 %r1, [word];\\nret; }""")\n'
)


def test_a_script_that_leaves_at_once_is_told_of(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(RACE + "k.launch('k', grid=1, block=64, args=())\nos._exit(0)\n")
    result = CliRunner().invoke(app, ["sanitize", str(script)])
    assert result.exit_code == 1
    assert "unordered-" in result.output
    script.write_text(RACE + "k.launch('k', grid=1, block=1, args=())\nos._exit(3)\n")
    written = [
        CliRunner().invoke(app, ["sanitize", "--format", form, str(script)]).stdout for form in ("json", "sarif")
    ]
    assert not json.loads(written[0])["is_whole"]
    assert not json.loads(written[1])["runs"][0]["invocations"][0]["executionSuccessful"]
    assert CliRunner().invoke(app, ["simulate", str(script)]).exit_code == 3


@pytest.mark.integration
def test_a_thread_that_ends_the_process_leaves_nothing_known(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(RACE + "t = threading.Thread(target=os._exit, args=(0,)); t.start(); t.join()\n")
    command = [sys.executable, "-m", "cutepy", "sanitize", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, "by os._exit: nothing is known" in result.stderr) == (2, True)


@pytest.mark.integration
def test_launches_of_forked_processes_are_said_to_be_unwatched(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(
        RACE + "k.launch('k', grid=1, block=1, args=())\n"
        "if not os.fork():\n    k.launch('k', grid=1, block=64, args=())\n    os._exit(0)\n"
        "os.wait()\n"
    )
    command = [sys.executable, "-m", "cutepy", "sanitize", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    pins(result.stderr)
    assert "failed" not in result.stderr
    assert "1 launches" in result.stderr


ADVISORY = """
import numpy as np
import cutepy
PTX = '''.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b32 %r<5>; .reg .b64 %rd<3>; .shared .align 8 .b8 tile[256];
ld.param.u64 %rd1, [out]; ld.shared.u32 %r2, [tile]; and.b32 %r2, %r2, 0; st.global.u32 [%rd1], %r2; ret;
}
'''
with cutepy.simulate(sanitize=True):
    cutepy.load_ptx(PTX).launch("kernel", 1, 1, [np.zeros(1, np.uint32)])
"""


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 1)])
def test_advisories_are_told_once_and_strict_fails_by_them(tmp_path, options, status):
    (tmp_path / "advisory.py").write_text(ADVISORY)
    done = CliRunner().invoke(app, ["sanitize", *options, str(tmp_path / "advisory.py")])
    assert done.exit_code == status, done.output
    assert done.output.count("discarded-read: ") == 1
    pins(done.output)
    assert "AdvisoryWarning" not in done.output
