"""Modifiers of instructions: those of the ISA are taken, in any order that ptxas takes, and all others are refused."""

import re

import pytest

from cutepy import load_ptx
from cutepy.sim.ptx.modifiers import SPELLINGS, _slots, is_spelled, refused_spelling
from cutepy.sim.ptx.spelling import usual
from cutepy.sim.ptx.tokens import PtxSyntaxError
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
    ("add.foo.u32 %r0, %r1, %r2", "add has no modifier .foo", 6),
    ("frobnicate.u32 %r0, %r1", "PTX has no instruction frobnicate", 3),
    ("add.sat.u32 %r0, %r1, %r2", "do not go together", 3),
    ("and.u32 %r0, %r1, %r2", "and takes no type .u32", 6),
    ("add.rn.rn.f32 %f0, %f1, %f2", "do not go together", 3),
    ("mul.u32.wide %d0, %r1, %r2", "do not go together", 3),
    ("setp.lo.s32 %p0, %r1, %r2", "do not go together", 3),
    ("cvt.sat.u64.u16 %d0, %r1", "do not go together", 3),
    ("ld.relaxed.global.b32 %r0, [%d0]", "needs one of .cta .cluster .gpu .sys", 3),
    ("ld.volatile.global.L1::evict_last.b32 %r0, [%d0]", "do not go together", 3),
    ("red.acquire.gpu.global.add.u32 [%d0], %r0", "red has no modifier .acquire", 6),
    ("wgmma.fence", "needs .sync.aligned", 3),
    ("bar.sync.cta 0", "do not go together", 3),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1, %r2}], "
     "[%r3]", "do not go together", 3),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "said", "column"), REFUSED)
def test_an_opcode_of_no_known_spelling_is_refused_where_it_is_never_reached(statement, said, column, tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_text(KERNEL.format(statement))
    with pytest.raises(PtxSyntaxError, match=re.escape(said)) as found:
        load_ptx(file)
    error = found.value
    assert (error.file, error.line, error.column, error.statement) == (str(file), 7, column, f"{statement};")


def test_spellings_of_real_kernels_are_taken():
    assert [opcode for opcode in LISTED if not is_spelled(usual(opcode))] == []


@pytest.mark.parametrize("opcode", ["bfind.shiftamt.shiftamt.u32", "tanh.approx.approx.f32", "vote.sync.sync.any.pred"])
def test_a_modifier_may_be_repeated_where_ptxas_takes_it(opcode):
    assert is_spelled(usual(opcode))


def test_each_way_is_in_the_usual_order():
    """So that what is sorted into the usual order can match."""
    for name, way in ((name, way) for name, ways in SPELLINGS.items() for way in ways):
        opcode = ".".join([name, *(words[0] for words, _ in _slots(way))]).rstrip(".")
        assert is_spelled(usual(opcode)), (name, way, usual(opcode))


@pytest.mark.parametrize("opcode", ["tcgen05.mma", "st.bulk.weak", "ld.global.v8.b32", "cvt.rs.f16x2.f32"])
def test_instructions_of_newer_gpus_are_named(opcode):
    assert "sm_100" in refused_spelling(opcode)[0]
