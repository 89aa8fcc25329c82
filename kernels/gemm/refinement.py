"""What the model misses: decision trees that were fitted to what its estimates of measured choices were off by.

A model of the parts of a kernel is right to a tenth or so, and choices differ by less. The trees see the model's
estimate, the problem and the choice, and know what such choices took on an H200 compared with other choices for the
same problem. What they add up to is the logarithm of a factor.
"""

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAF = -1


class Trees(NamedTuple):
    """Binary trees whose values add up; all arrays are (trees, nodes), the root first.

    Attributes
    ----------
    decides_by : int array
        The column that a node decides by; `LEAF` if it has a value instead.
    at : float array
        The most that a row may have there to go to the first of two nodes; or that value.
    then : int array
        The first of these; a leaf itself.
    """

    decides_by: NDArray[np.int64]
    at: NDArray[np.float64]
    then: NDArray[np.int64]

    @classmethod
    def of_lists(cls, decides_by: list[list[int]], at: list[list[float]], then: list[list[int]]) -> "Trees":
        """Put trees of different sizes together.

        Examples
        --------
        >>> trees = Trees.of_lists([[0, -1, -1], [-1]], [[0.5, 1.0, 2.0], [0.25]], [[1, 1, 2], [0]])
        >>> trees.sums(np.array([[0.0], [0.5], [0.75]])).tolist()
        [1.25, 1.25, 2.25]
        """
        nodes = max(map(len, then))
        padded = [[row + [0] * (nodes - len(row)) for row in rows] for rows in (decides_by, then)]
        values = np.array([row + [0.0] * (nodes - len(row)) for row in at])
        return cls(np.array(padded[0]), values, np.array(padded[1]))

    def sums(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what the trees say: a function (rows, columns) -> (rows,)."""
        trees, nodes = self.at.shape
        count, columns = rows.shape
        decides_by, at, then, values = (each.ravel() for each in (self.decides_by, self.at, self.then, rows))
        first = np.repeat(np.arange(trees) * nodes, count)
        row = np.tile(np.arange(count) * columns, trees)
        node = first
        while (column := decides_by.take(node)).max() > LEAF:
            # A leaf compares with some column in vain: what follows it is itself.
            goes_on = (column != LEAF) & (values.take(row + column, mode="wrap") > at.take(node))
            node = first + then.take(node) + goes_on
        found: NDArray[np.float64] = at.take(node).reshape(trees, count).sum(axis=0)
        return found


@cache
def h200() -> Trees:
    """Read the trees of an H200.

    A hundred: 2026-11-23, 254 problems (131 random ones of bfloat16 and float8 in all majors, 78 and 45 of sizes that
    models have) and some 40 choices of each, timed in turns in CUDA graphs, 10,611 times in all. A hundred more, for
    what those leave: 2026-11-24, 362 problems (284 random ones) and 24 choices of each, 8,679 times, and 230 that two
    choices met in. For eighths of the 362 that a fit had not seen the choice was 2.2% slower than the fastest of these
    measurements, in the geometric mean; by the first hundred 3.2%, by the model alone 4.7%.
    `tests/kernels/fitting.py` fits.
    """
    return Trees.of_lists(**json.loads(files(__package__).joinpath("h200.json").read_text()))
