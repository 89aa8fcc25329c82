"""The training benchmark on a CPU, with a model of two narrow layers."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutepy  # noqa: E402
from cutepy.suites.layer_parts import LayerProblem, LayerSizes, make  # noqa: E402
from cutepy.testing.numerics import relative_error  # noqa: E402
from tests.kernels.training import Model, batches, distance, loss_of, of_cutepy, of_torch, train  # noqa: E402

MODEL = Model(LayerProblem("train", 2, 32, LayerSizes(64, 96, 2, 1, 32)), layers=2)
TEXT = b"the quick brown fox jumps over the lazy dog, " * 9


def gradients(contender):
    """Return the loss of a batch, and its gradients by the weights' names, of q, k and v each their own.

    Those of v are a hundred times as large as those of q and k, whose mistakes they would hide.
    """
    weights = {name: each.requires_grad_() for name, each in MODEL.draw("cpu").items()}
    loss = loss_of(MODEL, contender, weights, make(MODEL.problem, "cpu", sets=0), batches(MODEL, 1, "cpu", TEXT)[0])
    found, sizes = (
        dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True)),
        MODEL.problem.sizes,
    )
    for layer in range(MODEL.layers):
        heads = found.pop(f"qkv {layer}").split(sizes.head)
        parts = heads[: sizes.heads], heads[sizes.heads : -sizes.key_heads], heads[-sizes.key_heads :]
        found |= {f"{name} {layer}": torch.cat(part) for name, part in zip("qkv", parts, strict=True)}
    return loss.item(), found


def test_a_model_has_the_same_gradients_by_cutepy_as_by_torch():
    """Every kernel of a layer in training, backward ones too, compiles and is right within bfloat16's rounding."""
    wanted_loss, wanted = gradients(of_torch())
    with cutepy.simulate() as run:
        loss, found = gradients(of_cutepy())
    assert len(run.launches) > 30
    assert loss == pytest.approx(wanted_loss, abs=2e-4)  # 5e-5 measured
    for name, gradient in found.items():  # 0.6% measured: either side rounds each operand by up to 2^-9 of it
        assert relative_error(gradient, wanted[name]) < 2.0**-7, name


def test_training_lowers_the_loss():
    losses = train(MODEL, of_torch(), batches(MODEL, 12, "cpu", TEXT)).losses
    assert sum(losses[-3:]) < sum(losses[:3]) - 0.2


def test_curves_are_compared_by_their_means():
    assert distance([3.0] * 20 + [1.0] * 20, [3.0] * 20 + [1.5] * 20) == 0.5
    assert distance([1.0, 2.0] * 20, [2.0, 1.0] * 20) == 0.0
