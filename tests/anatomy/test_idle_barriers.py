"""Generations of barriers that order no access, of warps with facts made up for this."""

from types import SimpleNamespace

import pytest

from cutepy.anatomy.costs import Search
from cutepy.predict.trace import Arrive, Global, Wait


def idle(*warps, kinds=()):
    """Return (line, key) of idle generations; a warp is a text: a write "w", a read "r", an arrival and wait at a key.

    Keys stand for generations of one barrier; "a" and a key is an arrival alone, "v" and a key a wait.
    """
    found, last = [], 10
    for text in warps:
        facts, at = {}, 0
        signs = iter(text)
        for sign in signs:
            at += 10
            if sign in "wr":
                facts[at] = [Global(at, "store" if sign == "w" else "load", 1, 1, 0, 1)]
            elif sign == "a":
                facts[at] = [Arrive(at, (int(next(signs)),))]
            elif sign == "v":
                facts[at] = [Wait(at + 1, int(next(signs)))]
            else:
                facts[at] = [Arrive(at, (int(sign),)), Wait(at + 1, int(sign))]
        found.append(SimpleNamespace(facts=dict(reversed(facts.items()))))
    search = object.__new__(Search)
    search._warps = found
    barriers = {key: SimpleNamespace(kind=dict(kinds).get(key, "bar"), place=0) for key in range(last)}
    search._trace = SimpleNamespace(barriers=barriers)
    search._writes = lambda n, fact: fact.kind == "store"
    return search._idle_generations()


@pytest.mark.parametrize(
    ("warps", "found"),
    [
        (["012"], [(20, 1)]),  # the first and the last one order what came before the kernel, and comes after it
        (["0123"], [(20, 1), (30, 2)]),
        (["0w12"], []),
        (["01w2"], []),
        (["0r1r2"], [(30, 1)]),
        (["w012w"], [(30, 1)]),
        (["0123w4"], [(20, 1), (30, 2)]),
        (["012", "012"], [(20, 1)]),
        (["012", "0w12"], []),
        (["012", "01w2"], []),
        (["012", "0a12"], []),
        (["01", "012"], []),
        (["0v12", "a1"], []),  # who waits and has not arrived needs those who do
    ],
)
def test_generations_between_which_nothing_is_written_are_idle(warps, found):
    assert idle(*warps) == found


def test_barriers_of_other_kinds_are_left_alone():
    assert idle("012", kinds={1: "mbarrier"}) == []
