"""Waits by the state that an arrival has returned: for the phase that it names, whichever is complete."""

import contextlib

import numpy as np
import pytest

from cutepy.sim import BarrierError, Run
from cutepy.sim.machine.policies import policy_named
from tests.sim.opcode_runner import launch

PASS = "{label}: mbarrier.{wait}.shared.b64 %p2, [%r1+1024], {state}; @!%p2 bra {label};\n"
START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; shl.b32 %r5, %r2, 2; add.u32 %r6, %r1, %r5;
xor.b32 %r7, %r6, 128; @%p1 mbarrier.init.shared.b64 [%r1+1024], 64; st.shared.u32 [%r6], %r2; bar.sync 0;
mbarrier.arrive.shared.b64 %rd4, [%r1+1024];
"""
TWICE = (
    START
    + PASS.format(label="FIRST", wait="{wait}", state="%rd4")
    + """bar.sync 0; setp.lt.u32 %p3, %r2, 32; @%p3 bra READER;
st.shared.u32 [%r6], %r2; mbarrier.arrive.shared.b64 _, [%r1+1024]; bra END;
READER: mbarrier.arrive.shared.b64 %rd5, [%r1+1024];
"""
    + PASS.format(label="SECOND", wait="{wait}", state="{state}")
    + "ld.shared.u32 %r13, [%r7]; END:"
)
"""The second warp writes, and the first one waits for that, if it does by the state of its second arrival."""


def kinds_of(body, policy=None):
    run = Run((), policy and policy_named(policy), sanitize=True)
    with contextlib.suppress(BarrierError):
        launch(body, np.zeros(64, np.uint32), block=64, smem_bytes=2048, run=run)
    certified = bool(run.certificates) and all(c.is_certified for c in run.certificates)
    return {hazard.kind for hazard in run.hazards}, certified


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
@pytest.mark.parametrize("policy", [None, "schedule:1", "schedule:2", "schedule:3", "schedule:4"])
def test_a_wait_is_for_the_phase_of_its_state(wait, policy):
    assert kinds_of(TWICE.format(wait=wait, state="%rd5"), policy) == (set(), True)
    found, is_certified = kinds_of(TWICE.format(wait=wait, state="%rd4"), policy)
    # The second phase may be over, or not: then the state is still good, and tells of the first one.
    assert found & {"misused-barrier", "unordered-read", "unordered-write"}
    assert not is_certified


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_a_state_is_too_old_after_the_next_phase(wait):
    """A thread that waits by a state must precede those that complete the next phase."""
    body = START + PASS.format(label="FIRST", wait=wait, state="%rd4")
    again = "mbarrier.arrive.shared.b64 _, [%r1+1024];\n"
    assert kinds_of(body + again) == (set(), True)
    late = "@!%p1 bra END;\n" + PASS.format(label="SECOND", wait=wait, state="%rd4") + "END:"
    assert kinds_of(body + late + "bar.warp.sync 0xffffffff;\n" + again) == (set(), True)
    found, is_certified = kinds_of(body + again + late)
    assert found <= {"misused-barrier", "lapped-wait"}
    assert found
    assert not is_certified


def test_a_try_that_nothing_waits_for_may_come_too_late():
    """By a parity it may come whenever it does; by a state it is undefined once the next phase is over."""
    one = "@%p1 mbarrier.test_wait{}.shared.b64 %p2, [%r1+1024], {};\n"
    assert kinds_of(START + one.format(".parity", 0)) == (set(), True)
    assert kinds_of(START + one.format("", "%rd4")) == (set(), False)
