"""Where subnormals begin."""

import numpy as np
import pytest

from cutepy.sim.arithmetic.floats.special_values import flush


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_the_smallest_normal_is_kept_and_what_is_below_is_a_zero_of_its_sign(kind):
    normal = np.finfo(kind).smallest_normal
    below = np.nextafter(normal, kind(0))
    values = np.array([normal, below, np.finfo(kind).smallest_subnormal, 0], kind)
    for sign in (kind(1), kind(-1)):
        expected = np.array([sign * normal, sign * 0.0, sign * 0.0, sign * 0.0], kind)
        assert flush(sign * values).tobytes() == expected.tobytes()
