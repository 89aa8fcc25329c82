"""Sparse matrices from what they keep and their metadata, against loops over single elements."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from cutepy.sim.arithmetic.sparsity import expanded, meets_only_kept, places


def multiply(a, b):
    return a @ b.swapaxes(-1, -2)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["e4m3", "f16", "s4"]))
def test_what_is_kept_has_its_place(seed, kind):
    """Metadata of any bits: places that are named twice add up."""
    rng = np.random.default_rng(seed)
    k, (chunk, width) = {"e4m3": 64, "f16": 16, "s4": 64}[kind], (8, 2) if kind == "s4" else (4, 1)
    kept = rng.integers(-9, 9, (16, k // 2))
    metadata = rng.integers(0, 2**32, 32, dtype=np.uint32)
    found = expanded(kept, places(metadata, k, kind, 0), k)
    expected = np.zeros((16, k), int)
    for row in range(16):
        for n in range(k // 2):
            number, within = divmod(n, chunk // 2)
            if kind == "f16":
                nibble = metadata[4 * (row % 8) + number // 4] >> 16 * (row // 8) + 4 * (number % 4)
            else:
                nibble = metadata[4 * (row % 8) + row // 8 + 2 * (number // 8)] >> 4 * (number % 8)
            place = int(nibble >> 2 * (within // width)) & 3
            expected[row, number * chunk + place * width + within % width] += kept[row, n]
    np.testing.assert_array_equal(found, expected)


@given(st.integers(0, 2**32 - 1))
def test_zeros_meet_nothing(seed):
    rng = np.random.default_rng(seed)
    kept = rng.integers(-9, 9, (16, 8)).astype(np.float32)
    where = places(rng.choice([0x4444EEEE, 0x9494D8D8], 32).astype(np.uint32), 16, "f16", 0)
    b = rng.integers(-9, 9, (8, 16)).astype(np.float32)
    b[rng.random(b.shape) < 0.1] = np.inf
    pairs = list(zip(kept, where, strict=True))
    with np.errstate(invalid="ignore"):
        found = meets_only_kept(multiply, expanded(kept, where, 16), b, where)
        expected = [[sum(x * b[n, at] for x, at in zip(*row, strict=True)) for n in range(8)] for row in pairs]
    np.testing.assert_array_equal(found, expected)
