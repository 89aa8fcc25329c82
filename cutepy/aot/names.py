"""What names and texts a description may hold, so that what is written from them is Python, C and C++."""

from __future__ import annotations

import keyword
import re

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Words that names can't be in what is written: C's and C++'s, and those of its own functions.
_RESERVED = frozenset(
    "alignas alignof asm auto bool break case catch char class const constexpr continue decltype default delete do "
    "double else enum explicit export extern false float for friend goto if inline int long mutable namespace new "
    "noexcept nullptr operator private protected public register return short signed sizeof static struct switch "
    "template this throw true try typedef typeid typename union unsigned using virtual void volatile while "
    "inputs names numbers results stream sm_count tensors".split()
)


class SpecError(ValueError):
    """A description of what to export that makes no sense."""


def check_identifier(what: str, name: str) -> None:
    """Refuse what can't be a name in what is written."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in _RESERVED:
        raise SpecError(f"{what} must be an identifier in Python and C++, and none of ours, got {name!r}")


def check_line(what: str, text: str) -> None:
    """Refuse what would end a string or a comment in what is written."""
    if any(part in text for part in ('"', "\\", "\n", "*/")):
        raise SpecError(f"{what} must be one line without double quotes, backslashes and */, got {text!r}")
