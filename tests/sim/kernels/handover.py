"""A kernel in which one warp hands data over to another, inspected: what saved runs are made of."""

from .launching import launch

HANDOVER = """
mov.u32 %r0, smem;
mov.u32 %r1, %tid.x;
add.u32 %r10, %r0, 1024;
.loc 1 5 0
setp.ne.u32 %p0, %r1, 0;
@%p0 bra MADE;
mbarrier.init.shared.b64 [%r10], 1;
MADE:
bar.sync 0;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra CONSUMER;
.loc 1 20 0
shl.b32 %r2, %r1, 2;
add.u32 %r2, %r2, %r0;
st.shared.u32 [%r2], %r1;
bar.warp.sync 0xffffffff;
@%p0 bra END;
.loc 1 24 0
mbarrier.arrive.shared.b64 _, [%r10];
bra END;
CONSUMER:
.loc 1 30 0
mbarrier.try_wait.parity.shared.b64 %p2, [%r10], 0;
@!%p2 bra CONSUMER;
sub.u32 %r3, %r1, 32;
shl.b32 %r2, %r3, 2;
add.u32 %r2, %r2, %r0;
ld.shared.u32 %r4, [%r2];
shl.b32 %r4, %r4, 1;
.loc 1 36 0
st.shared.u32 [%r2+256], %r4;
END:
"""
"""Warp 0 stores a word for each lane, and arrives; warp 1 waits, and doubles them 256 bytes further."""


def handed_over():
    """Run it in two CTAs of two warps."""
    return launch(HANDOVER, block=(64, 1, 1), grid=(2, 1, 1), smem=2048, inspect=True)
