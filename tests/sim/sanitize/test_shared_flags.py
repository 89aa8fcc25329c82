"""Flags and locks in shared memory: what orders there besides barriers."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; add.u32 %r5, %r1, 1024;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 32; xor.b32 %r6, %r3, 128; add.u32 %r6, %r6, %r1;
@%p1 st.shared.u32 [%r5], 0; bar.sync 0;
"""
SEND = """@!%p2 bra TAKE;
st.shared.u32 [%r4], 7;
bar.warp.sync 0xffffffff;
@%p1 st.release.cta.shared.u32 [%r5], 1;
bra END;
TAKE: ld.acquire.cta.shared.u32 %r8, [%r5]; setp.eq.u32 %p4, %r8, 0; @%p4 bra TAKE;
ld.shared.u32 %r9, [%r6];
END:
"""
LOCK = """and.b32 %r20, %r2, 31; setp.ne.u32 %p9, %r20, 0; @%p9 bra OUT;
LOCK: atom.acquire.cta.shared.cas.b32 %r8, [%r5], 0, 1; setp.ne.u32 %p4, %r8, 0; @%p4 bra LOCK;
@%p1 st.shared.u32 [%r1], 0;
st.shared.u32 [%r1+512], %r2; ld.shared.u32 %r9, [%r1+512]; add.u32 %r9, %r9, 1; st.shared.u32 [%r1+512], %r9;
st.release.cta.shared.u32 [%r5], 0;
OUT:
"""
"""Of one lane of each warp."""
PEER = """mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p5, %r10, 0; mapa.shared::cluster.u32 %r11, %r5, 1;
mapa.shared::cluster.u32 %r12, %r4, 1;
barrier.cluster.arrive; barrier.cluster.wait;
@!%p5 bra TAKE;
st.shared::cluster.u32 [%r12], 7;
bar.sync 0;
@%p1 st.release.cluster.shared::cluster.u32 [%r11], 1;
bra END;
TAKE: ld.acquire.cluster.shared.u32 %r8, [%r5]; setp.eq.u32 %p4, %r8, 0; @%p4 bra TAKE;
ld.shared.u32 %r9, [%r4];
END:
barrier.cluster.arrive; barrier.cluster.wait;
"""
TWO = """@!%p2 bra TAKE;
{first}
bra END;
TAKE: {second}
END:
{third}
"""


def two(first, second, third=""):
    """Let one warp do something, the other something else, and then both."""
    return TWO.format(first=first, second=second, third=third)


STORE = "@%p1 st.relaxed.cta.shared.u32 [%r5], 1;"


def hazards_of(body, **options):
    """Run a kernel, and return the kinds of what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    launch(START + body, np.zeros(64, np.uint32), smem_bytes=2048, run=run, **{"block": 64, **options})
    return [hazard.kind for hazard in run.hazards]


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (SEND, {}),
        (LOCK, {}),
        (PEER, {"grid": 2, "cluster": 2}),
        (SEND.replace("cta", "gpu"), {}),
        (two(STORE, "ld.relaxed.cta.shared.u32 %r8, [%r5];"), {}),
        (two(STORE, "", "bar.sync 0; ld.relaxed.cta.shared.u16 %rs1, [%r5];"), {}),
        (two("@%p1 red.shared.add.u32 [%r5], 1;", "atom.shared.or.b64 %rd8, [%r5], 1;"), {}),
    ],
    ids=["a flag", "a lock", "a flag in a peer", "a wider scope", "one size", "two sizes in order", "two atomics"],
)
def test_what_is_right_is_not_reported(body, options):
    assert hazards_of(body, **options) == []


@pytest.mark.parametrize(
    ("body", "options", "kind"),
    [
        (SEND.replace("release", "relaxed"), {}, "too-weak-semantics"),
        (SEND.replace("acquire", "relaxed"), {}, "too-weak-semantics"),
        (SEND.replace("bar.warp.sync 0xffffffff;", ""), {}, "unordered-read"),
        (LOCK.replace("st.release.cta", "st.relaxed.cta"), {}, "too-weak-semantics"),
        (LOCK.replace("atom.acquire.cta", "atom.relaxed.cta"), {}, "too-weak-semantics"),
        (PEER.replace("st.release.cluster", "st.release.cta"), {"grid": 2, "cluster": 2}, "too-narrow-scope"),
        (PEER.replace("ld.acquire.cluster", "ld.acquire.cta"), {"grid": 2, "cluster": 2}, "too-narrow-scope"),
        (PEER.replace("ld.acquire.cluster", "ld.relaxed.cluster"), {"grid": 2, "cluster": 2}, "too-weak-semantics"),
        (two(STORE, "ld.relaxed.cta.shared.u16 %rs1, [%r5];"), {}, "partial-overlap"),
        (two(STORE, "ld.volatile.shared.u64 %rd8, [%r5];"), {}, "partial-overlap"),
        (two(STORE, "atom.shared.or.b64 %rd8, [%r5], 1;"), {}, "partial-overlap"),
        (
            two(STORE.replace("u32", "u64").replace(", 1;", ", %rd1;"), "ld.relaxed.cta.shared.u64 %rd8, [%r5];")
            + "@!%p2 ld.relaxed.cta.shared.u32 %r8, [%r5];",
            {},
            "partial-overlap",
        ),
    ],
)
def test_what_is_wrong_is_found(body, options, kind):
    assert kind in hazards_of(body, **options)


@pytest.mark.parametrize(("readers", "kinds"), [(60, {"unordered-write"}), (96, set())], ids=["told", "not certified"])
@pytest.mark.parametrize(
    ("space", "place"),
    [("shared", "mov.u64 %rd1, smem;"), ("global", "ld.param.u64 %rd1, [p0];")],
    ids=["shared", "global"],
)
def test_of_many_readers_all_must_be_met_or_there_is_no_certificate(space, place, readers, kinds):
    run = Run((), None, sanitize=True)
    first = f"setp.eq.u32 %p1, %r2, 0;\n@%p1 st.{space}.u32 [%rd1], 1; bar.sync 0;\n"
    start = f"{place} mov.u32 %r2, %tid.x; {first}"
    read = f"setp.eq.u32 %p2, %r2, {{}}; @%p2 ld.{space}.u32 %r7, [%rd1];\n"
    others = "setp.lt.u32 %p2, %r2, 32; @%p2 bra END; bar.sync 1, 96;\n"
    write = f"setp.eq.u32 %p2, %r2, 96; @%p2 st.{space}.u32 [%rd1], 2;\nEND:\n"
    body = "".join((start, *map(read.format, range(readers)), others, write))
    launch(body, np.zeros(4, np.uint32), block=128, smem_bytes=64, run=run)
    assert {hazard.kind for hazard in run.hazards} == kinds
    assert ("forgotten" in run.certificates[0].reasons[0]) == (not kinds)
