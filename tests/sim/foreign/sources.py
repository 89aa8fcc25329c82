"""Finds what can run in a folder: pytest files, notebooks, scripts."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.sim.foreign import catalogue


@dataclass(frozen=True)
class Source:
    """A file that runs in a process of its own.

    Attributes
    ----------
    kind : str
        "pytest", "notebook" or "script".
    arguments : str
        What a script is called with, or the name of a test, if not all of the file is meant.
    """

    suite: str
    root: Path
    path: Path
    kind: str
    arguments: str = ""

    @property
    def name(self) -> str:
        """The file below its folder, and the arguments."""
        path = self.path.relative_to(self.root).as_posix()
        return (
            f"{path}::{self.arguments}".removesuffix("::")
            if self.kind == "pytest"
            else f"{path} {self.arguments}".strip()
        )

    def functions(self) -> list[Source]:
        """Return a source for each test of a file, as far as its text names them; others as they are."""
        names = list(_tests(ast.parse(self.path.read_text(errors="replace")))) if self.kind == "pytest" else []
        return [replace(self, arguments=name) for name in names] or [self]


def _tests(tree: ast.Module | ast.ClassDef) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from (f"{node.name}::{name}" for name in _tests(node))


def sources(given: str, arguments_of: Callable[[str], list[str]] = catalogue.arguments) -> Iterator[Source]:
    """Yield what a folder holds, or a file, which may be followed by arguments; else it is called as a path says."""
    path, arguments = file_and_arguments(given)
    root = path if path.is_dir() else path.parent
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        found = (
            _kind(file)
            if path.is_file() or not re.search(catalogue.NO_TESTS, f"/{file.relative_to(root).as_posix()}")
            else ""
        )
        if found:
            where = plain(file)
            calls = [shlex.join(arguments)] if arguments else arguments_of(where)
            for call in calls if found == "script" else [""]:
                yield Source(catalogue.suite(where, root.name), root, file, found, call)


def file_and_arguments(given: str) -> tuple[Path, list[str]]:
    """Part a word such as "FILE.py --size 3"; folders have no arguments."""
    name, *arguments = shlex.split(given)
    return Path(name).resolve(), arguments


def is_script(path: Path) -> bool:
    """Tell whether a file is run by itself, and may have to do with kernels."""
    text = path.read_text(errors="replace")
    in_a_package = (path.parent / "__init__.py").exists()
    return "__main__" in text or (not in_a_package and bool(re.search(r"@(\w+\.)?jit\b", text)))


def _kind(path: Path) -> str:
    if path.suffix == ".py" and re.match(r"test_|.*_test\.py", path.name):
        return "pytest"
    if path.suffix == ".py" and is_script(path):
        return "script"
    return "notebook" if path.suffix == ".ipynb" else ""


def plain(path: Path) -> str:
    """Return a path without the owners that checkouts are named by, as in `owner+name`."""
    return re.sub(r"/[\w-]+\+", "/", path.as_posix())
