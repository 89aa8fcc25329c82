"""CUB's and Thrust's algorithms over the whole device."""

import numpy as np
import pytest

from cutepy.frontends.cuda_runtime import load_cuda_library
from tests.nvcc.compiler import compiled


@pytest.fixture(scope="module")
def library():
    return load_cuda_library(compiled("device_wide.cu", "so"), compiled("device_wide.cu").read_text())


def test_pairs_are_sorted_by_radix(library):
    keys = np.random.default_rng(1).normal(size=5000).astype(np.float32)
    to, values, moved = np.zeros_like(keys), np.arange(5000, dtype=np.int32), np.zeros(5000, np.int32)
    assert library.call("sorted", keys, to, values, moved, 5000) == 0
    np.testing.assert_array_equal(moved, np.argsort(-keys, kind="stable"))
    np.testing.assert_array_equal(to, keys[moved])


@pytest.mark.parametrize("n", [1, 100, 20000])
def test_sums_are_scanned(library, n):
    x = np.random.default_rng(2).integers(-9, 9, n).astype(np.int32)
    out = np.zeros_like(x)
    assert library.call("scanned", x, out, n) == 0
    np.testing.assert_array_equal(out, x.cumsum())


def test_thrust_sorts_and_reduces(library):
    x, total = np.random.default_rng(3).integers(-999, 999, 3000).astype(np.int32), np.zeros(1, np.int32)
    expected = np.sort(x)[::-1]
    assert library.call("merged", x, total, 3000) == 0
    np.testing.assert_array_equal(x, expected)
    assert total[0] == expected.sum()
