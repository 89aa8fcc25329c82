"""Conversions of narrow floats, over all patterns."""

import numpy as np

from cutepy.sim.arithmetic import minifloat


def test_every_half_is_widened_as_numpy_does():
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(64, -1)[:, ::-1]
    np.testing.assert_array_equal(
        minifloat.f16_to_f32(bits).view(np.uint32), bits.view(np.float16).astype(np.float32).view(np.uint32)
    )
