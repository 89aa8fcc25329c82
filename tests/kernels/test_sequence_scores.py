"""Functions of scores, sinks and dropout of sequences and of cached keys, against FlexAttention's form in float64."""

import functools
import itertools
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention_decode,
    attention_varlen,
)
from tests.kernels.test_attention_decode import in_pages  # noqa: E402
from tests.kernels.test_attention_dropout import drawn, kept  # noqa: E402
from tests.kernels.test_score_functions import ROUNDOFF, apart  # noqa: E402

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
    ("case", "options"),
    [("functions", {}), ("cap and slopes", {"deterministic": True}), ("sinks", {}), ("functions", {"dropout_p": 0.3})],
)
def test_sequences(case, options, simulated):
    check_sequences(*LENGTHS, case, simulated=simulated, **options)


@pytest.mark.deep
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_sequences(data):
    lengths = [data.draw(st.lists(st.integers(0, 150), min_size=3, max_size=3)) for _ in range(2)]
    if not all(map(sum, lengths)):
        return
    options = {"causal": data.draw(st.booleans()), "dropout_p": data.draw(st.sampled_from([0.0, 0.4]))}
    check_sequences(*lengths, data.draw(st.sampled_from([*CASES])), simulated=True, **options)


def check_cache(queries, lengths, case, page, most, sizes=None, *, causal=True, simulated):
    """Compare attention with cached keys, poisoned where they are no sequence's, with float64.

    With `sizes`, queries of each sequence, those are packed.
    """
    made, score, mask = CASES[case]
    torch.manual_seed(most + queries)
    q = torch.randn(len(lengths), queries, HEADS, 64).bfloat16()
    k, v = (torch.randn(len(lengths), most, KV_HEADS, 64).bfloat16() for _ in range(2))
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
    "packed heads, parts of the keys": (3, [270, 0, 131], "cap and slopes", 64, 512),
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
