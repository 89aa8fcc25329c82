"""mbarriers, clusters, stores and reductions into other CTAs, bulk copies, printf."""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import BarrierError, DeadlockError, MemoryAccessError, SimulationError
from cutepy.sim.run import Run
from tests.messages import refuses
from tests.sim.opcode_runner import launch
from tests.sim.operands import KINDS, integers

OUT = "ld.param.u64 %rd60, [p0];"


def phases_of(barrier, space=".shared"):
    """Return PTX that appends whether the phases of parity 0 and 1 are complete."""
    return f"""mbarrier.test_wait.parity{space}.b64 %p1, [{barrier}], 0;
    mbarrier.test_wait.parity{space}.b64 %p2, [{barrier}], 1;
    selp.u32 %r1, 1, 0, %p1;
    selp.u32 %r2, 10, 0, %p2;
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd60], %r1;
    add.u64 %rd60, %rd60, 4;
"""


PENDING, FIRST_DONE = 10, 1
"""Before the first phase completes the one before it counts as complete; then the first does."""


def states(body, count, **kwargs):
    """Run the body in one thread and return what `phases_of` found."""
    out = np.zeros(count, np.uint32)
    launch(f"{OUT}\n{body}", out, block=1, smem_bytes=64, **kwargs)
    return out.tolist()


def test_mbarrier_phases():
    body = f"""mov.u32 %r10, smem;
    mbarrier.init.shared.b64 [%r10], 3;
    {phases_of("%r10")}
    mbarrier.arrive.shared.b64 %rd1, [%r10];
    mbarrier.arrive.shared.b64 _, [%r10], 1;
    {phases_of("%r10")}
    mbarrier.arrive.release.cta.shared::cta.b64 %rd2, [%r10];
    {phases_of("%r10")}
    mbarrier.arrive.shared.b64 _, [%r10], 3;
    {phases_of("%r10")}"""
    assert states(body, 4) == [PENDING, PENDING, FIRST_DONE, PENDING]


def test_mbarrier_transactions():
    body = f"""mov.u32 %r10, smem;
    mbarrier.init.shared::cta.b64 [%r10], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 100;
    {phases_of("%r10")}
    mbarrier.complete_tx.shared.b64 [%r10], 60;
    {phases_of("%r10")}
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r10], 40;
    {phases_of("%r10")}
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 8;
    mbarrier.arrive.shared.b64 _, [%r10];
    {phases_of("%r10")}
    mbarrier.complete_tx.shared.b64 [%r10], 8;
    {phases_of("%r10")}"""
    assert states(body, 5) == [PENDING, PENDING, FIRST_DONE, FIRST_DONE, PENDING]


def test_mbarrier_tx_may_complete_before_it_is_expected():
    body = f"""mov.u32 %r10, smem;
    mbarrier.init.shared.b64 [%r10], 1;
    mbarrier.complete_tx.shared.b64 [%r10], 16;
    {phases_of("%r10")}
    mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16;
    {phases_of("%r10")}"""
    assert states(body, 2) == [PENDING, FIRST_DONE]


def test_mbarrier_announcement_that_completes():
    """The ISA leaves completion by an announcement open; with an arrival to come the phase does not complete."""
    body = """mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], COUNT; mbarrier.complete_tx.shared.b64 [%r10], 16;
    mbarrier.arrive.shared.b64 _, [%r10]; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], 16;"""
    states(body.replace("COUNT", "2"), 1)
    with refuses(BarrierError):
        states(body.replace("COUNT", "1"), 1)


