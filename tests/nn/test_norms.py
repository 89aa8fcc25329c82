"""`cutepy.nn`: normalisations in torch's place, and the swap of a whole model."""

import pytest

from tests.messages import pins

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.nn import LayerNorm, Linear, RMSNorm, replace  # noqa: E402

BF16 = torch.bfloat16
OWN = {torch.nn.RMSNorm: RMSNorm, torch.nn.LayerNorm: LayerNorm}


def both(theirs, *arguments, **options):
    layers = []
    for kind in (theirs, OWN[theirs]):
        torch.manual_seed(7)
        layers.append(kind(*arguments, **options))
    return layers


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("options", [{}, {"elementwise_affine": False}, {"eps": 1e-3, "dtype": BF16}])
def test_they_are_made_as_torchs_and_compute_it(kind, options):
    theirs, ours = both(kind, (4, 6), **options)
    assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 4, 6).to(options.get("dtype", torch.float32))
    torch.testing.assert_close(ours(x), theirs(x))
    y, total = ours(x, residual=x)
    torch.testing.assert_close(total, 2 * x)
    torch.testing.assert_close(y, theirs(2 * x))


@pytest.mark.dsl
@pytest.mark.integration
@pytest.mark.parametrize("kind", OWN)
def test_they_launch_one_kernel(kind):
    theirs, ours = both(kind, 48, dtype=BF16)
    x = torch.randn(2, 48).to(BF16)
    with cutepy.simulate() as run:
        found = ours(x)
    assert len(run.launches) == 1
    torch.testing.assert_close(found, theirs(x))


class LlamaRMSNorm(torch.nn.Module):
    """As Hugging Face's models have it."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(hidden_states.dtype)


class GemmaRMSNorm(LlamaRMSNorm):
    """Its weight is an offset from one."""

    def forward(self, hidden_states):
        return super().forward(hidden_states) / self.weight * (1 + self.weight)


class GatedRMSNorm(LlamaRMSNorm):
    def forward(self, hidden_states, gate):
        return super().forward(hidden_states * gate)


class BiasedRMSNorm(LlamaRMSNorm):
    def __init__(self, width):
        super().__init__(width)
        self.bias = torch.nn.Parameter(torch.zeros(width))


class Derived(torch.nn.Linear):
    """A class of somebody else's."""


def model():
    return torch.nn.ModuleDict(
        {
            "norm": LlamaRMSNorm(16),
            "gemma": GemmaRMSNorm(16),
            "gated": GatedRMSNorm(16),
            "biased": BiasedRMSNorm(16),
            "meta": LlamaRMSNorm(16).to("meta"),
            "rms": torch.nn.RMSNorm(16),
            "layer": torch.nn.LayerNorm(16),
            "float64": torch.nn.LayerNorm(16, dtype=torch.float64),
            "wide": torch.nn.LayerNorm(300_000, elementwise_affine=False),
            "one": torch.nn.Linear(16, 16),
            "many": torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4))),
            "derived": Derived(16, 16),
            "own": Linear(16, 16),
            "act": torch.nn.ReLU(),
        }
    )


def test_replace_says_what_it_swapped_and_what_not_and_why():
    found = model()
    before, state = {name: id(each) for name, each in found.named_modules()}, torch.get_rng_state()
    calls = []
    found["norm"].register_forward_hook(lambda *_: calls.append(1))
    done = replace(found, lambda name, _: name != "many.1")
    pins(str(done))
    assert {name: id(each) for name, each in found.named_modules()} == before
    assert torch.equal(torch.get_rng_state(), state)
    assert not calls
    assert {*done.swapped} == {"norm", "rms", "layer", "one", "many.0", "many.2", "many.3"}
    assert [type(found[name]) for name in ("norm", "rms", "layer", "one")] == [RMSNorm, RMSNorm, LayerNorm, Linear]
    assert not replace(found, lambda name, _: name != "many.1").swapped


def test_a_replaced_norm_computes_what_it_did():
    theirs = LlamaRMSNorm(24, eps=1e-3)
    with torch.no_grad():
        theirs.weight.normal_()
    x = torch.randn(5, 24) * 0.03
    wanted = theirs(x)
    assert list(replace(theirs).swapped) == [""]
    assert type(theirs) is RMSNorm
    torch.testing.assert_close(theirs(x), wanted)
    assert repr(theirs) == "RMSNorm((24,), eps=0.001, elementwise_affine=True)"
    assert list(theirs.state_dict()) == ["weight"]
