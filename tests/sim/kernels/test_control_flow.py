"""Lanes that part and meet again, against the same program in Python."""

import numpy as np
import pytest

from cutepy.sim import Run

from .launching import kernel_call, launch, ptx_module

_INDEX = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r0, %r2, %r3, %r1;"
_ADDRESS = "mad.wide.u32 %rd10, %r0, 4, %rd0;"


def run(body, threads=64, ctas=3):
    out = np.full(threads * ctas, -1, "i4")
    launch(f"{_INDEX} {_ADDRESS} {body}", [out], block=(threads, 1, 1), grid=(ctas, 1, 1))
    return out


def test_if_else_by_thread_and_cta():
    got = run("""
        and.b32 %r4, %r0, 5; setp.eq.u32 %p0, %r4, 1; @%p0 bra YES;
        mov.u32 %r5, 7; bra DONE;
        YES: add.u32 %r5, %r0, 100;
        DONE: st.global.u32 [%rd10], %r5;""")
    i = np.arange(192)
    np.testing.assert_array_equal(got, np.where(i & 5 == 1, i + 100, 7))


def test_loops_of_different_length():
    got = run("""
        mov.u32 %r5, 0; rem.u32 %r6, %r0, 11;
        LOOP: setp.eq.u32 %p0, %r6, 0; @%p0 bra DONE;
        add.u32 %r5, %r5, %r6; sub.u32 %r6, %r6, 1; bra LOOP;
        DONE: st.global.u32 [%rd10], %r5;""")
    n = np.arange(192) % 11
    np.testing.assert_array_equal(got, n * (n + 1) // 2)


def test_nested_loops_that_leave_by_two_ways():
    got = run("""
        mov.u32 %r5, 0; mov.u32 %r6, 0;
        OUTER: setp.ge.u32 %p0, %r6, 5; @%p0 bra DONE;
        mov.u32 %r7, 0;
        INNER: setp.ge.u32 %p1, %r7, 4; @%p1 bra NEXT;
        add.u32 %r5, %r5, 1; mul.lo.u32 %r8, %r6, 7; add.u32 %r8, %r8, %r7; rem.u32 %r9, %r0, 29;
        setp.eq.u32 %p2, %r8, %r9; @%p2 bra DONE;
        add.u32 %r7, %r7, 1; bra INNER;
        NEXT: add.u32 %r6, %r6, 1; bra OUTER;
        DONE: st.global.u32 [%rd10], %r5;""")

    def count(i):
        steps = 0
        for outer in range(5):
            for inner in range(4):
                steps += 1
                if outer * 7 + inner == i % 29:
                    return steps
        return steps

    np.testing.assert_array_equal(got, [count(i) for i in range(192)])


def test_early_return_leaves_the_others_running():
    got = run("""
        rem.u32 %r4, %r0, 3; setp.eq.u32 %p0, %r4, 0; @%p0 ret;
        bar.sync 0;
        st.global.u32 [%rd10], %r0;""")
    i = np.arange(192)
    np.testing.assert_array_equal(got, np.where(i % 3 == 0, -1, i))


def test_guarded_store_and_arithmetic():
    got = run("""
        and.b32 %r4, %r0, 1; setp.ne.u32 %p0, %r4, 0;
        mov.u32 %r5, 10; @%p0 add.u32 %r5, %r5, %r0; @!%p0 add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r0, 150; @%p1 st.global.u32 [%rd10], %r5;""")
    i = np.arange(192)
    np.testing.assert_array_equal(got, np.where(i < 150, np.where(i % 2, 10 + i, 11), -1))


def test_a_warp_may_wait_for_one_that_has_passed_the_join():
    """Warp 0 waits on a barrier at which warp 1 arrives only after both paths have met."""
    out = np.full(64, -1, "i4")
    body = """
        mov.u32 %r10, smem; setp.eq.u32 %p3, %r1, 0; @%p3 mbarrier.init.shared.b64 [%r10], 32; bar.sync 0;
        setp.ge.u32 %p0, %r1, 32; @%p0 bra JOIN;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0; @!%p1 bra WAIT;
        JOIN: setp.lt.u32 %p0, %r1, 32; @%p0 bra STORE;
        mbarrier.arrive.shared.b64 _, [%r10];
        STORE: st.global.u32 [%rd10], %r0;"""
    launch(f"{_INDEX} {_ADDRESS} {body}", [out], block=(64, 1, 1), smem=64)
    np.testing.assert_array_equal(out, np.arange(64))


@pytest.mark.parametrize("places", [2, 3])
def test_lanes_that_add_to_few_places_in_turn(places):
    """No two neighbours hit one place, and yet many lanes do."""
    out = np.zeros(places, np.uint32)
    body = f"""mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, {places}; mad.wide.u32 %rd2, %r2, 4, %rd0;
    red.global.add.u32 [%rd2], 1;"""
    launch(body, [out], block=(96, 1, 1))
    assert out.tolist() == [96 // places] * places


def test_a_loop_begins_where_the_kernel_does():
    out = np.zeros(1, np.uint32)
    text = (
        ptx_module("", 1).partition("ld.param")[0]
        + """LOOP: ld.param.u64 %rd0, [p0];
    ld.global.u32 %r1, [%rd0]; add.u32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;
    setp.lt.u32 %p0, %r1, 3; @%p0 bra LOOP; ret; }"""
    )
    run = Run((), None)
    run.register(out)
    run.launch(kernel_call(text, [out]))
    assert out[0] == 3
