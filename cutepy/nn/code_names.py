"""Names that the code of a module's `forward` uses, by which its parts are known."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch


def code_of(kind: type[torch.nn.Module]) -> Any:  # noqa: ANN401
    """Return the function that a class's `forward` is, behind its decorators."""
    return inspect.unwrap(kind.forward)


def names_of(kind: type[torch.nn.Module]) -> Iterator[str]:
    """Yield the names that the code of a class's `forward` uses."""
    code = getattr(code_of(kind), "__code__", None)
    pending = [] if code is None else [code]
    while pending:
        each = pending.pop()
        yield from each.co_names
        pending += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
