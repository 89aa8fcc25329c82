"""`cutepy bench grouped` without a GPU."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import grouped


def test_problems_are_the_experts_by_routing_and_form():
    problems = grouped.grouped_problems([8, 64], ["balanced", "skewed"], ["m", "k"])
    assert len(set(problems)) == len(problems) == 16
    assert all(sum(problem.sizes) == 4096 for problem in problems)
    assert max(problems[2].sizes) > 1000
    first = problems[0]
    assert first.flops == 2 * 4096 * 4096 * 7168
    assert first.bytes == 2 * (4096 * (4096 + 7168) + 8 * 4096 * 7168)
    scaled = grouped.grouped_problems([8, 64], ["skewed"], ["m", "k"], ["row", "block"])
    assert len(set(scaled)) == len(scaled) == 12
    assert scaled[0].bytes == 4096 * 7168 + 8 * 4096 * 7168 + 2 * 4096 * 4096
    assert all(size % 128 == 0 for size in scaled[-1].sizes)
    assert str(scaled[-1]) == "fp8 block 64 skewed along k 4096x7168x4096"


def test_weights_of_experts_without_tokens_are_not_counted():
    problem = grouped.GroupedProblem(4, 2, 8, 16)
    assert problem.sizes.count(0) == 2
    assert problem.bytes == 2 * (2 * 24 + 2 * 128)
    assert grouped.GroupedProblem(4, 2, 8, 16, along="k").bytes == 2 * (2 * 24 + 4 * 128)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--routing", "even"), "--routing must be one of balanced, skewed, got 'even'"),
        (("--along", "n"), "--along must be one of m, k, got 'n'"),
        (("--kind", "fp8"), "--kind must be one of bfloat16, row, block, got 'fp8'"),
        (("--groups", "0"), "--groups must be at least 1, got 0"),
    ],
)
def test_refusals(options, message):
    result = CliRunner().invoke(app, ["bench", "grouped", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(("along", "kind"), [("m", "bfloat16"), ("k", "bfloat16"), ("m", "block"), ("k", "block")])
def test_both_are_measured_and_checked(monkeypatch, along, kind):
    """With everything but the GPU: on the CPU, and a protocol that times nothing."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark

    def compare(contenders, *, sets):
        for run in contenders.values():
            run(sets - 1)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    real = grouped.buffers

    def torchs(problem, made):
        launch = grouped.ours(problem, made)
        return lambda index: 2 * launch(index)

    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    monkeypatch.setattr(grouped, "buffers", lambda problem: real(problem, "cpu"))
    monkeypatch.setattr(grouped, "torchs", torchs)
    torch.manual_seed(1)
    tokens = 40 if kind == "bfloat16" else 640
    problem = grouped.GroupedProblem(3, tokens, 16, 24, "skewed", along, kind)
    ours, theirs = rows = grouped._measure(problem)
    assert (ours.contender, ours.noise, theirs.contender, theirs.noise) == ("cutepy", 0.0, "torch", None)
    assert 0 < ours.error < 1e-2
    assert theirs.error == pytest.approx(1, rel=1e-2)
    assert grouped._complaint(problem, rows[:1]) is None
    wrong = rows if kind == "bfloat16" else [replace(theirs, contender="cutepy")]
    assert grouped._complaint(problem, wrong) == f"{problem} is beyond its tolerance"
