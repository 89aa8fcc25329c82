"""Registers and local memory that nothing has written: told where something comes of it, and only there."""

import numpy as np
import pytest

from cutepy.sim import Run, SimulationError
from tests.messages import pins
from tests.sim.opcode_runner import launch

START = """.local .align 16 .b8 there[32]; .local .align 16 .b8 here[32];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [p0]; add.u64 %rd1, %rd1, %rd2; 
mul.wide.u32 %rd3, %r1, 16; add.u64 %rd3, %rd3, %rd2; mov.u32 %r40, smem; mad.lo.u32 %r40, %r1, 16, %r40;
setp.eq.u32 %p1, %r1, 99;
"""
"""r1: thread; rd1: its word; rd3: its 16 bytes; r40: its 16 bytes of shared memory; p1: false."""

SUMS = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r1,%r1},{%r1},{%f4,%f5,%f6,%f7};\n"
SAME = SUMS.replace("%f4,%f5,%f6,%f7", "%f0,%f1,%f2,%f3")
ZEROS = "".join(f"mov.f32 %f{n}, 0f00000000;\n" for n in range(4))
NAMES = "".join(f"mov.f32 %f{n + 4}, %f{n};\n" for n in range(4))
STORE = "st.global.f32 [%rd1], %f0;\n"
KEEP = "st.global.u32 [%rd1], %r9;\n"

SHARED = "st.shared.v2.u32 [%r40], {%r1, %r1}; st.shared.u32 [%r40+8], %r1;\n"
"""All but the last of four words."""

