"""Policies by their names."""

import numpy as np
import pytest

import cutepy
from cutepy.sim import CompletionPolicy, Run
from cutepy.sim.machine.policies import Late, Random, Youngest, policy_named
from tests.sim.opcode_runner import launch


def test_names_make_policies():
    assert type(policy_named("late")) is Late
    assert type(policy_named("youngest")) is Youngest
    assert [policy_named(name).seed for name in ("random", "random:7")] == [0, 7]


@pytest.mark.parametrize("name", ["", "Late", "late:1", "random:", "random:x", "random:-1", "eager", "hold"])
def test_other_names_are_refused(name):
    with pytest.raises(
        ValueError, match="policy must be late, youngest, random, schedule, random:SEED, schedule:SEED or"
    ):
        policy_named(name)
    with pytest.raises(ValueError, match="policy must be"), cutepy.simulate(policy=name):
        pass


def test_a_seed_gives_an_order_and_others_give_others():
    def drawn(seed):
        policy = Random(seed)
        return [(policy.completes_at_issue(None), policy.choose(range(5))) for _ in range(50)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert {choice for _, choice in drawn(3)} == set(range(5))
    assert {at_once for at_once, _ in drawn(3)} == {True, False}


def test_what_comes_late_completes_in_the_order_that_the_name_says():
    assert not Late().completes_at_issue(None)
    assert not Youngest().completes_at_issue(None)
    assert (Late().choose(range(3)), Youngest().choose(range(3))) == (0, 2)


def test_operations_complete_as_they_are_issued_unless_a_policy_says_otherwise():
    """What a policy of one's own leaves out is done at once, the oldest first."""
    assert CompletionPolicy().completes_at_issue(None)
    assert CompletionPolicy().choose(range(3)) == 0


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
