"""Reader of printed MMAs and copies: finds the fields by either printer's names, and builds the objects."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..errors import LayoutError, ParseError
from ..linear.layout import LinearLayout
from .printed import PrintedCopy, PrintedMMA
from .reader import Reader
from .tokens import plain

_MMA = {
    "thr_vmnk": r"Thr[ _]VMNK",
    "thr_layout_vmnk": r"Thr[ _]?Layout[ _]?VMNK",
    "permutation_mnk": r"Permutations?[ _]?MNK",
    "shape_mnk": r"Shape[ _]?MNK",
    "a_layout": r"Layout[ _]?A[ _]TV|TV[ _]Layout[ _]A",
    "b_layout": r"Layout[ _]?B[ _]TV|TV[ _]Layout[ _]B",
    "c_layout": r"Layout[ _]?C[ _]TV|TV[ _]Layout[ _]C",
}
_COPY = {
    "thr_idx": r"Thr[ _]?Idx",
    "tiler_mn": r"Tiler[ _]?MN",
    "layout_tv": r"TiledLayout[ _]?TV|TV[ _]Layout[ _]tiled|layout_copy_tv",
    "src_layout": r"ValLayoutSrc|TV[ _]Layout[ _]Src",
    "dst_layout": r"ValLayoutDst|TV[ _]Layout[ _]Dst",
    "ref_layout": r"ValLayoutRef|TV[ _]Layout[ _]Ref",
    "value_type": r"Value[ _]?Type",
}
_BOTH = {"thr_id": r"Thr[ _]?ID"}
# The printers write a colon, the DSL's types `tiler_mn = <"[32:1;32:1]">`.
_LABEL = re.compile(
    r"\b(?:"
    + "|".join(f"(?P<{name}>{label})" for name, label in (_MMA | _COPY | _BOTH).items())
    + r")[ \t]*(?::|=[ \t]*<\")\s*",
    re.IGNORECASE,
)
_HEADER = re.compile(r"\b(?:(?:Tiled|Thr)[ _]?(?:MMA|Copy)|(?:MMA|Copy)[ _]Atom)\b[ \t]*:?(?=\s|$)", re.IGNORECASE)
_TYPE = re.compile(r"\w+")

MOST_ERRORS = 100
"""Largest number of fields, or lines, whose errors are reported."""

_TILED = ("thr_vmnk", "thr_layout_vmnk", "permutation_mnk", "thr_idx", "tiler_mn", "layout_tv")
_NEEDED_MMA = ("thr_id", "shape_mnk", "a_layout", "b_layout", "c_layout")
_NAMES = {
    "thr_id": "ThrID",
    "shape_mnk": "Shape_MNK",
    "a_layout": "LayoutA_TV",
    "b_layout": "LayoutB_TV",
    "c_layout": "LayoutC_TV",
    "src_layout": "ValLayoutSrc",
    "dst_layout": "ValLayoutDst",
    "tiler_mn": "Tiler_MN",
    "layout_tv": "TiledLayout_TV",
}


class Field(NamedTuple):
    """A label and its value, from `start` to `end` of the text."""

    name: str
    value: Any
    start: int
    end: int


class Block(NamedTuple):
    """A printed MMA, copy or linear layout, on several lines.

    Attributes
    ----------
    value : PrintedMMA, PrintedCopy, LinearLayout or None
        None where fields are missing: they are then read one by one.
    start, end : int
        From its first header or field to the end of its last.
    spans : tuple of (int, int)
        Spans of the text that it is read from.
    why : str
        Description of missing fields.
    """

    value: PrintedMMA | PrintedCopy | LinearLayout | None
    start: int
    end: int
    spans: tuple[tuple[int, int], ...]
    why: str = ""


def read_blocks(text: str) -> tuple[list[Block], list[ParseError]]:
    """Find the printed MMAs and copies in a text, with the errors of malformed ones.

    >>> blocks, errors = read_blocks("LayoutA_TV: (4,1):(1,0)")
    >>> blocks[0].value, blocks[0].why, errors
    (None, 'of this MMA_Atom ThrID, Shape_MNK, LayoutB_TV, LayoutC_TV are missing', [])
    """
    fields, errors = _read_fields(text)
    headers = [match.span() for match in _HEADER.finditer(plain(text))]
    blocks = []
    for group in _grouped(fields):
        start = group[0].start
        above = []
        for header in reversed(headers):
            if header[1] <= start and not plain(text)[header[1] : start].strip(" \t\r\n/#*"):
                above.append(header)
                start = header[0]
        spans = sorted(
            [
                *above,
                *(span for span in headers if start <= span[0] < group[-1].end),
                *((f.start, f.end) for f in group),
            ]
        )
        if any(start <= error.position <= group[-1].end + 1 for error in errors):
            continue
        try:
            value, why = _built({field.name: field.value for field in group})
        except LayoutError as error:
            errors.append(ParseError(text, group[0].start, error.condition))
            continue
        blocks.append(Block(value, start, group[-1].end, tuple(spans), why))
    return blocks, errors


def _read_fields(text: str) -> tuple[list[Field], list[ParseError]]:
    fields: list[Field] = []
    errors: list[ParseError] = []
    for match in _LABEL.finditer(plain(text)):
        name = match.lastgroup or ""
        if name == "value_type":
            found = _TYPE.match(plain(text), match.end())
            if found:
                fields.append(Field(name, found.group(), match.start(), found.end()))
            continue
        if len(errors) == MOST_ERRORS:
            break
        reader = Reader(text, match.end())
        try:
            value = reader.value()
        except ParseError as error:
            errors.append(error)
            continue
        fields.append(Field(name, value, match.start(), reader.end))
    return fields, errors


def _grouped(fields: list[Field]) -> list[list[Field]]:
    """Group the fields into objects: a new one begins where a field repeats, or the family changes."""
    groups: list[list[Field]] = []
    names: set[str] = set()
    for field in fields:
        family = _MMA if field.name in _MMA else _COPY if field.name in _COPY else _BOTH
        other = _COPY if family is _MMA else _MMA if family is _COPY else {}
        tiling = field.name in _TILED and any(name not in _TILED for name in names)
        if not groups or field.name in names or tiling or names & set(other):
            groups.append([])
            names = set()
        groups[-1].append(field)
        names.add(field.name)
    return groups


def _built(fields: dict[str, Any]) -> tuple[PrintedMMA | PrintedCopy | None, str]:
    """Return the object, or a description of the missing fields."""
    if any(name in _COPY for name in fields):
        wholes = [("src_layout", "dst_layout"), ("tiler_mn", "layout_tv")]
        begun = [whole for whole in wholes if any(name in fields for name in whole)] or wholes[:1]
        missing = [name for whole in begun for name in whole if name not in fields]
        what: Any = PrintedCopy
    else:
        missing = [name for name in _NEEDED_MMA if name not in fields]
        what = PrintedMMA
    if not missing:
        return what(**fields), ""
    tiled = any(name in _TILED for name in fields)
    kind = f"{'Tiled' if tiled else ''}{'Copy' if what is PrintedCopy else 'MMA'}{'' if tiled else '_Atom'}"
    verb = "is" if len(missing) == 1 else "are"
    return None, f"of this {kind} {', '.join(_NAMES[name] for name in missing)} {verb} missing"
