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


def test_without_a_gpu_the_command_says_so(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["bench", "gemm"])
    assert result.exit_code == 2
    assert "needs a Hopper GPU" in result.output
