"""What is allowed, and why: a comment at a line of the source, or an argument of the run.

``# cutepy: allow[unordered-read] the flag is read again after the barrier`` holds for the line that it ends, or, where
it has a line of its own, for the next line that is none. In PTX and in CUDA C++ it begins with ``//``. It covers a
hazard if one of the two operations, or a call through which it came to be, is on that line. So that a mistake can't
silence anything, one without a reason or of a kind that doesn't exist is an error, and one that covers nothing is told.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from cutepy.sim.sanitize.kinds import KINDS
from cutepy.sim.translate import linked

if TYPE_CHECKING:
    from cutepy.sim.machine.launch import Launch
    from cutepy.sim.sanitize.hazards import Hazard

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
        Where it is written, from 1.
    target : int
        The line that it holds for.
    """

    kinds: tuple[str, ...]
    reason: str
    file: str = ""
    line: int = 0
    target: int = 0

    def __str__(self) -> str:
        kinds = ", ".join(self.kinds)
        return f"allow[{kinds}] at {self.file}:{self.line}" if self.file else f"allow={{{kinds!r}: ...}}"

    @property
    def remedy(self) -> str:
        """How it is written, if it is right."""
        kinds = ", ".join(self.kinds)
        return f"allow[{kinds}] why it is harmless" if self.file else f"allow={{{kinds!r}: 'why it is harmless'}}"


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
    [Allowance(kinds=('unordered-read',), reason='only a hint', file='x.py', line=2, target=2)]
    """
    if "cutepy:" not in text:
        return []
    lines = text.splitlines()
    found = []
    for number, comment in _python_comments(text) if file.endswith(".py") else enumerate(lines, 1):
        match = _COMMENT.search(comment)
        if match is None:
            continue
        target = number
        if _ALONE.match(lines[number - 1]):
            while target < len(lines) and (_ALONE.match(lines[target - 1]) or not lines[target - 1].strip()):
                target += 1
        written = match["kinds"].strip().removeprefix("[").removesuffix("]")
        kinds = tuple(kind for part in written.split(",") if (kind := part.strip()))
        found.append(Allowance(kinds, match["reason"].strip(), file, number, target))
    return found


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of Python, and not what looks like one within a string."""
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
    """What is allowed in a run.

    Parameters
    ----------
    arguments : mapping of str to str, optional
        Kind -> why it is allowed everywhere.

    Raises
    ------
    AllowanceError
        If a kind does not exist, or has no reason.
    """

    def __init__(self, arguments: Mapping[str, str] | None = None) -> None:
        self._everywhere = [checked(Allowance((kind,), why.strip())) for kind, why in (arguments or {}).items()]
        self._at: dict[tuple[str, int], list[Allowance]] = {}
        self._read: set[tuple[str, str]] = set()
        self._used: set[Allowance] = set()

    def read(self, launch: Launch) -> None:
        """Read what the lines of a kernel allow.

        Raises
        ------
        AllowanceError
            If one of them can't be meant.
        """
        kernel = launch.ptx, launch.kernel
        if kernel in self._read:
            return
        self._read.add(kernel)
        instructions = linked(*kernel).function.instructions
        sources = {i.source for i in instructions if i.source is not None}
        lines = {(line.file, line.line) for source in sources for line in source.chain()}
        lines |= {(PTX, i.line) for i in instructions}
        written = [allowance for file in {file for file, _ in lines} for allowance in _in_file(file)]
        for allowance in (*written, *comments(launch.ptx, PTX)):
            target = allowance.file, allowance.target
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
                yield from self._at.get((PTX, i.line), ())
        yield from self._everywhere

    @property
    def unused(self) -> tuple[Allowance, ...]:
        """Those at lines of the kernels that ran, or of the whole run, which covered nothing."""
        every = [*(allowance for here in self._at.values() for allowance in here), *self._everywhere]
        return tuple(allowance for allowance in every if allowance not in self._used)
