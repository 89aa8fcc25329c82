"""Programs whose further rounds do otherwise than those of the run, though these repeat: nothing is said of them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim.errors import SimulationError
from cutepy.sim.machine.events import MbarrierCompleteTx
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.run import Run
from cutepy.sim.sanitize.certificate.any_rounds.extensions import (
    Extension,
    Steady,
    _beside,
    _limited,
    _time_before,
    _Together,
    _Use,
    inner,
    merged,
)
from cutepy.sim.sanitize.certificate.any_rounds.remainders import any_rounds
from cutepy.sim.sanitize.certificate.any_rounds.rounds import RoundNotes, _Noted
from tests.messages import pins
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u32 %r9, [p1];
setp.ne.u32 %p2, %r2, 0; @%p2 bra READY; mbarrier.init.shared.b64 [%r1], {first};
mbarrier.init.shared.b64 [%r1+8], {second};
mbarrier.init.shared.b64 [%r1+16], 1; mbarrier.init.shared.b64 [%r1+64], 1; st.shared.u32 [%r1+1152], 0;
READY: mov.u32 %r4, 0; mov.u32 %r20, 0; bar.sync 0;
setp.eq.u32 %p6, %r2, 32; @%p6 st.shared.u32 [%r1+1144], 7;
{roles}
mov.u32 %r8, 0; {before}
"""
"""Thread 0 goes around; nothing orders what warp 1 stores: another store to it races."""
ROUNDS = """LOOP: mov.u32 %r30, 0; {begin} mbarrier.arrive.shared.b64 _, [%r1];
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra WAIT;
xor.b32 %r4, %r4, 1; {end} add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, %r9; @%p4 bra LOOP;
{after} bra END;
{other}
END:
"""
ROLES = "setp.eq.u32 %p7, %r2, 32; @%p7 bra OTHER; setp.ne.u32 %p7, %r2, 0; @%p7 bra END;"
FIELDS = {"first": 1, "second": 1, "roles": ROLES, "before": "", "begin": "", "end": "", "after": ""}
FIELDS["other"] = "OTHER: bra END;"
RACES = "@%p5 st.shared.u32 [%r1+1144], 0;"
ARRIVES = "mbarrier.arrive.shared.b64 _, [%r1+8];"
WAITS = "PASS: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], {}; @!%p3 bra PASS;"


def program(**fields):
    return (START + ROUNDS).format(**(FIELDS | fields))


def sanitized(body, *numbers, block=64, run=None, smem_bytes=8192, **options):
    """Launch a program with some numbers, the first of which bounds its loop; returns the run."""
    run = run or Run((), None, sanitize=True)
    options = {"block": block, "smem_bytes": smem_bytes, "run": run, "assembles": False} | options
    launch(body, np.zeros(1024, np.uint32), *numbers, **options)
    return run


def said_of(body, rounds=24):
    """Return what is said of the loops of a launch that is certified."""
    run = sanitized(body, rounds)
    (certificate,) = run.certificates
    assert ([hazard.kind for hazard in run.hazards], certificate.reasons) == ([], ())
    return certificate.extends


def is_refuted(body, rounds):
    """Tell whether a launch hangs, or has hazards."""
    try:
        return bool(sanitized(body, rounds).hazards)
    except SimulationError:
        return True


def test_what_repeats_is_extended():
    assert [one.holds for one in said_of(program())] == [True]
    begin = "OVER: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], 1; @!%p3 bra OVER;"  # always of one phase
    assert [one.holds for one in said_of(program(begin=begin))] == [True]


