"""One instruction of the tensor core on given contents of shared and tensor memory."""

import numpy as np

from cutepy import load_ptx, simulate

LANES, COLUMNS = 128, 512

_KERNEL = """.version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 image, .param .u64 before, .param .u64 after, .param .u32 bytes, .param .u64 a,
.param .u64 b, .param .u32 word, .param .u32 accumulates)
.reqntid 128 {{
.reg .b32 %r<40>; .reg .b64 %d<12>; .reg .pred %p<8>; .shared .align 8 .b64 bar; .shared .align 4 .b32 base;
.reg .b32 %v<8>;
ld.param.u64 %d0, [image]; ld.param.u64 %d1, [before]; ld.param.u64 %d2, [after]; ld.param.u32 %r0, [bytes];
ld.param.u64 %d8, [a]; ld.param.u64 %d9, [b]; ld.param.u32 %r20, [word]; ld.param.u32 %r21, [accumulates];
mov.u32 %r1, %tid.x; mov.u32 %r2, s; shr.u32 %r4, %r2, 4; cvt.u64.u32 %d10, %r4;
add.u64 %d8, %d8, %d10; add.u64 %d9, %d9, %d10; shl.b32 %r3, %r1, 4; shr.u32 %r10, %r1, 5;
COPY: setp.ge.u32 %p0, %r3, %r0; @%p0 bra COPIED;
cvt.u64.u32 %d3, %r3; add.u64 %d4, %d0, %d3; ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%d4];
add.u32 %r4, %r2, %r3; st.shared.v4.u32 [%r4], {{%v0, %v1, %v2, %v3}}; add.u32 %r3, %r3, 2048; bra COPY;
COPIED: fence.proxy.async;
setp.ne.u32 %p1, %r10, 0; setp.eq.u32 %p2, %r1, 0;
@%p1 bra ALLOCATED;
mov.u32 %r5, base; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r5], 512;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED: mov.u32 %r6, bar;
@%p2 mbarrier.init.shared.b64 [%r6], 1;
bar.sync 0; tcgen05.fence::after_thread_sync;
ld.shared.u32 %r7, [base]; shl.b32 %r8, %r10, 21; add.u32 %r8, %r7, %r8;
mul.lo.u32 %r9, %r1, 2048; cvt.u64.u32 %d3, %r9; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
mov.u32 %r11, 0; mov.u32 %r12, %r8;
FILL: ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%d1]; ld.global.v4.u32 {{%v4, %v5, %v6, %v7}}, [%d1+16];
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r12], {{%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}};
add.u64 %d1, %d1, 32; add.u32 %r12, %r12, 8; add.u32 %r11, %r11, 8; setp.lt.u32 %p0, %r11, 512; @%p0 bra FILL;
tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
setp.ne.u32 %p3, %r21, 0;
@!%p2 bra ISSUED;
{instruction}
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
ISSUED: mbarrier.try_wait.parity.shared.b64 %p4, [%r6], 0; @!%p4 bra ISSUED;
tcgen05.fence::after_thread_sync; mov.u32 %r11, 0; mov.u32 %r12, %r8;
DUMP: tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%v0, %v1, %v2, %v3, %v4, %v5, %v6, %v7}}, [%r12];
tcgen05.wait::ld.sync.aligned;
st.global.v4.u32 [%d2], {{%v0, %v1, %v2, %v3}}; st.global.v4.u32 [%d2+16], {{%v4, %v5, %v6, %v7}};
add.u64 %d2, %d2, 32; add.u32 %r12, %r12, 8; add.u32 %r11, %r11, 8; setp.lt.u32 %p0, %r11, 512; @%p0 bra DUMP;
bar.sync 0; @%p1 bra END; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r7, 512;
END: ret; }}
"""
MMA = "tcgen05.mma.{}cta_group::1.kind::{} [%r7], %d8, %d9, %r20, %p3;"


_OF_A_PAIR = (
    ("cta_group::1", "cta_group::2"),
    (
        "COPY:",
        """mov.u32 %r30, %cluster_ctarank; mul.wide.u32 %d3, %r30, %r0; add.u64 %d0, %d0, %d3;
mul.wide.u32 %d3, %r30, 262144; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
COPY:""",
    ),
    (
        "setp.ne.u32 %p3, %r21, 0;\n@!%p2",
        """setp.ne.u32 %p3, %r21, 0; barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned; setp.eq.and.u32 %p5, %r30, 0, %p2; mov.u16 %h0, 3;\n@!%p5""",
    ),
    ("shared::cluster.b64 [%r6];", "shared::cluster.multicast::cluster.b64 [%r6], %h0;"),
    ("bar.sync 0; @%p1 bra END;", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @%p1 bra END;"),
    (".reg .b32 %v<8>;", ".reg .b32 %v<8>; .reg .b16 %h<2>;"),
)


def run_pair(instruction, image, before, *, a, b, word):
    """Return tensor memory of both CTAs of a pair, (2, lanes, columns), after an instruction of the first one.

    `image` and `before` have a part for each CTA; the rest is as of `run`.
    """
    text = _KERNEL.format(instruction=instruction, target="sm_100a")
    for old, new in _OF_A_PAIR:
        assert old in text
        text = text.replace(old, new)
    after = np.zeros((2, LANES, COLUMNS), np.uint32)
    args = [image, np.ascontiguousarray(before, np.uint32), after, image.shape[1], a, b, word, 0]
    with simulate():
        load_ptx(text).launch("k", 2, 128, args, smem=image.shape[1], cluster=2)
    return after


def run(instruction, image, before, *, a=0, b=0, word=0, accumulates=False, policy=None, observers=(), target=None):
    """Return tensor memory after an instruction of thread 0, which finds its operands in registers.

    `%r7` is the address of all of tensor memory, which has `before`; shared memory has `image`, from whose first byte
    on the addresses of descriptors count; `%d8`, `%d9`, `%r20` and `%p3` are `a`, `b`, `word` and `accumulates`.
    Without a target it is a GPU that has the instruction.
    """
    image = np.ascontiguousarray(image).view(np.uint8)
    after = np.zeros((LANES, COLUMNS), np.uint32)
    args = [image, np.ascontiguousarray(before, np.uint32), after, len(image), a, b, word, int(accumulates)]
    with simulate(policy=policy, observers=observers):
        target = target or ("sm_100a" if "kind::i8" in instruction else "sm_103a")
        load_ptx(_KERNEL.format(instruction=instruction, target=target)).launch("k", 1, 128, args, smem=len(image))
    return after


def noise(rng):
    """Return contents of tensor memory at random, finite as float32."""
    return rng.standard_normal((LANES, COLUMNS)).astype(np.float32).view(np.uint32)
