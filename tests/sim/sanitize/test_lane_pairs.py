"""Pairs of lanes whose order may rest on which lane is elected: which are asked about, and what is told of them."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from cutepy.sim.sanitize.order.lane_pairs import LanePairs, candidates, mates, tell

BEFORE, AFTER = object(), object()


@dataclass
class Election:
    """Election that asks about some pairs, by the older and by the newer lane's warp, and notes what is told of it."""

    lane: int = 0
    old: tuple[int, ...] = ()
    new: tuple[int, ...] = ()
    is_told: bool = False
    told: list[tuple[object, object, bool]] = field(default_factory=list)

    def asks(self, pairs):
        every = np.arange(len(pairs.counts))
        return np.isin(every, self.old), np.isin(every, self.new)

    def rest(self, before, after, *, of_one_thread):
        self.told.append((before, after, of_one_thread))


@dataclass
class Others:
    """Other lanes, which the order holds for in some pairs."""

    older: tuple[int, ...] = ()
    newer: tuple[int, ...] = ()

    def are_known(self, pairs):
        return np.isin(pairs, self.older)

    def know(self, pairs):
        return np.isin(pairs, self.newer)


def pairs_of(*lanes):
    """Return pairs of (CTA, thread) and (CTA, thread)."""
    old_ctas, old_threads, new_ctas, new_threads = np.array(lanes).T
    return LanePairs(BEFORE, AFTER, old_ctas, new_ctas, old_threads, new_threads, old_ctas, old_ctas)


ONE_AND_TWO = pairs_of((0, 3, 0, 3), (0, 3, 0, 4))
"""A pair of one thread, and a pair of two."""


def test_one_thread_is_of_one_cta_and_known():
    pairs = pairs_of((0, 0, 0, 0), (2, 7, 2, 7), (2, 7, 3, 7), (2, 7, 2, 39), (2, -1, 2, -1), (2, 7, 2, -1))
    assert pairs.are_of_one_thread.tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(("lane", "found"), [(0, [0, 1, 2]), (2, [3]), (31, [4])])
def test_candidates_have_the_elected_lane_of_any_warp_on_either_side(lane, found):
    old = np.array([0, 64, 7, 34, 31, -1, 7])
    new = np.array([7, 7, 32, -1, 7, 33, -1])
    assert candidates([Election(lane)], old, new).tolist() == found
    assert candidates([Election(lane)], new, old).tolist() == found


def test_no_pair_is_a_candidate_of_an_election_that_is_told():
    lanes = np.arange(4)
    assert candidates([Election(1, is_told=True)], lanes, lanes).tolist() == []
    assert candidates([Election(1, is_told=True), Election(2)], lanes, lanes).tolist() == [2]


def test_each_election_that_is_not_told_is_asked():
    elections = [Election(old=(0,), is_told=True), Election(old=(0,)), Election(new=(1,))]
    tell(elections, ONE_AND_TWO, Others())
    assert [one.told for one in elections] == [[], [(BEFORE, AFTER, True)], [(BEFORE, AFTER, False)]]


@pytest.mark.parametrize(
    ("old", "new", "others", "told"),
    [
        ((0, 1), (), Others(), [True]),  # one pair is told: the first
        ((0, 1), (), Others(older=(0,)), [False]),
        ((0, 1), (), Others(older=(0, 1)), []),
        ((0, 1), (), Others(newer=(0, 1)), [True]),
        ((), (0, 1), Others(newer=(0,)), [False]),
        ((), (0, 1), Others(newer=(0, 1)), []),
        ((1,), (0,), Others(), [False]),  # the older lane's warp first
        ((), (), Others(), []),
    ],
)
def test_an_order_that_holds_for_the_other_lanes_rests_on_no_election(old, new, others, told):
    election = Election(old=old, new=new)
    tell([election], ONE_AND_TWO, others)
    assert [is_one for _, _, is_one in election.told] == told


@pytest.mark.parametrize(
    ("threads", "positions", "found"),
    [
        ([0, 1, 32, 33, 34], [0, 1, 2, 4], [[1], [0], [3, 4], [2, 3]]),
        ([30, 31, 32, 33], [1, 2], [[0], [3]]),
        ([5], [0], [[]]),
        ([0, 1, 32], [0, 2], [[1], []]),
        ([5, 64], [1], [[]]),
    ],
)
def test_mates_are_the_other_lanes_of_the_same_warp(threads, positions, found):
    at, there = mates(np.array(threads), np.array(positions))
    assert [at[n][there[n]].tolist() for n in range(len(positions))] == found
    assert at.max() < len(threads)  # those that are not there may be looked up, too
