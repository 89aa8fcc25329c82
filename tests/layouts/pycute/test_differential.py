"""pycute and cutepy.layouts on the same calls: every disagreement is of a class that docs/pycute.md lists."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cutepy import layouts
from cutepy.layouts import Layout, LayoutError, to_text

from .differential import CLASSES, PYCUTE_ERRORS, Call, Disagreement, classify, compare, draw_calls, of_module

PAGE = (Path(__file__).parents[3] / "docs" / "pycute.md").read_text()
ROW = re.compile(r"^\| (?:\*\*(.+)\*\* )?\| `(.+?)` \| (\S+) \| (\S+) \|$", re.MULTILINE)
RULES = re.findall(r"^- \*\*(.+)\*\*: ", PAGE, re.MULTILINE)


def examples() -> list[tuple[str, str, str, str]]:
    """List (class, call, pycute's result, our result) by row; "error" stands for an exception."""
    listed, current = [], ""
    for name, call, theirs, ours in ROW.findall(PAGE):
        current = name or current
        listed.append((current, call, theirs.strip("`"), ours.strip("`")))
    return listed


EXAMPLES = examples()

needs_pycute = pytest.mark.skipif(
    importlib.util.find_spec("pycute") is None,
    reason="needs pycute: pip install --no-deps nvidia-cutlass==4.2.0.0",
)


def outcome(call: str, module: ModuleType, errors: type[Exception] | tuple[type[Exception], ...]) -> str:
    try:
        result: Any = eval(call, vars(module).copy())
    except errors:
        return "error"
    return to_text(of_module(result, layouts))


def check_disagreements(each: int, seed: int) -> None:
    import pycute

    found = [d for call in draw_calls(seed, each) if (d := compare(call, pycute)) is not None]
    unexplained = [str(d) for d in found if classify(d) is None]
    assert not unexplained, "\n".join(unexplained[:20])
    assert set(Counter(map(classify, found))) == set(CLASSES), "a class of the page no longer occurs"


@needs_pycute
def test_every_disagreement_is_of_a_listed_class() -> None:
    check_disagreements(each=400, seed=0)


@needs_pycute
@pytest.mark.deep
def test_every_disagreement_is_of_a_listed_class_deep() -> None:
    check_disagreements(each=20_000, seed=1)


def test_the_page_lists_the_classes() -> None:
    assert sorted(RULES) == sorted(CLASSES)
    assert {name for name, *_ in EXAMPLES} == set(CLASSES)


@pytest.mark.parametrize(("name", "call", "theirs", "ours"), EXAMPLES, ids=[call for _, call, *_ in EXAMPLES])
def test_examples_of_the_page(name: str, call: str, theirs: str, ours: str) -> None:
    assert outcome(call, layouts, LayoutError) == ours


@needs_pycute
@pytest.mark.parametrize(("name", "call", "theirs", "ours"), EXAMPLES, ids=[call for _, call, *_ in EXAMPLES])
def test_examples_of_the_page_in_pycute(name: str, call: str, theirs: str, ours: str) -> None:
    import pycute

    assert outcome(call, pycute, PYCUTE_ERRORS) == theirs


@pytest.mark.parametrize(
    ("function", "operands", "pycute", "cutepy"),
    [
        ("coalesce", (Layout((2, 2)),), "4:1", "4:2"),
        ("composition", (Layout((4, 1), (1, 7)), Layout(8)), "8:1", "(4,2):(1,8)"),
        ("right_inverse", (Layout((4, 3), (1, 0)),), "1:0", "4:2"),
        ("left_inverse", (Layout(4, 2),), "(2,4):(4,1)", "(2,4):(0,2)"),
        ("idx2crd", ((1, 1), (4, 2)), "(1,0)", "(1,2)"),
        ("idx2crd", (3, (4, 2), (2, 1)), "(1,1)", "(1,0)"),
        ("logical_divide", (Layout((8, 2)), Layout(4)), "(4,4):(1,4)", "(4,4):(1,8)"),
        ("cosize", (Layout(8),), "8", "9"),
        ("size", (Layout(1),), "1", "2"),
    ],
)
def test_a_disagreement_of_another_kind_has_no_class(
    function: str, operands: tuple[Any, ...], pycute: str, cutepy: str
) -> None:
    assert classify(Disagreement(Call(function, operands), pycute, cutepy)) is None
