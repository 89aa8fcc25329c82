"""Certified kernels find registers in every order of requests; kernels that hang in some order are told."""

import contextlib
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

import cutepy
from cutepy.sim import HazardError, Run, ScheduleError
from cutepy.sim.sanitize.certificate.register_supply import Change, starved
from tests.messages import pins
from tests.sim.opcode_runner import launch
from tests.sim.sanitize.certificate.programs import examined, policy_of
from tests.sim.sanitize.certificate.registers import MODULE, drawn, explore, ptx, run

PROGRAMS = 50


def reachable(warps, pools):
    """Return the states that any order of changes comes to, and of each the warps that ask and that can be served."""
    waiting, found = [(0,) * len(warps)], {}
    while waiting:
        state = waiting.pop()
        free = dict.fromkeys(pools, 0)
        for changes, pool, n in zip(warps, pools, state, strict=True):
            free[pool] -= sum(change.amount for change in changes[:n])
        asking = [
            w
            for w, n in enumerate(state)
            if n < len(warps[w]) and all(had >= need for had, need in zip(state, warps[w][n].after, strict=True))
        ]
        served = [w for w in asking if warps[w][state[w]].amount <= free[pools[w]]]
        found[state] = asking, served
        following = [(*state[:w], state[w] + 1, *state[w + 1 :]) for w in served]
        waiting += [each for each in following if each not in found]
    return found


@st.composite
def changing_warps(draw):
    counts = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    amounts = st.sampled_from([-16, -8, 0, 8, 16])
    pools = [draw(st.integers(0, 1)) for _ in counts]
    return [
        [
            Change(draw(amounts), tuple(n if v == w else draw(st.integers(0, most)) for v, most in enumerate(counts)))
            for n in range(count)
        ]
        for w, count in enumerate(counts)
    ], pools


@given(changing_warps())
def test_a_warp_waits_forever_where_some_order_leaves_nobody_who_is_served(case):
    """The pool served last who took registers, not who gave them back; if nobody did, the warp stands for itself."""
    warps, pools = case
    states = reachable(warps, pools)
    found = starved(warps, pools)
    assert bool(found) == any(asking and not served for asking, served in states.values())
    if found:
        (w, n), (of, at) = found
        assert any(state[w] == n and w in asking and not served for state, (asking, served) in states.items())
        assert pools[of] == pools[w]
        assert warps[of][at].amount > 0


TURNS = [
    [("wait", 0), ("dec", 24)],
    [("inc", 72), ("arrive", 0)],
    [("inc", 72)],
    [("dec", 56)],
]
"""Two warpgroups ask for what one gives back, and more is given back only once the first of them has got it."""

IDIOMS = {
    "a producer and two consumers": [[("dec", 24)], [("inc", 80)], [("inc", 80)]],
    "fewer than there are": [[("dec", 40)], [("inc", 72)], [("inc", 72)]],
    "given back once more at the end": [[("dec", 24)], [("inc", 80), ("meet",), ("dec", 64)], [("inc", 80)]],
    "given back while others wait, and taken again": [
        [("dec", 24), ("wait", 0), ("meet",), ("inc", 64)],
        [("inc", 80), ("meet",), ("dec", 40), ("arrive", 0)],
        [("inc", 80), ("meet",), ("dec", 64), ("arrive", 0)],
    ],
    "passed from one to the next": [
        [("dec", 56), ("arrive", 0)],
        [("wait", 0), ("inc", 72), ("meet",), ("dec", 64), ("arrive", 1)],
        [("wait", 1), ("inc", 72)],
    ],
}


@pytest.mark.parametrize("name", IDIOMS)
def test_a_split_is_certified_and_nothing_is_assumed_of_it(name):
    certificate, hazards, error = run(IDIOMS[name])
    assert (error, hazards, certificate.reasons) == (None, (), ())
    assert not any("setmaxnreg" in one for one in certificate.assumptions)
    assert explore(IDIOMS[name]) == (True, False)


