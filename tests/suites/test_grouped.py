"""`cutepy bench grouped` without a GPU."""

import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import grouped, grouped_peers, grouped_problems


def test_problems_are_the_experts_by_routing_and_form():
    problems = grouped_problems.grouped_problems([8, 64], ["balanced", "skewed"], ["m", "k"])
    assert len(set(problems)) == len(problems) == 16
    assert all(sum(problem.sizes) == 4096 for problem in problems)
    assert max(problems[2].sizes) > 1000
    first = problems[0]
    assert first.flops == 2 * 4096 * 4096 * 7168
    assert first.bytes == 2 * (4096 * (4096 + 7168) + 8 * 4096 * 7168)
    scaled = grouped_problems.grouped_problems([8, 64], ["skewed"], ["m", "k"], ["row", "block"])
    assert len(set(scaled)) == len(scaled) == 12
    assert scaled[0].bytes == 4096 * 7168 + 8 * 4096 * 7168 + 2 * 4096 * 4096
    assert all(size % 128 == 0 for size in scaled[-1].sizes)
    assert str(scaled[-1]) == "fp8 block 64 skewed along k 4096x7168x4096"


def test_weights_of_experts_without_tokens_are_not_counted():
    problem = grouped_problems.GroupedProblem(4, 2, 8, 16)
    assert problem.sizes.count(0) == 2
    assert problem.bytes == 2 * (2 * 24 + 2 * 128)
    assert grouped_problems.GroupedProblem(4, 2, 8, 16, along="k").bytes == 2 * (2 * 24 + 4 * 128)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--routing", "even"), "--routing must be one of balanced, skewed, got 'even'"),
        (("--along", "n"), "--along must be one of m, k, got 'n'"),
        (("--kind", "fp8"), "--kind must be one of bfloat16, row, block, got 'fp8'"),
        (("--peer", "Triton"), "--peer must be one of torch, DeepGEMM, got 'Triton'"),
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

    def compare(contenders, *, sets, company):
        for run in contenders.values():
            run(sets - 1)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    real = grouped.buffers

    def padded(problem, made):
        entry = grouped.ours(problem, made)
        rows = torch.arange(len(entry.result())).flip(0)
        return grouped_peers.Entry(lambda index: 2 * entry.launch(index).flip(0), rows)

    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    monkeypatch.setattr(grouped, "buffers", lambda problem: real(problem, "cpu"))
    torch.manual_seed(1)
    tokens = 40 if kind == "bfloat16" else 640
    problem = grouped_problems.GroupedProblem(3, tokens, 16, 24, "skewed", along, kind)
    peers = {"theirs": padded, "none": lambda problem, made: None}
    ours, theirs = rows = grouped._measure(peers, problem)
    assert (ours.contender, ours.noise, theirs.contender, theirs.noise) == ("cutepy", 0.0, "theirs", None)
    assert 0 < ours.error < 1e-2
    assert theirs.error == pytest.approx(1, rel=1e-2)
    assert grouped._complaint(problem, rows[:1]) is None
    wrong = rows if kind == "bfloat16" else [replace(theirs, contender="cutepy")]
    assert grouped._complaint(problem, wrong) == f"{problem} is beyond its tolerance"


def test_rows_are_filled_up_for_deep_gemm(monkeypatch):
    """By a stand-in, which multiplies the rows of each group."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark
    from cutepy.testing.numerics import gemm_tolerance, promoted_tolerance, relative_error

    class DeepGemm:
        @staticmethod
        def m_grouped_bf16_gemm_nt_contiguous(a, b, out, group):
            assert len(a) % grouped_peers.ALIGNMENT == 0
            assert group.dtype == torch.int32
            for index, weights in enumerate(b):
                rows = (group == index).nonzero().squeeze(1)
                assert not len(rows) or rows[0] % grouped_peers.ALIGNMENT == 0
                out[rows] = (a[rows].float() @ weights.float().mT).bfloat16()

        @classmethod
        def m_grouped_fp8_gemm_nt_contiguous(cls, a, b, out, group):
            from cutepy.ops import dequantise

            assert a[1].stride(0) == 1
            weights = torch.stack([dequantise(*pair) for pair in zip(*b, strict=True)])
            cls.m_grouped_bf16_gemm_nt_contiguous(dequantise(*a), weights, out, group)

    monkeypatch.setitem(sys.modules, "deep_gemm", DeepGemm)
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 1)
    for kind in ("bfloat16", "block"):
        problem = grouped_problems.GroupedProblem(4, 300, 128, 256, "skewed", "m", kind)
        made = grouped_problems.buffers(problem, "cpu")
        theirs, own = (make(problem, made).result() for make in (grouped_peers.deep_gemm, grouped_peers.ours))
        bound = gemm_tolerance(256, 16, "bfloat16") if kind == "bfloat16" else promoted_tolerance("bfloat16")
        assert relative_error(theirs, own) <= 2 * bound  # each may err by so much
    for other in ("row", "m"), ("bfloat16", "k"):
        assert (
            grouped_peers.deep_gemm(
                grouped_problems.GroupedProblem(4, 512, 128, 256, "skewed", other[1], other[0]), made
            )
            is None
        )
