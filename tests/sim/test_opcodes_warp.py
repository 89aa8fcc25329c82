"""Exchange within a warp, barriers of a CTA, control flow, special registers."""

from __future__ import annotations

import numpy as np
import pytest

from cutepy.sim import BarrierError, DeadlockError, SimulationError, TrapError, UnknownInstructionError
from cutepy.sim.ptx.tokens import PtxSyntaxError
from tests.messages import refuses
from tests.sim.opcode_runner import apply, launch
from tests.sim.operands import integers

LANES = 64
FULL = "0xffffffff"
STORE = """ld.param.u64 %rd62, [p0];
mov.u32 %r390, %tid.x; mov.u32 %r391, %ntid.x; mov.u32 %r392, %ctaid.x; mad.lo.u32 %r390, %r391, %r392, %r390;
mad.wide.u32 %rd62, %r390, 4, %rd62; st.global.b32 [%rd62], %r0;"""


def shuffled(mode, a, b, c):
    """Follow the ISA's pseudo-code, lane by lane."""
    values, inside = [], []
    for lane in range(len(a)):
        base, own = lane & ~31, lane & 31
        bval, cval, mask = int(b[lane]) & 31, int(c[lane]) & 31, int(c[lane]) >> 8 & 31
        top = own & mask | cval & ~mask
        low = own & mask
        if mode == "up":
            j = own - bval
            p = j >= top
        elif mode == "down":
            j = own + bval
            p = j <= top
        elif mode == "bfly":
            j = own ^ bval
            p = j <= top
        else:
            j = low | bval & ~mask
            p = j <= top
        values.append(a[base + (j if p else own)])
        inside.append(p)
    return np.array(values, np.uint32), np.array(inside)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("control", ["uniform", "segments", "random"])
def test_shfl(mode, control):
    a = integers("u4", LANES, mode)
    rng = np.random.default_rng(1)
    b = rng.integers(0, 64, LANES).astype(np.uint32)
    c = rng.integers(0, 2**13, LANES).astype(np.uint32)
    if control == "uniform":
        b[:], c[:] = 3, 0 if mode == "up" else 31
    elif control == "segments":
        b[:], c[:] = 5, 0x1800 | (0 if mode == "up" else 7)
    value, inside = shuffled(mode, a, b, c)
    d, p = apply(f"shfl.sync.{mode}.b32 %d0|%d1, %a, %b, %c, {FULL};", a, b, c, out=("u4", "pred"))
    np.testing.assert_array_equal(d, value)
    np.testing.assert_array_equal(p, inside)
    np.testing.assert_array_equal(apply(f"shfl.sync.{mode}.b32 %d, %a, %b, %c, {FULL};", a, b, c), value)


def test_shfl_of_floats_by_constants():
    a = np.arange(LANES, dtype=np.float32) * np.float32(1.5)
    got = apply(f"shfl.sync.bfly.b32 %d, %a, 16, 31, {FULL};", a, out="f4")
    np.testing.assert_array_equal(got, a[np.arange(LANES) ^ 16])


@pytest.mark.parametrize("kind", ["all", "any", "uni", "ballot"])
@pytest.mark.parametrize("negated", ["", "!"])
def test_vote(kind, negated):
    rng = np.random.default_rng(2)
    a = np.concatenate([rng.random(32) < 0.5, np.ones(32, bool), np.zeros(32, bool)])
    out = "u4" if kind == "ballot" else "pred"
    got = apply(f"vote.sync.{kind}.{'b32' if kind == 'ballot' else 'pred'} %d, {negated}%a, {FULL};", a, out=out)
    warps = (~a if negated else a).reshape(-1, 32)
    rules = {
        "all": lambda w: w.all(),
        "any": lambda w: w.any(),
        "uni": lambda w: w.all() or not w.any(),
        "ballot": lambda w: sum(int(x) << n for n, x in enumerate(w)),
    }
    np.testing.assert_array_equal(got, np.repeat([rules[kind](w) for w in warps], 32))


