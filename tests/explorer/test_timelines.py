"""Timelines on the page: tracks of a predicted and a measured trace; files that are none are refused."""

import json

import pytest

from cutepy.explorer.app import create_app
from cutepy.explorer.timelines import is_trace
from tests.explorer.timelines import SOURCE, measured, predicted, span
from tests.messages import pins

BYTES = {"content_type": "application/octet-stream"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timelines")
    for name, data in (("p.json", predicted()), ("m.trace", measured())):
        (folder / name).write_bytes(data)
    app = create_app(timelines=(folder / "p.json", folder / "m.trace"))
    yield app.test_client()
    app.extensions["calculator"].close()


def test_both_kinds_are_listed(asked):
    listed = asked.get("/api/timelines").json["timelines"]
    assert [(each["name"], each["kind"]) for each in listed] == [("p.json", "predicted"), ("m.trace", "measured")]


def test_overlapping_events_lie_beside_each_other_and_waits_on_their_warp(asked):
    upper, lower = asked.get("/api/timelines").json["timelines"]
    told = asked.get(f"/api/timelines/{upper['id']}").json
    assert (told["processes"], told["process"], told["sources"]) == (["gemm, SM 0", "gemm, SM 1"], 0, SOURCE)
    copies, warp = told["tracks"]
    assert (copies["name"], copies["rows"], [event[3] for event in copies["events"]]) == ("copies", 2, [0, 1])
    assert (warp["rows"], [event[:4] for event in warp["events"]]) == (
        1,
        [[0.0, 4.0, "runs", 0], [0.25, 1.5, "wait: copies", 0], [2.0, 3.5, "wait: tensor cores", 0]],
    )
    assert warp["events"][1][4] == {"line": "kernel.py:10"}
    (measured_warp,) = asked.get(f"/api/timelines/{lower['id']}").json["tracks"]
    assert [event[:3] for event in measured_warp["events"]] == [[0.0, 1.75, "wait"], [1.75, 5.0, "multiply"]]


def test_a_process_is_chosen_by_its_number(asked):
    upper = asked.get("/api/timelines").json["timelines"][0]["id"]
    (track,) = asked.get(f"/api/timelines/{upper}?process=1").json["tracks"]
    assert track["events"][0][:2] == [0.0, 2.0]
    for wrong in ("2", "x", "9" * 30):
        told = asked.get(f"/api/timelines/{upper}?process={wrong}")
        assert (told.status_code, told.json["error"]["field"]) == (400, "process")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff junk",
        b'{"traceEvents": 3}',
        b'{"traceEvents": [{"ph": "X"}]}',
        json.dumps({"traceEvents": [span(0, 0, "x", "soon", 1)]}).encode(),
        b"[" * 100_000,
    ],
    ids=["junk", "no list", "no time", "no number", "deep"],
)
def test_what_is_no_trace_is_refused(data, asked):
    told = asked.post("/api/timelines?name=t.json", data=data, **BYTES)
    assert (told.status_code, told.json["error"]["kind"]) == (400, "TimelineError")


def test_a_trace_of_too_many_events_is_refused(asked, monkeypatch):
    monkeypatch.setattr("cutepy.explorer.timelines.MOST_EVENTS", 4)
    told = asked.post("/api/timelines", data=predicted(), **BYTES)
    pins(told.json["error"]["message"])
    assert told.status_code == 400


def test_traces_are_told_from_profiles():
    assert is_trace(predicted())
    assert not is_trace(b'{"cutepy_profile": 1}')
