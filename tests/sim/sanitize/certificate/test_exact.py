"""The exact form of premise 4 against all orders of a phase's operations, one by one."""

import itertools

import numpy as np
from hypothesis import given, strategies as st

from cutepy.sim.mechanisms.mbarriers import MAX_COUNT
from cutepy.sim.sanitize.certificate.phase_completion import MOST, Log, Step, bytes_hold, holds_exactly

KINDS = {
    "arrive": (-1, 0, False, True),
    "nocomplete": (-1, 0, True, False),
    "expect": (0, 16, True, False),
    "copy": (0, -16, False, True),
    "increment": (1, 0, True, True),
}


@st.composite
def logs(draw):
    """Draw operations of threads, each of which knows of some that were done before."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    known, steps = [], []
    for n, kind in enumerate(kinds):
        mine = np.zeros(len(kinds), np.int32)
        for other in draw(st.sets(st.integers(0, n - 1))) if n else ():
            mine = np.maximum(mine, known[other])
        mine[n] = 1
        known.append(mine)
        steps.append(Step(0, n, 1, mine[None, : n + 1], *KINDS[kind]))  # what comes later has no column yet
    return Log(draw(st.integers(1, 3)), steps)


def _must_precede(one, other):
    """Return True if `one` happens before `other`: each thread has a column of its own in the vector clock."""
    return one.column < other.column and bool(other.known[0, one.column])


def in_every_order(log):
    """Return True if no order that respects happens-before completes the phase early, or breaks a count."""
    steps = log.steps
    for order in itertools.permutations(steps):
        if any(_must_precede(later, one) for n, one in enumerate(order) for later in order[n + 1 :]):
            continue
        arrivals, size = log.expected, 0
        for n, step in enumerate(order):
            arrivals, size = arrivals + step.arrivals, size + step.size
            completes = arrivals == 0 and size == 0
            if arrivals < 0 or (completes and (n + 1 < len(order) or not step.may_complete)):
                return False
    return True


def check_it_is_what_all_orders_say(log):
    assert holds_exactly(log) == in_every_order(log)


def check_what_bytes_excuse_all_orders_do(log):
    """The excuse speaks of phases that all arrivals were made to, with what is loose not before them."""
    loose = {(s.rank, s.column) for s in log.steps if s.is_loose}
    arrivals = sum(s.arrivals for s in log.steps)
    delivered_fits = sum(s.size for s in log.steps) >= 0
    if log.expected + arrivals == 0 and delivered_fits and bytes_hold(log, loose):
        assert in_every_order(log)


@given(logs())
def test_any_log(log):
    check_it_is_what_all_orders_say(log)
    check_what_bytes_excuse_all_orders_do(log)


def test_bytes_that_are_announced_in_time_outweigh_those_of_copies_that_do_not_follow_a_late_announcement():
    def log(early, late):
        known = ([1], [0, 1], [1, 0, 1], [1, 1, 0, 1])
        sizes = (32, 16, -early, -late)  # announced with an arrival, announced late; copies before and after that
        kinds = ((-1, True), (0, False), (0, True), (0, True))
        steps = [
            Step(0, n, 1, np.array([known[n]]), arrivals, sizes[n], n == 1, completes)
            for n, (arrivals, completes) in enumerate(kinds)
        ]
        return Log(1, steps)

    assert bytes_hold(log(16, 32), {(0, 1)})
    assert not bytes_hold(log(32, 16), {(0, 1)})
    assert not bytes_hold(log(48, 0), {(0, 1)})


def test_an_arrival_that_can_not_complete_a_phase_is_excused_by_no_bytes():
    sure = Step(0, 0, 1, np.array([[1]]), -1, 32, False, True)
    loose = Step(0, 1, 1, np.array([[0, 1]]), -1, 0, True, False)
    assert not bytes_hold(Log(2, [sure, loose]), {(0, 1)})


def test_counts_may_be_as_large_as_an_mbarrier_holds_and_no_larger():
    def arrivals(*amounts):
        known = np.eye(len(amounts), dtype=np.int32)
        return [Step(0, n, 1, known[n : n + 1], amount, 0, False, True) for n, amount in enumerate(amounts)]

    assert MOST == MAX_COUNT == 2**20 - 1  # PTX ISA, "Size and alignment of mbarrier object"
    assert holds_exactly(Log(MOST, arrivals(-MOST)))
    assert holds_exactly(Log(MOST - 1, arrivals(1, -MOST))) is False  # the arrival alone is one too many
    assert holds_exactly(Log(MOST, arrivals(1, -MOST, -1))) is False


def test_bytes_may_be_as_many_as_an_mbarrier_holds_and_no_more():
    def log(size):
        announced = Step(0, 0, 1, np.array([[1, 0]]), -1, size, False, True)
        return Log(1, [announced, Step(0, 1, 1, np.array([[1, 1]]), 0, -size, False, True)])

    assert holds_exactly(log(MOST))
    assert not holds_exactly(log(MOST + 1))
