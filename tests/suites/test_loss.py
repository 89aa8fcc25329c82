"""`cutepy bench loss` without a GPU."""

import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import loss
from cutepy.suites.loss import LossProblem


def test_refusals():
    result = CliRunner().invoke(app, ["bench", "loss", "--peer", "Apex"])
    assert result.exit_code == 2
    message = "--peer must be one of torch, torch.compile, torch chunked, QuACK, Liger, got 'Apex'"
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("peer", "module", "function"),
    [
        ("QuACK", "quack.linear_cross_entropy", "chunked_linear_cross_entropy"),
        ("Liger", "liger_kernel.transformers.functional", "liger_fused_linear_cross_entropy"),
    ],
)
def test_peers_are_called_as_their_functions_are(monkeypatch, peer, module, function):
    """With modules of these names in their place: all take the input, the weight, and the labels."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    def theirs(input, weight, target, bias=None):
        return functional.cross_entropy(functional.linear(input, weight, bias), target)

    packages = [module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)]
    for name in packages:
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{function: theirs}))
    made = loss.make(LossProblem(12, 32, 40), "cpu")
    exact = loss.in_float64(made)
    assert loss.error_of(loss.step(loss.PEERS[peer](), made, 0), exact) < loss.LARGEST_ERROR
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError):
        loss.PEERS[peer]()


@pytest.mark.integration
def test_all_are_measured_and_checked(monkeypatch):
    """With everything but the GPU: on the CPU, and a protocol that times nothing."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark

    def compare(contenders, *, sets, company):
        assert company is None
        for run in contenders.values():
            run(sets - 1)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    def wrong():
        return lambda *given: 2 * loss.of_torch()(*given)

    def refuses():
        raise NotImplementedError("no such thing")

    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(loss, "make", lambda problem: real(problem, "cpu"))
    monkeypatch.setattr(loss, "_peak", lambda run: 10**9)
    monkeypatch.setattr(loss, "_CHUNK", 5)
    real, problem, peaks = make, LossProblem(12, 32, 40), {}
    peers = {**loss.OURS, "torch": loss.of_torch, "wrong": wrong, "refuses": refuses}
    if hasattr(torch.nn, "LinearCrossEntropyOptions"):
        peers["torch chunked"] = loss.torch_chunked
    rows = loss._measure(peers, peaks, problem)
    errors = {row.contender: row.error for row in rows}
    assert errors.keys() == peers.keys() - {"refuses"}
    assert errors.pop("wrong") > 0.1
    assert max(errors.values()) < loss.LARGEST_ERROR
    assert loss._complaint(problem, rows) is None
    assert "cutepy: 1.00 GB" in loss._memory(peaks, None)


make = loss.make
