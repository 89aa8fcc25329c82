"""Breakpoints: an action wherever the code of a line of Python begins."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path, PurePath

from cutepy.sim.machine.observer import Observer, Step
from cutepy.sim.ptx.model import Instruction


class BreakpointError(ValueError):
    """A breakpoint that no code is at."""


class Breakpoint(Observer):
    """Call an action wherever the code of a line of Python begins, or the code of a function that the line calls.

    Parameters
    ----------
    where : str
        File and line, as "gemm.py:120"; of the file's path any trailing part.
    action : callable
        Takes a `Step`.

    Raises
    ------
    BreakpointError
        If the line is of a loaded Python file, and has no code; or from the launch whose code is of several such files.
    """

    def __init__(self, where: str, action: Callable[[Step], None]) -> None:
        file, colon, line = where.rpartition(":")
        if not (colon and file and line.isdigit()):
            raise BreakpointError(f"a breakpoint is a file and a line, such as 'gemm.py:120', got {where!r}")
        self.where = where
        self._parts, self._line, self._action = PurePath(file).parts, int(line), action
        self._files: set[str] = set()
        self._lines: dict[str, set[int]] = {}
        self.hits = 0
        loaded = [path for path in _loaded_files() if self._is_of(path)]
        if loaded and not any(self._line in lines_with_code(path) for path in loaded):
            self._refuse({path: lines_with_code(path) for path in loaded})

    def stops_at(self, instruction: Instruction, before: Instruction | None) -> bool:
        """Stop at the first of successive instructions of the line."""
        for line in () if instruction.source is None else instruction.source.chain():
            self._lines.setdefault(line.file, set()).add(line.line)
        return self._is_here(instruction) and (before is None or not self._is_here(before))

    def _is_here(self, i: Instruction) -> bool:
        files = [
            line.file
            for line in (() if i.source is None else i.source.chain())
            if line.line == self._line and self._is_of(line.file)
        ]
        self._files.update(files)
        if len(self._files) > 1:
            raise BreakpointError(
                f"a breakpoint must be in one file, and {self.where} is in {' and in '.join(sorted(self._files))}; "
                "give more of the path"
            )
        return bool(files)

    def _is_of(self, file: str) -> bool:
        return PurePath(file).parts[-len(self._parts) :] == self._parts

    def on_instruction(self, step: Step) -> None:
        """Call the action."""
        self.hits += 1
        self._action(step)

    def check(self) -> None:
        """Raise if no launch had code at the line.

        Raises
        ------
        BreakpointError
            Saying where there was code.
        """
        if self._files:
            return
        if matching := {file: lines for file, lines in self._lines.items() if self._is_of(file)}:
            self._refuse(matching)
        known = (
            ", ".join(sorted(self._lines)) or "no file that is known: nothing was launched, or without line information"
        )
        raise BreakpointError(f"no code is at the breakpoint {self.where}: what was launched is of {known}")

    def _refuse(self, files: Mapping[str, Collection[int]]) -> None:
        near = [
            f"{file}:{line}"
            for file, lines in files.items()
            for line in (
                *sorted(line for line in lines if line < self._line)[-1:],
                *sorted(line for line in lines if line > self._line)[:1],
            )
        ]
        raise BreakpointError(f"no code is at the breakpoint {self.where}; the nearest is at {' and '.join(near)}")


def _loaded_files() -> list[str]:
    return [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]


@cache
def lines_with_code(file: str) -> frozenset[int]:
    """List the lines of a Python file that have code; none of a file that can't be read."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    return frozenset(
        line
        for node in ast.walk(tree)
        if isinstance(node, (ast.expr, ast.stmt)) and not _is_text(node)
        for line in (node.lineno, node.end_lineno or node.lineno)
    )


def _is_text(node: ast.AST) -> bool:
    """Return whether a node is a docstring, or a block, whose lines are those of its statements."""
    if isinstance(node, ast.Expr):
        node = node.value
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
