"""Attention of new queries with cached keys, in the simulator, sanitized: against float64, with poisoned caches."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.bands import KeyTiles  # noqa: E402
from cutepy.kernels.attention import reference  # noqa: E402
from cutepy.kernels.attention.choice import choose_decode, splits_of  # noqa: E402
from cutepy.kernels.attention.config import Lengths  # noqa: E402
from cutepy.kernels.attention.op import compile_forward  # noqa: E402
from cutepy.ops import attention_decode, attention_mla, batch_invariant, flash_attn_with_kvcache  # noqa: E402
from tests.kernels.test_attention import ROUNDOFF, apart  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

NOT_A_PAGE = 10**6


def in_pages(keys, lengths, page):
    """Return a cache whose pages are in any order, and the table; what no sequence uses is NaN, or no page."""
    batch, most, heads, head = keys[0].shape
    numbers = torch.randperm(sum(-(-length // page) for length in lengths)).tolist()
    caches = [torch.full((len(numbers) + 1, page, heads, head), math.nan, dtype=keys[0].dtype) for _ in keys]
    table = torch.full((batch, -(-most // page)), NOT_A_PAGE, dtype=torch.int32)
    for sequence, length in enumerate(lengths):
        for place in range(-(-length // page)):
            number = numbers.pop()
            rows = min(page, length - place * page)
            table[sequence, place] = number
            for cache, tensor in zip(caches, keys, strict=True):
                cache[number, :rows] = tensor[sequence, place * page : place * page + rows]
    return caches, table


def heads_first(cache):
    """Return a view of a copy in memory of which heads come before the keys of a page."""
    return cache.transpose(1, 2).contiguous().transpose(1, 2)


def check(
    queries,
    heads,
    head,
    most,
    lengths=None,
    page=None,
    dtype=torch.bfloat16,
    *,
    causal=False,
    window=(-1, -1),
    heads_first=lambda cache: cache,
):
    torch.manual_seed(most + queries)
    batch = len(lengths) if lengths else 2
    q = torch.randn(batch, queries, heads[0], head).to(dtype)
    k, v = (torch.randn(batch, most, heads[1], head).to(dtype) for _ in range(2))
    used, options = lengths or [most] * batch, {}
    if page:
        caches, options["block_table"] = in_pages((k, v), used, page)
    else:
        caches = k.clone(), v.clone()
        for sequence, length in enumerate(used):
            for cache in caches:
                cache[sequence, length:] = math.nan
    caches = map(heads_first, caches)
    if lengths:
        options["cache_seqlens"] = torch.tensor(lengths, dtype=torch.int32)
    with cutepy.simulate(sanitize=True) as run:
        o, lse = attention_decode(q, *caches, **options, causal=causal, window=window, return_lse=True)
    assert not run.hazards
    assert not run.advisories
    left, right = (None if each < 0 else each for each in window)
    for sequence, length in enumerate(used):
        wide = (each[sequence][None].double() for each in (q, k[:, :length], v[:, :length]))
        want, want_lse = reference.forward(*wide, head**-0.5, left, 0 if causal else right)
        assert apart(o[sequence], want[0]) < ROUNDOFF[dtype]
        assert torch.allclose(lse[sequence], want_lse[0], rtol=0, atol=1e-4)


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("queries", "heads", "head", "most", "options"),
    [
        pytest.param(1, (8, 2), 64, 700, {}, marks=pytest.mark.integration),
        (1, (8, 2), 64, 600, {"lengths": [600, 0], "page": 64}),
        pytest.param(
            3,
            (4, 1),
            128,
            300,
            {"lengths": [300, 1], "causal": True, "dtype": torch.float16},
            marks=pytest.mark.integration,
        ),
        pytest.param(
            2, (4, 2), 64, 400, {"lengths": [2, 137], "page": 16, "causal": True}, marks=pytest.mark.integration
        ),
        pytest.param(
            5, (2, 2), 64, 520, {"lengths": [520, 300], "page": 256, "window": (100, 0)}, marks=pytest.mark.integration
        ),
        pytest.param(1, (12, 4), 256, 300, {"lengths": [299, 64], "page": 48}, marks=pytest.mark.integration),
        pytest.param(
            70, (2, 1), 64, 300, {"lengths": [300, 90], "page": 32, "causal": True}, marks=pytest.mark.integration
        ),
        (1, (4, 2), 64, 140, {"lengths": [140, 33], "page": 12, "heads_first": heads_first}),
        pytest.param(1, (2, 1), 208, 150, {"lengths": [150, 66], "page": 1}, marks=pytest.mark.integration),
        pytest.param(
            70, (2, 1), 64, 200, {"lengths": [200, 66], "page": 5, "window": (50, 0)}, marks=pytest.mark.integration
        ),
        pytest.param(
            1,
            (4, 2),
            64,
            150,
            {"lengths": [150, 33], "page": 16, "heads_first": heads_first},
            marks=pytest.mark.integration,
        ),
    ],
)
def test_results_are_those_of_float64(queries, heads, head, most, options):
    check(queries, heads, head, most, **options)


@pytest.mark.parametrize("page", [64, 3, pytest.param(16, marks=pytest.mark.integration)])
def test_a_full_table_is_not_read_beyond_its_last_column(page):
    """The sequence ends where its last page does, and the table has no column behind that."""
    check(1, (2, 1), 64, 64, [64], page)


def test_sequences_share_pages():
    """Three sequences of 100 keys each, whose first page is one, in four pages."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape).bfloat16() for shape in ((3, 1, 2, 64), (4, 64, 1, 64), (4, 64, 1, 64)))
    table, lengths = torch.tensor([[2, 0], [2, 1], [2, 3]], dtype=torch.int32), torch.full((3,), 100, dtype=torch.int32)
    options = {"cache_seqlens": lengths, "block_table": table}
    with cutepy.simulate(sanitize=True) as run:
        o = attention_decode(q, k, v, **options)
    assert not run.hazards
    assert apart(o, attention_decode(q, k, v, **options)) < ROUNDOFF[torch.bfloat16]


