"""Small kernels with a mistake, each beside one without: what the sanitizer says of them."""

import numpy as np
import pytest

from cutepy.sim import HazardError, Run
from cutepy.sim.machine.policies import policy_named
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

ADDRESS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;
setp.eq.u32 %p1, %r2, 0; ld.param.u64 %rd1, [p0];
"""
WRITE = "st.shared.u32 [%r4], %r2;\n"
OTHER = "xor.b32 %r5, %r3, {distance}; add.u32 %r6, %r1, %r5; ld.shared.u32 %r7, [%r6];\n"
FENCE, BARRIER, WARP = "fence.proxy.async.shared::cta;\n", "bar.sync 0;\n", "bar.warp.sync 0xffffffff;\n"
STORE = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;\n@%p1 cp.async.bulk.commit_group;\n"
WAIT = "@%p1 cp.async.bulk.wait_group.read 0;\n"
STORED = WAIT.replace(".read", "")
INIT = "add.u32 %r8, %r1, 1024;\n@%p1 mbarrier.init.shared.b64 [%r8], 1;\n"
SHOW = "fence.mbarrier_init.release.cluster;\n"
LOAD = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r8];
"""
TRY = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;\n@!%p2 bra AGAIN;\n"
PEEK = f"mbarrier.try_wait.parity{{how}}.shared.b64 %p3, [%r8], 0;\n@%p3 bra ON;\n{TRY}ON:\n"
READ = "ld.shared.u32 %r7, [%r4];\n"
KEEP = "cvt.u64.u32 %rd4, %r3; add.u64 %rd4, %rd1, %rd4; st.global.u32 [%rd4], %r7;\n"
COPY = "cvt.u64.u32 %rd3, %r3; add.u64 %rd2, %rd1, %rd3;\ncp.async.ca.shared.global [%r4], [%rd2], 4;\n"
TRACK = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r8];\n"
LAST = """setp.ge.u32 %p3, %r2, 32;
@!%p3 bra END;
xor.b32 %r9, %r3, 128; add.u32 %r9, %r9, %r1;
st.shared.u32 [%r9], %r3;
END:
"""


def hazards_of(*lines, block=64, policy=None):
    """Run a kernel, and return the kinds of what the sanitizer finds."""
    run = Run((), policy, sanitize=True)
    data = np.arange(1024, dtype=np.uint32)
    launch("".join((ADDRESS, *lines)), data, block=block, smem_bytes=2048, run=run)
    return [hazard.kind for hazard in run.hazards]


