"""Printed linear layouts: a basis a line, as Triton's ``LinearLayout`` and cutepy's print themselves.

.. code-block:: text

     - register=1 -> (0, 1)
     - lane=1 -> (0, 2)
       lane=2 -> (1, 0)
     - warp is a size 1 dimension
    where out dims are: [dim0 (size 2), dim1 (size 4)]

The last line may lack: then the out-dimensions are dim0, dim1 ..., of the smallest sizes that hold the bases.
"""

from __future__ import annotations

import re

from ..errors import LayoutError, ParseError
from ..linear.layout import LinearLayout
from .printed_reader import MOST_ERRORS, Block
from .tokens import plain

_BEGINS = re.compile(r"[ \t]*-?[ \t]*(?P<name>\w+)(?:[ \t]*=[ \t]*[0-9]+[ \t]*->| is a size 1 dimension\b)")
_BASIS = re.compile(
    r"[ \t]*-?[ \t]*(?P<name>\w+)[ \t]*=[ \t]*(?P<bit>[0-9]+)[ \t]*->[ \t]*"
    r"\((?P<basis>(?:[ \t]*[0-9]+[ \t]*(?:,[ \t]*[0-9]+[ \t]*)*,?)?[ \t]*)\)[ \t\r]*$"
)
_SIZE_1 = re.compile(r"[ \t]*-?[ \t]*(?P<name>\w+) is a size 1 dimension[ \t\r]*$")
_OUTS = re.compile(r"[ \t]*where out dims are:[ \t]*\[(?P<outs>.*)\][ \t\r]*$")
_GOES_ON = re.compile(r"[ \t]*(?:-[ \t]|where\b|\w+[ \t]*=[ \t]*[0-9]*[ \t]*-)")
_OUT = re.compile(r"[ \t]*(?P<name>\w+)(?:[ \t]*\([ \t]*size[ \t]*(?P<size>[0-9]+)[ \t]*\))?[ \t]*")
_EMPTY = re.compile(r"\(empty layout(?: with out-dims \[(?P<outs>[^\]]*)\])?\)")


def linear_blocks(text: str) -> tuple[list[Block], list[ParseError]]:
    """Find the printed linear layouts in a text, with the errors of malformed ones.

    >>> blocks, errors = linear_blocks("- lane=1 -> (0, 2)")
    >>> blocks[0].value, errors
    (LinearLayout({'lane': [[0, 2]]}, {'dim0': 1, 'dim1': 4}), [])
    """
    blocks: list[Block] = []
    errors: list[ParseError] = []
    run: _Run | None = None
    position = 0
    for line in plain(text).splitlines(keepends=True):
        if len(errors) == MOST_ERRORS:
            break
        bare, start = line.rstrip("\r\n"), position
        position += len(line)
        try:
            if _BEGINS.match(bare):
                run = run or _Run(text, start + len(bare) - len(bare.lstrip()))
                run.add(bare, start)
                continue
            if outs := _OUTS.match(bare):
                if run is None:
                    at = start + len(bare) - len(bare.lstrip())
                    raise ParseError(text, at, "no basis, as `lane=1 -> (0, 1)`, stands before the out-dimensions")
                run.outs = _out_dims(text, start + outs.start("outs"), outs["outs"])
                run.end = start + len(bare.rstrip())
            elif run is not None and _GOES_ON.match(bare):
                at = start + len(bare) - len(bare.lstrip())
                raise ParseError(text, at, f"need a line as `lane=1 -> (0, 1)`, got {bare.strip()!r}")
            for empty in _EMPTY.finditer(bare):
                at = start + empty.start()
                value = LinearLayout({}, _out_dims(text, start + empty.start("outs"), empty["outs"] or ""))
                blocks.append(_block(value, at, at + len(empty.group())))
            if run is not None:
                blocks.append(run.block())
        except ParseError as error:
            errors.append(error)
        run = None
    if run is not None:
        try:
            blocks.append(run.block())
        except ParseError as error:
            errors.append(error)
    return blocks, errors


def _block(value: LinearLayout, start: int, end: int) -> Block:
    return Block(value, start, end, ((start, end),))


class _Run:
    """Lines of one layout."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.start, self.end = text, start, start
        self.bases: dict[str, list[tuple[int, ...]]] = {}
        self.outs: dict[str, int] | list[str] | None = None

    def add(self, line: str, start: int) -> None:
        """Add a line, a basis or a dimension of size 1."""
        at = start + len(line) - len(line.lstrip())
        if match := _SIZE_1.match(line):
            if match["name"] in self.bases:
                raise ParseError(self.text, at, f"{match['name']} has bases, or was told before")
            self.bases[match["name"]] = []
        elif match := _BASIS.match(line):
            name = match["name"]
            last = next(reversed(self.bases), None)
            if name in self.bases and (name != last or not self.bases[name]):
                raise ParseError(self.text, start + match.start("name"), f"{name} was told before")
            of_dim = self.bases.setdefault(name, [])
            if int(match["bit"]) != 1 << len(of_dim):
                needed = f"need {name}={1 << len(of_dim)}, got {name}={match['bit']}"
                raise ParseError(self.text, start + match.start("bit"), needed)
            of_dim.append(tuple(map(int, re.findall(r"\d+", match["basis"]))))
        else:
            raise ParseError(self.text, at, f"need a line as `lane=1 -> (0, 1)`, got {line.strip()!r}")
        self.end = start + len(line.rstrip())

    def block(self) -> Block:
        """Return the layout of the lines taken."""
        outs = self.outs
        if outs is None:
            ranks = {len(basis) for of_dim in self.bases.values() for basis in of_dim}
            if len(ranks) != 1:
                found = f"have {' and '.join(map(str, sorted(ranks)))}" if ranks else "are none"
                needed = f"need bases of one rank, these {found}; or a last line, `where out dims are: [...]`"
                raise ParseError(self.text, self.start, needed)
            outs = [f"dim{i}" for i in range(ranks.pop())]
        try:
            return _block(LinearLayout(self.bases, outs), self.start, self.end)
        except LayoutError as error:
            raise ParseError(self.text, self.start, error.condition) from error


def _out_dims(text: str, start: int, outs: str) -> dict[str, int] | list[str]:
    """Read ``dim0 (size 2), dim1 (size 4)``: names with sizes, all or none."""
    if not outs.strip():
        return {}
    found: dict[str, str | None] = {}
    for part in outs.split(","):
        match = _OUT.fullmatch(part)
        if match is None or match["name"] in found:
            raise ParseError(
                text, start, f"need an out-dimension, each once, as `dim0 (size 16)`, got {part.strip()!r}"
            )
        found[match["name"]] = match["size"]
        start += len(part) + 1
    sized = {name: int(size) for name, size in found.items() if size is not None}
    if sized and len(sized) < len(found):
        raise ParseError(text, start - 1, "need sizes of all out-dimensions, or of none")
    return sized or list(found)
