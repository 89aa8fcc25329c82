"""tcgen05.cp: rows to lanes, by the ISA's words as formulas; decompression; tiled loads."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, idx2crd, make_identity_layout, sm100
from cutepy.layouts.sm100.tmem_copy import SHAPES as LOADS
from cutepy.layouts.sm100.tmem_cp import SHAPES
from tests.messages import pins, refuses

LANES = {
    "128x256b": lambda row: [row],
    "4x256b": lambda row: [32 * row],
    "128x128b": lambda row: [row],
    "64x128b.warpx2::02_13": lambda row: [row, row + 64],
    "64x128b.warpx2::01_23": lambda row: [row % 32 + 64 * (row // 32) + 32 * copy for copy in range(2)],
    "32x128b.warpx4": lambda row: [row + 32 * copy for copy in range(4)],
}


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("group", [1, 2])
def test_rows_reach_the_lanes_of_the_isa(shape, group):
    made = sm100.tmem_cp_traits(shape, cta_group=group)
    lanes = made.lanes
    for row in range(made.rows):
        at = idx2crd(row, lanes.shape[0])
        assert [lanes((at, copy)) for copy in range(lanes[1].size())] == LANES[shape](row)
    rows, _, bits = shape.partition("x")
    assert (made.rows, made.row_bits) == (int(rows), int(bits.split("b")[0]))
    assert made.bytes * 8 == made.rows * made.row_bits == made.rows * made.columns * 32


@pytest.mark.parametrize(("name", "bits"), [("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)])
def test_narrow_elements_are_found_in_16_bytes(name, bits):
    made = sm100.tmem_cp_traits("128x256b", decompression=name)
    assert [made.elements((i, unit)) for unit in (0, 1) for i in (0, 15)] == [0, 15 * bits, 128, 128 + 15 * bits]
    assert made.ptx.endswith(name)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm100.tmem_cp_traits("32x128b"),
        lambda: sm100.tmem_cp_traits("128x256b", cta_group=0),
        lambda: sm100.tmem_cp_traits("128x256b", decompression="b4x16"),
        lambda: sm100.tmem_cp_traits("128x256b").elements,
        lambda: sm100.make_tmem_copy(sm100.tmem_load_traits("32x32b", 64), sm100.tmem_accumulator(128, 32)),
        lambda: sm100.make_tmem_copy(sm100.tmem_load_traits("32x32b", 8), sm100.tmem_accumulator(64, 32)),
    ],
)
def test_copies_that_do_not_exist_are_refused(call):
    with refuses(LayoutError):
        call()


@st.composite
def tilings(draw):
    """Draw an accumulator, and a load whose lanes it has."""
    m, group = draw(st.sampled_from(((64, 1), (128, 1), (128, 2), (256, 2))))
    n = 32 * draw(st.integers(1, 8))
    tensor = sm100.tmem_accumulator(m, n, cta_group=group)
    half = (m, group) == (64, 1)
    shape = draw(st.sampled_from(["16x64b", "16x128b", "16x256b"] if half else ["32x32b"]))
    parts = LOADS[shape]
    fitting = [1 << p for p in range(parts.most.bit_length()) if tensor.columns % ((1 << p) * parts.columns) == 0]
    return tensor, sm100.tmem_load_traits(shape, draw(st.sampled_from(fitting)))


@given(tilings(), st.data())
def test_tiled_loads_give_each_thread_its_elements(drawn, data):
    """A thread's registers are the elements whose places its instruction reads, one by one."""
    tensor, load = drawn
    copy = sm100.make_tmem_copy(load, tensor)
    thread = data.draw(st.integers(0, 127))
    shape = tensor.layout.shape
    coordinates, origin = copy.partition_D(make_identity_layout(shape), thread)
    places = []
    for index in range(load.registers):
        coordinate = _sum(origin, coordinates(index))
        places.append(tensor.place(coordinate))
    want = [load.layout(thread % 32, register) for register in range(load.registers)]
    assert [(place.lane - 32 * (thread // 32), place.column) for place in places] == want


def _sum(origin, step):
    """Move a coordinate by an arithmetic tuple, mode by mode."""
    if isinstance(origin, tuple):
        step = step if isinstance(step, tuple) else (step,)
        padded = (*step, *[0] * (len(origin) - len(step)))
        return tuple(_sum(a, b) for a, b in zip(origin, padded, strict=True))
    return origin + (step if isinstance(step, int) else 0)


def test_pictures():
    from cutepy.layouts.render import picture_of, render_text

    pins(render_text(picture_of(sm100.tmem_cp_traits("32x128b.warpx4")), width=100, height=24))
