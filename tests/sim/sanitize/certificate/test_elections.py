"""Elected lanes: certificates that rest on which lane `elect.sync` elects say so."""

import numpy as np
import pytest

from cutepy.sim import Run
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; shr.u32 %r4, %r2, 5; ld.param.u64 %rd1, [p0];
setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r4, 0; setp.lt.u32 %p4, %r2, 32; setp.eq.u32 %p5, %r3, 7;
@%p3 mul.wide.u32 %rd2, %r3, 4; @%p3 add.u32 %r5, %r1, 256; @%p3 mad.lo.u32 %r5, %r3, 4, %r5;
@%p3 st.shared.u32 [%r5], %r3; fence.proxy.async.shared::cta; bar.sync 0;
@!%p3 bra END;
elect.sync _|%p1, -1;
"""
FUNCTIONS = """
.func write(.reg .b32 %a) { st.shared.u32 [%a], 7; ret; }
.func arrive(.reg .b32 %a) { mbarrier.arrive.shared.b64 _, [%a]; ret; }
.func write_if(.reg .b32 %f, .reg .b32 %a) { .reg .pred %q; setp.ne.u32 %q, %f, 0; @%q st.shared.u32 [%a], 7; ret; }
.func send(.reg .b64 %g, .reg .b32 %a)
{ cp.async.bulk.global.shared::cta.bulk_group [%g], [%a], 128; cp.async.bulk.commit_group; ret; }
.func (.reg .b32 %o) same(.reg .b32 %a) { mov.u32 %o, %a; ret; }
.func (.reg .b32 %o) is_elected() { .reg .pred %q; elect.sync _|%q, -1; selp.u32 %o, 1, 0, %q; ret; }
.func elected_writes(.reg .b32 %a) { .reg .pred %q; elect.sync _|%q, -1; @%q st.shared.u32 [%a], 7; ret; }
.func others_end() { .reg .pred %q; elect.sync _|%q, -1; @%q ret; exit; }
"""
MEET = "bar.warp.sync -1;\n"
SEND = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1+256], 128;\n"
CLOSE, READ = "cp.async.bulk.commit_group;\n", "cp.async.bulk.wait_group.read 0;\n"
DONE = "cp.async.bulk.wait_group 0;\n"
FILL = "st.shared.u32 [%r1+256], 5;\n"
FENCE = "fence.proxy.async.shared::cta;\n"


def elected(*lines):
    return "".join(f"@%p1 {line}" for line in lines)


def lane_0(*lines):
    return "".join(f"@%p2 {line}" for line in lines)


def certificate_of(*lines, start=START, end="END:\n", block=64, cluster=1, grid=None, spins=False):
    run = Run((), None, sanitize=True)
    body, out, grid = start + "".join(lines) + end, np.zeros(256, np.uint32), grid or cluster
    launch(body, out, grid=grid, block=block, cluster=cluster, smem_bytes=4096, module=FUNCTIONS, run=run)
    assert [str(one) for one in run.hazards] == []
    (certificate,) = run.certificates
    assert [reason for reason in certificate.reasons if not spins or "reaches a branch" not in reason] == []
    return certificate


def rests_on_the_lane(*lines, **options):
    return [one for one in certificate_of(*lines, **options).assumptions if "elect.sync" in one]


ALONE = {
    "one lane does it all": (elected(SEND, CLOSE, READ, FILL, DONE),),
    "all lanes wait, then meet": (elected(SEND, CLOSE), DONE, MEET, lane_0(FILL)),
    "the lane waits, then all meet": (elected(SEND, CLOSE, DONE), MEET, lane_0(FILL)),
    "lane 0 writes, all meet, the lane sends": (lane_0(FILL, FENCE), MEET, elected(SEND, CLOSE, DONE)),
    "elected twice, by a mask in a register": (
        elected(SEND, CLOSE),
        "mov.b32 %r20, -1; elect.sync _|%p1, %r20;\n",
        elected(DONE),
    ),
    "elected twice": (elected(SEND, CLOSE), "elect.sync _|%p1, -1;\n", elected(DONE)),
    "all meet at a barrier of the CTA": (elected(SEND, CLOSE), DONE, "bar.sync 1, 32;\n", lane_0(FILL)),
    "both read": (elected("ld.shared.u32 %r9, [%r1+256];\n"), lane_0("ld.shared.u32 %r9, [%r1+256];\n")),
    "they write bytes side by side": (elected("st.shared.u32 [%r1+4], 5;\n"), lane_0("st.shared.u32 [%r1], 5;\n")),
    "they write bytes side by side, the other way": (
        elected("st.shared.u32 [%r1], 5;\n"),
        lane_0("st.shared.u32 [%r1+4], 5;\n"),
    ),
    "lane 0 does what is apart": (elected(SEND, CLOSE), lane_0("st.shared.u32 [%r1+512], 5;\n"), elected(DONE)),
    "a branch by the warp": ("@!%p3 bra END;\n@!%p4 bra END;\n@!%p1 bra END;\n", SEND, CLOSE, DONE),
    "a branch by the warp's number": ("setp.ge.u32 %p6, %r2, 32; @%p6 bra END;\n", elected(SEND, CLOSE, DONE)),
    "a branch by the last of the warp": ("setp.gt.u32 %p6, %r2, 31; @%p6 bra END;\n", elected(SEND, CLOSE, DONE)),
    "a branch by a bit of the warp's number": (
        "and.b32 %r9, %r2, 32; setp.ne.u32 %p6, %r9, 0; @%p6 bra END;\n",
        elected(SEND, CLOSE, DONE),
    ),
    "a branch by a quotient": (
        "div.u32 %r9, %r2, 32; setp.ne.u32 %p6, %r9, 0; @%p6 bra END;\n",
        elected(SEND, CLOSE, DONE),
    ),
}
MIXED = {
    "lane 0 waits": (elected(SEND, CLOSE), lane_0(DONE, FILL)),
    "lane 0 closes the group": (elected(SEND), lane_0(CLOSE, DONE)),
    "lane 0 writes what was waited for": (elected(SEND, CLOSE, DONE), lane_0(FILL)),
    "all lanes wait, and do not meet": (elected(SEND, CLOSE), DONE, lane_0(FILL)),
    "lane 0 writes": (lane_0(FILL, FENCE), elected(SEND, CLOSE, DONE)),
    "lane 0 reads what the elected lane writes": (
        elected("st.shared.u32 [%r1], 5;\n"),
        lane_0("ld.shared.u32 %r9, [%r1];\n", "st.global.u32 [%rd1], %r9;\n"),
    ),
    "lane 0 writes what the elected lane writes": (
        elected("st.shared.u32 [%r1], 5;\n"),
        lane_0("st.shared.u32 [%r1], 6;\n"),
    ),
    "all arrive at a barrier, and wait later": (
        elected(SEND, CLOSE),
        DONE,
        "barrier.cluster.arrive.aligned;\n",
        lane_0(FILL),
        "barrier.cluster.wait.aligned;\n",
    ),
    "the elected lane, if it is lane 0": ("@!%p1 bra END; @!%p2 bra END;\n", SEND, CLOSE, DONE),
    "lane 0, if it is elected": ("@!%p2 bra END; @!%p1 bra END;\n", SEND, CLOSE, DONE),
    "both in one predicate": ("and.pred %p6, %p1, %p2; @!%p6 bra END;\n", SEND, CLOSE, DONE),
    "both in one guard": ("and.pred %p6, %p1, %p2;\n@%p6 ", SEND, "@%p6 ", CLOSE, "@%p6 ", DONE),
    "lane 0 waits for copies without bulk": (
        elected("cp.async.ca.shared.global [%r1+512], [%rd1], 4;\n", "cp.async.commit_group;\n"),
        lane_0("cp.async.wait_group 0;\n"),
        "cp.async.wait_group 0;\n",
    ),
    "its number": ("elect.sync %r9|%p1, -1; st.global.u32 [%rd1], %r9;\n",),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_elected_lanes_do_by_themselves_rests_on_no_lane(name):
    assert rests_on_the_lane(*ALONE[name]) == []


def test_ctas_that_run_together_have_bytes_of_their_own():
    assert rests_on_the_lane(*ALONE["they write bytes side by side"], grid=2) == []


@pytest.mark.parametrize("name", MIXED)
def test_a_certificate_that_rests_on_which_lane_is_elected_says_so(name):
    assert len(rests_on_the_lane(*MIXED[name])) == 1


BARRIER = """@%p2 mbarrier.init.shared.b64 [%r1], 1; fence.mbarrier_init.release.cluster; bar.warp.sync -1;
"""
WAIT = "W{0}: mbarrier.try_wait.parity.shared.b64 %p7, [%r1], {1}; @!%p7 bra W{0};\n"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r1];\n"
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;\n"
COPY = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+256], [%rd1], 128, [%r1];\n"


def only(predicate, *lines):
    return f"@!%p{predicate} bra O{predicate}{len(lines)};\n" + "".join(lines) + f"O{predicate}{len(lines)}:\n"


@pytest.mark.parametrize(
    ("lines", "rests"),
    [
        ((elected(ARRIVE), WAIT.format(1, 0), elected(FILL)), False),
        ((elected(ARRIVE), only(2, WAIT.format(1, 0)), MEET, elected(FILL)), False),
        ((lane_0(ARRIVE), only(2, WAIT.format(1, 0)), elected(FILL)), True),
        ((lane_0(ARRIVE), only(2, WAIT.format(1, 0)), MEET, elected(FILL)), False),
        ((lane_0(ARRIVE), elected(FILL)), False),
        ((elected(EXPECT, COPY), lane_0(DONE), WAIT.format(1, 0)), False),
        ((elected(FILL), lane_0(ARRIVE)), True),
        ((elected(FILL), MEET, lane_0(ARRIVE)), False),
        ((lane_0(FENCE), elected(SEND, CLOSE, DONE)), True),
    ],
    ids=[
        "all wait",
        "lane 0 waits for it",
        "lane 0 waits",
        "and they meet",
        "lane 0 arrives, and the other goes on",
        "lane 0 waits for groups, and a copy is in none",
        "lane 0 releases",
        "after they met",
        "fence",
    ],
)
def test_waits_releases_and_fences_by_lanes_that_are_chosen_otherwise(lines, rests):
    assert bool(rests_on_the_lane(BARRIER, *lines)) == rests


SHOWN = "ld.shared.u32 %r9, [%r1+256];\nst.global.u32 [%rd1], %r9;\n"
EMPTY = "@%p2 mbarrier.init.shared.b64 [%r1+8], 1; fence.mbarrier_init.release.cluster; bar.warp.sync -1;\n"


def at_empty(line):
    return line.replace("[%r1]", "[%r1+8]")


def ring(rounds, waits=True):
    """Let the elected lane fill one stage, and lane 0 empty it."""
    lines = [EMPTY]
    for n in range(rounds):
        free = at_empty(WAIT.format(f"E{n}", n & 1 ^ 1)) if n and waits else ""
        lines += [
            only(1, free, FILL, ARRIVE, *" " * n),
            only(2, WAIT.format(n, n & 1), SHOWN, at_empty(ARRIVE), *" " * n),
        ]
    return lines


BY_MBARRIERS = {
    "lane 0 reads what the elected lane wrote": (only(1, FILL, ARRIVE), only(2, WAIT.format(0, 0), SHOWN)),
    "all wait": (only(1, FILL, ARRIVE), WAIT.format(0, 0), only(2, SHOWN)),
    "lane 0 waits for the elected lane's copy": (only(1, EXPECT, COPY), only(2, WAIT.format(0, 0), SHOWN)),
    "the elected lane waits": (only(2, FILL, ARRIVE), only(1, WAIT.format(0, 0), SHOWN)),
    "all arrive, and the elected lane waits": (
        at_empty(BARRIER).replace(", 1;", ", 32;"), lane_0(FILL), at_empty(ARRIVE),
        only(1, at_empty(WAIT.format(0, 0)), SHOWN),
    ),
    "a ring": ring(3),
    "two phases, and they meet": (
        only(1, ARRIVE), only(2, WAIT.format(0, 0)), MEET, only(1, ARRIVE, " "), only(2, WAIT.format(1, 1), " "),
    ),
}  # fmt: skip
NOT_BY_MBARRIERS = {
    "two phases": (only(1, ARRIVE), only(2, WAIT.format(0, 0)), only(1, ARRIVE, " "), only(2, WAIT.format(1, 1), " ")),
    "a ring that is not emptied": ring(2, waits=False),
    "a phase that is skipped": (only(1, ARRIVE, ARRIVE), only(2, WAIT.format(0, 1))),
    "a write after the arrival": (only(1, ARRIVE, FILL), only(2, WAIT.format(0, 0), SHOWN)),
    "a write of lane 0 after its arrival": (only(2, ARRIVE, FILL), only(1, WAIT.format(0, 0), SHOWN)),
    "a relaxed arrival": (
        only(1, FILL, ARRIVE.replace("arrive.", "arrive.relaxed.cta.")), only(2, WAIT.format(0, 0), SHOWN),
    ),
    "bytes announced for the next phase": (
        only(1, ARRIVE, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 128;\n", COPY),
        only(2, WAIT.format(0, 0), ARRIVE, WAIT.format(1, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_MBARRIERS)
def test_what_mbarriers_order_rests_on_no_lane(name):
    assert rests_on_the_lane(BARRIER, *BY_MBARRIERS[name]) == []


@pytest.mark.parametrize("name", NOT_BY_MBARRIERS)
def test_what_mbarriers_do_not_order_rests_on_the_lane(name):
    assert len(rests_on_the_lane(BARRIER, *NOT_BY_MBARRIERS[name])) == 1


FLAG = "selp.u32 %r9, 1, 0, %p1;\n"
TEST = "setp.ne.u32 %p6, %r9, 0;\n"
WRITE, READ_IT = "st.shared.u32 [%r1], 5;\n", lane_0("ld.shared.u32 %r10, [%r1];\n", "st.global.u32 [%rd1], %r10;\n")
OWN = "shl.b32 %r8, %r3, 2; add.u32 %r8, %r8, %r1;\n"
LOCAL = ".local .align 4 .b8 l[16];\n"
UNIFORM = "setp.ne.u32 %p6, %r9, 0; and.pred %p6, %p6, %p2;\n"
FOLLOWED = {
    "a call under the flag": ("@%p1 call write, (%r1);\n", READ_IT),
    "a call in a branch": (only(1, "call write, (%r1);\n"), READ_IT),
    "a call that issues, and lane 0 waits": ("add.u32 %r9, %r1, 256; @%p1 call send, (%rd1, %r9);\n", lane_0(DONE)),
    "a function returns the flag": ("call (%r9), is_elected, ();\n", TEST, "@%p6 ", WRITE, READ_IT),
    "an argument": (FLAG, "call write_if, (%r9, %r1);\n", READ_IT),
    "an argument that comes back": (FLAG, "call (%r9), same, (%r9);\n", TEST, "@%p6 ", WRITE, READ_IT),
    "a function in which a lane is elected": ("call elected_writes, (%r1);\n", READ_IT),
    "a function that only the elected lane returns from": ("call others_end, ();\n", WRITE, READ_IT),
    "local memory": (LOCAL, FLAG, "st.local.u32 [l], %r9; ld.local.u32 %r9, [l];\n", TEST, "@%p6 ", WRITE, READ_IT),
    "local memory that one lane writes": (
        LOCAL,
        "st.local.u32 [l], 0;\n",
        elected("st.local.u32 [l], 1;\n"),
        "ld.local.u32 %r9, [l];\n",
        UNIFORM,
        "@%p6 ",
        WRITE,
    ),
    "shared memory": (OWN, FLAG, "st.shared.u32 [%r8], %r9; ld.shared.u32 %r9, [%r8];\n", TEST, "@%p6 ", FILL),
    "global memory": (
        "mul.wide.u32 %rd3, %r3, 4; add.u64 %rd3, %rd1, %rd3;\n",
        FLAG,
        "st.global.u32 [%rd3], %r9; ld.global.u32 %r9, [%rd3];\n",
        TEST,
        "@%p6 ",
        WRITE,
        READ_IT,
    ),
    "an address": ("selp.u32 %r9, 0, 4, %p1; mad.lo.u32 %r9, %r9, %r2, %r1; st.shared.u32 [%r9], 5;\n", READ_IT),
    "an address of the lane": (OWN, elected("st.shared.u32 [%r8], 5;\n")),
    "another lane's flag": (FLAG, "shfl.sync.idx.b32 %r9, %r9, 0, 31, -1;\n", TEST, only(6, FILL, MEET)),
    "a lane that the flag chooses": (
        FLAG,
        "shfl.sync.idx.b32 %r9, %r3, %r9, 31, -1;\n",
        TEST,
        "@%p6 ",
        WRITE,
        READ_IT,
    ),
    "a lane of each four": (
        "shfl.sync.idx.b32 %r9, %r3, 0, 0x1c1f, -1; setp.eq.u32 %p6, %r9, 0; and.pred %p6, %p6, %p1;\n@%p6 ",
        WRITE,
    ),
    "what is written in a branch": ("mov.u32 %r9, 0;\n", only(1, "mov.u32 %r9, 1;\n"), UNIFORM, "@%p6 ", WRITE),
    "its number in a branch": ("elect.sync %r9|%p1, -1; setp.eq.u32 %p6, %r9, 0;\n", only(6, FENCE)),
    "a lane by a shuffle": (
        "shfl.sync.bfly.b32 %r9, %r3, 1, 31, -1; setp.eq.u32 %p6, %r9, 1; and.pred %p6, %p6, %p1;\n@%p6 ",
        WRITE,
    ),
    "a lane by a bit of its number": (
        "and.b32 %r9, %r2, 1; setp.eq.u32 %p6, %r9, 0; and.pred %p6, %p6, %p1;\n@%p6 ",
        WRITE,
    ),
    "a lane by a multiple of its number": (
        "shl.b32 %r9, %r2, 5; setp.lt.u32 %p6, %r9, 32; and.pred %p6, %p6, %p1;\n@%p6 ",
        WRITE,
    ),
    "a lane by local memory": (
        LOCAL,
        "st.local.u32 [l], %r3; ld.local.u32 %r9, [l]; setp.eq.u32 %p6, %r9, 0; and.pred %p6, %p6, %p1;\n@%p6 ",
        WRITE,
    ),
}
"""The flag, or the number of lanes, comes to where it matters by calls, by memory, by addresses, by branches."""


@pytest.mark.parametrize("name", FOLLOWED)
def test_calls_memory_and_addresses_do_not_hide_the_lane(name):
    assert len(rests_on_the_lane(*FOLLOWED[name])) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("@%p6 call arrive, (%r1);\n",),
        (LOCAL, FLAG, "st.local.u32 [l], %r9; ld.local.u32 %r9, [l];\n", UNIFORM, "@%p6 ", ARRIVE),
        (
            OWN,
            FLAG,
            "st.shared.u32 [%r8+512], %r9;\n",
            MEET,
            "ld.shared.u32 %r9, [%r1+512];\n",
            UNIFORM,
            "@%p6 ",
            ARRIVE,
        ),
    ],
    ids=["by a call", "by local memory", "by shared memory"],
)
def test_a_kernel_that_hangs_for_each_other_lane(lines):
    assert len(rests_on_the_lane(BARRIER, "and.pred %p6, %p1, %p2;\n", *lines, WAIT.format(1, 0))) == 1


APART = {
    "a function of the whole warp": ("call (%r9), same, (%r1);\n", elected(SEND, CLOSE), DONE),
    "a function in which a lane is elected": ("call elected_writes, (%r1);\n", MEET, READ_IT),
    "a value that is made in the branch": (only(1, "add.u32 %r9, %r1, 4; st.shared.u32 [%r9], 5;\n"),),
    "a value that goes to another branch": (elected("ld.shared.u32 %r9, [%r1+256];\n", "st.shared.u32 [%r1], %r9;\n"),),
    "whether another lane is in range, which it is": ("shfl.sync.bfly.b32 %r9|%p6, %r4, 1, 31, -1;\n", only(6, FENCE)),
    "whether a lane that is computed is in range": ("shfl.sync.bfly.b32 %r9|%p6, %r4, %r4, 31, -1;\n", only(6, FENCE)),
    "the warp's number from a lane": (
        "shfl.sync.idx.b32 %r9, %r4, 0, 31, -1; mad.lo.u32 %r9, %r9, 4, %r1;\n",
        elected("st.shared.u32 [%r9], 5;\n"),
    ),
    "the number of one lane": (
        "shfl.sync.idx.b32 %r9, %r3, 5, 31, -1; mad.lo.u32 %r9, %r9, 4, %r1;\n",
        elected("st.shared.u32 [%r9], 5;\n"),
    ),
    "a place by the warp's number": ("mad.lo.u32 %r9, %r4, 4, %r1;\n", elected("st.shared.u32 [%r9], 5;\n")),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_alike_in_the_warp_or_stays_in_the_branch_rests_on_no_lane(name):
    assert rests_on_the_lane(*APART[name]) == []


@pytest.mark.parametrize(("block", "rests"), [((32, 2, 1), False), ((16, 4, 1), True)], ids=str)
def test_x_tells_warps_apart_in_blocks_of_whole_rows_only(block, rests):
    start = "mov.u32 %r2, %tid.x; setp.lt.u32 %p6, %r2, 32; elect.sync _|%p1, -1; and.pred %p6, %p6, %p1;\n"
    assert bool(rests_on_the_lane(only(6, FENCE), start=start, block=block)) == rests


ROW = "mad.lo.u32 %r8, %r3, 4, %r1;\n"
ROW_16 = "mad.lo.u32 %r8, %r3, 16, %r1;\n"
ALL_WRITE, ALL_READ = "st.shared.u32 [%r8], %r3;\n", "ld.shared.u32 %r10, [%r8];\n"
ALL_ROWS = "st.shared.v4.u32 [%r8], {%r3, %r3, %r3, %r3};\n"
READS = elected("ld.shared.u32 %r9, [%r1];\n", "st.global.u32 [%rd1], %r9;\n")
WRITES = elected("st.shared.u32 [%r1], 7;\n")
SEND_ROW = elected("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;\n", CLOSE)
ROW_OF_GLOBAL = "mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd1, %rd2;\n"
CLUSTER_WAIT = "barrier.cluster.wait.aligned;\n"
COPIES = "cp.async.ca.shared.global [%r8], [%rd2], 4; cp.async.wait_all;\n"
WHOLE = {
    "the lane writes, all read": ((ROW, ALL_WRITE, MEET, WRITES), (ALL_READ,)),
    "the lane reads, all write": ((ROW, ALL_WRITE, MEET, READS), (ALL_WRITE,)),
    "all write, the lane reads": ((ROW, ALL_WRITE), (READS,)),
    "all read, the lane writes": ((ROW, ALL_WRITE, MEET, ALL_READ), (WRITES,)),
    "all add, the lane reads": ((ROW, ALL_WRITE, MEET, "red.shared.add.u32 [%r8], 1;\n"), (READS,)),
    "all fence": ((ROW, ALL_WRITE, "fence.acq_rel.cta;\n"), (READS,)),
    "all write global memory, the lane reads it": (
        (ROW_OF_GLOBAL, "st.global.u32 [%rd2], 3;\n"),
        (elected("ld.global.u32 %r9, [%rd1];\n", "st.global.u32 [%rd1+128], %r9;\n"),),
    ),
    "all write rows, the lane sends its own": ((ROW_16, ALL_ROWS, FENCE), (SEND_ROW, elected(DONE))),
    "the lane waits until it is read": (
        (ROW_16, ALL_ROWS, FENCE, MEET, SEND_ROW, elected(READ)),
        (ALL_ROWS, elected(DONE)),
    ),
    "all wait until it is read": ((ROW_16, ALL_ROWS, FENCE, MEET, SEND_ROW, READ), (ALL_ROWS, DONE)),
    "all copy, the lane reads": ((ROW, ROW_OF_GLOBAL, COPIES), (READS,)),
    "all write matrices, the lane reads": (
        (ROW_16, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r3, %r3, %r3, %r3};\n"),
        (READS,),
    ),
    "a warp's barrier of the lane alone": ((ROW, ALL_WRITE, elected("bar.warp.sync 1;\n")), (READS,)),
    "they arrive at the cluster's barrier relaxed": (
        (ROW, ALL_WRITE, "barrier.cluster.arrive.relaxed.aligned;\n", CLUSTER_WAIT),
        (READS,),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_that_the_elected_lane_shares_with_its_whole_warp(name):
    first, then = WHOLE[name]
    block = 32 if "cluster" in name else 64
    assert len(rests_on_the_lane(*first, *then, block=block)) == 1
    assert rests_on_the_lane(*first, MEET, *then, block=block) == []


@pytest.mark.parametrize(
    "lines",
    [
        (ROW, ALL_WRITE, elected("ld.shared.u32 %r9, [%r1+256];\n"), ALL_READ),
        (ROW, ALL_WRITE, elected("st.shared.u32 [%r1+512], 7;\n"), ALL_READ),
        (ROW, ALL_WRITE, elected(SEND, CLOSE, DONE), ALL_READ),
        (ROW, ALL_WRITE, MEET, ALL_READ, READS, ALL_READ),
        (ROW, ALL_WRITE, "bar.sync 1, 32;\n", WRITES, "bar.sync 1, 32;\n", ALL_READ),
    ],
    ids=["other bytes", "writes other bytes", "sends other bytes", "all read", "barriers of the CTA"],
)
def test_whole_warps_that_need_no_order_or_have_it(lines):
    assert rests_on_the_lane(*lines) == []


BAR = START + BARRIER.replace("[%r1]", "[%r1+896]")
ALL_WAIT = WAIT.format(1, 0).replace("[%r1]", "[%r1+896]")
LOADS = elected(
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r1+896], 16;\n",
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r1+896];\n",
)


@pytest.mark.parametrize(("wait", "rests"), [(ALL_WAIT, False), (only(1, ALL_WAIT), True)], ids=["all", "the lane"])
@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        (ROW + ALL_WRITE + MEET + WRITES + elected("mbarrier.arrive.shared.b64 _, [%r1+896];\n"), ALL_READ),
        (ROW_16 + ALL_ROWS + FENCE + MEET + LOADS, ALL_READ),
    ],
    ids=["store", "copy"],
)
def test_an_mbarrier_orders_whole_warps_that_wait_at_it(writes, wait, reads, rests):
    assert bool(rests_on_the_lane(writes, wait, reads, start=BAR)) == rests
    assert rests_on_the_lane(writes, wait, MEET, reads, start=BAR) == []


@pytest.mark.parametrize(
    "first",
    [
        "shfl.sync.up.b32 %r9|%p6, %r3, 1, 0, -1; not.pred %p6, %p6;\n",
        "shfl.sync.down.b32 %r9|%p6, %r4, 31, 31, -1;\n",
        "shfl.sync.bfly.b32 %r9|%p6, %r4, 1, 0x1e00, -1;\n",
        "shfl.sync.bfly.b32 %r9|%p6, %r4, 1, 30, -1; not.pred %p6, %p6;\n",
        "mov.u32 %r9, 1; shfl.sync.bfly.b32 %r9|%p6, %r4, %r9, 30, -1;\n",
        "shfl.sync.up.b32 %r9|%p6, %r4, 1, 0, -1; selp.u32 %r9, 1, 2, %p6; setp.eq.u32 %p6, %r9, 2;\n",
        "setp.lt.u32 %p6, %r3, 1; vote.sync.ballot.b32 %r9, %p6, -1; match.any.sync.b32 %r9, %r3, -1;"
        " setp.eq.u32 %p6, %r9, 1;\n",
    ],
    ids=["up", "down", "bfly", "bfly to 30", "computed", "selected", "match"],
)
def test_lanes_that_are_told_apart_by_shuffles_and_matches(first):
    lines = first, "and.pred %p6, %p6, %p1;\n"
    assert len(rests_on_the_lane(*lines, "@%p6 ", WRITE)) == 1


TWO = "elect.sync _|%p6, {};\n"


@pytest.mark.parametrize("mask", ["1", "0x1ffffffff", "-1"])
def test_elections_from_two_masks(mask):
    reads = "@%p6 ld.shared.u32 %r9, [%r1];\n@%p6 st.global.u32 [%rd1], %r9;\n"
    one, two = only(2, TWO.format(mask)) if mask == "1" else TWO.format("-1"), reads
    clear = "setp.ne.u32 %p6, %r3, %r3;\n"
    assert bool(rests_on_the_lane(clear, WRITES, one, two)) == (mask == "1")
    assert rests_on_the_lane(clear, WRITES, one, MEET, two) == []


def test_the_last_arrival_at_the_clusters_barrier_releases():
    arrive = "barrier.cluster.arrive{}.aligned;\n"
    for how, rests in (("", False), (".relaxed", True)):
        lines = WRITES, arrive.format(how), CLUSTER_WAIT, READ_IT
        assert bool(rests_on_the_lane(*lines, block=32)) == rests
    after = arrive.format(""), WRITES, CLUSTER_WAIT, READ_IT
    assert len(rests_on_the_lane(*after, block=32)) == 1


TWO_WARPS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; shr.u32 %r4, %r2, 5;
ld.param.u64 %rd1, [p0];
setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r4, 0; setp.eq.u32 %p4, %r2, 0; mad.lo.u32 %r8, %r3, 4, %r1;
@%p4 mbarrier.init.shared.b64 [%r1+896], 1; @%p4 mbarrier.init.shared.b64 [%r1+904], 1;
@%p4 st.shared.u32 [%r1+912], 0; @%p3 st.shared.u32 [%r8], %r3; @%p3 st.shared.u32 [%r8+128], %r3;
@%p3 st.shared.u32 [%r8+256], %r3; @%p3 st.shared.u32 [%r8+384], %r3;
mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd2, %rd1; fence.proxy.async.shared::cta; bar.sync 0;
elect.sync _|%p1, -1;
@!%p3 bra OTHER;
"""
"""Two warps, with two mbarriers and a flag; %r8 and %rd2 are a word of each lane."""
TELL, HEAR = (text.replace("[%r1]", "[%r1+896]") for text in (ARRIVE, WAIT.format(2, 0)))
TELL_2, HEAR_2 = (text.replace("[%r1]", "[%r1+904]") for text in (ARRIVE, WAIT.format(3, 0)))
RAISE = "st.release.cta.shared.u32 [%r1+912], 1;\n"
SEE = "F{0}: ld.acquire.cta.shared.u32 %r10, [%r1+912]; setp.ne.u32 %p7, %r10, 1; @%p7 bra F{0};\n"
FENCE_ALL = "fence.acq_rel.cta;\n"
FIRST, FIRST_OF_GLOBAL = "ld.shared.u32 %r9, [%r1];\n", "ld.global.u32 %r9, [%rd1];\n"
WRITE_FIRST = lane_0("st.shared.u32 [%r1], 7;\n")
WRITE_GLOBAL = "st.global.u32 [%rd2], 3;\n"
FILL_FIRST = COPY.replace("[%r1+256]", "[%r1]").replace(" 128,", " 16,").replace("[%r1];", "[%r1+896];")
EXPECT_FIRST = EXPECT.replace("[%r1], 128", "[%r1+896], 16")


