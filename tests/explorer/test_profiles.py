"""Profiles on the page: those given on the command line, and those that are opened."""

import pytest

from cutepy.explorer.app import create_app
from cutepy.profiling import Record, Recording, ScopeCall

BYTES = {"content_type": "application/octet-stream"}


@pytest.fixture(scope="module")
def profile_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "p.json"
    scopes = (ScopeCall("layer", flops=8e6), ScopeCall("mm", 0))
    records = (Record("gemm", start_ns=0, end_ns=4000, scope=1), Record("relu", start_ns=6000, end_ns=7000, scope=0))
    Recording(records, scopes, "cupti", "NVIDIA H200", ("a limit",)).save(path)
    return path


@pytest.fixture(scope="module")
def profile_client(profile_file):
    app = create_app(profiles=(profile_file,))
    yield app.test_client()
    app.extensions["calculator"].close()


def test_a_flame_graph_is_the_tree(profile_client):
    (profile,) = profile_client.get("/api/profiles").json["profiles"]
    assert profile["name"] == "p.json"
    told = profile_client.get(f"/api/profiles/{profile['id']}/flame").json
    assert (told["gpu"], told["unit"], told["notes"]) == ("NVIDIA H200", "ns", ["a limit"])
    (layer,) = told["root"]["children"]
    assert (layer["name"], layer["ns"], layer["gap_ns"], layer["tflops"]) == ("layer", 5000, 2000, 1.6)
    assert [(child["kind"], child["name"], child["ns"]) for child in layer["children"]] == [
        ("scope", "mm", 4000),
        ("kernel", "relu", 1000),
    ]


def test_simulated_launches_are_drawn_by_their_number(profile_client, tmp_path):
    Recording((Record("k"), Record("k"))).save(tmp_path / "s.json")
    added = profile_client.post("/api/profiles?name=s.json", data=(tmp_path / "s.json").read_bytes(), **BYTES).json
    told = profile_client.get(f"/api/profiles/{added['id']}/flame").json
    assert (told["name"], told["unit"], told["root"]["launches"]) == ("s.json", "launches", 2)


def test_opening_a_file_twice_gives_one_profile(profile_client, profile_file):
    data = profile_file.read_bytes()
    first, again = (profile_client.post("/api/profiles", data=data, **BYTES).json for _ in range(2))
    assert first["id"] == again["id"]
    assert sum(each["id"] == first["id"] for each in profile_client.get("/api/profiles").json["profiles"]) == 1


def test_what_is_no_profile_is_refused(profile_client):
    told = profile_client.post("/api/profiles", data=b"\xff junk", **BYTES)
    assert (told.status_code, told.json["error"]["kind"]) == (400, "RecordingError")
    assert profile_client.post("/api/profiles", data={"a": "b"}).status_code == 415
    assert profile_client.get("/api/profiles/none/flame").json["error"]["field"] == "profile"
