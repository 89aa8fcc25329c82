"""Hazards that are played: one side is held back, and a value changes, or it is said why none does."""

import gc
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cutepy.sim import Run, lazy_tensor
from cutepy.sim.machine.policies import policy_named
from cutepy.sim.replay.witnesses import other_orders
from tests.messages import pins, refuses
from tests.sim.opcode_runner import launch

ADDRESS = """mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;
setp.eq.u32 %p1, %r2, 0; ld.param.u64 %rd1, [p0];
"""
WRITE, FENCE, BARRIER = "st.shared.u32 [%r4], %r2;\n", "fence.proxy.async.shared::cta;\n", "bar.sync 0;\n"
OTHER = "xor.b32 %r5, %r3, 128; add.u32 %r6, %r1, %r5; ld.shared.u32 %r7, [%r6];\n"
NEXT = "xor.b32 %r5, %r3, 4; add.u32 %r6, %r1, %r5; ld.shared.u32 %r7, [%r6];\n"
READ = "ld.shared.u32 %r7, [%r4];\n"
STORE = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;\n@%p1 cp.async.bulk.commit_group;\n"
WAIT = "@%p1 cp.async.bulk.wait_group.read 0;\n"
INIT = "add.u32 %r8, %r1, 1024;\n@%p1 mbarrier.init.shared.b64 [%r8], 1;\n"
SHOW = "fence.mbarrier_init.release.cluster;\n"
LOAD = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 256;
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r8];
"""
TRY = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;\n@!%p2 bra AGAIN;\n"
COPY = "cvt.u64.u32 %rd3, %r3; add.u64 %rd2, %rd1, %rd3;\ncp.async.ca.shared.global [%r4], [%rd2], 4;\n"
MET, OVERWRITE = "bar.sync 1, 64;\n", "st.shared.u32 [%r6], 99;\n"
AWAY = "xor.b32 %r5, %r3, 128; add.u32 %r6, %r1, %r5; setp.ge.u32 %p3, %r2, 32; @%p3 bra LATER;\n"
TRACK = "@%p1 cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];\n"
OUT = "cvt.u64.u32 %rd4, %r3; add.u64 %rd5, %rd1, %rd4; st.global.u32 [%rd5+2048], %r7;\n"


def watched(*lines, block=64, smem_bytes=2048, **extents):
    run = Run((), None, sanitize=True, replay=True)
    data = np.arange(1024, dtype=np.uint32)
    launch("".join((ADDRESS, *lines, OUT)), data, block=block, smem_bytes=smem_bytes, run=run, **extents)
    return run


SHOWN = {
    "a race between warps": ((WRITE, OTHER), "unordered-read", "[512]", "0, not 32"),
    "a race between lanes": ((WRITE, NEXT), "unordered-read", "[512]", "0, not 1"),
    "read, then written": (
        (WRITE, BARRIER, OTHER, "not.b32 %r9, %r2; st.shared.u32 [%r4], %r9;\n"),
        "unordered-write",
        "[544]",
        "4294967295, not 0",
    ),
    "no barrier before a store": ((WRITE, FENCE, STORE, WAIT), "unordered-read", "[32]", "0, not 32"),
    "no wait before shared memory is written again": (
        (WRITE, FENCE, BARRIER, STORE, BARRIER, "not.b32 %r9, %r2; st.shared.u32 [%r4], %r9;\n", WAIT),
        "unordered-write",
        "[0]",
        "4294967295, not 0",
    ),
    "no wait before the end": ((WRITE, FENCE, BARRIER, STORE), "in-flight-at-exit", "[0]", "4294967295, not 0"),
    "no wait for a load": ((INIT, SHOW, BARRIER, LOAD, READ), "unordered-read", "[513]", "0, not 1"),
    "no wait for cp.async": ((COPY, READ), "unordered-read", "[513]", "0, not 1"),
    "no barrier after cp.async": ((COPY, "cp.async.wait_all;\n", NEXT), "unordered-read", "[512]", "0, not 1"),
    "shared memory given back before the wait for a store": (
        (
            WRITE,
            FENCE,
            BARRIER,
            AWAY,
            STORE,
            "bar.arrive 1, 64;\n",
            WAIT,
            "bra END;\nLATER:\n",
            MET,
            OVERWRITE,
            "END:\n",
        ),
        "unordered-write",
        "[0]",
        "99, not 0",
    ),
    "a word shown before the wait for cp.async": (
        (AWAY, COPY, "bar.arrive 1, 64;\ncp.async.wait_all;\nbra END;\nLATER:\n", MET, OTHER, "END:\n"),
        "unordered-read",
        "[545]",
        "0, not 1",
    ),
    "a word shown before the mbarrier that counts cp.async": (
        (INIT, BARRIER, AWAY, COPY, TRACK, TRY, "bra END;\nLATER:\n", TRY.replace("AGAIN", "MORE"), OTHER, "END:\n"),
        "unordered-read",
        "[545]",
        "0, not 1",
    ),
    "bytes that nothing wrote": ((READ,), "uninitialised-read", "[512]", "4294967295, not 0"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_hazard_is_played_and_says_which_value_changes(name):
    lines, kind, where, values = SHOWN[name]
    run = watched(*lines)
    witness = next(h for h in run.hazards if h.kind == kind).replay()
    assert witness.kind == "values", witness
    assert f"first {where} of a tensor of shape (1024,) and type uint32: {values}" in witness.what


MMA = """wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd6, %rd6, %p4, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
"""
MMA_WAIT = "wgmma.wait_group.sync.aligned 0;\n"
RELEASE = "bar.arrive 1, 160;\n"
"""That the operands may be written again."""


@pytest.mark.parametrize(
    "lines", [(MMA, RELEASE, MMA_WAIT), (MMA, MMA, "wgmma.wait_group.sync.aligned 1;\n", RELEASE, MMA_WAIT)]
)
def test_operands_released_before_the_wait_for_their_mmas_are_overwritten(lines):
    """The warpgroup waits at once: it is the writer that must come before."""
    filled = "".join(f"st.shared.u32 [%r4+{640 * n}], 0x3c003c00;\n" for n in range(8))
    begin = "setp.ge.u32 %p3, %r2, 128; setp.ne.u32 %p4, 0, 0; mov.u64 %rd6, 0x1000080000;\n"
    begin += f"mov.u32 %r7, 0;\n{filled}{FENCE}{BARRIER}"
    end = "cvt.rzi.u32.f32 %r7, %f0; bra END;\nLATER: bar.sync 1, 160;\nst.shared.u32 [%r4+-512], 0;\nEND:\n"
    run = watched(begin, "@%p3 bra LATER;\n", *lines, end, block=160, smem_bytes=8192)
    (hazard,) = run.hazards
    witness = hazard.replay()
    assert (hazard.kind, witness.kind) == ("unordered-write", "values"), witness
    assert "mmas,operation" in witness.schedule


def test_what_holds_back_the_init_of_an_mbarrier_ends_in_an_error():
    run = watched(INIT, SHOW, LOAD, TRY, READ)
    witness = next(h for h in run.hazards if h.kind == "unpublished-mbarrier").replay()
    assert witness.kind == "error"
    pins(witness.what)


PEER = """mov.u32 %r9, %cluster_ctarank; mul.wide.u32 %rd6, %r9, 256; add.u64 %rd1, %rd1, %rd6;
xor.b32 %r10, %r9, 1; mapa.shared::cluster.u32 %r11, %r4, %r10;
"""
CLUSTER = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
IN_PEERS = {
    "read after its end": (WRITE, CLUSTER, "ld.shared::cluster.u32 %r7, [%r11];\n"),
    "write after its end": (WRITE, CLUSTER, "st.shared::cluster.u32 [%r11], %r2;\n"),
    "write before it begins": ("st.shared::cluster.u32 [%r11], %r2;\n", CLUSTER),
}


@pytest.mark.parametrize("name", IN_PEERS)
def test_who_reaches_into_a_cta_that_is_not_there_gets_an_error(name):
    run = watched(PEER, *IN_PEERS[name], "mov.u32 %r7, 0;\n", block=32, grid=2, cluster=2)
    (hazard,) = run.hazards
    witness = hazard.replay()
    assert hazard.kind == ("unstarted-peer" if "begins" in name else "exited-peer")
    assert witness.kind == "error", witness
    pins(witness.what)
    assert policy_named(witness.schedule).tells_absence


def test_who_knows_that_its_peer_is_there_gets_none():
    lines = PEER, CLUSTER, "st.shared::cluster.u32 [%r11], %r2;\n", CLUSTER, READ
    run = watched(*lines, block=32, grid=2, cluster=2)
    assert not run.hazards
    for name in ("hold:0,cta=1.0.0,poison", "hold:0,cta=0.0.0,poison"):
        again = Run((), policy_named(name))
        launch(
            "".join((ADDRESS, *lines, OUT)),
            np.arange(1024, dtype=np.uint32),
            block=32,
            grid=2,
            cluster=2,
            smem_bytes=2048,
            run=again,
        )


def test_an_mbarrier_made_by_two_threads_hangs_where_one_is_late():
    two = "and.b32 %r9, %r2, 31; setp.eq.u32 %p3, %r9, 0;\nadd.u32 %r8, %r1, 1024;\n"
    run = watched(two, "@%p3 mbarrier.init.shared.b64 [%r8], 2;\n@%p3 mbarrier.arrive.shared.b64 _, [%r8];\n", TRY)
    witness = next(h for h in run.hazards if h.kind == "repeated-init").replay()
    assert (witness.kind, witness.schedule[:5]) == ("hang", "hold:"), witness


def test_what_no_schedule_shows_says_why():
    run = watched(WRITE, BARRIER, STORE, WAIT)
    witness = run.replay(run.hazards[0])
    assert (witness.what, witness.kind) == (None, "")
    pins(str(witness))


@pytest.mark.parametrize(("kind", "error"), [("missing-proxy-fence", None), ("unordered-read", "it fails")])
def test_no_order_is_played_of_what_no_schedule_shows_or_what_fails(kind, error):
    assert other_orders(SimpleNamespace(kind=kind), SimpleNamespace(error=error, parts=()), processes=1) == []


PART_OF_A_WARPGROUP = "setp.lt.u32 %p4, %r2, 64;\n@%p4 wgmma.fence.sync.aligned;\n"


@pytest.mark.parametrize(
    "lines", [(WRITE, OTHER), (PART_OF_A_WARPGROUP,)], ids=["a value that nobody uses", "half a warpgroup"]
)
def test_schedules_that_were_tried_in_vain_are_told_with_a_reason_if_there_is_one(lines):
    run = watched(*lines, "mov.u32 %r7, 0;\n", block=128)
    witness = run.replay(run.hazards[0])
    assert witness.what is None
    pins(str(witness))


def test_a_race_whose_values_are_the_same_changes_nothing():
    run = watched(
        WRITE, BARRIER, READ, "st.shared.u32 [%r4], %r2;\n", "ld.shared.u32 %r10, [%r6];\n".replace("%r6", "%r4")
    )
    assert not run.hazards
    run = watched("st.shared.u32 [%r1], 7;\n".replace("7", "%r0"), "mov.u32 %r7, 1;\n")  # all store the same
    assert [h.kind for h in run.hazards] == [] or all(h.replay().what is None for h in run.hazards)


def test_memory_is_as_it_was_before_the_launch():
    run = Run((), None, sanitize=True, replay=True)
    data = np.arange(1024, dtype=np.uint32)
    launch("".join((ADDRESS, WRITE, OTHER, OUT)), data, block=64, smem_bytes=2048, run=run)
    left = data.copy()
    data[:] = 5  # what the host does later changes nothing
    pins(run.hazards[0].replay().what)
    assert (data == 5).all()
    assert left[512] == 32


def test_a_hazard_of_an_earlier_launch_is_played_there():
    run = Run((), None, sanitize=True, replay=True)
    data = np.arange(1024, dtype=np.uint32)
    for lines in ((WRITE, OTHER), (WRITE, BARRIER, OTHER), (WRITE, BARRIER, OTHER)):
        launch("".join((ADDRESS, *lines, OUT)), data, block=64, smem_bytes=2048, run=run)
    assert run.hazards[0].replay().kind == "values"


def test_without_memory_it_is_refused():
    run = Run((), None, sanitize=True)
    launch("".join((ADDRESS, WRITE, OTHER, OUT)), np.arange(1024, dtype=np.uint32), block=64, smem_bytes=2048, run=run)
    for ask in (run.hazards[0].replay, lambda: run.hazards[0].reproducer("x.py")):
        with refuses(RuntimeError):
            ask()
    with refuses(RuntimeError):
        run.explore(1)


def test_keepers_end_with_the_run():
    def children():
        return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()

    gc.collect()
    before = children()
    run = watched(WRITE, OTHER)
    run.hazards[0].replay()
    assert len(children()) == len(before) + 1
    del run
    gc.collect()
    assert children() == before


def test_memory_of_tens_of_gigabytes_costs_nothing():
    run = Run((), None, sanitize=True, replay=True)
    data = lazy_tensor(10**10, "uint32")
    launch("".join((ADDRESS, WRITE, OTHER, OUT)), data, block=64, smem_bytes=2048, run=run)
    assert run.hazards[0].replay().kind == "values"
