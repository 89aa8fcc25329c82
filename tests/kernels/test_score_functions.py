"""Attention with functions of its scores, block masks and sinks in the simulator, against FlexAttention in float64."""

import math
import warnings
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutlass.cute as cute  # noqa: E402
from hypothesis import given, settings, strategies as st  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import score_functions  # noqa: E402
from cutepy.epilogues import EpilogueError  # noqa: E402
from cutepy.epilogues.scores import alibi, soft_cap, trace_scores  # noqa: E402
from cutepy.kernels.attention.choice import choose_backward, choose_forward  # noqa: E402
from cutepy.kernels.attention.config import ScoreSettings  # noqa: E402
from cutepy.kernels.attention.op import compile_backward, compile_forward, table_dtype  # noqa: E402
from cutepy.ops import attention, block_mask, flex_attention  # noqa: E402
from tests.messages import refuses  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
HEADS, QUERIES, KEYS = 2, 70, 130


def tensors(dtype=torch.bfloat16, batch=1, queries=QUERIES, keys=KEYS, heads=HEADS, kv_heads=1, head=64):
    torch.manual_seed(queries * 1000 + keys + head)
    shapes = (heads, queries, head), (kv_heads, keys, head), (kv_heads, keys, head)
    return [torch.randn(batch, *shape).to(dtype) for shape in shapes]


def probabilities(q, k, score, mask, sinks):
    """Compute what FlexAttention does, in float64 with gradients, which its own eager form has not on a CPU."""
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5
    if score is not None:
        places = (torch.arange(extent) for extent in scores.shape)
        scores = 0.0 * scores + flex._vmap_for_bhqkv(score, prefix=(0,))(scores, *places)
    if mask is not None:
        scores = scores.masked_fill(~flex.create_mask(mask, *scores.shape, device="cpu"), -math.inf)
    lse = scores.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks[:, None])
    return torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse)[..., None]), lse


def apart(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-9))


