"""Certificates of kernels whose MMAs are of two CTAs, and of what warps do to allocations of tensor memory."""

import numpy as np
import pytest

from cutepy import load_ptx, simulate
from cutepy.layouts.sm100 import InstrDescriptor, SmemDescriptor
from cutepy.sim import SimulationError

# Both CTAs of a pair have operands in shared memory. The first one multiplies twice; all warps of both load the sums.
PAIR = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 out, .param .u32 word, .param .u64 a, .param .u64 b)
.reqntid 128 .explicitcluster .reqnctapercluster 2 {
.reg .b32 %r<20>; .reg .b64 %d<12>; .reg .pred %p<8>; .reg .b16 %h0; .reg .b32 %v<2>;
.shared .align 8 .b64 bar[3]; .shared .align 4 .b32 base;
ld.param.u64 %d0, [out]; ld.param.u32 %r9, [word]; ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.ne.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r0, 0; mov.u32 %r5, bar;
mov.u32 %r2, s; shr.u32 %r3, %r2, 4; and.b32 %r3, %r3, 0x3fff; cvt.u64.u32 %d3, %r3; add.u64 %d1, %d1, %d3;
add.u64 %d2, %d2, %d3; mov.u32 %r10, %cluster_ctarank; setp.ne.u32 %p5, %r10, 0;
@!%p1 bra A; mov.u64 %d5, 8192; st.bulk.weak.shared::cta [%r2], %d5, 0;
mbarrier.init.shared.b64 [%r5], 1; mbarrier.init.shared.b64 [%r5+8], 256; mbarrier.init.shared.b64 [%r5+16], 1;
fence.mbarrier_init.release.cluster; fence.proxy.async;
A: @%p0 bra B; mov.u32 %r6, base; tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r6], 32;
B: bar.sync 0;
// begin
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
// address
ld.shared.u32 %r7, [base];
mapa.shared::cluster.u32 %r8, %r5, 0;
mov.u16 %h0, 3; setp.ne.u32 %p3, %r0, %r0;
not.pred %p6, %p1; or.pred %p6, %p6, %p5; @%p6 bra C;
// first product
tcgen05.mma.cta_group::2.kind::f16 [%r7], %d1, %d2, %r9, %p3;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r5], %h0;
C:
// first wait
D: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r5], 0; @!%p4 bra D;
// first load
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r7]; tcgen05.wait::ld.sync.aligned;
// release
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8+8];
@%p6 bra E;
// acquire
F: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r5+8], 0; @!%p4 bra F;
// second product
tcgen05.mma.cta_group::2.kind::f16 [%r7], %d1, %d2, %r9, %p3;
tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r5+16], %h0;
E:
// second wait
G: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [%r5+16], 0; @!%p4 bra G;
// second load
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r7]; tcgen05.wait::ld.sync.aligned;
bar.sync 0;
// end
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
// free
@%p0 bra H; tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r7, 32;
H: ret; }
"""


def part(name, text=PAIR):
    """Return what stands between a comment and the next one."""
    after = text[text.index(f"// {name}\n") + len(f"// {name}\n") :]
    return after[: after.index("// ")]


def examined(text, policy=None, group=2):
    """Run a kernel; returns whether it is certified, and the kinds and the reasons against that."""
    word = int(InstrDescriptor("f16", 128 * group, 16 * group))
    a, b = (int(SmemDescriptor(start, 16, 256, layout_type=6)) for start in (0, 4096))
    try:
        with simulate(sanitize=True, policy=policy) as run:
            load_ptx(text).launch("k", 2, 128, [np.zeros(128, np.uint32), word, a, b], smem=8192, cluster=2)
    except SimulationError:
        pass
    hazards = {hazard.kind for hazard in run.hazards}
    certificate = next(iter(run.certificates), None)
    is_certified = certificate is not None and certificate.is_certified
    return is_certified, hazards, "" if certificate is None else " ".join(certificate.reasons)


pytestmark = pytest.mark.filterwarnings("ignore::cutepy.sim.AdvisoryWarning")
POLICIES = (None, "late", "youngest", "schedule:1")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_right_kernel_is_certified(policy):
    assert examined(PAIR, policy) == (True, set(), "")


REMOTE = ".shared::cluster.multicast::cluster.b64 [%r5], %h0;"
SECOND = ".shared::cluster.multicast::cluster.b64 [%r5+16], %h0;"
MISTAKES = {
    "no barrier of the cluster before the first product": (
        "// begin\n" + part("begin"),
        "// begin\n",
        {"unordered-read"},
    ),
    "the peer loads before the commit": (
        part("first wait"),
        f"@%p5 bra X; {part('first wait')} X:",
        {"unordered-read"},
    ),
    "a commit at the barrier of the second product": (
        REMOTE,
        ".shared::cluster.multicast::cluster.b64 [%r5+16], %h0;\nmbarrier.arrive.shared.b64 _, [%r5]; "
        "mapa.shared::cluster.u32 %r11, %r5, 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];",
        {"unordered-read", "early-arrival"},
    ),
    "the accumulator is overwritten while the peer loads": (part("acquire"), "", {"unordered-write"}),
    "only warps of the first CTA say that they have loaded": (
        part("release"),
        "@%p5 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8+8]; @%p6 bra E;\n",
        None,
    ),
    "the peer releases before it loads": (
        part("first load") + "// release\n" + part("release"),
        part("release").replace("@%p6 bra E;", "") + part("first load") + "@%p6 bra E;\n",
        {"unordered-write"},
    ),
    "an arrival of scope .cta": (
        part("release"),
        part("release").replace("release.cluster.shared::cluster", "relaxed.cluster.shared::cluster"),
        {"unordered-write"},
    ),
    "freed while the second product runs": (
        part("second wait") + "// second load\n" + part("second load"),
        "",
        {"unordered-write", "exited-peer", "in-flight-at-exit"},
    ),
    "freed while warps of the own CTA load": ("bar.sync 0;\n// end\n" + part("end"), "", {"unordered-write"}),
    "the peer ends before the second commit arrives": (
        part("second wait"),
        f"@%p5 bra Y; {part('second wait')} Y:",
        {"unordered-read"},
    ),
    "the answer of the second commit is waited for by nobody": (
        part("second wait") + "// second load\n" + part("second load") + "// end\n" + part("end"),
        "",
        {"unordered-write", "exited-peer", "in-flight-at-exit"},
    ),
    "the address is read before it is there": ("B: bar.sync 0;\n// begin\n" + part("begin"), "B:", {"unordered-read"}),
}


@pytest.mark.first(len(MISTAKES))
@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_mistake_is_certified(name, policy):
    right, wrong, kinds = MISTAKES[name]
    assert PAIR.count(right) == 1
    is_certified, found, _ = examined(PAIR.replace(right, wrong), policy)
    assert not is_certified
    assert kinds is None or policy is not None or kinds & found


ALONE = PAIR.replace("cta_group::2", "cta_group::1")
"""Each CTA has tensor memory of its own, and the commits of the first one arrive at both."""
LEAVES = f"@%p5 bra Y; {part('second wait')} Y:"


@pytest.mark.first(1)
@pytest.mark.parametrize("policy", POLICIES)
def test_commits_arrive_before_a_peer_ends(policy):
    """It waits for the last one, or for a barrier of the cluster behind it."""
    end = "// end\n" + part("end")
    assert examined(ALONE, policy, 1)[:2] == (True, set())
    assert examined(ALONE.replace(end, "// end\n"), policy, 1)[:2] == (True, set())
    assert examined(ALONE.replace(part("second wait"), LEAVES), policy, 1)[:2] == (True, set())
    is_certified, found, _ = examined(ALONE.replace(part("second wait"), LEAVES).replace(end, "// end\n"), policy, 1)
    assert (is_certified, found) == (False, {"exited-peer"})
