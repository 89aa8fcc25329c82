"""`cutepy.ops.grouped_gemm` on any machine: its reference, the kernel in the simulator, and what torch makes of it."""

import itertools
import weakref

import pytest

from tests.messages import refuses

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy import epilogues  # noqa: E402
from cutepy.epilogues import Column, Integer, Row, Scalar, Tile  # noqa: E402
from cutepy.host.launches import Launches  # noqa: E402
from cutepy.kernels.gemm.gpu import H100, H200  # noqa: E402
from cutepy.kernels.gemm.operands import Description, Problem  # noqa: E402
from cutepy.kernels.grouped import choice, op  # noqa: E402
from cutepy.ops import grouped_gemm  # noqa: E402
from cutepy.ops.grouped import multiply_groups  # noqa: E402

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
ENDS = (5, 5, 70, 100)
PLAIN = [], [], "", cutepy.epilogues.identity.text


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20261123)


def integers(*shape, dtype=F16):
    return torch.randint(-3, 4, shape).to(dtype)


def ends(*values):
    return torch.tensor(values or ENDS, dtype=torch.int32)


def one_by_one(a, b, offs=None, counts=None):
    """Multiply group by group, in plain torch that can be differentiated; what belongs to no group is zero."""
    if counts is not None:
        mask = torch.arange(a.shape[1])[:, None] < counts[:, None, None]
        return torch.where(mask, a, 0) @ b.mT
    cuts = [0, *offs.tolist()]
    spans = list(itertools.starmap(slice, itertools.pairwise(cuts)))
    if a.dim() == b.dim() == 2:
        return torch.stack([a[:, span] @ b[:, span].mT for span in spans])
    if a.dim() == 2:
        rest = a.new_zeros(a.shape[0] - cuts[-1], b.shape[1])
        return torch.cat([*(a[span] @ b[g].mT for g, span in enumerate(spans)), rest])
    rest = a.new_zeros(a.shape[1], b.shape[0] - cuts[-1])
    return torch.cat([*(a[g] @ b[span].mT for g, span in enumerate(spans)), rest], 1)


FORMS = {
    "rows": lambda: (integers(110, 72), integers(4, 40, 72), {"offs": ends()}),
    "rows, is_transposed": lambda: (
        integers(110, 72, dtype=BF16),
        integers(4, 72, 40, dtype=BF16).mT,
        {"offs": ends()},
    ),
    "columns": lambda: (integers(4, 40, 72), integers(110, 72), {"offs": ends()}),
    "k": lambda: (integers(110, 40).mT, integers(110, 72).mT, {"offs": ends()}),
    "masked": lambda: (integers(3, 70, 72), integers(3, 40, 72), {"counts": ends(0, 70, 9)}),
}
COPIED = {
    "odd k": lambda: (integers(110, 71), integers(4, 40, 71), {"offs": ends()}),
    "odd n": lambda: (integers(110, 72), integers(4, 41, 72), {"offs": ends()}),
    "no k": lambda: (integers(110, 0), integers(4, 40, 0), {"offs": ends()}),
    "no k, is_transposed": lambda: (integers(110, 0), integers(4, 0, 40).mT, {"offs": ends()}),
    "rows along m": lambda: (integers(72, 110).mT, integers(4, 40, 72), {"offs": ends()}),
    "k along k": lambda: (integers(40, 110), integers(72, 110), {"offs": ends()}),
    "odd m and n of k": lambda: (integers(110, 41).mT, integers(110, 71).mT, {"offs": ends()}),
    "within 16 bytes": lambda: (integers(110 * 72 + 1)[1:].view(110, 72), integers(4, 40, 72), {"offs": ends()}),
    "masked, padded rows": lambda: (integers(3, 80, 80)[:, :70, :72], integers(3, 40, 72), {"counts": ends(0, 70, 9)}),
    "offs apart": lambda: (integers(110, 72), integers(4, 40, 72), {"offs": ends(5, 0, 5, 0, 70, 0, 100, 0)[::2]}),
}


