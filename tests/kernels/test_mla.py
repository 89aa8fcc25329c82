"""Multi-head latent attention with cached rows, in the simulator, sanitized: against float64, with poisoned caches."""

import math
from dataclasses import replace

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.gemm.gpu import H200  # noqa: E402
from cutepy.kernels.mla import op  # noqa: E402
from cutepy.kernels.mla.config import HEAD, LATENT, ROWS, MlaConfig  # noqa: E402
from cutepy.kernels.mla.op import compile_mla, parts_of, plan  # noqa: E402
from cutepy.ops import (  # noqa: E402
    attention_mla,
    batch_invariant,
    dequantise_mla_cache,
    flash_mla_with_kvcache,
    quantise_mla_cache,
)
from tests.kernels.test_attention import ROUNDOFF, apart  # noqa: E402
from tests.kernels.test_attention_decode import in_pages  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

E4M3 = torch.float8_e4m3fn
"""Of a cache beside queries of bfloat16."""


def make(lengths, queries, heads, page, dtype, *, quantised=False):
    """Return queries, each sequence's rows, and the arguments of an operation on a cache of these.

    Quantised rows are those that they stand for, and NaN stays NaN.
    """
    torch.manual_seed(sum(lengths) + queries)
    most = max(*lengths, 8)
    q = torch.randn(len(lengths), queries, heads, HEAD).to(dtype)
    rows = torch.randn(len(lengths), most, HEAD).to(dtype)
    used = torch.tensor(lengths, dtype=torch.int32)
    if page:
        (cache,), table = in_pages((rows[:, :, None],), lengths, page)
    else:
        cache, table = rows.clone(), None
        for sequence, length in enumerate(lengths):
            cache[sequence, length:] = math.nan
    if quantised:
        rows, cache = dequantise_mla_cache(quantise_mla_cache(rows)), quantise_mla_cache(cache)
    return q, rows, (cache, used, table)


def check(o, lse, q, rows, lengths, *, causal):
    """Compare the results of each sequence with its own."""
    for sequence, length in enumerate(lengths):
        keys = rows[sequence, :length][None, :, None].double()
        wide = q[sequence][None].double()
        want, want_lse = reference.forward(wide, keys, keys[..., :LATENT], HEAD**-0.5, None, 0 if causal else None)
        assert apart(o[sequence], want[0]) < ROUNDOFF[q.dtype]
        assert torch.allclose(lse[sequence], want_lse[0], rtol=0, atol=1e-4)


def computed(q, cache, used, table, count, *, causal=False):
    """Return the results with the keys in so many parts."""
    batch, queries, heads, _ = q.shape
    rows, keys = q.flatten(1, 2), cache.reshape(-1, cache.shape[-1])
    o = torch.full((batch, queries * heads, LATENT), math.nan, dtype=q.dtype)
    lse = torch.full((batch, queries * heads), math.nan)
    page = 0 if table is None else cache.shape[1]
    most = cache.shape[1] * (1 if table is None else table.shape[1])
    options = {"causal": causal, "page": page, "most_keys": most, "has_lengths": True, "count": count}
    # What spills: two CTAs that share keys, 12 bytes, and are faster; a producer that divides by 48 for each page, 12;
    # consumers whose producers dequantise.
    spills = page == 48 or (not causal and rows.shape[1] > ROWS) or keys.dtype == torch.uint8
    allowed = {"spilled-registers": "few bytes"} if spills else None
    with cutepy.simulate(sanitize=True, allow=allowed) as run:
        plan(rows, keys, HEAD**-0.5, heads, **options)(rows, keys, o, lse, used, table)
    assert not run.hazards
    assert all(certificate.is_certified for certificate in run.certificates)
    return o.view(batch, queries, heads, LATENT), lse.view(batch, queries, heads).transpose(1, 2)


