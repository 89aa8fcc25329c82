"""Attention of e4m3 of sequences and caches, in the simulator, against float64 of what it stands for."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention,
    attention_decode,
    attention_varlen,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from tests.kernels.test_attention_decode import in_pages  # noqa: E402
from tests.kernels.test_attention_quantised import E4M3, apart  # noqa: E402
from tests.kernels.test_sequence_scores import bounds_of, computed  # noqa: E402
from tests.messages import refuses  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

HEADS, KV_HEADS = 4, 2
NAMES = ("q_scale", "k_scale", "v_scale")


def drawn(*shapes, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(shape).to(E4M3) for shape in shapes]


def scales_of(sequences, kv_heads=KV_HEADS):
    """Draw a scale for each sequence and head, which differ by up to four times."""
    return {name: torch.exp(2 * torch.rand(sequences, kv_heads) - 1) for name in NAMES}


def wide(x, scale):
    """Give what e4m3 of one sequence, (tokens, heads, head), stands for, in float64."""
    if scale is None:
        return x.double()
    return x.double() * scale.double().repeat_interleave(x.shape[1] // len(scale))[:, None]


def check(o, lse, q, k, v, scales, sequence, *, causal, score=None, mask=None):
    """Compare the results of one sequence with float64."""
    of_each = [None if scales[name] is None else scales[name][sequence] for name in NAMES]
    stand_for = [wide(x, scale) for x, scale in zip((q, k, v), of_each, strict=True)]
    no_sinks = torch.full((q.shape[1],), -math.inf).double()
    wanted, wanted_lse = computed(*stand_for, sequence, score, mask, no_sinks, causal=causal)
    assert torch.equal(lse == -math.inf, wanted_lse == -math.inf)
    assert (lse - wanted_lse).nan_to_num(0.0).abs().max() < 1e-3 if lse.numel() else True
    assert apart(o, wanted) < 2.0**-5  # of probabilities, in e4m3, as of `test_attention_quantised`


def check_cache(queries, lengths, page, most, *, kv_heads=KV_HEADS, head=64, causal=True, simulated=True, **changes):
    """Compare attention with cached keys, NaN where they are no sequence's, with float64."""
    count = len(lengths)
    q, k, v = drawn((count, queries, HEADS, head), *[(count, most, kv_heads, head)] * 2, seed=most + queries)
    caches, given = [k.clone(), v.clone()], {"cache_seqlens": torch.tensor(lengths, dtype=torch.int32)}
    if page:
        caches, given["block_table"] = in_pages(caches, lengths, page)
    else:
        for each in caches:
            for n, length in enumerate(lengths):
                each[n, length:] = torch.nan
    scales = scales_of(count, kv_heads) | changes
    out_dtype = scales.get("out_dtype", torch.bfloat16)

    def run():
        return attention_decode(q, *caches, **given, causal=causal, return_lse=True, **scales)

    if simulated:
        with cutepy.simulate(sanitize=True) as found:
            o, lse = run()
        assert not found.hazards
    else:
        o, lse = run()
    assert o.dtype == out_dtype
    for n, length in enumerate(lengths):
        check(o[n], lse[n], q[n], k[n, :length], v[n, :length], scales, n, causal=causal)


CACHES = {
    "packed heads, parts of the keys": (3, [0, 270], 64, 512, {}),
    "packed heads, one part": (3, [90, 2, 33], 0, 100, {"k_scale": None}),
    "tiles of queries": (70, [90, 2, 33], 16, 100, {"v_scale": None, "out_dtype": torch.float16}),
    "a head of its own": (1, [70, 150], 0, 160, {"kv_heads": HEADS, "head": 128}),
    "pages of three keys": (2, [37, 0, 5], 3, 60, {}),
}


@pytest.mark.first(5)
@pytest.mark.parametrize(
    ("name", "simulated"),
    [
        *((name, False) for name in CACHES),
        *(pytest.param(name, True, marks=pytest.mark.integration) for name in CACHES),
    ],
)
def test_cached_keys(name, simulated):
    *given, options = CACHES[name]
    check_cache(*given, **options, simulated=simulated)


