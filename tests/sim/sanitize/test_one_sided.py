"""Registers that one path writes and another one does not: told of the lanes that have no value, where it matters."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.messages import pins
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import aligned, tensor_map

START = """mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [p0]; add.u64 %rd1, %rd1, %rd2;
mul.wide.u32 %rd3, %r1, 16; add.u64 %rd3, %rd3, %rd2; shl.b32 %r21, %r1, 4; mov.u32 %r2, smem; add.u32 %r20, %r2, %r21;\
setp.eq.u32 %p1, %r1, 99; setp.lt.u32 %p2, %r1, 16; mov.u32 %r3, 0;
"""
"""r1: thread; rd1: its word; rd3: its 16 bytes; p1: false; p2: of half of the warp; r2: shared memory; r20, r21: the
thread's 16 bytes of it, and where they begin."""

NONE = "@!%p1 bra ON; mov.u32 %r9, 7; ON:\n"
HALF = "@!%p2 bra ON; mov.u32 %r9, 7; ON:\n"
GUARDED = "@%p2 mov.u32 %r9, 7;\n"
KEEP = "st.global.u32 [%rd1], %r9;\n"
KEEP8 = "st.global.u32 [%rd1], %r8;\n"
LOCAL = ".local .b32 kept[1];\n"
MATRICES = "stmatrix.sync.aligned.m8n8.x4{}.shared.b16 [%r20], {{%r1, %r1, %r9, %r1}};\n"
"""Lane 16 holds row 4, columns 0 and 1 of the third matrix, whose rows begin at byte 256."""
BACK = "ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r20];\n"
SPILL = "st.local.u32 [kept], %r9;\n"
BOTH = "@%p2 bra ONE; mov.u32 %r9, 5; bra ON; ONE: mov.u32 %r9, 7; ON:\n"
LOOP = "MORE: setp.ne.u32 %p3, %r3, 0; {} add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 3; @%p4 bra MORE;\n"
MMA = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r9,%r1},{%r1},{%f0,%f1,%f2,%f3};\n"
ZEROS = "".join(f"mov.f32 %f{n}, 0f00000000;\n" for n in range(4))
SUM = "@!%p1 bra ON;\n" + ZEROS + "ON:\n" + MMA.replace("%r9", "%r1") + "st.global.f32 [%rd1], %f0;\n"

