"""The layout that is told of an operand's tile, against the PTX ISA's strides and swizzles computed here."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cutepy.anatomy.model import Copy, Operand, Site
from cutepy.anatomy.operand_words import TCGEN05, WGMMA
from cutepy.anatomy.tiles import _MOST_BOXES, box_layout, box_picture, operand_pictures, tensor_picture, tile_layout
from cutepy.anatomy.words import addresses, progression
from cutepy.layouts import parse
from cutepy.layouts.render import render_text
from cutepy.layouts.sm90 import TensorMap
from tests.layouts.render.readers import read_text

SPANS = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a row of the pattern, by the top two bits of a descriptor."""


def hardware_address(word, major, bits, mn, k):
    """Byte address of element (mn, k), by the ISA's description of the matrix descriptor."""
    start, lbo, sbo = (word & 0x3FFF) * 16, (word >> 16 & 0x3FFF) * 16, (word >> 32 & 0x3FFF) * 16
    span = SPANS[word >> 62]
    along, across = (mn, k) if major == "MN" else (k, mn)
    byte = along * bits // 8
    if span == 16:
        first, second = (sbo, lbo) if major == "MN" else (lbo, sbo)
        place = start + byte // 16 * first + across // 8 * second + across % 8 * 16 + byte % 16
    else:
        jump = byte // span * lbo if major == "MN" else 0
        place = start + jump + byte % span + across % 8 * span + across // 8 * sbo
    # Units of 16 bytes are exchanged by the bits that count rows of 128 bytes.
    return place ^ (place >> 3 & (span // 16 - 1) << 4)


@given(
    st.sampled_from([8, 16, 32]),
    st.sampled_from(["MN", "K"]),
    st.integers(0, 3),
    st.integers(0, 200),
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([8, 64, 96, 256]),
)
def test_a_tile_is_where_the_hardware_reads_it(bits, major, kind, start, lbo, sbo, extent):
    major = "K" if bits != 16 else major
    word = start | lbo << 16 | sbo << 32 | kind << 62
    k = 256 // bits
    operand = WGMMA.described(Operand("f16", bits, major, (extent, k), "shared memory"), (word,), complete=True)
    layout = parse(str(tile_layout(operand)))
    assert f"smem_ptr[{bits}b]({16 * start:#x})" in str(layout)
    for mn in {0, 1, 7, extent // 2, extent - 1}:
        for at in {0, 1, k // 2, k - 1}:
            # Of a layout over a pointer the swizzle acts on addresses, and offsets are relative to it.
            swizzle = re.match(r"Sw<(\d),4,3>", str(layout))
            mask = (1 << int(swizzle[1])) - 1 if swizzle else 0
            linear = 16 * start + inner(layout)(mn, at) * bits // 8
            assert linear ^ (linear >> 3 & mask << 4) == hardware_address(word, major, bits, mn, at)


def test_a_tile_of_32_byte_atoms_is_where_the_tensor_core_reads_it():
    """Patterns of 4 rows of 128 bytes, in which bits 7 and 8 of an address change bits 5 and 6."""
    word = 64 | 2048 // 16 << 16 | 512 // 16 << 32 | 1 << 46 | 1 << 61
    operand = TCGEN05.described(Operand("tf32", 32, "MN", (64, 8), "shared memory"), (word,), complete=True)
    layout = str(tile_layout(operand))
    assert layout.startswith("Sw<2,5,2> o smem_ptr[32b](0x400)")
    drawn = read_text(render_text(operand_pictures(operand, "A")[1]))
    drawn = {(int(r), int(c)): int(text, 16) for (r, c), text in drawn.items()}
    for mn in range(64):
        for k in range(8):
            place = 1024 + mn // 32 * 2048 + mn % 32 * 4 + k // 4 * 512 + k % 4 * 128
            assert 1024 + inner(layout)(mn, k) * 4 == place
            assert mn % 4 or drawn[mn, k] == place ^ (place >> 7 & 3) << 5
    assert len(drawn) == 64 // 4 * 8


def inner(layout):
    """The layout without pointer and swizzle."""
    return parse(str(layout).rpartition(" o ")[2])


def test_the_small_picture_shows_core_matrices():
    word = 64 | 1 << 16 | 64 << 32 | 1 << 62
    operand = WGMMA.described(Operand("f16", 16, "K", (64, 16), "shared memory"), (word,), complete=True)
    small, large = operand_pictures(operand, "A")
    assert "0x400" in render_text(small)
    drawn = {(int(r), int(c)): int(text, 16) for (r, c), text in read_text(render_text(large)).items()}
    assert drawn == {(mn, k): hardware_address(word, "K", 16, mn, k) for mn in range(64) for k in (0, 8)}


def test_no_tile_where_a_field_is_not_known_or_the_base_offset_is_not_0():
    unknown = Operand("f16", 16, "K", (64, 16), "shared memory")
    assert (tile_layout(unknown), operand_pictures(unknown, "A")) == (None, None)
    shifted = WGMMA.described(unknown, (1 << 49,), complete=True)
    assert (shifted.base_offset, tile_layout(shifted), operand_pictures(shifted, "A")) == (1, None, None)


def copy_of(tensor_map, coordinates=()):
    return Copy("cp.async.bulk", "load", 2, False, (tensor_map,), "", 1, 1, 1, (2048,), coordinates, (), Site())


@given(st.sampled_from(["INTER", "SW32", "SW64", "SW128", "SW128_32B"]), st.integers(1, 9), st.integers(1, 3))
def test_a_box_is_where_tma_puts_it(swizzle, rows, planes):
    span = {"INTER": 48, "SW32": 32, "SW64": 64}.get(swizzle, 128)
    tensor = TensorMap("f16", (64, 32, 4), (128, 4096), (span // 2, rows, planes), swizzle=swizzle)
    assert box_layout(tensor, 2048).size() == span // 2 * rows * planes
    picture = box_picture(copy_of(tensor))
    mask, shift, unit = {
        "INTER": (0, 3, 4), "SW32": (1, 3, 4), "SW64": (3, 3, 4), "SW128": (7, 3, 4), "SW128_32B": (3, 2, 5)
    }[swizzle]  # fmt: skip
    for i in range(rows * planes):
        for j in range(span // 16):
            linear = i * span + 16 * j
            assert int(picture.cell(i, j).text) == (linear ^ (linear >> shift & mask << unit)) // 16


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_the_tensor_shows_which_boxes_were_copied(rank):
    """Of more modes than two the first two are shown."""
    beyond = rank - 2
    steps = tuple(256 * 96 * 3**n for n in range(beyond))
    tensor = TensorMap("f16", (128, 96, *[3] * beyond), (256, *steps), (64, 32, *[1] * beyond), swizzle="SW128")
    picture = tensor_picture(copy_of(tensor, ((0, 0, *[1] * beyond), (64, 64, *[2] * beyond))))
    assert [[cell.text for cell in row] for row in picture.cells] == [["x", "."], [".", "."], [".", "x"]]
    assert [[cell.colour for cell in row] for row in picture.cells] == [[0, None], [None, None], [None, 0]]
    assert [dict(cell.notes)["coordinates"] for cell in picture.cells[2]] == ["(0,64)", "(64,64)"]
    assert [picture.rows.label(i) for i in range(3)] == ["0", "32", "64"]
    assert [picture.columns.label(j) for j in range(2)] == ["0", "64"]


def test_a_tensor_is_drawn_where_boxes_part_it_and_were_seen():
    def drawn(extents=(128, 96), box=(64, 32), coordinates=((0, 0),), maps=1):
        steps = tuple(256 * 4096**n for n in range(len(extents) - 1))
        tensor = TensorMap("f16", extents, steps, box)
        copy = replace(copy_of(tensor, coordinates), tensor_maps=(tensor,) * maps)
        return tensor_picture(copy) is not None

    assert drawn()
    assert not drawn(maps=2)
    assert not drawn(coordinates=())
    assert not drawn((128,), (64,), ((0,),))
    for outside in ((32, 0), (0, 16), (32, 16)):
        assert not drawn(coordinates=((0, 0), outside))
    assert not drawn(box=(128, 96))
    assert drawn(box=(128, 48))
    assert drawn((64, 32 * _MOST_BOXES), (64, 32))
    assert not drawn((64, 32 * _MOST_BOXES + 1), (64, 32))
    assert not drawn((128, 32 * _MOST_BOXES), (64, 32))
    assert not drawn(maps=0)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=3), st.integers(0, 100))
def test_progressions_are_told_as_layouts(modes, start):
    values, step = [start], 1
    for count, gap in modes:
        step *= gap
        values = [value + n * step for n in range(count) for value in values]
        step *= count
    values = sorted(set(values))
    found = progression(values)
    assert found is not None
    assert sorted(start + found(n) for n in range(found.size())) == values


def test_others_are_listed():
    assert addresses((0, 16, 48)) == "0x0, 0x10, 0x30"
    assert addresses((0, 16, 48, 49, 60, 61, 70)) == "0x0, 0x10, 0x30, 0x31, 0x3c, 0x3d and 1 more"
