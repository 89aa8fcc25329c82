"""Groups of lanes: cut along what was chosen, of whole units, without losing a lane or a register."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from cutepy.sim.machine.divergence import in_whole_units, parts_of, regroup, split
from cutepy.sim.machine.group import Join, Roster, inherited, is_unchanged
from cutepy.sim.machine.lanes import Residents

START, MEET, BESIDE = range(3)
KEPT, CHANGED, COPIED, MIXED, SOME = range(5)
"""Registers: left alone by all parts, written by all, copied by all, written or copied, written or left alone."""

shapes = st.tuples(st.integers(1, 4), st.integers(1, 5))


@given(shapes.flatmap(lambda s: st.tuples(*[arrays(bool, s)] * 2)), st.integers(1, 4))
def test_units_are_chosen_of_which_all_that_are_wanted_are_here(masks, unit):
    here, wanted = masks
    expected = np.zeros_like(here)
    for row in range(here.shape[0]):
        for first in range(0, here.shape[1], unit):
            lanes = row, slice(first, first + unit)
            expected[lanes] = here[lanes] & (here[lanes] | ~wanted[lanes]).all()
    assert (in_whole_units(here, wanted, unit) == expected).all()


def parted(pattern, meets):
    """Return a roster of lanes that have parted by a pattern, and the parts; they meet again, or never do."""
    count, threads = pattern.shape
    registers = frozenset((KEPT, CHANGED, COPIED, MIXED, SOME))
    flow = SimpleNamespace(
        live_in=dict.fromkeys((START, MEET, BESIDE), registers),
        used_between=lambda start, end: frozenset((CHANGED, COPIED, MIXED)),
    )
    roster = Roster(flow, (threads, 1, 1))
    numbers = np.arange(count * threads).reshape(count, threads)
    roster.start(Residents((count, 1, 1), (1, 1, 1), np.arange(count)), [numbers + 100 * n for n in range(5)])
    (whole,) = roster.groups
    cut = [part for part in parts_of(pattern, pattern.shape, START, START) if len(part[0])]
    parts = split(roster, whole, cut, MEET if meets else -1)
    for part in parts:
        part.registers[CHANGED] = of_lanes(part) - 50
    for index in (MIXED, SOME):
        parts[0].registers[index] = of_lanes(parts[0]) - 50
    return roster, parts


def of_lanes(g):
    """Return what says which lane each one of a group is."""
    return g.ctas.slots[:, None] * g.threads.block[0] + g.threads.ids[None, :]


def value(g, index):
    return g.registers[index] if g.registers[index] is not None else inherited(g, index)


@given(shapes.flatmap(lambda s: st.tuples(*[arrays(bool, s)] * 2)), st.sampled_from(("apart", "stay", "leave", "join")))
def test_lanes_that_were_chosen_go_on_with_their_registers_and_the_others_stay(masks, how):
    pattern, chosen = masks
    roster, parts = parted(pattern, meets=how != "apart")
    written = roster.lanes_of(parts[:1])
    others = Join(BESIDE, roster.group(START, [None] * 5, parts[0].ctas, parts[0].threads, None))
    join = {"stay": parts[0].join, "join": others}.get(how)
    merged, rest = regroup(roster, parts, chosen, BESIDE, join)
    for groups, lanes, block in ((merged, chosen, BESIDE), (rest, ~chosen, START)):
        assert sum(g.ctas.count * g.threads.count for g in groups) == lanes.sum()
        assert (roster.lanes_of(groups) == lanes).all()
        for g in groups:
            assert g.block == block
            here = written[np.ix_(g.ctas.slots, g.threads.ids)]
            assert (value(g, KEPT) == of_lanes(g)).all()
            assert (value(g, CHANGED) == of_lanes(g) - 50).all()
            assert (value(g, COPIED) == of_lanes(g) + 200).all()
            for index in (MIXED, SOME):
                assert (value(g, index) == np.where(here, of_lanes(g) - 50, of_lanes(g) + 100 * index)).all()
            if how == "stay" or (g in rest and how != "apart"):  # where they meet, what nobody wrote is told apart
                assert is_unchanged(g, KEPT)
                assert is_unchanged(g, COPIED)
                assert not is_unchanged(g, CHANGED)
                assert is_unchanged(g, MIXED) != here.any()
                assert is_unchanged(g, SOME) != here.any()
    assert all(g.join is join for g in merged)
    assert how == "stay" or all(g.original is None for g in merged)


@pytest.mark.parametrize("shape", [(2, 3), (3, 1), (1, 3)])
def test_of_chosen_lanes_as_few_groups_are_made_as_can_be(shape):
    roster, parts = parted(np.zeros(shape, bool), meets=False)
    merged, rest = regroup(roster, parts, np.ones(shape, bool), BESIDE, Join(MEET, parts[0]))
    assert (len(merged), len(rest)) == (1, 0)
