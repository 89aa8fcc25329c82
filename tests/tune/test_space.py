"""Axes and rules: which candidates a problem has."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from cutepy.tune import Space
from tests.messages import refuses

AXES = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 3), min_size=1, unique=True), max_size=4)


@given(AXES, st.lists(st.tuples(st.sets(st.sampled_from("abcdp"), max_size=3), st.integers(0, 9)), max_size=4))
def test_candidates_are_the_combinations_that_keep_all_rules(axes, drawn):
    problem = {"p": 2}
    space, kept = Space(axes), []
    for names, limit in drawn:
        names = sorted(names & {*axes, "p"})
        holds = eval(f"lambda {', '.join(names)}: sum(({', '.join([*names, '0'])},)) <= {limit}")
        kept.append((names, limit))
        space = space.where(f"sum of {names}", holds)
    expected = [
        candidate
        for values in product(*axes.values())
        if (candidate := dict(zip(axes, values, strict=True))) is not None
        and all(sum(({**candidate, **problem})[name] for name in names) <= limit for names, limit in kept)
    ]
    assert list(space.candidates(problem)) == expected


def test_a_rule_is_asked_as_soon_as_what_it_takes_is_bound():
    asked = []
    space = Space({"a": (1, 2), "b": tuple(range(100))}).where("a", lambda a: asked.append(a) or a == 2)
    assert len(list(space.candidates({}))) == 100
    assert asked == [1, 2]
    assert space.left_out({}) == {"a": 1}


def test_a_rule_of_the_problem_alone_is_asked_once():
    asked = []
    space = Space({"a": (1, 2)}).where("p", lambda p: asked.append(p) or False)
    assert list(space.candidates({"p": 3})) == []
    assert asked == [3]


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (lambda: Space({"tile": ()}), {}),
        (lambda: Space({"tile": (64, 64)}), {}),
        (lambda: Space({"tile": (64,)}), {"tile": 1}),
        (lambda: Space({"tile": (64,)}).where("waste", lambda tile, rows: tile < rows), {"m": 1}),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(space, problem):
    with refuses(ValueError):
        list(space().candidates(problem))


@pytest.mark.parametrize("wrong", [3, None, "tile < m"])
def test_a_rule_is_a_function(wrong):
    with refuses(TypeError):
        Space({"tile": (1, 2)}).where("x", wrong)


def test_a_rule_says_why():
    with refuses(TypeError):
        Space({"tile": (1, 2)}).where(lambda tile: tile, "why")


def test_a_parameter_with_a_default_keeps_it_unless_something_has_its_name():
    space = Space({"a": (1, 2, 3)}).where("too large", lambda a, z=2: a <= z)
    assert list(space.candidates({})) == [{"a": 1}, {"a": 2}]
    assert list(space.candidates({"z": 1})) == [{"a": 1}]
    assert [each["a"] for each in Space({"z": (1, 2), "a": (1, 2)}, space.rules).candidates({})] == [1, 1, 2]