RIGHT = {
    "both paths write": (BOTH, KEEP),
    "lanes that write store": (HALF, "@%p2 " + KEEP),
    "guarded lanes that write store": (GUARDED, "@%p2 " + KEEP),
    "a loop that has written it before": (LOOP.format("@%p3 st.global.u32 [%rd1], %r9; mov.u32 %r9, %r3;"),),
    "what is not selected": (HALF, "selp.u32 %r9, %r9, %r1, %p2;\n", KEEP),
    "what is selected by halves": (
        HALF,
        "add.u32 %r9, %r9, 1; selp.u32 %r8, %r9, %r1, %p2; st.global.u32 [%rd1], %r8;\n",
    ),
    "a part of a vector": (HALF, "and.b32 %r8, %r1, 0; st.shared.v2.u32 [%r2], {%r8, %r9};\n"),
    "shared memory that nothing loads": (HALF, "mov.u32 %r8, %r9; st.shared.u32 [%r2], %r8;\n"),
    "a vector in shared memory that nothing loads": (HALF, "mov.u32 %r8, %r9; st.shared.v2.u32 [%r2], {%r8, %r9};\n"),
    "a part of a word": (HALF, "prmt.b32 %r9, %r9, %r1, 0x7654;\n", KEEP),
    "local memory": (".local .b32 kept[1];\n", HALF, "st.local.u32 [kept], %r9;\n"),
    "a vote of which nothing comes": (HALF, "setp.eq.u32 %p5, %r9, 7; vote.sync.any.pred %p6, %p5, -1;\n"),
    "nothing comes of it": (HALF, "add.u32 %r8, %r9, 1;\n"),
    "written anew": (HALF, "mov.u32 %r9, 3;\n", KEEP),
    "a predicate that is and-ed with false": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; and.pred %p5, %p5, %p2; @%p5 st.global.u32 [%rd1], %r1;\n",
    ),
    "a predicate that is or-ed with true": (
        HALF,
        "setp.ne.u32 %p5, %r9, 7; not.pred %p6, %p2; or.pred %p5, %p5, %p6; @%p5 st.global.u32 [%rd1], %r1;\n",
    ),
    "a comparison joined with false": (
        HALF,
        "setp.eq.and.u32 %p5, %r9, 7, %p2; @%p5 st.global.u32 [%rd1], %r1;\n",
    ),
    "the opposite of a comparison joined with what it decides": (
        "@%p2 setp.eq.u32 %p5, %r1, 3; setp.lt.and.u32 %p6|%p7, %r1, 99, %p5; @%p7 st.global.u32 [%rd1], %r1;\n",
    ),
    "a comparison that other bits decide": (
        HALF,
        "mov.b64 %rd5, {%r1, %r9}; mov.b64 %rd6, 99; setp.eq.u64 %p5, %rd5, %rd6; @%p5 st.global.u32 [%rd1], %r1;\n",
    ),
    "a wide register of which a half is used": (
        HALF,
        "mov.b64 %rd5, {%r9, %r1}; shr.u64 %rd5, %rd5, 32; st.global.u64 [%rd2], %rd5;\n",
    ),
    "false joined with a comparison of another": (
        "@%p2 setp.eq.u32 %p5, %r1, 3; setp.lt.and.u32 %p6, %r1, 16, %p5; @%p6 st.global.u32 [%rd1], %r1;\n",
    ),
    "a guard of nothing but registers that are not used": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; mov.u32 %r8, 1; @%p5 mov.u32 %r8, 2; @%p2 st.global.u32 [%rd1], %r8;\n",
    ),
    "a guard that lanes without it do not come to": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; @!%p2 bra OFF; @%p5 st.global.u32 [%rd1], %r1; OFF:\n",
    ),
    "bits and-ed away": (HALF, "and.b32 %r9, %r9, 0;\n", KEEP),
    "bits and-ed away by a register": (
        HALF,
        "selp.b32 %r8, -1, 0, %p2; and.b32 %r8, %r8, %r9; add.u32 %r8, %r8, 1; st.global.u32 [%rd1], %r8;\n",
    ),
    "bits or-ed away": (HALF, "or.b32 %r9, %r9, -1; add.u32 %r9, %r9, 1;\n", KEEP),
    "a product with zero": (HALF, "selp.u32 %r8, 1, 0, %p2; mul.lo.u32 %r9, %r9, %r8;\n", KEEP),
    "a sum with a product with zero": (HALF, "selp.u32 %r8, 1, 0, %p2; mad.lo.u32 %r9, %r9, %r8, %r1;\n", KEEP),
    "lop3 that takes another": (HALF, "lop3.b32 %r9, %r9, %r1, %r1, 0xCC;\n", KEEP),
    "lop3 that takes another where a third is 0": (
        HALF,
        "selp.b32 %r8, -1, 0, %p2; lop3.b32 %r9, %r9, %r1, %r8, 0xE4; add.u32 %r9, %r9, 1;\n",
        KEEP,
    ),
    "itself xor-ed with itself": (HALF, "xor.b32 %r9, %r9, %r9;\n", KEEP),
    "bits shifted away": (HALF, "mov.b64 %rd5, {%r1, %r9}; cvt.u32.u64 %r8, %rd5; st.global.u32 [%rd1], %r8;\n"),
    "half of a pair": (
        HALF,
        "cvt.u16.u32 %rs1, %r9; cvt.u16.u32 %rs2, %r1; mov.b32 %r8, {%rs2, %rs1}; add.f16x2 %r8, %r8, %r8;\n"
        "mov.b32 {%rs3, %rs4}, %r8; st.global.u16 [%rd1], %rs3;\n",
    ),
    "a byte that is inserted": (HALF, "bfi.b32 %r9, %r1, %r9, 0, 32; add.u32 %r9, %r9, 1;\n", KEEP),
    "a shuffle from lanes that have a value": (HALF, "shfl.sync.idx.b32 %r9, %r9, 3, 31, -1;\n", KEEP),
    "a vote that another lane decides": (
        "@%p2 setp.lt.u32 %p5, %r1, 99; vote.sync.any.pred %p6, %p5, -1; @%p6 st.global.u32 [%rd1], %r1;\n",
    ),
    "all lanes go the way that writes": ("@%p1 bra ON; mov.u32 %r9, 7; ON:\n", KEEP),
    "sums that begin on the way": (SUM.replace("@!%p1 bra", "@%p1 bra"),),
    "a vector's other element, kept in shared memory": (
        HALF,
        "st.shared.v4.u32 [%r20], {%r1, %r1, %r9, %r1}; ld.shared.u32 %r8, [%r20+4];\n",
        KEEP8,
    ),
    "shared memory that is written again": (
        HALF,
        "st.shared.v2.u32 [%r20], {%r1, %r9}; st.shared.u32 [%r20+4], %r1; ld.shared.u32 %r8, [%r20+4];\n",
        KEEP8,
    ),
    "shared memory that is written by what has a guard": (
        HALF,
        "st.shared.v2.u32 [%r20], {%r1, %r9}; @!%p2 st.shared.u32 [%r20+4], %r1; ld.shared.u32 %r8, [%r20+4];\n",
        KEEP8,
    ),
    "local memory that lanes with a value load": (LOCAL, HALF, SPILL, "@%p2 ld.local.u32 %r8, [kept];\n@%p2 " + KEEP8),
    "local memory that is written again": (
        LOCAL,
        HALF,
        "st.local.u32 [kept], %r9; st.local.u32 [kept], %r1; ld.local.u32 %r8, [kept];\n",
        KEEP8,
    ),
    "local memory of which another byte is loaded": (
        LOCAL,
        HALF,
        "shl.b32 %r8, %r9, 8; st.local.u32 [kept], %r8; ld.local.u8 %r8, [kept];\n",
        KEEP8,
    ),
    "local memory that is masked": (LOCAL, HALF, SPILL, "ld.local.u32 %r8, [kept]; and.b32 %r8, %r8, 0;\n", KEEP8),
    "an atomic upon shared memory": (
        HALF,
        "st.shared.v2.u32 [%r20], {%r1, %r9}; atom.shared.exch.b32 %r8, [%r20+4], %r1; ld.shared.u32 %r8, [%r20+4];\n",
        KEEP8,
    ),
    "a pack of which the other half is stored": (
        HALF,
        "mov.b64 %rd5, {%r9, %r1}; mov.b64 {%r7, %r8}, %rd5;\n",
        KEEP8,
    ),
    "another row of a matrix": (
        HALF,
        MATRICES.format(""),
        "bar.warp.sync -1; ld.shared.v4.u32 {%r8, %r10, %r11, %r12}, [%r2+304];\n",
        KEEP8,
    ),
    "another column of a transposed matrix": (
        HALF,
        MATRICES.format(".trans"),
        "bar.warp.sync -1; ld.shared.u16 %r8, [%r2+262];\n",
        KEEP8,
    ),
    "another matrix": (HALF, MATRICES.format(""), BACK.format(""), "st.global.v2.u32 [%rd3], {%r11, %r13};\n"),
    "rows of a matrix that lanes with a value hold": (
        HALF,
        MATRICES.format(""),
        BACK.format(""),
        "@%p2 st.global.u32 [%rd1], %r12;\n",
    ),
    "a matrix that is written again": (
        HALF,
        MATRICES.format(""),
        MATRICES.format("").replace("9", "1"),
        BACK.format(""),
        "st.global.u32 [%rd1], %r12;\n",
    ),
    "a row of a matrix that lanes with a value hold": (
        HALF,
        "movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r9; and.b32 %r7, %r1, 2; setp.eq.u32 %p5, %r7, 0;\n@%p5 " + KEEP8,
    ),
    "bits that bfe leaves": (HALF, "shl.b32 %r8, %r9, 8; bfe.u32 %r8, %r8, 0, 8;\n", KEEP8),
    "bits that bfi replaces": (HALF, "and.b32 %r8, %r9, 255; bfi.b32 %r8, %r1, %r8, 0, 8;\n", KEEP8),
    "a byte that prmt leaves": (HALF, "prmt.b32 %r8, %r9, %r1, 0x4444;\n", KEEP8),
    "bits that shf moves away": (HALF, "shf.l.wrap.b32 %r8, %r9, %r1, 0;\n", KEEP8),
    "lop3 of bits that are masked": (HALF, "lop3.b32 %r8, %r9, %r1, 0, 0x80;\n", KEEP8),
    "halves that are masked before they are joined": (
        HALF,
        "and.b32 %r8, %r9, 0; shl.b32 %r7, %r1, 16; or.b32 %r8, %r8, %r7;\n",
        KEEP8,
    ),
    "a comparison of words that the other half decides": (
        HALF,
        "mov.b64 %rd5, {%r9, %r1}; setp.eq.u64 %p5, %rd5, -1; @%p5 bra OFF; mov.u32 %r8, 1; OFF:\n",
    ),
    "a vote that a lane with a value decides": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; vote.sync.any.pred %p6, %p5, -1; @%p6 bra OFF;\n",
        KEEP.replace("9", "1"),
        "OFF:\n",
    ),
    "a ballot of which other bits are stored": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; vote.sync.ballot.b32 %r8, %p5, -1; and.b32 %r8, %r8, 65535;\n",
        KEEP8,
    ),
}
WRONG = {
    "an element of a vector": (HALF, "st.global.v4.u32 [%rd3], {%r1, %r1, %r9, %r1};\n"),
    "an element of a vector in shared memory": (
        HALF,
        "st.shared.v4.u32 [%r20], {%r1, %r1, %r9, %r1}; ld.shared.v2.u32 {%r7, %r8}, [%r20+8];\n",
        "st.global.u32 [%rd1], %r7;\n",
    ),
    "an element of a vector that another lane loads": (
        HALF,
        "st.shared.v2.u32 [%r20], {%r1, %r9}; bar.warp.sync -1; xor.b32 %r8, %r20, 256; ld.shared.u32 %r8, [%r8+4];\n",
        "@%p2 " + KEEP8,
    ),
    "an element that a generic address stores": (
        HALF,
        "cvta.shared.u64 %rd5, smem; cvt.u64.u32 %rd6, %r21; add.u64 %rd5, %rd5, %rd6; st.v2.u32 [%rd5], {%r1, %r9};\n",
        "ld.v2.u32 {%r7, %r8}, [%rd5];\n",
        KEEP8,
    ),
    "a generic store of a result": (HALF, "st.u32 [%rd1], %r9;\n"),
    "a row of a matrix": (HALF, MATRICES.format(""), "bar.warp.sync -1; ld.shared.u32 %r8, [%r2+320];\n", KEEP8),
    "a column of a transposed matrix": (
        HALF,
        MATRICES.format(".trans"),
        "bar.warp.sync -1; ld.shared.u16 %r8, [%r2+264];\n",
        KEEP8,
    ),
    "a matrix": (HALF, MATRICES.format(""), BACK.format(""), "st.global.u32 [%rd1], %r12;\n"),
    "a matrix that is transposed": (
        HALF,
        MATRICES.format(""),
        BACK.format(".trans"),
        "@%p2 st.global.u32 [%rd1], %r12;\n",
    ),
    "a pack": (HALF, "mov.b64 %rd5, {%r9, %r1}; st.global.u64 [%rd3], %rd5;\n"),
    "a pack that is compared": (
        HALF,
        "mov.b64 %rd5, {%r9, %r1}; and.b64 %rd5, %rd5, 0xffffffff; setp.eq.u64 %p5, %rd5, 7; @%p5 bra OFF;\n",
        KEEP.replace("9", "1"),
        "OFF:\n",
    ),
    "local memory": (LOCAL, HALF, SPILL, "ld.local.u32 %r8, [kept];\n", KEEP8),
    "local memory that decides": (
        LOCAL,
        HALF,
        SPILL,
        "ld.local.u32 %r8, [kept]; setp.eq.u32 %p5, %r8, 7; @%p5 bra OFF;\n",
        KEEP.replace("9", "1"),
        "OFF:\n",
    ),
    "local memory that is loaded with its sign": (
        LOCAL,
        HALF,
        "shl.b32 %r8, %r9, 7; st.local.u32 [kept], %r8; ld.local.s8 %r8, [kept]; shr.u32 %r8, %r8, 16;\n",
        KEEP8,
    ),
    "a byte of local memory": (LOCAL, HALF, SPILL, "ld.local.u8 %r8, [kept];\n", KEEP8),
    "a ballot that is stored": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; vote.sync.ballot.b32 %r8, %p5, -1;\n",
        KEEP8,
    ),
    "a vote that no lane with a value decides": (
        HALF,
        "setp.eq.u32 %p5, %r9, 3; vote.sync.any.pred %p6, %p5, -1; @%p6 bra OFF;\n",
        KEEP.replace("9", "1"),
        "OFF:\n",
    ),
    "a byte that and keeps": (HALF, "and.b32 %r8, %r9, 255;\n", KEEP8),
    "bits that bfe takes": (HALF, "bfe.u32 %r8, %r9, 0, 4;\n", KEEP8),
    "bits that bfi inserts": (HALF, "bfi.b32 %r8, %r9, %r1, 4, 4;\n", KEEP8),
    "bits that lop3 keeps": (HALF, "lop3.b32 %r8, %r9, 7, 7, 0x80;\n", KEEP8),
    "a byte that prmt takes": (HALF, "prmt.b32 %r8, %r9, %r1, 0x7650;\n", KEEP8),
    "bits that shf moves": (HALF, "shf.l.wrap.b32 %r8, %r9, %r1, 8;\n", KEEP8),
    "halves that are joined": (HALF, "and.b32 %r8, %r9, 65535; shl.b32 %r7, %r1, 16; or.b32 %r8, %r8, %r7;\n", KEEP8),
    "a guard of a guarded comparison": ("@%p2 setp.eq.u32 %p5, %r1, 3; @%p5 st.global.u32 [%rd1], %r1;\n",),
    "a predicate that is and-ed with true": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; not.pred %p6, %p2; and.pred %p5, %p5, %p6; @%p5 st.global.u32 [%rd1], %r1;\n",
    ),
    "a register guarded by what has no value": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; mov.u32 %r8, 1; @%p5 mov.u32 %r8, 2; st.global.u32 [%rd1], %r8;\n",
    ),
    "a shuffle": (HALF, "shfl.sync.bfly.b32 %r8, %r9, 16, 31, -1; st.global.u32 [%rd1], %r8;\n"),
    "a shuffle by lanes that have a value": (
        HALF,
        "shfl.sync.bfly.b32 %r8, %r9, 16, 31, -1; @%p2 st.global.u32 [%rd1], %r8;\n",
    ),
    "a row of a matrix that lanes without a value hold": (
        HALF,
        "movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r9; and.b32 %r7, %r1, 2; setp.ne.u32 %p5, %r7, 0;\n@%p5 " + KEEP8,
    ),
    "a byte of a register": (HALF, "cvt.u16.u32 %rs1, %r9; st.global.u8 [%rd1], %rs1;\n"),
    "a half that is undefined": (
        HALF,
        "mov.b64 %rd5, {%r1, %r9}; mov.b64 {%r7, %r8}, %rd5; st.global.u32 [%rd1], %r8;\n",
    ),
    "bits that are kept": (
        HALF,
        "and.b32 %r9, %r9, 255; shl.b32 %r9, %r9, 24; shr.u32 %r9, %r9, 24; "
        "setp.eq.u32 %p5, %r9, 7; @%p5 st.global.u32 [%rd1], %r1;\n",
    ),
    "the other result of a comparison": (
        "@%p2 setp.eq.u32 %p5, %r1, 3; setp.lt.and.u32 %p6|%p7, %r1, 0, %p5; @%p7 st.global.u32 [%rd1], %r1;\n",
    ),
    "a ballot": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; vote.sync.ballot.b32 %r8, %p5, -1; setp.eq.u32 %p6, %r8, 65535;\n",
        "@%p6 st.global.u32 [%rd1], %r1;\n",
    ),
    "a store": (NONE, KEEP),
    "a store by half of the lanes": (HALF, KEEP),
    "a store after a guarded move": (GUARDED, KEEP),
    "a store of a sum": (HALF, "add.u32 %r9, %r9, %r1;\n", KEEP),
    "a store of what was moved": (
        HALF,
        "mov.u32 %r8, %r9; st.shared.u32 [%r20], %r8; ld.shared.u32 %r8, [%r20];\n",
        KEEP8,
    ),
    "a store of what is selected": (HALF, "selp.u32 %r9, %r1, %r9, %p2;\n", KEEP),
    "a store in the first round": (LOOP.format("st.global.u32 [%rd1], %r9; mov.u32 %r9, %r3;"),),
    "both parts of a vector": (
        HALF,
        "mov.u32 %r8, %r9; st.shared.v2.u32 [%r20], {%r8, %r9}; ld.shared.u32 %r8, [%r20];\n",
        KEEP8,
    ),
    "an atomic": (HALF, "red.global.add.u32 [%rd2], %r9;\n"),
    "an atomic with a result": (HALF, "atom.global.add.u32 %r8, [%rd2], %r9;\n"),
    "an address": (HALF, "and.b32 %r9, %r9, 4; add.u32 %r9, %r9, %r2; ld.shared.u32 %r8, [%r9];\n"),
    "a branch": (HALF, "setp.eq.u32 %p5, %r9, 7; @%p5 bra OFF; mov.u32 %r8, 1; st.global.u32 [%rd1], %r8; OFF:\n"),
    "a guard": (HALF, "setp.eq.u32 %p5, %r9, 7; @%p5 st.global.u32 [%rd1], %r1;\n"),
    "a predicate of one path": (
        "@!%p2 bra ON; setp.eq.u32 %p5, %r1, 3; ON: @%p5 bra OFF;\n",
        KEEP.replace("9", "1"),
        "OFF:\n",
    ),
    "an operand of an MMA": (HALF, ZEROS, MMA),
    "sums of an MMA": (SUM,),
    "a vote": (
        HALF,
        "setp.eq.u32 %p5, %r9, 7; vote.sync.all.pred %p6, %p5, -1; @%p6 bra OFF;\n",
        KEEP.replace("9", "1"),
        "OFF:\n",
    ),
    "a reduction of the warp": (HALF, "redux.sync.add.u32 %r9, %r9, -1; @%p2 st.global.u32 [%rd1], %r9;\n"),
    "a barrier": (NONE, "bar.sync %r9;\n"),
    "an mbarrier": (
        "setp.eq.u32 %p5, %r1, 0; @%p5 mbarrier.init.shared.b64 [%r2], 32; bar.warp.sync -1;\n",
        "@!%p1 bra ON; mov.u32 %r9, 1; ON: mbarrier.arrive.shared.b64 _, [%r2], %r9;\n",
    ),
}


