"""ldmatrix and stmatrix against PTX's figures and the wgmma accumulator."""

import pytest

from cutepy.layouts import LayoutError, size, sm90
from tests.messages import refuses

CASES = [(num, transpose) for num in (1, 2, 4) for transpose in (False, True)]


@pytest.mark.parametrize(("num", "transpose"), CASES)
def test_registers_hold_each_element_once(num, transpose):
    registers = sm90.ldmatrix_traits(num, transpose=transpose).in_elements(16).dst_layout
    assert sorted(registers(i) for i in range(size(registers))) == list(range(64 * num))


@pytest.mark.parametrize(("num", "transpose"), CASES)
def test_the_fragment_is_the_one_that_ptx_draws(num, transpose):
    """PTX ISA, ldmatrix: lane holds row lane / 4, columns 2 (lane % 4) and the next; with .trans the transpose."""
    registers = sm90.ldmatrix_traits(num, transpose=transpose).in_elements(16).dst_layout
    for lane in range(32):
        for value in range(2 * num):
            matrix, j = divmod(value, 2)
            row, column = lane // 4, 2 * (lane % 4) + j
            expected = 8 * column + row if transpose else 8 * row + column
            assert registers(lane, value) == 64 * matrix + expected


@pytest.mark.parametrize(("num", "transpose"), CASES)
def test_each_lane_addresses_a_row(num, transpose):
    rows = sm90.ldmatrix_traits(num, transpose=transpose).src_layout
    for lane in range(32):
        assert [rows(lane, bit) for bit in (0, 1, 127)] == [128 * (lane % (8 * num)) + bit for bit in (0, 1, 127)]


@pytest.mark.parametrize(("num", "transpose"), CASES)
def test_a_store_is_a_load_backwards(num, transpose):
    load, store = sm90.ldmatrix_traits(num, transpose=transpose), sm90.stmatrix_traits(num, transpose=transpose)
    assert (store.src_layout, store.dst_layout) == (load.dst_layout, load.src_layout)
    assert load.ref_layout == load.dst_layout == store.ref_layout
    assert size(load.thr_id) == 32


@pytest.mark.parametrize(("num", "transpose"), CASES)
def test_stmatrix_stores_the_accumulator_where_it_belongs(num, transpose):
    """Store a warp's accumulator: what each register holds reaches its (m, n) through the row that a lane addresses."""
    accumulator = sm90.accumulator_layout(16)
    store = sm90.stmatrix_traits(num, transpose=transpose).in_elements(16)
    rows = sm90.accumulator_row_layout(num, transpose=transpose)
    for lane in range(32):
        for value in range(2 * num):
            m, n = accumulator(lane, value) % 64, accumulator(lane, value) // 64
            row, element = divmod(store.src_layout(lane, value), 8)
            assert [store.dst_layout(row, i) for i in range(8)] == [8 * row + i for i in range(8)]
            start_m, start_n = rows(row)
            reached = (start_m + element, start_n) if transpose else (start_m, start_n + element)
            assert reached == (m, n)


def test_the_names_are_cutes():
    names = {sm90.ldmatrix_traits(num, transpose=transpose).name for num, transpose in CASES}
    assert names == {f"SM75_U32x{n}_LDSM_N" for n in (1, 2, 4)} | {f"SM75_U16x{n}_LDSM_T" for n in (2, 4, 8)}
    names = {sm90.stmatrix_traits(num, transpose=transpose).name for num, transpose in CASES}
    assert names == {f"SM90_U32x{n}_STSM_N" for n in (1, 2, 4)} | {f"SM90_U16x{n}_STSM_T" for n in (2, 4, 8)}


@pytest.mark.parametrize("function", [sm90.ldmatrix_traits, sm90.stmatrix_traits, sm90.accumulator_row_layout])
@pytest.mark.parametrize("num", [0, 3, 8])
def test_other_numbers_of_matrices_are_errors(function, num):
    with refuses(LayoutError):
        function(num)


def test_rows_of_the_accumulator_are_those_of_the_matrices():
    assert [sm90.accumulator_row_layout(n).shape for n in (1, 2, 4)] == [(8, 1, 1), (8, 2, 1), (8, 2, 2)]


def test_matrices_are_stored_as_they_are_unless_asked():
    for traits in (sm90.stmatrix_traits, sm90.accumulator_row_layout):
        assert traits(4) == traits(4, transpose=False) != traits(4, transpose=True)
