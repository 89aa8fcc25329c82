"""A warp's mma atoms against the formulas of the PTX ISA; cp.async."""

import pytest

from cutepy.layouts import LayoutError, sm80
from cutepy.layouts.render import picture_of
from tests.layouts import brute_force as bf
from tests.messages import refuses


def holder_of(row, column, rows, packed):
    """Thread and value of an element, by the PTX ISA's figures of mma.m16n8k*: a row a group, packed neighbours a lane.

    The registers of a lane follow one another down the rows, 8 apart, then along the columns.
    """
    group, register_column = row % 8, column // (4 * packed)
    lane = 4 * group + column // packed % 4
    return lane, column % packed + packed * (row // 8 + rows // 8 * register_column)


@pytest.mark.parametrize("name", sm80.mma_names())
def test_fragments_are_those_of_the_ptx_isa(name):
    traits = sm80.mma_traits(name)
    m, n, k = traits.shape_mnk
    packed = {8: 4, 16: 2, 32: 1, 64: 1}
    for layout, rows, columns, neighbours in (
        (traits.a_layout, m, k, packed[traits.a_bits]),
        (traits.b_layout, n, k, packed[traits.b_bits]),
        (traits.c_layout, m, n, 2),
    ):
        threads, values = (bf.table(mode) for mode in layout)
        found = {
            (start + part) % rows + 1j * ((start + part) // rows): (thread, value)
            for thread, start in enumerate(threads)
            for value, part in enumerate(values)
        }
        assert found == {
            row + 1j * column: holder_of(row, column, rows, neighbours)
            for row in range(rows)
            for column in range(columns)
        }


def test_the_instruction_is_spelled_as_in_ptx():
    assert sm80.mma_traits("SM80_16x8x8_F32TF32TF32F32_TN").ptx == "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    assert sm80.mma_traits("SM89_16x8x32_F16E4M3E5M2F16_TN").ptx.endswith("m16n8k32.row.col.f16.e4m3.e5m2.f16")
    assert ".satfinite." in sm80.mma_traits("SM80_8x8x16_S32U8U8S32_TN_SATURATE").ptx


@pytest.mark.parametrize(
    "name",
    [
        "SM80_16x8x16_F32F16F16_TN",
        "SM80_16x8x16_F32F16F16F32_NT",
        "sm80_16x8x8_f16f16f16f16_tn",
    ],
)
def test_unknown_names_are_told_with_the_nearest(name):
    with refuses(LayoutError):
        sm80.mma_traits(name)


def test_names_must_be_text():
    with refuses(TypeError):
        sm80.mma_traits(7)


def test_all_operands_are_in_registers():
    a, b, c = picture_of("SM80_16x8x16_F32F16F16F32_TN").grids
    assert [grid.title for grid in (a, b, c)] == [
        "A, 16x16, f16 in registers",
        "B, 8x16, f16 in registers",
        "C, 16x8, f32 in registers",
    ]
    assert a.cell(9, 11).text == "T5\nV7"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((32, None), "SM80_CP_ASYNC_CACHEALWAYS<uint32_t>"),
        ((128, None), "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>"),
        ((128, "always"), "SM80_CP_ASYNC_CACHEALWAYS<uint128_t>"),
        ((128, "GLOBAL"), "SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>"),
    ],
)
def test_cp_async(arguments, name):
    bits, cache = arguments
    traits = sm80.cp_async(bits, cache=cache)
    assert traits.name == name
    assert bf.table(traits.src_layout) == list(range(bits))


@pytest.mark.parametrize(
    "arguments",
    [
        (64, "global"),
        (16, None),
        (128, "never"),
    ],
)
def test_cp_async_that_ptx_lacks(arguments):
    bits, cache = arguments
    with refuses(LayoutError):
        sm80.cp_async(bits, cache=cache)
