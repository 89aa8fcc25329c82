"""Registers and local memory that nothing has written: told where something comes of it, and only there."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """.local .align 16 .b8 there[32]; .local .align 16 .b8 here[32];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [p0]; add.u64 %rd1, %rd1, %rd2; 
setp.eq.u32 %p1, %r1, 99;
"""
"""r1: thread; rd1: its word; p1: false."""

SUMS = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r1,%r1},{%r1},{%f4,%f5,%f6,%f7};\n"
SAME = SUMS.replace("%f4,%f5,%f6,%f7", "%f0,%f1,%f2,%f3")
ZEROS = "".join(f"mov.f32 %f{n}, 0f00000000;\n" for n in range(4))
NAMES = "".join(f"mov.f32 %f{n + 4}, %f{n};\n" for n in range(4))
STORE = "st.global.f32 [%rd1], %f0;\n"
KEEP = "st.global.u32 [%rd1], %r9;\n"

RIGHT = {
    "sums that begin with zeros": (ZEROS, SAME, SAME, STORE),
    "sums that are moved": (ZEROS, "mov.u32 %r2, 0;\nMORE:\n", NAMES, SUMS, "@%p1 bra MORE;\n", STORE),
    "sums that begin on some path": ("@%p1 bra ON;\n", ZEROS, "ON:\n", SAME, STORE),
    "a register that is moved and stored": ("mov.u32 %r9, %r8;\n", KEEP),
    "a part of a vector": ("st.global.v2.u32 [%rd2], {%r1, %r8};\n",),
    "half of a register": (
        "mov.u32 %r9, 1; cvt.u16.u32 %rs1, %r9; mov.b32 %r9, {%rs1, %rs2}; add.f16x2 %r9, %r9, %r9;\n",
        KEEP,
    ),
    "a value that is not selected": ("selp.u32 %r9, %r8, %r1, %p1; add.u32 %r9, %r9, 1;\n", KEEP),
    "what is not executed": ("@%p1 add.u32 %r9, %r9, 1;\n", KEEP),
    "local memory that is written": ("st.local.u32 [there+4], %r1; ld.local.u32 %r9, [there+4];\n", KEEP),
    "a part of local memory": (
        "st.local.u32 [there+4], %r1; ld.local.u64 %rd5, [there]; st.global.u64 [%rd2], %rd5;\n",
    ),
    "local memory that is copied": (
        "ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [there];\nst.local.v4.u32 [here], {%r5, %r6, %r7, %r8};\n",
    ),
    "local memory that is not selected": (
        "ld.local.u32 %r8, [there]; add.u32 %r8, %r8, 1; selp.u32 %r9, %r8, %r1, %p1;\n",
        KEEP,
    ),
}
WRONG = {
    "sums of mma": (SAME, STORE),
    "one of four sums": ("mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;\n", SAME, STORE),
    "sums of mma that are moved": ("MORE:\n", NAMES, SUMS, "@%p1 bra MORE;\n", STORE),
    "a sum": ("fma.rn.f32 %f0, %f9, %f9, %f0;\n", STORE),
    "a sum in a loop": ("MORE: add.u32 %r9, %r9, %r1; @%p1 bra MORE;\n", KEEP),
    "an address": ("st.local.u32 [%r50], %r1;\n",),
    "what decides": ("@%p3 bra OVER;\n", KEEP, "OVER:\n"),
    "local memory": ("ld.local.u32 %r9, [there];\n", KEEP),
    "local memory beyond what is written": (
        "st.local.u32 [there], %r1; ld.local.u32 %r9, [there+4]; add.u32 %r9, %r9, 1;\n",
        KEEP,
    ),
    "local memory of one thread": (
        "@!%p1 st.local.u32 [there], %r1; setp.eq.u32 %p4, %r1, 3; @%p4 ld.local.u32 %r9, [there+8];\n",
        KEEP,
    ),
}


def hazards_of(lines):
    """Run a kernel of one warp, and return the kinds of what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    launch("".join((START, *lines)), np.zeros(64, np.uint32), run=run)
    return {hazard.kind for hazard in run.hazards}


@pytest.mark.parametrize("name", RIGHT)
def test_what_nothing_comes_of_is_not_reported(name):
    assert hazards_of(RIGHT[name]) == set()


@pytest.mark.parametrize("name", WRONG)
def test_what_something_comes_of_is_found(name):
    assert hazards_of(WRONG[name]) == {"uninitialised-read"}
