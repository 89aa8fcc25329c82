"""The orders in which ptxas takes modifiers: each line was assembled for sm_90a by ptxas 13.0, without an error."""

from pathlib import Path

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim.ptx.spelling import usual

# The order of the ISA's syntax, and others; tcgen05 is assembled for sm_100a.
_TAKEN = """
tcgen05.cp.cta_group::1.32x128b.warpx4: tcgen05.cp.cta_group::1.warpx4.32x128b tcgen05.cp.32x128b.cta_group::1.warpx4
tcgen05.cp.cta_group::1.64x128b.warpx2::02_13: tcgen05.cp.cta_group::1.warpx2::02_13.64x128b
tcgen05.ld.sync.aligned.32x32b.x1.b32: tcgen05.ld.32x32b.sync.aligned.x1.b32
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64: \
  tcgen05.commit.mbarrier::arrive::one.cta_group::1.shared::cluster.b64
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32: tcgen05.alloc.sync.aligned.cta_group::1.shared::cta.b32
tcgen05.mma.cta_group::1.kind::f16: tcgen05.mma.kind::f16.cta_group::1
vote.sync.ballot.b32: vote.b32.sync.ballot vote.ballot.sync.b32 vote.b32.ballot.sync
shfl.sync.idx.b32: shfl.idx.sync.b32 shfl.sync.b32.idx shfl.b32.idx.sync
match.any.sync.b32: match.any.b32.sync match.sync.b32.any match.sync.any.b32
redux.sync.add.u32: redux.u32.add.sync redux.sync.u32.add redux.add.sync.u32
barrier.sync.aligned: barrier.aligned.sync
barrier.cta.red.and.aligned.pred: barrier.cta.red.aligned.pred.and barrier.cta.red.pred.and.aligned
setmaxnreg.inc.sync.aligned.u32: setmaxnreg.inc.aligned.sync.u32 setmaxnreg.inc.u32.sync.aligned
fma.rn.ftz.sat.f32: fma.f32.ftz.rn.sat fma.sat.ftz.rn.f32 fma.ftz.rn.f32.sat
mad.hi.sat.s32: mad.hi.s32.sat
mad.lo.cc.u32: mad.lo.u32.cc
min.ftz.NaN.xorsign.abs.f32: min.abs.NaN.f32.ftz.xorsign min.NaN.xorsign.f32.ftz.abs
div.approx.ftz.f32: div.f32.ftz.approx div.ftz.f32.approx div.approx.f32.ftz
set.eq.and.ftz.u32.f32: set.u32.ftz.and.f32.eq set.u32.and.f32.ftz.eq set.eq.u32.ftz.and.f32
setp.lt.or.ftz.f32: setp.or.lt.f32.ftz setp.lt.f32.ftz.or setp.lt.or.f32.ftz
cvt.rn.satfinite.relu.e4m3x2.f32: cvt.e4m3x2.rn.relu.satfinite.f32 cvt.relu.rn.e4m3x2.f32.satfinite
cvt.rzi.ftz.sat.s32.f32: cvt.rzi.s32.ftz.sat.f32 cvt.ftz.s32.rzi.f32.sat
cvt.pack.sat.s8.s32.b32: cvt.pack.s8.sat.s32.b32 cvt.pack.s8.s32.b32.sat
prmt.b32.f4e: prmt.f4e.b32
shf.l.wrap.b32: shf.l.b32.wrap
lop3.or.b32: lop3.b32.or
bfind.shiftamt.u32: bfind.u32.shiftamt
testp.finite.f32: testp.f32.finite
slct.ftz.u32.f32: slct.u32.f32.ftz slct.u32.ftz.f32
ld.global.nc.L1::no_allocate.L2::cache_hint.v2.u32: ld.L2::cache_hint.v2.u32.nc.L1::no_allocate.global
ld.volatile.shared::cta.v2.u32: ld.shared::cta.u32.volatile.v2 ld.v2.u32.shared::cta.volatile
ld.mmio.relaxed.sys.global.u32: ld.sys.mmio.relaxed.u32.global ld.relaxed.u32.global.sys.mmio
st.release.cluster.shared::cluster.u32: st.u32.cluster.release.shared::cluster
atom.acq_rel.gpu.global.cas.b32: atom.global.gpu.acq_rel.b32.cas atom.b32.gpu.cas.acq_rel.global
red.relaxed.gpu.global.add.noftz.bf16x2: red.relaxed.gpu.noftz.add.bf16x2.global red.bf16x2.noftz.global.gpu.add.relaxed
red.global.add.v2.f32: red.global.v2.f32.add red.v2.global.f32.add
fence.proxy.tensormap::generic.acquire.gpu: fence.proxy.gpu.tensormap::generic.acquire
fence.acquire.sync_restrict::shared::cluster.cluster: fence.sync_restrict::shared::cluster.acquire.cluster
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster: \
  fence.proxy.cluster.async::generic.sync_restrict::shared::cta.release
fence.mbarrier_init.release.cluster: fence.release.mbarrier_init.cluster
prefetch.global.L2: prefetch.L2.global
cvta.to.global.u64: cvta.to.u64.global
mapa.shared::cluster.u32: mapa.u32.shared::cluster
cp.async.cg.shared.global.L2::128B: cp.async.shared.L2::128B.global.cg cp.async.L2::128B.cg.shared.global
cp.async.mbarrier.arrive.noinc.shared::cta.b64: cp.async.mbarrier.arrive.b64.shared::cta.noinc
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes: \
  cp.async.bulk.mbarrier::complete_tx::bytes.shared::cluster.global
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16: \
  cp.reduce.async.bulk.global.f16.shared::cta.bulk_group.add.noftz
cp.async.bulk.prefetch.L2.global: cp.async.bulk.prefetch.global.L2
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group: \
  cp.async.bulk.tensor.2d.bulk_group.global.shared::cta.tile cp.async.bulk.tensor.2d.tile.global.shared::cta.bulk_group
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group: \
  cp.reduce.async.bulk.tensor.2d.add.global.shared::cta.tile.bulk_group
cp.async.bulk.prefetch.tensor.2d.L2.global.tile: cp.async.bulk.prefetch.tensor.L2.global.2d.tile
st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32: \
  st.async.u32.weak.mbarrier::complete_tx::bytes.shared::cluster
mbarrier.arrive.noComplete.release.cta.shared::cta.b64: mbarrier.arrive.release.shared::cta.noComplete.cta.b64
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64: mbarrier.try_wait.parity.b64.shared::cta.cluster.acquire
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16: ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16
movmatrix.sync.aligned.m8n8.trans.b16: movmatrix.aligned.b16.m8n8.sync.trans
mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32: \
  mma.sync.s32.aligned.m16n8k32.row.col.satfinite.s8.u8.s32
mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: mma.row.sp.sync.aligned.m16n8k16.col.f32.f16.f16.f32
wgmma.wait_group.sync.aligned: wgmma.wait_group.aligned.sync
tensormap.replace.tile.global_dim.shared::cta.b1024.b32: \
  tensormap.replace.b32.tile.b1024.shared::cta.global_dim
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned: \
  tensormap.cp_fenceproxy.sync.global.shared::cta.tensormap::generic.release.gpu.aligned
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64: \
  createpolicy.fractional.b64.L2::evict_last.L2::evict_unchanged
"""
_LINES = [line.split(": ") for line in _TAKEN.strip().replace("\\\n", "").splitlines()]


