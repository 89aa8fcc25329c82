"""Conversions of narrow floats, over all patterns."""

import numpy as np
import pytest

from cutepy.sim.arithmetic import minifloat


def test_every_half_is_widened_as_numpy_does():
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(64, -1)[:, ::-1]
    np.testing.assert_array_equal(
        minifloat.f16_to_f32(bits).view(np.uint32), bits.view(np.float16).astype(np.float32).view(np.uint32)
    )


def test_tables_are_those_of_torch_and_of_the_isa():
    """Of 4 bits torch has the numbers; of the others its formats of 8 bits, and the powers of two that scales are."""
    torch = pytest.importorskip("torch")
    every = torch.arange(256, dtype=torch.uint8)
    for name, kind in (("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2"), ("ue8m0", "float8_e8m0fnu")):
        expected = every.view(getattr(torch, kind)).to(torch.float32).numpy()
        np.testing.assert_array_equal(minifloat.table(name), expected)
    assert minifloat.table("e2m1").tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    # The largest and the smallest numbers, as the ISA and the MX specification give them.
    for name, largest, least, count in (("e2m3", 7.5, 0.125, 64), ("e3m2", 28.0, 0.0625, 64)):
        values = minifloat.table(name)
        assert (values.max(), values[1], len(values)) == (largest, least, count)
        assert (values[: count // 2] == -values[count // 2 :]).all()


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
