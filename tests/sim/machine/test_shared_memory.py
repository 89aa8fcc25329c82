"""Contents of shared memory before a kernel: words by a hash of their place."""

import numpy as np
import pytest

from cutepy.sim.machine import shared_memory


def finalised(word):
    """The last steps of MurmurHash3 of 32 bits, by its published definition."""
    word ^= word >> 16
    word = word * 0x85EBCA6B % 2**32
    word ^= word >> 13
    word = word * 0xC2B2AE35 % 2**32
    return word ^ word >> 16


@pytest.mark.parametrize("seed", [0, 1, 7, 100_000])
def test_words_are_hashed_as_by_murmur_hash(seed):
    assert finalised(1) == 0x514E28B7  # a known value
    found = shared_memory._hashed(64, seed)
    assert found.tolist() == [finalised((n + seed * 65521) % 2**32) for n in range(64)]


def test_words_alternate_by_the_ones_in_their_index():
    found = shared_memory._alternating(0x18000)[::37].tolist()
    assert found == [0x3FC35A96 ^ 0xFFFFFFFF * (n.bit_count() % 2) for n in range(0, 0x18000, 37)]


@pytest.mark.parametrize("seed", range(4))
def test_words_of_several_kinds_are_small_numbers(seed):
    """By the two highest bits of another hash: floats, integers, pairs of halves, and any bits."""
    words = shared_memory._mixed(4096, seed)
    kinds = shared_memory._hashed(4096, 2 * seed + 1) >> 30
    bits = shared_memory._hashed(4096, 2 * seed)
    of = {name: words[kinds == getattr(shared_memory, f"_{name}")] for name in ("FLOATS", "INTEGERS", "HALVES")}
    assert all(len(some) > 900 for some in of.values())
    floats, halves = np.abs(of["FLOATS"].view(np.float32)), np.abs(of["HALVES"].view(np.float16)).astype(float)
    assert floats.min() >= 2.0**-4
    assert floats.max() < 2.0**4
    assert (len(np.unique(np.floor(np.log2(floats)))), len(np.unique(np.sign(of["FLOATS"].view(np.float32))))) == (8, 2)
    integers = of["INTEGERS"].view(np.int32)
    assert -1024 <= integers.min() < -1000
    assert 1000 < integers.max() < 1024
    assert halves.min() >= 2.0**-4
    assert halves.max() < 2.0**4
    rest = ~np.isin(kinds, [shared_memory._FLOATS, shared_memory._INTEGERS, shared_memory._HALVES])
    assert words[rest].tolist() == bits[rest].tolist()
