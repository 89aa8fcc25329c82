"""Forward progress: long loops end, spinning threads let others run, and a deadlock is reported."""

import time

import numpy as np
import pytest

from cutepy.sim import DeadlockError, Run
from tests.messages import refuses

from .launching import kernel_call, launch, ptx_module

_INDEX = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;"


@pytest.mark.integration
def test_a_long_loop_of_arithmetic_is_no_deadlock():
    out = np.zeros(1, "u4")
    launch(
        """mov.u32 %r5, 0;
        X: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 450000; @%p2 bra X;
        st.global.u32 [%rd0], %r5;""",
        [out],
    )
    assert out[0] == 450_000


@pytest.mark.integration
def test_a_long_loop_of_loads_is_no_deadlock():
    out = np.zeros(1, "u4")
    launch(
        """mov.u32 %r5, 0;
        X: ld.global.u32 %r6, [%rd0]; add.u32 %r5, %r5, 1; add.u32 %r5, %r5, %r6; setp.lt.u32 %p2, %r5, 50000;
        @%p2 bra X;
        st.global.u32 [%rd0], %r5;""",
        [out],
    )
    assert out[0] == 50_000


@pytest.mark.integration
def test_a_warp_may_wait_for_one_that_computes_for_long():
    out = np.zeros(64, "u4")
    launch(
        f"""{_INDEX} mov.u32 %r10, smem; setp.eq.u32 %p3, %r1, 0; @%p3 mbarrier.init.shared.b64 [%r10], 32; bar.sync 0;
        setp.ge.u32 %p0, %r1, 32; @%p0 bra WORK;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0; @!%p1 bra WAIT;
        bra DONE;
        WORK: mov.u32 %r5, 0;
        X: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 150000; @%p2 bra X;
        mbarrier.arrive.shared.b64 _, [%r10];
        DONE: mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1], 5;""",
        [out],
        block=(64, 1, 1),
        smem=64,
    )
    assert (out == 5).all()


@pytest.mark.parametrize("clock", ["%clock64", "%globaltimer"])
def test_a_loop_until_some_time_has_passed(clock):
    out = np.zeros(1, "u8")
    launch(
        f"""mov.u64 %rd5, {clock};
        X: mov.u64 %rd6, {clock}; sub.u64 %rd6, %rd6, %rd5; setp.lt.u64 %p2, %rd6, 20000000; @%p2 bra X;
        st.global.u64 [%rd0], %rd6;""",
        [out],
    )
    assert 20_000_000 <= out[0] <= 60_000_000


def test_clocks_of_32_bits_are_halves_of_those_of_64():
    """They wrap around: PTX ISA, "Special Registers: %clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"."""
    names = ("%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi")
    out, until = np.zeros(4, "u4"), 5 << 32
    reads = "".join(f"mov.u32 %r{n}, {name}; st.global.u32 [%rd0+{4 * n}], %r{n};" for n, name in enumerate(names))
    launch(f"X: mov.u64 %rd5, %clock64; setp.lt.u64 %p2, %rd5, {until}; @%p2 bra X;\n{reads}", [out])
    high = out[1]
    assert 5 <= high <= 16
    assert out[3] == high
    assert 0 < (int(out[2]) - int(out[0])) % 2**32 < 1000


def test_time_passes_only_when_nothing_else_does():
    """A watchdog does not bark while others work."""
    out = np.zeros(2, "u4")
    launch(
        f"""{_INDEX} setp.ge.u32 %p0, %r1, 32; @%p0 bra WORK;
        mov.u64 %rd5, %clock64;
        X: ld.volatile.global.u32 %r6, [%rd0]; setp.ne.u32 %p1, %r6, 0; @%p1 bra DONE;
        mov.u64 %rd6, %clock64; sub.u64 %rd6, %rd6, %rd5; setp.lt.u64 %p2, %rd6, 10000000; @%p2 bra X;
        trap;
        WORK: mov.u32 %r5, 0;
        Y: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 100000; @%p2 bra Y;
        st.volatile.global.u32 [%rd0], 1;
        DONE: st.global.u32 [%rd0+4], 1;""",
        [out],
        block=(64, 1, 1),
    )
    assert (out == 1).all()


def test_a_loop_that_waits_for_ever_and_reads_a_clock_is_a_deadlock():
    with refuses(DeadlockError):
        launch(
            """X: mov.u64 %rd6, %clock64; ld.volatile.global.u32 %r6, [%rd0]; setp.eq.u32 %p1, %r6, 0; @%p1 bra X;
            st.global.u64 [%rd0], %rd6;""",
            [np.zeros(2, "u4")],
        )


