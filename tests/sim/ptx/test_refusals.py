"""PTX that is refused: each text is a module or an error that names the line, the column and the statement."""

import time

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim import MemoryAccessError, UnknownInstructionError
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.fuzz.texts import refusal_of_ptxas

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
KERNEL = (
    HEAD
    + """.visible .entry k(.param .u64 x) {
  .reg .b32 %r<9>; .reg .b64 %d, %e; .reg .pred %p, %q; .reg .b16 %h<3>;
  ld.param.u64 %d, [x];
  STATEMENT
  st.global.u32 [%d], %r0; ret; }
"""
)
LINE = 7

REFUSED = [
    # Operands: too many, too few, of another kind.
    "add.u32 %r0, %r1, %r2, %r3;",
    "add.u32 %r0, %r1;",
    "mov.u32 %r0;",
    "setp.lt.u32 %p, %r0;",
    "setp.lt.and.u32 %p, %r0, %r1;",
    "setp.lt.u32 %p, %r0, %r1, %q;",
    "fma.rn.f32 %r0, %r1, %r2;",
    "ld.global.u32 %r0;",
    "ld.global.u32 %r0, [%d], %e;",
    "st.global.u32 [%d];",
    "shfl.sync.idx.b32 %r0, %r1, %r2, -1;",
    "atom.global.cas.b32 %r0, [%d], %r1;",
    "atom.global.add.u32 %r0, [%d], %r1, %r2;",
    "lop3.b32 %r0, %r1, %r2, %r3;",
    "bra;",
    "bra %r0;",
    "bra 5;",
    "ret 5;",
    "bar.sync;",
    "add.u32 5, %r0, %r1;",
    "mov.u32 %tid.x, %r0;",
    "ld.global.u32 %r0, %d;",
    "st.global.u32 %d, %r0;",
    "add.u32 %r0, [%d], 1;",
    "brx.idx %r0;",
    "brx.idx %r0, $T;",
    # Vectors of another length.
    "ld.global.v4.u32 {%r0, %r1}, [%d];",
    "ld.global.u32 {%r0, %r1}, [%d];",
    "ld.global.v2.u32 %r0, [%d];",
    "st.global.v2.u32 [%d], %r0;",
    "mov.b64 %d, {%r0, %r1, %r2};",
    "add.u32 {%r0, %r1}, %r2, %r3;",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1}, [%r2];",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r0, %r1, %r2}, {%r3, %r4, %r5, %r6}, {%r7, %r8}, "
     "{%r0, %r1, %r2, %r3};",
    # Types of registers.
    "add.u32 %r0, %d, 1;",
    "add.u32 %d, %r0, 1;",
    "mul.wide.u32 %r0, %r1, %r2;",
    "setp.eq.u32 %r0, %r1, %r2;",
    "selp.u32 %r0, %r1, %r2, %r3;",
    "@%r0 mov.u32 %r0, 1;",
    "setp.eq.and.u32 %p, %r0, %r1, !%r2;",
    "ld.global.u64 %r0, [%d];",
    "mov.b32 {%r0, %r1}, %r2;",
    "mov.u32 %r0, {%r1};",
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r0];",
    "mbarrier.arrive.expect_tx.shared::cluster.b64 [%r0];",
    ".local .b32 y; ld.param.b32 %r0, [y];",
    # Kinds of values.
    "mov.u32 %r0, 1.5;",
    "and.b32 %r0, %r1, 1.5;",
    "shl.b32 %r0, %r1, 1.5;",
    ".reg .f32 %f; add.f32 %f, %f, 1;",
    ".reg .f32 %f; add.u32 %f, %f, 1;",
    ".reg .f32 %f; ld.global.u32 %f, [%d];",
    "st.global.f32 [%d], 1;",
    "setp.lt.f32 %p, %r0, 1;",
    "mov.u33 %r0, 1;",
    # Modifiers and numbers.
    "bar.arrive 0;",
    "cp.async.ca.shared.global [%r1], [%d], 3;",
    "cp.async.cg.shared.global [%r1], [%d], 8;",
    "wgmma.wait_group.sync.aligned -1;",
    "bfe.u32 %r0, %r1, 300, 2;",
    "bfi.b32 %r0, %r1, %r2, 1, 256;",
    "match.sync.b32 %r0, %r1, -1;",
    "vote.sync.pred %p, %q, -1;",
    "redux.sync.u32 %r0, %r1, -1;",
    "shfl.sync.b32 %r0, %r1, 1, 31, -1;",
    "setp.u32 %p, %r0, %r1;",
    "atom.global.u32 %r0, [%d], 1;",
    "membar;",
    "fence.acq_rel;",
    "fence.proxy.tensormap::generic.acquire [%d], 128;",
    "cvt.u32 %r0, %r1;",
    "cvt.rn.u32 %r0, %r1;",
    ".reg .f32 %f; cvt.f32.u32 %f, %r0;",
    ".reg .f32 %f; cvt.u32.f32 %r0, %f;",
    ".reg .f32 %f; cvt.f16.f32 %h0, %f;",
    ".reg .f32 %f; rcp.f32 %f, %f;",
    ".reg .f32 %f; sqrt.f32 %f, %f;",
    ".reg .f32 %f; fma.f32 %f, %f, %f, %f;",
    ".reg .f32 %f; ex2.f32 %f, %f;",
    "st.global [%d], %r0;",
    "ld.global.v2.pred {%p, %q}, [%d];",
    "set.lt.u32.tf32 %r0, %r1, %r2;",
    "st.const.u32 [%d], %r0;",
    "st.param.u32 [x], %r0;",
    "mov.u32 %r0, %clock64;",
    "mov.u64 %d, %tid.x;",
    "selp.u32 %r0, 1, 0, %tid.x;",
    ".reg .texref t;",
    ".reg .f32 %f; mul.wide.s32 %d, %f, 1;",
    "mul.wide.s32 %d, %r1, 1e5;",
    "mad.wide.s32 %d, %r1, 2, 1.5;",
    "atom.global.add.u32 %r0, [%d], %e;",
    "atom.global.exch.b64 %d, [%d], %r1;",
    "atom.global.cas.b32 %r0, [%d], %r1, %e;",
    "red.global.add.u32 [%d], %h0;",
    ".reg .f32 %f; red.global.add.noftz.f16x2 [%d], %f;",
    ".reg .f32 %f; bar.sync %f;",
    "nanosleep.u32 %d;",
    "cp.async.wait_group %r1;",
    "fence.proxy.tensormap::generic.acquire.gpu [%d], 64;",
    "ld.global.L2::cache_hint.u32 %r0, [%d], %r1;",
    "cp.async.bulk.global.shared::cta.bulk_group [%d], [%r1], 17;",
    "cp.async.bulk.global.shared::cta.bulk_group [%d], [%r1], %e;",
    "cp.async.bulk.prefetch.L2.global [%d], 1048576;",
    # State spaces of variables.
    ".shared .b32 s; ld.global.u32 %r0, [s];",
    ".shared .b32 s; st.local.u32 [s+4], %r0;",
    ".local .b32 l; atom.shared.add.u32 %r0, [l], 1;",
    "ld.shared.u32 %r0, [x];",
    "ld.u32 %r0, [x];",
    ".local .b64 l; mbarrier.init.b64 [l], 1;",
    ".shared .b32 s; cp.async.ca.shared.global [s], [s], 4;",
    ".shared .b32 s = 3;",
    "call k;",
    # Names.
    "mov.u32 %r0, %nosuch;",
    "mov.u32 %r0, nosuch;",
    "mov.u32 %r0, %r9;",
    "@%r mov.u32 %r0, 1;",
    "bra $nowhere;",
    "mov.u32 %r0, %tid.q;",
    "mov.u32 %r0, %tid.\x01;",
    "mov.u32 %r0, %envreg32;",
    ".reg .b64 %r0;",
    ".reg .b32 %r<4>;",
    ".reg .b32 x; .reg .b32 x;",
    ".reg .b32 x1; .reg .b32 x<4>;",
    ".reg .b32 x; .local .b32 x;",
    "$A: add.u32 %r0, %r0, 1; $A: bra $A;",
    # Characters, numbers and brackets.
    "mov.u32 %r0, 09;",
    "mov.u32 %r0, 1/0;",
    "mov.f64 %d, 1.0/0.0;",
    f"mov.u32 %r0, {'1' * 5000};",
    "mov.b64 %d, {%r0, %r1;",
    "mov.b64 %d, {%r0, %r1}};",
    "} {",
    "{",
    "ld.global.u32 %r0, [%d;",
    "add.u32 %r0, %r0, 1,;",
    "add.u32 %r0,, 1;",
    ".loc a 1 1\n",
    ".loc 1 1\n",
    ".loc 1 1 1 1\n",
    ".loc 1 1 1, function_name $A\n",
    ".loc 1 1 1, inlined_at 1 1 1\n",
    ".pragma nounroll;",
    '.file 1 "x";',
    ".section .x;",
    # Forms of operands.
    "add.u32 %r0, %tid.x, 1;",
    "ld.shared.u32 %r0, [%r1-4];",
    "ld.shared.u32 %r0, [4];",
    "ld.global.u32 %r0, [%r1];",
    "ld.global.u32 %r0, [%d];\n  ld.global.u32 %r0, [%r1];",
    "shl.b32 _, %r1, 3;",
    "bar.sync 16;",
    "shl.b64 %d, %d, %e;",
    "match.any.sync.b32 %r0|%p, %r1, -1;",
    # Declarations.
    ".local .align 3 .b8 y[8];",
    ".local .b8 y[0];",
    ".local .b8 y[1180591620717411303424];",
    "mov.u64 %d, 99999999999999999999;",
    ".reg .foo %z;",
    ".reg .b32 %z",
]  # fmt: skip
REFUSED_HERE = [
    "mov.u32 %r0, \u0667;",
    "mov\u00a0.u32 %r0, 1;",
    f"mov.u32 %r0, {'(' * 2000}1{')' * 2000};",
    ".local .b32 y<99999999999>;",
]
"""Characters, depths and sizes that ptxas takes, or ends by."""


