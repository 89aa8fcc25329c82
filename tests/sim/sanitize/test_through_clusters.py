"""Order within a cluster, or a CTA, that goes by way of CTAs of another cluster."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r9, 0;
ld.param.u64 %rd2, [p1]; shr.u32 %r4, %r2, 5; and.b32 %r5, %r2, 31; setp.eq.u32 %p1, %r5, 0;
mapa.shared::cluster.u32 %r6, %r1, 0;
"""
"""r1: shared memory, r6: that of rank 0; rd1: data, rd2: flags; p1: the first lane of each warp."""

WRITE, READ = "st.global.u32 [%rd1], 7;", "ld.global.u32 %r9, [%rd1];"
FILL, TAKE = "st.shared.v4.u32 [%r1], {%r9, %r9, %r9, %r9};", "ld.shared.u32 %r9, [%r1];"
RESTRICTED = "fence.release.sync_restrict::shared::cta.cluster;"
PROXY = "fence.proxy.async;"
PUT = """cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;
cp.async.bulk.commit_group;
"""
PUT_AND_WAIT = PUT + "cp.async.bulk.wait_group 0;"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
MEET_IN_THE_OTHER = "setp.lt.u32 %p2, %r3, 2; @%p2 bra MET;\n" + MEET + "MET:\n"
BARRIER = "bar.sync 0;\n"


def raises(flag, how="release.gpu"):
    """Raise a flag."""
    return f"st.{how}.global.u32 [%rd2+{128 * flag}], 1;"


def sees(flag, how="acquire.gpu"):
    """Wait until a flag is up."""
    return f"AGAIN: ld.{how}.global.u32 %r8, [%rd2+{128 * flag}]; setp.eq.u32 %p4, %r8, 0; @%p4 bra AGAIN;"


def program(*steps):
    """Return a body of what threads do: lines of their CTA, their warp and what its first lane does, or of all."""
    lines = [START]
    for n, step in enumerate(steps):
        if isinstance(step, str):
            lines.append(step)
            continue
        cta, warp, what = step
        text = what.replace("AGAIN", f"AGAIN{n}")
        lines.append(f"""setp.eq.u32 %p2, %r3, {cta}; setp.eq.and.u32 %p2, %r4, {warp}, %p2; and.pred %p2, %p1, %p2;
@!%p2 bra PAST{n};
{text}
PAST{n}:
""")
    return "".join(lines)


def hazards_of(*steps, cluster=2):
    """Run a kernel of four CTAs of two warps, and return the kinds of what the sanitizer finds."""
    run = Run((), None, sanitize=True)
    data, flags = np.zeros(64, np.uint32), np.zeros(128, np.uint32)
    launch(program(*steps), data, flags, grid=4, cluster=cluster, block=64, smem_bytes=1024, run=run)
    return [hazard.kind for hazard in run.hazards]


def by_way_of(first, last, other=2, there=(1, 0), **links):
    """Do something in CTA 0, raise a flag, let another CTA see it and raise a second one, see that and do the last."""
    how = {"raised": "release.gpu", "seen": "acquire.gpu", "raised_on": "release.gpu", "seen_on": "acquire.gpu"} | links
    return (
        (0, 0, first + raises(0, how["raised"])),
        (other, 0, sees(0, how["seen"]) + raises(1, how["raised_on"])),
        (*there, sees(1, how["seen_on"]) + last),
    )


COUNT_IN = """@!%p6 bra MET;
atom.add.acq_rel.gpu.global.u32 %r7, [%rd2], 1; setp.eq.u32 %p2, %r7, 3; @!%p2 bra WAIT;
st.release.gpu.global.u32 [%rd2+128], 1; bra MET;
WAIT: ld.acquire.gpu.global.u32 %r8, [%rd2+128]; setp.eq.u32 %p4, %r8, 0; @%p4 bra WAIT;
MET: bar.sync 0;
"""
EACH = "setp.eq.u32 %p6, %r2, 0; mul.wide.u32 %rd3, %r3, 4; add.u64 %rd3, %rd1, %rd3; @%p6 st.global.u32 [%rd3], %r3;\n"
NEIGHBOUR = """xor.b32 %r10, %r3, 1; mul.wide.u32 %rd4, %r10, 4; add.u64 %rd4, %rd1, %rd4;
@%p6 ld.global.u32 %r9, [%rd4];
"""

