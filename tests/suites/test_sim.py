"""The simulator's benchmark, at a size that takes no time."""

import json
import resource
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import sim
from tests.messages import pins

pytestmark = pytest.mark.dsl

pytest.importorskip("cutlass")


@pytest.mark.integration
def test_figures_are_printed_and_saved(tmp_path, monkeypatch, capsys):
    path = tmp_path / "sim.json"
    assert sim.run_sim((128, 128, 64), (128, 128, 64), 1, path, deep=(128, 128, 64)) == 0
    printed = capsys.readouterr().out
    saved = json.loads(path.read_text())
    assert {"CPU", "versions", "date"} <= set(saved["environment"])
    rows = {(row["what"], row["who"]): row for row in saved["rows"]}
    assert [who for _, who in rows] == [
        *("cutepy", "cutepy"),  # the large product
        *("cutepy", "cutepy, sanitized", "numpy float32", "cutepy"),
        "cutepy, sanitized",
    ]
    for (what, who), row in rows.items():
        assert what in printed
        assert who in printed
        assert row["value"] is not None
    memory = rows["its memory at most", "cutepy"]
    assert memory["unit"] == "GiB"
    assert 0.05 < memory["value"] < 8


def test_both_ratios_of_the_sanitizer_are_told(monkeypatch):
    """By what the sanitizer is told to cost; the memory is that of other processes."""

    def in_turns(contenders, rounds):
        contenders["cutepy"]()
        return {**dict.fromkeys(contenders, 0.5), "cutepy, sanitized": 1.5}

    monkeypatch.setattr(sim, "in_turns", in_turns)
    monkeypatch.setattr(sim, "_in_a_process", lambda extents, sanitize: 450.0 if sanitize else 300.0)
    monkeypatch.setattr(sim.SimulatedGemm, "is_right", lambda gemm: True)
    monkeypatch.setattr(sim, "_translation_s", lambda ptx: 0.1)
    by_time = next(f for f in sim.small_product((128, 128, 64), 1) if f.who == "cutepy, sanitized")
    assert (by_time.value, by_time.relation) == (1.5, "3.0 times as long, 5 at most; with its certificate")
    by_memory = sim.sanitized_memory()
    assert by_memory.what == "memory of 1024x1024x4096"
    assert (by_memory.value, by_memory.relation) == (450, "1.50 times the 300 MiB of the simulator, 4 at most")


@pytest.mark.deep
@pytest.mark.integration
def test_memory_is_that_of_the_product_alone():
    """A process that takes much already does not count."""
    much = b"1" * (1 << 30)
    assert 20 < sim._in_a_process((128, 128, 64), True) < len(much) >> 20


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_the_memory_at_most_is_of_this_process_and_its_workers(monkeypatch, processes):
    """Of the processes of a launch this is one; each worker may have as much as the largest had."""
    peaks = {resource.RUSAGE_SELF: 3 << 20, resource.RUSAGE_CHILDREN: 1 << 19}  # in KiB
    launch = SimpleNamespace(processes=processes, seconds=2.5)
    monkeypatch.setattr(sim, "SimulatedGemm", Multiplied)
    monkeypatch.setattr("cutepy.frontends.simulate", lambda arch: nullcontext(SimpleNamespace(launches=[None, launch])))
    used = SimpleNamespace(**vars(resource) | {"getrusage": lambda who: SimpleNamespace(ru_maxrss=peaks[who])})
    monkeypatch.setattr(sim, "resource", used)
    time, memory = sim.large_product((8, 8, 8))
    assert (time.value, time.unit, time.right) == (2.5, "s", True)
    assert (memory.value, memory.unit) == (3 + 0.5 * (processes - 1), "GiB")


class Multiplied:
    """Stand-in for a product, which is right."""

    def __init__(self, extents):
        self.extents = extents

    def __call__(self):
        pass

    def is_right(self):
        return True


def test_a_wrong_result_fails(monkeypatch, capsys):
    monkeypatch.setattr(sim.SimulatedGemm, "is_right", lambda gemm: False)
    assert sim.run_sim((128, 128, 64), None, 1, deep=None) == 1
    pins(capsys.readouterr().err)


def test_all_is_measured_at_the_sizes_that_are_documented(monkeypatch):
    asked = {}
    monkeypatch.setattr(sim, "large_product", lambda *given: asked.update(large=given) or [])
    monkeypatch.setattr(sim, "small_product", lambda *given: asked.update(small=given) or [])
    figure = sim.Figure("memory", "cutepy", 1.0, "MiB")
    monkeypatch.setattr(sim, "sanitized_memory", lambda *given: asked.update(deep=given) or figure)
    assert sim.run_sim() == 0
    assert asked == {"large": ((4096, 4096, 4096),), "small": ((512, 512, 1024), 9), "deep": ((1024, 1024, 4096),)}


@pytest.mark.parametrize("right", [True, False])
def test_the_status_tells_whether_all_is_right(right, monkeypatch):
    figures = [
        sim.Figure("one", "cutepy", 1.0, "s", "", right=True),
        sim.Figure("two", "cutepy", 1.0, "s", "", right=right),
    ]
    monkeypatch.setattr(sim, "small_product", lambda *_: figures)
    assert sim.run_sim(large=None, deep=None) == int(not right)


def test_the_command_measures_what_the_module_does(monkeypatch):
    calls = []
    monkeypatch.setattr(sim, "run_sim", lambda **options: calls.append(options) or 0)
    assert CliRunner().invoke(app, ["bench", "sim", "--no-large"]).exit_code == 0
    assert CliRunner().invoke(app, ["bench", "sim"]).exit_code == 0
    assert [options["large"] for options in calls] == [None, (4096, 4096, 4096)]
