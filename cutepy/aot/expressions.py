"""Conditions and costs of kernels: expressions over extents, in Python's syntax, evaluated here or written as C++."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
SM_COUNT = "sm_count"
"""The name by which expressions and arguments have the device's count of multiprocessors."""


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Expression:
    """An expression over named integers.

    It may use numbers, `+ - * / // %`, comparisons, `and or not` of those, `x if c else y`, `min`, `max`, and
    `ceil_div(a, b)`, which rounds up a quotient of a >= 0 by b > 0.

    Parameters
    ----------
    text : str
        The expression, such as "m >= 128 and n % 64 == 0".

    Raises
    ------
    ValueError
        If it uses anything else.

    Examples
    --------
    >>> waves = Expression("ceil_div(m, 128) * ceil_div(n, 256) / sm_count")
    >>> waves.names
    ('m', 'n', 'sm_count')
    >>> waves(m=1000, n=512, sm_count=4)
    4.0
    >>> waves.cpp
    'static_cast<double>(ceil_div(m, 128) * ceil_div(n, 256)) / sm_count'
    """

    text: str

    def __post_init__(self) -> None:
        _ = self._written

    def __call__(self, **values: int) -> float:
        """Evaluate, with a value for each name."""
        code = compile(self._tree, "<expression>", "eval")
        functions = {"__builtins__": {}, "ceil_div": _ceil_div, "min": min, "max": max}
        result: float = eval(code, functions, dict(values))
        return result

    @property
    def names(self) -> tuple[str, ...]:
        """What it is over, each name once."""
        called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        found = [node for node in ast.walk(self._tree) if isinstance(node, ast.Name) and id(node) not in called]
        found.sort(key=lambda node: node.col_offset)
        return tuple(dict.fromkeys(node.id for node in found))

    @property
    def cpp(self) -> str:
        """Write it as C++ over `int64_t` variables."""
        return _bare(self._written[0])

    @cached_property
    def _tree(self) -> ast.Expression:
        try:
            return ast.parse(self.text.strip(), mode="eval")
        except SyntaxError as error:
            raise ValueError(f"{self.text!r} must be an expression in Python's syntax: {error.msg}") from None

    @cached_property
    def _written(self) -> tuple[str, str]:
        return self._write(self._tree.body)

    def _write(self, node: ast.expr) -> tuple[str, str]:
        """Write a node; gives its text, which binds tighter than any operator, and "bool", "int" or "double"."""
        match node:
            case ast.Constant(value=bool(value)):
                return str(value).lower(), "bool"
            case ast.Constant(value=int(value)):
                return str(value), "int"
            case ast.Constant(value=float(value)):
                return repr(value), "double"
            case ast.Name(id=name):
                return name, "int"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                text, kind = self._write(operand)
                return f"(-{text})", "double" if kind == "double" else "int"
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(!{self._truth(operand)})", "bool"
            case ast.BinOp(left=left, op=operator, right=right):
                return self._binary(self._write(left), operator, self._write(right))
            case ast.BoolOp(op=operator, values=values):
                symbol = " && " if isinstance(operator, ast.And) else " || "
                return f"({symbol.join(map(self._truth, values))})", "bool"
            case ast.Compare(left=left, ops=operators, comparators=right):
                return self._comparison([left, *right], operators), "bool"
            case ast.IfExp(test=test, body=body, orelse=other):
                (yes, yes_kind), (no, no_kind) = self._write(body), self._write(other)
                kind = yes_kind if yes_kind == no_kind else "double"
                return f"({self._write(test)[0]} ? {yes} : {no})", kind
            case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]):
                return self._call(function, [self._write(argument) for argument in arguments])
        raise ValueError(
            f"{self.text!r} must use names, numbers, + - * / // %, comparisons, and, or, not, if-else, min, max and "
            f"ceil_div only, got {ast.unparse(node)}"
        )

    def _truth(self, node: ast.expr) -> str:
        """Write a node that is true or false: Python's `and` and `or` of numbers give one of them, C++'s do not."""
        text, kind = self._write(node)
        if kind != "bool":
            raise ValueError(
                f"{self.text!r} must use and, or, not on comparisons only, got {ast.unparse(node)}; compare it, as in "
                f"{ast.unparse(node)} != 0"
            )
        return text

    def _binary(self, left: tuple[str, str], operator: ast.operator, right: tuple[str, str]) -> tuple[str, str]:
        (x, x_kind), (y, y_kind) = left, right
        kind = "double" if "double" in (x_kind, y_kind) else "int"
        if type(operator) in _ARITHMETIC:
            return f"({x} {_ARITHMETIC[type(operator)]} {y})", kind
        if isinstance(operator, ast.Div):
            return f"(static_cast<double>{_in_brackets(x)} / {y})", "double"
        if kind == "int" and isinstance(operator, ast.FloorDiv):
            return f"floor_div({_bare(x)}, {_bare(y)})", "int"
        if kind == "int" and isinstance(operator, ast.Mod):
            return f"({x} - floor_div({_bare(x)}, {_bare(y)}) * {y})", "int"
        raise ValueError(f"{self.text!r} must use // and % on integers only, and no operator but + - * / // %")

    def _comparison(self, values: list[ast.expr], operators: list[ast.cmpop]) -> str:
        parts = []
        for left, operator, right in zip(values, operators, values[1:], strict=False):
            if type(operator) not in _COMPARISONS:
                raise ValueError(f"{self.text!r} must compare by < <= > >= == != only")
            parts.append(f"{self._write(left)[0]} {_COMPARISONS[type(operator)]} {self._write(right)[0]}")
        return f"({' && '.join(parts)})"

    def _call(self, function: str, arguments: list[tuple[str, str]]) -> tuple[str, str]:
        kinds = {kind for _, kind in arguments}
        texts = [_bare(text) for text, _ in arguments]
        if function == "ceil_div" and len(arguments) == 2 and kinds == {"int"}:
            return f"ceil_div({', '.join(texts)})", "int"
        if function in ("min", "max") and len(arguments) > 1:
            kind = "double" if "double" in kinds else "int"
            cpp_type = "double" if kind == "double" else "int64_t"
            written = texts[0]
            for text in texts[1:]:
                written = f"std::{function}<{cpp_type}>({written}, {text})"
            return written, kind
        raise ValueError(f"{self.text!r} must call min, max, or ceil_div of two integers only, got {function}")


def _bare(text: str) -> str:
    """Drop the brackets around a whole text."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for n, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if n == len(text) - 1 else text
    return text


def _in_brackets(text: str) -> str:
    return f"({_bare(text)})"
