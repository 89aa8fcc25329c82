"""No module needs itself: imports within functions and for type checkers counted."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

pytestmark = pytest.mark.integration

# Rooms that still have circles, each to be taken off this list with its last one.
ALLOWED = ("cutepy.sim",)


def imports_of(package):
    """Map each module of `package` to the modules of it that it imports, wherever in its text."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle(imports):
    """Give the modules of a circle, the first again at its end; None where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def within(room, module):
    return module == room or module.startswith(f"{room}.")


@pytest.fixture(scope="module")
def cutepy_imports():
    return imports_of("cutepy")


def test_no_module_needs_itself(cutepy_imports):
    imports = {
        module: {name for name in imported if not any(within(room, module) and within(room, name) for room in ALLOWED)}
        for module, imported in cutepy_imports.items()
    }
    assert len(imports) > 200
    assert (found := circle(imports)) is None, " imported by ".join(found)


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_without_circles_is_not_allowed_any(cutepy_imports, room):
    inner = {module: imported for module, imported in cutepy_imports.items() if within(room, module)}
    assert circle(inner) is not None


@pytest.mark.parametrize(
    "importing",
    [
        "from ring import b",
        "import ring.b",
        "def f():\n    from ring.b import g",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ring.b import g",
        "from .b import g",
    ],
)
def test_a_circle_is_seen(importing, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ring").mkdir()
    (tmp_path / "ring" / "__init__.py").touch()
    (tmp_path / "ring" / "a.py").write_text(importing)
    (tmp_path / "ring" / "b.py").write_text("def g(): pass")
    assert circle(imports_of("ring")) is None
    (tmp_path / "ring" / "b.py").write_text("import ring.a")
    assert set(circle(imports_of("ring"))) == {"ring.a", "ring.b"}
