"""Rotary embeddings of Llama-style modules are swapped for cutepy's, if they are the same."""

import functools
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.nn import replace  # noqa: E402
from cutepy.nn.replaced_attention import ReplacedAttention  # noqa: E402
from cutepy.nn.replaced_rotary import FUNCTION  # noqa: E402
from tests.laboratory import llama_model  # noqa: E402
from tests.laboratory.llama_model import LlamaAttention, LlamaConfig, LlamaForCausalLM  # noqa: E402

SMALL = LlamaConfig(classes=16, hidden=32, intermediate=48, layers=2, heads=4, key_heads=2, head=16)


def made(kind=LlamaAttention, tables=None):
    """Make a small model, whose attention is of a class, and its rotary embedding as given."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(SMALL)
    for layer in model.layers:
        layer.self_attn.__class__ = kind
    if tables is not None:
        model.rotary_emb.__class__ = tables
    return model.bfloat16()


def rotations(model):
    """Replace a model's modules; return what became of its rotations."""
    done = replace(model)
    return ["swapped" if own in done.swapped else done.kept[own] for own in names(model)]


def names(model):
    return [f"layers.{n}.self_attn.{FUNCTION}" for n in range(len(model.layers))]


@pytest.mark.integration
def test_a_llamas_rotations_are_swapped_and_give_its_loss(monkeypatch):
    model, own = made(), made()
    done = replace(own)
    assert {*names(own)} < {*done.swapped}
    assert done.swapped[names(own)[0]] == "tests.laboratory.llama_model.apply_rotary_pos_emb"
    assert not {name: why for name, why in done.kept.items() if name not in ("embed_tokens", "rotary_emb")}
    tokens = torch.arange(24).reshape(2, 12) % 16
    want = model.double()(tokens, tokens)
    monkeypatch.setattr(llama_model, FUNCTION, None)  # theirs is no longer called
    loss = own(tokens, tokens)
    assert math.isclose(loss.item(), want.item(), rel_tol=0.01)
    loss.backward()
    monkeypatch.undo()
    want.backward()
    for (name, theirs), ours in zip(model.named_parameters(), own.parameters(), strict=True):
        assert (theirs.grad - ours.grad).norm() < 0.05 * theirs.grad.norm() + 1e-4, name


@pytest.mark.parametrize("batch", [1, 3], ids=["tables of all", "tables of each"])
def test_tables_of_each_sequence_are_its_own(batch):
    q, k = torch.randn(3, 4, 5, 16), torch.randn(3, 2, 5, 16)
    cos, sin = (torch.randn(batch, 5, 8).repeat(1, 1, 2) for _ in range(2))
    model = made()
    replace(model)
    forwards = [vars(kind)["forward"] for kind in type(model.layers[0].self_attn).__mro__ if "forward" in vars(kind)]
    rotate = next(found for each in forwards if (found := each.__globals__.get(FUNCTION)))
    for found, wanted in zip(rotate(q, k, cos, sin), llama_model.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        torch.testing.assert_close(found, wanted)
    wide = [each.double() for each in (q, k, cos, sin)]
    assert rotate(*wide)[0].dtype == torch.float64  # is theirs
    learned = cos.clone().requires_grad_()
    rotate(q, k, learned, sin)[0].sum().backward()  # theirs too
    assert learned.grad is not None


def passing(function):
    """Decorate as Hugging Face does."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        kwargs.pop("renamed", None)
        return function(*args, **kwargs)

    return wrapper


class Decorated(LlamaAttention):
    forward = passing(passing(LlamaAttention.forward))


def test_decorators_stay():
    model = made(Decorated)
    assert rotations(model) == ["swapped", "swapped"]
    assert all(
        isinstance(layer.self_attn, ReplacedAttention) for layer in model.layers
    )  # seen behind the decorators too
    x = torch.randn(1, 3, 32).bfloat16()
    tables = model.rotary_emb(x, torch.arange(3)[None])
    attention = model.layers[0].self_attn
    assert torch.equal(attention(x, tables, renamed=1), attention(x, tables))


class Held:
    """Decorator that keeps the function elsewhere than in a cell."""

    def __init__(self, function):
        self.function = self.__wrapped__ = function

    def __get__(self, module, kind):
        return self if module is None else functools.partial(self.function, module)


class Kept(LlamaAttention):
    forward = Held(LlamaAttention.forward)


class HalvesRotaryEmbedding(llama_model.LlamaRotaryEmbedding):
    def forward(self, x, position_ids):
        return tuple(each * torch.linspace(1, 2, each.shape[-1]) for each in super().forward(x, position_ids))


class MoodyRotaryEmbedding(llama_model.LlamaRotaryEmbedding):
    def forward(self, x, position_ids, mood):
        return super().forward(x, position_ids)


@pytest.mark.parametrize(
    ("kind", "tables", "reason"),
    [
        (Kept, None, "decorated"),
        (LlamaAttention, HalvesRotaryEmbedding, "different halves"),
        (LlamaAttention, MoodyRotaryEmbedding, "Embedding does not take"),
    ],
)
def test_what_is_kept_says_why(kind, tables, reason):
    assert all(reason in each for each in rotations(made(kind, tables)))


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (lambda q, k, cos, sin: (q, k), "computes something else"),
        (lambda q, k, cos, sin: (q,), "computes something else"),
        (lambda q: q, "does not take queries"),
        (None, "has no function"),
    ],
)
def test_other_functions_are_kept(monkeypatch, theirs, reason):
    monkeypatch.setattr(llama_model, FUNCTION, theirs)
    assert all(reason in each for each in rotations(made()))


def test_a_model_without_tables_to_try_is_kept():
    layer = made().layers[0]
    done = replace(layer)
    assert "no RotaryEmbedding" in done.kept[f"self_attn.{FUNCTION}"]


def test_a_filter_leaves_rotations_out_and_a_second_time_changes_nothing():
    model = made()
    done = replace(model, lambda name, module: FUNCTION not in name)
    assert all(done.kept[own] == "the filter left it out" for own in names(model))
    model = made()
    replace(model, lambda name, module: FUNCTION in name)
    assert rotations(model) == ["it is cutepy's"] * 2
