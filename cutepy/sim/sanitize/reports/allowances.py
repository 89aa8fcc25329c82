"""Allowances: hazards permitted by a comment at a line of the source, or by an argument of the run.

``# cutepy: allow[unordered-read] the flag is read again after the barrier`` holds for the statement that it is in, or,
where it has a line of its own between two, for the one that follows: for all its lines, of a function or a loop with
its body. In PTX and in CUDA C++ it begins with ``//``. It covers a hazard if one of the two operations, or a
call through which it came to be, is on one of these lines. So that a mistake can't silence anything, one without a
reason or of a kind that doesn't exist is an error, and one that covers nothing is told.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from cutepy.sim.machine.launch import Launch
from cutepy.sim.sanitize.hazards import Hazard
from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.sanitize.reports.excerpts import statements_of
from cutepy.sim.translate import Kernel

_COMMENT = re.compile(r"(?:#|//)\s*cutepy:\s*allow\b(?P<kinds>[^\]\n]*\]?)(?P<reason>.*)")
_ALONE = re.compile(r"\s*(?:#|//)")


class AllowanceError(ValueError):
    """Something is allowed without a reason, or is of no kind that there is."""


@dataclass(frozen=True)
class Allowance:
    """Kinds of hazards that are allowed.

    Attributes
    ----------
    kinds : tuple of str
    reason : str
    file : str
        The file of the source, "the PTX", or "" for an argument, which holds everywhere.
    line : int
        Line of the comment, from 1.
    lines : range
        Those that it holds for.
    """

    kinds: tuple[str, ...]
    reason: str
    file: str = ""
    line: int = 0
    lines: range = range(0)

    def __str__(self) -> str:
        kinds = ", ".join(self.kinds)
        return f"allow[{kinds}] at {self.file}:{self.line}" if self.file else f"allow={{{kinds!r}: ...}}"

    @property
    def remedy(self) -> str:
        """Correct spelling of the allowance."""
        kinds = ", ".join(self.kinds)
        return f"allow[{kinds}] why it is harmless" if self.file else f"allow={{{kinds!r}: 'why it is harmless'}}"


def _of_arguments(given: Mapping[str, str]) -> list[Allowance]:
    """Return the allowances in the arguments of a run."""
    wanted = "allow must be a mapping of kinds to reasons, such as {'unordered-read': 'why it is harmless'}"
    if not isinstance(given, Mapping):
        raise TypeError(f"{wanted}, got {given!r}")
    for kind, why in given.items():
        if not (isinstance(kind, str) and isinstance(why, str)):
            raise TypeError(f"{wanted}, got {kind!r}: {why!r}")
    return [checked(Allowance((kind,), why.strip())) for kind, why in given.items()]


PTX = "the PTX"
_EVERY = f"they are {', '.join(KINDS)}"


def checked(allowance: Allowance) -> Allowance:
    """Return an allowance as it is, if it can be meant.

    Raises
    ------
    AllowanceError
    """
    if not allowance.kinds:
        raise AllowanceError(f"{allowance} must name kinds of hazards, got none: {_EVERY}")
    for unknown in (kind for kind in allowance.kinds if kind not in KINDS):
        meant = get_close_matches(unknown, KINDS, 1)
        raise AllowanceError(
            f"{allowance} must name kinds of hazards, got {unknown!r}: {f'write {meant[0]}' if meant else _EVERY}"
        )
    if not allowance.reason:
        raise AllowanceError(f"{allowance} must have a reason, got none: write {allowance.remedy}")
    return allowance


def comments(text: str, file: str) -> list[Allowance]:
    r"""List the allowances in a source, not yet checked.

    Examples
    --------
    >>> comments("a()\nb()  # cutepy: allow[unordered-read] only a hint\n", "x.py")
    [Allowance(kinds=('unordered-read',), reason='only a hint', file='x.py', line=2, lines=range(2, 3))]
    """
    if "cutepy:" not in text:
        return []
    is_python = file.endswith(".py")
    # As tokenize and the parsers count lines: str.splitlines() also ends them at form feeds and the like.
    lines = text.split("\n")
    written = _python_comments(text) if is_python else enumerate(lines, 1)
    matches = [(number, match) for number, comment in written if (match := _COMMENT.search(comment))]
    statements = [] if not matches else _of_python(text) if is_python else _of_c(lines)
    found = []
    for number, match in matches:
        kinds = match["kinds"].strip().removeprefix("[").removesuffix("]")
        named = tuple(kind for part in kinds.split(",") if (kind := part.strip()))
        is_alone = _ALONE.match(lines[number - 1]) is not None
        found.append(Allowance(named, match["reason"].strip(), file, number, _lines(number, is_alone, statements)))
    return found


@dataclass(frozen=True)
class _Statement:
    """Lines of a statement.

    Attributes
    ----------
    lines : range
        All of its lines: of a function its decorators and its body too.
    own : range
        Those without others in it: of a function its decorators, its name and its parameters.
    """

    lines: range
    own: range


def _lines(number: int, is_alone: bool, statements: Sequence[_Statement]) -> range:
    """Return the lines that a comment holds for, which is in a line, alone or behind something."""
    around = [s for s in statements if number in (s.own if is_alone else s.lines)]
    if around:
        return min(around, key=lambda s: len(s.lines)).lines
    following = [s for s in statements if s.lines.start > number] if is_alone else []
    if not following:
        return range(number, number + 1)
    return min(following, key=lambda s: (s.lines.start, -len(s.lines))).lines


def _of_python(text: str) -> list[_Statement]:
    found = []
    for statement in statements_of(text):
        first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
        last = statement.end_lineno or statement.lineno
        has_others = hasattr(statement, "body") or hasattr(statement, "cases")
        parts = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, _WITH_OTHERS)]
        ends = [node.end_lineno or 0 for part in parts for node in ast.walk(part) if isinstance(node, _PLACED)]
        own = max([statement.lineno, *ends]) if has_others else last
        found.append(_Statement(range(first, last + 1), range(first, own + 1)))
    return found


_WITH_OTHERS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_PLACED = (ast.expr, ast.arg)


def _of_c(lines: Sequence[str]) -> list[_Statement]:
    """Part PTX or C++ into statements, as far as lines tell: each ends with one that ends with a semicolon or so."""
    found, first = [], 0
    for number, line in enumerate(lines, 1):
        code = line.partition("//")[0].strip()
        if not code or code.startswith((".loc", ".file")):
            continue
        first = first or number
        if code.endswith((";", ":", "{", "}")) or (code.startswith((".", "#")) and not code.endswith((",", "(", "\\"))):
            lines_of_it = range(first, number + 1)
            found.append(_Statement(lines_of_it, lines_of_it))
            first = 0
    return found


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of Python, without their like inside of strings."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return


def _in_file(file: str) -> list[Allowance]:
    try:
        return comments(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError):
        return []


class Allowances:
    """Allowances of a run.

    Parameters
    ----------
    arguments : mapping of str to str, optional
        Kind -> why it is allowed everywhere.

    Raises
    ------
    AllowanceError
        If a kind does not exist, or has no reason.
    TypeError
        If they are no mapping of texts to texts.
    """

    def __init__(self, arguments: Mapping[str, str] | None = None) -> None:
        self._everywhere = _of_arguments({} if arguments is None else arguments)
        self._at: dict[tuple[str, int], list[Allowance]] = {}  # by the file or the PTX itself, and the line
        self._read: set[Kernel] = set()
        self._used: set[Allowance] = set()

    def read(self, launch: Launch) -> None:
        """Read the allowances in the lines of a kernel.

        Raises
        ------
        AllowanceError
            If one of them can't be meant.
        """
        if launch.entry in self._read:
            return
        self._read.add(launch.entry)
        instructions = launch.entry.instructions
        sources = {i.source for i in instructions if i.source is not None}
        lines = {(line.file, line.line) for source in sources for line in source.chain()}
        lines |= {(launch.ptx, i.line) for i in instructions}
        files = {line.file for source in sources for line in source.chain()}
        written = [(file, allowance) for file in files for allowance in _in_file(file)]
        written += [(launch.ptx, allowance) for allowance in comments(launch.ptx, launch.ptx_file or PTX)]
        for text, allowance in written:
            for number in allowance.lines:
                target = text, number
                if target in lines and allowance not in self._at.get(target, ()):
                    self._at.setdefault(target, []).append(checked(allowance))

    def applied(self, hazard: Hazard) -> Hazard:
        """Return a hazard with the reason why it is allowed, or as it is."""
        for allowance in self._covering(hazard):
            if hazard.kind in allowance.kinds:
                self._used.add(allowance)
                where = f"{allowance.file}:{allowance.line}" if allowance.file else ""
                return replace(hazard, allowed=allowance.reason, allowed_at=where)
        return hazard

    def _covering(self, hazard: Hazard) -> Iterator[Allowance]:
        for side in hazard.sides:
            i = side.instruction
            if i is not None:
                for line in () if i.source is None else i.source.chain():
                    yield from self._at.get((line.file, line.line), ())
                yield from self._at.get((side.ptx, i.line), ())
        yield from self._everywhere

    @property
    def unused(self) -> tuple[Allowance, ...]:
        """Allowances that covered no hazard, at lines of kernels that ran or of the whole run."""
        every = dict.fromkeys([*(allowance for here in self._at.values() for allowance in here), *self._everywhere])
        return tuple(allowance for allowance in every if allowance not in self._used)