def hazards_of(lines, module="", *, may_fail=False):
    run = Run((), None, sanitize=True)
    try:
        launch(START + "".join(lines), np.zeros(128, np.uint32), run=run, smem_bytes=1024, module=module)
    except Exception as error:
        assert may_fail, error
        assert type(error).__module__.startswith("cutepy")
    return run.hazards


@pytest.mark.parametrize("name", RIGHT)
def test_lanes_that_have_a_value_are_not_told(name):
    assert [hazard.kind for hazard in hazards_of(RIGHT[name])] == []


@pytest.mark.parametrize("name", WRONG)
def test_lanes_that_have_none_are_told_where_it_matters(name):
    hazards = [hazard for hazard in hazards_of(WRONG[name], may_fail=True) if hazard.kind == "uninitialised-read"]
    assert len(hazards) == 1
    pins(hazards[0].missing)


TAKES = ".func (.reg .b32 o) takes(.reg .b32 i) { .reg .b32 %x<9>; .reg .pred %q; BODY ret; }\n"
PARAM = """.func (.param .b32 o) takes(.param .align 8 .b8 i[8]) { .reg .b32 %x<9>; .reg .pred %q;
ld.param.v2.u32 {%x1, %x2}, [i]; BODY st.param.b32 [o], %x3; ret; }
"""
CALL = "call (%r8), takes, (%r9);\n"
TWO = """{ .param .align 8 .b8 a[8]; .param .b32 b; st.param.v2.u32 [a], {%r1, %r9};
call.uni (b), takes, (a); ld.param.b32 %r8, [b]; }
"""
OWN = "setp.lt.u32 %q, i, 16; @%q mov.u32 %x1, 3; "
RIGHT_CALLS = {
    "an argument that is masked": (TAKES.replace("BODY", "and.b32 o, i, 0;"), HALF + CALL),
    "another part of an argument": (PARAM.replace("BODY", "add.u32 %x3, %x1, 1;"), HALF + TWO),
    "a function's own register that is written": (
        TAKES.replace("BODY", OWN + "@!%q mov.u32 %x1, 4; add.u32 o, %x1, 1;"),
        CALL.replace("%r9", "%r1"),
    ),
    "a call by lanes that have a value": (
        TAKES.replace("BODY", "add.u32 o, i, 1;"),
        "mov.u32 %r8, 0;\n" + HALF + "@%p2 " + CALL,
    ),
}
WRONG_CALLS = {
    "an argument": (TAKES.replace("BODY", "add.u32 o, i, 1;"), HALF + CALL),
    "an argument that the function stores": (
        TAKES.replace(
            "BODY",
            ".reg .b64 %y, %z; mov.u32 %x8, %tid.x; cvta.shared.u64 %y, there; mul.wide.u32 %z, %x8, 4; "
            "add.u64 %y, %y, %z; st.u32 [%y], i; ld.u32 o, [%y];",
        ),
        HALF + CALL,
    ),
    "a part of an argument": (PARAM.replace("BODY", "add.u32 %x3, %x2, 1;"), HALF + TWO),
    "a function's own register": (TAKES.replace("BODY", OWN + "add.u32 o, %x1, 1;"), CALL.replace("%r9", "%r1")),
    "a function's own register at the second call": (
        TAKES.replace("BODY", OWN + "add.u32 o, %x1, 1;"),
        "mov.u32 %r7, 3; call (%r8), takes, (%r7);\n" + CALL.replace("%r9", "%r1"),
    ),
    "a call by an address": (
        TAKES.replace("BODY", "add.u32 o, i, 1;"),
        HALF + "mov.u64 %rd5, takes; Q: .callprototype (.reg .b32 _) _ (.reg .b32 _); call (%r8), %rd5, (%r9), Q;\n",
    ),
    "a call within a call": (
        ".func (.reg .b32 o) inner(.reg .b32 i) { add.u32 o, i, 1; ret; }\n"
        + TAKES.replace("BODY", "call (o), inner, (i);"),
        HALF + CALL,
    ),
}


