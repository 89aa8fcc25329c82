"""`cutepy bench attention` without a GPU."""

import sys
from types import SimpleNamespace

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
    masked = {rule: AttentionProblem("masks", 1, 2048, 2, 1, 64, True, rule=rule) for rule in attention_problems.RULES}
    assert masked["causal"].flops == masked["soft cap"].flops == 4 * 2048**2 / 2 * 2 * 64
    assert masked["window"].flops == 4 * (1024**2 / 2 + 1024**2) * 2 * 64
    assert masked["documents"].flops == 4 * sum(n * n for n in masked["documents"].documents) / 2 * 2 * 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--suite", "mlp"), "--suite must be one of forward, backward, varlen, masks, decode, e4m3, mla, got 'mlp'"),
        (("--peer", "Triton"), "--peer must be one of cuDNN, FA4, FA3, FlashMLA, torch.compile, got 'Triton'"),
        (("--head", "40"), "--head must be multiples of 16 up to 256, got 40"),
        (("--keys", "0"), "--keys must be at least 1, got 0"),
    ],
)
def test_refusals(options, message):
    result = CliRunner().invoke(app, ["bench", "attention", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "heads"),
    [((), {64, 128}), (("--head", "256"), {256}), (("--head", "192", "--head", "64"), {64, 192})],
)
def test_gradients_are_timed_of_the_heads_that_are_named(monkeypatch, options, heads):
    told = []
    monkeypatch.setattr("cutepy.suites.attention.run_attention", lambda problems, *_, **__: told.extend(problems))
    CliRunner().invoke(app, ["bench", "attention", "--suite", "backward", *options])
    assert {problem.head for problem in told} == heads


@pytest.mark.parametrize(
    "problem",
    [
        AttentionProblem("forward", 2, 40, 4, 2, 64, causal=True),
        AttentionProblem("backward", 1, 33, 2, 2, 64),
        AttentionProblem("varlen", 5, 60, 2, 2, 64, causal=True),
        AttentionProblem("masks", 1, 1100, 2, 1, 64, causal=True, rule="window"),
        AttentionProblem("masks", 2, 40, 2, 1, 64, causal=True, rule="soft cap"),
        AttentionProblem("masks", 1, 90, 2, 1, 64, causal=True, rule="documents"),
        AttentionProblem("decode", 3, 50, 4, 2, 64, page=16),
        AttentionProblem("e4m3", 1, 40, 2, 1, 64, causal=True),
        AttentionProblem("mla", 2, 90, 3, 1, 576, causal=True, page=64, new=2),
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


@pytest.mark.parametrize(
    "problem",
    [
        AttentionProblem("decode", 3, 50, 4, 2, 64, page=16),
        AttentionProblem("mla", 2, 90, 3, 1, 576, causal=True, page=64, new=2),
    ],
    ids=str,
)
def test_pages_by_products_of_torch_are_right(problem):
    pytest.importorskip("torch")
    made = attention_problems.buffers(problem, "cpu")
    found = attention_peers.paged(made.q[0], made.k[0], made.v[0], made.table, problem.keys, problem.causal)
    want = attention_problems.wanted(problem, made)
    assert (found.double() - want).norm() / want.norm() < attention.LARGEST_ERROR


@pytest.mark.parametrize("rule", ["", "window", "documents"])
def test_block_masks_are_of_the_rule(monkeypatch, rule):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(attention_peers, "WINDOW", 50)
    problem = AttentionProblem("masks", 1, 160, 1, 1, 16, True, rule=rule)
    made = SimpleNamespace(q=[torch.empty(1, 160, 1, 16)])
    i, j = (torch.arange(160).reshape(shape) for shape in ((-1, 1), (1, -1)))
    document = torch.repeat_interleave(torch.tensor(problem.documents))
    seen = {"": i - j < 160, "window": i - j < 50, "documents": document[i] == document[j]}[rule]
    found = attention_peers._block_mask(problem, made).mask_mod(None, None, i, j)
    assert torch.equal(found, seen & (j <= i))


def test_the_mla_suite_hands_its_pages_to_flashmla(monkeypatch):
    pytest.importorskip("torch")
    from cutepy.ops import flash_mla_with_kvcache

    theirs = SimpleNamespace(
        get_mla_metadata=lambda *given: (given, None), flash_mla_with_kvcache=flash_mla_with_kvcache
    )
    monkeypatch.setitem(sys.modules, "flash_mla", theirs)
    problem = AttentionProblem("mla", 2, 90, 3, 1, 576, causal=True, page=64, new=2)
    made = attention_problems.buffers(problem, "cpu")
    want = attention_problems.wanted(problem, made)
    found = attention_peers.flash_mla(problem, made)(0)
    assert (found.double() - want).norm() / want.norm() < attention.LARGEST_ERROR


def test_latent_rows_are_counted_once():
    problem = AttentionProblem("mla", 128, 4096, 128, 1, 576, page=64)
    assert problem.flops == 2 * 128 * 4096 * 128 * (576 + 512)
    assert problem.bytes == 2 * 128 * 128 * (576 + 512) + 2 * 128 * 4096 * 576


def test_a_peer_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ImportError):
        attention_peers.flash_attention_4(AttentionProblem("forward", 1, 8, 1, 1, 64), None)
