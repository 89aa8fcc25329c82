"""Mistakes that stop the machine are hazards to the sanitizer, beside those that were found before them."""

import json

import numpy as np
import pytest

import cutepy
from cutepy.sim import BarrierError, DeadlockError, HazardError, MemoryAccessError, Run, SimulationError
from tests.messages import pins
from tests.sim.opcode_runner import launch

START = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3; add.u32 %r8, %r1, 1024;
setp.eq.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r2, 32; ld.param.u64 %rd1, [p0];
"""
INIT = "@%p1 mbarrier.init.shared.b64 [%r8], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
EXPECT = "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r8], {};\n"
TAKE = "@%p1 mbarrier.complete_tx.relaxed.cta.shared.b64 [%r8], {};\n"
ARRIVE = "@%p1 mbarrier.arrive.shared.b64 _, [%r8];\n"
INVAL = "@%p1 mbarrier.inval.shared.b64 [%r8];\n"
ENDS = "; the launch ends there, and what would come after was not looked at: "
MEET = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
STORE = """mov.u32 %r9, %cluster_ctarank; mapa.shared::cluster.u32 %r10, %r8, %r9; xor.b32 %r9, %r9, 1;
mapa.shared::cluster.u32 %r9, %r4, %r9;
{}.shared::cluster.mbarrier::complete_tx::bytes{}.u32 [%r9], %r2, [%r10];
"""
PEER = """mov.u32 %r9, %cluster_ctarank; xor.b32 %r9, %r9, 1; mapa.shared::cluster.u32 %r10, %r8, %r9;
"""
MULTICAST = (
    "mov.u16 %rs1, {};\n@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%r1], [%rd1], 256, [%r8], %rs1;\n"
)
ALONE = "@!%p1 exit;\n"
STATE = "mbarrier.arrive.shared.b64 %rd4, [%r8];\n"
OTHER = "mbarrier.try_wait.shared.b64 %p3, [{}], {};\n"
PAIR = {"grid": 2, "cluster": 2}

ENDING = {
    "no init": (ARRIVE, "uninitialised-mbarrier", {}),
    "after inval": (INIT + INVAL + ARRIVE, "uninitialised-mbarrier", {}),
    "two counts": ("@%p2 bar.sync 1, 64;\n@!%p2 bar.sync 1, 96;\n", "mismatched-count", {"block": 96}),
    "a count too small": ("bar.sync 1, 32;\n", "mismatched-count", {"block": 64}),
    "no multiple of a warp": ("mov.u32 %r9, 40;\nbar.sync 1, %r9;\n", "mismatched-count", {"block": 64}),
    "no barrier": ("mov.u32 %r9, 16;\nbar.sync %r9;\n", "misused-barrier", {}),
    "too many arrivals": (INIT + "mbarrier.arrive.shared.b64 _, [%r8];\n", "misused-barrier", {}),
    "two arrivals": ("barrier.cluster.arrive;\nbarrier.cluster.arrive;\n", "unpaired-arrival", {}),
    "a wait alone": ("barrier.cluster.wait;\n", "unpaired-arrival", {}),
    "a second wait": (
        "barrier.cluster.arrive;\nbarrier.cluster.wait;\nbarrier.cluster.wait;\n",
        "unpaired-arrival",
        {},
    ),
    "st.async with the mbarrier of its own CTA": (INIT + MEET + STORE.format("st.async", ""), "misused-barrier", PAIR),
    "red.async with the mbarrier of its own CTA": (
        INIT + MEET + STORE.format("red.async.relaxed.cluster", ".add"),
        "misused-barrier",
        PAIR,
    ),
    "a wait at the peer's": (
        INIT + MEET + PEER + "mbarrier.try_wait.parity.shared.b64 %p3, [%r10], 0;\n",
        "misused-barrier",
        PAIR,
    ),
    "a test at the peer's": (
        INIT + MEET + PEER + "mbarrier.test_wait.parity.shared.b64 %p3, [%r10], 0;\n",
        "misused-barrier",
        PAIR,
    ),
    "a state of two phases ago": (
        INIT + ALONE + STATE + ARRIVE + "mbarrier.test_wait.shared.b64 %p3, [%r8], %rd4;\n",
        "misused-barrier",
        {},
    ),
    "a state of another mbarrier": (
        "@%p1 mbarrier.init.shared.b64 [%r8+8], 1;\n" + INIT + ALONE + STATE + OTHER.format("%r8+8", "%rd4"),
        "misused-barrier",
        {},
    ),
    "a state of the one that was made here before": (
        INIT + ALONE + STATE + INVAL + "mbarrier.init.shared.b64 [%r8], 1;\n" + OTHER.format("%r8", "%rd4"),
        "misused-barrier",
        {},
    ),
    "a state of another CTA's": (
        INIT
        + MEET
        + PEER
        + STATE.replace("mbarrier", "@%p1 mbarrier")
        + "@%p1 st.shared::cluster.u64 [%r10+64], %rd4;\n"
        + MEET
        + "@%p1 ld.shared.u64 %rd5, [%r8+64];\n@!%p1 bra END;\n"
        + OTHER.format("%r8", "%rd5")
        + "END:",
        "misused-barrier",
        PAIR,
    ),
    "no state": (INIT + OTHER.format("%r8", "0"), "misused-barrier", {}),
    "inval of the peer's": (INIT + MEET + PEER + "@%p1 mbarrier.inval.shared.b64 [%r10];\n", "misused-barrier", PAIR),
    "init of the peer's": (INIT + MEET + PEER + "@%p1 mbarrier.init.shared.b64 [%r10], 1;\n", "misused-barrier", PAIR),
    "a multicast beyond the cluster": (INIT + MEET + MULTICAST.format(6), "invalid-access", PAIR),
    "a multicast to nobody": (INIT + MEET + MULTICAST.format(0), "invalid-access", PAIR),
    "misaligned": ("add.u32 %r9, %r1, 2;\nst.shared.u32 [%r9], %r2;\n", "invalid-access", {}),
    "beyond shared memory": ("add.u32 %r9, %r1, 4096;\nld.shared.u32 %r10, [%r9];\n", "invalid-access", {}),
    "an MMA's descriptor beyond shared memory": (
        "mov.b64 %rd8, 0x0000000800080400; mov.b64 %rd9, 0x0000000800080000; setp.ne.u32 %p6, 0, 0;\n"
        "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd8, %rd9, "
        "0, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n",
        "invalid-access",
        {"block": 128},
    ),
    "beyond global memory": ("st.global.u32 [%rd1+1048576], %r2;\n", "invalid-access", {}),
    "a misaligned copy": (
        INIT + "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1+4], 256, [%r8];\n",
        "invalid-access",
        {},
    ),
    "a lane outside of its mask": ("shfl.sync.idx.b32 %r9, %r2, 0, 31, 0xffff;\n", "mismatched-mask", {}),
    "a lane that is elsewhere": (
        "@!%p1 bra SKIP;\nvote.sync.any.pred %p3, %p1, 0xffffffff;\nSKIP: st.shared.u32 [%r4], %r2;\n",
        "mismatched-mask",
        {},
    ),
    "no tensor map": ("prefetch.tensormap [%rd1+4];\n", "invalid-descriptor", {}),
}
"""Mistakes that end the launch."""

GOING_ON = {
    "a store over an mbarrier": (INIT + "@%p1 st.shared.u32 [%r8+4], %r2;\n", "overwritten-mbarrier"),
    "too many bytes": (INIT + EXPECT.format(1 << 19) * 2 + TAKE.format(1 << 19) * 2, "byte-count-overflow"),
    "bytes that complete a phase": (INIT + TAKE.format(64) + ARRIVE + EXPECT.format(64), "premature-completion"),
    "a shuffle from a lane that has ended": (
        "setp.ge.u32 %p3, %r2, 16;\n@%p3 exit;\nshfl.sync.down.b32 %r9, %r2, 1, 31, 0xffffffff;\n",
        "undefined-shuffle",
    ),
    "a shuffle from a lane outside of the mask": (
        "setp.ge.u32 %p3, %r2, 16;\n@%p3 bra SKIP;\nshfl.sync.down.b32 %r9, %r2, 1, 31, 0xffff;\nSKIP:",
        "undefined-shuffle",
    ),
}
"""Mistakes after which the launch goes on, as long as the sanitizer tells of them."""


def run_of(body, sanitize=True, block=32, **options):
    run = Run((), None, sanitize=sanitize)
    data = np.zeros(256, np.uint32)
    launch(START + body, data, block=block, smem_bytes=2048, run=run, assembles=False, **options)
    return run


def stopped(body, sanitize=True, **options):
    """Return what stops a launch, and the hazards."""
    run = Run((), None, sanitize=sanitize)
    with pytest.raises(SimulationError) as found:
        launch(START + body, np.zeros(256, np.uint32), smem_bytes=2048, run=run, assembles=False, **options)
    return found.value, run.hazards


@pytest.mark.parametrize(("body", "kind", "options"), ENDING.values(), ids=ENDING)
def test_what_ends_a_launch_is_a_hazard(body, kind, options):
    error, hazards = stopped(body, **options)
    found = next(hazard for hazard in hazards if hazard.kind == kind)
    assert error.mistakes == (error,)
    assert error.kind == kind
    assert ENDS in found.missing
    assert found.after.instruction is error.instruction
    assert (found.after.cta, found.after.warp is not None) == ((0, 0, 0), True)
    assert found.where
    wrong, wanted = found.advice
    assert wrong
    assert wanted


def test_an_async_store_names_the_cta_of_the_data_and_that_of_its_mbarrier():
    _, hazards = stopped(ENDING["st.async with the mbarrier of its own CTA"][0], **PAIR)
    wrong, wanted = hazards[-1].advice
    pins(wrong)
    assert wanted == "both must be of the same CTA, so take the mbarrier's address in CTA (1, 0, 0) too, by mapa"


@pytest.mark.parametrize(("body", "kind"), GOING_ON.values(), ids=GOING_ON)
def test_a_launch_goes_on_where_it_can(body, kind):
    run = run_of(body + "@%p1 ld.shared.u32 %r9, [%r1+512];\n@%p1 st.global.u32 [%rd1], %r9;\n")
    assert all(ENDS not in hazard.missing for hazard in run.hazards)
    # What comes after is looked at.
    assert sorted(hazard.kind for hazard in run.hazards) == sorted([kind, "uninitialised-read"])


@pytest.mark.parametrize("name", [name for name, (_, kind) in GOING_ON.items() if kind != "undefined-shuffle"])
def test_without_the_sanitizer_they_stop_it(name):
    error, hazards = stopped(GOING_ON[name][0], sanitize=False)
    assert not hazards
    assert isinstance(error, BarrierError)


def test_shuffles_stop_nothing():
    assert run_of(GOING_ON["a shuffle from a lane that has ended"][0], sanitize=False).launches


@pytest.mark.parametrize(
    "body",
    [
        # Lanes that are out of range read their own value.
        "shfl.sync.down.b32 %r9, %r2, 1, 31, 0xffffffff;\n",
        "setp.ge.u32 %p3, %r2, 16;\n@%p3 bra SKIP;\nshfl.sync.down.b32 %r9, %r2, 1, 0x100f, 0xffff;\nSKIP:",
        "setp.ge.u32 %p3, %r2, 16;\n@%p3 bra SKIP;\nshfl.sync.bfly.b32 %r9, %r2, 1, 31, 0xffff;\nSKIP:",
        "setp.ge.u32 %p3, %r2, 16;\n@%p3 exit;\nshfl.sync.idx.b32 %r9, %r2, 0, 31, 0xffffffff;\n",
    ],
)
def test_shuffles_among_the_lanes_of_a_mask_are_silent(body):
    assert not run_of(body).hazards


def test_both_sides_are_told():
    _, hazards = stopped(INIT + INVAL + ARRIVE)
    before, after = next(h for h in hazards if h.kind == "uninitialised-mbarrier").sides
    assert (before.what, before.warp, before.lane) == ("mbarrier.inval", 0, 0)
    assert (after.what, after.warp, after.lane) == ("mbarrier.arrive", 0, 0)
    _, hazards = stopped("@%p2 bar.sync 1, 64;\n@!%p2 bar.sync 1, 96;\n", block=96)
    before, after = hazards[0].sides
    assert {before.warp, after.warp} == {0, 1}
    assert hazards[0].where == "barrier 1"


def test_registers_that_nobody_gives_back():
    error, (found,) = stopped("setmaxnreg.inc.sync.aligned.u32 232;\n", block=384, directives=".reqntid 384, 1, 1")
    assert isinstance(error, DeadlockError)
    assert found.kind == "exhausted-registers"
    pins(found.missing)
    assert found.after.what == "setmaxnreg"


def test_hazards_found_before_are_told_with_it():
    race = "st.shared.u32 [%r1], %r2;\nbar.warp.sync 0xffffffff;\nld.shared.u32 %r9, [%r1];\n"
    _, hazards = stopped(race + "mov.u32 %r9, 16;\nbar.sync %r9;\n", block=64)
    assert {"unordered-write", "misused-barrier"} <= {hazard.kind for hazard in hazards}


PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry late(.param .u64 x) {
    .reg .b64 %rd<3>; .reg .b32 %r<3>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, %tid.x;
    st.global.u32 [%rd0], %r0;
    st.global.u32 [%rd0+4096], %r0;
    ret;
}"""


