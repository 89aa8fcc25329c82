"""Early reads are told with the first write after them, and with the wait that lets the read pass."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim import DeadlockError, Run
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.sanitize.reports.reasons import _of_phases
from tests.messages import pins
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; add.u32 %r8, %r1, 1024;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 32; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
"""
INIT = "@%p1 mbarrier.init.shared.b64 [%r8], 1;\n@%p1 mbarrier.init.shared.b64 [%r8+8], 32;\n"
SHOW = "fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
COPY = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 128;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 128, [%r8];
"""
WAIT = "L{n}: mbarrier.try_wait.parity.shared.b64 %p3, [%r8{at}], {parity};\n@!%p3 bra L{n};\n"
TAKE = "and.b32 %r9, %r3, 127; add.u32 %r9, %r9, %r1; ld.shared.u32 %r10, [%r9]; st.global.u32 [%rd2], %r10;\n"
FIRST = TAKE.replace("[%rd2]", "[%rd2+512]")
KEEP = "and.b32 %r9, %r3, 127; add.u32 %r9, %r9, %r1; ld.shared.u32 %r10, [%r9];\n"


def wait(n, at="", parity=0):
    return WAIT.format(n=n, at=at, parity=parity)


def run_of(*lines, hangs=False, policy=None, **options):
    run = Run((), policy, sanitize=True)
    arrays = np.ones(256, np.uint32), np.zeros(256, np.uint32)
    if not hangs:
        launch("".join((START, *lines)), *arrays, smem_bytes=2048, run=run, assembles=False, **options)
        return run.hazards
    with pytest.raises(DeadlockError):
        launch("".join((START, *lines)), *arrays, smem_bytes=2048, run=run, assembles=False, **options)
    return run.hazards


@pytest.mark.parametrize("waits", ["", wait(2, parity=1)], ids=["no wait", "the wrong parity"])
def test_a_copy_that_is_never_issued_is_told_where_a_launch_hangs(waits):
    """The reader gives back what it has not got, twice: who fills it finds another phase than it waits for."""
    fills = "@%p2 bra READ;\n" + wait(0, "+8", 1) + COPY.replace("%p1", "%p4")
    reads = "bra END;\nREAD:\n" + waits + TAKE + "mbarrier.arrive.shared.b64 _, [%r8+8];\nEND:\n"
    found = run_of(INIT, SHOW, "setp.eq.u32 %p4, %r2, 32;\n", fills, reads, wait(5), hangs=True, block=64)
    first = found[0]
    assert (first.kind, found[-1].kind) == ("unordered-read", "deadlock")
    assert (first.before.what, first.after.what) == ("bulk copy write", "ld read")
    pins(first.missing)
    pins(first.advice[1])
    assert "uninitialised-read" not in {hazard.kind for hazard in found}


def test_a_copy_that_comes_after_who_has_read_is_told():
    """It is in order, after the read; what is read is what another CTA left."""
    (found,) = run_of(INIT, SHOW, FIRST, "fence.proxy.async;\nbar.sync 0;\n", COPY, wait(0), TAKE)
    assert found.kind == "uninitialised-read"
    assert (found.before.what, found.after.what) == ("bulk copy write", "ld read")
    pins(found.advice[0])
    pins(found.advice[1])


def test_threads_that_write_after_who_has_read_are_told():
    (found,) = run_of(FIRST, "bar.sync 0;\nst.shared.u32 [%r4], %r2;\nbar.sync 0;\n", TAKE)
    assert found.kind == "uninitialised-read"
    assert (found.before.what, found.after.what) == ("st write", "ld read")


def test_a_wait_for_another_phase_is_named():
    """It passes while the copy is under way, or before that was issued."""
    found, *_ = run_of(INIT, SHOW, COPY, wait(0, parity=1), TAKE, wait(1), policy="late")
    assert found.kind == "unordered-read"
    pins(found.advice[0])
    first = COPY + wait(0) + KEEP + "fence.proxy.async;\nbar.sync 0;\n"
    (found,) = run_of(INIT, SHOW, first, COPY, TAKE, wait(1, parity=1))
    pins(found.advice[0])
    pins(found.advice[1])


def reads_of(threads, counts, warps=None):
    """Return what an access record says of who touched."""
    lanes = 2 if threads is None else len(threads)
    return SimpleNamespace(
        threads=None if threads is None else np.array(threads),
        slots=np.array([4, 5]),
        agents=np.array([4, 5]),
        columns=np.full(lanes, 70) + np.arange(lanes),
        counts=np.array(counts),
        warps=warps and np.array(warps),
        access="read",
    )


TRIED = Instruction(0, "mbarrier.try_wait.parity.shared.b64", ())


def reason_of(over, reader, counts, row=0, lane=0, read_first=False, channel=("mbarrier", 64)):
    """Return what is said of a copy's bytes, whose phase is a count less 1, and a reader whose warp has waited."""
    copy, wave_of = reads_of(None, counts), {70: ("mbarrier", 128), 71: channel}
    found = SimpleNamespace(before=copy, after=reader, before_lane=1, after_lane=lane, row=row, read_first=read_first)
    if read_first:
        found = SimpleNamespace(before=reader, after=copy, before_lane=lane, after_lane=1, row=row, read_first=True)
    wave = SimpleNamespace(
        clocks=SimpleNamespace(channel=wave_of.get),
        ends_mbarriers=False,
        passed={(64, warp): (TRIED, phase) for warp, phase in over.items()},
    )
    reason = _of_phases(wave, found)
    return None if reason is None else (reason.diagnosis.case, dict(reason.diagnosis.values))


ROWS = [([[9, 4], [9, 6]], 0, 3), ([[9, 4], [9, 6]], 1, 5), ([[9, 5]], 1, 4)]
"""Counts of a copy by CTA, a CTA, and the phase that its bytes count in there."""


@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize(("counts", "row", "phase"), ROWS)
def test_the_phase_of_a_copy_and_that_which_its_reader_saw_are_told(counts, row, phase, read_first):
    reader, options = reads_of([32, 95], [[1, 1], [1, 1]]), {"row": row, "lane": 1, "read_first": read_first}
    case, parts = reason_of({1: 9, 2: 1}, reader, counts, **options)
    assert (case, parts["over"], parts["phase"], parts["parity"]) == ("wait-for-earlier-phase", 1, phase, phase % 2)
    new, earlier = "wait-at-new-mbarrier", "wait-for-earlier-phase"
    for over, expected in ((-1, new), (0, earlier), (phase - 1, earlier)):
        assert reason_of({2: over}, reader, counts, **options)[0] == expected
    for seen in ({2: phase}, {1: 0}, {}):
        assert reason_of(seen, reader, counts, **options) is None
    assert reason_of({2: 1}, reader, counts, channel=("copies", 64), **options) is None


def test_of_several_warps_that_read_together_the_first_one_that_waited_is_named():
    reader = reads_of(None, [[1, 1]], warps=[0, 1, 2])
    assert reason_of({1: 1, 2: 2}, reader, [[9, 8]])[1]["over"] == 1
    assert reason_of({1: 7, 2: 2}, reader, [[9, 8]]) is None
