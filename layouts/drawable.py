"""Drawable: base class of values that notebooks and `cutepy.layouts.show` draw as pictures."""

from __future__ import annotations

import importlib


class Drawable:
    """Base class of values that `cutepy.layouts.show` draws, and that notebooks show as a picture.

    Renderers are imported by name when a picture is requested: they are in a layer above the values.
    """

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return notebook_picture("html", self)

    def _repr_svg_(self) -> str | None:
        return notebook_picture("svg", self)


def notebook_picture(form: str, value: object) -> str | None:
    """Return a picture for a notebook; None if the value has none, so that the notebook shows the repr."""
    try:
        return importlib.import_module(f"{__package__}.render.{form}").in_notebook(value)  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        return None
