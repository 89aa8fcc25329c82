"""Litmus tests of weak memory: what interleavings show all of, and what they don't, which is said."""

import numpy as np
import pytest

import cutepy
from cutepy.sim.sanitize.certificate.weak_memory import unfenced
from cutepy.sim.translate import Kernel
from tests.messages import pins
from tests.sim.replay.kernels import module
from tests.sim.replay.test_search import explored

SC = "fence.sc.gpu;"
WEAKER = ["", "fence.acq_rel.gpu;", "fence.sc.cta;"]
"""Fences that do not keep a write and a later read in order, as other CTAs see them."""

FORK = "setp.ne.u32 %p0, %r2, 0; @%p0 bra END; setp.eq.u32 %p1, %r1, 1; @%p1 bra OTHER;\n"


def by_two(one):
    """Let one lane of each of two warps do something: `{me}` and `{you}` are its word and the other's, `{n}` is it."""
    first, second = one.format(me="%rd0", you="%rd0+4", n=0), one.format(me="%rd0+4", you="%rd0", n=1)
    return f"{FORK}{first}\nbra END;\nOTHER:\n{second}\nEND:"


BUFFERED = """st.relaxed.gpu.global.u32 [{{me}}], 1;
{}
ld.relaxed.gpu.global.u32 %r5, [{{you}}];
st.global.u32 [{{me}}+32], %r5;
"""
"""Store buffering: both may read 0, if no fence.sc is between."""

DEKKER = """st.relaxed.gpu.global.u32 [{{me}}], 1;
{}
ld.relaxed.gpu.global.u32 %r5, [{{you}}];
setp.ne.u32 %p2, %r5, 0; @%p2 bra OUT{{n}};
ld.global.u32 %r6, [%rd0+32]; add.u32 %r6, %r6, 1; st.global.u32 [%rd0+32], %r6;
OUT{{n}}:
"""
"""Dekker's mutual exclusion: a thread enters if the other has not asked to."""

PETERSON = """st.relaxed.gpu.global.u32 [{{me}}], 1;
{0}
st.relaxed.gpu.global.u32 [%rd0+8], 1-{{n}};
WAIT{{n}}:
{0}
ld.acquire.gpu.global.u32 %r5, [{{you}}];
{0}
ld.acquire.gpu.global.u32 %r6, [%rd0+8];
setp.ne.u32 %p2, %r5, 0; setp.eq.and.u32 %p2, %r6, 1-{{n}}, %p2; @%p2 bra WAIT{{n}};
ld.global.u32 %r7, [%rd0+32]; add.u32 %r7, %r7, 1; st.global.u32 [%rd0+32], %r7;
{0}
st.release.gpu.global.u32 [{{me}}], 0;
"""


def uncovered(body):
    """Return what the certificate of a launch does not cover, and whether there are hazards."""
    with cutepy.simulate(sanitize=True) as run:
        module(body).launch("k", 1, 64, (np.zeros(16, np.uint32),))
    (certificate,) = run.certificates
    (others, *found) = (one.partition(":")[0] for one in certificate.uncovered)
    assert others.startswith("launches of other sizes")
    return certificate.is_certified, found


FLAGS = "global memory that threads synchronise by"


def test_store_buffering_is_certified_with_a_word():
    assert uncovered(by_two(BUFFERED.format(SC))) == (True, [FLAGS])
    assert uncovered(by_two(BUFFERED.format("membar.gl;"))) == (True, [FLAGS])
    for fence in WEAKER:
        assert uncovered(by_two(BUFFERED.format(fence))) == (True, [FLAGS, "weak memory"])


SHARED = """mov.u32 %r40, tile; setp.eq.u32 %p3, %r0, 0; @%p3 st.shared.u64 [%r40], 0; bar.sync 0;
setp.ne.u32 %p0, %r2, 0; @%p0 bra END;
st.volatile.shared.u32 [%r40], 1;
{}
ld.volatile.shared.u32 %r5, [%r40+4]; st.global.u32 [%rd0], %r5;
END:
"""


def test_shared_memory_is_no_other_matter():
    flags = "shared memory that threads synchronise by"
    one = SHARED.replace("setp.ne.u32 %p0, %r2, 0;", "setp.ne.u32 %p0, %r0, 0;")
    assert uncovered(one.format("fence.sc.cta;")) == (True, [flags])
    assert uncovered(one.format("fence.acq_rel.cta;")) == (True, [flags, "weak memory"])


def test_all_schedules_of_store_buffering_are_all_there_is_with_a_strong_fence():
    found, results = explored(by_two(BUFFERED.format(SC)))
    assert (found.is_complete, found.uncovered) == (True, ())
    assert {(r[8], r[9]) for r in results} == {(0, 1), (1, 0), (1, 1)}
    for fence in WEAKER:
        found, results = explored(by_two(BUFFERED.format(fence)))
        assert (0, 0) not in {(r[8], r[9]) for r in results}  # which a GPU may come to
        pins(str(found))


