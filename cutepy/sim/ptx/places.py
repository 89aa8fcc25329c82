"""Where in Python an instruction came from, in the order in which people look: their own lines, then libraries'."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cutepy.sim.ptx.model import Instruction, SourceLine

_ENDS = frozenset(("bra", "ret", "exit", "trap"))
"""What a block of instructions ends with."""


def lines(source: SourceLine | None) -> list[SourceLine]:
    """List a line and those that called it: callers before what they call, and the user's before any library's."""
    chain = [] if source is None else [*source.chain()][::-1]
    return sorted(chain, key=lambda line: is_of_a_library(line.file))


def described(source: SourceLine | None, separator: str = " ") -> str:
    """Say where an instruction came from, as "at mine.py:30 through library.py:10"; nothing if it isn't known."""
    words = itertools.chain(["at"], itertools.repeat("through"))
    return separator.join(f"{word} {line}" for word, line in zip(words, lines(source), strict=False))


def place(instruction: Instruction, separator: str = " ") -> str:
    """Say where an instruction is: in the source, or where that isn't known in the PTX; "" if that isn't either."""
    said = described(instruction.source, separator)
    return said or (f"at line {instruction.line} of the PTX" if instruction.line else "")


def placed(
    instructions: Sequence[tuple[str, SourceLine | None]], vague: Collection[SourceLine | None]
) -> list[SourceLine | None]:
    """Replace lines that say nothing: by the next one up to a branch, where results are used, or by the one before.

    Examples
    --------
    >>> from cutepy.sim.ptx.model import SourceLine
    >>> lines = [SourceLine("a.py", n) for n in range(10)]
    >>> body = [("fence", lines[4]), ("atom", lines[9]), ("st", lines[5]), ("bra", lines[9]), ("ret", lines[9])]
    >>> [line.line for line in placed(body, {lines[9]})]
    [4, 5, 5, 5, 5]
    """
    found, following = [source for _, source in instructions], None
    for n in reversed(range(len(found))):
        opcode, source = instructions[n]
        if source not in vague or opcode.partition(".")[0] in _ENDS:
            following = None if source in vague else source
        elif following is not None:
            found[n] = following
    for n in range(1, len(found)):
        if found[n] in vague:
            found[n] = found[n - 1]
    return found


@cache
def is_of_a_library(file: str) -> bool:
    """Tell whether a file is installed, or cutepy's, rather than the user's."""
    package = Path(__file__).parents[2]
    ours = {package, *((package / name).resolve() for name in ("layouts", "kernels"))}
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts) or any(
        PurePath(file).is_relative_to(folder) for folder in ours
    )
