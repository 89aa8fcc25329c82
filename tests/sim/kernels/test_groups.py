"""Groups of asynchronous operations are counted, empty ones too.

PTX ISA, "cp.async.commit_group", "cp.async.bulk.commit_group", "wgmma.commit_group": where nothing was issued since the
last commit, the result is an empty group. A prologue commits one for each stage, whether or not it had work.
"""

import numpy as np
import pytest

from cutepy.layouts import parse
from cutepy.layouts.sm90 import make_gmma_desc
from cutepy.sim import CompletionPolicy

from .launching import launch

COPIES = {
    "cp.async": """cp.async.ca.shared.global [%r2], [%rd2], 4; cp.async.commit_group;
        {empty}
        cp.async.wait_group {remaining};""",
    "bulk": """@!%p0 bra READ;
        cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r0], 128; cp.async.bulk.commit_group;
        {empty}
        cp.async.bulk.wait_group {remaining};""",
}
BODY = """mov.u32 %r1, %tid.x; mov.u32 %r0, smem; setp.eq.u32 %p0, %r1, 0;
    mad.lo.u32 %r2, %r1, 4, %r0; mad.wide.u32 %rd2, %r1, 4, %rd0; mad.wide.u32 %rd3, %r1, 4, %rd1;
    mad.wide.u32 %rd4, %r1, 4, %rd6;"""


class Late(CompletionPolicy):
    """Complete nothing before somebody waits for it."""

    def completes_at_issue(self, operation):
        return False

    def choose(self, pending):
        return len(pending) - 1


def copied(empty, remaining):
    data, out = np.arange(1, 33, dtype=np.uint32), np.zeros(32, np.uint32)
    body = f"""{BODY.replace("mad.wide.u32 %rd4, %r1, 4, %rd6;", "")}
        {COPIES["cp.async"].format(empty="cp.async.commit_group; " * empty, remaining=remaining)}
        ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd3], %r3;"""
    launch(body, [data, out], smem=256, policy=Late())
    return out.tolist() == data.tolist()


def stored(empty, remaining):
    """Store by a bulk copy, and read what it wrote."""
    data, out = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    body = f"""{BODY.replace("%rd6", "%rd1")}
        add.u32 %r4, %r1, 1; st.shared.u32 [%r2], %r4; bar.sync 0; fence.proxy.async.shared::cta;
        {COPIES["bulk"].format(empty="cp.async.bulk.commit_group; " * empty, remaining=remaining)}
        READ: bar.warp.sync 0xffffffff; ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd2], %r3;"""
    launch(body, [out, data], smem=256, policy=Late())
    return out.tolist() == list(range(1, 33))


def multiplied(empty, remaining):
    """Multiply two tiles of ones, and read an accumulator while later groups may be in flight."""
    out = np.zeros(128, np.float32)
    tile = parse("((8,8),(8,2)):((8,64),(1,512))")
    word = int(make_gmma_desc(tile, major="K", bits=16, start_address=0))
    body = f"""mov.u32 %r1, %tid.x; mov.u32 %r0, smem; mad.lo.u32 %r2, %r1, 32, %r0; mad.wide.u32 %rd3, %r1, 4, %rd0;
        mov.b32 %r4, 0x3c003c00; st.shared.v4.b32 [%r2], {{%r4, %r4, %r4, %r4}};
        st.shared.v4.b32 [%r2+16], {{%r4, %r4, %r4, %r4}}; bar.sync 0; fence.proxy.async.shared::cta;
        mov.b64 %rd4, {word}; setp.ne.u32 %p1, 0, 0; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd4, %rd4, %p1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        {"wgmma.commit_group.sync.aligned; " * empty}
        wgmma.wait_group.sync.aligned {remaining};
        st.global.f32 [%rd3], %f0;"""
    launch(body, [out], block=(128, 1, 1), smem=4096, policy=Late())
    return bool((out == 16).all())


@pytest.mark.parametrize("done", [copied, stored, multiplied])
def test_an_empty_group_counts(done):
    assert done(empty=1, remaining=1)
    assert done(empty=2, remaining=2)
    assert not done(empty=1, remaining=2)