@pytest.mark.parametrize(
    "spin",
    [
        # Lanes part within the loop.
        "setp.lt.u32 %p4, %r1, 7; @%p4 bra OVER; nanosleep.u32 20; nanosleep.u32 30; OVER:",
        # The values go round in a cycle.
        "add.u32 %r7, %r7, 1; and.b32 %r7, %r7, 63;",
        "mov.u32 %r8, 0; Y: add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, 700; @%p4 bra Y;",
        "mov.u32 %r7, 3; atom.global.cas.b32 %r8, [%rd0+4], 1, 2;",
        "atom.global.exch.b32 %r8, [%rd0+4], 0; atom.global.or.b32 %r8, [%rd0], 0;",
    ],
)
def test_endless_loops_that_change_nothing_are_deadlocks(spin):
    with refuses(DeadlockError):
        launch(
            f"""{_INDEX} mov.u32 %r7, 0;
            X: {spin} ld.volatile.global.u32 %r6, [%rd0]; setp.eq.u32 %p1, %r6, 0; @%p1 bra X;
            st.global.u32 [%rd0], %r7;""",
            [np.zeros(2, "u4")],
        )


_LOCK = """{index}
    LOCK: atom.global.acquire.gpu.cas.b32 %r4, [%rd0], 0, 1; {count} setp.ne.u32 %p0, %r4, 0; @%p0 bra LOCK;
    ld.volatile.global.u32 %r5, [%rd0+4]; add.u32 %r5, %r5, 1; st.volatile.global.u32 [%rd0+4], %r5;
    atom.global.release.gpu.exch.b32 %r4, [%rd0], 0;
    atom.global.add.u32 %r4, [%rd0+8], %r6;"""
_COUNTS = {
    "nothing": "",
    "spins in a register": "add.u32 %r6, %r6, 1;",
    "spins in memory": "red.global.add.u32 [%rd0+12], 1;",
}


@pytest.mark.parametrize("counting", list(_COUNTS))
@pytest.mark.parametrize(("ctas", "threads"), [(2, 1), (2, 2)])
def test_a_spin_lock(ctas, threads, counting):
    out = np.zeros(4, "u4")
    begin = time.perf_counter()
    body = _LOCK.format(index="mov.u32 %r6, 0;", count=_COUNTS[counting])
    launch(body, [out], grid=(ctas, 1, 1), block=(threads, 1, 1))
    assert out[0] == 0
    assert out[1] == ctas * threads
    assert time.perf_counter() - begin < 10


@pytest.mark.parametrize(("ctas", "counting"), [(8, "nothing"), (100, "nothing"), (8, "spins in a register")])
def test_ctas_that_take_turns(ctas, counting):
    out = np.zeros(1 + ctas, "u4")
    begin = time.perf_counter()
    launch(
        f"""{_INDEX} mov.u32 %r6, 0;
        WAIT: ld.acquire.gpu.global.u32 %r4, [%rd0]; {_COUNTS[counting]} setp.ne.u32 %p0, %r4, %r2; @%p0 bra WAIT;
        bar.sync 0;
        add.u32 %r5, %r2, 1; mad.wide.u32 %rd1, %r2, 4, %rd0; st.global.u32 [%rd1+4], %r5;
        bar.sync 0;
        setp.ne.u32 %p1, %r1, 0; @%p1 bra DONE; st.release.gpu.global.u32 [%rd0], %r5; DONE:""",
        [out],
        grid=(ctas, 1, 1),
        block=(64, 1, 1),
    )
    np.testing.assert_array_equal(out[1:], np.arange(1, ctas + 1))
    assert time.perf_counter() - begin < 10


def test_lanes_wait_for_the_one_they_exchange_values_with():
    """However long it takes: they must not go ahead of it."""
    out = np.zeros(32, "u4")
    launch(
        f"""{_INDEX} mov.u32 %r5, 0; setp.ne.u32 %p0, %r1, 3; @%p0 bra MEET;
        X: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 100000; @%p2 bra X;
        MEET: shfl.sync.idx.b32 %r6, %r5, 3, 31, -1;
        mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1], %r6;""",
        [out],
    )
    assert (out == 100_000).all()


GRID_BARRIER = """setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
red.release.gpu.global.add.u32 [%rd0], 1;
WAIT: ld.acquire.gpu.global.u32 %r4, [%rd0]; setp.ne.u32 %p0, %r4, %r3; @%p0 bra WAIT;
MEET: bar.sync 0;
@%p1 bra DONE; red.global.add.u32 [%rd0+4], 1; DONE:"""


