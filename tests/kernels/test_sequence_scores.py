"""Functions of scores, sinks and dropout of sequences and of cached keys, against FlexAttention's form in float64."""

import contextlib
import functools
import itertools
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.epilogues.scores import alibi, soft_cap, trace_scores  # noqa: E402
from cutepy.kernels.attention.choice import choose_decode, choose_forward  # noqa: E402
from cutepy.kernels.attention.config import Lengths, ScoreSettings  # noqa: E402
from cutepy.kernels.attention.op import compile_forward, scored_forward, table_dtype  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention_decode,
    attention_varlen,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from tests.kernels.test_attention_decode import in_pages  # noqa: E402
from tests.kernels.test_attention_dropout import drawn, kept  # noqa: E402
from tests.kernels.test_score_functions import ROUNDOFF, apart  # noqa: E402
from tests.messages import refuses  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

HEADS, KV_HEADS = 4, 2
TABLE = torch.randn(3, HEADS, 900, generator=torch.Generator().manual_seed(0))
SLOPES = torch.tensor([[0.5, 0.25, 0.1, 0.3], [0.2, 0.1, 0.4, 0.05], [0.3, 0.3, 0.3, 0.3]])
SINKS = torch.tensor([1.0, -2.0, 300.0, -math.inf])


def of_all_places(s, b, h, i, j, queries, keys):
    return s + TABLE[b, h, i - j] + (keys - queries) * 0.01


def hidden(b, h, i, j):
    return ((i + j + b) % 5 != 0) | (h == 1)


def capped_and_biased(s, b, h, i, j, queries, keys):
    return 2.0 * torch.tanh(s / 2.0) - SLOPES[b, h] * (i + keys - queries - j).abs()


CASES = {
    "functions": ({"score": of_all_places, "mask": hidden, "sinks": SINKS}, of_all_places, hidden),
    "cap and slopes": ({"soft_cap": 2.0, "alibi_slopes": SLOPES, "sinks": SINKS}, capped_and_biased, None),
    "sinks": ({"sinks": SINKS}, None, None),
}