@pytest.mark.integration
@pytest.mark.parametrize("entry", [DEKKER, PETERSON], ids=["Dekker's entry", "Peterson's lock"])
def test_locks_by_loads_and_stores(entry):
    found, results = explored(by_two(entry.format(SC)), sanitize=True)
    assert found.is_complete
    assert found.uncovered == ()
    assert {one.kind for one in found.divergences} <= {"values"}, "no hazard in any schedule"
    assert all(result[8] == (2 if entry is PETERSON else result[8]) for result in results)
    assert max(result[8] for result in results) <= 2
    for fence in WEAKER[:1]:
        found, _ = explored(by_two(entry.format(fence)), sanitize=True)
        assert "hazard" not in {one.kind for one in found.divergences}, "no interleaving shows it"
        assert found.uncovered, "and that is said"


@pytest.mark.integration
def test_a_lock_that_is_open_is_found():
    found, results = explored(by_two(PETERSON.format(SC).replace("@%p2 bra WAIT{n};", "")), sanitize=True)
    assert "hazard" in {one.kind for one in found.divergences}
    assert min(result[8] for result in results) == 1


TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{{
.reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .b32 tile[9];
ld.param.u64 %rd1, [x]; mov.u32 %r1, tile; mov.u32 %r2, 0; mov.u64 %rd2, %rd1;
{}
ret;
}}
"""
PUT, GET = "st.relaxed.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1+4];"


@pytest.mark.parametrize(
    "body",
    [
        PUT,  # what is only written, nobody sees in any order
        GET + GET.replace("+4", "+8"),
        "red.relaxed.gpu.global.add.u32 [%rd1], 1; red.relaxed.gpu.global.add.u32 [%rd1+4], 1;",
        "atom.relaxed.gpu.global.add.u32 %r3, [%rd1], 1;",  # one for each thread
        PUT + GET.replace("+4", ""),  # of one place, by coherence
        PUT.replace("relaxed.gpu.", "") + GET,  # a plain store
        PUT + SC + GET,
        PUT + "fence.sc.sys;" + GET,
        PUT.replace("gpu", "cta") + "fence.sc.cta;" + GET,
        PUT.replace("relaxed.gpu", "volatile") + "membar.gl;" + GET,  # there is one GPU
        PUT + "setp.eq.u32 %p1, %r2, 1; @%p1 bra ON;" + SC + "bra OUT; ON: fence.sc.gpu; OUT:" + GET,
        "AGAIN:" + SC + PUT + SC + GET + "setp.eq.u32 %p1, %r3, 1; @%p1 bra AGAIN;",
        "AGAIN: atom.relaxed.gpu.global.add.u32 %r3, [%rd1], 1; setp.eq.u32 %p1, %r3, 9; @%p1 bra AGAIN;",
    ],
)
def test_what_interleavings_show(body):
    assert unfenced(Kernel(TEXT.format(body), "k").flow) is None


@pytest.mark.parametrize(
    "body",
    [
        PUT + GET,
        GET + PUT,
        PUT.replace(".u32 [%rd1], 1", ".v2.u32 [%rd1], {1, 2}") + SC + GET,
        PUT + SC + GET.replace(".u32 %r3", ".v2.u32 {%r3, %r4}"),
        PUT + "fence.acq_rel.gpu;" + GET,
        PUT + "fence.sc.cta;" + GET,
        PUT + "setp.eq.u32 %p1, %r2, 1; @%p1 fence.sc.gpu;" + GET,
        PUT + "setp.eq.u32 %p1, %r2, 1; @%p1 bra ON;" + SC + "ON:" + GET,
        "AGAIN:" + PUT + SC + GET + "setp.eq.u32 %p1, %r3, 1; @%p1 bra AGAIN;",
        "AGAIN: atom.relaxed.gpu.global.add.u32 %r3, [%rd1], 1; add.u64 %rd1, %rd1, 4;"
        "setp.eq.u32 %p1, %r3, 9; @%p1 bra AGAIN;",
        "st.volatile.shared.u32 [%r1], 1; ld.volatile.shared.u32 %r3, [%r1+4];",
        "st.relaxed.gpu.u32 [%rd1], 1; ld.relaxed.gpu.u32 %r3, [%rd2];",  # it may be another place
        "ld.relaxed.gpu.global.u64 %rd1, [%rd1]; st.relaxed.gpu.global.u32 [%rd1], 1;",  # a pointer is followed
    ],
)
def test_what_they_do_not_show(body):
    assert unfenced(Kernel(TEXT.format(body), "k").flow) is not None
