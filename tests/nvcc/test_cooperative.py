"""Cooperative groups."""

import numpy as np

from tests.nvcc.compiler import module

RNG = np.random.default_rng(0)


def test_grid_sync():
    x = RNG.integers(0, 50, 5000).astype(np.float32)
    partial, total = np.zeros(8, np.float32), np.zeros(1, np.float32)
    module("cooperative.cu").launch("grid_sum", 8, 128, (x, partial, total, len(x)), cooperative=True)
    assert total[0] == x.sum()
    assert (partial == total[0]).all()


def test_tiles():
    x = RNG.integers(0, 50, 64).astype(np.int32)
    sums, scans, labelled, coalesced = (np.zeros(64, np.int32) for _ in range(4))
    module("cooperative.cu").launch("tiles", 1, 64, (x, sums, scans, labelled, coalesced))
    eights, warps = x.reshape(-1, 8), x.reshape(2, 32)
    np.testing.assert_array_equal(sums.reshape(-1, 8), np.repeat(eights.sum(1, keepdims=True), 8, 1))
    np.testing.assert_array_equal(scans.reshape(-1, 8), np.cumsum(eights, 1) - eights)
    np.testing.assert_array_equal(
        labelled.reshape(2, 32), [[max(v for v in row if v % 3 == u % 3) for u in row] for row in warps]
    )
    odd = warps % 2 == 1
    ranks = (np.cumsum(odd, 1) - 1) * 100 + odd.sum(1, keepdims=True)
    np.testing.assert_array_equal(coalesced.reshape(2, 32), np.where(odd, ranks, -1))


def test_tiles_of_several_warps():
    x, sums = RNG.integers(0, 50, 256).astype(np.int32), np.zeros(256, np.int32)
    module("cooperative.cu").launch("wide_tiles", 1, 256, (x, sums))
    np.testing.assert_array_equal(sums.reshape(4, 64), np.repeat(x.reshape(4, 64).sum(1, keepdims=True), 64, 1))


def test_clusters_share_memory():
    bins = 32
    x, counts = RNG.integers(0, 4 * bins, 4000).astype(np.int32), np.zeros(4 * bins, np.int32)
    module("cooperative.cu").launch("histogram", 8, 64, (x, counts, len(x), bins), smem=4 * bins)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=4 * bins))


def test_copies():
    x, y = RNG.random(512, dtype=np.float32), np.zeros(512, np.float32)
    module("cooperative.cu").launch("copied", 2, 128, (x, y), smem=1024)
    np.testing.assert_array_equal(y.reshape(2, 256), 2 * x.reshape(2, 256)[:, ::-1])