RIGHT = {
    "an element of shared memory that goes nowhere": (
        SHARED,
        "ld.shared.v4.u32 {%r5, %r6, %r7, _}, [%r40]; st.global.v2.u32 [%rd3], {%r5, %r6};\n",
    ),
    "an element of shared memory that nothing reads": (
        SHARED,
        "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r40]; add.u32 %r9, %r5, %r7; mov.u32 %r8, 1;\n",
        KEEP,
    ),
    "shared memory that is loaded for nothing": ("ld.shared.u32 %r9, [%r40];\n",),
    "sums that begin with zeros": (ZEROS, SAME, SAME, STORE),
    "sums that are moved": (ZEROS, "mov.u32 %r2, 0;\nMORE:\n", NAMES, SUMS, "@%p1 bra MORE;\n", STORE),
    "sums that begin on some path": ("@%p1 bra ON;\n", ZEROS, "ON:\n", SAME, STORE),
    "whether another lane is in range": (
        "shfl.sync.down.b32 %r9|%p5, %r1, 1, 31, -1; selp.u32 %r9, 1, 0, %p5;\n",
        KEEP,
    ),
    "half of a register": (
        "mov.u32 %r9, 1; cvt.u16.u32 %rs1, %r9; mov.b32 %r9, {%rs1, %rs2}; add.f16x2 %r9, %r9, %r9;\n",
        "mov.b32 {%rs3, %rs4}, %r9; st.global.u16 [%rd1], %rs3;\n",
    ),
    "a register that is moved, shuffled and spilled": (
        "mov.u32 %r9, %r8; shfl.sync.bfly.b32 %r9, %r9, 1, 31, -1; st.local.u32 [there], %r9; \n",
        "ld.local.u32 %r9, [there]; st.shared.u32 [%r40], %r9; ld.shared.u32 %r9, [%r40];\n",
    ),
    "a sum that is not stored": ("add.u32 %r9, %r8, 1; ex2.approx.f32 %f1, %f2;\n",),
    "bits that are masked": ("and.b32 %r9, %r8, 0; or.b32 %r9, %r9, 3;\n", KEEP),
    "a difference with itself": ("sub.u32 %r9, %r8, %r8; mul.lo.u32 %r7, %r8, 0; add.u32 %r9, %r9, %r7;\n", KEEP),
    "bytes that are inserted": ("bfi.b32 %r9, %r1, %r8, 0, 16; bfi.b32 %r9, %r1, %r9, 16, 16;\n", KEEP),
    "accumulators that one branch alone adds to": ("@%p1 bra ADD;\n", ZEROS, "bra ON;\nADD:\n", SAME, "ON:\n", STORE),
    "an order that other bits decide": (
        "or.b32 %r9, %r8, 0x10000; and.b32 %r9, %r9, 0x1FFFF; setp.lt.u32 %p3, %r9, 7;\n",
        "@!%p3 st.global.u32 [%rd1], %r1;\n",
    ),
    "an order that holds of all": ("setp.ge.u32 %p3, %r8, 0; @%p3 st.global.u32 [%rd1], %r1;\n",),
    "the sign of a number": (
        "or.b32 %r9, %r8, 0x80000000; setp.lt.s32 %p3, %r9, 0; @%p3 st.global.u32 [%rd1], %r1;\n",
    ),
    "an element that a load leaves out": (
        "st.local.u32 [there+4], %r1; ld.local.v2.u32 {_, %r9}, [there];\n",
        KEEP,
    ),
    "a minimum with 0": ("min.u32 %r9, %r8, 0;\n", KEEP),
    "a maximum with the largest": ("max.s32 %r9, 0x7FFFFFFF, %r8;\n", KEEP),
    "a value that is selected of two that are equal": ("mov.u32 %r9, %r1; selp.u32 %r9, %r1, %r9, %p3;\n", KEEP),
    "a branch to what comes next": ("@%p3 bra OVER; OVER:\n", "@!%p3 bra ON; bra.uni ON; ON:\n"),
    "a value that is not selected": ("selp.u32 %r9, %r8, %r1, %p1; add.u32 %r9, %r9, 1;\n", KEEP),
    "what is not executed": ("@%p1 st.global.u32 [%rd1], %r9;\n",),
    "local memory that is written": ("st.local.u32 [there+4], %r1; ld.local.u32 %r9, [there+4];\n", KEEP),
    "a part of local memory": (
        "st.local.u32 [there], %r1; st.local.u32 [there+4], %r1; ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [there];\n",
        "add.u32 %r9, %r5, %r6;\n",
        KEEP,
    ),
    "local memory that is copied": (
        "ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [there];\nst.local.v4.u32 [here], {%r5, %r6, %r7, %r8};\n",
    ),
    "local memory that is not selected": (
        "ld.local.u32 %r8, [there]; add.u32 %r8, %r8, 1; selp.u32 %r9, %r8, %r1, %p1;\n",
        KEEP,
    ),
}
WRONG = {
    "a register that is moved and stored": ("mov.u32 %r9, %r8;\n", KEEP),
    "a register that another lane has": ("shfl.sync.down.b32 %r9, %r8, 4, 31, -1;\n", KEEP),
    "a part of a vector": ("st.global.v2.u32 [%rd2], {%r1, %r8};\n",),
    "half of a register": ("mov.u32 %r9, 1; cvt.u16.u32 %rs1, %r9; mov.b32 %r9, {%rs1, %rs2};\n", KEEP),
    "a byte of a register": ("bfe.u32 %r9, %r8, 3, 4;\n", KEEP),
    "a byte that is moved": ("prmt.b32 %r9, %r8, %r1, 0x7610;\n", KEEP),
    "a register that is widened": ("cvt.u64.u32 %rd5, %r8; st.global.u64 [%rd2], %rd5;\n",),
    "what a predicate selects": ("selp.u32 %r9, 1, 2, %p3;\n", KEEP),
    "what a predicate leaves": ("mov.u32 %r9, 1; @%p3 mov.u32 %r9, 2;\n", KEEP),
    "a function": ("ex2.approx.f32 %f0, %f2;\n", STORE),
    "the address of a peer": ("mapa.shared::cluster.u32 %r9, %r8, 0; ld.shared::cluster.u32 %r9, [%r9];\n",),
    "a branch by a bit": ("bfe.u32 %r9, %r8, 0, 1; setp.eq.u32 %p3, %r9, 1; @%p3 bra OVER;\n", KEEP, "OVER:\n"),
    "an address that is masked": (
        "and.b32 %r9, %r8, 0xFF4; add.u32 %r9, %r9, %r40; st.shared.u32 [%r40], %r1; ld.shared.u32 %r9, [%r9];\n",
    ),
    "an atomic of a part": ("and.b32 %r9, %r8, 4; red.global.add.u32 [%rd2], %r9;\n",),
    "lanes of a shuffle": ("or.b32 %r9, %r8, 0; shfl.sync.idx.b32 %r7, %r1, 0, 31, %r9;\n",),
    "a lane that a shuffle reads": (
        "and.b32 %r9, %r8, 3; shfl.sync.idx.b32 %r9|%p5, %r1, %r9, 31, -1; and.b32 %r9, %r9, 2;\n",
        KEEP,
    ),
    "a matrix that is transposed": ("movmatrix.sync.aligned.m8n8.trans.b16 %r9, %r8;\n", KEEP),
    "shared memory": ("st.shared.u32 [%r40], %r8; bar.warp.sync -1; ld.shared.u32 %r9, [%r40];\n", KEEP),
    "sums of mma": (SAME, STORE),
    "one of four sums": ("mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0;\n", SAME, STORE),
    "sums of mma that are moved": ("MORE:\n", NAMES, SUMS, "@%p1 bra MORE;\n", STORE),
    "a sum of what another lane has": ("shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1; add.u32 %r9, %r9, 1;\n", KEEP),
    "a factor of mma": (ZEROS, SAME.replace("{%r1,%r1}", "{%r1,%r9}"), STORE),
    "an atomic": ("atom.global.add.u32 %r9, [%rd1], %r8;\n", KEEP),
    "a reduction of the warp": ("redux.sync.add.u32 %r9, %r8, -1;\n", KEEP),
    "a sum": ("fma.rn.f32 %f0, %f9, %f9, %f0;\n", STORE),
    "a sum in a loop": ("MORE: add.u32 %r9, %r9, %r1; @%p1 bra MORE;\n", KEEP),
    "an address": ("st.local.u32 [%r50], %r1;\n",),
    "an order that undefined bits decide": (
        "and.b32 %r9, %r8, 0x1FFFF; setp.lt.u32 %p3, %r9, 0x10000; @%p3 st.global.u32 [%rd1], %r1;\n",
    ),
    "a maximum with less than the most": ("max.u32 %r9, %r8, 7;\n", KEEP),
    "a value that is selected of two": ("add.u32 %r9, %r1, 1; selp.u32 %r9, %r1, %r9, %p3;\n", KEEP),
    "a cache policy of a load": ("ld.global.L2::cache_hint.u32 %r9, [%rd1], %rd7;\n",),
    "a cache policy of a store": ("st.global.L2::cache_hint.u32 [%rd1], %r1, %rd7;\n",),
    "a cache policy made of a fraction": (
        "createpolicy.fractional.L2::evict_last.b64 %rd7, %f9; ld.global.L2::cache_hint.u32 %r9, [%rd1], %rd7;\n",
    ),
    "a cache policy of an atomic": ("red.global.add.L2::cache_hint.u32 [%rd1], %r1, %rd7;\n",),
    "a cache policy of a copy of threads": (
        "cp.async.cg.shared.global.L2::cache_hint [%r40], [%rd3], 16, %rd7; cp.async.wait_all;\n",
    ),
    "what decides": ("@%p3 bra OVER;\n", KEEP, "OVER:\n"),
    "a guard that happens not to hold": ("@%p3 st.global.u32 [%rd1], %r1;\n",),
    "a guard that happens to hold": ("@!%p3 st.global.u32 [%rd1], %r1;\n",),
    "a guard of a barrier": ("@%p3 bar.sync 0;\n",),
    "a guard of an atomic": ("@%p3 red.global.add.u32 [%rd1], %r1;\n",),
    "local memory": ("ld.local.u32 %r9, [there];\n", KEEP),
    "local memory beyond what is written": (
        "st.local.u32 [there], %r1; ld.local.u32 %r9, [there+4]; add.u32 %r9, %r9, 1;\n",
        KEEP,
    ),
    "local memory of one thread": (
        "@!%p1 st.local.u32 [there], %r1; setp.eq.u32 %p4, %r1, 3; @%p4 ld.local.u32 %r9, [there+8];\n",
        KEEP,
    ),
}


