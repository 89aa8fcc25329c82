"""Tries at an mbarrier that are no wait: what is read after them may not be there, and no schedule speaks for all."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cutepy.sim import Run
from cutepy.sim.sanitize.order.tries import _Registers, _State
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p1, %r2, 0; add.u32 %r8, %r1, 1024; add.u32 %r9, %r8, 8; mov.u32 %r5, 0; mov.u32 %r10, %r8;
@%p1 mbarrier.init.shared.b64 [%r8], 1; @%p1 mbarrier.init.shared.b64 [%r9], 1;
fence.mbarrier_init.release.cluster; bar.sync 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r8], 256;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r8];
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 256; add.u32 %r6, %r1, 256;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%rd1], 256, [%r9];
"""
"""Two mbarriers, r8 and r9, each for 256 bytes, from r1 and r6 on; r10 is the first one."""
READ = "DONE: ld.shared.u32 %r20, [%r4];\n"
WAIT = "LAST: mbarrier.try_wait.parity.shared.b64 %p8, [%r9], 0; @!%p8 bra LAST;\n"
END = "cvt.u64.u32 %rd3, %r3; add.u64 %rd4, %rd1, %rd3; st.global.u32 [%rd4+1024], %r20;\n"
TRY = "mbarrier.try_wait.parity.shared.b64 {}, [{}], {};\n"
FIRST, SECOND = TRY.format("%p2", "%r8", 0), TRY.format("%p3", "%r9", 0)
GIVE_UP = "B: " + FIRST + "@%p2 bra DONE; add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, {}; @%p3 bra B;\n"


COUNT = "add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 10;"
LINE = "kernel.py:9"
"""Of the first try."""


def judged(body):
    """Return hazards as (kind, what is missing), and the reasons why the launch is not certified."""
    run = Run((), None, sanitize=True)
    data = np.arange(1024, dtype=np.uint32)
    launch(START + body + WAIT + END, data, block=64, smem_bytes=2048, run=run, assembles=False)
    return [(hazard.kind, hazard.missing) for hazard in run.hazards], run.certificates[0].reasons


NO_WAITS = {
    "ten tries": GIVE_UP.format(10),
    "more tries than any run makes": GIVE_UP.format(1000000),
    "tries while there is time": "mov.u64 %rd5, %clock64; B: "
    + FIRST
    + "@%p2 bra DONE; mov.u64 %rd6, %clock64; sub.u64 %rd6, %rd6, %rd5; setp.lt.u64 %p3, %rd6, 100000; @%p3 bra B;\n",
    "three tries, one after the other": "".join(f"{FIRST} @%p2 bra DONE;\n" for _ in range(3)),
    "ten tries, in one condition": "B: " + FIRST + COUNT + "not.pred %p3, %p3; or.pred %p4, %p2, %p3; @!%p4 bra B;\n",
    "ten tries, in one comparison": "B: "
    + FIRST
    + "add.u32 %r5, %r5, 1; setp.ge.or.u32 %p4, %r5, 10, %p2; @!%p4 bra B;\n",
    "ten tries, counted before": "mov.u32 %r6, %ntid.x; B: setp.ge.u32 %p3, %r5, %r6; @%p3 bra DONE;"
    + FIRST
    + "add.u32 %r5, %r5, 1; @!%p2 bra B;\n",
    "ten tries, and a store after each": "B: "
    + FIRST
    + "@%p2 bra DONE; st.global.u32 [%rd1+2000], %r5;"
    + COUNT
    + "@%p3 bra B;\n",
    "a store tells of the failure": FIRST + "@%p2 bra DONE; st.global.u32 [%rd1+2000], %r5;\n",
    "a warp votes": "B: " + FIRST + "vote.sync.all.pred %p4, %p2, 0xffffffff; @%p4 bra DONE;" + COUNT + "@%p3 bra B;\n",
}


@pytest.mark.parametrize("name", NO_WAITS)
def test_what_is_read_after_tries_that_may_give_up_may_not_be_there(name):
    wrong = f"the try at {LINE} may fail, and its thread goes on all the same: loop until it succeeds"
    hazards, reasons = judged(NO_WAITS[name] + READ)
    assert hazards == [("unordered-read", wrong)]  # and not that the copy is in flight at the end
    assert any(LINE in reason for reason in reasons)


