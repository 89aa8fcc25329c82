"""Lanes meet again where all their paths do, also where some spun; and collectives wait for the lanes that they name.

PTX ISA, "elect.sync", "shfl.sync", "bar.warp.sync": the executing thread waits until all threads of its mask that have
not exited execute the instruction.
"""

import numpy as np
import pytest

from cutepy.layouts import parse
from cutepy.layouts.sm90 import make_gmma_desc
from cutepy.sim import DeadlockError, SimulationError
from tests.messages import refuses

from .launching import launch

_TURNS = """mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid; mov.u32 %r3, %ctaid.x; shr.u32 %r4, %r1, 5; mov.u32 %r9, %ntid.x;
    shr.u32 %r9, %r9, 5; mad.lo.u32 %r3, %r3, %r9, %r4; setp.ne.u32 %p0, %r2, {spinner}; @%p0 bra MEET;
    SPIN: ld.acquire.gpu.global.u32 %r5, [%rd0]; setp.ne.u32 %p1, %r5, %r3; @%p1 bra SPIN;
    MEET: """
_DONE = "bar.warp.sync -1; @!%p2 bra OUT; red.release.gpu.global.add.u32 [%rd0], 1; OUT:"
"""Warps take turns in order: a lane of each spins until its turn, and one lets the next go on."""


@pytest.mark.parametrize("spinner", [0, 5])
@pytest.mark.parametrize(("ctas", "warps"), [(2, 1), (1, 3), (3, 2), (140, 1)])
def test_one_is_elected_after_one_spun(spinner, ctas, warps):
    out = np.zeros(2, np.uint32)
    body = f"""{_TURNS.format(spinner=spinner)} elect.sync %r6|%p2, -1;
        @!%p2 bra NEXT; red.global.add.u32 [%rd0+4], 1; NEXT: {_DONE}"""
    launch(body, [out], grid=(ctas, 1, 1), block=(32 * warps, 1, 1))
    assert out.tolist() == [ctas * warps] * 2


@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        ("shfl.sync.idx.b32 %r6, %r2, 31, 31, -1;", 31),
        ("setp.ge.u32 %p3, %r2, 0; vote.sync.ballot.b32 %r6, %p3, -1;", 0xFFFFFFFF),
        ("activemask.b32 %r6;", 0xFFFFFFFF),
        ("match.any.sync.b32 %r6, %r3, -1;", 0xFFFFFFFF),
        ("redux.sync.add.u32 %r6, %r2, -1;", 496),
    ],
)
def test_lanes_meet_after_one_spun(collective, expected):
    ctas, warps = 3, 2
    out, results = np.zeros(2, np.uint32), np.zeros((ctas * warps, 32), np.uint32)
    body = f"""{_TURNS.format(spinner=0)} {collective} setp.eq.u32 %p2, %r2, 7;
        mad.lo.u32 %r7, %r3, 32, %r2; mad.wide.u32 %rd2, %r7, 4, %rd1; st.global.u32 [%rd2], %r6; {_DONE}"""
    launch(body, [out, results], grid=(ctas, 1, 1), block=(32 * warps, 1, 1))
    assert (results == expected).all()
    assert out[0] == ctas * warps


_LOCK = """mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid; mad.wide.u32 %rd2, %r1, 4, %rd1;
    LOCK: atom.global.acquire.gpu.cas.b32 %r4, [%rd0], 0, 1; setp.ne.u32 %p0, %r4, 0; @%p0 bra LOCK;
    ld.volatile.global.u32 %r5, [%rd0+4]; add.u32 %r6, %r5, 1; st.volatile.global.u32 [%rd0+4], %r6;
    atom.global.release.gpu.exch.b32 %r4, [%rd0], 0;"""
"""Each lane takes the lock: the one that has it must go ahead of its warp. %r5 is its turn."""


def test_lanes_that_went_ahead_wait_where_they_exchange_values():
    out, results = np.zeros(3, np.uint32), np.zeros(64, np.uint32)
    body = f"""{_LOCK} bar.warp.sync -1; shfl.sync.bfly.b32 %r7, %r5, 1, 31, -1; redux.sync.add.u32 %r8, %r5, -1;
        elect.sync %r9|%p2, -1; @!%p2 bra STORE; red.global.add.u32 [%rd0+8], 1;
        STORE: mad.lo.u32 %r7, %r7, 10000, %r8; st.global.u32 [%rd2], %r7;"""
    launch(body, [out, results], block=(64, 1, 1))
    assert out.tolist() == [0, 64, 2]
    turns, sums = results // 10000, results.reshape(2, 32) % 10000
    assert sorted(turns) == list(range(64))
    np.testing.assert_array_equal(sums, np.repeat(turns.reshape(2, 32).sum(axis=1)[:, None], 32, axis=1))