WHOLE = "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r40]; st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};\n"
PADDING = {
    "a half of what is loaded": (
        "st.local.u32 [there+4], %r1; ld.local.u64 %rd5, [there]; st.global.u64 [%rd2], %rd5;\n",
    ),
    "three bytes of a word": (
        "st.local.u8 [there], %r1; st.local.u32 [there+4], %r1; ld.local.v2.u32 {%r5, %r6}, [there];\n",
        "st.global.u32 [%rd1], %r5;\n",
    ),
    "an element that is copied on": (
        "st.local.v2.u32 [there], {%r1, %r1}; st.local.u32 [there+8], %r1;\n",
        "ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [there]; st.local.v4.u32 [here], {%r5, %r6, %r7, %r8};\n",
        "ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [here]; st.shared.v4.u32 [%r40], {%r5, %r6, %r7, %r8};\n",
        "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r40]; st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};\n",
    ),
    "an element of shared memory": (SHARED, WHOLE),
    "an element of shared memory beside one that is computed with": (
        SHARED,
        WHOLE.replace("st.", "setp.eq.u32 %p3, %r5, 1; st."),
    ),
    "bytes of shared memory": (
        "st.shared.u8 [%r40], %r1; ld.shared.u32 %r5, [%r40]; mov.u32 %r6, %r5; st.global.u32 [%rd1], %r6;\n",
    ),
    "single bytes": (
        "st.local.u8 [there], %r1; ld.local.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [there]; st.global.u8 [%rd1], %rs2;\n",
    ),
}
"""As nvcc copies structures whose members leave gaps: whole vectors, words and bytes of what memory holds."""
FORGOTTEN = {
    "an element of shared memory that is computed with": (SHARED, WHOLE.replace("st.", "add.u32 %r8, %r8, %r8; st.")),
    "an element of shared memory that is written later": (SHARED, WHOLE, "st.shared.u32 [%r40+12], %r1;\n"),
    "an element of shared memory alone": (SHARED, "ld.shared.u32 %r9, [%r40+12];\n", KEEP),
    "shared memory of other lanes": ("setp.lt.u32 %p4, %r1, 30; @%p4 " + SHARED.replace("; ", "; @%p4 "), WHOLE),
    "an element of shared memory that goes elsewhere": (
        SHARED,
        WHOLE.replace("st.global", "st.local.u32 [there], %r8; st.global"),
    ),
    "an element that is computed with": (
        "st.local.u32 [there], %r1; st.local.u32 [there+4], %r1; ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [there];\n",
        "add.u32 %r9, %r5, %r7;\n",
        KEEP,
    ),
    "an element that decides": (
        "st.local.u32 [there], %r1; ld.local.v2.u32 {%r5, %r6}, [there]; setp.eq.u32 %p3, %r6, 1;\n",
        "@%p3 st.global.u32 [%rd1], %r1;\n",
    ),
    "an address": ("st.local.u32 [there], 0; ld.local.v2.u32 {%r5, %r6}, [there]; ld.shared.u32 %r9, [%r6];\n",),
    "an atomic": ("st.local.u32 [there], 0; ld.local.v2.u32 {%r5, %r6}, [there]; red.global.add.u32 [%rd1], %r6;\n",),
    "all of a vector": (
        "ld.local.v4.u32 {%r5, %r6, %r7, %r8}, [there]; st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};\n",
    ),
    "padding beside what no instruction writes": (
        "st.local.u32 [there], %r1; ld.local.v2.u32 {%r5, %r6}, [there]; st.global.v2.u32 [%rd2], {%r6, %r9};\n",
    ),
    "padding packed with what no instruction writes": (
        "st.local.u32 [there], %r1; ld.local.v2.u32 {%r5, %r6}, [there]; mov.b64 %rd5, {%r9, %r6};\n",
        "st.global.u64 [%rd2], %rd5;\n",
    ),
}


