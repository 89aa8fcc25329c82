"""Tensor memory: where D, A and scale factors lie, by the ISA's figures as formulas; plans of its columns."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import Layout, LayoutError, sm100
from cutepy.layouts.render import picture_of, render_text
from cutepy.layouts.sm100.tmem import lane_stride
from tests.messages import pins, refuses

ACCUMULATORS = {
    # PTX ISA, "Data Path Layout Organization": (M, CTAs, ws) -> lane and column of element (m, n).
    (128, 1, False): lambda m, n, N: (m, n),
    (256, 2, False): lambda m, n, N: (m, n),
    (64, 1, False): lambda m, n, N: (32 * (m // 16) + m % 16, n),
    (128, 2, False): lambda m, n, N: (m + 64 * (n >= N // 2), n % (N // 2)),
    (32, 1, True): lambda m, n, N: (m + 32 * (n // (N // 4)), n % (N // 4)),
    (64, 1, True): lambda m, n, N: (m + 64 * (n // (N // 2)), n % (N // 2)),
    (128, 1, True): lambda m, n, N: (m, n),
}


@pytest.mark.parametrize(("m", "group", "ws"), list(ACCUMULATORS))
@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("bits", [16, 32])
def test_accumulators_lie_as_in_the_isas_figures(m, group, ws, n, bits):
    d = sm100.tmem_accumulator(m, n, bits=bits, cta_group=group, ws=ws)
    cells = set()
    for row, column in product(range(m // group), range(n)):
        place = d.place((row, column))
        assert (place.lane, place.column) == ACCUMULATORS[m, group, ws](row, column, n)
        assert place.bit == 0
        cells.add(place)
    assert len(cells) == m // group * n
    assert d.columns == 1 + max(place.column for place in cells)


@pytest.mark.parametrize(("m", "group"), [(64, 1), (128, 1), (128, 2), (256, 2)])
@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_operands_lie_packed_along_k(m, group, bits):
    k = 256 // bits
    a = sm100.tmem_operand(m, k, bits=bits, cta_group=group)
    for row, element in product(range(m // group), range(k)):
        lane = 32 * (row // 16) + row % 16 if m == 64 else row
        place = a.place((row, element))
        assert (place.lane, 32 * place.column + place.bit) == (lane, element * bits)
        if m == 128 and group == 2:
            assert a.place((row + 64, element)) == place._replace(lane=lane + 64)
    assert a.columns == 8


@given(st.sampled_from((8, 64, 128, 192, 256)), st.sampled_from((1, 2, 4, 8)), st.data())
def test_scale_factors_lie_by_rows_of_32_in_every_quarter(rows, count, data):
    scales = sm100.tmem_scale_factors(rows, count, vector=32)
    blocks = -(-rows // 32)
    row, quarter, k = (data.draw(st.integers(0, n - 1)) for n in (rows, 4, count))
    place = scales.place((row + 32 * blocks * quarter, 32 * k))
    assert place == (row % 32 + 32 * quarter, row // 32 + k // 4 * blocks, 8 * (k % 4))
    assert scales.place((row, 32 * k + 31)) == scales.place((row, 32 * k))
    assert scales.columns == blocks * -(-count // 4)


def test_scale_factors_of_half_the_rows_lie_in_half_of_the_lanes():
    scales = sm100.tmem_scale_factors(256, 4, vector=16, halves=True)
    for row, copy, k in product(range(256), range(2), range(4)):
        lane = row % 128 % 32 + 64 * (row // 128) + 32 * copy
        assert scales.place((row + 256 * copy, 16 * k)) == (lane, row % 128 // 32, 8 * k)


def test_limits_of_scale_factors():
    for rows, count, vector in ((1, 1, 16), (256, 3, 32), (1, 4, 64), (8, 8, 16)):
        scales = sm100.tmem_scale_factors(rows, count, vector=vector)
        assert scales.place((rows - 1, vector * (count - 1))).lane == (rows - 1) % 32
    for rows, count, vector in ((0, 1, 16), (257, 4, 16), (8, 0, 16), (8, 5, 16), (8, 4, 8)):
        with refuses(LayoutError):
            sm100.tmem_scale_factors(rows, count, vector=vector)


@given(st.integers(0, 127), st.integers(0, 511))
def test_addresses_name_lane_and_column(lane, column):
    place = sm100.TmemPlace(lane, column)
    assert place.address == lane << 16 | column
    assert sm100.TmemPlace.of_address(place.address) == place
    assert sm100.TmemPlace.of_address(place.address | 3 << 30) == (lane, column, 24)


def test_places_at_the_bounds_go_there_and_back():
    """The corners of tensor memory, and each byte of a scale factor."""
    for lane, column, byte in product((0, 1, 64, 127), (0, 1, 256, 511), range(4)):
        address = sm100.TmemPlace(lane, column).address
        assert address == lane << 16 | column
        assert sm100.TmemPlace.of_address(address | byte << 30) == (lane, column, 8 * byte)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm100.tmem_accumulator(96, 64),
        lambda: sm100.tmem_accumulator(128, 12),
        lambda: sm100.tmem_accumulator(64, 64, cta_group=2),
        lambda: sm100.tmem_accumulator(64, 64, bits=8),
        lambda: sm100.tmem_accumulator(64, 64, cta_group=2, ws=True),
        lambda: sm100.tmem_accumulator(64, 96, ws=True),
        lambda: sm100.tmem_operand(32, 16, bits=16),
        lambda: sm100.tmem_operand(128, 3, bits=8),
        lambda: sm100.tmem_operand(128, 8, bits=6),
        lambda: sm100.tmem_scale_factors(128, 6),
        lambda: sm100.tmem_scale_factors(300, 4),
        lambda: sm100.tmem_scale_factors(96, 4, halves=True),
        lambda: sm100.TmemTensor(Layout(129, 65536), 32),
        lambda: sm100.TmemTensor(Layout((128, 513), (65536, 1)), 32),
        lambda: sm100.TmemTensor(Layout((2, 2), (65537, 1)), 32),
        lambda: sm100.allocation_columns(513),
        lambda: sm100.allocation_columns(0),
        lambda: sm100.TmemPlan.of(D=(sm100.tmem_accumulator(128, 256), 2), SFA=4),
        lambda: sm100.TmemPlan.of(D=0),
        lambda: sm100.TmemPlan(("D", "D"), (32, 32)),
        lambda: sm100.TmemPlan(("D", "E"), (32,)),
    ],
)
def test_what_tensor_memory_does_not_hold_is_refused(call):
    with refuses(LayoutError):
        call()


@given(st.integers(1, 512))
def test_allocations_are_powers_of_two(columns):
    asked = sm100.allocation_columns(columns)
    assert asked in (32, 64, 128, 256, 512)
    assert columns <= asked < max(33, 2 * columns)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=8))
def test_plans_stand_one_behind_the_other(sizes):
    plan = sm100.TmemPlan.of(**{f"r{i}": size for i, size in enumerate(sizes)})
    assert [plan[f"r{i}"] for i in range(len(sizes))] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert plan.used + plan.spare == plan.columns == sm100.allocation_columns(sum(sizes))
    with pytest.raises(KeyError):
        plan["other"]


def test_lanes_are_as_far_apart_as_the_width_says():
    assert [lane_stride(bits) * bits for bits in (4, 8, 16, 32)] == [1 << 21] * 4


@pytest.mark.parametrize(
    "value",
    [
        sm100.tmem_accumulator(64, 16),
        sm100.tmem_accumulator(128, 32, cta_group=2),
        sm100.tmem_operand(128, 16, bits=16),
        sm100.tmem_scale_factors(128, 4),
        sm100.TmemPlan.of(D=(sm100.tmem_accumulator(128, 128), 2), SFA=4),
        sm100.tmem_load_traits("16x256b", 1),
        sm100.InstrDescriptor("mxf4nvf4", 128, 64),
    ],
    ids=["D-64", "D-pair", "A", "scales", "plan", "load", "descriptor"],
)
def test_pictures(value):
    pins(render_text(picture_of(value), width=100))


@given(st.sampled_from([16, 64, 128]), st.integers(1, 70), st.integers(1, 5))
def test_coarse_pictures_have_the_ranges_of_their_cells(rows, columns, step):
    """Blocks of 16 lanes by 8 columns: each has the rows of its lanes and the columns that begin in it."""
    tensor = sm100.TmemTensor(Layout((rows, columns), (lane_stride(32), step)), 32)
    grid = picture_of(tensor).coarser()
    cells = grid.cells
    assert [grid.rows.level(i) for i in range(8)] == [0, 0, 1, 0, 1, 0, 1, 0]
    assert (len(cells), len(cells[0])) == (8, -(-tensor.columns // 8))
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            held = [n for n in range(columns) if n * step // 8 == j] if 16 * i < rows else []
            ends = "..".join(map(str, sorted({held[0], held[-1]}))) if held else ""
            assert cell.colour == (i // 2 if held else None)
            assert cell.text == (f"mode 0 {16 * i}..{16 * i + 15},\nmode 1 {ends}" if held else "-")