def late():
    kernel = cutepy.load_ptx(PTX)
    kernel.launch("late", grid=1, block=64, args=(np.zeros(4, np.uint32),))


def test_simulate_raises_hazards_in_its_place():
    with pytest.raises(HazardError) as found, cutepy.simulate(sanitize=True) as run:
        late()
    assert isinstance(found.value.__cause__, MemoryAccessError)
    assert {"invalid-access", "unordered-write"} == {hazard.kind for hazard in found.value.hazards}
    assert [*run.hazards] == [*found.value.hazards]
    (access,) = (hazard for hazard in run.hazards if hazard.kind == "invalid-access")
    assert access.after.line == "line 9 of the PTX"


def test_without_the_sanitizer_the_error_has_its_line_of_the_ptx():
    with pytest.raises(MemoryAccessError) as told, cutepy.simulate():  # what is beside the address differs
        late()
    pins(str(told.value))


def test_other_errors_stay():
    with pytest.raises(KeyError), cutepy.simulate(sanitize=True):
        raise KeyError
    with pytest.raises(SimulationError) as found, cutepy.simulate(sanitize=True):
        cutepy.load_ptx(PTX.replace("ret;", "trap;").replace("st.global.u32 [%rd0+4096], %r0;", "")).launch(
            "late", grid=1, block=32, args=(np.zeros(4, np.uint32),)
        )
    assert not isinstance(found.value, HazardError)


def test_the_command_tells_them_and_fails_by_them(tmp_path, capsys):
    from cutepy.cli.sanitize import run
    from cutepy.cli.scripts import Script

    script = tmp_path / "late.py"
    script.write_text(
        f"import numpy as np\nimport cutepy\nkernel = cutepy.load_ptx({PTX!r})\n"
        'kernel.launch("late", grid=1, block=64, args=(np.zeros(4, np.uint32),))\n'
    )
    for form in ("json", "sarif"):
        output = tmp_path / f"found.{form}"
        assert run(Script(script, (), lambda line: None), form, output) == 1
        text = output.read_text()
        assert "invalid-access" in text
        assert "unordered-write" in text
    told = json.loads((tmp_path / "found.json").read_text())["hazards"]
    (access,) = (hazard for hazard in told if hazard["kind"] == "invalid-access")
    assert access["after"]["ptx_line"] == 9
    assert "invalid-access" in capsys.readouterr().err