@pytest.mark.parametrize(
    ("queries", "causal", "uneven"),
    [(127, True, 0), (128, True, 3 * 32), (129, True, 3 * 33), (128, False, 0), (200, False, 0)],
)
def test_keys_are_dealt_unevenly_where_tiles_of_rows_see_other_numbers_of_them(monkeypatch, queries, causal, uneven):
    """A tile of 128 keys then ends between the rows of a sequence, of which 16 heads share a position."""
    told = []
    for name in ("compile_mla", "compile_combine"):
        monkeypatch.setattr(op, name, lambda *_, **__: None)
    monkeypatch.setattr(op, "parts_of", lambda *given: told.append(given) or 1)
    rows, keys = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((3, 16 * queries, HEAD), (3, 256, HEAD)))
    plan(rows, keys, 1.0, 16, causal=causal, page=0, most_keys=256, has_lengths=True)
    assert told == [(-(-16 * queries // ROWS), H200.sm_count, uneven)]


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("lengths", "queries", "heads", "page", "causal", "count", "dtype"),
    [
        pytest.param([300, 0, 129], 1, 16, 48, False, 2, E4M3, id="8 bits", marks=pytest.mark.integration),
        pytest.param([300, 0, 129], 1, 16, 48, False, 2, torch.bfloat16, id="pages", marks=pytest.mark.integration),
        pytest.param([130, 1], 3, 8, 64, True, 2, torch.float16, id="causal", marks=pytest.mark.integration),
        pytest.param([130, 7], 1, 72, 64, False, 2, torch.bfloat16, id="a cluster", marks=pytest.mark.integration),
        pytest.param(
            [700, 7], 1, 16, 0, False, 2, torch.bfloat16, id="rows of each sequence", marks=pytest.mark.integration
        ),
        pytest.param([130, 7], 2, 40, 8, True, 2, E4M3, id="8 bits, causal", marks=pytest.mark.integration),
        pytest.param([130, 400], 1, 72, 64, False, 3, E4M3, id="8 bits, a cluster", marks=pytest.mark.integration),
        pytest.param([700, 7], 1, 16, 0, False, 2, E4M3, id="8 bits, no pages", marks=pytest.mark.integration),
        pytest.param([3400], 1, 8, 64, False, 9, torch.bfloat16, id="many parts", marks=pytest.mark.integration),
    ],
)
def test_each_sequence_attends_to_its_own_rows(lengths, queries, heads, page, causal, count, dtype):
    quantised = dtype == E4M3
    q, rows, cached = make(lengths, queries, heads, page, torch.bfloat16 if quantised else dtype, quantised=quantised)
    o, lse = computed(q, *cached, count, causal=causal)
    check(o, lse, q, rows, lengths, causal=causal)


@pytest.mark.parametrize(
    ("lengths", "queries", "heads", "page"),
    [
        pytest.param([150, 129], 130, 2, 64, id="whole sequences"),
        pytest.param([520, 512], 512, 8, 64, id="512 queries", marks=pytest.mark.deep),
        pytest.param([530], 512, 16, 0, id="512 queries of one sequence", marks=pytest.mark.deep),
    ],
)
def test_prefill_of_many_queries(lengths, queries, heads, page, monkeypatch):
    monkeypatch.setattr(op, "gpu_of", lambda _: replace(H200, sm_count=8))
    q, rows, (cache, used, table) = make(lengths, queries, heads, page, torch.bfloat16)
    options = {"cache_seqlens": used, "block_table": table, "causal": True}
    with cutepy.simulate(sanitize=True, allow={"spilled-registers": "4 bytes"}) as run:
        o, lse = attention_mla(q, cache, **options, return_lse=True)
    assert not run.hazards
    assert all(certificate.is_certified for certificate in run.certificates)
    check(o, lse, q, rows, lengths, causal=True)


@pytest.mark.integration
@pytest.mark.parametrize(("page", "quantised"), [(1, False), (12, True)])
def test_pages_that_tma_cannot_copy_are_copied_first(page, quantised):
    lengths = [70, 0, 33]
    q, rows, (cache, used, table) = make(lengths, 1, 8, page, torch.bfloat16, quantised=quantised)
    with cutepy.simulate(sanitize=True, allow={"spilled-registers": "16 bytes, of rows of bytes"}) as run:
        o, lse = attention_mla(q, cache, cache_seqlens=used, block_table=table, return_lse=True)
    assert not run.hazards
    check(o, lse, q, rows, lengths, causal=False)


@pytest.mark.deep
@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    queries=st.integers(1, 3),
    heads=st.sampled_from([1, 16, 40, 128]),
    page=st.sampled_from([0, 1, 8, 12, 64, 80, 128]),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, E4M3]),
)
def test_any_lengths_pages_and_heads(lengths, queries, heads, page, causal, dtype):
    quantised = dtype == E4M3
    dtype = torch.bfloat16 if quantised else dtype
    q, rows, (cache, used, table) = make(lengths, queries, heads, page, dtype, quantised=quantised)
    options = {"cache_seqlens": used, "block_table": table, "causal": causal}
    # Producers of small pages have more copies than registers, whatever the type.
    with cutepy.simulate(sanitize=True, allow={"spilled-registers": "few bytes"}) as run:
        o, lse = attention_mla(q, cache, **options, return_lse=True)
    assert not run.hazards
    check(o, lse, q, rows, lengths, causal=causal)


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.parametrize("quantised", [False, True])
def test_a_sequence_has_the_same_bits_in_any_batch(quantised):
    q, _, (cache, used, table) = make([260, 140, 0], 1, 16, 64, torch.bfloat16, quantised=quantised)
    with batch_invariant(), cutepy.simulate():
        all_of_them = attention_mla(q, cache, cache_seqlens=used, block_table=table)
        alone = attention_mla(q[1:2], cache, cache_seqlens=used[1:2], block_table=table[1:2])
    assert torch.equal(all_of_them[1:2], alone)
    assert not all_of_them[2].any()


