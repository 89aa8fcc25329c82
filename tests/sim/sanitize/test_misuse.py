"""Mistakes that one execution shows beside races: of peers, mbarriers, bytes, warpgroups; each beside a right one."""

import numpy as np
import pytest

from cutepy.sim import DeadlockError, Run
from cutepy.sim.machine.policies import policy_named
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;
mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r1, %r6; add.u32 %r7, %r7, %r3;
add.u32 %r8, %r1, 1024; mapa.shared::cluster.u32 %r9, %r8, %r6;
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r5, 0; and.pred %p4, %p1, %p2; ld.param.u64 %rd1, [p0];
"""
CLUSTER = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
RELAXED = "barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n"
REMOTE = "st.shared::cluster.u32 [%r7], %r2;\n"
INIT = "@%p1 mbarrier.init.shared.b64 [%r8], {count};\n"
SHOW = "fence.mbarrier_init.release.cluster;\n"
TRY = "AGAIN{n}: mbarrier.try_wait.parity{how}.shared.b64 %p3, [%r8], {n};\n@!%p3 bra AGAIN{n};\n"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], {size};\n"
LOAD = "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [{to}], [%rd1], 256, [%r8];\n"
INVAL = "@%p1 mbarrier.inval.shared.b64 [%r8];\n"
READ = "ld.shared.u32 %r20, [%r4];\n"
WRITE = "st.shared.u32 [%r4], %r2;\n"
WARP = "bar.warp.sync 0xffffffff;\n"
BARRIER = "bar.sync 0;\n"
STORE = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;\n@%p1 cp.async.bulk.commit_group;\n"
WAIT = "@%p1 cp.async.bulk.wait_group.read 0;\n"
ARRIVE = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];\n"
ARRIVE_BY_DEFAULT = "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r9];\n"
ANNOUNCE = "@%p1 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r9], 16;\n"
INIT_NEXT = "@%p1 mbarrier.init.shared.b64 [%r8+8], 1;\n"
ARRIVE_NEXT = "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r9+8];\n"
FILL = f"{WRITE}st.shared.u32 [%r4+256], %r2;\nfence.proxy.async.shared::cta;\n"
ADD = LOAD.format(to="%r1").replace("async.bulk.shared::cta.global", "reduce.async.bulk.shared::cluster.shared::cta")
ADD = ADD.replace("bytes", "bytes.add.u32").replace("[%rd1]", "[%r12]").replace("@", "add.u32 %r12, %r1, 256;\n@")


def right(size=256):
    """Give a load as it should be."""
    return INIT.format(count=1), SHOW, BARRIER, EXPECT.format(size=size), LOAD.format(to="%r1"), TRY.format(n=0, how="")


KEEP = "@%p1 ld.shared.u32 %r7, [%r4]; @%p1 st.global.u32 [%rd1], %r7;\n"


def hazards_of(*lines, block=64, cluster=1, directives="", policy=None):
    run = Run((), policy, sanitize=True)
    data = np.arange(1024, dtype=np.uint32)
    body = "".join((START, *lines))
    launch(
        body, data, block=block, grid=cluster, cluster=cluster, smem_bytes=2048, run=run, directives=directives,
        assembles=False,
    )  # fmt: skip
    return [hazard.kind for hazard in run.hazards]


@pytest.mark.parametrize(
    ("lines", "kinds", "options"),
    [
        ((CLUSTER, REMOTE, CLUSTER), [], {"cluster": 2}),
        ((RELAXED, REMOTE, CLUSTER), [], {"cluster": 2}),
        ((REMOTE, CLUSTER), ["unstarted-peer"], {"cluster": 2}),
        ((CLUSTER, REMOTE), ["exited-peer"], {"cluster": 2}),
        ((CLUSTER, REMOTE, RELAXED), ["exited-peer"], {"cluster": 2}),
        # An arrival at the mbarrier of a peer, which waits for it or doesn't.
        ((INIT.format(count=1), SHOW, CLUSTER, ARRIVE, TRY.format(n=0, how="")), [], {"cluster": 2}),
        ((INIT.format(count=1), SHOW, CLUSTER, ARRIVE, TRY.format(n=0, how=".relaxed.cta")), [], {"cluster": 2}),
        ((INIT.format(count=1), SHOW, CLUSTER, ARRIVE, CLUSTER), [], {"cluster": 2}),
        ((INIT.format(count=1), SHOW, CLUSTER, ARRIVE), ["exited-peer"], {"cluster": 2}),
        # Bytes that are announced there.
        ((INIT.format(count=1), SHOW, CLUSTER, ANNOUNCE, CLUSTER), ["uneven-bytes"], {"cluster": 2}),
        ((INIT.format(count=1), SHOW, CLUSTER, ANNOUNCE), ["uneven-bytes", "exited-peer"], {"cluster": 2}),
        # Arrivals of one thread count in their order, also with one of scope .cta.
        (
            (INIT.format(count=1), INIT_NEXT, SHOW, CLUSTER, ARRIVE_NEXT, ARRIVE_BY_DEFAULT, TRY.format(n=0, how="")),
            [],
            {"cluster": 2},
        ),
        (
            (INIT.format(count=1), INIT_NEXT, SHOW, CLUSTER, ARRIVE_NEXT, ARRIVE, TRY.format(n=0, how="")),
            [],
            {"cluster": 2},
        ),
        # Other accesses before an arrival of scope .cta are not known by that, but by one of scope .cluster.
        (
            (INIT.format(count=1), SHOW, CLUSTER, f"@%p1 {REMOTE}", ARRIVE_BY_DEFAULT, TRY.format(n=0, how="")),
            ["exited-peer"],
            {"cluster": 2},
        ),
        ((INIT.format(count=1), SHOW, CLUSTER, f"@%p1 {REMOTE}", ARRIVE, TRY.format(n=0, how="")), [], {"cluster": 2}),
        # mbarriers as memory.
        ((*right(), READ), [], {}),
        ((INIT.format(count=1).replace("@%p1 ", ""), *right()[1:], READ), ["repeated-init"], {}),
        ((INIT.format(count=1) * 2, *right()[1:], READ), ["repeated-init"], {}),
        (
            (INIT.format(count=1), INVAL, *right(), READ),
            [],
            {},
        ),
        ((*right()[:4], LOAD.format(to="%r8"), right()[5]), ["overwritten-mbarrier"], {}),
        ((*right(), READ, BARRIER, INVAL), [], {}),
        ((*right(), READ, BARRIER, INVAL.replace("@%p1 ", "")), ["repeated-init"], {"block": 32}),
        ((*right(), READ, INVAL), ["unordered-write"], {}),
        # Bytes.
        ((*right()[:3], EXPECT.format(size=512), *right()[4:5]), ["uneven-bytes", "in-flight-at-exit"], {}),
        ((*right()[:3], EXPECT.format(size=128), *right()[4:5]), ["uneven-bytes", "in-flight-at-exit"], {}),
        (right()[:5], ["in-flight-at-exit"], {}),
        # Sums by copies are atomic, and copies are not.
        ((FILL, *right(512)[:4], ADD, ADD, TRY.format(n=0, how=""), READ), [], {}),
        ((FILL, *right(512)[:4], ADD, ADD, READ, TRY.format(n=0, how="")), ["unordered-read"], {}),
        ((FILL, *right(512)[:4], ADD, LOAD.format(to="%r1"), TRY.format(n=0, how=""), READ), ["unordered-write"], {}),
        (
            (FILL, *right(256)[:4], ADD, "red.shared.add.u32 [%r4], 1;\n", TRY.format(n=0, how="")),
            ["unordered-write"],
            {},
        ),
        # A wait that does not acquire shows nothing.
        ((*right()[:5], TRY.format(n=0, how=".relaxed.cta"), READ), ["too-weak-semantics"], {}),
        # Fences of other proxies, and of other memory.
        ((WRITE, "fence.proxy.async.shared::cta;\n", BARRIER, STORE, WAIT), [], {}),
        ((WRITE, "fence.proxy.async;\n", BARRIER, STORE, WAIT), [], {}),
        ((WRITE, "fence.proxy.async.global;\n", BARRIER, STORE, WAIT), ["missing-proxy-fence"], {}),
        ((WRITE, "fence.proxy.alias;\n", BARRIER, STORE, WAIT), ["missing-proxy-fence"], {}),
        # Atomics read.
        (("@%p1 red.shared.add.u32 [%r4], 1;\n", KEEP), ["uninitialised-read"], {}),
        (("@%p1 st.shared.u32 [%r4], 1;\n@%p1 red.shared.add.u32 [%r4], 1;\n",), [], {}),
        # setmaxnreg of a part of a warpgroup.
        (("setmaxnreg.dec.sync.aligned.u32 40;\n",), [], {"block": 128, "directives": ".reqntid 128, 1, 1"}),
        (
            ("setp.ge.u32 %p5, %r2, 64;\n@%p5 bra END;\nsetmaxnreg.dec.sync.aligned.u32 40;\nEND:\n",),
            ["partial-warpgroup"],
            {"block": 128, "directives": ".reqntid 128, 1, 1"},
        ),
    ],
)
def test_what_is_misused_is_found(lines, kinds, options):
    assert sorted(hazards_of(*lines, **options)) == sorted(kinds)


DEC, INC, MET = "setmaxnreg.dec.sync.aligned.u32 {};\n", "setmaxnreg.inc.sync.aligned.u32 {};\n", "bar.sync 1, 128;\n"
BY_GROUP = "shr.u32 %r9, %r2, 7; add.u32 %r9, %r9, 1; bar.sync %r9, 128;\n"
PAIR = "shr.u32 %r9, %r2, 6; add.u32 %r9, %r9, 1; bar.sync %r9, 64;\n"


@pytest.mark.parametrize(
    ("lines", "block", "kinds"),
    [
        ((DEC.format(232),), 384, ["misused-setmaxnreg"]),
        ((INC.format(24),), 384, []),  # ptxas 13.0 lets it begin with no more than it asks for
        ((f"setp.ne.u32 %p5, %r2, %r2; @%p5 {INC.format(232)}{INC.format(24)}",), 384, ["misused-setmaxnreg"]),
        ((DEC.format(168), BARRIER, INC.format(168)), 384, []),
        ((DEC.format(40), INC.format(160)), 128, ["misused-setmaxnreg"]),
        ((DEC.format(40), MET, INC.format(160)), 128, []),
        ((DEC.format(40), PAIR, INC.format(160)), 128, ["misused-setmaxnreg"]),
        ((DEC.format(40), WARP, INC.format(160)), 128, ["misused-setmaxnreg"]),
        ((DEC.format(40), BY_GROUP, INC.format(160), BY_GROUP, DEC.format(40)), 384, []),
        ((DEC.format(40), MET, INC.format(160), DEC.format(40)), 128, ["misused-setmaxnreg"]),
        # One warpgroup meets, the other doesn't.
        (
            (DEC.format(40), "setp.lt.u32 %p5, %r2, 128; @%p5 bra ON;\n", MET, "ON:\n", INC.format(160)),
            256,
            ["misused-setmaxnreg"],
        ),
    ],
)
@pytest.mark.parametrize("policy", [None, "schedule:3"])
def test_registers_are_given_back_and_asked_for_by_what_a_warp_has(lines, block, kinds, policy):
    """PTX ISA, "setmaxnreg"."""
    named = policy and policy_named(policy)
    assert hazards_of(*lines, block=block, directives=f".reqntid {block}, 1, 1", policy=named) == kinds


@pytest.mark.parametrize(
    ("line", "block", "said"),
    [
        (
            DEC.format(232),
            384,
            "the warp has 168 registers a thread, and setmaxnreg.dec to 232 can't add any: name 168 or",
        ),
        (INC.format(232) + INC.format(24), 256, "setmaxnreg.inc to 24 can't take any away: name 232 or more, or use"),
    ],
)
def test_what_is_said_of_registers_names_what_the_warp_has(line, block, said):
    run = Run((), None, sanitize=True)
    body = f"{START}setp.ge.u32 %p5, %r2, 128; @%p5 bra END;\n{line}END:\n"
    directives = f".reqntid {block}, 1, 1"
    launch(body, np.zeros(64, np.uint32), block=block, smem_bytes=2048, run=run, assembles=False, directives=directives)
    assert any(said in hazard.missing for hazard in run.hazards)


def test_warps_that_end_give_no_registers_back():
    """As on an H200: three warps end with 168 registers a thread, and 224 for two warpgroups are not there."""
    grows = "setmaxnreg.inc.sync.aligned.u32 224;\n"
    ends = f"setp.lt.u32 %p5, %r2, 96;\n@%p5 exit;\nsetp.lt.u32 %p5, %r2, 128;\n@%p5 bra END;\n{grows}END:\n"
    with refuses(DeadlockError):
        hazards_of(ends, block=384, directives=".reqntid 384, 1, 1")
    gives = (
        f"setp.lt.u32 %p5, %r2, 128;\n@%p5 bra FEW;\n{grows}bra END;\nFEW: setmaxnreg.dec.sync.aligned.u32 40;\nEND:\n"
    )
    assert hazards_of(gives, block=384, directives=".reqntid 384, 1, 1") == []


def test_an_mbarrier_that_is_made_by_a_thread_and_fenced_by_another_is_not_shown_to_copies():
    """The fence is for what its own thread has made: PTX ISA, "fence.mbarrier_init"."""
    by_another = "setp.eq.u32 %p5, %r2, 32;\n@%p5 fence.mbarrier_init.release.cluster;\n"
    load = (line.replace("@%p1", "@%p5") for line in (EXPECT.format(size=256), LOAD.format(to="%r1")))
    lines = (INIT.format(count=1), BARRIER, by_another, *load, TRY.format(n=0, how=""), READ)
    assert hazards_of(*lines) == ["missing-init-fence"]


def test_a_lane_that_arrives_for_its_warp_is_told_of_bar_warp_sync():
    run = Run((), None, sanitize=True)
    lines = (INIT.format(count=1), SHOW, WRITE, BARRIER, READ, "@%p1 mbarrier.arrive.shared.b64 _, [%r8];\n")
    last = "setp.lt.u32 %p5, %r2, 32;\n@%p5 bra END;\nxor.b32 %r9, %r4, 128;\nst.shared.u32 [%r9], %r2;\nEND:\n"
    body = "".join((START, *lines, TRY.format(n=0, how=""), last))
    launch(body, np.zeros(64, np.uint32), block=64, smem_bytes=2048, run=run, assembles=False)
    (found,) = run.hazards
    assert found.kind == "unordered-write"
    pins(found.missing)


PEER_COPY = """setp.ne.u32 %p5, %r5, 0; add.u32 %r11, %r1, 512; mapa.shared::cluster.u32 %r12, %r11, %r6;
st.shared.u32 [%r4], %r2; fence.proxy.async.shared::cta; bar.sync 0; @%p5 bra RECEIVE;
@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r12], [%r1], 256, [%r9];
bra AFTER;
RECEIVE: @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;
W: mbarrier.try_wait.parity.shared.b64 %p3, [%r8], 0; @!%p3 bra W;
AFTER:
"""


@pytest.mark.parametrize(("end", "kinds"), [("", ["in-flight-at-exit"]), (CLUSTER, [])])
def test_a_copy_to_a_peer_reads_the_memory_of_its_own_cta(end, kinds):
    """The sending CTA must hear from the peer, whose mbarrier counts the bytes, before it ends."""
    assert hazards_of(INIT.format(count=1), SHOW, CLUSTER, PEER_COPY, end, cluster=2) == kinds


def test_a_cluster_barrier_shows_mbarriers_to_threads_of_peers():
    """The fence of mbarrier.init is for relaxed arrivals, and for copies."""
    arrive = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];\n"
    wait = "W: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p3, [%r8], 0;\n@!%p3 bra W;\n"
    assert hazards_of(INIT.format(count=1), CLUSTER, arrive, wait, CLUSTER, cluster=2) == []
    for fence, is_right in ("", False), ("fence.proxy.async;\n", False), ("fence.acq_rel.cta;\n", False), (SHOW, True):
        found = hazards_of(INIT.format(count=1), fence, RELAXED, arrive, wait, CLUSTER, cluster=2)
        assert found == [] if is_right else "missing-init-fence" in found
    assert hazards_of(INIT.format(count=1), "fence.proxy.async;\n", CLUSTER, arrive, wait, CLUSTER, cluster=2) == []


def test_cp_async_tells_mbarriers_as_threads_do():
    copy = "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.mbarrier.arrive.noinc.shared.b64 [%r8];\n"
    assert hazards_of(INIT.format(count=64), BARRIER, copy, TRY.format(n=0, how=""), READ) == []


ST_ASYNC = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [{to}], %r2, [%r9];\n"
RED_ASYNC = ST_ASYNC.replace("st.async.weak", "red.async.relaxed.cluster").replace("bytes.u32", "bytes.add.u32")
ONE_PLACE = "sub.u32 %r10, %r7, %r3;\n"
WAITS = (EXPECT.format(size=256), TRY.format(n=0, how=".acquire.cluster"))
BY_ONE = STORE.replace("%p1", "%p4")
OPEN = (INIT.format(count=1), CLUSTER)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((*OPEN, ST_ASYNC.format(to="%r7"), *WAITS, READ, CLUSTER), []),
        # Neither what threads wrote there before, nor the mbarrier, needs a proxy fence.
        ((WRITE, *OPEN, ST_ASYNC.format(to="%r7"), *WAITS, READ, CLUSTER), []),
        ((WRITE, *OPEN, RED_ASYNC.format(to="%r7"), *WAITS, READ, CLUSTER), []),
        ((*OPEN, ST_ASYNC.format(to="%r7"), READ, *WAITS, CLUSTER), ["unordered-read"]),
        # What a bulk store reads of it does.
        (
            (*OPEN, ST_ASYNC.format(to="%r7"), *WAITS, BY_ONE, WAIT, CLUSTER),
            ["missing-proxy-fence"],
        ),
        ((*OPEN, ST_ASYNC.format(to="%r7"), *WAITS, "fence.proxy.async.shared::cta;\n", BY_ONE, WAIT, CLUSTER), []),
        # Several lanes to one place: stores race, reductions don't.
        ((*OPEN, ONE_PLACE, ST_ASYNC.format(to="%r10"), *WAITS, CLUSTER), ["unordered-write"]),
        ((WRITE, *OPEN, ONE_PLACE, RED_ASYNC.format(to="%r10"), *WAITS, READ, CLUSTER), []),
    ],
)
def test_async_stores_of_threads_are_of_the_generic_proxy(lines, kinds):
    """PTX ISA, "st.async", "red.async": performed in the generic proxy; the one is weak, the other relaxed."""
    assert hazards_of(*lines, cluster=2) == kinds
    if not kinds:
        assert hazards_of(*lines, cluster=2, policy=policy_named("late")) == []


def test_a_certificate_says_that_a_cta_stores_into_itself_as_into_others():
    """PTX ISA, "st.async": it stores into another CTA than the thread's; kernels in use store into all of a cluster."""
    own = "mapa.shared::cluster.u32 %r9, %r8, %r5; mapa.shared::cluster.u32 %r7, %r4, %r5;\n"
    for start, assumed in (("", 0), (own, 1)):
        run = Run((), None, sanitize=True)
        lines = (START, start, *OPEN, ST_ASYNC.format(to="%r7"), *WAITS, READ, CLUSTER)
        data = np.zeros(64, np.uint32)
        launch("".join(lines), data, block=64, grid=2, cluster=2, smem_bytes=2048, run=run, assembles=False)
        certificate = run.certificates[0]
        assert certificate.is_certified
        assert sum("its own" in one or "own shared memory" in one for one in certificate.assumptions) == assumed


