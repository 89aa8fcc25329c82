"""All schedules of small launches: classic examples, with what each may come to."""

import itertools

import numpy as np
import pytest
from typer.testing import CliRunner

import cutepy
from cutepy.cli.app import app
from cutepy.sim import ScheduleError
from tests.messages import pins, refuses
from tests.sim.replay.kernels import module
from tests.sim.replay.test_schedule_exploration import COUNTS, LOCKS, TICKETS

ONE_LANE = "setp.ne.u32 %p0, %r2, 0; @%p0 bra END; setp.eq.u32 %p1, %r1, 1; @%p1 bra ON;\n"


def by_two(first, second):
    """One lane of two warps each does something."""
    return f"{ONE_LANE}{first}\nbra END;\nON: {second}\nEND:"


def explored(body, grid=1, block=64, limit=1000, **options):
    """Return what all schedules come to, and what each of them that differs leaves when its policy plays it."""
    x = np.zeros(16, np.uint32)
    with cutepy.simulate(replay=True, **options) as run:
        module(body).launch("k", grid, block, (x,))
        found = run.explore(schedules="all", limit=limit)
    results = [x.tolist()]
    for one in found.divergences:
        if one.kind == "values":
            y = np.zeros(16, np.uint32)
            with cutepy.simulate(policy=one.policy):
                module(body).launch("k", grid, block, (y,))
            results.append(y.tolist())
    return found, results


@pytest.mark.integration
def test_tickets_are_taken_in_every_order():
    found, results = explored(TICKETS, block=128)
    assert found.is_complete
    assert found.schedules == 24
    assert sorted(tuple(r[1:5]) for r in results) == sorted(itertools.permutations(range(4)))


def test_reductions_that_nobody_reads_commute():
    found, _ = explored("red.relaxed.gpu.global.add.u32 [%rd0], 1;", block=128)
    assert (found.schedules, found.is_complete, found.divergences) == (1, True, ())
    pins(str(found))
    assert explored(COUNTS, block=96)[0].schedules == 6  # here somebody might


def test_two_locks_in_opposite_orders_hang_in_some_schedule():
    found, _ = explored(LOCKS)
    assert found.is_complete
    assert [one.kind for one in found.divergences] == ["hang"]
    with pytest.raises(cutepy.sim.DeadlockError), cutepy.simulate(policy=found.divergences[0].policy):
        module(LOCKS).launch("k", 1, 64, (np.zeros(16, np.uint32),))


TICKET_LOCK = """
setp.ne.u32 %p0, %r2, 0; @%p0 bra END;
atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1;
WAIT: ld.acquire.gpu.global.u32 %r6, [%rd0+4]; setp.ne.u32 %p1, %r5, %r6; @%p1 bra WAIT;
ld.global.u32 %r7, [%rd0+8]; add.u32 %r8, %r7, 1; st.global.u32 [%rd0+8], %r8;
add.u32 %r6, %r6, 1; st.release.gpu.global.u32 [%rd0+4], %r6;
END:
"""


@pytest.mark.integration
def test_a_ticket_lock_protects_what_it_guards_and_ends():
    found, results = explored(TICKET_LOCK, block=96)
    assert (found.is_complete, found.divergences) == (True, ())
    assert results[0][:3] == [3, 3, 3]
    unguarded = TICKET_LOCK.replace("@%p1 bra WAIT;", "")
    found, results = explored(unguarded, block=64)
    assert {r[2] for r in results} == {1, 2}


MESSAGE = "mov.u32 %r3, 1; mov.u32 %r9, 42;\n" + by_two(
    "st.global.u32 [%rd0+4], %r9; st.release.gpu.global.u32 [%rd0], %r3;",
    "AGAIN: ld.acquire.gpu.global.u32 %r5, [%rd0]; setp.eq.u32 %p2, %r5, 0; @%p2 bra AGAIN;"
    "ld.global.u32 %r6, [%rd0+4]; st.global.u32 [%rd0+8], %r6;",
)


def test_a_message_behind_a_flag_arrives_and_without_waiting_may_not():
    found, results = explored(MESSAGE)
    assert (found.schedules, found.is_complete, found.divergences) == (1, True, ())
    assert results[0][:3] == [1, 42, 42]
    found, results = explored(MESSAGE.replace("@%p2 bra AGAIN;", ""))
    assert {r[2] for r in results} == {0, 42}


def test_store_buffers_are_none_of_interleavings():
    body = "mov.u32 %r3, 1;\n" + by_two(
        "st.relaxed.gpu.global.u32 [%rd0], %r3; ld.relaxed.gpu.global.u32 %r5, [%rd0+4]; st.global.u32 [%rd0+8], %r5;",
        "st.relaxed.gpu.global.u32 [%rd0+4], %r3; ld.relaxed.gpu.global.u32 %r5, [%rd0]; st.global.u32 [%rd0+12], %r5;",
    )
    found, results = explored(body)
    assert found.is_complete
    assert {tuple(r[2:4]) for r in results} == {(1, 1), (0, 1), (1, 0)}  # a GPU may show (0, 0) as well


SCHEDULER = """
setp.ne.u32 %p0, %r2, 0; @%p0 bra END; mov.u32 %r10, %ctaid.x; add.u32 %r10, %r10, 1;
NEXT: atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1; setp.ge.u32 %p1, %r5, 3; @%p1 bra END;
mul.wide.u32 %rd1, %r5, 4; add.u64 %rd1, %rd1, %rd0; st.global.u32 [%rd1+4], %r10; bra NEXT;
END:
"""