def of_two_warps(first, other, **options):
    """Return the assumptions about a kernel in which the first warp does something, and the other one too."""
    options["spins"] = any("F1:" in line for line in (*first, *other))
    return rests_on_the_lane(*first, "bra END;\nOTHER:\n", *other, start=TWO_WARPS, **options)


EACH = "mul.wide.u32 %rd3, %r3, 16; add.u64 %rd3, %rd3, %rd1;\n"
SEND_EACH = EACH + "cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r8], 16;\n" + CLOSE
REDUCE_EACH = EACH + "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd3], [%r8], 16;\n" + CLOSE
EXPECT_ALL = "@%p4 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+904], 512;\n"
PASS_EACH = (
    "add.u32 %r14, %r8, 2048;\n"
    + EXPECT_ALL
    + "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
    "[%r14], [%r8], 16, [%r1+904];\n" + HEAR_2.replace("W3", "W5")
)
LOAD_EACH = (
    EACH + "add.u32 %r14, %r8, 2048;\n" + EXPECT_ALL + "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
    "[%r14], [%rd3], 16, [%r1+904];\n" + HEAR_2.replace("W3", "W5")
)
WRITE_ROW = lane_0("st.shared.v4.u32 [%r1], {%r3, %r3, %r3, %r3};\n", FENCE)
"""Copies of 16 bytes by each lane of a warp, of which lane 0's are those that the other warp touches."""
RELEASES = {
    "an mbarrier": (ALL_WRITE, elected(TELL), (HEAR, FIRST)),
    "a flag": (ALL_WRITE, elected(RAISE), (SEE.format(1), FIRST)),
    "its flag, after a fence of all": (
        ALL_WRITE,
        FENCE_ALL + elected("st.relaxed.cta.shared.u32 [%r1+912], 1;\n"),
        (SEE.format(1), FIRST),
    ),
    "that all have read": (ALL_READ, elected(TELL), (HEAR, WRITE_FIRST)),
    "that all have copied": (COPIES, elected(TELL), (HEAR, FIRST)),
    "global memory": (WRITE_GLOBAL, elected(TELL), (HEAR, FIRST_OF_GLOBAL)),
    "to who sends it": (ROW_16 + ALL_ROWS, elected(TELL), (HEAR, FENCE, SEND_ROW, elected(DONE))),
    "to one lane": (ALL_WRITE, elected(TELL), (only(2, HEAR, FIRST),)),
    "that all have sent": (ROW_16 + ALL_ROWS + FENCE + MEET + SEND_EACH + READ, elected(TELL), (HEAR, WRITE_FIRST)),
    "that all have reduced": (
        ROW_16 + ALL_ROWS + FENCE + MEET + REDUCE_EACH + READ,
        elected(TELL),
        (HEAR, WRITE_FIRST),
    ),
    "what all have sent": (
        ROW_16 + ALL_ROWS + FENCE + MEET + SEND_EACH + DONE,
        elected(TELL),
        (HEAR, FIRST_OF_GLOBAL),
    ),
    "by way of another lane": (ALL_WRITE, elected(TELL), (only(2, HEAR, TELL_2), HEAR_2, FIRST)),
    "while lane 0 tells of something else": (
        ALL_WRITE,
        lane_0(TELL_2) + elected(TELL),
        (HEAR, FIRST),
    ),
}
"""The first warp writes, all lanes; its elected lane tells the other warp, which touches what lane 0 wrote."""


