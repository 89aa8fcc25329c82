"""Matrix descriptors: bits, canonical forms, and the hardware's walk against the layout's own addresses."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import ComposedLayout, Layout, LayoutError, SmemPtr, Swizzle, size, sm90, tile_to_shape
from cutepy.layouts.sm90.arch import MAJORS, SWIZZLE_MODES
from cutepy.layouts.sm90.gmma import byte_swizzle
from tests.messages import refuses

offsets = st.integers(0, 2**14 - 1).map(lambda units: 16 * units)
descriptors = st.builds(
    sm90.GmmaDescriptor,
    offsets,
    offsets,
    offsets,
    base_offset=st.integers(0, 7),
    layout_type=st.integers(0, 3),
)


@st.composite
def iterators(draw):
    """Draw a staged operand of any major, swizzle and width, with the MMA's shape and a base address."""
    major, mode, bits = (
        draw(st.sampled_from(MAJORS)),
        draw(st.sampled_from(SWIZZLE_MODES)),
        draw(st.sampled_from((8, 16, 32))),
    )
    atom = sm90.gmma_layout_atom(major, mode, bits, pointer_swizzle=draw(st.booleans()))
    # An MMA no wider along MN than an atom, or a whole number of atoms; and of whole 16-byte units, as wgmma reads.
    widths = [n for n in (8, 16, 32, 64, 128) if n % size(atom, 0) == 0 or size(atom, 0) % n == 0]
    mma_mn = draw(st.sampled_from([n for n in widths if major == "K" or n * bits >= 128]))
    mma_k = 256 // bits
    mn = draw(st.integers(1, 3)) * max(mma_mn, size(atom, 0))
    k = draw(st.integers(1, 2)) * max(mma_k, size(atom, 1))
    order = draw(st.sampled_from(((1, 2, 3), (2, 1, 3))))
    smem = tile_to_shape(atom, (mn, k, draw(st.integers(1, 2))), order)
    base = 1024 * draw(st.integers(0, 8))
    return smem, sm90.GmmaDescriptorIterator(smem, major=major, bits=bits, mma_shape=(mma_mn, mma_k), base_address=base)


@given(descriptors)
def test_a_descriptor_decodes_to_itself(descriptor):
    assert sm90.GmmaDescriptor.decode(int(descriptor)) == descriptor
    assert hex(descriptor) == f"{int(descriptor):#x}"


def said_of(stray):
    if len(stray) == 1:
        return f"sets bit {stray[0]}, which belongs to no field"
    return f"sets bits {', '.join(map(str, stray))}, which belong to no field"


@given(st.integers(0, 2**64 - 1))
def test_a_word_is_a_descriptor_or_an_error_that_names_the_bits(word):
    stray = [bit for bit in (14, 15, 30, 31, 46, 47, 48, *range(52, 62)) if word >> bit & 1]
    if not stray:
        assert int(sm90.GmmaDescriptor.decode(word)) == word
    else:
        with pytest.raises(LayoutError, match=said_of(stray)):
            sm90.GmmaDescriptor.decode(word)


FIELDS = {
    **{bit: ("start_address", 16 << bit) for bit in range(14)},
    **{16 + bit: ("leading_byte_offset", 16 << bit) for bit in range(14)},
    **{32 + bit: ("stride_byte_offset", 16 << bit) for bit in range(14)},
    **{49 + bit: ("base_offset", 1 << bit) for bit in range(3)},
    **{62 + bit: ("layout_type", 1 << bit) for bit in range(2)},
}
"""CuTe ``arch/mma_sm90_desc.hpp``: what each bit of a descriptor adds to which field."""


@pytest.mark.parametrize("bit", range(64))
def test_each_bit_belongs_to_its_field_or_to_none(bit):
    if bit not in FIELDS:
        with refuses(LayoutError):
            sm90.GmmaDescriptor.decode(1 << bit)
        return
    name, value = FIELDS[bit]
    descriptor = sm90.GmmaDescriptor.decode(1 << bit)
    assert getattr(descriptor, name) == value
    assert descriptor == replace(sm90.GmmaDescriptor(0, 0, 0), **{name: value})