# CTAs of 1024 threads, of half an SM's shared memory, of the most threads and CTAs that SMs hold.
@pytest.mark.parametrize(("ctas", "threads", "smem"), [(264, 1024, 0), (264, 32, 113 << 10), (4224, 64, 0)])
def test_ctas_of_any_launch_wait_for_each_other_if_they_fit(ctas, threads, smem):
    """CUDA C++ Programming Guide, "Compute Capabilities": 2048 threads, 32 CTAs and 228 KB of shared memory an SM."""
    out = np.zeros(2, "u4")
    launch(f"{_INDEX} {GRID_BARRIER}", [out], grid=(ctas, 1, 1), block=(threads, 1, 1), smem=smem)
    assert out.tolist() == [ctas, ctas]


@pytest.mark.parametrize(("ctas", "threads", "smem"), [(265, 1024, 0), (133, 32, 114 << 10), (4225, 32, 0)])
def test_ctas_that_do_not_fit_are_waited_for_in_vain(ctas, threads, smem):
    out = np.zeros(2, "u4")
    with refuses(DeadlockError):
        launch(f"{_INDEX} {GRID_BARRIER}", [out], grid=(ctas, 1, 1), block=(threads, 1, 1), smem=smem)


def test_a_barrier_of_the_grid_in_a_cooperative_launch():
    out = np.zeros(2, np.uint32)
    run = Run((), None)
    run.register(out)
    text = ptx_module(
        """red.release.gpu.global.add.u32 [%rd0], 1; mov.u32 %r3, %nctaid.x;
        WAIT: ld.acquire.gpu.global.u32 %r4, [%rd0]; setp.ne.u32 %p0, %r4, %r3; @%p0 bra WAIT;
        red.global.add.u32 [%rd0+4], 1;""",
        1,
    )
    run.launch(kernel_call(text, [out], grid=(200, 1, 1), cooperative=True))
    assert out.tolist() == [200, 200]


def test_a_cooperative_launch_finds_its_workspace():
    """Four words of zeros, at the address that two of the environment registers give, as cooperative_groups.h reads."""
    out = np.full(5, 9, np.uint32)
    run = Run((), None)
    run.register(out)
    text = ptx_module(
        """mov.u32 %r1, %envreg2; mov.u32 %r2, %envreg1; mov.b64 %rd2, {%r1, %r2};
        ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2]; st.global.u32 [%rd2+12], 5; ld.global.u32 %r8, [%rd2+12];
        st.global.u32 [%rd0], %r4; st.global.u32 [%rd0+4], %r5; st.global.u32 [%rd0+8], %r6;
        st.global.u32 [%rd0+12], %r7; st.global.u32 [%rd0+16], %r8;""",
        1,
    )
    run.launch(kernel_call(text, [out], cooperative=True))
    assert out.tolist() == [0, 0, 0, 0, 5]


def test_the_last_store_of_a_warp_wakes_another():
    """It ends at once afterwards, long after the other has begun to spin."""
    out = np.zeros(2, np.uint32)
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, 0; setp.ge.u32 %p0, %r1, 32; @%p0 bra SPIN;
    WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 5000; @%p1 bra WORK; st.global.u32 [%rd0], 1; exit;
    SPIN: ld.volatile.global.u32 %r3, [%rd0]; setp.eq.u32 %p2, %r3, 0; @%p2 bra SPIN; st.global.u32 [%rd0+4], 2;"""
    launch(body, [out], block=(64, 1, 1))
    assert out.tolist() == [1, 2]


_WIDE = ".reg .b128 %e, %q; mov.b64 %rd4, 1; mov.b64 %rd5, 0; mov.b128 %e, {%rd5, %rd5}; mov.b128 %q, {%rd4, %rd5};"
_ALLOCATE = """mov.u32 %r10, smem; setp.ge.u32 %p5, %r1, 32; @%p5 bra MET;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 32; ld.shared.u32 %r5, [%r10]; mov.u32 %r6, 0;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r6}; tcgen05.wait::st.sync.aligned;
MET: bar.sync 0; ld.shared.u32 %r5, [%r10];"""
_FREE = "ld.shared.u32 %r5, [%r10]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32;"
_LOAD = "ld.volatile.global.u32 %r3, [%rd0];"
_STORES = {
    # Name: target, what comes before, the store, the load that finds it, what comes after.
    "global": ("sm_90a", "", "st.volatile.global.u32 [%rd0], 1;", _LOAD, ""),
    "red": ("sm_90a", "", "red.global.add.u32 [%rd0], 1;", _LOAD, ""),
    "exch.b128": ("sm_90a", _WIDE, "atom.global.exch.b128 %q, [%rd0], %q;", _LOAD, ""),
    "cas.b128": ("sm_90a", _WIDE, "atom.global.cas.b128 %q, [%rd0], %e, %q;", _LOAD, ""),
    "shared": (
        "sm_90a",
        "mov.u32 %r10, smem; st.volatile.shared.u32 [%r10], 0; bar.sync 0;",
        "st.volatile.shared.u32 [%r10], 1;",
        "ld.volatile.shared.u32 %r3, [%r10];",
        "",
    ),
    "tensor memory": (
        "sm_100a",
        _ALLOCATE,
        "mov.u32 %r6, 1; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r6}; tcgen05.wait::st.sync.aligned;",
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r5]; tcgen05.wait::ld.sync.aligned;",
        _FREE,
    ),
}


@pytest.mark.parametrize("name", _STORES)
def test_a_store_wakes_a_warp_whose_answer_is_waited_for(name):
    """Nothing else happens: the warp that stores spins afterwards, and warp 4, of the same lanes, has spun before."""
    target, before, store, load, after = _STORES[name]
    out = np.zeros(8, np.uint32)
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r2, 0; {before} setp.ge.u32 %p0, %r1, 128; @%p0 bra SPIN;
    setp.ge.u32 %p4, %r1, 32; @%p4 exit;
    WORK: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 2000; @%p1 bra WORK; {store}
    ANSWER: ld.volatile.global.u32 %r4, [%rd0+16]; setp.eq.u32 %p1, %r4, 0; @%p1 bra ANSWER; {after}
    st.global.u32 [%rd0+20], 3; exit;
    SPIN: {load} setp.eq.u32 %p2, %r3, 0; @%p2 bra SPIN; st.volatile.global.u32 [%rd0+16], 2;"""
    launch(body, [out], block=(160, 1, 1), smem=64, target=target)
    assert out[4:6].tolist() == [2, 3]


