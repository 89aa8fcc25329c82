"""`cutepy bench fused` without a GPU: its problems, what is computed, what it tells."""

import json
import sys
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.messages import pins

torch = pytest.importorskip("torch")
from typer.testing import CliRunner  # noqa: E402

import cutepy  # noqa: E402
from cutepy import benchmark  # noqa: E402
from cutepy.benchmark.roofline import BYTES_PER_US  # noqa: E402
from cutepy.cli.app import app  # noqa: E402
from cutepy.suites import gemm_epilogue_problems, gemm_epilogues as fused, measurement  # noqa: E402
from cutepy.suites.gemm_epilogue_problems import KINDS, TOKENS, FusedProblem  # noqa: E402
from cutepy.testing.numerics import epilogue_tolerance, gemm_tolerance, relative_error  # noqa: E402


def small(what, dtype="bfloat16"):
    return FusedProblem(what, 40, 64, 96, dtype)


@pytest.fixture
def on_the_cpu(monkeypatch):
    """Measure with everything but the GPU; torch.compile gives what it is given."""
    times = {
        "cutepy": 10.0,
        "again": 10.0,
        fused.UNFUSED: 16.0,
        fused.PLAIN: 9.0,
        "torch.compile": 12.0,
    }

    def compare(contenders, *, sets, company):
        for launch in contenders.values():
            launch(sets - 1)
        return {name: benchmark.Timing(times.get(name, 11.0), 20.0) for name in contenders}

    real = gemm_epilogue_problems.buffers
    monkeypatch.setattr(benchmark, "buffer_sets", lambda _: 2)
    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(benchmark, "environment", lambda: {"gpu": "none"})
    monkeypatch.setattr(measurement, "has_hopper", lambda: True)
    monkeypatch.setattr(fused, "buffers", lambda problem: real(problem, "cpu"))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    torch.manual_seed(1)


def test_problems_are_the_layers_of_an_mlp():
    problems = gemm_epilogue_problems.fused_problems(KINDS, TOKENS, ["bfloat16"])
    assert len(set(problems)) == len(problems) == 8
    assert [str(each) for each in problems[::2]] == [
        "bfloat16 swiglu 4096x28672x4096",
        "bfloat16 bias_gelu 4096x14336x4096",
        "bfloat16 residual 4096x4096x14336",
        "bfloat16 scales 4096x4096x4096",
    ]
    assert all(each.m == 512 for each in problems[1::2])


@pytest.mark.parametrize(
    ("what", "operands", "results"),
    [
        ("swiglu", 0, 2 * 40 * 32),
        ("bias_gelu", 2 * 64, 2 * 40 * 64),
        ("residual", 2 * 40 * 64, 2 * 40 * 64),
        ("scales", 4 * (40 + 64), 2 * 40 * 64),
    ],
)
def test_what_is_computed_and_moved(what, operands, results, on_the_cpu):
    problem = small(what)
    inputs = 2 * (40 + 64) * 96
    assert problem.flops == 2 * 40 * 64 * 96
    assert (problem.operand_bytes, problem.result_bytes) == (operands, results)
    assert problem.plain_bytes == inputs + 2 * 40 * 64
    assert problem.bytes == inputs + operands + results
    assert problem.added_bytes == problem.bytes - problem.plain_bytes
    made = fused.buffers(problem)
    assert sum(each.nbytes for each in (made.a[0], made.b[0], *made.operands[0])) == inputs + operands
    assert fused.ours(problem, made)(1).nbytes == results
    assert made.product[0].nbytes == problem.plain_bytes - inputs


@pytest.mark.parametrize("what", KINDS)
def test_the_condition_bounds_what_becomes_of_errors_of_products(what, on_the_cpu):
    problem = FusedProblem(what, 512, 512, 64)
    operands = [each.double() for each in fused.buffers(problem).operands[0]]
    product = torch.randn(512, 512, dtype=torch.float64, requires_grad=True)
    result = problem.kind.step(product, *operands)
    (derivative,) = torch.autograd.grad(result.sum(), product)
    terms = (product * derivative).detach().abs()
    if what == "swiglu":
        terms = sum(terms.chunk(2, -1))
    condition = float(terms.norm() / result.detach().norm())
    assert 0.6 * problem.kind.condition < condition <= problem.kind.condition + 1e-9


