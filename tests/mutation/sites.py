"""Mutation sites of a module: every single change that this tool knows, one at a time."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_BINARY: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitAnd,),
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file, named by the function it is in and what it turns into what."""

    name: str
    line: int
    text: str
    """The changed file; what follows the change stays in its lines."""


Found = tuple[ast.AST, str, str]
"""A node, its mutant's name, and what takes the node's place."""


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    seen: Counter[str] = Counter()
    lines = source.encode().splitlines(keepends=True)  # ast counts bytes
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for node, name, new in _in_block(ast.parse(source), ""):
        seen[name] += 1
        label = name if seen[name] == 1 else f"{name} (#{seen[name]})"
        place: ast.expr = node  # type: ignore[assignment]
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        begin, end = starts[place.lineno - 1] + place.col_offset, starts[place.end_lineno - 1] + place.end_col_offset
        padding = "\n" * (place.end_lineno - place.lineno - new.count("\n"))
        new = f"({new}{padding})" if isinstance(node, ast.expr) else new + padding
        text = source.encode()[:begin] + new.encode() + source.encode()[end:]
        yield Mutant(f"{path}: {label}", place.lineno, text.decode())


def _in_block(node: ast.AST, scope: str) -> Iterator[Found]:
    for name, value in ast.iter_fields(node):
        if _skipped(node, name):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.stmt):
                yield from _statement(child, scope)
            elif isinstance(child, ast.AST):
                yield from _expression(child, scope)


def _skipped(node: ast.AST, name: str) -> bool:
    """Annotations and decorators say nothing about what a function computes; `strict=` checks our own invariants."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    return name in ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords") and not isinstance(
        node, ast.Call
    )


def _statement(node: ast.stmt, scope: str) -> Iterator[Found]:
    """Changes of a whole statement, then those inside it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from _in_block(node, f"{scope}{node.name}.")
        return
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_declaration(node):
        return
    text = f"{scope.rstrip('.') or 'module'}: `{ast.unparse(node).splitlines()[0][:90]}`"
    if isinstance(node, ast.Raise):
        yield node, f"{text} -> pass", "pass"
        return  # what an error says is not what a function computes
    if isinstance(node, ast.Continue):
        yield node, f"{text} -> break", "break"
    elif isinstance(node, ast.Break):
        yield node, f"{text} -> continue", "continue"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, f"{text} -> return None", "return None"
    elif isinstance(node, ast.Expr) or (isinstance(node, ast.AugAssign) and scope):
        yield node, f"{text} -> pass", "pass"
    if isinstance(node, ast.AugAssign):
        for other in _BINARY.get(type(node.op), ()):
            yield node, f"{text} -> {other.__name__}", _changed(node, op=other())
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare):
        yield node.test, f"{text} -> not", f"not ({ast.unparse(node.test)})"
    yield from _in_block(node, scope)


def _is_declaration(node: ast.stmt) -> bool:
    """Docstrings, annotations without a value, `__all__`, `__slots__`, type aliases and their kin."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.AnnAssign):
        return node.value is None or "TypeAlias" in ast.unparse(node.annotation)
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Assign):
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        return bool(names & {"__all__", "__slots__"})
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _changed(node: ast.AST, **fields: object) -> str:
    """Write a node with other fields."""
    other = copy.copy(node)
    vars(other).update(fields)
    return ast.unparse(other)


def _expression(node: ast.AST, scope: str) -> Iterator[Found]:
    """Changes of an expression and of everything inside it, but for the text of messages."""
    if isinstance(node, ast.JoinedStr) or _is_error(node):
        return
    where = scope.rstrip(".") or "module"
    if isinstance(node, ast.expr):
        for effect, changed, new in _effects(node):
            yield changed, f"{where}: `{ast.unparse(node)[:90]}` -> {effect}", new
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            text = ast.unparse(test)
            yield test, f"{where}: `if {text[:60]}` -> if not", f"not ({text})"
    yield from _in_block(node, scope)


def _is_error(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Error", "_error"))


def _effects(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    """Give each change of an expression: what it is called, the node that it is in, and what takes its place."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:
                name = other.__name__ + (f"[{i}]" if i else "")
                yield name, node, _changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BinOp):
        for operator in _BINARY.get(type(node.op), ()):
            yield operator.__name__, node, _changed(node, op=operator())
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield type(other_op).__name__, node, _changed(node, op=other_op)
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            yield "not not", node, f"bool({ast.unparse(node.operand)})"
        elif isinstance(node.op, ast.USub | ast.Invert):
            yield "without sign", node, ast.unparse(node.operand)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield str(not node.value), node, str(not node.value)
        elif isinstance(node.value, int):
            for value in (node.value + 1, node.value - 1):
                yield str(value), node, str(value)
    elif isinstance(node, ast.IfExp):
        yield "not", node.test, f"not ({ast.unparse(node.test)})"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield _CALLS[node.func.id], node.func, _CALLS[node.func.id]
