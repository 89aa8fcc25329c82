"""Limits of an mbarrier: phases by their parity, bytes past those announced, counts out of range.

References
----------
PTX ISA, "Parity of phase", "mbarrier object": "Contents of the mbarrier object", "Phase Completion of the mbarrier
object", "mbarrier.test_wait, mbarrier.try_wait".
"""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import BarrierError, DeadlockError
from tests.messages import refuses

from .launching import launch

INIT = "mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], 1;"
LIMIT = (1 << 20) - 1


@pytest.mark.parametrize("phases", [0, 1, 2, 3])
@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_the_parity_that_is_waited_for_is_the_lowest_bit_of_its_operand(phases, wait):
    """The ISA names 0 and 1 only; a GPU takes the lowest bit, and pipelines xor a count of phases into it."""
    parities = np.array([0, 1, 2, 3, 7, 0x10000, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
    done = np.full(len(parities), 9, np.uint32)
    arrivals = "mbarrier.arrive.shared.b64 _, [%r10];\n" * phases
    tests = "\n".join(
        f"""ld.global.u32 %r1, [%rd0+{4 * n}];
        mbarrier.{wait}.parity.shared.b64 %p1, [%r10], %r1;
        selp.u32 %r2, 1, 0, %p1;
        st.global.u32 [%rd1+{4 * n}], %r2;"""
        for n in range(len(parities))
    )
    launch(f"{INIT}\n{arrivals}{tests}", [parities, done], block=(1, 1, 1), smem=64)
    # The phase of the other parity than the current one's is the one that is complete.
    np.testing.assert_array_equal(done, parities & 1 != phases & 1)


def test_a_deadlock_names_the_parity_that_was_waited_for():
    loop = "mov.u32 %r1, 6;\nL: mbarrier.try_wait.parity.shared.b64 %p1, [%r10], %r1;\n@!%p1 bra L;"
    with refuses(DeadlockError):
        launch(f"{INIT}\n{loop}", block=(1, 1, 1), smem=64)


WAIT = "L: mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0;\n@!%p1 bra L;"


@pytest.mark.parametrize("before", [False, True])
def test_more_bytes_than_announced_complete_no_phase(before):
    """Nothing stops a count of bytes that goes past zero: it is not zero, and the phase never completes."""
    announced, delivered = (
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16;",
        "mbarrier.complete_tx.shared.b64 [%r10], 32;",
    )
    lines = [delivered, announced] if before else [announced, delivered]
    body = "\n".join([INIT, *lines, WAIT])
    with refuses(DeadlockError):
        launch(body, block=(1, 1, 1), smem=64)


def test_a_copy_of_more_bytes_than_announced_deadlocks():
    data = np.zeros(32, np.uint8)
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    body = f"""{INIT}
    mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16;
    {copy} [%r10+64], [%rd0], 32, [%r10];
    {WAIT}"""
    with refuses(DeadlockError):
        launch(body, [data], block=(1, 1, 1), smem=128)


@pytest.mark.parametrize(
    ("line", "is_valid"),
    [
        (f"mbarrier.arrive.expect_tx.shared.b64 _, [%r10], {LIMIT};", True),
        (f"mbarrier.arrive.expect_tx.shared.b64 _, [%r10], {LIMIT + 1};", False),
        (f"mbarrier.complete_tx.shared.b64 [%r10], {LIMIT};", True),
        (f"mbarrier.complete_tx.shared.b64 [%r10], {LIMIT + 1};", False),
    ],
)
def test_bytes_that_an_mbarrier_cannot_count_are_refused(line, is_valid):
    if is_valid:
        launch(f"{INIT}\n{line}", block=(1, 1, 1), smem=64)
        return
    with refuses(BarrierError):
        launch(f"{INIT}\n{line}", block=(1, 1, 1), smem=64)


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_a_state_names_the_phase_that_it_was_taken_in(wait):
    """Whatever that phase's number: it is not complete before its last arrival, and is after it."""
    test = f"mbarrier.{wait}.shared.b64 %p1, [%r10], %rd4; selp.u32 %r2, 1, 0, %p1;"
    phases = 4
    body = "".join(
        f"""mbarrier.arrive.shared.b64 %rd4, [%r10]; {test} st.global.u32 [%rd0+{8 * n}], %r2;
        mbarrier.arrive.shared.b64 _, [%r10]; {test} st.global.u32 [%rd0+{8 * n + 4}], %r2;"""
        for n in range(phases)
    )
    done = np.full(2 * phases, 9, np.uint32)
    launch(f"{INIT.replace(', 1;', ', 2;')}\n{body}", [done], block=(1, 1, 1), smem=64)
    assert done.tolist() == [0, 1] * phases


@pytest.mark.parametrize("phases", [0, 1, 2, 3])
@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_a_state_is_good_for_its_phase_and_the_next(wait, phases):
    """PTX ISA, "mbarrier.test_wait": one of the current phase or the immediately preceding one; else undefined."""
    body = f"""{INIT.replace(", 1;", ", 2;")} mbarrier.arrive.shared.b64 %rd4, [%r10];
    {"mbarrier.arrive.shared.b64 _, [%r10];" * (2 * phases - 1 if phases else 0)}
    mbarrier.{wait}.shared.b64 %p1, [%r10], %rd4; selp.u32 %r2, 1, 0, %p1; st.global.u32 [%rd0], %r2;"""
    done = np.full(1, 9, np.uint32)
    if phases > 1:
        with refuses(BarrierError):
            launch(body, [done], block=(1, 1, 1), smem=64)
    else:
        launch(body, [done], block=(1, 1, 1), smem=64)
        assert done == phases


def test_a_state_of_another_mbarrier_is_refused():
    body = f"""{INIT} add.u32 %r11, %r10, 8; mbarrier.init.shared.b64 [%r11], 1;
    mbarrier.arrive.shared.b64 %rd4, [%r10]; mbarrier.test_wait.shared.b64 %p1, [%r11], %rd4;"""
    with refuses(BarrierError):
        launch(body, block=(1, 1, 1), smem=64)


@pytest.mark.parametrize("lanes", [1, 32])
def test_each_lane_has_the_state_of_its_own_mbarrier(lanes):
    """A lane's state has the pending count before the warp's arrivals, and its wait passes at that mbarrier alone."""
    body = """mov.u32 %r10, smem; mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4; add.u64 %rd0, %rd0, %rd5;
    shl.b32 %r2, %r1, 3; add.u32 %r10, %r10, %r2; add.u32 %r3, %r1, 1;
    mbarrier.init.shared.b64 [%r10], %r3; bar.warp.sync 0xffffffff;
    mbarrier.arrive.shared.b64 %rd4, [%r10]; mbarrier.pending_count.b64 %r4, %rd4;
    mbarrier.test_wait.shared.b64 %p1, [%r10], %rd4; @%p1 add.u32 %r4, %r4, 100;
    st.global.u32 [%rd0], %r4;"""
    found = np.zeros(lanes, np.uint32)
    launch(body, [found], block=(lanes, 1, 1), smem=512)
    assert found.tolist() == [101, *range(2, lanes + 1)]


@pytest.mark.parametrize("lacking", [0, 1])
def test_each_lane_arrives_and_expects_by_its_own_count(lacking):
    total = 32 * 33 // 2
    body = f"""mov.u32 %r10, smem; mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 1; setp.eq.u32 %p0, %r1, 0;
    @%p0 mbarrier.init.shared.b64 [%r10], {total};
    bar.warp.sync 0xffffffff;
    mbarrier.expect_tx.relaxed.cta.shared.b64 [%r10], %r2;
    mbarrier.arrive.shared.b64 _, [%r10], %r2;
    @%p0 mbarrier.complete_tx.shared.b64 [%r10], {total - lacking};
    {WAIT}"""
    if lacking:
        with refuses(DeadlockError):
            launch(body, smem=64)
    else:
        launch(body, smem=64)