def test_a_product_that_is_rounded_first_may_err_by_more():
    assert epilogue_tolerance(64, 16, "bfloat16") == gemm_tolerance(64, 16, "bfloat16")
    twice = epilogue_tolerance(64, 16, "bfloat16", condition=2.0, rounds_product=True)
    assert twice == 2**-8 + 2 * gemm_tolerance(64, 16, "bfloat16")
    torch.manual_seed(0)
    a, b = torch.randn(256, 64, dtype=torch.float64), torch.randn(512, 64, dtype=torch.float64) / 8
    exact, step = a @ b.mT, KINDS["swiglu"].step
    error = relative_error(step(exact.bfloat16().double()).bfloat16(), step(exact))
    assert epilogue_tolerance(64, 16, "bfloat16", condition=1.0) / 2 < error
    assert error < epilogue_tolerance(64, 16, "bfloat16", condition=2.3, rounds_product=True)


FEW = [what if what == "residual" else pytest.param(what, marks=pytest.mark.integration) for what in KINDS]


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("what", "dtype"),
    [
        ("residual", "bfloat16"),
        *(pytest.param(what, "bfloat16", marks=pytest.mark.integration) for what in KINDS if what != "residual"),
        *(pytest.param(what, "float16", marks=pytest.mark.deep) for what in KINDS),
    ],
)
def test_ours_compute_in_the_simulator_what_torch_does(what, dtype, on_the_cpu):
    pytest.importorskip("cutlass")
    problem = small(what, dtype)
    made = fused.buffers(problem)
    product = made.a[0].double() @ made.halves[0].double().mT
    reference = problem.kind.step(product, *(each.double() for each in made.operands[0]))
    for name, make in (
        ("cutepy", fused.ours),
        (fused.PLAIN, fused.plain),
        (fused.UNFUSED, fused.unfused),
    ):
        with cutepy.simulate():
            result = make(problem, made)(0)
        error = relative_error(result, product if name == fused.PLAIN else reference)
        assert result.dtype == getattr(torch, dtype)
        assert 0 < error <= fused.tolerance(problem, name), name


@pytest.mark.parametrize("what", FEW)
def test_all_are_measured_and_checked(what, on_the_cpu, capsys):
    def wrong(problem, made):
        launch = fused.ours(problem, made)
        return lambda i: 1.02 * launch(i)

    def fails(problem, made):
        def launch(i):
            raise AssertionError("no such kernel")

        return launch

    peers = {"torch.compile": fused.torch_compile, "fails": fails, "nobody": lambda problem, made: None}
    problem = small(what)
    rows = fused._measure(peers, problem)
    names = ["cutepy", fused.UNFUSED, fused.PLAIN, "torch.compile"]
    assert [row.contender for row in rows] == names
    assert [row.peer for row in rows] == [True, False, False, True]
    assert [row.bytes for row in rows] == [problem.bytes, problem.bytes, problem.plain_bytes, problem.bytes]
    pins(capsys.readouterr().err)
    assert fused._complaint(problem, rows) is None
    assert benchmark.Report(rows).ratio(str(problem)) == pytest.approx(1.2), "of the peer, not of the product alone"
    rows = fused._measure({"wrong": wrong}, problem)
    assert fused._complaint(problem, rows) == f"{problem} is beyond its tolerance: wrong"
    lost = replace(rows[0], error=float("nan"))
    assert fused._complaint(problem, [lost]) == f"{problem} is beyond its tolerance: cutepy"


