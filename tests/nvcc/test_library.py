"""CUB, libcu++ and wmma."""

import numpy as np
import pytest

import cutepy
from tests.nvcc.compiler import module

RNG = np.random.default_rng(0)


def test_cub():
    keys = RNG.integers(-(2**31), 2**31, (2, 512)).astype(np.int32)
    ordered, scanned, sums = np.zeros_like(keys), np.zeros_like(keys), np.zeros(2, np.int32)
    module("library.cu").launch("cub_block", 2, 128, (keys, ordered, scanned, sums))
    expected = np.sort(keys, 1)
    np.testing.assert_array_equal(ordered, expected)
    totals = np.cumsum(expected, 1, dtype=np.int32)
    np.testing.assert_array_equal(scanned[:, 1:], totals[:, :-1])
    np.testing.assert_array_equal(sums, totals[:, -1])


@pytest.mark.parametrize("policy", [None, "late", "random"])
def test_barriers(policy):
    x, y = RNG.random(5 * 256, dtype=np.float32), np.zeros(5 * 256, np.float32)
    with cutepy.simulate(policy=policy):
        module("library.cu").launch("barriers", 1, 128, (x, y, 5))
    np.testing.assert_array_equal(y.reshape(5, 256), x.reshape(5, 256)[:, ::-1])


@pytest.mark.parametrize("policy", [None, "late", "random"])
def test_pipelines(policy):
    x, y = RNG.random(5 * 128, dtype=np.float32), np.zeros(5 * 128, np.float32)
    with cutepy.simulate(policy=policy):
        module("library.cu").launch("pipelined", 1, 128, (x, y, 5))
    np.testing.assert_array_equal(y.reshape(5, 128), 3 * np.roll(x.reshape(5, 128), -1, 1))


def test_atomics():
    count, total = np.zeros(1, np.uint32), np.zeros(1, np.float32)
    most, order = np.zeros(1, np.uint64), np.zeros(256, np.int32)
    module("library.cu").launch("atomics", 4, 64, (count, total, most, order))
    assert (count[0], total[0], most[0], order.sum()) == (256, 128, 63 << 33, 256)


def test_wmma():
    n = 32
    a, b = (RNG.integers(-4, 5, (n, n)).astype(np.float16) for _ in range(2))
    d = np.zeros((n, n), np.float32)
    module("library.cu").launch("wmma_product", (2, 2), 32, (a, b, d, n))
    np.testing.assert_array_equal(d, 2 * a.astype(float) @ b.astype(float).T)
