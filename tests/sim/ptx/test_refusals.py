"""PTX that is refused: each text is a module or an error that names the line, the column and the statement."""

import re
import time

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim import MemoryAccessError, UnknownInstructionError
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
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
    ("add.u32 %r0, %r1, %r2, %r3;", "takes 3 operands, got 4"),
    ("add.u32 %r0, %r1;", "takes 3 operands, got 2"),
    ("mov.u32 %r0;", "takes 2 operands, got 1"),
    ("setp.lt.u32 %p, %r0;", "takes 3 operands, got 2"),
    ("setp.lt.and.u32 %p, %r0, %r1;", "takes 4 operands, got 3"),
    ("setp.lt.u32 %p, %r0, %r1, %q;", "takes 3 operands, got 4"),
    ("fma.rn.f32 %r0, %r1, %r2;", "takes 4 operands, got 3"),
    ("ld.global.u32 %r0;", "takes 2 operands, got 1"),
    ("ld.global.u32 %r0, [%d], %e;", "takes 2 operands, got 3"),
    ("st.global.u32 [%d];", "takes 2 operands, got 1"),
    ("shfl.sync.idx.b32 %r0, %r1, %r2, -1;", "takes 5 operands, got 4"),
    ("atom.global.cas.b32 %r0, [%d], %r1;", "takes 4 operands, got 3"),
    ("atom.global.add.u32 %r0, [%d], %r1, %r2;", "takes 3 operands, got 4"),
    ("lop3.b32 %r0, %r1, %r2, %r3;", "takes 5 operands, got 4"),
    ("bra;", "takes 1 operand, got 0"),
    ("bra %r0;", "takes a label there, got %r0"),
    ("bra 5;", "takes a label there, got 5"),
    ("ret 5;", "takes 0 operands, got 1"),
    ("bar.sync;", "takes 1 to 2 operands, got 0"),
    ("add.u32 5, %r0, %r1;", "takes a register there, got 5"),
    ("mov.u32 %tid.x, %r0;", "takes a register there, got %tid.x"),
    ("ld.global.u32 %r0, %d;", "takes an address in brackets there, got %d"),
    ("st.global.u32 %d, %r0;", "takes an address in brackets there, got %d"),
    ("add.u32 %r0, [%d], 1;", r"takes a value there, got \[%d\]"),
    ("brx.idx %r0;", "takes 2 operands"),
    ("brx.idx %r0, $T;", r"no .branchtargets \$T"),
    # Vectors of another length.
    ("ld.global.v4.u32 {%r0, %r1}, [%d];", "a vector of 4 there, got one of 2"),
    ("ld.global.u32 {%r0, %r1}, [%d];", "one register there, got one of 2"),
    ("ld.global.v2.u32 %r0, [%d];", "a vector of 2 there, got %r0"),
    ("st.global.v2.u32 [%d], %r0;", "a vector of 2 there, got %r0"),
    ("mov.b64 %d, {%r0, %r1, %r2};", "got one of 3"),
    ("add.u32 {%r0, %r1}, %r2, %r3;", "got one of 2"),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1}, [%r2];", "a vector of 4 there, got one of 2"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r0, %r1, %r2}, {%r3, %r4, %r5, %r6}, {%r7, %r8}, "
     "{%r0, %r1, %r2, %r3};", "a vector of 4 there, got one of 3"),
    # Types of registers.
    ("add.u32 %r0, %d, 1;", "a value of type .u32 there, got %d of type .b64"),
    ("add.u32 %d, %r0, 1;", "a value of type .u32 there, got %d of type .b64"),
    ("mul.wide.u32 %r0, %r1, %r2;", "an integer of 64 bits there, got %r0 of type .b32"),
    ("setp.eq.u32 %r0, %r1, %r2;", "a value of type .pred there, got %r0 of type .b32"),
    ("selp.u32 %r0, %r1, %r2, %r3;", "a value of type .pred there, got %r3 of type .b32"),
    ("@%r0 mov.u32 %r0, 1;", "must be a predicate, got %r0"),
    ("setp.eq.and.u32 %p, %r0, %r1, !%r2;", "! takes a predicate"),
    ("ld.global.u64 %r0, [%d];", "a value of type .u64 there, got %r0"),
    ("mov.b32 {%r0, %r1}, %r2;", "a value of type .b16 there, got %r0"),
    ("mbarrier.arrive.expect_tx.shared.b64 _, [%r0];", "takes 2 to 3 operands|takes 3"),
    ("mbarrier.arrive.expect_tx.shared::cluster.b64 [%r0];", "takes"),
    (".local .b32 y; ld.param.b32 %r0, [y];", "takes a parameter, and y is none"),
    # Kinds of values.
    ("mov.u32 %r0, 1.5;", "type .u32 there, got a float"),
    ("and.b32 %r0, %r1, 1.5;", "got a float"),
    ("shl.b32 %r0, %r1, 1.5;", "got a float"),
    (".reg .f32 %f; add.f32 %f, %f, 1;", "type .f32 there, got the integer 1"),
    (".reg .f32 %f; add.u32 %f, %f, 1;", "%f of type .f32"),
    (".reg .f32 %f; ld.global.u32 %f, [%d];", "%f of type .f32"),
    ("st.global.f32 [%d], 1;", "got the integer 1"),
    ("setp.lt.f32 %p, %r0, 1;", "got the integer 1"),
    ("mov.u33 %r0, 1;", "mov takes no type .u33"),
    # Modifiers and numbers.
    ("bar.arrive 0;", "takes 2 operands, got 1"),
    ("cp.async.ca.shared.global [%r1], [%d], 3;", "takes 4 or 8 or 16 bytes, got 3"),
    ("cp.async.cg.shared.global [%r1], [%d], 8;", "takes 16 bytes, got 8"),
    ("wgmma.wait_group.sync.aligned -1;", "a number of groups from 0 on, got -1"),
    ("bfe.u32 %r0, %r1, 300, 2;", "from 0 to 255, got 300"),
    ("bfi.b32 %r0, %r1, %r2, 1, 256;", "from 0 to 255, got 256"),
    ("match.sync.b32 %r0, %r1, -1;", "needs one of .any .all"),
    ("vote.sync.pred %p, %q, -1;", "needs one of .all .any .uni"),
    ("redux.sync.u32 %r0, %r1, -1;", "needs one of .add"),
    ("shfl.sync.b32 %r0, %r1, 1, 31, -1;", "needs one of .up"),
    ("setp.u32 %p, %r0, %r1;", "needs one of .eq"),
    ("atom.global.u32 %r0, [%d], 1;", "needs one of .add"),
    ("membar;", "needs one of .cta"),
    ("fence.acq_rel;", "needs one of .cta"),
    ("fence.proxy.tensormap::generic.acquire [%d], 128;", "needs one of .cta"),
    ("cvt.u32 %r0, %r1;", "needs a type more, one of .u8"),
    ("cvt.rn.u32 %r0, %r1;", "needs a type more, one of .f16"),
    (".reg .f32 %f; cvt.f32.u32 %f, %r0;", "needs one of .rn"),
    (".reg .f32 %f; cvt.u32.f32 %r0, %f;", "needs one of .rni"),
    (".reg .f32 %f; cvt.f16.f32 %h0, %f;", "needs one of .rn"),
    (".reg .f32 %f; rcp.f32 %f, %f;", "needs one of .approx .rn .rz .rm .rp"),
    (".reg .f32 %f; sqrt.f32 %f, %f;", "needs one of .approx .rn"),
    (".reg .f32 %f; fma.f32 %f, %f, %f, %f;", "needs one of .rn"),
    (".reg .f32 %f; ex2.f32 %f, %f;", "needs .approx"),
    ("st.global [%d], %r0;", "needs a type more, one of .b8"),
    ("ld.global.v2.pred {%p, %q}, [%d];", "ld takes no type .pred"),
    ("set.lt.u32.tf32 %r0, %r1, %r2;", "set takes no type .tf32"),
    ("st.const.u32 [%d], %r0;", "st has no modifier .const"),
    ("st.param.u32 [x], %r0;", "x, which is an input"),
    ("mov.u32 %r0, %clock64;", "a value of type .u32 there, got %clock64"),
    ("mov.u64 %d, %tid.x;", "a value of type .u64 there, got %tid.x"),
    ("selp.u32 %r0, 1, 0, %tid.x;", "no special register, got %tid.x"),
    (".reg .texref t;", ".texref is of variables in .global"),
    (".reg .f32 %f; mul.wide.s32 %d, %f, 1;", "an integer of 32 bits there, got %f"),
    ("mul.wide.s32 %d, %r1, 1e5;", "an integer of 32 bits there, got a float"),
    ("mad.wide.s32 %d, %r1, 2, 1.5;", "an integer of 64 bits there, got a float"),
    ("atom.global.add.u32 %r0, [%d], %e;", "type .u32 there, got %e of type .b64"),
    ("atom.global.exch.b64 %d, [%d], %r1;", "type .b64 there, got %r1 of type .b32"),
    ("atom.global.cas.b32 %r0, [%d], %r1, %e;", "type .b32 there, got %e"),
    ("red.global.add.u32 [%d], %h0;", "type .u32 there, got %h0"),
    (".reg .f32 %f; red.global.add.noftz.f16x2 [%d], %f;", "type .f16x2 there, got %f"),
    (".reg .f32 %f; bar.sync %f;", "an integer of 32 bits there, got %f"),
    ("nanosleep.u32 %d;", "an integer of 32 bits there, got %d"),
    ("cp.async.wait_group %r1;", "takes a number of groups, and no register"),
    ("fence.proxy.tensormap::generic.acquire.gpu [%d], 64;", "128 bytes, got 64"),
    ("ld.global.L2::cache_hint.u32 %r0, [%d], %r1;", "an integer of 64 bits there, got %r1"),
    ("cp.async.bulk.global.shared::cta.bulk_group [%d], [%r1], 17;", "a multiple of 16 bytes"),
    ("cp.async.bulk.global.shared::cta.bulk_group [%d], [%r1], %e;", "an integer of 32 bits there, got %e"),
    ("cp.async.bulk.prefetch.L2.global [%d], 1048576;", "a multiple of 16 bytes, less than 1048576"),
    # State spaces of variables.
    (".shared .b32 s; ld.global.u32 %r0, [s];", "a variable in .global there, and s is in .shared"),
    (".shared .b32 s; st.local.u32 [s+4], %r0;", "a variable in .local there, and s is in .shared"),
    (".local .b32 l; atom.shared.add.u32 %r0, [l], 1;", "in .shared there, and l is in .local"),
    ("ld.shared.u32 %r0, [x];", "in .shared there, and x is in .param"),
    ("ld.u32 %r0, [x];", "in .global or .shared or .local there, and x is in .param"),
    (".local .b64 l; mbarrier.init.b64 [l], 1;", "in .shared there, and l is in .local"),
    (".shared .b32 s; cp.async.ca.shared.global [s], [s], 4;", "in .global there, and s is in .shared"),
    (".shared .b32 s = 3;", "no variable has an initial value"),
    ("call k;", "k is a kernel"),
    # Names.
    ("mov.u32 %r0, %nosuch;", "unknown register %nosuch"),
    ("mov.u32 %r0, nosuch;", "unknown name nosuch"),
    ("mov.u32 %r0, %r9;", "unknown register %r9"),
    ("@%r mov.u32 %r0, 1;", "unknown predicate %r"),
    ("bra $nowhere;", r"unknown name \$nowhere"),
    ("mov.u32 %r0, %tid.q;", "unknown register %tid.q"),
    ("mov.u32 %r0, %tid.\x01;", "unknown register"),
    ("mov.u32 %r0, %envreg32;", "unknown register"),
    (".reg .b64 %r0;", "%r0 is declared twice"),
    (".reg .b32 %r<4>;", "declared twice"),
    (".reg .b32 x; .reg .b32 x;", "x is declared twice"),
    (".reg .b32 x1; .reg .b32 x<4>;", "x1 is declared twice"),
    (".reg .b32 x; .local .b32 x;", "x is declared twice"),
    ("$A: add.u32 %r0, %r0, 1; $A: bra $A;", r"\$A is declared twice"),
    # Characters, numbers and brackets.
    ("mov.u32 %r0, \u0667;", "no character of PTX"),
    ("mov\u00a0.u32 %r0, 1;", "no character of PTX"),
    ("mov.u32 %r0, 09;", "expected an integer|cannot read"),
    ("mov.u32 %r0, 1/0;", "division by zero"),
    ("mov.f64 %d, 1.0/0.0;", "division by zero"),
    (f"mov.u32 %r0, {'(' * 2000}1{')' * 2000};", "nested too deeply"),
    (f"mov.u32 %r0, {'1' * 5000};", "expected an integer"),
    ("mov.b64 %d, {%r0, %r1;", "not closed"),
    ("mov.b64 %d, {%r0, %r1}};", "cannot read|do not match"),
    ("} {", "cannot read"),
    ("{", "not closed"),
    ("ld.global.u32 %r0, [%d;", "do not match"),
    ("add.u32 %r0, %r0, 1,;", "is missing"),
    ("add.u32 %r0,, 1;", "is missing"),
    (".loc a 1 1\n", "unknown directive"),
    (".loc 1 1\n", "unknown directive"),
    (".loc 1 1 1 1\n", "unknown directive"),
    (".loc 1 1 1, function_name $A\n", "unknown directive|cannot read"),
    (".loc 1 1 1, inlined_at 1 1 1\n", "unknown directive|cannot read"),
    (".pragma nounroll;", "unknown directive"),
    ('.file 1 "x";', "unknown directive"),
    (".section .x;", "unknown directive"),
    # Forms of operands.
    ("add.u32 %r0, %tid.x, 1;", "no special register, got %tid.x"),
    ("ld.shared.u32 %r0, [%r1-4];", "an offset begins with"),
    ("ld.shared.u32 %r0, [4];", "in local memory only"),
    ("ld.global.u32 %r0, [%r1];", "an address of 64 bits"),
    ("ld.global.u32 %r0, [%d];\n  ld.global.u32 %r0, [%r1];", "an address of 64 bits"),
    ("shl.b32 _, %r1, 3;", "a register for its result, got _"),
    ("bar.sync 16;", "from 0 to 15, got 16"),
    ("shl.b64 %d, %d, %e;", "an integer of 32 bits"),
    ("match.any.sync.b32 %r0|%p, %r1, -1;", "has one result"),
    # Declarations.
    (".local .align 3 .b8 y[8];", "power of two"),
    (".local .b8 y[0];", "extent of 0"),
    (".local .b8 y[1180591620717411303424];", "64 bits"),
    (".local .b8 y[1099511627776];", "no GPU has"),
    ("mov.u64 %d, 99999999999999999999;", "64 bits"),
    (".local .b32 y<99999999999>;", "at most"),
    (".reg .foo %z;", "no registers of type .foo"),
    (".reg .b32 %z", "cannot read|unknown directive|expected"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "said"), REFUSED, ids=[s[:40] for s, _ in REFUSED])
