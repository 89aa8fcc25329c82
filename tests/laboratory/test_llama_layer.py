"""A Llama-style decoder layer in plain torch, its linear layers swapped by one call: outputs and gradients agree.

Both compute in bfloat16, so neither is exact. Torch's own distance from float64 measures what rounding does to this
layer; ours may be at most twice as far off, which is where a different order of the same roundings can put it.
"""

import copy

import pytest

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.nn import Linear, replace, replace_linears  # noqa: E402
from tests.laboratory.llama_layer import LlamaLayer, LlamaSizes  # noqa: E402

SMALL = LlamaSizes(hidden=64, intermediate=176, heads=4, key_heads=2, theta=10_000.0)
# More than twice is no rounding: a single wrong tile, or gradient left out, is off by thousands of times.
ALLOWED = 2.0


def step(layer, x):
    """Run forward and backward; gives the output and all gradients by name."""
    layer.zero_grad(set_to_none=True)
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    weights = torch.cos(torch.arange(y.numel(), device=y.device)).view(y.shape)
    (y * weights.to(y.dtype)).sum().backward()
    return {"output": y.detach(), "input": x.grad} | {name: p.grad for name, p in layer.named_parameters()}


def distance(found, exact):
    return {
        name: float((found[name].double() - exact[name]).norm() / exact[name].norm().clamp_min(1e-30)) for name in exact
    }


def compare(layer, x, simulated=False, joined=False):
    swapped = copy.deepcopy(layer)
    if joined:
        done = replace(swapped, lambda name, module: "proj" in name)
        assert len(done.swapped) == 7
        assert [*done.joined] == ["q_proj+k_proj+v_proj", "gate_proj+up_proj"]
    else:
        assert replace_linears(swapped) == 7
    exact = step(copy.deepcopy(layer).double(), x.double())
    theirs = distance(step(layer, x), exact)
    if simulated:
        with cutepy.simulate() as run:
            ours = distance(step(swapped, x), exact)
        assert len(run.launches) == (4 + 2 * 4 if joined else 3 * 7)
    else:
        ours = distance(step(swapped, x), exact)
    for name in exact:
        assert ours[name] <= ALLOWED * theirs[name] + 1e-4, (name, ours[name], theirs[name])


@pytest.mark.first(1)
@pytest.mark.dsl
@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("tokens", [8, 13])
def test_a_small_layer(tokens, simulated):
    torch.manual_seed(20261121)
    compare(LlamaLayer(SMALL, dtype=torch.bfloat16), torch.randn(2, tokens, 64).bfloat16(), simulated)


@pytest.mark.dsl
def test_a_small_layer_whose_projections_are_joined():
    torch.manual_seed(20261121)
    layer, x = LlamaLayer(SMALL, dtype=torch.bfloat16), torch.randn(2, 13, 64).bfloat16()
    compare(layer, x, simulated=True, joined=True)
    compare(layer, x, joined=True)


def test_a_swapped_layer_compiles_without_graph_breaks():
    torch.manual_seed(20261121)
    layer = LlamaLayer(SMALL, dtype=torch.bfloat16)
    replace_linears(layer, lambda name, _: name != "o_proj")
    assert sum(type(module) is Linear for module in layer.modules()) == 6
    x = torch.randn(2, 8, 64).bfloat16()
    expected, found = step(layer, x), step(torch.compile(layer, backend="aot_eager", fullgraph=True), x)
    for name, value in expected.items():
        assert torch.allclose(found[name if name in found else f"_orig_mod.{name}"], value, rtol=2**-6, atol=2**-6)


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [2048, 1000])
def test_llama_3_8b(tokens):
    torch.manual_seed(20261121)
    layer = LlamaLayer(device="cuda", dtype=torch.bfloat16)
    for joined in (False, True):
        compare(layer, torch.randn(1, tokens, 4096, device="cuda").bfloat16(), joined=joined)
