"""Barriers of CTAs and clusters: used again at once, and left by threads that end while others wait.

PTX ISA, "bar.red": the result is of the predicates of this use. "barrier.cluster": it waits for all threads of the
cluster that have not exited.
"""

import numpy as np
import pytest

from cutepy.sim.errors import BarrierError, DeadlockError
from cutepy.sim.machine.policies import policy_named
from tests.messages import refuses

from .launching import launch

_INDEX = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r1;"
_FINISH = "mad.wide.u32 %rd2, %r4, 4, %rd0; st.global.u32 [%rd2], %r10;"


@pytest.mark.parametrize("operation", ["popc.u32", "and.pred", "or.pred"])
@pytest.mark.parametrize("late", [0, 1])
def test_reductions_in_a_row_are_of_their_own_predicates(operation, late):
    """One warp comes late to each; the predicates hold in some threads, in all and in none, and change each time."""
    threads, bounds = 96, [5, 96, 0, 40, 0, 96, 33]
    out = np.zeros((2, threads), np.uint32)
    is_predicate = operation.endswith("pred")
    result = "%p2" if is_predicate else "%r6"
    body = [_INDEX, f"mov.u32 %r10, 0; shr.u32 %r11, %r1, 5; setp.ne.u32 %p3, %r11, {late};"]
    for n, bound in enumerate(bounds):
        body.append(f"""mov.u32 %r12, 0; @%p3 bra READY{n};
            L{n}: add.u32 %r12, %r12, 1; setp.lt.u32 %p4, %r12, 2000; @%p4 bra L{n}; READY{n}:
            setp.lt.u32 %p1, %r1, {bound}; bar.red.{operation} {result}, 1, {threads}, %p1;""")
        body += ["selp.u32 %r6, 1, 0, %p2;"] if is_predicate else []
        body.append("mad.lo.u32 %r10, %r10, 100, %r6;" if is_predicate else "xor.b32 %r10, %r10, %r6;")
        if not is_predicate:
            body.append("mul.lo.u32 %r10, %r10, 31;")
    launch(f"{' '.join(body)} {_FINISH}", [out], block=(threads, 1, 1), grid=(2, 1, 1))
    expected = 0
    for bound in bounds:
        if is_predicate:
            expected = expected * 100 + int(bound == threads if operation == "and.pred" else bound > 0)
        else:
            expected = (expected ^ bound) * 31
    np.testing.assert_array_equal(out, expected % 2**32)


_LATE = "mov.u32 %r12, 0; LATE: add.u32 %r12, %r12, 1; setp.lt.u32 %p4, %r12, 3000; @%p4 bra LATE;"


@pytest.mark.parametrize("when", ["at once", "late"])
@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_a_cta_leaves_while_its_peers_wait_at_the_cluster(when, leaver):
    out = np.zeros((3, 64), np.uint32)
    body = f"""{_INDEX} mov.u32 %r10, 7; setp.ne.u32 %p0, %r2, {leaver}; @%p0 bra STAY;
        {_LATE if when == "late" else ""} exit;
        STAY: barrier.cluster.arrive; barrier.cluster.wait; {_FINISH}"""
    launch(body, [out], block=(64, 1, 1), grid=(3, 1, 1), cluster=(3, 1, 1))
    np.testing.assert_array_equal(out, np.repeat([[0 if cta == leaver else 7] for cta in range(3)], 64, axis=1))


@pytest.mark.parametrize("when", ["at once", "late"])
def test_a_warp_leaves_while_others_wait_at_the_barrier(when):
    out = np.zeros(96, np.uint32)
    body = f"""{_INDEX} mov.u32 %r10, 7; setp.ge.u32 %p0, %r1, 32; @%p0 bra STAY;
        {_LATE if when == "late" else ""} exit;
        STAY: bar.sync 0; bar.sync 0; {_FINISH}"""
    launch(body, [out], block=(96, 1, 1))
    np.testing.assert_array_equal(out, np.repeat([0, 7], [32, 64]))


def test_paths_that_part_meet_at_the_barrier_of_all_threads():
    """Two warps exchange values on paths of their own: neither goes on before the other has come."""
    out = np.zeros(64, np.uint32)
    body = f"""{_INDEX} mov.u32 %r5, smem; mad.lo.u32 %r6, %r1, 4, %r5; xor.b32 %r7, %r6, 128;
        setp.ge.u32 %p0, %r1, 32; @%p0 bra HIGH;
        st.shared.u32 [%r6], 1; bar.sync 0; ld.shared.u32 %r10, [%r7]; bra DONE;
        HIGH: st.shared.u32 [%r6], 2; bar.sync 0; ld.shared.u32 %r10, [%r7];
        DONE: {_FINISH}"""
    launch(body, [out], block=(64, 1, 1), smem=256)
    assert out.tolist() == [2] * 32 + [1] * 32


def test_a_thread_by_itself_is_a_whole_cluster():
    out = np.zeros(1, np.uint32)
    body = f"{_INDEX} mov.u32 %r10, 7; barrier.cluster.arrive; barrier.cluster.wait; {_FINISH}"
    launch(body, [out], block=(1, 1, 1))
    assert out.tolist() == [7]


