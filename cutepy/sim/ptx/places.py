"""Where in Python an instruction came from, in the order in which people look: their own lines, then libraries'."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import SourceLine


def lines(source: SourceLine | None) -> list[SourceLine]:
    """List a line and those that called it: callers before what they call, and the user's before any library's."""
    chain = [] if source is None else [*source.chain()][::-1]
    return sorted(chain, key=lambda line: is_of_a_library(line.file))


def described(source: SourceLine | None, separator: str = " ") -> str:
    """Say where an instruction came from, as "at mine.py:30 through library.py:10"; nothing if it isn't known."""
    words = itertools.chain(["at"], itertools.repeat("through"))
    return separator.join(f"{word} {line}" for word, line in zip(words, lines(source), strict=False))


@cache
def is_of_a_library(file: str) -> bool:
    """Tell whether a file is installed, or cutepy's, rather than the user's."""
    package = Path(__file__).parents[2]
    ours = {package, *((package / name).resolve() for name in ("layouts", "kernels"))}
    return not {"site-packages", "dist-packages"}.isdisjoint(PurePath(file).parts) or any(
        PurePath(file).is_relative_to(folder) for folder in ours
    )
