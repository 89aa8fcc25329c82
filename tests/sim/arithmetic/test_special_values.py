"""Smallest normal numbers, and NaN results."""

import numpy as np
import pytest

from cutepy.sim.arithmetic.floats import flush, last_nan


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_the_smallest_normal_is_kept_and_what_is_below_is_a_zero_of_its_sign(kind):
    normal = np.finfo(kind).smallest_normal
    below = np.nextafter(normal, kind(0))
    values = np.array([normal, below, np.finfo(kind).smallest_subnormal, 0], kind)
    for sign in (kind(1), kind(-1)):
        expected = np.array([sign * normal, sign * 0.0, sign * 0.0, sign * 0.0], kind)
        assert flush(sign * values).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        ((0x7FF8000000000001, 0x3FF0000000000000), 0x7FF8000000000001),
        ((0x3FF0000000000000, 0xFFF8000000000002), 0xFFF8000000000002),
        ((0x7FF8000000000001, 0xFFF8000000000002), 0xFFF8000000000002),
        ((0x7FF0000000000003, 0x3FF0000000000000), 0x7FF8000000000003),
        ((0x3FF0000000000000, 0x4000000000000000), 0x4008000000000000),
    ],
)
def test_a_float64_result_is_the_last_nan_and_quiet(bits, expected):
    """As an H200 has it; what the host makes of NaNs doesn't matter. Other lanes keep their sums."""
    a, b = (np.array([[n, 0]], np.uint64).view(np.float64) for n in bits)
    with np.errstate(invalid="ignore"):
        host = np.where(np.isnan(a) | np.isnan(b), -np.nan, a + b)
    assert last_nan(host, a, b).view(np.uint64).tolist() == [[expected, 0]]
