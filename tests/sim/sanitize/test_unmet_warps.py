"""A of wgmma in shared memory, of which each warp writes its own rows, fences them, and meets no other warp."""

import numpy as np
import pytest

from cutepy.sim import Run
from cutepy.sim.machine.policies import policy_named
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; shr.u32 %r4, %r2, 5; and.b32 %r5, %r2, 15;
shl.b32 %r6, %r4, 4; add.u32 %r6, %r6, %r5; shr.u32 %r7, %r3, 4; setp.lt.u32 %p1, %r2, 16; mov.u32 %r9, 0x3c003c00;
shl.b32 %r8, %r6, 4; mad.lo.u32 %r8, %r7, 1024, %r8; add.u32 %r8, %r8, %r1;
shl.b32 %r10, %r2, 4; add.u32 %r10, %r10, %r1; ld.param.u64 %rd1, [p0]; mul.wide.u32 %rd2, %r2, 16;
add.u64 %rd1, %rd1, %rd2; add.u32 %r13, %r8, 256; setp.lt.u32 %p2, %r2, 32;
shr.u32 %r11, %r1, 4; cvt.u64.u32 %rd3, %r11; or.b64 %rd4, %rd3, 0x0000000800400000;
add.u64 %rd5, %rd3, 256; or.b64 %rd5, %rd5, 0x0000000800080000; setp.eq.u32 %p3, %r2, %r2;
"""
"""r8: 16 bytes of the thread's row of A, of its warp's 16 rows; r10: of B, which threads 0 to 15 write; rd4, rd5."""

ROWS = "st.shared.v4.u32 [%r8], {%r9, %r9, %r9, %r9};\n"
OTHER_ROWS = "@%p2 st.shared.v4.u32 [%r13], {%r9, %r9, %r9, %r9};\n"
OF_B = "@%p1 st.shared.v4.u32 [%r10+4096], {%r9, %r9, %r9, %r9};\n"
FENCE, JOIN = "fence.proxy.async.shared::cta;\n", "bar.warp.sync -1;\n"
ALL, GROUP = "bar.sync 0;\n", "bar.sync 1, 128;\n"
TOGETHER = FENCE + ALL
MMA = """mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd4, %rd5, %p3, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
STORE = "st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};\n"
TURNED = MMA.replace("1, 1, 0, 0", "1, 1, 1, 0")
"""A by columns: 8 rows of a column in 16 bytes, 8 columns in 128, 64 rows in 1,024 by 128: those of warp w at 256 w."""


def run_of(*lines, policy=None, allow=None):
    run = Run((), policy and policy_named(policy), sanitize=True, allow=allow)
    out = np.zeros((128, 4), np.float32)
    launch(START + "".join(lines) + STORE, out, block=128, smem_bytes=8192, run=run)
    return run, out


def kinds_of(*lines, **options):
    return {hazard.kind for hazard in run_of(*lines, **options)[0].hazards}


@pytest.mark.parametrize("policy", [None, "late"])
def test_warps_that_fence_their_own_rows_and_do_not_meet_are_a_kind_of_their_own(policy):
    run, out = run_of(OF_B, TOGETHER, ROWS, FENCE, JOIN, MMA, policy=policy)
    assert [hazard.kind for hazard in run.hazards] == ["unmet-warps"]
    assert (out == 16).all()
    assert not run.certificates[0].is_certified


@pytest.mark.parametrize("barrier", [ALL, GROUP, "bar.sync 0;\n" + JOIN])
def test_warps_that_meet_are_in_order(barrier):
    assert kinds_of(OF_B, TOGETHER, ROWS, FENCE, barrier, MMA) == set()


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((OF_B, TOGETHER, ROWS, JOIN, MMA), "unordered-read"),
        ((OF_B, TOGETHER, ROWS, FENCE, MMA), "unordered-read"),
        ((OF_B, TOGETHER, FENCE, ROWS, JOIN, MMA), "unordered-read"),
        ((ROWS, TOGETHER, OF_B, FENCE, JOIN, MMA), "unordered-read"),
        ((ROWS, OF_B, TOGETHER, OTHER_ROWS, FENCE, JOIN, MMA), "unordered-read"),
        ((ROWS, OF_B, ALL, MMA), "missing-proxy-fence"),
    ],
    ids=["no fence", "lanes do not meet", "fence before", "B", "rows of another warp", "fence alone is missing"],
)
def test_what_is_not_each_warps_own_is_told_as_ever(lines, kind):
    assert kinds_of(*lines) == {kind}


def test_rows_of_a_by_columns_are_told_by_warps_too():
    turned = "shl.b32 %r12, %r4, 8; mad.lo.u32 %r12, %r3, 8, %r12; add.u32 %r12, %r12, %r1;\n"
    mine = "".join(f"st.shared.v2.u32 [%r12+{offset}], {{%r9, %r9}};\n" for offset in (0, 1024))
    assert kinds_of(OF_B, TOGETHER, turned, mine, FENCE, JOIN, TURNED) == {"unmet-warps"}
    shifted = turned.replace("%r4, 8", "%r4, 7")
    rest = "".join(f"st.shared.v2.u32 [%r12+{offset}], {{%r9, %r9}};\n" for offset in (512, 1536))
    assert kinds_of(OF_B, shifted, rest, TOGETHER, shifted, mine, FENCE, JOIN, TURNED) >= {"unordered-read"}


def test_it_can_be_allowed():
    run, _ = run_of(OF_B, TOGETHER, ROWS, FENCE, JOIN, MMA, allow={"unmet-warps": "each warp reads its own rows"})
    assert [hazard.kind for hazard in run.hazards] == []
    run, _ = run_of(ROWS, TOGETHER, OF_B, FENCE, JOIN, MMA, allow={"unmet-warps": "each warp reads its own rows"})
    assert [hazard.kind for hazard in run.hazards] == ["unordered-read"]
