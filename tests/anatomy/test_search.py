"""Choices of the search for slow places, of traces made up for this: what is tried first, and what may stay behind."""

from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.anatomy import costs
from cutepy.anatomy.costs import Search
from cutepy.anatomy.smem import _runs
from cutepy.predict.trace import WaitGroup

WAITS = WaitGroup(0, "wgmma group", 0, False)


def may_stay(*paths, of_block="r.w"):
    """Ask of a kernel of three blocks, of which the first and last have reads before and after a wait in the middle."""
    blocks = []
    for number, read in enumerate((of_block, ".r.", "...")):
        at = 10 * number
        blocks.append([SimpleNamespace(index=at + n, reads=sign == "r") for n, sign in enumerate(read)])
    search = object.__new__(Search)
    search._blocks = [SimpleNamespace(instructions=block) for block in blocks]
    search._accumulators = lambda: frozenset()
    search._warps = [
        SimpleNamespace(path=path, facts={2: [WAITS._replace(at=n) for n, block in enumerate(path) if block == 0]})
        for path in paths
    ]
    return search._may_stay_in_flight([2])


@pytest.fixture(autouse=True)
def _reads_by_hand(monkeypatch):
    monkeypatch.setattr(costs, "_reads", lambda i, held: i.reads)


@pytest.mark.parametrize(
    ("paths", "of_block", "found"),
    [
        ([(0, 2, 0)], "...", True),  # nothing reads
        ([(0, 1, 0)], "...", False),  # a block between both waits does
        ([(0, 2, 0)], "r..", False),  # before the second wait
        ([(0, 2, 0)], "...r", False),  # behind the first one
        ([(0, 0)], "...", True),
        ([(0, 0)], ".r.", False),
        ([(0,)], "...", False),  # one wait has nothing between two
        ([(1, 0, 2, 0, 1)], "...", True),  # before the first, and behind the last, all may read
        ([(0, 2, 0, 1, 0)], "...", False),  # as often as not
        ([(0, 2, 0, 2, 0, 1, 0)], "...", True),
        ([(0, 1, 0, 1, 0, 2, 0)], "...", False),
        ([(0, 2, 0), (0, 2, 0), (0, 1, 0)], "...", True),
        ([(0, 1, 0), (0, 1, 0), (0, 2, 0)], "...", False),
        ([], "...", False),
    ],
)
def test_mmas_stay_in_flight_where_their_results_are_read_later_mostly(paths, of_block, found):
    assert may_stay(*paths, of_block=of_block) == found


def test_accesses_are_tried_by_what_they_take_in_excess(monkeypatch):
    """However many wavefronts they need; those that take no more than that are not tried."""
    monkeypatch.setattr(costs, "with_fewest", lambda trace, shares: shares)
    needs = {0: (100, 99), 1: (10, 1), 2: (64, 60), 3: (50, 50), 4: (8, 1)}
    for order in permutations(needs):
        search = object.__new__(Search)
        taken, fewest = ({n: needs[n][k] for n in order} for k in range(2))
        search._trace = SimpleNamespace(taken=taken, fewest=fewest)
        search._instructions = [SimpleNamespace(opcode="ld", line=n) for n in needs]
        search._lines = lambda costly: {n: [n] for n in costly}
        search._is_shared = lambda group: True
        search._saved = lambda changed: changed
        search._place = lambda kind, group, said, how, saved: (group, saved)
        assert list(search._accesses()) == [([n], {n: needs[n][1] / needs[n][0]}) for n in (1, 4, 2, 0)]


@pytest.mark.parametrize(
    ("waves", "fits", "threads", "is_tried"),
    [
        (1.5, 2, 128, True),
        (1.5, 1, 1023, True),
        (1.0, 2, 128, False),  # all CTAs are on the SMs at one time
        (1.5, 0, 128, False),
        (1.5, 4, 256, False),  # half of the threads that an SM holds are there
        (1.5, 1, 1024, False),
    ],
)
def test_a_further_cta_is_tried_where_it_may_be_on_an_sm(waves, fits, threads, is_tried):
    search = object.__new__(Search)
    limits = SimpleNamespace(ctas_per_sm=fits, limited_by=["registers"])
    search.base = SimpleNamespace(waves=waves, occupancy=limits)
    search._launch = SimpleNamespace(block=(threads, 1, 1), smem_bytes=0)
    search._saved = lambda resident: resident
    search._kernel_line = lambda: ()
    search._place = lambda kind, group, said, how, us: (kind, us)
    assert list(search._occupancy()) == [("low occupancy", fits + 1)] * is_tried


@pytest.mark.parametrize(("fits", "largest"), [(1, 233472 // 2 - 1024), (3, 233472 // 4 - 1024)])
def test_a_cta_that_shared_memory_limits_is_to_take_its_share(fits, largest):
    """Of the 228 KiB of an SM, 1 KiB for each CTA beside what it asks for."""
    told = []
    for limit in (["registers"], ["shared memory"], ["threads", "shared memory"]):
        search = object.__new__(Search)
        search.base = SimpleNamespace(waves=9.0, occupancy=SimpleNamespace(ctas_per_sm=fits, limited_by=limit))
        search._launch = SimpleNamespace(block=(128, 1, 1), smem_bytes=230000)
        search._saved, search._kernel_line = (lambda resident: 1.0), lambda: ()
        search._place = lambda kind, group, said, remedy, us: told.append(remedy)
        list(search._occupancy())
    assert f"at most {largest} bytes" in told[1]
    assert "230000" in told[1]
    assert told[2] == told[1] != told[0]


CELL = 8


@pytest.mark.parametrize("gap", [0, 1, 64, 127, 128, 129, 200])
def test_ranges_of_one_use_are_one_up_to_a_kilobyte_between(gap):
    for first, other in product((1, 3), repeat=2):
        signature = [0] * 2 + [first] * 4 + [0] * gap + [other] * 5 + [0]
        runs = _runs(np.array(signature))
        start, end = 2 * CELL, (2 + 4 + gap + 5) * CELL
        if first == other and gap * CELL <= 1024:
            assert runs == [(start, end, first)]
        else:
            assert runs == [(start, start + 4 * CELL, first), (end - 5 * CELL, end, other)]