def test_lanes_that_went_ahead_and_took_two_paths_meet_at_a_collective():
    """Each lane keeps its own registers, also after another path than the others."""
    out, results = np.zeros(2, np.uint32), np.zeros(32, np.uint32)
    body = f"""{_LOCK} mov.u32 %r10, 7; and.b32 %r11, %r2, 3; setp.lt.u32 %p3, %r11, 2; @%p3 bra LOW;
        mul.lo.u32 %r10, %r2, 3; bra MEET; LOW: setp.eq.u32 %p3, %r11, 0; @%p3 bra MEET; add.u32 %r10, %r2, 50;
        MEET: redux.sync.add.u32 %r8, %r10, -1; mad.lo.u32 %r8, %r8, 1000, %r10; st.global.u32 [%rd2], %r8;"""
    launch(body, [out, results])
    lane = np.arange(32)
    own = np.where(lane % 4 >= 2, lane * 3, np.where(lane % 4 == 0, 7, lane + 50))
    np.testing.assert_array_equal(results, own.sum() * 1000 + own)


@pytest.mark.parametrize("collective", ["", "redux.sync.add.u32 %r8, %r2, 0xAAAAAAAA;"])
def test_lanes_that_went_ahead_within_a_branch_meet_the_others_after_it(collective):
    out, results = np.zeros(2, np.uint32), np.zeros(64, np.uint32)
    first, _, rest = _LOCK.partition("LOCK:")
    body = f"""{first} and.b32 %r9, %r2, 1; setp.eq.u32 %p3, %r9, 0; mov.u32 %r8, 0; @%p3 bra MEET;
        LOCK: {rest} {collective}
        MEET: activemask.b32 %r7; shr.u32 %r8, %r8, 4; xor.b32 %r7, %r7, %r8; st.global.u32 [%rd2], %r7;"""
    launch(body, [out, results], block=(64, 1, 1))
    assert out.tolist() == [0, 32]
    assert set(results.tolist()) == ({0xFFFFFFFF, 0xFFFFFFFF ^ 256 >> 4} if collective else {0xFFFFFFFF})


def test_a_warp_synchronises_from_two_paths():
    """The two call the barrier in different places: one writes what the other reads."""
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %tid.x; mov.u32 %r0, smem; mad.lo.u32 %r2, %r1, 4, %r0; xor.b32 %r3, %r1, 16;
        mad.lo.u32 %r3, %r3, 4, %r0; mad.wide.u32 %rd2, %r1, 4, %rd0; setp.lt.u32 %p0, %r1, 16; @%p0 bra LOW;
        st.shared.u32 [%r2], %r1; bar.warp.sync -1; ld.shared.u32 %r4, [%r3]; bra END;
        LOW: add.u32 %r5, %r1, 100; st.shared.u32 [%r2], %r5; bar.warp.sync -1; ld.shared.u32 %r4, [%r3];
        END: st.global.u32 [%rd2], %r4;"""
    launch(body, [out], smem=128)
    np.testing.assert_array_equal(out, [*range(16, 32), *range(100, 116)])


def test_lanes_that_wait_for_time_to_pass_are_awaited():
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd0; setp.ne.u32 %p0, %r1, 3; @%p0 bra MEET;
        mov.u64 %rd5, %clock64;
        WAIT: mov.u64 %rd6, %clock64; sub.u64 %rd6, %rd6, %rd5; setp.lt.u64 %p2, %rd6, 100000; @%p2 bra WAIT;
        MEET: activemask.b32 %r4; st.global.u32 [%rd2], %r4;"""
    launch(body, [out])
    assert (out == 0xFFFFFFFF).all()


@pytest.mark.parametrize("collective", ["bar.warp.sync -1;", "elect.sync %r6|%p2, -1;", "elect.sync %r6|%p2, 0xffff;"])
def test_a_collective_of_half_of_its_lanes(collective):
    body = f"mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 8; @%p0 bra END; {collective} END: st.global.u32 [%rd0], 1;"
    with refuses(SimulationError):
        launch(body, [np.zeros(1, np.uint32)])


