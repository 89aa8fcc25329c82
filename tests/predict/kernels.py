"""Kernels in PTX to predict the times of: a copy, a chain of MMAs, a ring of bulk copies, a mixture."""

import numpy as np

from cutepy import load_ptx, simulate

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"

COPY = f"""{HEAD}.visible .entry copy(.param .u64 x, .param .u64 y)
{{
    .reg .b32 %r<4>; .reg .b64 %d<6>; .reg .f32 %f<16>;
    ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;
    mad.wide.u32 %d2, %r0, 16384, 0; mad.wide.u32 %d2, %r1, 16, %d2;
    add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
    ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [%d0];
    ld.global.v4.f32 {{%f4, %f5, %f6, %f7}}, [%d0+4096];
    ld.global.v4.f32 {{%f8, %f9, %f10, %f11}}, [%d0+8192];
    ld.global.v4.f32 {{%f12, %f13, %f14, %f15}}, [%d0+12288];
    st.global.v4.f32 [%d1], {{%f0, %f1, %f2, %f3}};
    st.global.v4.f32 [%d1+4096], {{%f4, %f5, %f6, %f7}};
    st.global.v4.f32 [%d1+8192], {{%f8, %f9, %f10, %f11}};
    st.global.v4.f32 [%d1+12288], {{%f12, %f13, %f14, %f15}};
    ret;
}}
"""
"""Copies 16 KiB with each CTA of 256 threads."""

MIXED = f"""{HEAD}.visible .entry mixed(.param .u64 x, .param .u64 y) .maxntid 128 .reqnctapercluster 2, 1, 1
{{
    .reg .pred %p; .reg .b32 %r<24>; .reg .b64 %d<8>; .reg .f32 %f<12>; .reg .f64 %g<2>; .reg .b16 %h<2>;
    .shared .align 128 .b8 tile[4096]; .shared .align 8 .b64 full; .shared .align 8 .b64 filled;
    ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, tile; mov.u32 %r3, full; mov.u32 %r4, filled;
    mad.wide.u32 %d2, %r1, 2048, %d0; mad.wide.u32 %d2, %r0, 16, %d2;
    setp.ne.u32 %p, %r0, 0; @%p bra READY;
    mbarrier.init.shared.b64 [%r3], 1; mbarrier.init.shared.b64 [%r4], 128;
    fence.mbarrier_init.release.cluster;
READY:
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mad.lo.u32 %r5, %r0, 16, %r2;
    cp.async.cg.shared.global [%r5], [%d2], 16; cp.async.commit_group; cp.async.wait_group 0;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];
FILLED:
    mbarrier.try_wait.parity.shared.b64 %p, [%r4], 0; @!%p bra FILLED;
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r6, %r7, %r8, %r9}}, [%r5];
    mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        {{%f0, %f1, %f2, %f3}}, {{%r6, %r7, %r8, %r9}}, {{%r6, %r7}}, {{%f0, %f1, %f2, %f3}};
    ex2.approx.f32 %f0, %f0; rcp.approx.f32 %f1, %f1; rsqrt.approx.f32 %f2, %f2; lg2.approx.f32 %f3, %f3;
    cvt.f64.f32 %g0, %f0; fma.rn.f64 %g0, %g0, %g0, %g0; cvt.rn.f32.f64 %f0, %g0;
    shfl.sync.bfly.b32 %r10, %r6, 1, 31, -1; popc.b32 %r11, %r10; prmt.b32 %r11, %r11, %r7, 0x5410;
    cvt.rn.bf16x2.f32 %r12, %f0, %f1; cvt.rn.satfinite.e4m3x2.f32 %h0, %f2, %f3;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {{%r12}};
    atom.shared.add.u32 %r13, [%r2+2048], 1; red.global.add.u32 [%d1], %r13;
    setp.ne.u32 %p, %r0, 0; @%p bra SENT;
    mapa.shared::cluster.u32 %r14, %r2, 0; mapa.shared::cluster.u32 %r15, %r3, 0;
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%d1+4096], [%r2], 2048; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
    setp.ne.u32 %p, %r1, 0; @%p bra SENT;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 4;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r14+3072], %r0, [%r15];
SENT:
    fence.acq_rel.gpu;
    barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
    ret;
}}
"""
"""Two CTAs of a cluster have something of each kind: cp.async, bulk copies, MMAs, atomics, fences, both barriers."""

