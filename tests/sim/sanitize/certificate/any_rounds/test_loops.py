"""What is said of further rounds of loops: where it holds, why not elsewhere, and that no program refutes it."""

from collections import Counter

import numpy as np
import pytest

from cutepy.frontends import load_ptx, simulate
from cutepy.sim.run import Run
from cutepy.sim.sanitize.certificate.any_rounds import loops
from cutepy.sim.sanitize.certificate.any_rounds.affine import linear
from cutepy.sim.sanitize.certificate.any_rounds.comparisons import Comparison
from cutepy.sim.sanitize.certificate.any_rounds.counters import remainder
from cutepy.sim.sanitize.certificate.any_rounds.extensions import Extension, _Together, merged
from cutepy.sim.sanitize.certificate.any_rounds.grid_constants import specialised
from cutepy.sim.sanitize.certificate.any_rounds.remainders import any_rounds
from cutepy.sim.sanitize.certificate.dependence import Walk
from cutepy.sim.translate import translate
from tests.messages import pins
from tests.sim.opcode_runner import launch
from tests.sim.sanitize.certificate.any_rounds.loop_programs import further, names_of, run, unrolled
from tests.sim.sanitize.certificate.any_rounds.loop_trial import (
    attention,
    examine,
    lagging,
    pingpong,
    prefetching,
    ring,
    turns,
)
from tests.sim.sanitize.certificate.model import explore
from tests.sim.sanitize.certificate.test_steering import TEXT

PROGRAMS = 24


def said_of(roles, arrivals, counts):
    """Run a program that is certified; returns what holds, by count of each loop, and why the rest does not."""
    certificate, hazards, error, text = run(roles, arrivals, counts)
    assert (error, hazards, certificate.reasons) == (None, (), ())
    holding = []
    for one in certificate.extends:
        if one.holds:
            more = further(one, text, counts, 1)
            holding.append({name: more[name] - counts[name] for name in counts if more[name] > counts[name]})
    return holding, [one.reason for one in certificate.extends if not one.holds]


@pytest.mark.integration
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"order": "plain"}, {"order": "first"}, {"peeled": True}], ids=str)
def test_a_ring_repeats_after_all_stages_in_both_phases(stages, options):
    counts = {"p": 8 * stages, "c0": 8 * stages}
    if stages == 1 and "peeled" in options:
        pytest.skip("the producer would wait for a stage that its consumer holds back")
    assert said_of(*ring(stages, **options), counts) == ([dict.fromkeys(counts, 2 * stages)], [])


def test_so_do_more_consumers_and_other_loops():
    assert said_of(*ring(2, 2), {"p": 18, "c0": 18, "c1": 18}) == ([{"p": 4, "c0": 4, "c1": 4}], [])
    assert said_of(*pingpong(), {"p": 9, "c0": 9}) == ([{"p": 2, "c0": 2}], [])


def test_a_loop_in_a_loop_is_looked_at_by_itself():
    """Of 3 rounds in 2 stages, 4 tiles come back to the first stage in the first phase; 3 rounds are few."""
    holding, reasons = said_of(*ring(2, tiles=True), {"t0": 16, "t1": 16, "p": 3, "c0": 3})
    assert holding == [{"t0": 4, "t1": 4}]
    assert len(reasons) == 2
    holding, reasons = said_of(*ring(2, tiles=True), {"t0": 2, "t1": 2, "p": 17, "c0": 17})
    assert holding == [{"p": 4, "c0": 4}]
    assert reasons == ["it goes around twice"] * 2
    assert len(said_of(*attention(2), {"t0": 16, "t1": 16, "p": 17, "c0": 17})[0]) == 2


def test_loops_of_which_one_is_unrolled_go_around_together():
    (producer, ((_, name, consume),)), arrivals = ring(2)
    program = [producer, [("loop", name, consume * 2)]], arrivals
    assert said_of(*program, {"p": 16, "c0": 8}) == ([{"p": 4, "c0": 2}], [])


def test_few_rounds_are_too_few():
    assert said_of(*ring(2), {"p": 3, "c0": 3})[0] == []
    (holding, reasons) = said_of(*ring(2), {"p": 8, "c0": 8})
    assert holding == []
    assert all("8 rounds are too few, which repeat after 4" in reason for reason in reasons)


def with_step(step, at=2):
    (producer, ((_, name, consume),)), arrivals = ring(1)
    return [producer, [("loop", name, [*consume[:at], step, *consume[at:]])]], arrivals


REFUSED = {
    "a branch at a round that the run does not reach": (("round", "c0", 9, [("arrive", 1, 0)]), 2, "a branch"),
    "a branch from such a round on": (("later", "c0", 9, [("arrive", 1, 0)]), 2, "a branch"),
    "a branch in the first half of the rounds": (("half", "c0", [("load", "a", 0)]), 2, "counts its rounds"),
    "a branch in rounds that another loop has too": (("within", "c0", "p", [("load", "a", 0)]), 2, "may turn a branch"),
    "a branch at the last round but one": (("ahead", "c0", 6, [("load", "a", 0)]), 2, "may turn a branch"),
    "a stage by the number of the round": (("scaled", 0, "c0", 1), 0, "counts its rounds, and steers"),
}


REFUSED["a branch, and the phase by its number too"] = REFUSED["a branch from such a round on"][0], 2, "a branch"


