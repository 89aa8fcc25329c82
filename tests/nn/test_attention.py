"""`cutepy.nn.Attention` and its cache; attention within modules of other classes."""

import copy
from types import SimpleNamespace

import pytest

from tests.messages import pins, refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from torch.nn import functional  # noqa: E402

import cutepy  # noqa: E402
from cutepy.nn import Attention, KeyValueCache, MultiheadAttention, replace, replaced_attention  # noqa: E402
from cutepy.nn.replaced_attention import AttentionMode  # noqa: E402

BF16 = torch.bfloat16


def apart(found, wanted):
    return ((found - wanted).float().norm() / wanted.float().norm()).item()


def tables(rows, width):
    angles = torch.arange(rows)[:, None] / 10_000 ** (torch.arange(width) / width)
    return angles.cos(), angles.sin()


def plain(layer, x, cos, sin, left):
    """Compute a layer in float32, by torch's own functions."""
    q, k, v = (
        functional.linear(x.float(), p.weight.float(), None if p.bias is None else p.bias.float())
        .unflatten(-1, (-1, layer.head))
        .transpose(1, 2)
        for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )

    def turned(heads):
        x1, x2 = heads.chunk(2, -1)
        c, s = cos[: x.shape[1]], sin[: x.shape[1]]
        return torch.cat((x1 * c - x2 * s, x2 * c + x1 * s), -1)

    distance = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    seen = (distance >= 0) & (distance <= left)
    o = functional.scaled_dot_product_attention(turned(q), turned(k), v, seen, enable_gqa=True)
    return functional.linear(o.transpose(1, 2).flatten(2), layer.o_proj.weight.float())


@pytest.mark.parametrize("left", [None, 5])
def test_a_layer_computes_attention_of_its_projections(left):
    torch.manual_seed(1)
    layer = Attention(96, 6, 2, 32, window=(left, None), bias=True, dtype=BF16)
    assert layer.q_proj.weight.shape == (192, 96)
    x, (cos, sin) = torch.randn(2, 20, 96).to(BF16).requires_grad_(), tables(20, 16)
    found, wanted = layer(x, cos, sin), plain(layer, x, cos, sin, 100 if left is None else left)
    assert apart(found, wanted) < 2e-2
    do = torch.randn_like(found)
    (dx,), (want,) = torch.autograd.grad(found, x, do), torch.autograd.grad(wanted, x, do.float())
    assert apart(dx, want) < 3e-2


def paged(batch, heads, head):
    pages = [torch.zeros(8, 4, heads, head, dtype=BF16) for _ in range(2)]
    return KeyValueCache(
        *pages, torch.zeros(batch, dtype=torch.int32), torch.randperm(8).int().reshape(batch, -1)[:, :4]
    )


@pytest.mark.parametrize("is_paged", [False, True])
@torch.no_grad()
def test_a_cache_gives_what_one_call_does(is_paged):
    torch.manual_seed(2)
    layer = Attention(64, 4, 2, 32, window=(9, None), soft_cap=5.0, dtype=BF16)
    x, angles = torch.randn(2, 14, 64).to(BF16), tables(20, 8)
    wanted = layer(x, *angles)
    cache = paged(2, 2, 32) if is_paged else layer.cache(2, 16)
    found = torch.cat([layer(part, *angles, cache=cache) for part in x.split([7, 1, 1, 5], 1)], 1)
    assert cache.lengths.tolist() == [14, 14]
    assert apart(found, wanted) < 1e-2


def test_bad_layers_and_calls_are_refused():
    layer, x = Attention(64, 2, dtype=BF16), torch.zeros(1, 3, 64, dtype=BF16)
    with refuses(ValueError):
        Attention(64, 3)
    with refuses(ValueError):
        Attention(64, 4, 3)
    with refuses(ValueError):
        layer(x, torch.zeros(3, 16))
    with refuses(ValueError):
        layer(x, cache=layer.cache(1, 4))