PASSED = f"""{HEAD}.visible .entry passed(.param .u64 y) .maxntid 32 .reqnctapercluster 2, 1, 1
{{
    .reg .pred %p; .reg .b32 %r<10>; .reg .b64 %d<2>; .shared .align 128 .b8 tile[512]; .shared .align 8 .b64 full;
    ld.param.u64 %d0, [y]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; mov.u32 %r3, full;
    setp.ne.u32 %p, %r0, 0; @%p bra READY;
    mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
READY:
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    setp.eq.u32 %p, %r1, 0; @%p bra TAKE;
    mov.u32 %r7, %clusterid.x;
AGAIN:
    st.volatile.shared.u32 [%r2], %r7; sub.u32 %r7, %r7, 1; setp.gt.s32 %p, %r7, 0; @%p bra AGAIN;
    mad.lo.u32 %r4, %r0, 16, %r2; mapa.shared::cluster.u32 %r4, %r4, 0; mapa.shared::cluster.u32 %r5, %r3, 0;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4], {{%r0, %r0, %r0, %r0}}, [%r5];
    bra DONE;
TAKE:
    setp.ne.u32 %p, %r0, 0; @%p bra FULL;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512;
FULL:
    mbarrier.try_wait.parity.shared.b64 %p, [%r3], 0; @!%p bra FULL;
    ld.shared.u32 %r6, [%r2]; st.global.u32 [%d0], %r6;
DONE:
    barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
    ret;
}}
"""
"""One CTA of a cluster stores into the other's by st.async, the later the later the cluster, and that one waits."""

UNEVEN = f"""{HEAD}.visible .entry uneven(.param .u64 y)
{{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<2>; .reg .f32 %f<2>;
    ld.param.u64 %d0, [y]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, 0; mov.f32 %f0, 0f3F800000;
LOOP:
    mad.wide.u32 %d1, %r1, 4, %d0; ld.global.f32 %f1, [%d1]; fma.rn.f32 %f0, %f0, %f1, %f1;
    add.u32 %r1, %r1, 512; setp.lt.u32 %p, %r1, %r0; @%p bra LOOP;
    st.global.f32 [%d0], %f0;
    ret;
}}
"""
"""The later a CTA is in the grid, the longer it runs."""


