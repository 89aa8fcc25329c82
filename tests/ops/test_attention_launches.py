"""Attention up to its launches: tensors that are refused, and those that kernels get."""

import math

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from cutepy.ops import quantised_attention, varlen_attention  # noqa: E402
from cutepy.ops.attention_functions import check_scoring  # noqa: E402
from cutepy.ops.varlen_attention import _Given, _to_launch  # noqa: E402

BIASED = (
    "(t0: f32[1])\n  v0 = acc()\n  v1 = head_index()\n  v2 = gather(v1, 't0')\n  v3 = add(v0, v2)\n  return score: v3"
)


def test_tensors_that_functions_use_are_beside_the_queries():
    q = torch.zeros(1, 8, 2, 64)
    check_scoring(q, None, [torch.zeros(2)], BIASED, (1, 8, 8))
    with refuses(ValueError):
        check_scoring(q, None, [torch.zeros(2, device="meta")], BIASED, (1, 8, 8))


def given(count, keys, **options):
    """Make the arguments of so many sequences, of as many queries and keys."""
    begins = [each * torch.arange(count + 1, dtype=torch.int32) for each in (4, keys)]
    plain = {"q_begins": begins[0], "k_begins": begins[1], "tables": [], "functions": "", "page": 0, "scale": 1.0}
    plain |= {"most_queries": 4, "most_keys": keys, "deterministic": False}
    return _Given(**(dict.fromkeys(_Given._fields) | plain | options))


@pytest.mark.parametrize("keys", [0, 1, 5])
def test_keys_that_are_none_are_launched_as_one_that_no_sequence_has(keys):
    q, (k, v) = torch.ones(12, 2, 64), (torch.ones(3 * keys, 2, head) for head in (64, 80))
    asked = given(3, keys)
    got_k, got_v, launched = _to_launch(q, k, v, asked)
    if keys:
        assert (got_k, got_v, launched) == (k, v, asked)
    else:
        assert (got_k.shape, got_v.shape) == ((1, 2, 64), (1, 2, 80))
        assert launched.k_begins.tolist() == [0] * 4


@pytest.mark.parametrize("is_used", [False, True])
def test_rows_that_no_kernel_writes_have_seen_no_key(is_used, monkeypatch):
    monkeypatch.setattr(varlen_attention, "plan_forward", lambda *_, **__: lambda *_: None)
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *shape, **options: self.new_full(*shape, 7.0, **options))
    q = torch.ones(12, 2, 64, dtype=torch.float16)
    asked = given(3, 4, q_used=torch.zeros(3, dtype=torch.int32) if is_used else None)
    run = varlen_attention._find_launch(q, q, q, asked, 1, None)
    o, lse = run(q, q, q, asked, asked.lengths, ())
    assert set(o.unique().tolist()) == {0.0 if is_used else 7.0}
    assert set(lse.unique().tolist()) == {-math.inf if is_used else 7.0}
    assert (o.shape, lse.shape) == ((12, 2, 64), (2, 12))


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_scales_of_blocks_are_passed_to_a_kernel_of_blocks_for_each_block(blocks, monkeypatch):
    asked_for, passed = [], []
    monkeypatch.setattr(
        quantised_attention,
        "find_launch",
        lambda *_, block, **__: (asked_for.append(block), lambda *given: passed.append(given))[1],
    )
    size = quantised_attention.BLOCK
    q, k = (torch.zeros(1, n, 2, 64).to(torch.float8_e4m3fn) for n in (4 * size, blocks * size))
    scales = torch.ones(1, 2, 1), torch.ones(1, 2, blocks), None
    asked = quantised_attention._Asked(q, k, k, *scales, None, [], [], "", [], 1.0, None, None, torch.float16)
    quantised_attention._find_launch(asked)(asked[:3], None, [], [], scales)
    ((*_, of_kernel),) = passed
    assert asked_for == [size if blocks > 1 else 0]
    assert [s if s is None else s.shape[2] for s in of_kernel] == [4 if blocks > 1 else 1, blocks, None]
