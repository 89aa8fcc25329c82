"""Small texts as ptxas 13.0 takes or refuses them for sm_90a: each is a module, or an error with its place."""

import time

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim.errors import LaunchError
from cutepy.sim.ptx import heads
from cutepy.sim.ptx.features import needs
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
ENTRY = ".visible .entry k() { ret; }\n"
REGISTERS = """.reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<4>; .reg .f64 %g<4>; .reg .pred %p<4>;
.reg .u32 %u<4>; .reg .u64 %ud<4>; .reg .b128 %q<4>; .param .u32 pr, pa; .param .u64 pb; .param .align 8 .b8 pc[16];
.param .align 8 .b8 pd[8]; .param .f32 pf; .param .s32 ps; .param .b32 pq;"""
WMMA = {"f16": 4 * ("%r0",), "ab": 8 * ("%r1",), "f32": 8 * ("%f0",)}
WMMA = {kind: f"{{{', '.join(registers)}}}" for kind, registers in WMMA.items()}
"""Registers of matrices: of d or c by their type, and of a or b."""
OLD_REGISTERS = REGISTERS.replace(".reg .b128 %q<4>;", "")
OUTSIDE = """.global .align 64 .u32 g[32]; .shared .align 128 .b8 s[1024]; .const .align 64 .b8 c[128];
.func (.param .u32 r) f(.param .u32 a, .param .u64 b) { st.param.u32 [r], 1; ret; }
.func h(.reg .u32 a) { ret; }
.func ar(.param .align 8 .b8 a[16]) { ret; }
"""


def header(version="8.7", target="sm_90a", size=".address_size 64"):
    return f".version {version}\n.target {target}\n{size}\n"


def inside(statement):
    return f"""{HEAD}{OUTSIDE}.visible .entry k(.param .u64 x, .param .align 64 .b8 map[128])
{{ {REGISTERS}
{statement}
ret; }}
"""