ONE_PHASE = {
    "arrivals, that another warp waits for": (
        {"second": 24, "begin": ARRIVES, "other": "OTHER: " + WAITS.format(0)},
        48,
    ),
    "arrivals, of which more are expected": ({"second": 30, "begin": ARRIVES, "after": WAITS.format(1)}, 30),
    "arrivals that leave some": (
        {"second": 40, "begin": "mbarrier.arrive.noComplete.shared.b64 %rd9, [%r1+8], 1;"},
        40,
    ),
    "bytes": (
        {
            "begin": "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1+16], 40000;",
            "after": "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r1+16], 960000;",
        },
        26,
    ),
    "arrivals at a named barrier": (
        {
            "roles": "setp.gt.u32 %p7, %r2, 31; @%p7 bra END;",
            "first": 32,
            "begin": "bar.arrive 1, 960;",
        },
        30,
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", ONE_PHASE)
def test_a_phase_takes_only_so_many(name):
    fields, more = ONE_PHASE[name]
    body = program(**fields)
    if "named" not in name:
        assert [one.reason[:32] for one in said_of(body) if "24 rounds" not in one.reason] == [
            "its rounds count in one phase of"
        ]
    assert not any(one.holds for c in sanitized(body, 24).certificates for one in c.extends)
    assert name == "arrivals at a named barrier" or is_refuted(body, more)


LANES = "setp.gt.u32 %p7, %r2, 1; @%p7 bra END; setp.eq.u32 %p7, %r2, 1; @%p7 bra OTHER;"
TOGETHER = {
    "a loop of its own": """OTHER: mov.u32 %r8, 0; ALONE: mov.u32 %r30, 0; mbarrier.arrive.shared.b64 _, [%r1+64];
    bar.warp.sync 3; add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, 24; @%p4 bra ALONE;""",
    "no loop": "OTHER: " + "bar.warp.sync 3; " * 24,
}


@pytest.mark.parametrize("name", TOGETHER)
def test_lanes_that_meet_go_around_together(name):
    """The other lane comes to bar.warp.sync 24 times, in whatever number of rounds."""
    stays = WAITS.format(0)
    body = program(roles=LANES, end="bar.warp.sync 3;", after=ARRIVES, other=TOGETHER[name] + stays)
    assert not any(one.holds for one in said_of(body))
    assert is_refuted(body, 26)


MEETS = ["bar.warp.sync 3;", "shfl.sync.idx.b32 %r31, %r8, 0, 31, 3;", "vote.sync.all.pred %p8, %p4, 3;"]


@pytest.mark.parametrize("meets", MEETS)
def test_lanes_that_meet_in_one_loop_hold_together(meets):
    """Lane 1 comes to the loop as lane 0 does, or later."""
    late = "setp.eq.u32 %p7, %r2, 1; @!%p7 bra LOOP; mov.u32 %r31, 0; bra LOOP;"
    begins = "setp.gt.u32 %p7, %r2, 1; @%p7 bra END;"
    own = "shl.b32 %r31, %r2, 6; add.u32 %r1, %r1, %r31;"  # an mbarrier each
    assert [one.holds for one in said_of(program(roles=begins, before=own, end=meets))] == [True]
    assert [one.holds for one in said_of(program(roles=begins, before=own + late, end=meets))] == [True]


VISITS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; ld.param.u32 %r9, [p1];
setp.ne.u32 %p2, %r2, 0; @%p2 bra READY; mbarrier.init.shared.b64 [%r1], 1; READY: mov.u32 %r4, 0;
add.u32 %r20, %r1, 2040; mov.u32 %r7, 0; bar.sync 0; setp.eq.u32 %p6, %r2, 32; @%p6 st.shared.u32 [%r1+2520], 7;
@%p2 bra END; {enter}
INNER: mov.u32 %r30, 0; st.shared.u32 [%r20], 1; mbarrier.arrive.shared.b64 _, [%r1];
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r4; @!%p3 bra WAIT;
xor.b32 %r4, %r4, 1; add.u32 %r20, %r20, %r21; add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, %r9; @%p4 bra INNER;
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 2; @%p4 bra TILE; bra END; {further_on} END:"""
TILE = "TILE: {guard} mov.u32 %r8, 0; setp.eq.u32 %p8, %r7, 0; selp.u32 %r21, 16, 0, %p8; bra INNER;"
GUARD = "@%p6 mov.u32 %r31, 0;"


@pytest.mark.integration
@pytest.mark.parametrize("guard", ["", GUARD])
@pytest.mark.parametrize("place", ["enter", "further_on"])
def test_a_visit_of_an_inner_loop_ends_wherever_the_outer_one_goes_back(place, guard):
    """Each round of the first visit stores further on; of the second one, at one address."""
    parts = {"enter": "bra TILE;", "further_on": ""} | {place: TILE.format(guard=guard)}
    body = VISITS.format(**parts)
    assert not any(one.holds for one in said_of(body))
    assert is_refuted(body, 34)


EVEN = "and.b32 %r21, %r2, 1; setp.eq.u32 %p8, %r21, 1;"
ONE_MORE = "add.u32 %r20, %r20, 1;"
EITHER = "@%p8 bra ONE; mov.u32 %r22, {}; bra BOTH; ONE: mov.u32 %r22, %r20; BOTH: "
MEANT = "setp.eq.u32 %p5, %r24, {}; " + RACES
REMAINDERS = {
    "what is taken off is of another number": (
        EITHER.format(0) + "and.b32 %r23, %r22, -4; sub.u32 %r24, %r20, %r23;",
        30,
    ),
    "it is taken off another number": (EITHER.format(64) + "and.b32 %r23, %r20, -4; sub.u32 %r24, %r22, %r23;", 36),
    "a quotient of another number": (
        EITHER.format(0) + "mul.hi.u32 %r23, %r22, 0x55555556; mul.lo.u32 %r23, %r23, 3; sub.u32 %r24, %r20, %r23;",
        30,
    ),
    "what is taken off is of an earlier round": (
        "setp.eq.u32 %p9, %r20, 5; @!%p9 bra OLD; and.b32 %r23, %r20, -4; OLD: sub.u32 %r24, %r20, %r23;",
        26,
    ),
    "one of its sides is guarded": (
        "mov.u32 %r22, %r20; @!%p8 mov.u32 %r22, 0; and.b32 %r23, %r22, -4; sub.u32 %r24, %r20, %r23;",
        30,
    ),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", REMAINDERS)
def test_what_is_a_remainder_by_one_way_is_none_by_another(name):
    begin, last = REMAINDERS[name]
    body = program(before=EVEN + "mov.u32 %r23, 0;", begin=begin + MEANT.format(last), end=ONE_MORE)
    assert not any(one.holds for one in said_of(body))
    assert is_refuted(body, 48)
    plain = "and.b32 %r23, %r20, -4; sub.u32 %r24, %r20, %r23;" + MEANT.format(last)
    assert [one.holds for one in said_of(program(begin=plain, end=ONE_MORE))] == [True]


STAYS = "{0}: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], 1; @!%p3 bra {0};"
OTHER_LOADS = f"OTHER: {WAITS.format(0)} {{}} setp.ne.u32 %p5, %r40, {{}}; @%p5 bra END; {STAYS.format('STAY')}"
"""Another warp loads once the loop is over, and hangs after so many rounds."""
THROUGH_MEMORY = {
    "stored in each round, and loaded after the loop": {
        "end": "st.global.u32 [%rd1+64], %r8;",
        "after": "ld.global.u32 %r40, [%rd1+64]; setp.eq.u32 %p5, %r40, 29; " + RACES,
    },
    "stored after the loop": {
        "after": "st.global.u32 [%rd1+64], %r8; ld.global.u32 %r40, [%rd1+64]; setp.eq.u32 %p5, %r40, 30; " + RACES,
    },
    "loaded by another warp": {
        "end": "st.shared.u32 [%r1+1152], %r8;",
        "after": ARRIVES,
        "other": OTHER_LOADS.format("ld.shared.u32 %r40, [%r1+1152];", 29),
    },
    "loaded by another warp from global memory": {
        "end": "st.global.u32 [%rd1+64], %r8;",
        "after": ARRIVES,
        "other": OTHER_LOADS.format("ld.global.u32 %r40, [%rd1+64];", 29),
    },
    "added one by one": {
        "end": "red.shared.add.u32 [%r1+1152], 1;",
        "after": ARRIVES,
        "other": OTHER_LOADS.format("ld.shared.u32 %r40, [%r1+1152];", 30),
    },
    "loaded by another warp before it goes around, too": {
        "roles": "setp.eq.u32 %p8, %r2, 32; setp.ne.u32 %p7, %r5, 0; @%p7 bra END; @!%p8 bra BEGIN; "
        + WAITS.format(0)
        + " add.u32 %r1, %r1, 64; BEGIN: ld.global.u32 %r40, [%rd1+64]; setp.eq.u32 %p5, %r40, 29; "
        + f"and.pred %p5, %p5, %p8; @!%p5 bra NOW; {STAYS.format('STAY')} NOW:",
        "end": "st.global.u32 [%rd1+64], %r8;",
        "after": "@%p8 bra END; " + ARRIVES,
    },
}


@pytest.mark.integration
@pytest.mark.parametrize("name", THROUGH_MEMORY)
def test_how_often_a_loop_goes_around_may_be_left_in_memory(name):
    body = program(**THROUGH_MEMORY[name])
    body = body.replace("READY: ", "READY: and.b32 %r5, %r2, 31; ")
    assert not any(one.holds for one in said_of(body))
    assert any("what is loaded at" in one.reason for one in said_of(body))
    assert is_refuted(body, 30)


@pytest.mark.parametrize(
    "fields",
    [
        {"end": "st.global.u32 [%rd1+64], %r8;"},
        {
            "before": "ld.global.u32 %r40, [%rd1]; setp.eq.u32 %p5, %r40, 9; " + RACES,
            "end": "st.global.u32 [%rd1+64], %r8;",
        },
        {"after": "ld.global.u32 %r40, [%rd1+64]; setp.eq.u32 %p5, %r40, 9; " + RACES},
        {
            "after": "ld.global.nc.u32 %r40, [%rd1]; setp.eq.u32 %p5, %r40, 9; " + RACES,
            "end": "st.global.u32 [%rd1+64], %r8;",
        },
    ],
)
def test_what_is_loaded_at_the_beginning_or_where_nothing_is_stored_is_a_constant(fields):
    assert [one.holds for one in said_of(program(**fields))] == [True]


def steered_by(body, *numbers):
    (one,) = sanitized(body, *numbers).certificates[0].extends
    assert one.holds
    return one.steers


def test_a_bound_that_no_parameter_gives_steers_besides_what_it_does():
    """The size of dynamic shared memory, and what two pointers may both point to."""
    meant = "setp.ge.u32 %p5, %r40, 30; " + RACES
    size = "mov.u32 %r9, %dynamic_smem_size; shr.u32 %r9, %r9, 9; add.u32 %r9, %r9, 8; {}"
    assert steered_by(program(before=size.format("mov.u32 %r40, %r9; " + meant)), 1).startswith("`setp.ge")
    assert steered_by(program(before=size.format("")), 1) == ""
    total = "mov.u32 %r40, %total_smem_size; setp.ge.u32 %p5, %r40, 11264; " + RACES
    assert steered_by(program(before=size.format(total)), 1).startswith("`setp.ge")
    loaded = "st.global.u32 [%rd1], %r9; ldu.global.u32 %r9, [%rd1]; ld.global.u32 %r40, [%rd1]; "
    assert steered_by(program(before=loaded + meant), 24).startswith("`setp.ge")


def test_a_bound_may_be_clamped():
    assert steered_by(program(roles="min.u32 %r9, %r9, 100000; " + ROLES), 24) == ""


FLAG = "ld.param.u32 %r40, [p2]; setp.eq.u32 %p5, %r40, 1; setp.eq.u32 %p8, %r4, 0; and.pred %p5, %p5, %p8; " + RACES


def test_launches_are_taken_together_where_all_that_steers_but_the_bound_is_alike():
    body = program(after=FLAG)
    for flags, count in ((0, 0), 1), ((0, 1), 0):
        run = Run((), None, sanitize=True)
        for rounds, flag in zip((24, 25), flags, strict=True):
            sanitized(body, rounds, flag, run=run)  # by another array, at another address
        assert (len(run.hazards), len(any_rounds(run.certificates))) == (0, count)
    run = Run((), None, sanitize=True)
    for rounds, flag in (24, 0), (25, 1):
        sanitized(program(after="ld.param.u32 %r40, [p2]; st.global.u32 [%rd1], %r40;"), rounds, flag, run=run)
    assert len(any_rounds(run.certificates)) == 1


def test_launches_are_not_taken_together_where_shared_memory_or_constants_that_steer_differ():
    """A constant may be changed between launches, which is not asked."""
    steers = " setp.lt.u32 %p5, %r40, 8000; setp.eq.u32 %p8, %r4, 0; and.pred %p5, %p5, %p8; " + RACES
    for sizes, count in ((8192, 8192), 1), ((4096, 8192), 0):
        run = Run((), None, sanitize=True)
        for rounds, size in zip((24, 25), sizes, strict=True):
            sanitized(program(after="mov.u32 %r40, %dynamic_smem_size;" + steers), rounds, run=run, smem_bytes=size)
        assert len(any_rounds(run.certificates)) == count
    run = Run((), None, sanitize=True)
    for rounds in (24, 25):
        body = program(after="ld.const.u32 %r40, [mode];" + steers)
        sanitized(body, rounds, run=run, module=".const .align 4 .u32 mode = 9000;")
    assert any_rounds(run.certificates) == ()


def test_launches_of_some_ctas_are_not_taken_together():
    run = Run((), None, sanitize=True)
    for rounds in (24, 25):
        sanitized(program(), rounds, run=run)
    assert len(any_rounds(run.certificates)) == 1
    assert any_rounds([replace(one, grid=(2, 1, 1)) for one in run.certificates]) == ()


STATE = "mbarrier.arrive.shared.b64 %rd5, [%r1]; WAIT: mbarrier.try_wait.shared.b64 %p3, [%r1], %rd5; @!%p3 bra WAIT;"
PARITY = "ON: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 1; @!%p3 bra ON;"


@pytest.mark.parametrize("told", ["itself", "another"])
def test_who_waits_by_parity_after_rounds_that_wait_by_states_waits_for_an_even_number_more(told):
    body = program(after=PARITY if told == "itself" else ARRIVES, other="OTHER: bra END;" if told == "itself" else "")
    start, _, rest = body.partition("LOOP: ")
    _, _, rest = rest.partition("xor.b32 %r4, %r4, 1;")
    if told == "another":
        rest = rest.replace("END:", f"OTHER: {WAITS.format(0)} {PARITY} END:")
    body = f"{start}LOOP: {STATE} {rest}"
    (one,) = said_of(body)
    assert (one.holds, one.loops[0][1]) == (True, 2)
    assert any_rounds(sanitized(body, 24).certificates) == ()
    assert is_refuted(body, 25)
    assert not is_refuted(body, 26)


def test_launches_are_not_taken_together_where_what_is_loaded_steers():
    body = program(before="ld.global.u32 %r40, [%rd1]; setp.eq.u32 %p5, %r40, 1; " + RACES)
    run = Run((), None, sanitize=True)
    for rounds in (24, 25):
        sanitized(body, rounds, run=run)
    assert [one.holds for certificate in run.certificates for one in certificate.extends] == [True, True]
    assert any_rounds(run.certificates) == ()


BREAK = "setp.eq.u32 %p5, %r8, 99; @%p5 bra DONE;"
LIMITED = {
    "a break": ({"end": BREAK}, 99),
    "a break before what rounds do": ({"begin": BREAK}, 99),
    "a break by another order": ({"end": "setp.ge.s32 %p5, %r8, 49; @%p5 bra DONE;"}, 49),
    "a break by a number that a thread's place says": (
        {"before": "mov.u32 %r40, %ntid.x;", "end": "setp.eq.u32 %p5, %r8, %r40; @%p5 bra DONE;"},
        64,
    ),
    "a counter of its own, that counts down": (
        {"before": "mov.u32 %r40, 70;", "end": "sub.u32 %r40, %r40, 1; add.u32 %r41, %r40, 0;"
         "setp.eq.u32 %p5, %r41, 0; @%p5 bra DONE;"},
        69,
    ),
    "one condition for both": (
        {"end": "setp.ge.u32 %p5, %r8, 99; setp.ge.u32 %p8, %r8, %r9; or.pred %p5, %p5, %p8; @%p5 bra DONE;"},
        99,
    ),
    "a flag that a round sets for the next one": (
        {"before": "mov.u32 %r40, 0;", "begin": "setp.ne.u32 %p5, %r40, 0; @%p5 bra DONE;",
         "end": "setp.eq.u32 %p5, %r8, 99; selp.u32 %r40, 1, 0, %p5;"},
        99,
    ),
    "a flag that a branch sets": (
        {"before": "mov.u32 %r40, 0;", "begin": "setp.ne.u32 %p5, %r40, 0; @%p5 bra DONE;",
         "end": "setp.ne.u32 %p5, %r8, 99; @%p5 bra OVER; mov.u32 %r40, 1; OVER: mov.u32 %r41, 0;"},
        99,
    ),
    "a break beyond a bound that is a constant": ({"before": "mov.u32 %r9, 24;", "end": BREAK}, 99),
    "a bound that is clamped": ({"roles": "min.u32 %r9, %r9, 100; " + ROLES}, 99),
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("name", LIMITED)
def test_of_a_loop_that_constants_end_only_so_many_rounds_are_said(name):
    fields, most = LIMITED[name]
    body = program(after="DONE:", **fields)
    (one,) = said_of(body)
    assert (one.holds, one.least, one.most) == (True, 24, 24 + (most - 24) // 2 * 2)
    assert one.loops[0][1] == 2
    assert "any number" not in str(one)
    assert "setp." in str(one)
    pins(str(one))
    assert any_rounds(sanitized(body, 24, run=sanitized(body, 25)).certificates) == ()


@pytest.mark.parametrize("rounds", [98, 99, 100, 200])
def test_beyond_the_round_that_ends_a_loop_nothing_is_said(rounds):
    (one,) = said_of(program(end=BREAK, after="DONE:"), rounds)
    assert (one.holds, one.most) == (False, None)
    pins(one.reason)


@pytest.mark.parametrize(
    "end",
    [
        "setp.eq.u32 %p5, %r8, 7; @%p5 mov.u32 %r40, 1;",  # ends nothing
        "shl.b32 %r40, %r8, 1; setp.eq.u32 %p5, %r40, 99; @%p5 bra DONE;",  # an even number is never odd
        "ld.param.u32 %r40, [p2]; setp.eq.u32 %p5, %r8, %r40; @%p5 bra DONE;",  # may be as large as the other bound
        "ld.global.u32 %r40, [%rd1]; setp.eq.u32 %p5, %r40, 99; @%p5 bra DONE;",
        "mov.u32 %r9, 24;",  # a constant that bounds the loop stands for any other one
    ],
)
def test_other_ways_out_leave_any_number(end):
    run = sanitized(program(end=end, after="DONE:"), 24, 1000)
    (one,) = run.certificates[0].extends
    assert (one.holds, one.most) == (True, None)
    assert "any number" in str(one)


@pytest.mark.parametrize(("last", "expected"), [(7, (0, 7)), (8, (2, 6)), (9, (2, 7))])
def test_a_period_is_left_out_at_both_ends_where_two_are_left(last, expected):
    visit = SimpleNamespace(rounds=[[]] * last)
    one = inner(Steady(visit, 0, last, 2, {}, {}))
    assert (one.first, one.last) == expected


def test_of_visits_of_a_loop_the_shortest_limit_holds():
    loops = (("kernel.py:9", 1),)
    ends = "`setp` (kernel.py:8)"
    free, long, short = (
        Extension(loops, least, most=most, ends=ends if most else "") for least, most in ((4, None), (2, 9), (3, 6))
    )
    for some in ((free, long, short), (short, free), (long, short, free)):
        (found,) = merged(some)
        assert (found.least, found.most, found.ends) == (max(one.least for one in some), 6, ends)
    assert merged((free, free)) == (free,)


def steady_of(rounds, shifts=None, spans=None, limit=None, where="kernel.py:9"):
    """Return a visit whose rounds begin at 0, 1, 2, ..., all of which repeat."""
    visit = SimpleNamespace(times=list(range(rounds + 1)), loop=SimpleNamespace(where=where, instructions=[]))
    return Steady(visit, 0, rounds, 1, shifts or {}, spans or {}, limit=limit)


@pytest.mark.parametrize(("rounds", "expected"), [(1, True), (2, False), (3, False)])
def test_a_step_must_fit_between_the_first_rounds_and_the_last(rounds, expected):
    together = object.__new__(_Together)
    together._users = {}
    assert together._is_too_short([(steady_of(rounds), 1)]) == expected
    assert (_time_before(steady_of(10), 2, 10), _time_before(steady_of(10), 2, 6)) == (8, 4)


@pytest.mark.parametrize(("phase", "begun", "expected"), [(4, 0, True), (3, 0, False), (4, 1, False)])
def test_who_uses_something_as_the_loop_begins_must_be_two_phases_from_who_does_as_it_ends(phase, begun, expected):
    together = object.__new__(_Together)
    together._users = {"b": {0: [_Use(5, 9, 1)], 1: [_Use(phase, begun, 0)]}}
    assert together._is_too_short([(steady_of(2, {"b": 1}), 1)]) == expected


@pytest.mark.parametrize(("low", "high", "expected"), [(2, 5, True), (2, 6, False), (4, 5, False)])
def test_a_loop_beside_another_one_shares_more_than_half_of_its_phases(low, high, expected):
    assert (_beside([steady_of(4, {"b": 1}, {"b": (0, 3)})], "b", low, high) is not None) == expected


def test_a_constant_that_ends_a_loop_limits_it_or_refuses_it():
    setp = Instruction(-1, "setp.eq.u32", ())
    loops = (("kernel.py:3", 2), ("kernel.py:9", 1))
    one = Extension(loops, 4, made=((4,), (5,)))
    for last, most in ((5, None), (6, 5), (7, 6)):
        found = _limited(one, [(steady_of(4, limit=(last, setp)), 1), (steady_of(9, where="kernel.py:3"), 2)])
        assert found.most == most
        if most is None:
            assert (found.loops[0][0], found.made[0], found.holds) == ("kernel.py:9", (5,), False)


def test_what_copies_bring_is_told_by_destination_and_lane():
    """Two clusters of two CTAs: lane 0 of each first CTA copies to both CTAs, lane 32 of CTA 0 to CTA 1."""
    slots, threads, of, phases = (np.array(x) for x in ([0, 2], [0, 32], [0, 1, 2, 3], [3, 4, 5, 6]))
    pairs = np.array([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 1, 0], [1, 0, 1]])
    noted = _Noted(5, MbarrierCompleteTx, 9, None, slots, threads, phases, of, pairs)
    rows = RoundNotes(4, 64, 2)._deliveries(7, noted, lambda *key: key[-1])
    found = [(row.code, row.slots.tolist(), row.threads.tolist(), row.values[1].tolist()) for row in rows]
    assert found == [(0, [0, 2], [0], [[3], [5]]), (1, [0, 2], [0], [[4], [6]]), (1, [0], [32], [[4]])]
