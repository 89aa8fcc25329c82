"""Counts of a run: instructions by class, global memory traffic in sectors, MMAs, copies, waits, conflicts."""

import numpy as np
import pytest

from tests.sim.test_opcodes_tma import aligned, tensor_map

from .launching import launch

ADDRESS = "mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, {pitch}, %rd0;"


def traffic(run, kind):
    return run.stats[f"l2_{kind}_sectors"], run.stats[f"l2_{kind}_bytes"]


@pytest.mark.parametrize(
    ("pitch", "sectors", "size_bytes"),
    [(0, 1, 4), (4, 4, 128), (8, 8, 128), (32, 32, 128), (128, 32, 128)],
)
def test_a_warp_asks_for_each_sector_once(pitch, sectors, size_bytes):
    data = np.zeros(64 * max(pitch, 4), np.uint8)
    data = data[-data.ctypes.data % 32 :][: 32 * max(pitch, 4)]
    run = launch(f"{ADDRESS.format(pitch=pitch)} ld.global.u32 %r2, [%rd2];", [data], grid=(3, 1, 1))
    assert traffic(run, "load") == (3 * sectors, 3 * size_bytes)
    assert traffic(run, "store") == traffic(run, "atomic") == (0, 0)


def test_warps_of_several_ctas_each_ask_for_their_own():
    data = np.zeros(8192, np.uint8)
    data = data[-data.ctypes.data % 32 :]
    body = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
    mad.wide.u32 %rd2, %r1, 4, %rd0; st.global.u32 [%rd2], %r1;"""
    run = launch(body, [data], block=(96, 1, 1), grid=(5, 1, 1))
    assert traffic(run, "store") == (5 * 3 * 4, 5 * 96 * 4)


def test_lanes_in_any_order_and_those_that_are_missing():
    data = np.zeros(4096, np.uint8)
    data = data[-data.ctypes.data % 32 :]
    body = """
    mov.u32 %r1, %tid.x; xor.b32 %r2, %r1, 21; mad.wide.u32 %rd2, %r2, 4, %rd0;
    st.global.u32 [%rd2], %r1;
    setp.ge.u32 %p0, %r1, 24;
    @%p0 red.global.add.u32 [%rd0], %r1;
    rem.u32 %r3, %r1, 3; setp.eq.u32 %p1, %r3, 0;
    @%p1 ld.global.u32 %r4, [%rd2];
    """
    run = launch(body, [data])
    assert traffic(run, "store") == (4, 128)
    assert traffic(run, "atomic") == (1, 4)
    lanes = [lane ^ 21 for lane in range(0, 32, 3)]
    assert traffic(run, "load") == (len({lane // 8 for lane in lanes}), 4 * len(lanes))


def test_vectors_and_vector_atomics():
    data = np.zeros(1024, np.float32)
    data = data[-data.ctypes.data % 32 // 4 :]
    body = """mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 16, %rd0;
    ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2];
    red.global.add.v4.f32 [%rd2], {%f0, %f1, %f2, %f3};"""
    run = launch(body, [data])
    assert traffic(run, "load") == traffic(run, "atomic") == (16, 512)


def test_local_memory_and_parameters_are_not_global_traffic():
    body = """.local .align 4 .b8 slot[4]; mov.u64 %rd3, slot; cvta.local.u64 %rd3, %rd3;
    mov.u32 %r1, 3; st.u32 [%rd3], %r1; ld.u32 %r2, [%rd3];"""
    run = launch(body, [np.zeros(4, np.uint32)])
    assert all(traffic(run, kind) == (0, 0) for kind in ("load", "store", "atomic"))


def test_copies_by_threads_and_in_bulk():
    data = np.zeros(4096, np.uint8)
    data = data[-data.ctypes.data % 32 :]
    body = """mov.u32 %r0, smem; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 16, %rd0; mad.lo.u32 %r2, %r1, 16, %r0;
    setp.eq.u32 %p1, %r1, 0; selp.u32 %r5, 4, 0, %p1;
    cp.async.cg.shared.global [%r2], [%rd2], 16;
    cp.async.ca.shared.global [%r2], [%rd2], 4, %r5;
    cp.async.wait_all;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0+16], [%r0], 48;
    END:"""
    run = launch(body, [data], smem=512)
    assert traffic(run, "load") == (16 + 1, 512 + 4)
    assert traffic(run, "store") == (2, 48)
    assert (run.stats["bulk"], run.stats["bulk_bytes"]) == (1, 48)


LOAD_BOX = """
mov.u32 %r1, %tid.x; mov.u32 %r0, smem; add.u32 %r9, %r0, 4096; mov.u32 %r8, %cluster_ctarank; mov.u16 %h1, 3;
setp.ne.u32 %p1, %r1, 0;
@!%p1 mbarrier.init.shared.b64 [%r9], 1;
barrier.cluster.arrive; barrier.cluster.wait;
or.b32 %r1, %r1, %r8; setp.ne.u32 %p1, %r1, 0;
@%p1 bra END;
mov.u32 %r4, {x}; mov.u32 %r5, 0;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r0],
    [%rd0, {{%r4, %r5}}], [%r9], %h1;
