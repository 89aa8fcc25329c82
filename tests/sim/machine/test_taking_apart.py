"""Groups that a schedule takes apart: into warps, unless MMAs are in flight or the warps meet at one that follows."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim.machine import interleaved_schedule
from cutepy.sim.machine.interleaved_schedule import InterleavedSchedule
from cutepy.sim.translate.control_flow import EXIT

BLOCK, MEET, JOIN = 3, 5, 9


def taken(monkeypatch, unit, *, threads=128, meets=MEET, join=None, lanes=None, times=1, then=None, **state):
    """Return what `_take_apart` says each time, and the parts with the place where they meet, if there are some."""
    found, asked = [], []
    monkeypatch.setattr(interleaved_schedule, "together", lambda flow, block: unit)
    own = SimpleNamespace(
        _whole=set(),
        _flow=None,
        _policy=SimpleNamespace(splits_ctas=False, parts_lanes=lambda ctas, threads: lanes),
        _next_meeting=lambda block, last: asked.append((block, last)) or meets,
        _part=lambda g, parts, meet: found.append(([lanes.tolist() for _, lanes, _ in parts], meet)),
    )
    own._in_units = lambda g, unit: InterleavedSchedule._in_units(own, g, unit)
    g = SimpleNamespace(
        number=7,
        gathering=None,
        join=join,
        ctas=SimpleNamespace(count=2),
        threads=SimpleNamespace(ids=np.arange(threads), count=threads),
        **{"block": BLOCK, "issued": [], "committed": []} | state,
    )
    said = []
    for _ in range(times):
        said.append(InterleavedSchedule._take_apart(own, g))
        vars(g).update(then or {})
    return said[0] if times == 1 else said, found, asked


WARPS = [list(range(n, n + 32)) for n in range(0, 128, 32)]


def test_a_block_of_single_warps_is_taken_apart_into_them(monkeypatch):
    assert taken(monkeypatch, 32) == (True, [(WARPS, EXIT)], [])
    assert taken(monkeypatch, 1) == (True, [(WARPS, EXIT)], [])


def test_warps_of_a_warpgroup_part_until_they_meet(monkeypatch):
    assert taken(monkeypatch, 128) == (True, [(WARPS, MEET)], [(BLOCK, EXIT)])
    join = SimpleNamespace(arrived=[], block=JOIN)
    assert taken(monkeypatch, 128, join=join)[2] == [(BLOCK, JOIN)]


@pytest.mark.parametrize("in_flight", [{"issued": [1]}, {"committed": [1]}, {"issued": [1], "committed": [1]}])
def test_a_warpgroup_with_mmas_in_flight_stays_together(monkeypatch, in_flight):
    assert taken(monkeypatch, 128, **in_flight) == (False, [], [])
    assert taken(monkeypatch, 128, threads=256, **in_flight) == (
        True,
        [([list(range(128)), list(range(128, 256))], EXIT)],
        [],
    )


def test_a_warpgroup_that_is_needed_at_once_stays_together(monkeypatch):
    assert taken(monkeypatch, 128, meets=BLOCK, times=2) == ([False, False], [], [(BLOCK, EXIT)])  # asked once
    assert taken(monkeypatch, 128, meets=BLOCK, committed=[1], times=2) == ([False, False], [], [])
    for in_flight in ("issued", "committed"):  # once the MMAs are over
        said, parts, _ = taken(monkeypatch, 128, times=2, then={in_flight: []}, **{in_flight: [1]})
        assert (said, parts) == ([False, True], [(WARPS, MEET)])


def test_lanes_of_a_warp_part_where_the_policy_says_so(monkeypatch):
    assert taken(monkeypatch, 16, threads=32, lanes=False)[:2] == (False, [])
    halves = [list(range(16)), list(range(16, 32))]
    assert taken(monkeypatch, 16, threads=32, lanes=True)[:2] == (True, [(halves, EXIT)])


def test_who_has_ended_gathers_or_has_arrived_is_left_alone(monkeypatch):
    assert taken(monkeypatch, 32, block=EXIT)[0] is False
    assert taken(monkeypatch, 32, join=SimpleNamespace(arrived=_Every(), block=JOIN))[0] is False


class _Every:
    """A list that has everything."""

    def __contains__(self, one):
        return True
