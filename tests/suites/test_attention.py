"""`cutepy bench attention` without a GPU."""

import sys

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import attention, attention_peers, attention_problems
from cutepy.suites.attention_problems import AttentionProblem


def test_operations_and_bytes_are_counted():
    problem = AttentionProblem("forward", 2, 512, 8, 2, 64)
    assert problem.flops == 4 * 2 * 512 * 512 * 8 * 64
    assert problem.bytes == 2 * 2 * 512 * 64 * (2 * 8 + 2 * 2)
    causal = AttentionProblem("backward", 2, 512, 8, 2, 64, causal=True)
    assert causal.flops == 5 * 2 * 512 * 512 * 8 * 64
    decode = AttentionProblem("decode", 3, 100, 8, 2, 64, page=16)
    assert decode.flops == 4 * 3 * 100 * 8 * 64
    varlen = AttentionProblem("varlen", 64, 16384, 8, 8, 64)
    assert sum(varlen.lengths) == 16384
    assert len(set(varlen.lengths)) > 20
    assert varlen.flops == 4 * sum(n * n for n in varlen.lengths) * 8 * 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--suite", "mla"), "--suite must be one of forward, backward, varlen, decode, e4m3, got 'mla'"),
        (("--peer", "Triton"), "--peer must be one of cuDNN, FA4, FA3, got 'Triton'"),
        (("--head", "40"), "--head must be multiples of 16 up to 256, got 40"),
        (("--keys", "0"), "--keys must be at least 1, got 0"),
    ],
)
def test_refusals(options, message):
    result = CliRunner().invoke(app, ["bench", "attention", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    "problem",
    [
        AttentionProblem("forward", 2, 40, 4, 2, 64, causal=True),
        AttentionProblem("backward", 1, 33, 2, 2, 64),
        AttentionProblem("varlen", 5, 60, 2, 2, 64, causal=True),
        AttentionProblem("decode", 3, 50, 4, 2, 64, page=16),
        AttentionProblem("e4m3", 1, 40, 2, 1, 64, causal=True),
    ],
    ids=str,
)
def test_all_are_measured_and_checked(monkeypatch, problem):
    """With everything but the GPU: on the CPU, and a protocol that times nothing."""
    pytest.importorskip("torch")
    from cutepy import benchmark

    def compare(contenders, *, sets, company):
        for run in contenders.values():
            run(sets - 1)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    def wrong(problem, made):
        found = attention.ours(problem, made)
        return lambda index: 2 * found(index)

    def refuses(problem, made):
        raise NotImplementedError("no such thing")

    real = attention_problems.buffers
    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    monkeypatch.setattr(attention, "buffers", lambda problem: real(problem, "cpu"))
    peers = {"refuses": refuses} if problem.suite == "backward" else {"wrong": wrong, "refuses": refuses}
    rows = {row.contender: row for row in attention._measure(peers, problem)}
    assert rows.keys() == {"cutepy", *peers} - {"refuses"}
    assert rows["cutepy"].error < attention.LARGEST_ERROR
    assert attention._complaint(problem, list(rows.values())) is None
    if "wrong" in rows:
        assert rows["wrong"].error == pytest.approx(1, abs=0.01)


def test_a_peer_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ImportError):
        attention_peers.flash_attention_4(AttentionProblem("forward", 1, 8, 1, 1, 64), None)