def few(*names):
    """Give all forms, of which those of no such name wait for `make test-deep`."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.deep) for name in FORMS]


SIMILAR = "no k, is_transposed", "odd m and n of k", "masked, padded rows"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.deep) if n in SIMILAR else n for n in (*FORMS, *COPIED)]
)
def test_forms(name):
    """By the reference and by the kernel, into a new result, and into one that keeps what belongs to no group."""
    a, b, groups = {**FORMS, **COPIED}[name]()
    expected = one_by_one(a.float(), b.float(), **groups)
    owned = one_by_one(torch.ones_like(a, dtype=F32), torch.ones_like(b, dtype=F32), **groups) != 0
    if a.shape[-1] == 0 or a.dim() == b.dim() == 2:
        owned = torch.ones_like(expected, dtype=torch.bool)
        if a.dim() == 2 and b.dim() == 3:
            owned[ENDS[-1] :] = False
    results = [grouped_gemm(a, b, **groups)]
    with cutepy.simulate() as run:
        results += [grouped_gemm(a, b, **groups) for _ in range(2)]  # the second call takes the short way
        out = torch.full_like(results[0], 99)
        assert grouped_gemm(a, b, out=out, **groups) is out
    assert len(run.launches) == 3
    for result in (*results, out):
        assert result.dtype == a.dtype
        assert torch.equal(result[owned].float(), expected[owned])
    assert (out[~owned] == 99).all()


@pytest.fixture
def turning(monkeypatch):
    """Have the transposed product chosen, as where it is faster."""
    monkeypatch.setattr(choice, "_TRANSPOSED_FACTOR", 0.0)
    monkeypatch.setattr(op, "_routes", Launches())
    choice._select.cache_clear()
    yield
    choice._select.cache_clear()


@pytest.mark.parametrize("name", ["rows", "k", pytest.param("masked", marks=pytest.mark.deep)])
def test_transposed_products_are_the_same(turning, name):
    a, b, groups, operands, owned = operands_of(name, shared=False)
    expected = in_torch(a.float(), b.float(), operands, **groups)
    with cutepy.simulate() as run:
        result = grouped_gemm(a, b, epilogue=experts, out_dtype=F32, **groups, **operands)
    assert run.launches[0].kernel.startswith("cutepy_grouped_k" if name == "k" else "cutepy_grouped_n")
    assert torch.equal(result[owned], expected[owned])


@pytest.mark.parametrize(
    ("a", "b", "groups"),
    [
        ((110, 72), (4, 40, 72), {"offs": (-4, 30, 30, 200)}),
        ((110, 40), (110, 72), {"offs": (-4, 30, 30, 200)}),
        ((4, 70, 72), (4, 40, 72), {"counts": (-4, 30, 0, 200)}),
    ],
    ids=["rows", "k", "masked"],
)
def test_ends_beyond_either_end_mean_the_same_by_the_reference_and_the_kernel(a, b, groups):
    a, b = integers(*a), integers(*b)
    if a.shape[0] == b.shape[0] == 110:
        a, b = a.mT, b.mT
    groups = {name: ends(*values) for name, values in groups.items()}
    whole = {name: values.clamp(0, 70 if name == "counts" else 110) for name, values in groups.items()}
    shape = grouped_gemm(a, b, **whole).shape
    results = [grouped_gemm(a, b, **given, out=torch.full(shape, 99.0).half()) for given in (whole, groups)]
    with cutepy.simulate():
        results.append(grouped_gemm(a, b, **groups, out=torch.full(shape, 99.0).half()))
    assert torch.equal(results[1], results[0])
    assert torch.equal(results[2], results[0])


def test_a_result_of_another_dtype():
    a, b, groups = FORMS["rows"]()
    with cutepy.simulate():
        result = grouped_gemm(a, b, out_dtype=F32, **groups)
    assert torch.equal(result[:100], one_by_one(a.float(), b.float(), **groups)[:100])


@pytest.mark.parametrize("shapes", [((0, 8), (4, 16, 8)), ((110, 8), (4, 0, 8))])
def test_empty_results_launch_nothing(shapes):
    a, b = (integers(*shape) for shape in shapes)
    with cutepy.simulate() as run:
        assert grouped_gemm(a, b, offs=ends()).shape == (shapes[0][0], shapes[1][1])
    assert run.launches == []


def test_groups_without_any_k_give_zeros():
    with cutepy.simulate() as run:
        result = grouped_gemm(integers(8, 0), integers(16, 0), offs=ends(0, 0))
    assert torch.equal(result, torch.zeros(2, 8, 16).half())
    assert len(run.launches) == 1


@pytest.mark.parametrize(
    ("name", "simulated"),
    [
        *((name, False) for name in FORMS),
        *(pytest.param(n, True, marks=() if n in ("rows", "masked") else pytest.mark.deep) for n in FORMS),
    ],
)
def test_gradients(name, simulated):
    """Rows of no group have no gradient, for any value in them."""
    a, b, groups = FORMS[name]()
    a, b = a.requires_grad_(), b.requires_grad_()
    exact = [x.detach().float().requires_grad_() for x in (a, b)]
    expected = one_by_one(*exact, **groups)
    grad = integers(*expected.shape)
    expected.backward(grad.float())
    if simulated:
        with cutepy.simulate():
            grouped_gemm(a, b, **groups).backward(grad.to(a.dtype))
    else:
        grouped_gemm(a, b, **groups).backward(grad.to(a.dtype))
    for x, y in zip((a, b), exact, strict=True):
        assert torch.equal(x.grad, y.grad.to(a.dtype))


@pytest.mark.parametrize("frozen", [0, 1])
def test_operands_that_no_gradient_needs_are_not_kept(frozen):
    a, b, groups = FORMS["rows"]()
    leaves = [each.requires_grad_() for each in (a, b)]
    operands = [each * 1 for each in leaves]
    operands[frozen] = operands[frozen].detach()
    alive = [weakref.ref(each) for each in operands]
    result = grouped_gemm(*operands, **groups)
    operands.clear()
    assert [each() is not None for each in alive] == [frozen == 0, frozen == 1]
    result.sum().backward()
    assert leaves[1 - frozen].grad.abs().max() > 0


@pytest.mark.parametrize("name", few("rows", "k", "masked"))
def test_second_derivatives(name):
    a, b, groups = FORMS[name]()
    a, b = (x.float().div(8).half().requires_grad_() for x in (a, b))
    exact = [x.detach().double().requires_grad_() for x in (a, b)]
    found = []
    for function, x, y in ((grouped_gemm, a, b), (one_by_one, *exact)):
        result = function(x, y, **groups)
        owned = one_by_one(*(torch.ones_like(z, dtype=F32) for z in exact), **groups) != 0
        total = torch.where(owned, result, 0).square().sum()
        (first,) = torch.autograd.grad(total, x, create_graph=True)
        found.append(torch.autograd.grad(first.sum(), y)[0].double())
    torch.testing.assert_close(*found, rtol=2e-2, atol=0.5)


@pytest.mark.parametrize("name", few("rows", "k", "masked"))
def test_opcheck(name):
    a, b, groups = FORMS[name]()
    (where,) = groups.values()
    along = {"rows": "m", "columns": "n", "k": "k", "masked": "m"}[name.partition(",")[0]]
    arguments = (a.requires_grad_(), b.requires_grad_(), where, along, *PLAIN, None, None, None, [], False, True)
    torch.library.opcheck(torch.ops.cutepy.grouped_gemm.default, arguments)


def test_opcheck_of_out():
    a, b, groups = FORMS["rows"]()
    arguments = (a, b, groups["offs"], "m", *PLAIN, [torch.zeros(110, 40).half()])
    torch.library.opcheck(torch.ops.cutepy.grouped_gemm_out.default, arguments)


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.deep), True])
def test_compiled(dynamic):
    """One graph, without a break, of a layer of experts and its derivative."""
    a, b, groups = FORMS["rows"]()

    def loss(a, b, offs):
        return torch.nn.functional.silu(grouped_gemm(a, b, offs=offs))[:100].float().square().sum()

    found = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)):
        x, y = (z.detach().clone().requires_grad_() for z in (a, b))
        function(x, y, groups["offs"]).backward()
        found.append((x.grad, y.grad))
    for eager, compiled in zip(*found, strict=True):
        assert torch.equal(eager, compiled)


@cutepy.epilogue
def biased(acc, bias: Row):
    return acc + bias


@pytest.mark.parametrize("row", [lambda: torch.ones(40), lambda: torch.ones(4, 40)])
def test_compiled_code_of_any_extents_takes_rows_of_known_ones(row):
    a, b, groups = FORMS["rows"]()

    def biased_product(a, b):
        return grouped_gemm(a, b, epilogue=biased, bias=row(), **groups)[:100]

    torch._dynamo.reset()
    compiled = torch.compile(biased_product, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(a, b), biased_product(a, b))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_code_says_what_shapes_rows_must_have(dynamic):
    a, b, groups = FORMS["rows"]()
    torch._dynamo.reset()
    product = torch.compile(grouped_gemm, fullgraph=True, backend="eager", dynamic=dynamic)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"bias must have shape '?\(.*,\) or \(.*, .*\)'?, got \("):
        product(a, b, epilogue=biased, bias=torch.ones(4, 39), **groups)


def test_autocast_lowers_operands_and_leaves_groups():
    a, b, groups = FORMS["rows"]()
    with torch.autocast("cpu", torch.bfloat16):
        assert grouped_gemm(a.float(), b.float(), **groups).dtype == BF16
        pair, _ = grouped_gemm(a.float(), b.float(), epilogue=gated, bias=torch.zeros(20), **groups)
        assert pair.dtype == BF16


ROWS = {"a": (110, 72), "b": (4, 40, 72)}


@pytest.mark.parametrize(
    ("shapes", "options", "error"),
    [
        ({"a": (72,)}, {}, ValueError),
        ({}, {"offs": None}, ValueError),
        ({}, {"counts": ends()}, ValueError),
        ({"a": (4, 110, 72)}, {}, ValueError),
        ({}, {"offs": ends().long()}, TypeError),
        ({}, {"offs": ends()[None]}, ValueError),
        ({}, {"offs": ends(5, 9)}, ValueError),
        ({"b": (4, 40, 64)}, {}, ValueError),
        ({}, {"out": torch.zeros(110, 41).half()}, ValueError),
        ({}, {"out": torch.zeros(110, 40).half(), "out_dtype": F32}, TypeError),
        ({}, {"out": torch.zeros(40).half().expand(110, 40)}, ValueError),
        ({}, {"out_dtype": torch.int8}, TypeError),
        ({"dtype": torch.float32}, {}, TypeError),
        ({"dtype": torch.float8_e4m3fn}, {}, TypeError),
    ],
)
def test_refusals(shapes, options, error):
    dtype = shapes.pop("dtype", F16) if "dtype" in (shapes := dict(shapes)) else F16
    a, b = (torch.zeros(shape).to(dtype) for shape in {**ROWS, **shapes}.values())
    with refuses(error):
        grouped_gemm(a, b, **{"offs": ends(), **options})


def test_a_result_within_an_input_is_refused():
    a = integers(110, 72)
    with refuses(ValueError):
        grouped_gemm(a, integers(4, 72, 72), offs=ends(), out=a)


def test_more_rows_than_tma_holds_are_refused():
    a, out = (torch.empty(2, dtype=F16).as_strided((2**30 + 1, extent), (0, 0)) for extent in (72, 40))
    with cutepy.simulate(), refuses(ValueError):
        multiply_groups(a, integers(4, 40, 72), ends(), "m", [out])


def test_more_tiles_than_are_counted_are_refused():
    m, n, cpu = 2**30, 2**21, torch.device("cpu")
    a, out = (Description((m, extent), (extent, 1), F16, cpu) for extent in (64, n))
    b = Description((4, n, 64), (64 * n, 64, 1), F16, cpu)
    problem = Problem(cutepy.epilogues.identity.text, a, b, (), (out,))
    with refuses(ValueError):
        op.find_groups_route(problem, "m", 4)


def test_what_is_chosen_is_chosen_for_the_gpu_of_the_tensors(monkeypatch):
    shapes, cpu = ((2048, 2048), (32, 7168, 2048), (2048, 7168)), torch.device("cpu")
    a, b, out = (Description(shape, torch.empty(shape, device="meta").stride(), BF16, cpu) for shape in shapes)
    problem = Problem(cutepy.epilogues.identity.text, a, b, (), (out,))
    monkeypatch.setattr(op, "compile_grouped", lambda config: config)
    kernels = []
    for gpu in (H200, H100):
        monkeypatch.setattr(op, "gpu_of", lambda _, gpu=gpu: gpu)
        route = op.find_groups_route(problem, "m", 32)
        signature = route.kernel.gemm.signature
        asked_for = signature.transposed if route.is_transposed else signature
        chosen = choice.select_grouped(asked_for, "m", (2048, 7168, 2048), 32, gpu=gpu)
        assert (route.is_transposed, route.kernel) == chosen
        kernels.append(route.kernel)
    assert kernels[0] != kernels[1]


@cutepy.epilogue
def experts(acc, bias: Row, weight: Column, residual: Tile, scale: Scalar):
    """The epilogue of a layer of experts: a bias of each expert, a weight of each token, and a residual."""
    return (acc + bias) * weight + residual * scale


@cutepy.epilogue
def gated(acc, bias: Row):
    gate, up = acc.interleaved(2)
    return (gate + bias) * up, acc * 0.5


def in_torch(a, b, operands, offs=None, counts=None):
    """Compute `experts` by hand."""
    acc = one_by_one(a, b, offs, counts)
    bias, weight = operands["bias"], operands["weight"]
    if acc.dim() == 2:
        mode = 0 if a.dim() == 2 else 1
        of = torch.bucketize(torch.arange(acc.shape[mode]), offs, right=True).clamp(max=len(offs) - 1)
        bias = bias[of] if bias.dim() == 2 else bias
        weight = weight[of].mT if weight.dim() == 2 else weight[:, None]
    else:
        bias, weight = bias[:, None] if bias.dim() == 2 else bias, weight[..., None]
    return (acc + bias) * weight + operands["residual"] * operands["scale"]


def operands_of(name, shared):
    """Small integers of the shapes that the form takes, one for each group unless shared, and who owns the result."""
    a, b, groups = FORMS[name]()
    shape, (where,) = one_by_one(a.float(), b.float(), **groups).shape, groups.values()
    m, n, each = *shape[-2:], () if shared else (len(where),)
    bias = integers(*(() if name == "columns" else each), n, dtype=F32)
    weight = integers(*(() if "rows" in name else each), m, dtype=a.dtype)
    owned = torch.ones(shape, dtype=torch.bool)
    if name == "masked":
        owned &= torch.arange(m)[:, None] < where[:, None, None]
    elif name != "k":
        owned[(slice(ENDS[-1], None),) if "rows" in name else (slice(None), slice(ENDS[-1], None))] = False
    residual = integers(*shape, dtype=BF16)
    return a, b, groups, {"bias": bias, "weight": weight, "residual": residual, "scale": 2.0}, owned


@pytest.mark.parametrize(
    ("name", "shared"),
    [
        *((name, False) for name in FORMS),
        *(pytest.param(name, True, marks=() if name == "rows" else pytest.mark.deep) for name in FORMS),
    ],
)
def test_epilogues(name, shared):
    a, b, groups, operands, owned = operands_of(name, shared)
    expected = in_torch(a.float(), b.float(), operands, **groups)
    with cutepy.simulate() as run:
        simulated = grouped_gemm(a, b, epilogue=experts, out_dtype=F32, **groups, **operands)
    assert len(run.launches) == 1
    for result in (simulated, grouped_gemm(a, b, epilogue=experts, out_dtype=F32, **groups, **operands)):
        assert torch.equal(result[owned], expected[owned])


def test_an_epilogue_of_several_results_and_odd_columns():
    a, b, groups = integers(110, 72), integers(4, 44, 72), {"offs": ends()}
    bias = integers(22, dtype=F32)
    acc = one_by_one(a.float(), b.float(), **groups)
    with cutepy.simulate():
        pair, half = grouped_gemm(a, b, epilogue=gated, bias=bias, out_dtype=F32, **groups)
    assert torch.equal(pair[:100], ((acc[:, 0::2] + bias) * acc[:, 1::2])[:100])
    assert torch.equal(half[:100], acc[:100] / 2)


@cutepy.epilogue
def random(acc, seed: Integer):
    return epilogues.uniform(acc, seed) + 0.0 * acc


@pytest.mark.parametrize("name", few("rows", "masked"))
def test_groups_with_matrices_of_their_own_have_random_numbers_of_their_own(name):
    a, b, groups, _, owned = operands_of(name, shared=True)
    with cutepy.simulate():
        simulated = grouped_gemm(a, b, epilogue=random, seed=5, out_dtype=F32, **groups)
    for result in (simulated, grouped_gemm(a, b, epilogue=random, seed=5, out_dtype=F32, **groups)):
        assert torch.equal(result[owned], random(torch.zeros(owned.shape), 5)[owned])


@pytest.mark.parametrize("name", FORMS)
def test_gradients_of_epilogues(name):
    a, b, groups, operands, owned = operands_of(name, shared=False)
    tensors = {"a": a, "b": b, **{key: operands[key] for key in ("bias", "weight", "residual")}}
    grad = integers(*owned.shape, dtype=F32)
    found = []
    for dtype in (None, torch.float64):
        given = {key: each.detach().to(dtype or each.dtype).requires_grad_() for key, each in tensors.items()}
        x, y, rest = given["a"], given["b"], {key: given[key] for key in ("bias", "weight", "residual")} | {"scale": 2}
        if dtype is None:
            result = grouped_gemm(x, y, epilogue=experts, out_dtype=F32, **groups, **rest)
        else:
            result = in_torch(x, y, rest, **groups)
        torch.where(owned, result, 0).backward(grad.to(result.dtype))
        found.append([each.grad.double() for each in given.values()])
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-2, atol=1e-2)


def test_an_epilogue_compiled():
    a, b, groups, operands, _ = operands_of("rows", shared=False)

    def layer(a, b, offs, bias, weight, residual):
        rest = {"bias": bias, "weight": weight, "residual": residual, "scale": 2.0}
        return grouped_gemm(a, b, offs=offs, epilogue=experts, **rest)[:100]

    arguments = (a, b, groups["offs"], *(operands[key] for key in ("bias", "weight", "residual")))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*arguments), layer(*arguments))


def test_opcheck_of_an_epilogue():
    a, b, groups, operands, _ = operands_of("rows", shared=False)
    tensors = [operands[key] for key in ("bias", "weight", "residual")]
    arguments = (a, b, groups["offs"], "m", tensors, [2.0], "tttn", experts.text, F16)
    torch.library.opcheck(torch.ops.cutepy.grouped_gemm.default, arguments)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"bias": torch.zeros(40)}, TypeError),
        ({"epilogue": gated}, ValueError),
        ({"epilogue": gated, "bias": torch.zeros(19)}, ValueError),
        ({"epilogue": gated, "bias": torch.zeros(20).int()}, ValueError),
        ({"epilogue": gated, "bias": torch.zeros(20), "out": torch.zeros(1)}, TypeError),
        ({"epilogue": len}, TypeError),
        ({"epilogue": cutepy.epilogue(lambda acc: acc.sum(1))}, ValueError),
    ],
)
def test_refusals_of_epilogues(options, error):
    with refuses(error):
        grouped_gemm(integers(110, 72), integers(4, 40, 72), offs=ends(), **options)


@cutepy.epilogue
def in_bytes(acc):
    return acc.to(torch.float8_e4m3fn)


@pytest.mark.parametrize("options", [{"epilogue": gated, "bias": torch.zeros(55)}, {"epilogue": in_bytes}])
def test_groups_of_columns_have_neither_pairs_of_them_nor_bytes(options):
    with refuses(ValueError):
        grouped_gemm(integers(4, 40, 72), integers(110, 72), offs=ends(), **options)


@cutepy.epilogue
def quotient(acc, t: Tile, bias: Row, factor: Scalar):
    return factor * t * bias / acc


@pytest.mark.parametrize("form", ["rows", "masked"])
def test_what_belongs_to_no_group_has_no_part_in_gradients(form):
    """Whatever is there: a tile has NaN, and the sums are zero."""
    rows, groups = ((110,), {"offs": ends()}) if form == "rows" else ((4, 25), {"counts": ends(0, 5, 20, 25)})
    a, b = torch.ones(*rows, 8).half(), torch.ones(4, 40, 8).half()
    t = torch.ones(*rows, 40)
    owned = grouped_gemm(a, b, out=torch.zeros(*rows, 40), **groups) != 0
    t[~owned] = float("nan")
    operands = {"t": t, "bias": torch.ones(40), "factor": torch.tensor(2.0)}
    for each in operands.values():
        each.requires_grad_()
    grouped_gemm(a, b, epilogue=quotient, out_dtype=F32, **groups, **operands)[owned].sum().backward()
    count = owned.sum() / 40
    assert torch.equal(operands["bias"].grad, (count * 2 / 8).expand(40))
    assert torch.equal(operands["factor"].grad, count * 40 / 8)
    assert torch.equal(operands["t"].grad, torch.where(owned, 0.25, 0.0))