def bounds_of(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def computed(q, k, v, sequence, score, mask, sinks, *, causal, weights=None):
    """Compute the attention of one sequence, (tokens, heads, head), and the logarithms, in the tensors' precision."""
    (queries, heads), keys, group = q.shape[:2], k.shape[0], q.shape[1] // k.shape[1]
    q, k, v = q.transpose(0, 1), *(each.transpose(0, 1).repeat_interleave(group, 0) for each in (k, v))
    place = (
        torch.tensor(sequence),
        torch.arange(heads)[:, None, None],
        torch.arange(queries)[:, None],
        torch.arange(keys),
    )
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if score is not None:
        scores = score(scores, *place, queries, keys)
    seen = torch.ones(scores.shape, dtype=torch.bool) if mask is None else mask(*place).expand(scores.shape)
    if causal:
        seen = seen & (place[2] + (keys - queries) >= place[3])
    scores = scores.masked_fill(~seen, -math.inf)
    joined = torch.cat([scores, sinks[:, None, None].expand(heads, queries, 1)], 2)
    lse = joined.logsumexp(2)
    p = torch.exp(scores - torch.where(lse == -math.inf, 0.0, lse)[..., None])
    return ((p if weights is None else p * weights) @ v).transpose(0, 1), lse


def check_sequences(q_lengths, k_lengths, case, *, causal=True, simulated, tail=3, dropout_p=0.0, **options):
    """Compare results and gradients of sequences with float64; no sequence's are zeros, and minus infinity."""
    made, score, mask = CASES[case]
    made = dict(made)
    torch.manual_seed(sum(q_lengths))
    q, k, v = (
        torch.randn(sum(each) + tail, heads, 64).bfloat16().requires_grad_()
        for each, heads in ((q_lengths, HEADS), (k_lengths, KV_HEADS), (k_lengths, KV_HEADS))
    )
    sinks = made.pop("sinks").clone().requires_grad_()
    bounds = bounds_of(q_lengths), bounds_of(k_lengths)
    seeds = drawn()

    def run():
        torch.manual_seed(7)
        o, lse = attention_varlen(
            *(q, k, v),
            cu_seqlens_q=bounds[0],
            cu_seqlens_k=bounds[1],
            causal=causal,
            sinks=sinks,
            return_lse=True,
            dropout_p=dropout_p,
            **made,
            **options,
        )
        do, dlse = torch.randn_like(o), torch.randn_like(lse)
        return o.detach(), lse.detach(), do, dlse, torch.autograd.grad((o, lse), (q, k, v, sinks), (do, dlse))

    if simulated:
        with cutepy.simulate(sanitize=True) as found:
            o, lse, do, dlse, grads = run()
        assert not found.hazards
    else:
        o, lse, do, dlse, grads = run()
    wide = [each.detach().double().requires_grad_() for each in (q, k, v, sinks)]
    drops = kept(dropout_p, seeds, len(q_lengths), HEADS, max(q_lengths), max(k_lengths)) / (1 - dropout_p)
    wanted, wanted_lse = torch.zeros_like(wide[0]), torch.full(lse.shape, -math.inf, dtype=torch.float64)
    for n, (rows, keys) in enumerate(zip(*(itertools.pairwise(each.tolist()) for each in bounds), strict=True)):
        rows, keys = slice(*rows), slice(*keys)
        weights = drops[n, :, : rows.stop - rows.start, : keys.stop - keys.start] if dropout_p else None
        of_each = wide[0][rows], wide[1][keys], wide[2][keys]
        one, one_lse = computed(*of_each, n, score, mask, wide[3], causal=causal, weights=weights)
        wanted = torch.index_put(wanted, (torch.arange(rows.start, rows.stop),), one)
        wanted_lse = torch.index_put(wanted_lse.T, (torch.arange(rows.start, rows.stop),), one_lse.T).T
    seen = wanted_lse != -math.inf
    given = (wanted, wanted_lse.masked_fill(~seen, 0.0)), wide, (do.double(), dlse.double())
    wanted_grads, wanted, wanted_lse = torch.autograd.grad(*given), wanted.detach(), wanted_lse.detach()
    roundoff = ROUNDOFF[q.dtype]
    assert apart(o, wanted) < roundoff
    assert not o[sum(q_lengths) :].any()
    assert torch.equal(lse != -math.inf, seen)
    assert torch.allclose(lse.masked_fill(~seen, 0.0).double(), wanted_lse.masked_fill(~seen, 0.0), atol=1e-4)
    for grad, want in zip(grads, wanted_grads, strict=True):
        assert apart(grad, want.nan_to_num()) < 2 * roundoff


LENGTHS = [70, 0, 33], [150, 7, 20]


@pytest.mark.parametrize("simulated", [pytest.param(True, marks=pytest.mark.integration), False])
@pytest.mark.parametrize(
    ("case", "options"), [("functions", {"dropout_p": 0.3}), ("cap and slopes", {"deterministic": True})]
)
def test_sequences(case, options, simulated):
    check_sequences(*LENGTHS, case, simulated=simulated, **options)


def learned(s, b, h, i, j, queries, keys, bias, slopes):
    return s * slopes[b, h] + bias[h, i - j + keys] * 0.5


@pytest.mark.parametrize("simulated", [pytest.param(True, marks=pytest.mark.integration), False])
def test_gradients_of_tensors_that_functions_of_sequences_use(simulated):
    """Sequences that no query or no key has, and tokens that no sequence has, add nothing."""
    q_lengths, k_lengths = LENGTHS
    torch.manual_seed(3)
    q, k = torch.randn(106, HEADS, 64).bfloat16(), torch.randn(180, KV_HEADS, 64).bfloat16()
    bounds = bounds_of(q_lengths), bounds_of(k_lengths)
    given = {"bias": TABLE[0].clone().requires_grad_(), "slopes": (SLOPES + 0.5).half().requires_grad_()}

    def run():
        o = attention_varlen(
            *(q, k, k), cu_seqlens_q=bounds[0], cu_seqlens_k=bounds[1], causal=True, score=learned, operands=given
        )
        do = torch.randn_like(o)
        return do, torch.autograd.grad(o, [*given.values()], do)

    if simulated:
        with cutepy.simulate(sanitize=True) as found:
            do, grads = run()
        assert not found.hazards
    else:
        do, grads = run()
    wide = {name: each.detach().double().requires_grad_() for name, each in given.items()}
    score, sinks = functools.partial(learned, **wide), torch.full((HEADS,), -math.inf).double()
    total = 0.0
    for n, (rows, keys) in enumerate(zip(*(itertools.pairwise(each.tolist()) for each in bounds), strict=True)):
        of_each = (each[slice(*part)].double() for each, part in ((q, rows), (k, keys), (k, keys)))
        one, _ = computed(*of_each, n, score, None, sinks, causal=True)
        total = total + (one * do[slice(*rows)].double()).sum()
    for grad, want, of in zip(grads, torch.autograd.grad(total, [*wide.values()]), given.values(), strict=True):
        assert grad.dtype == of.dtype
        assert apart(grad, want.nan_to_num()) < 4 * ROUNDOFF[q.dtype]  # of sums that cancel, as of dense scores


@pytest.mark.deep
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_sequences(data):
    lengths = [data.draw(st.lists(st.integers(0, 150), min_size=3, max_size=3)) for _ in range(2)]
    if not all(map(sum, lengths)):
        return
    options = {"causal": data.draw(st.booleans()), "dropout_p": data.draw(st.sampled_from([0.0, 0.4]))}
    check_sequences(*lengths, data.draw(st.sampled_from([*CASES])), simulated=True, **options)


def check_cache(queries, lengths, case, page, most, sizes=None, *, kv_heads=KV_HEADS, causal=True, simulated):
    """Compare attention with cached keys, poisoned where they are no sequence's, with float64.

    With `sizes`, queries of each sequence, those are packed.
    """
    made, score, mask = CASES[case]
    if "alibi_slopes" in made:
        made = {**made, "alibi_slopes": SLOPES[: len(lengths)]}
    torch.manual_seed(most + queries)
    q = torch.randn(len(lengths), queries, HEADS, 64).bfloat16()
    k, v = (torch.randn(len(lengths), most, kv_heads, 64).bfloat16() for _ in range(2))
    given, caches = {"cache_seqlens": torch.tensor(lengths, dtype=torch.int32)}, (k, v)
    if page:
        caches, given["block_table"] = in_pages((k, v), lengths, page)
    compute, sizes = functools.partial(attention_decode, q, *caches), sizes or [queries] * len(lengths)
    if sizes != [queries] * len(lengths):
        rows = torch.cat([each[:n] for each, n in zip(q, sizes, strict=True)])
        given["seqused_k"] = given.pop("cache_seqlens")
        compute = functools.partial(attention_varlen, rows, *caches, cu_seqlens_q=bounds_of(sizes))

    def run():
        return compute(**given, causal=causal, return_lse=True, **made)

    if simulated:
        with cutepy.simulate(sanitize=True) as found:
            o, lse = run()
        assert not found.hazards
    else:
        o, lse = run()
    for n, (size, length) in enumerate(zip(sizes, lengths, strict=True)):
        wide = q[n, :size].double(), k[n, :length].double(), v[n, :length].double()
        wanted, wanted_lse = computed(*wide, n, score, mask, made["sinks"].double(), causal=causal)
        if "seqused_k" in given:
            rows = slice(sum(sizes[:n]), sum(sizes[: n + 1]))
            one, one_lse = o[rows], lse[:, rows]
        else:
            one, one_lse = o[n], lse[n]
        assert apart(one, wanted) < ROUNDOFF[q.dtype]
        assert torch.allclose(one_lse.double(), wanted_lse, atol=1e-4)


CACHES = {
    "packed heads, parts of the keys": (3, [0, 270], "cap and slopes", 64, 512),
    "packed heads, one part": (3, [90, 2, 33], "functions", 0, 100),
    "tiles of queries": (70, [90, 2, 33], "functions", 16, 100),
    "packed queries": (70, [90, 2, 33], "functions", 16, 100, [70, 0, 5]),
}


@pytest.mark.parametrize(
    ("name", "simulated"),
    [
        *((name, False) for name in CACHES),
        ("packed heads, parts of the keys", True),
        *(pytest.param(name, True, marks=pytest.mark.integration) for name in [*CACHES][1:]),
    ],
)
def test_cached_keys(name, simulated):
    check_cache(*CACHES[name], simulated=simulated)


@pytest.mark.deep
@pytest.mark.parametrize("page", [0, 5, 16, 64])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_cache(page, data):
    most, queries = data.draw(st.integers(1, 600)), data.draw(st.integers(1, 70))
    lengths = data.draw(st.lists(st.integers(0, most), min_size=1, max_size=3))
    each = st.lists(st.integers(0, queries), min_size=len(lengths), max_size=len(lengths))
    sizes = data.draw(st.none() | each) if page else None
    options = {"kv_heads": data.draw(st.sampled_from([1, 2, 4])), "causal": data.draw(st.booleans())}
    check_cache(queries, lengths, data.draw(st.sampled_from([*CASES])), page, most, sizes, simulated=True, **options)


@pytest.mark.parametrize("simulated", [pytest.param(True, marks=pytest.mark.integration), False])
def test_sinks_are_all_that_sequences_without_keys_have(simulated):
    q, k = torch.randn(9, HEADS, 16).bfloat16().requires_grad_(), torch.zeros(0, KV_HEADS, 16).bfloat16()
    bounds, sinks = (bounds_of([5, 2]), bounds_of([0, 0])), SINKS[:HEADS].clone().requires_grad_()
    with cutepy.simulate() if simulated else contextlib.nullcontext():
        o, lse = attention_varlen(q, k, k, cu_seqlens_q=bounds[0], cu_seqlens_k=bounds[1], sinks=sinks, return_lse=True)
        grads = torch.autograd.grad((o, lse), (q, sinks), (torch.ones_like(o), torch.ones_like(lse)))
    with cutepy.simulate():
        decoded = attention_decode(q[None], k[None], k[None], sinks=sinks.detach(), return_lse=True)
    assert not any(each.any() for each in (o, decoded[0], grads[0]))
    assert torch.equal(lse[:, :7], sinks[:, None].expand(HEADS, 7))
    assert (lse[:, 7:] == -math.inf).all()
    assert torch.equal(decoded[1][0], sinks[:, None].expand(HEADS, 9))
    assert torch.equal(grads[1], torch.where(sinks == -math.inf, 0.0, 7.0))


def test_flash_attns_functions_pass_each_argument_on():
    q, k = torch.randn(7, HEADS, 16).bfloat16(), torch.randn(4, 8, KV_HEADS, 16).bfloat16()
    bounds, of_keys = bounds_of([5, 2]), bounds_of([16, 3])
    table, ours = torch.tensor([[2, 0], [3, 3]], dtype=torch.int32), {"soft_cap": 2.0, "alibi_slopes": SLOPES[:2]}
    theirs = {"softcap": 2.0, "alibi_slopes": SLOPES[:2], "learnable_sink": SINKS}
    torch.manual_seed(0)
    found = flash_attn_varlen_func(q, k, k, bounds, of_keys, dropout_p=0.4, causal=True, block_table=table, **theirs)
    torch.manual_seed(0)
    lengths = {"cu_seqlens_q": bounds, "seqused_k": of_keys.diff(), "block_table": table}
    assert torch.equal(found, attention_varlen(q, k, k, **lengths, **ours, sinks=SINKS, dropout_p=0.4, causal=True))
    found = flash_attn_with_kvcache(q[:2, None], k, k, of_keys.diff(), table, **theirs)
    lengths = {"cache_seqlens": of_keys.diff(), "block_table": table}
    assert torch.equal(found, attention_decode(q[:2, None], k, k, **lengths, **ours, sinks=SINKS))


def test_torch_compiles_and_checks_them():
    q, k = torch.randn(7, HEADS, 16).bfloat16().requires_grad_(), torch.randn(19, KV_HEADS, 16).bfloat16()
    bounds, of_keys = bounds_of([5, 2]), bounds_of([16, 3])
    cache, lengths = k[:16].view(2, 8, KV_HEADS, 16), torch.tensor([8, 3], dtype=torch.int32)
    score = lambda s, b, h, i, j, bias: s * bias[h]  # noqa: E731

    def call(q, bias):
        how = {"score": score, "operands": {"bias": bias}, "sinks": SINKS, "soft_cap": 2.0}
        o = attention_varlen(q, k, k, cu_seqlens_q=bounds, cu_seqlens_k=of_keys, dropout_p=0.2, **how)
        return o, attention_decode(q[:2, None].detach(), cache, cache, cache_seqlens=lengths, **how)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for bias in SLOPES[:2]:
        torch.manual_seed(0)
        found = compiled(q, bias)
        torch.manual_seed(0)
        assert all(torch.equal(one, other) for one, other in zip(found, call(q, bias), strict=True))
    text, sinks = trace_scores(of_all_places, hidden).graph.line, SINKS.nan_to_num().requires_grad_()
    table = torch.tensor([[0, 1], [1, 1]], dtype=torch.int32)
    how = sinks, [TABLE], text
    opcheck = functools.partial(torch.library.opcheck, torch.ops.cutepy.attention_varlen.default)
    tables = [TABLE.clone().requires_grad_()]
    opcheck((q, k, k, bounds, of_keys, None, None, None, sinks, tables, text, 0, 5, 16, 0.25, None, 0, True))
    rows = q.detach(), k[:16], k[:16]
    opcheck((*rows, bounds, None, None, lengths, table, sinks.detach(), *how[1:], 8, 5, 16, 0.25, None, 0, False))
    torch.library.opcheck(
        torch.ops.cutepy.attention_decode.default,
        (rows[0][:2, None], cache, cache, lengths, None, sinks.detach(), *how[1:], 0.25, None, 0),
    )


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("score", [soft_cap(30.0), alibi(SLOPES[0]), lambda s, b, h, i, j: s + TABLE[b, h, i - j]])
def test_kernels_do_not_spill(head, score):
    traced = trace_scores(score)
    scoring = ScoreSettings(traced.graph.text, tuple(map(table_dtype, traced.tensors)), sinks=True)
    options = {"left": False, "right": True}
    config = scored_forward(choose_forward("bfloat16", head, head, 4096, **options), scoring)
    assert compile_forward(config, Lengths(True, True)).resources[0].spill_store_bytes == 0
    options |= {"page": 64, "is_split": True, "scoring": scoring.of_packed_heads(8)}
    config = choose_decode("bfloat16", head, head, **options)
    function = compile_forward(config, Lengths(k_used=True), is_cached=True, is_paged=True, sharing=8)
    assert function.resources[0].spill_store_bytes == 0


BOUNDS, USED = bounds_of([3, 1]), torch.tensor([3, 1], dtype=torch.int32)
PAGES = {"cu_seqlens_q": BOUNDS, "block_table": torch.zeros(2, 1, dtype=torch.int32)}


@pytest.mark.parametrize(
    "options",
    [
        {"cu_seqlens_q": BOUNDS, "cu_seqlens_k": BOUNDS, "sinks": torch.zeros(3)},
        {"cu_seqlens_q": BOUNDS, "cu_seqlens_k": BOUNDS, "alibi_slopes": SLOPES[:1]},
        {"cu_seqlens_q": BOUNDS, "cu_seqlens_k": BOUNDS, "dropout_p": 2.0},
        {**PAGES, "cu_seqlens_k": BOUNDS},
        PAGES,
        {**PAGES, "seqused_k": USED, "block_table": torch.zeros(3, 1, dtype=torch.int32)},
    ],
)
def test_arguments_that_are_refused(options):
    k = torch.zeros(*((4,) if "block_table" not in options or "cu_seqlens_k" in options else (2, 8)), KV_HEADS, 16)
    with refuses(ValueError):
        attention_varlen(torch.zeros(4, HEADS, 16).half(), *(k.half(),) * 2, **options)


def test_gradients_that_are_refused():
    q, k = torch.zeros(4, HEADS, 16).half().requires_grad_(), torch.zeros(2, 8, KV_HEADS, 16).half()
    with refuses(NotImplementedError):
        attention_varlen(q, k, k, **PAGES, seqused_k=USED).sum().backward()
    table = torch.zeros(HEADS, requires_grad=True)
    lengths = {"cu_seqlens_q": BOUNDS, "cu_seqlens_k": BOUNDS}
    with cutepy.simulate():
        o = attention_varlen(q, q, q, **lengths, score=lambda s, b, h, i, j: s * table[h], deterministic=True)
        with refuses(NotImplementedError):
            o.sum().backward()
