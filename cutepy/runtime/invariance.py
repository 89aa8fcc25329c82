"""Batch invariance: a process-wide mode in which a row's sums have one order, independent of the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Invariance:
    """State of the batch-invariant mode. There is one for all threads, `INVARIANCE`.

    Attributes
    ----------
    on : bool
        To be read at each call; only `batch_invariant` sets it.
    asked : int
        Times that it was entered and not left yet.
    """

    __slots__ = ("asked", "on")

    def __init__(self) -> None:
        self.on = False
        self.asked = 0


INVARIANCE = Invariance()
"""State of this process."""


class InvariantContext:
    """Context of `batch_invariant`, which decorates functions too.

    `torch.compile` traces it, and so it has no lock: CPython changes threads at calls, of which there are none here.
    What is left as it was found, torch writes nowhere when the compiled code runs; so what was read is put back.
    """

    def __enter__(self) -> None:
        self._asked, self._on = INVARIANCE.asked, INVARIANCE.on
        INVARIANCE.asked = self._asked + 1
        INVARIANCE.on = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if INVARIANCE.asked == self._asked + 1:
            INVARIANCE.asked, INVARIANCE.on = self._asked, self._on
        else:  # other threads have entered or left meanwhile
            INVARIANCE.asked -= 1
            INVARIANCE.on = INVARIANCE.asked > 0

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function to run within the context."""

        @functools.wraps(function)
        def within(*arguments: P.args, **named: P.kwargs) -> R:
            with InvariantContext():
                return function(*arguments, **named)

        return within


def batch_invariant() -> InvariantContext:
    """Give a row the same bits in any batch: within this context, products sum all of K in one order.

    Otherwise K may be split where there are few rows and columns: results are the same from run to run then, too, but a
    row computed alone may differ in its last bits from the same row among many. It holds for all threads of the
    process, since backward passes have threads of their own, and for what is called within it, compiled graphs
    included; it nests. Products of groups, and of 8-bit floats with scales, are such products; what an epilogue
    reduces along a row is summed in parts that follow from N alone. Products of few rows are slower so: those of a long
    K, and those whose epilogue reduces, since they are not transposed.

    A function that `torch.compile` takes may enter it, with ``fullgraph=True`` too, and so may one that is exported:
    the products there are then others in its graph (``torch.ops.cutepy.gemm_invariant``). Those of its derivative are
    computed so where that is computed within the context. Operations of your own see the context that they run in.

    The bits are a GPU's. The simulator's are, too, with ``simulate(exact_mma=True)``; by default it multiplies a whole
    commit group of wgmma in NumPy's order, which differs from tile to tile, and so may a row from batch to batch.

    Examples
    --------
    >>> import torch
    >>> from cutepy.ops import batch_invariant, gemm
    >>> a, b = torch.randn(3, 64).half(), torch.randn(8, 64).half()
    >>> with batch_invariant():
    ...     rows = gemm(a, b)
    """
    return InvariantContext()
