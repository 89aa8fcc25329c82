"""A release and an acquire between two CTAs, with fences of two scopes and writes of two sizes."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

TWO = """mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; ld.param.u64 %rd1, [p0]; setp.ne.u32 %p1, %r2, 0; @%p1 bra END;
setp.eq.u32 %p2, %r3, 1; @%p2 bra SEE;
st.global.u32 [%rd1+256], 7; {raises} bra END;
SEE: ld.{how}.gpu.global.{type} {to}, [%rd1]; setp.ne.{type} %p3, {to}, {value}; @%p3 bra SEE;
{fences} ld.global.u32 %r9, [%rd1+256]; st.global.u32 [%rd1+512], %r9;
END:
"""


def hazards_of(raises, fences="", how="relaxed", kind="u32", value=1):
    """Let one CTA write and raise a flag, and another one see it and read."""
    to = "%r8" if kind == "u32" else "%rd8"
    body = TWO.format(raises=raises, fences=fences, how=how, type=kind, to=to, value=value)
    run = Run((), None, sanitize=True)
    launch(body, np.zeros(256, np.uint32), grid=2, run=run)
    return [hazard.kind for hazard in run.hazards]


RELEASE = "st.release.gpu.global.u32 [%rd1], 1;"
CTA, GPU = "fence.acq_rel.cta; ", "fence.acq_rel.gpu; "


@pytest.mark.parametrize("fences", [GPU, CTA + GPU, "membar.cta; membar.gl; ", GPU + CTA])
def test_what_a_narrow_fence_leaves_a_wider_one_acquires(fences):
    assert hazards_of(RELEASE, fences) == []


RELAXED = "st.relaxed.gpu.global.u32 [%rd1], 1;"


@pytest.mark.parametrize(
    "raises",
    [
        GPU + CTA + RELAXED,
        "membar.gl; membar.cta; red.global.add.u32 [%rd1], 1;",
        GPU + CTA + CTA + RELAXED,
        RELEASE.replace("1;", "2;") + CTA + RELAXED,
    ],
)
def test_what_a_wide_fence_releases_a_narrower_one_leaves(raises):
    assert hazards_of(raises, how="acquire") == []
    assert (
        hazards_of(
            raises.replace(".gpu; ", ".cta; ").replace("membar.gl", "membar.cta").replace(".release", ".relaxed"),
            how="acquire",
        )
        != []
    )


def test_what_comes_between_two_fences_only_the_narrower_one_releases():
    between = GPU + "st.global.u32 [%rd1+256], 8; " + CTA + RELAXED
    assert hazards_of(between, how="acquire") != []


def test_a_read_behind_a_fence_releases_nothing():
    assert hazards_of(RELAXED + GPU + "ld.relaxed.gpu.global.u32 %r10, [%rd1];", GPU) != []
    assert hazards_of(RELAXED + GPU + "atom.relaxed.gpu.global.add.u32 %r10, [%rd1], 0;", GPU) == []


@pytest.mark.parametrize("fences", ["", CTA, CTA + CTA])
def test_narrow_fences_do_not_acquire_what_another_cta_releases(fences):
    assert hazards_of(RELEASE, fences) != []


def test_a_release_of_another_size_begins_no_pattern():
    """PTX ISA, "Release and Acquire Patterns": a strong write there, and one of another size is elsewhere."""
    again = "st.relaxed.gpu.global.{} [%rd1], {};"
    assert hazards_of(RELEASE + again.format("u32", 2), how="acquire", value=2) == []
    wide = RELEASE.replace("u32", "u64") + again.format("u32", 2)
    assert hazards_of(wide, how="acquire", value=2) != []


PEERS = """mov.u32 %r2, %tid.x; mov.u32 %r3, %cluster_ctarank; ld.param.u64 %rd1, [p0]; mov.u32 %r1, smem;
setp.ne.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r3, 1; @!%p1 mbarrier.init.shared.b64 [%r1], 1;
@!%p1 fence.mbarrier_init.release.cluster; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
mov.u32 %r4, 1; mapa.shared::cluster.u32 %r5, %r1, %r4; @%p2 bra SEE;
@!%p1 st.global.u32 [%rd1+256], 7; {before} {arrive} bra END;
SEE: {wait} {after} @!%p1 ld.global.u32 %r9, [%rd1+256]; @!%p1 st.global.u32 [%rd1+512], %r9;
END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""
CLUSTER = "fence.acq_rel.cluster; "
AT = {
    "mbarrier": (
        "@!%p1 mbarrier.arrive.{}.cluster.shared::cluster.b64 _, [%r5];",
        "WAIT: mbarrier.try_wait.parity.{}.cluster.shared::cta.b64 %p4, [%r1], 0; @!%p4 bra WAIT;",
    ),
    "cluster": (
        "barrier.cluster.arrive.{}.aligned; barrier.cluster.wait.acquire.aligned;",
        "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;",
    ),
}


@pytest.mark.parametrize("at", AT)
@pytest.mark.parametrize("is_released_by_fences", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "is_right"),
    [
        (CLUSTER + CTA, CTA + CLUSTER, True),
        (CTA + CLUSTER, CLUSTER + CTA, True),
        (GPU + CTA + CTA, CTA + CTA + GPU, True),
        (CTA + CTA, CTA + CTA, False),
    ],
)
def test_peers_of_a_cluster_are_shown_by_the_wider_of_two_fences(at, is_released_by_fences, before, after, is_right):
    arrive, wait = AT[at]
    kinds = ("relaxed", "acquire") if is_released_by_fences or at == "cluster" else ("release", "relaxed")
    body = PEERS.format(
        before=before if kinds[0] == "relaxed" else "",
        arrive=arrive.format(kinds[0]),
        wait=wait.format(kinds[1]),
        after=after if kinds[1] == "relaxed" else "",
    )
    run = Run((), None, sanitize=True)
    launch(body, np.zeros(256, np.uint32), grid=2, cluster=(2, 1, 1), block=32, run=run, smem_bytes=64)
    found = {hazard.kind for hazard in run.hazards}
    assert found <= (set() if is_right else {"unordered-read", "too-narrow-scope"})
    assert bool(found) != is_right