@pytest.mark.parametrize(("expected", "others"), _LINES, ids=[line[0] for line in _LINES])
def test_orders_that_ptxas_takes(expected, others):
    assert {usual(other) for other in others.split()} == {expected} == {usual(expected)}


def test_what_compilers_write_stays():
    for line in Path(__file__).parents[1].joinpath("ptx_opcodes.txt").read_text().splitlines()[3:]:
        opcode = line.split()[-1]
        assert usual(opcode) == opcode


def test_modifiers_of_one_kind_keep_their_order():
    assert usual("dp4a.s32.u32") != usual("dp4a.u32.s32")
    assert usual("cvt.f16.rn.f32") != usual("cvt.f32.rn.f16")
    assert usual("cp.async.bulk.shared::cta.bulk_group.global") != usual("cp.async.bulk.global.bulk_group.shared::cta")


def test_a_modifier_that_is_not_known_leaves_all_as_they_are():
    assert usual("add.f32.unheard.rn") == "add.f32.unheard.rn"


def test_kernels_may_use_any_order():
    module = load_ptx(""".version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) { .reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p; ld.u64.param %d0, [out];
    mov.u32 %r0, %tid.x; setp.u32.lt %p, %r0, 9; vote.ballot.sync.b32 %r1, %p, 0xffffffff; shfl.b32.idx.sync %r2, %r0,
    3, 31, 0xffffffff; add.u32 %r1, %r1, %r2; barrier.cta.red.popc.aligned.u32 %r3, 0, %p; add.s32 %r1, %r1, %r3;
    mad.wide.u32 %d1, %r0, 4, %d0; st.u32.global [%d1], %r1; ret; }""")
    out = np.zeros(32, np.uint32)
    module.launch("k", 1, 32, (out,))
    assert set(out) == {0x1FF + 3 + 9}