@pytest.mark.parametrize("name", REFUSED)
def test_what_else_the_count_steers_refuses(name):
    step, at, reason = REFUSED[name]
    roles, arrivals = with_step(step, at)
    if "phase" in name:
        ((_, _, consume),) = roles[1]
        consume.insert(0, ("counted", 0, "c0"))
        assert "advance" in consume.pop()
    holding, reasons = said_of(roles, arrivals, {"p": 8, "c0": 8})
    assert holding == []
    assert any(reason in one and "kernel.py:" in one for one in reasons)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("how", ["below", "ahead"])
def test_a_branch_on_the_rounds_left_turns_in_the_end_however_many_there_are(stages, how):
    rounds = 6 * stages + 2
    holding, reasons = said_of(*prefetching(stages, how), {"p": rounds})
    assert holding == [{"p": 2 * stages}]
    assert all("too few" in one or "do not repeat" in one or "it goes around" in one for one in reasons)


def test_a_branch_on_the_rounds_that_were_has_turned():
    counts = {"p": 14, "c0": 14}
    assert said_of(*lagging(2, 1), counts)[0] == [dict.fromkeys(counts, 4)]
    counts = {"p": 12, "c0": 12}
    for step in ("later", "c0", 3), ("round", "c0", 3), ("last", "c0"), ("ahead", "c0", 3):
        assert said_of(*with_step((*step, [("load", "a", 0)])), counts) == ([dict.fromkeys(counts, 2)], [])


def test_a_count_that_comes_from_elsewhere_is_not_known():
    (producer, ((_, name, consume),)), arrivals = ring(1)
    step = ("below", 0, name, [("load", "a", 0)])
    counts = {"p": 10, "c0": 10}
    for first, holds in (("start", 0, name, 2), True), (("middle", 0, name), False), (("start", 0, "p", 2), False):
        program = [producer, [first, ("loop", name, [*consume[:2], step, *consume[2:]])]], arrivals
        assert bool(said_of(*program, counts)[0]) == holds


def test_consumers_in_turns_hold_where_all_rounds_are_more():
    holding, reasons = said_of(*turns(1), {"p": 30, "c0": 30, "c1": 30})
    assert (holding, reasons) == ([{"p": 4, "c0": 4, "c1": 4}], [])  # c0 and c1 make 2 rounds more each


def test_of_rounds_that_count_by_more_than_one_it_is_said_what_bounds_them():
    """A branch in the last round is then by the bound, and not by how many rounds there are."""
    hand_over = [("wait", 1, 0, 1), ("ahead", "c0", 1, [("arrive", 0, 0)]), ("advance", 0, 1)]
    roles = [
        [("every", "c0", 3, 0, hand_over)],
        [("loop", "p", [("wait", 0, 0, 0), ("arrive", 1, 0), ("advance", 0, 1)])],
    ]
    certificate, _, _, text = run(roles, [1, 1], {"c0": 60, "p": 20})
    (one,) = certificate.extends
    assert sorted(zip((count for _, count in one.loops), one.grows, strict=True)) == [(2, 0), (2, 6)]
    pins(str(one))
    assert explore(unrolled(roles, further(one, text, {"c0": 60, "p": 20}, 1)), [1, 1]).is_safe
    assert not explore(unrolled(roles, {"c0": 64, "p": 22}), [1, 1]).is_safe  # 2 rounds more, and too few for the last
    assert any_rounds([certificate]) == ()


def test_loops_that_go_around_alone_while_others_use_the_same_do_not_hold():
    (producer, ((_, _, consume),)), arrivals = ring(1)
    holding, reasons = said_of([producer, consume * 8], arrivals, {"p": 8})
    assert holding == []
    assert "do not go around a loop that repeats" in reasons[0]


def test_no_program_refutes_it():
    kinds = Counter()
    for seed in range(PROGRAMS):
        kind, wrong = examine(seed)
        assert wrong is None
        kinds[kind] += 1
    assert kinds["further rounds"] > PROGRAMS // 5


def test_without_the_branches_that_steer_it_would_be_wrong(monkeypatch):
    """A check of the checks: what nothing but the code says is not in the run."""
    roles, arrivals = with_step(("round", "c0", 9, [("arrive", 1, 0)]))
    counts = dict.fromkeys(names_of(roles), 8)
    monkeypatch.setattr(Walk, "decide", lambda self, block: None)
    _refuted(roles, arrivals, counts)


def test_without_what_keeps_branches_from_turning_it_would_be_wrong(monkeypatch):
    roles, arrivals = with_step(("later", "c0", 9, [("arrive", 1, 0)]))
    monkeypatch.setattr(Comparison, "stays", lambda self, *numbers: True)
    _refuted(roles, arrivals, dict.fromkeys(names_of(roles), 8))


def test_loops_taken_one_by_one_would_be_wrong(monkeypatch):
    monkeypatch.setattr(_Together, "_join", lambda self, seed, steady: [(seed, seed.period)])
    roles, arrivals = ring(1)
    _refuted(roles, arrivals, {"p": 8, "c0": 8})


def _refuted(roles, arrivals, counts):
    certificate, _, _, text = run(roles, arrivals, counts)
    holding = [one for one in certificate.extends if one.holds]
    assert holding
    more = [further(one, text, counts, times) for one in holding for times in (1, 2)]
    assert not all(explore(unrolled(roles, one), arrivals).is_safe for one in more)


