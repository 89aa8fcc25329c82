"""Tries at mbarriers as the certificate sees them: peeks and the waits that follow, and tries by which none waits."""

import pytest

from cutepy.sim import DeadlockError
from tests.messages import pins
from tests.sim.sanitize.certificate.programs import examined, run

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u32 %r3, [p1]; setp.eq.u32 %p1, %r2, 0;
setp.lt.u32 %p2, %r2, 32; setp.ne.u32 %p3, %r3, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
fence.mbarrier_init.release.cluster; bar.sync 0;
"""
"""Two mbarriers of one arrival; p1: thread 0; p2: the first warp; p3: the kernel's parameter is not 0."""
AGAIN = "bar.sync 0;\n@%p1 mbarrier.inval.shared.b64 [%r1];\n@%p1 mbarrier.init.shared.b64 [%r1], 1;\nbar.sync 0;\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r1{}];\n"
TRY = "mbarrier.{way}.shared::cta.b64 {p}, [%r1{at}], {phase};\n"


def peek(flag, at="", phase=0):
    return TRY.format(way="test_wait.parity", p="%p6", at=at, phase=phase) + f"selp.u32 {flag}, 1, 0, %p6;\n"


def wait(label, at="", phase=0, way="try_wait.parity"):
    return f"{label}: " + TRY.format(way=way, p="%p5", at=at, phase=phase) + f"@!%p5 bra {label};\n"


def wait_unless(flag, label, at="", phase=0):
    return f"setp.ne.u32 %p4, {flag}, 0; @%p4 bra PAST{label};\n" + wait(label, at, phase) + f"PAST{label}:\n"


def reasons_of(body, parameter=0, block=32):
    certificate, hazards, error = examined(START + body + "END:", parameter, block=block)
    assert (error, hazards) == (None, ())
    return certificate.reasons


