"""The version of the PTX ISA and the target that each instruction and modifier needs.

References
----------
PTX ISA, "Instruction Set": "PTX ISA Notes" and "Target ISA Notes" of each instruction; what ptxas 13.0 says of opcodes
in modules of older versions and targets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from cutepy.sim.ptx.header import Version, generation, shortfall

_TABLE = """
3.0 sm_30: vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4
3.0 sm_20: mad.cc madc pmevent.mask %pm4 %pm5 %pm6 %pm7
3.1 sm_20: cvta.const isspacep.const
3.1 sm_30: %globaltimer %globaltimer_lo %globaltimer_hi
3.1 sm_32: ld.nc atom.and.b64 atom.or.b64 atom.xor.b64 atom.min.u64 atom.min.s64 atom.max.u64 atom.max.s64
3.1 sm_32: red.and.b64 red.or.b64 red.xor.b64 red.min.u64 red.min.s64 red.max.u64 red.max.s64 shf
4.0 sm_20: rsqrt.ftz.f64
4.0 sm_50: %pm0_64 %pm1_64 %pm2_64 %pm3_64 %pm4_64 %pm5_64 %pm6_64 %pm7_64
4.2 sm_20: %dynamic_smem_size %total_smem_size
4.3 sm_20: *.cc.u64 *.cc.s64
4.3 sm_50: lop3
4.2 sm_53: add.f16 sub.f16 mul.f16 fma.f16 setp.f16 add.f16x2 sub.f16x2 mul.f16x2 fma.f16x2 setp.f16x2
4.2 sm_53: set.f16 set.f16x2
5.0 sm_20: %clock_hi
5.0 sm_61: dp2a dp4a
5.0 sm_60: atom.add.f64 red.add.f64 atom.cta atom.gpu atom.sys red.cta red.gpu red.sys
6.0 sm_30: barrier bar.warp fns shfl.sync vote.sync brx.idx
6.0 sm_70: fence ld.relaxed ld.acquire st.relaxed st.release atom.relaxed atom.acquire atom.release atom.acq_rel
6.0 sm_70: red.relaxed red.release match wmma *.weak
6.0 sm_53: neg.f16 neg.f16x2
6.2 sm_60: red.add.f16x2 atom.add.f16x2
6.2 sm_30: activemask
7.3 sm_52: alloca stacksave stackrestore
6.2 sm_70: nanosleep
6.3 sm_70: red.add.f16 atom.add.f16 atom.cas.b16
6.3 sm_70: wmma.aligned
6.3 sm_72: wmma.s8 wmma.u8 wmma.s32
6.3 sm_75: wmma.s4 wmma.u4 wmma.b1 wmma.m8n8k32 wmma.m8n8k128
6.4 sm_70: mma
7.0 sm_80: wmma.bf16 wmma.f64 wmma.m16n16k8
7.1 sm_80: wmma.and
6.5 sm_53: set.u16.f16 set.s16.f16 set.u32.f16 set.s32.f16 set.u32.f16x2 set.s32.f16x2 abs.f16 abs.f16x2
6.5 sm_72: cvt.pack
6.5 sm_75: cvt.pack.u4 cvt.pack.s4 cvt.pack.u2 cvt.pack.s2
6.5 sm_75: ldmatrix mma.m16n8k8 mma.m8n8k16 mma.m8n8k32
7.0 sm_75: tanh ex2.f16 ex2.f16x2
7.0 sm_80: mbarrier cp.async redux min.f16 max.f16 min.f16x2 max.f16x2 min.bf16 max.bf16 min.bf16x2 max.bf16x2 fma.bf16
7.0 sm_80: fma.bf16x2 abs.bf16 abs.bf16x2 neg.bf16 neg.bf16x2 *.tf32 cvt.bf16.f32 cvt.bf16x2.f32 cvt.f16x2.f32 *.relu
7.0 sm_80: mma.m16n8k16 mma.m16n8k32 mma.m16n8k64 mma.m16n8k256 mma.m16n8k4 mma.bf16 mma.m8n8k4.f64 min.NaN max.NaN
7.0 sm_75: mma.m8n8k128
7.0 sm_80: mma.m16n8k128
7.1 sm_80: cvt.f32.bf16 mbarrier.test_wait.parity mma.sp mma.b1.and mbarrier.arrive._ mbarrier.arrive_drop._
7.2 sm_86: *.xorsign
7.4 sm_70: *.L1::no_allocate *.L1::evict_last *.L1::evict_first *.L1::evict_normal *.L1::evict_unchanged
7.4 sm_75: *.L2::64B *.L2::128B
7.4 sm_80: *.L2::cache_hint *.L2::256B createpolicy applypriority discard
7.4 sm_80: prefetch.L2::evict_last prefetch.L2::evict_normal
7.5 sm_60: fence.proxy membar.proxy
7.6 sm_70: szext bmsk
7.6 sm_80: %reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap %reserved_smem_offset_0
7.6 sm_80: %reserved_smem_offset_1
7.7 sm_70: cvta.param isspacep.param
7.8 sm_20: barrier.cta bar.cta *.shared::cta
7.8 sm_75: movmatrix
8.1 sm_89, 7.8 sm_90: cvt.e4m3x2 cvt.e5m2x2
7.8 sm_90: mapa getctarank barrier.cluster griddepcontrol stmatrix mbarrier.try_wait *.cluster *.shared::cluster
7.8 sm_90: add.bf16 sub.bf16 mul.bf16 add.bf16x2 sub.bf16x2 mul.bf16x2 setp.bf16 setp.bf16x2 set.bf16 set.bf16x2
7.8 sm_90: tanh.bf16 tanh.bf16x2 ex2.bf16 ex2.bf16x2 atom.add.bf16 atom.add.bf16x2 red.add.bf16 red.add.bf16x2
7.8 sm_90: mbarrier.arrive.count mbarrier.arrive_drop.count cvt.bf16.bf16 cvt.ftz.f32.bf16
7.8 sm_90: %clusterid %nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank
7.8 sm_90: %is_explicit_cluster cvt.rn.tf32 cvt.rz.tf32 cvt.bf16.f16 cvt.f16.bf16 cvt.f64.bf16 cvt.bf16.f64
7.8 sm_90: cvt.bf16.u16 cvt.bf16.s16 cvt.bf16.u32 cvt.bf16.s32 cvt.bf16.u64 cvt.bf16.s64
7.8 sm_90: cvt.u16.bf16 cvt.s16.bf16 cvt.u32.bf16 cvt.s32.bf16 cvt.u64.bf16 cvt.s64.bf16
7.8 sm_90: mma.m16n8k4.f64 mma.m16n8k8.f64 mma.m16n8k16.f64
8.0 sm_90: cp.async.bulk cp.reduce.async.bulk elect mbarrier.expect_tx mbarrier.complete_tx fence.proxy.async
8.0 sm_90: fence.mbarrier_init prefetch.tensormap
8.0 sm_90: barrier.cluster.relaxed barrier.cluster.release barrier.cluster.acquire
8.0 sm_50: %current_graph_exec
8.0 sm_80: mbarrier.release mbarrier.acquire
8.0 sm_90: mbarrier.relaxed add.u16x2 add.s16x2 min.u16x2 max.u16x2 min.s16x2 max.s16x2 min.relu.s32
8.0 sm_90: max.relu.s32
8.0 sm_90a: wgmma setmaxnreg
8.1 sm_90: st.async red.async *.oob atom.v2 atom.v4 atom.v8 red.v2 red.v4 red.v8 red.min.f16 red.max.f16 red.min.bf16
8.1 sm_90: red.max.bf16 atom.min.f16 atom.max.f16 atom.min.bf16 atom.max.bf16 multimem
8.1 sm_70: cvt.satfinite.f16.f32
8.1 sm_80: cvt.satfinite.bf16.f32 cvt.satfinite.bf16x2.f32 cvt.satfinite.f16x2.f32 cvt.satfinite.tf32.f32
8.1 sm_90: %aggr_smem_size
8.2 sm_90a: wgmma.sp
8.2 sm_70: lop3.and lop3.or ld.mmio st.mmio
8.2 sm_90: multimem.acc::f32
8.3 sm_20: *.param::func
8.3 sm_70: ld.b128 ldu.b128 st.b128 mov.b128 *.param::entry
8.3 sm_90: atom.b128 fence.proxy.tensormap::generic tensormap.cp_fenceproxy
8.3 sm_90a: tensormap.replace
8.4 sm_90a: wgmma.s8.u8 wgmma.u8.s8
8.4 sm_89: mma.e4m3 mma.e5m2
8.5 sm_80: mma.sp::ordered_metadata
8.6 sm_90: mbarrier.arrive.relaxed mbarrier.arrive_drop.relaxed mbarrier.test_wait.relaxed mbarrier.try_wait.relaxed
8.6 sm_90: cp.async.bulk.shared::cta.global *.sync_restrict::shared::cluster
8.6 sm_90: *.sync_restrict::shared::cta
8.7 sm_89: mma.m16n8k16.e4m3 mma.m16n8k16.e5m2 mma.f16.e4m3 mma.f16.e5m2
"""
"""By a version and a target the instructions and special registers that need these: an opcode that begins with the
first part and has the others, in any place and in this order; ``*`` is any instruction. `used` writes operands as parts
of the opcode."""


class _Feature(NamedTuple):
    needs: tuple[Version, str]
    earlier: tuple[Version, str]
    first: str
    parts: tuple[str, ...]


def _read() -> list[_Feature]:
    found = []
    for line in _TABLE.strip().split("\n"):
        needs, names = line.split(": ", 1)
        pairs = [_pair(*one.split()) for one in needs.split(", ")]
        for name in names.split():
            first, *parts = name.split(".")
            found.append(_Feature(pairs[0], pairs[-1], first, tuple(parts)))
    return found


def _pair(version: str, target: str) -> tuple[Version, str]:
    major, minor = map(int, version.split("."))
    return (major, minor), target


_FEATURES = _read()


@lru_cache(maxsize=4096)
def needs(opcode: str, of: Version | None = None) -> tuple[Version, str]:
    """Return the version and the target that an opcode needs in modules of a version, "" where any target will do.

    Examples
    --------
    >>> needs("wgmma.fence.sync.aligned"), needs("add.u32"), needs("cvt.rn.bf16.f32")
    (((8, 0), 'sm_90a'), ((1, 0), ''), ((7, 0), 'sm_80'))
    """
    first, *parts = opcode.split(".")
    version, target = (1, 0), ""
    for feature in _FEATURES:
        if feature.first in ("*", first) and _has(parts, feature.parts):
            least, gpu = feature.needs if of is None or of >= feature.needs[0] else feature.earlier
            version = max(version, least)
            target = max(target, gpu, key=generation)
    return version, target


def used(opcode: str, operands: str) -> str:
    """Return an opcode with parts for operands that newer versions brought: ``_`` for a result, and counts.

    Examples
    --------
    >>> used("mbarrier.arrive.b64", "_, [%r1], 2"), used("add.u32", "%r1, %r2, 3")
    ('mbarrier.arrive.b64._.count', 'add.u32')
    """
    if not opcode.startswith("mbarrier.arrive"):
        return opcode
    is_counted = operands.count(",") > 1 and not {"expect_tx", "noComplete"}.intersection(opcode.split("."))
    return opcode + "._" * operands.lstrip().startswith("_") + ".count" * is_counted


def _has(parts: list[str], wanted: tuple[str, ...]) -> bool:
    rest = iter(parts)
    return all(one in rest for one in wanted)


def _plain(opcode: str) -> str:
    return opcode.removesuffix(".count").removesuffix("._")


@lru_cache(maxsize=1 << 14)
def lacking(opcode: str, version: Version | None, target: str) -> str:
    """Return what an opcode needs that the version or the target of a module does not have; nothing if it has all.

    Parameters
    ----------
    opcode : str
    version : tuple of (int, int) or None
        None where the module names none.
    target : str
        Empty where it names none; newer ones than are simulated have all.

    Examples
    --------
    >>> lacking("mapa.u64", (8, 0), "sm_80")
    'mapa.u64 needs .target sm_90 or later, got sm_80'
    """
    return shortfall(_plain(opcode), *needs(opcode, version), version, target)
