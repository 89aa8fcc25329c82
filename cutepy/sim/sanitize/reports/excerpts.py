"""Source excerpts: path, function, marked text of a line, and the name that the line gives the memory it copies.

CuTe's names say what a tensor is: `sA` is A in shared memory, `tAsA` and `tCsA` are it as copies and MMAs partition it;
`mA` is A in global memory and `gA` a tile of it; `rA` is in registers. A line that names one tensor in the memory that
is asked for names that; of a copy it is the destination or the source. Elsewhere it is what is indexed: of
``buffer[i] = x``, `buffer`.
"""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from cutepy.sim.ptx.model import SourceLine
from cutepy.sim.ptx.source_lines import shortened
from cutepy.sim.sanitize.hazards import Side

_NO_PYTHON = (".cu", ".cuh", ".h", ".hpp", ".inl", ".ptx")


@dataclass(frozen=True)
class Excerpt:
    """A line of a source.

    Attributes
    ----------
    file : str
        Relative to the working directory, if it is in there; "the PTX" where there is no source.
    line : int
    text : str
        Without its line end; empty if it can't be read.
    start, end : int
        The columns to mark, from 0: neither indent nor comment.
    function : str
        In which it is; empty if that isn't known.
    rest : str
        Continuation lines of the statement, joined.
    """

    file: str
    line: int
    text: str = ""
    start: int = 0
    end: int = 0
    function: str = ""
    rest: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def excerpt(side: Side) -> Excerpt | None:
    """Return the line of an operation: of Python, or of the PTX; None for the end of a CTA."""
    if side.instruction is None:
        return None
    if side.chain:
        return excerpt_of(side.chain[0])
    text = " ".join(side.instruction.text.split())
    return Excerpt(shortened(side.ptx_file) or "the PTX", side.instruction.line, text, 0, len(text))


def excerpt_of(line: SourceLine) -> Excerpt:
    """Return a line of a source."""
    linecache.checkcache(line.file)
    text = linecache.getline(line.file, line.line).rstrip()
    start = len(text) - len(text.lstrip())
    statement = statement_at(line.file, line.line)
    rest = ""
    if statement is not None and statement.lineno == line.line and statement.end_lineno is not None:
        following = range(line.line + 1, statement.end_lineno + 1)
        rest = " ".join(linecache.getline(line.file, number).strip() for number in following)
    function = function_at(line.file, line.line)
    return Excerpt(shortened(line.file), line.line, text, start, _end(text, line.file), function, rest)


def function_at(file: str, line: int) -> str:
    """Name the innermost function of Python that a line is in; "" if there is none, or it can't be read.

    Examples
    --------
    >>> function_at(__file__, function_at.__code__.co_firstlineno + 2)
    'function_at'
    """
    inner = _function_at(file, line)
    return "" if inner is None else inner.name


def function_line(file: str, line: int) -> int:
    """Return the first line of the function around a line, even if several functions have its name; 0 without one.

    Examples
    --------
    >>> function_line(__file__, function_line.__code__.co_firstlineno + 2) == function_line.__code__.co_firstlineno
    True
    """
    inner = _function_at(file, line)
    return 0 if inner is None else inner.lineno


def _function_at(file: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    inner = [s for s in _statements(file) if isinstance(s, _FUNCTIONS) and _holds(s, line)]
    return max(inner, key=lambda s: s.lineno) if inner else None


def statement_at(file: str, line: int) -> ast.stmt | None:
    """Return the statement, without others in it, that a line is part of, if the file is Python."""
    inner = [s for s in _statements(file) if not hasattr(s, "body") and _holds(s, line)]
    return min(inner, key=lambda s: (s.end_lineno or s.lineno) - s.lineno) if inner else None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _statements(file: str) -> tuple[ast.stmt, ...]:
    return () if file.endswith(_NO_PYTHON) else statements_of("".join(linecache.getlines(file)))


@lru_cache(64)
def statements_of(text: str) -> tuple[ast.stmt, ...]:
    r"""Return all statements of a source of Python, those in others too; none if it can't be parsed.

    Examples
    --------
    >>> [statement.lineno for statement in statements_of("for n in x:\n    y(n)\n")]
    [1, 2]
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def _end(text: str, file: str) -> int:
    """Return where a line ends without its comment."""
    if not file.endswith(_NO_PYTHON):
        try:
            for token in tokenize.generate_tokens(io.StringIO(text.lstrip()).readline):
                if token.type == tokenize.COMMENT:
                    return len(text) - len(text.lstrip()) + len(text.lstrip()[: token.start[1]].rstrip())
        except (tokenize.TokenError, SyntaxError):
            return len(text)  # a statement that goes on in the next line
        return len(text)
    return len(text.partition("//")[0].rstrip()) or len(text)


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
        True if the line writes it, or else reads it.
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