@pytest.mark.parametrize("name", RELEASES)
def test_what_an_elected_lane_releases_of_its_whole_warp(name):
    does, tells, other = RELEASES[name]
    assert len(of_two_warps((does, tells), other)) == 1
    assert of_two_warps((does, MEET, tells), other) == []


WAITS = {
    "an mbarrier": (HEAR, ALL_READ, (WRITE_FIRST, lane_0(TELL))),
    "a flag": (SEE.format(1), ALL_READ, (WRITE_FIRST, lane_0(RAISE))),
    "a flag, and all fence": (
        SEE.format(1).replace("acquire", "relaxed"),
        FENCE_ALL + ALL_READ,
        (WRITE_FIRST, lane_0(RAISE)),
    ),
    "a copy": (HEAR, ROW_16 + ALL_READ, (elected(EXPECT_FIRST, FILL_FIRST),)),
    "that it is read": (HEAR, ALL_WRITE, (lane_0(FIRST, TELL),)),
    "that it is sent": (HEAR, ROW_16 + ALL_WRITE, (elected(SEND_ROW.replace("@%p1 ", ""), READ, TELL, DONE),)),
    "global memory": (HEAR, "ld.global.u32 %r9, [%rd2];\n", (lane_0("st.global.u32 [%rd1], 7;\n", TELL),)),
    "and all copy": (
        HEAR,
        "cp.async.ca.shared.global [%r8+128], [%rd2], 4; cp.async.wait_all;\n",
        (lane_0("st.global.u32 [%rd1], 7;\n", TELL),),
    ),
    "and all add": (HEAR, "red.shared.add.u32 [%r8], 1;\n", (WRITE_FIRST, lane_0(TELL))),
    "and all send": (HEAR, ROW_16 + SEND_EACH + DONE, (WRITE_ROW, lane_0(TELL))),
    "a copy, and all send": (HEAR, ROW_16 + SEND_EACH + DONE, (elected(EXPECT_FIRST, FILL_FIRST),)),
    "and all reduce": (HEAR, ROW_16 + REDUCE_EACH + DONE, (WRITE_ROW, lane_0(TELL))),
    "and all pass on": (HEAR, ROW_16 + PASS_EACH, (WRITE_ROW, lane_0(TELL))),
    "and all load": (
        HEAR,
        ROW_16 + LOAD_EACH,
        (lane_0("st.global.u32 [%rd1], 7;\n", "fence.proxy.async;\n", TELL),),
    ),
    "and all read matrices": (
        HEAR,
        ROW_16 + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r8];\n",
        (WRITE_FIRST, lane_0(TELL)),
    ),
}
"""The elected lane of the first warp waits for the other one; then all lanes touch bytes, of which lane 0's are its."""


