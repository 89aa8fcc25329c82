"""Instructions that the simulator does not have are refused by name, where a thread reaches them."""

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim import UnknownInstructionError
from cutepy.sim.ptx.refusals import refusal
from tests.messages import refuses

KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x) {
  .reg .b32 %r<9>; .reg .f32 %f<3>; .reg .b64 %d;
  ld.param.u64 %d, [x];
  STATEMENT
END:
  st.global.u32 [%d], 7; ret; }
"""
TEXTURES, VIDEO = "textures and surfaces are not", "video instructions are not"


@pytest.mark.parametrize(
    "statement",
    [
        "tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%d, {%f1, %f2}];",
        "tld4.r.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%d, {%f1, %f2}];",
        "sust.b.1d.b32.trap [%d, {%r1}], {%r2};",
        "suld.b.1d.b32.trap {%r2}, [%d, {%r1}];",
        "txq.width.b32 %r1, [%d];",
        "vadd.s32.s32.s32.sat %r1, %r2.b0, -%r3.h1;",
        "vabsdiff4.u32.u32.u32.add %r1, %r2, %r3, %r4;",
        "vset2.u32.u32.lt %r1, %r2, %r3, %r4;",
        "vmad.s32.s32.s32.shr7 %r1, %r2.b0, %r3.b1, %r4;",
    ],
)
def test_refused_where_it_is_reached(statement):
    out = np.zeros(1, np.uint32)
    with refuses(UnknownInstructionError) as told:
        load_ptx(KERNEL.replace("STATEMENT", statement)).launch("k", 1, 1, (out,))
    assert told.value.instruction.parts[0] == statement.partition(".")[0]
    load_ptx(KERNEL.replace("STATEMENT", f"bra END; {statement}")).launch("k", 1, 1, (out,))
    assert out[0] == 7


@pytest.mark.parametrize("opcode", ["vote.sync.ballot.b32", "add.s32", "testp.finite.f32", "st.global.u32", "texture"])
def test_other_names_are_not(opcode):
    assert refusal(opcode) == ""
