"""Numbers that operands may be, of an opcode for each limit: the least and the greatest are taken, the next are not."""

from cutepy.sim.ptx import immediates
from tests.messages import pins

OPCODES = """
    bfe.u32 bfi.b32 bar.sync barrier.cta.arrive bar.red.popc.u32 barrier.cta.red.and.pred
    mbarrier.arrive.shared.b64 mbarrier.arrive_drop.shared.b64 mbarrier.arrive.expect_tx.shared.b64
    mbarrier.try_wait.parity.shared.b64 cp.async.ca.shared.global cp.async.cg.shared.global
    cp.async.bulk.prefetch.L2.global cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 cp.async.wait_group cp.async.bulk.wait_group.read
    wgmma.wait_group.sync.aligned wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16
    wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8
    wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3
    setmaxnreg.inc.sync.aligned.u32 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 st.bulk.weak.shared::cta applypriority.global.L2::evict_normal
    discard.global.L2 fence.proxy.tensormap::generic.acquire.gpu
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    tensormap.replace.tile.box_dim.global.b1024.b32 tensormap.replace.tile.global_dim.global.b1024.b32
    tensormap.replace.tile.global_stride.global.b1024.b64 tensormap.replace.tile.element_stride.global.b1024.b32
    tensormap.replace.tile.elemtype.global.b1024.b32 tensormap.replace.tile.swizzle_mode.global.b1024.b32
    tensormap.replace.tile.swizzle_atomicity.global.b1024.b32
    tensormap.replace.tile.interleave_layout.global.b1024.b32 tensormap.replace.tile.fill_mode.global.b1024.b32
    pmevent pmevent.mask createpolicy.range.global.L2::evict_last.b64 createpolicy.fractional.L2::evict_last.b64
    alloca.u64 mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
    mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32
    mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32 mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
""".split()
PROBES = sorted({k * n + d for n in (1 << p for p in range(65)) for k in (1, 3) for d in (-1, 0, 1)} | {-8, -1, 248})
FRACTIONS = (0.0, 2.0**-151, 2.0**-150, 2.0**-149, 0.5, 1.0, 1 + 2.0**-24, 1 + 2.0**-23)


def test_every_limit_has_an_opcode_here():
    told = {limit for opcode in OPCODES for limit in immediates.limits(opcode)}
    assert not [limit for limit in immediates._LIMITS if limit not in told]


def test_numbers_that_operands_may_be():
    lines = []
    for opcode in OPCODES:
        for limit in immediates.limits(opcode):
            probes = FRACTIONS if opcode.startswith("createpolicy.frac") else PROBES
            taken = [probe for probe in probes if probe in limit.values]
            shown = taken if len(taken) <= 12 else [*taken[:6], "...", *taken[-4:]]
            how = f"{' constant' * limit.is_constant} of {limit.bits} bits"
            lines.append(f"{opcode} {limit.place}: {limit.said},{how}: {len(taken)}: {', '.join(map(str, shown))}")
    pins("\n".join(lines))
