"""Declarations of registers."""

import numpy as np
import pytest

from cutepy.sim.ptx.model import Register, Vector
from cutepy.sim.ptx.parser import parse_module
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.sim.opcode_runner import launch

ENTRY = ".target sm_90a\n.visible .entry k() {{ {} ret; }}"


def instructions(body):
    return parse_module(ENTRY.format(body)).functions["k"].instructions


@pytest.mark.parametrize("letters", ["xyzw", "rgba"])
def test_a_vector_is_its_elements(letters):
    moves = " ".join(f"mov.s32 v.{x}, {n};" for n, x in enumerate(letters))
    *found, store, _ = instructions(f".reg .v4 .s32 v; .reg .b64 p; {moves} st.global.v4.s32 [p], v;")
    elements = [move.operands[0] for move in found]
    assert all(isinstance(e, Register) and e.type == "s32" for e in elements)
    assert len({e.index for e in elements}) == 4
    assert store.operands[1] == Vector(tuple(elements))


def test_a_vector_is_of_its_block():
    first, second, _ = instructions(
        "{ .reg .v2 .b32 v; mov.b32 v.x, 1; } { .reg .v2 .b32 v; mov.b32 v.x, 1; }"
    )  # fmt: skip
    assert first.operands[0] != second.operands[0]


@pytest.mark.parametrize("names", ["r a n", "%r %a %n", "%ret $arg _n", "%a a $a"])
@pytest.mark.parametrize("function", [".func", ".visible .func"])
def test_formals_in_registers_have_any_name(names, function):
    """PTX ISA, "Identifiers": a name may begin with a percent sign, as those of registers do."""
    result, one, other = names.split()
    module = (
        f"{function} (.reg .b32 {result}) f (.reg .b32 {one}, .reg .b64 {other}) {{\n"
        f".reg .pred %p; .reg .b32 %low; cvt.u32.u64 %low, {other}; sub.u32 {result}, {one}, %low;\n"
        f"setp.gt.u32 %p, {one}, 10; @%p ret; add.u32 {result}, {result}, 100; ret; }}"
    )
    out = np.zeros(2, np.uint32)
    body = """ld.param.u64 %rd1, [p0]; mov.u64 %rd2, 2; mov.u32 %r1, 11; call (%r2), f, (%r1, %rd2);
    st.global.u32 [%rd1], %r2; call.uni (%r3), f, (5, %rd2); st.global.u32 [%rd1+4], %r3;"""
    launch(body, out, module=module, block=1)
    assert out.tolist() == [9, 103]


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
@pytest.mark.parametrize("dtype", ["b32", "f16x2", "u32", "f32"])
def test_fragments_are_in_registers_of_bits_or_of_pairs_of_halves(kind, dtype):
    """As ptxas takes them: types count where all registers of a matrix have one."""
    opcode = f"mma.sync.aligned.m16n8k{8 if kind == 'tf32' else 16}.row.col.f32.{kind}.{kind}.f32"
    statement = f"{opcode} {{f0, f1, f2, f3}}, {{a0, a1, a2, a3}}, {{b0, b1}}, {{f0, f1, f2, f3}};"
    for a, b in ((dtype, "b32"), ("b32", dtype)):
        body = f".reg .f32 f<4>; .reg .{a} a<4>; .reg .{b} b<2>; {statement}"
        if dtype == "b32" or (dtype, kind) == ("f16x2", "f16"):
            assert instructions(body)[0].opcode == opcode
        else:
            with pytest.raises(PtxSyntaxError):
                instructions(body)