@pytest.mark.first(1)
@pytest.mark.parametrize("quantised", [False, True])
def test_pages_may_be_further_apart(quantised):
    """FlashMLA's `quantize_k_cache` leaves a row free behind each page; no sequence needs a page of its own memory."""
    q, rows, (cache, used, table) = make([30, 17], 1, 4, 16, torch.bfloat16, quantised=quantised)
    apart = torch.full((len(cache), 17, *cache.shape[2:]), 255 if quantised else math.nan, dtype=cache.dtype)[:, :16]
    apart.copy_(cache)
    if quantised:
        apart = apart.view(E4M3)
    allowed = {"spilled-registers": "few bytes"}
    with batch_invariant(), cutepy.simulate(sanitize=True, allow=allowed):
        o, lse = attention_mla(q, apart, cache_seqlens=used, block_table=table, return_lse=True)
    check(o, lse, q, rows, [30, 17], causal=False)


@pytest.mark.deep
def test_sequences_may_be_further_apart():
    q, rows, _ = make([30, 30], 1, 4, 0, torch.bfloat16)
    cache = torch.full((2, 41, HEAD), math.nan, dtype=torch.bfloat16)[:, :30]
    cache.copy_(rows)
    with batch_invariant(), cutepy.simulate(sanitize=True, allow={"spilled-registers": "few bytes"}):
        o, lse = attention_mla(q, cache, return_lse=True)
    check(o, lse, q, rows, [30, 30], causal=False)


@pytest.mark.parametrize("quantised", [False, True])
def test_flash_mlas_arguments_give_the_same(quantised):
    q, _, (cache, used, table) = make([30, 17], 2, 4, 16, torch.bfloat16, quantised=quantised)
    want = attention_mla(q, cache, cache_seqlens=used, block_table=table, causal=True, scale=0.1, return_lse=True)
    metadata = object(), object()
    options = {"softmax_scale": 0.1, "causal": True, "is_fp8_kvcache": quantised}
    got = flash_mla_with_kvcache(q, cache, table, used, 512, *metadata, **options)
    assert all(map(torch.equal, got, want))
    for bad in ((576, quantised), (512, not quantised)):
        with refuses(ValueError):
            flash_mla_with_kvcache(q, cache, table, used, bad[0], is_fp8_kvcache=bad[1])


def test_scores_are_scaled_by_the_root_of_the_columns_if_nothing_else_is_said():
    q, rows, (cache, used, table) = make([30, 17], 2, 4, 16, torch.bfloat16)
    o, lse = attention_mla(q, cache, cache_seqlens=used, block_table=table, return_lse=True)
    check(o, lse, q, rows, [30, 17], causal=False)


def test_shapes_dtypes_and_tables_are_checked():
    q, _, (cache, used, table) = make([30, 17], 1, 4, 16, torch.bfloat16)
    for bad in (
        {"q": q[..., :512]},
        {"cache": cache[..., :512]},
        {"block_table": None},
        {"cache_seqlens": None},
        {"cache_seqlens": used.long()},
        {"cache": cache[:, :0]},
        {"scale": -1.0},
        {"scale": "a"},
    ):
        settings = {"q": q, "cache": cache, "cache_seqlens": used, "block_table": table, **bad}
        with refuses(ValueError):
            attention_mla(**settings)
    with refuses(TypeError):
        attention_mla(q.half(), cache, cache_seqlens=used, block_table=table)
    with refuses(TypeError):
        attention_mla(q.half(), quantise_mla_cache(cache), cache_seqlens=used, block_table=table)
    with refuses(ValueError):
        attention_mla(q, cache.to(E4M3), cache_seqlens=used, block_table=table)


