"""`.aligned` instructions that a part of a warp executes, or of a warpgroup; each beside a right one."""

import contextlib

import numpy as np
import pytest

from cutepy.sim import DeadlockError, Run, SimulationError
from cutepy.sim.machine.policies import policy_named
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r3, %r2, 31; ld.param.u64 %rd1, [p0];
mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd1, %rd2; and.b32 %r4, %r2, 127; shl.b32 %r6, %r3, 4; add.u32 %r6, %r1, %r6;
setp.eq.u32 %p1, %r3, 0; setp.lt.u32 %p2, %r3, 16; setp.lt.u32 %p3, %r2, 32; setp.lt.u32 %p4, %r4, 64;
"""
END = "\nst.global.u32 [%rd2], %r2;\n"
REQUIRED = {"block": 128, "directives": ".reqntid 128, 1, 1"}


def hazards_of(body, block=32, policy=None, cluster=1, directives="", end=END):
    run = Run((), policy, sanitize=True)
    data = np.zeros(1024, np.uint32)
    launch(
        START + body + end, data, block=block, grid=cluster, cluster=cluster, smem_bytes=2048, run=run,
        directives=directives, assembles=False,
    )  # fmt: skip
    return run.hazards


def kinds(*arguments, **options):
    return sorted({hazard.kind for hazard in hazards_of(*arguments, **options)})


PARTS_OF_WARPS = [
    "@%p1 bar.sync 0;",
    "@%p1 bar.sync 1, 32;\n@!%p1 bar.sync 1, 32;",
    "@%p1 barrier.sync.aligned 0;",
    "@%p1 bar.arrive 1, 32;",
    "@%p1 bar.red.popc.u32 %r9, 0, %p1;",
    "@%p1 barrier.red.and.aligned.pred %p5, 0, %p1;",
    "@%p1 barrier.cluster.arrive.aligned;\n@!%p1 barrier.cluster.arrive;\nbarrier.cluster.wait;",
    "barrier.cluster.arrive;\n@%p2 barrier.cluster.wait.aligned;\n@!%p2 barrier.cluster.wait;",
    "@!%p1 bra SKIP;\nbar.sync 0;\nSKIP:",
    "@%p2 bra LOW;\nbar.sync 0;\nbra MEET;\nLOW: bar.sync 0;\nMEET:",
    # Each lane executes it once, in a round of its own.
    "mov.u32 %r9, 0;\nAGAIN: setp.eq.u32 %p5, %r9, %r3;\n@%p5 bar.sync 0;\nadd.u32 %r9, %r9, 1;\n"
    "setp.lt.u32 %p6, %r9, 32;\n@%p6 bra AGAIN;",
    # Lanes leave at different rounds a loop that has it.
    "mov.u32 %r9, 0;\nAGAIN: bar.sync 0;\nadd.u32 %r9, %r9, 1;\nsetp.le.u32 %p6, %r9, %r3;\n@%p6 bra AGAIN;",
    "@%p1 fence.proxy.async;\n@%p1 wgmma.fence.sync.aligned;",
]

WHOLE = [
    "bar.sync 0;",
    "@%p1 barrier.sync 0;",
    "@%p1 barrier.sync 0;\n@!%p1 barrier.sync 0;",
    "@%p1 st.shared.u32 [%r1], %r2;\nbar.sync 0;",
    "@%p2 bra LOW;\nadd.u32 %r9, %r2, 1;\nbra MEET;\nLOW: add.u32 %r9, %r2, 2;\nMEET: bar.sync 0;",
    # Lanes leave the loop at different rounds, and meet behind it.
    "mov.u32 %r9, 0;\nAGAIN: add.u32 %r9, %r9, 1;\nsetp.le.u32 %p6, %r9, %r3;\n@%p6 bra AGAIN;\nbar.sync 0;",
    # a || b, which all evaluate alike on two paths.
    "@%p2 bra BODY;\nsetp.gt.u32 %p5, %r3, 40;\n@%p5 bra SKIP;\nBODY: bar.sync 0;\nSKIP:",
    "@%p2 bra BODY;\nsetp.gt.u32 %p5, %r3, 40;\n@%p5 bra SKIP;\nBODY: bar.arrive 1, 128;\nSKIP:",
    # Lanes that have ended are not waited for.
    "@%p2 exit;\nbar.sync 0;",
    "@!%p2 exit;\nbar.sync 0;",
    "setp.gt.u32 %p5, %r3, 3;\n@%p5 bra END;\nbar.sync 0;\nst.global.u32 [%rd2], %r2;\nEND: ret;",
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
    "@%p1 griddepcontrol.wait;\n@%p1 griddepcontrol.launch_dependents;",
    # One lane keeps the others waiting where they meet.
    "@!%p1 bra MEET;\nmov.u32 %r9, 0;\nSLOW: ld.volatile.global.u32 %r10, [%rd1+2048];\nadd.u32 %r9, %r9, 1;\n"
    "setp.lt.u32 %p6, %r9, 3000;\n@%p6 bra SLOW;\nMEET: bar.sync 0;\nbar.sync 0;",
]


@pytest.mark.parametrize("body", PARTS_OF_WARPS)
@pytest.mark.parametrize("policy", [None, "schedule:3"])
def test_a_part_of_a_warp_is_told(body, policy):
    policy = policy and policy_named(policy)
    expected = ["partial-warpgroup"] if "wgmma" in body else ["partial-warp"]
    assert kinds(body, policy=policy, block=128 if "wgmma" in body else 32) == expected


@pytest.mark.parametrize("body", WHOLE)
@pytest.mark.parametrize(("policy", "block"), [(None, 32), ("schedule:3", 96)])
def test_a_whole_warp_is_silent(body, policy, block):
    policy = policy and policy_named(policy)
    assert [kind for kind in kinds(body, block=block, policy=policy) if "partial" in kind] == []


@pytest.mark.parametrize(
    ("low", "high", "is_right"),
    [
        ("bar.sync 1, 32;", "bar.sync 1, 32;", False),
        ("barrier.cluster.arrive.aligned;", "barrier.cluster.arrive.aligned;", False),
        ("bar.arrive 1, 32; bar.arrive 2, 32;", "bar.sync 1, 32;", False),
        ("bar.sync 1;", "", True),
    ],
)
@pytest.mark.parametrize("count", [1, 16, 31])
def test_parts_that_end_behind_other_barriers_are_told(low, high, is_right, count):
    """Nobody meets them again; who comes to no barrier may have ended before."""
    is_low = f"setp.lt.u32 %p5, %r3, {count};\n"
    found = kinds(f"{is_low}@%p5 bra LOW;\n{high}\nbra END;\nLOW: {low}\nEND:", end="")
    assert found == ([] if is_right else ["partial-warp"])


@pytest.mark.parametrize("body", ["@%p3 bar.sync 1, 32;", "@%p3 barrier.sync.aligned 1, 32;"])
def test_other_warps_may_do_otherwise(body):
    assert kinds(body, block=96) == []


@pytest.mark.parametrize(
    "body",
    [
        "@%p4 setmaxnreg.dec.sync.aligned.u32 40;",
        "@%p4 wgmma.fence.sync.aligned;",
        "@%p4 wgmma.commit_group.sync.aligned;",
        "@%p4 wgmma.wait_group.sync.aligned 0;",
        "@%p4 bra FEW;\nwgmma.fence.sync.aligned;\nbra MEET;\nFEW: wgmma.fence.sync.aligned;\nMEET:",
        "@%p4 exit;\nsetmaxnreg.dec.sync.aligned.u32 40;",
    ],
)
@pytest.mark.parametrize("policy", [None, "schedule:3"])
def test_a_part_of_a_warpgroup_is_told(body, policy):
    assert kinds(body, policy=policy and policy_named(policy), **REQUIRED) == ["partial-warpgroup"]


@pytest.mark.parametrize("name", ["setmaxnreg.dec.sync.aligned.u32 40", "wgmma.fence.sync.aligned"])
@pytest.mark.parametrize("policy", [None, "schedule:3"])
def test_a_whole_warpgroup_is_silent(name, policy):
    body = f"setp.lt.u32 %p5, %r2, 128;\n@%p5 bra FEW;\nbra MEET;\nFEW: {name};\nMEET:"
    options = {"block": 256, "directives": ".reqntid 256, 1, 1", "policy": policy and policy_named(policy)}
    assert kinds(body, **options) == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("@%p2 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r6];", "partial-warp"),
        ("@%p2 stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%r2};", "partial-warp"),
        ("@%p2 movmatrix.sync.aligned.m8n8.trans.b16 %r9, %r2;", "partial-warp"),
        (
            "@%p2 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r2,%r2}, {%r2}, "
            "{0f00000000,0f00000000,0f00000000,0f00000000};",
            "partial-warp",
        ),
    ],
)
def test_what_the_simulator_cannot_go_on_with_ends_the_launch(body, kind):
    run = Run((), None, sanitize=True)
    with pytest.raises(SimulationError):
        launch(START + body + END, np.zeros(64, np.uint32), smem_bytes=2048, run=run, assembles=False)
    assert [hazard.kind for hazard in run.hazards] == [kind]


MMA = """mov.u64 %rd5, 0x0000001000080000; mov.u64 %rd6, %rd5; setp.eq.u32 %p6, %r2, %r2;
st.shared.u32 [%r5], 0; st.shared.u32 [%r5+512], 0; st.shared.u32 [%r5+1024], 0; st.shared.u32 [%r5+1536], 0;
fence.proxy.async.shared::cta; bar.sync 0; CHANGE
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, %p6, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
BY_WARP = "shr.u32 %r9, %r2, 5; and.b32 %r9, %r9, 3;"
BY_LANE = "mov.u32 %r9, %r3;"
BY_GROUP = "shr.u32 %r9, %r2, 7;"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("", []),
        (f"{BY_GROUP} cvt.u64.u32 %rd7, %r9; add.u64 %rd6, %rd6, %rd7;", []),
        (f"{BY_WARP} cvt.u64.u32 %rd7, %r9; add.u64 %rd6, %rd6, %rd7;", ["invalid-descriptor"]),
        (f"{BY_LANE} cvt.u64.u32 %rd7, %r9; add.u64 %rd5, %rd5, %rd7;", ["invalid-descriptor"]),
        (f"{BY_WARP} setp.ne.u32 %p6, %r9, 3;", ["invalid-descriptor"]),
        ("mov.pred %p6, %p2;", ["invalid-descriptor"]),
        (f"{BY_GROUP} setp.eq.u32 %p6, %r9, 0;", []),
    ],
)
def test_a_warpgroup_gives_one_descriptor(change, found):
    """PTX ISA, "wgmma.mma_async": the same across all the warps of the warpgroup."""
    body = "and.b32 %r5, %r2, 127; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r1;\n"
    store = "setp.lt.u32 %p7, %r2, 128;\n" + MMA.replace("st.shared", "@%p7 st.shared").replace("CHANGE", change)
    assert kinds(body + store, block=256) == found


WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%r5], %r9;"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("shr.u32 %r9, %r2, 5;\nbar.sync %r9, 32;", []),
        ("and.b32 %r9, %r2, 1;\nbarrier.sync %r9, 32;", ["partial-warp"]),
        ("and.b32 %r9, %r2, 1;\nbar.arrive %r9, 64;", ["deadlock", "partial-warp"]),
        (f"mov.u32 %r5, %r1; mov.u32 %r9, 16;\n{WMMA}", []),
        (f"add.u32 %r5, %r1, %r6; sub.u32 %r5, %r5, %r1; mov.u32 %r9, 16;\n{WMMA}", ["partial-warp"]),
        (f"mov.u32 %r5, %r1; and.b32 %r9, %r3, 8; add.u32 %r9, %r9, 16;\n{WMMA}", ["partial-warp"]),
    ],
)
def test_a_warp_gives_one_barrier_or_matrix(body, found):
    run = Run((), None, sanitize=True)
    # Lanes that give two barriers wait for each other there.
    with pytest.raises(SimulationError) if "bar" in body and found else contextlib.nullcontext():
        launch(START + body + END, np.zeros(64, np.uint32), block=64, smem_bytes=2048, run=run, assembles=False)
    assert sorted({hazard.kind for hazard in run.hazards} - {"uninitialised-read"}) == found


