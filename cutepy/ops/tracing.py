"""Checks that `torch.jit.trace` does not see: it would take extents for tensors, and warn of each that is compared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function see plain extents, and nothing that it does recorded."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return function(*arguments, **named)
        torch_c: Any = torch._C
        state = torch_c._get_tracing_state()
        torch_c._set_tracing_state(None)
        try:
            return function(*arguments, **named)
        finally:
            torch_c._set_tracing_state(state)

    return call