def test_of_a_loop_only_what_holds_of_all_its_visits_is_said():
    loops_of = ("a.py:1", 2), ("a.py:5", 2)
    short = Extension((("a.py:5", 0),), 9, "too few")
    assert merged([Extension(loops_of, 8), Extension(loops_of, 12)]) == (Extension(loops_of, 12),)
    assert merged([Extension(loops_of, 8), short, Extension(loops_of, 12)]) == (short,)
    shorter, longer = (Extension((("a.py:5", 0),), rounds, f"{rounds} are too few") for rounds in (7, 11))
    assert merged([short, shorter]) == merged([shorter, short]) == (short,)
    assert merged([short, longer]) == merged([longer, short]) == (longer,)
    alike = Extension((("a.py:5", 0),), 9, "another reason")
    assert merged([short, alike]) == (short,)


def test_warps_that_go_around_a_loop_otherwise_refuse_it():
    """One after the other, each at an mbarrier of its own; one through memory, where it meets what another wrote."""
    body = """mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; ld.global.u32 %r9, [%rd1]; shr.u32 %r13, %r2, 5;
    and.b32 %r14, %r2, 31; setp.eq.u32 %p1, %r14, 0; shl.b32 %r15, %r13, 3; add.u32 %r15, %r1, %r15;
    setp.eq.u32 %p5, %r13, 1; and.pred %p8, %p5, %p1; @%p1 mbarrier.init.shared.b64 [%r15], 32; mov.u32 %r4, 0;
    mov.u32 %r8, 0; mov.u32 %r10, 0; selp.u32 %r11, 4, 0, %p5; bar.sync 0; @!%p5 bra LOOP; bar.sync 1, 64;
    LOOP: mov.u32 %r30, 0; mbarrier.arrive.shared.b64 _, [%r15];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r15], %r4; @!%p2 bra W;
    xor.b32 %r4, %r4, 1; add.u32 %r12, %r1, %r10; @%p8 st.shared.u32 [%r12+1024], %r8;
    add.u32 %r10, %r10, %r11; add.u32 %r8, %r8, 1; setp.lt.u32 %p4, %r8, %r9; @%p4 bra LOOP;
    @%p5 bra END; bar.arrive 1, 64; END:"""
    kernel = load_ptx(TEXT.format(body=body))
    with simulate(sanitize=True) as launched:
        kernel.launch("kernel", 1, 64, args=(np.full(4, 24, np.uint32),), smem=4096)
    (certificate,) = launched.certificates
    assert certificate.is_certified
    assert [one.holds for one in certificate.extends] == [False]


# What the code says.

LOOP = """mov.u32 %r2, 0; mov.u32 %r3, 0; ld.param.u32 %r9, [p0];
AGAIN: {body}
mbarrier.arrive.shared.b64 _, [%r1]; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r9; @%p1 bra AGAIN;"""


def loop_of(body):
    text = TEXT.format(body=LOOP.format(body=body))
    flow = translate(text, "kernel").flow
    (found,) = loops.loops(flow)
    return [r.name for r in found.state], {r.name: by for r, by in found.moduli.items()}, found.unknown


