"""Type checks of arguments: a wrong type is a TypeError that names the parameter."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from .composed import ComposedLayout
from .errors import LayoutError
from .layout import Layout


def integer(operation: str, name: str, value: Any) -> int:  # noqa: ANN401 - unchecked input
    """Return an integer of any integer type as an int.

    Examples
    --------
    >>> integer("example", "bits", 16)
    16
    >>> integer("example", "bits", 16.0)
    Traceback (most recent call last):
        ...
    TypeError: example: bits must be an int, got 16.0 of type float
    """
    if value.__class__ is int:
        return value
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise wrong_type(operation, name, "an int", value)
    return index(value)


def integers(operation: str, name: str, values: Any) -> tuple[int, ...]:  # noqa: ANN401 - unchecked input
    """Return an iterable of integers as a tuple of ints.

    Examples
    --------
    >>> integers("example", "box", [64, 128])
    (64, 128)
    """
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise wrong_type(operation, name, "a tuple of ints", values)
    return tuple(integer(operation, f"{name}[{i}]", value) for i, value in enumerate(values))


def extents(operation: str, name: str, values: Any) -> tuple[int, int]:  # noqa: ANN401 - unchecked input
    """Return the extents of a tile along M or N and along K.

    Examples
    --------
    >>> extents("example", "mma_shape", (64, 0))
    Traceback (most recent call last):
        ...
    cutepy.layouts.errors.LayoutError: example((64,0)): mma_shape must be two extents >= 1, MN and K, got (64, 0)
    """
    found = integers(operation, name, values)
    if len(found) != 2 or min(found) < 1:
        raise LayoutError(operation, (found,), f"{name} must be two extents >= 1, MN and K, got {found}")
    return found


def text(operation: str, name: str, value: Any) -> str:  # noqa: ANN401 - unchecked input
    """Check that an argument is a str."""
    if not isinstance(value, str):
        raise wrong_type(operation, name, "a str", value)
    return value


def one_of(operation: str, operands: tuple[object, ...], name: str, value: Any, choices: Iterable[str]) -> Any:  # noqa: ANN401
    """Return the choice that a name spells in any case.

    Examples
    --------
    >>> one_of("example", (), "swizzle", "sw128", ("INTER", "SW128"))
    'SW128'
    """
    spelled = {choice.lower(): choice for choice in choices}
    found = spelled.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise LayoutError(operation, operands, f"{name} must be one of {', '.join(spelled.values())}, got {value!r}")
    return found


def check_layout(operation: str, name: str, value: object) -> None:
    """Raise TypeError unless the value is a layout."""
    if not isinstance(value, Layout | ComposedLayout):
        raise wrong_type(operation, name, "a Layout or a ComposedLayout", value)


def wrong_type(operation: str, name: str, required: str, value: object) -> TypeError:
    """Return the TypeError for an argument of the wrong type."""
    return TypeError(f"{operation}: {name} must be {required}, got {value!r} of type {type(value).__name__}")