ONE_WORD = "st.shared.u32 [%r1], %r2;\n"
FILLED = INIT + SHOW + WRITE + FENCE + BARRIER
REFILL = LOAD + TRY
WRONG = {
    "warps that write one word in one instruction": ((ONE_WORD,), "unordered-write"),
    "warps that copy to one place in one instruction": (
        (
            "and.b32 %r9, %r3, 124;\nadd.u32 %r9, %r1, %r9;\n"
            "cp.async.ca.shared.global [%r9], [%rd1], 4;\ncp.async.wait_all;\n",
        ),
        "unordered-write",
    ),
    "a race between warps": ((WRITE, OTHER.format(distance=128)), "unordered-read"),
    "a race between lanes": ((WRITE, OTHER.format(distance=4)), "unordered-read"),
    "a barrier of one warp for two": ((WRITE, WARP, OTHER.format(distance=128)), "unordered-read"),
    "read, then written by others": (
        (WRITE, BARRIER, OTHER.format(distance=128), "st.shared.u32 [%r4], %r3;\n"),
        "unordered-write",
    ),
    "no proxy fence before a store": ((WRITE, BARRIER, STORE, WAIT), "missing-proxy-fence"),
    "a proxy fence of one thread before the others have written": (
        (FENCE, WRITE, BARRIER, STORE, WAIT),
        "missing-proxy-fence",
    ),
    "no barrier before a store": ((WRITE, FENCE, STORE, WAIT), "unordered-read"),
    "no wait before shared memory is written again": (
        (WRITE, FENCE, BARRIER, STORE, BARRIER, WRITE, WAIT),
        "unordered-write",
    ),
    "no wait before the end": ((WRITE, FENCE, BARRIER, STORE), "in-flight-at-exit"),
    "a group that is not committed": (
        (WRITE, FENCE, BARRIER, STORE.splitlines()[0] + "\n", WAIT),
        "in-flight-at-exit",
    ),
    "no wait for a load": ((INIT, SHOW, BARRIER, LOAD, READ), "unordered-read"),
    "one thread alone waits for a load": (
        (INIT, SHOW, BARRIER, LOAD, "@!%p1 bra ON;\n", TRY, "ON:\n", READ),
        "unordered-read",
    ),
    "a relaxed peek, which may save the wait": (
        (INIT, SHOW, BARRIER, LOAD, PEEK.format(how=".relaxed.cta"), READ),
        "too-weak-semantics",
    ),
    "an mbarrier that is not published": ((INIT, SHOW, LOAD, TRY, READ), "unpublished-mbarrier"),
    "no fence after mbarrier.init": ((INIT, BARRIER, LOAD, TRY, READ), "missing-init-fence"),
    "no wait for cp.async": ((COPY, READ), "unordered-read"),
    "cp.async for which nobody waits": ((COPY, "cp.async.commit_group;\n"), "in-flight-at-exit"),
    "cp.async in no group": ((COPY, "cp.async.wait_group 0;\n"), "in-flight-at-exit"),
    "cp.async after the wait for all": ((COPY, "cp.async.wait_all;\n", COPY, READ), "unordered-read"),
    "cp.async after an mbarrier was let track those before": (
        (INIT.replace("], 1", "], 64"), SHOW, BARRIER, COPY, TRACK, TRY, COPY, READ),
        "unordered-read",
    ),
    "an mbarrier that tracks cp.async, and no wait": (
        (INIT.replace("], 1", "], 64"), SHOW, BARRIER, COPY, TRACK),
        "in-flight-at-exit",
    ),
    "no barrier after cp.async": ((COPY, "cp.async.wait_all;\n", OTHER.format(distance=4)), "unordered-read"),
    "an mbarrier that does not track cp.async": (
        (INIT.replace("], 1", "], 64"), SHOW, BARRIER, COPY, ARRIVE, TRY, OTHER.format(distance=128)),
        "unordered-read",
    ),
    "one lane releases what all have read": (
        (WRITE, BARRIER, INIT, SHOW, BARRIER, READ, "@%p1 mbarrier.arrive.shared.b64 _, [%r8];\n", TRY, LAST),
        "unordered-write",
    ),
    "no proxy fence before what was read is overwritten": ((FILLED, READ, BARRIER, REFILL), "unfenced-overwrite"),
    "a proxy fence before the read": ((FILLED, FENCE, READ, BARRIER, REFILL), "unfenced-overwrite"),
    "a proxy fence of global memory": (
        (FILLED, READ, "fence.proxy.async.global;\n", BARRIER, REFILL),
        "unfenced-overwrite",
    ),
    "a proxy fence of the other warp alone": (
        (FILLED, READ, "@!%p1 fence.proxy.async.shared::cta;\n", BARRIER, REFILL),
        "unfenced-overwrite",
    ),
    "a read before a copy reads the same": ((FILLED, READ, BARRIER, STORE, STORED, REFILL), "unfenced-overwrite"),
    "a thread's own read, and its copy": (
        (FILLED, "@%p1 ld.shared.u32 %r7, [%r1];\n", REFILL),
        "unfenced-overwrite",
    ),
    "a proxy fence and no barrier": ((FILLED, READ, FENCE, REFILL), "unordered-write"),
    "bytes that nothing wrote": ((READ, KEEP), "uninitialised-read"),
}
RIGHT = {
    "lanes of a warp that write one word, of which one wins": (
        "setp.lt.u32 %p5, %r2, 32;\n@%p5 st.shared.u32 [%r1], %r2;\n",
    ),
    "a barrier between warps": (WRITE, BARRIER, OTHER.format(distance=128)),
    "a barrier between lanes": (WRITE, WARP, OTHER.format(distance=4)),
    "a lane's own": (WRITE, READ, WRITE),
    "read, fence, barrier, overwritten": (FILLED, READ, FENCE, BARRIER, REFILL),
    "read, barrier, fence, overwritten": (FILLED, READ, BARRIER, "@%p1 " + FENCE, REFILL),
    "what a copy has read, overwritten": (FILLED, STORE, STORED, REFILL),
    "read, barrier, written by threads": (FILLED, READ, BARRIER, "xor.b32 %r4, %r4, 128;\n", WRITE),
    "a barrier before it is written again": (
        WRITE,
        BARRIER,
        OTHER.format(distance=128),
        BARRIER,
        "st.shared.u32 [%r4], %r3;\n",
    ),
    "write, fence, barrier, store": (WRITE, FENCE, BARRIER, STORE, WAIT),
    "write, barrier, fence, store": (WRITE, BARRIER, FENCE, STORE, WAIT),
    "a store, its wait, a barrier": (WRITE, FENCE, BARRIER, STORE, WAIT, BARRIER, WRITE),
    "an mbarrier that tracks cp.async": (
        INIT.replace("], 1", "], 64"),
        SHOW,
        BARRIER,
        COPY,
        TRACK,
        TRY,
        OTHER.format(distance=128),
    ),
    "one lane releases what all have read, and the warp has met": (
        *(WRITE, BARRIER, INIT, SHOW, BARRIER, READ, WARP),
        *("@%p1 mbarrier.arrive.shared.b64 _, [%r8];\n", TRY, LAST.replace("64", "32")),
    ),
    "a load": (INIT, SHOW, BARRIER, LOAD, TRY, READ),
    "a load, and a peek before the wait": (INIT, SHOW, BARRIER, LOAD, PEEK.format(how=""), READ),
    "a load for which one thread waits": (INIT, SHOW, BARRIER, LOAD, "@!%p1 bra ON;\n", TRY, "ON:\n", BARRIER, READ),
    "cp.async, its wait": (COPY, "cp.async.wait_all;\n", READ),
    "cp.async, its wait, a barrier": (
        COPY,
        "cp.async.commit_group;\ncp.async.wait_group 0;\n",
        BARRIER,
        OTHER.format(distance=128),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    lines, kind = WRONG[name]
    assert kind in hazards_of(*lines)


def test_a_missing_fence_of_one_lane_does_not_hide_that_others_lack_order():
    """Lane 0's read lacks the fence only; the others' reads are not handed back at all."""
    read = FILLED, READ
    assert sorted(hazards_of(*read, REFILL, block=32)) == ["unfenced-overwrite", "unordered-write"]
    assert hazards_of(*read, WARP, REFILL, block=32) == ["unfenced-overwrite"]
    assert hazards_of(*read, FENCE, REFILL, block=32) == ["unordered-write"]
    assert hazards_of(*read, FENCE, WARP, REFILL, block=32) == []


@pytest.mark.parametrize("policy", [None, "late", "youngest", "schedule:1", "schedule:2"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not(name, policy):
    """Whenever operations complete: groups are those of the issue."""
    assert hazards_of(*RIGHT[name], policy=policy_named(policy) if policy else None) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_so_under_late_completion(name):
    assert hazards_of(*WRONG[name][0], policy=policy_named("late"))


def test_a_report_names_both_sides():
    run = Run((), None, sanitize=True)
    launch(ADDRESS + WRITE + OTHER.format(distance=128), np.zeros(64, np.uint32), block=64, smem_bytes=256, run=run)
    (found,) = run.hazards
    assert found.before.instruction.text.startswith("st.shared.u32")
    assert found.after.instruction.text.startswith("ld.shared.u32")
    assert found.before.who == "warp 1, lane 0 of CTA (0, 0, 0)"
    assert found.after.who == "warp 0, lane 0 of CTA (0, 0, 0)"
    with refuses(HazardError) as caught:
        run.check_hazards()
    assert caught.value.hazards == run.hazards


def test_without_it_there_are_none():
    run = Run((), None)
    launch(ADDRESS + READ, np.zeros(64, np.uint32), smem_bytes=256, run=run)
    run.check_hazards()
    assert run.hazards == ()


def test_two_accesses_that_race_both_ways_are_one_hazard():
    rounds = "mov.u32 %r9, 0; ROUND:\n{}add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 2;\n@%p3 bra ROUND;\n".format
    body = rounds(WRITE + "{}" + OTHER.format(distance=128))
    run = Run((), None, sanitize=True)
    launch(ADDRESS + body.format(""), np.arange(64, dtype=np.uint32), block=64, smem_bytes=2048, run=run)
    (hazard,) = run.hazards
    assert hazard.kind == "unordered-read"
    pins(hazard.missing)
    assert hazards_of(body.format(BARRIER)) == ["unordered-write"]  # one barrier of the two


MEETS = "activemask.b32 %r10; match.any.sync.b32 %r11, %r1, %r10;\n"
LAST_ENDS = """and.b32 %r12, %r2, 31; setp.ne.u32 %p4, %r12, 0; @%p4 bra END;
atom.acq_rel.cta.shared.add.u32 %r13, [%r8+8], 1; setp.ne.u32 %p4, %r13, 1; @%p4 bra END;
mbarrier.inval.shared.b64 [%r8];
END:
"""


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((ARRIVE, TRY, MEETS, LAST_ENDS), []),
        ((ARRIVE, TRY, LAST_ENDS), ["unordered-write"]),
        ((ARRIVE, TRY, ARRIVE, MEETS, LAST_ENDS), ["unordered-write"]),
        ((ARRIVE, TRY, ARRIVE, WARP, LAST_ENDS), []),
    ],
)
def test_waits_are_over_where_a_warp_meets_and_arrivals_are_not(lines, kinds):
    """As in the destructor of cuda::pipeline: match.sync orders no memory, bar.warp.sync does."""
    first = INIT.replace("], 1;", "], 64;") + "@%p1 st.shared.u32 [%r8+8], 0;\n" + SHOW + BARRIER
    assert hazards_of(first, *lines) == kinds


def test_what_a_thread_finds_of_its_own_is_no_flag():
    """As in reductions by volatile accesses of a warp: what is missing is a barrier, and not a release."""
    own = "ld.volatile.shared.u32 %r7, [%r4];\nst.volatile.shared.u32 [%r4], %r7;\nld.volatile.shared.u32 %r7, [%r4];\n"
    other = OTHER.format(distance=4).replace("ld.", "ld.volatile.")
    assert hazards_of(WRITE, own, other, block=32) == ["unordered-read"]
    assert hazards_of(WRITE, WARP, own, other, block=32) == []


def missing_of(body, **options):
    """Return what the one hazard of a kernel lacks."""
    run = Run((), None, sanitize=True)
    launch(ADDRESS + body, np.arange(1024, dtype=np.uint32), smem_bytes=2048, run=run, **options)
    (found,) = run.hazards
    return found.missing


def test_a_copy_to_a_peer_has_read_once_its_mbarrier_has_counted_it():
    """PTX ISA, "cp.async.bulk": it completes by the mbarrier, and is of no bulk group."""
    meet = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"
    send = (
        "mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1;\n"
        "mapa.shared::cluster.u32 %r11, %r1, %r10; mapa.shared::cluster.u32 %r12, %r8, %r10; add.u32 %r11, %r11, 512;\n"
        "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 128;\n@%p1 cp.async.bulk.shared::cluster.shared::cta"
        ".mbarrier::complete_tx::bytes [%r11], [%r1], 128, [%r12];\n"
    )
    again = "@%p1 st.shared.u32 [%r1], 3;\n"
    shape = {"grid": 2, "cluster": 2, "block": 32}
    missing = missing_of(INIT + WRITE + SHOW + FENCE + meet + send + again + TRY + meet, **shape)
    pins(missing)
    run = Run((), None, sanitize=True)
    right = ADDRESS + INIT + WRITE + SHOW + FENCE + meet + send + TRY + meet + again
    launch(right, np.arange(1024, dtype=np.uint32), smem_bytes=2048, run=run, **shape)
    assert not run.hazards


def test_of_lanes_of_one_warp_none_has_been_elected():
    split, high, low = (
        "setp.lt.u32 %p3, %r2, 16;\n@%p3 bra LOW;\n",
        "bar.warp.sync 0xffff0000;\n",
        "bar.warp.sync 0xffff;\n",
    )
    halves = f"{split}{high}bra END;\nLOW: {low}END:\n"
    missing = missing_of(WRITE + halves + OTHER.format(distance=64), block=32)
    assert "elect" not in missing


def test_a_race_of_the_second_cta_alone_is_found_where_both_run_in_lockstep():
    run = Run((), None, sanitize=True)
    body = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r4, %r2, 4, %r1; mad.lo.u32 %r5, %r2, 8, %r1;
    st.shared.u32 [%r4], %r2; st.shared.u32 [%r4+256], %r2;
    setp.ne.u32 %p1, %r3, 0; @%p1 bra ON;
    bar.sync 0;
    ON: ld.shared.v2.u32 {%r6, %r7}, [%r5];"""
    launch(body, grid=2, block=64, smem_bytes=512, run=run)
    assert {(hazard.kind, hazard.before.cta) for hazard in run.hazards} == {("unordered-read", (1, 0, 0))}
