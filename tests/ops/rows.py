"""Rows of any width, stride and dtype for tests of operations on them, and the comparison with float64."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from hypothesis import strategies as st  # noqa: E402

BOUND = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6, torch.float32: 2.0**-18}
"""Of errors, relative to the largest value: four roundings, and in float32 of powers of 2 and sums of rows."""
DTYPES = sorted(BOUND, key=str)
WIDTHS = st.one_of(st.integers(1, 80), st.sampled_from([96, 128, 257, 1000, 1024, 4104, 9000]))


def rows(count, columns, dtype, seed=0, *, apart=0, shift=0):
    """Draw rows that are so many elements further apart than they are long, the first behind others."""
    chance = torch.Generator().manual_seed(seed + 7 * count + columns)
    whole = torch.randn(count, shift + columns + apart, generator=chance, dtype=torch.float64)
    return whole.to(dtype)[:, shift : shift + columns]


def check_close(got, want, dtype=None, roundings=1):
    """Compare with float64, element by element; sums that are rounded so many times differ by its root more."""
    assert got.shape == want.shape
    if got.numel():
        largest = want.detach().abs().max().clamp(min=2.0**-10)
        assert (got.detach().double() - want.detach()).abs().max() <= BOUND[
            dtype or got.dtype
        ] * roundings**0.5 * largest


@contextlib.contextmanager
def cuda_autocast():
    """Have autocast on for fake tensors of a GPU, which `torch.autocast` refuses where there is none."""
    from torch._subclasses import FakeTensorMode

    was = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        with FakeTensorMode():
            yield
    finally:
        torch.set_autocast_enabled("cuda", was)