def test_shapes_and_flops_of_bytes_are_known_without_data():
    q = torch.empty(2, 1, 4, HEAD, dtype=torch.bfloat16, device="meta")
    cache = torch.empty(5, 16, 1, 656, dtype=E4M3, device="meta")
    used, table = (torch.empty(*shape, dtype=torch.int32, device="meta") for shape in ((2,), (2, 3)))
    with FlopCounterMode(display=False) as counted:
        o, lse = attention_mla(q, cache, cache_seqlens=used, block_table=table, return_lse=True)
    assert (o.shape, o.dtype, lse.shape) == ((2, 1, 4, LATENT), torch.bfloat16, (2, 4, 1))
    assert counted.get_total_flops() == 2 * 2 * 4 * 48 * (HEAD + LATENT)


def test_without_keys_or_queries_there_is_nothing_to_launch():
    with cutepy.simulate() as run:
        o, lse = attention_mla(torch.ones(2, 1, 4, HEAD).half(), torch.ones(2, 0, HEAD).half(), return_lse=True)
    assert not o.any()
    assert torch.isneginf(lse).all()
    assert not run.launches


@pytest.mark.first(1)
@pytest.mark.parametrize("cluster", [1, 2])
def test_registers_hold_what_loops_need(cluster):
    config = MlaConfig(dtype="bfloat16", page=64, cluster=cluster)
    [resources] = compile_mla(config, has_lengths=True).resources
    assert resources.spill_store_bytes <= 12 * (cluster - 1)
    [resources] = compile_mla(replace(config, quantised=True), has_lengths=True).resources
    assert resources.spill_store_bytes <= 20 * cluster


def test_all_sms_have_parts():
    assert [parts_of(tiles, 132) for tiles in (1, 2, 5, 132, 1000)] == [132, 66, 26, 1, 1]
    assert [parts_of(64, 132, uneven=64 * sequences) for sequences in (1, 2, 3, 100)] == [2, 2, 1, 1]


@pytest.mark.integration
@pytest.mark.parametrize("warps", [1, op.COMBINING_WARPS])
def test_partial_results_are_combined_row_by_row(warps):
    """Sequences of several parts, of one part, which is left as it is, and of no keys; by few CTAs and by many."""
    torch.manual_seed(warps)
    owned, rows = [(0, 3), (2, 1), (0, 0), (4, 11)], 5
    slots = 2 * max(first + count for first, count in owned)
    parts, lses = torch.randn(slots, rows, LATENT), 3 * torch.randn(slots, rows)
    lses[10, 1] = -math.inf  # has seen nothing of the row
    owners = torch.tensor([owned], dtype=torch.int32)
    used = torch.tensor([300, 64, 0, 900], dtype=torch.int32)
    left, left_lse = torch.randn(len(owned), rows, LATENT).bfloat16(), torch.randn(len(owned), rows)
    want, want_lse = left.float(), left_lse.clone()
    want[2], want_lse[2] = 0.0, -math.inf
    for sequence, (first, count) in enumerate(owned):
        if count > 1:
            own = [2 * first + 1, *(2 * n for n in range(first + 1, first + count))]
            want_lse[sequence] = torch.logsumexp(lses[own], 0)
            want[sequence] = (torch.exp(lses[own] - want_lse[sequence])[..., None] * parts[own]).sum(0)
    combine = op.compile_combine(MlaConfig(dtype="bfloat16", is_split=True), warps, has_lengths=True)
    for ctas in (1, 64):
        o, lse = left.clone(), left_lse.clone()
        with cutepy.simulate(sanitize=True) as run:
            combine(parts, lses, owners, o, lse, rows, 1024, ctas, used)
        assert not run.hazards
        assert torch.equal(o[1], left[1])
        assert apart(o, want) < ROUNDOFF[torch.bfloat16]
        assert torch.allclose(lse, want_lse, rtol=0, atol=1e-4)
