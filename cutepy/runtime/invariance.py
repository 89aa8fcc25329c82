"""Whether a row's sums are formed in one order, whatever is computed with it: a mode of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from cutepy.runtime.contexts import reentrant


class Invariance:
    """Whether results must not depend on the rows and products beside them. There is one for all threads, `INVARIANCE`.

    Attributes
    ----------
    on : bool
        To be read at each call; only `batch_invariant` sets it.
    """

    __slots__ = ("_asked", "_entering", "on")

    def __init__(self) -> None:
        self.on = False
        self._asked = 0
        self._entering = threading.Lock()

    def count(self, step: int) -> None:
        """Count who asks for it."""
        with self._entering:
            self._asked += step
            self.on = self._asked > 0


INVARIANCE = Invariance()
"""Of this process."""


@reentrant
def batch_invariant() -> Iterator[None]:
    """Give a row the same bits in any batch: within this context, products sum all of K in one order.

    Otherwise K may be split where there are few rows and columns: results are the same from run to run then, too, but a
    row computed alone may differ in its last bits from the same row among many. It holds for all threads of the
    process, since backward passes have threads of their own, and for what is called within it, compiled graphs
    included; it nests. Products of groups, and of 8-bit floats with scales, are such products; what an epilogue
    reduces along a row is summed in parts that follow from N alone. Products of few rows are slower so: those of a long
    K, and those whose epilogue reduces, since they are not transposed.

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
    INVARIANCE.count(1)
    try:
        yield
    finally:
        INVARIANCE.count(-1)