def test_a_try_that_may_give_up_for_others_is_named():
    polls = f"@!%p1 bra MEET; {GIVE_UP.format(10)}DONE: bra MEET; MEET: bar.sync 0;\n"
    hazards, _ = judged(polls + READ.removeprefix("DONE: "))
    assert any(kind == "unordered-read" and f"the try at {LINE} may fail" in missing for kind, missing in hazards)


TWICE = """@%p1 mbarrier.init.shared.b64 [%r8+16], 32; bar.sync 0;
setp.ge.u32 %p4, %r2, 32; mov.u32 %r10, 0; mov.u32 %r20, 0; @%p4 bra USE;
@!%p1 bra DONE; FREE: mbarrier.try_wait.parity.shared.b64 %p3, [%r8+16], 0; @!%p3 bra FREE;
mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r8], 256;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r8]; bra DONE;
USE: mbarrier.try_wait.parity.shared.b64 %p3, [%r8], %r10; @%p3 bra GOT; {}
GOT: sub.u32 %r11, %r4, 128; ld.shared.u32 %r20, [%r11]; fence.proxy.async.shared::cta;
mbarrier.arrive.shared.b64 _, [%r8+16]; add.u32 %r10, %r10, 1; mov.u32 %r5, 0; setp.lt.u32 %p4, %r10, 2; @%p4 bra USE;
DONE: add.u32 %r20, %r20, 1;
"""


@pytest.mark.parametrize(("give_up", "found"), [("bra USE;", 0), (COUNT + "@%p3 bra USE;", 1)])
def test_what_follows_from_a_try_that_may_give_up_is_not_told_beside_it(give_up, found):
    hazards, reasons = judged(TWICE.format(give_up))  # phases whose order the try alone tells
    assert len(hazards) == found
    assert bool(reasons) == bool(found)


WAITS = {
    "a loop": "B: " + FIRST + "@!%p2 bra B;\n",
    "a loop that counts": "B: " + FIRST + "add.u32 %r5, %r5, 1; @!%p2 bra B;\n",
    "a loop with a pause, by a value": "B: "
    + FIRST
    + "selp.u32 %r7, 1, 0, %p2; setp.ne.u32 %p3, %r7, 0; @%p3 bra DONE; nanosleep.u32 20; bra B;\n",
    "a flag of a loop": "mov.u32 %r7, 0; B: setp.ne.u32 %p3, %r7, 0; @%p3 bra DONE;\n"
    + FIRST
    + "selp.u32 %r7, 1, 0, %p2; bra B;\n",
    "two tries a round": "B: " + FIRST + "@%p2 bra DONE;\n" + TRY.format("%p3", "%r8", 0) + "@!%p3 bra B;\n",
    "two tries, of other times": "mov.u32 %r6, 20; B: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0, %r6;"
    "@%p2 bra DONE; mov.u32 %r7, 40; mbarrier.try_wait.parity.shared.b64 %p3, [%r8], 0, %r7; @!%p3 bra B;\n",
    "a few tries, and then a loop": GIVE_UP.format(3) + "C: " + TRY.format("%p4", "%r8", 0) + "@!%p4 bra C;\n",
    "an address that is made in each round": "B: add.u32 %r11, %r1, 1024;\n"
    + TRY.format("%p2", "%r11", 0)
    + "@!%p2 bra B;\n",
}


@pytest.mark.parametrize("name", WAITS)
def test_what_is_read_after_a_wait_is_there(name):
    assert judged(WAITS[name] + READ) == ([], ())


SILENT = {
    "two tries in one condition": "B: " + FIRST + TRY.format("%p3", "%r8", 0) + "or.pred %p4, %p2, %p3; @!%p4 bra B;\n",
    "a predicated move tells": "B: mov.u32 %r7, 0;\n"
    + FIRST
    + "@%p2 mov.u32 %r7, 1; setp.eq.u32 %p3, %r7, 0; @%p3 bra B;\n",
    "the parity is made again for the second try": "B: "
    + FIRST
    + "@%p2 bra DONE; mov.u32 %r7, 0;\n"
    + TRY.format("%p3", "%r8", "%r7")
    + "@!%p3 bra B;\n",
}


