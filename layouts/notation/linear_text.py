"""Reader of linear layouts as Triton, Gluon and cutepy print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import ParseError
from ..linear.layout import LinearLayout
from . import parse
from .terms import fields, literal
from .tokens import plain

_FIELDS = re.compile(r"\s*\w+\s*=\s*\[")
_DICTIONARY = re.compile(r"\s*\{")
_IN_DIMENSIONS = ("register", "lane", "warp", "block", "offset", "iteration", "row", "col")
"""Triton's: other fields, such as an encoding's CGA layout, are no bases of a function of the whole."""


def parse_linear(text: str, *, shape: Sequence[int] | None = None) -> LinearLayout:
    """Read a linear layout in any form in which it is printed.

    Accepted are the forms of Triton and ``str`` (``- register=1 -> (0, 1)`` ... ``where out dims are: [...]``, also
    without that line), Triton's attributes ``#ttg.linear<{register = [[0, 1]], lane = ...}>``, ``#ttg.blocked<...>``
    and other encodings, Gluon's ``DistributedLinearLayout(reg_bases=..., shape=...)``, ``BlockedLayout(...)`` and other
    layouts, ``repr``, and bases alone: ``register = [[0, 1]], lane = []`` of Triton's in-dimensions, or a dictionary of
    any. Out-dimensions without names are dim0, dim1 ...; without sizes, they have the smallest that hold the bases.

    Parameters
    ----------
    text : str
        It holds one layout; see `parse`, which reads it.
    shape : sequence of int, optional
        Extents of the tensor whose encoding the text holds; needed by those that tell none.

    Raises
    ------
    ParseError
        If the text is none of these, with the place; or an encoding does not fit the shape.

    Examples
    --------
    >>> parse_linear('''
    ...  - register=1 -> (0, 1)
    ...  - lane=1 -> (0, 2)
    ...    lane=2 -> (1, 0)
    ...  - warp is a size 1 dimension
    ... where out dims are: [dim0 (size 2), dim1 (size 4)]''')
    LinearLayout({'register': [[0, 1]], 'lane': [[0, 2], [1, 0]], 'warp': []}, {'dim0': 2, 'dim1': 4})
    >>> parse_linear("#ttg.linear<{register = [[0, 1]], lane = [[0, 2], [1, 0]], warp = [], block = []}>").out_dims
    {'dim0': 2, 'dim1': 4}
    >>> parse_linear("SwizzledSharedLayout(vec=1, per_phase=1, max_phase=2, order=[1, 0])", shape=(2, 2)).bases
    {'offset': [[0, 1], [1, 1]], 'block': []}
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_linear reads a str, got {type(text).__name__}: {text!r}")
    start = len(text) - len(text.lstrip())
    alone = _FIELDS.match(plain(text)) or _DICTIONARY.match(plain(text))
    value = _of_bases(text) if alone and shape is None else parse(text, shape=shape)
    if not isinstance(value, LinearLayout):
        raise ParseError(text, start, f"a linear layout was expected, this is a {type(value).__name__}; parse reads it")
    return value


def _of_bases(text: str) -> LinearLayout:
    """Read ``name = [[...], ...]`` for each in-dimension, or a dictionary of them."""
    from .constructors import linear_of_bases
    from .reader import Reader

    reader = Reader(text)
    start = reader.token.start
    is_dictionary = reader.token.kind == "{"
    bases = literal(reader) if is_dictionary else fields(reader, "end")
    unknown = [] if is_dictionary else [name for name in bases if name not in _IN_DIMENSIONS]
    if unknown:
        known = ", ".join(_IN_DIMENSIONS)
        place = re.search(rf"\b{unknown[0]}\b", text)
        raise ParseError(
            text,
            start if place is None else place.start(),
            f"{unknown[0]} is no in-dimension: Triton's are {known}; a dictionary of bases has any names",
        )
    reader.expect("end", "',' or the end of the text")
    layout: LinearLayout = reader.build(start, linear_of_bases, bases)
    return layout