STATES = {
    "nothing": ("", [], {}),
    "a phase": ("xor.b32 %r3, %r3, 1; mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r3;", ["%r3"], {}),
    "one of its bits": (
        "shl.b32 %r4, %r2, 3; and.b32 %r5, %r4, 8; add.u32 %r6, %r5, %r1; st.shared.u32 [%r6], %r1;",
        ["%r2"],
        {"%r2": 2},
    ),
    "a count of what happens in some rounds": (
        "setp.eq.u32 %p2, %r6, 3; selp.b32 %r6, 0, %r6, %p2; add.u32 %r6, %r6, 1; selp.b32 %r4, 1, 0, %p2; "
        "add.u32 %r3, %r3, %r4; and.b32 %r5, %r3, 1; mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r5;",
        ["%r3", "%r6"],
        {"%r3": 2},
    ),
    "a count that a loop inside may take out of its bits": (
        "mov.u32 %r40, 0; INNER: add.u32 %r3, %r3, 9; setp.lt.u32 %p2, %r3, %r9; @%p2 bra INNER; "
        "rem.u32 %r5, %r3, 3; st.shared.u32 [%r5], %r1;",
        ["%r3"],
        {},
    ),
    "a count that a loop inside of so many rounds may take out of its bits": (
        "mov.u32 %r40, 0; INNER: add.u32 %r3, %r3, 9; add.u32 %r40, %r40, 1; setp.lt.u32 %p2, %r40, %r9; "
        "@%p2 bra INNER; rem.u32 %r5, %r3, 3; st.shared.u32 [%r5], %r1;",
        ["%r3"],
        {},
    ),
    "a count that a loop beside adds to": (
        "mov.u32 %r40, 0; INNER: add.u32 %r40, %r40, 1; setp.lt.u32 %p2, %r40, %r9; @%p2 bra INNER; "
        "add.u32 %r3, %r3, 9; rem.u32 %r5, %r3, 3; st.shared.u32 [%r5], %r1;",
        ["%r3"],
        {"%r3": 3},
    ),
    "a count by much": ("add.u32 %r3, %r3, 65536; and.b32 %r5, %r3, 3; st.shared.u32 [%r5], %r1;", ["%r3"], {}),
    "a remainder by a million": ("and.b32 %r4, %r2, 1048575; st.shared.u32 [%r4], %r1;", ["%r2"], {}),
    "a remainder by nearly a million": (
        "rem.u32 %r4, %r2, 1048575; st.shared.u32 [%r4], %r1;",
        ["%r2"],
        {"%r2": 1048575},
    ),
    "a remainder by nothing": ("rem.u32 %r4, %r2, 0; st.shared.u32 [%r4], %r1;", ["%r2"], {}),
    "none of its bits": ("and.b32 %r4, %r2, 0; st.shared.u32 [%r4], %r1;", ["%r2"], {"%r2": 1}),
    "its multiple": ("mul.lo.u32 %r4, %r2, 8; and.b32 %r5, %r4, 63; st.shared.u32 [%r5], %r1;", ["%r2"], {"%r2": 8}),
    "it in another register": ("mov.u32 %r4, %r2; and.b32 %r5, %r4, 3; st.shared.u32 [%r5], %r1;", ["%r2"], {"%r2": 4}),
    "the remainder of what bits are set in": (
        "or.b32 %r4, %r2, 1; rem.u32 %r5, %r4, 3; st.shared.u32 [%r5], %r1;",
        ["%r2"],
        {},
    ),
    "what is not taken off": (
        "mul.hi.u32 %r4, %r2, 0; and.b32 %r5, %r4, -4; sub.s32 %r7, %r2, %r5; st.shared.u32 [%r7], %r1;",
        ["%r2"],
        {},
    ),
    "the remainder by four by its quotient": (
        """mul.hi.u32 %r4, %r2, 1073741824; shr.u32 %r5, %r4, 0; mul.lo.s32 %r6, %r5, 4; sub.s32 %r7, %r2, %r6;
        st.shared.u32 [%r7], %r1;""",
        ["%r2"],
        {"%r2": 4},
    ),
    "remainders of two forms of it": (
        "setp.eq.u32 %p2, %r6, 0; mov.u32 %r4, %r2; @%p2 bra TAKE; shl.b32 %r4, %r2, 9; "
        "TAKE: and.b32 %r5, %r4, 1023; st.shared.u32 [%r5], %r1;",
        ["%r2"],
        {},
    ),
    "a count of more than constants": (
        "add.u32 %r3, %r3, %r9; and.b32 %r5, %r3, 1; st.shared.u32 [%r5], %r1;",
        ["%r3"],
        {},
    ),
    "a count of 16 bits": (
        "add.u16 %rs1, %rs1, 1; rem.u16 %rs2, %rs1, 3; cvt.u32.u16 %r4, %rs2; st.shared.u32 [%r4], %r1;",
        ["%rs1"],
        {},
    ),
    "half of a count": (
        "mov.b32 {%rs1, %rs2}, %r2; and.b16 %rs3, %rs2, 1; cvt.u32.u16 %r4, %rs3; st.shared.u32 [%r4], %r1;",
        ["%r2"],
        {},
    ),
    "a count beside another number": (
        "mov.b64 %rd2, {%r1, %r2}; and.b64 %rd3, %rd2, 0x1fffffffff; st.shared.u32 [%rd3], %r1;",
        ["%r2"],
        {},
    ),
    "a sum that saturates": ("add.sat.s32 %r4, %r2, 5; and.b32 %r5, %r4, 3; st.shared.u32 [%r5], %r1;", ["%r2"], {}),
    "a count in an address": ("shl.b32 %r4, %r2, 3; add.u32 %r4, %r4, %r1; st.shared.u32 [%r4], %r1;", ["%r2"], {}),
    "its remainder": (
        "rem.u32 %r4, %r2, 3; shl.b32 %r4, %r4, 3; add.u32 %r5, %r4, %r1; st.shared.u32 [%r5], %r1;",
        ["%r2"],
        {"%r2": 3},
    ),
    "its lowest bits": (
        "shl.b32 %r4, %r2, 1; add.u32 %r5, %r4, 1; and.b32 %r6, %r5, 7; st.shared.u32 [%r6], %r1;",
        ["%r2"],
        {"%r2": 4},
    ),
    "the remainder of what is signed, as compilers write it": (
        """or.b32 %r4, %r2, 0; shr.s32 %r5, %r4, 31; shr.u32 %r5, %r5, 30; add.s32 %r5, %r4, %r5; and.b32 %r6, %r5, -4;
        sub.s32 %r7, %r4, %r6; st.shared.u32 [%r7], %r1;""",
        ["%r2"],
        {"%r2": 4},
    ),
    "the remainder of the count itself, as compilers write it": (
        """shr.s32 %r5, %r2, 31; shr.u32 %r5, %r5, 30; add.s32 %r5, %r2, %r5; and.b32 %r6, %r5, -4;
        sub.s32 %r7, %r2, %r6; st.shared.u32 [%r7], %r1;""",
        ["%r2"],
        {"%r2": 4},
    ),
    "the remainder by what is no power of two": (
        """mul.hi.s32 %r4, %r2, 1431655766; shr.u32 %r5, %r4, 31; add.s32 %r5, %r4, %r5; mul.lo.s32 %r6, %r5, 3;
        sub.s32 %r7, %r2, %r6; st.shared.u32 [%r7], %r1;""",
        ["%r2"],
        {"%r2": 3},
    ),
    "the remainder by six": (
        """mul.hi.s32 %r4, %r2, 1431655766; shr.s32 %r5, %r4, 1; mul.lo.s32 %r6, %r5, 6; sub.s32 %r7, %r2, %r6;
        st.shared.u32 [%r7], %r1;""",
        ["%r2"],
        {"%r2": 6},
    ),
    "what is nearly a remainder": (
        """mul.hi.s32 %r4, %r2, 1431655760; mul.lo.s32 %r6, %r4, 3; sub.s32 %r7, %r2, %r6;
        st.shared.u32 [%r7], %r1;""",
        ["%r2"],
        {},
    ),
    "a remainder, and the count too": (
        "and.b32 %r4, %r2, 7; st.shared.u32 [%r4], %r1; st.shared.u32 [%r2], %r1;",
        ["%r2"],
        {},
    ),
    "a remainder of what is less than the count": (
        "add.s32 %r4, %r2, -9; rem.s32 %r5, %r4, 3; st.shared.u32 [%r5], %r1;",
        ["%r2"],
        {},
    ),
    "a remainder that a million rounds overflow": (
        "shl.b32 %r4, %r2, 10; rem.s32 %r5, %r4, 16384; st.shared.u32 [%r5], %r1;",
        ["%r2"],
        {},
    ),
    "a quotient": ("shr.u32 %r4, %r2, 3; and.b32 %r4, %r4, 1; st.shared.u32 [%r4], %r1;", ["%r2"], {}),
    "a barrier by its number": ("add.u32 %r4, %r2, 1; bar.sync %r4;", ["%r2"], {}),
    "a count in an address of global memory": (
        "mul.wide.u32 %rd3, %r2, 4; add.s64 %rd2, %rd1, %rd3; st.global.u32 [%rd2], %r1;",
        [],
        {},
    ),
    "a branch over what is stored in global memory": (
        "setp.eq.u32 %p2, %r2, 5; @%p2 bra SKIP; st.global.u32 [%rd1], %r1; SKIP:",
        [],
        {},
    ),
    "a branch over what synchronises": (
        "setp.eq.f32 %p2, %r2, 0f40A00000; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        ["%r2"],
        {},
    ),
    "a branch on a comparison": ("setp.eq.u32 %p2, %r2, 5; @%p2 bra SKIP; bar.warp.sync -1; SKIP:", [], {}),
    "a comparison of what was moved": (
        "mov.u32 %r4, %r2; setp.eq.u32 %p2, %r4, 5; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        [],
        {},
    ),
    "a comparison of its bits": (
        "not.b32 %r4, %r2; setp.eq.u32 %p2, %r4, 5; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        ["%r2"],
        {},
    ),
    "a comparison of one of two numbers": (
        "setp.eq.u32 %p3, %r1, 9; mov.u32 %r4, %r2; @%p3 add.u32 %r4, %r2, 7; setp.eq.u32 %p2, %r4, 5; "
        "@%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        [],
        {},
    ),
    "a comparison of a number, or of what is none": (
        "setp.eq.u32 %p3, %r1, 9; xor.b32 %r4, %r2, 5; @%p3 mov.u32 %r4, %r2; setp.eq.u32 %p2, %r4, 5; "
        "@%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        ["%r2"],
        {},
    ),
    "a comparison of what is a number by one way": (
        "setp.eq.u32 %p3, %r1, 9; @%p3 bra ONE; mov.u32 %r4, %r2; bra BOTH; ONE: xor.b32 %r4, %r2, 5; "
        "BOTH: setp.eq.u32 %p2, %r4, 5; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        ["%r2"],
        {},
    ),
    "a comparison of what is a number by another way": (
        "setp.eq.u32 %p3, %r1, 9; @%p3 bra ONE; xor.b32 %r4, %r2, 5; bra BOTH; ONE: mov.u32 %r4, %r2; "
        "BOTH: setp.eq.u32 %p2, %r4, 5; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        ["%r2"],
        {},
    ),
    "a comparison of what is a number by both ways": (
        "setp.eq.u32 %p3, %r1, 9; @%p3 bra ONE; add.u32 %r4, %r2, 3; bra BOTH; ONE: mov.u32 %r4, %r2; "
        "BOTH: setp.eq.u32 %p2, %r4, 5; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        [],
        {},
    ),
    "a comparison of what is no sum": (
        "rem.u32 %r4, %r2, 3; setp.eq.u32 %p2, %r4, 2; @%p2 bra SKIP; bar.warp.sync -1; SKIP:",
        ["%r2"],
        {"%r2": 3},
    ),
    "a comparison of a number, and its stage too": (
        "setp.eq.u32 %p2, %r2, 5; @%p2 bra SKIP; and.b32 %r4, %r2, 3; st.shared.u32 [%r4], %r1; SKIP:",
        ["%r2"],
        {"%r2": 4},
    ),
    "the outcome of a try": (
        """setp.ne.u32 %p2, %r3, 0; @%p2 bra READY; A: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0; @!%p3 bra A;
        READY: mbarrier.test_wait.parity.shared.b64 %p4, [%r1], 0; selp.b32 %r3, 1, 0, %p4;""",
        [],
        {},
    ),
}


