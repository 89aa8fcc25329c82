"""How many floating-point operations products are, for `torch.utils.flop_counter`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

Formula = Callable[..., int]
FORMULAS: dict[Any, Formula] = {}
"""Those of operations that are registered with one, by torch's names of them."""


def tell_counters() -> None:
    """Have `FlopCounterMode` count operations with a formula, also where one is active, which has copied its registry.

    Its module takes a fifth of a second to import, and brings Triton, so that it is left to whoever counts.
    """
    counting = sys.modules.get("torch.utils.flop_counter")
    if counting is None:
        return
    wrapped = {operation: counting.shape_wrapper(formula) for operation, formula in FORMULAS.items()}
    counting.flop_registry.update(wrapped)
    for mode in _get_current_dispatch_mode_stack():
        counter = getattr(mode, "counter", None)
        if isinstance(counter, counting.FlopCounterMode):
            counter.flop_registry = wrapped | counter.flop_registry


def of_products(a: Sequence[int], b: Sequence[int], *_: object, **__: object) -> int:
    """Count 2 M N K for each product of a batch, a (..., K) or (..., M, K) and b (..., N, K).

    Examples
    --------
    >>> of_products((2, 3, 16), (8, 16)), of_products((2, 3, 16), (2, 8, 16)), of_products((16,), (8, 16))
    (1536, 1536, 256)
    """
    if len(b) == 2:
        return 2 * math.prod(a) * b[-2]
    batch: Sequence[int] = torch.broadcast_shapes(a[:-2], b[:-2])
    return 2 * math.prod(batch) * a[-2] * b[-2] * a[-1]


def of_groups(a: Sequence[int], b: Sequence[int], *_: object, **__: object) -> int:
    """Count 2 M N K where groups part one of them, 2 G M N K where each has both matrices: as if groups had all rows.

    Examples
    --------
    >>> of_groups((6, 16), (2, 8, 16)), of_groups((2, 6, 16), (8, 16)), of_groups((2, 6, 16), (2, 8, 16))
    (1536, 1536, 3072)
    """
    return 2 * math.prod(a[-2:]) * b[-2] * (a[0] if len(a) == len(b) == 3 else 1)
