"""The training benchmark on a CPU, with a model of two narrow layers."""

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.suites.layer_parts import LayerProblem, LayerSizes  # noqa: E402
from tests.kernels.training import Model, batches, distance, of_cutepy, of_torch, train  # noqa: E402

MODEL = Model(LayerProblem("train", 2, 32, LayerSizes(64, 96, 2, 1, 32)), layers=2)


def test_a_model_learns_the_same_by_cutepy_as_by_torch():
    """Every kernel of a layer in training, backward ones too, compiles and is right within bfloat16's rounding."""
    given = batches(MODEL, 12, "cpu", b"the quick brown fox jumps over the lazy dog, " * 9)
    by_torch = train(MODEL, of_torch(), given)
    assert by_torch.losses[0] == pytest.approx(math.log(256), abs=0.1)
    assert sum(by_torch.losses[-3:]) < sum(by_torch.losses[:3]) - 0.2
    with cutepy.simulate() as run:
        by_cutepy = train(MODEL, of_cutepy(), given[:3])
    assert len(run.launches) > 100
    assert by_cutepy.losses == pytest.approx(by_torch.losses[:3], abs=2e-3)


def test_curves_are_compared_by_their_means():
    assert distance([3.0] * 20 + [1.0] * 20, [3.0] * 20 + [1.5] * 20) == 0.5
    assert distance([1.0, 2.0] * 20, [2.0, 1.0] * 20) == 0.0
