"""Lengths of sequences: refusals before anything is computed, and the heads whose queries are rows of one tile."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.ops import attention_varlen, varlen_attention  # noqa: E402
from cutepy.ops.varlen_attention import Lengths, _check_lengths  # noqa: E402

pytestmark = pytest.mark.dsl
PACKED, PADDED = torch.zeros(6, 2, 16).half(), torch.zeros(2, 3, 2, 16).half()
PAGES, TABLE = torch.zeros(4, 8, 2, 16).half(), torch.zeros(2, 1, dtype=torch.int32)


def numbers(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


BEGINS, USED = numbers(0, 2, 6), numbers(3, 2)


@pytest.mark.parametrize(
    ("q", "k", "given"),
    [
        (PADDED, PAGES, {"block_table": TABLE}),
        (PADDED, PAGES, {"block_table": TABLE, "cu_seqlens_k": BEGINS}),
        (PADDED, PAGES, {"block_table": TABLE, "cu_seqlens_k": BEGINS, "seqused_k": USED}),
        (PADDED, PADDED, {}),
        (PADDED, PADDED, {"cu_seqlens_q": BEGINS, "cu_seqlens_k": BEGINS}),
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS}),
        (PACKED, PACKED, {"seqused_q": USED}),
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS.long(), "cu_seqlens_k": BEGINS}),
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS, "cu_seqlens_k": BEGINS[None]}),
        (PACKED, PACKED, {"cu_seqlens_q": numbers(0, 9, 2, 9, 6, 9)[::2], "cu_seqlens_k": BEGINS}),
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS, "cu_seqlens_k": BEGINS, "seqused_k": USED.to("meta")}),
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS, "cu_seqlens_k": numbers(0, 1, 2, 6)}),
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS, "cu_seqlens_k": BEGINS, "seqused_q": numbers(1, 1, 1)}),
        (PADDED, PACKED, {"cu_seqlens_k": numbers(0, 2, 4, 6), "seqused_q": USED}),
        (PADDED, PADDED, {"seqused_k": numbers(3)}),
    ],
)
def test_lengths_that_do_not_fit(q, k, given):
    with refuses(ValueError):
        attention_varlen(q, k, k, **given)


def test_a_cache_whose_pages_are_apart_is_refused():
    apart = torch.zeros(4, 16, 2, 16).half()[:, :8]
    with refuses(ValueError):
        attention_varlen(PADDED, apart, apart, block_table=TABLE, seqused_k=USED)


@pytest.mark.parametrize(
    ("q", "k", "lengths", "is_paged"),
    [
        (PACKED, PACKED, (BEGINS, BEGINS, None, None), False),
        (PACKED, PACKED, (BEGINS, BEGINS, USED, USED), False),
        (PADDED, PADDED, (None, None, None, USED), False),
        (PADDED, PACKED, (None, BEGINS, USED, None), False),
        (PACKED, PADDED, (BEGINS, None, None, USED), False),
        (PADDED, PAGES, (None, None, None, USED), True),
        (PACKED, PAGES, (BEGINS, None, None, USED), True),
    ],
)
def test_sequences_are_counted(q, k, lengths, is_paged):
    assert _check_lengths(q, k, k, Lengths(*lengths), is_paged=is_paged) == 2


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head", "packed"),
    [(8, 1, 16, 8), (8, 2, 64, 4), (12, 1, 32, 4), (4, 4, 16, 1), (0, 0, 16, 64)],
)
def test_heads_that_share_keys_are_rows_of_one_tile(monkeypatch, heads, kv_heads, head, packed):
    class FoundError(Exception):
        """The kernel would be chosen now."""

    def find(q, k, v, given, packed, scaled):
        raise FoundError(packed)

    monkeypatch.setattr(varlen_attention, "_find_launch", find)
    monkeypatch.setattr(varlen_attention, "_check", lambda *_: None)
    q, k = torch.zeros(6, heads, head).half(), torch.zeros(6, kv_heads, head).half()
    given = varlen_attention._AttentionArguments(
        *(BEGINS, BEGINS, None, None, None, None, []), *("", 0, 3, 3, 1.0, None, None, False)
    )
    with pytest.raises(FoundError) as found:
        varlen_attention._attend(q, k, k, given, None)
    assert found.value.args == (packed,)


@pytest.mark.parametrize(
    ("q", "k", "given", "most"),
    [
        (PACKED, PACKED, {"cu_seqlens_q": BEGINS, "cu_seqlens_k": BEGINS}, (6, 6)),
        (PADDED, PACKED, {"cu_seqlens_k": BEGINS}, (3, 6)),
        (PACKED, PADDED, {"cu_seqlens_q": BEGINS}, (6, 3)),
        (PADDED, PADDED, {"seqused_k": USED, "max_seqlen_k": 2}, (3, 2)),
    ],
)
def test_no_sequence_is_longer_than_is_said_or_the_tensor(q, k, given, most, monkeypatch):
    seen = []

    def attend(q, k, v, *rest):
        seen.append(varlen_attention._AttentionArguments(*rest))
        return q, q[..., 0].T

    monkeypatch.setattr(varlen_attention, "_attention_varlen", attend)
    attention_varlen(q, k, k, **given)
    assert [(asked.most_queries, asked.most_keys) for asked in seen] == [most]