@pytest.mark.parametrize("name", RIGHT_CALLS)
def test_calls_with_values_are_not_told(name):
    module, body = RIGHT_CALLS[name]
    assert hazards_of((body, KEEP8), module) == ()


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_calls_without_values_are_told_where_it_matters(name):
    module, body = WRONG_CALLS[name]
    (hazard,) = hazards_of((body, KEEP8), ".shared .b32 there[32];\n" + module)
    assert hazard.kind == "uninitialised-read"
    pins(hazard.missing)


NESTED = """.func (.reg .b32 o) takes(.reg .b32 i) { .reg .b32 %x<9>; .reg .pred %q, %w; mov.u32 %x3, 0;
setp.eq.u32 %q, i, 0; @%q bra DEEP; sub.u32 %x2, i, 1; BEFORE call (%x3), takes, (%x2); AFTER
bra OUT; DEEP: INNERMOST OUT: mov.u32 o, %x3; ret; }
"""
THREE = "mov.u32 %r7, 3; call (%r8), takes, (%r7);\n"
EVEN = "and.b32 %x4, i, 1; setp.eq.u32 %w, %x4, 0; @%w mov.u32 %x1, 5; "
RECURSIONS = {
    "the caller's register keeps its value": ("mov.u32 %x1, 5;", "add.u32 %x3, %x3, %x1;", "mov.u32 %x3, 1;", False),
    "the innermost call alone has a value": ("", "add.u32 %x3, %x3, 1;", "mov.u32 %x1, 5; add.u32 %x3, %x1, 1;", False),
    "a value of the call within": ("", "add.u32 %x3, %x3, %x1;", "mov.u32 %x1, 5; mov.u32 %x3, %x1;", True),
    "a value of every other call": (EVEN, "add.u32 %x3, %x3, %x1;", "mov.u32 %x3, 1;", True),
    "a value of every other call that it uses": (EVEN, "@%w add.u32 %x3, %x3, %x1;", "mov.u32 %x3, 1;", False),
    "a result without a value": ("", "add.u32 %x3, %x3, 1;", EVEN + "@!%w bra OUT; setp.eq.u32 %w, i, 9; "
                                 "@%w mov.u32 %x6, 5; mov.u32 %x3, %x6;", True),
}  # fmt: skip