@pytest.mark.deep
@pytest.mark.parametrize("page", [None, 1, 2, 8, 12, 16, 40, 64, 128, 256])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_any_cache(page, data):
    most = data.draw(st.integers(1, 600))
    lengths = data.draw(st.lists(st.integers(0, most), min_size=1, max_size=3))
    window = data.draw(st.integers(-1, 200)), data.draw(st.integers(-1, 3))
    heads = data.draw(st.sampled_from([(1, 1), (8, 1), (6, 2)]))
    check(
        data.draw(st.integers(1, 8)),
        heads,
        data.draw(st.sampled_from([16, 64, 128])),
        most,
        lengths,
        page,
        window=window,
        heads_first=data.draw(st.sampled_from([heads_first, torch.clone])),
    )


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 12), st.data())
def test_parts_of_tiles_are_all_tiles(begin, count, parts, data):
    whole = sorted(data.draw(st.integers(begin, begin + count)) for _ in range(2))
    tiles = KeyTiles(begin, begin + count, *whole)
    found, seen_whole = [], []
    for index in range(parts):
        part = tiles.part(index, parts)
        assert part.count >= 1
        assert part.begin <= part.whole_begin <= part.end
        found += range(part.begin, min(part.end, tiles.end))
        seen_whole += range(part.whole_begin, part.whole_end)
    assert found == list(range(tiles.begin, tiles.end))
    assert seen_whole == list(range(*whole))


@pytest.mark.integration
def test_a_row_does_not_depend_on_its_batch():
    q, k, v = (torch.randn(3, n, 2, 64).bfloat16() for n in (1, 300, 300))
    with cutepy.simulate(), batch_invariant():
        together = attention_decode(q, k, v)
        alone = torch.cat([attention_decode(*(each[n : n + 1] for each in (q, k, v))) for n in range(3)])
    assert torch.equal(together, alone)


def test_a_kept_launch_is_not_that_of_another_invariance():
    q, k = torch.randn(1, 1, 2, 64).bfloat16(), torch.randn(1, 512, 1, 64).bfloat16()
    with cutepy.simulate() as chosen:
        attention_decode(q, k, k)
    with cutepy.simulate() as invariant, batch_invariant():
        attention_decode(q, k, k)
    parts = [next(iter(run.launches)).grid[0] for run in (chosen, invariant)]
    assert parts[0] < parts[1], "the keys have as many parts in batches of any size"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_queries_are_cast_to_the_caches_dtype_within_autocast(dtype):
    q, cache = torch.randn(2, 1, 4, 64), torch.randn(2, 20, 2, 64).to(dtype)
    latent_q, latents = torch.randn(2, 1, 4, 576), torch.randn(2, 20, 576).to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        o, latent_o = attention_decode(q, cache, cache), attention_mla(latent_q, latents)
    assert torch.equal(o, attention_decode(q.to(dtype), cache, cache))
    assert torch.equal(latent_o, attention_mla(latent_q.to(dtype), latents))
    with pytest.raises(TypeError):
        attention_decode(q, cache, cache)