@pytest.mark.parametrize("statement", REFUSED + REFUSED_HERE, ids=lambda statement: statement[:40])
def test_the_error_names_its_place(statement, tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_text(KERNEL.replace("STATEMENT", statement), encoding="utf-8")
    with refuses(PtxSyntaxError) as found:
        load_ptx(file)
    error = found.value
    assert error.file == str(file)
    assert error.line in (LINE, LINE + 1, 4)  # what is not closed begins with the function
    assert error.column >= 1
    assert str(error).startswith(f"{file}:{error.line}:{error.column}: ")
    assert error.statement


@pytest.mark.parametrize(
    "text",
    [
        HEAD.replace("8.7", "99.9"),
        HEAD.replace("8.7", "8.7.1"),
        HEAD.replace("64", "32"),
        HEAD + "foo",
        HEAD + "\ud800",
        HEAD + ".address_size 64",
        "",
        HEAD.split("\n", 1)[1],
        ".version 8.7\n.address_size 64\n",
        HEAD.replace("sm_90a", "sm_85"),
        HEAD.replace("8.7", "7.9"),
        HEAD + ".section .debug_str { garbage }",
        HEAD + ".section .debug_str { .b8 300 }",
        HEAD + ".section foo { .b8 1 }",
        HEAD + ".loc 1 2 3\n",
        HEAD + ";",
        HEAD + ".global .u32 a; .global .u32 a;",
        HEAD + ".visible .entry k(.param .u64 x, .param .u64 x) { ret; }",
        HEAD + ".visible .entry k() { ret; } .visible .entry k() { ret; }",
        HEAD + ".visible .entry k() .maxntid 1 1 { ret; }",
        HEAD + ".visible .entry k() { ret;",
        HEAD + ".visible .entry k(.param .b8 x[99999]) { ret; }",
        HEAD + ".global .u32 a = 1.0/0.0;",
        HEAD + "/* never",
        HEAD + ".alias a, b;",
        HEAD + ".shared .u32 a = 3;",
        HEAD + ".visible .weak .global .u32 a;",
        HEAD + ".const .u32 c;\n.entry k() { st.global.u32 [c], 1; ret; }",
        HEAD + ".func f() { ret; }\n.entry k() { .reg .b32 %r; ld.global.u32 %r, [f]; ret; }",
    ],
)
def test_what_is_outside_of_functions_is_refused_with_its_place(text):
    with refuses(PtxSyntaxError) as found:
        load_ptx(text)
    assert 1 <= found.value.line <= text.count("\n") + 1


ELSEWHERE = [
    (HEAD + "  /* never\n ends\n", 4, 3),
    (HEAD + ".entry k() {\n  mov.u32 /* a\n ret; }\n", 5, 11),
    (HEAD.replace("sm_90a", "sm_130a"), 2, 9),
    (HEAD.replace("sm_90a", "foo"), 2, 9),
    (HEAD.replace("sm_90a", "compute_85"), 2, 9),
    (HEAD.replace("sm_90a", "compute_130a"), 2, 9),
    (HEAD.replace("8.7", "10.0"), 1, 10),
    (HEAD.replace("8.7", "9"), 1, 10),
    (HEAD + ".shared .u64 s;\n.global .u64 a = b;", 5, 18),
    (HEAD + ".shared .u64 s;\n.global .u64 a = s;", 5, 18),
    (HEAD + ".entry k()\n.reqntid 0\n{ ret; }", 5, 1),
    (HEAD + ".entry k()\n.maxntid 8, 0\n{ ret; }", 5, 1),
    ("build/kernel.ptx", 1, 1),
    ("kernel.ptx", 1, 1),
]


@pytest.mark.parametrize(("text", "line", "column"), ELSEWHERE)
def test_the_place_is_where_it_begins(text, line, column):
    with refuses(PtxSyntaxError) as found:
        load_ptx(text)
    assert (found.value.line, found.value.column) == (line, column)
    assert found.value.statement


@pytest.mark.parametrize("target", ["compute_90", "compute_90a", "compute_80", "sm_80"])
def test_targets_that_run_on_hopper_are_read(target):
    assert list(load_ptx(HEAD.replace("sm_90a", target) + ".entry k() { ret; }").kernels) == ["k"]


INITIAL = [
    (".b8", "300.7", 0x33),
    (".b16", "0f3F8CCCCD", 0xCCCD),
    (".b32", "1.5", 0x3FC00000),
    (".b32", "0d3FF8000000000001", 0x3FC00000),
    (".b64", "1.5", 0x3FF8000000000000),
    (".b64", "0f3FC00001", 0x3FC00001),
]


@pytest.mark.parametrize(("kind", "value", "bits"), INITIAL)
def test_bits_may_begin_as_a_float(kind, value, bits):
    """As ptxas writes them into its image."""
    (variable,) = parse_module(HEAD + f".global {kind} g = {value};").variables
    assert int.from_bytes(variable.initial, "little") == bits


def test_an_integer_loses_what_is_beyond_64_bits_as_in_ptxas():
    body = "mov.u64 %e, 18446744073709551626; cvt.u32.u64 %r0, %e;"
    found = np.zeros(1, np.uint32)
    load_ptx(KERNEL.replace("STATEMENT", body)).launch("k", 1, 1, (found,))
    assert found.tolist() == [10]


@pytest.mark.parametrize("version", ["7.0", "8.7", "9.0", "9.4", "9.5", "9.12"])
def test_any_minor_version_is_read(version):
    head = f".version {version}\n.target sm_80\n.address_size 64\n"
    load_ptx(head + ".global .u64 b; .global .u64 a = b; .entry k() { ret; }")


ACCEPTED = [
    "cvt.f64.f32 %d, %r0;",
    "cvt.f32.f16 %r0, %h0;",
    "cvt.rni.f32.f32 %r0, %r1;",
    "cvt.rna.tf32.f32 %r0, %r1;",
    "cvt.rn.satfinite.e4m3x2.f32 %h0, %r0, %r1;",
    "cvt.pack.sat.u8.s32.b32 %r0, %r1, %r2, %r3;",
    "rcp.approx.ftz.f64 %d, %e;",
    "div.full.f32 %r0, %r1, %r2;",
    "ex2.approx.f16 %h0, %h1;",
    "and.pred %p, %p, %q;",
    "mov.u64 %d, %clock64;",
    "mov.u64 %d, %gridid;",
    "mov.u16 %h0, %tid.x;",
    "selp.u32 %r0, 1, 0, 4;",
    "fence.cta;",
    "bfe.u32 %r0, %r1, 2, 255;",
    "wgmma.wait_group.sync.aligned 8;",
    "mov.b32 %r0, 0f3F800000;",
    "and.b32 %r0, %r1, 0f3F800000;",
    ".reg .f32 %f; mov.b32 %f, %r0; add.f32 %r0, %f, 0f3F800000; ld.global.b32 %f, [%d];",
    "cvt.rn.f32.u32 %r0, 1;",
    "mov.f64 %d, 1.5;",
    '.pragma "}";',
    "setp.eq.and.u32 %p, %r0, 1, !5;",
    "mov.u32 %r0, %tid.w;",
    "{ .reg .b64 %r0; mov.u64 %r0, 5; }",
    ".reg .v2 .b32 v<3>; mov.v2.b32 v1, {%r0, %r1}; mov.b32 %r2, v1.y;",
    ".reg .b32 %r1x<4>; mov.b32 %r1x3, 5;",
    "ld.global.u32 {%r0}, [%d];",
    f"mov.u32 %r0, {'(' * 100}1{')' * 100};",
    "st.global.u16 [%d], %r0;",
    "cvt.u16.u32 %h0, %r1;",
    "setp.eq.u32 %p|_, %r0, 1;",
    "@!%p bra $L; $L:",
    "mov.u64 %d, 18446744073709551616;",
    "mov.u64 %d, 0x1fffffffffffffff5;",
    "isspacep.shared %p, %r0;",
]


@pytest.mark.parametrize("statement", ACCEPTED)
def test_what_ptxas_accepts_is_accepted(statement):
    load_ptx(KERNEL.replace("STATEMENT", statement))


@pytest.mark.integration
def test_ptxas_agrees():
    """ptxas refuses all of `REFUSED` but the division of floats, and accepts all of `ACCEPTED`."""
    for statement in REFUSED:
        if "1.0/0.0" not in statement:
            assert refusal_of_ptxas(KERNEL.replace("STATEMENT", statement)), statement
    for statement in ACCEPTED:
        assert not refusal_of_ptxas(KERNEL.replace("STATEMENT", statement)), statement


def test_a_file_may_be_of_any_bytes(tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_bytes(HEAD.encode() + b"// a\rb\n")
    assert not load_ptx(file).kernels
    file.write_bytes(HEAD.encode() + b"\xff")
    with refuses(PtxSyntaxError):
        load_ptx(file)


def test_the_column_is_that_of_the_word():
    with pytest.raises(PtxSyntaxError) as found:
        load_ptx(KERNEL.replace("STATEMENT", "/* before */ add.u32 %r0, // one\n     %nosuch, 5;"))
    error = found.value
    assert (error.line, error.column, error.statement) == (LINE + 1, 6, "add.u32 %r0, %nosuch, 5;")


def test_a_branch_beyond_its_targets_is_told():
    body = "$T: .branchtargets $X, $Y; mov.u32 %r1, %tid.x; brx.idx %r1, $T; $X: mov.u32 %r0, 70; bra $Z; "
    module = load_ptx(KERNEL.replace("STATEMENT", f"{body}$Y: mov.u32 %r0, 80; $Z: mad.wide.u32 %d, %r1, 4, %d;"))
    found = np.zeros(2, np.uint32)
    module.launch("k", 1, 2, (found,))
    assert found.tolist() == [70, 80]
    with refuses(MemoryAccessError):
        module.launch("k", 1, 3, (np.zeros(3, np.uint32),))


def test_an_empty_body_ends():
    load_ptx(HEAD + ".visible .entry k() { }").launch("k", 1, 32)


@pytest.mark.parametrize("before", ["", "\n", ".version 8.7\n", "/* one */ "])
def test_a_comment_without_an_end_is_refused_where_it_begins(before):
    with pytest.raises(PtxSyntaxError, match="the comment that begins here does not end") as caught:
        parse_module(f"{before}/* {KERNEL}")
    assert (caught.value.line, caught.value.column) == (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)


@pytest.mark.parametrize("comment", ["// a comment of some length\n", "/* one\n two */\n", "\n", "  \n"])
def test_comments_cost_linear_time(comment):
    def seconds(count):
        text = KERNEL.replace("STATEMENT", comment * count).replace(".visible", comment * count + ".visible", 1)
        start = time.process_time()
        parse_module(text)
        return time.process_time() - start

    seconds(10)
    assert seconds(40_000) < 2  # 6 s when each line was compared with all that follow


SHAPES = [
    ("shfl.sync.idx.b32 %r0|%p, %r1, 0, 31, -1;", "shfl.sync.idx.b32 {%r0, %p}, %r1, 0, 31, -1;"),
    ("ld.shared.u32 %r0, [%r1];", "ld.shared.u32 %r0, [%f];"),
    ("ld.global.u32 %r0, [%d];", "ld.global.u32 %r0, [%r1];"),
]


@pytest.mark.parametrize(("right", "wrong"), SHAPES)
def test_what_was_read_before_decides_nothing(right, wrong):
    text = KERNEL.replace("STATEMENT", ".reg .f32 %f; STATEMENT")
    load_ptx(text.replace("STATEMENT", right))
    with pytest.raises(PtxSyntaxError):
        load_ptx(text.replace("STATEMENT", wrong))


def test_the_address_of_a_kernel_is_named_where_it_is_reached():
    """As cudaDynamicParallelism takes it: the kernels of the module run, but for those that launch others."""
    text = HEAD + (
        ".entry child(.param .u64 x) { .reg .b64 %d; ld.param.u64 %d, [x]; st.global.u32 [%d], 7; ret; }\n"
        ".entry parent(.param .u64 x) { .reg .b64 %d; mov.u64 %d, child; ret; }\n"
    )
    module, found = load_ptx(text), np.zeros(1, np.uint32)
    module.launch("child", 1, 1, (found,))
    assert found.tolist() == [7]
    with refuses(UnknownInstructionError):
        module.launch("parent", 1, 1, (found,))


LONG = [
    "add" + ".x" * 200_000,
    "ret" + ".uni" * 200_000,
    "not.pred %p, " + "!" * 200_000 + "%q",
    "mov.u32 %r" + "1" * 200_000 + ", 1",
]


@pytest.mark.parametrize("statement", LONG, ids=lambda s: s[:10])
def test_a_long_statement_is_refused_in_linear_time(statement):
    start = time.process_time()
    with pytest.raises(PtxSyntaxError) as found:
        load_ptx(KERNEL.replace("STATEMENT", f"{statement};"))
    assert time.process_time() - start < 2  # 7 s and more when each step took what was left into account
    assert len(str(found.value)) < 1000