END:
"""


@pytest.mark.parametrize(("x", "sectors", "size_bytes"), [(0, 16, 512), (8, 24, 512), (-16, 8, 256), (64, 0, 0)])
def test_a_box_is_read_once_and_only_inside_of_its_tensor(x, sectors, size_bytes):
    data, descriptor = aligned((8, 56), "u2"), aligned((128,), "u1")
    descriptor[:] = np.frombuffer(tensor_map(data, (32, 8)), np.uint8)
    run = launch(LOAD_BOX.format(x=x), [descriptor, data], smem=4104, grid=(2, 1, 1), cluster=(2, 1, 1))
    assert traffic(run, "load") == (sectors, size_bytes)
    assert (run.stats["tma"], run.stats["tma_bytes"]) == (1, 512)


def test_instructions_by_class():
    stats = launch("mov.u32 %r1, %tid.x; add.u32 %r2, %r1, %r1; fma.rn.f32 %f1, %f0, %f0, %f0; bar.sync 0;").stats
    found = {name.removeprefix("instructions_"): n for name, n in stats.items() if name.startswith("instructions_")}
    counted = {name: n for name, n in found.items() if n}
    assert counted == {"move": 1, "integer": 1, "float": 1, "barrier": 1, "control": 1}
    assert stats["instructions"] == 5


def test_every_parting_of_lanes_is_counted_once():
    body = """mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.u32 %p0, %r2, 0; @%p0 bra MEET;
    and.b32 %r2, %r1, 2; setp.eq.u32 %p1, %r2, 0; @%p1 bra MEET; add.u32 %r1, %r1, 1; MEET:"""
    assert launch(body, block=(32, 1, 1)).stats["splits"] == 2
    assert launch("mov.u32 %r1, 1;", block=(32, 1, 1)).stats.get("splits", 0) == 0


def test_waits_and_conflicts_are_the_sums_of_their_sites():
    body = """
    mov.u32 %r1, %tid.x; mov.u32 %r0, smem; mad.lo.u32 %r2, %r1, 128, %r0; st.shared.u32 [%r2], %r1;
    setp.lt.u32 %p0, %r1, 32;
    @%p0 bra FIRST;
    bar.sync 1, 64;
    bra END;
    FIRST: bar.sync 1, 64;
    END:"""
    run = launch(body, block=(64, 1, 1), smem=64 * 128, inspect=True)
    assert run.stats["barrier_waits"] == sum(site.waited for site in run.waits()) == 1
    assert run.stats["bank_conflicts"] == sum(site.conflicts for site in run.conflicts()) == 62
    assert (run.stats["shared_accesses"], run.stats["shared_wavefronts"]) == (2, 64)
    assert not {"bank_conflicts", "barrier_waits"} & launch(body, block=(64, 1, 1), smem=64 * 128).stats.keys()


@pytest.mark.parametrize("rounds", [318, 319, 320, 575])
def test_a_wait_counts_wherever_the_turn_before_it_ended(rounds):
    """One warp waits twice; with 319 or 575 rounds between a turn ends just before it waits."""
    body = f"""
    mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 32; @%p0 bra FIRST;
    mov.u32 %r2, 0; SLOW: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 700; @%p1 bra SLOW; bar.arrive 1, 64;
    mov.u32 %r2, 0; AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 1700; @%p1 bra AGAIN; bar.arrive 2, 64;
    bra END;
    FIRST: bar.sync 1, 64;
    mov.u32 %r2, 0; FAST: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, {rounds}; @%p1 bra FAST; bar.sync 2, 64;
    END:"""
    assert launch(body, block=(64, 1, 1), inspect=True).stats["barrier_waits"] == 2


@pytest.mark.parametrize(("n", "from_registers"), [(8, False), (24, False), (8, True)])
def test_what_mmas_read_from_shared_memory(n, from_registers):
    a, majors = ("{%r0, %r0, %r0, %r0}", "0") if from_registers else ("%rd10", "0, 0")
    sums = ", ".join(f"%f{k}" for k in range(n // 2))
    body = f"""mov.b64 %rd10, 0x1000080000; mov.u32 %r0, 0; setp.ne.u32 %p0, %r0, 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {{{sums}}}, {a}, %rd10, %p0, 1, 1, {majors};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    run = launch(body, block=(256, 1, 1), smem=8192)
    assert run.stats["wgmma_bytes"] == 2 * 2 * 16 * (n if from_registers else 64 + n)


STORE_BOX = """mov.u32 %r1, %tid.x; mov.u32 %r0, smem; setp.ne.u32 %p1, %r1, 0; @%p1 bra END; mov.u32 %r4, {x};
mov.u32 %r5, 0; {opcode} [%rd0, {{%r4, %r5}}], [%r0]; END:"""


@pytest.mark.parametrize(("x", "sectors", "size_bytes"), [(0, 16, 512), (48, 8, 128), (64, 0, 0)])
@pytest.mark.parametrize("kind", ["store", "atomic"])
def test_a_box_is_written_or_added_to(kind, x, sectors, size_bytes):
    data, descriptor = aligned((8, 56), "u2"), aligned((128,), "u1")
    descriptor[:] = np.frombuffer(tensor_map(data, (32, 8), dtype="f16"), np.uint8)
    plain = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
    adding = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
    run = launch(STORE_BOX.format(x=x, opcode=plain if kind == "store" else adding), [descriptor, data], smem=1024)
    assert traffic(run, kind) == (sectors, size_bytes)
    assert all(traffic(run, other) == (0, 0) for other in ("load", "store", "atomic") if other != kind)