ROW = "{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}"
BY_SOME = {
    "trap": "trap;",
    "mma": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r60, %r60, %r60, %r60}, "
    "{%r60, %r60}, {%f1, %f1, %f1, %f1};",
    "movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16 %r61, %r60;",
    "a matrix in global memory": f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {ROW}, [%rd1];",
    "a fence": "fence.proxy.async;",
}
for name, what in BY_SOME.items():
    STATES[f"who executes {name}"] = f"setp.eq.f32 %p2, %r2, 0f40A00000; @%p2 bra SKIP; {what} SKIP:", ["%r2"], {}
OPERANDS = {
    "the lane that a shuffle takes from": "shfl.sync.idx.b32 %r42, %r1, %r4, 31, 0xffff;",
    "how much cp.async takes": "cp.async.ca.shared.global [%r1], [%rd1], 4, %r4;",
    "a box of a tensor map": "tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, %r4;",
}
for name, what in OPERANDS.items():
    STATES[name] = f"mul.lo.u32 %r4, %r2, 5; {what}", ["%r2"], {}
STATES["how much cp.async takes, of what is valid"] = (
    "setp.eq.f32 %p2, %r2, 0f40A00000; selp.u32 %r4, 4, 0, %p2; cp.async.ca.shared.global [%r1], [%rd1], 4, %r4;",
    [],
    {},
)
STATES["how much cp.async takes, of what is not"] = (
    "setp.eq.f32 %p2, %r2, 0f40A00000; selp.u32 %r4, 8, 4, %p2; cp.async.ca.shared.global [%r1], [%rd1], 4, %r4;",
    ["%r2"],
    {},
)
STATES["whether cp.async takes nothing, and where from"] = (
    "setp.eq.f32 %p2, %r2, 0f40A00000; mul.wide.u32 %rd3, %r2, 4; cp.async.ca.shared.global [%r1], [%rd3], 4, %p2;",
    [],
    {},
)


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("mov.u32 %r3, %r2;", [1]),
        ("neg.s32 %r3, %r2;", [-1]),
        ("sub.s32 %r3, %r2, %r1;", [1, -1]),
        ("shl.b32 %r3, %r2, 0;", [1]),
        ("shl.b32 %r3, %r2, 31;", [1 << 31]),
        ("shl.b32 %r3, %r2, 32;", None),
        ("mul.lo.s32 %r3, %r2, 4294967293;", [-3]),
        ("mul.lo.s64 %rd3, %rd2, 4294967293;", [4294967293]),
        ("mul.lo.s64 %rd3, %rd2, -3;", [-3]),
        ("not.b32 %r3, %r2;", None),
        ("add.sat.s32 %r3, %r2, %r1;", None),
    ],
)
def test_what_is_a_sum(text, factors):
    found = linear(translate(TEXT.format(body=text), "kernel").function.instructions[-2])
    assert (found and [factor for _, factor in found[0]]) == factors


