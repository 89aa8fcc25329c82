"""The status, the words and the files of `cutepy predict`, with a stand-in for the timer of the launches."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from cutepy import frontends
from cutepy.cli import predict, simulate
from cutepy.cli.scripts import Script
from cutepy.frontends import inherited
from cutepy.predict import report, timer


@pytest.fixture
def predicted(monkeypatch, tmp_path):
    """Run a script that ends with a code and launches some kernels; gives the status, the words, and what was asked."""
    asked = {}

    def ran(code, launches, **options):
        lines = []

        def take(**given):
            asked["served"] = given
            return nullcontext()

        def make(gpu, keeps_events):
            asked["timer"] = gpu, keeps_events
            return SimpleNamespace(predictions=launches)

        monkeypatch.setattr(timer, "Timer", make)
        monkeypatch.setattr(frontends, "serve_cuda", take)
        monkeypatch.setattr(inherited, "inherited_by_runs", lambda given: nullcontext(asked.update(inherited=given)))
        monkeypatch.setattr(simulate, "execute", lambda script: code)
        monkeypatch.setattr(report, "write", lambda found, console: lines.append(f"table of {found}"))
        monkeypatch.setattr(report, "as_json", lambda found: [f"plain {each}" for each in found])
        monkeypatch.setattr(report, "timeline", lambda found: {"spans": found})
        script = Script(tmp_path / "script.py", (), lines.append)
        return predict.run(script, "h200", **options), lines, asked

    return ran


FAILED = "cutepy: the script failed; of each launch only sampled CTAs ran, so that it must not check results"
NONE = "cutepy: the script launched no kernel"


@pytest.mark.parametrize(
    ("code", "launches", "status", "lines"),
    [
        (0, ["a", "b"], 0, ["table of ['a', 'b']"]),
        (0, [], 0, [NONE]),
        (1, ["a"], 2, [FAILED, "table of ['a']"]),
        (1, [], 2, [FAILED, NONE]),
        (simulate.INTERRUPTED, ["a"], simulate.INTERRUPTED, []),
    ],
)
def test_the_status_and_the_words(predicted, code, launches, status, lines):
    assert predicted(code, launches)[:2] == (status, lines)


def test_files_are_written_of_launches_only(predicted, tmp_path):
    files = {"json_path": tmp_path / "p.json", "timeline": tmp_path / "t.json"}
    predicted(0, [], **files)
    assert not any(path.exists() for path in files.values())
    predicted(0, ["a"], **files)
    assert files["json_path"].read_text() == '[\n "plain a"\n]\n'
    assert json.loads(files["timeline"].read_text()) == {"spans": ["a"]}


def test_the_timer_is_passed_to_this_run_and_to_those_that_it_starts(predicted, tmp_path):
    _, _, asked = predicted(0, [])
    assert asked["timer"] == ("h200", False)
    assert asked["served"] == asked["inherited"]
    assert asked["served"].keys() == {"time"}
    _, _, asked = predicted(0, [], ctas=[(0, 0, 0)], timeline=tmp_path / "t.json")
    assert asked["timer"] == ("h200", True)
    assert asked["served"]["ctas"] == [(0, 0, 0)]