def _through(module, others):
    """Let the function call itself through others, which pass on what they take."""
    names = [*(f"by{n}" for n in range(others)), "takes"]
    passing = "{{ .reg .b32 %y<2>; mov.u32 %y0, i; call (%y1), {}, (%y0); mov.u32 o, %y1; ret; }}\n"
    heads = [f".func (.reg .b32 o) {name}(.reg .b32 i)" for name in names]
    bodies = [head + passing.format(to) for head, to in zip(heads[:-1], names[1:], strict=True)]
    module = module.replace("call (%x3), takes,", f"call (%x3), {names[0]},")
    return "".join(f"{head};\n" for head in heads) + module + "".join(bodies)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("name", RECURSIONS)
def test_each_call_of_a_recursion_has_registers_of_its_own(name, others):
    before, after, innermost, is_wrong = RECURSIONS[name]
    module = NESTED.replace("BEFORE", before).replace("AFTER", after).replace("INNERMOST", innermost)
    hazards = hazards_of((THREE, KEEP8), _through(module, others))
    assert [hazard.kind for hazard in hazards] == ["uninitialised-read"] * is_wrong


def test_a_caller_keeps_what_it_lacks_at_its_last_call():
    module = NESTED.replace("BEFORE", "").replace("AFTER", "").replace("INNERMOST", "")
    assert hazards_of((HALF, THREE, "@!%p2 mov.u32 %r9, 3;\n", THREE, KEEP), module) == ()
    (hazard,) = hazards_of((HALF, THREE, THREE, KEEP), module)
    assert hazard.kind == "uninitialised-read"


