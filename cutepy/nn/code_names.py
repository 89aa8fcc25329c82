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


def arguments_of(kind: type[torch.nn.Module]) -> set[str]:
    """List the arguments that a class's own `forward` takes, behind those that cutepy has put around it."""
    own = (inspect.unwrap(vars(each)["forward"]) for each in kind.__mro__ if "forward" in vars(each))
    code = next((each.__code__ for each in own if not each.__module__.startswith("cutepy.nn.")), None)
    return set() if code is None else {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}


def names_of(kind: type[torch.nn.Module]) -> Iterator[str]:
    """Yield the names that the code of a class's `forward` uses."""
    code = getattr(code_of(kind), "__code__", None)
    pending = [] if code is None else [code]
    while pending:
        each = pending.pop()
        yield from each.co_names
        pending += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