def run_of(lines):
    """Run a kernel of one warp, and return what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    try:
        launch("".join((START, *lines)), np.zeros(128, np.uint32), run=run, smem_bytes=1024)
    except SimulationError:
        assert run.hazards
    return run


def hazards_of(lines):
    """Run a kernel of one warp, and return the kinds of what the sanitizer finds."""
    run = run_of(lines)
    assert not run.hazards.advisories
    assert all(one.is_certified == (not run.hazards) for one in run.certificates)
    return {hazard.kind for hazard in run.hazards if hazard.kind not in ("invalid-access", "mismatched-mask")}


@pytest.mark.parametrize("name", RIGHT)
def test_what_nothing_comes_of_is_not_reported(name):
    assert hazards_of(RIGHT[name]) == set()


@pytest.mark.parametrize("name", WRONG)
def test_what_something_comes_of_is_found(name):
    assert hazards_of(WRONG[name]) == {"uninitialised-read"}


@pytest.mark.parametrize("name", PADDING)
def test_what_may_be_padding_is_an_advisory_without_a_certificate(name):
    run = run_of(PADDING[name])
    assert not run.hazards
    (found,) = run.advisories
    assert found.kind == "undefined-output"
    pins(found.missing)
    (certificate,) = run.certificates
    assert not certificate.is_certified
    assert any("without a value" in reason for reason in certificate.reasons)


@pytest.mark.parametrize("name", FORGOTTEN)
def test_what_is_no_padding_is_a_hazard(name):
    run = run_of(FORGOTTEN[name])
    assert "uninitialised-read" in {hazard.kind for hazard in run.hazards}
    assert not run.hazards.advisories


PLUS = """ld.param.u32 %a1, [a]; add.u32 %a2, %a1, 3; st.param.b32 [r], %a2; ret;"""
TAKES = ".func (.param .b32 r) {}(.param .b32 a) {{ .reg .b32 %a<9>; .reg .b64 %b<3>; .reg .pred %q; {} }}"
GIVEN = "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), first, (x); ld.param.b32 %r9, [y]; }\n"
WITHIN = "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %a1; call (y), OTHER, (x); ld.param.b32 %a3, [y]; }"
CALLS = {
    "parameters": (TAKES.format("first", PLUS), GIVEN),
    "registers": (
        ".func (.reg .b32 r) first(.reg .b32 a, .reg .b64 n) { add.u32 r, a, 3; ret; }",
        "call.uni (%r9), first, (%r1, %rd1);\n",
    ),
    "a structure, as nvcc passes it": (
        """.visible .func (.param .align 8 .b8 func_retval0[16]) _Z3foo4Pair(
        .param .align 8 .b8 _Z3foo4Pair_param_0[16])
        { .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u32 %r1, [_Z3foo4Pair_param_0+4]; add.s32 %r2, %r1, 3;
        ld.param.u64 %rd1, [_Z3foo4Pair_param_0+8]; add.s64 %rd2, %rd1, 3;
        st.param.b32 [func_retval0+4], %r2; st.param.b64 [func_retval0+8], %rd2; ret; }""",
        """{ // callseq 0, 0
        .reg .b32 temp_param_reg; .param .align 8 .b8 param0[16]; st.param.b32 [param0+4], %r1;
        st.param.b64 [param0+8], %rd1; .param .align 8 .b8 retval0[16];
        call.uni (retval0), _Z3foo4Pair, (param0);
        ld.param.b32 %r9, [retval0+4]; ld.param.b64 %rd5, [retval0+8]; } // callseq 0\n""",
    ),
    "a call within a call": (
        TAKES.format("second", PLUS)
        + TAKES.format(
            "first",
            "ld.param.u32 %a1, [a];" + WITHIN.replace("OTHER", "second") + "st.param.b32 [r], %a3; ret;",
        ),
        GIVEN,
    ),
    "a function that calls itself": (
        TAKES.format(
            "first",
            "ld.param.u32 %a1, [a]; setp.eq.u32 %q, %a1, 0; mov.u32 %a3, 0; @%q bra DONE; sub.u32 %a1, %a1, 1;"
            + WITHIN.replace("OTHER", "first")
            + "DONE: add.u32 %a3, %a3, 1; add.u32 %a3, %a3, 2; st.param.b32 [r], %a3; ret;",
        ),
        GIVEN,
    ),
    "an address": (
        TAKES.format("first", PLUS),
        "mov.u64 %rd5, first; P: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
        + GIVEN.replace("call.uni (y), first, (x)", "call (y), %rd5, (x), P"),
    ),
    "a local variable": (
        TAKES.format(
            "first",
            ".local .b32 v[4]; ld.param.u32 %a1, [a]; mov.u64 %b1, v; add.u64 %b2, %b1, 8; st.local.u32 [v+4], %a1;"
            "ld.local.u32 %a2, [%b2+-4]; st.param.b32 [r], %a2; ret;",
        ),
        GIVEN,
    ),
    "memory that is taken": (
        TAKES.format(
            "first",
            "ld.param.u32 %a1, [a]; stacksave.u64 %b2; alloca.u64 %b1, 16; st.local.u32 [%b1], %a1;"
            "ld.local.u32 %a2, [%b1]; stackrestore.u64 %b2; st.param.b32 [r], %a2; ret;",
        ),
        GIVEN,
    ),
}


