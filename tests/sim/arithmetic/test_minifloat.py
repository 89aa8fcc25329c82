"""Conversions of narrow floats, over all patterns."""

import numpy as np
import pytest

from cutepy.sim.arithmetic import minifloat


def test_every_half_is_widened_as_numpy_does():
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(64, -1)[:, ::-1]
    np.testing.assert_array_equal(
        minifloat.f16_to_f32(bits).view(np.uint32), bits.view(np.float16).astype(np.float32).view(np.uint32)
    )


@pytest.mark.parametrize(("name", "largest"), [("e4m3", 0x7E), ("e5m2", 0x7B)])
def test_numbers_are_rounded_to_the_nearest_of_eight_bits(name, largest):
    """Each by itself, between it and the next, and beyond the last; of the patterns after that, which are NaNs."""
    values = minifloat.table(name)[: largest + 1]
    codes = np.arange(largest + 1, dtype=np.uint8)
    assert (np.diff(values) > 0).all()
    np.testing.assert_array_equal(minifloat.from_f32(values, name), codes)
    np.testing.assert_array_equal(minifloat.from_f32(-values, name), codes | 0x80)
    middle = (values[1:] + values[:-1]) / 2
    np.testing.assert_array_equal(minifloat.from_f32(middle, name), codes[:-1] + codes[:-1] % 2)
    np.testing.assert_array_equal(minifloat.from_f32(np.nextafter(middle, np.float32(0)), name), codes[:-1])
    np.testing.assert_array_equal(minifloat.from_f32(np.nextafter(middle, np.float32(np.inf)), name), codes[1:])
    beyond = np.array([values[-1] * 1.01, values[-1] * 2, np.inf, np.nan], np.float32)
    assert minifloat.from_f32(beyond, name).tolist() == [largest, largest, largest, 0x7F]
    special = minifloat.to_f32(np.arange(largest + 1, 0x80, dtype=np.uint8), name)
    assert np.isnan(special[name == "e5m2" :]).all()
    assert name == "e4m3" or np.isinf(special[0])