@pytest.mark.dsl
@pytest.mark.integration
@torch.no_grad()
def test_a_layer_launches_cutepys_kernels_alone():
    layer = Attention(128, 2, dtype=BF16)
    x, angles = torch.randn(1, 20, 128).to(BF16), tables(20, 32)
    wanted = layer(x, *angles)
    with cutepy.simulate(sanitize=True) as run:
        found = layer(x, *angles)
    assert len(run.launches) == 5  # two products, two rotations, attention
    assert not run.hazards
    assert apart(found, wanted) < 1e-2


def theirs_sdpa(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs):
    """As Hugging Face's function of this name."""
    is_causal = query.shape[2] > 1 and attention_mask is None and module.is_causal
    o = functional.scaled_dot_product_attention(
        query, key, value, attention_mask, dropout, is_causal, scale=scaling, enable_gqa=True
    )
    return o.transpose(1, 2).contiguous(), None


ALL_ATTENTION_FUNCTIONS = {"sdpa": theirs_sdpa}


class LlamaAttention(torch.nn.Module):
    """As Hugging Face's models have it."""

    is_causal = True

    def __init__(self, width=64, heads=4, kv_heads=2, implementation="sdpa"):
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation=implementation)
        self.head_dim = width // heads
        self.q_proj, self.o_proj = (torch.nn.Linear(width, width, bias=False, dtype=BF16) for _ in range(2))
        self.k_proj, self.v_proj = (
            torch.nn.Linear(width, kv_heads * self.head_dim, bias=False, dtype=BF16) for _ in range(2)
        )

    def forward(self, hidden_states, attention_mask=None, past=()):
        projections = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (each(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for each in projections)
        k, v = (torch.cat((*before, each), 2) for before, each in zip(past or ((), ()), (k, v), strict=True))
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        o, _ = attend(self, q, k, v, attention_mask, scaling=self.head_dim**-0.5)
        return self.o_proj(o.flatten(2)), ((k,), (v,))


class CallsTorch(torch.nn.Module):
    """A module of somebody's own."""

    def forward(self, x):
        heads = x.view(*x.shape[:2], 4, -1).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(2)


class OwnMultihead(torch.nn.MultiheadAttention):
    """A class of somebody else's."""


def model():
    return torch.nn.ModuleDict(
        {
            "llama": LlamaAttention(),
            "eager": LlamaAttention(implementation="eager"),
            "nameless": LlamaAttention(implementation=None),
            "calls": CallsTorch(),
            "left": CallsTorch(),
            "heads": torch.nn.MultiheadAttention(64, 4, dtype=BF16),
            "own": OwnMultihead(64, 4, dtype=BF16),
        }
    )


def test_replace_says_what_attention_it_swapped_and_what_not_and_why():
    found = model()
    del found["nameless"].config
    before = {name: id(each) for name, each in found.named_modules()}
    done = replace(found, lambda name, _: name != "left" and "proj" not in name)
    pins(str(done))
    assert {*done.swapped} == {"llama", "calls", "heads"}
    assert {name: id(each) for name, each in found.named_modules()} == before
    assert isinstance(found["calls"], CallsTorch)
    assert repr(found["calls"]) == "CallsTorch()"
    assert not replace(found, lambda name, _: name != "left" and "proj" not in name).swapped


@pytest.fixture
def calls(monkeypatch):
    """Operations of cutepy that are called for attention."""
    found = []
    for name in ("attention_decode", "scaled_dot_product_attention"):
        ours = getattr(cutepy.nn.replaced_attention, name)
        monkeypatch.setattr(
            cutepy.nn.replaced_attention,
            name,
            lambda *args, ours=ours, name=name, **kwargs: found.append(name) or ours(*args, **kwargs),
        )
    return found


@torch.no_grad()
def test_hugging_faces_attention_is_cutepys(calls):
    torch.manual_seed(3)
    theirs, x = LlamaAttention(), torch.randn(2, 9, 64).to(BF16)
    ours = copy.deepcopy(theirs)
    given = ours.config
    assert list(replace(ours, lambda name, _: not name).swapped) == [""]
    assert given._attn_implementation == "sdpa"
    mask = torch.rand(2, 1, 9, 9) < 0.7
    for options in ({}, {"attention_mask": mask}, {"attention_mask": torch.randn(2, 1, 9, 9).to(BF16)}):
        assert apart(ours(x, **options)[0], theirs(x, **options)[0]) < 1e-2
    assert calls == ["scaled_dot_product_attention"] * 3
    (_, past), (_, kept) = ours(x[:, :8]), theirs(x[:, :8])
    assert apart(ours(x[:, 8:], past=past)[0], theirs(x[:, 8:], past=kept)[0]) < 1e-2
    assert calls[-1] == "attention_decode"
    assert apart(copy.deepcopy(ours)(x)[0], theirs(x)[0]) < 1e-2


def test_calls_of_torchs_function_are_cutepys_and_have_gradients(calls):
    theirs, x = CallsTorch(), torch.randn(2, 9, 64).to(BF16).requires_grad_()
    ours = CallsTorch()
    replace(ours)
    do = torch.randn(2, 9, 64).to(BF16)
    (found,), (wanted,) = (torch.autograd.grad(each(x), x, do) for each in (copy.deepcopy(ours), theirs))
    assert calls == ["scaled_dot_product_attention"]
    assert apart(found, wanted) < 2e-2
    assert torch.equal(ours(x.float()), theirs(x.float()))  # cutepy doesn't compute it
    assert len(calls) == 1
    with torch.autocast("cpu", BF16):
        assert ours(x.float()).dtype == BF16
    assert len(calls) == 2


@pytest.mark.integration
def test_torch_compiles_and_exports_a_swapped_module():
    ours, x = CallsTorch(), torch.randn(2, 9, 64).to(BF16)
    replace(ours)
    wanted = ours(x)
    assert torch.equal(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), wanted)
    exported = torch.export.export(ours, (x,))
    assert "cutepy.attention" in str(exported.graph)
    assert torch.equal(exported.module()(x), wanted)