def test_vote_among_some_lanes():
    """Lanes that a branch left out take no part."""
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %laneid;
    mov.b32 %r0, 0;
    setp.ge.u32 %p1, %r1, 8;
    @%p1 bra SKIP;
    setp.lt.u32 %p2, %r1, 3;
    vote.sync.ballot.b32 %r0, %p2, 0xff;
    activemask.b32 %r2;
    shl.b32 %r2, %r2, 16;
    or.b32 %r0, %r0, %r2;
    SKIP:"""
    launch(body, out, after=STORE)
    np.testing.assert_array_equal(out, np.where(np.arange(32) < 8, 0xFF0007, 0))


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_match(kind):
    rng = np.random.default_rng(3)
    a = np.concatenate([rng.integers(0, 4, 32), np.full(32, 7)]).astype(f"u{int(kind[1:]) // 8}")
    any_mask = apply(f"match.any.sync.{kind} %d, %a, {FULL};", a)
    warps = a.reshape(-1, 32)
    expected = [sum(int(y == x) << n for n, y in enumerate(w)) for w in warps for x in w]
    np.testing.assert_array_equal(any_mask, np.array(expected, np.uint32))
    mask, p = apply(f"match.all.sync.{kind} %d0|%d1, %a, {FULL};", a, out=("u4", "pred"))
    same = np.repeat([bool((w == w[0]).all()) for w in warps], 32)
    np.testing.assert_array_equal(p, same)
    np.testing.assert_array_equal(mask, np.where(same, 0xFFFFFFFF, 0))


@pytest.mark.parametrize(
    "spelling", ["add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"]
)
def test_redux(spelling):
    operation, kind = spelling.split(".")
    a = integers("i4" if kind == "s32" else "u4", LANES, spelling)
    if operation in ("and", "or"):
        a |= np.uint32(0xF0)
    got = apply(f"redux.sync.{spelling} %d, %a, {FULL};", a, out=a.dtype.str[1:])
    rules = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
    function = rules.get(operation, np.bitwise_xor)
    with np.errstate(over="ignore"):
        expected = np.repeat(function.reduce(a.reshape(-1, 32), axis=1, dtype=a.dtype), 32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mask", [FULL, "0xfffffff0"])
def test_elect(mask):
    leader = 0 if mask == FULL else 4
    a = np.arange(64, dtype=np.uint32) % 32
    body = f"""setp.lt.u32 %d1, %a, 0;
    setp.ge.u32 %p2, %a, {leader};
    mov.b32 %d0, 99;
    @%p2 elect.sync %d0|%d1, {mask};"""
    lane, elected = apply(body, a, out=("u4", "pred"))
    np.testing.assert_array_equal(lane, np.where(a >= leader, leader, 99))
    np.testing.assert_array_equal(elected, a == leader)
    np.testing.assert_array_equal(apply(f"elect.sync _|%d, {FULL};", a, out="pred"), a == 0)


def test_elect_by_lanes_outside_of_its_mask():
    body = """mov.u32 %r1, %laneid;
    setp.ge.u32 %p1, %r1, 4;
    @%p1 exit;
    elect.sync %r2|%p2, 0xfffffff0;"""
    with refuses(SimulationError):
        launch(body)


def test_shfl_by_operands_that_differ_between_ctas():
    """Of values that each lane has of its own, or all of a CTA in common."""
    out = np.zeros((2, 32), np.uint32)
    body = """mov.u32 %r1, %laneid; mov.u32 %r2, %ctaid.x; add.u32 %r3, %r2, 1; mov.u32 %r7, 31;
    mad.lo.u32 %r4, %r2, 100, %r1;
    shfl.sync.bfly.b32 %r5, %r4, %r3, %r7, 0xffffffff;
    shfl.sync.bfly.b32 %r6, %r2, %r3, %r7, 0xffffffff;
    mad.lo.u32 %r0, %r6, 1000, %r5;"""
    launch(body, out, grid=2, after=STORE)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, [lanes ^ 1, 1100 + (lanes ^ 2)])


def test_lanes_of_a_warp_that_synchronise_name_the_same():
    with refuses(SimulationError):
        launch("mov.u32 %r1, %laneid; xor.b32 %r1, %r1, 1; shl.b32 %r1, 1, %r1; not.b32 %r1, %r1; bar.warp.sync %r1;")


def test_bar_warp_sync():
    a = np.arange(32, dtype=np.uint32)
    body = f"""mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    xor.b32 %r3, %r0, 1;
    mad.lo.u32 %r3, %r3, 4, %r1;
    st.shared.b32 [%r2], %r0;
    bar.warp.sync {FULL};
    ld.shared.b32 %r0, [%r3];"""
    launch(body, a, before="mov.u32 %r0, %tid.x;", after=STORE, smem_bytes=128)
    np.testing.assert_array_equal(a, np.arange(32) ^ 1)


# Barriers of a CTA.


@pytest.mark.parametrize(
    "barrier",
    [
        "bar.sync 0;",
        "bar.sync 1, 128;",
        "barrier.sync 0;",
        "barrier.sync.aligned 2, 128;",
        "bar.cta.sync 3;",
        "barrier.cta.sync.aligned 4, 128;",
        "bar.sync %r5;",
    ],
)
def test_bar_sync(barrier):
    """Warps reach the barrier at different times, and read what the others wrote before it."""
    out = np.zeros(256, np.uint32)
    body = f"""mov.u32 %r1, smem;
    mov.u32 %r2, %tid.x;
    mov.u32 %r5, 5;
    shr.u32 %r3, %r2, 5;
    LOOP: setp.eq.u32 %p1, %r3, 0;
    @%p1 bra DONE;
    sub.u32 %r3, %r3, 1;
    bra.uni LOOP;
    DONE: mad.lo.u32 %r4, %r2, 4, %r1;
    st.shared.b32 [%r4], %r2;
    {barrier}
    xor.b32 %r6, %r2, 127;
    mad.lo.u32 %r6, %r6, 4, %r1;
    ld.shared.b32 %r0, [%r6];"""
    launch(body, out, block=128, grid=2, after=STORE, smem_bytes=512)
    np.testing.assert_array_equal(out, np.tile(np.arange(128) ^ 127, 2))


@pytest.mark.parametrize("arrive", ["bar.arrive 1, 64;", "barrier.arrive.aligned 1, 64;", "bar.cta.arrive 1, 64;"])
def test_bar_arrive(arrive):
    """A warp that produces arrives and goes on; the warp that consumes waits."""
    out = np.zeros(64, np.uint32)
    body = f"""mov.u32 %r1, smem;
    mov.u32 %r2, %tid.x;
    mov.u32 %r0, 7;
    setp.ge.u32 %p1, %r2, 32;
    @%p1 bra PRODUCER;
    bar.sync 1, 64;
    mad.lo.u32 %r3, %r2, 4, %r1;
    ld.shared.b32 %r0, [%r3];
    bra.uni END;
    PRODUCER: sub.u32 %r4, %r2, 32;
    mad.lo.u32 %r3, %r4, 4, %r1;
    st.shared.b32 [%r3], %r2;
    {arrive}
    END:"""
    launch(body, out, block=64, after=STORE, smem_bytes=128)
    np.testing.assert_array_equal(out, np.concatenate([np.arange(32, 64), np.full(32, 7)]))


@pytest.mark.parametrize("prefix", ["bar.red", "barrier.red", "barrier.cta.red.aligned", "bar.cta.red"])
@pytest.mark.parametrize("negated", ["", "!"])
def test_bar_red(prefix, negated):
    out = np.zeros(192, np.uint32)
    body = f"""mov.u32 %r2, %tid.x;
    and.b32 %r3, %r2, 3;
    setp.eq.u32 %p1, %r3, 0;
    {prefix}.popc.u32 %r4, 0, {negated}%p1;
    {prefix}.and.pred %p2, 1, 192, {negated}%p1;
    {prefix}.or.pred %p3, 0, {negated}%p1;
    selp.b32 %r5, 1000, 0, %p2;
    selp.b32 %r6, 2000, 0, %p3;
    add.u32 %r0, %r4, %r5;
    add.u32 %r0, %r0, %r6;"""
    launch(body, out, block=192, after=STORE)
    np.testing.assert_array_equal(out, (144 if negated else 48) + 2000)


def test_bar_red_of_some_warps():
    """The last warp is at another barrier, and doesn't count."""
    out = np.zeros(96, np.uint32)
    body = """mov.u32 %r2, %tid.x;
    mov.u32 %r0, 0;
    setp.ge.u32 %p1, %r2, 64;
    @%p1 bra END;
    setp.ge.u32 %p2, %r2, 10;
    bar.red.popc.u32 %r0, 1, 64, %p2;
    END: bar.sync 0;"""
    launch(body, out, block=96, after=STORE)
    np.testing.assert_array_equal(out, np.where(np.arange(96) < 64, 54, 0))


