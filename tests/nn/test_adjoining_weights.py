"""Linear layers that take the same input become one product, and stay right whatever parts them."""

import copy
import gc
import io
import pickle
import threading
import weakref

import pytest

from tests.messages import pins

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.frontends import serve_cuda  # noqa: E402
from cutepy.nn import GatedMLP, Linear, replace, shared_products  # noqa: E402
from cutepy.nn.adjoining_weights import join_weights, layers_of  # noqa: E402
from cutepy.ops.joined_linears import adjoining  # noqa: E402

BF16 = torch.bfloat16
QKV = ("q_proj", "k_proj", "v_proj")
checkpoint = torch.utils.checkpoint.checkpoint


class Projections(torch.nn.Module):
    """Projections of attention with fewer heads of keys and values, and what `between` does after the first."""

    def __init__(self, hidden=32, sizes=(24, 8, 16), bias=False, dtype=BF16):
        super().__init__()
        for name, size in zip(QKV, sizes, strict=True):
            setattr(self, name, torch.nn.Linear(hidden, size, bias, dtype=dtype))
        self.between = lambda x: x

    def forward(self, x):
        q = self.q_proj(x)
        x = self.between(x)
        return q, self.k_proj(x), self.v_proj(x)


class Uses(Projections):
    """Projections, of which a function takes what it needs."""

    def forward(self, x):
        return self.between(self, x)


def pair(kind=Projections, **options):
    """Make a model of torch's, and one of the same weights that is replaced."""
    torch.manual_seed(0)
    theirs = kind(**options)
    ours = copy.deepcopy(theirs)
    replace(ours)
    return theirs, ours


def calls(monkeypatch):
    """Count the products that are joined."""
    found = []
    true = shared_products._joined
    monkeypatch.setattr(shared_products, "_joined", lambda *given: found.append(1) or true(*given))
    return found


def step(model, x):
    """Give the results, and all gradients by names."""
    x = x.detach().clone().requires_grad_()
    model.zero_grad(set_to_none=True)
    results = [each for each in model(x) if each is not None]
    factors = [torch.cos(torch.arange(each.numel())).view(each.shape).to(each.dtype) for each in results]
    sum((each * factor).sum() for each, factor in zip(results, factors, strict=True)).backward()
    return [each.detach() for each in results], {"x": x.grad} | {n: p.grad for n, p in model.named_parameters()}


def same(ours, theirs, x):
    """Compare two models: to neighbours in bfloat16, sums of three products to a few."""
    (results, grads), (want, wanted) = step(ours, x), step(theirs, x)
    for one, other in zip(results, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)
    for name, each in wanted.items():
        if each is None:
            assert grads[name] is None, name
        else:
            torch.testing.assert_close(grads[name], each, rtol=2**-5, atol=2**-4, msg=lambda m, n=name: f"{n}: {m}")


def is_joined(model, names=QKV):
    return adjoining([each.weight for each in layers_of(model, names)]) is not None


def parted(model, kind):
    """Copy the weights, or the biases, of each layer to memory of its own, and give all of the other kind."""
    for layer in layers_of(model, QKV):
        each = getattr(layer, kind)
        each.data = each.data.clone()
    return [getattr(layer, "weight" if kind == "bias" else "bias") for layer in layers_of(model, QKV)]


@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_weights_that_adjoin_are_joined_where_biases_do_not_and_the_other_way_round(kind):
    _, ours = pair(bias=True)
    others = parted(ours, kind)
    own = [getattr(layer, kind) for layer in layers_of(ours, QKV)]
    before = [each.clone() for each in own]
    assert (adjoining(own), adjoining(others) is not None) == (None, True)
    assert join_weights(ours, QKV) is None
    assert all(adjoining(each) is not None for each in (own, others))
    assert all(map(torch.equal, own, before))


def test_weights_that_adjoin_stay_where_they_are():
    _, ours = pair(bias=True)
    places = [each.data_ptr() for each in ours.parameters()]
    assert join_weights(ours, QKV) is None
    assert [each.data_ptr() for each in ours.parameters()] == places


X = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(3)).to(BF16)


def test_the_first_layer_takes_its_part_and_the_others_theirs():
    """A part is the layer's product with the same input; without one the layer computes alone, and its part is lost."""
    theirs, ours = pair()
    layers = layers_of(ours, QKV)
    with torch.no_grad():
        share = shared_products.Share([layers])
        parts = [share.part(layer, X) for layer in layers]
        for part, layer in zip(parts, (getattr(theirs, name) for name in QKV), strict=True):
            torch.testing.assert_close(part, layer(X), rtol=2**-6, atol=2**-6)
        assert share.part(layers[0], X) is None
        assert not share.is_wasted
        share = shared_products.Share([layers])
        assert share.part(layers[1], X) is not None
        assert share.is_wasted
        assert share.part(layers[0], X.clone()) is None
        assert share.is_wasted


@pytest.mark.integration
@pytest.mark.parametrize("most", [0, shared_products.JOINED_BYTES])
@pytest.mark.parametrize("bias", [False, True])
def test_three_projections_are_one_launch_with_the_gradients_of_three(monkeypatch, bias, most):
    monkeypatch.setattr(shared_products, "JOINED_BYTES", most)
    theirs, ours = pair(bias=bias)
    exact = step(copy.deepcopy(theirs).double(), X.double())
    with cutepy.simulate() as run, torch.no_grad():
        results = ours(X)
    assert len(run.launches) == (1 if most else 3)
    assert results[0].untyped_storage().nbytes() == (2 * 10 * 48 if most else 2 * 10 * 24)  # keeps no more than one
    with cutepy.simulate() as run:
        found = step(ours, X)
    assert len(run.launches) == (1 + 1 + 1 if most else 3 + 3 + 3)
    assert all(map(torch.equal, results, found[0]))
    torchs = step(theirs, X)
    for name, truth in exact[1].items():
        ours_off, torchs_off = ((each[1][name].double() - truth).norm() for each in (found, torchs))
        assert ours_off <= 1.5 * torchs_off + 2**-9 * truth.norm(), name
    for one, truth in zip(results, exact[0], strict=True):
        assert (one.double() - truth).abs().max() <= 2**-8 * truth.abs().max()


@pytest.mark.integration
@pytest.mark.parametrize("bias", [False, True])
def test_gate_and_up_are_one_launch(bias):
    torch.manual_seed(0)
    ours = GatedMLP(32, 24, bias=bias, dtype=BF16)
    exact = copy.deepcopy(ours).double()
    x = X.clone().requires_grad_()
    with cutepy.simulate() as run:
        y = ours(x)
        assert len(run.launches) == 3  # gate and up, the activation, down
        y.sum().backward()
    assert len(run.launches) == 3 + 2 + 1 + 2
    wide = X.double().requires_grad_()
    silu = torch.nn.functional.silu
    linear = torch.nn.Linear.forward
    gate, up = (linear(each, wide) for each in (exact.gate_proj, exact.up_proj))
    linear(exact.down_proj, silu(gate) * up).sum().backward()
    for (name, one), truth in zip(ours.named_parameters(), exact.parameters(), strict=True):
        assert (one.grad.double() - truth.grad).norm() <= 0.01 * truth.grad.norm(), name
    assert (x.grad.double() - wide.grad).norm() <= 0.01 * wide.grad.norm()


