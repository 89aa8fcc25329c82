"""No module needs itself: imports within functions and for type checkers counted."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

pytestmark = pytest.mark.integration


def imports_of(package, **options):
    """Map each module of `package` to the modules of it that it imports, wherever in its text."""
    graph = grimp.build_graph(package, cache_dir=None, **options)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circle(imports):
    """Give the modules of a circle, the first again at its end; None where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_module_needs_itself():
    imports = imports_of("cutepy")
    assert len(imports) > 200
    assert (found := circle(imports)) is None, " imported by ".join(found)


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
