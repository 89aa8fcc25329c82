"""Parts of the sanitizer on their own: sizes of granules, planes of clocks, patterns of accesses, names of places."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim import Run, translate
from cutepy.sim.machine.memory import GlobalMemory
from cutepy.sim.sanitize.memory.global_shadow import GlobalShadow
from cutepy.sim.sanitize.memory.shadow import granule_bytes
from cutepy.sim.sanitize.memory.tensor_memory import TensorShadow
from cutepy.sim.sanitize.order import clocks, tries
from cutepy.sim.sanitize.order.fences import Patterns, Wait
from cutepy.sim.sanitize.order.wave import BULK, COPIES, MMAS
from cutepy.sim.sanitize.reports import global_memory, near_misses
from tests.sim.kernels.launching import ptx_module
from tests.sim.opcode_runner import launch


def kernel(body, target="sm_90a"):
    return translate.Kernel(ptx_module(body, 0, target), "k")


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("", 16),
        ("ld.shared.u8 %r0, [smem];", 1),
        ("ld.shared.u16 %r0, [smem];", 2),
        ("st.shared.u32 [smem], %r0;", 4),
        ("ld.shared.u64 %rd0, [smem];", 8),
        ("st.shared.v2.u32 [smem], {%r0, %r1};", 8),
        ("st.shared.v4.u32 [smem], {%r0, %r1, %r2, %r3};", 16),
        ("st.shared.v4.u32 [smem], {%r0, %r1, %r2, %r3}; atom.shared.add.u32 %r0, [smem], 1;", 4),
        ("cp.async.ca.shared.global [smem], [%rd0], 16; st.shared.u64 [smem], %rd0;", 4),
        ("ld.global.u8 %r0, [%rd0]; st.shared.u64 [smem], %rd0;", 8),
        ("ld.u16 %r0, [%rd0]; st.shared.u64 [smem], %rd0;", 2),
    ],
)
def test_granules_are_as_large_as_the_smallest_access_to_shared_memory(body, size):
    assert granule_bytes(kernel(body)) == size


def test_filling_in_bulk_has_granules_of_its_unit():
    assert granule_bytes(kernel("st.bulk.weak.shared::cta [smem], 64, 0;", "sm_100a")) == 8


def test_planes_of_fenced_memory_are_as_many_as_fences_differ():
    """Done, seen and fenced; and fenced in global memory, where a fence covers less than another."""
    shared, every, other = frozenset({"shared"}), frozenset({"shared", "global"}), frozenset({"global"})
    assert clocks._planes(frozenset()) == (3, 2)
    assert clocks._planes({every}) == (3, 2)
    assert clocks._planes({shared}) == (3, None)
    assert clocks._planes({other}) == clocks._planes({shared, every}) == clocks._planes({shared, other}) == (4, 3)


@pytest.mark.parametrize(
    ("channel", "kind", "threads"),
    [
        (None, "", []),
        (("mbarrier", 64), "", []),
        ((COPIES, 5), COPIES, [5]),
        ((BULK, 1, 77), BULK, [77]),
        ((MMAS, 0), MMAS, list(range(128))),
        ((MMAS, 2), MMAS, list(range(256, 384))),
    ],
)
def test_groups_have_the_threads_that_issued_them(channel, kind, threads):
    wave = SimpleNamespace(clocks=SimpleNamespace(channel={9: channel}.get))
    found = near_misses.issuers_of(wave, 9)
    assert (found[0], found[1].tolist()) == (kind, threads)


@pytest.mark.parametrize("lane", range(4))
def test_who_issued_an_access_is_its_lane_alone(lane):
    """Unless all lanes issued it together; who accessed memory by itself is told with its fellows."""
    threads, slots = np.array([32, 33, 40, 41]), np.array([3, 5])
    several, one = (
        SimpleNamespace(threads=None, issue=(slots, threads, 9), row_of=np.arange(n)) for n in (len(threads), 1)
    )
    for row, slot in enumerate(slots):
        found = near_misses._actor(several, row, lane)
        assert (found.slot, found.threads.tolist(), found.number) == (slot, [threads[lane]], 9)
        assert (found.every.tolist(), found.is_async) == ([threads[lane]], True)
        assert near_misses._actor(one, row, lane).threads.tolist() == threads.tolist()
    own = SimpleNamespace(threads=threads, agents=np.array([7, 8]), when=4)
    found = near_misses._actor(own, 1, lane)
    assert (found.slot, found.threads.tolist(), found.number) == (8, [threads[lane]], 4)
    assert (found.every.tolist(), found.is_async) == (threads.tolist(), False)


@pytest.mark.parametrize(
    ("statement", "known", "value"),
    [
        ("mov.u32 %r0, 127;", {}, 127),
        ("mov.u32 %r0, 128;", {}, None),
        ("mov.u32 %r0, 0;", {}, 0),
        ("mov.u32 %r0, %r1;", {"%r1": 100}, 100),
        ("mov.u32 %r0, %r1;", {}, None),
        ("add.u32 %r0, %r1, 1;", {"%r1": 2}, 3),
        ("add.u32 %r0, %r1, 1;", {"%r1": 3}, None),
        ("cvt.u32.u16 %r0, %h0;", {"%h0": 127}, 127),
        ("setp.eq.u32 %p0, %r1, 5;", {"%r1": 5}, 1),
        ("setp.eq.u32 %p0, %r1, 5;", {"%r1": 6}, 0),
        ("vote.sync.all.pred %p0, %p1, -1;", {"%p1": 0}, 0),
        ("vote.sync.all.pred %p0, %p1, -1;", {"%p1": 1}, None),
        ("vote.sync.any.pred %p0, %p1, -1;", {"%p1": 1}, 1),
        ("vote.sync.any.pred %p0, %p1, -1;", {"%p1": 0}, None),
    ],
)
def test_small_numbers_are_folded(statement, known, value):
    """Up to 127 what is moved, converted or compared; up to 3 what is counted, so that loops end."""
    i = kernel(statement).program().function.instructions[0]
    values = {x.index: known[x.name] for x in i.operands[1:] if getattr(x, "name", None) in known}
    assert len(values) == len(known)
    assert tries.value_of(i, values) == value


def test_the_latest_guess_is_given_first():
    patterns = Patterns(None, has_relaxed=False)
    for number, seen in enumerate((5, 3, 7)):
        far = np.zeros((1, 2, 1, 2), np.int32)
        far[clocks.DONE, 1, 0, 1] = seen
        patterns.overlook(Wait(number, np.array([4, 6]), np.array([0]), far, far))
    assert [wait.instruction for wait in patterns.guesses(6, 0, 1, 5)] == [2, 0]
    assert [wait.instruction for wait in patterns.guesses(6, 0, 1, 3)] == [2, 1, 0]
    assert [wait.instruction for wait in patterns.guesses(4, 0, 1, 1)] == []
    assert [wait.instruction for wait in patterns.guesses(6, 0, 0, 1)] == []


def test_patterns_are_kept_while_starts_lanes_and_size_are_the_same():
    shadow = object.__new__(GlobalShadow)
    shadow._patterns = {}
    starts, others = np.array([0, 4, 8]), np.array([0, 4, 12])

    def pattern(starts, lanes, size=4, addresses=None, index=0):
        access = SimpleNamespace(size_bytes=size, instruction=SimpleNamespace(index=index))
        found = shadow.pattern(access, starts, lanes, addresses)
        assert (found.size, found.starts.tolist(), found.addresses) == (size, starts.tolist(), addresses)
        assert found.lanes.tolist() == (list(range(len(starts))) if lanes is None else lanes.tolist())
        return found

    first = pattern(starts, None)
    assert pattern(starts.copy(), None) is first
    assert pattern(starts, np.arange(3)) is first
    moved = pattern(starts, np.array([1, 2, 3]))
    assert moved is not first
    assert pattern(starts.copy(), np.array([1, 2, 3])) is moved
    assert pattern(others, np.array([1, 2, 3])) is not moved
    assert pattern(others, np.array([1, 2, 3]), 8).size == 8
    assert pattern(starts, None, index=1) is not pattern(starts, None, index=2)
    addresses = object()
    known = pattern(starts, None, addresses=addresses, index=3)
    assert pattern(starts, None, addresses=addresses, index=3) is known


def test_places_in_global_memory_are_named_by_what_holds_them():
    memory = GlobalMemory()
    place = global_memory.place(0x1234, memory, None)
    assert (place.global_address, "0x1234" in str(place)) == (0x1234, True)
    data = np.zeros(64, np.uint8)
    start = data.ctypes.data
    assert memory.register(start, 64, data)
    inside = global_memory.place(start + 5, memory, None)
    assert (inside.name, inside.global_address) == ("global memory, byte 0x5 of an allocation", start + 5)
    assert global_memory.place(start + 64, memory, None) == type(place).of_global(start + 64)


@pytest.mark.parametrize("offset", range(8, 48, 4))
@pytest.mark.parametrize(
    "access",
    ["st.shared.u32 [smem+{}], %r1;", "ld.shared.u32 %r1, [smem+{}];", "atom.shared.exch.b32 %r1, [smem+{}], %r1;"],
)
def test_accesses_that_touch_a_byte_of_an_mbarrier_are_told(offset, access):
    """mbarriers at bytes 16 to 23 and 32 to 39."""
    is_inside = 16 <= offset < 24 or 32 <= offset < 40
    run = Run((), None, sanitize=True)
    body = "mov.u32 %r0, smem; mov.u32 %r1, 0;"
    body += "".join(f"mbarrier.init.shared.b64 [%r0+{at}], 1;" for at in (16, 32))
    body += f"st.shared.u32 [smem+{offset}], %r1;" * (not is_inside)
    launch(body + access.format(offset), np.zeros(4, np.uint32), block=1, smem_bytes=64, run=run, assembles=False)
    kind = "misused-barrier" if access.startswith("ld") else "overwritten-mbarrier"
    assert [hazard.kind for hazard in run.hazards] == [kind] * is_inside


def test_registers_of_a_load_lack_what_one_of_their_cells_lacks():
    """Of two CTAs with 32 granules of 16 lanes each, a bit for each cell without a value."""
    draw = np.random.default_rng(5)
    shadow = object.__new__(TensorShadow)
    shadow._lacks = draw.integers(0, 1 << 16, (2, 32)).astype(np.uint16) & draw.integers(0, 1 << 16, (2, 32))
    shadow._lacks = shadow._lacks.astype(np.uint16)
    for slot, cells_of_each in itertools.product(range(2), (1, 2, 4)):
        cells = draw.integers(0, 32 * 16, (6, 5, cells_of_each))
        lacks = [
            [any(int(shadow._lacks[slot, n // 16]) >> n % 16 & 1 for n in register) for register in thread]
            for thread in cells.tolist()
        ]
        assert shadow.unwritten(SimpleNamespace(slot=slot, of_registers=cells)).tolist() == lacks
