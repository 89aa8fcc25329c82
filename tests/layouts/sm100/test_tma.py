"""TMA on Blackwell: signals of pairs, four rows, tensor maps of narrow elements."""

import pytest
from hypothesis import given, strategies as st

from cutepy.layouts import LayoutError, sm90, sm100
from cutepy.layouts.sm100.narrow_map import NARROW_TYPES
from tests.messages import refuses

RANKS = st.integers(0, 15)


@given(RANKS, RANKS)
def test_a_pairs_signal_stays_in_the_pair(destination, mbarrier):
    found = sm100.signalled_cta(destination, mbarrier, cta_group=2)
    assert found // 2 == destination // 2
    assert found % 2 == mbarrier % 2
    assert sm100.signalled_cta(destination, mbarrier) == destination


@given(st.integers(1, 2**16 - 1), RANKS, st.sampled_from((1, 2)))
def test_every_destination_is_counted_once(mask, mbarrier, group):
    counts = sm100.signalled_ctas(mask, mbarrier, cta_group=group)
    assert sum(counts.values()) == mask.bit_count()
    assert max(counts.values()) <= group


def test_four_rows_lie_one_behind_the_other():
    table = sm90.TensorMap("f32", (256, 40), (1024,), (32, 1), swizzle="SW128")
    copy = sm100.FourRows(table, 32, (3, 1, 39, 3))
    assert [box.smem_offset_bytes for box in copy.boxes] == [0, 128, 256, 384]
    assert sum(box.tx_bytes for box in copy.boxes) == copy.tx_bytes == 512


@st.composite
def narrow_maps(draw):
    dtype = draw(st.sampled_from(list(NARROW_TYPES)))
    spread = dtype != "b4x16"
    bits = NARROW_TYPES[dtype].bits
    width = 128 * draw(st.integers(1, 64))
    rank = draw(st.integers(1, 5))
    dims = (width, *(draw(st.integers(1, 1 << 20)) for _ in range(rank - 1)))
    stride = 32 * draw(st.integers(width * bits // 256, 1 << 20))
    swizzle = draw(st.sampled_from(("INTER", "SW128") if spread else ("INTER", "SW32", "SW64", "SW128")))
    most = {"INTER": 256, "SW32": 64, "SW64": 128, "SW128": 256}[swizzle]
    inner = 128 if spread else 32 * draw(st.integers(1, most // 32))
    box = (inner, *(draw(st.integers(1, 4)) for _ in range(rank - 1)))
    return sm100.NarrowTensorMap(
        dtype, dims, (stride,) * (rank - 1), box, swizzle=swizzle, global_address=32 * draw(st.integers(0, 1 << 40))
    )


@given(narrow_maps())
def test_narrow_maps_read_back(made):
    assert sm100.NarrowTensorMap.decode(made.encode()) == made
    bits = NARROW_TYPES[made.dtype].bits
    assert made.box_bytes * 8 == bits * made.smem_bytes * 16 // NARROW_TYPES[made.dtype].group_bytes
    with pytest.raises(LayoutError):
        sm90.TensorMap.decode(made.encode())


def test_maps_of_hopper_are_not_narrow():
    for dtype in ("u8", "bf16", "tf32", "tf32.ftz"):
        words = sm90.TensorMap(dtype, (64, 8), (256,), (32, 8)).encode()
        with pytest.raises(LayoutError):
            sm100.NarrowTensorMap.decode(words)


SPREAD = {"dtype": "b4x16_p64", "dims": (256, 8), "strides_bytes": (128,), "box": (128, 8), "swizzle": "SW128"}


def test_spread_elements_may_lie_in_atoms_of_32_bytes():
    narrow = sm100.NarrowTensorMap(**SPREAD | {"swizzle": "SW128_32B"})
    assert sm100.NarrowTensorMap.decode(narrow.encode()) == narrow


@pytest.mark.parametrize(
    "call",
    [
        lambda: sm100.signalled_cta(16, 0),
        lambda: sm100.signalled_cta(0, -1, cta_group=2),
        lambda: sm100.signalled_cta(0, 0, cta_group=4),
        lambda: sm100.signalled_ctas(0, 0),
        lambda: sm100.FourRows(sm90.TensorMap("f32", (256, 40), (1024,), (32, 4)), 0, (0, 1, 2, 3)),
        lambda: sm100.FourRows(sm90.TensorMap("f32", (256, 40), (1024,), (32, 1)), 0, (0, 1, 2)),
        lambda: sm100.FourRows(sm90.TensorMap("f32", (256,), (), (32,)), 0, (0, 1, 2, 3)),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"dtype": "u8"}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"dims": (200, 8)}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"box": (64, 8)}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"swizzle": "SW64"}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"strides_bytes": (144,)}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"global_address": 16}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"oob_fill": "nan"}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"dtype": "b4x16", "dims": (255, 8)}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"dtype": "b4x16", "box": (24, 8)}),
        lambda: sm100.NarrowTensorMap(**SPREAD | {"interleave": "16B"}),
    ],
)
def test_copies_that_do_not_exist_are_refused(call):
    with refuses(LayoutError):
        call()