MODULES = [
    header("7.8"),
    header("7.7", "sm_90"),
    header("6.5", "compute_80"),
    header("3.2", "sm_50"),
    header("2.2", "sm_20"),
    header(target="sm_90a, foo"),
    header(target="sm_90a, texmode_unified, texmode_independent"),
    header(target="sm_90a, map_f64_to_f32"),
    header(target="sm_90a, debug"),
    header(size=".address_size 32"),
    header(size=".global .u32 y;\n.address_size 64"),
    HEAD + ".visible .entry j(.param .uy64 y) { ret; }",
    HEAD + ".visible .entry j(.param .v2 .u32 y) { ret; }",
    HEAD + ".visible .entry j(.param .pred y) { ret; }",
    HEAD + ".func j(.param .u16 y) { ret; }",
    HEAD + ".global .bf16 y;",
    HEAD + ".global .v4 .f64 y;",
    HEAD + ".visible .entry 51() { ret; }",
    HEAD + ".visible .entry _() { ret; }",
    HEAD + ".global .u32 _;",
    HEAD + ".global .u32 %laneid;",
    HEAD + ".visible .visible .entry j() { ret; }",
    HEAD + ".extern .visible .func j();",
    HEAD + ".extern .func j() { ret; }",
    HEAD + ".func j();\n.visible .func j() { ret; }",
    HEAD + ".visible .func j();",
    HEAD + ".func j(.param .u32 a);\n.func j(.param .u64 a) { ret; }",
    HEAD + ".func j(.param .u32 a);\n.func j() { ret; }",
    HEAD + ".func j() { ret; }\n.global .u32 j;",
    HEAD + ".common .shared .u32 y;",
    HEAD + ".extern .global .u32 y = 5;",
    HEAD + ".extern .global .u32 y;\n.visible .global .u64 y;",
    HEAD + ".visible .entry j() .maxntid 0 { ret; }",
    HEAD + ".visible .entry j() .minnctapersm 0 { ret; }",
    HEAD + ".visible .entry j() .maxntid 32 .reqntid 64 { ret; }",
    HEAD + ".visible .entry j() .reqnctapercluster 2 .maxclusterrank 4 { ret; }",
    HEAD + ".visible .entry j() .reqntid 1,1,1,1 { ret; }",
    HEAD + ".visible .entry j() .explicitcluster 1 { ret; }",
    header("9.0") + ".visible .entry j() .blocksareclusters { ret; }",
    HEAD + ".func j() .maxntid 32 { ret; }",
    HEAD + ".visible .entry j() .noreturn { ret; }",
    HEAD + ".global .u32 y[2] = {1,2,3};",
    HEAD + ".global .u32 y[] = {};",
    HEAD + ".global .align 3 .u32 y;",
    HEAD + ".global .u32 .align 4 y;",
    HEAD + ".func j(.param .align 256 .b8 y[8]) { ret; }",
    HEAD + ".visible .entry j(.param .u64 .ptr .align 3 y) { ret; }",
    HEAD + ".global .f16 y = 5;",
    HEAD + ".global .u32 y;\n.global .b8 z = 0xFF(y);",
    HEAD + ".global .u32 y;\n.global .u64 z = 0xFFFF(y);",
    HEAD + ".global .u32 y;\n.global .u64 z = y-4;",
    HEAD + ".global .u64 z = y;\n.global .u32 y;",
    HEAD + ".func j() { ret; }\n.global .u64 z = j+4;",
    HEAD + ".const .b8 y[65537];",
    HEAD + ".visible .entry j(.param .u64 y) { .reg .b32 y; ret; }",
    header("8.0") + ".func f() .noreturn .abi_preserve 3 { trap; }",
    header("8.0") + ".global .b128 y;",
    HEAD + ".file 1 \"a\"\n.file 1 \"a\"",
    HEAD + ".file 4294967296 \"a\"",
    HEAD + ".section .debug.x { .b8 1 }",
    HEAD + ".section .debug_str { .b8 -129 }",
    HEAD + ".section .debug_str { .b8 1.5 }",
    HEAD + ".section .debug_str { .b8 x }",
    HEAD + ".section .debug_str { L: L: .b8 0 }",
    HEAD + ".section .debug_str { .b32 1+1 }",
    HEAD + ".section .debug_str { .b32 L-4 }",
    HEAD + ".section .debug_str { 1: .b8 0 }",
    HEAD + "\v",
    HEAD + "\x1f",
    HEAD + "// caf\xe9",
    HEAD + "/* caf\xe9 */",
    HEAD + ".file 1 \"caf\xe9\"",
    HEAD + "// a\0b",
    HEAD + ".visible .entry j() { .extern .shared .u32 y; ret; }",
    ".version\n8.7\n.target sm_90a\n",
    ".version /* newest */ 8.7\n.target sm_90a\n",
    HEAD + ".target sm_90a\n",
    ".version 8.7\n.target sm_90a\n.section .debug_str { }\n.target sm_90a\n",
    HEAD + ".visible .entry j(.param .u32 a[0]) { ret; }",
    HEAD + ".visible .entry j(.param .u64 a, .param .align 8 .b8 b[0]) { ret; }",
    HEAD + ".func (.param .u32 a[0]) j() { ret; }",
    HEAD + ".func (.param .align 8 .b8 a[]) j() { ret; }",
    HEAD + ".func j(.param .u32 a[], .param .u32 b) { ret; }",
    HEAD + ".global .f64 y = 1e400;",
    HEAD + ".global .f32 y = 1e-400;",
    HEAD + ".visible .entry j() .reqnctapercluster 0 .maxclusterrank 4 { ret; }",
    header("9.0") + ".visible .entry j() .blocksareclusters .reqntid 32 .reqnctapercluster 0, 1, 1 { ret; }",
    ".version 8.7\n.target sm_90a, sm_80\n.func j(.reg .b32 r) { elect.sync r|_, -1; ret; }",
    header(target="sm_80A_a"),
    HEAD + ".func j() { bra$L; $L: ret; }",
    HEAD + ".shared .u32 x; .global .u64 p = x;",
    header(target="sm_90bf"),
    header("7.8", "sm_90aa"),
    HEAD.replace("sm_90a", "sm_90A") + ".func j() { wgmma.fence.sync.aligned; ret; }",
    HEAD + "@@DWARF .byte 1",
    HEAD + "@@DWARF .section .debug_info, \"\", @progbits",
    HEAD + "@@FOO",
    HEAD + "# 1 \"x\" // a comment",
    HEAD + "# 1 x",
    HEAD + "# 0x1 \"x\"",
    HEAD + "#1\"x\"",
    HEAD + ".global .samplerref x;",
    HEAD + ".reg .u32 x;",
    HEAD + ".local .u32 x;",
    HEAD + ".param .u32 x;",
    HEAD + ".reg .nosuch;",
    HEAD + ".reg;",
    HEAD + ".visible .entry j() .reqntid 2, 0 { ret; }",
    HEAD + ".func j(.param .b8 a[4294967296]) { ret; }",
    HEAD + ".visible .entry j() { .shared .b8 a[232449]; ret; }",
    HEAD + ".shared .b8 a[200000], b[40000]; .entry j() { .reg .b32 r; mov.b32 r, a; mov.b32 r, b; ret; }",
    header("8.7", "sm_80") + ".visible .entry j() .reqnctapercluster 2 { ret; }",
    header("8.7", "sm_53") + ".func j() { .reg .b128 q; ret; }",
    header("8.7", "sm_50") + ".visible .entry j(.param .b8 a[5000]) { ret; }",
    header("3.0", "sm_30") + ".weak .func j() { ret; }",
    *(header(version, "sm_20") for version in ("1.6", "2.4", "3.3", "4.4", "5.2", "6.6", "7.9", "8.9")),
    HEAD + ".visible .entry j(.param .b32 a[]) { ret; }",
    HEAD + ".visible .entry j(.param .b32 a[2][3]) { ret; }",
    HEAD + ".func j(.param .b32 a[2][3]) { ret; }",
    *(
        HEAD + f".visible .entry j() {directive} {{ ret; }}"
        for directive in (
            *(".maxclusterrank", ".maxclusterrank 2, 3", ".minnctapersm 1, 2", ".maxnreg 32, 64", ".maxntid"),
            *(".maxntid 1, 2, 3, 4", ".reqntid 1, 1, 1, 1", ".reqnctapercluster 1, 1, 1, 1"),
        )
    ),
    HEAD + ".func %laneid() { ret; }",
]  # fmt: skip
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
MULTI_LOAD = "multimem.ld_reduce.relaxed.gpu.global"
STATEMENTS = [
    "mov.u32 %r0, z; .reg .u32 z;",
    "mov.u32 %r0, z1; .reg .u32 z<3>;",
    "ld.shared.u32 %r0, [z]; .shared .u32 z;",
    "@pp bra L; .reg .pred pp; L:",
    "call later;",
    "call (pr), f, (pa);",
    "call f, (pa, pb);",
    "call (pr), f, (pb, pa);",
    "call (pr), f, (pf, pb);",
    "call h, (%d0);",
    "call h, (%f0);",
    "call ar, (pd);",
    "call ar, (%r0);",
    "call (pr), f, (x, pb);",
    "call %d0;",
    "call (pr), %d0, (pa), P; P: .callprototype (.param .u32 _) _ (.param .u32 _);",
    "T: .calltargets later; call %d0, T;",
    ".branchtargets L; L:",
    "mov.u64 %d0, L; L:",
    "add.u32 %r0, %r1, s;",
    "mov.f32 %f0, s;",
    "cvta.global.u64 %d0, s;",
    "add.u32 %d0, %r1, %r2;",
    "add.f32 %u0, %f1, %f2;",
    "add.f16x2 %f0, %r1, %r2;",
    "cvt.rn.bf16.f32 %r0, %f1;",
    "cvt.rna.tf32.f32 %f0, %f1;",
    "st.global.f32 [%d0], %g0;",
    "shf.l.wrap.b32 %r0, %r1, %r2, %f0;",
    "selp.b32 %r0, %r1, %r2, 1.0;",
    "vote.sync.ballot.b32 %r0, %p0, %f0;",
    "alloca.u64 %d0, %r0;",
    "madc.lo.u32 %r0|%p1, %r1, %r2, %r3;",
    "elect.sync %r0, -1;",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r0, [s];",
    "mbarrier.test_wait.shared.b64 _, [s], %d1;",
    "cp.async.ca.shared.global [s], [5], 16;",
    "cp.async.bulk.prefetch.tensor.2d.L2.global [%d0+64, {%r0, %r1}];",
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [map, {%r0, %r1}], [s];",
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [c, {%r0, %r1}], [s];",
    ".reg .b32 %tid; mov.u32 %r0, %tid.x;",
    "_: ret;",
    ".reg .b32 %q<99999999999>;",
    ".loc 1 4294967296 0",
    ".loc 1 09 0",
    ".loc 1 5 0\n.loc 1 6 0, function_name nosuch, inlined_at 1 5 0",
    "T: .branchtargets;",
    "T: .branchtargets L,; L:",
    "T: .branchtargets L M; L: M:",
    "T: .branchtargets nosuch;",
    "T: .branchtargets %r0;",
    "T: .branchtargets L; bra T; L:",
    "T: ret; .branchtargets L; L:",
    "T: .branchtargets L; L: brx.idx.foo %r0, T;",
    "cvt.rzi.u16.bf16 %r0, %h1;",
    "cvt.f32.bf16 %f0, 1.0;",
    "add.f16 %h0, %h1, 1.0;",
    "add.u16x2 %r0, %r1, %u2;",
    "ld.global.v2.b32 {_, _}, [%d0];",
    "st.global.v2.b32 [%d0], {s, s};",
    "shfl.sync.up.b32 _|%p0, %r0, 1, 0, -1;",
    "elect.sync %r0|_, -1;",
    "mapa.u64 %d0, g, %r1;",
    "bar.sync 1.0;",
    "bar.arrive 1, 0;",
    "bar.red.popc.u32 %r0, 1, 33, %p0;",
    "mbarrier.arrive.shared.b64 %d0, [s], 0;",
    "mbarrier.try_wait.parity.shared.b64 %p0, [s], 2;",
    "cp.async.ca.shared.global [s], [%d0], 4, 5;",
    "cp.async.ca.shared.global.L2::cache_hint [s], [%d0], 16, %r0;",
    "cp.async.bulk.prefetch.tensor.2d.L2.global [%d0, {1.0, 0}];",
    "cp.async.bulk.prefetch.tensor.2d.L2.global [%d0, {%f0, 0}];",
    "tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], %r0;",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d0], [s], 64;",
    "createpolicy.range.L2::evict_last.b64 %d0, [%d1], 32, 16;",
    "alloca.u64 %d0, %d1, 3;",
    "stackrestore.u64 5;",
    "pmevent.mask 65536;",
    "ld.local.u32 %r0, [1.0];",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, 2, 1, 1, 0, 0;",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, %p0, 0, 1, 0, 0;",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, %p0, 1, 1, 2, 0;",
    f"{WGMMA} {{%f0,%f1,%f2,%d3}}, %d0, %d1, %p0, 1, 1, 0, 0;",
    f"{WGMMA} {{%f0,%f1,%f2,%p3}}, %d0, %d1, %p0, 1, 1, 0, 0;",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %g0, %p0, 1, 1, 0, 0;",
    f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%u0,%u1}}, {{%r2}}, {{%f0,%f1,%f2,%f3}};",
    f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1}}, {{1}}, {{%f0,%f1,%f2,%f3}};",
    f"{MULTI_LOAD}.add.f32 %d0, [%d1];",
    f"{MULTI_LOAD}.add.u32 %r0, [s];",
    f"{MULTI_LOAD}.add.u32 %r0, [%d1], 5;",
    f"{MULTI_LOAD}.add.v2.f16 %h0, [%d1];",
    f"{MULTI_LOAD}.add.acc::f16.v2.f16 {{%h0, %h1}}, [%d1];",
    "multimem.ld_reduce.relaxed.global.add.u32 %r0, [%d1];",
    "multimem.red.weak.global.add.u32 [%d1], %r0;",
    "multimem.st.weak.global.u32 [%d1], 1.0;",
    ".reg .bf16 %b;",
    "mul .lo.u32 %r0, %r1, %r2;",
    "cp.async.bulk .wait_group 0;",
    "mov. b32 %r0, 1;",
    "mov.b32$a %r0, 1;",
    "mov.b32 (%r0), 1;",
    "ld.global.v2.u32 (%r0, %r1), [%d0];",
    ".target sm_90a;",
    ".target sm_20 mapa.u64 %d0, %d1, %r0;",
    ".target sm_90a, texmode_independent",
    "T: .calltargets nosuch;",
    "mov.u64 %d0, f; T: .calltargets h, f; call %d0, (%r0), T;",
    ".extern .func f(.reg .b32 a);",
    ".reg .b32 fresh; .extern .func fresh();",
    "mov.b128 %q0, 1.5;",
    "mov.f32 %f0, 1e400;",
    "mov.f64 %g0, -1e309;",
    "mov.f64 %g0, 1.7976931348623159e308;",
    "mov.f64 %g0, 1e-400;",
    "mov.f64 %g0, 2.2250738585072011e-308;",
    *(
        f"createpolicy.fractional.L2::evict_last.b64 %d0, {fraction};"
        for fraction in ("0.0", "-0.5", "1.5", "1.00000006", "1e-46", "0f3F800001", "0f80000000", "0f7FC00000")
    ),
    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %d0, 2.0;",
    "P: .callprototype (.param .b32 _[0]) _ ();",
    "P: .callprototype _ (.param .b32 _[], .param .b32 _);",
    ".reg .b32 zz,;",
    ".global .texref;",
    "mov.b128 {%d0, %d1}, {%d2, %d3};",
    "mov.b128 {%r0, %r1, %r2, %r3}, {%d2, %d3};",
    "ld.global.b128 {%d0, %d1}, [%d2];",
    "atom.global.exch.b128 {%d0, %d1}, [%d2], %q0;",
    "ld.global.v2.b64 %q0, [%d0];",
    "add.u64 %d0, %q0.x, %d1;",
    "st.global.v2.u16 [%d0], {%r0, %h0};",
    f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1}}, %r2, {{%f0,%f1,%f2,%f3}};",
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f32 {%r0,%r1}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3};",
    f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%p0,%p1}}, {{%r2}}, {{%f0,%f1,%f2,%f3}};",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, 1, 1, 1, 0;",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, %d1, 1, 1, 1, 0, 0;",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r0,%r1,%r2,%r3}, %d0, %d1, 1, 1, 1;",
    "mbarrier.arrive.shared.b64 [s];",
    "mbarrier.arrive.shared::cluster.b64 %d0, [%r0];",
    "mbarrier.test_wait.parity.shared.b64 %p0, [s], 1, 5;",
    "atom.global.cas.L2::cache_hint.b32 %r0, [%d0], %r1, %r2, %d1;",
    "red.shared.add.L2::cache_hint.u32 [s], %r0, %d1;",
    "atom.global.add.f32 %f0, [%d2], 1;",
    "red.global.add.noftz.f16x2 [%d2], 1;",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r0, %r1, %r2}, [s], 16;",
    ".reg .u32 zu; st.global.v2.b32 [%d0], {%f0, zu};",
    "cp.async.ca.shared.global.L2::cache_hint [s], [%d1], 4, 8, %d0;",
    "ld.global.u32 %r0, [%r1];",
    "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%h0];",
    "wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%g0}, [%h0];",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%h0], %r0, [%r1];",
    "multimem.red.relaxed.gpu.global.add.u32 [%h0], %r0;",
    "discard.global.L2 [%r0], 128;",
    "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [c];",
    ".local .u32 l; atom.add.u32 %r0, [l], 1;",
    "prefetchu.L1 [s];",
    ".reg .v4 .u32 w; ld.shared.u32 %r0, [w.x];",
    "multimem.add.v2.f32 [g+4], {%f1, %f1};",
    "fence.proxy.tensormap::generic.acquire.gpu [%d0];",
    "fence.proxy.tensormap::generic.acquire.gpu;",
    "fence.proxy.tensormap::generic.release.gpu [%d0], 128;",
    "fence.sc.gpu [%d0];",
    "fence.proxy.async [%d0];",
    "createpolicy.cvt.L2.b64 %d0;",
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
    "[%r0], [%d0, {%r1}], [%r2], %d1;",
    "mov.u32 %r0, g;",
    "cvta.global.u64 %d0, f;",
    "stackrestore.u64 f;",
    "atom.global.add.v2.f32 {%f0, %u1}, [g], {%f0, %f1};",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [s], {%u0, %f0};",
    "ld.global.v4.f32 {%f0, %u0, %u1, %u2}, [%d0];",
    "ld.global.v2.f32 {%ud0, %ud1}, [%d0];",
    "wmma.load.c.sync.aligned.row.m8n8k32.s32 {%f0, %f1}, [g];",
    "wmma.store.d.sync.aligned.row.m8n8k32.s32 [g], {%f0, %f1};",
    ".reg .v4 .f32 v; mov.f32 %f0, v.q;",
    "bar.red.popc.u32 %r0, %d0, %p0;",
    "barrier.cta.red.and.pred %p1, 1, %f0, %p0;",
]  # fmt: skip
FEATURES = [
    ("8.7", "sm_80", "mapa.u64 %d0, %d1, %r0;"),
    ("8.7", "sm_90", "wgmma.fence.sync.aligned;"),
    ("7.0", "sm_70", "cp.async.wait_all;"),
    ("8.0", "sm_90a", "tensormap.replace.tile.rank.global.b1024.b32 [%d0], 1;"),
    ("8.0", "sm_90a", "lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 5, %p1;"),
    ("7.8", "sm_90", "elect.sync %r0|%p0, -1;"),
    ("7.0", "sm_80", "mbarrier.arrive.b64 _, [%d0];"),
    ("7.7", "sm_80", "mbarrier.arrive.b64 %d1, [%d0], 2;"),
    ("8.5", "sm_90", "mbarrier.arrive.relaxed.cta.b64 %d1, [%d0];"),
    ("7.7", "sm_80", "mov.u32 %r0, %cluster_ctarank;"),
    ("8.0", "sm_80", "mov.u32 %r0, %clusterid.x;"),
    ("4.1", "sm_50", "mov.u32 %r0, %dynamic_smem_size;"),
    ("8.2", "sm_90a", "ld.global.b128 q, [%d0];"),
    ("8.0", "sm_60", "ld.weak.u32 %r0, [%d0];"),
    ("8.1", "sm_90", "ld.mmio.relaxed.sys.global.u32 %r0, [%d0];"),
    ("8.0", "sm_90", "cvt.rn.satfinite.f16.f32 %h0, %f0;"),
    ("8.0", "sm_89", "cvt.rn.f16x2.e4m3x2 %r0, %h0;"),
    ("7.7", "sm_89", "cvt.rn.f16x2.e4m3x2 %r0, %h0;"),
    ("8.7", "sm_70", "wmma.load.b.sync.aligned.col.m16n16k16.s8 {%r0, %r1}, [%d0];"),
    ("8.7", "sm_75", "wmma.load.a.sync.aligned.row.m8n8k4.f64 {%g0}, [%d0];"),
]
TAKEN_MODULES = [
    HEAD + ".global .u32; .extern .global .u32; .global .attribute(.managed) .u32; .visible .global .align 8 .u32;",
    HEAD + ".func j(.param .u32 a, .param .align 8 .b8 b[0]) { ret; }",
    HEAD + ".visible .entry j() .reqnctapercluster 0, 2 { ret; }",
    HEAD + ".visible .entry j() .maxclusterrank 0 { ret; }",
    header("9.0")
    + ".visible .entry j() .blocksareclusters .reqntid 32 .reqnctapercluster 0 .reqnctapercluster 2 { ret; }",
    header("7.8", "sm_90"),
    header("4.0", "sm_50"),
    header("9.0", "sm_90a, texmode_independent"),
    header(size=""),
    header(size=".address_size 0x40"),
    header(target="sm_90a, debug") + ".section .debug_info { .b8 1 }\n",
    header() + ".visible .func f();\n.visible .func f() { ret; }\n",
    header() + ".visible .func f(.param .u32 a);\n.func f(.param .u32 b) { ret; }\n",
    header() + ".extern .func f(.param .b64 a, .param .b64 b);\n.extern .func f(.param .b64 a, .param .b64 b);\n",
    header() + ".func f(.param .b64 a, .param .b8 more[]) { ret; }\n",
    header() + '.visible .entry j() .pragma "nounroll"; .maxntid 32, 2 .minnctapersm 2 { ret; }\n',
    header() + ".visible .entry j() .maxntid 32 .maxntid WARP_SZ { ret; }\n",
    header() + ".func f() .noreturn { trap; }\n",
    header() + ".visible .func .attribute(.unified(1, 2)) f() { ret; }\n",
    header() + ".global .attribute(.managed, .unified(1, 2)) .u32 y;\n",
    header() + ".global .u32 y[WARP_SZ];\n",
    header() + ".global .u32 y[4];\n.global .u64 z[3] = {y+-4, generic(y)+4*2, 0xFF00(y+4)};\n",
    header() + ".extern .global .u32 y;\n.global .u64 z = y;\n",
    header() + ".extern .global .u32 y[];\n.visible .global .u32 y[4] = {1, 2, 3, 4};\n",
    header() + ".entry j();\n.global .u64 z = j;\n.entry j() { ret; }\n",
    header() + ".func f() { ret; }\n.func e();\n.alias e, f;\n",
    header() + '.file 0x3 "a"\n',
    header() + ".section .debug_str { L: .b8 - 1, 255\n.b32 L, L+0x4, L-M, .debug_info+5, nosuch\nM: }\n",
    header() + "\x1a\f\n",
    ".version 8.10\n.target sm_90a\n",
    header("8.8"),
    ".version 8.7\n.target sm_80\n.target sm_90a\n.address_size 64\n",
    header(target="sm_90A"),
    HEAD + '.file 1"a" .file 2"b" .pragma"nounroll"; .section.debug_str{ L:.b8 1 }',
    HEAD + ".global .texref x; .global .u64 p = x;",
    ".version 8.7.target sm_90a\n",
    header("7.8", "sm_90x1"),
    header("9.0", "sm_00090ba"),
    header(target="sm_90a, sm_80A, sm_90a$a"),
    header("8.0", "sm_90") + ".func j() { .reg .b16 h; .reg .b32 r; cvt.rn.f16x2.e4m3x2 r, h; ret; }",
    header("8.1", "sm_89") + ".func j() { .reg .b16 h; .reg .b32 r; cvt.rn.f16x2.e4m3x2 r, h; ret; }",
    '# 1 "x"\n#1 "x" 3 4\n# line 2 ""\n' + HEAD + '\t#line 1 "x"\n',
    HEAD + ".global .b8 y[1099511627776]; .global .b64 z[0x7fffffffffffffff]; .shared .b8 s[0xffffffffffffffff];",
    HEAD + ".func j() { .local .b8 y[1099511627776]; .param .b8 z[1099511627776]; ret; }",
    HEAD
    + ".global .samplerref; .global .texref; .reg .u32; .local .u32; .visible .param .u32; .reg .v2 .f32; .reg .pred;",
    header("9.0", "sm_90a, texmode_independent") + ".global .samplerref y;",
    HEAD + ".visible .entry j() .reqnctapercluster 2, 0 { ret; } .entry i() .reqnctapercluster 2, 1, 0 { ret; }",
    HEAD + ".global .b8 many<100000>; .func j() { .local .b8 v<70000>; .param .b8 p<70000>; .reg .b8 t; ret; }\n",
]
TAKEN_STATEMENTS = [
    "ld.u32 %r0, [%h0]; st.global.u32 [%h0+4], %r0; atom.add.u32 %r0, [%h0], 1; prefetch.L1 [%h0];",
    "prefetch.tensormap [%r0];",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%h0]; ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%r1];",
    "wmma.load.a.sync.aligned.row.m8n8k4.f64 {%g0}, [%r0];",
    *(
        f"wmma.mma.sync.aligned.row.col.m16n16k16.{d}.{c} {WMMA[d]}, {WMMA['ab']}, {WMMA['ab']}, {WMMA[c]};"
        for d in ("f16", "f32")
        for c in ("f16", "f32")
    ),
    "st.async.mbarrier::complete_tx::bytes.b32 [%r0], %r1, [%d0];",
    "fence.proxy.tensormap::generic.acquire.gpu [%d0], 128; fence.proxy.tensormap::generic.release.gpu;",
    "mov.u64 %d0, g; mov.u32 %r0, s; mov.u32 %r0, c; cvta.to.global.u64 %d0, f; mapa.u64 %d0, s[2], 1;",
    "ld.global.v4.f32 {%f0, %r0, %u0, %u1}, [%d0]; st.global.v2.f64 [%d0], {%ud0, %ud1};",
    ".reg .v2 .f32 v<2>; mov.f32 v1.z, 1.0; add.f32 %f0, v1.w, v1.b; mov.f32 v1.a, v1.y;",
    'add.u32 %r0,\n# 1 "x"\n %r1, %r2;',
    "atom.global.add.f32 %f0, [%d2], 1.0; red.global.add.f32 [%d2], 0f3F800000;",
    "mov.f64 %g0, 1.7976931348623158e308; mov.f64 %g0, 2.2250738585072013e-308; mov.f64 %g0, 0.0e999999999999;",
    "mov.f64 %g0, 1e308*10.0; mov.f32 %f0, 1e39; add.f32 %f0, %f1, -1e39; mov.f32 %f0, 1e-50;",
    *(
        f"createpolicy.fractional.L2::evict_last.b64 %d0, {fraction};"
        for fraction in ("0.5", "1.0", "1.00000005", "1e-45", "0f00000001", "0d3FF0000000000001", "%f0")
    ),
    "createpolicy.fractional.L2::evict_last.b64 %d0; P: .callprototype _ (.param .b8 _[]);",
    ".reg .b32; .reg .pred ; .reg .v2 .b32; .local .b32; .local .align 4 .b32; .shared .b32; .param .b32; .const .u32;",
    ".reg .u32 z; { mov.u32 z, 1; .reg .u64 z; mov.u64 z, 1; } mov.u32 z, 1;",
    "{ .reg .u32 z; mov.u32 z, 1; } { .reg .u64 z; mov.u64 z, 1; }",
    "{ bra L; } L:",
    "call (pr), f, (ps, pb);",
    "call (pq), f, (pq, %d0);",
    "call (_), f, (5, %d0);",
    "call ar, (pc);",
    "P: .callprototype (.param .u32 _) _ (.param .u32 _, .param .u64 _); call (pr), %d0, (pa, pb), P;",
    "st.global.f32 [%d0], %d1;",
    "st.global.u8 [%d0], %ud1;",
    "ld.global.b32 %g0, [%d0];",
    "mov.b64 %d0, {%r0, %f0};",
    "mov.pred %p0, %is_explicit_cluster;",
    "cvt.u64.u32 %d0, %laneid;",
    "and.b32 %f0, %r1, %u2;",
    "addc.cc.u64 %d0, %d1, %d2;",
    "cp.async.ca.shared.global.L2::cache_hint [s], [%d1], 16, %d0;",
    "cp.async.ca.shared.global [s], [%d1], 16, %p0;",
    "mapa.u64 %d0, s, %r1;",
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [g, {%r0, 6}], [s];",
    "shfl.sync.idx.b32 %f0|%p0, %f1, %r1, 31, -1;",
    ".reg .b32 %ntid<3>; mov.u32 %r0, %ntid.x;",
    "cvt.f32.f16 %f0, %r1;",
    "cvt.f64.f32 %g0, %d1;",
    "cvt.rn.f16x2.f32 %d0, %d1, %f2;",
    "cvt.rzi.s64.f16 %d0, %d1;",
    "cvt.u32.u32 %r0, %clock64;",
    "cvt.pack.sat.u16.s32 %r0, %d1, 5;",
    ".reg .b32 %n<WARP_SZ>; mov.b32 %n31, 1;",
    ".reg .b32 %n<4294967295>; mov.b32 %n4294967294, 1;",
    ".loc 0x1\n5U\f0",
    "T: .branchtargets L<2>; brx.idx %r0, T; L0: L1: ret;",
    '.pragma "a\nb";',
    "add.u32\x1a%r0,\x1a%r1, %r2;\x1a",
    "mbarrier.try_wait.parity.shared.b64 %p0, [s], 1;",
    f"{WGMMA} {{%f0,%f1,%f2,%r3}}, %d0, %d1, 1, -1, 0xFFFFFFFFFFFFFFFF, 0, 1;",
    f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%u1}}, {{%r2}}, {{1.0,%r1,%f2,%f3}};",
    f"{MULTI_LOAD}.add.v4.f32 {{%f0, %r1, %u0, %u1}}, [%d1];",
    f"{MULTI_LOAD}.add.acc::f32.v2.bf16 {{%h0, %h1}}, [%d1+4];",
    "multimem.st.weak.global.s64 [%d1], 1;",
    "multimem.red.release.sys.global.min.v8.f16 [%d1], {%h0,%h1,%h2,%h3,%h0,%h1,%h2,%h3};",
    "mov .b32 %r0, 1;",
    "ld.global\n.v4\t.u32 {%r0,%r1,%r2,%r3}, [%d0];",
    "@%p0 bra .uni L; L: fence.proxy .async .shared::cta;",
    "cp.async.wait_group0; cp.async.bulk.wait_group 0; bar.cta.arrive0,32;",
    "mov.u32 %r0, %tid .x; .reg .v4 .b32 v; mov.b32 v .x, 1;",
    "mov.f32 %f0, .5; mov.f32 %f1, -.25;",
    ".target sm_90a add.u32 %r0, %r1, %r2; { .target sm_90a }",
    ".extern .func elsewhere(.param .u64 a); .extern .func elsewhere(.param .u64 a);",
    "mov.u64 %d0, f; T: .calltargets f, k; ",
    "mov.b128 %q0, 5; mov.b128 %q0, -WARP_SZ; st.global.b128 [%d0], 7; atom.global.exch.b128 %q0, [%d0], 5;",
    "mov.b128 %q0, {%r0, %f1, 5, %r3}; mov.b128 {%r0, _, _, %r1}, %q0; mov.b128 {%d0, _}, %q0; mov.b128 %q0, g;",
    "ld.mmio.relaxed.sys.global.b128 %q0, [%d0]; ld.global.b128 {%q0}, [%d0];",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2,%r3}, "
    "{%f0,%f1,%f2,%f3}, {%r4}, 0;",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [s], {%r0, 5};",
    f"{WGMMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%p0,%r3}}, %d1, 1, 1, 1, 0;",
]