RIGHT = {
    "a write, then a read": by_way_of(WRITE, READ),
    "a read, then a write": by_way_of(READ, WRITE),
    "a write, then a write": by_way_of(WRITE, WRITE),
    "back to the CTA itself": by_way_of(WRITE, READ, there=(0, 1)),
    "shared memory": by_way_of(FILL, TAKE, there=(0, 1)),
    "shared memory that is read first": (
        *((cta, 0, FILL) for cta in range(4)),
        MEET,
        *by_way_of(TAKE, FILL, there=(0, 1)),
    ),
    "shared memory of a peer": (
        MEET,
        (1, 0, "st.shared::cluster.u32 [%r6], 7;" + raises(0)),
        (2, 0, sees(0) + raises(1)),
        (0, 0, sees(1) + TAKE),
        MEET,
    ),
    "by way of two": (
        (0, 0, WRITE + raises(0)),
        (2, 0, sees(0) + raises(1)),
        (3, 0, sees(1) + raises(2)),
        (1, 0, sees(2) + READ),
    ),
    "there and back twice": (
        *by_way_of(WRITE, raises(2)),
        (2, 0, sees(2) + raises(3)),
        (0, 1, sees(3) + READ),
    ),
    "barriers between": (
        (0, 1, WRITE),
        BARRIER,
        (0, 0, raises(0)),
        (2, 0, sees(0)),
        MEET_IN_THE_OTHER,
        (3, 0, raises(1)),
        (1, 0, sees(1)),
        BARRIER,
        (1, 1, READ),
    ),
    "a neighbour hears of it first, in its scope": (
        (0, 0, WRITE + raises(2, "release.cta")),
        (0, 1, sees(2, "acquire.cta") + raises(0)),
        (2, 0, sees(0) + raises(1)),
        (1, 0, sees(1) + READ),
    ),
    "fences": by_way_of(
        WRITE + "fence.acq_rel.gpu;",
        "fence.acq_rel.gpu;" + READ,
        raised="relaxed.gpu",
        seen_on="relaxed.gpu",
    ),
    "fences in the other cluster": (
        (0, 0, WRITE + raises(0)),
        (2, 0, sees(0, "relaxed.gpu") + "fence.acq_rel.gpu;" + raises(1, "relaxed.gpu")),
        (1, 0, sees(1) + READ),
    ),
    "a bulk store of what its writer has fenced": by_way_of(FILL + PROXY, PUT_AND_WAIT, there=(0, 1)),
    "a bulk store of what the reader has fenced": by_way_of(FILL, PROXY + PUT_AND_WAIT, there=(0, 1)),
    "a bulk store that was waited for": by_way_of(FILL + PROXY + PUT_AND_WAIT, READ),
    "all CTAs meet": (EACH, COUNT_IN, NEIGHBOUR),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("cluster", [1, 2])
def test_what_is_right_is_not_reported(name, cluster):
    if "peer" in name or "barriers" in name:
        cluster = 2
    assert hazards_of(*RIGHT[name], cluster=cluster) == []


LINKS = {"raised": "release", "seen": "acquire", "raised_on": "release", "seen_on": "acquire"}
TOO_WEAK = [
    *((link, f"{how}.{scope}") for link, how in LINKS.items() for scope in ("cta", "cluster")),
    *((link, "relaxed.gpu") for link in LINKS),
]


@pytest.mark.parametrize(("link", "how"), TOO_WEAK)
@pytest.mark.parametrize(
    ("first", "last", "there", "kind"),
    [
        (WRITE, READ, (1, 0), "unordered-read"),
        (READ, WRITE, (1, 0), "unordered-write"),
        (WRITE, READ, (0, 1), "unordered-read"),
        (FILL, TAKE, (0, 1), "unordered-read"),
    ],
    ids=["write and read", "read and write", "the CTA itself", "shared memory"],
)
def test_each_link_needs_its_semantics_and_a_scope_that_has_both(link, how, first, last, there, kind):
    found = hazards_of(*by_way_of(first, last, there=there, **{link: how}))
    assert kind in found or "too-narrow-scope" in found


WRONG = {
    "the second flag is raised before the first is seen": (
        ((0, 0, WRITE + raises(0)), (2, 0, raises(1) + sees(0)), (1, 0, sees(1) + READ)),
        "unordered-read",
    ),
    "the first flag is raised too early": (
        ((0, 0, raises(0) + WRITE), (2, 0, sees(0) + raises(1)), (1, 0, sees(1) + READ)),
        "unordered-read",
    ),
    "what the other cluster has heard was sent before": (
        (
            (0, 0, raises(0)),
            (2, 0, sees(0) + raises(1)),
            (0, 0, sees(1, "relaxed.gpu") + WRITE + raises(2)),
            (3, 0, sees(2) + raises(3, "relaxed.gpu")),
            (1, 0, sees(3, "relaxed.gpu") + sees(1).replace("AGAIN", "AGAIN_") + READ),
        ),
        "unordered-read",
    ),
    "another thread raises the flag": (
        ((0, 1, WRITE), (0, 0, raises(0)), (2, 0, sees(0) + raises(1)), (1, 0, sees(1) + READ)),
        "unordered-read",
    ),
    "another thread passes it on": (
        ((0, 0, WRITE + raises(0)), (2, 0, sees(0)), (2, 1, raises(1)), (1, 0, sees(1) + READ)),
        "unordered-read",
    ),
    "another thread reads": (
        ((0, 0, WRITE + raises(0)), (2, 0, sees(0) + raises(1)), (1, 0, sees(1)), (1, 1, READ)),
        "unordered-read",
    ),
    "the last release is of shared memory only, after one of all": (
        (
            (2, 0, WRITE + raises(0)),
            (0, 0, sees(0) + raises(1)),
            (3, 0, sees(1) + raises(2, "relaxed.gpu")),
            (0, 0, sees(2, "relaxed.gpu") + RESTRICTED + raises(3, "relaxed.cluster")),
            (1, 0, sees(3, "acquire.cluster") + READ),
        ),
        "too-narrow-scope",
    ),
    "a bulk store of what nobody has fenced": (by_way_of(FILL, PUT_AND_WAIT, there=(0, 1)), "missing-proxy-fence"),
    "a bulk store of what the other cluster has fenced": (
        (
            (0, 0, FILL + raises(0)),
            (2, 0, sees(0) + PROXY + raises(1)),
            (0, 1, sees(1) + PUT_AND_WAIT),
        ),
        "missing-proxy-fence",
    ),
    "a bulk store that is not waited for": (by_way_of(FILL + PROXY + PUT, READ), "unordered-read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(name):
    steps, kind = WRONG[name]
    assert kind in hazards_of(*steps)
