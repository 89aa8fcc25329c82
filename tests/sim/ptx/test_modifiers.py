"""Modifiers of instructions: those of the ISA are taken, in any order that ptxas takes, and all others are refused."""

import numpy as np
import pytest

from cutepy import load_ptx
from cutepy.sim import UnknownInstructionError
from cutepy.sim.ptx.modifiers import SPELLINGS, _slots, is_spelled, refused_spelling
from cutepy.sim.ptx.spelling import usual
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.coverage import LISTED

KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k() {{
  .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .pred %p<4>; .reg .f32 %f<4>;
  bra END;
  {};
END: ret; }}
"""
REFUSED = [
    ("add.foo.u32 %r0, %r1, %r2", 6),
    ("frobnicate.u32 %r0, %r1", 3),
    ("add.sat.u32 %r0, %r1, %r2", 3),
    ("and.u32 %r0, %r1, %r2", 6),
    ("add.rn.rn.f32 %f0, %f1, %f2", 3),
    ("mul.u32.wide %d0, %r1, %r2", 3),
    ("setp.lo.s32 %p0, %r1, %r2", 3),
    ("cvt.sat.u64.u16 %d0, %r1", 3),
    ("ld.relaxed.global.b32 %r0, [%d0]", 3),
    ("ld.volatile.global.L1::evict_last.b32 %r0, [%d0]", 3),
    ("red.acquire.gpu.global.add.u32 [%d0], %r0", 6),
    ("wgmma.fence", 3),
    ("bar.sync.cta 0", 3),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1, %r2}], "
     "[%r3]", 3),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "column"), REFUSED)
def test_an_opcode_of_no_known_spelling_is_refused_where_it_is_never_reached(statement, column, tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_text(KERNEL.format(statement))
    with refuses(PtxSyntaxError) as found:
        load_ptx(file)
    error = found.value
    assert (error.file, error.line, error.column, error.statement) == (str(file), 7, column, f"{statement};")


def test_spellings_of_real_kernels_are_taken():
    assert [opcode for opcode in LISTED if not is_spelled(usual(opcode))] == []


TAKEN = """cvt.rni.bf16.bf16 cvt.rpi.bf16.bf16 cvt.bf16.bf16 cvt.f16.bf16 cvt.bf16.f16 cvt.ftz.f32.bf16 cvt.rn.f32.bf16
cvt.rz.ftz.f32.bf16 cvt.rm.f64.bf16 cvt.rn.ftz.bf16.f32 cvt.rn.ftz.f32.s8 cvt.rp.ftz.sat.f32.u64 fma.rz.bf16
fma.rm.oob.relu.bf16x2 fma.rn.oob.sat.f16 rcp.rn.ftz.f64 addc.u16 subc.s16 madc.lo.u16 madc.hi.s16 set.eq.bf16.b16
set.nan.f16.f64 set.lt.ftz.f16.f32 set.lo.bf16.u64 set.gt.bf16.f16
mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32.and.popc
mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32.or.popc""".split()
NOT_TAKEN = """cvt.rn.bf16.bf16 cvt.rn.bf16.u8 cvt.rni.s8.bf16 cvt.ftz.f64.bf16 set.lt.f32.b32
set.ftz.bf16.f32 fma.rz.f16 ld.weak.global.nc.b32 ldu.v4.b64 st.volatile.local.b32 ld.volatile.const.b32""".split()


@pytest.mark.parametrize("opcode", TAKEN)
def test_what_ptxas_takes_is_spelled(opcode):
    assert is_spelled(usual(opcode))


@pytest.mark.parametrize("opcode", NOT_TAKEN)
def test_what_ptxas_refuses_is_not_spelled(opcode):
    assert not is_spelled(usual(opcode))


RARE = [
    # Values as an H200 gave them.
    ("mov.b16 %h2, 0x3FC0; cvt.rni.bf16.bf16 %h1, %h2; mov.b32 %r0, {%h1, 0};", 0x4000),
    ("mov.b16 %h2, 0x7F81; cvt.rni.bf16.bf16 %h1, %h2; mov.b32 %r0, {%h1, 0};", 0x7FFF),
    ("mov.b16 %h2, 0x0001; cvt.bf16.bf16 %h1, %h2; mov.b32 %r0, {%h1, 0};", 1),
    ("mov.b16 %h2, 0x7F81; cvt.ftz.f32.bf16 %r0, %h2;", 0x7FFFFFFF),
    ("mov.b16 %h2, 0x7F81; cvt.rn.f32.bf16 %r0, %h2;", 0x7F810000),
    ("cvt.rz.ftz.f32.u32 %r0, 16777217;", 0x4B800000),
    ("mov.b16 %h1, 0x4000; mov.b16 %h2, 0x3C00; set.gt.bf16.f16 %h1, %h1, %h2; mov.b32 %r0, {%h1, 0};", 0x3F80),
    ("add.cc.u32 %r1, %r3, -1; addc.u16 %h1, 2, 3; mov.b32 %r0, {%h1, 0};", 6),
    ("mov.u64 %d1, 0x0008000000000000; rcp.rn.ftz.f64 %d1, %d1; mov.b64 {%r2, %r0}, %d1;", 0x7FE00000),
    ("isspacep.shared %p1, %r3; selp.b32 %r0, 1, 0, %p1;", 0),
    ("isspacep.global %p1, %r3; selp.b32 %r0, 1, 0, %p1;", 1),
]
RARE_KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.entry k(.param .u64 x) {
  .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %d<4>; .reg .pred %p<4>;
  ld.param.u64 %d0, [x]; mov.u32 %r3, 4096; setp.eq.u64 %p0, %d0, 0; @%p0 bra RARE;
  STATEMENT
  st.global.u32 [%d0], %r0; ret;
RARE: OTHER ret; }
"""


