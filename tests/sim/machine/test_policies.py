"""Policies by their names."""

import pytest

import cutepy
from cutepy.sim import CompletionPolicy
from cutepy.sim.machine.policies import Late, Random, Youngest, policy_named


def test_names_make_policies():
    assert type(policy_named("late")) is Late
    assert type(policy_named("youngest")) is Youngest
    assert [policy_named(name).seed for name in ("random", "random:7")] == [0, 7]


@pytest.mark.parametrize("name", ["", "Late", "late:1", "random:", "random:x", "random:-1", "eager"])
def test_other_names_are_refused(name):
    with pytest.raises(
        ValueError, match="policy must be late, youngest, random, schedule, random:SEED, schedule:SEED or"
    ):
        policy_named(name)
    with pytest.raises(ValueError, match="policy must be"), cutepy.simulate(policy=name):
        pass


def test_a_seed_gives_an_order_and_others_give_others():
    def drawn(seed):
        policy = Random(seed)
        return [(policy.completes_at_issue(None), policy.choose(range(5))) for _ in range(50)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert {choice for _, choice in drawn(3)} == set(range(5))
    assert {at_once for at_once, _ in drawn(3)} == {True, False}


def test_what_comes_late_completes_in_the_order_that_the_name_says():
    assert not Late().completes_at_issue(None)
    assert not Youngest().completes_at_issue(None)
    assert (Late().choose(range(3)), Youngest().choose(range(3))) == (0, 2)


def test_operations_complete_as_they_are_issued_unless_a_policy_says_otherwise():
    """What a policy of one's own leaves out is done at once, the oldest first."""
    assert CompletionPolicy().completes_at_issue(None)
    assert CompletionPolicy().choose(range(3)) == 0
