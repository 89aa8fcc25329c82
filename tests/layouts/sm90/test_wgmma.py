"""Traits of the wgmma atoms."""

import pytest

from cutepy.layouts import LayoutError, cosize, size, sm90
from tests.messages import refuses

NAMES = sm90.wgmma_names()


def test_every_name_parses_to_an_instruction_of_its_own():
    traits = [sm90.wgmma_traits(name) for name in NAMES]
    assert len(set(NAMES)) == len(NAMES)
    assert len({(t.ptx, t.a_source) for t in traits}) == len(NAMES)
    for t in traits:
        m, n, k = t.shape_mnk
        assert (m, k * t.a_bits, t.a_bits) == (64, 256, t.b_bits)
        assert size(t.thr_id) == 128
        assert (cosize(t.a_layout), cosize(t.b_layout), cosize(t.c_layout)) == (m * k, n * k, m * n)


def test_the_lengths_of_n():
    by_dtypes = {}
    for name in NAMES:
        t = sm90.wgmma_traits(name)
        by_dtypes.setdefault(t.c_dtype == "s32", set()).add(t.shape_mnk[1])
    assert by_dtypes[False] == set(range(8, 257, 8))
    assert by_dtypes[True] == {8, 16, 24, 32, *range(48, 257, 16)}


@pytest.mark.parametrize("n", [8, 24, 64, 136, 256])
def test_each_element_of_the_accumulator_is_held_once(n):
    layout = sm90.accumulator_layout(n)
    assert sorted(layout(t, v) for t in range(128) for v in range(n // 2)) == list(range(64 * n))


def test_the_accumulator_is_the_pair_of_columns_that_ptx_draws():
    """PTX ISA, wgmma accumulator fragment: row = lane / 4 + 8 i + 16 warp, column = 2 (lane % 4) + j + 8 block."""
    layout = sm90.accumulator_layout(32)
    for t in range(128):
        warp, lane = divmod(t, 32)
        for v in range(16):
            j, i, block = v % 2, v // 2 % 2, v // 4
            assert layout(t, v) == 16 * warp + lane // 4 + 8 * i + 64 * (2 * (lane % 4) + j + 8 * block)


@pytest.mark.parametrize("name", [n for n in NAMES if "x8x" in n and "_RS" in n])
def test_each_element_of_a_in_registers_is_held_once(name):
    t = sm90.wgmma_traits(name)
    count = size(t.a_layout, 1)
    assert count * t.a_bits == 4 * 32
    indices = [t.a_layout(thread, value) for thread in range(128) for value in range(count)]
    assert sorted(indices) == list(range(64 * t.shape_mnk[2]))
    # A register holds neighbours along K.
    pack = 32 // t.a_bits
    for thread in (0, 1, 5, 127):
        for value in range(0, count, pack):
            first = t.a_layout(thread, value)
            assert [t.a_layout(thread, value + i) for i in range(pack)] == [first + 64 * i for i in range(pack)]


@pytest.mark.parametrize("name", NAMES[::37])
def test_an_operand_in_shared_memory_is_seen_whole_by_all(name):
    t = sm90.wgmma_traits(name)
    _, n, k = t.shape_mnk
    assert [t.b_layout(127, i) for i in range(n * k)] == list(range(n * k))


@pytest.mark.parametrize(
    ("name", "a_majors", "b_majors"),
    [
        ("SM90_64x64x16_F32BF16BF16_SS", ("MN", "K"), ("MN", "K")),
        ("SM90_64x64x16_F32BF16BF16_RS", ("K",), ("MN", "K")),
        ("SM90_64x64x8_F32TF32TF32_SS_TN", ("K",), ("K",)),
        ("SM90_64x64x32_F16E4M3E5M2_SS_TN", ("K",), ("K",)),
        ("SM90_64x64x32_S32U8S8_RS_TN_SATURATE", ("K",), ("K",)),
    ],
)
def test_the_hardwares_majors(name, a_majors, b_majors):
    t = sm90.wgmma_traits(name)
    assert (t.a_majors, t.b_majors) == (a_majors, b_majors)


def test_types_are_named_as_in_ptx():
    t = sm90.wgmma_traits("SM90_64x48x32_S32U8S8_RS_TN_SATURATE")
    assert t.ptx == "wgmma.mma_async.sync.aligned.m64n48k32.satfinite.s32.u8.s8"
    assert (t.a_dtype, t.b_dtype, t.c_dtype, t.c_bits, t.saturate) == ("u8", "s8", "s32", 32, True)
    assert sm90.wgmma_traits("SM90_64x8x32_F16E4M3E5M2_SS_TN").ptx.endswith(".m64n8k32.f16.e4m3.e5m2")


@pytest.mark.parametrize(
    "name",
    [
        "SM90_64x20x16_F32F16F16_SS",
        "SM90_64x264x16_F32F16F16_SS",
        "SM90_64x0x16_F32F16F16_SS",
        "SM90_64x40x32_S32S8S8_SS_TN",
        "SM90_128x64x16_F32F16F16_SS",
        "SM90_64x64x32_F32F16F16_SS",
        "SM90_64x64x16_F32F16BF16_SS",
        "SM90_64x64x16_BF16BF16BF16_SS",
        "SM90_64x64x32_F32F8F8_SS",
        "SM90_64x64x16_F32F16F16_SR",
        "SM90_64x64x16_F32F16F16_SS_TN",
        "SM90_64x64x32_F32E4M3E4M3_SS",
        "SM90_64x64x32_F32E4M3E4M3_SS_TN_SATURATE",
        "SM80_16x8x16_F32F16F16F32_TN",
        "SM90_64x064x16_F32F16F16_SS",
        "SM90_064x64x16_F32F16F16_SS",
        "SM90_64x64x016_F32F16F16_SS",
        "SM90_64x\u0666\u0664x16_F32F16F16_SS",
        "SM90_64x64x16_F32F16F16_SS\n",
        "SM90_64x64x16_F32F16F16",
    ],
)
def test_a_wrong_name_is_an_error_that_says_which_part(name):
    with refuses(LayoutError):
        sm90.wgmma_traits(name)