@pytest.mark.parametrize(("body", "value"), RARE)
def test_a_rare_spelling_computes(body, value):
    found = np.zeros(1, np.uint32)
    load_ptx(RARE_KERNEL.replace("STATEMENT", body).replace("OTHER", "")).launch("k", 1, 1, (found,))
    assert hex(found[0]) == hex(value)


@pytest.mark.parametrize(
    "statement",
    [
        "fma.rz.bf16 %h1, %h1, %h1, %h1;",
        "madc.hi.u16 %h1, %h1, %h1, %h1;",
        "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32.and.popc {%r0, %r1}, {%r2}, {%r2}, {%r0, %r1};",
        "mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32.or.popc {%r0, %r1}, {%r2}, {%r2}, {%r0, %r1};",
    ],
)
def test_a_spelling_that_is_not_simulated_is_named_where_it_is_reached(statement):
    module = load_ptx(RARE_KERNEL.replace("STATEMENT", "mov.u32 %r0, 5;").replace("OTHER", statement))
    found = np.zeros(1, np.uint32)
    module.launch("k", 1, 1, (found,))
    assert found[0] == 5
    module = load_ptx(RARE_KERNEL.replace("STATEMENT", statement).replace("OTHER", ""))
    with refuses(UnknownInstructionError):
        module.launch("k", 1, 32, (found,))


@pytest.mark.parametrize("opcode", ["bfind.shiftamt.shiftamt.u32", "tanh.approx.approx.f32", "vote.sync.sync.any.pred"])
def test_a_modifier_may_be_repeated_where_ptxas_takes_it(opcode):
    assert is_spelled(usual(opcode))


def test_each_way_is_in_the_usual_order():
    """So that what is sorted into the usual order can match."""
    for name, way in ((name, way) for name, ways in SPELLINGS.items() for way in ways):
        opcode = ".".join([name, *(words[0] for words, _ in _slots(way))]).rstrip(".")
        assert is_spelled(usual(opcode)), (name, way, usual(opcode))


def test_instructions_of_newer_gpus_that_are_not_simulated_are_named():
    assert "devices" in refused_spelling("multimem.ld_reduce.relaxed.gpu.global.add.acc::f16.v2.f16")[0]
    load = "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes"
    assert "halo" in refused_spelling(load)[0]
