"""Instructions of forms that are not known: an error that names the instruction, and never one of Python's own."""

import numpy as np
import pytest

import cutepy
from cutepy.sim import HazardError, SimulationError, UnknownInstructionError
from cutepy.sim.mechanisms.warp import Warp
from cutepy.sim.ptx.tokens import PtxSyntaxError
from cutepy.sim.translate.unknown_forms import InstructionNamed
from tests.messages import refuses

KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.shared .align 16 .b8 s[64];
.entry k(.param .u64 x) {
  .reg .b32 %r<4>; .reg .b64 %d, %e<4>; .reg .pred %p<4>; .reg .f32 %f<4>;
  ld.param.u64 %d, [x]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; setp.eq.u32 %p0, %r0, 0;
  STATEMENT
  ret; }
"""
LINE = 8
ODD = """
bar.sync 0, 0;
@!%p0 barrier.sync 0, 0;
mov.u32 %r0, 0; bar.sync 0, %r0;
cp.async.ca.shared.global [%r1], [%d], 3;
wgmma.wait_group.sync.aligned -1;
wgmma.wait_group.sync.aligned 18446744073709551615;
selp.u32 %r0, 1, 0, %tid.x;
ld.global.v2.pred {%p0, %p1}, [%d];
cvt.u32 %r0, %r1;
cvt.rn.u32 %r0, %f0;
match.sync.b32 %r0, %r1, -1;
vote.sync.pred %p1, %p0, -1;
redux.sync.s8.u32 %r0, %r1, -1;
cp.async 0;
membar.foo;
selp.u32 %r0, 1, 0, s;
set.lt.ftz.u32.tf32 %r0, %r1, 16;
st.parity.wide [%d], %r0;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [%d], 99;
ld.param.u32 %r0, [x+8];
.reg .texref %z;
""".strip().split("\n")
WATCHED = ["membar;", "fence.proxy.u64.tensormap::generic.acquire [%d];", "ld.shared.u32 %r0, [-4];"]


def launched(statement, **options):
    module = cutepy.load_ptx(KERNEL.replace("STATEMENT", statement))
    with cutepy.simulate(limit_seconds=10, **options):
        module.launch("k", 1, 128, (np.zeros(64, np.uint32),))


@pytest.mark.parametrize("sanitize", [False, True])
@pytest.mark.parametrize("statement", ODD)
def test_an_odd_form_is_an_error_with_its_line(statement, sanitize):
    with refuses((PtxSyntaxError, SimulationError)) as caught:
        launched(statement, sanitize=sanitize)
    if isinstance(caught.value, PtxSyntaxError):
        assert caught.value.line == LINE
        assert caught.value.column >= 3
    elif not isinstance(caught.value, HazardError):
        assert caught.value.instruction.line == LINE


@pytest.mark.parametrize("statement", WATCHED)
def test_the_sanitizer_names_the_line_of_an_odd_form(statement):
    with refuses((PtxSyntaxError, SimulationError)):
        launched(statement, sanitize=True)


@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError, TypeError, StopIteration])
def test_an_error_of_python_is_the_cause(error, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(Warp, "vote_any", fail)
    # The test's own function stands for a caller's: its error passes as it is.
    with pytest.raises(error):
        launched("vote.sync.any.pred %p1, %p0, -1;")
    code = fail.__code__.replace(co_filename="<generated>")
    monkeypatch.setattr(Warp, "vote_any", type(fail)(code, {}, None, None, fail.__closure__))
    with refuses(UnknownInstructionError) as caught:
        launched("vote.sync.any.pred %p1, %p0, -1;")
    assert type(caught.value.__cause__) is error
    assert caught.value.instruction.line == LINE


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, OSError])
def test_what_no_form_raises_passes(error):
    with pytest.raises(error), InstructionNamed():
        raise error
