"""Proxy fences between threads of one CTA of a cluster and copies of another one: either CTA's may count."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch
from tests.sim.sanitize.test_cluster_scopes import (
    ACQUIRE,
    ARRIVE,
    BARRIER,
    FILL,
    MEET,
    ONE,
    STORE,
    TAKE,
    WAIT,
    hazards_of,
)

WRITE = "add.u32 %r7, %r5, 128; @%p1 st.shared::cluster.v4.u32 [%r7], {%r2, %r2, %r2, %r2};\n"
"""CTA 1 writes 16 bytes of CTA 0."""
READ = "add.u32 %r7, %r5, 128; @%p1 ld.shared::cluster.u32 %r9, [%r7];\n"
FENCE = "fence.proxy.async;\n"
RELEASE = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;\n"
TAKE_OVER = "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;\n"
MINE = "add.u32 %r7, %r1, 128;\n"
FULL = "@%p1 st.shared.v4.u32 [%r7], {%r2, %r2, %r2, %r2};\n" + FENCE
LOAD = ONE.format("""mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd1], 16, [%r4];
""").replace("ON", "LOADED") + WAIT.replace("WAIT", "NEXT").replace("[%r1]", "[%r4]")


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (WRITE + ARRIVE, MINE + WAIT + FENCE + STORE),
        (WRITE + ARRIVE, MINE + ACQUIRE + FENCE.replace("async", "async.shared::cta") + STORE),
        (WRITE + MEET, MINE + MEET + FENCE + STORE),
        (WRITE + ARRIVE, MINE + WAIT + "@%p3 fence.proxy.async;\nbar.sync 0;\n" + STORE),
        (WRITE + FENCE + ARRIVE, MINE + WAIT + STORE),
        (WRITE + ARRIVE, MINE + WAIT + TAKE_OVER + STORE),
        ("", MINE + FULL.replace(FENCE, RELEASE) + STORE),
        (MEET + READ + ARRIVE, MINE + FULL + MEET + WAIT + FENCE + LOAD),
        (MEET + READ + FENCE + ARRIVE, MINE + FULL + MEET + WAIT + LOAD),
        (FILL + ARRIVE, MINE + ACQUIRE + FENCE + LOAD),
    ],
    ids=[
        "who receives fences",
        "by a fence of its own memory",
        "at a barrier of the cluster",
        "another warp fences",
        "who writes fences",
        "a fence that acquires",
        "a fence that releases",
        "who overwrites fences",
        "who reads fences",
        "global memory",
    ],
)
def test_a_fence_of_either_cta_counts_on_the_path(there, here):
    assert hazards_of(there, here) == []


@pytest.mark.parametrize(
    ("there", "here", "kind"),
    [
        (WRITE + ARRIVE, MINE + WAIT + STORE, "missing-proxy-fence"),
        (WRITE + ARRIVE, MINE + FENCE + WAIT + STORE, "missing-proxy-fence"),
        (FENCE + WRITE + ARRIVE, MINE + WAIT + STORE, "missing-proxy-fence"),
        (WRITE + ARRIVE, MINE + WAIT + FENCE.replace("async", "async.global") + STORE, "missing-proxy-fence"),
        (WRITE + ARRIVE.replace(".release.cluster", ""), MINE + WAIT + FENCE + STORE, "too-narrow-scope"),
        (MEET + READ + ARRIVE, MINE + FULL + MEET + WAIT + LOAD, "unfenced-overwrite"),
        (FILL + ARRIVE, MINE + ACQUIRE + LOAD, "missing-proxy-fence"),
        (FILL + ARRIVE, MINE + ACQUIRE + TAKE_OVER + LOAD, "missing-proxy-fence"),
        ("", MINE + FILL + RELEASE + LOAD, "missing-proxy-fence"),
    ],
    ids=[
        "none",
        "before the bytes are there",
        "before they are written",
        "of global memory",
        "behind an arrival that shows nothing",
        "none after reads",
        "none, global memory",
        "one that acquires shared memory only",
        "one that releases shared memory only",
    ],
)
def test_without_it_the_proxy_fence_is_missing(there, here, kind):
    assert hazards_of(there, here) == [kind]


ALL = FENCE.replace("async", "async.global")
OVER = MINE + "@%p1 st.shared.v4.u32 [%r7], {%r2, %r2, %r2, %r2}; fence.proxy.async.shared::cta;\n"
RAISE = "@%p1 st.release.cluster.global.u32 [%rd1+128], 1;\n"
RAISED = "UP: ld.acquire.cluster.global.u32 %r8, [%rd1+128]; setp.eq.u32 %p5, %r8, 1; @!%p5 bra UP;\n"
RELAXED = "fence.acq_rel.cluster; " + MEET.replace(".arrive", ".arrive.relaxed")


@pytest.mark.parametrize("fence", [FENCE, ALL])
@pytest.mark.parametrize(
    ("there", "here"),
    [
        (FILL + MEET, MEET + "FENCE" + MINE + LOAD),
        (FILL + MEET + MEET, MEET + "@%p3 FENCE" + MEET + MINE + LOAD),
        (FILL + MEET, MEET + "@%p3 FENCE" + BARRIER + MINE + LOAD),
        (FILL + RAISE, RAISED + "FENCE" + MINE + LOAD),
        (TAKE + MEET, MEET + OVER + "FENCE" + STORE),
    ],
    ids=["the thread", "met at the cluster's barrier", "met at a barrier", "behind a flag", "what was read"],
)
def test_of_global_memory_a_fence_of_the_cta_that_copies_counts(there, here, fence):
    assert hazards_of(there, here.replace("FENCE", fence)) == []
    kind = "unfenced-overwrite" if OVER in here else "missing-proxy-fence"
    assert hazards_of(there, here.replace("@%p3 FENCE", "").replace("FENCE", "")) == [kind]


@pytest.mark.parametrize("fence", [FENCE, ALL])
@pytest.mark.parametrize(
    ("there", "here"),
    [
        (FILL + "FENCE" + MEET, MEET + MINE + LOAD),
        (FILL + MEET + "FENCE" + MEET, MEET + MEET + MINE + LOAD),
        (FILL + "FENCE" + ARRIVE, MINE + ACQUIRE + LOAD),
        (FILL + "FENCE" + RAISE, RAISED + MINE + LOAD),
        (FILL + "FENCE" + RELAXED, MEET + MINE + LOAD),
        (TAKE + "FENCE" + MEET, MEET + OVER + STORE),
    ],
    ids=["before the barrier", "after it", "before an arrival", "before a flag", "a relaxed arrival", "what was read"],
)
def test_of_global_memory_a_fence_of_the_peer_does_not(there, here, fence):
    kind = "unfenced-overwrite" if OVER in here else "missing-proxy-fence"
    assert hazards_of(there.replace("FENCE", fence), here) == [kind]


@pytest.mark.parametrize("fence", [FENCE, ALL])
def test_nor_does_one_of_a_third_cta(fence):
    """CTA 3 writes, in another cluster; CTA 1 is shown the write, fences, and meets CTA 0, which copies."""
    which = "mov.u32 %r8, %ctaid.x; setp.ge.u32 %p6, %r8, 2;\n"
    there = "@!%p6 bra FIRST;\n" + FILL + RAISE + "bra MET;\nFIRST:\n" + RAISED + "{}MET:\n" + MEET
    here = MEET + "@%p6 bra END;\n{}" + MINE + LOAD
    wide = which + there.replace(".cluster.global", ".gpu.global")
    for first, last, kinds in ((fence, "", ["missing-proxy-fence"]), ("", fence, [])):
        assert hazards_of(wide.replace("{}", first), which + here.replace("{}", last), grid=4) == kinds


SEND = "fence.release.sync_restrict::shared::cta.cluster;\n" + ARRIVE.replace("release", "relaxed")
SEE = WAIT.replace("parity", "parity.relaxed.cluster") + "fence.acquire.sync_restrict::shared::cluster.cluster;\n"
READ_MINE = "@%p1 ld.shared.u32 %r9, [%r7];\n"


@pytest.mark.parametrize(
    ("there", "here", "kinds"),
    [
        (WRITE + SEND, MINE + SEE + READ_MINE, []),
        (WRITE + SEND, MINE + WAIT + READ_MINE, []),
        (WRITE + ARRIVE, MINE + SEE + READ_MINE, []),
        (WRITE + SEND, MINE + SEE.partition("fence")[0] + READ_MINE, ["too-weak-semantics"]),
        (WRITE + SEND.partition("\n")[2], MINE + SEE + READ_MINE, ["too-weak-semantics"]),
        (FILL + SEND, ACQUIRE + TAKE, ["too-narrow-scope"]),
        (FILL + ARRIVE, SEE + TAKE, ["too-narrow-scope"]),
        (FILL + ARRIVE, SEE.replace("acquire.sync_restrict::shared::cluster", "acq_rel") + TAKE, []),
    ],
    ids=[
        "both sides",
        "who sends",
        "who receives",
        "a relaxed wait without it",
        "a relaxed arrival without it",
        "global memory is not released",
        "global memory is not acquired",
        "by a whole fence it is",
    ],
)
def test_fences_of_shared_memory_release_and_acquire_that_alone(there, here, kinds):
    assert hazards_of(there, here) == kinds


ROUND = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, %cluster_ctarank; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 32; setp.eq.u32 %p3, %r3, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
@%p1 mbarrier.init.shared.b64 [%r1+16], 1; @%p1 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r4, 0; mapa.shared::cluster.u32 %r5, %r1, %r4; mov.u32 %r4, 1; mapa.shared::cluster.u32 %r6, %r1, %r4;
@!%p3 bra PEER; @%p2 bra BACK; @!%p1 bra END;
st.global.v4.u32 [%rd1+256], {{%r2, %r2, %r2, %r2}}; {writer}
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6+8]; bra END;
BACK: GOT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r1+8], 0; @!%p4 bra GOT; {back}
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6+16]; bra END;
PEER: @%p2 bra COPY; @!%p1 bra END;
SEEN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r1+8], 0; @!%p4 bra SEEN; {peer}
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5+8]; bra END;
COPY: DUE: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r1+16], 0; @!%p4 bra DUE; {copy}
mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+128], [%rd1+256], 16, [%r1];
DONE: mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0; @!%p4 bra DONE;
END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
"""CTA 0 writes global memory, CTA 1 hears of it, tells CTA 0, which tells another warp of CTA 1, which copies it."""


@pytest.mark.parametrize("where", ["peer", "copy", "writer", "back", None])
def test_a_fence_of_the_copys_cta_counts_that_comes_back_by_way_of_a_peer(where):
    fences = dict.fromkeys(("writer", "back", "peer", "copy"), "") | ({where: FENCE} if where else {})
    run = Run((), None, sanitize=True)
    body = ROUND.format(**fences).replace("\n", " ")
    launch(body, np.zeros(256, np.uint32), grid=2, cluster=(2, 1, 1), block=64, run=run, smem_bytes=256)
    is_right = where in ("peer", "copy")
    assert [hazard.kind for hazard in run.hazards] == ([] if is_right else ["missing-proxy-fence"])
