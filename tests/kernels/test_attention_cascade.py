"""Attention of sequences that share their first keys, in the simulator, sanitized: against float64, poisoned caches."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from hypothesis import given, settings, strategies as st  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device.bands import KeyTiles  # noqa: E402
from cutepy.kernels.attention.cascade import keys_shared  # noqa: E402
from cutepy.kernels.attention.choice import choose_shared  # noqa: E402
from cutepy.kernels.attention.config import CachedKeys, Lengths  # noqa: E402
from cutepy.kernels.attention.op import compile_forward  # noqa: E402
from cutepy.ops import attention_decode, batch_invariant  # noqa: E402
from cutepy.ops.decode_attention import attend_each  # noqa: E402
from tests.kernels.test_attention import ROUNDOFF, apart  # noqa: E402
from tests.kernels.test_attention_decode import NOT_A_PAGE, heads_first  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")


def in_shared_pages(keys, lengths, page, common):
    """Return a cache whose first pages all sequences have, and the table; what none uses is NaN, or no page."""
    (batch, most, heads, head), shared = keys[0].shape, common // page
    of_each = [-(-length // page) for length in lengths]
    numbers = torch.randperm(shared + sum(max(count - shared, 0) for count in of_each)).tolist()
    caches = [torch.full((len(numbers) + 1, page, heads, head), math.nan, dtype=keys[0].dtype) for _ in keys]
    table = torch.full((batch, -(-most // page)), NOT_A_PAGE, dtype=torch.int32)
    first = [numbers.pop() for _ in range(shared)]
    for sequence, (length, count) in enumerate(zip(lengths, of_each, strict=True)):
        for place in range(count):
            number = first[place] if place < shared else numbers.pop()
            rows = page if place < shared else min(page, length - place * page)
            table[sequence, place] = number
            for cache, tensor in zip(caches, keys, strict=True):
                cache[number, :rows] = tensor[sequence, place * page : place * page + rows]
    return caches, table


def problem(queries, heads, head, lengths, common, page=None, heads_first=lambda cache: cache, *, has_lengths=True):
    """Return the arguments of sequences of which the first keys are the same."""
    torch.manual_seed(common + queries)
    batch, most = len(lengths), max(lengths) + (20 if has_lengths else 0)
    q = torch.randn(batch, queries, heads[0], head).bfloat16()
    keys = [torch.randn(batch, most, heads[1], head).bfloat16() for _ in range(2)]
    for each in keys:
        each[:, :common] = each[:1, :common].clone()
    options = {"cache_seqlens": torch.tensor(lengths, dtype=torch.int32)} if has_lengths else {}
    if page:
        keys, options["block_table"] = in_shared_pages(keys, lengths, page, common)
    else:
        for sequence, length in enumerate(lengths):
            for each in keys:
                each[sequence, length:] = math.nan
    return (q, *map(heads_first, keys)), options


def check(queries, heads, lengths, common, options, right=None, head=64):
    tensors, of_cache = problem(queries, heads, head, lengths, common, **options)
    with cutepy.simulate(sanitize=True) as run:
        how = {**of_cache, "window": (None, right), "return_lse": True}
        o, lse = attention_decode(*tensors, **how, common_prefix_len=common)
    assert len(run.launches) == 3
    assert not run.hazards
    assert not run.advisories
    assert all(certificate.is_certified for certificate in run.certificates)
    given = of_cache.get("cache_seqlens"), of_cache.get("block_table"), head**-0.5, None, right
    want, want_lse = attend_each(*(each.double() for each in tensors), *given)
    assert apart(o, want) < ROUNDOFF[torch.bfloat16]
    assert torch.equal(lse == -math.inf, want_lse == -math.inf)
    assert torch.allclose(lse, want_lse, rtol=0, atol=1e-4)


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize(
    ("queries", "heads", "lengths", "common", "options", "right"),
    [
        (1, (4, 2), [300, 200, 128, 127, 0], 160, {"page": 16}, None),
        (1, (4, 2), [100, 200], 160, {"page": 16}, None),  # the first sequence lacks keys of the others
        (2, (8, 1), [300, 300], 300, {"has_lengths": False}, 0),
        (2, (6, 2), [300, 129, 130], 144, {"page": 48, "heads_first": heads_first}, 0),
        (1, (2, 2), [300, 200, 258], 256, {"page": 12}, 3),
        (40, (4, 2), [300, 270], 256, {}, 0),
    ],
)
def test_results_are_those_of_float64(queries, heads, lengths, common, options, right):
    check(queries, heads, lengths, common, options, right)


@pytest.mark.deep
@pytest.mark.parametrize("page", [None, 1, 12, 16, 64])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_any_lengths(page, data):
    common = data.draw(st.integers(128, 300))
    rest = data.draw(st.lists(st.integers(-60, 300), min_size=1, max_size=4))
    check(
        data.draw(st.integers(1, 8)),
        data.draw(st.sampled_from([(1, 1), (8, 1), (6, 2)])),
        [common + data.draw(st.integers(0, 50)), *(max(common + each, 0) for each in rest)],
        common,
        {"page": page, "heads_first": data.draw(st.sampled_from([heads_first, torch.clone]))},
        data.draw(st.sampled_from([None, 0, -3, 2])),
        data.draw(st.sampled_from([16, 64, 128])),
    )


@pytest.mark.integration
def test_a_row_does_not_depend_on_its_batch():
    tensors, options = problem(1, (4, 2), 64, [300, 200], 160, 16)
    with cutepy.simulate() as run, batch_invariant():
        shared, own = (attention_decode(*tensors, **options, common_prefix_len=common) for common in (160, 0))
    assert torch.equal(shared, own)
    assert len(run.launches) == 4


@pytest.mark.parametrize("common", [-1, 33, 1.5, None])
def test_arguments_that_are_refused(common):
    tensors, options = problem(1, (4, 2), 16, [30, 20], 16, 4)
    options["block_table"] = options["block_table"][:, :8].contiguous()
    with refuses(ValueError):
        attention_decode(*tensors, **options, common_prefix_len=common)


def test_whole_tiles_of_two_sequences_are_shared():
    q, v = torch.zeros(2, 1, 1, 256).half(), torch.zeros(2, 9, 1, 256).half()
    assert [keys_shared(q, v, common) for common in (0, 63, 64, 200)] == [0, 0, 64, 192]
    assert keys_shared(q[:1], v, 200) == keys_shared(q.expand(2, 65, 1, 256), v, 200) == keys_shared(q, v, 200, 50) == 0


@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 60), st.data())
def test_tiles_behind_others_are_the_rest(begin, count, shared, data):
    whole = sorted(data.draw(st.integers(begin, begin + count)) for _ in range(2))
    tiles = KeyTiles(begin, begin + count, *whole)
    rest = tiles.behind(shared)
    assert rest.count >= 1
    assert rest.begin <= rest.whole_begin
    assert rest.whole_end <= rest.end
    assert list(range(rest.begin, min(rest.end, tiles.end))) == list(range(max(begin, shared), tiles.end))
    assert list(range(rest.whole_begin, rest.whole_end)) == list(range(max(whole[0], shared), whole[1]))
    if tiles.has_whole(shared):
        assert begin == 0
        assert whole[0] == 0
        assert shared <= whole[1]


@pytest.mark.first(2)
@pytest.mark.integration
@pytest.mark.parametrize(("head", "page", "queries"), [(64, 16, 2048), (128, 16, 64), (256, 12, 64), (128, 0, 8)])
def test_chosen_kernels_do_not_spill(head, page, queries):
    config = choose_shared("bfloat16", head, head, queries, page=page, packed=8)
    assert config.smem.fits
    cached = CachedKeys(most=1)
    function = compile_forward(config, Lengths(k_used=True), is_cached=True, is_paged=page > 0, cached=cached)
    assert function.resources[0].spill_store_bytes == 0
