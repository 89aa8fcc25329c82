"""Multi-head latent attention with cached rows, in the simulator, sanitized: against float64, with poisoned caches."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.mla.config import HEAD, LATENT, ROWS, MlaConfig  # noqa: E402
from cutepy.kernels.mla.op import compile_mla, parts_of, plan  # noqa: E402
from cutepy.ops import attention_mla, batch_invariant, flash_mla_with_kvcache  # noqa: E402
from tests.kernels.test_attention import ROUNDOFF, apart  # noqa: E402
from tests.kernels.test_attention_decode import in_pages  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")


def make(lengths, queries, heads, page, dtype):
    """Return queries, each sequence's rows, and the arguments of an operation on a cache of these."""
    torch.manual_seed(sum(lengths) + queries)
    most = max(*lengths, 8)
    q = torch.randn(len(lengths), queries, heads, HEAD).to(dtype)
    rows = torch.randn(len(lengths), most, HEAD).to(dtype)
    used = torch.tensor(lengths, dtype=torch.int32)
    if page:
        (cache,), table = in_pages((rows[:, :, None],), lengths, page)
        return q, rows, (cache, used, table)
    cache = rows.clone()
    for sequence, length in enumerate(lengths):
        cache[sequence, length:] = math.nan
    return q, rows, (cache, used, None)


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
    rows, keys = q.flatten(1, 2), cache.reshape(-1, HEAD)
    o = torch.full((batch, queries * heads, LATENT), math.nan, dtype=q.dtype)
    lse = torch.full((batch, queries * heads), math.nan)
    page = 0 if table is None else cache.shape[1]
    most = cache.shape[1] * (1 if table is None else table.shape[1])
    options = {"causal": causal, "page": page, "most_keys": most, "has_lengths": True, "count": count}
    # What spills: two CTAs that share keys, 12 bytes, and are faster; a producer that divides by 48 for each page, 12.
    spills = page == 48 or (not causal and rows.shape[1] > ROWS)
    allowed = {"spilled-registers": "12 bytes"} if spills else None
    with cutepy.simulate(sanitize=True, allow=allowed) as run:
        plan(rows, keys, HEAD**-0.5, heads, **options)(rows, keys, o, lse, used, table)
    assert not run.hazards
    return o.view(batch, queries, heads, LATENT), lse.view(batch, queries, heads).transpose(1, 2)


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("lengths", "queries", "heads", "page", "causal", "count"),
    [
        pytest.param([300, 0, 129], 1, 16, 48, False, 2, id="pages", marks=pytest.mark.integration),
        pytest.param([130, 1], 3, 8, 64, True, 2, id="causal", marks=pytest.mark.integration),
        pytest.param([130, 7], 1, 72, 64, False, 2, id="a cluster", marks=pytest.mark.integration),
        pytest.param([700, 7], 1, 16, 0, False, 2, id="rows of each sequence", marks=pytest.mark.integration),
        pytest.param([3400], 1, 8, 64, False, 9, id="many parts", marks=pytest.mark.integration),
    ],
)
def test_each_sequence_attends_to_its_own_rows(lengths, queries, heads, page, causal, count):
    dtype = torch.float16 if causal else torch.bfloat16
    q, rows, cached = make(lengths, queries, heads, page, dtype)
    o, lse = computed(q, *cached, count, causal=causal)
    check(o, lse, q, rows, lengths, causal=causal)


@pytest.mark.deep
@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    queries=st.integers(1, 3),
    heads=st.sampled_from([1, 16, 40, 128]),
    page=st.sampled_from([0, 8, 16, 64, 80, 128]),
    causal=st.booleans(),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
)
def test_any_lengths_pages_and_heads(lengths, queries, heads, page, causal, dtype):
    q, rows, (cache, used, table) = make(lengths, queries, heads, page, dtype)
    options = {"cache_seqlens": used, "block_table": table, "causal": causal}
    with cutepy.simulate(sanitize=True) as run:
        o, lse = attention_mla(q, cache, **options, return_lse=True)
    assert not run.hazards
    check(o, lse, q, rows, lengths, causal=causal)


@pytest.mark.deep
@pytest.mark.integration
def test_a_sequence_has_the_same_bits_in_any_batch():
    q, _, (cache, used, table) = make([260, 140, 0], 1, 16, 64, torch.bfloat16)
    with batch_invariant(), cutepy.simulate():
        all_of_them = attention_mla(q, cache, cache_seqlens=used, block_table=table)
        alone = attention_mla(q[1:2], cache, cache_seqlens=used[1:2], block_table=table[1:2])
    assert torch.equal(all_of_them[1:2], alone)
    assert not all_of_them[2].any()


def test_flash_mlas_arguments_give_the_same():
    q, _, (cache, used, table) = make([30, 17], 2, 4, 16, torch.bfloat16)
    want = attention_mla(q, cache, cache_seqlens=used, block_table=table, causal=True, scale=0.1, return_lse=True)
    metadata = object(), object()
    got = flash_mla_with_kvcache(q, cache, table, used, 512, *metadata, softmax_scale=0.1, causal=True)
    assert all(map(torch.equal, got, want))
    with refuses(ValueError):
        flash_mla_with_kvcache(q, cache, table, used, 576)


def test_shapes_dtypes_and_tables_are_checked():
    q, _, (cache, used, table) = make([30, 17], 1, 4, 16, torch.bfloat16)
    for bad in (
        {"q": q[..., :512]},
        {"cache": cache[..., :512]},
        {"block_table": None},
        {"cache_seqlens": None},
        {"cache_seqlens": used.long()},
        {"cache": cache[:, :12]},
        {"scale": -1.0},
    ):
        settings = {"q": q, "cache": cache, "cache_seqlens": used, "block_table": table, **bad}
        with refuses(ValueError):
            attention_mla(**settings)
    with refuses(TypeError):
        attention_mla(q.half(), cache, cache_seqlens=used, block_table=table)


def test_without_keys_or_queries_there_is_nothing_to_launch():
    with cutepy.simulate() as run:
        o, lse = attention_mla(torch.ones(2, 1, 4, HEAD).half(), torch.ones(2, 0, HEAD).half(), return_lse=True)
    assert not o.any()
    assert torch.isneginf(lse).all()
    assert not run.launches


@pytest.mark.first(1)
@pytest.mark.parametrize("cluster", [1, 2])
def test_registers_hold_what_loops_need(cluster):
    [resources] = compile_mla(MlaConfig(dtype="bfloat16", page=64, cluster=cluster), has_lengths=True).resources
    assert resources.spill_store_bytes <= 12 * (cluster - 1)


def test_all_sms_have_parts():
    assert [parts_of(tiles, 132) for tiles in (1, 2, 5, 132, 1000)] == [132, 66, 26, 1, 1]