def test_bar_errors():
    with refuses(PtxSyntaxError):
        launch("bar.sync 1, 33;", block=64, assembles=False)
    with refuses(BarrierError):
        launch("mov.u32 %r1, 33;\nbar.sync 1, %r1;", block=64)
    with refuses(BarrierError):
        launch("mov.u32 %r1, 16;\nbar.sync %r1;")
    with refuses(DeadlockError):
        launch("bar.sync 1, 64;", block=32)


# Control flow.


def test_guards_and_branches():
    """Nested branches that part the lanes, a loop with different counts, and a guarded exit."""
    out = np.full(64, 1000, np.uint32)
    body = """mov.u32 %r1, %tid.x;
    setp.eq.u32 %p5, %r1, 63;
    @%p5 exit;
    mov.u32 %r0, 0;
    mov.u32 %r2, %r1;
    LOOP: setp.lt.u32 %p1, %r2, 5;
    @%p1 bra OUT;
    sub.u32 %r2, %r2, 5;
    and.b32 %r3, %r2, 1;
    setp.ne.u32 %p2, %r3, 0;
    @!%p2 bra EVEN;
    add.u32 %r0, %r0, 3;
    bra.uni LOOP;
    EVEN: add.u32 %r0, %r0, 1;
    bra LOOP;
    OUT: @%p1 add.u32 %r0, %r0, 100;
    setp.eq.u32 %p6, %r1, 62;
    @%p6 ret;"""
    launch(body, out, block=64, after=STORE)
    expected = []
    for t in range(62):
        total, rest = 0, t
        while rest >= 5:
            rest -= 5
            total += 3 if rest & 1 else 1
        expected.append(total + 100)
    np.testing.assert_array_equal(out[:62], expected)
    np.testing.assert_array_equal(out[62:], 1000)


