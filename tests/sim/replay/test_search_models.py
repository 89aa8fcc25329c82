"""All schedules of random programs, against models of them that share no code with the simulator."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.sim import Run
from cutepy.sim.machine.launch import KernelCall, prepare
from cutepy.sim.machine.loaded_module import LoadedModule
from cutepy.sim.parallel.footprint import Ranges
from cutepy.sim.replay.launch_player import LaunchPlayer
from cutepy.sim.replay.outcomes import overlaid
from cutepy.sim.replay.search.search import Search
from cutepy.sim.replay.search.step_accesses import StepAccesses, _runs
from cutepy.sim.replay.search.tree import AlreadyPlayedError, Event, Tree
from cutepy.sim.replay.snapshot_process import _SMALL_BYTES, MemorySnapshot
from tests.sim import opcode_runner
from tests.sim.replay import memory_model
from tests.sim.replay.kernels import HEADER, REGISTERS
from tests.sim.sanitize.certificate import model, programs
from tests.sim.sanitize.certificate.generators import draw

LIMIT = 150


def searched(text, x, grid=1, block=32, cluster=1, smem_bytes=0, limit=LIMIT, reduces=True):
    """Search in this process."""
    run = Run((), None)
    run.adopt(x)
    call = KernelCall(
        LoadedModule(text),
        "k",
        (grid, 1, 1),
        (block, 1, 1),
        (cluster, 1, 1),
        (np.array([x.ctypes.data], np.uint64).tobytes(),),
        smem_bytes,
    )
    player = LaunchPlayer(prepare(call), run._memory)
    return player.search(Search(limit, reduces), MemorySnapshot(run._memory.ranges()).rewind)


def text_of(body):
    return (
        f"{HEADER}.visible .entry k(.param .u64 x) {{ {REGISTERS}\nld.param.u64 %rd0, [x];\n"
        f"mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31;\n{body}\nret;\n}}"
    )


def memory_results(threads, **options):
    x = np.zeros(64, np.uint32)
    found = searched(text_of(memory_model.ptx(threads)), x, block=32 * len(threads), **options)
    left = set()
    for _, outcome in found.found:
        assert outcome.kind != "error"
        if outcome.is_hang:
            left.add("hang")
        else:
            memory = overlaid(x.ctypes.data, np.zeros(256, np.uint8), outcome).view(np.uint32).tolist()
            left.add(memory_model.read(memory, threads))
    return found, left


@pytest.mark.parametrize("seed", range(30))
def test_programs_on_words_leave_what_interleavings_leave(seed):
    threads = memory_model.draw(random.Random(seed))
    found, left = memory_results(threads, limit=1000)
    assert found.is_complete
    assert left == memory_model.results(threads)


# Without a branch, so that few steps are a warp's own: each order of those counts where nothing is reduced.
EVERY_ORDER = {
    "counts that somebody might read": ("atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1;", 96, 6, 90),
    "counts that nobody reads": ("red.relaxed.gpu.global.add.u32 [%rd0], 1;", 96, 1, 90),
    "stores to one word": ("st.relaxed.gpu.global.u32 [%rd0], %r1;", 64, 2, 6),
    "a word for each warp": (
        "mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1], %r1;",
        64,
        1,
        6,
    ),
    "stores and loads": ("st.relaxed.gpu.global.u32 [%rd0], %r1; ld.relaxed.gpu.global.u32 %r5, [%rd0];", 64, 4, 20),
    "two words": ("st.relaxed.gpu.global.u32 [%rd0], %r1; st.relaxed.gpu.global.u32 [%rd0+4], %r1;", 64, 4, 20),
}


@pytest.mark.parametrize("name", EVERY_ORDER)
def test_reduction_leaves_out_schedules_and_no_results(name):
    body, block, reduced, every = EVERY_ORDER[name]
    found = [searched(text_of(body), np.zeros(64, np.uint32), block=block, reduces=way) for way in (True, False)]
    assert all(one.is_complete for one in found)
    assert [one.schedules for one in found] == [reduced, every]
    few, all_of_them = ({outcome.data.tobytes() for _, outcome in one.found} for one in found)
    assert few == all_of_them


HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"


def barrier_kinds(name, threads, counts):
    """Return whether all schedules of a program of barriers were played, and whether some end, hang and break."""
    is_cluster = name == "clusters"
    body = (programs.cluster_ptx if is_cluster else programs.ptx)(threads, counts)
    text = f"{HEAD}.visible .entry k(.param .u64 p0) {{ {opcode_runner._REGISTERS}\n{body}\nret;\n}}"
    ctas = len(threads) if is_cluster else 1
    found = searched(
        text,
        np.zeros(programs.PLACE, np.uint32),
        ctas,
        32 if is_cluster else 32 * len(threads),
        ctas,
        programs.PLACES + 8 * programs.PLACE,
    )
    kinds = {outcome.kind for _, outcome in found.found}
    return found.is_complete, tuple(kind in kinds for kind in ("values", "hang", "error"))


NOT_ALIKE = {"reinit", "multicast", "expect"}


def is_modelled(threads, counts):
    """Tell whether the simulator does what the model does.

    It does not stop at a barrier made anew, nor at a count of no arrivals. It delivers a multicast to all CTAs at once,
    and completes no phase by an announcement of bytes that have come before.
    """
    ops = [op for thread in threads for op in thread]
    drops = [sum(op[:2] == ("drop", b) for op in ops) for b in range(len(counts))]
    return all(op[0] not in NOT_ALIKE for op in ops) and all(n < count for n, count in zip(drops, counts, strict=True))


@pytest.mark.parametrize("name", ["from nothing", "idioms with mistakes", "clusters"])
def test_programs_of_barriers_come_to_what_the_model_says(name, monkeypatch):
    # That a CTA has ended whose memory is used is the sanitizer's matter: no schedule of the simulator stops there.
    monkeypatch.setattr(model._Search, "is_dead", lambda *_: False)
    complete = 0
    for seed in range(24):
        threads, counts = draw(name, seed)
        if complete == 3 or not is_modelled(threads, counts):
            continue
        verdict = model.explore(threads, counts, 60_000, len(threads) if name == "clusters" else 0)
        is_complete, found = barrier_kinds(name, threads, counts)
        said = verdict.may_end, verdict.may_hang, verdict.may_break
        assert all(one <= other for one, other in zip(found, said, strict=True)), seed
        if is_complete:
            complete += 1
            assert found == said, seed
    assert complete == 3


# Who counts in a phase may count in the next one after another who completes it: to have commuted before is not enough.
COMPLETED_BY_ANOTHER = {
    "an arrival that may come late": ([[("arrive", 0), ("arrive", 0), ("wait", 0, 1)], [("drop", 0)]], [2]),
    "a wait that an arrival shuts out": ([[("arrive", 0)], [("wait", 0, 1)]], [1]),
    "a wait of an older phase": ([[("arrive", 0), ("arrive", 0)], [("wait", 0, 1), ("wait", 0, 0)]], [1]),
    "a wait of an older phase, of others": (
        [[("arrive", 0)], [("wait", 1, 0), ("arrive", 0)], [("arrive", 1), ("wait", 0, 1), ("wait", 0, 0)]],
        [1, 1],
    ),
    "a barrier that two of three come to": ([[("sync", 0, 2)], [("sync", 0, 2)], [("bar_arrive", 0, 2)]], []),
}


@pytest.mark.parametrize("name", COMPLETED_BY_ANOTHER)
def test_who_comes_after_a_phase_is_complete_counts_in_the_next(name):
    threads, counts = COMPLETED_BY_ANOTHER[name]
    verdict = model.explore(threads, counts)
    found = barrier_kinds("from nothing", threads, counts)
    assert found == (True, (verdict.may_end, verdict.may_hang, verdict.may_break))
    assert verdict.may_hang


@given(st.lists(st.integers(0, 200), min_size=1, max_size=20), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_bytes_of_an_access_are_ranges_with_gaps_between(addresses, size):
    found = _runs(np.array(addresses, np.uint64), size)
    assert {n for start, end in found for n in range(start, end)} == {n + k for n in addresses for k in range(size)}
    assert all(start < end for start, end in found)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(found))


def test_who_is_wanted_goes_on_and_who_sleeps_does_not():
    """Nobody has to go on if all that are wanted sleep; another agent is tried for one that cannot go on yet."""
    tree = Tree()
    node = tree.nodes[0]
    assert tree.choose([3, 1, 2]) == 3
    node.choice, node.wanted = None, {1}
    assert tree.choose([3, 1, 2]) == 1
    tree.hold(1)
    assert tree.choose([3, 1, 2]) == 3
    node.choice, node.held, node.sleeping = None, set(), {1: Event(1, 1, StepAccesses())}
    with pytest.raises(AlreadyPlayedError):
        tree.choose([3, 1, 2])
    node.wanted = {1, 2}
    assert tree.choose([3, 1, 2]) == 2
    tree.hold(2)
    with pytest.raises(AlreadyPlayedError):
        tree.choose([3, 1, 2])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=6), st.integers(0, 40), st.booleans())
def test_what_was_written_is_as_it_was(written, start, at_the_end):
    """Large ranges are put back where they were written, also by a write that goes on in adjacent memory."""
    size = _SMALL_BYTES + 1
    memory = np.arange(size + 100, dtype=np.uint32).astype(np.uint8)
    address, before = memory.ctypes.data, memory[start : start + size].copy()
    snapshot = MemorySnapshot([(address + start, address + start + size)])
    places = [(size + at if at_the_end else at, min(length, 100 - at)) for at, length in written]
    for at, length in places:
        memory[at : at + length] ^= 255
    outside = memory[:start].copy(), memory[start + size :].copy()
    starts = np.array([address + at for at, _ in places], np.int64)
    snapshot.rewind(Ranges.union([starts], [starts + [length for _, length in places]] if places else []))
    np.testing.assert_array_equal(memory[start : start + size], before)
    np.testing.assert_array_equal(memory[:start], outside[0])
    np.testing.assert_array_equal(memory[start + size :], outside[1])