def test_mbarrier_drop_and_states():
    body = f"""mov.u32 %r10, smem;
    mbarrier.init.shared.b64 [%r10], 2;
    mbarrier.arrive_drop.shared.b64 %rd1, [%r10];
    mbarrier.pending_count.b64 %r3, %rd1;
    st.global.u32 [%rd60], %r3;
    add.u64 %rd60, %rd60, 4;
    mbarrier.test_wait.shared.b64 %p1, [%r10], %rd1;
    selp.u32 %r1, 1, 0, %p1;
    st.global.u32 [%rd60], %r1;
    add.u64 %rd60, %rd60, 4;
    mbarrier.arrive.noComplete.shared.b64 %rd3, [%r10], 0;
    mbarrier.arrive.shared.b64 %rd2, [%r10];
    mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [%r10], %rd1;
    mbarrier.try_wait.shared.b64 %p2, [%r10], %rd2, 1000;
    selp.u32 %r1, 1, 0, %p1;
    selp.u32 %r2, 2, 0, %p2;
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd60], %r1;
    add.u64 %rd60, %rd60, 4;
    mbarrier.arrive.shared.b64 _, [%r10];
    {phases_of("%r10")}"""
    body = body.replace("    mbarrier.arrive.noComplete.shared.b64 %rd3, [%r10], 0;\n", "")
    assert states(body, 4) == [2, 0, 3, PENDING]


def test_mbarrier_no_complete():
    body = f"""mov.u32 %r10, smem;
    mbarrier.init.shared.b64 [%r10], 2;
    mbarrier.arrive.noComplete.shared.b64 %rd3, [%r10], 1;
    {phases_of("%r10")}
    mbarrier.arrive.shared.b64 _, [%r10];
    {phases_of("%r10")}"""
    assert states(body, 2) == [PENDING, FIRST_DONE]


@pytest.mark.parametrize("count", [0, 1 << 20])
def test_mbarrier_arrivals_are_of_a_count_that_it_holds(count):
    body = f"mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], 2; mov.u32 %r11, {count};"
    body += "mbarrier.arrive.shared.b64 _, [%r10], %r11;"
    with refuses(BarrierError):
        states(body, 1)


@pytest.mark.parametrize("operation", ["arrive", "arrive_drop"])
def test_mbarrier_no_complete_that_completes(operation):
    """The ISA leaves it undefined; bytes still to come keep the phase open."""
    body = f"""mov.u32 %r10, smem; mbarrier.init.shared.b64 [%r10], 1; MORE
    mbarrier.{operation}.noComplete.shared.b64 %rd1, [%r10], 1;"""
    states(body.replace("MORE", "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r10], 16;"), 1)
    with refuses(BarrierError):
        states(body.replace("MORE", ""), 1)


def test_mbarrier_by_generic_address():
    body = f"""mov.u32 %r10, smem;
    cvt.u64.u32 %rd10, %r10;
    cvta.shared.u64 %rd10, %rd10;
    mbarrier.init.b64 [%rd10], 1;
    mbarrier.arrive.b64 %rd1, [%rd10];
    {phases_of("%rd10", "")}
    mbarrier.try_wait.parity.b64 %p1, [%rd10], 0;
    mbarrier.inval.b64 [%rd10];
    mbarrier.init.b64 [%rd10], 1;
    {phases_of("%rd10", "")}"""
    assert states(body, 2) == [FIRST_DONE, PENDING]


@pytest.mark.parametrize("wait", ["mbarrier.try_wait", "mbarrier.test_wait"])
def test_what_comes_before_a_wait_is_done_once(wait):
    out = np.zeros(2, np.uint32)
    body = f"""{OUT}
    mov.u32 %r10, smem;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p3, %r1, 0;
    @%p3 mbarrier.init.shared.b64 [%r10], 1;
    bar.sync 0;
    setp.ge.u32 %p2, %r1, 32;
    @%p2 bra PRODUCER;
    red.global.add.u32 [%rd60], 1;
    {wait}.parity.shared.b64 %p1, [%r10], 0;
    bra END;
    PRODUCER: mov.u32 %r3, 0;
    LATE: add.u32 %r3, %r3, 1;
    setp.lt.u32 %p4, %r3, 2000;
    @%p4 bra LATE;
    setp.eq.u32 %p3, %r1, 32;
    @%p3 mbarrier.arrive.shared.b64 _, [%r10];
    END: red.global.add.u32 [%rd60+4], 1;"""
    launch(body, out, block=64, smem_bytes=64)
    assert out.tolist() == [32, 64]