def test_what_hangs_in_another_order_is_told_with_both_that_ask():
    certificate, (found,), error = run(TURNS)
    assert error is None
    assert explore(TURNS) == (True, True)
    assert not certificate.is_certified
    assert found.kind == "exhausted-registers"
    assert {side.warp // 4 for side in found.sides} == {1, 2}
    pins(found.missing)


@pytest.mark.parametrize("before", [[TURNS[3]], [TURNS[3], [("wait", 0), ("dec", 64)]]])
def test_of_what_is_given_back_that_is_named_which_comes_after_who_waits(before):
    """Neither what is given back whoever asks, nor a change by nothing."""
    _, (found,), _ = run([*before, *TURNS[:3]])
    assert found.kind == "exhausted-registers"
    pins(found.missing)


PASSED = IDIOMS["passed from one to the next"]


@pytest.mark.parametrize("fails", [False, True])
def test_each_cta_has_registers_of_its_own(fails):
    """A property of the first CTA implies nothing for the second."""
    first = [*PASSED, []]
    second = re.sub(r"\b(GROUP\w+|W\d\w+|END)\b", r"\1X", ptx(TURNS if fails else first))
    body = f"mov.u32 %r7, %ctaid.x; setp.eq.u32 %p7, %r7, 1; @%p7 bra SECOND;\n{ptx(first)}\nbra OVER;\n"
    options = {"block": 512, "grid": 2, "directives": ".maxnreg 64"}
    certificate, hazards, error = examined(f"{body}SECOND:\n{second}\nOVER:", **options)
    assert error is None
    assert certificate.is_certified != fails
    assert [(one.kind, one.sides[0].cta) for one in hazards] == [("exhausted-registers", (1, 0, 0))] * fails


@pytest.mark.parametrize(("more", "is_followed"), [(6, True), (7, False)])
def test_of_eight_changes_nothing_is_known(more, is_followed):
    first, *others = PASSED
    certificate, hazards, error = run([first + [("meet",), ("dec", 56)] * more, *others])
    assert (error, hazards, certificate.is_certified) == (None, (), is_followed)


@pytest.mark.parametrize("policy", [None, "youngest"])
def test_what_a_copy_brings_that_is_issued_after_comes_after(policy):
    """The issue waits for registers, so that who waits for the bytes does."""
    turns = [TURNS[0], [("inc", 72), ("issue", 0)], *TURNS[2:]]
    certificate, hazards, _ = run(turns, {0: 1}, policy_of(policy))
    assert certificate is None or not certificate.is_certified
    assert [hazard.kind for hazard in hazards] == ["exhausted-registers"]


RELAXED = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 7; setp.eq.u32 %p1, %r3, 0;
setp.eq.u32 %p2, %r3, 1; setp.eq.u32 %p4, %r2, 0; @%p4 mbarrier.init.shared.b64 [%r1], 128; bar.sync 0;
@%p1 bra A; @%p2 bra B; setmaxnreg.inc.sync.aligned.u32 200; bra E;
B: setmaxnreg.inc.sync.aligned.u32 200; mbarrier.arrive.ARRIVES.shared.b64 _, [%r1]; bra E;
A: setmaxnreg.dec.sync.aligned.u32 136; W: mbarrier.try_wait.parity.WAITS.shared.b64 %p5, [%r1], 0; @!%p5 bra W;
bar.sync 1, 128; setmaxnreg.dec.sync.aligned.u32 104; E:"""


@pytest.mark.parametrize("arrives", ["relaxed.cta", "release.cta"])
@pytest.mark.parametrize("waits", ["relaxed.cta", "acquire.cta"])
def test_relaxed_operations_pass_on_that_registers_were_there(arrives, waits):
    """They show nothing, but who waits for them goes on after them."""
    body = RELAXED.replace("ARRIVES", arrives).replace("WAITS", waits)
    simulation = Run((), None, sanitize=True)
    launch(body, np.zeros(4, np.uint32), block=384, smem_bytes=64, run=simulation, directives=".maxnreg 168")
    assert not simulation.certificates[0].is_certified


BY_THEN_ENDED = [
    [("all",), ("dec", 56)],
    [("inc", 72), ("meet",), ("dec", 56), ("exit",)],
    [("inc", 72), ("exit",)],
    [("dec", 56), ("exit",)],
]
"""If the third group asks first, the second waits for the first, which waits until the second has ended."""


def test_who_has_ended_had_its_registers():
    """A barrier of all threads waits for those that have not ended, and they end once they have got registers."""
    certificate, hazards, error = run(BY_THEN_ENDED)
    assert (error, hazards, certificate.is_certified) == (None, (), False)
    (reason,) = certificate.reasons
    pins(reason)
    assert ".dec" not in reason
    _, _, error = run(BY_THEN_ENDED, policy=policy_of("schedule:1"))
    pins(str(error))
    alone = [[("all",), ("dec", 24)], [("inc", 72), ("exit",)], [("exit",)], [("dec", 56), ("exit",)]]
    certificate, hazards, error = run(alone)
    assert (error, hazards, certificate.reasons) == (None, (), ())


def test_who_comes_to_a_barrier_and_who_ends_without_asking_hide_nothing():
    certificate, hazards, error = run(
        [
            [("all",), ("dec", 56)],
            [("inc", 72), ("all",)],
            [("exit",)],
            [("dec", 56), ("exit",)],
            [("all",), ("inc", 72)],
        ]
    )
    assert (error, hazards, certificate.reasons) == (None, (), ())


ACROSS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 7; mov.u32 %r4, %cluster_ctarank;
setp.eq.u32 %p4, %r2, 0; @%p4 mbarrier.init.shared.b64 [%r1], 1; fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; setp.eq.u32 %p1, %r4, 0; @%p1 bra OTHER;
setp.eq.u32 %p1, %r3, 0; @%p1 bra A; setp.eq.u32 %p1, %r3, 1; @%p1 bra B; setp.eq.u32 %p1, %r3, 2; @%p1 bra C;
setmaxnreg.dec.sync.aligned.u32 56; bra END;
C: setmaxnreg.inc.sync.aligned.u32 72; bra END;
B: setmaxnreg.inc.sync.aligned.u32 72; bar.sync 1, 128; setmaxnreg.dec.sync.aligned.u32 56; bra END;
A: barrier.cluster.arrive.aligned; W: mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 0; @!%p5 bra W;
setmaxnreg.dec.sync.aligned.u32 56; bra END;
OTHER: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; @!%p4 bra END;
mapa.shared::cluster.u32 %r5, %r1, 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
END:"""
"""As `BY_THEN_ENDED`, where another CTA waits at the cluster's barrier and lets the first group go on."""


def test_a_barrier_of_the_cluster_passes_on_that_threads_of_another_cta_have_ended():
    options = {"block": 512, "grid": 2, "cluster": 2, "directives": ".maxnreg 64"}
    certificate, hazards, error = examined(ACROSS, **options)
    assert (error, hazards, certificate.is_certified) == (None, (), False)
    assert any("whoever asks first" in one for one in certificate.reasons)
    _, _, error = examined(ACROSS, policy=policy_of("schedule:1"), **options)
    pins(str(error))


def test_certified_means_that_no_order_hangs():
    kinds = Counter()
    for seed in range(PROGRAMS):
        groups = drawn(seed)
        ends, hangs = explore(groups)
        certificate, hazards, error = run(groups)
        is_certified = certificate is not None and error is None and certificate.is_certified
        assert not (is_certified and hangs), (seed, groups)
        assert not ("every schedule hangs: what has run" in str(error) and ends), (seed, groups)
        if not hangs:
            assert not hazards, (seed, groups)
        kinds[is_certified, hangs, error is None] += 1
    assert kinds[False, False, True] == 0  # all that are safe are certified
    assert kinds[True, False, True] > PROGRAMS // 10
    assert kinds[False, True, True] > 0


def test_who_waits_for_as_much_as_was_given_back_might_have_been_the_first():
    """Four warps take 8 registers each of 32; one warp that takes 32 gives them back if it comes first."""
    groups = [[("dec", 56)], [("inc", 72)], [("inc", 96), ("dec", 64)]]
    options = {"block": 288, "directives": ".maxnreg 64"}
    _, _, error = examined(ptx(groups, block=288), **options)
    pins(str(error))
    groups[2][0] = ("inc", 104)
    _, _, error = examined(ptx(groups, block=288), **options)
    pins(str(error))


WITHIN = [("dec", 56), ("meet",), ("inc", 64), ("arrive", 0), ("meet",), ("dec", 56)]
FEW = {
    "one warp asks for a part of what four give": ([WITHIN[:1], [("inc", 72)]], False),
    "one waits for what four do that lack what it took": ([WITHIN, [("inc", 72), ("wait", 0)]], True),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep if n else pytest.mark.integration) for n, name in enumerate(FEW)]
)
def test_exhaustive_search_agrees(name):
    """Four warps and one, in all schedules of the simulator."""
    groups, hangs = FEW[name]
    program, x = cutepy.load_ptx(MODULE.format(ptx(groups, block=160))), np.zeros(8, np.uint32)
    with contextlib.suppress(HazardError), cutepy.simulate(sanitize=True) as run:
        program.launch("k", 1, 160, (x,))
    assert [one.is_certified for one in run.certificates] == [not hangs]
    with pytest.raises(ScheduleError, match="hang") if hangs else contextlib.nullcontext():
        with cutepy.simulate(schedules="all"):
            program.launch("k", 1, 160, (x,))
