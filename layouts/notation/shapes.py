"""Shapes for Triton's encodings, which describe tensors of any shape: an encoding and a shape are a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import LayoutError, ParseError


def is_encoding(value: object) -> bool:
    """Return whether a value is an encoding, which `with_shape` makes a layout."""
    return hasattr(value, "to_linear")


def with_shape(value: Any, text: str, position: int, shape: Sequence[int] | None) -> Any:  # noqa: ANN401
    """Return the linear layout of an encoding for a tensor's shape; any other value unchanged.

    Raises
    ------
    ParseError
        If the encoding needs a shape and none is told, or does not fit the one that is.
    """
    if not is_encoding(value):
        return value
    try:
        return value.to_linear(shape)
    except LayoutError as error:
        if shape is None:
            needed = "this encoding describes tensors of any shape; parse(text, shape=...) takes one, as shape=(64, 64)"
            raise ParseError(text, position, needed) from None
        raise ParseError(text, position, error.condition) from error


def checked_shape(shape: object) -> tuple[int, ...] | None:
    """Return a shape as a tuple; None if there is none.

    Raises
    ------
    TypeError
        If it is no sequence of integers.
    """
    if shape is None:
        return None
    if not isinstance(shape, Sequence) or any(isinstance(x, bool) or not isinstance(x, int) for x in shape):
        raise TypeError(f"shape must be a sequence of integers, as (64, 64), got {shape!r}")
    return tuple(shape)


def unused(text: str, shape: Sequence[int]) -> ParseError:
    """Return the error for a shape given to a text that takes none."""
    return ParseError(text, 0, f"shape {tuple(shape)} is given, but nothing in the text takes one; leave it out")
