"""`cutepy bench scaled` and `accuracy`: what is refused, and that what is computed is what the kernel does."""

import pytest

torch = pytest.importorskip("torch")
from typer.testing import CliRunner  # noqa: E402

import cutepy  # noqa: E402
from cutepy.cli.app import app  # noqa: E402
from cutepy.suites import accuracy, scaled  # noqa: E402


def test_a_problem_says_what_it_is():
    problem = scaled.ScaledProblem(64, 7168, 4096, "row", fast=True)
    assert str(problem) == "fp8 row fast 64x7168x4096"
    assert problem.flops == 2 * 64 * 7168 * 4096
    assert problem.bytes == (64 + 7168) * 4096 + 2 * 64 * 7168


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["scaled"], 2, "needs a Hopper GPU"),
        (["scaled", "--kind", "mx"], 2, "--kind must be one of tensor, row, block, got 'mx'"),
        (["scaled", "--fast"], 2, "--fast is for tensor and row"),
        (["accuracy", "--k", "200"], 2, "--k must be multiples of 128, got [200]"),
    ],
)
def test_what_is_refused(arguments, status, said):
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == status, result.output
    assert said in result.output.replace("\n", " ")


@pytest.mark.parametrize("kind", scaled.BLOCKS)
def test_problems_are_measured_and_checked(monkeypatch, kind):
    from cutepy import benchmark

    monkeypatch.setattr(benchmark, "buffer_sets", lambda size: 2)

    def compare(contenders, sets, company):
        for launch in contenders.values():
            assert launch(sets - 1).shape == (32, 256)
        return {name: benchmark.protocol.Timing(2.0, 3.0) for name in contenders}

    monkeypatch.setattr(benchmark, "compare", compare)
    problem, sets_on_cpu = scaled.ScaledProblem(32, 256, 384, kind), scaled.buffers
    monkeypatch.setattr(scaled, "buffers", lambda problem: sets_on_cpu(problem, "cpu"))
    rows = scaled._measure({"torch": scaled.torch_scaled_mm}, problem)
    assert rows[0].contender == "cutepy"
    assert rows[0].noise == 0
    assert scaled._complaint(problem, rows) is None
    for row in rows[1:]:  # torch has no such kernel for blocks on a CPU
        assert row.error <= 2**-8
    wrong = benchmark.Row(**{**rows[0].__dict__, "error": 0.1})
    assert scaled._complaint(problem, [wrong]) == f"{problem} is beyond its tolerance"


@pytest.mark.dsl
@pytest.mark.parametrize("name", ["1x128 by 128x128", "row"])
def test_accuracy_is_computed_as_the_kernel_computes(name):
    pytest.importorskip("cutlass")
    kind = next(each for each in accuracy.KINDS if each.name == name)
    x, weight = accuracy.draw(512)
    sums, _ = accuracy.product(kind, x, weight)
    (a, scale_a), (b, scale_b) = cutepy.ops.quantise(x, kind.of_a), cutepy.ops.quantise(weight, kind.of_b)
    with cutepy.simulate(exact_mma=True):
        got = cutepy.ops.scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
    torch.testing.assert_close(got, sums, rtol=2**-22, atol=0)
