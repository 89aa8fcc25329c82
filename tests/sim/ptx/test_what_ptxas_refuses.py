"""Small texts as ptxas 13.0 takes or refuses them for sm_90a: each is a module, or an error with its place."""

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim.ptx.features import needs
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
ENTRY = ".visible .entry k() { ret; }\n"
REGISTERS = """.reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<4>; .reg .f64 %g<4>; .reg .pred %p<4>;
.reg .u32 %u<4>; .reg .u64 %ud<4>; .reg .b128 %q<4>; .param .u32 pr, pa; .param .u64 pb; .param .align 8 .b8 pc[16];
.param .align 8 .b8 pd[8]; .param .f32 pf; .param .s32 ps; .param .b32 pq;"""
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
    (header("7.8"), "needs .version 8.0, got 7.8"),
    (header("7.7", "sm_90"), "needs .version 7.8"),
    (header("6.5", "compute_80"), "needs .version 7.0"),
    (header("3.2", "sm_50"), "needs .version 4.0"),
    (header("2.2", "sm_20"), "needs .version 2.3"),
    (header(target="sm_90a, foo"), "no option foo"),
    (header(target="sm_90a, texmode_unified, texmode_independent"), "exclude each other"),
    (header(target="sm_90a, map_f64_to_f32"), "no option map_f64_to_f32"),
    (header(target="sm_90a, debug"), r"debug_info"),
    (header(size=".address_size 32"), "64"),
    (header(size=".global .u32 y;\n.address_size 64"), "before all declarations"),
    (HEAD + ".visible .entry j(.param .uy64 y) { ret; }", "no variables in .param of type .uy64"),
    (HEAD + ".visible .entry j(.param .v2 .u32 y) { ret; }", "no vector"),
    (HEAD + ".visible .entry j(.param .pred y) { ret; }", "no variables in .param of type .pred"),
    (HEAD + ".func j(.param .u16 y) { ret; }", "write .b16"),
    (HEAD + ".global .bf16 y;", "no variables in .global of type .bf16"),
    (HEAD + ".global .v4 .f64 y;", "at most 128 bits"),
    (HEAD + ".visible .entry 51() { ret; }", "a name begins with"),
    (HEAD + ".visible .entry _() { ret; }", "a name begins with"),
    (HEAD + ".global .u32 _;", "no name"),
    (HEAD + ".global .u32 %laneid;", "special register"),
    (HEAD + ".visible .visible .entry j() { ret; }", "at most one of"),
    (HEAD + ".extern .visible .func j();", "at most one of"),
    (HEAD + ".extern .func j() { ret; }", "has a body"),
    (HEAD + ".func j();\n.visible .func j() { ret; }", "declared with no linking directive before"),
    (HEAD + ".visible .func j();", "declared here, and not defined"),
    (HEAD + ".func j(.param .u32 a);\n.func j(.param .u64 a) { ret; }", "other parameters before"),
    (HEAD + ".func j(.param .u32 a);\n.func j() { ret; }", "1 parameters before, and here with 0"),
    (HEAD + ".func j() { ret; }\n.global .u32 j;", "is a function"),
    (HEAD + ".common .shared .u32 y;", ".common is of variables in .global"),
    (HEAD + ".extern .global .u32 y = 5;", "no initial value"),
    (HEAD + ".extern .global .u32 y;\n.visible .global .u64 y;", "another type or extent"),
    (HEAD + ".visible .entry j() .maxntid 0 { ret; }", "numbers from 1 on"),
    (HEAD + ".visible .entry j() .minnctapersm 0 { ret; }", "numbers from 1 on"),
    (HEAD + ".visible .entry j() .maxntid 32 .reqntid 64 { ret; }", "excludes the other"),
    (HEAD + ".visible .entry j() .reqnctapercluster 2 .maxclusterrank 4 { ret; }", "excludes the other"),
    (HEAD + ".visible .entry j() .reqntid 1,1,1,1 { ret; }", "takes 1 to 3 numbers"),
    (HEAD + ".visible .entry j() .explicitcluster 1 { ret; }", "takes no number"),
    (header("9.0") + ".visible .entry j() .blocksareclusters { ret; }", "needs .reqntid and .reqnctapercluster"),
    (HEAD + ".func j() .maxntid 32 { ret; }", "directive of .entry"),
    (HEAD + ".visible .entry j() .noreturn { ret; }", "directive of .func"),
    (HEAD + ".global .u32 y[2] = {1,2,3};", "at most 2 values"),
    (HEAD + ".global .u32 y[] = {};", "needs a value"),
    (HEAD + ".global .align 3 .u32 y;", "power of two"),
    (HEAD + ".global .u32 .align 4 y;", "expected a name"),
    (HEAD + ".func j(.param .align 256 .b8 y[8]) { ret; }", "at most 128 bytes"),
    (HEAD + ".visible .entry j(.param .u64 .ptr .align 3 y) { ret; }", "power of two"),
    (HEAD + ".global .f16 y = 5;", "no initial value"),
    (HEAD + ".global .u32 y;\n.global .b8 z = 0xFF(y);", "value of type .u8 or .u32 or .u64"),
    (HEAD + ".global .u32 y;\n.global .u64 z = 0xFFFF(y);", "mask of an address"),
    (HEAD + ".global .u32 y;\n.global .u64 z = y-4;", "expected ';'"),
    (HEAD + ".global .u64 z = y;\n.global .u32 y;", "declared before it"),
    (HEAD + ".func j() { ret; }\n.global .u64 z = j+4;", "by its name alone"),
    (HEAD + ".const .b8 y[65537];", "65536 bytes"),
    (HEAD + ".visible .entry j(.param .u64 y) { .reg .b32 y; ret; }", "y is declared twice"),
    (header("8.0") + ".func f() .noreturn .abi_preserve 3 { trap; }", "needs .version 9.0"),
    (header("8.0") + ".global .b128 y;", ".b128 needs .version 8.3"),
    (HEAD + ".file 1 \"a\"\n.file 1 \"a\"", "declared before"),
    (HEAD + ".file 4294967296 \"a\"", "32 bits"),
    (HEAD + ".section .debug.x { .b8 1 }", "cannot read"),
    (HEAD + ".section .debug_str { .b8 -129 }", "8 bits"),
    (HEAD + ".section .debug_str { .b8 1.5 }", "cannot read"),
    (HEAD + ".section .debug_str { .b8 x }", "takes numbers"),
    (HEAD + ".section .debug_str { L: L: .b8 0 }", "declared twice"),
    (HEAD + ".section .debug_str { .b32 1+1 }", "cannot read"),
    (HEAD + ".section .debug_str { .b32 L-4 }", "cannot read"),
    (HEAD + ".section .debug_str { 1: .b8 0 }", "cannot read"),
    (HEAD + "\v", "no character of PTX"),
    (HEAD + "\x1f", "no character of PTX"),
    (HEAD + "// caf\xe9", "ASCII; ptxas refuses it in comments"),
    (HEAD + "/* caf\xe9 */", "ASCII; ptxas refuses it in comments"),
    (HEAD + ".file 1 \"caf\xe9\"", "ASCII; ptxas refuses it in comments"),
    (HEAD + "// a\0b", "no character of PTX"),
    (HEAD + ".visible .entry j() { .extern .shared .u32 y; ret; }", "unknown directive"),
    (".version\n8.7\n.target sm_90a\n", "on one line"),
    (".version /* newest */ 8.7\n.target sm_90a\n", "on one line"),
    (HEAD + ".target sm_90a\n", "stands before .address_size"),
    (".version 8.7\n.target sm_90a\n.section .debug_str { }\n.target sm_90a\n", "before all declarations"),
    (".version 8.7\n.target sm_90a, sm_80\n.func j(.reg .b32 r) { elect.sync r|_, -1; ret; }", "sm_80"),
]  # fmt: skip
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
MULTI_LOAD = "multimem.ld_reduce.relaxed.gpu.global"
STATEMENTS = [
    ("mov.u32 %r0, z; .reg .u32 z;", "unknown name z"),
    ("mov.u32 %r0, z1; .reg .u32 z<3>;", "unknown name z1"),
    ("ld.shared.u32 %r0, [z]; .shared .u32 z;", "unknown name z"),
    ("@pp bra L; .reg .pred pp; L:", "unknown predicate pp"),
    ("call later;", "declaration of a function before it"),
    ("call (pr), f, (pa);", "has 2 parameters, and the call has 1"),
    ("call f, (pa, pb);", "has 1 result, and the call has 0"),
    ("call (pr), f, (pb, pa);", "pb is of another type"),
    ("call (pr), f, (pf, pb);", "pf is of another type"),
    ("call h, (%d0);", "%d0 of type .b64 is of another type"),
    ("call h, (%f0);", "%f0 of type .f32 is of another type"),
    ("call ar, (pd);", "pd is of another type"),
    ("call ar, (%r0);", "no variable in .param"),
    ("call (pr), f, (x, pb);", "no parameter of the caller"),
    ("call %d0;", "needs a .callprototype"),
    ("call (pr), %d0, (pa), P; P: .callprototype (.param .u32 _) _ (.param .u32 _);", "before the call"),
    ("T: .calltargets later; call %d0, T;", "declared before it, got later"),
    (".branchtargets L; L:", "a label stands before"),
    ("mov.u64 %d0, L; L:", "takes a value there, got L"),
    ("add.u32 %r0, %r1, s;", "no address of a variable"),
    ("mov.f32 %f0, s;", "no address of a variable"),
    ("cvta.global.u64 %d0, s;", "in .global, and s is in .shared"),
    ("add.u32 %d0, %r1, %r2;", "type .u32 there, got %d0"),
    ("add.f32 %u0, %f1, %f2;", "type .f32 there, got %u0"),
    ("add.f16x2 %f0, %r1, %r2;", "type .f16x2 there, got %f0"),
    ("cvt.rn.bf16.f32 %r0, %f1;", "type .bf16 there, got %r0"),
    ("cvt.rna.tf32.f32 %f0, %f1;", "type .tf32 there, got %f0"),
    ("st.global.f32 [%d0], %g0;", "type .f32 there, got %g0"),
    ("shf.l.wrap.b32 %r0, %r1, %r2, %f0;", "an integer of 32 bits there, got %f0"),
    ("selp.b32 %r0, %r1, %r2, 1.0;", "type .pred there, got a float"),
    ("vote.sync.ballot.b32 %r0, %p0, %f0;", "an integer of 32 bits there, got %f0"),
    ("alloca.u64 %d0, %r0;", "type .u64 there, got %r0"),
    ("madc.lo.u32 %r0|%p1, %r1, %r2, %r3;", "one result"),
    ("elect.sync %r0, -1;", "two results"),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r0, [s];", "a vector of 1"),
    ("mbarrier.test_wait.shared.b64 _, [s], %d1;", "takes a register for its result"),
    ("cp.async.ca.shared.global [s], [5], 16;", "a number in local memory only"),
    ("cp.async.bulk.prefetch.tensor.2d.L2.global [%d0+64, {%r0, %r1}];", "without an offset"),
    ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [map, {%r0, %r1}], [s];", "map is in .param"),
    ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [c, {%r0, %r1}], [s];", "c is in .const"),
    (".reg .b32 %tid; mov.u32 %r0, %tid.x;", "%tid is a register here"),
    ("_: ret;", "no name of a label"),
    (".reg .b32 %q<99999999999>;", "32 bits"),
    (".loc 1 4294967296 0", "32 bits"),
    (".loc 1 09 0", "an integer"),
    (".loc 1 5 0\n.loc 1 6 0, function_name nosuch, inlined_at 1 5 0", "label of a .section .debug_str"),
    ("T: .branchtargets;", "takes labels, got"),
    ("T: .branchtargets L,; L:", "takes labels, got"),
    ("T: .branchtargets L M; L: M:", "takes labels, got"),
    ("T: .branchtargets nosuch;", "nosuch is none"),
    ("T: .branchtargets %r0;", "%r0 is none"),
    ("T: .branchtargets L; bra T; L:", "T"),
    ("T: ret; .branchtargets L; L:", "a label stands before"),
    ("T: .branchtargets L; L: brx.idx.foo %r0, T;", "no modifier .foo"),
    ("cvt.rzi.u16.bf16 %r0, %h1;", "type .u16 there, got %r0"),
    ("cvt.f32.bf16 %f0, 1.0;", "type .bf16 there, got a float"),
    ("add.f16 %h0, %h1, 1.0;", "type .f16 there, got a float"),
    ("add.u16x2 %r0, %r1, %u2;", "type .u16x2 there, got %u2"),
    ("ld.global.v2.b32 {_, _}, [%d0];", "a register in the vector"),
    ("st.global.v2.b32 [%d0], {s, s};", "no address of a variable in a vector"),
    ("shfl.sync.up.b32 _|%p0, %r0, 1, 0, -1;", "a register before"),
    ("elect.sync %r0|_, -1;", "a predicate behind"),
    ("mapa.u64 %d0, g, %r1;", "in .shared, and g is in .global"),
    ("bar.sync 1.0;", "got a float"),
    ("bar.arrive 1, 0;", "multiple of 32, and not 0"),
    ("bar.red.popc.u32 %r0, 1, 33, %p0;", "multiple of 32"),
    ("mbarrier.arrive.shared.b64 %d0, [s], 0;", "from 1 on"),
    ("mbarrier.try_wait.parity.shared.b64 %p0, [s], 2;", "0 or 1"),
    ("cp.async.ca.shared.global [s], [%d0], 4, 5;", "at most the 4 bytes"),
    ("cp.async.ca.shared.global.L2::cache_hint [s], [%d0], 16, %r0;", "64 bits there, got %r0"),
    ("cp.async.bulk.prefetch.tensor.2d.L2.global [%d0, {1.0, 0}];", "coordinates that are integers"),
    ("cp.async.bulk.prefetch.tensor.2d.L2.global [%d0, {%f0, 0}];", "coordinates that are integers"),
    ("tensormap.replace.tile.elemtype.global.b1024.b32 [%d0], %r0;", "no register there"),
    ("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d0], [s], 64;", "128"),
    ("createpolicy.range.L2::evict_last.b64 %d0, [%d1], 32, 16;", "at most the whole"),
    ("alloca.u64 %d0, %d1, 3;", "power of two"),
    ("stackrestore.u64 5;", "a register there"),
    ("pmevent.mask 65536;", "0 to 65535"),
    ("ld.local.u32 %r0, [1.0];", "an address of integers"),
    (f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, 2, 1, 1, 0, 0;", "0 or 1"),
    (f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, %p0, 0, 1, 0, 0;", "1 or -1"),
    (f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, %p0, 1, 1, 2, 0;", "0 or 1"),
    (f"{WGMMA} {{%f0,%f1,%f2,%d3}}, %d0, %d1, %p0, 1, 1, 0, 0;", "32 bits for .f32 there, got %d3"),
    (f"{WGMMA} {{%f0,%f1,%f2,%p3}}, %d0, %d1, %p0, 1, 1, 0, 0;", "32 bits for .f32 there, got %p3"),
    (f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %g0, %p0, 1, 1, 0, 0;", "64 bits there, got %g0"),
    (f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%u0,%u1}}, {{%r2}}, {{%f0,%f1,%f2,%f3}};", "32 bits for .f16 there, got %u0"),
    (f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1}}, {{1}}, {{%f0,%f1,%f2,%f3}};", "takes registers there"),
    (f"{MULTI_LOAD}.add.f32 %d0, [%d1];", "type .f32 there, got %d0"),
    (f"{MULTI_LOAD}.add.u32 %r0, [s];", "in .global there, and s"),
    (f"{MULTI_LOAD}.add.u32 %r0, [%d1], 5;", "takes 2 operands, got 3"),
    (f"{MULTI_LOAD}.add.v2.f16 %h0, [%d1];", "a vector of 2"),
    (f"{MULTI_LOAD}.add.acc::f16.v2.f16 {{%h0, %h1}}, [%d1];", "is for sm_100"),
    ("multimem.ld_reduce.relaxed.global.add.u32 %r0, [%d1];", "do not go together|needs"),
    ("multimem.red.weak.global.add.u32 [%d1], %r0;", "no modifier .weak|do not go together"),
    ("multimem.st.weak.global.u32 [%d1], 1.0;", "got a float"),
    (".reg .bf16 %b;", "no registers of type .bf16"),
    ("mul .lo.u32 %r0, %r1, %r2;", "one word"),
    ("cp.async.bulk .wait_group 0;", "one word"),
    ("mov. b32 %r0, 1;", "unknown name"),
    ("mov.b32$a %r0, 1;", "no type|no modifier .b32"),
    ("mov.b32 (%r0), 1;", "unknown name"),
    ("ld.global.v2.u32 (%r0, %r1), [%d0];", "unknown name"),
    (".target sm_90a;", "cannot read|unknown directive"),
    (".target sm_20 mapa.u64 %d0, %d1, %r0;", "sm_20"),
    (".target sm_90a, texmode_independent", "exclude each other"),
    ("T: .calltargets nosuch;", "declared before it"),
    ("mov.u64 %d0, f; T: .calltargets h, f; call %d0, (%r0), T;", "has 1 result|2 parameters"),
    (".extern .func f(.reg .b32 a);", "defined twice"),
    (".reg .b32 fresh; .extern .func fresh();", "again as a function"),
    ("mov.b128 %q0, 1.5;", "128|vector"),
    ("mov.b128 {%d0, %d1}, {%d2, %d3};", "one vector"),
    ("mov.b128 {%r0, %r1, %r2, %r3}, {%d2, %d3};", "one vector"),
    ("ld.global.b128 {%d0, %d1}, [%d2];", "128 bits"),
    ("atom.global.exch.b128 {%d0, %d1}, [%d2], %q0;", "128 bits"),
    ("ld.global.v2.b64 %q0, [%d0];", "at most 64 bits"),
    ("add.u64 %d0, %q0.x, %d1;", "unknown|has no"),
    ("st.global.v2.u16 [%d0], {%r0, %h0};", "one width"),
    (f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1}}, %r2, {{%f0,%f1,%f2,%f3}};", "vector"),
    ("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f32 {%r0,%r1}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3};", "go together"),
    (f"{MMA} {{%f0,%f1,%f2,%f3}}, {{%p0,%p1}}, {{%r2}}, {{%f0,%f1,%f2,%f3}};", "32 bits"),
    (f"{WGMMA} {{%f0,%f1,%f2,%f3}}, %d0, %d1, 1, 1, 1, 0;", "takes 8 operands"),
    (f"{WGMMA} {{%f0,%f1,%f2,%f3}}, {{%r0,%r1,%r2,%r3}}, %d1, 1, 1, 1, 0, 0;", "takes 7 operands"),
    ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r0,%r1,%r2,%r3}, %d0, %d1, 1, 1, 1;", "takes 4 operands"),
    ("mbarrier.arrive.shared.b64 [s];", "takes"),
    ("mbarrier.arrive.shared::cluster.b64 %d0, [%r0];", "write _"),
    ("mbarrier.test_wait.parity.shared.b64 %p0, [s], 1, 5;", "takes 3 operands"),
    ("atom.global.cas.L2::cache_hint.b32 %r0, [%d0], %r1, %r2, %d1;", "go together"),
    ("red.shared.add.L2::cache_hint.u32 [s], %r0, %d1;", "go together"),
    ("cp.async.ca.shared.global.L2::cache_hint [s], [%d1], 4, 8, %d0;", "reads at most the 4 bytes"),
]  # fmt: skip
FEATURES = [
    ("8.7", "sm_80", "mapa.u64 %d0, %d1, %r0;", "needs .target sm_90 or later"),
    ("8.7", "sm_90", "wgmma.fence.sync.aligned;", "needs .target sm_90a"),
    ("7.0", "sm_70", "cp.async.wait_all;", "needs .target sm_80 or later"),
    ("8.0", "sm_90a", "tensormap.replace.tile.rank.global.b1024.b32 [%d0], 1;", "needs .version 8.3 or later"),
    ("8.0", "sm_90a", "lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 5, %p1;", "needs .version 8.2 or later"),
    ("7.8", "sm_90", "elect.sync %r0|%p0, -1;", "needs .version 8.0 or later"),
    ("7.0", "sm_80", "mbarrier.arrive.b64 _, [%d0];", "version 7.1"),
    ("7.7", "sm_80", "mbarrier.arrive.b64 %d1, [%d0], 2;", "version 7.8"),
    ("8.5", "sm_90", "mbarrier.arrive.relaxed.cta.b64 %d1, [%d0];", "version 8.6"),
    ("7.7", "sm_80", "mov.u32 %r0, %cluster_ctarank;", "version 7.8"),
    ("8.0", "sm_80", "mov.u32 %r0, %clusterid.x;", "target sm_90"),
    ("4.1", "sm_50", "mov.u32 %r0, %dynamic_smem_size;", "version 4.2"),
    ("8.2", "sm_90a", "ld.global.b128 q, [%d0];", "version 8.3"),
    ("8.0", "sm_60", "ld.weak.u32 %r0, [%d0];", "target sm_70"),
    ("8.1", "sm_90", "ld.mmio.relaxed.sys.global.u32 %r0, [%d0];", "version 8.2"),
    ("8.0", "sm_90", "cvt.rn.satfinite.f16.f32 %h0, %f0;", "version 8.1"),
]
TAKEN_MODULES = [
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
    ".version 8.7\n.target sm_80\n.target sm_90a\n.address_size 64\n",
    HEAD + ".global .b8 many<100000>; .func j() { .local .b8 v<70000>; .param .b8 p<70000>; .reg .b8 t; ret; }\n",
]
TAKEN_STATEMENTS = [
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
    f"{MULTI_LOAD}.add.v4.f32 {{%f0, %u0, %r1, %f3}}, [%d1];",
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


def refused(text, said):
    with pytest.raises(PtxSyntaxError, match=said) as found:
        load_ptx(text)
    error = found.value
    assert 1 <= error.line <= text.count("\n") + 1
    assert error.column >= 1
    assert error.statement


@pytest.mark.parametrize(("text", "said"), MODULES)
def test_a_module_is_refused_with_its_place(text, said):
    refused(text + "\n" + ENTRY, said)


@pytest.mark.parametrize(("statement", "said"), STATEMENTS)
def test_a_statement_is_refused_with_its_place(statement, said):
    refused(inside(statement), said)


@pytest.mark.parametrize(("version", "target", "statement", "said"), FEATURES)
def test_an_instruction_of_another_version_or_target_is_refused(version, target, statement, said):
    wide = ".reg .b128 q;" if " q," in statement else ""
    text = f"{header(version, target)}.visible .entry k() {{ {OLD_REGISTERS}{wide}\n{statement}\nret; }}"
    refused(text, said)
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
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{ {REGISTERS}
    ld.param.u64 %d0, [x]; mov.u32 %r7, 3; {statement} st.global.b128 [%d0], %q0; ret; }}"""
    found = np.zeros(4, np.uint32)
    load_ptx(text).launch("k", 1, 1, (found,))
    assert found.tolist() == words
