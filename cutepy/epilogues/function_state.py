"""`state_of`: all that a Python function reads beside its arguments, so that equal states are known to act alike.

Tracing a function takes a millisecond. While the state of a function is the same, its graph is the same, and needs no
further trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

_PLAIN = (bool, int, float, str, type(None))
_MODULES = ("torch", "math", "operator", "cutepy")
"""Modules whose functions do not change."""


class State(NamedTuple):
    """State of functions.

    Attributes
    ----------
    key : tuple
        Equal for equal states while the tensors live.
    tensors : tuple of Tensor
        Those that are read, in the order of the key.
    """

    key: tuple[Any, ...]
    tensors: tuple[torch.Tensor, ...]


def state_of(*functions: object) -> State | None:
    """Return the state of functions; None where they read values that may change unseen, such as attributes of objects.

    Examples
    --------
    >>> n = 3
    >>> state_of(lambda x: x + n) == state_of(lambda x: x + n), state_of([])
    (False, None)
    >>> made = [lambda x: x + m for m in (1, 1)]
    >>> state_of(made[0]) == state_of(made[1])
    True
    """
    parts: list[Any] = []
    tensors: list[torch.Tensor] = []
    pending, visited = list(functions), set()
    while pending:
        value = pending.pop()
        if isinstance(value, _PLAIN):
            # in text 1, 1.0 and True differ, and zeros have their signs
            parts.append((type(value), repr(value)))
        elif isinstance(value, torch.Tensor):
            tensors.append(value)
            parts.append((id(value), value.dtype, value.shape, value.device, value.requires_grad))
        elif isinstance(value, (tuple, torch.Size)):
            parts.append((tuple, len(value)))
            pending += value
        elif isinstance(value, (torch.dtype, torch.device)):
            parts.append(value)
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] in _MODULES:
            parts.append(value)
        elif isinstance(value, BuiltinFunctionType) or _is_of(value):
            parts.append(value)
        elif isinstance(value, FunctionType):
            parts.append(value.__code__)
            if value in visited:
                continue
            visited.add(value)
            try:
                cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
            except ValueError:  # a cell that is still empty
                return None
            defaults = value.__kwdefaults__ or {}
            names = sorted(set(_names(value.__code__)) & value.__globals__.keys())
            parts.append((*names, *defaults))
            pending += (*cells, value.__defaults__, *defaults.values(), *(value.__globals__[name] for name in names))
        else:
            return None
    return State(tuple(parts), tuple(tensors))


def _is_of(value: Any) -> bool:  # noqa: ANN401
    """Return whether a function or class is one of the modules that do not change."""
    module = getattr(value, "__module__", None)
    return (
        isinstance(value, (FunctionType, type))
        and isinstance(module, str)
        and module.partition(".")[0] in ("torch", "cutepy")
        and not getattr(value, "__closure__", None)
    )


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function and those within it read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
