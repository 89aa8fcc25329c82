"""Number of threads that go on together after lanes reconverge."""

import pytest

from cutepy.sim.machine.progress import together
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.translate.control_flow import analyse

SHUFFLE, WARP = "shfl.sync.idx.b32 %r1, %r1, 0, 31, -1;", "bar.warp.sync -1;"


@pytest.mark.parametrize(
    ("body", "threads"),
    [
        ("add.u32 %r1, %r1, 1;", 1),
        ("bar.sync 0;", 1),
        (WARP, 32),
        (SHUFFLE, 32),
        ("bar.sync 0; L: setp.eq.u32 %p1, %r1, 0; @%p1 bra L; bar.warp.sync -1;", 32),
        ("wgmma.fence.sync.aligned;", 128),
        (f"{WARP} wgmma.fence.sync.aligned; {SHUFFLE}", 128),
    ],
)
def test_the_widest_of_what_follows(body, threads):
    text = f".target sm_90a\n.visible .entry k() {{ .reg .b32 %r<2>; .reg .pred %p<2>; {body} ret; }}"
    flow = analyse(parse_module(text).functions["k"], lambda i: False, lambda i: True)
    assert together(flow, 0) == threads