@pytest.mark.deep
@pytest.mark.parametrize("page", [0, 1, 8, 12, 128])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_any_cache(page, data):
    most, queries = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 70))
    lengths = data.draw(st.lists(st.integers(0, most), min_size=1, max_size=3))
    options = {"kv_heads": data.draw(st.sampled_from([1, 2, 4])), "causal": data.draw(st.booleans())}
    check_cache(queries, lengths, page, most, **options, head=data.draw(st.sampled_from([16, 64, 96, 192, 256])))


def check_sequences(q_lengths, k_lengths, *, kv_heads=KV_HEADS, head=64, causal=True, simulated=True, tail=3, **how):
    """Compare attention of sequences in one matrix with float64; no sequence's rows are zeros."""
    shapes = (sum(q_lengths) + tail, HEADS, head), *[(sum(k_lengths) + tail, kv_heads, head)] * 2
    q, k, v = drawn(*shapes, seed=sum(q_lengths))
    k[sum(k_lengths) :] = v[sum(k_lengths) :] = torch.nan
    bounds, scales = (bounds_of(q_lengths), bounds_of(k_lengths)), scales_of(len(q_lengths), kv_heads)
    made = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), bounds, strict=True))

    def run():
        return attention_varlen(q, k, v, **made, causal=causal, return_lse=True, **scales, **how)

    if simulated:
        with cutepy.simulate(sanitize=True) as found:
            o, lse = run()
        assert not found.hazards
    else:
        o, lse = run()
    assert not o[sum(q_lengths) :].any()
    for n, (rows, keys) in enumerate(zip(*(itertools.pairwise(each.tolist()) for each in bounds), strict=True)):
        rows, keys = slice(*rows), slice(*keys)
        functions = {name: how[name] for name in ("score", "mask") if name in how}
        check(o[rows], lse[:, rows], q[rows], k[keys], v[keys], scales, n, causal=causal, **functions)


def far(b, h, i, j):
    return (i + j + b) % 5 != 0


SEQUENCES = {
    "heads packed": ([70, 0, 33], [150, 7, 20], {}),
    "a head of its own": ([40, 130], [60, 200], {"kv_heads": HEADS, "head": 128, "causal": False}),
    "functions": ([70, 33], [90, 40], {"mask": far}),
}


@pytest.mark.parametrize("simulated", [pytest.param(True, marks=pytest.mark.integration), False])
@pytest.mark.first(4)
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(name, simulated):
    *lengths, options = SEQUENCES[name]
    check_sequences(*lengths, **options, simulated=simulated)


@pytest.mark.deep
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_sequences(data):
    lengths = [data.draw(st.lists(st.integers(0, 150), min_size=3, max_size=3)) for _ in range(2)]
    options = {"causal": data.draw(st.booleans()), "kv_heads": data.draw(st.sampled_from([1, 2, 4]))}
    check_sequences(*lengths, **options, head=data.draw(st.sampled_from([16, 64, 96, 192, 256])))


@pytest.mark.parametrize("page", [8, 5])
def test_sequences_in_pages_and_of_a_batch(page):
    """Pages are those of caches, here of packed queries; lengths of a batch count from its rows on."""
    q, k, v = drawn((2, 20, HEADS, 64), *[(2, 40, KV_HEADS, 64)] * 2)
    used, scales = torch.tensor([33, 9], dtype=torch.int32), scales_of(2)
    with cutepy.simulate(sanitize=True) as found:
        o, lse = attention_varlen(q, k, v, seqused_k=used, return_lse=True, **scales)
        caches, table = in_pages((k, v), used.tolist(), page)
        bounds = {"cu_seqlens_q": bounds_of([20, 20]), "seqused_k": used, "block_table": table}
        paged = attention_varlen(q.flatten(0, 1), *caches, **bounds, **scales)
    assert not found.hazards
    for n, length in enumerate(used.tolist()):
        check(o[n], lse[n], q[n], k[n, :length], v[n, :length], scales, n, causal=False)
    assert apart(paged, o.flatten(0, 1)) < 2.0**-8