@pytest.mark.parametrize("name", WAITS)
def test_what_an_elected_lane_waits_for_and_its_whole_warp_touches(name):
    waits, touch, other = WAITS[name]
    assert len(of_two_warps((only(1, waits), touch), other)) == 1
    assert of_two_warps((only(1, waits), MEET, touch), other) == []


IN_ORDER = {
    "lane 0 releases by its number": ((ALL_WRITE, lane_0(TELL)), (HEAR, FIRST)),
    "lane 0 releases that, and the elected lane something else": (
        (ALL_WRITE, lane_0(TELL), elected(TELL_2)),
        (HEAR, FIRST),
    ),
    "lane 0 releases last": ((ALL_WRITE, elected(TELL_2), lane_0(TELL)), (HEAR, FIRST)),
    "lane 0 releases global memory": (
        (WRITE_GLOBAL, lane_0(TELL), elected(TELL_2)),
        (HEAR, FIRST_OF_GLOBAL),
    ),
    "the elected lane releases what it wrote itself": ((elected("st.shared.u32 [%r1], 5;\n", TELL),), (HEAR, FIRST)),
    "it released before": ((elected(TELL), ALL_WRITE, "bar.sync 1, 64;\n"), (HEAR, "bar.sync 1, 64;\n", FIRST)),
    "the warps meet later": ((ALL_WRITE, elected(TELL), "bar.sync 1, 64;\n"), (HEAR, "bar.sync 1, 64;\n", FIRST)),
    "the other warp touches other bytes": ((ALL_WRITE, elected(TELL)), (HEAR, "ld.shared.u32 %r9, [%r1+128];\n")),
    "both read": ((ALL_READ, elected(TELL)), (HEAR, FIRST)),
    "all wait": ((HEAR, ALL_READ), (WRITE_FIRST, lane_0(TELL))),
    "the elected lane waits, then all": (
        (only(1, HEAR), HEAR.replace("W2", "W4"), ALL_READ),
        (WRITE_FIRST, lane_0(TELL)),
    ),
    "lane 0 waits by its number": ((only(2, HEAR), ALL_READ), (WRITE_FIRST, lane_0(TELL))),
    "the elected lane waits, and all touch other bytes": (
        (only(1, HEAR), "st.shared.u32 [%r8+384], 1;\n"),
        (WRITE_FIRST, lane_0(TELL)),
    ),
    "the elected lane waits, and reads itself": ((only(1, HEAR, FIRST),), (WRITE_FIRST, lane_0(TELL))),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_warps_that_are_in_order_whichever_lane_is_elected(name):
    assert of_two_warps(*IN_ORDER[name]) == []


@pytest.mark.parametrize(("meet", "rests"), [("", 1), (f"@%p3 {MEET}", 0)], ids=["alone", "they meet"])
def test_only_the_elected_lanes_own_warp_needs_to_meet(meet, rests):
    write = f"mad.lo.u32 %r14, %r2, 4, %r1; st.shared.u32 [%r14+512], %r3; {meet}\nelect.sync"
    start = TWO_WARPS.replace("elect.sync", write)
    lines = elected(TELL), "bra END;\nOTHER:\n", HEAR, "ld.shared.u32 %r9, [%r1+512];\n"
    assert len(rests_on_the_lane(*lines, start=start)) == rests


def test_an_elected_lane_releases_to_a_peer_of_the_cluster():
    start = """mov.u32 %r1, smem; mov.u32 %r3, %tid.x; ld.param.u64 %rd1, [p0]; mov.u32 %r4, %cluster_ctarank;
    setp.eq.u32 %p2, %r3, 0; setp.eq.u32 %p3, %r4, 0; mad.lo.u32 %r8, %r3, 4, %r1;
    @%p2 mbarrier.init.shared.b64 [%r1+896], 1; fence.mbarrier_init.release.cluster;
    mapa.shared::cluster.u32 %r11, %r1, 1; mapa.shared::cluster.u32 %r12, %r1, 0;
    barrier.cluster.arrive; barrier.cluster.wait;
    elect.sync _|%p1, -1;
    @!%p3 bra OTHER;
    """
    tells = elected("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11+896];\n")
    hears = HEAR.replace("parity", "parity.acquire.cluster") + "ld.shared::cluster.u32 %r9, [%r12];\n"
    end = "bra END;\nOTHER:\n", hears, "END:\n", "barrier.cluster.arrive; barrier.cluster.wait;\n"
    for meet, rests in (("", 1), (MEET, 0)):
        lines = ALL_WRITE, meet, tells, *end
        assert len(rests_on_the_lane(*lines, start=start, block=32, cluster=2, end="")) == rests


GROUP = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [p0]; setp.lt.u32 %p3, %r2, 128;
setp.eq.u32 %p4, %r2, 0; setp.eq.u32 %p5, %r2, 128; @%p4 mbarrier.init.shared.b64 [%r1+6136], 1;
fence.proxy.async.shared::cta; bar.sync 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
@%p5 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+6136], 5120;
@%p5 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 5120, [%r1+6136];
@!%p3 bra END; elect.sync _|%p1, -1;
"""
"""A warpgroup, and a thread that loads what its product reads."""
PRODUCT = """shr.u32 %r9, %r1, 4; cvt.u64.u32 %rd5, %r9; or.b64 %rd5, %rd5, 0x0000004000080000; add.u64 %rd6, %rd5, 256;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""


@pytest.mark.parametrize(
    ("waits", "kinds"),
    [
        ("", []),
        ("@!%p1 bra MET;\n", ["unordered-read"]),
        ("@!%p4 bra MET;\n", ["unordered-read"]),
        ("@!%p1 bra MET;\n{}MET: bar.warp.sync -1;\n", []),
        ("@!%p4 bra MET;\n{}MET: bar.warp.sync -1;\n", ["unordered-read"]),
        ("@!%p4 bra MET;\n{}MET: bar.sync 1, 128;\n", []),
    ],
    ids=["all", "the lane of each warp", "thread 0", "the lanes, warps meet", "thread 0, warps meet", "all meet"],
)
def test_a_product_reads_what_all_lanes_of_its_warpgroup_know(waits, kinds):
    wait = WAIT.format(1, 0).replace("[%r1]", "[%r1+6136]")
    waits = waits.format(wait) if "{}" in waits else waits + wait + "MET:\n"
    run = Run((), None, sanitize=True)
    body = GROUP + waits + PRODUCT + "END:\n"
    launch(body, np.zeros(2048, np.uint32), block=160, smem_bytes=8192, run=run)
    assert [hazard.kind for hazard in run.hazards] == kinds
