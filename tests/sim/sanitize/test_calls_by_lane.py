"""Cost of sanitized instructions: it grows with the instructions that warps execute, not with their lanes."""

import cProfile
import pstats

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

ROUNDS = 8
START = f"""mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r20, 0;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, LANES; shl.b32 %r6, %r2, 6; add.u32 %r7, %r6, %r1; add.u32 %r7, %r7, 64;
cvt.u64.u32 %rd3, %r6; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
@%p1 mbarrier.init.shared::cta.b64 [%r1], COUNT; fence.mbarrier_init.release.cluster; bar.sync 0;
LOOP: and.b32 %r21, %r20, 1;
BODY
bar.sync 0; add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, {ROUNDS}; @%p3 bra LOOP;
"""
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r1], %r21; @!%p9 bra WAIT;\n"
EXPECT = "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;\n"
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd4], 64, [%r1];\n"
STORE = "cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r7], 64;\n"
GROUPS = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
FENCE = "fence.proxy.async.shared::cta;\n"
PATTERNS = {
    "arrivals": "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];\n" + WAIT,
    "relaxed arrivals": "fence.acq_rel.cta; @%p2 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r1];\n" + WAIT,
    "bulk loads": f"{EXPECT}@%p2 {LOAD}{WAIT}ld.shared.u32 %r9, [%r7];\n{FENCE}",
    "bulk stores": f"st.shared.v4.u32 [%r7], {{%r2, %r2, %r2, %r2}};\n{FENCE}@%p2 {STORE}{GROUPS}",
    "reductions": f"st.shared.v4.u32 [%r7], {{%r2, %r2, %r2, %r2}};\n{FENCE}"
    "@%p2 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd5], [%r7], 64;\n" + GROUPS,
    "acquired words": "@%p1 st.release.gpu.global.u32 [%rd2], %r20;\n"
    "POLL: @%p2 ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.ne.and.u32 %p4, %r8, %r20, %p2; @%p4 bra POLL;\n",
    "atomics": "@%p2 red.relaxed.gpu.global.add.u32 [%rd2], 1;\n",
}
FULL = "st.shared.v4.u32 [%r7+{at}], {{%r2, %r2, %r2, %r2}};\n"


def calls(body, lanes):
    """Return how many Python calls a sanitized launch makes in which so many lanes of a warp do something."""
    extra = "".join(FULL.format(at=at) for at in (16, 32, 48)) if "%r7], 64;" in body and "st.shared" in body else ""
    text = START.replace("BODY", extra + body).replace("LANES", str(lanes)).replace("COUNT", str(lanes))
    counts = []
    for _ in range(2):  # the first one translates
        run = Run((), None, sanitize=True)
        profile = cProfile.Profile()
        profile.enable()
        launch(text, np.zeros(1024, np.uint32), np.zeros(1024, np.uint32), smem_bytes=4096, run=run)
        assert list(run.hazards) == []
        profile.disable()
        counts.append(pstats.Stats(profile).prim_calls)
    return counts[-1]


@pytest.mark.parametrize("name", PATTERNS)
def test_lanes_of_an_instruction_cost_little_more_than_one(name):
    one, all_lanes = calls(PATTERNS[name], 1), calls(PATTERNS[name], 32)
    assert all_lanes < 2 * one, (one, all_lanes)


RACE = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r20, 0;
mad.lo.u32 %r3, %r1, 128, %r2; and.b32 %r3, %r3, 2047; cvt.u64.u32 %rd2, %r3; shl.b64 %rd2, %rd2, 2;
add.u64 %rd3, %rd1, %rd2;
LOOP: ld.global.u32 %r4, [%rd3]; st.global.u32 [%rd3], %r4;
add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 8; @%p3 bra LOOP;
"""


def test_racing_accesses_sort_few_lanes(monkeypatch):
    """A race costs as much as its lanes: they are sorted once for a pattern, and not anew for each access."""
    lanes, values = 128 * 32, np.zeros(2048, np.uint32)
    run = Run((), None, sanitize=True)
    ordered = []
    for name in ("argsort", "sort", "unique"):
        original = getattr(np, name)

        def counting(numbers, *rest, original=original, **named):
            ordered.append(np.size(numbers))
            return original(numbers, *rest, **named)

        monkeypatch.setattr(np, name, counting)
    launch(RACE, values, grid=(32, 1, 1), block=(128, 1, 1), run=run)
    assert {hazard.kind for hazard in run.hazards} >= {"unordered-write"}
    assert sum(ordered) < 8 * lanes, sum(ordered)