@pytest.mark.parametrize(
    "wait",
    [
        "mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0;",
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r10], 0;",
        "mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0, 100;",
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r10], 0;",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r10], 0;",
    ],
)
def test_warps_wait_for_each_other(wait):
    """One warp waits in a loop until all threads of the other have arrived."""
    out = np.zeros(32, np.uint32)
    body = f"""{OUT}
    mov.u32 %r10, smem;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p3, %r1, 0;
    @%p3 mbarrier.init.shared.b64 [%r10], 32;
    bar.sync 0;
    setp.ge.u32 %p2, %r1, 32;
    @%p2 bra PRODUCER;
    LOOP: {wait}
    @%p1 bra DONE;
    bra LOOP;
    DONE: mad.lo.u32 %r3, %r1, 4, %r10;
    ld.shared.u32 %r4, [%r3+16];
    mad.wide.u32 %rd60, %r1, 4, %rd60;
    st.global.u32 [%rd60], %r4;
    bra END;
    PRODUCER: sub.u32 %r3, %r1, 32;
    mad.lo.u32 %r3, %r3, 4, %r10;
    st.shared.u32 [%r3+16], %r1;
    mbarrier.arrive.shared.b64 _, [%r10];
    END:"""
    launch(body, out, block=64, smem_bytes=256)
    np.testing.assert_array_equal(out, np.arange(32, 64))


def test_mbarrier_errors():
    init = "mov.u32 %r10, smem;\nmbarrier.init.shared.b64 [%r10], 1;\n"
    with refuses(BarrierError):
        launch(f"{init}mbarrier.arrive.shared.b64 _, [%r10], 2;", block=1, smem_bytes=64)
    with refuses(BarrierError):
        launch("mov.u32 %r10, smem;\nmbarrier.arrive.shared.b64 _, [%r10];", block=1, smem_bytes=64)
    with refuses(BarrierError):
        launch(
            f"{init}mbarrier.inval.shared.b64 [%r10];\nmbarrier.arrive.shared.b64 _, [%r10];", block=1, smem_bytes=64
        )
    with refuses(MemoryAccessError):
        launch("mov.u32 %r10, smem;\nmbarrier.init.shared.b64 [%r10+4], 1;", block=1, smem_bytes=64)
    with refuses(BarrierError):
        launch("mov.u32 %r10, smem;\nmov.u32 %r11, 0;\nmbarrier.init.shared.b64 [%r10], %r11;", block=1, smem_bytes=64)
    with refuses(DeadlockError):
        launch(f"{init}L: mbarrier.try_wait.parity.shared.b64 %p1, [%r10], 0;\n@!%p1 bra L;", block=1, smem_bytes=64)


# Clusters.

CLUSTER = """mov.u32 %r10, smem; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r7, %ctaid.x;
ld.param.u64 %rd60, [p0]; mov.u32 %r8, %ntid.x; mad.lo.u32 %r9, %r7, %r8, %r1; mad.wide.u32 %rd60, %r9, 4, %rd60;"""