@pytest.mark.parametrize("name", STATES)
def test_what_comes_around_and_steers(name):
    body, state, moduli = STATES[name]
    assert loop_of(body) == (state, moduli, None)


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("shl.b32 %r4, %r2, 4; setp.lt.s32 %p2, %r4, 0;", True),
        ("shl.b32 %r4, %r2, 24; setp.lt.s32 %p2, %r4, 0;", False),
        ("add.u32 %r3, %r3, 128; setp.lt.s32 %p2, %r3, 0;", True),
        ("add.u32 %r3, %r3, 10000000; setp.lt.s32 %p2, %r3, 0;", False),
        ("mul.lo.u32 %r4, %r2, 123456789; setp.eq.u32 %p2, %r4, -1;", False),
    ],
)
def test_what_is_compared_does_not_wrap_in_a_million_rounds(body, holds):
    """40 rounds, of which 4 to 36 repeat after 4; with more of them what is compared leaves its 32 bits, or not."""
    text = TEXT.format(body=LOOP.format(body=body + " @%p2 bra SKIP; bar.warp.sync -1; SKIP:"))
    flow = translate(text, "kernel").flow
    (counting,) = (one.counting for one in loops.loops(flow))
    step = 128 if "128" in body else 10000000 if "10000000" in body else 0
    held = {"%r2": lambda n: n, "%r3": lambda n: n * step, "%r9": lambda n: 40}
    numbers = counting.numbers([[held[r.name](n) for r in counting.registers] for n in range(40)])
    assert counting.comparisons
    assert isinstance(counting.window(numbers, 4, 36, 4), tuple) == holds


def test_what_is_negative_has_no_remainder():
    assert remainder(np.array([5, (1 << 32) - 3, 1 << 20], np.uint32), 3).tolist() == [2, (1 << 32) - 3, 1 << 20]


STEERED = {
    "nothing": ("", "", "", None),
    "a branch before": ("setp.lt.u32 %p2, %r9, 9; @%p2 bra OVER; bar.sync 0; OVER:", "", "", "setp.lt"),
    "a branch after, on what is loaded again": (
        *("", "", "ld.param.u32 %r8, [p0]; setp.lt.u32 %p2, %r8, 9; @%p2 bra OVER; bar.sync 0; OVER:"),
        "setp.lt",
    ),
    "a trap before": ("setp.ge.u32 %p2, %r9, 99; @%p2 trap;", "", "", "setp.ge"),
    "an address": ("", "", "and.b32 %r8, %r9, 4; st.shared.u32 [%r8], %r1;", "st.shared.u32 [%r8]"),
    "what a counter is compared with": (
        "setp.lt.u32 %p2, %r9, 9; @%p2 bra OVER; mov.u32 %r3, 5; OVER:",
        *("setp.ge.u32 %p3, %r2, %r3; @%p3 bra ON; bar.sync 0; ON:", "", "setp.lt"),
    ),
    "what is stored and loaded": (
        *("", "", "st.shared.u32 [%r1+64], %r9; ld.shared.u32 %r8, [%r1+64]; st.shared.u32 [%r8], %r1;"),
        "st.shared.u32 [%r8]",
    ),
    "a branch over the loop": ("setp.lt.u32 %p2, %r9, 9; @%p2 bra END;", "", "", None),
    "a branch over nothing": ("setp.lt.u32 %p2, %r9, 9; @%p2 bra OVER; mov.u32 %r8, 1; OVER:", "", "", None),
    "the second of a vector": (
        "ld.param.v2.u32 {_, %r9}, [p0]; ld.param.u32 %r8, [p0+4]; setp.lt.u32 %p2, %r8, 9; @%p2 bra ON; bar.sync 0; "
        "ON:",
        "",
        "",
        "setp.lt",
    ),
    "a special register": (
        "mov.u32 %r9, %dynamic_smem_size; setp.lt.u32 %p2, %r9, 9; @%p2 bra OVER; bar.sync 0; OVER:",
        "",
        "",
        "setp.lt",
    ),
    "no other loop": ("min.u32 %r9, %r9, 99;", "setp.eq.u32 %p2, %r2, 99; @%p2 bra END;", "", None),
    "a loop before": (
        "mov.u32 %r4, 0; L: st.shared.u32 [%r1], 0; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, %r9; @%p2 bra L;",
        "",
        "",
        "setp.lt.u32 %p2",
    ),
}


