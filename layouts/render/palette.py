"""Colour palette for colour-blind readers, light enough for black text.

References
----------
Paul Tol, "Colour Schemes", SRON/EPS/TN/09-002, 2021: the scheme "light", made to fill labelled cells under black text.
Okabe and Ito, "Color Universal Design", 2008: vermillion, for marks.
"""

from __future__ import annotations

FILLS = ("#77AADD", "#FFAABB", "#BBCC33", "#EEDD88", "#99DDFF", "#EE8866", "#44BB99", "#DDDDDD")
"""Fill colours by colour key modulo 8: neighbours differ in lightness as well as in hue."""

EMPTY = "#FFFFFF"
INK = "#000000"
MUTED = "#555555"
LINE = "#888888"
MARK = "#D55E00"


def fill(colour: int | None) -> str:
    """Return the fill of a cell for a colour key; None is white.

    >>> fill(1), fill(9), fill(None)
    ('#FFAABB', '#FFAABB', '#FFFFFF')
    """
    return EMPTY if colour is None else FILLS[colour % len(FILLS)]
