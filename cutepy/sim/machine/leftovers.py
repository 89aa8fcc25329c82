"""What shared memory holds where a CTA begins: on a GPU, what others have left there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutepy.sim.machine.lanes import Array

_PERIOD = 65521
"""Words after which mixed ones repeat: a prime, so that CTAs, whose memory is a round size, have different ones."""

_FLOATS, _INTEGERS, _HALVES = range(3)
"""What a mixed word is, as two bits; if it is 3, any four bytes."""


@dataclass(frozen=True)
class Words:
    """Words of 32 bits that differ by their address.

    Attributes
    ----------
    seed : int or None
        Of words each of which is a float32, a small integer, two float16 or four bytes, of either sign. None for two
        words only, each the complement of the other: words whose distance is a power of two differ in each bit.
    is_complement : bool
        Whether all bits are others: which of two is the larger, as integers or floats, is the other way round then.
    """

    seed: int | None = None
    is_complement: bool = False

    def fill(self, size: int) -> Array:
        """Return so many bytes."""
        count = -(-size // 4)
        words = _alternating(count) if self.seed is None else np.resize(_mixed(min(count, _PERIOD), self.seed), count)
        found: Array = (~words if self.is_complement else words).view(np.uint8)[:size]
        return found


Held = int | Words | Array
"""One byte throughout, words, or bytes that repeat."""


def leftover(size: int, held: Held) -> Array:
    """Return memory that holds this.

    Examples
    --------
    >>> leftover(4, 90).tolist(), leftover(4, np.uint8([1, 2, 3])).tolist()
    ([90, 90, 90, 90], [1, 2, 3, 1])
    >>> leftover(8, Words()).view("f2").tolist()
    [210.75, 1.9404296875, -0.0211334228515625, -2.1171875]
    """
    if isinstance(held, Words):
        return held.fill(size)
    if isinstance(held, np.ndarray):
        return np.resize(held, size)
    return np.full(size, held, np.uint8) if held else np.zeros(size, np.uint8)


def _alternating(count: int) -> Array:
    """Return words by the parity of the ones in their index (Thue and Morse)."""
    parity = np.arange(count, dtype=np.uint32)
    for shift in (16, 8, 4, 2, 1):
        parity ^= parity >> np.uint32(shift)
    word = np.uint32(0x3FC35A96)
    return np.where(parity & np.uint32(1), ~word, word)


def _mixed(count: int, seed: int) -> Array:
    """Return words of several kinds: floats have exponents from -4 to 3, integers are less than 1024."""
    bits, kinds = _hashed(count, 2 * seed), _hashed(count, 2 * seed + 1) >> 30
    floats = bits & 0x807FFFFF | (123 + (bits >> 23 & 7)) << 23
    integers = (bits & 2047) - 1024
    halves = bits & 0x83FF83FF | (11 + (bits >> 10 & 7)) << 10 | (11 + (bits >> 26 & 7)) << 26
    words = np.select([kinds == _FLOATS, kinds == _INTEGERS, kinds == _HALVES], [floats, integers, halves], bits)
    return words.astype(np.uint32)


def _hashed(count: int, seed: int) -> Array:
    """Return numbers below 2**32 (the last steps of MurmurHash3), as int64."""
    found = (np.arange(count, dtype=np.int64) + seed * _PERIOD) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found ^= found >> shift
        found = found * factor & 0xFFFFFFFF
    return found ^ found >> 16
