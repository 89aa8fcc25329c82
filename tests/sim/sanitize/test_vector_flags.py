"""Vectors that release and acquire: each of their elements is a flag of its own."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; mov.u32 %r1, smem; mov.u32 %r9, 0;
shr.u32 %r3, %r2, 5; and.b32 %r4, %r2, 31; setp.ne.u32 %p1, %r4, 0; mov.f32 %f1, 1.0; mov.f32 %f0, -0.0;
@%p1 bra END; setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r3, 1;
"""
FLAGS = {"global": "%rd2", "shared": "%r1"}


def hazards_of(raises, sees, between="", space="global"):
    """Let a warp write and raise a flag, another one see it and read, and a third do something between."""
    lines = (
        START,
        f"@%p2 bra RAISE; @%p3 bra SEE;\n{between}\nbra END;\n",
        f"RAISE: st.global.u32 [%rd1], 7;\n{raises}\nbra END;\n",
        f"SEE: {sees}\nld.global.u32 %r9, [%rd1];\nEND:\n",
    )
    body = "".join(lines).replace("FLAGS", FLAGS[space])
    if space == "shared":
        body = body.replace(".global FLAGS", ".shared FLAGS")
    run = Run((), None, sanitize=True)
    launch(body, np.zeros(64, np.uint32), np.zeros(64, np.uint32), block=96, smem_bytes=1024, run=run)
    return [hazard.kind for hazard in run.hazards]


def again(load, flag="%r8", at_least=1):
    """Load until a register, one of those that are loaded, has a value."""
    return f"AGAIN: {load}; setp.lt.u32 %p4, {flag}, {at_least}; @%p4 bra AGAIN;\n"


RELEASE, ACQUIRE = "st.release.gpu.global.u32 [%rd2+4], 1;", again("ld.acquire.gpu.global.u32 %r8, [%rd2+4]")
FENCE = "fence.acq_rel.gpu;\n"
FIRST = ("[%rd2+4]", "[%rd2]")

RIGHT = {
    "the second that is acquired": (RELEASE, again("ld.acquire.gpu.global.v2.u32 {%r7, %r8}, [%rd2]")),
    "the first that is acquired": (RELEASE.replace(*FIRST), again("ld.acquire.gpu.global.v2.u32 {%r8, %r7}, [%rd2]")),
    "the last of four": (
        RELEASE.replace("+4", "+12"),
        again("ld.acquire.gpu.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2]"),
    ),
    "acquired by a fence": (RELEASE, again("ld.relaxed.gpu.global.v2.u32 {%r7, %r8}, [%rd2]") + FENCE),
    "the second that is released": ("st.release.gpu.global.v2.u32 [%rd2], {0, 1};", ACQUIRE),
    "the first that is released": ("st.release.gpu.global.v2.u32 [%rd2], {1, 0};", ACQUIRE.replace(*FIRST)),
    "released by a fence": (FENCE + "st.volatile.global.v2.u32 [%rd2], {0, 1};", ACQUIRE),
    "two of a wider vector": (
        "st.release.gpu.global.v2.u32 [%rd2+8], {1, 1};",
        again("ld.acquire.gpu.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2]"),
    ),
    "elements of 8 bytes": (
        "st.release.gpu.global.v2.u64 [%rd2], {0, 1};",
        "AGAIN: ld.acquire.gpu.global.u64 %rd8, [%rd2+8]; setp.lt.u64 %p4, %rd8, 1; @%p4 bra AGAIN;\n",
    ),
    "a vector that is added to": (
        "red.release.gpu.global.add.v2.f32 [%rd2], {%f1, %f1};",
        again("ld.acquire.gpu.global.u32 %r8, [%rd2+4]"),
    ),
    "a vector that is added to, and its last element looked at": (
        RELEASE,
        "ACQ: atom.acquire.gpu.global.add.v2.f32 {%f2, %f3}, [%rd2], {%f0, %f0};\n"
        "mov.b32 %r8, %f3; setp.eq.u32 %p4, %r8, 0; @%p4 bra ACQ;\n",
    ),
    "another element that is written again": (
        "st.release.gpu.global.v2.u32 [%rd2], {1, 1};",
        again("ld.acquire.gpu.global.u32 %r8, [%rd2+4]"),
        "st.relaxed.gpu.global.u32 [%rd2], 2;",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_reported(name):
    assert hazards_of(*RIGHT[name]) == []


def test_vectors_in_shared_memory_release_and_acquire():
    raises = "st.release.cta.shared.v2.u32 [%r1], {0, 1};"
    sees = "AGAIN: ld.acquire.cta.shared.v4.u32 {%r5, %r8, %r6, %r7}, [%r1]; setp.ne.u32 %p4, %r8, 1; @%p4 bra AGAIN;\n"
    both = hazards_of(raises, sees), hazards_of(raises.replace("release", "relaxed"), sees)
    assert both == ([], ["too-weak-semantics"])  # nothing comes of the other elements


OVER = again("ld.relaxed.gpu.global.u32 %r8, [%rd2+64]") + ACQUIRE.replace("AGAIN", "THEN")
"""Acquire what another thread has written over the flag, which it has seen, and shows nothing."""
SEES = ACQUIRE.replace("AGAIN", "MORE").replace("acquire", "relaxed")
DONE = "\nst.relaxed.gpu.global.u32 [%rd2+64], 1;"

WRONG = {
    "another element": (RELEASE, again("ld.acquire.gpu.global.v2.u32 {%r7, %r8}, [%rd2+8]", at_least=0)),
    "an element that nobody looks at": (RELEASE, again("ld.acquire.gpu.global.v2.u32 {%r8, %r7}, [%rd2]", at_least=0)),
    "a wider load": (
        RELEASE.replace(*FIRST),
        "AGAIN: ld.acquire.gpu.global.u64 %rd8, [%rd2]; setp.eq.u64 %p4, %rd8, 0; @%p4 bra AGAIN;\n",
    ),
    "a relaxed vector": (RELEASE, again("ld.relaxed.gpu.global.v2.u32 {%r7, %r8}, [%rd2]")),
    "a vector that releases nothing": ("st.relaxed.gpu.global.v2.u32 [%rd2], {0, 1};", ACQUIRE),
    "a vector that replaces the flag": (RELEASE, OVER, SEES + "st.relaxed.gpu.global.v2.u32 [%rd2], {2, 2};" + DONE),
    "a wider store that replaces the flag": (
        RELEASE,
        OVER,
        SEES + "mov.b64 %rd8, 0x200000002; st.relaxed.gpu.global.u64 [%rd2], %rd8;" + DONE,
    ),
    "a narrower store that replaces the flag": (
        RELEASE,
        OVER,
        SEES + "mov.u16 %rs1, 2; st.relaxed.gpu.global.u16 [%rd2+6], %rs1;" + DONE,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    assert {"unordered-read", "too-weak-semantics"} & {*hazards_of(*WRONG[name])}
