"""Small kernels that touch global memory, wrong ones beside right ones: what the sanitizer says of them."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];
setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0; and.pred %p3, %p1, %p2;
mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3;
"""
"""rd1: data; rd2: flags; p1: thread 0, p2: CTA 0, p3: both; rd4: the data of each thread, the same in all CTAs."""

FILL = "@%p2 st.global.u32 [%rd4], %r1;\n"
TAKE = "@!%p2 ld.global.u32 %r9, [%rd4];\n"
OTHER = "xor.b32 %r10, %r1, 32; mul.wide.u32 %rd5, %r10, 4; add.u64 %rd5, %rd1, %rd5;\n"
BARRIER = "bar.sync 0;\n"
FENCE = "fence.acq_rel.gpu;\n"


def spin(load, limit=1):
    """Wait in the other CTAs for the flag."""
    return f"""@%p2 bra ON;
AGAIN: {load} %r8, [%rd2]; setp.lt.u32 %p4, %r8, {limit}; @%p4 bra AGAIN;
ON:
"""


def one_spins(load, limit=1):
    """Wait for the flag in one thread of each other CTA."""
    return f"""@%p2 bra ON; @!%p1 bra ON;
AGAIN: {load} %r8, [%rd2]; setp.lt.u32 %p4, %r8, {limit}; @%p4 bra AGAIN;
ON:
"""


SEND = "@%p3 st.release.gpu.global.u32 [%rd2], 1;\n"
GRID = """@!%p1 bra MET;
fence.acq_rel.gpu;
atom.global.add.u32 %r7, [%rd2], 1;
WAIT: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.lt.u32 %p4, %r8, 4; @%p4 bra WAIT;
MET:
bar.sync 0;
"""
NEXT = """add.u32 %r10, %r2, 1; and.b32 %r10, %r10, 3; mul.wide.u32 %rd5, %r10, 256; add.u64 %rd5, %rd4, %rd5;
mul.wide.u32 %rd6, %r2, 256; add.u64 %rd6, %rd4, %rd6;
"""
LOCK = """LOCK: atom.acquire.gpu.global.cas.b32 %r8, [%rd2], 0, 1; setp.ne.u32 %p4, %r8, 0; @%p4 bra LOCK;
ld.global.u32 %r9, [%rd1]; add.u32 %r9, %r9, 1; st.global.u32 [%rd1], %r9;
UNLOCK
"""


def beyond_barriers(first, last, load="ld.relaxed.gpu.global.u32"):
    """Raise a flag in one thread, after fences of all, and see it in one, before fences of all."""
    raised, seen = "@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n", one_spins(load)
    return FILL, first, BARRIER, raised, seen, BARRIER, last, TAKE


AGAIN = "sub.u32 %r5, %r5, 1; setp.ne.u32 %p5, %r5, 0; @%p5 bra MORE;\n"
TICKET = """@!%p1 bra GO; atom.relaxed.gpu.global.add.u32 %r8, [%rd2], 1; GO:
"""


