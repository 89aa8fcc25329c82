"""Lines of Python that an instruction came from: the user's line, the lines that called it, and a library's line."""

from __future__ import annotations

import itertools
import os
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cutepy.sim.ptx.model import Instruction, SourceLine

_ENDS = frozenset(("bra", "ret", "exit", "trap"))
"""Opcodes that end a block of instructions."""


def user_lines(source: SourceLine | None) -> tuple[SourceLine, ...]:
    """List the lines that are the user's, innermost first: the line that a mistake is at, and those that called it.

    They are all lines of the lowest `distance` in the chain. A block of `cutepy.device` calls workers of the user, and
    is called by the user's kernel: its own lines are left out.
    """
    chain = () if source is None else tuple(source.chain())
    nearest = min((distance(line.file) for line in chain), default=0)
    return tuple(line for line in chain if distance(line.file) == nearest)


def lines(source: SourceLine | None) -> list[SourceLine]:
    """List the user's line, and the line of a library that it leads to, if any."""
    return [] if source is None else [*dict.fromkeys((user_lines(source)[0], source))]


def described(source: SourceLine | None, separator: str = " ", name: Callable[[SourceLine], str] = str) -> str:
    """Describe the source lines of an instruction, each by `name`; empty if none is known.

    Examples
    --------
    >>> from cutepy.sim.ptx.model import SourceLine
    >>> described(SourceLine("mine.py", 30, SourceLine("mine.py", 50)))
    'at mine.py:30 called at mine.py:50'
    >>> described(SourceLine(__file__, 10, SourceLine("mine.py", 30))).rpartition(" through ")[0]
    'at mine.py:30'
    """
    words = itertools.chain(["at"], itertools.repeat("called at"))
    said = [f"{word} {name(line)}" for word, line in zip(words, user_lines(source), strict=False)]
    return separator.join([*said, *(f"through {name(line)}" for line in lines(source)[1:])])


def place(instruction: Instruction, separator: str = " ", name: Callable[[SourceLine], str] = str) -> str:
    """Return the place of an instruction: its source line, else its line of PTX, else ""."""
    said = described(instruction.source, separator, name)
    if said or not instruction.line:
        return said
    if instruction.file:
        return f"at {instruction.file}:{instruction.line}:{instruction.column}"
    return f"at line {instruction.line} of the PTX" + (f", column {instruction.column}" if instruction.column else "")


def line_of(instruction: Instruction) -> str:
    """Name the user's line of an instruction, or its line of the PTX."""
    named = user_lines(instruction.source)
    return str(named[0]) if named else f"line {instruction.line} of the PTX"


def shortened(file: str) -> str:
    """Return the path of a file from the working directory, if it is in there.

    Examples
    --------
    >>> shortened("/nowhere/kernel.py")
    '/nowhere/kernel.py'
    """
    path = PurePath(file)
    here = PurePath(os.getcwd())  # noqa: PTH109  a PurePath, of which the file's is a part or not
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else file


def relative(line: SourceLine) -> str:
    """Name a line by the path of its file from the working directory, if it is in there."""
    return f"{shortened(line.file)}:{line.line}"


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
def distance(file: str) -> int:
    """Tell how far a file is from the user.

    A file of the user's is at 0, a kernel that is installed, such as cutepy's, at 1, and what kernels are made of, the
    DSL and the rest of cutepy, at 2.

    Examples
    --------
    >>> [distance(file) for file in ("mine.py", "lib/site-packages/quack/copy.py", __file__)]
    [0, 1, 2]
    """
    path, package = PurePath(file), Path(__file__).parents[2]
    if _is_in(path, package, "kernels"):
        return 1
    if _is_in(path, package, "") or _is_in(path, package, "layouts"):
        return 2
    installed = [n for n, part in enumerate(path.parts) if part in ("site-packages", "dist-packages")]
    if not installed:
        return 0
    return 2 if path.parts[installed[-1] + 1 : installed[-1] + 2] and path.parts[installed[-1] + 1] in _DSL else 1


_DSL = ("nvidia_cutlass_dsl", "cutlass", "triton")


def _is_in(path: PurePath, package: Path, folder: str) -> bool:
    """Return whether a file is in a folder of cutepy, which may be a symbolic link."""
    return any(path.is_relative_to(one) for one in {package / folder, (package / folder).resolve()})


@cache
def is_of_a_library(file: str) -> bool:
    """Return whether a file is installed, or cutepy's, rather than the user's."""
    return distance(file) > 0
