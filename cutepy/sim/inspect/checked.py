"""Validation of JSON from untrusted files: values have the required type and range, and errors name the place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

MAX_TEXT = 1 << 16


class SavedRunError(ValueError):
    """A file that is no saved run."""


class JsonValue:
    """A value of JSON, and where it stands.

    Parameters
    ----------
    where : str
        For errors.
    value : object

    Examples
    --------
    >>> told = JsonValue("run.json", {"grid": [1, 2, -3]})
    >>> told["grid"].triple()
    Traceback (most recent call last):
        ...
    cutepy.sim.inspect.checked.SavedRunError: run.json.grid[2] must be an integer from 0 to 4294967296, got -3
    """

    def __init__(self, where: str, value: Any) -> None:  # noqa: ANN401 - what JSON holds
        self.where = where
        self.value = value

    def __getitem__(self, name: str) -> JsonValue:
        """Return a member of an object, which must be there."""
        if not isinstance(self.value, dict) or name not in self.value:
            raise SavedRunError(f"{self.where} must be an object with {name!r}")
        return JsonValue(f"{self.where}.{name}", self.value[name])

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in self.value

    def members(self, limit: int) -> Iterator[tuple[str, JsonValue]]:
        """Yield the members of an object of at most so many."""
        if not isinstance(self.value, dict) or len(self.value) > limit:
            raise self._wrong(f"an object of at most {limit} members")
        for name, value in self.value.items():
            yield name, JsonValue(f"{self.where}.{name[:50]}", value)

    def items(self, limit: int, least: int = 0) -> Iterator[JsonValue]:
        """Yield the items of a list of at most so many."""
        if not isinstance(self.value, list) or not least <= len(self.value) <= limit:
            raise self._wrong(f"a list of {least} to {limit} items")
        for number, value in enumerate(self.value):
            yield JsonValue(f"{self.where}[{number}]", value)

    def number(self, low: int, high: int) -> int:
        """Return an integer within limits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not low <= self.value <= high:
            raise self._wrong(f"an integer from {low} to {high}")
        return self.value

    def text(self, limit: int = MAX_TEXT) -> str:
        """Return a text of at most a given number of characters."""
        if not isinstance(self.value, str) or len(self.value) > limit:
            raise self._wrong(f"a text of at most {limit} characters")
        return self.value

    def truth(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self._wrong("true or false")
        return self.value

    def choice(self, choices: Sequence[str]) -> str:
        """Return one of some words."""
        if self.value not in choices:
            raise self._wrong(f"one of {', '.join(choices)}")
        return str(self.value)

    def triple(self) -> tuple[int, int, int]:
        """Return three extents or coordinates."""
        x, y, z = (part.number(0, 1 << 32) for part in self.items(3, 3))
        return x, y, z

    def _wrong(self, needed: str) -> SavedRunError:
        shown = repr(self.value)
        return SavedRunError(f"{self.where} must be {needed}, got {shown if len(shown) < 60 else shown[:57] + '...'}")