def test_a_hang_tells_what_is_in_flight_where_a_cta_has_ended():
    """CTA 0 ends while a copy writes its shared memory, and CTA 1 waits for ever."""
    first = "setp.ne.u32 %p5, %r5, 0;\n@%p5 bra OTHER;\n"
    load = (INIT.format(count=1), SHOW, BARRIER, EXPECT.format(size=256), LOAD.format(to="%r1"), "exit;\n")
    wait = ("OTHER:\n", INIT.format(count=1), BARRIER, TRY.format(n=0, how=""))
    run = Run((), None, sanitize=True)
    with refuses(DeadlockError):
        launch(
            "".join((START, first, *load, *wait)), np.zeros(1024, np.uint32), block=64, grid=2, cluster=2,
            smem_bytes=2048, run=run, assembles=False,
        )  # fmt: skip
    assert [hazard.kind for hazard in run.hazards] == ["in-flight-at-exit", "deadlock"]


def test_an_arrival_of_copies_is_in_flight_until_its_mbarrier_is_waited_for():
    copy = "cp.async.ca.shared.global [%r4], [%rd1], 4;\ncp.async.mbarrier.arrive.noinc.shared.b64 [%r8];\n"
    lines = INIT.format(count=64), BARRIER, copy, "cp.async.wait_all;\n"
    assert hazards_of(*lines, READ) == ["in-flight-at-exit"]
    assert hazards_of(*lines, READ, TRY.format(n=0, how="")) == []


def test_an_mbarrier_is_no_data():
    begin = INIT.format(count=1), WRITE, BARRIER
    around = "shl.b32 %r20, %r2, 5; add.u32 %r20, %r20, %r1; st.shared.u32 [%r20+8], 1; ld.shared.u32 %r21, [%r20+8];\n"
    assert hazards_of(*begin, "ld.shared.u32 %r20, [%r8];\n") == ["misused-barrier"]
    assert hazards_of(*begin, "@%p1 ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r8];\n") == ["misused-barrier"]
    assert hazards_of(INIT.format(count=1), BARRIER, around) == []


@pytest.mark.parametrize("where", ["shared", "global"])
def test_warps_that_write_the_same_in_one_instruction_are_told_to_let_one_write(where):
    run = Run((), None, sanitize=True)
    address = "%r1" if where == "shared" else "%rd1"
    body = f"mov.u32 %r1, smem; ld.param.u64 %rd1, [p0];\nst.{where}.u32 [{address}], 7;\n"
    launch(body, np.zeros(4, np.uint32), block=64, smem_bytes=64, run=run)
    (found,) = run.hazards
    pins(found.missing)
