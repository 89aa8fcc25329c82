"""Judge of a reader's answer: it is parsed as the layout notation, never run."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cutepy.cli.tutorial.chapter import written
from cutepy.layouts import LayoutError, coalesce, parse, size
from cutepy.layouts.modes import LayoutBase

_TRUTHS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class Verdict(NamedTuple):
    """Judgement of an answer.

    Attributes
    ----------
    right : bool or None
        None if it could not be read, which is no try.
    remark : str
    """

    right: bool | None
    remark: str


def judge(given: str, answer: Any) -> Verdict:  # noqa: ANN401 - what a question's answer may be
    r"""Compare a reader's answer with the library's.

    A layout is right if it is the same function on integers, however it is written.

    Parameters
    ----------
    given : str
    answer : bool, int, str, tuple, layout or swizzle

    Examples
    --------
    >>> from cutepy.layouts import Layout
    >>> judge("0x10", 16).right, judge("16 bytes", 16).right, judge("17", 16).right
    (True, True, False)
    >>> judge("8:1", Layout((2, 4)))
    Verdict(right=True, remark='the same function; CuTe writes (2,4):(1,2)')
    >>> judge("(2,x)", (2, 3)).remark
    "expected an integer, '_', '(', '<' or a swizzle, got 'x' at character 3:\n  (2,x)\n     ^"
    """
    text = given.strip().strip("`'\"").strip()
    if isinstance(answer, bool):
        truth = _TRUTHS.get(text.casefold())
        return Verdict(None, "yes or no?") if truth is None else Verdict(truth is answer, "")
    if isinstance(answer, str):
        return Verdict(_plain(text) == _plain(answer), "")
    if isinstance(answer, int):
        try:
            return Verdict(int(text.split()[0], 0) == answer, "")
        except (ValueError, IndexError):
            return Verdict(None, "a number, decimal or 0x-hexadecimal?")
    try:
        value = parse(text)
    except LayoutError as error:
        return Verdict(None, str(error))
    if value == answer:
        return Verdict(True, "")
    if isinstance(value, LayoutBase) and isinstance(answer, LayoutBase) and _same_function(value, answer):
        return Verdict(True, f"the same function; CuTe writes {written(answer)}")
    return Verdict(False, "")


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _same_function(a: Any, b: Any) -> bool:  # noqa: ANN401 - layouts of any kind
    try:
        return bool(size(a) == size(b) and (coalesce(a) == coalesce(b) or all(a(i) == b(i) for i in range(size(a)))))
    except (LayoutError, TypeError):
        return False