@pytest.mark.parametrize("how", CALLS)
def test_what_a_call_gives_is_not_reported(how):
    module, call = CALLS[how]
    run = Run((), None, sanitize=True)
    launch(START + call + KEEP, np.zeros(64, np.uint32), module=module, run=run)
    assert not run.hazards
    assert all(c.is_certified for c in run.certificates), run.certificates


def test_what_a_function_reads_that_nothing_gives_is_found():
    module = TAKES.format("first", "ld.param.u32 %a1, [a]; add.u32 %a2, %a1, %a5; st.param.b32 [r], %a2; ret;")
    run = Run((), None, sanitize=True)
    launch(START + GIVEN + KEEP, np.zeros(64, np.uint32), module=module, run=run)
    assert [hazard.kind for hazard in run.hazards] == ["uninitialised-read"]


MMA_START = """.shared .align 1024 .b8 tile[16384]; mov.u32 %r1, %tid.x;
mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [p0];
add.u64 %rd1, %rd1, %rd2; mov.u32 %r2, tile; mov.u32 %r3, 0; mov.u32 %r4, 0; shl.b32 %r6, %r1, 4; add.u32 %r7, %r2, %r6;
st.shared.v4.b32 [%r7], {%r3, %r3, %r3, %r3}; st.shared.v4.b32 [%r7+2048], {%r3, %r3, %r3, %r3};
fence.proxy.async.shared::cta; bar.sync 0; shr.b32 %r8, %r2, 4; cvt.u64.u32 %rd4, %r8;
or.b64 %rd5, %rd4, 0x0000000800010000; add.s64 %rd6, %rd5, 128; setp.ne.b32 %p1, %r1, 999; setp.eq.b32 %p9, %r1, 999;
"""
"""rd5, rd6: descriptors of zeros; p1: true; p9: false; r4: the round."""
MMA = """wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, SCALE, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
AGAIN = "add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 3; @%p2 bra MORE;\n"
TWICE = "".join(f"mul.f32 %f{n}, %f{n}, 0f40000000;\n" for n in range(4))
FACTOR = "cvt.rn.f32.u32 %f8, %r1;\n" + TWICE.replace("0f40000000", "%f8")
AWAY = "".join(f"mov.f32 %f{n + 4}, %f{n};\n" for n in range(4))
BACK = "".join(f"mul.f32 %f{n}, %f{n + 4}, 0f40000000;\n" for n in range(4))
LOOP = "MORE:\n" + MMA + "CHANGE" + AGAIN + STORE
FIRST = "setp.ne.u32 %p1, %r4, 0;\n"
CHANGES = {"nothing": "", "doubled": TWICE, "by a factor": FACTOR, "away and back": AWAY + BACK}


def sums_of(*lines, scale):
    run = Run((), None, sanitize=True)
    launch("".join((MMA_START, *lines)).replace("SCALE", scale), np.zeros(128, np.uint32), block=128, run=run)
    return [hazard.missing for hazard in run.hazards if hazard.kind == "uninitialised-read"]


@pytest.mark.parametrize("scale", ["1", "%p1"])
@pytest.mark.parametrize("change", CHANGES)
def test_sums_that_only_their_own_mmas_and_rescaling_write_must_begin(change, scale):
    (missing,) = sums_of(LOOP.replace("CHANGE", CHANGES[change]), scale=scale)
    pins(missing)


TWO, TOO_FEW = "mov.f32 %f2, 0f00000000;\n", ZEROS.replace("mov.f32 %f2, 0f00000000;\n", "")
ONE_PATH = "setp.lt.u32 %p3, %r1, 70; @!%p3 bra OVER;\n" + TWO + "OVER:\n"


@pytest.mark.parametrize(
    ("lines", "scale", "found"),
    [
        ((TOO_FEW, MMA), "1", "no instruction of the kernel gives %f2 a value"),
        ((TOO_FEW, LOOP.replace("CHANGE", "")), "%p1", "%f2 is written only by `wgmma"),
        ((TOO_FEW, ONE_PATH, MMA), "1", "which threads 70-127 did not execute before"),
        ((TOO_FEW, "@%p9 " + TWO, MMA), "%p1", "which threads 0-127 did not execute before"),
        ((TOO_FEW, ONE_PATH, MMA), "%p9", None),
        ((TOO_FEW, ONE_PATH, MMA), "0", None),
        ((TOO_FEW, MMA.replace("SCALE", "0"), LOOP.replace("CHANGE", "")), "1", None),
        ((TOO_FEW, TWO, MMA), "1", None),
        ((TOO_FEW, "@%p1 " + TWO, MMA), "%p1", None),
    ],
)
def test_each_sum_must_begin_in_each_thread(lines, scale, found):
    missing = sums_of(*lines, "st.global.f32 [%rd1], %f2;\n", scale=scale)
    assert len(missing) == (found is not None)
    assert all(found in text for text in missing)


@pytest.mark.parametrize("change", CHANGES)
def test_sums_that_begin_are_rescaled(change):
    loop = LOOP.replace("CHANGE", CHANGES[change])
    assert sums_of(ZEROS, loop, scale="1") == []
    assert sums_of(loop.replace("MORE:\n", "MORE:\n" + FIRST), scale="%p1") == []
    assert sums_of(MMA.replace("SCALE", "0"), loop, scale="1") == []
