"""Tiles that TMA writes through one swizzle, and MMAs read through another: told wherever values are wrong."""

import numpy as np
import pytest

import cutepy
from cutepy.layouts.sm90 import TensorMap
from cutepy.runtime.tensor_maps import to_bytes
from cutepy.sim import HazardError

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry kernel(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 c)
{{
.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.u32 %r2, %r1, 16384; add.u32 %r3, %r1, 8192; mov.u32 %r4, 0;
setp.eq.u32 %p1, %r0, 0; ld.param.u64 %rd1, [c]; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd1, %rd1, %rd2;
mov.b64 %rd3, a; mov.b64 %rd4, b; mov.b64 %rd5, {a}; mov.b64 %rd6, {b};
@%p1 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {size};
@%p1 {copy} [%r1], [%rd3, {{%r4, %r4}}], [%r2];
@%p1 {copy} [%r3], [%rd4, {{%r4, %r4}}], [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %rd5, %rd6, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
st.global.v4.f32 [%rd1], {{%f0, %f1, %f2, %f3}};
ret;
}}
"""
COPY = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
LAYOUT_TYPES, WIDTHS = {"SW128": 1, "SW64": 2, "SW32": 3}, {"SW128": 64, "SW64": 32, "SW32": 16}


def multiply(wrote, read, stride):
    """Return whether sums are right, and the kinds of hazards."""
    rng, width = np.random.default_rng(0), WIDTHS[wrote]
    a, b = (rng.integers(-4, 5, (rows, 64)).astype(np.float16) for rows in (64, 8))
    maps = [
        to_bytes(TensorMap("f16", (64, len(x)), (128,), (width, len(x)), global_address=x.ctypes.data, swizzle=wrote))
        for x in (a, b)
    ]
    words = (start >> 4 | 1 << 16 | stride >> 4 << 32 | LAYOUT_TYPES[read] << 62 for start in (0, 8192))
    out = np.zeros((128, 4), np.float32)
    text = TEXT.format(copy=COPY, size=2 * width * 72, **{n: f"{word:#x}" for n, word in zip("ab", words, strict=True)})
    try:
        with cutepy.simulate(sanitize=True) as run:
            cutepy.load_ptx(text).launch("kernel", 1, 128, [*maps, out], smem=32768, known=(a, b))
    except HazardError:
        pass
    sums = a[:, :16].astype(np.float32) @ b[:, :16].astype(np.float32).T
    thread = np.arange(128)
    is_right = np.array_equal(out[:, 0], sums[thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2])
    return is_right, {hazard.kind for hazard in run.hazards}


@pytest.mark.parametrize(
    ("wrote", "read", "stride"),
    [
        *((wrote, read, 16 * WIDTHS[wrote]) for wrote in LAYOUT_TYPES for read in LAYOUT_TYPES),
        ("SW128", "SW128", 512),
        ("SW64", "SW32", 256),
        ("SW32", "SW32", 1024),
    ],
)
def test_another_swizzle_is_told_at_each_stride(wrote, read, stride):
    """Of the narrower one the rows lie where those of the wider one do, where the stride is that one's."""
    is_right, kinds = multiply(wrote, read, stride)
    assert is_right == (wrote == read and stride == 16 * WIDTHS[wrote])
    assert is_right == (not kinds)
    assert wrote == read or "layout-mismatch" in kinds