def test_the_error_names_its_place(statement, said, tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_text(KERNEL.replace("STATEMENT", statement), encoding="utf-8")
    with pytest.raises(PtxSyntaxError, match=said) as found:
        load_ptx(file)
    error = found.value
    assert error.file == str(file)
    assert error.line in (LINE, LINE + 1, 4)  # what is not closed begins with the function
    assert error.column >= 1
    assert str(error).startswith(f"{file}:{error.line}:{error.column}: ")
    assert error.statement


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD.replace("8.7", "99.9"), "99.9"),
        (HEAD.replace("8.7", "8.7.1"), "8.7.1"),
        (HEAD.replace("64", "32"), "write .address_size 64"),
        (HEAD + "foo", "cannot read 'foo'"),
        (HEAD + "\ud800", "no character of PTX"),
        (HEAD + ".address_size 64", ".address_size comes twice"),
        ("", "begins with .version and .target"),
        (HEAD.split("\n", 1)[1], "write .version 8.7 here"),
        (".version 8.7\n.address_size 64\n", "write .target sm_90a here"),
        (HEAD.replace("sm_90a", "sm_85"), "no GPU is named sm_85"),
        (HEAD.replace("8.7", "7.9"), "got 7.9"),
        (HEAD + ".section .debug_str { garbage }", "cannot read 'garbage'"),
        (HEAD + ".section .debug_str { .b8 300 }", "a number of 8 bits"),
        (HEAD + ".section foo { .b8 1 }", "cannot read '.section foo"),
        (HEAD + ".loc 1 2 3\n", "cannot read '.loc"),
        (HEAD + ";", "cannot read ';'"),
        (HEAD + ".global .u32 a; .global .u32 a;", "a is declared twice"),
        (HEAD + ".visible .entry k(.param .u64 x, .param .u64 x) { ret; }", "x is declared twice"),
        (HEAD + ".visible .entry k() { ret; } .visible .entry k() { ret; }", "k is defined twice"),
        (HEAD + ".visible .entry k() .maxntid 1 1 { ret; }", "unknown directive '1'"),
        (HEAD + ".visible .entry k() { ret;", "not closed"),
        (HEAD + ".visible .entry k(.param .b8 x[99999]) { ret; }", "32764"),
        (HEAD + ".global .b8 a[1099511627776];", "no GPU has"),
        (HEAD + ".global .u32 a = 1.0/0.0;", "division by zero"),
        (HEAD + "/* never", "does not end"),
        (HEAD + ".alias a, b;", "declared before it, got a"),
        (HEAD + ".shared .u32 a = 3;", "no variable has an initial value"),
        (HEAD + ".visible .weak .global .u32 a;", "one linking directive"),
        (HEAD + ".const .u32 c;\n.entry k() { st.global.u32 [c], 1; ret; }", "in .global there, and c is in .const"),
        (HEAD + ".func f() { ret; }\n.entry k() { .reg .b32 %r; ld.global.u32 %r, [f]; ret; }", "f is a function"),
    ],
)
def test_what_is_outside_of_functions_is_refused_with_its_place(text, said):
    with pytest.raises(PtxSyntaxError, match=said) as found:
        load_ptx(text)
    assert 1 <= found.value.line <= text.count("\n") + 1
    assert f"line {found.value.line}, column {found.value.column} of the PTX" in str(found.value)