@pytest.mark.integration
def test_graphs_of_forward_and_backward_have_both_operations():
    from torch._functorch.aot_autograd import aot_export_module

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Attention(64, 4, 2, dtype=BF16)

        def forward(self, x):
            return (self.layer(x).float().square().sum(),)

    graph, _ = aot_export_module(Loss(), (torch.randn(2, 9, 64).to(BF16),), trace_joint=True, output_loss_index=0)
    called = [str(node.target) for node in graph.graph.nodes if "cutepy.attention" in str(node.target)]
    assert called == ["cutepy.attention.default", "cutepy.attention_backward.default"]


MASKS = [
    {},
    {"key_padding_mask": torch.arange(7) > torch.tensor([[5], [3]])},
    {"attn_mask": torch.ones(7, 7, dtype=torch.bool).triu(1)},
    {"attn_mask": torch.ones(7, 7, dtype=torch.bool).triu(1), "is_causal": True},
    {"attn_mask": torch.randn(8, 7, 7), "key_padding_mask": torch.zeros(2, 7)},
]


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"kdim": 32, "vdim": 48, "bias": False}])
@torch.no_grad()
def test_multihead_attention_is_torchs(calls, masks, options):
    torch.manual_seed(4)
    theirs = torch.nn.MultiheadAttention(64, 4, dtype=BF16, **options).eval()
    ours = copy.deepcopy(theirs)
    replace(ours)
    assert type(ours) is MultiheadAttention
    masks = {
        name: each.to(BF16) if getattr(each, "dtype", None) == torch.float32 else each for name, each in masks.items()
    }
    given = [torch.randn(2, 7, width).to(BF16) for width in (64, options.get("kdim", 64), options.get("vdim", 64))]
    if "kdim" not in options:
        given = given[:1] * 3
    if not options.get("batch_first"):
        turned = {id(each): each.transpose(0, 1) for each in given}
        given = [turned[id(each)] for each in given]
    found, wanted = (each(*given, need_weights=False, **masks) for each in (ours, theirs))
    assert found[1] is None
    assert apart(found[0], wanted[0]) < 2e-2
    assert calls == ["scaled_dot_product_attention"]
    found, wanted = (each(*given, **masks) for each in (ours, theirs))
    assert torch.equal(found[1], wanted[1])
    assert len(calls) == 1


