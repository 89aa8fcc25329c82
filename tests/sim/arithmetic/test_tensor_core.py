"""The tensor core's sums against exact fractions, aligned and cut off term by term."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cutepy.sim.arithmetic.tensor_core import multiply_accumulate
from cutepy.sim.run import Run
from tests.sim.test_opcodes_wgmma import multiply

MANTISSAS = {"f16": 10, "bf16": 7, "tf32": 10, "e4m3": 3, "e5m2": 2}
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
HALVES = ("f16", "f16")


def draw(rng, shape, kind):
    """Draw numbers of a type, of several magnitudes, subnormal ones among them; some zeros."""
    steps = 1 << MANTISSAS[kind]
    exponents = LEAST[kind] + rng.integers(0, 12, shape)
    low = np.where(exponents == LEAST[kind], 1, steps)
    values = np.ldexp(rng.integers(low, 2 * steps, shape) / steps, exponents)
    return (values * rng.choice([-1, 0, 1, 1], shape)).astype(np.float32)


def exponent(x, kind="f32"):
    """Return the exponent of a number: 0 of 1 to 2; of a subnormal one, that of the least normal one."""
    return max(int(np.frexp(float(x))[1]) - 1, LEAST[kind])


def cut(x, unit):
    return int(x / unit) * unit


def expected(a, b, c, kind):
    fraction, kept = (13, 14) if kind in ("e4m3", "e5m2") else (25, 24)
    pairs = [(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x and y]
    exponents = [exponent(x, kind) + exponent(y, kind) for x, y in pairs] + ([exponent(c)] if c else [])
    unit = Fraction(2) ** (max([-133, *exponents]) - fraction)
    total = sum((cut(Fraction(x) * Fraction(y), unit) for x, y in pairs), cut(Fraction(float(c)), unit))
    return float(cut(total, max(Fraction(2) ** (floor_log2(total) + 1 - kept), Fraction(2) ** -149))) if total else 0.0


def floor_log2(x):
    return int(np.frexp(float(x))[1]) - 1


@pytest.mark.parametrize("kind", MANTISSAS)
def test_sums(kind):
    rng = np.random.default_rng(list(kind.encode()))
    k = 32 // (MANTISSAS[kind] // 4 + 1)
    a, b = draw(rng, (8, k), kind), draw(rng, (4, k), kind)
    b = b if LEAST[kind] > -126 else np.ldexp(b, rng.integers(90, 140))  # products that float32 can hold, if barely
    c = (rng.normal(size=(8, 4)) * 2.0 ** (max(LEAST[kind], -20) + 2)).astype(np.float32)
    c = c if LEAST[kind] > -126 else np.ldexp(c, -110)
    found = multiply_accumulate(a, b, c, (kind, kind), "f32")
    assert found.tolist() == [[expected(a[m], b[n], c[m, n], kind) for n in range(4)] for m in range(8)]


def test_batches_are_broadcast():
    rng = np.random.default_rng(1)
    a, b = draw(rng, (3, 1, 8, 16), "f16"), draw(rng, (1, 2, 4, 16), "f16")
    found = multiply_accumulate(a, b, np.zeros((3, 2, 8, 4), np.float32), HALVES, "f32")
    one = multiply_accumulate(a[2, 0], b[0, 1], np.zeros((8, 4), np.float32), HALVES, "f32")
    np.testing.assert_array_equal(found[2, 1], one)


def test_a_sum_that_is_cut_off_to_nothing_is_positive():
    a, b = np.array([[-(2.0**-80)]], np.float32), np.array([[2.0**-72]], np.float32)
    found = multiply_accumulate(a, b, np.zeros((1, 1), np.float32), ("bf16", "bf16"), "f32")
    assert found.view(np.uint32) == 0


def test_f16_sums_are_rounded_to_nearest_once():
    a, b = np.array([[1, 2.0**-12]], np.float32), np.array([[1, 1.0]], np.float32)
    for start, wanted in ((2.0**-11, 1 + 2.0**-10), (0.0, 1.0)):
        assert multiply_accumulate(a, b, np.array([[start]], np.float32), HALVES, "f16") == wanted


def test_infinities_and_nans():
    a, b = np.array([[np.inf, 1], [np.nan, 1], [2, 1]], np.float32), np.array([[1, 1], [0, 1]], np.float32)
    with np.errstate(invalid="ignore"):
        found = multiply_accumulate(a, b, np.zeros((3, 2), np.float32), HALVES, "f32")
    np.testing.assert_array_equal(found, [[np.inf, np.nan], [np.nan, np.nan], [3, 1]])


def test_wgmma_of_8_bit_floats_keeps_14_bits():
    a, b = np.zeros((64, 128), np.float32), np.zeros((8, 128), np.float32)
    a[:, 0], a[:, 1], b[:, :2] = 16, 2.0**-6, 16
    exact = multiply("f32", "e4m3", "e4m3", 8, matrices=(a, b))
    assert (exact == 256.25).all()
    a[:, 1] = 2.0**-9 * 1.0
    b[:, 1] = 8
    assert (multiply("f32", "e4m3", "e4m3", 8, matrices=(a, b)) == 256 + 2.0**-6).all()
    kept = multiply("f32", "e4m3", "e4m3", 8, matrices=(a, b), run=Run((), None, exact_mma=True))
    assert (kept == 256).all()


@pytest.mark.parametrize("kind", MANTISSAS)
def test_a_subnormal_number_is_aligned_as_the_least_normal_one(kind):
    """Two products of one cancel each other, and cut off what is added to them below their last bit."""
    step = 40 if LEAST[kind] == -126 else 4
    last = LEAST[kind] + step - (13 if kind in ("e4m3", "e5m2") else 25)
    a, b = np.full((1, 2), 2.0 ** (LEAST[kind] - 1), np.float32), np.array([[2.0**step, -(2.0**step)]], np.float32)
    for exponent_of_c, kept in ((last + 1, True), (last, True), (last - 1, False)):
        c = np.array([[2.0**exponent_of_c]], np.float32)
        assert multiply_accumulate(a, b, c, (kind, kind), "f32") == (c if kept else 0)
