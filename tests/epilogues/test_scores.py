"""Score and mask functions of attention become graphs that compute what FlexAttention computes, with derivatives."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import (  # noqa: E402
    _identity,
    _vmap_for_bhqkv,
    and_masks,
    create_mask,
    noop_mask,
    or_masks,
)

from cutepy.epilogues import EpilogueError, Graph  # noqa: E402
from cutepy.epilogues.derivatives import ADJOINTS, tables_derived, with_derivative  # noqa: E402
from cutepy.epilogues.operations import PRIMITIVES  # noqa: E402
from cutepy.epilogues.reference import compute_scores  # noqa: E402
from cutepy.epilogues.scores import trace_scores  # noqa: E402

BATCH, HEADS, QUERIES, KEYS = 2, 4, 36, 49
torch.manual_seed(0)
SLOPES = torch.rand(HEADS)
DOCUMENTS = torch.randint(0, 3, (BATCH, KEYS))
OFFSETS = torch.tensor([0, 10, 30, KEYS], dtype=torch.int32)
DOCUMENT_OF = torch.repeat_interleave(torch.arange(3), OFFSETS.diff())
TABLE = torch.randn(HEADS, QUERIES + KEYS)
INTERVALS = torch.tensor([[0, 9], [5, 30], [20, 36]])
VISIBLE = torch.rand(QUERIES, KEYS) > 0.5
CAP = torch.tensor(2.5)


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i - j).abs() <= 9


def prefix(b, h, i, j):
    return j < OFFSETS[b + 1]


def documents(b, h, i, j):
    return DOCUMENTS[b, i] == DOCUMENTS[b][j]


def inner_documents(b, h, i, j):
    i_inside, j_inside = i - OFFSETS[DOCUMENT_OF[i]], j - OFFSETS[DOCUMENT_OF[j]]
    return (DOCUMENT_OF[i] == DOCUMENT_OF[j]) & causal(b, h, i_inside, j_inside)


def dilated(b, h, i, j):
    apart = torch.abs(i - j)
    return (apart <= 12) & (apart % 3 == 0)


def neighbourhood(b, h, i, j):
    centre_x, centre_y = (i // 6).clamp(1, 4), (i % 6).clamp(2, 3)
    return ((centre_x - j // 6).abs() <= 1) & ((centre_y - j % 6).abs() <= 2)


def crossing(b, h, i, j):
    interval = INTERVALS[j // 17]
    return (i >= interval[0]) & (i < interval[1])


def blocked(b, h, i, j):
    return torch.where(DOCUMENT_OF[j] >= 1, causal(b, h, i, j * 1), False)


class Visible:
    def __init__(self):
        self.table = VISIBLE

    def __call__(self, b, h, i, j):
        return self.table[i, j] & (h.to(torch.int64) > 0)


MASKS = {
    "causal": causal,
    "composed": or_masks(prefix, and_masks(causal, window), documents),
    "inner documents": inner_documents,
    "dilated": dilated,
    "neighbourhood": neighbourhood,
    "crossing": crossing,
    "blocked": blocked,
    "object": Visible(),
    "truth values": lambda b, h, i, j: (i & 4).to(torch.bool) & (j >= 2).to(torch.bool),
    "lambda": lambda b, h, i, j: (h < 2) | ((i ^ j) & 1 == 0),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_those_of_torch(name):
    mask = MASKS[name]
    traced = trace_scores(None, mask)
    assert Graph.parse(traced.graph.text) == traced.graph
    found = compute_scores(traced.graph, torch.zeros(()).expand(BATCH, HEADS, QUERIES, KEYS), traced.tensors)["mask"]
    wanted = create_mask(mask, BATCH, HEADS, QUERIES, KEYS, device="cpu")
    assert torch.equal(found.expand(wanted.shape), wanted)


def alibi(score, b, h, i, j):
    return score + (j - i) * torch.exp2(-((h + 1) * 8.0 / HEADS))


def capped(score, b, h, i, j):
    return CAP * torch.tanh(score / CAP)


def approximated(score, b, h, i, j):
    return Approximated.apply(score)


class Approximated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * (1 - result * result)


SCORES = {
    "alibi": alibi,
    "slopes": lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs(),
    "soft cap": capped,
    "soft cap by its own function": approximated,
    "relative": lambda s, b, h, i, j: s + TABLE[h, i - j + KEYS],
    "from the end": lambda s, b, h, i, j: s + TABLE[h, i - j],
    "hidden": lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf")),
    "chosen": lambda s, b, h, i, j: torch.where(torch.abs(j - i) % 2 == 1, s * 0.5, s * 2),
    "activation": lambda s, b, h, i, j: torch.nn.functional.gelu(s) * s.sigmoid() + s**3 / 7,
    "extremes": lambda s, b, h, i, j: s.clamp(max=1.0).maximum(-s).minimum(torch.tensor(0.7)),
    "powers": lambda s, b, h, i, j: torch.exp(-s * s) + torch.sqrt(s * s + 1.0) + (s.abs() + 1).log2() - s.cos(),
    "more powers": lambda s, b, h, i, j: torch.exp2(s) + torch.rsqrt(s.abs() + 2) + (s**2 + 1).log() + s.sin(),
    "rest": lambda s, b, h, i, j: torch.erf(s) - s.floor() * s + torch.nn.functional.silu(s) + s.float(),
    "not of the product": lambda s, b, h, i, j: SLOPES[h] * j,
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_and_their_derivatives_are_those_of_torch(name):
    function = SCORES[name]
    traced = trace_scores(function)
    assert Graph.parse(traced.graph.text) == traced.graph
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    graph = with_derivative(traced.graph)
    assert Graph.parse(graph.text) == graph
    found = compute_scores(graph, scores, traced.tensors, torch.float64)
    given = scores.clone().requires_grad_()
    places = (torch.arange(extent) for extent in scores.shape)
    wanted = _vmap_for_bhqkv(function, prefix=(0,))(given, *places)
    assert torch.allclose(found["score"].expand(wanted.shape), wanted.detach().double(), rtol=1e-5, atol=1e-6)
    if wanted.requires_grad:
        (grad,) = torch.autograd.grad(wanted.masked_fill(wanted.isinf(), 0.0).sum(), given)
        derivative = found.get("derivative", torch.ones(()).double())  # left out where it is 1
        assert torch.allclose(derivative.expand(grad.shape), grad, rtol=1e-5, atol=1e-6)
    else:
        assert not found["derivative"].any()


LEARNED = torch.randn(HEADS, QUERIES + KEYS, dtype=torch.float64)
OF_HEADS, ONE = torch.rand(HEADS, dtype=torch.float64), torch.tensor(1.5, dtype=torch.float64)

DERIVED = {
    "bias": lambda s, b, h, i, j: s + LEARNED[h, i - j + KEYS],
    "read twice, from the end too": lambda s, b, h, i, j: s * LEARNED[h, i - j] + LEARNED[b, i],
    "slopes": lambda s, b, h, i, j: s - OF_HEADS[h] * (i - j).abs(),
    "one element, within functions": lambda s, b, h, i, j: torch.tanh(s * ONE) / (OF_HEADS[h] + LEARNED[h, j] ** 2),
    "not of the product": lambda s, b, h, i, j: LEARNED[h, i] * 2.0,
    "where": lambda s, b, h, i, j: torch.where(LEARNED[h, i] > 0, s * OF_HEADS[h], LEARNED[h, j]),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derivatives_by_elements_of_tables_are_those_of_torch(name):
    traced = trace_scores(DERIVED[name])
    tables = tables_derived(traced.graph, [table.name for table in traced.graph.tables])
    graph = with_derivative(traced.graph, tables=tables)
    assert Graph.parse(graph.text) == graph
    assert Graph.parse(graph.transposed.text) == graph.transposed
    scores = torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64)
    differences = torch.randn_like(scores)
    found = compute_scores(graph, scores, traced.tensors, torch.float64, differences=differences)
    sums = {name: 0.0 for name in tables}
    for result in graph.results:
        if result.name.startswith("gradient"):
            sums[graph.nodes[result.node].value] += found[result.name]
    places = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
    for each in traced.tensors:
        each.requires_grad_()
    wanted = DERIVED[name](scores, *places)
    grads = torch.autograd.grad((wanted * differences).sum(), traced.tensors)
    for table, each, grad in zip(traced.graph.tables, traced.tensors, grads, strict=True):
        each.requires_grad_(False)
        assert torch.allclose(sums[table.name], grad)


def test_masks_and_comparisons_have_no_derivatives_by_tables():
    function = lambda s, b, h, i, j: torch.where(SLOPES[h] > 0.5, s, TABLE[h, j].floor())  # noqa: E731
    graph = trace_scores(function, lambda b, h, i, j: CAP > j).graph
    assert len(graph.tables) == 3
    assert tables_derived(graph, ("t0", "t1", "t2")) == ()
    assert tables_derived(trace_scores(None, lambda b, h, i, j: CAP > j).graph, ("t0",)) == ()


def test_every_operation_on_floats_has_a_derivative():
    of_floats = {op for op, primitive in PRIMITIVES.items() if "f32" in primitive.takes and not primitive.gives}
    assert of_floats <= ADJOINTS.keys()


def test_rounding_passes_what_is_within_range():
    graph = with_derivative(trace_scores(lambda s, b, h, i, j: s.to(torch.float8_e4m3fn) + s.to(torch.bfloat16)).graph)
    found = compute_scores(graph, torch.tensor([[[[1.0, 500.0]]]]), ())
    assert found["derivative"].flatten().tolist() == [2.0, 1.0]


def test_what_changes_nothing_leaves_no_result():
    assert not trace_scores(_identity, noop_mask)
    assert not trace_scores(_identity, and_masks())
    assert [each.name for each in trace_scores(_identity, causal).graph.results] == ["mask"]


def test_counts_and_operands_are_parameters():
    def score(s, b, h, i, j, slopes, *, queries, keys):
        return s - slopes[h] * (i + keys - queries - j)

    traced = trace_scores(score, operands={"slopes": SLOPES})
    assert traced.tensors[0] is SLOPES
    found = compute_scores(traced.graph, torch.zeros(1, HEADS, 3, 5), traced.tensors)["score"]
    assert torch.equal(found[0, 1, :, 0], -SLOPES[1] * torch.tensor([2.0, 3.0, 4.0]))
    with refuses(EpilogueError):
        trace_scores(score, operands={"slopes": SLOPES, "other": 3})


def test_a_part_of_the_queries_is_computed_alone():
    traced = trace_scores(None, window)
    whole = compute_scores(traced.graph, torch.zeros(1, 1, 20, 30), ())["mask"]
    part = compute_scores(traced.graph, torch.zeros(1, 1, 8, 30), (), first=12, queries=20)["mask"]
    assert torch.equal(whole[12:], part)


def refused_branch(s, b, h, i, j):
    return s if i > j else -s


def refused_slice(s, b, h, i, j):
    return s + TABLE[h, :]


def refused_vector(s, b, h, i, j):
    return s + TABLE[h]


def refused_vector_alone(s, b, h, i, j):
    return s * (2 * TABLE[h])


def refused_whole(s, b, h, i, j):
    return s * SLOPES


def refused_float_index(s, b, h, i, j):
    return s + SLOPES[s]


def refused_dot(s, b, h, i, j):
    return s + torch.dot(TABLE[h], TABLE[h])


def refused_reduction(s, b, h, i, j):
    return s - s.max()


def refused_too_many(s, b, h, i, j):
    return s + SLOPES[h, i]


def refused_type(s, b, h, i, j):
    return s + torch.complex(SLOPES, SLOPES)[h]


def refused_empty(s, b, h, i, j):
    return s + torch.zeros(0)[h]


def refused_function(s, b, h, i, j):
    return torch.softmax(s, -1)


def refused_numpy(s, b, h, i, j):
    return s + TABLE.numpy()[h]


@pytest.mark.parametrize(
    "function",
    [
        refused_branch,
        refused_slice,
        refused_vector,
        refused_vector_alone,
        refused_whole,
        refused_float_index,
        refused_dot,
        refused_reduction,
        refused_too_many,
        refused_type,
        refused_empty,
        refused_function,
        refused_numpy,
    ],
)
def test_what_no_kernel_computes_is_refused_at_its_line(function):
    with refuses(EpilogueError) as caught:
        trace_scores(function)
    assert caught.value.line.function == function.__name__
    assert caught.value.line.number > function.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("score", "mask"),
    [
        (lambda s, b, h, i, j: s > 0, None),
        (lambda s, b, h, i, j: None, None),
        (None, lambda b, h, i, j: i - j),
        (None, 3),
        (lambda s: s, None),
        (lambda s, b, h, i, j, z: s * z, None),
        (None, lambda b, h, i, j, *, shift: i > j + shift),
    ],
)
def test_results_of_other_types_and_other_parameters_are_refused(score, mask):
    with refuses(EpilogueError):
        trace_scores(score, mask)


def test_equal_functions_have_one_text():
    def made(cap):
        return lambda s, b, h, i, j: cap * torch.tanh(s / cap)

    assert trace_scores(made(3.0)).graph == trace_scores(made(3.0)).graph
    assert trace_scores(made(3.0)).graph != trace_scores(made(math.pi)).graph
