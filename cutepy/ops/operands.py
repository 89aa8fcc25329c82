"""Operands of epilogues, of any float dtype, as kernels take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

READ_BY_KERNELS = frozenset((torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2))
"""What kernels convert to fp32 themselves."""


def widened(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert floats that kernels don't read to fp32, as the kernel would: those of 64 bits, and other 8-bit ones.

    Examples
    --------
    >>> widened({"scale": 2.0, "bias": torch.ones(2, dtype=torch.float64)})
    {'scale': 2.0, 'bias': tensor([1., 1.])}
    """
    return {name: value if are_read([value]) else value.float() for name, value in given.items()}


def are_read(values: Iterable[Any]) -> bool:
    """Tell whether kernels read all of these as they are."""
    return all(
        not isinstance(value, torch.Tensor) or value.dtype in READ_BY_KERNELS or not value.is_floating_point()
        for value in values
    )
