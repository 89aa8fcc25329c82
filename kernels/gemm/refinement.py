"""What the model misses: decision trees that were fitted to what its estimates of measured choices were off by.

A model of the parts of a kernel is right to a tenth or so, and choices differ by less. The trees see the model's
estimate, the problem and the choice, and know what such choices took on H200s and H100s compared with other choices
for the same problem. What they add up to is the logarithm of a factor.
"""

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAF = -1


class Trees(NamedTuple):
    """Binary trees whose values add up, the deepest first; their nodes lie in a row, each tree's root first.

    Attributes
    ----------
    decides_by : int array
        The column that a node decides by; of a leaf any.
    at : float array
        The most that a row may have there to go to the first of two nodes; of a leaf no end.
    then : int array
        The first of these; a leaf itself.
    values : float array
        What leaves add.
    roots : int array
        Of all trees.
    deeper : tuple of int
        How many trees go on, by the nodes behind.
    """

    decides_by: NDArray[np.int64]
    at: NDArray[np.float64]
    then: NDArray[np.int64]
    values: NDArray[np.float64]
    roots: NDArray[np.int64]
    deeper: tuple[int, ...]

    @classmethod
    def of_lists(cls, decides_by: list[list[int]], at: list[list[float]], then: list[list[int]]) -> "Trees":
        """Put trees of different sizes together: for each node `LEAF` and a value, or what it decides by.

        Examples
        --------
        >>> trees = Trees.of_lists([[-1], [0, -1, -1]], [[0.25], [0.5, 1.0, 2.0]], [[0], [1, 1, 2]])
        >>> trees.sums(np.array([[0.0], [0.5], [0.75]])).tolist()
        [1.25, 1.25, 2.25]
        """
        depths = [_depth(*tree) for tree in zip(decides_by, then, strict=True)]
        order = sorted(range(len(depths)), key=lambda tree: -depths[tree])
        sizes = [len(then[tree]) for tree in order]
        roots = np.cumsum([0, *sizes])[:-1]
        by, edges, following = (np.concatenate([each[tree] for tree in order]) for each in (decides_by, at, then))
        is_leaf = by == LEAF
        deeper = tuple(sum(depth > behind for depth in depths) for behind in range(max(depths)))
        following = following + np.repeat(roots, sizes)
        return cls(np.where(is_leaf, 0, by), np.where(is_leaf, np.inf, edges), following, edges, roots, deeper)

    def sums(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what the trees say: a function (rows, columns) -> (rows,)."""
        count, columns = rows.shape
        values, node = rows.ravel(), np.repeat(self.roots, count)
        row = np.tile(np.arange(count) * columns, len(self.roots))
        for trees in self.deeper:
            here = node[: trees * count]
            value = values.take(self.decides_by.take(here) + row[: trees * count])
            node[: trees * count] = self.then.take(here) + (value > self.at.take(here))
        found: NDArray[np.float64] = self.values.take(node).reshape(-1, count).sum(axis=0)
        return found


def _depth(decides_by: list[int], then: list[int]) -> int:
    """Count the nodes before the farthest leaf of a tree."""
    depth = [0] * len(then)
    for node in reversed(range(len(then))):  # what follows a node lies behind it
        if decides_by[node] != LEAF:
            depth[node] = 1 + max(depth[then[node]], depth[then[node] + 1])
    return depth[0]


@cache
def h200() -> Trees:
    """Read the trees of Hopper GPUs with 132 SMs, fitted on H200s and H100s.

    A hundred: an H200, 2026-11-23, 254 problems (131 random ones of bfloat16 and float8 in all majors, 78 and 45 of
    sizes that models have) and some 40 choices of each, timed in turns in CUDA graphs, 10,611 times in all. A hundred
    more, for what those leave: an H200, 2026-11-24, 362 problems (284 random ones) and 24 choices of each, 8,679 times,
    and 230 that two choices met in. Eighty more: H100s, 2026-11-25, 600 problems, 9,996 times: 300 random ones with
    what the trees before chose from, in turns, and 300 with up to 110 choices each. For eighths of the 600 that a fit
    had not seen the choice was 2.3% slower than the fastest of these measurements, in the geometric mean; by the trees
    before 2.8%, and for the 362 by the model alone 4.7%. `tests/kernels/fitting.py` fits.
    """
    return Trees.of_lists(**json.loads(files(__package__).joinpath("h200.json").read_text()))
