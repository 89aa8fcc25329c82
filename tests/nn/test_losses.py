"""`cutepy.nn`'s losses and gated layers, and what `replace` makes them of."""

import pytest

from tests.messages import pins, refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.nn import CrossEntropyLoss, GatedMLP, Linear, replace  # noqa: E402

functional = torch.nn.functional


class LlamaMLP(torch.nn.Module):
    """As Hugging Face's."""

    def __init__(self, act, hidden=16, intermediate=24, dtype=torch.float32):
        super().__init__()
        self.gate_proj = torch.nn.Linear(hidden, intermediate, bias=False, dtype=dtype)
        self.up_proj = torch.nn.Linear(hidden, intermediate, bias=False, dtype=dtype)
        self.down_proj = torch.nn.Linear(intermediate, hidden, bias=False, dtype=dtype)
        self.act_fn = act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class ScaledMLP(LlamaMLP):
    def forward(self, x):
        return 2 * super().forward(x)


class PlainMLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.up_proj(x)


def test_replace_swaps_gated_layers_and_losses():
    model = torch.nn.ModuleDict(
        {
            "silu": LlamaMLP(torch.nn.SiLU()),
            "gelu": LlamaMLP(torch.nn.GELU()),
            "tanh": LlamaMLP(torch.nn.GELU(approximate="tanh")),
            "relu": LlamaMLP(torch.nn.ReLU()),
            "scaled": ScaledMLP(torch.nn.SiLU()),
            "plain": PlainMLP(),
            "float64": LlamaMLP(torch.nn.SiLU(), dtype=torch.float64),
            "loss": torch.nn.CrossEntropyLoss(label_smoothing=0.1),
        }
    )
    state, keys = torch.get_rng_state(), [*model.state_dict()]
    done = replace(model)
    pins(str(done))
    assert torch.equal(torch.get_rng_state(), state)
    assert [*model.state_dict()] == keys
    assert [type(model[name]) for name in ("silu", "gelu", "tanh", "loss")] == [GatedMLP] * 3 + [CrossEntropyLoss]
    for name, kind in (("relu", LlamaMLP), ("scaled", ScaledMLP), ("plain", PlainMLP)):
        assert type(model[name]).forward is kind.forward or type(model[name]).forward.__wrapped__ is kind.forward
    assert [model[name].activation for name in ("silu", "gelu", "tanh")] == ["silu", "gelu", "gelu_tanh"]
    assert type(model["silu"].down_proj) is Linear
    assert not replace(model).swapped


@pytest.mark.dsl
@pytest.mark.integration
def test_a_replaced_layer_computes_what_it_did():
    theirs = LlamaMLP(torch.nn.SiLU()).bfloat16()
    x = torch.randn(5, 16).bfloat16()
    wanted = theirs(x)
    replace(theirs)
    with cutepy.simulate() as run:
        found = theirs(x)
    assert len(run.launches) == 3  # gate and up in one
    torch.testing.assert_close(found, wanted, rtol=2**-6, atol=2**-8)


def test_losses_are_torchs():
    x, labels = torch.randn(4, 5), torch.tensor([1, -100, 4, 0])
    for options in ({}, {"weight": torch.rand(5)}, {"label_smoothing": 0.1, "reduction": "none"}, {"ignore_index": 1}):
        ours, theirs = CrossEntropyLoss(**options), torch.nn.CrossEntropyLoss(**options)
        torch.testing.assert_close(ours(x, labels.clamp(min=0)), theirs(x, labels.clamp(min=0)))
        if "ignore_index" not in options:
            torch.testing.assert_close(ours(x, x.softmax(1)), theirs(x, x.softmax(1)))
    assert GatedMLP(8, 16, "gelu").state_dict().keys() == LlamaMLP(torch.nn.GELU()).state_dict().keys()
    with refuses(ValueError):
        GatedMLP(8, 16, "relu")


@pytest.mark.parametrize("value", [[1, 0], None])
def test_a_target_that_is_no_tensor_is_refused_by_name(value):
    with refuses(TypeError):
        CrossEntropyLoss()(torch.zeros(2, 4), value)
