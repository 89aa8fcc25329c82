"""The benchmark command, without a GPU."""

import pytest
from typer.testing import CliRunner

from cutepy.cli import bench
from cutepy.cli.app import app


def test_problems_are_the_suites_in_every_dtype():
    problems = bench.gemm_problems(["llama"], ["float16", "float8_e4m3fn"])
    assert [str(p) for p in problems[:1] + problems[-1:]] == ["float16 4096x6144x4096", "float8_e4m3fn 4096x4096x14336"]
    assert len(problems) == 8
    assert problems[0].flops == 2 * 4096 * 6144 * 4096
    assert problems[0].bytes == 2 * (4096 * 4096 + 6144 * 4096 + 4096 * 6144)
    assert problems[4].bytes == 4096 * 4096 + 6144 * 4096 + 2 * 4096 * 6144


def test_a_problem_of_two_suites_is_measured_once():
    problems = bench.gemm_problems(["squares", "llama"], ["float16"])
    assert len(problems) == len(set(problems)) == 8


@pytest.mark.parametrize("command", ["gemm", "llama"])
def test_without_a_gpu_the_command_says_so(monkeypatch, command):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["bench", command])
    assert result.exit_code == 2
    assert "needs a Hopper GPU" in result.output


def test_a_llama_step_is_measured_and_checked(monkeypatch):
    """With everything but the GPU: a small layer on the CPU, and a protocol that times nothing."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark
    from cutepy.benchmark import llama
    from cutepy.cli import bench_llama

    def compare(contenders, *, sets):
        for run in contenders.values():
            for index in range(sets):
                run(index)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    small = llama.LlamaSizes(hidden=64, intermediate=176, heads=4, key_heads=2)
    monkeypatch.setattr(llama, "LlamaSizes", lambda: small)
    monkeypatch.setattr(benchmark, "compare", compare)
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda shape, device: randn(shape))
    layer = llama.LlamaLayer
    monkeypatch.setattr(llama, "LlamaLayer", lambda sizes, device, dtype: layer(sizes, dtype=dtype))
    torchs, ours = bench_llama._measure(16)
    assert (torchs.contender, ours.contender) == ("torch", "cutepy")
    assert 0 < ours.error <= 2 * torchs.error
    assert ours.flops == bench_llama.layer_flops(16, 64, 176, 32)
