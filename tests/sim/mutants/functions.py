"""Python functions and lines of PTX lines: names of mutants that survive a change of registers."""

from __future__ import annotations

import ast
import linecache
from functools import cache
from pathlib import Path

from cutepy.sim.translate import Kernel

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def functions(ptx: str, kernel: str) -> dict[int, tuple[str, str]]:
    """Return, by line of the PTX, the innermost function of the source and its line; those without one are left out."""
    found = {}
    for i in Kernel(ptx, kernel).instructions:
        if i.source is not None:
            name = _function(i.source.file, i.source.line)
            if name:
                found[i.line] = name, linecache.getline(i.source.file, i.source.line).strip()
    return found


@cache
def _spans(file: str) -> list[tuple[int, int, str]]:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    return _within(tree, "")


def _within(tree: ast.AST, prefix: str) -> list[tuple[int, int, str]]:
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _DEFINITIONS):
            name = f"{prefix}{node.name}"
            found.append((node.lineno, node.end_lineno or node.lineno, name))
            found += _within(node, f"{name}.")
        else:
            found += _within(node, prefix)
    return found


@cache
def _function(file: str, line: int) -> str:
    """Name the innermost function around a line."""
    around = [span for span in _spans(file) if span[0] <= line <= span[1]]
    return min(around, key=lambda span: span[1] - span[0])[2] if around else ""