def test_parameters_names_and_optimizers_stay():
    torch.manual_seed(0)
    model = Projections(bias=True)
    before, ids, state = [*model.state_dict()], [*map(id, model.parameters())], copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    done = replace(model)
    assert done.joined == {"q_proj+k_proj+v_proj": "one product"}
    assert [*model.state_dict()] == before
    assert [*map(id, model.parameters())] == ids
    assert all(torch.equal(each, state[name]) for name, each in model.state_dict().items())
    assert is_joined(model)
    sum(each.sum() for each in model(X)).backward()
    optimizer.step()
    assert is_joined(model)
    assert not any(torch.equal(each, state[name]) for name, each in model.state_dict().items())
    model.load_state_dict(state)
    assert is_joined(model)
    assert all(torch.equal(each, state[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    "move",
    [
        lambda model: model.half().to(BF16),
        lambda model: model.to(torch.float32).to(BF16),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: _saved(model),
        lambda model: model.share_memory(),
        lambda model: model.to_empty(device="cpu"),
        lambda model: (model.load_state_dict(model.state_dict(), assign=True), model)[1],
    ],
    ids=["half", "to", "deepcopy", "pickle", "save", "share_memory", "to_empty", "assign"],
)
def test_a_model_that_is_moved_or_copied_is_joined_again(move, monkeypatch):
    theirs, ours = pair(bias=True)
    ours.between = theirs.between = None
    moved = move(ours)
    moved.between = theirs.between = lambda x: x
    assert is_joined(moved)
    assert type(moved) is type(ours)
    with torch.no_grad():
        for one, other in zip(moved.parameters(), theirs.parameters(), strict=True):
            one.copy_(other)
    found = calls(monkeypatch)
    same(moved, theirs, X)
    assert found
    if moved is not ours:
        moved.q_proj.weight.data.zero_()
        assert ours.q_proj.weight.abs().sum() > 0


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


class Adapter(torch.nn.Module):
    """As a low-rank adapter: another module in the place of a linear layer."""

    def __init__(self, layer):
        super().__init__()
        self.base = layer
        self.low = torch.nn.Linear(32, layer.out_features, bias=False, dtype=BF16)

    def forward(self, x):
        return self.base(x) + self.low(x)


class Twice(torch.nn.Module):
    """An adapter that gives the weight of its layer as its own, as those of PEFT do."""

    def __init__(self, layer):
        super().__init__()
        self.base = layer

    @property
    def weight(self):
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    @property
    def out_features(self):
        return self.base.out_features

    def forward(self, x):
        return 2 * self.base(x)


def _adapters(model):
    for name in QKV:
        setattr(model, name, Twice(getattr(model, name)))


def _adapter(model):
    torch.manual_seed(5)
    model.k_proj = Adapter(model.k_proj)


def _data(model):
    model.k_proj.weight.data = model.k_proj.weight.data.clone() * 2


def _assign(model):
    model.load_state_dict({n: p.detach().clone() * 2 for n, p in model.state_dict().items()}, assign=True)


def _parameter(model):
    model.v_proj.weight = torch.nn.Parameter(torch.ones(16, 32, dtype=BF16))


def _double(model):
    torch.manual_seed(5)
    model.k_proj.forward = lambda x, layer=model.k_proj: 2 * type(layer).forward(layer, x)


def _parametrized(model):
    torch.nn.utils.parametrizations.weight_norm(model.v_proj)


def _old_norm(model):
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(model.q_proj)


def _tied(model):
    model.v_proj.weight = torch.nn.Parameter(model.v_proj.weight[:8].detach().clone())
    model.v_proj.out_features, model.k_proj.weight = 8, model.v_proj.weight


def _swapped_rows(model):
    a, b = model.k_proj.weight, model.v_proj.weight
    whole = torch.cat((b.data, a.data))
    b.data, a.data = whole.split((16, 8))


@pytest.mark.parametrize(
    "change",
    [
        _adapter,
        _adapters,
        _data,
        _assign,
        _parameter,
        _double,
        _parametrized,
        _old_norm,
        _tied,
        _swapped_rows,
        lambda model: model.q_proj.register_forward_hook(lambda module, given, result: 2 * result),
        lambda model: model.k_proj.register_forward_pre_hook(lambda module, given: (2 * given[0],)),
        lambda model: model.v_proj.register_full_backward_hook(lambda module, into, out: (2 * into[0],)),
        pytest.param(lambda model: model.k_proj.compile(backend="eager"), marks=pytest.mark.integration),
    ],
)
def test_what_parts_layers_has_them_computed_apart(change, monkeypatch):
    theirs, ours = pair()
    assert is_joined(ours)
    for model in (theirs, ours):
        change(model)
    found = calls(monkeypatch)
    same(ours, theirs, X)
    assert not found


@pytest.mark.parametrize("most", [0, shared_products.JOINED_BYTES])
def test_layers_of_which_some_are_frozen_are_joined(monkeypatch, most):
    monkeypatch.setattr(shared_products, "JOINED_BYTES", most)
    theirs, ours = pair(bias=True)
    for model in (theirs, ours):
        model.k_proj.requires_grad_(False)
        model.v_proj.bias.requires_grad_(False)
    found = calls(monkeypatch)
    same(ours, theirs, X)
    assert bool(found) == bool(most)
    with torch.no_grad():
        assert all(each.grad_fn is None for each in ours(X))
    ours.requires_grad_(False)
    assert all(each.grad_fn is None for each in ours(X))


@pytest.mark.parametrize("change", ["x in place", "another x", "a weight", "the data of a weight"])
def test_what_changes_between_calls_is_seen(change):
    theirs, ours = pair()

    def between(x, model):
        if change == "x in place":
            return x.mul_(2)
        if change == "another x":
            return x + 1
        if change == "a weight":
            model.k_proj.weight.mul_(2)
        else:
            model.k_proj.weight.data = model.k_proj.weight.data * 2
        return x

    for model in (theirs, ours):
        model.between = lambda x, model=model: between(x, model)
    with torch.no_grad():
        for one, other in zip(ours(X.clone()), theirs(X.clone()), strict=True):
            torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)
    assert not ours.joined_layers  # what nobody takes is not computed again


def _partly_without_gradients(model, x):
    with torch.no_grad():
        q = model.q_proj(x)
    return q, model.k_proj(x), model.v_proj(x)


def _partly_with_gradients(model, x):
    q = model.q_proj(x)
    with torch.no_grad():
        k = model.k_proj(x)
    return q, k, model.v_proj(x)


def _twice(model, x):
    return model.q_proj(x), model.q_proj(x), model.k_proj(x), model.v_proj(x), model.v_proj(2 * x)


def _some(model, x):
    return None, model.k_proj(x), model.v_proj(x)


def _unused(model, x):
    return model.q_proj(x), None, model.v_proj(x) if model.k_proj(x) is not None else None


def _checkpointed(model, x):
    return (
        checkpoint(model.q_proj, x, use_reentrant=False),
        checkpoint(model.k_proj, x, use_reentrant=False),
        model.v_proj(x),
    )


def _reentrant(model, x):
    return checkpoint(model.q_proj, x, use_reentrant=True), model.k_proj(x), model.v_proj(x)


def _written(model, x):
    q, k = model.q_proj(x), model.k_proj(x)
    squares = k * k  # keeps k for its gradient
    q *= 2
    v = model.v_proj(x)
    v.add_(1)
    return q, squares, v


def _cast(model, x):
    q = model.q_proj(x)
    with torch.autocast("cpu", torch.float16):
        k = model.k_proj(x)
    assert k.dtype == torch.float16
    return q, k.to(BF16), model.v_proj(x)


@pytest.mark.parametrize(
    "uses",
    [
        _partly_without_gradients,
        _partly_with_gradients,
        _twice,
        _some,
        _unused,
        _checkpointed,
        _reentrant,
        _written,
        _cast,
    ],
)
def test_whatever_a_module_does_between_its_layers(uses):
    theirs, ours = pair(Uses)
    theirs.between = ours.between = uses
    for _ in range(2):
        same(ours, theirs, X)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("uses", [_twice, _some, lambda model, x: (model.q_proj(x), model.k_proj(x), model.v_proj(x))])
def test_a_module_that_is_checkpointed_computes_again_as_before(reentrant, uses):
    theirs, ours = pair(Uses)
    theirs.between = ours.between = uses
    for _ in range(2):
        wrapped = [lambda x, each=each: tuple(r for r in each(x) if r is not None) for each in (ours, theirs)]
        for one in (ours, theirs):
            one.zero_grad()
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        results = checkpoint(wrapped[0], x, use_reentrant=reentrant)
        sum(each.sum() for each in results).backward()
        sum(each.sum() for each in wrapped[1](y)).backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=2**-5, atol=2**-4)
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                torch.testing.assert_close(one.grad, other.grad, rtol=2**-5, atol=2**-4)


