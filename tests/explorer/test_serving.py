"""Hosts, requests and sizes that the server accepts; and the command that serves."""

import io
import itertools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app as cli
from cutepy.explorer.app import create_app
from cutepy.explorer.calculator import Calculator
from cutepy.explorer.files import MAX_UPLOADS
from cutepy.explorer.guard import MAX_QUERY
from cutepy.explorer.shelf import MAX_FILE_BYTES, Shelf, _tiles, _values
from cutepy.layouts import Layout, parse
from cutepy.sim.inspect.saved import load_run
from tests.messages import pins
from tests.processor_time import is_below

ROOT = Path(__file__).parents[2]
LAYOUT = "/api/layout?expression=(2,3):(3,1)"
STATIC = sorted(path.name for path in (ROOT / "cutepy/explorer/static").iterdir())


def test_an_answer(client):
    told = client.get(LAYOUT)
    assert told.status_code == 200
    assert told.json["picture"]["grids"][0]["cells"]["offset"] == [0, 1, 2, 3, 4, 5]


def test_errors_are_json_with_their_field(client):
    told = client.get("/api/layout?expression=(2,x)")
    assert told.status_code == 400
    error = told.json["error"]
    assert (error["kind"], error["field"], error["position"]) == ("ParseError", "expression", 3)
    assert error["message"].endswith("\n  (2,x)\n     ^")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:80",
        "0.0.0.0",
        "[::2]",
        "a b",
        "10.0.0.1",
    ],
)
def test_other_hosts_are_refused(client, host):
    for path in ("/", LAYOUT, "/static/main.js", "/api/runs"):
        told = client.get(path, headers={"Host": host})
        assert told.status_code == 403, path
    assert client.post("/api/runs", data=b"x", headers={"Host": host}).status_code == 403


def test_a_request_that_names_no_host_is_refused(application):
    from werkzeug.test import EnvironBuilder, run_wsgi_app

    for path in ("/", LAYOUT.partition("?")[0], "/api/runs"):
        environ = EnvironBuilder(path=path).get_environ()
        environ.pop("HTTP_HOST", None)
        assert run_wsgi_app(application, environ)[1].startswith("403")


def test_a_forwarded_port_has_another_number():
    client = create_app().test_client()
    for host, status in (
        ("127.0.0.1:8123", 200),
        ("localhost:9000", 200),
        ("LOCALHOST:9000", 200),
        ("LocalHost", 200),
        ("[::1]:9000", 200),
        ("[::1]", 200),
        ("[::2]", 403),
        ("[::1].evil.example", 403),
        ("[::1", 403),
        ("localhost", 200),
        ("evil.example:8123", 403),
    ):
        assert client.get("/", headers={"Host": host}).status_code == status
    upper = {"Host": "LOCALHOST:9000", "Origin": "http://localhost:9000", "Sec-Fetch-Site": "same-origin"}
    assert client.get(LAYOUT, headers=upper).status_code == 200
    forwarded = {"Host": "localhost:9000", "Origin": "http://localhost:9000", "Sec-Fetch-Site": "same-origin"}
    assert client.get(LAYOUT, headers=forwarded).status_code == 200
    assert client.get(LAYOUT, headers=forwarded | {"Origin": "http://localhost:9001"}).status_code == 403


def test_a_person_who_is_refused_is_told_the_ways_in():
    told = create_app().test_client().get("/", headers={"Host": "box-8765.example.dev"})
    assert (told.status_code, told.mimetype) == (403, "text/html")
    for way in ("box-8765.example.dev", "ssh -L", "--allow-host"):
        assert way in told.text
    assert "<script" not in create_app().test_client().get("/", headers={"Host": "<script>x"}).text


def test_a_host_that_is_allowed_is_served_over_tls_too():
    client = create_app(hosts=("box-8765.example.dev",)).test_client()
    page = {"Host": "box-8765.example.dev", "Origin": "https://box-8765.example.dev", "Sec-Fetch-Site": "same-origin"}
    assert client.get(LAYOUT, headers=page).status_code == 200
    assert client.get(LAYOUT, headers=page | {"Origin": "https://evil.example"}).status_code == 403
    assert client.get(LAYOUT, headers=page | {"Host": "other.example.dev"}).status_code == 403


