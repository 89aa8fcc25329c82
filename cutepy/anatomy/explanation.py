"""Explanation of kernels, as text, as a page, as JSON."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from cutepy.anatomy.model import Findings, Operand
from cutepy.anatomy.page import fragment, page
from cutepy.anatomy.text import draw
from cutepy.anatomy.tiles import tile_layout


class Explanation(Findings):
    """Explanation of the kernels of a PTX module, or of a run; `print` it, or show it in a notebook."""

    def text(self, width: int | None = 80) -> str:
        """Return plain text: lines of at most `width` characters, or of any length if it is None."""
        return draw(self, width).text

    def html(self) -> str:
        """Return a self-contained page."""
        return page(self)

    def json(self) -> dict[str, Any]:
        """Return a value for `json.dumps`; facts that only a launch determines are None or an empty list."""
        return _fields(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page into a file."""
        Path(path).write_text(self.html(), encoding="utf-8")

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return fragment(self)


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Operand):
        tile = tile_layout(value)
        return {
            **_fields(value),
            "descriptors": [f"{word:#018x}" for word in value.descriptors],
            "start_addresses": list(value.start_addresses),
            "layout": None if tile is None else str(tile),
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _fields(value: Any) -> dict[str, Any]:  # noqa: ANN401
    return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
