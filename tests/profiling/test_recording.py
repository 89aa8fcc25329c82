import dataclasses
import json

import pytest

from cutepy.profiling import Profile, Record, Recording, ScopeCall
from cutepy.profiling.recording import RecordingError
from cutepy.profiling.trace import events
from tests.messages import pins, refuses

SAVED = {
    "cutepy_profile": 1,
    "source": "cupti",
    "gpu": "",
    "notes": [],
    "scopes": [{"name": "a"}],
    "records": [{"name": "k", "grid": [4, 1, 1], "scope": 0}],
}


def test_a_saved_profile_is_read(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(SAVED))
    recording = Profile.load(path).recording
    assert recording == Recording((Record("k", grid=(4, 1, 1), scope=0),), (ScopeCall("a"),), "cupti")


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[1]",
        json.dumps({"traceEvents": []}),
        json.dumps(SAVED | {"cutepy_profile": 99}),
        json.dumps(SAVED | {"records": [{"name": "k", "scope": 3}]}),
        json.dumps(SAVED | {"scopes": [{"name": "a", "parent": 0}]}),
        json.dumps(SAVED | {"records": [{"size": 1}]}),
    ],
)
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "p.json"
    path.write_text(text)
    with refuses(RecordingError):
        Profile.load(path)


def test_a_trace_has_launches_and_the_spans_of_scopes():
    scopes = (ScopeCall("layer"), ScopeCall("mm", 0))
    records = (
        Record("gemm", start_ns=5000, end_ns=7000, scope=1, launched_ns=1000, grid=(2, 1, 1)),
        Record("relu", start_ns=8000, end_ns=9000, scope=0),
        Record("k"),
    )
    found = [each for each in events(Recording(records, scopes)) if each["ph"] == "X"]
    spans = {each["name"]: (each["pid"], each["ts"], each["dur"]) for each in found}
    assert spans == {
        "gemm": (0, 0.0, 2.0),
        "relu": (0, 3.0, 1.0),
        "layer": (0, 0.0, 4.0),
        "mm": (0, 0.0, 2.0),
        "k": ("simulator", 0.0, 1.0),
    }
    (gemm,) = (each for each in found if each["name"] == "gemm")
    assert gemm["args"]["us from launch to start"] == 4.0


def test_the_tree_as_text(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    scopes = (ScopeCall("attention", flops=6e9, bytes=8e6), ScopeCall("backward", 0))
    records = (
        Record("void flash_fwd<64>(Params)", start_ns=1000, end_ns=21_000, scope=0),
        Record("_Z5scalePff", start_ns=25_000, end_ns=55_000, scope=1),
        Record("copy HTOD", "copy", 55_000, 56_000, bytes=4096),
    )
    recording = Recording(records, scopes, "cupti", "NVIDIA H200", ("a limit",))
    Profile(recording).print()
    pins(capsys.readouterr().out)


def test_a_record_says_only_what_is_known():
    assert dataclasses.asdict(Record("k")) == {
        "name": "k",
        "kind": "kernel",
        "start_ns": None,
        "end_ns": None,
        "device": 0,
        "stream": 0,
        "scope": None,
        "graph_launch": None,
        "launched_ns": None,
        "grid": (1, 1, 1),
        "block": (1, 1, 1),
        "cluster": (1, 1, 1),
        "registers": 0,
        "smem_bytes": 0,
        "bytes": 0,
    }
    assert (Record("k").simulated, Record("k").duration_ns) == (True, 0)
    assert (Record("k", start_ns=5, end_ns=8).simulated, Record("k", start_ns=5, end_ns=8).duration_ns) == (False, 3)