def test_uploads_make_room_for_each_other_and_never_for_a_run_of_the_command_line(saved_run):
    shelf = Shelf()
    data = saved_run.read_bytes()
    kept = shelf.add(data, "kept", keep=True)["id"]
    uploads = [shelf.add(variant(data, number), f"upload {number}")["id"] for number in range(MAX_UPLOADS + 2)]
    assert [told["id"] for told in shelf.listed()] == [kept, *uploads[2:]]
    assert shelf.add(data, "kept, uploaded as well")["id"] == kept
    assert {told["id"] for told in shelf.listed()} == {kept, *uploads[2:]}


def variant(data: bytes, number: int) -> bytes:
    """Return a saved run that differs from another in one byte that nothing reads: a comment of the archive."""
    with io.BytesIO(data) as file:
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = str(number).encode()
        return file.getvalue()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://localhost"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_origins_are_refused(client, headers):
    assert client.get(LAYOUT, headers=headers).status_code == 403
    assert client.post("/api/runs", data=b"x", headers=headers).status_code == 403


def test_the_own_origin_and_links_from_elsewhere_are_not(client):
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.get(LAYOUT, headers=own).status_code == 200
    assert client.get("/?view=steps", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_other_machines_are_refused(client):
    assert client.get("/", environ_overrides={"REMOTE_ADDR": "192.168.1.7"}).status_code == 403


@pytest.mark.parametrize(
    "path", ["/", LAYOUT, "/api/none", "/nothing", "/palette.css", *(f"/static/{n}" for n in STATIC)]
)
def test_every_answer_forbids_what_is_not_the_pages_own(client, path):
    told = client.get(path)
    policy = dict(part.split(" ", 1) for part in told.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert told.headers["X-Content-Type-Options"] == "nosniff"
    assert told.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in told.headers
    told.close()


def test_the_page_loads_nothing_from_elsewhere(client):
    text = client.get("/").text
    for name in STATIC:
        told = client.get(f"/static/{name}")
        text += told.text
        told.close()
    assert "//cdn" not in text
    for word in ("eval(", "new Function", "onclick=", "style=", "<script>"):
        assert word not in text
    assert {part.split("/")[0] for part in text.split("://")[1:]} <= {"www.w3.org"}


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_only_uploads_change_anything(client, method):
    for path in ("/", "/api/layout", "/api/runs/x/timeline"):
        assert getattr(client, method)(path).status_code == 405
    assert client.get("/api/runs?name=x", data=b"").status_code == 200


def test_bodies_and_queries_are_bounded(client):
    assert client.get(LAYOUT, data=b"x" * 10).status_code == 413
    assert client.get("/api/layout?expression=" + "1" * 20_000).status_code == 414
    assert client.get("/api/layout?expression=" + "(" * 5000).status_code == 400
    asked = "expression=".ljust(MAX_QUERY, "1")
    assert client.get(f"/api/layout?{asked}").status_code == 400
    assert client.get(f"/api/layout?{asked}1").status_code == 414
    long = {"CONTENT_LENGTH": str(MAX_FILE_BYTES + 1), "CONTENT_TYPE": "application/octet-stream"}
    assert client.post("/api/runs", environ_overrides=long).status_code == 413


@pytest.mark.parametrize("text", ["__import__('os')", "().__class__", "{{7*7}}", "'; import os", "${1}", "<script>"])
def test_python_is_not_evaluated(client, text):
    told = client.get("/api/layout", query_string={"expression": text})
    assert told.status_code == 400
    assert told.json["error"]["kind"] == "ParseError"
    assert told.mimetype == "application/json"


def test_time_is_bounded_and_the_next_question_answered():
    calculator = Calculator(limit_s=2.0)
    assert calculator.ask("layout", {"expression": "4:1"})[0] == 200
    os.kill(calculator._process.pid, signal.SIGSTOP)  # so that it takes for ever
    calculator._limit_s = 0.1
    status, body = calculator.ask("layout", {"expression": "(128,128)"})
    assert (status, json.loads(body)["error"]["kind"]) == (413, "TimedOut")
    calculator._limit_s = 5.0
    assert calculator.ask("layout", {"expression": "4:1"})[0] == 200
    calculator.close()


def test_a_worker_that_dies_is_replaced():
    calculator = Calculator()
    assert calculator.ask("layout", {"expression": "4:1"})[0] == 200
    calculator._process.kill()
    status, body = calculator.ask("layout", {"expression": "4:2"})
    assert (status, json.loads(body)["error"]["kind"]) == (413, "MemoryError")
    assert calculator.ask("layout", {"expression": "4:2"})[0] == 200
    calculator.close()


def test_answers_of_128x128_come_in_time(client):
    path = "/api/layout?bits=16&expression=Sw<3,3,3> o {} o ((8,16),(64,2)):((64,512),(1,8192))"
    offsets = itertools.count()  # each another question: an answer is kept

    def spent_s():
        start = time.perf_counter()
        assert client.get(path.format(next(offsets))).status_code == 200
        return time.perf_counter() - start

    assert is_below(0.1, spent_s)  # 20 ms where the machine is idle


class TestRuns:
    """Runs: the one given on the command line, and those that are opened."""

    def test_what_there_is(self, client, saved_run):
        (run, *_) = client.get("/api/runs").json["runs"]
        assert run["name"] == "handover.cutepy"
        assert [cta["cta"] for cta in run["launches"][0]["ctas"]] == [[0, 0, 0], [1, 0, 0]]

    def test_opening_a_file_twice_gives_one_run(self, client, saved_run):
        options = {"data": saved_run.read_bytes(), "content_type": "application/octet-stream"}
        first, again = (client.post("/api/runs?name=x.cutepy", **options) for _ in range(2))
        assert first.status_code == 200
        assert first.json["id"] == again.json["id"]
        assert sum(run["id"] == first.json["id"] for run in client.get("/api/runs").json["runs"]) == 1

    def test_what_is_no_run_is_refused(self, client):
        told = client.post("/api/runs", data=b"PK junk", content_type="application/octet-stream")
        assert told.status_code == 400
        assert told.json["error"]["kind"] == "SavedRunError"
        assert client.post("/api/runs", data={"a": "b"}).status_code == 415

    def test_a_timeline(self, client):
        run = client.get("/api/runs").json["runs"][0]["id"]
        told = client.get(f"/api/runs/{run}/timeline?launch=0&cta=1,0,0").json
        (wait,) = [wait for wait in told["waits"] if "mbarrier" in wait["for"]]
        assert wait["warps"] == [1]
        assert told["events"][wait["released_by"]]["name"].startswith("arrive")
        assert told["barriers"] == {"1024": "mbarrier 0x400"}

    def test_shared_memory_at_an_event(self, client):
        run = client.get("/api/runs").json["runs"][0]["id"]
        events = client.get(f"/api/runs/{run}/timeline").json["events"]
        first, second = (n for n, event in enumerate(events) if "writes" in event)
        asked = {"layout": "(4,8):(8,1)", "dtype": "uint32", "offset": "256"}
        for at, factor, writer in ((second - 1, 0, None), (second, 2, second)):
            told = client.get(f"/api/runs/{run}/shared", query_string=asked | {"at": at}).json
            (grid,) = told["picture"]["grids"]
            assert grid["cells"]["data"] == [str(factor * k) for k in range(32)]
            assert grid["cells"]["byte"] == [256 + 4 * k for k in range(32)]
            (told,) = set(grid["cells"]["notes"]["written by"])
            assert told is None if writer is None else told.startswith(f"event {writer}: write shared")
        (grid,) = client.get(f"/api/runs/{run}/shared?at={second}").json["picture"]["grids"]
        cells = -(-client.get(f"/api/runs/{run}/timeline").json["smem_bytes"] // 128) * 8
        told = [str(first)] * 8 + [""] * 8 + [str(second)] * 8
        assert grid["cells"]["text"] == told + [""] * (cells - len(told))
        assert grid["cells"]["bank"] == [4 * (k % 8) for k in range(cells)]

    def test_values_are_drawn_alike_one_by_one_and_all_at_once(self, saved_run):
        (launch,) = load_run(saved_run.read_bytes()).launches
        cta = launch.ctas[0]
        at = len(cta.events) - 1
        grid = _values(cta, Layout((4, 16), (16, 1)), "uint32", 256, at, cta.writers(at))
        cells = [grid.cell(i, j) for i in range(4) for j in range(16)]
        drawn = grid.bulk()
        for name in ("text", "data", "byte", "bank", "colour"):
            assert drawn[name] == [getattr(cell, name) for cell in cells]
        assert drawn["bank"] == [(64 + k) % 32 for k in range(64)]
        assert drawn["notes"]["line"] == [dict(cell.notes).get("line") for cell in cells]

    @pytest.mark.parametrize(
        ("box", "swizzle", "dtype", "layout", "numpy"),
        [
            ([64, 8], "INTER", "f16", "(8,64):(64,1)", "float16"),
            ([64, 8, 1, 1], "SW128", "bf16", "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", "bfloat16"),
            ([1, 256], "INTER", "f32.ftz", "(256):(1)", "float32"),
            ([1, 1], "INTER", "u8", "(1):(1)", "uint8"),
        ],
    )
    def test_tiles_are_boxes_of_tensor_copies(self, box, swizzle, dtype, layout, numpy):
        told = {"box": box, "swizzle": swizzle, "dtype": dtype}
        events = [{"boxes": [told | {"address": at} for at in (2048, 0, 2048)]}, {}, {"boxes": [told | {"dtype": "?"}]}]
        found = _tiles(SimpleNamespace(events=events))
        assert found == [{"offset": at, "layout": layout, "dtype": numpy, "box": box} for at in (0, 2048)]
        assert parse(layout).size() == math.prod(box)

    @pytest.mark.parametrize(
        ("path", "said"),
        [
            ("none/timeline", "there is no run 'none' here"),
            ("{run}/source", "there is no question 'source'"),
            ("{run}/timeline?launch=1", "launch must be 0 to 0, got 1"),
            ("{run}/timeline?cta=7", "is not in the file"),
            ("{run}/timeline?cta=x", "cta must be coordinates"),
            ("{run}/shared?at=99", "at must be 0 to"),
            ("{run}/shared?layout=(4,x)", "\n  (4,x)"),
            ("{run}/shared?layout=(64,64)&dtype=uint32", "reaches byte"),
            ("{run}/shared?layout=4&dtype=object", "dtype must be one of"),
            ("{run}/shared?layout=(4,4)&offset=1&dtype=uint32", "multiple of the 4 bytes"),
        ],
    )
    def test_errors(self, client, path, said):
        run = client.get("/api/runs").json["runs"][0]["id"]
        told = client.get(f"/api/runs/{path.format(run=run)}")
        assert told.status_code == 400
        assert said in told.json["error"]["message"]


def test_the_command_serves_on_loopback_and_ends(saved_run):
    command = [sys.executable, "-m", "cutepy", "explore", "--no-open", str(saved_run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        line = process.stdout.readline()
        page = next(word for word in line.split() if word.startswith("http://127.0.0.1:")).partition("?")[0]
        with urllib.request.urlopen(page + LAYOUT[1:], timeout=20) as told:
            assert json.load(told)["expression"] == "(2,3):(3,1)"
        request = urllib.request.Request(page, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, check=lambda error: error.code == 403) as refused:
            urllib.request.urlopen(request, timeout=20)
        refused.value.close()
        port = int(page.split(":")[2].strip("/"))
        with socket.socket() as other:
            other.settimeout(2)
            own = socket.gethostbyname(socket.gethostname())
            if not own.startswith("127."):
                assert other.connect_ex((own, port)) != 0
        process.send_signal(2)
        assert process.wait(20) == 0


def test_what_the_command_cannot_do_is_said(tmp_path, monkeypatch):
    def refused(*arguments):
        done = CliRunner().invoke(cli, ["explore", "--no-open", *arguments])
        assert done.exit_code == 2
        return done.stderr

    pins(refused(str(tmp_path / "none.cutepy")))
    (tmp_path / "junk.cutepy").write_bytes(b"junk")
    pins(refused(str(tmp_path / "junk.cutepy")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert refused("--port", str(taken.getsockname()[1]))
    for name in [name for name in sys.modules if name.startswith("cutepy.explorer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flask", None)
    assert refused() == "error: cutepy explore needs flask, which is not installed: pip install 'cutepy[explore]'\n"


def test_nobody_else_pays_for_flask():
    code = "import sys, cutepy, cutepy.cli.app, cutepy.explorer; print('flask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "False\n"
