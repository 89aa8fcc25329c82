"""The snapshots of texts: no entry without its test, and what `make messages` writes, keeps and removes."""

import ast
from pathlib import Path

import pytest

from tests import messages

FILES = sorted((messages.ROOT / "tests").rglob(messages.NAME))
A, B = "tests/room/test_a.py::test_one[x]", "tests/room/test_b.py::test_two"
MODULES = {"tests/room/test_a.py", "tests/room/test_b.py"}
BOTH = {"test_a.py::test_one[x]": ["one", "two\n\n  - of three lines"], "test_b.py::test_two": ["- b"]}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.parent.relative_to(messages.ROOT)))
def test_every_entry_is_of_a_test_that_is_there(file):
    for module in {test.partition("::")[0] for test in messages.read(file)}:
        tree = ast.parse((file.parent / module).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        entries = [test.partition("::")[2] for test in messages.read(file) if test.startswith(f"{module}::")]
        assert {entry.partition("[")[0].rpartition("::")[2] for entry in entries} <= functions, "make messages"


@pytest.fixture
def room(monkeypatch, tmp_path) -> Path:
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    folder = tmp_path / "tests" / "room"
    folder.mkdir(parents=True)
    for test in (A, B):
        (tmp_path / test.partition("::")[0]).touch()
    messages.rewrite({A: ["one", "two\n\n  - of three lines"], B: ["- b"]}, {A, B}, MODULES)
    messages.read.cache_clear()
    return folder


def texts(room):
    messages.read.cache_clear()
    return messages.read(room / messages.NAME)


def test_texts_are_read_as_they_were_written(room):
    assert texts(room) == BOTH


@pytest.mark.parametrize(
    ("told", "collected", "modules", "left"),
    [
        ({A: ["new"]}, {A, B}, MODULES, BOTH | {"test_a.py::test_one[x]": ["new"]}),
        ({A: ["new"]}, {A}, {"tests/room/test_a.py"}, BOTH | {"test_a.py::test_one[x]": ["new"]}),
        ({A: []}, {A, B}, MODULES, {"test_b.py::test_two": ["- b"]}),
        ({}, {A, B}, MODULES, BOTH),
        ({}, {B}, MODULES, {"test_b.py::test_two": ["- b"]}),
        ({B: ["- b"]}, {B}, set(), BOTH),
    ],
    ids=["a new text", "a module alone", "no text", "tests that failed", "a test that is gone", "a test alone"],
)
def test_texts_of_tests_that_did_not_run_are_kept(room, told, collected, modules, left):
    messages.rewrite(told, collected, modules)
    assert texts(room) == left


def test_texts_of_a_module_that_is_gone_are_removed(room):
    (room / "test_b.py").unlink()
    messages.rewrite({A: []}, {A}, MODULES)
    assert not (room / messages.NAME).exists()


def calls_a_helper():
    return refusing()


def refusing():
    with messages.refuses(ValueError):
        raise ValueError


def test_tests_that_pin_texts_are_known_by_their_code():
    assert messages._may_pin(calls_a_helper)
    assert not messages._may_pin(texts)
    assert not messages._may_pin(None)