@pytest.mark.parametrize("name", STEERED)
def test_what_the_bound_of_a_loop_steers(name):
    before, inside, after, found = STEERED[name]
    start, _, rest = LOOP.format(body=inside).partition("AGAIN:")
    text = TEXT.format(body=f"{start} {before} AGAIN: {rest} {after} END:")
    flow = translate(text, "kernel").flow
    (loop,) = loops.loops(flow)
    steered = loop.bounds.steered((loop.bounded,))
    assert (steered and steered.text.strip().startswith(found)) if found else steered is None


def test_ways_out_to_different_places_steer_what_is_there():
    body = "setp.eq.u32 %p2, %r2, 99; @%p2 bra ELSEWHERE;"
    for place, count in ("bar.sync 0;", 2), ("", 0):
        flow = translate(TEXT.format(body=LOOP.format(body=body) + f"ret; ELSEWHERE: {place}"), "kernel").flow
        (loop,) = loops.loops(flow)
        assert len(loop.counting.comparisons) == count


def test_loops_of_one_line_are_told_apart():
    body = LOOP.format(body="") + LOOP.format(body="").replace("AGAIN", "ONCE_MORE")
    flow = translate(TEXT.format(body=".loc 1 7 0\n" + body) + '\n.file 1 "kernel.py"\n', "kernel").flow
    names = [one.where for one in loops.loops(flow)]
    assert len(set(names)) == 2
    assert all(name.startswith(names[0].partition(" ")[0]) for name in names)


@pytest.mark.parametrize(
    "loads",
    [
        "ld.global.u32 %r4, [%rd1]",
        "bar.red.popc.u32 %r4, 1, 64, %p1",
        "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%r1]; "
        "mov.b32 %r4, %f1",
    ],
)
def test_what_is_loaded_and_steers_is_not_known(loads):
    _, _, unknown = loop_of(f"{loads}; st.shared.u32 [%r4], %r1;")
    assert "what is loaded at" in unknown


def test_which_state_is_waited_for_is_of_the_state():
    state, _, _ = loop_of("""mbarrier.arrive.shared.b64 %rd2, [%r1]; setp.eq.u32 %p2, %r2, 30;
        selp.b64 %rd3, %rd4, %rd2, %p2; A: mbarrier.test_wait.shared.b64 %p3, [%r1], %rd3; @!%p3 bra A;
        mov.b64 %rd4, %rd2;""")
    assert "%rd4" in state