def test_brx_idx():
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 3;
    TABLE: .branchtargets A, B, C, B;
    brx.idx %r2, TABLE;
    A: mov.u32 %r0, 10;
    bra END;
    B: mov.u32 %r0, 20;
    bra END;
    C: mov.u32 %r0, 30;
    END: add.u32 %r0, %r0, %r1;"""
    launch(body, out, after=STORE)
    np.testing.assert_array_equal(out, np.array([10, 20, 30, 20])[np.arange(32) % 4] + np.arange(32))


def test_ret():
    out = np.zeros(32, np.uint32)
    launch("ld.param.u64 %rd1, [p0];\nst.global.b32 [%rd1], 5;\nret;", out)
    assert out[0] == 5


@pytest.mark.parametrize("opcode", ["trap", "brkpt"])
def test_trap(opcode):
    with refuses(TrapError):
        launch(f"mov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 3;\n@%p1 {opcode};")


def test_no_operations():
    body = """setmaxnreg.dec.sync.aligned.u32 40;
    setmaxnreg.inc.sync.aligned.u32 232;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    nanosleep.u32 100;
    pmevent 7;
    membar.cta;
    membar.gl;
    membar.sys;
    fence.acq_rel.cta;
    fence.acq_rel.gpu;
    fence.acq_rel.sys;
    fence.acq_rel.cluster;
    fence.sc.cta;
    fence.sc.cluster;
    fence.proxy.async;
    fence.proxy.async.shared::cta;
    fence.proxy.async.shared::cluster;
    fence.proxy.async.global;
    fence.proxy.alias;
    fence.mbarrier_init.release.cluster;
    fence.proxy.tensormap::generic.release.gpu;
    wgmma.fence.sync.aligned;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    cp.async.commit_group;
    cp.async.wait_group 0;
    cp.async.wait_all;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    cp.async.bulk.wait_group.read 1;"""
    launch(body, block=128, directives=".reqntid 128, 1, 1")


def test_setmaxnreg_counts():
    for count in (20, 260, 41):
        with refuses(PtxSyntaxError):
            launch(f"setmaxnreg.dec.sync.aligned.u32 {count};", block=128, assembles=False)


# Special registers.


def test_special_registers():
    names = [
        "tid.x",
        "tid.y",
        "tid.z",
        "ntid.x",
        "ntid.y",
        "ntid.z",
        "ctaid.x",
        "ctaid.y",
        "ctaid.z",
        "nctaid.x",
        "nctaid.y",
        "nctaid.z",
        "laneid",
        "lanemask_eq",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_gt",
        "lanemask_ge",
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_ctarank",
        "cluster_nctarank",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "clusterid.x",
        "clusterid.y",
        "nclusterid.x",
        "dynamic_smem_size",
        "nwarpid",
    ]
    block, grid, cluster = (8, 4, 2), (4, 2, 2), (2, 2, 1)
    threads, ctas = 64, 16
    out = np.zeros((len(names), ctas, threads), np.uint32)
    lines = ["ld.param.u64 %rd1, [p0];", "mov.u32 %r1, %tid.z; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.x;"]
    lines.append("mad.lo.u32 %r1, %r1, 4, %r2; mad.lo.u32 %r1, %r1, 8, %r3;")
    lines.append("mov.u32 %r4, %ctaid.z; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.x;")
    lines.append("mad.lo.u32 %r4, %r4, 2, %r5; mad.lo.u32 %r4, %r4, 4, %r6; mad.lo.u32 %r1, %r4, 64, %r1;")
    lines.append("mad.wide.u32 %rd1, %r1, 4, %rd1;")
    for n, name in enumerate(names):
        lines.append(f"mov.u32 %r9, %{name}; st.global.b32 [%rd1+{4 * n * ctas * threads}], %r9;")
    launch("\n".join(lines), out, block=block, grid=grid, cluster=cluster, smem_bytes=512)
    t, b = np.arange(threads), np.arange(ctas)[:, None]
    tx, ty, tz, bx, by, bz = t % 8, t // 8 % 4, t // 32, b % 4, b // 4 % 2, b // 8
    lane = t % 32
    expected = {
        "tid.x": tx,
        "tid.y": ty,
        "tid.z": tz,
        "ntid.x": 8,
        "ntid.y": 4,
        "ntid.z": 2,
        "ctaid.x": bx,
        "ctaid.y": by,
        "ctaid.z": bz,
        "nctaid.x": 4,
        "nctaid.y": 2,
        "nctaid.z": 2,
        "laneid": lane,
        "lanemask_eq": 1 << lane,
        "lanemask_lt": (1 << lane) - 1,
        "lanemask_le": (2 << lane) - 1,
        "lanemask_gt": 2**32 - (2 << lane),
        "lanemask_ge": 2**32 - (1 << lane),
        "cluster_ctaid.x": bx % 2,
        "cluster_ctaid.y": by % 2,
        "cluster_ctarank": bx % 2 + 2 * (by % 2),
        "cluster_nctarank": 4,
        "cluster_nctaid.x": 2,
        "cluster_nctaid.y": 2,
        "clusterid.x": bx // 2,
        "clusterid.y": by // 2,
        "nclusterid.x": 2,
        "dynamic_smem_size": 512,
    }
    for n, name in enumerate(names):
        if name in expected:
            np.testing.assert_array_equal(out[n], np.broadcast_to(expected[name], (ctas, threads)), err_msg=name)


@pytest.mark.parametrize("clock", ["clock", "clock64", "globaltimer", "globaltimer_lo"])
def test_clocks_advance(clock):
    bits = 64 if clock in ("clock64", "globaltimer") else 32
    register = "%rd" if bits == 64 else "%r"
    out = np.zeros(32, np.uint32)
    body = f"""mov.u{bits} {register}1, %{clock};
    WAIT: mov.u{bits} {register}2, %{clock};
    sub.u{bits} {register}3, {register}2, {register}1;
    setp.lt.u{bits} %p1, {register}3, 100;
    @%p1 bra WAIT;
    mov.u32 %r0, 1;"""
    launch(body, out, after=STORE)
    assert (out == 1).all()


def test_explicit_cluster():
    out = np.zeros(64, np.uint32)
    launch("mov.pred %p1, %is_explicit_cluster;\nselp.u32 %r0, 1, 0, %p1;", out, grid=2, cluster=2, after=STORE)
    assert (out == 1).all()


# What is not known.


def test_unknown_instruction():
    with refuses(PtxSyntaxError) as caught:
        launch("add.s32 %r1, 1, 2;\nfrobnicate.s32 %r1, %r2;", assembles=False)
    assert caught.value.statement == "frobnicate.s32 %r1, %r2;"


@pytest.mark.parametrize(
    "line",
    [
        "multimem.ld_reduce.global.add.f32 %f1, [%rd1];",
        "call foo;",
    ],
)
def test_unknown_forms(line):
    """An instruction that is not simulated is refused where it is reached, and only there."""
    with refuses(UnknownInstructionError):
        launch(line, block=128, module=".extern .func foo();", assembles=False)
    skipped = f"setp.eq.u32 %p9, 0, 0;\n@%p9 bra END;\n{line}\nEND:"
    launch(skipped, block=128, module=".extern .func foo();", assembles=False)