@pytest.mark.parametrize(
    "arrive",
    [
        "barrier.cluster.arrive;",
        "barrier.cluster.arrive.aligned;",
        "barrier.cluster.arrive.release.aligned;",
        "barrier.cluster.arrive.relaxed;",
        "barrier.cluster.arrive.relaxed.aligned;",
    ],
)
@pytest.mark.parametrize(
    "wait", ["barrier.cluster.wait;", "barrier.cluster.wait.acquire.aligned;", "barrier.cluster.wait.aligned;"]
)
def test_remote_shared_memory(arrive, wait):
    """Each CTA writes to its neighbour's shared memory, and reads its own after the cluster's barrier."""
    if "relaxed" in arrive:  # orders nothing by itself
        arrive = f"fence.acq_rel.cluster;\n    {arrive}"
    out = np.zeros(6 * 32, np.uint32)
    body = f"""add.u32 %r3, %r2, 1;
    rem.u32 %r3, %r3, 3;
    mapa.shared::cluster.u32 %r4, %r10, %r3;
    getctarank.shared::cluster.u32 %r5, %r4;
    mad.lo.u32 %r6, %r5, 1000, %r1;
    mad.lo.u32 %r11, %r1, 4, %r4;
    st.shared::cluster.u32 [%r11], %r6;
    {arrive}
    {wait}
    mad.lo.u32 %r12, %r1, 4, %r10;
    ld.shared.u32 %r13, [%r12];
    st.global.u32 [%rd60], %r13;"""
    launch(body, out, grid=6, cluster=3, before=CLUSTER, smem_bytes=128)
    np.testing.assert_array_equal(out, (np.arange(6)[:, None] % 3 * 1000 + np.arange(32)).reshape(-1))


def test_remote_generic_addresses():
    out = np.zeros(64, np.uint32)
    body = """mad.lo.u32 %r12, %r1, 4, %r10;
    mad.lo.u32 %r13, %r2, 500, %r1;
    st.shared.u32 [%r12], %r13;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    cvt.u64.u32 %rd1, %r12;
    cvta.shared.u64 %rd1, %rd1;
    xor.b32 %r3, %r2, 1;
    mapa.u64 %rd2, %rd1, %r3;
    mapa.shared::cluster.u64 %rd5, %rd1, %r3;
    getctarank.u64 %r14, %rd2;
    ld.u32 %r15, [%rd2];
    isspacep.shared::cluster %p1, %rd2;
    isspacep.shared::cta %p2, %rd2;
    selp.u32 %r16, 10000, 0, %p1;
    selp.u32 %r17, 20000, 0, %p2;
    add.u32 %r15, %r15, %r16;
    add.u32 %r15, %r15, %r17;
    mad.lo.u32 %r15, %r14, 100000, %r15;
    ld.shared::cluster.u32 %r18, [%r12];
    sub.u32 %r18, %r18, %r13;
    add.u32 %r15, %r15, %r18;
    st.global.u32 [%rd60], %r15;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;"""
    body = body.replace("    mapa.shared::cluster.u64 %rd5, %rd1, %r3;\n", "")
    launch(body, out, grid=2, cluster=2, before=CLUSTER, smem_bytes=128)
    other = np.arange(2)[:, None] ^ 1
    np.testing.assert_array_equal(out, (other * 100500 + 10000 + np.arange(32)).reshape(-1))


def test_threads_that_ended_do_not_hold_up_a_cluster():
    out = np.zeros(64, np.uint32)
    body = """setp.eq.u32 %p1, %r2, 1;
    @%p1 exit;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    st.global.u32 [%rd60], 1;"""
    launch(body, out, grid=2, cluster=2, before=CLUSTER)
    np.testing.assert_array_equal(out, np.repeat([1, 0], 32))


def test_remote_arrival():
    """The second CTA arrives at the first one's mbarrier."""
    out = np.zeros(2 * 32, np.uint32)
    body = """setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r10], 34;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed;
    barrier.cluster.wait;
    mov.u32 %r3, 0;
    mapa.shared::cluster.u32 %r4, %r10, %r3;
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WAIT;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
    and.pred %p3, %p1, %p1;
    @%p3 mbarrier.arrive.shared::cluster.b64 _, [%r4];
    @%p3 mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r4], 16;
    @%p3 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r4], 16;
    bra END;
    WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r10], 0;
    @!%p4 bra WAIT;
    st.global.u32 [%rd60], 7;
    END: barrier.cluster.arrive;
    barrier.cluster.wait;"""
    launch(body, out, grid=2, cluster=2, before=CLUSTER, smem_bytes=64)
    np.testing.assert_array_equal(out, np.repeat([7, 0], 32))


