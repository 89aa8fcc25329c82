"""Shared addresses in clusters: in code for sm_100 they have the rank of their CTA, in code for sm_90 they do not."""

import numpy as np
import pytest

from cutepy import load_ptx, simulate
from cutepy.sim.errors import MemoryAccessError
from tests.messages import refuses

KERNEL = """.version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .b32 %r<12>; .reg .b64 %d<8>; .reg .pred %p<2>; .shared .align 16 .b8 before[48]; .shared .align 16 .b8 s[128];
ld.param.u64 %d0, [out]; cvta.to.global.u64 %d0, %d0;
mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r9, %ctaid.x;
and.b32 %r3, %r2, 0xFEFFFFFF;
mad.lo.u32 %r4, %r0, 4, {named};
add.u32 %r5, %r9, 100;
setp.eq.u32 %p0, %r1, 0;
@%p0 st.shared::cluster.u32 [%r4], %r5;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
shl.b32 %r6, %r1, 2; add.u32 %r7, %r2, %r6; ld.shared.u32 %r8, [%r7];
mad.lo.u32 %r10, %r9, 2, %r1; mul.wide.u32 %d1, %r10, 4; add.u64 %d2, %d0, %d1;
setp.lt.u32 %p1, %r1, 2;
@%p1 st.global.u32 [%d2], %r8;
mapa.shared::cluster.u32 %r11, %r2, %r0; setp.eq.u32 %p0, %r11, %r2;
@%p0 st.global.u32 [%d0+64], %r1;
ret; }}
"""
NATIVE = {"numpy": "inspect", "native": ""}


def run(named, target, native):
    out = np.full(32, 7, np.uint32)
    with simulate(**({"inspect": True} if native == "numpy" else {})):
        load_ptx(KERNEL.format(named=named, target=target)).launch("k", 4, 32, [out], cluster=2)
    return out


@pytest.mark.parametrize("native", NATIVE)
def test_code_for_sm_100_names_the_even_cta_of_a_pair_by_clearing_a_bit_of_its_own_address(native):
    out = run("%r3", "sm_100a", native)
    assert out[[0, 1, 4, 5]].tolist() == [100, 101, 102, 103]


@pytest.mark.parametrize("native", NATIVE)
def test_own_addresses_of_sm_100_are_those_that_mapa_gives(native):
    out = run("%r2", "sm_100a", native)
    assert out[[0, 3, 4, 7]].tolist() == [100, 101, 102, 103]
    assert out[16] < 32


@pytest.mark.parametrize("native", NATIVE)
def test_own_addresses_of_sm_90_are_the_same_in_all_ctas(native):
    out = run("%r3", "sm_90a", native)
    assert out[[0, 3, 4, 7]].tolist() == [100, 101, 102, 103]


def test_a_rank_that_the_cluster_lacks_is_refused():
    text = KERNEL.format(named="%r2", target="sm_100a").replace(
        "0xFEFFFFFF;", "0xFEFFFFFF; or.b32 %r2, %r2, 0x05000000;"
    )
    with refuses(MemoryAccessError), simulate():
        load_ptx(text).launch("k", 4, 32, [np.zeros(32, np.uint32)], cluster=2)