ELSEWHERE = [
    (HEAD + "  /* never\n ends\n", 4, 3, "does not end"),
    (HEAD + ".entry k() {\n  mov.u32 /* a\n ret; }\n", 5, 11, "does not end"),
    (HEAD.replace("sm_90a", "sm_100a"), 2, 9, "PTX for sm_100a does not run on an sm_90a"),
    (HEAD.replace("sm_90a", "foo"), 2, 9, "no GPU is named foo"),
    (HEAD.replace("sm_90a", "compute_85"), 2, 9, "no GPU is named compute_85"),
    (HEAD.replace("sm_90a", "compute_100a"), 2, 9, "PTX for compute_100a does not run on an sm_90a"),
    (HEAD.replace("8.7", "10.0"), 1, 10, "up to 9.x, got 10.0"),
    (HEAD.replace("8.7", "9"), 1, 10, "got 9"),
    (HEAD + ".shared .u64 s;\n.global .u64 a = b;", 5, 18, "address of b, which is no variable"),
    (HEAD + ".shared .u64 s;\n.global .u64 a = s;", 5, 18, "address of s, which is no variable"),
    (HEAD + ".entry k()\n.reqntid 0\n{ ret; }", 5, 1, ".reqntid takes numbers from 1 on, got 0"),
    (HEAD + ".entry k()\n.maxntid 8, 0\n{ ret; }", 5, 1, ".maxntid takes"),
    ("build/kernel.ptx", 1, 1, "pass a pathlib.Path"),
    ("kernel.ptx", 1, 1, "pass a pathlib.Path"),
]


