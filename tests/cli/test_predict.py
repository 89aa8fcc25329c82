"""`cutepy predict`: the table, JSON and timeline of a script's launches."""

import json

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from tests.predict.kernels import COPY
from tests.predict.test_known_times import MISSING

pytest.importorskip("torch")
pytest.importorskip("cutlass")

pytestmark = [
    pytest.mark.dsl,
    pytest.mark.integration,
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools"),
]

SCRIPT = f'''
import sys
import numpy as np
import cutepy
k = cutepy.load_ptx("""{COPY}""")
x, y = np.zeros(1 << 24, np.uint8), np.ones(1 << 24, np.uint8)
for grid in map(int, sys.argv[1:]):
    k.launch("copy", grid=grid, block=256, args=(x, y))
assert len(sys.argv) < 4 or not y.any()
'''


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    return "script.py"


def predict(*arguments):
    return CliRunner().invoke(app, ["predict", *arguments])


def test_each_launch_has_a_row_and_files_are_written(script, tmp_path):
    done = predict("--gpu", "h100", "--json", "p.json", "--timeline", "t.json", script, "1024", "512")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "p.json").read_text())
    assert [each["grid"] for each in found] == [[1024, 1, 1], [512, 1, 1]]
    assert found[0]["gpu"] == "h100"
    assert found[0]["us"] > found[1]["us"]
    assert all(each["low_us"] <= each["us"] <= each["high_us"] for each in found)
    assert all(each["bound"] in each["sentence"] for each in found)
    spans = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {span["ph"] for span in spans} <= {"M", "X"}
    assert "predicted on one H100" in done.output


def test_a_script_that_checks_results_fails_and_what_was_predicted_is_shown(script):
    done = predict(script, "1024", "1024", "1024")
    assert done.exit_code == 2
    assert "sampled CTAs" in done.output


def test_a_script_without_launches_says_so(script):
    done = predict(script)
    assert (done.exit_code, "launched no kernel" in done.output) == (0, True)


@pytest.mark.parametrize(
    "arguments", [["--gpu", "v100", "script.py"], ["nowhere.py"], ["--json", "no/p.json", "script.py"]]
)
def test_what_cannot_be_meant_is_refused(script, arguments):
    assert predict(*arguments).exit_code == 2


VARIED = f'''
import argparse
import numpy as np
import cutepy
parser = argparse.ArgumentParser()
parser.add_argument("--grid", type=int)
given = parser.parse_args()
x, y = np.zeros(1 << 24, np.uint8), np.ones(1 << 24, np.uint8)
cutepy.load_ptx("""{COPY}""").launch("copy", grid=given.grid, block=256, args=(x, y))
'''


def test_each_configuration_is_predicted_in_a_process_of_its_own(script, tmp_path):
    (tmp_path / "varied.py").write_text(VARIED)
    done = predict("--vary", "grid=1024,x", "--json", "w.json", "varied.py")
    assert done.exit_code == 0, done.output
    one, none = json.loads((tmp_path / "w.json").read_text())
    assert one["options"] == {"grid": "1024"}
    assert one["predictions"][0]["grid"] == [1024, 1, 1]
    assert none["predictions"] == []
    assert "--grid x: varied.py: error: argument --grid: invalid int value: 'x'" in done.output
    assert "grid 1024: warps wait most for global memory, at line" in done.output


def row(us, **options):
    launch = {"us": us, "bound": "L2", "use": {"tensor cores": 0.4}, "in_flight_bytes": 43e3, "needed_bytes": 62e3}
    stalls = [{"cause": "copies", "line": "/a/gemm.py:71"}]
    predictions = [launch | {"occupancy": {"ctas_per_sm": 2}, "stalls": stalls}] if us else []
    return {"options": options, "predictions": predictions}


def test_configurations_are_compared_with_the_best():
    from rich.console import Console

    from cutepy.cli.what_if import table, waits

    rows = [row(24.6, stages="2", tile="64"), row(0, stages="3", tile="64"), row(12.3, stages="4", tile="64")]
    with (console := Console(width=80)).capture() as captured:
        console.print(table(rows))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[1:] == [
        ["2", "64", "24.60", "2.00", "L2", "40%", "42", "of", "61", "2"],
        ["3", "64", "not", "predicted"],
        ["4", "64", "12.30", "best", "L2", "40%", "42", "of", "61", "2"],
    ]
    assert [*waits(rows)][1] == "stages 4, tile 64: warps wait most for copies, at gemm.py:71"


@pytest.mark.parametrize(
    "given", [["grid"], ["grid="], ["=2"], ["grid=2,,3"], ["a=1", "a=2"], [f"a={','.join(map(str, range(65)))}"]]
)
def test_options_that_cannot_be_varied_are_refused(script, given):
    done = predict(*(word for each in given for word in ("--vary", each)), script)
    assert done.exit_code == 2
    assert "--vary takes" in done.output
