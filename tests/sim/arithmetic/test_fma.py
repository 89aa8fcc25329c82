"""fma of float32: one rounding, and rounding to odd only for the lanes that two roundings may spoil."""

import numpy as np
import pytest

from cutepy.sim.arithmetic import floats
from cutepy.sim.arithmetic.floats import fma, fma_odd, wide


def odd(a, b, c):
    """Return fma with all lanes rounded to odd first."""
    return fma_odd(wide(a), wide(b), wide(c)).astype(np.float32)


def operands(name, rng, count=1 << 16):
    """Return three arrays: any bits, short integers of many sizes, values around the subnormal ones, or middles."""
    if name == "bits":
        return [rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32) for _ in range(3)]
    if name == "integers":
        return [
            (rng.integers(-4096, 4096, count) * 2.0 ** rng.integers(-20, 20, count)).astype(np.float32)
            for _ in range(3)
        ]
    if name == "subnormal":  # just beside the middle of two of them
        below, above = (np.float32(2.0**-75 * (1 + sign * 2.0**-23)) for sign in (-1, 1))
        a, c = np.full(count, above), (rng.integers(-(1 << 22), 1 << 22, count) * 2.0**-149).astype(np.float32)
        return [a, np.where(rng.integers(0, 2, count), below, above), c]
    a = (1 + rng.integers(0, 1 << 12, count) * 2.0**-12).astype(np.float32)
    tiny = rng.choice([-1, 0, 1], count) * 2.0 ** rng.integers(-100, -30, count)
    return [a, np.full(count, 1 + 2.0**-12, np.float32), tiny.astype(np.float32)]


@pytest.mark.parametrize("name", ["bits", "integers", "subnormal", "middles"])
def test_fma_rounds_once(name):
    rng = np.random.default_rng(0)
    a, b, c = operands(name, rng)
    with np.errstate(all="ignore"):
        found, right = fma(a, b, c), odd(a, b, c)
        twice = (wide(a) * wide(b) + wide(c)).astype(np.float32)
    same = (found.view(np.uint32) == right.view(np.uint32)) | (np.isnan(found) & np.isnan(right))
    assert same.all()
    assert name in ("bits", "integers") or (twice != right).any()  # the operands are such that two roundings differ


def test_shapes_are_broadcast():
    one, many = np.full((1, 1), 3, np.float32), np.ones((4, 8), np.float32)
    assert (fma(one, one, many) == 10).all()
    assert fma(many, one, one).shape == (4, 8)


def test_few_lanes_are_rounded_to_odd(monkeypatch):
    lanes = []

    def counting(a, b, c):
        lanes.append(a.size)
        return fma_odd(a, b, c)

    monkeypatch.setattr(floats, "fma_odd", counting)
    rng = np.random.default_rng(0)
    for _ in range(16):
        fma(*rng.standard_normal((3, 1 << 16)).astype(np.float32))
    assert sum(lanes) < 64
