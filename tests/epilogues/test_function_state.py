"""States of functions are equal only where the functions read the same."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import and_masks, noop_mask  # noqa: E402

from cutepy.epilogues.function_state import state_of  # noqa: E402
from cutepy.ops import attention_functions  # noqa: E402

LIMIT = 3
TABLE = torch.arange(4)


def limited(b, h, i, j):
    return i - j < LIMIT


def made(value, function=None):
    return lambda b, h, i, j: (i + value if function is None else function(b, h, i, j)) + TABLE[h] > math.pi


def same(one, other):
    return state_of(one) == state_of(other)


def test_equal_closures_are_equal():
    assert same(made(3), made(3))
    assert same(made(TABLE), made(TABLE))
    assert same(made((1, 2)), made((1, 2)))
    assert same(and_masks(limited, noop_mask), and_masks(limited, noop_mask))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("a", "b"),
        (TABLE, TABLE.clone()),
        ((1, 2), (1, 3)),
        (math, torch),
        (torch.sin, torch.cos),
        (torch.nn.functional.silu, torch.nn.functional.relu),
        (torch.finfo, torch.iinfo),
    ],
)
def test_other_closures_differ(one, other):
    assert not same(made(one), made(other))
    assert not same(made(0, made(one)), made(0, made(other)))


def test_globals_and_defaults_count(monkeypatch):
    before = state_of(limited)
    monkeypatch.setattr(f"{__name__}.LIMIT", 4)
    assert state_of(limited) != before
    nested = lambda b, h, i, j: (lambda: i < LIMIT)()  # noqa: E731
    before = state_of(nested)
    monkeypatch.setattr(f"{__name__}.LIMIT", 5)
    assert state_of(nested) != before
    assert not same(lambda i, n=1: i + n, lambda i, n=2: i + n)


@pytest.mark.parametrize("value", [[1], {}, object(), pytest, type("Own", (), {})])
def test_what_may_change_unseen_has_no_state(value):
    assert state_of(made(value)) is None


def test_functions_that_are_what_they_were_are_traced_once(monkeypatch):
    runs = []
    original = attention_functions.scores.trace_scores
    monkeypatch.setattr(attention_functions.scores, "trace_scores", lambda *a: runs.append(a) or original(*a))

    def traced(score, **operands):
        return attention_functions.traced(2.0, None, score, None, operands)

    attention_functions._graphs.clear()
    table = torch.arange(3.0)
    by = lambda t: lambda s, b, h, i, j: s + t[h]  # noqa: E731
    first, second = traced(by(table)), traced(by(table))
    assert len(runs) == 1
    assert first[0] == second[0]
    assert first[1][0] is second[1][0] is table
    other = traced(by(table.clone()))
    assert len(runs) == 2
    assert other[0] == first[0]
    assert other[1][0] is not table
    passed = lambda s, b, h, i, j, bias: s + bias[h]  # noqa: E731
    assert [traced(passed, bias=each)[1][0] is each for each in (table, table + 1)] == [True, True]
    assert len(runs) == 3
    # What is computed of a tensor is computed again.
    decided = lambda s, b, h, i, j: s + table[0].item()  # noqa: E731
    before = traced(decided)
    table[0] = 7.0
    assert traced(decided)[0] != before[0]
    # One object stands for a table that another was until it died.
    for n in range(20):
        assert traced(by(torch.full((3,), n)))[1][0][0] == n