@pytest.mark.integration
def test_a_dynamic_scheduler_deals_tiles_in_every_way():
    found, results = explored(SCHEDULER, grid=2, block=32)
    assert found.is_complete
    assert {tuple(r[1:4]) for r in results} == set(itertools.product((1, 2), repeat=3))
    by_all = SCHEDULER.replace("st.global.u32 [%rd1+4], %r10", "st.global.u32 [%rd1+4], %r5")
    assert explored(by_all, grid=2, block=32)[0].divergences == ()


def test_a_limit_says_that_these_are_not_all():
    found, _ = explored(TICKETS, block=160, limit=7)
    assert (found.schedules, found.is_complete) == (7, False)
    pins(str(found))


def test_what_goes_on_and_on_is_told(monkeypatch):
    monkeypatch.setattr("cutepy.sim.replay.search.guided_interleaving.MOST_STEPS", 200)
    forever = "mov.u32 %r3, 1;\n" + by_two(
        "LOOP: st.relaxed.gpu.global.u32 [%rd0+8], %r1; ld.relaxed.gpu.global.u32 %r5, [%rd0];"
        "setp.eq.u32 %p2, %r5, 0; @%p2 bra LOOP;",
        "st.relaxed.gpu.global.u32 [%rd0], %r3;",
    )
    found, _ = explored(forever, limit=2)
    assert not found.is_complete
    assert found.endless


# Who comes second reads what the other wrote, without an order: only where warp 1 comes second is that to be seen.
HIDDEN = """
mov.u32 %r3, 1; mov.u32 %r9, 7;
""" + by_two(
    "st.global.u32 [%rd0+8], %r9; atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1;",
    "atom.relaxed.gpu.global.add.u32 %r5, [%rd0], 1; setp.eq.u32 %p3, %r5, 0; @%p3 bra END;"
    "ld.global.u32 %r6, [%rd0+8];",
)


@pytest.mark.parametrize("schedules", ["all", 20])
def test_a_hazard_of_some_schedules_is_told_with_the_first_that_has_it(schedules):
    with cutepy.simulate(sanitize=True):
        module(HIDDEN).launch("k", 1, 64, (np.zeros(16, np.uint32),))
    with pytest.raises(ScheduleError) as error, cutepy.simulate(sanitize=True, schedules=schedules):
        module(HIDDEN).launch("k", 1, 64, (np.zeros(16, np.uint32),))
    hazard = next(d for d in error.value.explorations[0].divergences if d.kind == "hazard")
    pins(hazard.what)
    with pytest.raises(cutepy.sim.HazardError), cutepy.simulate(sanitize=True, policy=hazard.policy):
        module(HIDDEN).launch("k", 1, 64, (np.zeros(16, np.uint32),))


@pytest.mark.integration
@pytest.mark.parametrize("asked_early", [False, True])
def test_a_schedule_that_differs_withdraws_the_certificate(asked_early):
    lone = "setp.eq.u32 %p0, %r2, 0; @!%p0 bra END; st.volatile.global.u32 [%rd0], %r1; END:"
    with cutepy.simulate(sanitize=True, replay=True) as run:
        module(lone).launch("k", 1, 64, (np.zeros(16, np.uint32),))
        if asked_early:
            assert run.certificates[0].is_certified
        assert run.explore(schedules="all").divergences
        assert not run.certificates[0].is_certified
        pins(run.certificates[0].reasons[0])
        run._sanitizer.restart()


@pytest.mark.parametrize(("schedules", "limit"), [("every", 5), ("all", 0)])
def test_what_cannot_be_asked_for_is_refused(schedules, limit):
    with refuses(ValueError), cutepy.simulate(schedules=schedules, limit=limit):
        pass


def test_memory_that_cannot_be_put_back_is_refused():
    x = cutepy.sim.lazy_tensor(10**10, "uint32")
    with cutepy.simulate(replay=True) as run:
        module(COUNTS).launch("k", 1, 32, (x,))
        with refuses(RuntimeError):
            run.explore(schedules="all")


def test_memory_is_put_back_whatever_its_size():
    x = np.zeros(1 << 20, np.uint32)
    with cutepy.simulate(replay=True) as run:
        module(TICKETS).launch("k", 1, 96, (x,))
        found = run.explore(schedules="all")
    assert (found.schedules, len(found.divergences)) == (6, 5)


def test_the_command_line_plays_all(tmp_path):
    script = tmp_path / "tickets.py"
    script.write_text(
        "import torch\nfrom tests.sim.replay.kernels import module\n"
        "from tests.sim.replay.test_schedule_exploration import TICKETS\n"
        "module(TICKETS).launch('k', 1, 64, (torch.zeros(64, dtype=torch.int32, device='cuda'),))\n"
    )
    result = CliRunner().invoke(app, ["sanitize", "--schedules", "all", "--limit", "9", str(script)])
    assert result.exit_code == 1
    pins(result.output)
    assert 'cutepy.simulate(policy="schedule:' in result.output
    assert CliRunner().invoke(app, ["sanitize", "--schedules", "some", str(script)]).exit_code != 0
