"""Tries at mbarriers that fail for lanes that an observer doesn't let know better."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim.mechanisms.mbarriers import Mbarriers


class _Observer:
    """Lets the lanes of some positions know."""

    def __init__(self, peeks, known):
        self.peeks, self.known, self.asked = peeks, known, []

    def knows_complete(self, offset, slots, phases, ctas, threads):
        self.asked.append((offset, slots.tolist(), phases.tolist()))
        return self.known


def peek(observers, position, phase, done):
    group = SimpleNamespace(ctas=SimpleNamespace(count=2), threads=SimpleNamespace(count=3))
    own = SimpleNamespace(_activity=SimpleNamespace(observers=observers), _memory=SimpleNamespace(slot_bytes=1024))
    found = Mbarriers._peek(own, group, SimpleNamespace(index=7), np.array(position), np.array(phase), np.array(done))
    return None if found is None else found.tolist()


DONE = [[True, False, True], [True, True, True]]
KNOWN = np.array([[True, True, False], [False, True, True]])


def test_a_peek_succeeds_for_lanes_that_know_of_a_phase_that_is_over():
    first, other = _Observer({7}, KNOWN), _Observer({8}, ~KNOWN)
    assert peek([other], [[8]], 0, DONE) is None
    assert peek([first, other], [[8], [1032]], [[1], [0]], DONE) == [[True, False, False], [False, True, True]]
    assert first.asked == [(8, [[0] * 3, [1] * 3], [[1] * 3, [0] * 3])]
    assert other.asked == []
    assert peek([first, _Observer({7}, ~KNOWN)], [[8], [1032]], 0, DONE) == DONE


@pytest.mark.parametrize(
    ("position", "phase"), [([[8, 8, 16], [1032, 1032, 1032]], 0), ([[8], [1040]], 0), ([[8], [1032]], [[0, 1, 0]])]
)
def test_no_lane_knows_of_mbarriers_or_phases_that_differ(position, phase):
    assert peek([_Observer({7}, KNOWN)], position, phase, DONE) == [[False] * 3] * 2