ASYNC = [
    ("b32", 1),
    ("u32", 1),
    ("s32", 1),
    ("f32", 1),
    ("b64", 1),
    ("s64", 1),
    ("u64", 1),
    ("f64", 1),
    ("b32", 2),
    ("s32", 4),
    ("f32", 4),
    ("b32", 4),
    ("u64", 2),
]


@pytest.mark.parametrize(("kind", "count"), ASYNC)
def test_st_async(kind, count):
    """Stores to the neighbour's shared memory count their bytes at its mbarrier."""
    size = int(kind[1:]) // 8
    vector = f".v{count}" if count > 1 else ""
    names = [{"f32": "%f", "f64": "%fd"}.get(kind, "%r" if size == 4 else "%rd") + str(30 + n) for n in range(count)]
    operand = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    words = size * count // 4
    data = integers("u4", 64 * words, kind)
    out = np.zeros_like(data)
    loads = "\n".join(f"ld.global.{kind} {n}, [%rd1+{size * k}];" for k, n in enumerate(names))
    copy = "\n".join(f"ld.shared.b32 %r20, [%r21+{4 * k}];\nst.global.b32 [%rd2+{4 * k}], %r20;" for k in range(words))
    before = (
        CLUSTER
        + f"""ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd1, %r9, {4 * words}, %rd1;
    ld.param.u64 %rd2, [p0]; mad.wide.u32 %rd2, %r9, {4 * words}, %rd2; mad.lo.u32 %r21, %r1, {4 * words}, %r10;
    add.u32 %r21, %r21, 16;"""
    )
    body = f"""setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], {32 * size * count};
    barrier.cluster.arrive;
    barrier.cluster.wait;
    xor.b32 %r3, %r2, 1;
    mapa.shared::cluster.u32 %r4, %r10, %r3;
    mapa.shared::cluster.u32 %r5, %r21, %r3;
    {loads}
    st.async.shared::cluster.mbarrier::complete_tx::bytes{vector}.{kind} [%r5], {operand}, [%r4];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0;
    @!%p4 bra WAIT;
    {copy}"""
    launch(body, out, data, grid=2, cluster=2, before=before, smem_bytes=1024)
    np.testing.assert_array_equal(out.reshape(2, -1), data.reshape(2, -1)[::-1])


ALONE = """mbarrier.init.shared.b64 [%r10], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 4;
add.u32 %r11, %r10, 16;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r11], 41, [%r10];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0;
@!%p4 bra WAIT;
ld.shared.u32 %r1, [%r11];
st.global.u32 [%rd60], %r1;
"""


def test_st_async_needs_clusters():
    """An H200 reports an illegal instruction without clusters, and none in clusters of one CTA."""
    out = np.zeros(1, np.uint32)
    for given in {"cluster": 1}, {"cluster": None, "directives": ".explicitcluster .reqnctapercluster 1, 1, 1"}:
        launch(f"{OUT}\nmov.u32 %r10, smem;\n{ALONE}", out, block=1, smem_bytes=64, **given)
        assert out.tolist() == [41]
    with refuses(SimulationError):
        launch(f"{OUT}\nmov.u32 %r10, smem;\n{ALONE}", out, block=1, smem_bytes=64, cluster=None)


