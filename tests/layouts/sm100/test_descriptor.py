"""Shared-memory descriptors of tcgen05: bits, refusals, and the hardware's walk."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, sm90, sm100, tile_to_shape
from cutepy.layouts.bit_field import stray_bits
from cutepy.layouts.hardware import SWIZZLES, byte_swizzle
from cutepy.layouts.sm100.arch import SMEM_LAYOUT_TYPE
from tests.messages import pins, refuses

OFFSETS = st.integers(0, 2**14 - 1).map(lambda units: 16 * units)
DESCRIPTORS = st.builds(
    sm100.SmemDescriptor,
    OFFSETS,
    OFFSETS,
    OFFSETS,
    base_offset=st.integers(0, 7),
    lbo_mode=st.integers(0, 1),
    layout_type=st.sampled_from(sorted(SMEM_LAYOUT_TYPE.values())),
)
FIELDS = {
    **{bit: ("start_address", 16 << bit) for bit in range(14)},
    **{16 + bit: ("leading_byte_offset", 16 << bit) for bit in range(14)},
    **{32 + bit: ("stride_byte_offset", 16 << bit) for bit in range(14)},
    **{49 + bit: ("base_offset", 1 << bit) for bit in range(3)},
    52: ("lbo_mode", 1),
    61: ("layout_type", 1),
    62: ("layout_type", 2),
    63: ("layout_type", 4),
}
"""PTX ISA, "Shared memory descriptor": what each bit of a descriptor adds to which field."""
VERSION = 1 << 46


@given(DESCRIPTORS)
def test_a_descriptor_decodes_to_itself(descriptor):
    assert sm100.SmemDescriptor.decode(int(descriptor)) == descriptor
    assert hex(descriptor) == f"{int(descriptor):#x}"


@given(st.integers(0, 2**64 - 1))
def test_a_word_is_a_descriptor_or_an_error(word):
    whole = not stray_bits(word, sum(1 << bit for bit in (*FIELDS, 46, 47, 48)))
    if whole and word >> 46 & 7 == 1 and word >> 61 in SMEM_LAYOUT_TYPE.values():
        assert int(sm100.SmemDescriptor.decode(word)) == word
    else:
        with pytest.raises(LayoutError):
            sm100.SmemDescriptor.decode(word)


@pytest.mark.parametrize("bit", range(64))
def test_each_bit_belongs_to_its_field_or_to_none(bit):
    if bit in FIELDS and bit != 63:  # a layout type of 4 alone is SW64, 1 SW128_32B, 2 SW128
        name, value = FIELDS[bit]
        descriptor = sm100.SmemDescriptor.decode(VERSION | 1 << bit)
        assert getattr(descriptor, name) == value
        assert descriptor == replace(sm100.SmemDescriptor(0, 0, 0), **{name: value})
    elif bit != 46 and bit != 63:
        with refuses(LayoutError):
            sm100.SmemDescriptor.decode(VERSION | 1 << bit)
    else:
        assert sm100.SmemDescriptor.decode(VERSION | 1 << bit).swizzle == ("SW64" if bit == 63 else "INTER")


@pytest.mark.parametrize("code", [3, 5, 7])
def test_a_layout_type_without_meaning_is_refused(code):
    with refuses(LayoutError):
        sm100.SmemDescriptor.decode(VERSION | code << 61)


def test_a_descriptor_of_wgmma_is_refused():
    word = int(sm90.GmmaDescriptor(0x400, 16, 1024, layout_type=1))
    with refuses(LayoutError):
        sm100.SmemDescriptor.decode(word)


@pytest.mark.parametrize("word", [-1, 2**64])
def test_a_descriptor_has_64_bits(word):
    with refuses(LayoutError):
        sm100.SmemDescriptor.decode(word)


@pytest.mark.parametrize(
    ("name", "value"), [("start_address", 8), ("stride_byte_offset", 2**18), ("lbo_mode", 2), ("base_offset", -1)]
)
def test_a_value_that_does_not_fit_is_refused(name, value):
    with refuses(LayoutError):
        replace(sm100.SmemDescriptor(0, 0, 0), **{name: value})


def formula(mode, major, start, lbo, sbo, unit, row):
    """The address of a 16-byte unit by the issue's table of canonical layouts, written apart from the code."""
    if mode == "INTER":
        r, c = (row, unit)
        linear = r % 8 * 16 + r // 8 * sbo + c * lbo if major == "K" else c * sbo + r % 8 * 16 + r // 8 * lbo
    elif major == "K":
        span = {"SW32": 32, "SW64": 64, "SW128": 128}[mode]
        linear = row % 8 * span + row // 8 * sbo + unit * 16
    else:
        span = {"SW32": 32, "SW64": 64, "SW128": 128, "SW128_32B": 128}[mode]
        width, rows = span // 16, 4 if mode == "SW128_32B" else 8
        linear = unit % width * 16 + unit // width * lbo + row % rows * span + row // rows * sbo
    address = start + linear
    bits, base, shift = {"INTER": (0, 4, 3), "SW32": (1, 4, 3), "SW64": (2, 4, 3), "SW128": (3, 4, 3)}.get(
        mode, (2, 5, 2)
    )
    return address ^ ((address >> shift) & (((1 << bits) - 1) << base))


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("mode", list(SWIZZLES))
@given(data=st.data())
def test_the_walk_is_that_of_the_isa(mode, major, data):
    if (mode, major) == ("SW128_32B", "K"):
        return
    start, lbo, sbo = (16 * data.draw(st.integers(0, 4095)) for _ in range(3))
    bits = data.draw(st.sampled_from((4, 8, 16, 32)))
    descriptor = sm100.SmemDescriptor(start, lbo, sbo, layout_type=SMEM_LAYOUT_TYPE[mode])
    row, unit = data.draw(st.integers(0, 255)), data.draw(st.integers(0, 15 if major == "MN" else 1))
    per_unit = 128 // bits
    mn, k = (row, unit * per_unit) if major == "K" else (unit * per_unit, row)
    assert descriptor.address(mn, k, major=major, bits=bits) == formula(mode, major, start, lbo, sbo, unit, row)


