"""`cutepy bench layer` without a GPU: a small layer, in the simulator too."""

import math

import pytest
from typer.testing import CliRunner

from cutepy.cli.app import app
from cutepy.suites import layer
from cutepy.suites.layer_parts import LayerProblem, LayerSizes, kit_of_cutepy, kit_of_torch, make, parts_of

SMALL = LayerSizes(hidden=64, intermediate=96, heads=4, key_heads=2, head=16)
PROBLEMS = [LayerProblem("train", 2, 8, SMALL), LayerProblem("decode", 3, 16, SMALL)]
ROTATED = {"train": ["rotary q", "rotary k"], "decode": ["rotary and cache"]}
OTHERS = ["attention", "out", "norm of mlp", "gate and up", "swiglu", "down"]


def parts_named(problem):
    return ["norm", "qkv", *ROTATED[problem.suite], *OTHERS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--suite", "dream"), "--suite must be one of train, decode, got 'dream'"),
        (("--peer", "JAX"), "--peer must be one of torch, torch.compile, max-autotune, got 'JAX'"),
    ],
)
def test_refusals(options, message):
    result = CliRunner().invoke(app, ["bench", "layer", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_launches_that_overlap_leave_no_gap():
    assert layer.gaps_of([]) == (0, 0.0, 0.0)
    assert layer.gaps_of([(3.0, 5.0), (0.0, 4.0), (1.0, 2.0), (7.0, 8.0)]) == (4, 8.0, 6.0)


@pytest.mark.integration
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_layer_of_cutepy_is_as_right_as_torchs(problem):
    """In the simulator: the results, and all gradients."""
    pytest.importorskip("torch")
    pytest.importorskip("cutlass")
    import cutepy

    made = make(problem, "cpu", 1)
    exact = layer._step_of_layer(problem, kit_of_torch(), made.double())(0)
    assert len(exact) == (1 if problem.suite == "decode" else 2 + len(SMALL.weights))
    theirs = layer._error(layer._step_of_layer(problem, kit_of_torch(), made)(0), exact)
    with cutepy.simulate() as run:
        ours = layer._error(layer._step_of_layer(problem, kit_of_cutepy(), made)(0), exact)
    assert len(run.launches) >= len(parts_named(problem))
    assert 0 < ours <= layer.ALLOWED * theirs
    for kit in (kit_of_torch(), kit_of_cutepy()):
        assert [part.name for part in parts_of(problem, kit, made)] == parts_named(problem)


@pytest.mark.integration
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_all_parts_are_measured_and_checked(monkeypatch, problem):
    """With everything but the GPU: on the CPU, and a protocol that times nothing."""
    torch = pytest.importorskip("torch")
    from cutepy import benchmark

    def compare(contenders, *, sets, company):
        assert company is None
        for run in contenders.values():
            for each in run(sets - 1):
                assert each is None or isinstance(each, torch.Tensor)
        return {name: benchmark.Timing(2.0, 3.0) for name in contenders}

    monkeypatch.setattr(benchmark, "compare", compare)
    monkeypatch.setattr(layer, "make", lambda problem: make(problem, "cpu"))
    monkeypatch.setattr(layer, "_profiled", lambda run: layer.gaps_of([(0.0, 2.0), (3.0, 4.0)]))
    gaps = {}
    rows = layer._measure({**layer.OURS, "torch": layer.PEERS["torch"]}, True, gaps, problem)
    assert {row.problem for row in rows} == {str(problem), *(f"{problem}: {name}" for name in parts_named(problem))}
    assert {row.contender for row in rows} == {"cutepy", "torch"}
    assert layer._complaint(problem, rows) is None
    wrong = [layer.replace(row, error=math.nan) if row.contender == "cutepy" else row for row in rows]
    assert "times as far" in layer._complaint(problem, wrong)
    assert "cutepy: 2 launches in 4 us, none runs for 1 us" in layer._gaps(gaps, None)