@pytest.mark.parametrize(
    "spelling",
    [
        "add.u32",
        "add.s32",
        "add.u64",
        "inc.u32",
        "dec.u32",
        "min.u32",
        "min.s32",
        "max.u32",
        "max.s32",
        "and.b32",
        "or.b32",
        "xor.b32",
    ],
)
def test_red_async(spelling):
    operation, kind = spelling.split(".")
    size = int(kind[1:]) // 8
    initial, data = integers(KINDS[kind], 64, spelling), integers(KINDS[kind], 64, spelling, 1)
    out = np.zeros_like(data)
    name = "%r30" if size == 4 else "%rd30"
    before = (
        CLUSTER
        + f"""ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd1, %r9, {size}, %rd1; ld.param.u64 %rd3, [p2];
    mad.wide.u32 %rd3, %r9, {size}, %rd3; ld.param.u64 %rd2, [p0]; mad.wide.u32 %rd2, %r9, {size}, %rd2;
    mad.lo.u32 %r21, %r1, {size}, %r10; add.u32 %r21, %r21, 16; ld.global.b{8 * size} {name}, [%rd3];
    st.shared.b{8 * size} [%r21], {name}; ld.global.b{8 * size} {name}, [%rd1];"""
    )
    body = f"""setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], {32 * size};
    barrier.cluster.arrive;
    barrier.cluster.wait;
    xor.b32 %r3, %r2, 1;
    mapa.shared::cluster.u32 %r4, %r10, %r3;
    mapa.shared::cluster.u32 %r5, %r21, %r3;
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{spelling} [%r5], {name}, [%r4];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0;
    @!%p4 bra WAIT;"""
    after = f"ld.shared.b{8 * size} {name}, [%r21]; st.global.b{8 * size} [%rd2], {name};"
    launch(body, out, data, initial, grid=2, cluster=2, before=before, after=after, smem_bytes=1024)
    x = data.reshape(2, 32)[::-1].reshape(-1)
    with np.errstate(over="ignore"):
        rules = {
            "add": lambda o: o + x,
            "inc": lambda o: np.where(o >= x, 0, o + np.uint32(1)),
            "dec": lambda o: np.where((o == 0) | (o > x), x, o - np.uint32(1)),
            "min": lambda o: np.minimum(o, x),
            "max": lambda o: np.maximum(o, x),
            "and": lambda o: o & x,
            "or": lambda o: o | x,
            "xor": lambda o: o ^ x,
        }
        np.testing.assert_array_equal(out, rules[operation](initial).astype(out.dtype))


# Bulk copies.


@pytest.mark.parametrize(
    "opcode",
    [
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint",
    ],
)
@pytest.mark.parametrize(
    "store",
    ["cp.async.bulk.global.shared::cta.bulk_group", "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint"],
)
def test_bulk_copy(opcode, store):
    """Global memory to shared memory and back; with multicast the first CTA loads for both."""
    multicast = "multicast" in opcode
    data = np.random.default_rng(1).integers(0, 256, 2 * 512).astype(np.uint8)
    out = np.zeros_like(data)
    tail = (", %rs1" if multicast else "") + (", %rd8" if "hint" in opcode else "")
    before = (
        CLUSTER
        + """ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd2, %r7, 512, %rd1; ld.param.u64 %rd3, [p0];
    mad.wide.u32 %rd3, %r7, 512, %rd3; mov.u16 %rs1, 3; createpolicy.fractional.L2::evict_last.b64 %rd8, 1.0;
    setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p5, %r2, 0;"""
    )
    before += "mov.u64 %rd2, %rd1; and.pred %p5, %p5, %p1;" if multicast else "and.pred %p5, %p1, %p1;"
    body = f"""@%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 512;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    add.u32 %r11, %r10, 128;
    @%p5 cp.async.bulk.prefetch.L2.global [%rd2], 512;
    @%p5 {opcode} [%r11], [%rd2], 512, [%r10]{tail};
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0;
    @!%p4 bra WAIT;
    @%p1 {store} [%rd3], [%r11], 512{", %rd8" if "hint" in store else ""};
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    @%p1 cp.async.bulk.wait_group 0;"""
    assembles = "shared::cta.global" not in opcode  # PTX 8.6 and later
    launch(body, out, data, grid=2, cluster=2, before=before, smem_bytes=1024, assembles=assembles)
    expected = np.tile(data[:512], 2) if multicast else data
    np.testing.assert_array_equal(out, expected)


REDUCTIONS = [
    "add.u32",
    "add.s32",
    "add.u64",
    "min.s32",
    "min.u32",
    "max.s32",
    "max.u64",
    "min.s64",
    "inc.u32",
    "dec.u32",
    "and.b32",
    "or.b64",
    "xor.b32",
    "add.f32",
    "add.f64",
    "add.noftz.f16",
    "add.noftz.bf16",
    "min.f16",
    "max.bf16",
]


