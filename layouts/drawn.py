"""Drawn: values of which there are pictures, which notebooks ask for."""

from __future__ import annotations

import importlib


class Drawn:
    """A value that `cutepy.layouts.show` draws, and that notebooks show as a picture.

    The renderers are found by name, when a picture is asked for: they stand above the values that they draw.
    """

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return drawn_as("html", self)

    def _repr_svg_(self) -> str | None:
        return drawn_as("svg", self)


def drawn_as(form: str, value: object) -> str | None:
    """Return a picture for a notebook; None, upon which it shows the repr, where the value has none."""
    try:
        return importlib.import_module(f"{__package__}.render.{form}").in_notebook(value)  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        return None
