"""The demo, on a machine that has the DSL and no GPU, and on ones that lack more."""

import importlib.util
import re

import pytest

from cutepy.cli import demo, tutorial


@pytest.fixture
def lines(monkeypatch):
    """Collect what is written, with the tutorial cut short: it has its own tests."""
    monkeypatch.setattr(tutorial, "run", lambda write: (write("tutorial"), 0)[1])
    return []


@pytest.mark.dsl
def test_without_a_gpu_the_kernel_is_compiled_checked_and_simulated(lines, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert demo.run(lines.append) == 0
    text = "\n".join(lines)
    assert lines[0] == "tutorial"
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
def test_a_difference_fails_the_demo(lines, monkeypatch):
    torch = pytest.importorskip("torch")
    from cutepy.kernels.gemm import inspection

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(inspection, "facts", lambda *_: [inspection.Fact("stages", "4", "3")])
    assert demo.run(lines.append) == 1
    assert any("DIFFERS" in line for line in lines)


def test_what_is_missing_is_said(lines, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "cutlass" else find_spec(name, *a)
    )
    assert demo.run(lines.append) == 1
    assert lines[-1] == "The GEMM needs cutlass: pip install 'cutepy[dsl]'"


def test_a_failing_tutorial_fails_the_demo(monkeypatch):
    monkeypatch.setattr(tutorial, "run", lambda _write: 1)
    monkeypatch.setattr(demo, "_compile", lambda _write: 0)
    monkeypatch.setattr(demo, "_run", lambda _write: 0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    assert demo.run(lambda _line: None) == 1
