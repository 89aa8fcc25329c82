"""The GMMA layout atoms."""

import pytest

from cutepy.layouts import ComposedLayout, E, Layout, LayoutError, SmemPtr, Swizzle, size, sm90
from cutepy.layouts.sm90.arch import MAJORS, SWIZZLE_MODES, pattern_bytes, span_bytes
from cutepy.layouts.sm90.gmma import byte_swizzle, element_swizzle, split_swizzle
from tests.messages import refuses

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("mode", SWIZZLE_MODES)
@pytest.mark.parametrize("major", MAJORS)
def test_an_atom_spans_the_swizzle_and_fills_its_pattern(major, mode, bits):
    atom = sm90.gmma_layout_atom(major, mode, bits)
    contiguous, other = (size(atom, 0), size(atom, 1)) if major == "MN" else (size(atom, 1), size(atom, 0))
    assert (contiguous * bits, other) == (8 * span_bytes(mode), 8)
    step = size(atom) // 64 or 1
    if size(atom) <= 1024:
        assert sorted(atom(i) for i in range(size(atom))) == list(range(size(atom)))
    assert size(atom) * bits == 8 * pattern_bytes(mode)
    assert all(0 <= atom(i) < size(atom) for i in range(0, size(atom), step))


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("mode", SWIZZLE_MODES)
@pytest.mark.parametrize("major", MAJORS)
def test_both_forms_of_an_atom_are_one_function_on_bytes(major, mode, bits):
    elements = sm90.gmma_layout_atom(major, mode, bits)
    pointer = sm90.gmma_layout_atom(major, mode, bits, pointer_swizzle=True)
    swizzle = byte_swizzle(mode)
    assert pointer.offset == SmemPtr(bits)
    for i in range(size(elements)):
        assert swizzle(pointer.layoutA(i) * bits // 8) == elements(i) * bits // 8


def test_the_widest_span_comes_with_the_most_bits():
    assert [element_swizzle("SW128", bits).base for bits in (1, 8, 16, 32, 128)] == [7, 4, 3, 2, 0]
    assert [byte_swizzle(mode).bits for mode in SWIZZLE_MODES] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "arguments",
    [
        ("M", "SW128", 16),
        ("K", "SW256", 16),
        ("K", "SW128", 6),
        ("K", "SW128", 0),
        ("K", "SW128", 256),
        ("K", "SW128", True),
    ],
)
def test_what_is_no_atom_is_an_error(arguments):
    with refuses(LayoutError):
        sm90.gmma_layout_atom(*arguments)


TILE = Layout((8, 64), (64, 1))


@pytest.mark.parametrize(
    ("layout", "mode", "offset", "address"),
    [
        (TILE, "INTER", 0, None),
        (ComposedLayout(Swizzle(3, 4, 3), 0, TILE), "SW128", 0, None),
        (ComposedLayout(Swizzle(3, 3, 3), 32, TILE), "SW128", 32, None),
        (ComposedLayout(Swizzle(2, 4, 3), SmemPtr(16, 0x400), TILE), "SW64", 0, 0x400),
        (ComposedLayout(Swizzle(0, 4, 3), SmemPtr(16), TILE), "INTER", 0, None),
    ],
)
def test_a_layout_comes_apart(layout, mode, offset, address):
    assert split_swizzle("test", layout, 16) == (mode, TILE, offset, address)


@pytest.mark.parametrize(
    "layout",
    [
        ComposedLayout(Swizzle(3, 3, 3), SmemPtr(16), TILE),
        ComposedLayout(Swizzle(3, 2, 3), 0, TILE),
        ComposedLayout(Swizzle(3, 4, 4), 0, TILE),
        ComposedLayout(Swizzle(4, 4, 4), 0, TILE),
        ComposedLayout(Swizzle(3, 4, 3), SmemPtr(8), TILE),
        ComposedLayout(Swizzle(3, 4, 3), (0, 0), TILE),
        ComposedLayout(Layout(8), 0, TILE),
        Layout((8, 64), (E(0), E(1))),
        ComposedLayout(Swizzle(3, 4, 3), 0, Layout((8, 64), (1, E(1)))),
        7,
    ],
)
def test_what_the_hardware_does_not_know_is_an_error(layout):
    with refuses(LayoutError):
        split_swizzle("test", layout, 16)
