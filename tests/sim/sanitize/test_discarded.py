"""Loads that race: an advisory where nothing comes of what the lane has loaded, and only there."""

import numpy as np
import pytest

from cutepy.sim import DeadlockError, Run
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u64 %rd1, [p0]; setp.eq.u32 %p1, %r1, 0;
mov.u32 %r20, 0; setp.lt.u32 %p2, %r1, 40; add.u64 %rd2, %rd1, 256; mul.wide.u32 %rd3, %r2, 4;
"""
LOAD = "ld.global.u32 %r9, [%rd1];\n"
STORE = "add.u32 %r10, %r9, 1; @%p1 st.global.u32 [%rd1], %r10;\n"


def run_of(*lines, grid=1, block=64):
    """Run a kernel sanitized."""
    run = Run((), None, sanitize=True)
    launch("".join((START, *lines)), np.zeros(1024, np.uint32), grid=grid, block=block, run=run, smem_bytes=1024)
    return run


COMES_TO_SOMETHING = {
    "another lane stores it": "@%p2 st.global.u32 [%rd2], %r9;\n",
    "a branch": "setp.eq.u32 %p3, %r9, 77; @%p3 bra OUT; mov.u32 %r20, 1; OUT:\n",
    "a guard": "setp.eq.u32 %p3, %r9, 77; @%p3 st.global.u32 [%rd2], %r20;\n",
    "an address": "and.b32 %r11, %r9, 4; cvt.u64.u32 %rd5, %r11; add.u64 %rd5, %rd2, %rd5; "
    "ld.global.u32 %r12, [%rd5];\n",
    "other lanes": "shfl.sync.idx.b32 %r11, %r9, 3, 31, 0xffffffff; @%p1 st.global.u32 [%rd2], %r11;\n",
    "a vote": "setp.eq.u32 %p3, %r9, 77; vote.sync.any.pred %p4, %p3, 0xffffffff;\n",
    "an atomic": "red.global.add.u32 [%rd2], %r9;\n",
    "shared memory": "mov.u32 %r13, smem; st.shared.u32 [%r13], %r9;\n",
}


def test_a_load_of_all_lanes_of_which_one_stores_is_an_advisory():
    hazards = run_of(LOAD, STORE).hazards
    (found,) = hazards.advisories
    assert (list(hazards), found.kind) == ([], "discarded-read")
    assert (found.before.what, found.before.lane, found.after.lane) == ("ld read", 1, 0)


@pytest.mark.parametrize("computed", ["szext.clamp.u32 %r10, %r9, 5;", "brev.b32 %r10, %r9;"])
def test_whatever_a_lane_computes_with_it_is_followed(computed):
    hazards = run_of(LOAD, computed, "@%p1 st.global.u32 [%rd1], %r10;\n").hazards
    assert ([*hazards], [found.kind for found in hazards.advisories]) == ([], ["discarded-read"])


def test_its_launch_is_certified():
    (certificate,) = run_of(LOAD, STORE).certificates
    assert certificate.is_certified


@pytest.mark.parametrize("name", COMES_TO_SOMETHING)
def test_what_comes_to_something_is_a_hazard(name):
    run = run_of(LOAD, COMES_TO_SOMETHING[name], STORE)
    assert "unordered-write" in [hazard.kind for hazard in run.hazards]
    assert not [hazard for hazard in run.hazards.advisories if hazard.kind == "discarded-read"]


TAKES = ".func takes(.reg .b32 i, .reg .b64 a) { st.global.u32 [a], i; ret; }"
GIVES = """.func (.reg .b32 o) gives(.reg .b64 a, .reg .b32 t) { .reg .pred %q; .reg .b32 %n; ld.global.u32 o, [a];
add.u32 %n, o, 1; setp.eq.u32 %q, t, 0; @%q st.global.u32 [a], %n; ret; }
"""
PASSES = f"{LOAD}@!%p2 bra PAST; call.uni takes, (%r9, %rd2); PAST: {STORE}"
RETURNS = "call.uni (%r9), gives, (%rd1, %r1); @%p2 st.global.u32 [%rd2], %r9;\n"


CALLS = f"{LOAD}call.uni nothing;\n{STORE}", ".func nothing() { ret; }"


@pytest.mark.parametrize(
    ("body", "module"), [(PASSES, TAKES), (RETURNS, GIVES), CALLS], ids=["argument", "result", "neither"]
)
def test_where_functions_are_called_a_race_is_a_hazard(body, module):
    """Values are not followed into functions and out of them, where lanes may store them."""
    run = Run((), None, sanitize=True)
    launch(START + body, np.zeros(1024, np.uint32), block=64, run=run, module=module)
    assert "unordered-write" in [hazard.kind for hazard in run.hazards]
    assert not [hazard for hazard in run.hazards.advisories if hazard.kind == "discarded-read"]


def test_a_store_before_the_race_is_found_counts():
    run = run_of(LOAD, "@!%p1 st.global.u32 [%rd2], %r9;\n", "bar.sync 0;\n", STORE, block=32)
    assert "discarded-read" not in [hazard.kind for hazard in run.hazards.advisories]


@pytest.mark.parametrize("grid", [2, 4])
def test_the_update_that_ctas_lose_is_told_in_its_place(grid):
    hazards = run_of(LOAD, STORE, grid=grid).hazards
    assert not hazards.advisories
    lost = next(h for h in hazards if h.before.what == "ld read")
    assert lost.before.cta != lost.after.cta
    assert lost.before.lane == lost.after.lane == 0
    for hazard in hazards:
        pins(hazard.missing)


def test_a_launch_that_ends_in_an_error_tells_what_is_held():
    run = Run((), None, sanitize=True)
    body = (
        START + LOAD + STORE + "AGAIN: ld.volatile.global.u32 %r12, [%rd2]; setp.eq.u32 %p4, %r12, 0; @%p4 bra AGAIN;\n"
    )
    with refuses(DeadlockError):
        launch(body, np.zeros(1024, np.uint32), block=64, run=run)
    assert [hazard.kind for hazard in run.hazards] == ["unordered-write", "deadlock"]


def test_where_the_schedule_says_who_stores_it_is_a_race():
    """In another one the lane that races is the one that stores."""
    body = """setp.eq.u32 %p3, %r2, 0; @!%p1 bra OUT; @%p3 bra TAKE; st.global.u32 [%rd1+4], 11;
    TAKE: ld.global.u32 %r9, [%rd1+4]; atom.acq_rel.gpu.global.add.u32 %r10, [%rd1+128], 1;
    setp.eq.u32 %p4, %r10, 1; @%p4 st.global.u32 [%rd1+256], %r9; OUT:
"""
    hazards = run_of(body, grid=2, block=32).hazards
    assert "unordered-read" in {hazard.kind for hazard in hazards}
    assert not [one for one in hazards.advisories if one.kind == "discarded-read"]


def test_of_many_loads_that_come_to_nothing_none_is_a_race():
    body = "mov.u32 %r12, 0; AGAIN: " + LOAD + STORE
    body += "add.u64 %rd1, %rd1, 4; add.u32 %r12, %r12, 1; setp.lt.u32 %p3, %r12, 90; @%p3 bra AGAIN;\n"
    hazards = run_of(body).hazards
    assert (list(hazards), {one.kind for one in hazards.advisories}) == ([], {"discarded-read"})
