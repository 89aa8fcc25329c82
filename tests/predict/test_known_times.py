"""Kernels whose times follow from one resource: bytes, MMAs, latency, wavefronts."""

import pytest

from cutepy import load_ptx, simulate
from cutepy.binaries.ptxas import AssemblyError, find_ptxas
from cutepy.binaries.sass import DisassemblyError, find_nvdisasm
from cutepy.predict import gpu_named
from tests.predict.kernels import COPY, PASSED, chain, predicted, ring, strided, zeros
from tests.time.copies import BULK, ring_launch
from tests.time.launches import EMPTY

try:
    find_ptxas(), find_nvdisasm()
    MISSING = ""
except (AssemblyError, DisassemblyError) as error:
    MISSING = str(error)
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(MISSING), reason=MISSING or "has tools")]
H200 = gpu_named("h200")


def test_a_copy_takes_its_bytes_by_the_bandwidth():
    size = 1 << 28
    found = predicted(COPY, "copy", size >> 14, 256, zeros(size), zeros(size))
    least = 2 * size / H200.value("dram.copy_bandwidth") * 1e6
    assert least <= found.kernel_us <= 1.05 * least
    assert found.bound == "device memory"
    assert [round(t.dram_read_bytes / size, 2) for t in found.traffic] == [1.0, 0.0]


@pytest.mark.parametrize("boxes", [1, 8, 64])
def test_reads_in_a_launch_take_as_long_as_the_benchmark_of_reads(boxes):
    launch = ring_launch(1 << 28, min(boxes, 12), 8192, 132)
    module, memory = load_ptx(BULK), zeros(1 << 28)
    with simulate(time="h200") as run:
        arguments = zeros(1 << 16), memory, boxes - min(boxes, 12), *launch.extra
        module.launch("timed", grid=132, block=32, args=arguments, smem=launch.smem)
    measured = H200.constants["launch.reads"]["dram"][str(boxes * 132 * 8192)] / 1e3
    assert run.predictions[0].us == pytest.approx(measured, rel=0.06)


def test_more_ctas_start_as_much_later_as_measured():
    few, many = (predicted(EMPTY, "timed", grid, 128, zeros(64), zeros(64), 0).us for grid in (132, 1056))
    table = H200.constants["launch.interval"]
    assert many - few == pytest.approx((table["1056x128x0"] - table["132x128x0"]) / 1e3, rel=0.2)


@pytest.mark.parametrize("blocks", [132, 264, 300])
def test_no_resource_is_in_use_for_longer_than_the_launch(blocks):
    found = predicted(COPY, "copy", blocks, 256, zeros(blocks << 14), zeros(blocks << 14))
    assert max(found.use.values()) <= 1.0
    moved = sum(t.dram_read_bytes + t.dram_write_bytes for t in found.traffic)
    assert found.kernel_us >= moved / H200.value("dram.bandwidth") * 1e6


def test_half_the_bytes_take_half_the_time():
    size = 1 << 28
    whole, half = (predicted(COPY, "copy", s >> 14, 256, zeros(s), zeros(s)).kernel_us for s in (size, size // 2))
    assert half == pytest.approx(whole / 2, rel=0.05)


@pytest.mark.parametrize("columns", [64, 256])
def test_a_chain_of_mmas_takes_their_cycles(columns):
    short, long = (predicted(chain(columns), "chain", 1, 128, zeros(4096), count) for count in (32, 96))
    cycles = [found.kernel_us * found.clock_hz / 1e6 for found in (short, long)]
    assert cycles[1] - cycles[0] == pytest.approx(64 * H200.at("wgmma.cycles", "bf16", columns, "ss"), rel=0.02)
    assert long.critical["tensor cores"] > 0.4


def test_one_stage_is_slower_than_four_and_its_waits_are_named():
    one, four = (predicted(ring(stages, 64, 4096), "ring", 132, 64, zeros(132 * 64 * 4096)) for stages in (1, 4))
    assert one.kernel_us > 1.5 * four.kernel_us
    assert one.bound == "latency"
    assert one.in_flight_bytes < 0.5 * four.in_flight_bytes
    assert max(one.critical, key=one.critical.get) == "copies"
    lines = ring(1, 64, 4096).splitlines()
    waits = next(stall for stall in one.stalls if stall.cause == "copies")
    assert "try_wait" in lines[int(waits.line.split()[1]) - 1]


def test_conflicts_cost_wavefronts():
    free, eight = (predicted(strided(words), "strided", 132, 512, zeros(4096)) for words in (1, 8))
    more = 16 * 64 * 7 * H200.value("smem.wavefront") / free.clock_hz * 1e6  # 16 warps, 64 loads, 7 wavefronts
    assert eight.kernel_us - free.kernel_us == pytest.approx(more, rel=0.35)
    assert eight.bound == "shared memory"


def test_a_second_round_of_ctas_takes_as_long_as_the_first():
    one, two = (predicted(ring(8, 32, 24576), "ring", grid, 64, zeros(264 * 32 * 24576)) for grid in (132, 264))
    assert (one.occupancy.ctas_per_sm, two.waves) == (1, 2.0)
    assert two.kernel_us == pytest.approx(2 * one.kernel_us, rel=0.1)


def test_each_cluster_passes_its_own_bytes():
    one, three = (predicted(PASSED, "passed", 2 * clusters, 32, zeros(64)) for clusters in (1, 3))
    assert three.sampled_ctas == 6
    assert one.kernel_us < three.kernel_us < 1.2 * one.kernel_us  # the last cluster's sender works a little longer
    assert one.kernel_us * one.clock_hz / 1e6 > H200.at("cluster.sync", 2) + H200.value("dsmem.latency")


def test_ctas_that_have_ended_leave_their_bandwidth_to_the_others():
    text = ring(4, 96, 8192).replace("mov.u32 %r0, %tid.x;", "mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r9, 66;")
    text = text.replace("mov.u32 %r1, tile;", "selp.u32 %r12, 96, 32, %p; mov.u32 %r1, tile;")
    text = text.replace("setp.lt.u32 %q, %r4, 96;", "setp.lt.u32 %q, %r4, %r12;")
    found = predicted(text, "ring", 132, 64, zeros(132 * 96 * 8192))
    moved = 66 * (96 + 32) * 8192
    assert found.kernel_us == pytest.approx(moved / H200.value("dram.bandwidth") * 1e6, rel=0.25)