EARLY = f""".func (.reg .b32 o) takes(.reg .b32 i) {{ .reg .b32 %x<9>; .reg .pred %q, %w; mov.u32 o, 1;
setp.eq.u32 %q, i, 0; {EVEN} @%q ret; sub.u32 %x2, i, 1; call (%x3), takes, (%x2); AFTER mov.u32 o, %x3; ret; }}
"""


@pytest.mark.parametrize(
    ("after", "is_wrong"), [("@%w add.u32 %x3, %x3, %x1;", False), ("add.u32 %x3, %x3, %x1;", True)]
)
def test_lanes_that_do_not_return_stay_as_deep(after, is_wrong):
    hazards = hazards_of(("and.b32 %r7, %r1, 3; call (%r8), takes, (%r7);\n", KEEP8), EARLY.replace("AFTER", after))
    assert [hazard.kind for hazard in hazards] == ["uninitialised-read"] * is_wrong


def test_lanes_that_recur_to_several_depths_keep_what_each_lacks():
    module = NESTED.replace("BEFORE", "setp.lt.u32 %w, i, 3; @%w mov.u32 %x1, 5;").replace("INNERMOST", "")
    call = "and.b32 %r7, %r1, 3; call (%r8), takes, (%r7);\n"
    assert hazards_of((call, KEEP8), module.replace("AFTER", "@%w add.u32 %x3, %x3, %x1;")) == ()
    (hazard,) = hazards_of((call, KEEP8), module.replace("AFTER", "add.u32 %x3, %x3, %x1;"))
    pins(hazard.missing)