def chain(columns):
    """Write a kernel of one warpgroup that issues as many m64nNk16 as it is told, and waits for all."""
    sums = ", ".join(f"%f{n}" for n in range(columns // 2))
    mma = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 {{{sums}}}, %d0, %d0, 1, 1, 1, 0, 0;"
    zeros = "\n    ".join(f"mov.f32 %f{n}, 0f00000000;" for n in range(columns // 2))
    kept = "\n    ".join(f"st.global.f32 [%d1+{4 * n}], %f{n};" for n in range(columns // 2))
    return f"""{HEAD}.visible .entry chain(.param .u64 y, .param .u32 count) .maxntid 128
{{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>; .reg .f32 %f<{columns // 2}>;
    .shared .align 1024 .b8 tile[32768];
    ld.param.u64 %d1, [y]; ld.param.u32 %r1, [count]; mov.b64 %d0, 0x4000004000010000;
    {zeros}
    mov.u32 %r0, 0;
    wgmma.fence.sync.aligned;
LOOP:
    {mma}
    {mma}
    {mma}
    {mma}
    add.u32 %r0, %r0, 4; setp.lt.u32 %p, %r0, %r1; @%p bra LOOP;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {kept}
    ret;
}}
"""


def ring(stages, count, size=16384):
    """Write a kernel whose warp 0 loads blocks by bulk copies into a ring, and whose warp 1 releases them."""
    return f"""{HEAD}.visible .entry ring(.param .u64 x) .maxntid 64
{{
    .reg .pred %p; .reg .pred %q; .reg .b32 %r<16>; .reg .b64 %d<4>;
    .shared .align 128 .b8 tile[{stages * size}];
    .shared .align 8 .b64 full[{stages}]; .shared .align 8 .b64 empty[{stages}];
    ld.param.u64 %d0, [x];
    mov.u32 %r9, %ctaid.x; mad.wide.u32 %d0, %r9, {count * size}, %d0;
    mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, full; mov.u32 %r3, empty;
    setp.ne.u32 %p, %r0, 0; @%p bra READY;
    mov.u32 %r4, 0;
INIT:
    mad.lo.u32 %r5, %r4, 8, %r2; mbarrier.init.shared.b64 [%r5], 1;
    mad.lo.u32 %r5, %r4, 8, %r3; mbarrier.init.shared.b64 [%r5], 1;
    add.u32 %r4, %r4, 1; setp.lt.u32 %q, %r4, {stages}; @%q bra INIT;
    fence.proxy.async.shared::cta;
READY:
    bar.sync 0;
    mov.u32 %r4, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
    setp.eq.u32 %p, %r0, 32; @%p bra CONSUME;
    setp.ne.u32 %p, %r0, 0; @%p bra DONE;
PRODUCE:
    mad.lo.u32 %r5, %r6, 8, %r3; xor.b32 %r8, %r7, 1;
FREE:
    mbarrier.try_wait.parity.shared.b64 %q, [%r5], %r8; @!%q bra FREE;
    mad.lo.u32 %r5, %r6, 8, %r2; mbarrier.arrive.expect_tx.shared.b64 _, [%r5], {size};
    mad.lo.u32 %r10, %r6, {size}, %r1;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d0], {size}, [%r5];
    add.u64 %d0, %d0, {size};
    add.u32 %r6, %r6, 1; setp.eq.u32 %q, %r6, {stages}; selp.u32 %r6, 0, %r6, %q;
    selp.u32 %r11, 1, 0, %q; xor.b32 %r7, %r7, %r11;
    add.u32 %r4, %r4, 1; setp.lt.u32 %q, %r4, {count}; @%q bra PRODUCE;
    bra DONE;
CONSUME:
    mad.lo.u32 %r5, %r6, 8, %r2;
FULL:
    mbarrier.try_wait.parity.shared.b64 %q, [%r5], %r7; @!%q bra FULL;
    mad.lo.u32 %r5, %r6, 8, %r3; mbarrier.arrive.shared.b64 _, [%r5];
    add.u32 %r6, %r6, 1; setp.eq.u32 %q, %r6, {stages}; selp.u32 %r6, 0, %r6, %q;
    selp.u32 %r11, 1, 0, %q; xor.b32 %r7, %r7, %r11;
    add.u32 %r4, %r4, 1; setp.lt.u32 %q, %r4, {count}; @%q bra CONSUME;
DONE:
    bar.sync 0;
    ret;
}}
"""


def strided(words, count=64):
    """Write a kernel whose warps load shared memory so often, lanes so many words apart, one load after the other."""
    loads = "\n    ".join("ld.volatile.shared.u32 %r3, [%r1]; add.u32 %r2, %r2, %r3;" for _ in range(count))
    return f"""{HEAD}.visible .entry strided(.param .u64 y)
{{
    .reg .b32 %r<4>; .reg .b64 %d<2>; .shared .align 128 .b8 tile[{128 * words}];
    ld.param.u64 %d0, [y]; mov.u32 %r0, %tid.x; and.b32 %r0, %r0, 31;
    mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, {4 * words}, %r1; mov.u32 %r2, 0;
    {loads}
    st.global.u32 [%d0], %r2;
    ret;
}}
"""


def predicted(text, name, grid, block, *arrays, gpu="h200"):
    """Predict one launch, on a GPU or by a timer."""
    module = load_ptx(text)
    with simulate(time=gpu) as run:
        module.launch(name, grid=grid, block=block, args=arrays)
    return run.predictions[-1]


def zeros(count):
    """Return memory, which is not touched."""
    return np.zeros(count, np.uint8)