def hazards_of(*lines, grid=2, block=64, **options):
    """Run a kernel, and return the kinds of what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    data, flags = np.zeros(4096, np.uint32), np.zeros(64, np.uint32)
    launch("".join((START, *lines)), data, flags, grid=grid, block=block, run=run, **options)
    return [hazard.kind for hazard in run.hazards]


RIGHT = {
    "each its own": ((NEXT, "st.global.u32 [%rd6], %r1; ld.global.u32 %r9, [%rd6]; st.global.u32 [%rd6], %r9;\n"), {}),
    "all read the same": (("ld.global.u32 %r9, [%rd1];\n",), {}),
    "all add": (("red.global.add.u32 [%rd1], 1;\n",), {}),
    "lanes of a warp write the same word": (("@%p2 st.global.u32 [%rd1], %r1;\n",), {"block": 32}),
    "a barrier within the CTA": ((OTHER, FILL, BARRIER, "ld.global.u32 %r9, [%rd5];\n"), {"grid": 1}),
    "a flag, released and acquired": ((FILL, BARRIER, SEND, spin("ld.acquire.gpu.global.u32"), TAKE), {}),
    "a flag that one thread acquires, then a barrier": (
        (FILL, BARRIER, SEND, one_spins("ld.acquire.gpu.global.u32"), BARRIER, TAKE),
        {},
    ),
    "fences and relaxed accesses": (
        (
            FILL,
            BARRIER,
            FENCE,
            "@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n",
            spin("ld.relaxed.gpu.global.u32"),
            FENCE,
            TAKE,
        ),
        {},
    ),
    "membar and volatile accesses": (
        (
            FILL,
            BARRIER,
            "membar.gl;\n",
            "@%p3 st.volatile.global.u32 [%rd2], 1;\n",
            spin("ld.volatile.global.u32"),
            "membar.gl;\n",
            TAKE,
        ),
        {},
    ),
    "fences with .sc of other threads than those of the flag": (beyond_barriers("membar.gl;\n", "fence.sc.sys;\n"), {}),
    "a flag raised by an atomic": (
        (FILL, BARRIER, "@%p3 red.release.gpu.global.add.u32 [%rd2], 1;\n", spin("ld.acquire.gpu.global.u32"), TAKE),
        {},
    ),
    "a release that others have added to": (
        (
            FILL,
            BARRIER,
            SEND,
            one_spins("ld.relaxed.gpu.global.u32"),
            "@%p1 red.relaxed.gpu.global.add.u32 [%rd2], 1;\n",
            "GO: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.lt.u32 %p4, %r8, 3; @%p4 bra GO;\n",
            TAKE,
        ),
        {},
    ),
    "all CTAs meet": (
        (NEXT, "st.global.u32 [%rd6], %r1;\n", BARRIER, GRID, "ld.global.u32 %r9, [%rd5];\n"),
        {"grid": 4},
    ),
    "a lock": ((LOCK.replace("UNLOCK", "st.release.gpu.global.u32 [%rd2], 0;"),), {"grid": 2, "block": 2}),
    "a lock opened by an atomic": (
        (LOCK.replace("UNLOCK", "atom.release.gpu.global.exch.b32 %r8, [%rd2], 0;"),),
        {"grid": 2, "block": 2},
    ),
    "what one CTA acquired it releases on": (
        (
            FILL,
            BARRIER,
            SEND,
            """
