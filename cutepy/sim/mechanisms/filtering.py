"""Linear filtering as an H200 does it: which elements a coordinate is between, their weights, and the sum.

Coordinates are rounded to 1/256 of an element, halves up. A weight is the product of the coordinates' fractions, again
in 256ths, rounded so that those of a fraction's two sides sum to what there was to share, and all of them to 1; of
three coordinates z shares first. Elements of one z that have a weight are cut off, towards zero, 4 bits below the last
bit of the largest of them; the sum of all is exact, and is rounded to float32 once, halves away from zero.

The documents leave all of this open but the 8 bits of the fractions. It gives each of 409,600 recorded samples in two
dimensions, 204,800 in three and 20,480 in one, of float32 in all address modes, bit for bit. Means of bytes that are
read as floats differ from the recorded ones by 2**-17 at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from cutepy.sim.machine.lanes import Array

_FRACTION_BITS = 8
_ONE = 1 << _FRACTION_BITS
_HALF = _ONE // 2
_SUM_BITS = 28  # of the largest element that is summed: the 24 of float32, and 4


def split(position: Array) -> tuple[Array, Array]:
    """Return the lower of the two elements around a position, and the upper one's weight in 256ths.

    Examples
    --------
    >>> low, upper = split(np.array([0.5, 1.498, 1.499]))
    >>> low.tolist(), upper.tolist()
    ([0, 0, 1], [0, 255, 0])
    """
    fixed = np.floor((position.astype(np.float64) - 0.5) * _ONE + 0.5).astype(np.int64)
    return fixed >> _FRACTION_BITS, fixed & (_ONE - 1)


def corner_weight(corner: Sequence[int], uppers: Sequence[Array]) -> Array:
    """Return a corner's weight in 256ths, of the weights of each coordinate's upper side.

    Examples
    --------
    >>> [int(corner_weight(c, (np.int64(128), np.int64(1)))) for c in ((0, 0), (1, 0), (0, 1), (1, 1))]
    [128, 127, 0, 1]
    """
    weight = np.asarray(_ONE)
    for n in sorted(range(len(corner)), key=(1, 2, 0).__getitem__):
        # Halves of what x and y share go to (0, 0) and (1, 1).
        into_upper = (weight * uppers[n] + _HALF - (n == 1 and not corner[0])) >> _FRACTION_BITS
        weight = into_upper if corner[n] else weight - into_upper
    return weight


def filtered(positions: Sequence[Array], element: Callable[[list[Array]], Array]) -> Array:
    """Return the mean of the elements around positions by their weights; elements have a last axis, of channels."""
    lows, uppers = zip(*(split(x) for x in positions), strict=True)
    total = np.zeros(1)
    for plane in itertools.product((0, 1), repeat=max(0, len(positions) - 2)):
        weights, elements = [], []
        for corner in itertools.product((0, 1), repeat=min(2, len(positions))):
            weight = corner_weight((*corner, *plane), uppers)[..., None]
            found = element([low + side for low, side in zip(lows, (*corner, *plane), strict=True)])
            weights.append(weight)
            elements.append(np.where(weight == 0, 0.0, found.astype(np.float64)))
        _, exponent = np.frexp(np.max(np.abs(elements), axis=0))
        unit = np.ldexp(1.0, exponent - _SUM_BITS)
        total = total + sum(np.trunc(e / unit) * w for e, w in zip(elements, weights, strict=True)) * (unit / _ONE)
    # The sum has few bits more than 37: growing it by less than the last moves only halves, which so go away from zero.
    return np.asarray((total * (1 + 2.0**-40)).astype(np.float32))
