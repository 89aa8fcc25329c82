"""Parts of decoding's keys, which another kernel combines, in the simulator, sanitized: against float64."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.kernels.attention import op, reference  # noqa: E402
from cutepy.kernels.attention.config import ForwardConfig, Lengths  # noqa: E402
from cutepy.kernels.attention.op import forward_variant, plan_decode  # noqa: E402
from tests.kernels.test_attention import ROUNDOFF, apart  # noqa: E402
from tests.kernels.test_attention_decode import in_pages  # noqa: E402

pytestmark = pytest.mark.usefixtures("complete_launches")

KV_HEADS = 2


def tensors(lengths, rows, head, page):
    """Return queries, keys, values, and what a launch takes of these: caches, lengths and a table, or None."""
    torch.manual_seed(sum(lengths) + rows)
    batch, most = len(lengths), max(lengths)
    q = torch.randn(batch, rows, KV_HEADS, head).bfloat16()
    k, v = (torch.randn(batch, most, KV_HEADS, head).bfloat16() for _ in range(2))
    if not page:
        return q, k, v, (k, v, None, None)
    (k_cache, v_cache), table = in_pages((k, v), lengths, page)
    used = None, None, None, torch.tensor(lengths, dtype=torch.int32)
    return q, k, v, (k_cache.flatten(0, 1), v_cache.flatten(0, 1), used, table)


def decoded(q, given, lengths, page, *, causal=False):
    """Return the results of tensors."""
    k, v, used, table = given
    head, sharing = q.shape[3], q.shape[1]
    lse = torch.full((len(q), KV_HEADS, sharing), torch.nan)
    o = torch.full_like(q, torch.nan)
    right, sharing = (0, sharing // 2) if causal else (None, sharing)
    of_keys = Lengths(k_used=True) if page else None
    launch = plan_decode(q, k, v, head**-0.5, None, right, of_keys, max(lengths), page, sharing=sharing)
    launch(q, k, v, o, lse, used, table)
    return o, lse


def check(o, lse, q, k, v, lengths, *, causal=False):
    """Compare with each sequence's own results."""
    group = q.shape[1] // 2 if causal else q.shape[1]
    for sequence, length in enumerate(lengths):
        # Rows are the heads of one token, or of two.
        heads = q[sequence].unflatten(0, (-1, group)).permute(0, 2, 1, 3).flatten(1, 2)
        wide = (each[None].double() for each in (heads, k[sequence, :length], v[sequence, :length]))
        want, want_lse = reference.forward(*wide, q.shape[3] ** -0.5, None, 0 if causal else None)
        want = want[0].unflatten(1, (KV_HEADS, group)).transpose(1, 2).flatten(0, 1)
        want_lse = want_lse[0].unflatten(0, (KV_HEADS, group)).transpose(1, 2).flatten(1, 2)
        assert apart(o[sequence], want) < ROUNDOFF[q.dtype]
        assert torch.allclose(lse[sequence], want_lse, rtol=0, atol=1e-4)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("lengths", "rows", "head", "page", "splits", "causal"),
    [
        pytest.param([700, 0], 8, 64, 64, 3, False, id="pages, a sequence without keys"),
        pytest.param([900, 130], 10, 64, 16, 5, True, id="causal, parts that see nothing"),
        pytest.param([500, 500], 6, 128, 0, 2, False, id="no pages"),
        pytest.param([300], 64, 256, 64, 4, False, id="all rows of a tile"),
        pytest.param([2400], 8, 64, 64, 19, False, id="more parts than are read at one time"),
    ],
)
def test_results_are_those_of_float64(lengths, rows, head, page, splits, causal, monkeypatch):
    monkeypatch.setattr(op, "splits_of", lambda *_: splits)
    q, k, v, given = tensors(lengths, rows, head, page)
    with cutepy.simulate(sanitize=True) as run:
        found = decoded(q, given, lengths, page, causal=causal)
    assert not run.hazards, run.report()
    assert len(run.launches) == 2
    check(*found, q, k, v, lengths, causal=causal)


def test_a_part_of_which_a_row_sees_nothing_counts_nothing_whatever_it_has(monkeypatch):
    """The last of five parts has one key, which the first of two tokens does not see: its O has no numbers there."""
    monkeypatch.setattr(op, "splits_of", lambda *_: 5)
    q, _, _, (k, v, used, table) = tensors([513], 4, 64, 64)
    v[int(table[0, 8]) * 64] = torch.nan
    with cutepy.simulate():
        o, _ = decoded(q, (k, v, used, table), [513], 64, causal=True)
    assert torch.isfinite(o[0, :2]).all()
    assert torch.isnan(o[0, 2:]).all()


@pytest.mark.parametrize(("is_split", "is_cached"), [(False, True), (True, False)])
def test_stores_of_rows_by_threads_are_of_parts_only(is_split, is_cached):
    tiles = {"tile_m": 64, "tile_n": 64, "warpgroups": 1}
    config = ForwardConfig(dtype="float16", head=64, head_v=64, **tiles, is_split=is_split, stores_rows=True)
    with refuses(ValueError):
        forward_variant(config, Lengths(q_used=True, k_used=True), is_cached=is_cached)
