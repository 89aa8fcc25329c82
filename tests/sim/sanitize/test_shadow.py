"""Happens-before in shared memory, by accesses and knowledge made by hand."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.memory_order import WEAK
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.memory.access_record import AccessRecord
from cutepy.sim.sanitize.memory.shadow import Shadow
from cutepy.sim.sanitize.order.clocks import DONE, FENCED, SEEN, Clocks

SLOTS = np.array([0, 1])
THREADS = 3 * WARP


def nothing(*where):
    pass


def everything(i, granules):
    return np.ones(granules, bool)


class Memory:
    """Words of two CTAs of three warps: each thread touches the word of its lane."""

    def __init__(self):
        self.clocks, self.conflicts, self.filled = Clocks(2, THREADS, 1), [], []
        told = self.conflicts.append, nothing, everything, None, nothing, nothing, self._note_filled
        self._shadow = Shadow(self.clocks, 2, 2 * WARP, *told)

    def _note_filled(self, old, new, row, granule):
        self.filled.append((int(old.threads[0]), int(new.threads[0]), row, granule))

    def touch(self, threads, writes=False, slots=SLOTS, opcode=None, beside=0, start=0):
        """Touch words; in each CTA they are further behind those of the one before."""
        threads = np.array(threads)
        view, row_of = self.clocks.view(slots, threads)
        counts = self.clocks.counts(slots, threads)
        places = (start + threads % WARP)[None, :, None] + beside * slots[: 1 + bool(beside) * len(slots), None, None]
        i = Instruction(0, opcode or ("st.shared.u32" if writes else "ld.shared.u32"), ())
        what = "write" if writes else "read"
        self._shadow.touch(
            AccessRecord(what, i, writes, False, WEAK, slots, slots, threads, threads, counts, places, view, row_of)
        )

    def load(self, threads, starts, together):
        """Let each of some threads load words of its CTA, by one instruction for each start."""
        threads = np.array(threads)
        view, row_of = self.clocks.view(SLOTS, threads)
        counts = self.clocks.counts_now(SLOTS, threads)
        loads = []
        for n, start in enumerate(starts):
            places = (threads % WARP // 2 + start)[None, :, None]
            i = Instruction(n, "ld.shared.u32", ())
            how = False, False, WEAK, SLOTS, SLOTS, threads, threads, counts, places, view, row_of
            loads.append((AccessRecord("read", i, *how), np.unique(places)))
        if together:
            self._shadow.loads(loads)
        else:
            for load, _ in loads:
                self._shadow.touch(load)

    def load_and_store(self, threads):
        """Let threads load the word of their lane, and store to the one a warp behind, at one count of their clocks."""
        threads = np.array(threads)
        view, row_of = self.clocks.view(SLOTS, threads)
        counts = self.clocks.counts_now(SLOTS, threads)
        for writes, opcode in ((False, "ld.shared.u32"), (True, "st.shared.u32")):
            places = (threads % WARP + WARP * writes)[None, :, None]
            how = writes, False, WEAK, SLOTS, SLOTS, threads, threads, counts, places, view, row_of
            self._shadow.touch(AccessRecord("", Instruction(0, opcode, ()), *how))

    def tell(self, to, slots=SLOTS):
        """Let threads know what the first warp has done."""
        self.clocks.learn(slots, np.array(to), self.clocks.publish(slots, np.arange(WARP)))


def test_a_fence_that_orders_a_load_does_not_show_the_store_beside_it():
    memory, second = Memory(), np.arange(WARP, 2 * WARP)
    memory.load_and_store(range(WARP))
    known = memory.clocks.publish(SLOTS, np.arange(WARP)).copy()
    known[FENCED], known[SEEN] = known[DONE], 0
    memory.clocks.learn(SLOTS, second, known)
    memory.touch(second, writes=True)
    assert not memory.conflicts
    memory.touch(second, start=WARP)
    assert memory.conflicts


@pytest.fixture
def memory():
    made = Memory()
    made.touch(range(WARP), writes=True)
    return made


def test_what_one_warp_has_heard_of_another_need_not_know(memory):
    memory.tell(range(WARP, 2 * WARP))
    memory.touch(range(WARP, 2 * WARP))
    assert not memory.conflicts
    memory.touch(range(2 * WARP, 3 * WARP))
    assert memory.conflicts


def test_what_one_lane_has_heard_of_another_need_not_know(memory):
    memory.tell([WARP])
    memory.touch([WARP])
    assert not memory.conflicts
    memory.touch([WARP + 1])
    assert memory.conflicts


def test_what_one_cta_has_heard_of_another_need_not_know(memory):
    memory.tell(range(WARP, 2 * WARP), SLOTS[:1])
    memory.touch(range(WARP, 2 * WARP), slots=SLOTS[:1])
    assert not memory.conflicts
    memory.touch(range(WARP, 2 * WARP), slots=SLOTS[1:])
    assert memory.conflicts


def test_who_has_heard_once_comes_after_for_ever(memory):
    memory.tell(range(WARP, 2 * WARP))
    for lane in range(WARP):
        memory.touch([WARP + lane])
    assert not memory.conflicts


def test_the_first_write_to_what_was_read_is_told_once_for_each_reader():
    memory, first, second = Memory(), range(WARP), range(WARP, 2 * WARP)
    memory.touch(range(3), writes=True)
    memory.touch(first)
    memory.touch(second)
    memory.touch([2 * WARP + 1], writes=True)  # which is not the first
    assert memory.filled == []
    memory.touch([2 * WARP + 2, 2 * WARP + 4, 2 * WARP + 5], writes=True)
    assert memory.filled == [(0, 2 * WARP + 2, 0, 4), (WARP, 2 * WARP + 2, 0, 4)]
    memory.touch([2 * WARP + 4], writes=True)
    memory.touch([2 * WARP + 6], writes=True)
    assert memory.filled[2:] == [(0, 2 * WARP + 6, 0, 6), (WARP, 2 * WARP + 6, 0, 6)]


def test_what_an_atomic_has_written_is_no_longer_to_be_filled():
    memory = Memory()
    memory.touch([0], writes=True, opcode="atom.shared.add.u32")
    memory.touch([WARP], writes=True)
    assert memory.filled == []


@pytest.mark.parametrize("beside", [0, 3])
def test_the_cta_and_the_word_that_are_written_first_are_named(beside):
    memory = Memory()
    memory.touch(range(WARP), beside=beside)
    memory.touch([WARP + 7], writes=True, slots=SLOTS[:1])
    memory.touch([2 * WARP + 7], writes=True, beside=beside)
    assert [(row, granule) for *_, row, granule in memory.filled] == [(0, 7), (1, 7 + beside)]


@pytest.mark.parametrize("beside", [0, 3])
def test_conflicts_are_at_the_words_of_their_cta(beside):
    memory = Memory()
    memory.touch(range(WARP), writes=True, beside=beside)
    memory.touch(range(WARP, 2 * WARP, 8), writes=True, beside=beside)
    found = {(conflict.row, conflict.granule, conflict.after_lane) for conflict in memory.conflicts}
    assert found
    assert all(granule == 8 * lane + row * beside for row, granule, lane in found)
    assert {row for row, *_ in found} == {0, 1}


WARPS = st.lists(st.integers(0, 2), min_size=1, unique=True).map(
    lambda warps: [WARP * warp + lane for warp in sorted(warps) for lane in range(WARP)]
)
STARTS = st.lists(st.sampled_from([0, 16, 32, 48]), min_size=1, unique=True)
CTAS = st.sampled_from([SLOTS, SLOTS[:1], SLOTS[1:]])
DEEDS = st.one_of(
    st.tuples(st.just("load"), WARPS, STARTS),
    st.tuples(st.just("touch"), WARPS, st.booleans(), CTAS),
    st.tuples(st.just("tell"), WARPS, CTAS),
)


@given(st.lists(DEEDS, max_size=12))
def test_loads_that_are_handed_on_together_conflict_as_one_by_one(deeds):
    found = []
    for together in (True, False):
        memory = Memory()
        memory.touch(range(WARP), writes=True)
        for name, *given_ in deeds:
            if name == "load":
                memory.load(*given_, together=together)
            else:
                getattr(memory, name)(*given_)
        memory.touch(range(WARP), writes=True)
        found.append(
            sorted(
                (c.before.instruction.index, c.before_lane, c.after.instruction.index, c.after_lane, c.row, c.granule)
                for c in memory.conflicts
            )
        )
    assert found[0] == found[1]


def test_ctas_share_a_row_until_one_of_them_does_something_alone(memory):
    shadow = memory._shadow
    assert (len(shadow._written), len(shadow._read)) == (1, 1)
    memory.touch(range(WARP), writes=True, slots=SLOTS[1:])
    assert (len(shadow._written), len(shadow._read)) == (2, 2)
    first, second = ([touch.slots.tolist() for touch in shadow.writers(slot, np.array([0]))] for slot in (0, 1))
    assert (first, second) == ([[0, 1]], [[1]])