def test_nothing_is_held_after_a_call():
    _, ours = pair(Uses)
    seen = []

    def first_alone(model, x):
        q = model.q_proj(x)
        seen.append(weakref.ref(shared_products.CURRENT.share))
        return (q,)

    ours.between = first_alone
    ours(X)
    gc.collect()
    assert seen[0]() is None
    assert shared_products.CURRENT.share is None

    def fails(model, x):
        model.q_proj(x)
        raise KeyError

    ours = pair(Uses)[1]
    ours.between = fails
    with pytest.raises(KeyError):
        ours(X)
    assert shared_products.CURRENT.share is None
    assert ours.joined_layers


def test_rows_have_the_same_bits_in_any_batch():
    _, ours = pair()
    with cutepy.ops.batch_invariant():
        alone = step(ours, X[:1])
        together = step(ours, X)
    for one, both in zip(alone[0], together[0], strict=True):
        assert torch.equal(one, both[:1])


def test_threads_have_products_of_their_own():
    theirs, ours = pair()
    barrier = threading.Barrier(2, timeout=60)
    ours.between = lambda x: (barrier.wait(), x)[1]
    given, found = [X, X + 1], {}
    with torch.no_grad():
        wanted = [theirs(each) for each in given]

    def run(n):
        with torch.no_grad():
            found[n] = ours(given[n])

    threads = [threading.Thread(target=run, args=(n,)) for n in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for n, want in enumerate(wanted):
        for one, other in zip(found[n], want, strict=True):
            torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)


