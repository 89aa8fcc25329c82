"""The table of advice: each row is used and renders, and no check writes advice of its own."""

import ast
import pickle
from pathlib import Path

import pytest

import cutepy.sim
from cutepy.sim.advice import CASES, Diagnosis, fields_of
from cutepy.sim.sanitize.kinds import KINDS
from tests.messages import refuses

SOURCES = sorted(Path(cutepy.sim.__file__).parent.rglob("*.py"))
OTHER = Diagnosis("mmas-may-be-reading")
"""A diagnosis for a field that takes its problem or its wanted order."""


def calls(source):
    """Yield the calls of `Diagnosis` in a source, other than that of a kind, whose case has its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Diagnosis":
            if ast.unparse(node) != "Diagnosis(self.name)":
                yield node


def cases_of(call):
    """Return the cases that a call may name, which are literal."""
    (first,) = call.args
    choices, waiting = [], [first]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.IfExp):
            waiting += [one.body, one.orelse]
        else:
            assert isinstance(one, ast.Constant), f"no literal case: {ast.unparse(call)}"
            choices.append(one.value)
    return choices


def check(source):
    """Return the cases that a source names, whose calls give the fields of these, and no text of their own."""
    named = []
    for call in calls(source):
        for case in cases_of(call):
            assert fields_of(case) == {keyword.arg for keyword in call.keywords}, ast.unparse(call)
            named.append(case)
        for value in (node for keyword in call.keywords for node in ast.walk(keyword.value)):
            is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
            assert not (is_text and " " in value.value), f"words outside the table: {ast.unparse(call)}"
    return named


def test_each_row_is_used():
    named = {path: {*check(path.read_text(encoding="utf-8"))} for path in SOURCES}
    assert set().union(*named.values(), KINDS) == {*CASES}
    assert not [path for path, cases in named.items() if "sanitize" in path.parts and cases & {*KINDS}], (
        "take KINDS[name].diagnosis"
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("Diagnosis('the copy may not be complete')", KeyError),
        ("Diagnosis(case)", AssertionError),
        ("Diagnosis('other-swizzle', read=1)", AssertionError),
        ("Diagnosis('simulator-error', message=f'{n} bytes are missing', fix=fix)", AssertionError),
        ("Diagnosis('wrong', 'wanted')", ValueError),
    ],
)
def test_the_check_of_calls_fails(source, error):
    with pytest.raises(error):
        check(source)


@pytest.mark.parametrize("case", CASES)
def test_each_row_renders(case):
    row, fields = CASES[case], fields_of(case)
    takes_other = {name for name in fields if f"{{{name}.w" in row.wrong + row.wanted}
    given = {name: OTHER if name in takes_other else f"<{name}>" for name in fields}
    found = Diagnosis(case, **given)
    assert str(found)
    for text in (found.wrong, found.wanted):
        assert text == " ".join(text.split())
        assert not text.endswith(".")
        assert not {"{", "}"} & {*text}
    shown = str(found)
    assert all(f"<{name}>" in shown for name in fields - takes_other)
    assert str(pickle.loads(pickle.dumps(found))) == shown
    assert eval(repr(found), {"Diagnosis": Diagnosis}) == found
    assert found.read_first == row.read_first
    if row.unknown:
        assert row.unknown in str(Diagnosis(case, **dict.fromkeys(fields)))


def test_equality_is_of_case_and_values():
    one = Diagnosis("other-swizzle", written="SW128", read="SW64")
    same = Diagnosis("other-swizzle", read="SW64", written="SW128")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Diagnosis("other-swizzle", written="SW128", read="SW32")
    assert Diagnosis("copy-may-be-in-flight") != Diagnosis("cp-async-may-be-in-flight")


def test_a_diagnosis_keeps_that_the_read_came_first():
    first = Diagnosis("read-first", otherwise=OTHER)
    assert Diagnosis("race-both-ways", race=first).read_first
    assert not Diagnosis("race-both-ways", race=OTHER).read_first


@pytest.mark.parametrize(
    ("case", "values"),
    [("no-such-case", {}), ("relaxed-wait", {}), ("relaxed-wait", {"at": 1})],
)
def test_unknown_cases_and_fields_are_refused(case, values):
    with refuses(TypeError):
        Diagnosis(case, **values)
