"""Files that a compiler's options name, such as a library of bitcode to link: what is in them is compiled in."""

from __future__ import annotations

import hashlib
import re
import shlex
from itertools import combinations
from pathlib import Path

_BETWEEN = re.compile(r"[\s=,;:'\"]+|$")


def named_files(options: str) -> list[tuple[str, str]]:
    """Digest the files that exist of those that options name: options -> (path as named, SHA-256), sorted.

    Any text between separators may be a path, such as both paths of `--option=a.bc,b.bc`; a path may hold separators.

    Parameters
    ----------
    options : str
        As a command line: `--option=path`, `--option path`, lists with commas, and quotes.

    Raises
    ------
    OSError
        If one of the files can't be read.

    Examples
    --------
    >>> named_files("--opt-level 3")
    []
    """
    try:
        words = shlex.split(options)
    except ValueError:  # a quote without its other: the compiler says so
        words = options.split()
    texts = {text for word in words for text in _between_separators(word)}
    return [(text, hashlib.sha256(Path(text).read_bytes()).hexdigest()) for text in sorted(texts) if _is_file(text)]


def _between_separators(word: str) -> set[str]:
    """Give the parts of a word, and all runs of neighbouring parts: a path may hold what elsewhere separates."""
    separators = [(0, 0), *(match.span() for match in _BETWEEN.finditer(word))]
    return {word[left[1] : right[0]] for left, right in combinations(separators, 2)}


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null
        return False
