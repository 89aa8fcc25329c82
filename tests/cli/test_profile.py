"""`cutepy profile`: of a script whose kernel runs in the simulator."""

import json

import pytest
from typer.testing import CliRunner

from cutepy.cli import profile as command
from cutepy.cli.app import app
from cutepy.profiling import Record, Recording
from cutepy.profiling.counters import Counters, CountersError
from tests.messages import pins

pytestmark = pytest.mark.integration

SCRIPT = '''
import sys
import numpy as np
import cutepy

module = cutepy.load_ptx(""".version 8.7
.target sm_90a
.address_size 64
.visible .entry nothing() { ret; }""")
with cutepy.scope("step", flops=10):
    for _ in range(int(sys.argv[1])):
        module.launch("nothing", grid=1, block=32)
print("done")
raise SystemExit(int(sys.argv[2]))
'''


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, ["profile", *map(str, arguments)])


def test_a_script_gives_a_tree_and_files(script, tmp_path):
    saved, trace = tmp_path / "p.json", tmp_path / "p.trace"
    done = run("--json", saved, "--trace", trace, script, 3, 0)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("done\n3 launches, all simulated: they have no times\n")
    recording = Recording.load(saved)
    assert [(each.name, recording.path(each.scope)) for each in recording.records] == [("nothing", ("step",))] * 3
    assert sum(each["ph"] == "X" for each in json.loads(trace.read_text())["traceEvents"]) == 4
    again = run("--against", saved, script, 1, 0)
    assert (again.exit_code, "0 scopes and kernels became slower" in again.output) == (0, True)


def test_the_exit_code_is_the_script_s(script):
    assert run(script, 0, 7).exit_code == 7


def test_a_slower_call_fails(tmp_path, monkeypatch, script):
    slow, fast = (Recording((Record("k", start_ns=0, end_ns=ns),)) for ns in (90_000, 50_000))
    fast.save(tmp_path / "before.json")
    told = []
    assert command._tell_slower(command.Profile(slow), fast, told.append)
    assert not command._tell_slower(command.Profile(fast), slow, told.append)
    pins("\n".join(told))


def test_counters_are_printed(script, monkeypatch):
    monkeypatch.setattr("cutepy.profiling.counters.count", lambda *_: [Counters("k", 5000.0, {"DRAM": 90.0}, {})])
    done = run("--counters", 2, script, 1, 0)
    assert (done.exit_code, done.stdout) == (0, "k: 5.0 us, bound by its DRAM (DRAM 90%)\n")

    def refuse(*_):
        raise CountersError("no counters")

    monkeypatch.setattr("cutepy.profiling.counters.count", refuse)
    assert run("--counters", 2, script, 1, 0).exit_code == 1


def test_refusals(script, tmp_path):
    (tmp_path / "other.json").write_text("{}")
    outputs = [
        run("--against", tmp_path / "none.json", script),
        run("--against", tmp_path / "other.json", script),
        run("--json", script, script),
        run("--trace", tmp_path / "no" / "folder.json", script),
        run("--counters", 1, "--trace", tmp_path / "t.json", script),
        run(tmp_path / "none.py"),
    ]
    assert [done.exit_code for done in outputs] == [2] * len(outputs)
    pins("\n".join(done.output for done in outputs))