def test_inference_mode_and_hooks_of_all_modules_compute_apart(monkeypatch):
    theirs, ours = pair()
    found = calls(monkeypatch)
    with torch.inference_mode():
        x = X.clone()
        for one, other in zip(ours(x), theirs(x), strict=True):
            torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)
        made, wide = Projections(), torch.randn(1, 3, 64).to(BF16)
        assert not replace(made).joined
        attention = cutepy.nn.Attention(64, 4, dtype=BF16)
        assert attention(wide).shape == wide.shape
    assert not found
    assert all(each.shape[:-1] == (2, 5) for each in made(X))
    with torch.inference_mode():
        assert replace(theirs).joined
    assert is_joined(theirs)
    assert not theirs.q_proj.weight.is_inference()
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        ours(X)
    finally:
        handle.remove()
    assert not found
    assert seen[:3] == [ours.q_proj, ours.k_proj, ours.v_proj]
    ours(X)
    assert found


@pytest.mark.integration
def test_compiled_models_have_no_graph_breaks():
    theirs, ours = pair()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for one, other in zip(compiled(X), theirs(X), strict=True):
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)
    torch.manual_seed(0)
    layer = GatedMLP(32, 24, dtype=BF16)
    graphs = []

    def kept(graph, _):
        graphs.append(graph)
        return graph

    eager, traced = layer(X), torch.compile(layer, backend=kept, fullgraph=True)
    assert torch.equal(traced(X), eager)
    assert "joined_linear" in graphs[0].code
    layer.up_proj.weight.data = layer.up_proj.weight.data * 2  # parted, without another trace
    torch.testing.assert_close(traced(X), 2 * eager, rtol=2**-6, atol=2**-6)
    assert len(graphs) == 1
    layer.gate_proj.register_forward_hook(lambda module, given, result: 0 * result)
    assert torch.equal(layer(X), 0 * eager)