def test_one_scale_for_all():
    q, k, v = drawn((9, HEADS, 64), *[(20, KV_HEADS, 64)] * 2)
    bounds = {"cu_seqlens_q": bounds_of([9]), "cu_seqlens_k": bounds_of([20])}
    with cutepy.simulate():
        plain = attention_varlen(q, k, v, **bounds)
        for two in (torch.tensor(2.0), torch.tensor([2.0])):
            assert torch.equal(attention_varlen(q, k, v, **bounds, v_scale=two), 2 * plain)


def test_flash_attns_functions_take_their_scales():
    q, k, v = drawn((2, 3, HEADS, 64), *[(4, 8, KV_HEADS, 64)] * 2)
    table, lengths = torch.tensor([[2, 0], [3, 1]], dtype=torch.int32), torch.tensor([16, 3], dtype=torch.int32)
    scales = scales_of(2)
    theirs = {name.replace("scale", "descale"): each for name, each in scales.items()}
    found = flash_attn_with_kvcache(q, k, v, lengths, table, **theirs)
    assert torch.equal(found, attention_decode(q, k, v, cache_seqlens=lengths, block_table=table, **scales))
    rows, bounds = [each.flatten(0, 1) for each in (q, k, v)], (bounds_of([3, 3]), bounds_of([20, 12]))
    found = flash_attn_varlen_func(*rows, *bounds, **theirs)
    made = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), bounds, strict=True))
    assert torch.equal(found, attention_varlen(*rows, **made, **scales))
    q, k, v = drawn((2, 9, HEADS, 64), *[(2, 9, KV_HEADS, 64)] * 2)
    assert torch.equal(flash_attn_func(q, k, v, **theirs), attention(q, k, v, **scales))


def test_torch_compiles_and_checks_them():
    q, k, v = drawn((2, 3, HEADS, 64), *[(2, 8, KV_HEADS, 64)] * 2)
    lengths, bounds, scales = torch.tensor([8, 3], dtype=torch.int32), bounds_of([3, 3]), scales_of(2)
    rows = [each.flatten(0, 1) for each in (q, k, v)]

    def call(q, rows, scales):
        made = {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds_of([8, 8])}
        o = attention_varlen(*rows, **made, max_seqlen_q=3, max_seqlen_k=8, **scales)
        return o, attention_decode(q, k, v, cache_seqlens=lengths, **scales)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found = compiled(q, rows, scales)
    assert all(torch.equal(one, other) for one, other in zip(found, call(q, rows, scales), strict=True))


BOUNDS, QUERY, KEY = bounds_of([2, 2]), (4, HEADS, 16), (4, KV_HEADS, 16)
ROWS = {"cu_seqlens_q": BOUNDS, "cu_seqlens_k": BOUNDS}


@pytest.mark.parametrize(
    ("kind", "compute", "options"),
    [
        (ValueError, attention_varlen, {**ROWS, "k_scale": torch.ones(2, HEADS)}),
        (ValueError, attention_varlen, {**ROWS, "v_scale": torch.ones(3, KV_HEADS)}),
        (TypeError, attention_varlen, {**ROWS, "q_scale": torch.ones(2, KV_HEADS).half()}),
        (TypeError, attention_varlen, {**ROWS, "out_dtype": torch.float32}),
        (NotImplementedError, attention_varlen, {**ROWS, "dropout_p": 0.5}),
        (NotImplementedError, attention_varlen, {**ROWS, "sinks": torch.ones(HEADS, requires_grad=True)}),
        (ValueError, attention_decode, {"q_scale": torch.ones(2, HEADS)}),
        (ValueError, attention_decode, {"block_table": torch.zeros(2, 3), "cache_seqlens": BOUNDS[:2]}),
    ],
)
def test_arguments_that_are_refused(kind, compute, options):
    q, k = (torch.zeros(shape).to(E4M3) for shape in (QUERY, KEY))
    if compute is attention_decode:
        q, k = (each.view(2, 2, *each.shape[1:]) for each in (q, k))
    with refuses(kind):
        compute(q, k, k, **options)


def test_scales_of_other_types_are_refused():
    q, k = torch.zeros(QUERY).half(), torch.zeros(KEY).half()
    with refuses(TypeError):
        attention_varlen(q, k, k, **ROWS, k_scale=torch.ones(()))
    with refuses(TypeError):
        attention_decode(q[None], k[None], k[None], v_scale=torch.ones(()))
