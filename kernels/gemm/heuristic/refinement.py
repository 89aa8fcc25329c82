"""Decision trees that correct the model's estimates, fitted to measured times.

The model of a kernel is accurate to about a tenth, and candidates often differ by less. The inputs of the trees are the
model's estimate, the problem and the candidate. The trees are fitted to the times of candidates on H200s and H100s,
relative to other candidates of the same problem. Their sum is the logarithm of the factor that corrects the estimate.
"""

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PARTS = 100_000
"""Scale of leaves: integers that are `PARTS` times the value, so that sums are exact on any machine."""

BLOCK = 128
"""Trees that are evaluated at once. For 100 rows the leaf indices of a block take 100 kB. Above 128 kB the allocator
returns arrays to the system, and evaluation takes four times as long.
"""


class Trees(NamedTuple):
    """Oblivious trees whose leaf values add up: all nodes of a level compare the same feature with the same threshold.

    A leaf's index is the bits of its tree's comparisons. Trees share comparisons; each is evaluated once.

    Attributes
    ----------
    facts : int array, (comparisons,)
        Index of the compared feature.
    edges : float array, (comparisons, 1)
        Threshold of the comparison: the bit is set above it.
    levels : int array, (depth, trees)
        The comparison of each level, whose bits count 1, 2, 4, ...; there are 8 at most.
    leaves : int array, (trees * 2**depth,)
        Leaves of one tree after another, `PARTS` times their values.
    """

    facts: NDArray[np.intp]
    edges: NDArray[np.float32]
    levels: NDArray[np.intp]
    leaves: NDArray[np.int32]

    @classmethod
    def of_lists(cls, columns: list[list[int]], edges: list[list[float]], leaves: list[list[int]]) -> "Trees":
        """Build trees of one depth from lists: features, thresholds and leaves.

        Examples
        --------
        >>> trees = Trees.of_lists([[0, 1]], [[0.5, 2.0]], [[0, 100_000, 200_000, 300_000]])
        >>> trees.sums(np.array([[0.5, 0.75, 0.5, 0.75], [2.0, 2.0, 3.0, 3.0]])).tolist()
        [0.0, 1.0, 2.0, 3.0]
        """
        pairs = np.stack([np.array(columns, np.float32).T, np.array(edges, np.float32).T], axis=-1)
        found, inverse = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
        levels = inverse.reshape(pairs.shape[:2])
        facts, compared = found[:, 0].astype(np.intp), np.ascontiguousarray(found[:, 1:])
        return cls(facts, compared, levels, np.array(leaves, np.int32).ravel())

    def sums(self, facts: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the sum of the trees' leaves: (facts, rows) -> (rows,)."""
        above = (facts.astype(np.float32, copy=False).take(self.facts, axis=0) > self.edges).view(np.uint8)
        depth, trees = self.levels.shape
        bits, firsts = _places(depth)
        total = np.zeros(facts.shape[1])
        for first in range(0, trees, BLOCK):
            passed = above.take(self.levels[:, first : first + BLOCK], axis=0)
            leaves = np.einsum("l,ltr->tr", bits, passed) + firsts[: passed.shape[1]]
            total += np.add.reduce(self.leaves[first << depth :].take(leaves, mode="clip"), dtype=np.int32)
        total /= PARTS
        return total


@cache
def _places(depth: int) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Return the weights of a leaf index's bits, and the offset of each tree's leaves in a block."""
    bits, firsts = 2 ** np.arange(depth), 2**depth * np.arange(BLOCK)
    return bits.astype(np.uint8), firsts[:, None].astype(np.uint16)


@cache
def hopper() -> Trees:
    """Load the trees of Hopper GPUs with 132 SMs, fitted on H200s and H100s.

    `make fit` fits them to the journals of `tests/kernels/timed`: 45,700 times of 1,775 problems on two H100s and three
    H200s, 2026-11-26 to 12-01, 650 problems in company too. Of 230 random problems on an H200 that no fit had seen,
    each with some 28 candidates, trees that lacked them had 1.112 of cuBLAS in company and 1.184 back to back; the
    trees before, 1.100 and 1.179; the fastest candidates, 1.142 and 1.216.
    """
    return Trees.of_lists(**json.loads(files(__package__).joinpath("trees.json").read_text()))