CERTIFIED = {
    "a peek that fails, and its wait": [[("arrive", 0)], [("peek", 0, 0, 0), ("wait_if_not", 0, 0, 0)]],
    "a peek at a new mbarrier": [[("peek", 0, 1, 0), ("wait_if_not", 0, 0, 1), ("arrive", 0)], [("wait", 0, 0)]],
    "a peek for what is known": [[("arrive", 0), ("wait", 0, 0), ("peek", 0, 0, 0), ("wait_if_not", 0, 0, 0)]],
    "a peek for a second phase": [
        [("arrive", 0), ("wait", 1, 0), ("arrive", 0)],
        [("wait", 0, 0), ("arrive", 1), ("peek", 0, 1, 0), ("wait_if_not", 0, 0, 1)],
    ],
    "who waits may end the mbarrier at once": [[("arrive", 0), ("wait", 0, 0), ("reinit", 0, 1)]],
    "who waits for a copy may end the mbarrier": [
        [("arrive_expect", 0, 16), ("copy", 0, 16, "a"), ("wait", 0, 0), ("reinit", 0, 1)]
    ],
}
FOR_ANOTHER = {
    "mbarrier": [[("arrive", 0), ("arrive", 1)], [("peek", 0, 0, 0), ("wait_if_not", 0, 1, 0), ("wait", 0, 0)]],
    "phase": [[("peek", 0, 0, 0), ("wait_if_not", 0, 0, 1), ("arrive", 0)], [("wait", 0, 0)]],
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_a_peek_and_the_wait_that_follows_are_certified(name):
    certificate, hazards, error = run(CERTIFIED[name], [1, 1])
    assert (error, hazards, certificate.reasons) == (None, (), ())


@pytest.mark.parametrize("name", FOR_ANOTHER)
def test_the_wait_that_follows_a_peek_is_for_the_same_phase_of_the_same_mbarrier(name):
    certificate, hazards, error = run(FOR_ANOTHER[name], [1, 1])
    assert (error, hazards) == (None, ())
    (reason,) = certificate.reasons
    pins(reason)


@pytest.mark.parametrize("then", ["", peek("%r9", "+8") + wait_unless("%r9", "W2", "+8")], ids=["end", "next peek"])
def test_the_wait_that_follows_a_peek_runs_before_the_next_peek_and_the_end(then):
    waits = "@%p3 bra SKIP;\n" + wait_unless("%r7", "W1") + "SKIP:\n"
    others = "@%p2 bra FIRST;\nsetp.ne.u32 %p7, %r2, 32; @%p7 bra END;\n" + ARRIVE.format("") + ARRIVE.format("+8")
    body = others + "bra END;\nFIRST: @!%p1 bra END;\n" + peek("%r7") + waits + then
    assert reasons_of(body, 0, block=64) == ()
    (reason,) = reasons_of(body, 1, block=64)
    line = (START + body).splitlines().index(peek("%r7").splitlines()[0]) + 1
    assert reason == f"the wait that follows the peek at kernel.py:{line} did not run"


def each_for_itself(second):
    """Write that lane 0 peeks at one mbarrier and lane 1 at the other, then both wait for that, and one for the first.

    The second warp arrives.
    """
    return (
        "@!%p2 bra FIRST;\nmov.u32 %r7, 1; setp.gt.u32 %p7, %r2, 1; selp.u32 %r9, 1, 0, %p7;\n@!%p1 bra OTHER;\n"
        + peek("%r7") + "bra MEET;\nOTHER: setp.eq.u32 %p7, %r2, 1; @!%p7 bra MEET;\n" + peek("%r9", "+8")
        + "MEET:\n" + wait_unless("%r9", "W1", "+8") + second
        + "bra END;\nFIRST: setp.eq.u32 %p7, %r2, 32; @!%p7 bra END;\n" + ARRIVE.format("") + ARRIVE.format("+8")
    )  # fmt: skip


def test_lanes_that_peek_apart_each_have_their_own_wait():
    assert reasons_of(each_for_itself(wait_unless("%r7", "W2")), block=64) == ()
    (reason,) = reasons_of(each_for_itself("@%p3 bra SKIP;\n" + wait_unless("%r7", "W2") + "SKIP:\n"), 1, block=64)
    pins(reason)


@pytest.mark.parametrize("grid", [1, 2])
def test_a_wait_that_is_never_over_may_have_begun_too_early(grid):
    """For a second phase, in which nobody arrives: with the parity of the phase before the first it may pass."""
    arrives = "@!%p2 bra SECOND;\n@!%p1 bra END;\n" + ARRIVE.format("") + ARRIVE.format("+8") + "bra END;\nSECOND: "
    body = arrives + RELAXED + wait("L", phase=1)
    _, hazards, error = examined(START + body + "END:", 0, block=64, grid=grid)
    assert isinstance(error, DeadlockError)
    assert [hazard.kind for hazard in hazards] == ["early-wait", "deadlock"]
    pins(hazards[-1].missing)


RELAXED = wait("R", "+8", way="try_wait.parity.relaxed.cluster")
IN_TWO_PHASES = (
    "@%p2 bra FIRST;\nsetp.ne.u32 %p7, %r2, 32; @%p7 bra END;\n" + RELAXED + "{}bra END;\nFIRST: @!%p1 bra END;\n"
    + ARRIVE.format("") + wait("W0") + ARRIVE.format("+8") + ARRIVE.format("") + wait("W1", phase=1)
)  # fmt: skip
"""The second warp does something in the second phase, and does not know that the first one is over."""


def test_a_try_by_a_parity_that_nothing_follows_may_come_whenever_it_does():
    """The try may fail or succeed, as its thread knows of the phase: no thread needs the phase to end."""
    once = TRY.format(way="test_wait.parity", p="%p6", at="", phase="{}")
    assert reasons_of(IN_TWO_PHASES.format(once.format(1)), block=64) == ()
    body = (
        "setp.eq.u32 %p7, %r2, 32; @!%p7 bra MEET;\n" + ARRIVE.format("") + wait("W0")
        + "MEET: bar.sync 0;\n@%p7 bra NEXT;\n@!%p1 bra END;\n" + once.format(0) + ARRIVE.format("+8")
        + "bra END;\nNEXT:\n" + RELAXED + ARRIVE.format("") + wait("W1", phase=1)
    )  # fmt: skip
    assert reasons_of(body, block=64) == ()


@pytest.mark.parametrize("tries", [wait("L", phase=1), wait("L", phase=1, way="test_wait.parity"), "peek"])
@pytest.mark.parametrize("grid", [1, 2])
def test_a_wait_for_a_second_phase_begins_at_the_first_try_that_it_makes(tries, grid):
    text = peek("%r7", phase=1) + wait_unless("%r7", "L", phase=1) if tries == "peek" else tries
    body = IN_TWO_PHASES.format(text).replace("@%p7 bra END;\n", "")
    _, hazards, error = examined(START + body + "END:", 0, block=64, grid=grid)
    assert error is None
    assert "early-wait" in {hazard.kind for hazard in hazards}


IN_TIME = {
    "a wait at a new mbarrier": ([("wait", 0, 1)], [], [("arrive", 0)]),
    "a wait for a phase": ([("wait", 0, 0)], [("arrive", 0), ("wait", 0, 0)], [("arrive", 0)]),
}


@pytest.mark.parametrize("name", IN_TIME)
def test_the_next_phase_does_not_end_before_a_wait_for_the_last_one_has(name):
    """The first warp waits and tells the other one of it, which completes the next phase."""
    waits, first, then = IN_TIME[name]
    certificate, hazards, error = run([[*waits, ("arrive", 1)], [*first, ("wait", 1, 0), *then]], [1, 1])
    assert (error, hazards, certificate.reasons) == (None, (), ())
    if not first:
        _, hazards, error = run([waits, then], [1])
    else:  # by a wait that shows nothing
        body = (
            "@!%p2 bra SECOND;\n@!%p1 bra END;\n" + wait("W0") + ARRIVE.format("+8") + "bra END;\n"
            + "SECOND: setp.ne.u32 %p7, %r2, 32; @%p7 bra END;\n" + ARRIVE.format("") + wait("W1") + RELAXED
            + ARRIVE.format("")
        )  # fmt: skip
        _, hazards, error = examined(START + body + "END:", 0, block=64)
    assert error is None
    assert [(hazard.kind, hazard.before.warp, hazard.after.warp) for hazard in hazards] == [("lapped-wait", 0, 1)]


def test_a_try_that_may_give_up_begins_no_wait():
    guess = TRY.format(way="test_wait.parity", p="%p6", at="", phase=1) + "@%p6 bra DONE; add.u32 %r5, %r5, 1;\n"
    text = "mov.u32 %r5, 0;\nB: " + guess + "setp.lt.u32 %p4, %r5, 10; @%p4 bra B;\n"
    text += "DONE: st.shared.u32 [%r1+512], %r2;\n"
    _, hazards, error = examined(START + IN_TWO_PHASES.format(text) + "END:", 0, block=64)
    assert (error, hazards) == (None, ())


def test_who_waits_relaxed_knows_that_the_phase_is_over():
    first = "@!%p2 bra SECOND;\n@%p1 " + ARRIVE.format("+8") + "bra END;\nSECOND: "
    then = "setp.ne.u32 %p7, %r2, 32; @%p7 bra END;\n" + RELAXED + ARRIVE.format("+8") + wait("M", "+8", phase=1)
    assert reasons_of(first + then, block=64) == ()


def test_phases_of_an_mbarrier_that_is_made_again_count_anew():
    first, second = (f"setp.eq.u32 %p7, %r2, {thread}; @%p7 " + ARRIVE.format("") for thread in (0, 32))
    twice = ARRIVE.format("") + wait("A") + ARRIVE.format("") + wait("B", phase=1)
    before = "@!%p1 bra MEET;\n" + twice + "MEET:\n" + AGAIN
    assert reasons_of(before + first + wait("W") + "bar.sync 0;\n" + second, block=64) == ()
    _, hazards, error = examined(START + before + first + second, 0, block=64)
    assert error is None
    assert [(hazard.kind, hazard.before.warp, hazard.after.warp) for hazard in hazards] == [("early-arrival", 0, 1)]


def test_the_last_lane_of_a_warp_does_not_know_of_a_copy_that_it_has_not_waited_for():
    body = (
        """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16; ld.param.u64 %rd1, [p0];
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+256], [%rd1], 16, [%r1];
    """
        + wait("W", phase=0).replace("W:", "@%p1 bra W; bra MEET;\nW:")
        + "MEET: bar.warp.sync -1; {}"
    )
    late = "setp.eq.u32 %p7, %r2, 31; @%p7 " + ARRIVE.format("")
    assert reasons_of(body.format(late)) == ()
    _, hazards, _ = examined(START + body.replace(" bar.warp.sync -1;", "").format(late) + "END:", 0)
    assert {(hazard.kind, hazard.after.lane) for hazard in hazards} >= {("early-arrival", 31)}


def test_the_first_of_several_lanes_that_come_too_early_is_named():
    body = "@%p2 mbarrier.arrive.shared.b64 _, [%r1]; @!%p2 mbarrier.arrive.shared.b64 _, [%r1];\n"
    _, hazards, _ = examined(START.replace("[%r1], 1", "[%r1], 32") + body, 0, block=64)
    (found,) = hazards
    assert (found.kind, found.after.warp, found.after.lane) == ("early-arrival", 1, 0)
    assert (found.before.warp, found.before.lane) == (0, 0)


def test_who_ends_an_mbarrier_lacks_the_wait_of_another_and_not_its_own():
    """The first warp ends it: a relaxed wait tells it nothing of what the second one has done."""
    body = (
        "@!%p2 bra SECOND;\n@!%p1 bra END;\n" + ARRIVE.format("") + wait("W0") + RELAXED
        + "mbarrier.inval.shared.b64 [%r1]; bra END;\n"
        + "SECOND: setp.ne.u32 %p7, %r2, 32; @%p7 bra END;\n" + wait("W1") + ARRIVE.format("+8")
    )  # fmt: skip
    certificate, _, error = examined(START + body + "END:", 0, block=64)
    assert error is None
    pins(certificate.reasons[0])


def verdict(body, block=32):
    _, hazards, error = examined(START + body + "END:", 0, block=block)
    assert isinstance(error, DeadlockError)
    (hang,) = (hazard for hazard in hazards if hazard.kind == "deadlock")
    return hang.missing


ALWAYS, UNKNOWN = "every schedule hangs: what has run", "other schedules may not hang: "
FOR_EVER = "SPIN: bra SPIN;\n"
TEST = TRY.format(way="test_wait.parity", p="%p6", at="", phase=0)


@pytest.mark.parametrize("way", ["try_wait.parity", "test_wait.parity"])
def test_who_waits_for_what_never_comes_hangs_in_every_schedule(way):
    assert ALWAYS in verdict(wait("W", way=way))
    assert ALWAYS in verdict("@%p1 " + ARRIVE.format("") + wait("W0", way=way) + wait("W1", phase=1, way=way))
    assert ALWAYS in verdict("@%p1 " + ARRIVE.format("") + wait("W0", way=way) + AGAIN + wait("W1", way=way))
    assert ALWAYS in verdict(wait("W0", way=way) + wait("W1", "+8", way=way))
    phases = "@%p1 " + ARRIVE.format("") + wait("W0", way=way) + wait("W1", phase=1, way=way)
    assert ALWAYS in verdict("@!%p2 bra END;\n" + phases, block=64)


def test_who_goes_around_a_loop_and_waits_for_nothing_is_not_known_to_hang_in_every_schedule():
    text = verdict("@!%p1 bra END;\n" + FOR_EVER)
    assert UNKNOWN in text
    pins(text)


@pytest.mark.parametrize("at", ["", "+8"])
def test_who_has_tried_for_a_phase_that_others_complete_is_not_known_to_hang_in_every_schedule(at):
    text = verdict(
        "@!%p2 bra SECOND;\n" + TEST + FOR_EVER + "SECOND: setp.eq.u32 %p7, %r2, 32; @%p7 " + ARRIVE.format(at), 64
    )
    assert (UNKNOWN in text) == (not at)
    pins(text)