def test_only_calls_within_the_context_are_cutepys(calls):
    q = torch.randn(1, 2, 5, 16).to(BF16)
    functional.scaled_dot_product_attention(q, q, q)
    assert not calls
    with AttentionMode():
        functional.scaled_dot_product_attention(q, q, q)
        functional.scaled_dot_product_attention(*[torch.randn(1, 2, 5, 272).to(BF16)] * 3)  # too wide
    assert len(calls) == 1


def shaped(heads=4, head=16, queries=1, batch=2, keys=5):
    return (batch, heads, queries, head), (batch, heads, keys, head), (batch, heads, keys, head)


@pytest.mark.parametrize(
    ("shapes", "options", "is_decoded"),
    [
        (shaped(), {}, True),
        (shaped(head=64), {"scale": 0.3}, True),
        (shaped(head=16 * 15), {}, True),
        (shaped(head=30), {}, False),
        (shaped(head=8), {}, False),
        (shaped(queries=2), {}, False),
        (shaped(), {"attn_mask": torch.ones(1, 5, dtype=torch.bool)}, False),
        (shaped(), {"is_causal": True}, False),
        (shaped(), {"dropout_p": 0.5}, False),
        (shaped(), {"requires_grad": True}, False),
        (tuple(shape[1:] for shape in shaped(heads=1)), {}, False),
        ((shaped()[0], shaped(heads=2)[1], shaped(heads=2)[2]), {"enable_gqa": True}, True),
        ((shaped()[0], shaped(heads=2)[1], shaped(heads=2)[2]), {}, False),
        ((shaped()[0], shaped(heads=3)[1], shaped(heads=3)[2]), {"enable_gqa": True}, False),
        ((shaped()[0], shaped(batch=1)[1], shaped(batch=1)[2]), {}, False),
        ((shaped()[0], shaped()[1], shaped(keys=6)[2]), {}, False),
        ((shaped()[0], shaped()[1], shaped(head=32)[2]), {}, True),
        ((shaped()[0], shaped()[1], shaped(head=24)[2]), {}, False),
    ],
)
def test_one_new_query_is_computed_by_kernels_that_share_its_keys(monkeypatch, shapes, options, is_decoded):
    """A stand-in computes."""
    tensors = [torch.zeros(shape, dtype=BF16, requires_grad="requires_grad" in options) for shape in shapes]
    options = {name: value for name, value in options.items() if name != "requires_grad"}
    found = []

    def decode(q, k, v, *, scale):
        found.append((q.shape, k.shape, v.shape, scale))
        return q.new_zeros(*q.shape[:3], v.shape[-1])

    def attend(*given):
        found.append(given)
        return "attended"

    monkeypatch.setattr(replaced_attention, "attention_decode", decode)
    monkeypatch.setattr(replaced_attention, "scaled_dot_product_attention", attend)
    o = replaced_attention._attend(*tensors, **options)
    (given,) = found
    if is_decoded:
        assert given == (*(each.transpose(1, 2).shape for each in tensors), options.get("scale"))
        assert o.shape == (*shapes[0][:3], shapes[2][-1])
    else:
        names = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
        assert o == "attended"
        assert all(one is other for one, other in zip(given, tensors, strict=False))
        assert given[3:] == tuple((names | options).values())


def test_gradients_are_not_asked_for_where_they_are_off(monkeypatch):
    monkeypatch.setattr(replaced_attention, "attention_decode", lambda q, k, v, scale: q)
    tensors = [torch.zeros(shape, dtype=BF16, requires_grad=True) for shape in shaped()]
    with torch.no_grad():
        assert replaced_attention._attend(*tensors).shape == tensors[0].shape