def test_every_field_can_be_full():
    full = sum(1 << bit for bit in FIELDS)
    descriptor = sm90.GmmaDescriptor.decode(full)
    assert int(descriptor) == full
    assert (descriptor.start_address, descriptor.base_offset, descriptor.layout_type) == (2**18 - 16, 7, 3)


@pytest.mark.parametrize("word", [-1, 2**64])
def test_a_descriptor_has_64_bits(word):
    with refuses(LayoutError):
        sm90.GmmaDescriptor.decode(word)


@given(iterators(), st.data())
def test_the_hardware_walks_to_the_layouts_addresses(operand, data):
    smem, descriptors = operand
    bits = descriptors.first.bits
    blocks = [data.draw(st.integers(0, size(descriptors.layout, mode) - 1)) for mode in (1, 2, 3)]
    descriptor = descriptors[tuple(blocks)]
    mma_mn, mma_k = descriptors.first.shape_mn_k
    swizzle = byte_swizzle(descriptor.swizzle)
    tile = smem.layoutA if isinstance(smem, ComposedLayout) else smem
    base = descriptors.first.start_address
    for mn, row in enumerate(descriptor.element_addresses()):
        for k, address in enumerate(row):
            index = tile(blocks[0] * mma_mn + mn, blocks[1] * mma_k + k, blocks[2])
            assert address == swizzle(base + index * bits // 8)


@given(iterators())
def test_core_matrices_begin_at_their_first_element(operand):
    descriptor = operand[1].first
    addresses = descriptor.element_addresses()
    per_unit = 128 // descriptor.bits
    height, width = (8, per_unit) if descriptor.major == "K" else (per_unit, 8)
    for i in range(len(addresses) // height):
        for j in range(len(addresses[0]) // width):
            assert descriptor.core_matrix_address(i, j) == addresses[i * height][j * width]


@pytest.mark.parametrize("field", ["leading_byte_offset", "stride_byte_offset"])
def test_the_walk_depends_on_both_offsets(field):
    """Break what the walk is made of: an MN-major tile of two spans reads both offsets."""
    smem = tile_to_shape(sm90.gmma_layout_atom("MN", "SW64", 16), (64, 16))
    descriptor = sm90.make_gmma_desc(smem, major="MN", bits=16, start_address=0)
    wrong = replace(descriptor, **{field: getattr(descriptor, field) + 16})
    assert wrong.element_addresses() != descriptor.element_addresses()


def test_a_position_independent_slice_carries_its_offset():
    smem = tile_to_shape(sm90.gmma_layout_atom("K", "SW128", 16), (64, 64))
    sliced = ComposedLayout(smem.layoutB, 16, Layout((64, 16), (64, 1)))
    assert int(sm90.make_gmma_desc(sliced, major="K", bits=16, start_address=0x400)) == int(
        sm90.GmmaDescriptorIterator(smem, major="K", bits=16, mma_shape=(64, 16), base_address=0x400)[0, 1]
    )


def test_the_smem_pointer_gives_the_address():
    tile = ComposedLayout(Swizzle(3, 4, 3), SmemPtr(16, 0x800), Layout((64, 16), (64, 1)))
    assert sm90.make_gmma_desc(tile, major="K", bits=16).start_address == 0x800
    assert sm90.make_gmma_desc(tile, major="K", bits=16, start_address=0x800).start_address == 0x800
    with refuses(LayoutError):
        sm90.make_gmma_desc(tile, major="K", bits=16, start_address=0x400)


def sw128(tile):
    return ComposedLayout(Swizzle(3, 4, 3), 0, tile)


@pytest.mark.parametrize(
    ("layout", "major"),
    [
        (Layout((64, 16), (16, 1)), "K"),
        (sw128(Layout((64, 16), (32, 1))), "K"),
        (sw128(Layout((64, 16), (64, 3))), "K"),
        (sw128(Layout((64, (8, 2)), (64, (1, 4096)))), "K"),
        (sw128(Layout((60, 16), (64, 1))), "K"),
        (sw128(Layout((64, 64), (64, 1))), "K"),
        (sw128(Layout(((8, 2, 4), 16), ((64, 512, 4096), 1))), "K"),
        (sw128(Layout((64, 64), (1, 64))), "MN"),
        (sw128(Layout((64, 16), (1, 32))), "MN"),
        (sw128(Layout(((8, 8), 16), ((1, 64), 512))), "MN"),
        (sw128(Layout(((64, 2), 16), ((1, 4096), 64))), "K"),
        (sw128(Layout((64, 16), (64, 1))), "MN"),
        (sw128(Layout((64, 16), (1, 64))), "K"),
        (sw128(Layout((64, 16), (64, 8))), "K"),
        (sw128(Layout((64, 4), (4, 1))), "K"),
        (sw128(Layout((64, 16), (1, 60))), "K"),
        (sw128(Layout((64, 16), (1, 60))), "MN"),
        (sw128(Layout((64, (4, 4)), (64, (1, 16)))), "K"),
        (sw128(Layout((64, 16), (1, 4))), "MN"),
        (sw128(Layout(((24, 4), 16), ((1, 1024), 64))), "MN"),
        (sw128(Layout((64, (8, 4)), (64, (1, 16)))), "K"),
        (sw128(Layout((64, 16, 2), (64, 1, 1024))), "K"),
        (ComposedLayout(Swizzle(2, 4, 2), 0, Layout((64, 16), (64, 1))), "K"),
        (ComposedLayout(Swizzle(3, 3, 3), 4, Layout((64, 16), (64, 1))), "K"),
    ],
)
def test_a_tile_that_is_not_canonical_is_an_error_that_says_why(layout, major):
    with refuses(LayoutError):
        sm90.make_gmma_desc(layout, major=major, bits=16, start_address=0)


@st.composite
def tiles(draw):
    """Draw a tile, most of them far from canonical."""
    shape = draw(st.sampled_from((4, 8, 12, 60, 64, (8, 8), (4, 16)))), draw(st.sampled_from((4, 8, 16, 32, (8, 2))))
    step = st.sampled_from((0, 1, 3, 4, 8, 16, 32, 64, 128, 512))
    return Layout(shape, tuple(draw(st.tuples(step, step) if isinstance(s, tuple) else step) for s in shape))


@given(tiles(), st.sampled_from(MAJORS), st.sampled_from(SWIZZLE_MODES), st.sampled_from((8, 16, 32)))
def test_what_a_refusal_says_of_the_tile_is_true(tile, major, mode, bits):
    try:
        sm90.make_gmma_desc(ComposedLayout(byte_swizzle(mode), 0, tile), major=major, bits=bits, start_address=0)
    except LayoutError as error:
        said = error.condition
    else:
        return
    extents = {"K extent": size(tile, 1), "MN extent": size(tile, 0)}
    for name, extent in extents.items():
        if got := re.search(rf"the {name} must be .*, got ([0-9.]+)( bytes)?$", said):
            assert float(got[1]) == (extent * bits / 8 if got[2] else extent)
            assert not re.search(rf"must be {got[1]} |[( ]{got[1]} (or|in) ", said)
    if got := re.search("(MN|K) must be the contiguous mode, of stride 1, here (MN|K|neither) is", said):
        assert got[1] == major
        assert got[2] != major
        if got[2] != "neither":
            mode = tile[("MN", "K").index(got[2])]
            indices = {mode(i) for i in range(size(mode))}
            assert any(index + 1 in indices for index in indices)


@pytest.mark.parametrize(("major", "k"), [("MN", 8), ("MN", 32), ("K", 32)])
def test_the_k_extents_of_sparse_mmas_are_accepted(major, k):
    tile = Layout((64, k), (64, 1)) if major == "K" else Layout((64, k), (1, 64))
    assert sm90.make_gmma_desc(sw128(tile), major=major, bits=16, start_address=0).swizzle == "SW128"


def test_a_tile_that_straddles_a_swizzle_span_is_an_error():
    tile = Layout(((64, 2), (8, 2)), ((1, 1024), (64, 512)))
    cut = Layout(((32, 3), (8, 2)), ((1, 1024), (64, 512)))
    assert sm90.make_gmma_desc(sw128(tile), major="MN", bits=16, start_address=0).leading_byte_offset == 2048
    with refuses(LayoutError):
        sm90.make_gmma_desc(sw128(cut), major="MN", bits=16, start_address=0)


@pytest.mark.parametrize(
    "keywords",
    [
        {"major": "N", "bits": 16, "start_address": 0},
        {"major": "K", "bits": 12, "start_address": 0},
        {"major": "K", "bits": 16},
        {"major": "K", "bits": 16, "start_address": 0x408},
        {"major": "K", "bits": 16, "start_address": 1 << 18},
        {"major": "K", "bits": 16, "start_address": -16},
    ],
)
def test_bad_arguments_are_errors(keywords):
    with refuses(LayoutError):
        sm90.make_gmma_desc(sw128(Layout((64, 16), (64, 1))), **keywords)


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((8, 0, 0), {}),
        ((0, 8, 0), {}),
        ((0, 0, 1 << 18), {}),
        ((0, 0, 0), {"base_offset": 8}),
        ((0, 0, 0), {"base_offset": -1}),
        ((0, 0, 0), {"layout_type": 4}),
        ((0, 0, 0), {"layout_type": -1}),
    ],
)
def test_a_field_that_does_not_fit_is_an_error(arguments, keywords):
    with refuses(LayoutError):
        sm90.GmmaDescriptor(*arguments, **keywords)


def test_a_walk_needs_what_the_word_does_not_tell():
    word = sm90.GmmaDescriptor(0, 16, 1024, layout_type=1)
    with refuses(LayoutError):
        word.address(0, 0)
    for partly in ({"major": "K"}, {"bits": 16}):
        with refuses(LayoutError):
            word.address(0, 0, **partly)
    with refuses(LayoutError):
        word.address(0, 0, major="M", bits=16)
    with refuses(LayoutError):
        word.address(0, 0, major="K", bits=12)
    with refuses(LayoutError):
        word.element_addresses(major="K", bits=16)
    with refuses(LayoutError):
        replace(word, base_offset=1).address(0, 0, major="K", bits=16)
    assert word.element_addresses((1, 2), major="K", bits=16) == [[0, 2]]


def test_context_is_not_part_of_the_value():
    known = sm90.GmmaDescriptor(0, 16, 1024, layout_type=1, major="K", bits=16, shape_mn_k=(64, 16))
    assert known == sm90.GmmaDescriptor.decode(int(known))
    assert known.advance(32).shape_mn_k == (64, 16)
    assert (known.lbo, known.sbo, known.swizzle) == (16, 1024, "SW128")
    assert repr(known) == (
        "GmmaDescriptor(start_address=0, leading_byte_offset=16, stride_byte_offset=1024, base_offset=0, layout_type=1)"
    )


def test_what_has_a_default_is_named():
    assert int(sm90.GmmaDescriptor(16, 32, 48)) == 3 << 32 | 2 << 16 | 1
    for extra in ((0,), (0, 0), (0, 0, "K"), (0, 0, "K", 16), (0, 0, "K", 16, (64, 16))):
        with pytest.raises(TypeError):
            sm90.GmmaDescriptor(0, 0, 0, *extra)


@pytest.mark.parametrize("mode", SWIZZLE_MODES)
def test_the_layout_type_is_the_bit_fields(mode):
    atom = sm90.gmma_layout_atom("K", mode, 16)
    smem = tile_to_shape(atom, (64, max(16, size(atom, 1))))
    first = sm90.GmmaDescriptorIterator(smem, major="K", bits=16, mma_shape=(64, 16)).first
    assert int(first) >> 62 == {"INTER": 0, "SW128": 1, "SW64": 2, "SW32": 3}[mode]