@pytest.mark.parametrize("spelling", REDUCTIONS)
def test_bulk_reduction(spelling):
    operation, kind = spelling.split(".")[0], spelling.split(".")[-1]
    rng = np.random.default_rng(2)
    if kind in ("f16", "bf16", "f32", "f64"):
        numbers = [rng.integers(-9, 9, 64).astype("f4") for _ in range(2)]
        encode = {
            "f16": lambda x: x.astype("f2"),
            "bf16": lambda x: (x.view("u4") >> 16).astype("u2"),
            "f32": lambda x: x,
            "f64": lambda x: x.astype("f8"),
        }[kind]
        memory, data = (encode(x) for x in numbers)
        result = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation](*numbers)
        expected = encode(result)
    else:
        memory, data = (integers(KINDS[kind], 64, spelling, n) for n in range(2))
        with np.errstate(over="ignore"):
            expected = {
                "add": memory + data,
                "min": np.minimum(memory, data),
                "max": np.maximum(memory, data),
                "and": memory & data,
                "or": memory | data,
                "xor": memory ^ data,
                "inc": np.where(memory >= data, 0, memory + memory.dtype.type(1)),
                "dec": np.where((memory == 0) | (memory > data), data, memory - memory.dtype.type(1)),
            }[operation].astype(memory.dtype)
    found = memory.copy()
    size = data.nbytes
    before = f"""mov.u32 %r10, smem; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r1, %tid.x;
    mad.lo.u32 %r2, %r1, {size // 32}, %r10; mad.wide.u32 %rd3, %r1, {size // 32}, %rd2; setp.eq.u32 %p1, %r1, 0;"""
    before += "".join(f"ld.global.b32 %r3, [%rd3+{n}]; st.shared.b32 [%r2+{n}], %r3;" for n in range(0, size // 32, 4))
    body = f"""bar.sync 0;
    @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{spelling} [%rd1], [%r10], {size};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    launch(body, found, data, before=before, smem_bytes=size)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "spelling", ["", "add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "and.b32", "or.b32", "xor.b32", "add.u64"]
)
def test_bulk_to_a_peer(spelling):
    """From shared memory to that of the next CTA: a copy, or a reduction."""
    kind = spelling.partition(".")[2] or "u32"
    memory, data = (integers(KINDS[kind], 64, spelling, n) for n in range(2))
    size = data.itemsize
    found = memory.copy()
    name = "%r" if size == 4 else "%rd"
    before = (
        CLUSTER
        + f"""setp.eq.u32 %p1, %r1, 0; ld.param.u64 %rd1, [p0]; mad.wide.u32 %rd1, %r9, {size}, %rd1;
    ld.param.u64 %rd2, [p1]; mad.wide.u32 %rd2, %r9, {size}, %rd2; mad.lo.u32 %r11, %r1, {size}, %r10;
    ld.global.b{8 * size} {name}30, [%rd1]; st.shared.b{8 * size} [%r11+512], {name}30;
    ld.global.b{8 * size} {name}30, [%rd2]; st.shared.b{8 * size} [%r11+1024], {name}30;"""
    )
    opcode = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    if spelling:
        opcode = f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{spelling}"
    body = f"""@%p1 mbarrier.init.shared::cta.b64 [%r10], 1;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], {32 * size};
    fence.proxy.async.shared::cta;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    xor.b32 %r3, %r2, 1;
    add.u32 %r12, %r10, 512;
    add.u32 %r13, %r10, 1024;
    mapa.shared::cluster.u32 %r12, %r12, %r3;
    mapa.shared::cluster.u32 %r14, %r10, %r3;
    @%p1 {opcode} [%r12], [%r13], {32 * size}, [%r14];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r10], 0;
    @!%p4 bra WAIT;"""
    after = f"ld.shared.b{8 * size} {name}30, [%r11+512]; st.global.b{8 * size} [%rd1], {name}30;"
    launch(body, found, data, grid=2, cluster=2, before=before, after=after, smem_bytes=2048)
    x = data.reshape(2, 32)[::-1].reshape(-1)
    with np.errstate(over="ignore"):
        expected = {
            "": x,
            "add": memory + x,
            "min": np.minimum(memory, x),
            "max": np.maximum(memory, x),
            "and": memory & x,
            "or": memory | x,
            "xor": memory ^ x,
            "inc": np.where(memory >= x, 0, memory + memory.dtype.type(1)),
            "dec": np.where((memory == 0) | (memory > x), x, memory - memory.dtype.type(1)),
        }[spelling.partition(".")[0]].astype(memory.dtype)
    np.testing.assert_array_equal(found, expected)


def test_bulk_errors():
    data = np.zeros(64, np.uint32)
    start = "mov.u32 %r10, smem;\nld.param.u64 %rd1, [p0];\nmbarrier.init.shared::cta.b64 [%r10], 1;\n"
    start += "mov.u32 %r11, 24;\n"
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    peer = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    for line in (
        f"{load} [%r10+128], [%rd1], %r11, [%r10];",
        f"{load} [%r10+128], [%rd1+4], 16, [%r10];",
        f"{load} [%r10+132], [%rd1], 16, [%r10];",
        f"{store} [%rd1], [%r10+128], %r11;",
        f"{store} [%rd1+8], [%r10+128], 16;",
        f"{peer} [%r10+128], [%r10+256], %r11, [%r10];",
        f"{load} [%r10+128], [%rd1], 512, [%r10];",
        f"{load} [%r10+4096], [%rd1], 16, [%r10];",
        f"{load} [%r10+128], [%rd1], 16, [%r10+64];",
    ):
        with refuses((MemoryAccessError, BarrierError)):
            launch(start + line, data, block=1, smem_bytes=1024, assembles=False)


def test_printf():
    run = Run((), None)
    module = """.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
    .global .align 1 .b8 text[12] = {116, 32, 37, 100, 58, 32, 37, 46, 50, 102, 10, 0};"""
    body = """mov.u32 %r1, %tid.x;
    cvt.f64.f32 %fd1, 0f3FC00000;
    mov.u64 %rd1, buffer;
    cvta.local.u64 %rd2, %rd1;
    st.local.u32 [%rd1], %r1;
    st.local.f64 [%rd1+8], %fd1;
    mov.u64 %rd3, text;
    cvta.global.u64 %rd4, %rd3;
    { .param .b64 param0; st.param.b64 [param0], %rd4; .param .b64 param1; st.param.b64 [param1], %rd2;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1); }"""
    launch(body, block=2, module=module, before=".local .align 8 .b8 buffer[16];", run=run)
    assert run.printf == "t 0: 1.50\nt 1: 1.50\n"


def test_printf_of_texts_with_a_width_and_a_precision():
    run = Run((), None)
    texts = {"text": "%-5s|%5.2s|%s\n", "word": "abc"}
    variables = "".join(
        f".global .align 1 .b8 {name}[{len(text) + 1}] = {{{', '.join(map(str, [*text.encode(), 0]))}}};"
        for name, text in texts.items()
    )
    body = """mov.u64 %rd1, buffer; cvta.local.u64 %rd2, %rd1; mov.u64 %rd3, text; cvta.global.u64 %rd4, %rd3;
    mov.u64 %rd3, word; cvta.global.u64 %rd5, %rd3;
    st.local.u64 [%rd1], %rd5; st.local.u64 [%rd1+8], %rd5; st.local.u64 [%rd1+16], %rd5;
    { .param .b64 param0; st.param.b64 [param0], %rd4; .param .b64 param1; st.param.b64 [param1], %rd2;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1); }"""
    module = f".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a); {variables}"
    launch(body, block=1, module=module, before=".local .align 8 .b8 buffer[24];", run=run)
    assert run.printf == "abc  |   ab|abc\n"
