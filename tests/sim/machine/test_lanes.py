"""Threads and CTAs: their coordinates, masks and names, against loops over the extents."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.sim.machine.group import Roster
from cutepy.sim.machine.lanes import Residents, Threads, as_index, listed

extents = st.tuples(*[st.integers(1, 4)] * 3)


def coordinates(shape):
    """Give (x, y, z) of all indices, x the fastest."""
    return [(x, y, z) for z in range(shape[2]) for y in range(shape[1]) for x in range(shape[0])]


def check_ctas_have_coordinates_and_are_found_by_them(grid):
    blocks = np.arange(grid[0] * grid[1] * grid[2])[::-1].copy()
    residents = Residents(grid, (1, 1, 1), blocks)
    expected = coordinates(grid)[::-1]
    assert [residents.coordinate(slot) for slot in range(len(blocks))] == expected
    assert [residents.slot_of(coordinate) for coordinate in expected] == list(range(len(blocks)))
    for n, axis in enumerate("xyz"):
        assert residents.special[f"ctaid.{axis}"][:, 0].tolist() == [c[n] for c in expected]


def check_threads_have_coordinates_and_masks(block):
    special = Threads(np.arange(block[0] * block[1] * block[2]), block).special
    for n, axis in enumerate("xyz"):
        assert special[f"tid.{axis}"][0].tolist() == [c[n] for c in coordinates(block)]
    for thread in range(special["tid.x"].size):
        lane = thread % 32
        for name, holds in {
            "eq": int.__eq__,
            "lt": int.__lt__,
            "le": int.__le__,
            "gt": int.__gt__,
            "ge": int.__ge__,
        }.items():
            expected = sum(1 << other for other in range(32) if holds(other, lane))
            assert special[f"lanemask_{name}"][0, thread] == expected


@given(extents)
def test_any_extents(block):
    check_ctas_have_coordinates_and_are_found_by_them(block)
    check_threads_have_coordinates_and_masks(block)


@given(st.sets(st.integers(0, 30), min_size=1, max_size=12))
def test_threads_are_named_by_their_ranges(ids):
    text = Threads(np.array(sorted(ids)), (32, 1, 1)).describe()
    head, _, ranges = text.partition(" ")
    assert head == ("thread" if len(ids) == 1 else "threads")
    ends = [[int(end) for end in one.split("-")] for one in ranges.split(", ") if one != "..."]
    named = [n for first, *last in ends for n in range(first, last[0] + 1 if last else first + 1)]
    assert named == sorted(ids)[: len(named)]
    assert ("..." in text) == (len(named) < len(ids))
    assert all(b[0] > a[-1] + 1 for a, b in itertools.pairwise(ends))


@given(st.integers(0, 9), st.integers(1, 5), st.integers(2, 6))
def test_evenly_spaced_positions_are_a_slice(start, step, count):
    positions = start + step * np.arange(count)
    assert as_index(positions) == slice(start, int(positions[-1]) + 1, step)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [((3,), "warp 3"), ((2, 1, 0), "warps 0-2"), ([7, 4, 6], "warps 4, 6-7"), ((9, 0, 5), "warps 0, 5, 9")],
)
def test_warps_are_listed_in_order(numbers, said):
    assert listed("warp", numbers) == said


def test_groups_are_numbered_from_one_on():
    """The policy that lets agents take turns begins with the first above 0."""
    roster = Roster(None, (32, 2, 1))
    for expected in (1, 2):
        roster.start(Residents((2, 1, 1), (1, 1, 1), np.arange(2)), [])
        (group,) = roster.groups
        assert (group.number, group.ctas.count, group.threads.count) == (expected, 2, 64)
