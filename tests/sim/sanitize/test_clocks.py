"""Clocks that barriers and mbarriers publish by phase, and indices of CTAs, lanes and columns, beside plain tables."""

from types import SimpleNamespace

import numpy as np
from hypothesis import example, given, strategies as st

from cutepy.sim.sanitize.order.clocks import SEEN, BarrierGeneration, alike, hide, neighbours, rectangle
from cutepy.sim.sanitize.order.synchronisation import _rectangles
from cutepy.sim.sanitize.order.wave import Wave

PLANES, SLOTS, RANKS, MOST = 2, 3, 1, 5


@st.composite
def arrivals(draw):
    """CTAs that publish at their mbarriers, each in its last phase or a later one; clocks have few or many columns."""
    now, found = np.zeros(SLOTS, int), []
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    for columns, which, is_fresh in draw(st.lists(st.tuples(st.integers(1, MOST), st.integers(1, 7), st.booleans()))):
        slots = np.flatnonzero([which >> slot & 1 for slot in range(SLOTS)])
        now[slots] += rng.integers(0, 3, len(slots))
        what = rng.integers(0, 10, (PLANES, len(slots), RANKS, columns), np.int32)
        found.append((slots, now[slots], what, is_fresh))
    return found


MANY = np.arange(1, 1 + PLANES * SLOTS * RANKS * MOST, dtype=np.int32).reshape(PLANES, SLOTS, RANKS, MOST)


@given(arrivals())
@example([(np.arange(SLOTS), np.arange(SLOTS), MANY, False)])  # each CTA in another phase
def test_a_phase_has_what_was_published_in_it_until_the_next_but_one(given_arrivals):
    generation, known, last = BarrierGeneration(SLOTS), {}, {}
    for slots, phases, what, is_fresh in given_arrivals:
        generation.add(slots, phases, what.copy(), is_fresh=is_fresh)
        for at, (slot, phase) in enumerate(zip(slots.tolist(), phases.tolist(), strict=True)):
            new = np.zeros((PLANES, RANKS, MOST), np.int32)
            new[..., : what.shape[-1]] = what[:, at]
            known[slot, phase] = np.maximum(known.get((slot, phase), 0), new)
            last[slot, phase % 2] = phase
        for asked in {tuple(phases.tolist()), *((n,) * len(slots) for n in range(int(phases.max()) + 2))}:
            found = np.zeros((PLANES, len(slots), RANKS, MOST), np.int32)
            published = generation.published(slots, np.array(asked))
            if published is not None:
                found[..., : published.shape[-1]] = published
            for at, (slot, phase) in enumerate(zip(slots.tolist(), asked, strict=True)):
                kept = known[slot, phase] if last.get((slot, phase % 2)) == phase else 0
                np.testing.assert_array_equal(found[:, at], np.broadcast_to(kept, found[:, at].shape))


@given(st.integers(1, 5), st.lists(st.integers(0, 6), unique=True))
def test_columns_that_are_hidden_show_nothing_seen(count, hidden):
    """Columns that a clock does not have yet may be hidden, too."""
    what = np.arange(1, 1 + 2 * 3 * count).reshape(2, 3, count)
    expected = [
        [[0 if p == SEEN and c in hidden else x for c, x in enumerate(row)] for row in plane]
        for p, plane in enumerate(what.tolist())
    ]
    assert hide(what, np.array(hidden, int)).tolist() == expected
    assert what[0, 0, 0] == 1


POSITIONS = st.lists(st.integers(0, 7), unique=True).map(lambda found: np.array(sorted(found), int))


@given(POSITIONS, POSITIONS)
def test_an_index_of_positions_in_order_takes_each_of_them(rows, columns):
    table = np.arange(64).reshape(8, 8)
    np.testing.assert_array_equal(table[neighbours(rows)], table[rows])
    np.testing.assert_array_equal(table[rectangle(rows, columns)], table[np.ix_(rows, columns)])


@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_lanes_are_cut_into_rectangles_and_into_groups_that_do_alike(ctas, threads, data):
    bits = st.lists(st.lists(st.integers(0, 2), min_size=threads, max_size=threads), min_size=ctas, max_size=ctas)
    what = np.array(data.draw(bits))
    covered = np.zeros((ctas, threads), int)
    for rows, columns in _rectangles(what > 0):
        covered[np.ix_(rows, columns)] += 1
    np.testing.assert_array_equal(covered, what > 0)
    groups = alike(what)
    assert sorted(np.concatenate(groups).tolist()) == list(range(threads))
    assert all((what[:, group] == what[:, group[:1]]).all() for group in groups)
    assert len(groups) == len(np.unique(what, axis=1).T)


@given(st.data())
def test_who_issued_an_operation_is_the_cta_itself_or_one_of_its_cluster(data):
    cluster = data.draw(st.sampled_from([1, 2, 4]))
    issuers = sorted(data.draw(st.sets(st.integers(0, 15), min_size=1)))
    touched = sorted({n for each in issuers for n in range(each // cluster * cluster, (each // cluster + 1) * cluster)})
    wave = SimpleNamespace(clocks=SimpleNamespace(cluster=cluster))
    slots = np.array(data.draw(st.lists(st.sampled_from(touched), min_size=1)))
    for slot, at in zip(slots, Wave.issuers(wave, np.array(issuers), slots), strict=True):
        assert issuers[at] == (slot if slot in issuers else min(n for n in issuers if n // cluster == slot // cluster))
