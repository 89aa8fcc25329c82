"""Who comes after whom in shared memory, by touches and knowledge made by hand."""

import numpy as np
import pytest

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.memory_order import WEAK
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.memory.access_record import AccessRecord
from cutepy.sim.sanitize.memory.shadow import Shadow
from cutepy.sim.sanitize.order.clocks import Clocks

SLOTS = np.array([0, 1])
THREADS = 3 * WARP


def nothing(*where):
    pass


class Memory:
    """Words of two CTAs of three warps: each thread touches the word of its lane."""

    def __init__(self):
        self.clocks, self.conflicts = Clocks(2, THREADS, 1), []
        self._shadow = Shadow(self.clocks, 2, WARP, self.conflicts.append, nothing, None, nothing, nothing, nothing)

    def touch(self, threads, writes=False, slots=SLOTS):
        threads = np.array(threads)
        view, row_of = self.clocks.view(slots, threads)
        counts = self.clocks.counts(slots, threads)
        places = (threads % WARP)[None, :, None]
        i = Instruction(0, "st.shared.u32" if writes else "ld.shared.u32", ())
        what = "write" if writes else "read"
        self._shadow.touch(
            AccessRecord(what, i, writes, False, WEAK, slots, slots, threads, threads, counts, places, view, row_of)
        )

    def tell(self, to, slots=SLOTS):
        """Let threads know what the first warp has done."""
        self.clocks.learn(slots, np.array(to), self.clocks.publish(slots, np.arange(WARP)))


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