def refused(text):
    with refuses(PtxSyntaxError) as found:
        load_ptx(text)
    error = found.value
    assert 1 <= error.line <= text.count("\n") + 1
    assert error.column >= 1
    assert error.statement


@pytest.mark.parametrize("text", MODULES)
def test_a_module_is_refused_with_its_place(text):
    refused(text + "\n" + ENTRY)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_is_refused_with_its_place(statement):
    refused(inside(statement))


@pytest.mark.parametrize(("version", "target", "statement"), FEATURES)
def test_an_instruction_of_another_version_or_target_is_refused(version, target, statement):
    wide = ".reg .b128 q;" if " q," in statement else ""
    text = f"{header(version, target)}.visible .entry k() {{ {OLD_REGISTERS}{wide}\n{statement}\nret; }}"
    refused(text)
    load_ptx(text.replace(version, "8.7", 1).replace(target, "sm_90a", 1))


@pytest.mark.parametrize("text", TAKEN_MODULES)
def test_a_module_is_taken(text):
    assert "k" in load_ptx(text + ENTRY).kernels


@pytest.mark.parametrize("statement", TAKEN_STATEMENTS)
def test_a_statement_is_taken(statement):
    assert "k" in load_ptx(inside(statement)).kernels


def test_each_needs_what_the_earliest_of_its_parts_needs():
    assert needs("cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes") == ((8, 6), "sm_90")
    assert needs("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16") == ((8, 2), "sm_90a")


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("mov.b32 %r0, 0xABCD3C00; cvt.f32.f16 %f0, %r0; mov.b32 %r0, %f0;", 0x3F800000),
        ("mov.b64 %d1, 0x123456783F800000; cvt.f64.f32 %g0, %d1; mov.b64 {%r1, %r0}, %g0;", 0x3FF00000),
        ("mov.b64 %d1, 0x123456783F800000; cvt.rn.f16.f32 %r0, %d1;", 0x3C00),
        ("mov.b64 %d1, 0x1234567840400000; cvt.rzi.u16.f32 %r0, %d1;", 3),
        ("mov.b64 %d1, 0x1234567840400000; cvt.rn.f16x2.f32 %d1, %d1, 1.0; mov.b64 {%r0, %r1}, %d1;", 0x42003C00),
        ("mov.b16 %h0, 0x3C00; cvt.f32.f16 %d1, %h0; mov.b64 {%r1, %r0}, %d1;", 0),
        ("mov.b16 %h0, 0x3C00; cvt.f32.f16 %d1, %h0; mov.b64 {%r0, %r1}, %d1;", 0x3F800000),
        ("st.global.f32 [%d0], 0f3F800000; ld.global.f32 %d1, [%d0]; mov.b64 {%r0, %r1}, %d1;", 0x3F800000),
    ],
)
def test_registers_wider_than_a_conversions_type_are_cut_and_extended(statement, value):
    """PTX ISA, "Operand Size Exceeding Instruction-Type Size"."""
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{ {REGISTERS}
    ld.param.u64 %d0, [x]; {statement} st.global.u32 [%d0], %r0; ret; }}"""
    found = np.zeros(1, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert hex(found[0]) == hex(value)


def test_a_file_of_an_escaped_name_is_named_as_it_is():
    text = HEAD + '.file 1 "jos\\303\\251.py"\n.visible .entry k() {\n.loc 1 7 3\nret; }\n'
    (function,) = parse_module(text).functions.values()
    assert str(function.instructions[-1].source) == "jos\xe9.py:7"
    (function,) = parse_module(text.replace("jos", r"a\\b")).functions.values()
    assert function.instructions[-1].source.file == "a\\b\xe9.py"


def test_addresses_of_kernels_and_functions_are_values():
    """Each is one of its own, the same wherever it is taken, and none is null."""
    text = f"""{HEAD}.func f() {{ ret; }}
    .visible .entry j() {{ ret; }}
    .global .u64 table[4] = {{j, f, j, f}};
    .visible .entry k(.param .u64 out) {{ .reg .b64 %d<4>; .reg .b32 %t; ld.param.u64 %d0, [out]; mov.u64 %d1, table;
    mov.u32 %t, %tid.x; mad.wide.u32 %d0, %t, 8, %d0; mad.wide.u32 %d1, %t, 8, %d1;
    ld.global.u64 %d2, [%d1]; st.global.u64 [%d0], %d2; ret; }}"""
    found = np.zeros(4, np.uint64)
    load_ptx(text).launch("k", 1, 4, (found,))
    assert found[0] == found[2] != found[1] == found[3]
    assert found.all()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("mov.b128 %q0, 5;", [5, 0, 0, 0]),
        ("mov.b128 %q0, 9; setp.eq.u32 %p0, 1, 1; @!%p0 mov.b128 %q0, 5;", [9, 0, 0, 0]),
        ("mov.b128 %q0, 9; setp.eq.u32 %p0, 1, 1; @!%p0 mov.b128 %q0, {1, 2, 3, 4};", [9, 0, 0, 0]),
        ("mov.b128 %q0, 9; setp.eq.u32 %p0, 1, 1; @!%p0 mov.b128 %q0, g;", [9, 0, 0, 0]),
        ("mov.b128 %q0, 9; setp.eq.u32 %p0, 1, 2; @!%p0 mov.b128 %q0, {1, 2, 3, 4};", [1, 2, 3, 4]),
        ("mov.b128 %q1, 9; mov.u32 %r0, 7; mov.u32 %r1, 6; setp.eq.u32 %p0, 1, 1; "
         "@!%p0 mov.b128 {%r0, %r1, _, _}, %q1; mov.b128 %q0, {%r0, %r1, 0, 0};", [7, 6, 0, 0]),
        ("mov.b128 %q0, -1;", [0xFFFFFFFF, 0xFFFFFFFF, 0, 0]),  # as ptxas, which extends the 64 bits by zeros
        ("mov.b128 %q0, {1, 2, 3, 4};", [1, 2, 3, 4]),
        ("mov.b128 %q1, {1, 2, 3, 4}; mov.b128 {%r0, _, %r2, %r3}, %q1; mov.b128 %q0, {%r3, %r2, %r0, 9};",
         [4, 3, 1, 9]),
        ("setp.eq.u32 %p0, 1, 1; setp.eq.u32 %p1, 1, 2; mov.b64 %d1, {%p0, %r7}; mov.b64 {%r1, %r2}, %d1; "
         "mov.b64 %d1, {%p1, %r7}; mov.b64 {%r3, %r4}, %d1; mov.b128 %q0, {%r1, %r2, %r3, 2};", [0xFFFFFFFF, 3, 0, 2]),
        ("mov.b64 %d1, 0x500000007; mov.b64 {%r0, %p0}, %d1; selp.u32 %r1, 1, 0, %p0; mov.b128 %q0, {%r0, %r1, 0, 0};",
         [7, 1, 0, 0]),
    ],
)  # fmt: skip
def test_values_of_128_bits_and_predicates_in_vectors(statement, words):
    """A predicate among registers of 32 bits is all ones where it holds, and holds where it is written other than 0."""
    text = f"""{HEAD}.global .u32 g; .visible .entry k(.param .u64 x) {{ {REGISTERS}
    ld.param.u64 %d0, [x]; mov.u32 %r7, 3; {statement} st.global.b128 [%d0], %q0; ret; }}"""
    found = np.zeros(4, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == words


def test_a_float_beyond_the_largest_of_32_bits_is_infinity():
    text = f"""{HEAD}.global .f32 g[2] = {{1e39, -1e39}};
    .visible .entry k(.param .u64 x) {{ {REGISTERS}
    ld.param.u64 %d0, [x]; ld.global.f32 %f0, [g]; ld.global.f32 %f1, [g+4];
    mov.f32 %f2, 1.0; add.f32 %f2, %f2, -1e39;
    st.global.f32 [%d0], %f0; st.global.f32 [%d0+4], %f1; st.global.f32 [%d0+8], %f2; ret; }}"""
    found = np.zeros(3, np.float32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == [np.inf, -np.inf, -np.inf]


def test_the_third_and_fourth_of_a_vector_of_two_are_one_register():
    """As ptxas allocates them; neither is an element of the vector."""
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{ {REGISTERS} .reg .v2 .b32 v;
    ld.param.u64 %d0, [x]; mov.b32 v.x, 1; mov.b32 v.y, 2; mov.b32 v.z, 3; mov.b32 v.w, 4;
    st.global.v2.b32 [%d0], v; st.global.b32 [%d0+8], v.b; st.global.b32 [%d0+12], v.a; ret; }}"""
    found = np.zeros(4, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == [1, 2, 4, 4]


def test_an_address_of_16_bits_is_extended_by_zeros():
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{ {REGISTERS} .shared .align 4 .b32 t[4];
    ld.param.u64 %d0, [x]; mov.u32 %r0, t; cvt.u16.u32 %h0, %r0; st.shared.u32 [t+8], 7;
    ld.shared.u32 %r1, [%h0+8]; st.global.u32 [%d0], %r1; ret; }}"""
    found = np.zeros(1, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == [7]


@pytest.mark.parametrize("size", ["1099511627776", "0x7fffffffffffffff"])
def test_an_array_that_no_memory_holds_is_refused_at_the_launch(size):
    kernel = load_ptx(f"{HEAD}.global .b64 y[{size}];\n{ENTRY}")
    with refuses(LaunchError):
        kernel.launch("k", 1, 32, ())


def test_a_cluster_without_extent_is_refused_at_the_launch():
    kernel = load_ptx(HEAD + ".visible .entry k() .reqnctapercluster 2, 0 { ret; }")
    with refuses(LaunchError):
        kernel.launch("k", 4, 32, ())


@pytest.mark.parametrize(
    ("block", "end"),
    [
        ("{ mov.u32 %r0, %r1;", "}"),
        ("{ .reg .u32 z; mov.u32 z, %r1;", "}"),
        ("{ .shared .u32 z; ld.shared.u32 %r0, [z];", "}"),
        ("{ .reg .u32 %t<2>; mov.u32 %t1, %r1;", "}"),
        ("{ .reg .u32 z<4>; .shared .u32 z9; ld.shared.u32 %r0, [z9];", "}"),
        ("{ mov.u32 %r0, w;", " .reg .u32 w; }"),
    ],
)
def test_nested_blocks_take_linear_time(block, end):
    """With one table of all kinds of names the third takes 12 s, and the fifth 93."""
    count = 5_000
    block, end = (".reg .u32 w; " * (" w;" in block)) + block * count, end * count
    start = time.process_time()
    load_ptx(inside(f"{block}{end}"))
    assert time.process_time() - start < 6


def test_blocks_name_the_innermost_that_declares():
    """Registers, ranges, variables and labels of nested blocks, and those around them behind each block."""
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{ {REGISTERS}
    ld.param.u64 %d0, [x]; .reg .u32 a, b<3>; .shared .u32 t; mov.u32 a, 1; mov.u32 b1, 2; st.shared.u32 [t], 3;
    {{ .reg .u32 a; mov.u32 a, 10; {{ .reg .u32 b<2>; .shared .u32 t; mov.u32 b1, 20; st.shared.u32 [t], 30;
       st.global.u32 [%d0], a; st.global.u32 [%d0+4], b1; bra L; mov.u32 b1, 99; L: mov.u32 b2, 5; }}
       mov.u32 b0, a; bra L; L: st.global.u32 [%d0+8], b1; }}
    {{ .reg .u32 b1; mov.u32 b1, 40; }}
    ld.shared.u32 %r0, [t]; st.global.u32 [%d0+12], a;
    st.global.u32 [%d0+16], b2; st.global.u32 [%d0+20], %r0; ret; }}"""
    found = np.zeros(6, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == [10, 20, 2, 1, 5, 3]


def test_a_variable_and_an_argument_of_one_name_are_two():
    """Blocks behind each other declare it, one in local memory, and one to pass it to a function."""
    text = f"""{HEAD}.func (.param .u32 r) f(.param .u32 a) {{ .reg .u32 q; ld.param.u32 q, [a]; add.u32 q, q, 1;
    st.param.u32 [r], q; ret; }}
    .visible .entry k(.param .u64 x) {{ {REGISTERS} ld.param.u64 %d0, [x]; mov.u32 %r3, 0;
    {{ .local .u32 p; st.local.u32 [p], 5; ld.local.u32 %r0, [p]; }}
    {{ .param .u32 p; .param .u32 r; st.param.u32 [p], 7; call (r), f, (p); ld.param.u32 %r1, [r]; }}
    {{ .local .u32 p; st.local.u32 [p], 9; ld.local.u32 %r2, [p]; }}
    st.global.u32 [%d0], %r0; st.global.u32 [%d0+4], %r1; st.global.u32 [%d0+8], %r2; ret; }}"""
    found = np.zeros(3, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == [5, 8, 9]


def test_a_cluster_of_0_is_none():
    """ptxas writes the same code for it as without the directive."""
    kernel = parse_module(HEAD + ".visible .entry k() .reqnctapercluster 0, 2 { ret; }").functions["k"]
    assert "reqnctapercluster" not in kernel.directives
    load_ptx(HEAD + ".visible .entry k() .reqnctapercluster 0 { ret; }").launch("k", 2, 32, (), cluster=2)


@pytest.mark.parametrize("name", ["abi_preserve", "abi_preserve_control"])
def test_a_function_may_preserve_no_register(name):
    def directives(numbers):
        return heads.read_head(heads.HEAD.match(f".visible .func f() .{name} {numbers} {{")).directives

    for number in (0, 1, 16):
        assert directives(number) == {name: (number,)}
    for numbers in ("", "1, 2", "-1"):
        with pytest.raises(PtxSyntaxError):
            directives(numbers)


@pytest.mark.parametrize(
    "text",
    [
        f".version {'9' * 100_000}.0\n.target sm_90a\n",
        f".version 8.7\n.target {'x' * 100_000}\n",
        f"{HEAD}.visible .entry 1{'x' * 100_000}() {{ ret; }}",
        f"{HEAD}.visible .entry k() .reqntid {'1, ' * 100_000}1 {{ ret; }}",
    ],
    ids=["version", "target", "name", "numbers"],
)
def test_an_error_quotes_no_more_than_is_read(text):
    with pytest.raises(PtxSyntaxError) as found:
        load_ptx(text)
    assert len(str(found.value)) < 2000
