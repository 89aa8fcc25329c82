"""Timelines by IKET: what run-iket of the DSL 4.8.1 decoded on an H200 (2026-11-30), of the first three CTAs."""

import json
import lzma
from pathlib import Path

from cutepy.cli.profile import run
from cutepy.cli.scripts import Script
from cutepy.explorer.timelines import Trace
from cutepy.profiling import iket_trace
from cutepy.profiling.iket_trace import events, trace

RECORDINGS = Path(__file__).parent / "recordings"


def recorded(name):
    return json.loads(lzma.open(RECORDINGS / f"h200_iket_{name}.json.xz", "rt").read())


def spans(found, name):
    return [event for event in found if event["ph"] == "X" and event["name"] == name]


def test_the_lives_of_a_plain_kernels_warps():
    found = events(recorded("plain"))
    lives = spans(found, "runs")
    assert len(lives) == 24  # 3 CTAs of 8 warps
    assert {event["tid"] for event in lives} == {*range(8)}
    assert all(event["dur"] > 0 <= event["ts"] for event in lives)
    names = [event["args"]["name"] for event in found if event["name"] == "process_name"]
    assert len(names) == 3
    assert all("kernel_cutlass_scale_kernel" in name for name in names)


def test_ranges_and_marks_of_ikets_own_api():
    found = events(recorded("ranges"))
    loads = spans(found, "load")
    assert len(loads) == 24 * 8  # eight in each warp's loop
    assert {event["args"]["payload"] for event in loads} == {*range(8)}
    assert {event["dur"] for event in spans(found, "begin")} == {0.0}
    life = spans(found, "runs")[0]
    own = [each for each in loads if (each["pid"], each["tid"]) == (life["pid"], life["tid"])]
    assert all(life["ts"] <= each["ts"] <= each["ts"] + each["dur"] <= life["ts"] + life["dur"] + 1e-3 for each in own)


def test_the_explorer_reads_them():
    shown = Trace(json.dumps({"traceEvents": events(recorded("ranges"))}).encode())
    assert (shown.kind, len(shown.processes), len(shown.tracks(0))) == ("measured", 3, 8)


def test_without_iket_there_is_no_trace(monkeypatch):
    monkeypatch.setattr(iket_trace.importlib.util, "find_spec", lambda name: None)
    assert trace(Path("script.py"), []) == []


FAKE = """
import pathlib, sys
given = sys.argv
folder = pathlib.Path(given[given.index("--output-dir") + 1])
folder.mkdir()
assert given[-2:] == ["script.py", "--flag"]
name = "plain" if "--warp-trace" in given else "nothing"
(folder / "iket_pid_1.trace.json").write_text(pathlib.Path(RECORDING).read_text() if name == "plain" else EMPTY)
"""


def test_a_kernel_without_ranges_is_run_again_for_its_warps_lives(tmp_path, monkeypatch):
    (tmp_path / "plain.json").write_text(json.dumps(recorded("plain")))
    empty = json.dumps({"launches": [], "locationTable": [], "stringTable": []})
    fake = f"RECORDING = {str(tmp_path / 'plain.json')!r}\nEMPTY = {empty!r}\n{FAKE}"
    monkeypatch.setattr(iket_trace, "_PROGRAM", fake)
    monkeypatch.setattr(iket_trace, "is_available", lambda: True)
    assert len(spans(trace(Path("script.py"), ["--flag"]), "runs")) == 24


def test_a_timeline_without_ranges_is_ikets(tmp_path, monkeypatch):
    (tmp_path / "idle.py").write_text("x = 1\n")
    monkeypatch.setattr("cutepy.cli.profile.iket_events", lambda script, arguments: events(recorded("plain")))
    said = []
    assert run(Script(tmp_path / "idle.py", [], said.append), timeline=tmp_path / "t.trace") == 0
    assert len(spans(json.loads((tmp_path / "t.trace").read_text())["traceEvents"], "runs")) == 24
    assert any("IKET" in line for line in said)
