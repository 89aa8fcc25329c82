"""The list of the DSL's undocumented names is that of the source, and the installed version has them."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from cutepy.dsl.private_names import PRIVATE_NAMES
from cutepy.dsl.version import require

OF_OTHERS = {"_fields", "_getframe"}  # Python's
MODULES = [row for row in PRIVATE_NAMES if row.where.startswith("cutlass")]


@cache
def texts():
    """Read each file of ours."""
    root = Path(__file__).parents[2]
    return {path: path.read_text() for room in ("cutepy", "layouts", "kernels") for path in (root / room).rglob("*.py")}


@cache
def sources():
    """Parse the files that name the DSL's modules, and those of its room."""
    return {path: ast.parse(text) for path, text in texts().items() if "cutlass" in text or path.parent.name == "dsl"}


def is_private(path):
    """Tell whether the DSL means a dotted name for itself."""
    return "._" in f".{path}" or path.startswith(("cutlass.base_dsl", "cutlass.cutlass_dsl"))


def required():
    """Give the (module, name)s of the DSL that `require` is asked for anywhere."""
    for tree in sources().values():
        constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require":
                given = [constants.get(a.id) if isinstance(a, ast.Name) else a for a in node.args]
                texts = [argument.value for argument in given if isinstance(argument, ast.Constant)]
                yield from ((texts[0], name) for name in texts[1:] if texts[0].startswith("cutlass"))


def imported():
    """Give the DSL's modules that are imported anywhere, and what is imported from them."""
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name.startswith("cutlass"))
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cutlass"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def foreign(tree):
    """Give the names with a leading underscore that a module mentions and doesn't define."""
    defined, mentioned = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                defined.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                defined.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                defined.add(name)
            case ast.Attribute(attr=name):
                mentioned.add(name)
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "require" | "replaced" | "_set" | "_wrap"), args=arguments
            ):
                texts = [a.value for a in arguments if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                mentioned.update(part for text in texts for part in text.split("."))
    return {name for name in mentioned - defined if re.fullmatch(r"_[a-zA-Z]\w+", name)}


def test_the_list_is_what_the_source_asks_for():
    listed = {(row.where, name) for row in MODULES if not row.without for name in row.names}
    assert listed == {(module, name) for module, name in required() if is_private(f"{module}.{name}")}


def test_nothing_private_is_imported_past_it():
    assert not [path for path in imported() if is_private(path)]


def test_every_foreign_name_is_listed():
    parts = {part for row in PRIVATE_NAMES for text in (row.where, *row.names) for part in text.split(".")}
    unlisted = {
        path.name: sorted(found)
        for path, tree in sources().items()
        if path.parent.name == "dsl"
        and path.name != "private_names.py"
        and (found := foreign(tree) - parts - OF_OTHERS)
    }
    assert not unlisted


def test_what_objects_are_asked_for_is_asked_for():
    words = {
        word for path, text in texts().items() if path.name != "private_names.py" for word in re.findall(r"\w+", text)
    }
    for row in PRIVATE_NAMES:
        assert row.purpose
        assert {name.rpartition(".")[2] for name in row.names} <= words


@pytest.mark.dsl
@pytest.mark.parametrize("row", MODULES, ids=lambda row: f"{row.where}:{row.names[0]}")
def test_the_installed_version_has_them(row):
    try:
        require(row.where, *row.names)
    except ImportError as error:
        if not row.without:
            raise
        pytest.skip(f"{error}; {row.without}")
