"""Kernels of an exported GEMM: choices of the heuristic's table, each with the model's estimate as its cost.

In process `cutepy.kernels.gemm.heuristic` ranks a thousand choices and corrects the estimates by decision trees. A
library holds these few, and evaluates the same formula in C++ (`Estimator.estimate`), without the trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from cutepy.aot import symbols
from cutepy.kernels.gemm.gpu import H200
from cutepy.kernels.gemm.heuristic.choice import extents_of
from cutepy.kernels.gemm.heuristic.model import H200_COSTS, SHORT_K, Choice
from cutepy.kernels.gemm.heuristic.tiles import OutputTile
from cutepy.kernels.gemm.signature import GemmSignature

if TYPE_CHECKING:
    from cutepy.kernels.gemm.config import GemmConfig
    from cutepy.kernels.gemm.heuristic.estimates import Arithmetic, Estimator

EXPORTED = (
    Choice(OutputTile(64, 32, k_spans=2), 1, 1),
    Choice(OutputTile(64, 32, k_spans=2), 1, 2),
    Choice(OutputTile(64, 32), 1, 2),
    Choice(OutputTile(64, 64), 1, 2),
    Choice(OutputTile(64, 128), 1, 2),
    Choice(OutputTile(128, 256), 2, 1),
    # ping-pong
    Choice(OutputTile(64, 64, consumers=2), 2, 2),
    Choice(OutputTile(64, 96, consumers=2), 2, 2),
    Choice(OutputTile(64, 128, consumers=2), 2, 1),
    Choice(OutputTile(128, 96, consumers=2), 2, 1),
    Choice(OutputTile(128, 128, consumers=2), 2, 2),
    Choice(OutputTile(128, 160, consumers=2), 2, 2),
    Choice(OutputTile(128, 192, consumers=2), 2, 1),
    Choice(OutputTile(192, 128, consumers=2), 1, 2),
    # split K
    Choice(OutputTile(64, 16, split_k=4), 1, 1),
    Choice(OutputTile(64, 32, k_spans=2, split_k=2), 1, 2),
    Choice(OutputTile(64, 32, k_spans=2, split_k=8), 1, 1),
    Choice(OutputTile(64, 64, k_spans=2, split_k=2), 1, 2),
    Choice(OutputTile(64, 64, k_spans=2, split_k=4), 1, 1),
    Choice(OutputTile(64, 80, split_k=8), 1, 1),
    Choice(OutputTile(64, 112, split_k=2), 1, 2),
)
"""Choices of the model's table (`candidates("model")`); the first suits every problem.

A greedy search with exchanges took them for 1,650 random problems: of 21 choices these have the least refined time,
where the model alone decides. On 300 other problems their refined time is 1.08 times that of the best of all choices,
in the geometric mean; the nine tiles and the linear cost before had 1.37. `tests/kernels/exporting.py` searches.
"""


def cost_of(choice: Choice, signature: GemmSignature) -> Callable[..., float]:
    """Return the cost of a choice: the model's estimate as a function of m, n, k, sm_count and the batch's extents.

    The cost is in microseconds, on a GPU with an H200's memory, and infinite for problems that the choice
    does not suit.
    """

    def cost(m: Any, n: Any, k: Any, sm_count: Any, *batch: Any) -> Any:  # noqa: ANN401
        for extent, least in zip((m, n, k * signature.operand_bits), choice.least, strict=True):
            if least > 1 and extent < least:
                return math.inf
        problem = extents_of(signature, m, n, k, math.prod(batch), transposed=False)._replace(any_k=True)
        estimated = _estimator(choice).estimate([problem], sm_count, H200.memory_tbs, _arithmetic())
        return symbols.sixth_root(estimated.sixths.item())

    return cost


def config_of(choice: Choice, signature: GemmSignature) -> GemmConfig:
    """Return the configuration of a choice, with the subtiles of a long K.

    Raises
    ------
    ValueError
        If there is no such kernel.
    """
    return choice.config(signature, SHORT_K + 1)


@cache
def _estimator(choice: Choice) -> Estimator:
    from cutepy.kernels.gemm.heuristic.estimates import Estimator  # NumPy

    return Estimator([choice], H200_COSTS)


@cache
def _arithmetic() -> Arithmetic:
    """Return the functions of symbols that the formula calls, for arrays."""
    import numpy as np

    from cutepy.kernels.gemm.heuristic.estimates import Arithmetic

    return Arithmetic(
        object,
        np.frompyfunc(symbols.minimum, 2, 1),
        np.frompyfunc(symbols.maximum, 2, 1),
        np.frompyfunc(math.ceil, 1, 1),
        np.frompyfunc(symbols.sixth, 1, 1),
        np.frompyfunc(symbols.sixth_root, 1, 1),
    )
