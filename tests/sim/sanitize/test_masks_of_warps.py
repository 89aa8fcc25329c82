"""bar.warp.sync orders the lanes of its mask, and no others, though other lanes of the warp execute it with them."""

import numpy as np
import pytest

import cutepy

TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 y)
{{
.reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[256];
ld.param.u64 %rd0, [y]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;
mov.u32 %r8, %ctaid.x; st.shared.u32 [%r3], %r0;
{sync}
xor.b32 %r4, %r1, {across}; add.u32 %r4, %r4, %r2; ld.shared.u32 %r5, [%r4];
setp.eq.u32 %p2, %r8, 0; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd1, %rd0; @%p2 st.global.u32 [%rd1], %r5;
ret;
}}
"""
BY_EIGHT = "and.b32 %r6, %r0, 24; mov.u32 %r7, 255; shl.b32 %r7, %r7, %r6; bar.warp.sync %r7;"
"""Tiles of 8 lanes, as `cooperative_groups::tiled_partition<8>` has them."""
BY_PARITY = "and.b32 %r6, %r0, 1; mov.u32 %r7, 0x55555555; shl.b32 %r7, %r7, %r6; bar.warp.sync %r7;"
WHOLE_IN_THE_SECOND = BY_EIGHT.replace("bar", "setp.eq.u32 %p1, %r8, 1; @%p1 mov.u32 %r7, 0xffffffff; bar")
BRANCHES = """and.b32 %r6, %r0, 16; setp.eq.u32 %p1, %r6, 0; @%p1 bra A; bar.warp.sync 0xffff0000; bra B;
A: bar.warp.sync 0x0000ffff;
B:"""


@pytest.mark.parametrize(
    ("sync", "lanes", "is_right"),
    [
        (BY_EIGHT, 1, True),
        (BY_EIGHT, 4, True),
        (BY_EIGHT, 8, False),
        (BY_EIGHT, 16, False),
        (BY_PARITY, 2, True),
        (BY_PARITY, 16, True),
        (BY_PARITY, 1, False),
        (BRANCHES, 8, True),
        (BRANCHES, 16, False),
        ("bar.warp.sync 0xffffffff;", 16, True),
        ("mov.u32 %r7, 0xffffffff; bar.warp.sync %r7;", 16, True),
        ("bar.warp.sync 0xffffffff;", 32, False),
        (WHOLE_IN_THE_SECOND, 4, True),
        (WHOLE_IN_THE_SECOND, 8, False),
    ],
)
def test_lanes_of_other_masks_are_not_ordered(sync, lanes, is_right):
    with cutepy.simulate() as plain:
        module = cutepy.load_ptx(TEXT.format(sync=sync, across=4 * lanes))
        found = np.zeros(64, np.uint32)
        module.launch("k", 2, 64, [found])
    assert not plain.hazards
    assert found.tolist() == [lane ^ lanes for lane in range(64)]
    run = sanitized(module)
    assert {hazard.kind for hazard in run.hazards} == (set() if is_right else {"unordered-read"})
    assert run.certificates[0].is_certified == is_right


def sanitized(module, grid=2, block=64):
    try:
        with cutepy.simulate(sanitize=True) as run:
            module.launch("k", grid, block, [np.zeros(64, np.uint32)] * (grid > 1))
    except cutepy.sim.HazardError:
        pass
    return run


def test_only_the_cta_whose_masks_are_parts_of_a_warp_is_told_of():
    run = sanitized(cutepy.load_ptx(TEXT.format(sync=WHOLE_IN_THE_SECOND, across=32)))
    assert {hazard.after.cta[0] for hazard in run.hazards} == {0}


WAITS = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{{
.reg .pred %p<4>; .reg .b32 %r<12>; .shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x; mov.u32 %r1, bar; setp.eq.u32 %p0, %r0, 0; setp.lt.u32 %p1, %r0, 16;
@%p0 mbarrier.init.shared.b64 [%r1], 1; bar.warp.sync -1; @%p0 mbarrier.arrive.shared.b64 _, [%r1];
@%p1 bra MEET;
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
MEET: and.b32 %r6, %r0, 16; mov.u32 %r7, {mask}; shl.b32 %r7, %r7, {by};
{meet}
@%p0 mbarrier.inval.shared.b64 [%r1];
ret;
}}
"""


@pytest.mark.parametrize("meet", ["bar.warp.sync %r7;", "shfl.sync.bfly.b32 %r8, %r0, 1, 31, %r7;"])
@pytest.mark.parametrize(("mask", "by", "is_right"), [("0xffff", "%r6", False), ("0xffffffff", "0", True)])
def test_waits_of_lanes_of_another_mask_are_not_known_to_be_over(meet, mask, by, is_right):
    run = sanitized(cutepy.load_ptx(WAITS.format(mask=mask, by=by, meet=meet)), 1, 32)
    assert bool(run.hazards) != is_right
