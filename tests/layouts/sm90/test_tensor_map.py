"""The TMA descriptor: bits, and every rule of cuTensorMapEncodeTiled."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, sm90
from cutepy.layouts.render import picture_of
from cutepy.layouts.sm90.arch import DTYPE_BITS, TMA_CODES, TMA_SWIZZLE, span_bytes
from tests.messages import refuses


@st.composite
def tensor_maps(draw):
    """Draw any valid descriptor."""
    dtype = draw(st.sampled_from(sorted(TMA_CODES)))
    width = DTYPE_BITS[dtype] // 8
    interleave = draw(st.sampled_from(("none", "16B", "32B")))
    rank = draw(st.integers(1 if interleave == "none" else 3, 5))
    unit = 32 if interleave == "32B" else 16
    swizzle = "SW32" if interleave == "32B" else draw(st.sampled_from(sorted(TMA_SWIZZLE)))
    inner_limit = min(256 * width, 256 if swizzle == "INTER" else span_bytes(swizzle))
    inner = draw(st.integers(1, inner_limit // 16)) * 16 // width
    box = [inner, *(draw(st.integers(1, 8)) for _ in range(rank - 1))]
    fills = ("zero", "nan") if dtype[0] in "fbt" else ("zero",)
    return sm90.TensorMap(
        dtype,
        tuple(draw(st.integers(1, 2**32)) for _ in range(rank)),
        tuple(unit * draw(st.integers(0, (2**40 - 1) // unit)) for _ in range(rank - 1)),
        tuple(box),
        global_address=unit * draw(st.integers(0, 2**57 - 1)),
        element_strides=tuple(draw(st.integers(1, 8 if i or interleave != "none" else 1)) for i in range(rank)),
        swizzle=swizzle,
        interleave=interleave,
        l2_promotion=draw(st.sampled_from(("none", "64B", "128B", "256B"))),
        oob_fill=draw(st.sampled_from(fills)),
    )


@given(tensor_maps())
def test_a_tensor_map_decodes_to_itself(tensor_map):
    words = tensor_map.encode()
    assert len(words) == 8
    assert all(0 <= word < 2**64 for word in words)
    assert sm90.TensorMap.decode(words) == tensor_map
    assert sm90.TensorMap.decode([*words, *range(8)]) == tensor_map


@given(tensor_maps(), st.integers(0, 511))
def test_every_bit_means_something_or_is_refused(tensor_map, bit):
    """Flip one bit: the words decode to another descriptor, or not at all, but never to the same."""
    words = list(tensor_map.encode())
    words[bit // 64] ^= 1 << bit % 64
    try:
        decoded = sm90.TensorMap.decode(words)
    except LayoutError:
        return
    assert decoded != tensor_map or bit in (64 + 1, 64 + 21)


def test_each_field_has_its_place():
    tensor_map = sm90.TensorMap(
        "bf16",
        (1 << 32, 3, 5, 7, 9),
        (16, (1 << 40) - 16, 48, 64),
        (64, 256, 2, 1, 1),
        global_address=0x7F0000000010,
        element_strides=(1, 8, 2, 1, 3),
        swizzle="SW128",
        l2_promotion="256B",
        oob_fill="nan",
    )
    assert tensor_map.encode() == (
        0x7F0000000010,
        0x1 << 32 | 0b100 << 4 | 10 << 7 | 0 << 11 | 3 << 13 | 1 << 15 | 3 << 17 | 1 << 21 | 1 << 1,
        0xFFFFFFFF | 3 << 32,
        4 | 0xF << 36,
        0xFFFFFFFF | 2 << 32,
        4 | 6 << 32,
        8 | (7 << 3 | 1 << 6 | 2 << 12) << 32 | 63 << 56,
        255 | 1 << 8,
    )
    assert tensor_map.box_elems == (64, 32, 1, 1, 1)
    assert tensor_map.box_bytes == 64 * 32 * 2


def test_an_atom_of_32_bytes_is_a_bit_beside_the_swizzle():
    """As in the maps that the DSL makes of such layouts."""
    words = make(swizzle="SW128").encode(), make(swizzle="SW128_32B").encode()
    assert words[0][1] ^ words[1][1] == 1 << 83 - 64
    assert words[0][:1] + words[0][2:] == words[1][:1] + words[1][2:]


CODES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
"""PTX ISA, tensormap.replace: the values of .elemtype."""


@pytest.mark.parametrize(("code", "dtype"), list(enumerate(CODES)))
def test_element_types_have_ptxs_codes_and_widths(code, dtype):
    bits = int("".join(c for c in dtype.removeprefix("tf").removeprefix("bf") if c.isdigit()))
    tensor_map = make(dtype=dtype, box=(128 // bits, 1, 1))
    assert tensor_map.bits == bits
    kind = tensor_map.encode()[1]
    # ptxas writes tf32 as f32, and a bit that says so.
    assert (kind >> 7 & 15, kind >> 16 & 1) == ((code - 4, 1) if dtype.startswith("tf32") else (code, 0))
    assert sm90.TensorMap.decode(tensor_map.encode()) == tensor_map
    assert tuple(TMA_CODES) == CODES


@pytest.mark.parametrize(
    ("dims", "strides_bytes", "global_bytes"),
    [
        ((1024, 64), (2048,), 131072),
        ((1016, 64), (2032,), 130048),
        ((64, 64), (2048,), 129152),
        ((64, 65), (2048,), 131200),
        ((1024, 32, 2), (2048, 65536), 131072),
        ((65535,), (), 131070),
        ((65536,), (), 131072),
    ],
)
def test_a_bit_says_whether_the_tensor_reaches_128_kb(dims, strides_bytes, global_bytes):
    tensor_map = sm90.TensorMap("f16", dims, strides_bytes, (8,) * len(dims))
    assert tensor_map.global_bytes == global_bytes
    assert tensor_map.encode()[1] >> 21 & 1 == (global_bytes >= 128 * 1024)


def test_the_compilers_extra_bits_are_not_needed_to_decode():
    words = list(make().encode())
    for bits in (1 << 1, 1 << 21, 1 << 1 | 1 << 21):
        assert sm90.TensorMap.decode([words[0], words[1] & ~bits, *words[2:]]) == make()


def test_what_has_a_default_is_named():
    with pytest.raises(TypeError):
        sm90.TensorMap("f16", (64,), (), (64,), 0)


def make(**changes):
    arguments = {"dtype": "f16", "dims": (512, 4096, 4), "strides_bytes": (1024, 4096 * 1024), "box": (64, 128, 1)}
    return sm90.TensorMap(**{**arguments, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "f8"},
        {"swizzle": "SW16"},
        {"interleave": "64B"},
        {"l2_promotion": "512B"},
        {"oob_fill": "one"},
        {"dtype": "u16", "oob_fill": "nan"},
        {"interleave": "32B"},
        {"dims": (), "strides_bytes": (), "box": ()},
        {"dims": (8,) * 6, "strides_bytes": (16,) * 5, "box": (8,) * 6},
        {"dims": (512, 4), "strides_bytes": (1024,), "box": (8, 1), "interleave": "16B"},
        {"strides_bytes": (1024,)},
        {"box": (64, 128)},
        {"element_strides": (1,)},
        {"global_address": 8},
        {"global_address": 16, "interleave": "32B", "swizzle": "SW32"},
        {"global_address": -16},
        {"global_address": 2**64},
        {"dims": (0, 4096, 4)},
        {"dims": (512, 2**32 + 1, 4)},
        {"strides_bytes": (1000, 4096)},
        {"strides_bytes": (1024, 2**40)},
        {"strides_bytes": (-1024, 4096)},
        {"strides_bytes": (1040, 4096), "interleave": "32B", "swizzle": "SW32"},
        {"box": (64, 257, 1)},
        {"box": (0, 1, 1)},
        {"element_strides": (1, 9, 1)},
        {"element_strides": (1, 0, 1)},
        {"element_strides": (2, 1, 1)},
        {"box": (12, 128, 1)},
        {"box": (128, 16, 1), "swizzle": "SW128"},
        {"box": (32, 16, 1), "swizzle": "SW32"},
        {"box": (256, 256, 2)},
    ],
)
def test_each_rule_of_the_hardware_is_checked(changes):
    with refuses(LayoutError):
        make(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"dims": (2**32, 1, 1)},
        {"strides_bytes": (16, 2**40 - 16)},
        {"box": (256, 256, 1)},
        {"box": (64, 256, 1), "swizzle": "SW128"},
        {"box": (16, 1, 1), "swizzle": "SW32"},
        {"element_strides": (1, 8, 8)},
        {"element_strides": (8, 8, 8), "interleave": "16B"},
        {"global_address": 2**64 - 16},
        {"box": (4, 8, 1), "interleave": "16B"},
    ],
)
def test_the_edges_of_the_rules_are_inside(changes):
    tensor_map = make(**changes)
    assert sm90.TensorMap.decode(tensor_map.encode()) == tensor_map


@pytest.mark.parametrize(
    "words",
    [
        [0] * 7,
        [0] * 7 + [2**64],
        [-1] + [0] * 7,
        [0, 5 << 4, *[0] * 6],
        [0, 15 << 7, *[0] * 6],
        [0, 3 << 11, *[0] * 6],
        [0, 3 << 13 | 2 << 19, *[0] * 6],
        [0, 3 << 13 | 3 << 19, *[0] * 6],
        [0, 2 << 13 | 1 << 19, *[0] * 6],
        [0, 1, 0, 0, 0, 0, 15 << 56, 0],
    ],
)
def test_words_of_no_tensor_map_are_errors(words):
    with refuses(LayoutError):
        sm90.TensorMap.decode(words)


def test_eight_bit_floats_are_bytes():
    assert make(dtype="e4m3").dtype == "u8"
    assert make(dtype="e5m2") == make(dtype="u8")


def test_words_after_the_eighth_are_not_looked_at():
    tensor_map = sm90.TensorMap("bf16", (64, 32), (128,), (64, 32))
    assert sm90.TensorMap.decode((*tensor_map.encode(), -1)) == tensor_map
    with refuses(LayoutError):
        sm90.TensorMap.decode(tensor_map.encode()[:7])


def test_options_are_given_by_keyword():
    for option in (0, (1, 1), "INTER", "none", "128B", "zero"):
        with refuses(TypeError):
            sm90.TensorMap("bf16", (64, 32), (128,), (64, 32), option)


def test_what_is_given_as_lists_is_kept_as_tuples():
    listed = make(dims=[512, 4096, 4], strides_bytes=[1024, 4096 * 1024], box=[64, 128, 1], element_strides=[1, 1, 1])
    assert listed == make()
    assert hash(listed) == hash(make())


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": ["f16"]},
        {"dtype": None},
        {"dims": (512.0, 4096, 4)},
        {"dims": 512},
        {"strides_bytes": ("1024", 4096)},
        {"box": (64, 128, True)},
        {"box": "abc"},
        {"element_strides": (1, 1, 1.0)},
        {"element_strides": None},
        {"global_address": 16.0},
    ],
)
def test_other_types_are_errors_that_name_the_parameter(changes):
    with refuses(TypeError):
        make(**changes)


@pytest.mark.parametrize("words", [5, None, "01234567", [0.0] * 8, [None] * 8])
def test_words_are_ints(words):
    with refuses(TypeError):
        sm90.TensorMap.decode(words)


def test_a_descriptor_is_drawn_as_a_table_of_its_dimensions():
    tensor_map = sm90.TensorMap("f16", (512, 4096), (1024,), (64, 128), swizzle="SW128")
    texts = [[cell.text for cell in row] for row in picture_of(tensor_map).cells]
    assert texts == [
        ["512", "2", "64", "1"],
        ["4096", "1024", "128", "1"],
    ]
    assert "a box is 16384 bytes" in tensor_map._repr_html_()
