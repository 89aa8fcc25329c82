"""`cutepy bench rows` without a GPU."""

import math
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import rows, rows_problems
from cutepy.suites.rows_problems import RowsProblem


def test_operations_and_bytes_are_counted():
    assert RowsProblem("rms_norm", "forward", 4, 8).bytes == 2 * 2 * 32
    assert RowsProblem("rms_norm", "backward", 4, 8).bytes == 3 * 2 * 32
    assert RowsProblem("cross_entropy", "forward", 4, 8).bytes == 2 * 32
    assert RowsProblem("cross_entropy", "backward", 4, 8).bytes == 2 * 2 * 32
    assert RowsProblem("softmax", "backward", 4, 8).bytes == 3 * 2 * 32
    assert RowsProblem("swiglu", "backward", 4, 8).bytes == 5 * 2 * 32
    assert RowsProblem("layer_norm", "decode", 4, 8).flops == 64
    assert len(rows_problems.rows_problems(["rms_norm", "layer_norm"], ["forward", "decode"])) == 2 * (8 + 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--suite", "sideways"), "--suite must be one of forward, backward, decode, got 'sideways'"),
        (
            ("--operation", "batch_norm"),
            "--operation must be one of rms_norm, layer_norm, softmax, cross_entropy, swiglu, got 'batch_norm'",
        ),
        (("--peer", "Triton"), "--peer must be one of torch, torch.compile, QuACK, got 'Triton'"),
        (("--columns", "0"), "--columns must be at least 1, got 0"),
        (("--between", "silence"), "--between must be one of none, elementwise, norm, got 'silence'"),
    ],
)
def test_refusals(options, message):
    result = CliRunner().invoke(app, ["bench", "rows", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("operation", rows_problems.OPERATIONS)
@pytest.mark.parametrize("suite", rows_problems.SUITES)
def test_all_are_measured_and_checked(monkeypatch, operation, suite):
    """With everything but the GPU: on the CPU, and a protocol that times nothing."""
    pytest.importorskip("torch")
    from cutepy import benchmark

    def compare(contenders, *, sets, company):
        assert company is None
        for run in contenders.values():
            run(sets - 1)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    def wrong(problem, made):
        found = rows.ours(problem, made)

        def last_is_wrong(index):
            *most, last = found(index)
            return *most, 2 * last

        return last_is_wrong

    def nothing(problem, made):
        found = rows.ours(problem, made)
        return lambda index: tuple(each * math.nan for each in found(index))

    def refuses(problem, made):
        raise NotImplementedError("no such thing")

    real = rows_problems.buffers
    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    monkeypatch.setattr(rows, "buffers", lambda problem: real(problem, "cpu"))
    monkeypatch.setattr(rows_problems, "_CHUNK_ELEMS", 3 * 48)
    problem = RowsProblem(operation, suite, 7, 48)
    peers = {"torch": rows.of_torch, "wrong": wrong, "nothing": nothing, "refuses": refuses, "none": lambda *_: None}
    measured = rows._measure(peers, problem)
    found = {row.contender: row for row in measured}
    assert found.keys() == {"cutepy", "copy", "torch", "wrong", "nothing"}
    assert max(found["cutepy"].error, found["torch"].error) < rows.LARGEST_ERROR
    assert found["wrong"].error == pytest.approx(1, abs=0.01)
    assert math.isnan(found["nothing"].error)
    assert not found["copy"].peer
    assert rows._complaint(problem, measured) is None
    text = rows.bandwidths([problem], benchmark.Report(measured, {}))
    assert text == f"{problem}: {problem.bytes / 2e6:.2f} TB/s, 1.00 of a copy's"


@pytest.mark.parametrize("operation", rows_problems.OPERATIONS)
@pytest.mark.parametrize("suite", rows_problems.SUITES)
def test_quack_is_called_as_its_functions_are(monkeypatch, operation, suite):
    """With modules of these names in its place: those of the package are functions' names too."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    def rmsnorm(x, weight, *, eps):
        return functional.rms_norm(x, weight.shape, weight, eps)

    def layernorm_fwd(x, weight, bias, *, eps):
        assert weight.dtype == bias.dtype == torch.float32
        return functional.layer_norm(x.float(), weight.shape, weight, bias, eps).to(x.dtype)

    def cross_entropy(x, labels, *, reduction):
        return functional.cross_entropy(x.float(), labels, reduction=reduction)

    modules = {
        "quack": SimpleNamespace(softmax=print, cross_entropy=print),
        "quack.softmax": SimpleNamespace(softmax=lambda x: torch.softmax(x, -1)),
        "quack.cross_entropy": SimpleNamespace(cross_entropy=cross_entropy),
        "quack.rmsnorm": SimpleNamespace(rmsnorm=rmsnorm, layernorm_fwd=layernorm_fwd),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    from cutepy import benchmark

    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    problem = RowsProblem(operation, suite, 7, 48)
    made = rows_problems.buffers(problem, "cpu")
    launch = rows.quack(problem, made)
    if operation == "swiglu" or (operation, suite) == ("layer_norm", "backward"):
        assert launch is None
        return
    assert launch is not None
    theirs = rows.of_torch(problem, made)
    for index in (0, 1):
        for found, wanted in zip(launch(index), theirs(index), strict=True):
            torch.testing.assert_close(found.float(), wanted.float(), rtol=2e-2, atol=2e-2)