def check(compute, q, k, v, *, score=None, mask=None, sinks=None, simulated=True, loose=1.0):
    """Compare `compute(q, k, v, sinks)`, O and logarithms with heads first, and gradients, with float64."""
    given = [each.clone().requires_grad_() for each in (q, k, v, *([] if sinks is None else [sinks]))]

    def run():
        o, lse = compute(*given[:3], *given[3:])
        do, dlse = torch.randn_like(o), torch.randn_like(lse)
        return o.detach(), lse.detach(), do, dlse, torch.autograd.grad((o, lse), given, (do, dlse))

    if simulated:
        with cutepy.simulate(sanitize=True) as found:
            o, lse, do, dlse, grads = run()
        assert not found.hazards
    else:
        o, lse, do, dlse, grads = run()
    wide = [each.detach().double().requires_grad_() for each in given]
    p, wanted_lse = probabilities(*wide[:2], score, mask, wide[3] if sinks is not None else None)
    wanted = p @ wide[2].repeat_interleave(q.shape[1] // v.shape[1], 1)
    seen = wanted_lse != -math.inf
    wanted_grads = torch.autograd.grad(
        (wanted, wanted_lse.masked_fill(~seen, 0.0)), wide, (do.double(), dlse.double()), allow_unused=True
    )
    roundoff = ROUNDOFF[q.dtype]
    wanted, wanted_lse = wanted.detach(), wanted_lse.detach()
    assert apart(o, wanted) < roundoff * loose
    assert torch.equal(lse != -math.inf, seen)
    assert (lse - wanted_lse).masked_fill(~seen, 0.0).abs().max() < 1e-4
    for grad, want in zip(grads, wanted_grads, strict=True):
        assert apart(grad, torch.zeros_like(grad) if want is None else want) < 2 * roundoff * loose
    return o, lse


def heads_first(**options):
    """Make a function of `cutepy.ops.attention` on tensors with heads first."""

    def compute(q, k, v, sinks=None):
        turned = (each.transpose(1, 2) for each in (q, k, v))
        o, lse = attention(*turned, sinks=sinks, return_lse=True, **options)
        return o.transpose(1, 2), lse

    return compute


def flexed(**options):
    return lambda q, k, v: flex_attention(q, k, v, enable_gqa=True, return_lse=True, **options)


TABLE = torch.randn(HEADS, QUERIES + KEYS, generator=torch.Generator().manual_seed(0))
SLOPES = torch.tensor([0.5, 0.0625])
DOCUMENTS = torch.arange(KEYS).view(1, KEYS) // 37
VISIBLE = torch.arange(KEYS) % 7 != 3


def causal(b, h, i, j):
    return i >= j


def documents(b, h, i, j):
    return (DOCUMENTS[b, i] == DOCUMENTS[b, j]) | (j < 3)


def relative(s, b, h, i, j):
    return s + TABLE[h, i - j + KEYS]


SCORES = {
    "relative bias": (relative, documents),
    "from the end of the table": (lambda s, b, h, i, j: s + TABLE[h, i - j], None),
    "infinite elsewhere": (lambda s, b, h, i, j: torch.log(s * s + 1e-3) * 2, lambda b, h, i, j: VISIBLE[j]),
    "hidden by the score": (lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf")), None),
    "not of the products": (lambda s, b, h, i, j: (j - i) * SLOPES[h], causal),
    "inexact at infinity": (lambda s, b, h, i, j: s / (s.abs() - s.abs() + (j < KEYS)), None),
}


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "name", [name if name == "relative bias" else pytest.param(name, marks=pytest.mark.integration) for name in SCORES]
)
def test_functions_are_those_of_flex_attention(name):
    score, mask = SCORES[name]
    q, k, v = tensors()
    compute = heads_first(score=score, mask=mask)
    o, _ = check(compute, q, k, v, score=score, mask=mask, loose=4.0 if "infinite" in name else 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks = None if mask is None else flex.create_block_mask(mask, 1, HEADS, QUERIES, KEYS, device="cpu")
        wide = (each.double() for each in (q, k, v))
        wanted = flex.flex_attention(*wide, score_mod=score, block_mask=blocks, enable_gqa=True)
    assert apart(o, wanted) < ROUNDOFF[q.dtype]


def capped(s, b, h, i, j):
    return 3.0 * torch.tanh(s / 3.0)


def biased(s, b, h, i, j):
    return s - SLOPES[h] * (i + KEYS - QUERIES - j).abs()


def both(s, b, h, i, j):
    return biased(capped(s, b, h, i, j), b, h, i, j)


@pytest.mark.deep
@pytest.mark.parametrize("simulated", [pytest.param(True, marks=pytest.mark.integration), False])
def test_soft_cap_slopes_and_sinks(simulated):
    q, k, v = tensors()
    check(heads_first(soft_cap=3.0), q, k, v, score=capped, simulated=simulated)
    check(heads_first(alibi_slopes=SLOPES), q, k, v, score=biased, simulated=simulated)
    sinks = torch.tensor([2.0, -1.0])
    hidden = lambda b, h, i, j: (i >= 8) & (j <= i + KEYS - QUERIES)  # noqa: E731
    compute = heads_first(soft_cap=3.0, alibi_slopes=SLOPES[None], causal=True, mask=lambda b, h, i, j: i >= 8)
    o, lse = check(compute, q, k, v, score=both, mask=hidden, sinks=sinks, simulated=simulated)
    assert not o[:, :, :8].any()
    assert torch.equal(lse[0, :, :8], sinks[:, None].expand(2, 8))


def test_rows_that_see_nothing_and_sinks_of_minus_infinity():
    """The first 8 of 16 queries see none of 8 keys; no sink of the first head joins their sums."""
    q, k, v = tensors(queries=16, keys=8)
    given = q, k, v, torch.tensor([-math.inf, 1.0])
    with cutepy.simulate():
        o, lse = heads_first(causal=True)(*given)
    plain, _ = heads_first(causal=True)(*given)
    assert (o - plain).abs().max() < 0.02
    assert not o[:, :, :8].any()
    assert torch.equal(lse[0, :, :8], torch.tensor([-math.inf, 1.0])[:, None].expand(2, 8))
    assert o.isfinite().all()
    assert lse[:, :, 8:].isfinite().all()


@pytest.mark.deep
@pytest.mark.integration
def test_sinks_far_from_the_scores():
    q, k, v = tensors()
    check(heads_first(), q, k, v, sinks=torch.tensor([300.0, -300.0]), loose=2.0)
    with cutepy.simulate():
        o, _ = heads_first()(q, k, v, torch.tensor([math.inf, -math.inf]))
        plain, _ = heads_first()(q, k, v)
    assert torch.equal(o[:, 1], plain[:, 1])


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.parametrize("size", [128, (128, 256)])
def test_block_masks_of_torch_and_ours(size):
    queries, keys = 300, 270

    def mask(b, h, i, j):
        return ((j < 100) | (h > 0)) & (i > 130) & (i + 60 > j)

    q, k, v = tensors(queries=queries, keys=keys)
    made = (
        flex.create_block_mask(mask, None, HEADS, queries, keys, device="cpu", BLOCK_SIZE=size),
        block_mask(mask, queries, keys, heads=HEADS, device="cpu", block_size=size),
    )
    for blocks in made[int(size == 128) :]:
        check(flexed(block_mask=blocks, score_mod=capped), q, k, v, score=capped, mask=mask)


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.parametrize(("head", "head_v"), [(128, 128), (256, 256), (160, 160)])
def test_block_masks_of_wide_rows(head, head_v):
    q, k, v = tensors(queries=150, keys=140, head=head)
    v = v[..., :head_v]
    blocks = block_mask(causal, 150, 140, device="cpu")
    with cutepy.simulate(sanitize=True) as run:
        o, _ = flexed(block_mask=blocks)(q, k, v)
    assert not run.hazards
    p, _ = probabilities(q.double(), k.double(), None, causal, None)
    assert apart(o, p @ v.double()) < ROUNDOFF[q.dtype]


@pytest.mark.deep
@pytest.mark.integration
def test_gradients_of_wide_rows_with_functions_and_block_masks():
    q, k, v = tensors(queries=150, keys=140, head=192)
    blocks = block_mask(causal, 150, 140, device="cpu")
    check(flexed(block_mask=blocks, score_mod=capped), q, k, v[..., :128], score=capped, mask=causal)


def test_a_block_mask_alone_decides_which_blocks_are_read():
    q, k, v = tensors(queries=128, keys=256)
    counts, indices = torch.tensor([[[0]]], dtype=torch.int32), torch.tensor([[[[1, 0]]]], dtype=torch.int32)
    blocks = flex.BlockMask.from_kv_blocks(counts, indices, counts + 1, indices, mask_mod=lambda b, h, i, j: j < 0)
    check(flexed(block_mask=blocks), q, k, v, mask=lambda b, h, i, j: j >= 128)


@pytest.mark.deep
@pytest.mark.integration
def test_tables_of_any_type_and_strides():
    q, k, v = tensors()
    for table in (
        torch.randn(KEYS, HEADS).half().T,
        torch.randn(HEADS, KEYS).double(),
        torch.randint(-3, 3, (HEADS, KEYS)),
        torch.randint(0, 3, (HEADS, KEYS), dtype=torch.uint8),
        torch.randn(1, KEYS).bfloat16().expand(HEADS, KEYS),
    ):
        score = lambda s, b, h, i, j, table=table: s + table[h, j]  # noqa: E731
        with cutepy.simulate(sanitize=True) as run:
            o, _ = heads_first(score=score)(q, k, v)
        assert not run.hazards
        p, _ = probabilities(q.double(), k.double(), score, None, None)
        assert apart(o, p @ v.double()) < ROUNDOFF[q.dtype]


def test_tables_are_not_read_beyond_their_ends():
    q, k, v = tensors()
    ids = torch.arange(QUERIES)
    with cutepy.simulate(sanitize=True) as run:
        heads_first(mask=lambda b, h, i, j: ids[i] >= ids[j * 5 - 200])(q, k, v)
    assert not run.hazards


@pytest.mark.deep
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_any_composition(data):
    number = st.floats(-2.0, 2.0).map(lambda x: round(x, 2))
    leaves = st.one_of(
        st.just(lambda s, b, h, i, j: s),
        number.map(lambda x: lambda s, b, h, i, j: x),
        st.just(lambda s, b, h, i, j: TABLE[h, i - j]),
        st.just(lambda s, b, h, i, j: (i % 5 - j // 7) * 0.1),
    )
    unary = st.sampled_from([torch.tanh, torch.sigmoid, torch.abs, torch.sin, torch.erf, lambda x: x * x * 0.1])
    binary = st.sampled_from([torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum])

    def lifted(x, s):
        return x if not isinstance(x, float) else s * 0.0 + x

    def applied(f, x):
        return lambda s, *places: f(lifted(x(s, *places), s))

    def combined(f, x, y):
        return lambda s, *places: f(lifted(x(s, *places), s), lifted(y(s, *places), s))

    def chosen(x, y, n):
        def choose(s, b, h, i, j):
            return torch.where((i + j) % n == 0, lifted(x(s, b, h, i, j), s), lifted(y(s, b, h, i, j), s))

        return choose

    def joined(children):
        return st.one_of(
            st.builds(applied, unary, children),
            st.builds(combined, binary, children, children),
            st.builds(chosen, children, children, st.integers(1, 5)),
        )

    score = data.draw(st.recursive(leaves, joined, max_leaves=6))
    wrapped = lambda s, b, h, i, j: lifted(score(s, b, h, i, j), s)  # noqa: E731
    queries, keys = data.draw(st.integers(1, QUERIES)), data.draw(st.integers(1, KEYS))
    distance = data.draw(st.integers(0, 150))
    mask = lambda b, h, i, j: (i - j).abs() <= distance  # noqa: E731
    q, k, v = tensors(queries=queries, keys=keys, dtype=data.draw(st.sampled_from([*ROUNDOFF])))
    check(heads_first(score=wrapped, mask=mask), q, k, v, score=wrapped, mask=mask, loose=3.0)


def functions(score, mask=None):
    traced = trace_scores(score, mask)
    return ScoreSettings(traced.graph.text, tuple(map(table_dtype, traced.tensors)))


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("score", [soft_cap(30.0), alibi(SLOPES), capped])
def test_kernels_of_soft_cap_and_slopes_do_not_spill(score, right):
    scoring = functions(score)
    for function in (
        compile_forward(replace(choose_forward("bfloat16", 128, 128, 4096, left=False, right=right), scoring=scoring)),
        compile_backward(choose_backward("bfloat16", 128, 128, left=False, right=right, scoring=scoring)),
    ):
        assert function.resources[0].spill_store_bytes == 0


def test_torch_compiles_and_checks_it():
    q, k, v = (each.requires_grad_() for each in tensors(kv_heads=HEADS, keys=QUERIES))
    blocks = block_mask(causal, QUERIES, QUERIES, device="cpu")

    def biased(s, b, h, i, j, bias):
        return relative(s, b, h, i, j) * bias[h]

    def compute(q, k, v, bias):
        turned = (each.transpose(1, 2) for each in (q, k, v))
        capped = attention(*turned, soft_cap=2.0, alibi_slopes=bias, sinks=bias, score=biased, operands={"bias": bias})
        return capped.transpose(1, 2) + flex_attention(q, k, v, score_mod=relative, block_mask=blocks)

    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    for bias in (SLOPES, 2 * SLOPES):
        assert torch.equal(compiled(q, k, v, bias), compute(q, k, v, bias))
    bias = SLOPES.clone().requires_grad_()
    grads = (torch.autograd.grad(each(q, k, v, bias).sum(), (q, bias)) for each in (compiled, compute))
    assert all(torch.equal(one, other) for one, other in zip(*grads, strict=True))
    sinks, text = SLOPES.clone().requires_grad_(), trace_scores(relative, causal).graph.line
    turned = [each.detach().transpose(1, 2).requires_grad_() for each in (q, k, v)]
    torch.library.opcheck(
        torch.ops.cutepy.scored_attention.default,
        (*turned, sinks, [TABLE.clone().requires_grad_()], [], text, [], 0.125, None, None, False),
    )


@pytest.mark.parametrize("options", [{"soft_cap": 2.0}, {"mask": causal}, {"dropout_p": 1.0}])
def test_a_saved_program_loads(options, tmp_path):
    class Module(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v, **options)

    given = tuple(each.transpose(1, 2) for each in tensors())
    torch.export.save(torch.export.export(Module(), given), tmp_path / "attention.pt2")
    assert torch.equal(torch.export.load(tmp_path / "attention.pt2").module()(*given), Module()(*given))


def test_tensors_without_elements():
    q, k, v = tensors(keys=QUERIES)
    sinks = torch.tensor([1.0, 2.0])
    with cutepy.simulate():
        o, lse = heads_first(soft_cap=2.0)(q, k[:, :, :0], v[:, :, :0], sinks)
        assert heads_first(score=relative)(q[:, :, :0], k, v)[0].shape == (1, HEADS, 0, 64)
    assert not o.any()
    assert torch.equal(lse, sinks.view(1, HEADS, 1).expand(1, HEADS, QUERIES))


@pytest.mark.parametrize(
    "score",
    [
        lambda s, b, h, i, j, bias: s * (bias * 2.0)[h],
        lambda s, b, h, i, j, bias: s + bias[h % bias.shape[0]],
        lambda s, b, h, i, j, bias: s + bias[0],
    ],
)
def test_a_computation_of_an_operand_itself_is_refused(score):
    """A trace serves all operands of a kind, so that it knows neither values nor extents."""
    turned = (each.transpose(1, 2) for each in tensors())
    with refuses(EpilogueError):
        attention(*turned, score=score, operands={"bias": SLOPES})


LEARNED = torch.zeros(HEADS, requires_grad=True)


def learned(s, b, h, i, j, bias, slopes, factor):
    """Read places of each kind: of a score, a query, a key, a head, and one for all; twice, and from the end."""
    return torch.tanh(s * factor + bias[h, i - j]) * slopes[h] + bias[h, i] - slopes[j % 2] * j * 0.01


def check_learned(
    options, tables, *, head=64, dtype=torch.bfloat16, queries=QUERIES, keys=KEYS, simulated=True, loose=1.0
):
    """Compare gradients of tables, and of q, k and v, with float64."""
    q, k, v = tensors(dtype, queries=queries, keys=keys, head=head)
    given = {name: each.clone().requires_grad_() for name, each in tables.items()}
    leaves = [each.requires_grad_() for each in (q, k, v)]

    def run():
        turned = (each.transpose(1, 2) for each in leaves)
        o = attention(*turned, operands=given, **options).transpose(1, 2)
        do = torch.randn_like(o)
        return do, torch.autograd.grad(o, (*leaves, *given.values()), do)

    if simulated:
        with cutepy.simulate(sanitize=True, allow={"spilled-registers": "the function has much to compute"}) as found:
            do, grads = run()
        assert not found.hazards
    else:
        do, grads = run()
    wide = [each.detach().double().requires_grad_() for each in leaves]
    wide_tables = {name: each.detach().double().requires_grad_() for name, each in given.items()}
    places = torch.meshgrid(torch.arange(1), *(torch.arange(n) for n in (HEADS, queries, keys)), indexing="ij")
    scores = wide[0] @ wide[1].repeat_interleave(HEADS, 1).mT * head**-0.5
    score = options["score"](scores, *places, **wide_tables)
    seen = options["mask"](*places) if "mask" in options else torch.ones(score.shape, dtype=torch.bool)
    p = torch.nan_to_num(torch.softmax(score.masked_fill(~seen, -math.inf), -1))
    o = p @ wide[2].repeat_interleave(HEADS, 1)
    wanted = torch.autograd.grad(o, (*wide, *wide_tables.values()), do.double())
    for n, (grad, want, of) in enumerate(zip(grads, wanted, (*leaves, *given.values()), strict=True)):
        assert grad.dtype == of.dtype
        # Sums of dS over a row cancel, and what O was rounded by stays: it is in each difference dP - sum(O * dO).
        assert apart(grad, want) < (2 if n < 3 else 4) * ROUNDOFF[dtype] * loose


TABLES = {
    "bias": torch.randn(HEADS, QUERIES + KEYS, generator=torch.Generator().manual_seed(1)),
    "slopes": torch.tensor([0.5, 0.25], dtype=torch.float64),
    "factor": torch.tensor(0.7),
}


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize(
    ("head", "dtype", "extents", "mask"),
    [
        (64, torch.bfloat16, (QUERIES, KEYS), None),
        (64, torch.float16, (40, 30), documents),
        (128, torch.bfloat16, (QUERIES, KEYS), causal),
        (192, torch.bfloat16, (QUERIES, KEYS), None),
    ],
)
def test_gradients_of_tensors_that_functions_use(head, dtype, extents, mask):
    options = {"score": learned} | ({} if mask is None else {"mask": mask})
    check_learned(options, TABLES, head=head, dtype=dtype, queries=extents[0], keys=extents[1])


@pytest.mark.deep
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_gradients_of_tensors_in_any_composition(data):
    leaves = st.sampled_from(
        [
            lambda s, b, h, i, j, bias, slopes, factor: s * factor,
            lambda s, b, h, i, j, bias, slopes, factor: s + bias[h, i - j],
            lambda s, b, h, i, j, bias, slopes, factor: bias[h, j] * slopes[i % 2],
            lambda s, b, h, i, j, bias, slopes, factor: s - slopes[h] * (i - j).abs() * 0.1,
        ]
    )
    joins = st.sampled_from([torch.add, torch.sub, torch.maximum, lambda x, y: torch.tanh(x) * y])
    join, one, other = data.draw(joins), data.draw(leaves), data.draw(leaves)

    def score(s, b, h, i, j, bias, slopes, factor):
        given = s, b, h, i, j, bias, slopes, factor
        return join(one(*given), other(*given)) + s * 0.0 * factor * bias[h, i] * slopes[h]

    options = {"score": score} | data.draw(st.sampled_from([{}, {"mask": documents}, {"mask": causal}]))
    extents = {"queries": data.draw(st.integers(1, QUERIES)), "keys": data.draw(st.integers(1, KEYS))}
    check_learned(options, TABLES, head=data.draw(st.sampled_from([64, 96, 192])), **extents, loose=2.0)


def test_gradients_of_tensors_in_plain_torch():
    check_learned({"score": learned, "mask": documents}, TABLES, simulated=False)


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.parametrize("head", [64, 128, 256])
@pytest.mark.parametrize("score", [relative, alibi(SLOPES), lambda s, b, h, i, j: s * SLOPES[h]])
def test_kernels_of_gradients_of_tensors_do_not_spill(score, head):
    scoring = replace(functions(score), derived=("t0",))
    config = choose_backward("bfloat16", head, head, left=False, right=True, scoring=scoring)
    assert compile_backward(config).resources[0].spill_store_bytes == 0


def test_gradients_of_a_relative_bias_and_none_of_masks():
    q, k, v = tensors(queries=40, keys=30)
    bias, shown = torch.zeros(HEADS, 70, requires_grad=True), torch.ones(HEADS, requires_grad=True)
    blocks = block_mask(lambda b, h, i, j: (i >= j) & (shown[h] > 0), 40, 30, heads=HEADS, device="cpu")

    def run():
        o = flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, i - j + 30], blocks, enable_gqa=True)
        return torch.autograd.grad(o, (bias, shown), torch.ones_like(o), allow_unused=True)

    with cutepy.simulate(sanitize=True) as found:
        of_bias, of_shown = run()
    assert not found.hazards
    assert of_shown is None
    wanted, _ = run()
    # With a dO of ones dP is the sum of V's row, and the gradient a sum of differences of that.
    assert apart(of_bias, wanted) < 4 * ROUNDOFF[q.dtype]
    assert not of_bias[:, :30].any()
    turned = (each.transpose(1, 2) for each in (q, k, v))
    with cutepy.simulate():
        o = attention(*turned, score=lambda s, b, h, i, j: s * shown[h], deterministic=True)
        with pytest.raises(NotImplementedError):
            o.sum().backward()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"soft_cap": 0.0}, ValueError),
        ({"sinks": torch.zeros(3)}, ValueError),
        ({"sinks": torch.zeros(2, dtype=torch.int32)}, ValueError),
        ({"alibi_slopes": torch.zeros(1, 1, 1)}, ValueError),
        ({"alibi_slopes": torch.zeros(1)}, ValueError),
        ({"mask": lambda b, h, i, j: i - j}, EpilogueError),
        ({"mask": lambda b, h, i, j: DOCUMENTS[0, :9][i] > j}, ValueError),
        ({"operands": {"bias": SLOPES}}, EpilogueError),
        ({"block_mask": block_mask(causal, 64, KEYS, device="cpu")}, ValueError),
        ({"block_mask": block_mask(causal, QUERIES, KEYS, device="cpu"), "causal": True}, ValueError),
        ({"block_mask": block_mask(causal, QUERIES, KEYS, heads=3, device="cpu")}, ValueError),
        (
            {"block_mask": flex.create_block_mask(causal, 1, 1, QUERIES, KEYS, device="cpu", BLOCK_SIZE=64)},
            ValueError,
        ),
        ({"soft_cap": "a"}, ValueError),
        ({"alibi_slopes": torch.zeros(3)}, ValueError),
        ({"alibi_slopes": torch.zeros(2, HEADS)}, ValueError),
        ({"operands": 3}, TypeError),
        ({"mask": torch.ones(QUERIES, KEYS, dtype=torch.bool)}, EpilogueError),
    ],
)
def test_arguments_that_are_refused(options, kind):
    q, k, v = (each.transpose(1, 2).requires_grad_() for each in tensors())
    with refuses(kind):
        attention(q, k, v, **options)


