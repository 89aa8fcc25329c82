"""Where a module can be mutated, and how: every single change that this tool knows, one at a time."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
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

Change = Callable[[], None]


@dataclass(frozen=True)
class Mutant:
    """One change of one module, named by the function it is in and what it turns into what."""

    name: str
    line: int
    apply: Change
    """Change the shared tree in place: call it in a process of its own."""


def mutants(module: str, tree: ast.Module) -> Iterator[Mutant]:
    """Every mutant of a parsed module; all of them share its tree."""
    seen: Counter[str] = Counter()
    for line, name, change in _in_block(tree, ""):
        seen[name] += 1
        label = name if seen[name] == 1 else f"{name} (#{seen[name]})"
        yield Mutant(f"{module}: {label}", line, change)


def _in_block(node: ast.AST, scope: str) -> Iterator[tuple[int, str, Change]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            for index, child in enumerate(value):
                if isinstance(child, ast.stmt):
                    yield from _statement(value, index, child, scope)
                elif isinstance(child, ast.AST) and not _skipped(node, name):
                    yield from _expression(child, scope)
        elif isinstance(value, ast.AST) and not _skipped(node, name):
            yield from _expression(value, scope)


def _skipped(node: ast.AST, name: str) -> bool:
    """Annotations and decorators say nothing about what a function computes; `strict=` checks our own invariants."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    return name in ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords") and not isinstance(
        node, ast.Call
    )


def _statement(body: list[ast.stmt], index: int, node: ast.stmt, scope: str) -> Iterator[tuple[int, str, Change]]:
    """Changes of a whole statement, then those inside it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from _in_block(node, f"{scope}{node.name}.")
        return
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_declaration(node):
        return

    def replace(*new: ast.stmt) -> Change:
        return lambda: body.__setitem__(slice(index, index + 1), list(new))

    text = f"{scope.rstrip('.') or 'module'}: `{ast.unparse(node).splitlines()[0][:90]}`"
    if isinstance(node, ast.Raise):
        yield node.lineno, f"{text} -> pass", replace(ast.Pass())
        return  # what an error says is not what a function computes
    if isinstance(node, ast.Continue):
        yield node.lineno, f"{text} -> break", replace(ast.Break())
    elif isinstance(node, ast.Break):
        yield node.lineno, f"{text} -> continue", replace(ast.Continue())
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node.lineno, f"{text} -> return None", lambda: setattr(node, "value", ast.Constant(None))
    elif isinstance(node, ast.Expr) or (isinstance(node, ast.AugAssign) and scope):
        yield node.lineno, f"{text} -> pass", replace(ast.Pass())
    if isinstance(node, ast.AugAssign):
        for other in _BINARY.get(type(node.op), ()):
            yield node.lineno, f"{text} -> {other.__name__}", _setter(node, "op", other())
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare):
        yield node.lineno, f"{text} -> not", _negation(node)
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


def _setter(node: ast.AST, name: str, value: object) -> Change:
    return lambda: setattr(node, name, value)


def _negation(node: ast.If | ast.While | ast.IfExp) -> Change:
    return lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))


def _expression(node: ast.AST, scope: str) -> Iterator[tuple[int, str, Change]]:
    """Changes of an expression and of everything inside it, but for the text of messages."""
    if isinstance(node, ast.JoinedStr) or _is_error(node):
        return
    where = scope.rstrip(".") or "module"
    if isinstance(node, ast.expr):
        for effect, change in _effects(node):
            yield node.lineno, f"{where}: `{ast.unparse(node)[:90]}` -> {effect}", change
    elif isinstance(node, ast.comprehension):
        for i, test in enumerate(node.ifs):
            change = _at(node.ifs, i, ast.UnaryOp(ast.Not(), test))
            yield test.lineno, f"{where}: `if {ast.unparse(test)[:60]}` -> if not", change
    yield from _in_block(node, scope)


def _is_error(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Error", "_error"))


def _effects(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:
                yield f"{other.__name__}" + (f"[{i}]" if i else ""), _at(node.ops, i, other())
    elif isinstance(node, ast.BinOp):
        for operator in _BINARY.get(type(node.op), ()):
            yield operator.__name__, _setter(node, "op", operator())
    elif isinstance(node, ast.BoolOp):
        other_op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield type(other_op).__name__, _setter(node, "op", other_op)
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            yield "not not", _setter(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        elif isinstance(node.op, ast.USub | ast.Invert):
            yield "without sign", _setter(node, "op", ast.UAdd())
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.IfExp):
        yield "not", _negation(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield _CALLS[node.func.id], _setter(node.func, "id", _CALLS[node.func.id])


def _constants(node: ast.Constant) -> Iterator[tuple[str, Change]]:
    if isinstance(node.value, bool):
        yield str(not node.value), _setter(node, "value", not node.value)
    elif isinstance(node.value, int):
        yield str(node.value + 1), _setter(node, "value", node.value + 1)
        yield str(node.value - 1), _setter(node, "value", node.value - 1)


def _at(items: list, index: int, value: object) -> Change:  # type: ignore[type-arg]
    return lambda: items.__setitem__(index, value)