@pytest.mark.parametrize("threads", [64, 96])
def test_a_reduction_over_some_warps(threads):
    """Those of a count: the last warp waits elsewhere, or comes too."""
    out = np.zeros(96, np.uint32)
    body = f"""mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd0; setp.ge.u32 %p0, %r1, {threads}; @%p0 bra END;
    and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 0; barrier.red.popc.u32 %r3, 5, {threads}, %p1;
    st.global.u32 [%rd2], %r3; END: bar.sync 0;"""
    launch(body, [out], block=(96, 1, 1))
    assert out.tolist() == [threads // 4] * threads + [0] * (96 - threads)


BARRIER = ["bar.sync", "barrier.sync", "barrier.cta.sync"]
_HALVES = "and.b32 %r7, %r1, 31; setp.lt.u32 %p1, %r7, 16;"


@pytest.mark.parametrize("barrier", BARRIER)
@pytest.mark.parametrize("when", ["at once", "late"])
@pytest.mark.parametrize("count", ["", ", 64"])
def test_a_barrier_counts_warps_and_not_the_lanes_that_are_left(barrier, when, count):
    """PTX ISA, "bar, barrier": it waits for all non-exited threads from the warp, and marks the warp's arrival."""
    out = np.zeros(64, np.uint32)
    body = f"""{_INDEX} mov.u32 %r10, 7; and.b32 %r5, %r1, 31; setp.ne.u32 %p0, %r5, 5; @%p0 bra STAY;
        {_LATE if when == "late" else ""} exit;
        STAY: {barrier} 1{count}; {barrier} 2{count}; {_FINISH}"""
    launch(body, [out], block=(64, 1, 1))
    assert out.tolist() == [0 if n % 32 == 5 else 7 for n in range(64)]


@pytest.mark.parametrize("barrier", BARRIER)
@pytest.mark.parametrize("threads", [1, 16, 33, 48])
def test_a_warp_counts_whole_in_a_cta_of_no_multiple_of_them(barrier, threads):
    """Those that give its count, of whole warps, and those that leave it out agree."""
    out = np.zeros(threads, np.uint32)
    warps = -(-threads // 32)
    body = f"""{_INDEX} mov.u32 %r10, 7; setp.lt.u32 %p0, %r1, 32; @%p0 bra FIRST; {barrier} 1; bra BOTH;
        FIRST: {barrier} 1, {32 * warps}; BOTH: {barrier} 2, {32 * warps}; {_FINISH}"""
    launch(body, [out], block=(threads, 1, 1))
    assert out.tolist() == [7] * threads


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("policy", [None, *(f"schedule:{n}" for n in range(6))])
def test_lanes_of_a_warp_come_on_paths_of_their_own(first, policy):
    """Half of each warp comes late; behind each barrier all see what all have written."""
    out = np.zeros(64, np.uint32)
    body = f"""{_INDEX} {_HALVES} mov.u32 %r5, smem; mad.lo.u32 %r6, %r1, 4, %r5; xor.b32 %r8, %r6, 192;
        {"@!%p1" if first else "@%p1"} bra OTHER;
        {_LATE} st.shared.u32 [%r6], %r1; barrier.sync 1, 64; ld.shared.u32 %r10, [%r8]; barrier.sync 1, 64; bra DONE;
        OTHER: st.shared.u32 [%r6], %r1; barrier.sync 1, 64; ld.shared.u32 %r10, [%r8]; barrier.sync 1, 64;
        DONE: {_FINISH}"""
    launch(body, [out], block=(64, 1, 1), smem=256, policy=policy and policy_named(policy))
    assert out.tolist() == [n ^ 48 for n in range(64)]


@pytest.mark.parametrize("policy", [None, *(f"schedule:{n}" for n in range(6))])
def test_a_half_of_a_warp_does_not_pass_with_others(policy):
    """Two other warps complete a generation while half of the first one waits, which counts in the next one."""
    out = np.zeros(128, np.uint32)
    body = f"""{_INDEX} {_HALVES} mov.u32 %r10, 0; mov.u32 %r5, smem; shr.u32 %r6, %r1, 5;
        setp.ne.u32 %p2, %r6, 0; @%p2 bra OTHERS; @%p1 bra WAIT;
        LOOP: ld.volatile.shared.u32 %r9, [%r5]; setp.ne.u32 %p3, %r9, 64; @%p3 bra LOOP;
        st.volatile.shared.u32 [%r5+4], 1;
        WAIT: barrier.sync 1, 64; ld.volatile.shared.u32 %r10, [%r5+4]; bra DONE;
        OTHERS: setp.eq.u32 %p3, %r6, 3; @%p3 bra LAST; bar.sync 1, 64; atom.shared.add.u32 %r9, [%r5], 1; bra DONE;
        LAST: ld.volatile.shared.u32 %r9, [%r5]; setp.ne.u32 %p3, %r9, 64; @%p3 bra LAST; bar.sync 1, 64;
        DONE: {_FINISH}"""
    launch(body, [out], block=(128, 1, 1), smem=256, policy=policy and policy_named(policy))
    assert out.tolist() == [1] * 32 + [0] * 96


@pytest.mark.parametrize("operation", ["popc.u32", "and.pred", "or.pred"])
def test_a_reduction_is_over_the_lanes_that_are_left(operation):
    out = np.zeros(48, np.uint32)
    result = "%r10" if operation.startswith("popc") else "%p2"
    body = f"""{_INDEX} and.b32 %r5, %r1, 3; setp.eq.u32 %p0, %r5, 3; @%p0 exit; setp.lt.u32 %p3, %r1, 24;
        setp.ne.u32 %p1, %r5, 3; setp.lt.u32 %p4, %r1, 9; @%p4 bra LOW;
        barrier.red.{operation} {result}, 1, 64, %p1; bra DONE; LOW: barrier.red.{operation} {result}, 1, 64, %p1;
        DONE: {"" if operation.startswith("popc") else "selp.u32 %r10, 1, 0, %p2;"} {_FINISH}"""
    launch(body, [out], block=(48, 1, 1))
    expected = 36 if operation.startswith("popc") else 1
    assert out.tolist() == [0 if n % 4 == 3 else expected for n in range(48)]


def test_an_arrival_waits_for_the_rest_of_its_warp():
    """It is no arrival of the warp before: who waits there for the warp sees what its last lane has written."""
    out = np.zeros(64, np.uint32)
    body = f"""{_INDEX} {_HALVES} mov.u32 %r10, 0; mov.u32 %r5, smem; setp.ge.u32 %p2, %r1, 32; @%p2 bra OTHER;
        @%p1 bra ARRIVE; {_LATE} st.shared.u32 [%r5], 5; ARRIVE: barrier.arrive 1, 64; bra DONE;
        OTHER: barrier.sync 1, 64; ld.shared.u32 %r10, [%r5]; DONE: {_FINISH}"""
    launch(body, [out], block=(64, 1, 1), smem=256)
    assert out.tolist() == [0] * 32 + [5] * 32


def test_an_arrival_counts_once_where_its_warp_ends_behind_it():
    """Two warps have come, of which one has ended; the third is late, and the barrier is for all."""
    out = np.zeros(96, np.uint32)
    body = f"""{_INDEX} mov.u32 %r10, 0; mov.u32 %r5, smem; setp.lt.u32 %p0, %r1, 32; setp.ge.u32 %p1, %r1, 64;
        @%p0 bra ARRIVE; @!%p1 bra WAIT; {_LATE} st.shared.u32 [%r5], 5; bra WAIT;
        ARRIVE: bar.arrive 1, 96; exit; WAIT: bar.sync 1; ld.shared.u32 %r10, [%r5]; {_FINISH}"""
    launch(body, [out], block=(96, 1, 1), smem=256)
    assert out.tolist() == [0] * 32 + [5] * 64


@pytest.mark.parametrize(("low", "high"), [("sync", "sync"), ("arrive", "sync"), ("sync", "arrive")])
def test_lanes_of_a_warp_at_two_barriers_wait_for_each_other(low, high):
    body = f"""{_INDEX} {_HALVES} @%p1 bra LOW; barrier.{high} 1, 32; exit; LOW: barrier.{low} 2, 32; exit;"""
    with refuses(BarrierError):
        launch(body, [], block=(64, 1, 1))


def test_who_waits_for_the_rest_of_its_warp_says_so():
    body = f"""{_INDEX} {_HALVES} mov.u32 %r5, smem; @%p1 bra LOW; barrier.sync 1, 32; exit;
        LOW: ld.volatile.shared.u32 %r9, [%r5]; setp.eq.u32 %p3, %r9, 0; @%p3 bra LOW; exit;"""
    with refuses(DeadlockError):
        launch(body, [], block=(32, 1, 1), smem=256)


def test_those_who_share_a_named_barrier_agree_on_its_count():
    body = f"""{_INDEX} setp.ge.u32 %p0, %r1, 32; @%p0 bra OTHER; bar.sync 1, 64; exit;
        OTHER: bar.arrive 1, 96; exit;"""
    with refuses(BarrierError):
        launch(body, [], block=(64, 1, 1), grid=(1, 1, 1))


def test_those_who_come_to_a_named_barrier_together_agree_on_its_count():
    body = f"{_INDEX} and.b32 %r2, %r1, 32; add.u32 %r2, %r2, 32; bar.sync 1, %r2;"
    with refuses(BarrierError):
        launch(body, [], block=(64, 1, 1), grid=(1, 1, 1))


def test_the_count_of_all_threads_may_be_left_out():
    body = f"""{_INDEX} setp.ge.u32 %p0, %r1, 32; @%p0 bra OTHER; bar.sync 1, 64; exit;
        OTHER: bar.sync 1; exit;"""
    launch(body, [], block=(64, 1, 1), grid=(1, 1, 1))


def test_a_second_arrival_at_the_cluster_waits_first():
    body = "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;"
    with refuses(BarrierError):
        launch(body, [], block=(64, 1, 1), grid=(2, 1, 1), cluster=(2, 1, 1))
