"""The descriptors of a staged operand."""

import pytest

from cutepy.layouts import ComposedLayout, Layout, LayoutError, Swizzle, size, sm90, tile_to_shape
from tests.messages import refuses

SMEM = tile_to_shape(sm90.gmma_layout_atom("K", "SW64", 16), (128, 64, 3))


def test_coordinates_are_indices_or_hierarchical():
    descriptors = sm90.GmmaDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16), base_address=0x400)
    assert size(descriptors.layout, 2) == 4
    assert descriptors[1, 3, 2] == descriptors[1, (1, 1), 2]
    assert descriptors[0, 0, 0] == descriptors.first
    assert str(descriptors).startswith(f"GmmaDescriptorIterator({hex(descriptors.first)} o (1,2,(2,2),(1,3)):")


def test_a_descriptor_is_that_of_its_tile():
    descriptors = sm90.GmmaDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16), base_address=0x400)
    tile = ComposedLayout(SMEM.layoutB, 0, descriptors.partition[0])
    moved = 0x400 + 2 * descriptors.partition(0, 1, 2, 1)
    assert descriptors[1, 2, 1] == sm90.make_gmma_desc(tile, major="K", bits=16, start_address=moved)


def test_an_iterator_is_a_value():
    arguments = {"major": "K", "bits": 16, "mma_shape": (64, 16)}
    descriptors = sm90.GmmaDescriptorIterator(SMEM, **arguments)
    assert descriptors == sm90.GmmaDescriptorIterator(SMEM, **arguments, base_address=0)
    assert descriptors != sm90.GmmaDescriptorIterator(SMEM, **arguments, base_address=16)
    assert hash(descriptors) == hash(sm90.GmmaDescriptorIterator(SMEM, **arguments))
    with pytest.raises(TypeError):
        sm90.GmmaDescriptorIterator(SMEM, "K", 16, (64, 16))


def test_without_stages_there_are_two_coordinates():
    descriptors = sm90.GmmaDescriptorIterator(
        tile_to_shape(sm90.gmma_layout_atom("MN", "INTER", 16), (64, 32)), major="MN", bits=16, mma_shape=(64, 16)
    )
    assert descriptors[0, 1].start_address == 2048
    with refuses(IndexError):
        descriptors[0, 1, 0]
    with refuses(IndexError):
        descriptors[0]


@pytest.mark.parametrize(
    "coordinate",
    [
        (2, 0, 0),
        (0, 4, 0),
        (0, 0, 3),
        (-1, 0, 0),
        (0, 0, (0, 5)),
        (0, 0, (0, -1)),
        (0, (2, 0), 0),
        (0, 0, (0, 2, 0)),
        (0, 0, ((0,), 2)),
        ((0,), 0, 0),
    ],
)
def test_outside_of_the_operand_is_an_error(coordinate):
    descriptors = sm90.GmmaDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16))
    with refuses(IndexError):
        descriptors[coordinate]


@pytest.mark.parametrize("coordinate", [(0.5, 0, 0), (None, 0, 0), (0, 0, "1"), (0, 0, (0, None))])
def test_an_index_is_an_int(coordinate):
    descriptors = sm90.GmmaDescriptorIterator(SMEM, major="K", bits=16, mma_shape=(64, 16))
    with refuses(TypeError):
        descriptors[coordinate]


@pytest.mark.parametrize(
    ("layout", "keywords"),
    [
        (SMEM, {"major": "M"}),
        (SMEM, {"bits": 24}),
        (ComposedLayout(Swizzle(3, 3, 3), 8, Layout((64, 64), (64, 1))), {}),
        (Layout(64), {}),
        (tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (192, 64, 2)), {"major": "MN", "mma_shape": (96, 16)}),
        (SMEM, {"base_address": 8}),
    ],
)
def test_bad_operands_are_errors(layout, keywords):
    with refuses(LayoutError):
        sm90.GmmaDescriptorIterator(layout, **{"major": "K", "bits": 16, "mma_shape": (64, 16), **keywords})


def test_all_but_the_layout_is_given_by_keyword():
    smem = tile_to_shape(sm90.gmma_layout_atom("MN", "SW128", 16), (128, 64))
    for extra in ("MN", 16, (64, 16), 0, None):
        with refuses(TypeError):
            sm90.GmmaDescriptorIterator(smem, extra, major="MN", bits=16, mma_shape=(64, 16))