def test_flash_attn_with_kvcache_passes_each_argument_on():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, 2, 64).bfloat16() for n in (3, 16, 16))
    lengths = torch.tensor([9, 16], dtype=torch.int32)
    table = torch.tensor([[1], [0]], dtype=torch.int32)
    o, lse = flash_attn_with_kvcache(
        q, k, v, lengths, table, softmax_scale=0.3, causal=True, window_size=(4, 0), return_softmax_lse=True
    )
    want = attention_decode(
        q, k, v, cache_seqlens=lengths, block_table=table, causal=True, window=(4, 0), scale=0.3, return_lse=True
    )
    assert torch.equal(o, want[0])
    assert torch.equal(lse, want[1])
    same = attention_decode(q, k, v, cache_seqlens=torch.full((2,), 5, dtype=torch.int32))
    assert torch.equal(flash_attn_with_kvcache(q, k, v, 5), same)
    assert torch.equal(flash_attn_with_kvcache(q, k, v, 16, causal=True), attention_decode(q, k, v, causal=True))


def test_torch_compiles_and_checks_it():
    q, k = torch.randn(2, 1, 4, 64).bfloat16(), torch.randn(2, 40, 2, 64).bfloat16()
    lengths = torch.tensor([40, 3], dtype=torch.int32)
    call = lambda q: attention_decode(q, k, k, cache_seqlens=lengths, common_prefix_len=3)  # noqa: E731
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(q), call(q))
    torch.library.opcheck(
        torch.ops.cutepy.attention_decode.default, (q, k, k, lengths, None, None, [], "", 0.125, None, 0)
    )


def test_lengths_of_another_batch_are_refused_after_a_call_that_was_right():
    q, k = torch.randn(2, 1, 2, 64).bfloat16(), torch.randn(2, 16, 2, 64).bfloat16()
    lengths = torch.tensor([16, 3], dtype=torch.int32)
    with cutepy.simulate():
        attention_decode(q, k, k, cache_seqlens=lengths)
        with refuses(ValueError):
            attention_decode(q, k, k, cache_seqlens=lengths[:1])


@pytest.mark.parametrize(
    ("k_shape", "options"),
    [
        ((9, 16, 2, 64), {"block_table": (2, 3)}),
        ((9, 16, 2, 64), {"block_table": (3, 3), "cache_seqlens": (2,)}),
        ((2, 16, 2, 64), {"cache_seqlens": (3,)}),
        ((3, 16, 2, 64), {}),
    ],
)
def test_arguments_that_are_refused(k_shape, options):
    tensors = (torch.zeros(shape, dtype=torch.float16) for shape in ((2, 1, 4, 64), k_shape, k_shape))
    given = {name: torch.zeros(shape, dtype=torch.int32) for name, shape in options.items()}
    with refuses(ValueError):
        attention_decode(*tensors, **given)


def test_pages_that_are_no_whole_rows_apart_are_refused():
    q, k = torch.zeros(2, 1, 4, 64).half(), torch.zeros(9 * 1024).half().as_strided((9, 4, 2, 64), (520, 128, 64, 1))
    lengths, table = torch.zeros(2, dtype=torch.int32), torch.zeros(2, 3, dtype=torch.int32)
    with cutepy.simulate(), refuses(ValueError):
        attention_decode(q, k, k, cache_seqlens=lengths, block_table=table)


def test_caches_whose_pages_are_not_as_many_rows_apart_are_refused():
    q, k = torch.zeros(2, 1, 4, 64).half(), torch.zeros(9, 2, 4, 64).half()
    lengths, table = torch.zeros(2, dtype=torch.int32), torch.zeros(2, 3, dtype=torch.int32)
    with cutepy.simulate(), refuses(ValueError):
        attention_decode(q, k.transpose(1, 2), k.reshape(9, 4, 2, 64), cache_seqlens=lengths, block_table=table)


@pytest.mark.first(1)
@pytest.mark.integration
@pytest.mark.parametrize(("head", "page"), [(64, 16), (128, 64), (128, 0), (256, 64), (256, 1)])
def test_chosen_kernels_do_not_spill(head, page):
    config = choose_decode("bfloat16", head, head, left=False, right=True, page=page, is_split=True)
    assert config.smem.fits
    function = compile_forward(config, Lengths(k_used=True), is_cached=True, is_paged=page > 0, sharing=8)
    assert function.resources[0].spill_store_bytes == 0


@given(st.integers(1, 2000), st.integers(1, 200_000))
def test_splits_fill_the_sms_and_have_keys(tiles, most_keys):
    splits = splits_of(tiles, most_keys, 128, 132)
    assert 1 <= splits <= 128
    assert splits == 1 or most_keys >= 256 * splits
    assert splits == 1 or tiles < 0.8 * 132
