"""Drawings on terminals with few colours."""

import io

import pytest
from rich.console import Console

from cutepy.cli.show import _paint
from cutepy.layouts import Layout
from cutepy.layouts.grids.text import draw_text
from cutepy.layouts.render import picture_of


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
def test_the_eight_colours_differ_on_every_terminal(system):
    console = Console(file=io.StringIO(), force_terminal=True, color_system=system, width=80, no_color=False)
    _paint(console, draw_text(picture_of(Layout((1, 8))), width=80, height=40))
    (row,) = (line for line in console.file.getvalue().splitlines() if " | " in line)
    cells = dict(reversed(part.split("m")) for part in row.split(" | ")[1].split("\x1b[") if part[-1:].isdigit())
    assert sorted(cells) == list("01234567")
    assert len(set(cells.values())) == 8, cells
