import ast
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def sources(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def foreign_imports(source: str) -> list[str]:
    """List the absolute imports of `source` that the standard library does not serve."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module)
    return [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]


def traced_kernels() -> list[str]:
    """List the files of kernels that are traced."""
    paths = sources("kernels/*/*.py")
    return [name_of(path) for path in paths if "cutlass" in foreign_imports(path.read_text())]


def test_layouts_has_sources():
    assert len(sources("layouts/**/*.py")) > 10


@pytest.mark.parametrize("path", sources("layouts/**/*.py"), ids=name_of)
def test_layouts_imports_the_standard_library_and_itself_relatively(path):
    assert foreign_imports(path.read_text()) == []


@pytest.mark.parametrize("line", ["import numpy", "import numpy.linalg as la", "from cutepy.layouts import Layout"])
def test_a_foreign_import_is_seen(line):
    assert foreign_imports(f"def f():\n    {line}") != []


def test_relative_and_standard_imports_are_allowed():
    assert foreign_imports("import re\nfrom . import layout\nfrom ..errors import LayoutError") == []


@pytest.mark.parametrize(
    "path",
    sources("cutepy/device/*.py", "cutepy/device/sm100/*.py", "cutepy/suites/*_kernels.py", *traced_kernels()),
    ids=name_of,
)
def test_traced_code_keeps_its_annotations(path):
    # The DSL reads annotations as values; the future import would hand it strings.
    tree = ast.parse(path.read_text())
    futures = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert futures == []


def test_mypy_leaves_out_the_traced_modules_only():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    (left_out,) = [set(entry["module"]) for entry in settings["overrides"] if entry.get("ignore_errors")]
    traced_rooms = sources("cutepy/device/*.py", "cutepy/device/sm100/*.py", "cutepy/suites/*_kernels.py")
    rooms = {path: name_of(path.parent).replace("/", ".") for path in traced_rooms}
    rooms |= dict.fromkeys(sources("kernels/*/*.py"), "cutepy.kernels.*")
    traced = {
        f"{room}.{path.stem}"
        for path, room in rooms.items()
        if any(name.partition(".")[0] == "cutlass" for name in foreign_imports(path.read_text()))
    }
    assert left_out == traced
