"""Cache of launches by the descriptions of their tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch

Launch = TypeVar("Launch")
OptionalTensor = torch.Tensor | None

_MOST = 4096


class Launches(dict[tuple[Any, ...], Launch]):
    """Cache of launches by their keys; when it is full, all are dropped."""

    def keep(self, key: tuple[Any, ...], launch: Launch) -> Launch:
        """Store a launch, and return it."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = launch
        return launch


def described(*values: object) -> list[Any]:
    """Return the key of tensors: all that determines a launch, with alignments below 16 in place of addresses."""
    key: list[Any] = []
    address = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            key += (value.shape, value.stride(), value.dtype, value.device)
            address |= value.data_ptr()
        else:
            key.append(type(value))
    if address % 16:  # of few calls, and then of all tensors
        key += [math.gcd(value.data_ptr(), 16) for value in values if isinstance(value, torch.Tensor)]
    return key


def maker_of(
    beside: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None
) -> Callable[[], torch.Tensor]:
    """Return a function that makes empty contiguous tensors beside another, for launches of a plan.

    A call takes less than half of the host time of `new_empty`.
    """
    like = beside.new_empty((), dtype=dtype).expand(tuple(shape))
    return partial(torch.empty_like, like, memory_format=torch.contiguous_format)


# Torch's own functions make a Stream each time.
raw_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""Return the handle of the current stream of a GPU, by the GPU's index."""