def test_the_path_that_writes_is_named():
    (hazard,) = hazards_of((HALF, KEEP))
    assert "`mov.u32 %r9, 7` (kernel.py:" in hazard.missing
    assert hazard.after.instruction.opcode == "st.global.u32"


def test_the_register_that_began_it_is_named_and_the_lanes_that_lack_it():
    (hazard,) = hazards_of((GUARDED, "add.u32 %r8, %r9, %r1;\n", "st.global.u32 [%rd1], %r8;\n"))
    pins(hazard.missing)
    pins(hazard.missing)
    assert hazard.after.who == "threads 16-31"


def test_of_a_shuffle_the_lanes_are_named_that_did_not_write():
    (hazard,) = hazards_of(WRONG["a shuffle"])
    assert hazard.after.who == "threads 0-15"
    pins(hazard.missing)


def test_of_a_loop_what_counts_up_is_no_write():
    (hazard,) = hazards_of((HALF, LOOP.format("add.u32 %r9, %r9, 1;"), KEEP))
    pins(hazard.missing)
    assert "add" not in hazard.missing


ROWS = "st.shared.v4.u32 [%r20], {{%r1, {}, %r1, %r1}};\nfence.proxy.async; bar.sync 0; setp.eq.u32 %p8, %r1, 0;\n"
WAIT = "@%p8 cp.async.bulk.commit_group; @%p8 cp.async.bulk.wait_group 0;\n"
COPY = "@%p8 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 512;\n" + WAIT
REDUCE = COPY.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace("group [", "group.add.u32 [", 1)
WGMMA = """wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, A, %rd11, 0, 1, 1, TAIL;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
OF_MEMORY, OF_REGISTERS = (
    WGMMA.replace("A,", "%rd11,").replace("TAIL", "0, 0"),
    WGMMA.replace("A,", "{%r9, %r1, %r1, %r1},").replace("TAIL", "0"),
)
DESCRIBED = """shr.u32 %r31, %r2, 4; cvt.u64.u32 %rd11, %r31; or.b64 %rd11, %rd11, 0x0000000800080000;
mad.lo.u32 %r41, %r1, 16, %r2; st.shared.v4.u32 [%r41], {%r3, %r3, %r3, %r3}; fence.proxy.async; bar.sync 0;
"""
READ_ELSEWHERE = {
    "a copy of what half of the lanes have": (HALF, ROWS.format("%r9"), COPY),
    "a copy of what nothing gives a value": (ROWS.format("%r9"), COPY),
    "a reduction": (HALF, ROWS.format("%r9"), REDUCE),
    "a reduction of what nothing gives a value": (ROWS.format("%r9"), REDUCE),
    "an MMA of shared memory": (DESCRIBED, HALF, ROWS.format("%r9"), OF_MEMORY, "st.global.f32 [%rd1], %f0;\n"),
    "an MMA of registers": (DESCRIBED, HALF, OF_REGISTERS),
    "an MMA of registers that nothing gives a value": (DESCRIBED, OF_REGISTERS),
    "an atomic of what nothing gives a value": ("atom.global.add.u32 %r8, [%rd2], %r9;\n",),
    "a reduction of registers that nothing gives a value": ("mov.u32 %r8, %r9; red.global.add.u32 [%rd2], %r8;\n",),
    "an atomic of shared memory": (HALF, ROWS.format("%r9"), "atom.shared.add.u32 %r8, [%r20+4], 1;\n", KEEP8),
    "a reduction of the warp that nothing gives a value": ("redux.sync.add.u32 %r8, %r9, -1;\n", KEEP8),
    "a sum of what is shuffled": ("shfl.sync.bfly.b32 %r8, %r9, 1, 31, -1; add.u32 %r8, %r8, 1;\n", KEEP8),
}
PEER = """setp.eq.u32 %p8, %r1, 0; add.u32 %r30, %r2, 3072; @%p8 mbarrier.init.shared.b64 [%r30], 1;
fence.mbarrier_init.release.cluster; bar.sync 0; @%p8 mbarrier.arrive.expect_tx.shared.b64 _, [%r30], 2048;
"""
WAITED = """TRY: mbarrier.try_wait.parity.shared.b64 %p7, [%r30], 0; @!%p7 bra TRY;
ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r20+0];
"""
STORED = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%r20], {%r1, %r9, %r1, %r1}, [%r30];\n"
COPIED = (
    "add.u32 %r31, %r2, 4096; st.shared.v4.u32 [%r20+4096], {%r1, %r9, %r1, %r1}; fence.proxy.async; bar.sync 0;\n"
    "@%p8 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [%r31], 2048, [%r30];\n"
)
BROUGHT = {"st.async": STORED, "a copy to a peer": COPIED}


@pytest.mark.parametrize("half", [HALF, ""], ids=["one path", "no instruction"])
@pytest.mark.parametrize("how", BROUGHT)
def test_bits_without_a_value_are_followed_to_a_peer(how, half):
    for register, is_wrong in (("%r10", False), ("%r11", True), ("%r12", False)):
        lines = half, PEER, BROUGHT[how], WAITED, f"st.global.u32 [%rd1], {register};\n"
        found = elsewhere(lines, 8192)
        assert len(found) == is_wrong
        assert all("%r9" in hazard.missing for hazard in found)


READ_ELSEWHERE_RIGHT = {
    "a copy of other bytes": (HALF, ROWS.format("%r9"), "st.shared.v4.u32 [%r20+2048], {%r1, %r1, %r1, %r1};\n",
                              "fence.proxy.async; bar.sync 0;\n", COPY.replace("[%r2]", "[%r2+2048]")),
    "a copy of what is written again": (HALF, ROWS.format("%r9"), "st.shared.u32 [%r20+4], %r1;\n", ROWS.format("%r1"),
                                        COPY),
    "an MMA of what has values": (DESCRIBED, OF_MEMORY),
    "an MMA of which nothing is stored": (DESCRIBED, HALF, ROWS.format("%r9"), OF_MEMORY),
    "an atomic beside": (HALF, ROWS.format("%r9"), "atom.shared.add.u32 %r8, [%r20], 1;\n"),
}  # fmt: skip


def elsewhere(lines, smem_bytes=4096):
    run = Run((), None, sanitize=True)
    launch(START + "".join(lines), np.zeros(512, np.uint32), run=run, smem_bytes=smem_bytes, block=128)
    return [hazard for hazard in run.hazards if hazard.kind == "uninitialised-read"]


@pytest.mark.parametrize("name", READ_ELSEWHERE)
def test_what_mmas_copies_and_atomics_read_without_a_value_is_told(name):
    (hazard,) = elsewhere(READ_ELSEWHERE[name])
    assert "%r9" in hazard.missing or "%r8" in hazard.missing


@pytest.mark.parametrize("name", READ_ELSEWHERE_RIGHT)
def test_what_mmas_copies_and_atomics_read_with_a_value_is_not_told(name):
    assert elsewhere(READ_ELSEWHERE_RIGHT[name]) == []


@pytest.mark.parametrize(("column", "is_wrong"), [(0, True), (64, False)])
def test_a_store_that_its_tensor_map_clips_may_read_what_has_no_value(column, is_wrong):
    """The tensor has 72 columns: of 16 from column 64 on it takes 8, and the second vector of each row has no value."""
    array = aligned((19, 72), "u2")
    run = Run((), None, sanitize=True)
    run.register(array)
    body = f"""mov.u32 %r10, smem; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, 8;
    mov.b64 %rd1, p0; cvta.param.u64 %rd1, %rd1; mad.lo.u32 %r12, %r1, 32, %r10; mov.u32 %r30, 7;
    @%p2 st.shared.v4.u32 [%r12], {{%r30, %r30, %r30, %r30}};
    @%p2 st.shared.v4.u32 [%r12+16], {{%r30, %r9, %r30, %r30}}; fence.proxy.async; bar.warp.sync -1;
    mov.u32 %r20, {column}; mov.u32 %r21, 0;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {{%r20, %r21}}], [%r10];
    @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;"""
    launch(body, tensor_map(array, (16, 8)), smem_bytes=4096, run=run)
    assert [hazard.kind for hazard in run.hazards] == ["uninitialised-read"] * is_wrong


def clipped(column, row, rows, units, swizzle, operation=""):
    """Store a box of 8 rows of 2 units into a tensor of 19 rows and 72 columns, of which some units were written."""
    array = aligned((19, 72), "u4" if operation else "u2")
    wide = array.itemsize // 2
    places = [32 * r + 16 * (u ^ (r >> 2 & 1 if swizzle == "SW32" else 0)) for r in range(rows) for u in range(units)]
    opcode = "cp.reduce.async.bulk.tensor.2d" if operation else "cp.async.bulk.tensor.2d"
    run = Run((), None, sanitize=True)
    run.register(array)
    body = f"""mov.u32 %r10, smem; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r30, 7;
    mov.b64 %rd1, p0; cvta.param.u64 %rd1, %rd1; mov.u32 %r20, {column // wide}; mov.u32 %r21, {row};
    {" ".join(f"@%p1 st.shared.v4.u32 [%r10+{n}], {{%r30, %r30, %r30, %r30}};" for n in places)}
    fence.proxy.async; bar.warp.sync -1;
    @%p1 {opcode}.global.shared::cta{operation}.tile.bulk_group [%rd1, {{%r20, %r21}}], [%r10];
    @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;"""
    launch(body, tensor_map(array, (16 // wide, 8), swizzle=swizzle), smem_bytes=4096, run=run)
    (certificate,) = run.certificates
    return [hazard.kind for hazard in (*run.hazards, *run.advisories)], certificate.is_certified


@pytest.mark.parametrize(("swizzle", "operation"), [("INTER", ""), ("SW32", ""), ("SW32", ".add")])
def test_what_a_store_drops_outside_of_its_tensor_need_not_be_written(swizzle, operation):
    """It reaches nothing, whatever it is."""
    end = 64 if not operation else 136
    for column, row, rows, units in ((0, 0, 8, 2), (end, 0, 8, 1), (0, 16, 3, 2), (end, 16, 3, 1), (0, 19, 1, 1)):
        assert clipped(column, row, rows, units, swizzle, operation) == ([], True)


@pytest.mark.parametrize(("column", "row", "rows", "units"), [(0, 16, 2, 2), (0, 16, 3, 1), (64, 0, 7, 1)])
def test_what_a_store_takes_inside_of_its_tensor_must_be_written(column, row, rows, units):
    assert clipped(column, row, rows, units, "SW32") == (["uninitialised-read"], False)