_TRIES = f"""{_INDEX} mov.u32 %r10, smem; mov.u32 %r5, 0; setp.eq.u32 %p3, %r1, 0;
@%p3 mbarrier.init.shared.b64 [%r10], {{count}}; bar.sync 0;
"""
_TRY = "mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0;"


@pytest.mark.parametrize("failures", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("count", "act"),
    [
        (32, "mbarrier.arrive.shared.b64 _, [%r10]; bra X;"),
        (1, "st.volatile.global.u32 [%rd0+4], 1; bra DONE;"),
        (1, "bra DONE;"),
    ],
)
def test_who_tries_in_vain_may_do_something_else_after_some_failures(failures, count, act):
    out = np.zeros(2, "u4")
    launch(
        f"""{_TRIES.format(count=count)} X: {_TRY} @%p1 bra DONE;
        add.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, {failures}; @%p2 bra X; {act}
        DONE: st.global.u32 [%rd0], %r5;""",
        [out],
        smem=64,
    )
    assert out[0] == failures
    assert out[1] == (act[:2] == "st")


def test_who_counts_for_ever_lets_others_try():
    """The second warp arrives for both after its hundredth failure; the first counts until then."""
    out = np.zeros(64, "u4")
    launch(
        f"""{_TRIES.format(count=32)} setp.ge.u32 %p0, %r1, 32; @%p0 bra Y;
        X: {_TRY} add.u32 %r5, %r5, 1; @!%p1 bra X; bra DONE;
        Y: {_TRY} @%p1 bra DONE; add.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 100; @%p2 bra Y;
        mbarrier.arrive.shared.b64 _, [%r10]; bra Y;
        DONE: mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1], %r5;""",
        [out],
        block=(64, 1, 1),
        smem=64,
    )
    assert (out[32:] == 100).all()


def test_time_passes_for_who_tries_until_some_has():
    out = np.zeros(1, "u8")
    launch(
        f"""{_TRIES.format(count=32)} mov.u64 %rd5, %clock64;
        X: {_TRY} @%p1 bra DONE; mov.u64 %rd6, %clock64; sub.u64 %rd6, %rd6, %rd5; setp.lt.u64 %p2, %rd6, 20000000;
        @%p2 bra X; mbarrier.arrive.shared.b64 _, [%r10]; bra X;
        DONE: st.global.u64 [%rd0], %rd6;""",
        [out],
        smem=64,
    )
    assert 20_000_000 <= out[0] <= 60_000_000


@pytest.mark.parametrize(
    "does",
    [
        "",
        "mov.u64 %rd6, %clock64;",
        "add.u32 %r5, %r5, 1; mov.u64 %rd6, %clock64;",
        "add.u32 %r5, %r5, 1;",
    ],
)
def test_tries_that_fail_for_ever_are_deadlocks(does):
    with refuses(DeadlockError):
        launch(
            f"{_TRIES.format(count=1)} X: {_TRY} {does} @!%p1 bra X; st.global.u32 [%rd0], %r5;",
            [np.zeros(1, "u4")],
            smem=64,
        )
