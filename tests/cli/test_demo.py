"""The demo, on a machine that has the DSL and no GPU, and on ones that lack more."""

import importlib.util
import re

import pytest

from cutepy.cli import conformance, demo
from tests.messages import pins


@pytest.fixture
def lines(monkeypatch):
    """Collect what is written, with the conformance log cut short: it has its own tests."""
    monkeypatch.setattr(conformance, "run", lambda write: (write("all equal"), 0)[1])
    return []


@pytest.mark.dsl
@pytest.mark.integration
def test_without_a_gpu_the_kernel_is_compiled_checked_and_simulated(lines, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert demo.run(lines.append) == 0
    text = "\n".join(lines)
    assert "The WGMMA tutorial: all equal" in lines
    assert "Compiled for sm_90a" in text
    assert text.count("  equal") == 9
    assert "DIFFERS" not in text
    assert "here is no GPU: to the simulator, on the CPU" in text
    assert re.search(r"264 x 520 x 512: relative error \S+ \(bound \S+\), right", text)


@pytest.mark.dsl
def test_a_wrong_result_in_the_simulator_fails_the_demo(lines, monkeypatch):
    torch = pytest.importorskip("torch")
    from cutepy.kernels.gemm import reference

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    exact = reference.gemm_reference
    monkeypatch.setattr(reference, "gemm_reference", lambda a, b: exact(a, b) + 1)
    monkeypatch.setattr(demo, "_compile", lambda _write: 0)
    assert demo.run(lines.append) == 1
    assert any("WRONG" in line for line in lines)


@pytest.mark.dsl
@pytest.mark.parametrize("off", [0, 1])
def test_a_wrong_result_on_a_gpu_fails_the_demo(lines, monkeypatch, off):
    """The calls that need a GPU are answered on the CPU."""
    torch = pytest.importorskip("torch")
    from cutepy import ops
    from cutepy.suites import measurement

    for made in ("randn", "full"):
        on_cpu = getattr(torch, made)
        monkeypatch.setattr(
            torch, made, lambda *given, on_cpu=on_cpu, **how: on_cpu(*given, **{**how, "device": "cpu"})
        )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(measurement, "has_hopper", lambda: True)
    monkeypatch.setattr(ops, "gemm", lambda a, b, out: out.copy_(a.double() @ b.double().T + off))
    monkeypatch.setattr(demo, "_SIZES", ((64, 32, 16), (24, 40, 8)))
    monkeypatch.setattr(demo, "_time_us", lambda _launch: 2.0)
    monkeypatch.setattr(demo, "_compile", lambda _write: 0)
    assert demo.run(lines.append) == off
    verdicts = [line.split()[-1] for line in lines if "relative error" in line]
    assert verdicts == 2 * [("right", "WRONG")[off]]


@pytest.mark.dsl
def test_a_difference_fails_the_demo(lines, monkeypatch):
    torch = pytest.importorskip("torch")
    from cutepy.kernels.gemm import inspection

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(inspection, "facts", lambda *_: [inspection.Fact("stages", "4", "3")])
    assert demo.run(lines.append) == 1
    assert any("DIFFERS" in line for line in lines)


@pytest.mark.dsl
def test_the_configuration_is_described(lines):
    pytest.importorskip("torch")
    from cutepy.kernels.gemm import GemmSignature, select_config

    half = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")
    demo._describe(select_config(half, *demo._SIZES[0]), lines.append)
    pins("\n".join(lines))


def test_a_time_is_the_median_of_launches_behind_a_flush(monkeypatch):
    """Of 22 launches the first two warm up; a launch of the stand-in takes what its clock is moved by, in ms."""
    torch = pytest.importorskip("torch")
    milliseconds = [0.25, 0.5, *(1 + 7 * n % 20 for n in range(20))]
    clock, taken, steps, flushed = [0.0], iter(milliseconds), [], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            steps.append("record")
            self.at = clock[0]

        def synchronize(self):
            steps.append("synchronize")

        def elapsed_time(self, end):
            return end.at - self.at

    class Buffer:
        def zero_(self):
            steps.append("flush")

    def launch():
        steps.append("launch")
        clock[0] += next(taken)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty", lambda size, **how: flushed.append((size, how)) or Buffer())
    assert demo._time_us(launch) == 11e3
    assert sorted(milliseconds[2:]) == [*range(1, 21)]
    assert steps == 22 * ["flush", "record", "launch", "record", "synchronize"]
    assert flushed == [(256 << 20, {"dtype": torch.int8, "device": "cuda"})]


def test_what_is_missing_is_said(lines, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "cutlass" else find_spec(name, *a)
    )
    assert demo.run(lines.append) == 1
    assert lines[-1] == "the GEMM needs nvidia-cutlass-dsl, which is not installed: pip install 'cutepy[dsl]'"


def test_a_layout_that_differs_is_shown_and_fails_the_demo(monkeypatch):
    log = ["  sA  (8,64):(64,1)", "  C++ (8,64):(64,2)  DIFFERS", "  sB  4:1", "  C++ 4:1  equal", "1 of 2 equal"]
    monkeypatch.setattr(conformance, "run", lambda write: ([write(line) for line in log], 1)[1])
    monkeypatch.setattr(demo, "_compile", lambda _write: 0)
    monkeypatch.setattr(demo, "_run", lambda _write: 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    lines = []
    assert demo.run(lines.append) == 1
    assert log[0] in lines
    assert log[1] in lines
    assert log[3] not in lines


def test_its_layouts_are_drawn_and_compared_on_one_screen():
    lines = []
    assert demo._layouts(lines.append) == 0
    text = "\n".join(lines)
    assert "Sw<3,3,3> o 0 o (8,64):(64,1)\n" in text
    pins(text)
    assert len(text.splitlines()) <= 24
