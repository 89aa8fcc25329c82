"""Policies by their names."""

from types import SimpleNamespace

import numpy as np
import pytest

import cutepy
from cutepy.sim import CompletionPolicy, Run
from cutepy.sim.errors import PolicyError
from cutepy.sim.machine.policies import Choices, LateCompletion, RandomCompletion, YoungestCompletion, policy_named
from tests.messages import refuses
from tests.sim.opcode_runner import launch


def test_names_make_policies():
    assert type(policy_named("late")) is LateCompletion
    assert type(policy_named("youngest")) is YoungestCompletion
    assert [policy_named(name).seed for name in ("random", "random:7")] == [0, 7]


def test_choices_are_named_in_their_order():
    assert repr(Choices({17: 2, 3: 1})) == "schedule:3=1,17=2"


@pytest.mark.parametrize("name", ["", "Late", "late:1", "random:", "random:x", "random:-1", "eager", "hold"])
def test_other_names_are_refused(name):
    with refuses(ValueError):
        policy_named(name)
    with refuses(ValueError), cutepy.simulate(policy=name):
        pass


def test_a_seed_gives_an_order_and_others_give_others():
    def drawn(seed):
        policy = RandomCompletion(seed)
        return [(policy.completes_at_issue(None), policy.choose(range(5))) for _ in range(50)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert {choice for _, choice in drawn(3)} == set(range(5))
    assert {at_once for at_once, _ in drawn(3)} == {True, False}


def test_what_comes_late_completes_in_the_order_that_the_name_says():
    assert not LateCompletion().completes_at_issue(None)
    assert not YoungestCompletion().completes_at_issue(None)
    assert (LateCompletion().choose(range(3)), YoungestCompletion().choose(range(3))) == (0, 2)


def test_operations_complete_as_they_are_issued_unless_a_policy_says_otherwise():
    """Operations that a user's policy leaves out complete at once, the oldest first."""
    assert CompletionPolicy().completes_at_issue(None)
    assert CompletionPolicy().choose(range(3)) == 0


STEPS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 32; @%p1 bra ON; bar.warp.sync 0xffffffff;
ON: bar.sync 0; ret;
"""


def played(policy, *bodies):
    """Run kernels of one CTA of two warps, in one context with a policy."""
    with cutepy.simulate(policy=policy) as run:
        for body in bodies or (STEPS,):
            launch(body, run=run, block=64, smem_bytes=64)


ABSENT = {
    "hold:999": "kernel has 8 instructions, counted from 0, and no 999",
    "hold:999,cta=0.0.0,warp=1": "kernel has 8 instructions, counted from 0, and no 999",
    "hold:2,cta=9.9.9,warp=1": r"the grid of kernel is \(1, 1, 1\), and has no CTA \(9, 9, 9\)",
    "hold:8": "kernel has 8 instructions, counted from 0, and no 8",
    "hold:2,cta=1.0.0": r"the grid of kernel is \(1, 1, 1\), and has no CTA \(1, 0, 0\)",
    "hold:2,cta=0.1.0": r"the grid of kernel is \(1, 1, 1\), and has no CTA \(0, 1, 0\)",
    "hold:2,cta=0.0.1": r"the grid of kernel is \(1, 1, 1\), and has no CTA \(0, 0, 1\)",
    "hold:2,warp=2": "CTAs of kernel have 64 threads, and no warp 2",
    "hold:2,cta=0.0.0,warp=77": "CTAs of kernel have 64 threads, and no warp 77",
    "hold:4,cta=0.0.0,warp=0": "in kernel no warp 0 of CTA .* executes instruction 4, `bar.warp.sync .*`",
    "hold:5,operation": "in kernel no thread issues an operation by instruction 5, `bar.sync 0`",
    "hold:5,mmas,operation": "in kernel no thread issues an operation by instruction 5, `bar.sync 0`",
    "schedule:0=99": "at choice 0 kernel has 0 to 1, and no 99",
    "schedule:0=1,99999=1": "kernel has .* choices, counted from 0, and no choice 99999",
}


@pytest.mark.parametrize("policy", ABSENT)
def test_a_policy_that_names_what_no_launch_has_says_so(policy):
    with refuses(PolicyError):
        played(policy)


@pytest.mark.parametrize(
    "policy",
    [
        "hold:4,cta=0.0.0,warp=1",
        "hold:5",
        "hold:5,warp=0,lane=31",
        "hold:4,warp=1,lane=2",
        "schedule:0=1",
        "schedule:0=0",
        "hold:poison",
    ],
)
def test_a_policy_that_names_what_there_is_doesnt(policy):
    played(policy)


def test_operations_are_offered_first_then_who_went_last():
    """Only those before which nothing is pending; in either part they keep their order."""
    done, pending = SimpleNamespace(done=True), SimpleNamespace(done=False)
    agents = [
        SimpleNamespace(number=4, operation=None),
        SimpleNamespace(number=5, operation=SimpleNamespace(after=(done,))),
        SimpleNamespace(number=6, operation=None),
        SimpleNamespace(number=7, operation=SimpleNamespace(after=(done, pending))),
        SimpleNamespace(number=8, operation=SimpleNamespace(after=())),
    ]
    policy = Choices({})
    assert policy.preferred(agents) == [1, 4, 0, 2]
    policy.note(agents[2])
    assert policy.preferred(agents) == [1, 4, 2, 0]
    policy.note(agents[1])  # an operation is nobody who goes on
    assert policy.preferred(agents) == [1, 4, 2, 0]
    policy.start()
    assert policy.preferred(agents) == [1, 4, 0, 2]
    assert [agents[Choices({0: n}).next(agents)].number for n in range(5)] == [5, 8, 4, 6, 6]


def test_of_several_launches_one_may_have_it():
    other = "mov.u32 %r1, smem;\n"
    played("hold:4,cta=0.0.0,warp=1", other, STEPS)
    with refuses(PolicyError):
        played("hold:4,cta=0.0.0,warp=1", other, other)
    with cutepy.simulate(policy="hold:4"):  # nothing was launched
        pass


@pytest.mark.parametrize("lane", ["cta=0.0.0,lane=1", "warp=1,lane=32"])
def test_a_lane_is_one_of_a_warp(lane):
    with refuses(ValueError):
        policy_named(f"hold:2,{lane}")


STORE = """mov.u32 %r1, smem; mov.u32 %r2, 7; ld.param.u64 %rd1, [p0];
st.shared.v4.u32 [%r1], {{%r2, %r2, %r2, %r2}}; fence.proxy.async;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group{read} 0;
mov.u32 %r2, 8; st.shared.u32 [%r1], %r2; st.global.u32 [%rd1+4], %r2;
"""


@pytest.mark.parametrize(("read", "found"), [("", [7, 8, 7, 7]), (".read", [7, 7, 7, 7])])
@pytest.mark.parametrize("policy", ["late", "youngest"])
def test_a_store_that_has_read_may_write_later(read, found, policy):
    data = np.zeros(4, np.uint32)
    launch(STORE.format(read=read), data, smem_bytes=128, run=Run((), policy), block=1)
    assert data.tolist() == found


@pytest.mark.parametrize(("read", "differs"), [("", False), (".read", True)])
def test_schedules_show_a_store_that_writes_later(read, differs):
    def found(seed):
        data = np.zeros(4, np.uint32)
        launch(STORE.format(read=read), data, smem_bytes=128, run=Run((), f"schedule:{seed}"), block=1)
        return tuple(data.tolist())

    assert ((7, 7, 7, 7) in {found(seed) for seed in range(20)}) == differs


@pytest.mark.parametrize("policy", [None, "late", "schedule:1"])
def test_what_a_store_has_read_may_be_overwritten_before_it_writes(policy):
    run = Run((), policy, sanitize=True)
    body = STORE.format(read=".read").replace("st.global.u32 [%rd1+4], %r2;", "")
    launch(body, np.zeros(4, np.uint32), smem_bytes=128, run=run, block=1)
    assert run.hazards == ()
    run = Run((), policy, sanitize=True)
    launch(
        body.replace("cp.async.bulk.wait_group.read 0;", ""), np.zeros(4, np.uint32), smem_bytes=128, run=run, block=1
    )
    assert {hazard.kind for hazard in run.hazards} - {"in-flight-at-exit"} <= {"unordered-write", "unordered-read"}
    assert len(run.hazards) == 2
