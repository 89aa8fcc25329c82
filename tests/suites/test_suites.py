"""The suites of `cutepy bench` that need a GPU, without one."""

import json

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import gemm


def test_problems_are_the_suites_in_every_dtype():
    problems = gemm.gemm_problems(["llama"], ["float16", "float8_e4m3fn"])
    assert [str(p) for p in problems[:1] + problems[-1:]] == ["float16 4096x6144x4096", "float8_e4m3fn 4096x4096x14336"]
    assert len(problems) == 8
    assert problems[0].flops == 2 * 4096 * 6144 * 4096
    assert problems[0].bytes == 2 * (4096 * 4096 + 6144 * 4096 + 4096 * 6144)
    assert problems[4].bytes == 4096 * 4096 + 6144 * 4096 + 2 * 4096 * 6144


def test_a_batch_is_a_problem():
    (problem, *_, last) = gemm.gemm_problems(["batched"], ["float16"])
    assert (str(problem), problem.batch) == ("float16 32x1024x1024x128", (32,))
    assert last.flops == 8 * 2 * 2048**3
    assert last.bytes == 8 * 3 * 2 * 2048**2


def test_a_problem_of_two_suites_is_measured_once():
    problems = gemm.gemm_problems(["squares", "llama"], ["float16"])
    assert len(problems) == len(set(problems)) == 8


@pytest.mark.parametrize("command", ["gemm", "launch", "llama"])
def test_without_a_gpu_the_command_says_so(monkeypatch, command):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["bench", command])
    assert result.exit_code == 2
    assert "needs a Hopper GPU" in result.output


@pytest.mark.parametrize("error", [1e-4, float("nan")])
def test_a_report_is_printed_and_saved_and_says_what_is_wrong(monkeypatch, tmp_path, error):
    pytest.importorskip("torch")
    from cutepy import benchmark
    from cutepy.suites import llama, measuring

    def row(problem, contender, error):
        return benchmark.Row(str(problem), contender, 2.0, 3.0, 1e6, 1e3, error)

    monkeypatch.setattr(measuring, "has_hopper", lambda: True)
    monkeypatch.setattr(benchmark, "environment", lambda: {"gpu": "none"})
    monkeypatch.setattr(gemm, "_measure_gemm", lambda p: [row(p, "cutepy", error if p.m == 4096 else 1e-4)])
    monkeypatch.setattr(llama, "_measure", lambda n: [row(n, "cutepy", error), row(n, "torch", 1e-4)])
    saved = tmp_path / "gemm.json"
    result = CliRunner().invoke(app, ["bench", "gemm", "--suite", "squares", "--dtype", "float16", "--json", saved])
    assert f"saved {saved}" in result.stdout
    assert len(json.loads(saved.read_text())["rows"]) == 5
    assert result.stdout.splitlines()[0] == "gpu: none"
    wrong = "WRONG: float16 4096x4096x4096 is beyond its tolerance\n"
    assert (result.exit_code, result.stderr) == ((0, "") if error == 1e-4 else (1, wrong))
    result = CliRunner().invoke(app, ["bench", "llama", "--tokens", "16"])
    assert result.exit_code == (0 if error == 1e-4 else 1)
    assert ("WRONG: of 16 tokens ours is over 2 times as far from float64" in result.stderr) == (error != 1e-4)


def test_a_llama_step_is_measured_and_checked(monkeypatch):
    """With everything but the GPU: a small layer on the CPU, and a protocol that times nothing."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark
    from cutepy.suites import llama, llama_layer

    def compare(contenders, *, sets):
        for run in contenders.values():
            for index in range(sets):
                run(index)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    small = llama_layer.LlamaSizes(hidden=64, intermediate=176, heads=4, key_heads=2)
    monkeypatch.setattr(llama_layer, "LlamaSizes", lambda: small)
    monkeypatch.setattr(benchmark, "compare", compare)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda shape, device: randn(shape))
    layer = llama_layer.LlamaLayer
    monkeypatch.setattr(llama_layer, "LlamaLayer", lambda sizes, device, dtype: layer(sizes, dtype=dtype))
    torchs, ours = llama._measure(16)
    assert (torchs.contender, ours.contender) == ("torch", "cutepy")
    assert 0 < ours.error <= 2 * torchs.error
    assert ours.flops == llama.layer_flops(16, 64, 176, 32)
