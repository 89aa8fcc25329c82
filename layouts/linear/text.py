"""Reading linear layouts as they are printed by Triton, Gluon, and cutepy."""

from __future__ import annotations

import re

from ..errors import LayoutError
from .layout import LinearLayout

_DIM = re.compile(r"[-\s]*(?P<name>\w+) is a size 1 dimension\s*$")
_BASIS = re.compile(r"[-\s]*(?P<name>\w+)\s*=\s*(?P<bit>\d+)\s*->\s*\((?P<basis>[\d,\s]*)\)\s*$")
_EMPTY = re.compile(r"\s*\(empty layout(?: with out-dims \[(?P<outs>.*)\])?\)\s*$")
_OUT = re.compile(r"(?P<name>\w+)(?:\s*\(size\s*(?P<size>\d+)\))?")
_NAMED = re.compile(r"""["']?(?P<name>\w+)["']?\s*[=:]\s*(?P<bases>\[\s*(?:\[[\d,\s]*\]\s*,?\s*)*\])""")
_SIZED = re.compile(r"""["'](?P<name>\w+)["']\s*:\s*(?P<size>\d+)""")
_SHAPE = re.compile(r"shape\s*=\s*[\[(](?P<sizes>[\d,\s]*)[\])]")


def parse_linear(text: str) -> LinearLayout:
    """Read a linear layout in any form in which it is printed.

    Read are what Triton and ``str`` print (``- register=1 -> (0, 1)`` ... ``where out dims are: [...]``), Triton's
    attribute ``#ttg.linear<{register = [[0, 1]], lane = ...}>``, Gluon's ``DistributedLinearLayout(reg_bases=...,
    shape=...)``, and ``repr``'s dictionaries. Where out-dimensions are not named they are dim0, dim1 ...; where they
    have no sizes, the smallest that hold the bases.

    Raises
    ------
    LayoutError
        If the text is none of these.

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
    """
    if match := _EMPTY.match(text):
        return LinearLayout({}, _outs(match["outs"] or ""))
    return _of_lists(text) if "[[" in text or "[]" in text.partition("where")[0] else _of_lines(text)


def _of_lines(text: str) -> LinearLayout:
    """Read a basis a line, and the out-dimensions on the last."""
    body, found, tail = text.partition("where out dims are:")
    if not found:
        raise _unread(text, "need a last line, `where out dims are: [...]`, or lists of bases, as `lane = [[0, 1]]`")
    bases: dict[str, list[tuple[int, ...]]] = {}
    for line in filter(str.strip, body.splitlines()):
        if match := _DIM.match(line):
            bases.setdefault(match["name"], [])
        elif match := _BASIS.match(line):
            of_dim = bases.setdefault(match["name"], [])
            if int(match["bit"]) != 1 << len(of_dim):
                raise _unread(text, f"need {match['name']}={1 << len(of_dim)}, got {line.strip()!r}")
            of_dim.append(_integers(match["basis"]))
        else:
            raise _unread(text, f"need a line as `lane=1 -> (0, 1)`, got {line.strip()!r}")
    return LinearLayout(bases, _outs(tail))


def _outs(text: str) -> dict[str, int] | list[str]:
    """Read the out-dimensions, with their sizes if all have one."""
    outs = {match["name"]: match["size"] for match in _OUT.finditer(text)}
    return {name: int(size) for name, size in outs.items()} if all(outs.values()) else list(outs)


def _of_lists(text: str) -> LinearLayout:
    """Read ``name = [[...], ...]`` for each in-dimension."""
    bases = {}
    for match in _NAMED.finditer(text):
        name = {"reg_bases": "register"}.get(match["name"], match["name"].removesuffix("_bases"))
        bases[name] = [_integers(basis) for basis in re.findall(r"\[([\d,\s]*)\]", match["bases"][1:-1])]
    sizes = {match["name"]: int(match["size"]) for match in _SIZED.finditer(text)}
    if shape := _SHAPE.search(text):
        sizes = {f"dim{i}": size for i, size in enumerate(_integers(shape["sizes"]))}
    ranks = {len(basis) for of_dim in bases.values() for basis in of_dim}
    if not bases or (not sizes and len(ranks) != 1):
        raise _unread(text, "need bases, as `register = [[0, 1]], lane = [[1, 0]]`, all of one rank")
    return LinearLayout(bases, sizes or [f"dim{i}" for i in range(ranks.pop())])


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _unread(text: str, condition: str) -> LayoutError:
    return LayoutError("parse_linear", (text.strip()[:60],), condition)
