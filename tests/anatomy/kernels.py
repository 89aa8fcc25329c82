"""PTX that the tests explain, written by hand."""

import re

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
"""

RING = (
    HEAD
    + """
.visible .entry ring(
    .param .align 64 .b8 ring_param_0[128],
    .param .u32 ring_param_1
)
.reqntid 256, 1, 1
{
    .reg .pred %p<9>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<20>;
    .reg .f32 %f<4>;
    .shared .align 8 .b8 counters[24];
    .loc 1 10 0
    mov.b32 %r1, dynamic;
    mov.u32 %r2, %tid.x;
    setp.ne.s32 %p1, %r2, 0;
    @%p1 bra $L_started;
    .loc 1 11 0
    mbarrier.init.shared.b64 [%r1], 1;
    mbarrier.init.shared.b64 [%r1+8], 1;
    .loc 1 12 0
    mov.b32 %r3, 4;
    mbarrier.init.shared.b64 [%r1+16], %r3;
    mbarrier.init.shared.b64 [%r1+24], %r3;
$L_started:
    .loc 1 13 0
    bar.sync 0;
    setmaxnreg.inc.sync.aligned.u32 232;
    ld.param.u32 %r4, [ring_param_1];
    cvta.param.u64 %rd1, ring_param_0;
    mov.b32 %r5, 0;
    mov.b32 %r6, 0;
$L_loop:
    .loc 1 20 0
    shl.b32 %r7, %r5, 3;
    add.s32 %r8, %r1, %r7;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 8192;
    shl.b32 %r9, %r5, 13;
    add.s32 %r10, %r1, %r9;
    add.s32 %r11, %r10, 1024;
    .loc 1 21 0
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1, {%r6, %r2}], [%r8];
    .loc 1 22 0
    mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;
    .loc 1 23 0
    shr.u32 %r12, %r11, 4;
    and.b32 %r13, %r12, 16383;
    mov.b32 %r14, 1073741888;
    mov.b64 %rd2, {%r13, %r14};
    add.s64 %rd3, %rd2, 2;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd2, %rd3, %p2, 1, 1, 0, 1;
    .loc 1 24 0
    add.s32 %r15, %r5, 1;
    setp.eq.s32 %p3, %r15, 2;
    selp.b32 %r5, 0, %r15, %p3;
    add.s32 %r6, %r6, 64;
    setp.lt.s32 %p4, %r6, %r4;
    @%p4 bra $L_loop;
    bar.sync 3, 128;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ret;
}
.file 1 "/somewhere/ring.py"
"""
)


def line_of(text: str, fragment: str) -> int:
    """The number of the line that has a fragment, from 1."""
    (found,) = [number for number, line in enumerate(text.splitlines(), 1) if fragment in line]
    return found


def opcodes(text: str) -> list[str]:
    """All instructions' opcodes, by a regular expression of this file's own."""
    found = []
    for raw in text.splitlines():
        line = raw.split("//")[0].strip().lstrip("{").strip()
        match = re.match(r"(?:@!?[%\w$]+\s+)?([a-z][a-z0-9_]*(?:\.[\w:]+)+)", line)
        if match:
            found.append(match[1])
    return found
