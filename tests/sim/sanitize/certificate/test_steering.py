"""Values that depend on the schedule, and where they may go."""

import pytest

from cutepy.sim.sanitize.certificate.steering import steering, steering_stores
from cutepy.sim.sanitize.order.tries import tries
from cutepy.sim.sanitize.order.uses import Uses
from cutepy.sim.translate import Kernel

TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.extern .func (.param .b64 r) malloc (.param .b64 s);
.func foo() {{ ret; }}
.func bar() {{ ret; }}
.visible .entry kernel(.param .u64 p0)
{{
.reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
ld.param.u64 %rd1, [p0]; mov.u32 %r1, smem;
{body}
ret;
}}
"""


def flow_of(body):
    return Kernel(TEXT.format(body=body), "kernel").flow


def found_in(body):
    flow = flow_of(body)
    uses = Uses(flow)
    return [(one.value, one.role) for one in steering(flow, uses, tries(flow, uses))]


BRANCH = "setp.eq.u32 %p1, {}, 0; @%p1 bra SKIP; st.global.u32 [%rd1], %r1; SKIP:"
SHOWN = "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128; "
MAPPED = (
    "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1+1024], [%rd1, {%r4}], [%r1];"
)
STORED = "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd1, {%r4}], [%r1];"
STEERS = {
    "an atomic's result as a branch": (
        "atom.global.add.u32 %r2, [%rd1], 1;" + BRANCH.format("%r2"),
        ("the result of an atomic", "a branch"),
    ),
    "the SM as an address": (
        "mov.u32 %r2, %smid; add.u32 %r3, %r1, %r2; ld.shared.u32 %r4, [%r3];",
        ("the number of the SM", "an address"),
    ),
    "a clock, through a predicate": (
        "mov.u32 %r2, %clock; setp.lt.u32 %p2, %r2, 9; selp.b32 %r3, 1, 0, %p2; bar.sync %r3;",
        ("a clock", "synchronisation"),
    ),
    "what is stored, and loaded again": (
        "atom.global.add.u32 %r2, [%rd1], 1; st.shared.u32 [%r1], %r2; ld.shared.u32 %r3, [%r1];"
        + BRANCH.format("%r3"),
        ("the result of an atomic", "a branch"),
    ),
    "what atomics on floats leave": (
        "red.global.add.f32 [%rd1], %f1; ld.global.u32 %r3, [%rd1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what strong stores leave": (
        "st.relaxed.gpu.global.u32 [%rd1], 1; ld.global.u32 %r3, [%rd1];" + BRANCH.format("%r3"),
        ("what strong stores leave in memory", "a branch"),
    ),
    "what volatile stores leave": (
        "st.volatile.shared.u32 [%r1], 1; ld.shared.u32 %r3, [%r1];" + BRANCH.format("%r3"),
        ("what strong stores leave in memory", "a branch"),
    ),
    "what reductions of two kinds leave": (
        "red.shared.or.b32 [%r1], 1; red.shared.and.b32 [%r1], 2; ld.shared.u32 %r3, [%r1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what a reduction and an atomic leave": (
        "red.global.add.u32 [%rd1], 1; atom.global.max.u32 %r2, [%rd1], 2; ld.global.u32 %r3, [%rd1];"
        + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what minima of two types leave": (
        "red.shared.min.s32 [%r1], -5; red.shared.min.u32 [%r1], 3; ld.shared.u32 %r3, [%r1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what sums of two sizes leave": (
        "red.shared.add.u32 [%r1], 1; red.shared.add.u64 [%r1], 3; ld.shared.u32 %r3, [%r1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what another warp gives bar.red": (
        "atom.shared.add.u32 %r2, [%r1], 1; setp.eq.u32 %p2, %r2, 1; setp.eq.u32 %p4, %r1, 7; @%p4 bra OTHER; "
        "bar.red.or.pred %p3, 1, 64, %p2; OTHER: bar.red.or.pred %p5, 1, 64, %p4; @%p5 bra SKIP; bar.sync 0; SKIP:",
        ("the result of an atomic", "a branch"),
    ),
    "the SM in a vector": (
        "mov.b64 %rd2, {%r2, %smid}; setp.eq.u64 %p1, %rd2, 1; @%p1 bra SKIP; bar.sync 0; SKIP:",
        ("the number of the SM", "a branch"),
    ),
    "the target of a call": (
        "mov.u32 %r2, %clock; setp.eq.u32 %p1, %r2, 1; mov.u64 %rd2, foo; mov.u64 %rd3, bar; "
        "selp.u64 %rd4, %rd2, %rd3, %p1; proto: .callprototype _ (); call %rd4, proto;",
        ("a clock", "a branch"),
    ),
    "what malloc gives": (
        "{ .param .b64 s; .param .b64 r; st.param.b64 [s], 500; call.uni (r), malloc, (s); ld.param.b64 %rd2, [r]; } "
        "setp.eq.u64 %p1, %rd2, 0; @%p1 bra SKIP; bar.sync 0; SKIP:",
        ("what malloc gives", "a branch"),
    ),
    "what is stored as a matrix": (
        "atom.shared.add.u32 %r2, [%r1], 1; cvt.rn.f32.u32 %f1, %r2; "
        "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r1], {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1}; "
        "ld.shared.u32 %r3, [%r1];" + BRANCH.format("%r3"),
        ("the result of an atomic", "a branch"),
    ),
    "what is loaded as a matrix": (
        "red.shared.inc.u32 [%r1], 7; "
        "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%r1]; "
        "mov.b32 %r3, %f1;" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what a copy takes to another space": (
        "red.shared.inc.u32 [%r1], 7; cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16; "
        "ld.global.u32 %r3, [%rd1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what increments leave": (
        "red.shared.inc.u32 [%r1], %r4; ld.shared.u32 %r3, [%r1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what bulk sums of floats leave": (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 16; ld.global.u32 %r3, [%rd1];"
        + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "what tensor sums leave": (
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%rd1, {%r4}], [%r1]; "
        "ld.global.u32 %r3, [%rd1];" + BRANCH.format("%r3"),
        ("what unordered atomics leave in memory", "a branch"),
    ),
    "the lane that a shuffle takes from": (
        "atom.shared.add.u32 %r2, [%r1], 1; shfl.sync.idx.b32 %r3, %r1, %r2, 31, 0xffff;",
        ("the result of an atomic", "the lanes that take part"),
    ),
    "the lanes that a shuffle is clamped to": (
        "atom.shared.add.u32 %r2, [%r1], 1; shfl.sync.up.b32 %r3|%p1, %r1, 1, %r2, -1;",
        ("the result of an atomic", "the lanes that take part"),
    ),
    "a box of a tensor map": (
        "atom.shared.add.u32 %r2, [%r1], 1; tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, %r2;",
        ("the result of an atomic", "synchronisation"),
    ),
    "a word of a tensor map": (
        "atom.shared.add.u32 %r2, [%r1], 1; st.global.u32 [%rd1], %r2; " + SHOWN + MAPPED,
        ("the result of an atomic", "a tensor map"),
    ),
    "a word of a tensor map in shared memory": (
        "atom.shared.add.u32 %r2, [%r1], 1; st.shared.u32 [%r1+128], %r2; "
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r1], 128; "
        + SHOWN
        + MAPPED,
        ("the result of an atomic", "a tensor map"),
    ),
    "a word of a tensor map that reductions leave": (
        "red.global.add.f32 [%rd1], %f1; " + SHOWN + STORED,
        ("what unordered atomics leave in memory", "a tensor map"),
    ),
    "how much a copy takes": (
        "atom.shared.add.u32 %r2, [%r1], 1; cp.async.ca.shared.global [%r1], [%rd1], 4, %r2;",
        ("the result of an atomic", "synchronisation"),
    ),
    "whether MMAs go on with their sums": (
        "atom.shared.add.u32 %r2, [%r1], 1; setp.eq.u32 %p1, %r2, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd2, %rd3, %p1, 1, 1, 0, 0;",
        ("the result of an atomic", "synchronisation"),
    ),
    "a trap": ("mov.u32 %r2, %clock; setp.eq.u32 %p1, %r2, 0; @%p1 trap;", ("a clock", "a branch")),
    "a flag": (
        "ld.acquire.gpu.global.u32 %r2, [%rd1];" + BRANCH.format("%r2"),
        ("what a load reads that may race", "a branch"),
    ),
    "active lanes": ("activemask.b32 %r2;" + BRANCH.format("%r2"), ("the mask of active lanes", "a branch")),
    "a state that is compared": (
        "mbarrier.arrive.shared.b64 %rd2, [%r1]; setp.eq.u64 %p1, %rd2, 0; @%p1 bra SKIP; bar.sync 0; SKIP:",
        ("the state of an mbarrier", "a branch"),
    ),
    "a pending count that is compared": (
        "mbarrier.arrive.shared.b64 %rd2, [%r1]; mbarrier.pending_count.b64 %r2, %rd2;" + BRANCH.format("%r2"),
        ("the state of an mbarrier", "a branch"),
    ),
    "the outcome of a try, stored": (
        "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; selp.b32 %r2, 1, 0, %p1; st.shared.u32 [%r1+8], %r2;",
        ("the outcome of a try", "more than whether to wait"),
    ),
    "the outcome of a try, which something else depends on": (
        "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0; @%p1 bra SKIP; st.shared.u32 [%r1+8], %r1; SKIP:",
        ("the outcome of a try", "more than whether to wait"),
    ),
    "a wait that follows where a try succeeds, and one where it fails": (
        """mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0; @%p1 bra OTHER;
        A: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra A; bra END;
        OTHER: mbarrier.try_wait.parity.shared.b64 %p3, [%r1+8], 0; @!%p3 bra OTHER; END:""",
        ("the outcome of a try", "more than whether to wait"),
    ),
}


@pytest.mark.parametrize("name", STEERS)
def test_what_steers_is_found(name):
    body, expected = STEERS[name]
    assert expected in found_in(body)


HARMLESS = {
    "an atomic's result that is stored": "atom.global.add.u32 %r2, [%rd1], 1; st.global.u32 [%rd1+4], %r2;",
    "an atomic without a result": "red.global.add.u32 [%rd1], 1; ld.global.u32 %r3, [%rd1+4];" + BRANCH.format("%r3"),
    "two kinds of reductions in two spaces": (
        "red.global.add.u32 [%rd1], 1; red.shared.max.u32 [%r1], 1; ld.global.u32 %r3, [%rd1+4];" + BRANCH.format("%r3")
    ),
    "bulk sums of integers": (
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16; ld.global.u32 %r3, [%rd1];"
        + BRANCH.format("%r3")
    ),
    "what is stored strongly, in another space": "st.volatile.shared.u32 [%r1], 1; st.global.u32 [%rd1], %r1;",
    "a register used again": "mov.u32 %r2, %clock; st.global.u32 [%rd1], %r2; mov.u32 %r2, 1;" + BRANCH.format("%r2"),
    "what was loaded": "ld.global.u32 %r2, [%rd1];" + BRANCH.format("%r2"),
    "a state that is waited for": (
        "mbarrier.arrive.shared.b64 %rd2, [%r1]; A: mbarrier.try_wait.shared.b64 %p1, [%r1], %rd2; @!%p1 bra A;"
    ),
    "a pending count that is stored": (
        "mbarrier.arrive.shared.b64 %rd2, [%r1]; mbarrier.pending_count.b64 %r2, %rd2; st.global.u32 [%rd1], %r2;"
    ),
    "what a shuffle passes on": (
        "atom.shared.add.u32 %r2, [%r1], 1; shfl.sync.idx.b32 %r3, %r2, 0, 31, -1; st.global.u32 [%rd1], %r3;"
    ),
    "a cache policy": (
        "mov.u64 %rd2, %globaltimer; "
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd1], 16, %rd2; "
        "ld.global.L2::cache_hint.u32 %r3, [%rd1], %rd2;"
    ),
    "results beside tensor maps that the kernel does not change": (
        "red.global.add.f32 [%rd1], %f1; atom.global.add.u32 %r2, [%rd1], 1; st.global.u32 [%rd1], %r2; " + MAPPED
    ),
    "which lane was elected": "elect.sync %r2|%p1, -1; @!%p1 bra SKIP; st.global.u32 [%rd1], %r1; SKIP:",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_steer_is_not(name):
    assert found_in(HARMLESS[name]) == []


LOOP = "A: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; @%p1 bra DONE; bra A; DONE: st.shared.u32 [%r1+8], %r1;"
NEXT = """mov.u32 %r5, 4; mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; selp.b32 %r2, 1, 0, %p1;
AGAIN: setp.ne.u32 %p2, %r2, 0; @%p2 bra READY;
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0; @!%p3 bra WAIT;
READY: ld.shared.u32 %r3, [%r1+8]; mbarrier.arrive.shared.b64 _, [%r1+16];
mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 1; selp.b32 %r2, 1, 0, %p4;
sub.u32 %r5, %r5, 1; setp.ne.u32 %p5, %r5, 0; @%p5 bra AGAIN;"""


def kinds_of(body):
    flow = flow_of(body)
    return [(one.retries, one.is_peek, len(one.followers)) for one in tries(flow, Uses(flow))]


def test_a_loop_retries():
    assert kinds_of(LOOP) == [(True, False, 0)]


def test_a_peek_for_the_next_round_is_followed_by_its_wait():
    """Of three tries the first and the last are peeks: the one in between is the wait that follows both."""
    assert kinds_of(NEXT) == [(False, True, 1), (True, False, 0), (False, True, 1)]


@pytest.mark.parametrize(
    ("weaker", "others"), [(".relaxed.cta", ""), (".relaxed.cluster", ".acquire.cluster"), ("", ".acquire.cluster")]
)
def test_a_try_that_may_save_one_that_shows_more_is_no_peek(weaker, others):
    """Of three tries the last is weaker, or all are, and then it doesn't matter which succeeds."""
    last = f".parity{weaker}".join(NEXT.replace(".parity", f".parity{others}").rsplit(f".parity{others}", 1))
    assert kinds_of(last) == [(False, True, 1), (True, False, 0), (False, False, 1)]
    assert kinds_of(NEXT.replace(".parity", f".parity{weaker}")) == kinds_of(NEXT)


def test_a_try_on_which_nothing_depends_is_a_peek_that_nothing_follows():
    assert kinds_of("mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;") == [(False, True, 0)]


def followed(count):
    """Return how many uses are followed of what stores to local memory leave, in some guarded updates of it."""
    update = "setp.eq.u32 %p1, %r3, {0}; @%p1 bra L{0}; add.u32 %r2, %r2, 1; st.local.u32 [l], %r2;"
    body = "".join(update.format(n) + f" ld.local.u32 %r2, [l]; L{n}:\n" for n in range(count))
    flow = flow_of(".local .align 4 .b8 l[4]; mov.u32 %r2, 0; mov.u32 %r3, %tid.x;" + body)
    uses, taken = Uses(flow), []
    after_unseen = uses.after_unseen
    uses.after_unseen = lambda *which: [one for one in after_unseen(*which) if taken.append(one) is None]
    steering_stores(flow, uses, tries(flow, uses))
    return len(taken)


def test_values_of_one_register_share_the_ways_to_their_uses():
    assert 0 < followed(40) < 3 * followed(20)
