"""What must be known of an access for another one to come after it.

Within one proxy that is a release that includes who comes after it. From the generic proxy to the async proxy it takes
a proxy fence between them, after reads as after writes; by that fence, too, a read is over.

References
----------
PTX ISA, "Memory Consistency Model": "Proxies", "Causality Order"; "Async proxy".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Array
from cutepy.sim.sanitize.order.clocks import DONE, FENCED, SEEN


class Need(NamedTuple):
    """How something must be known to what comes after it.

    Attributes
    ----------
    planes : tuple of int
    combined : ufunc
        `minimum` if it must be known in all of them, `maximum` if one will do.
    """

    planes: tuple[int, ...]
    combined: np.ufunc = np.minimum

    def of(self, known: Callable[[int], Array]) -> Array:
        """Return how far something is known, by what is known of it in each plane."""
        return functools.reduce(self.combined, map(known, self.planes))


def need(is_shown: bool, from_async: bool, to_async: bool) -> Need:
    """Return what orders an access before another one, by whether what it wrote must be seen, and by their proxies.

    Examples
    --------
    >>> need(False, True, True).planes == (DONE,), need(True, False, True).planes == (SEEN, FENCED)
    (True, True)
    """
    return _NEEDS[is_shown, from_async, to_async]


_NEEDS = {
    (True, True, True): Need((SEEN,)),
    (True, True, False): Need((SEEN,)),
    (True, False, True): Need((SEEN, FENCED)),
    (True, False, False): Need((SEEN,)),
    (False, True, True): Need((DONE,)),
    (False, True, False): Need((DONE,)),
    (False, False, True): Need((FENCED,)),
    (False, False, False): Need((SEEN, FENCED), np.maximum),
}
UNFENCED = {True: Need((SEEN,)), False: Need((DONE,))}
"""What orders a write, or a read, by the generic proxy before one of the async proxy but for a proxy fence."""