@pytest.mark.parametrize("work", ["", "L: add.u32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 3000; @%p4 bra L;"])
def test_a_collective_after_others_have_left(work):
    """By a branch to the end too, as compilers write an early return: nobody waits for threads that have exited."""
    out = np.zeros(32, np.uint32)
    body = f"""mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd0; setp.ge.u32 %p0, %r1, 8; @%p0 bra REST; {work}
        bra END; REST: redux.sync.add.u32 %r2, %r1, -1; st.global.u32 [%rd2], %r2; END:"""
    launch(body, [out])
    np.testing.assert_array_equal(out, np.repeat([0, sum(range(8, 32))], [8, 24]))


def test_lanes_that_spin_for_ever_are_awaited_for_ever():
    body = """mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 8; @!%p0 bra MEET;
        SPIN: ld.acquire.gpu.global.u32 %r5, [%rd0]; setp.eq.u32 %p1, %r5, 0; @%p1 bra SPIN;
        MEET: elect.sync %r6|%p2, -1; st.global.u32 [%rd0+4], 1;"""
    out = np.zeros(2, np.uint32)
    with refuses(DeadlockError):
        launch(body, [out])
    assert not out.any()


@pytest.mark.parametrize("warps", [4, 8])
def test_accumulators_outlive_the_spinning_of_one_lane(warps):
    """Lanes part while accumulators are where MMAs keep them, and what each has of them is written after its turn.

    As in a deterministic backward pass, CTAs add to one place in order: one lane waits for the turn of its CTA.
    """
    ctas = 3
    out = np.zeros(1 + ctas, np.uint32)
    results = np.zeros((ctas, 32 * warps, 4), np.float32)
    word = int(make_gmma_desc(parse("((8,8),(8,2)):((8,64),(1,512))"), major="K", bits=16, start_address=0))
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r0, smem; mad.lo.u32 %r2, %r1, 16, %r0;
        mov.b32 %r4, 0x3c003c00; st.shared.v4.b32 [%r2], {{%r4, %r4, %r4, %r4}};
        st.shared.v4.b32 [%r2+{512 * warps}], {{%r4, %r4, %r4, %r4}}; bar.sync 0; fence.proxy.async.shared::cta;
        mov.b64 %rd4, {word}; setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd4, %rd4, %p1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
        mad.lo.u32 %r7, %r3, {32 * warps}, %r1; mul.wide.u32 %rd5, %r7, 16; add.u64 %rd5, %rd5, %rd1;
        setp.ne.u32 %p0, %r1, 0; @%p0 bra MEET;
        SPIN: ld.acquire.gpu.global.u32 %r5, [%rd0]; setp.ne.u32 %p1, %r5, %r3; @%p1 bra SPIN;
        MEET: bar.sync 0; st.global.v4.f32 [%rd5], {{%f0, %f1, %f2, %f3}}; elect.sync %r6|%p2, -1; bar.sync 0;
        @%p0 bra OUT; red.release.gpu.global.add.u32 [%rd0], 1; OUT: bar.sync 0; add.f32 %f0, %f0, %f1;"""
    launch(body, [out, results], grid=(ctas, 1, 1), block=(32 * warps, 1, 1), smem=8192)
    assert out[0] == ctas
    assert (results == 16).all()


def test_lanes_go_ahead_to_others_that_a_collective_of_their_warp_waits_for():
    """Eight lanes wait at a collective for sixteen, and these for an arrival after the place where all meet.

    The collective doesn't name the lanes that arrive, so that they may go on from there without it.
    """
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %tid.x; mov.u32 %r10, smem; mov.u32 %r5, 0; setp.eq.u32 %p3, %r1, 0;
    @%p3 mbarrier.init.shared.b64 [%r10], 1; bar.warp.sync -1;
    setp.lt.u32 %p0, %r1, 8; @%p0 bra MEET; setp.lt.u32 %p1, %r1, 16; @%p1 bra SHFL;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0; @!%p2 bra WAIT;
    SHFL: shfl.sync.idx.b32 %r5, %r1, 31, 31, 0xffffff00;
    MEET: @%p3 mbarrier.arrive.shared.b64 _, [%r10];
    mad.wide.u32 %rd2, %r1, 4, %rd0; st.global.u32 [%rd2], %r5;"""
    launch(body, [out], smem=64)
    assert out.tolist() == [0] * 8 + [31] * 24
