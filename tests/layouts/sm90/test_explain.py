"""Descriptors in words and as drawings."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import size, sm90, tile_to_shape
from cutepy.layouts.sm90.arch import MAJORS, SWIZZLE_MODES
from cutepy.layouts.sm90.explain import _shown, core_matrix_grid
from tests.messages import pins


def labels(axis):
    return [axis.label(position) for position in range(axis.size)]


def texts(grid):
    return [[cell.text for cell in row] for row in grid.cells]


def describe(major, mode, mn=128, bits=16):
    atom = sm90.gmma_layout_atom(major, mode, bits)
    smem = tile_to_shape(atom, (max(mn, size(atom, 0)), max(256 // bits, size(atom, 1))))
    shape = (mn, 256 // bits)
    return sm90.GmmaDescriptorIterator(smem, major=major, bits=bits, mma_shape=shape, base_address=0x400)[0, 0]


@given(st.sampled_from(MAJORS), st.sampled_from(SWIZZLE_MODES), st.sampled_from((8, 16, 32)))
def test_every_drawn_address_is_the_hardwares(major, mode, bits):
    descriptor = describe(major, mode, bits=bits)
    grid = core_matrix_grid(descriptor.walk(), descriptor.shape_mn_k)
    addresses = descriptor.element_addresses()
    for label, row in zip(labels(grid.rows), texts(grid), strict=True):
        if label != "...":
            mn = int(label.split("..")[0])
            starts = [int(column.split("..")[0]) for column in labels(grid.columns)]
            assert row == [hex(addresses[mn][k]) for k in starts]
    assert labels(grid.rows)[0].startswith("0..")
    assert labels(grid.rows)[-1].endswith("..127")


def test_both_offsets_are_told_of():
    text = describe("MN", "SW64").explain()
    pins(text)


@pytest.mark.parametrize(
    ("major", "mode", "words"),
    [
        (
            "K",
            "SW128",
            ["SBO, 1024 bytes, steps over 8 rows of MN", "LBO is not read", "8 rows of MN by 16 bytes (8 elements)"],
        ),
        (
            "K",
            "INTER",
            ["LBO, 2048 bytes, steps over 16 bytes of K", "SBO, 128 bytes, steps over 8 rows", "No swizzle"],
        ),
        ("MN", "INTER", ["LBO, 2048 bytes, steps over 8 of K", "SBO, 128 bytes, steps over 16 bytes of MN"]),
        ("MN", "SW32", ["bit 4 of the address ^= bit 7", "LBO, 256 bytes, steps over 32 bytes of MN"]),
    ],
)
def test_the_words_fit_major_and_swizzle(major, mode, words):
    text = describe(major, mode).explain()
    for word in words:
        assert word in text


def test_steps_in_the_drawing_are_the_differences_of_addresses():
    for major in MAJORS:
        for mode in SWIZZLE_MODES:
            grid = core_matrix_grid(describe(major, mode, mn=64).walk(), (64, 16))
            across = re.search(r"\+(?:.BO \()?(\d+)", grid.columns.note(1))
            assert int(texts(grid)[0][1], 16) - int(texts(grid)[0][0], 16) == int(across[1])
            below = re.search(r"\+(?:.BO \()?(\d+)", grid.rows.note(1))
            assert int(texts(grid)[1][0], 16) - int(texts(grid)[0][0], 16) == int(below[1])


def test_a_word_alone_is_explained_for_both_majors():
    text = sm90.GmmaDescriptor.decode(int(describe("K", "SW128"))).explain()
    assert text.count("Address of the first 16 bytes") == 2
    pins(text)


@pytest.mark.parametrize(
    ("start", "mode", "into"), [(0x90, "SW128", 0x90), (0x490, "SW64", 0x90), (0x10, "SW32", 0x10)]
)
def test_a_start_within_the_pattern_is_told_of(start, mode, into):
    descriptor = replace(describe("K", mode), start_address=start)
    text = descriptor.explain()
    pins(text)


@pytest.mark.parametrize("mode", SWIZZLE_MODES)
def test_a_start_on_the_pattern_is_nothing_to_tell_of(mode):
    assert "into the pattern" not in describe("K", mode).explain()
    assert "into the pattern" not in replace(describe("K", "INTER"), start_address=0x410).explain()


def test_without_a_defined_walk_there_is_no_drawing():
    text = replace(describe("K", "SW128"), base_offset=3).explain()
    pins(text)


@pytest.mark.parametrize(
    ("rows", "units", "shown"),
    [(10, 8, [*range(10)]), (11, 8, [0, 1, 8, 9, 10]), (33, 8, [0, 1, 8, 9, 32]), (64, 64, [0, 1, 63, 64, 65])],
)
def test_of_many_rows_those_at_both_ends_of_a_span_and_the_last_are_drawn(rows, units, shown):
    assert _shown(rows, units) == shown


def test_extents_of_an_unknown_element_are_labelled_in_bytes():
    descriptor = sm90.GmmaDescriptor.decode(0x4000004000000040)
    for major in MAJORS:
        grid = core_matrix_grid(descriptor.walk(major=major, bits=8), None, bits_known=False)
        assert all(label.endswith(" B") == (major == "MN") for label in labels(grid.rows) if label != "...")
        assert all(label.endswith(" B") == (major == "K") for label in labels(grid.columns))