class Adds:
    """Add each thread's value to the element that it shares with three others, if it is its own."""

    @cute.jit
    def __call__(self, values: cute.Tensor, owns: cute.Tensor, sums: cute.Tensor):
        self.kernel(values, owns, sums).launch(grid=(1, 1, 1), block=(64, 1, 1))

    @cute.kernel
    def kernel(self, values: cute.Tensor, owns: cute.Tensor, sums: cute.Tensor):
        thread = cute.arch.thread_idx()[0]
        score_functions._add(sums.iterator + thread // 4, values[thread], owns[thread] != 0)


def test_gradients_of_an_element_are_added_where_they_are_not_zero():
    """An element to which nothing is added keeps its minus zero; NaN is something."""
    values, owns = torch.randint(-8, 9, (64,)).float(), torch.randint(0, 2, (64,)).int()
    values[:8], owns[:12], owns[12:16] = 0.0, 1, 0
    values[20], owns[20] = math.nan, 1
    sums = torch.full((16,), -0.0)
    with cutepy.simulate(sanitize=True) as run:
        Adds()(values, owns, sums)
    assert not run.hazards
    wanted = torch.where(owns == 1, values, 0.0).view(16, 4).sum(1)
    assert torch.allclose(sums, wanted, rtol=0, atol=0, equal_nan=True)
    added = ((owns == 1) & (values != 0)).view(16, 4).any(1)
    assert torch.equal(sums.signbit() & (sums == 0), ~added & (sums == 0))
    assert sums[[0, 1, 3]].signbit().all()