@pytest.mark.parametrize(("text", "line", "column", "said"), ELSEWHERE)
def test_the_place_is_where_it_begins(text, line, column, said):
    with pytest.raises(PtxSyntaxError, match=re.escape(said)) as found:
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
    """What is refused here, ptxas refuses, and what it accepts is accepted, but for what is too large or too deep."""
    ours = ("nested too deeply", "no GPU has", "no character", "at most")
    for statement, said in REFUSED:
        if said not in ours and "1.0/0.0" not in statement:
            assert refusal_of_ptxas(KERNEL.replace("STATEMENT", statement)), statement
    for statement in ACCEPTED:
        assert not refusal_of_ptxas(KERNEL.replace("STATEMENT", statement)), statement


def test_a_file_may_be_of_any_bytes(tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_bytes(HEAD.encode() + b"// a\rb\n")
    assert not load_ptx(file).kernels
    file.write_bytes(HEAD.encode() + b"\xff")
    with pytest.raises(PtxSyntaxError, match="no character of PTX"):
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
    with pytest.raises(MemoryAccessError, match="less than its 2 targets, got 2"):
        module.launch("k", 1, 3, (np.zeros(3, np.uint32),))


def test_an_empty_body_ends():
    load_ptx(HEAD + ".visible .entry k() { }").launch("k", 1, 32)


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
    with pytest.raises(UnknownInstructionError, match="child is a kernel"):
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
