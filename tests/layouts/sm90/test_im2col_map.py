"""The TMA descriptor of im2col mode: bits that the DSL's compiler wrote, rules, and the order of pixels."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, sm90
from cutepy.layouts.sm90.tensor_map import TensorMap
from tests.messages import refuses

_STRIDES = (256, 2560, 30720, 430080)


def image(**changes):
    """The map of 5 images of 12 x 10 pixels with 128 channels."""
    given = {
        "dims": (128, 10, 12, 5),
        "lower_corner": (0, 0),
        "upper_corner": (0, 0),
        "channels_per_pixel": 64,
        "pixels_per_column": 64,
        "swizzle": "SW128",
        **changes,
    }
    rank = len(given["dims"])
    return sm90.Im2colTensorMap("f16", given.pop("dims"), _STRIDES[: rank - 1], **given)


# Words 1 to 7 as the compiler of nvidia-cutlass-dsl 4.7.0 fills them in for make_im2col_tma_atom.
_WRITTEN = [
    ({}, "1000246333 780000000a0 0 90000007f 40000000b 3f00000000000000 3f00000000"),
    ({"lower_corner": (-1, -2)}, "1000246333 780000000a0 0 90000007f 40000000b 3f00000000000000 3f0000feff"),
    ({"upper_corner": (-3, -5)}, "1000246333 780000000a0 0 90000007f 40000000b 3f00000000000000 3ffbfd0000"),
    ({"element_strides": (1, 2, 3, 1)}, "1000246333 780000000a0 0 90000007f 40000000b 3f00008800000000 3f00000000"),
    (
        {"channels_per_pixel": 32, "pixels_per_column": 256},
        "1000246333 780000000a0 0 90000007f 40000000b 1f00000000000000 ff00000000",
    ),
    (
        {"dims": (128, 10, 5), "lower_corner": (-300,), "upper_corner": (-2,)},
        "1000046323 a0 0 90000007f 4 3f00000000000000 3ffffefed4",
    ),
    (
        {"dims": (128, 10, 12, 14, 5), "lower_corner": (-1, -2, -3), "upper_corner": (-4, -5, -6)},
        "1000246343 780000000a0 6900 90000007f d0000000b 3f00000000000004 3f6b7c77df",
    ),
]


@pytest.mark.parametrize(("changes", "words"), _WRITTEN, ids=lambda x: "-".join(x) if isinstance(x, dict) else "")
def test_bits_are_where_the_compiler_puts_them(changes, words):
    assert [f"{word:x}" for word in image(**changes).encode()[1:]] == words.split()


@st.composite
def maps(draw):
    rank = draw(st.integers(3, 5))
    limit = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}[rank]
    dims = (64, *(draw(st.integers(1, 40)) for _ in range(rank - 1)))
    lower = tuple(draw(st.integers(-limit, limit - 1)) for _ in range(rank - 2))
    upper = tuple(
        draw(st.integers(min(limit - 1, max(-limit, low - d + 1)), limit - 1))
        for low, d in zip(lower, dims[1:-1], strict=True)
    )
    if any(low > d - 1 + high for low, high, d in zip(lower, upper, dims[1:-1], strict=True)):
        lower, upper = (0,) * (rank - 2), (0,) * (rank - 2)
    return sm90.Im2colTensorMap(
        "bf16",
        dims,
        tuple(16 * draw(st.integers(0, 2**36 - 1)) for _ in range(rank - 1)),
        lower,
        upper,
        8 * draw(st.integers(1, 8)),
        draw(st.integers(1, 1024)),
        element_strides=(1, *(draw(st.integers(1, 8)) for _ in range(rank - 1))),
        global_address=16 * draw(st.integers(0, 2**50)),
        oob_fill=draw(st.sampled_from(["zero", "nan"])),
    )


def check_a_map_decodes_to_itself(tensor_map):
    assert sm90.Im2colTensorMap.decode(tensor_map.encode()) == tensor_map
    with pytest.raises(LayoutError):
        TensorMap.decode(tensor_map.encode())


@given(maps(), st.integers(0, 511))
def test_every_bit_means_something_or_is_refused(tensor_map, bit):
    words = list(tensor_map.encode())
    words[bit // 64] ^= 1 << bit % 64
    try:
        decoded = sm90.Im2colTensorMap.decode(words)
    except LayoutError:
        return
    assert decoded != tensor_map or bit in (64 + 1, 64 + 21)


def check_pixels_of_a_column_that_starts_at_the_corner(tensor_map):
    """Loops over N, D, H and W, each from corner to corner."""
    corner = (0, *tensor_map.lower_corner, 0)
    axes = [range(low, high + 1, s) for (low, high), s in zip(tensor_map.bounds, tensor_map.element_strides[1:])]  # noqa: B905
    expected = []
    n = 0
    while len(expected) < tensor_map.pixels_per_column:
        positions = [()]
        for axis in reversed(axes):
            positions = [(w, *rest) for rest in positions for w in axis[:1024]]
        expected += [(*position, n) for position in positions[:1024]]
        n += tensor_map.element_strides[-1]
    assert list(tensor_map.pixels(corner)) == expected[: tensor_map.pixels_per_column]


@given(maps())
def test_any_map(tensor_map):
    check_a_map_decodes_to_itself(tensor_map)
    check_pixels_of_a_column_that_starts_at_the_corner(tensor_map)


@pytest.mark.parametrize(
    "changes",
    [
        {"dims": (128, 10), "lower_corner": (), "upper_corner": ()},
        {"lower_corner": (0,)},
        {"upper_corner": (128, 0)},
        {"lower_corner": (4, 0), "upper_corner": (-6, 0)},
        {"pixels_per_column": 1025},
        {"channels_per_pixel": 12},
        {"channels_per_pixel": 128},
        {"element_strides": (1, 9, 1, 1)},
    ],
)
def test_rules(changes):
    with refuses(LayoutError):
        image(**changes)