def test_a_row_goes_on_in_the_atom_that_lbo_names():
    """K = 96 of fp4, 48 bytes, from byte 96 of a span of 128: 32 bytes there, 16 in the next atom (sm_103)."""
    here, there = 0x2000, 0x6000
    descriptor = sm100.SmemDescriptor(here + 96, there, 1024, lbo_mode=1, layout_type=2)
    swizzle = byte_swizzle("SW128")
    for row in range(24):
        offset = row % 8 * 128 + row // 8 * 1024
        want = [swizzle(here + offset + 96), swizzle(here + offset + 112), swizzle(there + offset)]
        assert [descriptor.address(row, k, major="K", bits=4) for k in (0, 32, 64)] == want


def test_readings_that_no_mma_has_are_refused():
    with refuses(LayoutError):
        sm100.SmemDescriptor(0, 0, 0, layout_type=1).address(0, 0, major="K", bits=32)
    with refuses(LayoutError):
        sm100.SmemDescriptor(0, 0, 0, lbo_mode=1, layout_type=2).address(0, 0, major="MN", bits=8)
    with refuses(LayoutError):
        sm100.SmemDescriptor(0, 0, 0, base_offset=1, layout_type=2).address(0, 0, major="K", bits=8)
    with refuses(LayoutError):
        sm100.SmemDescriptor(0, 0, 0).address(0, 0)


def test_a_base_offset_without_a_swizzle_is_not_read():
    """PTX ISA: "valid for all swizzling modes except the no-swizzle mode"; Triton sets it there."""
    plain = sm100.SmemDescriptor(0x200, 128, 256)
    for descriptor in (plain, sm100.SmemDescriptor(0x200, 128, 256, base_offset=4)):
        assert descriptor.address(9, 8, major="K", bits=16) == 0x200 + 128 + 256 + 16
    assert plain.walk(major="K", bits=16) == sm100.SmemDescriptor(0x200, 128, 256, base_offset=4).walk(
        major="K", bits=16
    )


def test_the_same_tile_has_the_same_addresses_as_on_hopper():
    smem = tile_to_shape(sm90.gmma_layout_atom("MN", "SW64", 16), (64, 16))
    hopper = sm90.make_gmma_desc(smem, major="MN", bits=16, start_address=0x400)
    blackwell = sm100.SmemDescriptor(hopper.start_address, hopper.lbo, hopper.sbo, layout_type=SMEM_LAYOUT_TYPE["SW64"])
    assert blackwell.element_addresses((64, 16), major="MN", bits=16) == hopper.element_addresses()
    assert int(blackwell) != int(hopper)


@pytest.mark.parametrize(
    "descriptor",
    [
        sm100.SmemDescriptor(0x400, 16, 1024, layout_type=2, major="K", bits=16, shape_mn_k=(128, 16)),
        sm100.SmemDescriptor(0x420, 2048, 512, layout_type=1, bits=32, shape_mn_k=(64, 8)),
        sm100.SmemDescriptor(0x460, 0x4000, 1024, layout_type=2, lbo_mode=1, bits=4, shape_mn_k=(128, 96)),
        sm100.SmemDescriptor(0, 128, 256),
        sm100.SmemDescriptor(0, 128, 256, base_offset=2, layout_type=6, major="K"),
    ],
    ids=["K-SW128", "SW128_32B", "LBO-mode", "INTER", "base-offset"],
)
def test_explanations(descriptor):
    pins(descriptor.explain())
