"""Schemas of operations from Python's annotations, so that each signature is written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_type_hints

import torch

_TYPES: dict[Any, str] = {
    torch.Tensor: "Tensor",
    torch.Tensor | None: "Tensor?",
    Sequence[torch.Tensor]: "Tensor[]",
    Sequence[int]: "int[]",
    int | None: "int?",
    torch.dtype: "ScalarType",
    torch.dtype | None: "ScalarType?",
}
"""Types of a schema, by those of Python; others have the same names."""


@cache
def schema_of(arguments: type) -> str:
    """Return arguments of an operation's schema: the fields of a named tuple, with their defaults.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Settings(NamedTuple):
    ...     q: torch.Tensor
    ...     sinks: torch.Tensor | None
    ...     scale: float
    ...     common: int = 0
    >>> schema_of(Settings)
    'Tensor q, Tensor? sinks, float scale, int common=0'
    """
    return _arguments(get_type_hints(arguments), getattr(arguments, "_field_defaults", {}))


def schema_of_function(name: str, function: Callable[..., Any]) -> str:
    """Return the schema of an operation from its function: arguments with their defaults, and a tensor or several.

    Examples
    --------
    >>> def scale(x: torch.Tensor, factors: torch.Tensor | None, by: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    ...     pass
    >>> schema_of_function("mylib::scale", scale)
    'mylib::scale(Tensor x, Tensor? factors, float by=2.0) -> (Tensor, Tensor)'
    """
    kinds = get_type_hints(function)
    result = kinds.pop("return")
    several = get_args(result)
    results = f"({', '.join(_TYPES[each] for each in several)})" if several else _TYPES[result]
    given: tuple[Any, ...] = getattr(function, "__defaults__", None) or ()
    defaults = dict(zip([*kinds][len(kinds) - len(given) :], given, strict=True))
    return f"{name}({_arguments(kinds, defaults)}) -> {results}"


def _arguments(kinds: Mapping[str, Any], defaults: Mapping[str, object]) -> str:
    return ", ".join(
        f"{_TYPES.get(kind) or kind.__name__} {name}" + (f"={defaults[name]}" if name in defaults else "")
        for name, kind in kinds.items()
    )