PIPELINED = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; mov.u32 %r9, 0; mov.u32 %r10, 0;
shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; xor.b32 %r5, %r4, 128;
@%p1 mbarrier.init.shared.b64 [%r1+1024], 64; @%p1 mbarrier.init.shared.b64 [%r1+1032], 64; bar.sync 0;
{before}
ROUND: {round}
add.u32 %r9, %r9, 1; setp.lt.u32 %p4, %r9, {rounds}; @%p4 bra ROUND;
"""
ONE, OTHER = "mbarrier.arrive.shared.b64 %rd4, [%r1+1024];\n", "mbarrier.arrive.shared.b64 %rd5, [%r1+1032];\n"
UNTIL = "W{0}: mbarrier.try_wait.shared.b64 %p3, [%r1+{1}], %rd{0}; @!%p3 bra W{0};\n"
WAIT_ONE, WAIT_OTHER = UNTIL.format(4, 1024), UNTIL.format(5, 1032)


STORE, LOAD = "st.shared.u32 [%r4], %r2;\n", "ld.shared.u32 %r6, [%r5];\n"


def pipelined(before, body, rounds):
    """Return the hazards, and the certificate, of two warps that wait by states."""
    kept = Run((), None, sanitize=True)
    text = PIPELINED.format(before=before, round=body, rounds=rounds)
    launch(text, block=64, smem_bytes=2048, run=kept, assembles=False)
    return [hazard.kind for hazard in kept.hazards], kept.certificates[0]


@pytest.mark.parametrize(
    ("before", "body"),
    [
        (ONE, WAIT_ONE + ONE),
        (ONE, WAIT_ONE + STORE + OTHER + WAIT_OTHER + LOAD + ONE),
        (ONE + OTHER, WAIT_ONE + ONE + WAIT_OTHER + OTHER),
    ],
)
def test_a_state_that_the_next_round_waits_for(before, body):
    hazards, certificate = pipelined(before, body, 16)
    assert (hazards, certificate.reasons) == ([], ())
    assert [one.holds for one in certificate.extends] == [True]
    for more in (1, 2, 4):
        hazards, certificate = pipelined(before, body, 16 + more)
        assert (hazards, certificate.reasons) == ([], ())


def test_a_state_that_all_rounds_wait_for_is_of_one_phase():
    """The rounds come to other phases of the other mbarrier, and to the same one of this."""
    begins = "setp.eq.u32 %p2, %r9, 0; @!%p2 bra ON;\n" + ONE + "ON:\n"
    hazards, certificate = pipelined("", begins + WAIT_ONE + OTHER + WAIT_OTHER, 16)
    assert (hazards, certificate.reasons) == ([], ())
    assert [one.holds for one in certificate.extends] == [True]
    hazards, certificate = pipelined("", begins + WAIT_ONE + OTHER + WAIT_OTHER, 23)
    assert (hazards, certificate.reasons) == ([], ())


def test_a_state_that_is_moved_on_is_of_the_state_of_the_loop():
    hazards, certificate = pipelined(
        ONE + "mov.b64 %rd6, %rd4;\n", UNTIL.format(6, 1024) + ONE + "mov.b64 %rd6, %rd4;\n", 16
    )
    assert (hazards, certificate.reasons) == ([], ())
    assert [one.holds for one in certificate.extends] == [False]


def test_a_round_that_begins_with_a_guard_is_not_seen_of_all_lanes():
    text = TEXT.format(body=LOOP.format(body="@%p2 mbarrier.arrive.shared.b64 _, [%r1];"))
    (found,) = loops.loops(translate(text, "kernel").flow)
    assert "has a guard" in found.unknown


@pytest.mark.parametrize("operation", ["init.shared.b64 [%r1], 1", "arrive_drop.shared.b64 _, [%r1]"])
def test_mbarriers_that_change_in_a_loop_are_said(operation):
    text = TEXT.format(body=LOOP.format(body=f"mbarrier.{operation};"))
    flow = translate(text, "kernel").flow
    assert "mbarriers change" in loops.loops(flow)


# Any number of rounds.


def certificates_of(program, numbers, **others):
    found = [run(*program, {"p": n, "c0": n, **others})[0] for n in numbers]
    assert all(one.is_certified for one in found)
    return found


def test_launches_of_each_remainder_hold_for_any_number_of_rounds():
    program = ring(2)
    (found,) = any_rounds(certificates_of(program, (17, 14, 15, 16, 18)))
    assert (found.least, found.launches) == ((17, 17), 4)
    for n in (18, 19, 20, 21, 22):
        assert explore(unrolled(program[0], {"p": n, "c0": n}), program[1]).is_safe


def test_a_remainder_that_is_not_there_is_missed():
    assert any_rounds(certificates_of(ring(2), (14, 15, 16, 20))) == ()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_the_number_of_rounds_steers_besides_is_said(place):
    """A role with a step before its loop, in it, or after it, that only launches of 30 rounds and more have."""
    step = "beyond", "c0", 30, [("store", "b", 0)]
    (producer, ((_, name, consume),)), arrivals = ring(1)
    body, around = ([*consume, step], []) if place == 1 else (consume, [step])
    role = [*(around if place == 0 else []), ("loop", name, body), *(around if place == 2 else [])]
    found = certificates_of(([producer, role], arrivals), (14, 15))
    assert all("setp.ge.u32 %p4" in one.steers and one.steers in str(one) for each in found for one in each.extends)
    assert any_rounds(found) == ()


def test_launches_of_other_programs_say_nothing_of_each_other():
    first, second = certificates_of(ring(2), (14, 15)), certificates_of(ring(2, order="plain"), (16, 17))
    assert any_rounds((*first, *second)) == ()


@pytest.mark.integration
def test_launches_whose_other_loops_go_around_more_often_say_nothing_of_each_other():
    """The second tile begins at another stage."""
    program = ring(1, tiles=True)
    alike = [one for n in (14, 15) for one in certificates_of(program, (n,), t0=2, t1=2)]
    assert len(any_rounds(alike)) == 1
    other = [one for n, tiles in ((14, 2), (15, 3)) for one in certificates_of(program, (n,), t0=tiles, t1=tiles)]
    assert any_rounds(other) == ()


@pytest.mark.parametrize(
    ("clusters", "made"),
    [
        (3, ["mov.s32 %r6, 6", "mov.b32 %r8, %r1", "add.s32 %r1, %r1, 6"]),
        (1 << 30, ["mov.s32 %r6, -2147483648", "mov.b32 %r8, %r2", "add.s32 %r1, %r1, -2147483648"]),  # it wraps
        (None, ["mul.lo.s32 %r6, %r5, 2", "selp.b32 %r8, %r2, %r1, %p2", "add.s32 %r1, %r1, %r7"]),
    ],
)
def test_what_the_extents_of_a_grid_say_is_a_constant(clusters, made):
    body = """mov.u32 %r5, %nclusterid.x; mul.lo.s32 %r6, %r5, 2; setp.lt.s32 %p2, %r6, 0; abs.s32 %r7, %r6;
selp.b32 %r8, %r2, %r1, %p2; add.s32 %r1, %r1, %r7;"""
    flow = translate(TEXT.format(body=body), "kernel").flow
    known = specialised(flow, {} if clusters is None else {"%nclusterid.x": clusters})
    found = {i.operands[0].name: i for b in known.blocks for i in b.instructions if i.operands}

    def written(i):
        return f"{i.opcode} {', '.join(getattr(o, 'name', None) or str(o.value) for o in i.operands)}"

    assert [written(found[name]) for name in ("%r6", "%r8", "%r1")] == made
    assert [b.successors for b in known.blocks] == [b.successors for b in flow.blocks]
