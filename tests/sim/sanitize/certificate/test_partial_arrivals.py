"""Lanes of a warp that come to a CTA's barrier one after another: who is ordered by it, and in every schedule.

PTX ISA, "bar, barrier": each waits for all non-exited threads from its warp, whose arrival is marked then.
"""

import contextlib

import numpy as np
import pytest

import cutepy
from cutepy.sim import Run, SimulationError
from cutepy.sim.machine.policies import policy_named
from tests.sim.opcode_runner import launch
from tests.sim.replay.kernels import module

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; shl.b32 %r6, %r2, 2; add.u32 %r6, %r6, %r1;
xor.b32 %r7, %r6, 192; setp.lt.u32 %p1, %r3, 16; setp.lt.u32 %p2, %r2, 32; setp.eq.u32 %p3, %r3, 5;
"""
"""r6: the thread's word; r7: that of the other half of the other warp; p1: lower half, p2: first warp, p3: one lane."""
WRITE, READ = "st.shared.u32 [%r6], %r2;\n", "ld.shared.u32 %r9, [%r7];\n"
MEET = "@%p1 bra LOW;\nbarrier.sync 1, 64;\nbra ON;\nLOW: barrier.sync 1, 64;\nON:\n"
TWICE = "@%p1 bra LOW;\n{0}{0}bra ON;\nLOW: {0}{0}ON:\n"

CERTIFIED = {
    "halves that meet": (WRITE + MEET + READ, 64),
    "halves that arrive, and a warp that waits": (
        WRITE
        + "@!%p2 bra WAIT;\n@%p1 bra LOW;\nbarrier.arrive 1, 64;\nbra END;\nLOW: barrier.arrive 1, 64;\nbra END;\n"
        "WAIT: bar.sync 1, 64;\n" + READ + "END:",
        64,
    ),
    "a lane that has ended": ("@%p3 exit;\n" + WRITE + "bar.sync 1, 64;\nbar.sync 1, 64;\n", 64),
    "a warp of 16 threads": (WRITE + "bar.sync 1, 64;\n", 48),
    "halves of one warp, twice": (TWICE.format("barrier.sync 1, 32;\n"), 32),
    # Who has arrived knows that its warp has.
    "halves of one warp that arrive twice": (TWICE.format("barrier.arrive 1, 32;\n"), 32),
}
REFUSED = {
    "a half that writes behind the barrier": (MEET + "@%p1 st.shared.u32 [%r6], %r2;\n" + READ, "unordered-read", 64),
    "a lane that ends and has written": (WRITE + "@%p3 exit;\n" + MEET + READ, "unordered-read", 64),
    "four warps at a barrier of two": (MEET, "mixed-generation", 128),
    "warps that arrive and come again": (
        TWICE.format("barrier.arrive 1, 64;\nbarrier.sync 1, 64;\n"),
        "mixed-generation",
        64,
    ),
    "halves of warps at two barriers": (
        "@%p1 bra LOW;\nbarrier.sync 1, 32;\nbra ON;\nLOW: barrier.sync 2, 32;\nON:",
        "partial-warp",
        64,
    ),
}
POLICIES = [None, "schedule:1", "schedule:2", "schedule:3"]


def examined(body, block, policy):
    run = Run((), policy and policy_named(policy), sanitize=True)
    with contextlib.suppress(SimulationError):
        launch(START + body, np.zeros(64, np.uint32), block=block, smem_bytes=1024, run=run, assembles=False)
    return {hazard.kind for hazard in run.hazards}, [c.is_certified for c in run.certificates]


@pytest.mark.parametrize("name", CERTIFIED)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_barrier_orders_is_certified(name, policy):
    assert examined(*CERTIFIED[name], policy) == (set(), [True])


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_no_barrier_orders_is_found(name, policy):
    body, kind, block = REFUSED[name]
    found, certified = examined(body, block, policy)
    assert kind in found
    assert not any(certified)


@pytest.mark.parametrize("name", CERTIFIED)
def test_all_schedules_of_what_is_certified_are_alike(name):
    body, block = CERTIFIED[name]
    kernel = module(START.replace("smem", "tile").replace("%r2, %tid.x", "%r2, %r0") + body)
    with cutepy.simulate(replay=True) as run:
        kernel.launch("k", 1, block, (np.zeros(64, np.uint32),))
        found = run.explore(schedules="all", limit=200)
    assert (found.is_complete, found.divergences) == (True, ())