@%p2 bra ON; @!%p1 bra ON; setp.eq.u32 %p5, %r2, 1; @%p5 bra ONE;
TWO: ld.acquire.gpu.global.u32 %r8, [%rd2+4]; setp.eq.u32 %p4, %r8, 0; @%p4 bra TWO;
bra ON;
ONE: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.eq.u32 %p4, %r8, 0; @%p4 bra ONE;
st.release.gpu.global.u32 [%rd2+4], 1;
ON:
""",
            BARRIER,
            "setp.eq.u32 %p6, %r2, 2; @%p6 ld.global.u32 %r9, [%rd4];\n",
        ),
        {"grid": 3},
    ),
    "read, then written in order": (
        (
            "@!%p2 ld.global.u32 %r9, [%rd4];\n",
            BARRIER,
            "@%p2 bra ON; @!%p1 bra ON; st.release.gpu.global.u32 [%rd2], 1; ON:\n",
            "@!%p3 bra GO; BACK: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.eq.u32 %p4, %r8, 0; @%p4 bra BACK; GO:\n",
            BARRIER,
            FILL,
        ),
        {},
    ),
    "the last of those who take a number stores": (
        (TICKET, "setp.eq.u32 %p5, %r8, 3; and.pred %p5, %p5, %p1; @%p5 st.global.u32 [%rd2], 0;\n"),
        {"grid": 4},
    ),
    "the last of those who take a number stores, in another thread": (
        (
            TICKET,
            BARRIER,
            "setp.eq.u32 %p5, %r1, 40; setp.eq.u32 %p6, %r2, 3;\n",
            "and.pred %p5, %p5, %p6; @%p5 st.global.u32 [%rd2], 0;\n",
        ),
        {"grid": 4},
    ),
    "two flags read as vectors of their size": (
        (
            "@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n",
            "@!%p2 ld.relaxed.gpu.global.v2.u32 {%r8, %r9}, [%rd2];\n",
        ),
        {},
    ),
    "a value of 16 bytes with its state": (
        (
            "@%p3 st.relaxed.gpu.global.v2.u64 [%rd2], {%rd1, %rd1};\n",
            "@!%p2 ld.relaxed.gpu.global.v2.u64 {%rd8, %rd9}, [%rd2];\n",
        ),
        {},
    ),
    "atomics of two sizes": (
        ("@%p2 red.global.add.u64 [%rd2], 1;\n", "@!%p2 atom.global.or.b32 %r8, [%rd2+4], 1;\n"),
        {},
    ),
    "two sizes in order": (
        (
            "@%p3 st.relaxed.gpu.global.u32 [%rd1], 1;\n",
            SEND,
            one_spins("ld.acquire.gpu.global.u32"),
            "@%p2 bra OUT; @%p1 ld.relaxed.gpu.global.u64 %rd8, [%rd1]; OUT:\n",
        ),
        {},
    ),
    "read only through the cache that is not coherent": (("ld.global.nc.u32 %r9, [%rd1];\n",), {}),
}

WRONG = {
    "two CTAs write the same": (("st.global.u32 [%rd4], %r1;\n",), {}, "unordered-write"),
    "two warps write the same": (("@%p2 st.global.u32 [%rd1], %r1;\n",), {}, "unordered-write"),
    "lanes of a warp write the same word, and again": (
        ("mov.u32 %r5, 2;\nMORE: @%p2 st.global.u32 [%rd1], %r1;\n", AGAIN),
        {"block": 32},
        "unordered-write",
    ),
    "one CTA reads what another writes": ((FILL, TAKE), {}, "unordered-read"),
    "one CTA writes what another reads": ((TAKE, FILL), {}, "unordered-write"),
    "no barrier within the CTA": (
        (OTHER, FILL, "ld.global.u32 %r9, [%rd5];\n"),
        {"grid": 1},
        "unordered-read",
    ),
    "an atomic beside a store": (
        ("@%p2 st.global.u32 [%rd4], 1;\n", "@!%p2 red.global.add.u32 [%rd4], 1;\n"),
        {},
        "unordered-write",
    ),
    "a flag that is not released": (
        (FILL, BARRIER, SEND.replace("release", "relaxed"), spin("ld.acquire.gpu.global.u32"), TAKE),
        {},
        "too-weak-semantics",
    ),
    "a fence with .sc before, of other threads than the flag's": (
        beyond_barriers("membar.gl;\n", FENCE),
        {},
        "too-weak-semantics",
    ),
    "a fence with .sc after, of other threads than the flag's": (
        beyond_barriers(FENCE, "membar.gl;\n"),
        {},
        "too-weak-semantics",
    ),
    "fences with .sc of other threads than the flag's, one of its CTA's scope": (
        beyond_barriers("membar.cta;\n", "membar.gl;\n"),
        {},
        "unordered-read",
    ),
    "fences with .sc of other threads than the flag's, read in its CTA's scope": (
        beyond_barriers("membar.gl;\n", "membar.gl;\n", "ld.relaxed.cta.global.u32"),
        {},
        "unordered-read",
    ),
    "a flag that is not acquired": (
        (FILL, BARRIER, SEND, spin("ld.relaxed.gpu.global.u32"), TAKE),
        {},
        "too-weak-semantics",
    ),
    "a plain flag": (
        (FILL, BARRIER, "@%p3 st.global.u32 [%rd2], 1;\n", spin("ld.acquire.gpu.global.u32"), TAKE),
        {},
        "unordered-read",
    ),
    "a release of one CTA's scope": (
        (FILL, BARRIER, SEND.replace("gpu", "cta"), spin("ld.acquire.gpu.global.u32"), TAKE),
        {},
        "too-narrow-scope",
    ),
    "an acquire of one CTA's scope": (
        (FILL, BARRIER, SEND, spin("ld.acquire.cta.global.u32"), TAKE),
        {},
        "too-narrow-scope",
    ),
    "no barrier before the release": ((FILL, SEND, spin("ld.acquire.gpu.global.u32"), TAKE), {}, "unordered-read"),
    "no barrier after the acquire": (
        (FILL, BARRIER, SEND, one_spins("ld.acquire.gpu.global.u32"), TAKE),
        {},
        "unordered-read",
    ),
    "a release broken by a store": (
        (
            FILL,
            BARRIER,
            SEND,
            one_spins("ld.relaxed.gpu.global.u32"),
            "@!%p2 st.relaxed.gpu.global.u32 [%rd2], 3;\n",
            "GO: ld.acquire.gpu.global.u32 %r8, [%rd2]; setp.lt.u32 %p4, %r8, 3; @%p4 bra GO;\n",
            TAKE,
        ),
        {"block": 32},
        "too-weak-semantics",
    ),
    "fences on one side": (
        (FILL, BARRIER, FENCE, "@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n", spin("ld.relaxed.gpu.global.u32"), TAKE),
        {},
        "too-weak-semantics",
    ),
    "a fence before the barrier": (
        (FILL, FENCE, BARRIER, "@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n", spin("ld.acquire.gpu.global.u32"), TAKE),
        {},
        "too-weak-semantics",
    ),
    "all CTAs meet, one writes on": (
        (
            NEXT,
            "st.global.u32 [%rd6], %r1;\n",
            BARRIER,
            GRID,
            "st.global.u32 [%rd6], %r1; ld.global.u32 %r9, [%rd5];\n",
        ),
        {"grid": 4},
        "unordered-read",
    ),
    "all CTAs meet, without a fence": (
        (NEXT, "st.global.u32 [%rd6], %r1;\n", BARRIER, GRID.replace(FENCE, ""), "ld.global.u32 %r9, [%rd5];\n"),
        {"grid": 4},
        "too-weak-semantics",
    ),
    "a lock that is not released": (
        (LOCK.replace("UNLOCK", "st.relaxed.gpu.global.u32 [%rd2], 0;"),),
        {"grid": 2, "block": 2},
        "too-weak-semantics",
    ),
    "a lock that is not acquired": (
        (LOCK.replace("acquire", "relaxed").replace("UNLOCK", "st.release.gpu.global.u32 [%rd2], 0;"),),
        {"grid": 2, "block": 2},
        "too-weak-semantics",
    ),
    "the first of those who take a number stores": (
        (TICKET, "setp.eq.u32 %p5, %r8, 0; and.pred %p5, %p5, %p1; @%p5 st.global.u32 [%rd2], 0;\n"),
        {"grid": 4},
        "unordered-write",
    ),
    "the last of those who take a number stores to another thread's data": (
        (FILL, TICKET, "setp.eq.u32 %p5, %r8, 3; and.pred %p5, %p5, %p1; @%p5 st.global.u32 [%rd1], 0;\n"),
        {"grid": 4},
        "too-weak-semantics",
    ),
    "two flags read as one": (
        ("@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n", "@!%p2 ld.relaxed.gpu.global.u64 %rd8, [%rd2];\n"),
        {},
        "partial-overlap",
    ),
    "two flags written as one": (
        ("@!%p2 ld.relaxed.gpu.global.u32 %r8, [%rd2+4];\n", "@%p3 st.relaxed.gpu.global.u64 [%rd2], %rd1;\n"),
        {},
        "partial-overlap",
    ),
    "a vector beside one of other elements": (
        (
            "@%p3 st.relaxed.gpu.global.v4.u32 [%rd2], {%r1, %r1, %r1, %r1};\n",
            "@!%p2 ld.relaxed.gpu.global.v2.u64 {%rd8, %rd9}, [%rd2];\n",
        ),
        {},
        "partial-overlap",
    ),
    "an atomic over two flags": (
        ("@%p3 st.relaxed.gpu.global.u32 [%rd2], 1;\n", "@!%p2 atom.global.cas.b64 %rd8, [%rd2], 0, 1;\n"),
        {},
        "partial-overlap",
    ),
    "a pair of halves beside the word": (
        (
            "@%p2 mov.u32 %r8, 0;\n@%p2 red.global.add.noftz.f16x2 [%rd2], %r8;\n",
            "@!%p2 ld.relaxed.gpu.global.u32 %r9, [%rd2];\n",
        ),
        {},
        "partial-overlap",
    ),
    "two sizes, and a scope that is too narrow": (
        ("@%p3 st.relaxed.cta.global.u32 [%rd2], 1;\n", "@!%p2 ld.relaxed.gpu.global.u64 %rd8, [%rd2];\n"),
        {},
        "too-narrow-scope",
    ),
    "written, then read through the cache that is not coherent": (
        (FILL, "@%p2 ld.global.nc.u32 %r9, [%rd4];\n"),
        {"grid": 1},
        "non-coherent-read",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_reported(name):
    lines, options = RIGHT[name]
    assert hazards_of(*lines, **options) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    lines, options, kind = WRONG[name]
    assert any(found.startswith(kind) for found in hazards_of(*lines, **options))


DISCARD = "@%p3 discard.global.L2 [%rd1], 128;\n"
EACH = "setp.lt.u32 %p5, %r1, 32; and.pred %p5, %p5, %p2;\n"


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ((DISCARD,), []),
        ((FILL, DISCARD), ["unordered-write"]),
        ((FILL, BARRIER, DISCARD), []),
        ((DISCARD, BARRIER, EACH, "@%p5 ld.global.u32 %r9, [%rd4];\n"), ["uninitialised-read"]),
        ((DISCARD, BARRIER, EACH, "@%p5 ld.global.u32 %r9, [%rd4+128];\n"), []),
        ((DISCARD, BARRIER, EACH, "@%p5 st.global.u32 [%rd4], %r1;\n@%p5 ld.global.u32 %r9, [%rd4];\n"), []),
    ],
)
def test_what_is_discarded_is_undefined_until_it_is_written(lines, kinds):
    """PTX ISA, "discard": as a weak write of an unstable indeterminate value."""
    at_128 = "add.u64 %rd1, %rd1, 127; and.b64 %rd1, %rd1, -128; add.u64 %rd4, %rd1, %rd3;\n"
    assert hazards_of(at_128, *lines) == kinds
