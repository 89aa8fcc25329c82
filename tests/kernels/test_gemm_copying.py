"""Operands that TMA can't reach, loaded by threads or copied: a rule, and the times behind it."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st

from cutepy.kernels.gemm import GemmSignature, select_config
from cutepy.kernels.gemm.copies import _widened, copy_us, loads_pay
from cutepy.kernels.gemm.gpu import H200
from cutepy.kernels.gemm.heuristic import choice
from cutepy.kernels.gemm.heuristic.choice import choose, chosen_us, extents_of
from cutepy.kernels.gemm.operands import Description

HALF = GemmSignature(a_dtype="float16", b_dtype="float16", out_dtype="float16")


def pays(m, n, k, **aligned):
    """Apply the rule to a product whose operands are so aligned, or else TMA reaches them."""
    signature = replace(HALF, **aligned)
    copied = [2 * rows * k for rows, by_threads in zip((m, n), signature.by_threads, strict=True) if by_threads]
    return loads_pay(chosen_us(signature, m, n, k), chosen_us(HALF, m, n, k), copied)


@pytest.mark.parametrize(
    ("extents", "aligned"),
    [
        ((1, 4097, 4098), {"a_align": 4, "b_align": 4}),
        ((16, 4097, 4098), {"a_align": 4, "b_align": 4}),
        ((64, 4096, 4100), {"a_align": 8, "b_align": 8}),
        ((1, 32000, 4098), {"a_align": 4, "b_align": 4}),
        ((8, 8192, 8192), {"b_align": 8}),
        ((1, 258, 258), {"a_align": 4, "b_align": 4}),
        ((4096, 4096, 4100), {"a_align": 8, "b_align": 8}),
        ((1026, 1026, 1026), {"a_align": 4, "b_align": 4}),
    ],
)
def test_threads_load_where_copies_are_most_of_the_work(extents, aligned):
    assert pays(*extents, **aligned)


@pytest.mark.parametrize(
    ("extents", "aligned"),
    [
        ((4096, 4096, 4098), {"a_align": 4, "b_align": 4}),
        ((64, 64, 65538), {"a_align": 4, "b_align": 4}),
    ],
)
def test_copies_are_made_where_the_kernel_is_most_of_the_work(extents, aligned):
    assert not pays(*extents, **aligned)


def test_copies_of_more_bytes_cost_more():
    assert copy_us(0) > 0
    assert copy_us(2**25) - copy_us(2**24) == pytest.approx(2**24 / 0.85e6, rel=1e-3)
    assert loads_pay(30, 10, [2**26])
    assert not loads_pay(30, 10, [2**23])
    assert not loads_pay(30, 10, [])


ALIGNED = st.sampled_from((16, 8, 4))
EXTENT = st.integers(1, 20_000)


@given(m=EXTENT, n=EXTENT, k=EXTENT, a_align=ALIGNED, b_align=ALIGNED, majors=st.tuples(*[st.sampled_from("km")] * 2))
def test_what_is_chosen_is_what_threads_can_load(m, n, k, a_align, b_align, majors):
    a_major, b_major = ("k" if major == "k" else "mn" for major in majors)
    signature = replace(HALF, a_align=a_align, b_align=b_align, a_major=a_major, b_major=b_major)
    config = choose(signature, m, n, k).config
    assert sorted(config.signature.by_threads) == sorted(signature.by_threads)
    extents = extents_of(signature, m, n, k, 1, False)
    expected = list(choice.candidates(extents.table).ranked([extents], H200).each())
    first = expected[0].choice
    assert select_config(signature, m, n, k) == first.config(signature, k), "so that its time is what is expected"
    for _, _, (_, cluster_m, cluster_n) in expected:
        assert not (a_align < 16 and cluster_n > 1)
        assert not (b_align < 16 and cluster_m > 1)


def test_smaller_pieces_and_fewer_threads_take_longer():
    for m, n, k in ((1, 4096, 4096), (512, 512, 512), (4096, 4096, 4096)):
        times = [chosen_us(replace(HALF, b_align=align), m, n, k) for align in (8, 4)]
        assert times == sorted(times)
    beside = GemmSignature.standard(
        a_dtype="float16", b_dtype="float16", out_dtype="float16", c_dtype="float16", c_major="row", b_align=8
    )
    alone = replace(HALF, b_align=8)
    assert extents_of(beside, 8, 8, 8, 1, False).b_copies == 2 * extents_of(alone, 8, 8, 8, 1, False).b_copies
    assert not extents_of(HALF, 8, 8, 8, 1, False).by_threads


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (4, 2, 3, 16), (3, 0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float8_e4m3fn])
def test_results_are_widened_to_whole_units_of_a_row(shape, dtype):
    widened = _widened(Description(shape, (7,) * len(shape), dtype, torch.device("cpu")))
    rows, unit = shape[:-1], 16 // dtype.itemsize
    assert widened.shape[:-1] == rows
    assert 0 <= widened.shape[-1] - shape[-1] < unit
    assert widened.shape[-1] % unit == 0
    assert widened.stride == torch.empty(widened.shape, dtype=dtype).stride()
