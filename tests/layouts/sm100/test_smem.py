"""UMMA atoms and descriptors of tiles: the walk reaches the layout's own addresses; refusals."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import ComposedLayout, Layout, LayoutError, size, sm90, sm100, tile_to_shape
from cutepy.layouts.hardware import MAJORS, SWIZZLES, byte_swizzle
from tests.messages import refuses


@st.composite
def operands(draw):
    """Draw a staged operand tiled from an atom, walked by MMAs of 64 or more along MN."""
    major, mode = draw(st.sampled_from(MAJORS)), draw(st.sampled_from(list(SWIZZLES)))
    if mode == "SW128_32B":
        major = "MN"
    bits = draw(st.sampled_from((4, 8, 16, 32)))
    atom = sm100.umma_layout_atom(major, mode, bits, pointer_swizzle=draw(st.booleans()))
    k = 256 // bits
    mn = max(64, size(atom, 0))
    order = draw(st.sampled_from(((1, 2, 3), (2, 1, 3))))
    smem = tile_to_shape(atom, (2 * mn, max(2 * k, size(atom, 1)), 3), order)
    base = 1024 * draw(st.integers(0, 8))
    return smem, sm100.SmemDescriptorIterator(smem, major=major, bits=bits, mma_shape=(mn, k), base_address=base)


@given(operands(), st.data())
def test_the_hardware_walks_to_the_layouts_addresses(drawn, data):
    smem, descriptors = drawn
    plain = smem.layoutA if isinstance(smem, ComposedLayout) else smem
    block = [data.draw(st.integers(0, size(descriptors.layout, mode) - 1)) for mode in (1, 2, 3)]
    descriptor = descriptors[tuple(block)]
    mn, k = descriptors.mma_shape
    swizzle = byte_swizzle(descriptor.swizzle)
    for _ in range(20):
        i, j = data.draw(st.integers(0, mn - 1)), data.draw(st.integers(0, k - 1))
        index = plain(block[0] * mn + i, block[1] * k + j, block[2])
        assert descriptor.address(i, j) == swizzle(descriptors.base_address + index * descriptor.bits // 8)


def test_eight_atoms_are_hoppers():
    for major in MAJORS:
        for mode in ("INTER", "SW32", "SW64", "SW128"):
            assert sm100.umma_layout_atom(major, mode, 16) == sm90.gmma_layout_atom(major, mode, 16)


@pytest.mark.parametrize("field", ["leading_byte_offset", "stride_byte_offset"])
def test_the_walk_depends_on_both_offsets(field):
    smem = tile_to_shape(sm100.umma_layout_atom("MN", "SW128_32B", 32), (64, 8))
    descriptor = sm100.make_umma_desc(smem, major="MN", bits=32, start_address=0)
    wrong = replace(descriptor, **{field: getattr(descriptor, field) + 16})
    assert wrong.element_addresses() != descriptor.element_addresses()


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm100.umma_layout_atom("K", "SW128_32B", 32),
        lambda: sm100.umma_layout_atom("K", "SW16", 32),
        lambda: sm100.umma_layout_atom("K", "SW32", 12),
        lambda: sm100.make_umma_desc(Layout((64, 16), (16, 1)), major="K", bits=16, start_address=0),
        lambda: sm100.make_umma_desc(Layout((64, 16, 2)), major="K", bits=16, start_address=0),
        lambda: sm100.make_umma_desc(
            tile_to_shape(sm100.umma_layout_atom("MN", "SW128_32B", 32), (64, 8)), major="K", bits=32, start_address=0
        ),
        lambda: sm90.make_gmma_desc(
            tile_to_shape(sm100.umma_layout_atom("MN", "SW128_32B", 32), (64, 8)), major="MN", bits=32, start_address=0
        ),
        lambda: sm100.make_umma_desc(
            tile_to_shape(sm100.umma_layout_atom("K", "SW128", 16), (64, 64)), major="MN", bits=16, start_address=0
        ),
    ],
    ids=["K-32B", "mode", "bits", "no-form", "rank", "32B-as-K", "32B-on-Hopper", "other-major"],
)
def test_tiles_that_no_mma_reads_are_refused(call):
    with refuses(LayoutError):
        call()
