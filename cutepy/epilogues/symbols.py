"""Symbolic numbers and extents in programs traced by `torch.compile` and `torch.export`."""

from __future__ import annotations

from typing import Any

import torch

_TELLS = torch.__version__ >= "2.7"
"""True if torch.compile forwards questions about its symbols, which pass for Python's numbers there."""


def is_symbol(value: Any) -> bool:  # noqa: ANN401
    """Return whether a value is, or may be, a symbolic number.

    Examples
    --------
    >>> is_symbol(1), is_symbol(0.5)
    (False, False)
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return True
    if not torch.compiler.is_compiling() or type(value) not in (int, float):
        return False
    if not _TELLS:
        return True
    # the module takes long to import, but the compiler has imported it
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return not has_static_value(value)


def surely(condition: Any) -> bool:  # noqa: ANN401
    """Return whether a comparison of extents is true for all their values, without a guard as `bool` would add.

    Examples
    --------
    >>> surely(2 == 2), surely(2 == 3)
    (True, False)
    """
    if (_TELLS and torch.compiler.is_compiling()) or isinstance(condition, torch.SymBool):
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        return statically_known_true(condition)
    return bool(condition)


def by_hint(condition: Any) -> bool:  # noqa: ANN401
    """Return whether a comparison is true of the example extents, and restrict the traced program to such extents.

    `torch.export` names the extents that are others. True where only the data tell, or torch is older than 2.8.

    Examples
    --------
    >>> by_hint(2 == 2), by_hint(2 == 3)
    (True, False)
    """
    if not torch.compiler.is_compiling() and not isinstance(condition, torch.SymBool):
        return bool(condition)
    from torch.fx.experimental import symbolic_shapes

    return symbolic_shapes.guard_or_true(condition) if hasattr(symbolic_shapes, "guard_or_true") else True


def are_known(*extents: Any) -> bool:  # noqa: ANN401
    """Return whether all extents are numbers, not symbols: tuples of numbers are compared faster.

    Examples
    --------
    >>> are_known(2, 3)
    True
    """
    return not torch.compiler.is_compiling() and {*map(type, extents)} <= {int}
