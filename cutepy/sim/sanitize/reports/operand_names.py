"""What a line of Python calls the memory that it copies to or from.

CuTe's names say what a tensor is: `sA` is A in shared memory, `tAsA` and `tCsA` are it as copies and MMAs partition it;
`mA` is A in global memory and `gA` a tile of it; `rA` is in registers. A line that names one tensor in the memory that
is asked for names that; of a copy it is the destination or the source. Elsewhere it is what is indexed: of
``buffer[i] = x``, `buffer`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cutepy.sim.sanitize.reports.excerpts import statement_at

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import SourceLine

_CUTE = re.compile(r"(?:[bt][A-Z0-9]\w*?_?)?(?P<tensor>(?P<space>[sgmrc])[A-Z]\w*)")
_SOURCE, _DESTINATION = 1, 2
"""Of the arguments of `cute.copy(atom, source, destination)`."""


SHARED, GLOBAL = "s", "gm"
"""The letters by which CuTe's names say where a tensor is."""


def operand_of(source: SourceLine, writes: bool, space: str = SHARED) -> str:
    """Name the memory that a line writes or reads; "" if the line, or a caller of it, doesn't tell which.

    Parameters
    ----------
    source : SourceLine
    writes : bool
        Whether it is what the line writes, or what it reads.
    space : str
        `SHARED` or `GLOBAL`.
    """
    statements = [statement_at(line.file, line.line) for line in source.chain()]
    found = [_operands(statement, writes, space) for statement in statements if statement is not None]
    for names in (*(tensors for tensors, _ in found), *(indexed for _, indexed in found)):
        if names:
            return names.pop() if len(names) == 1 else ""
    return ""


def _operands(statement: ast.stmt, writes: bool, space: str) -> tuple[set[str], set[str]]:
    """Return the names of tensors in a kind of memory by CuTe's convention, and of all that is indexed."""
    parts: list[ast.AST] = [*_of_copies(statement, writes)]
    if not parts and isinstance(statement, (ast.Assign, ast.AugAssign)):
        is_update = isinstance(statement, ast.AugAssign)
        targets = [statement.target] if isinstance(statement, ast.AugAssign) else statement.targets
        parts = [*(targets if writes or is_update else ()), *(() if writes else (statement.value,))]
    nodes = [node for part in parts or [statement] for node in ast.walk(part)]
    names = [node.id if isinstance(node, ast.Name) else node.attr for node in nodes if isinstance(node, _NAMED)]
    tensors = {match["tensor"] for name in names if (match := _CUTE.fullmatch(name)) and match["space"] in space}
    bases = {base.id for node in nodes if isinstance(node, ast.Subscript) and isinstance(base := node.value, ast.Name)}
    return tensors, {name for name in bases if not _CUTE.fullmatch(name)}


_NAMED = (ast.Name, ast.Attribute)


def _of_copies(statement: ast.stmt, writes: bool) -> Iterator[ast.expr]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and len(node.args) > _DESTINATION:
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name.endswith("copy"):
                yield node.args[_DESTINATION if writes else _SOURCE]
