"""Barriers of CTAs and clusters: used again at once, and left by threads that end while others wait.

PTX ISA, "bar.red": the result is of the predicates of this use. "barrier.cluster": it waits for all threads of the
cluster that have not exited.
"""

import numpy as np
import pytest

from cutepy.sim.errors import BarrierError

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


def test_those_who_share_a_named_barrier_agree_on_its_count():
    body = f"""{_INDEX} setp.ge.u32 %p0, %r1, 32; @%p0 bra OTHER; bar.sync 1, 64; exit;
        OTHER: bar.arrive 1, 96; exit;"""
    with pytest.raises(BarrierError, match=r"barrier 1 expects (64|96) threads for some of those"):
        launch(body, [], block=(64, 1, 1), grid=(1, 1, 1))


def test_those_who_come_to_a_named_barrier_together_agree_on_its_count():
    body = f"{_INDEX} and.b32 %r2, %r1, 32; add.u32 %r2, %r2, 32; bar.sync 1, %r2;"
    with pytest.raises(BarrierError, match="expects 32 threads for some of those who arrive, and 64 for others"):
        launch(body, [], block=(64, 1, 1), grid=(1, 1, 1))


def test_the_count_of_all_threads_may_be_left_out():
    body = f"""{_INDEX} setp.ge.u32 %p0, %r1, 32; @%p0 bra OTHER; bar.sync 1, 64; exit;
        OTHER: bar.sync 1; exit;"""
    launch(body, [], block=(64, 1, 1), grid=(1, 1, 1))


def test_a_second_arrival_at_the_cluster_waits_first():
    body = "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;"
    with pytest.raises(BarrierError, match="have not waited since they arrived last"):
        launch(body, [], block=(64, 1, 1), grid=(2, 1, 1), cluster=(2, 1, 1))