class Crossed(Projections):
    def forward(self, x, key_value_states=None):
        other = x if key_value_states is None else key_value_states
        return self.q_proj(x), self.k_proj(other), self.v_proj(other)


class Shared(torch.nn.Module):
    """Modules of which two have a layer's weight."""

    def __init__(self):
        super().__init__()
        self.one, self.two = Projections(), Projections()
        self.two.k_proj.weight = self.one.k_proj.weight


def _wide():
    model = Projections()
    model.v_proj = torch.nn.Linear(16, 16, bias=False, dtype=BF16)
    return model


def _biased():
    model = Projections()
    model.v_proj = torch.nn.Linear(32, 16, dtype=BF16)
    return model


def _mixed():
    model = Projections()
    model.v_proj.half()
    return model


def _part():
    model = Projections()
    model.v_proj.weight.data = torch.randn(20, 32).to(BF16)[2:18]
    return model


def test_replace_says_what_it_joined_and_what_not_and_why():
    model = torch.nn.ModuleDict(
        {
            "attention": Projections(),
            "biased": Projections(bias=True),
            "left": Projections(),
            "one": Projections(),
            "crossed": Crossed(),
            "shared": Shared(),
            "wide": _wide(),
            "some": _biased(),
            "mixed": _mixed(),
            "part": _part(),
            "mlp": GatedMLP(16, 8),
        }
    )
    done = replace(model, lambda name, module: name not in ("left.q_proj+k_proj+v_proj", "one.k_proj"))
    pins(str(done))
    assert "one.q_proj+k_proj+v_proj" not in done.joined
    assert not replace(model["attention"]).joined
    _data(model["attention"])
    assert replace(model["attention"]).joined == {"q_proj+k_proj+v_proj": "one product"}
    assert type(model["attention"].q_proj) is Linear


def test_a_model_without_data_is_joined_once_it_has_some():
    with torch.device("meta"):
        model = Projections()
    assert replace(model).joined
    theirs = pair()[0]
    filled = model.to_empty(device="cpu")
    filled.load_state_dict(theirs.state_dict())
    assert is_joined(filled)
    same(filled, theirs, X)


@pytest.mark.integration
@pytest.mark.parametrize("part", [False, True])
def test_an_attention_layer_has_one_projection_unless_something_parts_it(part):
    torch.manual_seed(0)
    ours = cutepy.nn.Attention(64, 4, kv_heads=2, dtype=BF16)
    exact = copy.deepcopy(ours).double()
    x = torch.randn(2, 5, 64).to(BF16)
    if part:
        for name in QKV:
            setattr(ours, name, Twice(getattr(ours, name)))
    with cutepy.simulate() as run, torch.no_grad():
        found = ours(x)
    assert len(run.launches) == (5 if part else 3)
    heads = (torch.nn.functional.linear(x.double(), each.weight) for each in (exact.q_proj, exact.k_proj, exact.v_proj))
    q, k, v = (each.unflatten(-1, (-1, 16)).transpose(1, 2) * (1 + part) for each in heads)
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    want = torch.nn.functional.linear(o.transpose(1, 2).flatten(2), exact.o_proj.weight)
    assert (found.double() - want).norm() < 0.02 * want.norm()


@pytest.mark.integration
def test_projections_are_one_launch_on_a_served_device():
    _, ours = pair()
    with serve_cuda() as run, torch.no_grad():
        ours.cuda()
        found = ours(X.cuda())
    assert len(run.launches) == 1
    assert [each.shape[-1] for each in found] == [24, 8, 16]


def test_layers_without_parameters_of_their_own_stay_apart():
    models = Projections(), Projections()
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        with pytest.warns(FutureWarning):
            torch.nn.utils.weight_norm(model.k_proj)
    theirs, ours = models
    replace(ours)
    x = torch.randn(2, 5, 32).to(BF16)
    for one, other in zip(ours(x), theirs(x), strict=True):
        torch.testing.assert_close(one, other, rtol=2**-6, atol=2**-6)
