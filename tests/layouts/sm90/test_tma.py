"""TMA copies: the boxes put every element of a tile where the layout says."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    make_ordered_layout,
    size,
    sm90,
    take,
    tile_to_shape,
)
from cutepy.layouts.sm90.arch import MAJORS, TMA_SWIZZLE, pattern_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle
from cutepy.layouts.sm100 import umma_layout_atom
from tests.messages import refuses

DTYPES = {"e4m3": 8, "bf16": 16, "tf32": 32}


@st.composite
def copies(draw):
    """Draw a tile of atoms of GMMA or UMMA, and the copy of it from a tensor of the same major."""
    mode = draw(st.sampled_from(sorted(TMA_SWIZZLE)))
    major = "MN" if mode == "SW128_32B" else draw(st.sampled_from(MAJORS))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    atom = umma_layout_atom(major, mode, DTYPES[dtype], pointer_swizzle=draw(st.booleans()))
    shape = [draw(st.integers(1, 2)) * size(atom, i) for i in range(2)]
    smem = tile_to_shape(atom, tuple(shape), draw(st.sampled_from(((1, 2), (2, 1)))))
    mn, k = 3 * shape[0], 2 * shape[1]
    stride = (1, mn) if major == "MN" else (k, 1)
    return smem, sm90.make_tma_copy(Layout((mn, k), stride), smem, dtype=dtype)


@st.composite
def copies_of_any_rank(draw):
    """Draw a tile of 1 to 5 modes in any order, made of compact blocks, and the copy of it from a tensor as ordered."""
    rank, dtype = draw(st.integers(1, 5)), draw(st.sampled_from(sorted(DTYPES)))
    order = tuple(draw(st.permutations(range(rank))))
    innermost = order.index(0)
    extents = [draw(st.integers(1, 3 if rank < 3 else 2)) for _ in range(rank)]
    extents[innermost] = 128 * 8 // DTYPES[dtype]
    tile = [extent * draw(st.integers(1, 2)) for extent in extents]
    smem = tile_to_shape(
        make_ordered_layout(tuple(extents), order), tuple(tile), tuple(draw(st.permutations(range(rank))))
    )
    gmem = make_ordered_layout(tuple(extent * draw(st.integers(1, 3)) for extent in tile), order)
    return smem, sm90.make_tma_copy(gmem, smem, dtype=dtype)


def written_by(copy: sm90.TmaCopy) -> dict[tuple[int, ...], int]:
    """Do what the hardware does: fill each box in its order, dimension 0 first, and swizzle the byte address."""
    tensor_map, placed = copy.tensor_map, {}
    swizzle = byte_swizzle(tensor_map.swizzle)
    for box in copy.boxes:
        inside = product(*(range(extent) for extent in reversed(tensor_map.box)))
        for index, reversed_position in enumerate(inside):
            coordinate = list(box.coordinate)
            for mode, step in zip(copy.modes, reversed(reversed_position), strict=True):
                coordinate[mode] += step
            assert tuple(coordinate) not in placed
            placed[tuple(coordinate)] = swizzle(box.smem_offset_bytes + index * tensor_map.bits // 8)
    return placed


@given(st.one_of(copies(), copies_of_any_rank()))
def test_the_boxes_write_the_tile(drawn):
    smem, copy = drawn
    placed = written_by(copy)
    swizzle = byte_swizzle(copy.tensor_map.swizzle)
    tile = smem.layoutA if isinstance(smem, ComposedLayout) else smem
    assert len(placed) == size(tile)
    for coordinate, address in placed.items():
        assert address == swizzle(tile(*coordinate) * copy.tensor_map.bits // 8)
    assert copy.tx_bytes == size(tile) * copy.tensor_map.bits // 8


@pytest.mark.parametrize(
    ("major", "mode", "order", "box", "count"),
    [
        ("K", "SW128", (1, 2), (64, 128), 1),
        ("K", "SW64", (1, 2), (32, 128), 2),
        ("K", "INTER", (1, 2), (8, 128), 8),
        ("MN", "SW128", (1, 2), (64, 8), 16),
        ("MN", "SW128", (2, 1), (64, 64), 2),
        ("MN", "INTER", (2, 1), (8, 64), 16),
    ],
)
def test_how_many_instructions_a_tile_needs(major, mode, order, box, count):
    smem = tile_to_shape(sm90.gmma_layout_atom(major, mode, 16), (128, 64), order)
    gmem = Layout((4096, 4096), (1, 4096) if major == "MN" else (4096, 1))
    copy = sm90.make_tma_copy(gmem, smem, dtype="f16", global_address=0x100)
    assert (copy.tensor_map.box, len(copy.boxes)) == (box, count)
    assert copy.modes == ((0, 1) if major == "MN" else (1, 0))
    assert copy.tensor_map.strides_bytes == (8192,)
    assert copy.tensor_map.global_address == 0x100
    assert copy.smem_alignment == max(128, pattern_bytes(mode) if mode != "INTER" else 0)


@pytest.mark.parametrize("rank", range(1, 6))
def test_every_rank_has_its_copy(rank):
    shape = (64, 2, 3, 2, 2)[:rank]
    copy = sm90.make_tma_copy(Layout((128, 4, 6, 4, 4)[:rank]), Layout(shape), dtype="f16")
    assert copy.modes == tuple(range(rank))
    assert copy.tensor_map.box == shape
    assert [(box.coordinate, box.smem_offset_bytes) for box in copy.boxes] == [((0,) * rank, 0)]


@pytest.mark.parametrize("gmem", [Layout(4096), Layout((4096,))])
@pytest.mark.parametrize("smem", [Layout(256), Layout((256,)), Layout(((2, 128),))])
def test_a_vector_may_be_written_with_or_without_its_tuple(gmem, smem):
    copy = sm90.make_tma_copy(gmem, smem, dtype="f16")
    assert copy == sm90.make_tma_copy(Layout(4096), Layout(256), dtype="f16")
    assert copy.boxes == (sm90.TmaBox((0,), 0, 512),)
    swizzled = ComposedLayout(Swizzle(3, 4, 3), 0, Layout(64))
    assert sm90.make_tma_copy(gmem, swizzled, dtype="f16").tensor_map.box == (64,)


def test_modes_that_the_tile_has_one_of_follow_the_box():
    smem = Layout((64, 1, 8, 1), (8, 0, 1, 0))
    copy = sm90.make_tma_copy(Layout((128, 5, 64, 1), (64, 8192, 1, 7)), smem, dtype="f16")
    assert copy.modes == (2, 0, 1)
    assert (copy.tensor_map.dims, copy.tensor_map.box) == ((64, 128, 5), (8, 64, 1))


def test_the_stride_of_a_single_row_is_free():
    copy = sm90.make_tma_copy(Layout((1, 64), (3, 1)), Layout((8, 64), (64, 1)), dtype="f16")
    assert (copy.tensor_map.dims, copy.tensor_map.strides_bytes) == ((64, 1), (16,))


def test_padded_rows_take_one_box_each():
    copy = sm90.make_tma_copy(Layout((64, 64), (64, 1)), Layout((2, 64), (128, 1)), dtype="f16")
    assert [(box.coordinate, box.smem_offset_bytes, box.tx_bytes) for box in copy.boxes] == [
        ((0, 0), 0, 128),
        ((1, 0), 256, 128),
    ]


def test_a_multicast_divides_the_box():
    smem = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (128, 64))
    gmem = Layout((4096, 4096), (4096, 1))
    copies_by_count = {n: sm90.make_tma_copy(gmem, smem, dtype="f16", multicast=n) for n in (1, 2, 4)}
    assert [copy.tensor_map.box for copy in copies_by_count.values()] == [(64, 128), (64, 64), (64, 32)]
    assert {copy.tx_bytes for copy in copies_by_count.values()} == {128 * 64 * 2}
    with refuses(LayoutError):
        sm90.make_tma_copy(gmem, smem, dtype="f16", multicast=3)
    with refuses(LayoutError):
        sm90.make_tma_copy(gmem, smem, dtype="f16", multicast=0)
    with refuses(LayoutError):
        sm90.make_tma_copy(gmem, smem, dtype="f16", multicast=3 * 128)
    with refuses(LayoutError):
        sm90.make_tma_copy(gmem, smem, dtype="f16", multicast=2 * 128 * 64)


SMEM = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (128, 64))


@pytest.mark.parametrize(
    ("gmem", "smem", "keywords"),
    [
        (Layout((512, 512), (512, 1)), SMEM, {"dtype": "f8"}),
        ((512, 512), SMEM, {}),
        (Layout((512, (8, 64)), (512, (1, 8))), SMEM, {}),
        (Layout((512, 512), (512, 1)), tile_to_shape(SMEM, (128, 64, 3)), {}),
        (Layout((512, 512), (1, 512)), SMEM, {}),
        (Layout((512, 500), (500, 1)), SMEM, {}),
        (Layout((512, 512), (512, 1)), SMEM, {"global_address": 4}),
        (Layout((512, 512), (512, 1)), Layout((512, 64), (64, 1)), {}),
        (Layout((512, 512), (512, 1)), Layout((8, 4), (4, 1)), {}),
        (Layout((512, 512), (512, 1)), ComposedLayout(Swizzle(3, 4, 3), 0, Layout((8, 128), (128, 1))), {}),
        (Layout((512, 512), (512, 1)), ComposedLayout(Swizzle(3, 4, 4), 0, Layout((8, 64), (64, 1))), {}),
        (Layout((512, 512), (512, 1)), Layout((8, 64), (128, 2)), {}),
        (Layout((512, 512), (512, 1)), Layout((8, 64), (72, 1)), {}),
        (Layout((512, 512), (512, 1)), ComposedLayout(Swizzle(3, 4, 3), 0, Layout((8, (64, 2)), (64, (1, 576)))), {}),
    ],
)
def test_what_cannot_be_copied_is_an_error_that_says_why(gmem, smem, keywords):
    with refuses(LayoutError):
        sm90.make_tma_copy(gmem, smem, **{"dtype": "f16", **keywords})


def test_the_address_in_shared_memory_is_checked():
    copy = sm90.make_tma_copy(Layout((512, 512), (512, 1)), SMEM, dtype="f16")
    copy.check_smem_address(0x400)
    with refuses(LayoutError):
        copy.check_smem_address(0x200)
    with refuses(LayoutError):
        copy.check_smem_address(0x240)


def test_one_stage_of_a_staged_layout():
    staged = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (128, 64, 3))
    assert sm90.make_tma_copy(Layout((512, 512), (512, 1)), take(staged, 0, 2), dtype="f16").tensor_map.box == (64, 128)


def test_a_contiguous_mode_of_one_element_may_have_any_stride():
    copy = sm90.make_tma_copy(Layout((1, 64), (64, 8)), Layout((8, 64), (1, 8)), dtype="f16")
    assert (copy.tensor_map.dims, copy.tensor_map.strides_bytes, copy.tensor_map.box) == ((1, 64), (16,), (8, 64))


def test_the_stride_of_two_rows_is_taken():
    copy = sm90.make_tma_copy(Layout((2, 64), (128, 1)), Layout((2, 64), (64, 1)), dtype="f16")
    assert (copy.tensor_map.dims, copy.tensor_map.strides_bytes) == ((64, 2), (256,))


def test_more_ctas_than_rows_divide_the_columns_too():
    gmem, smem = Layout((2, 64), (128, 1)), Layout((2, 64), (64, 1))
    boxes = [sm90.make_tma_copy(gmem, smem, dtype="f16", multicast=n).tensor_map.box for n in (1, 2, 4)]
    assert boxes == [(64, 2), (64, 1), (32, 1)]


def test_a_tile_beyond_the_shared_memory_of_a_cta_is_refused():
    tensor = Layout((4096, 4096), (4096, 1))
    atom = sm90.gmma_layout_atom("K", "SW128", 16)
    fits = sm90.make_tma_copy(tensor, tile_to_shape(atom, (256, 448)), dtype="f16")
    assert sum(box.tx_bytes for box in fits.boxes) == 229376
    with refuses(LayoutError):
        sm90.make_tma_copy(tensor, tile_to_shape(atom, (256, 512)), dtype="f16")
