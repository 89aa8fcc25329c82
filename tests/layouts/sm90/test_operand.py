"""Coordinates of an A in registers are those of the tiled MMA's partition, and of accumulators that become one."""

import pytest

from cutepy.layouts import Layout, LayoutError
from cutepy.layouts.basis import E
from cutepy.layouts.sm90 import AccumulatorCoordinates, OperandCoordinates, TiledMMA, operand_order, wgmma_traits
from tests.messages import refuses


def tiling(name, warpgroups=1):
    return TiledMMA(wgmma_traits(f"SM90_{name}"), Layout((warpgroups, 1, 1)))


@pytest.mark.parametrize(
    ("name", "tile", "warpgroups", "run"),
    [
        ("64x8x16_F32BF16BF16_RS", (64, 16), 1, 2),
        ("64x8x16_F32F16F16_RS", (128, 48), 1, 2),
        ("64x8x32_F32E4M3E5M2_RS_TN", (128, 64), 2, 4),
        ("64x8x8_F32TF32TF32_RS_TN", (64, 16), 1, 1),
    ],
)
def test_thread_and_register_add_up_to_the_partition(name, tile, warpgroups, run):
    mma = tiling(name, warpgroups)
    found = OperandCoordinates(mma, tile)
    seen = set()
    for thread in range(mma.thr_size):
        part, offset = mma.partition_A(Layout(tile, (E(0), E(1))), thread)
        here = tuple(found.of_thread(mode)(thread) for mode in (0, 1))
        for index, (row, column) in enumerate(found.registers):
            place = (here[0] + row, here[1] + column)
            assert place == tuple(a + b for a, b in zip(offset, part(index), strict=True))
            seen.add(place)
    assert len(seen) == tile[0] * tile[1] == mma.thr_size * len(found.registers)
    assert found.run == run


@pytest.mark.parametrize(("tile", "warpgroups"), [((64, 32), 1), ((128, 48), 1), ((128, 64), 2)])
def test_accumulators_are_the_next_operand(tile, warpgroups):
    sums = AccumulatorCoordinates(tiling(f"64x{tile[1]}x16_F32F16F16_SS", warpgroups), tile)
    a = OperandCoordinates(tiling("64x8x16_F32F16F16_RS", warpgroups), tile)
    registers = a.from_accumulators(sums)
    assert sorted(registers) == list(range(len(sums.registers)))
    assert [sums.registers[register] for register in registers] == list(a.registers)


@pytest.mark.parametrize(("tile", "warpgroups"), [((64, 32), 1), ((128, 224), 2), ((192, 160), 3)])
def test_accumulators_are_the_next_operand_of_8_bits_with_k_in_another_order(tile, warpgroups):
    sums = AccumulatorCoordinates(tiling(f"64x{tile[1]}x32_F32E4M3E4M3_SS_TN", warpgroups), tile)
    a = OperandCoordinates(tiling("64x8x32_F32E4M3E4M3_RS_TN", warpgroups), tile)
    order, registers = operand_order(8, tile[1]), a.from_accumulators(sums)
    assert sorted(registers) == list(range(len(sums.registers)))
    assert sorted(map(order, range(tile[1]))) == list(range(tile[1]))
    for thread in range(sums.tiling.thr_size):
        rows, columns = (sums.of_thread(mode)(thread) for mode in (0, 1))
        row, k = (a.of_thread(mode)(thread) for mode in (0, 1))
        for register, (down, along) in zip(registers, a.registers, strict=True):
            of_sum = sums.registers[register]
            assert (rows + of_sum[0], columns + of_sum[1]) == (row + down, order(k + along))


def test_what_other_threads_hold_is_refused():
    sums = AccumulatorCoordinates(tiling("64x32x16_F32F16F16_SS"), (64, 32))
    for name, tile, warpgroups in (
        ("64x8x8_F32TF32TF32_RS_TN", (64, 32), 1),
        ("64x8x16_F32F16F16_RS", (64, 48), 1),
        ("64x8x16_F32F16F16_RS", (128, 32), 2),
    ):
        with refuses(LayoutError):
            OperandCoordinates(tiling(name, warpgroups), tile).from_accumulators(sums)
    with refuses(LayoutError):
        OperandCoordinates(tiling("64x8x16_F32F16F16_SS"), (64, 16))
    with refuses(LayoutError):
        operand_order(8, 24)