@pytest.mark.parametrize("name", SILENT)
def test_waits_that_are_not_followed_are_no_hazards(name):
    assert judged(SILENT[name] + READ)[0] == []


OUT = "B: " + FIRST + "@%p2 bra OUT;" + COUNT + "@%p3 bra B;\nOUT: "
NAMED = {
    "a flag is set in another block": "mov.u32 %r7, 0; B: setp.ne.u32 %p3, %r7, 0; @%p3 bra DONE;"
    + FIRST
    + "@!%p2 bra B; add.u32 %r7, %r7, 1; bra B;\n",
    "it traps where it has failed": OUT + "@!%p2 trap;\n",
    "it traps after ten tries, as is told from their number": OUT + "setp.ge.u32 %p5, %r5, 10; @%p5 trap;\n",
    "it ends after ten tries": OUT + "sub.u32 %r30, %r5, 10; setp.eq.u32 %p5, %r30, 0; @%p5 ret;\n",
    "what is not there is not read": OUT + "@!%p2 bra LAST;\n",
    "another flag may stand for it": "B: "
    + FIRST
    + "@%p2 bra DONE; ld.acquire.gpu.global.u32 %r7, [%rd1+2048]; setp.eq.u32 %p3, %r7, 0; @%p3 bra B;\n",
    "a store in each round": "B: " + FIRST + "@%p2 bra DONE; st.global.u32 [%rd1+2000], %r5; bra B;\n",
    "the parity changes": "B: " + TRY.format("%p2", "%r8", "%r5") + "@%p2 bra DONE; xor.b32 %r5, %r5, 1; bra B;\n",
    "the parity is another one from the second try on": "B: "
    + TRY.format("%p2", "%r8", "%r5")
    + "mov.u32 %r5, 1; @!%p2 bra B;\n",
    "either of two, by the address": "B: "
    + TRY.format("%p2", "%r10", 0)
    + "@%p2 bra DONE; xor.b32 %r10, %r10, 8; bra B;\n",
    "either of two, in turn": "B: " + FIRST + "@%p2 bra DONE;\n" + SECOND + "@!%p3 bra B;\n",
    "either of two, in one condition": "B: " + FIRST + SECOND + "or.pred %p4, %p2, %p3; @!%p4 bra B;\n",
    "it traps after many tries": GIVE_UP.format(1000000) + "trap;\n",
    "both of two, in one condition": "B: " + FIRST + SECOND + "and.pred %p4, %p2, %p3; @!%p4 bra B;\n",
    "what is complete is read": "B: "
    + TRY.format("%p2", "%r10", 0)
    + """@%p2 bra SOME; xor.b32 %r10, %r10, 8; bra B;
SOME: and.b32 %r11, %r10, 8; shl.b32 %r11, %r11, 5; add.u32 %r4, %r4, %r11;\n""",
}


@pytest.mark.parametrize("name", NAMED)
def test_what_does_something_else_is_not_certified(name):
    hazards, reasons = judged(NAMED[name] + READ)
    assert hazards == []
    assert any(LINE in reason for reason in reasons)


registers = st.frozensets(st.integers(0, 5))
states = st.builds(
    lambda known, told, tied, judged, made: _State(
        frozenset(known.items()), told, tied, judged, frozenset(made.items())
    ),
    st.dictionaries(st.integers(0, 5), st.integers(0, 1)),
    registers,
    registers,
    registers,
    st.dictionaries(st.integers(0, 5), registers),
)


@given(states, registers)
def test_of_a_state_remains_what_is_of_registers_that_are_still_read(state, live):
    assert _Registers(state).state(None) == state
    kept = _Registers(state).state(live)
    assert kept.known == {(r, value) for r, value in state.known if r in live}
    assert (kept.told, kept.tied, kept.judged) == (state.told & live, state.tied & live, state.judged & live)
    assert kept.made == {(r, of) for r, of in state.made if r in live}
