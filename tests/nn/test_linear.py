"""`cutepy.nn`: a linear layer in torch's place, and the swap."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.nn import Linear, replace_linears  # noqa: E402

BF16 = torch.bfloat16


def both(*arguments, **options):
    layers = []
    for kind in (torch.nn.Linear, Linear):
        torch.manual_seed(7)
        layers.append(kind(*arguments, **options))
    return layers


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_made_and_initialised_as_torchs(bias):
    theirs, ours = both(24, 8, bias=bias, dtype=BF16)
    assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, parameter in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter)
    ours.load_state_dict(theirs.state_dict())


@pytest.mark.dsl
@pytest.mark.parametrize("bias", [True, pytest.param(False, marks=pytest.mark.integration)])
def test_it_computes_what_torchs_does(bias):
    """Both round an fp32 or better sum of 24 products to 8 bits: to neighbours at worst."""
    theirs, ours = both(24, 8, bias=bias, dtype=BF16)
    x = torch.randn(2, 5, 24).to(BF16)
    expected = torch.nn.functional.linear(x.double(), *(p.double() for p in theirs.parameters()))
    with cutepy.simulate() as run:
        found = ours(x)
    assert len(run.launches) == 1
    for result in (found, ours(x), theirs(x)):
        assert result.shape == (2, 5, 8)
        assert torch.allclose(result.double(), expected, rtol=2**-8, atol=2**-10)


def test_from_linear_shares_the_parameters():
    linear = torch.nn.Linear(16, 8, dtype=BF16).eval()
    ours = Linear.from_linear(linear)
    assert ours.weight is linear.weight
    assert ours.bias is linear.bias
    assert not ours.training
    assert Linear.from_linear(torch.nn.Linear(16, 8, bias=False)).bias is None


class Derived(torch.nn.Linear):
    """A class of somebody else's."""


def model():
    shared = torch.nn.Linear(16, 16)
    return torch.nn.ModuleDict(
        {"one": shared, "two": shared, "three": torch.nn.Linear(16, 8), "four": Derived(8, 8), "act": torch.nn.ReLU()}
    )


def test_replace_linears_keeps_objects_hooks_and_other_classes():
    found = model()
    calls = []
    found["three"].register_forward_hook(lambda *_: calls.append(1))
    before = {name: id(module) for name, module in found.named_modules()}
    assert replace_linears(found) == 2
    assert {name: id(module) for name, module in found.named_modules()} == before
    assert [type(found[name]) for name in found] == [Linear, Linear, Linear, Derived, torch.nn.ReLU]
    found.to(BF16)["three"](torch.zeros(1, 16, dtype=BF16))
    assert calls == [1]
    assert replace_linears(found) == 0


def test_replace_linears_asks_the_filter_by_name():
    found = model()
    assert replace_linears(found, lambda name, layer: name == "three" and layer.out_features == 8) == 1
    assert type(found["one"]) is torch.nn.Linear
    alone = torch.nn.Linear(8, 8)
    assert replace_linears(alone) == 1
    assert type(alone) is Linear


def test_a_layer_of_32_bits_says_what_to_do():
    layer = Linear(16, 8)
    with refuses(TypeError):
        layer(torch.zeros(1, 16))
    with torch.autocast("cpu", dtype=BF16):
        assert layer(torch.zeros(1, 16)).dtype == BF16


def test_a_replaced_model_is_traced_symbolically():
    """By torch.fx, whose stand-ins for tensors are none."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8, bias=False)).bfloat16()
    replace_linears(model)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [cutepy.ops.gemm] * 2
    x = torch.randn(4, 16, dtype=BF16)
    assert torch.equal(traced(x), model(x))


@pytest.mark.parametrize(
    ("dtype", "is_replaced"),
    [("float16", True), ("bfloat16", True), ("float32", True), ("float64", False), ("complex64", False)],
)
def test_layers_that_gemm_does_not_multiply_stay_torchs(dtype, is_replaced):
    layer = torch.nn.Linear(8, 8, dtype=getattr(torch, dtype))
    model = torch.nn.Sequential(layer)
    assert replace_linears(model) == is_replaced
    assert isinstance(layer, Linear) == is_replaced
    if not is_replaced:
        assert model(torch.zeros(2, 8, dtype=layer.weight.dtype)).dtype == layer.weight.dtype
