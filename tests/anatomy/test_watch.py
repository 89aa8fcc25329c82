"""`watch` of hand-written kernels: warps at each barrier, and bytes that threads access."""

import numpy as np
import pytest

from cutepy.anatomy import Watch, explain
from cutepy.anatomy.watch import thread_ranges
from cutepy.sim.run import Run
from tests.messages import refuses
from tests.sim.opcode_runner import launch
from tests.sim.test_opcodes_tma import LOADS, START, aligned, coordinates, set_coordinates, tensor_map

pytestmark = pytest.mark.dsl

APART = """
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
mov.b32 %r9, smem;
setp.ne.s32 %p1, %r1, 0;
@%p1 bra $L_made;
mbarrier.init.shared.b64 [%r9], 32;
mbarrier.init.shared.b64 [%r9+8], 32;
$L_made:
bar.sync 0;
add.s32 %r3, %r2, 1;
bar.sync %r3, 32;
shl.b32 %r4, %r2, 3;
add.s32 %r5, %r9, %r4;
mbarrier.arrive.shared.b64 _, [%r5];
$L_again:
mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
@!%p2 bra $L_again;
shl.b32 %r6, %r1, 2;
add.s32 %r7, %r9, %r6;
st.shared.b32 [%r7+256], %r1;
bar.sync 0;
ld.shared.b32 %r8, [%r7+256];
"""


@pytest.fixture(scope="module")
def apart():
    watch = Watch()
    launch(APART, block=64, grid=3, smem_bytes=1024, run=Run((watch,), None))
    (kernel,) = explain(watch, assembler=False).kernels
    return kernel


def test_warps_at_barriers_of_their_own_are_told_apart(apart):
    named = {barrier.name: barrier for barrier in apart.barriers if barrier.kind == "bar"}
    assert {name: [party.threads for party in b.parties] for name, b in named.items()} == {
        "bar 0": ["warps 0,1", "warps 0,1"],
        "bar 1": ["warp 0"],
        "bar 2": ["warp 1"],
    }
    assert (named["bar 1"].arrivals, named["bar 0"].arrivals) == (32, None)
    assert named["bar 1"].parties[0].times == 3  # once in each CTA


def test_arrivals_and_waits_are_at_the_mbarrier_that_is_addressed(apart):
    (both,) = [barrier for barrier in apart.barriers if barrier.kind == "mbarrier"]
    assert (both.addresses, both.arrivals) == ((0, 8), 32)
    (arrive,) = both.of("arrive")
    assert (arrive.threads, arrive.times, arrive.amounts) == ("warps 0,1", 6, (32,))
    assert both.of("init")[0].threads == "thread 0"


def test_events_of_lanes_at_different_mbarriers_name_those_lanes():
    watch = Watch()
    launch(APART, block=64, smem_bytes=1024, run=Run((watch,), None))
    (seen,) = watch.kernels
    for address, warp in ((0, 0), (8, 1)):
        for (action, _), party in seen.barriers[address].items():
            if action in ("arrive", "wait"):
                assert party.threads == set(range(32 * warp, 32 * warp + 32))


def test_the_bytes_that_threads_touch_are_mapped(apart):
    (scratch,) = [region for region in apart.regions if region.writers and region.readers]
    assert (scratch.start, scratch.bytes) == (256, 64 * 4)
    (unused, *_) = [region for region in apart.regions if region.what == "not accessed"]
    assert (unused.start, unused.bytes) == (16, 240)


def test_launches_of_one_kernel_are_one():
    watch = Watch()
    run = Run((watch,), None)
    data = np.zeros(64, np.uint32)
    for _ in range(2):
        launch("st.global.b32 [%rd1], 1;", data, before="ld.param.u64 %rd1, [p0];", block=32, run=run)
    (kernel,) = explain(watch, assembler=False).kernels
    assert kernel.launch.launches == 2


def test_boxes_and_bytes_of_one_line_are_listed_in_order():
    """Loads of one line of the source, unrolled, and what their mbarrier is told to expect."""
    array, size, boxes = aligned((19, 72), "u2"), 128, [(8 * (n * 5 % 7), n * 3 % 11) for n in range(12)]
    expected = {n * size for n in (1, 2, 4, 5)}
    opcode = f"cp.async.bulk.tensor.2d.{LOADS[0]}"
    loads = [f"{set_coordinates(at)} @%p1 {opcode} [%r11], [%rd1, {{{coordinates(at)}}}], [%r10];" for at in boxes]
    expects = [f"@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r10], {n};" for n in sorted(expected)]
    watch = Watch()
    run = Run((watch,), None)
    run.register(array)
    launch(
        f"@%p1 mbarrier.init.shared.b64 [%r10], 1; {' '.join(expects)} {' '.join(loads)}"
        "@%p1 mbarrier.arrive.shared.b64 _, [%r10];",
        tensor_map(array, (8, 8)),
        before=START,
        smem_bytes=8192,
        run=run,
    )
    (kernel,) = explain(watch, assembler=False).kernels
    (copied,) = kernel.copies
    assert (copied.instructions, copied.issued) == (12, 12)
    assert copied.coordinates == tuple(sorted(boxes))
    (ring,) = [barrier for barrier in kernel.barriers if barrier.kind == "mbarrier"]
    assert [party.amounts for party in ring.of("expect_tx")] == [tuple(sorted(expected))]


@pytest.mark.parametrize("guards", [("%p9", "%p1"), ("%p1", "%p9")])
def test_a_copy_that_is_not_reached_counts_with_the_reached_one_of_its_line(guards):
    array = aligned((16, 16), "u4", 0)
    opcode = f"cp.async.bulk.tensor.2d.{LOADS[0]}"
    loads = " ".join(f"@{guard} {opcode} [%r11], [%rd1, {{{coordinates((0, 0))}}}], [%r10];" for guard in guards)
    watch = Watch()
    run = Run((watch,), None)
    run.register(array)
    launch(
        f"setp.ne.u32 %p9, %r10, %r10; @%p1 mbarrier.init.shared.b64 [%r10], 1; {set_coordinates((0, 0))}"
        f"@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 256; {loads}",
        tensor_map(array, (8, 8)),
        before=START,
        smem_bytes=8192,
        run=run,
    )
    (kernel,) = explain(watch, assembler=False).kernels
    assert [(copy.instructions, copy.issued, len(copy.tensor_maps)) for copy in kernel.copies] == [(2, 1, 1)]


def test_no_launch_is_an_error():
    with refuses(ValueError):
        explain(Watch())


def test_whole_warps_are_named():
    assert thread_ranges([]) == ""
    assert thread_ranges(range(32, 64)) == "warp 1"
    assert thread_ranges([*range(32), 40]) == "threads 0-31,40"