def test_without_the_sanitizer_what_differs_ends_the_launch():
    with refuses(SimulationError):
        launch(START + "and.b32 %r9, %r2, 1;\nbar.sync %r9, 32;", np.zeros(64, np.uint32), block=64, assembles=False)


def test_a_report_has_the_lanes_the_line_and_what_to_do():
    (found,) = hazards_of("@!%p1 bra SKIP;\nbar.sync 0;\nSKIP:")
    branch, barrier = found.sides
    assert (barrier.what, barrier.who, barrier.cta, barrier.warp, barrier.lane) == (
        "bar.sync", "warp 0, lane 0 of CTA (0, 0, 0)", (0, 0, 0), 0, 0,
    )  # fmt: skip
    assert branch.what == "bra"
    assert barrier.instruction.line
    pins(found.missing)


def test_one_mistake_is_told_once():
    """A branch within another: the lanes that lack it meet the others in two places."""
    body = "@!%p2 bra OUT;\n@!%p1 bra IN;\nbar.sync 0;\nIN: st.shared.u32 [%r6], %r2;\nOUT:"
    assert len(hazards_of(body)) == 1


def test_lanes_that_have_not_come_yet_are_not_named():
    """Lanes 16 to 31 are elsewhere as lanes 1 to 15 pass by."""
    body = "@!%p2 bra OUT;\n@!%p1 bra IN;\nbar.sync 0;\nIN: st.shared.u32 [%r6], %r2;\nOUT:"
    (found,) = hazards_of(body)
    assert found.after.who == "warp 0, lane 0 of CTA (0, 0, 0)"


def test_a_deadlock_of_two_halves_is_told_with_the_cause():
    run = Run((), None, sanitize=True)
    body = "@%p2 bra LOW;\nbar.sync 1, 32;\nbra MEET;\nLOW: bar.sync 2, 32;\nMEET:"
    with refuses(SimulationError):
        launch(START + body + END, np.zeros(64, np.uint32), smem_bytes=2048, run=run, assembles=False)
    kinds = [hazard.kind for hazard in run.hazards]
    assert kinds == ["partial-warp"] * (len(kinds) - 1) + ["deadlock"]


def test_lanes_that_can_go_on_no_more_are_told_what_others_of_their_warp_executed_alone():
    """Half of a warp executes an aligned barrier that the others never come to, and then all wait for ever."""
    body = """mov.u32 %r1, %tid.x; setp.lt.u32 %p2, %r1, 16; @!%p2 bra OTHER;
    bar.sync 1, 32; bar.sync 2, 64; bra END; OTHER: bar.sync 2, 64; END:"""
    run = Run((), None, sanitize=True)
    with pytest.raises(DeadlockError):
        launch(body, run=run, block=32)
    assert {hazard.kind for hazard in run.hazards} == {"partial-warp", "deadlock"}