def test_ours_must_not_fail(on_the_cpu, monkeypatch):
    monkeypatch.setattr(fused, "ours", lambda problem, made: lambda i: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fused._measure({}, small("scales"))


def test_results_of_sets_take_turns_in_memory():
    launch = fused._keeping(lambda i: torch.zeros(4), 3)
    alive = [weakref.ref(launch(i)) for i in (0, 1, 2, 0)]
    assert [each() is not None for each in alive] == [False, True, True, True]


def test_the_gain_is_what_is_saved_of_what_can_be():
    narrower, wider = FusedProblem("swiglu", 1000, 4240, 64), FusedProblem("residual", 1000, 4240, 64)
    assert narrower.added_bytes == -BYTES_PER_US
    assert wider.added_bytes == 2 * BYTES_PER_US
    assert fused.gain(narrower, 14.0, 10.0, 11.0) == pytest.approx((3.0, 5.0))
    assert fused.gain(wider, 14.0, 10.0, 13.0) == pytest.approx((1.0, 2.0))

    def report(problem, **times):
        names = {"ours": "cutepy", "unfused": fused.UNFUSED, "plain": fused.PLAIN}
        return benchmark.Report(
            [benchmark.Row(str(problem), names[name], us, us, 1, 1, 0.0) for name, us in times.items()]
        )

    told = fused.gains([wider], report(wider, ours=13.0, unfused=14.0, plain=10.0))
    assert told == f"{wider}: gain 0.50, 1.0 of 2.0 us that fusing can save"
    told = fused.gains([wider], report(wider, ours=13.0, unfused=11.0, plain=10.0))
    assert told == f"{wider}: no gain to be had, -2.0 of -1.0 us that fusing can save"
    told = fused.gains([wider], report(wider, ours=12.25, unfused=12.5, plain=10.0))
    assert told == f"{wider}: gain 0.50, 0.2 of 0.5 us that fusing can save"
    told = fused.gains([wider], report(wider, ours=12.0, unfused=12.0, plain=10.0))
    assert told == f"{wider}: no gain to be had, 0.0 of 0.0 us that fusing can save"
    told = fused.gains([wider], report(wider, ours=13.0, plain=10.0))
    assert told == f"{wider}: no gain is known, as the unfused pair was not measured"


@pytest.mark.parametrize("what", KINDS)
def test_quack_is_called_as_it_takes_operands(what, on_the_cpu, monkeypatch):
    """By a stand-in with its names and arguments, which multiplies in float64."""

    def gemm_act(A, B, C=None, bias=None, activation=None, *, store_preact=True, tuned=True):
        assert tuned
        assert not store_preact
        product = A.double() @ B.double()
        if activation == "swiglu":
            return None, (torch.nn.functional.silu(product[:, ::2]) * product[:, 1::2]).to(A.dtype)
        assert activation == "gelu_tanh_approx"
        return None, torch.nn.functional.gelu(product + bias, approximate="tanh").to(A.dtype)

    def gemm_add(A, B, C, *, tuned=True, split_k=1):
        assert tuned
        return (A.double() @ B.double() + C).to(A.dtype)

    theirs = SimpleNamespace(gemm_act=gemm_act, gemm_add=gemm_add)
    monkeypatch.setitem(sys.modules, "quack", SimpleNamespace(gemm_interface=theirs))
    rows = fused._measure({"QuACK": fused.quack}, small(what))
    assert ("QuACK" in [row.contender for row in rows]) == (what != "scales")
    assert fused._complaint(small(what), rows) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--what", "relu"), "--what must be one of swiglu, bias_gelu, residual, scales, got 'relu'"),
        (("--dtype", "float32"), "--dtype must be one of bfloat16, float16, got 'float32'"),
        (("--peer", "MKL"), "--peer must be one of torch.compile, QuACK, got 'MKL'"),
        (("--tokens", "0"), "--tokens must be at least 1, got 0"),
        (("--against", "/no/such.json"), "there is no file /no/such.json for --against"),
        ((), "needs a Hopper GPU"),
    ],
)
def test_refusals(options, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["bench", "fused", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_the_command_tells_gains_below_the_table_and_saves(on_the_cpu, monkeypatch, tmp_path):
    monkeypatch.setitem(KINDS, "scales", KINDS["scales"]._replace(n=128, k=96))
    saved = tmp_path / "fused.json"
    command = ["bench", "fused", "--what", "scales", "--tokens", "24", "--tokens", "40"]
    result = CliRunner().invoke(app, [*command, "--json", str(saved)])
    assert result.exit_code == 0, result.output
    gains = [line for line in result.stdout.splitlines() if ": gain " in line]
    assert gains == [f"bfloat16 scales {m}x128x96: gain 0.86, 6.0 of 7.0 us that fusing can save" for m in (24, 40)]
    rows = json.loads(saved.read_text())["rows"]
    assert [row["peer"] for row in rows] == [True, False, False, True] * 2
    again = CliRunner().invoke(app, [*command, "--against", str(saved)])
    assert again.exit_code == 0, again.output
    monkeypatch.setitem(KINDS, "residual", KINDS["residual"]._replace(n=128, k=96))
    monkeypatch.setitem(sys.modules, "quack", None)
    missing = CliRunner().invoke(app, ["bench", "fused", "--what", "residual", "--tokens", "24", "--peer", "QuACK"])
    assert missing.exit_code == 2
    assert "quack" in missing.output
