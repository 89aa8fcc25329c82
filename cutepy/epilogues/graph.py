"""Graph of an epilogue: a hashable expression graph, with a text from which it is parsed.

Nodes are in the order in which the function computed them; each common subexpression is one node. The text determines
what a kernel computes, so it is the key of compiled kernels, and the attribute in torch's programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from cutepy.epilogues.constants import type_of
from cutepy.epilogues.errors import EpilogueError, Line
from cutepy.epilogues.operations import (
    BY_CONSTANT,
    COUNTS,
    FUNCTIONS,
    MOST_PARTS,
    PLACES,
    PRIMITIVES,
    REDUCTIONS,
    ROUNDED,
    SHAPES,
    SOURCES,
    TYPES,
    Shape,
    Type,
    by_columns,
    joined_shape,
)

Attribute = float | int | bool | str | None
"""Attribute of a node: a constant, an operand's name, a dtype to round to, "max 1" of a reduction along columns."""


@dataclass(frozen=True)
class Operand:
    """Operand of an epilogue beside the accumulators.

    Attributes
    ----------
    name : str
    shape : "scalar", "row", "column" or "tile"
        A scalar, N values, M values or M x N values.
    type : "f32" or "i32"
        That it is converted to; "i32" of integers, which are scalars.
    width : int
        The accumulators have so many times the columns.
    """

    name: str
    shape: Shape
    type: Type = "f32"
    width: int = 1

    def __str__(self) -> str:
        kind = "integer" if self.type == "i32" else self.shape
        return f"{self.name}: {kind}{_over(self.width)}"


@dataclass(frozen=True)
class Table:
    """Tensor that a score function indexes by integers that it computes.

    Attributes
    ----------
    name : str
    type : "f32", "i32" or "bool"
        That an element is converted to.
    rank : int
        Number of indices; 0 of a tensor of one element.
    """

    name: str
    type: Type
    rank: int

    def __str__(self) -> str:
        return f"{self.name}: {self.type}[{self.rank}]"


@dataclass(frozen=True)
class Node:
    """Node of an epilogue's graph.

    Attributes
    ----------
    op : str
        A primitive's name, one of `operations.SOURCES`, or "where", "to", "part", "reduce", "gather": an element of a
        table, at the place that its inputs are; "scatter": its first input, which belongs to the element of a table at
        the place that the others are.
    inputs : tuple of int
        Nodes.
    value : float, int, bool, str or None
        Further attribute of the operation.
    type : "f32", "i32" or "bool"
    shape : "scalar", "row", "column" or "tile"
        Extents that it varies with.
    width : int
        The accumulators have so many times the columns; 1 without a narrower width.
    line : Line or None
        Line of the function that computed it.
    """

    op: str
    inputs: tuple[int, ...]
    value: Attribute
    type: Type
    shape: Shape
    width: int
    line: Line | None = field(default=None, compare=False, repr=False)


class Reduction(NamedTuple):
    """Reduction of a result: "sum", "max" or "min", over the rows (0), the columns (1), or all (None)."""

    kind: str
    dim: int | None


@dataclass(frozen=True)
class Result:
    """Result of an epilogue.

    Attributes
    ----------
    name : str
        Empty of the only one, "0", "1" and so on of a tuple.
    node : int
    """

    name: str
    node: int


@dataclass(frozen=True, eq=False)
class Graph:
    r"""Operands, nodes, results and tables of an epilogue, or of a score function.

    Examples
    --------
    >>> print(Graph.parse("(bias: row)\n  v0 = acc()\n  v1 = operand('bias')\n  v2 = add(v0, v1)\n  return v2"))
    (bias: row)
      v0 = acc()
      v1 = operand('bias')
      v2 = add(v0, v1)
      return v2
    """

    operands: tuple[Operand, ...]
    nodes: tuple[Node, ...]
    results: tuple[Result, ...]
    tables: tuple[Table, ...] = ()

    @cached_property
    def text(self) -> str:
        """Text of the graph, from which it can be parsed."""
        lines = [f"({', '.join(map(str, (*self.operands, *self.tables)))})"]
        for n, node in enumerate(self.nodes):
            parts = [f"v{i}" for i in node.inputs] + ([repr(node.value)] if node.value is not None else [])
            lines.append(
                f"  v{n} = {node.op}{_over(node.width) if node.op == 'column_index' else ''}({', '.join(parts)})"
            )
        returned = (f"{result.name}: v{result.node}" if result.name else f"v{result.node}" for result in self.results)
        return "\n".join([*lines, f"  return {', '.join(returned)}"])

    @cached_property
    def line(self) -> str:
        """Text of the graph in one line, for torch's programs: its inductor writes arguments into comments."""
        return self.text.replace("\n  ", "; ")

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        # compared as text, in which zeros have their signs, and 1, 1.0 and True differ
        return isinstance(other, Graph) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @staticmethod
    @lru_cache(maxsize=1024)
    def parse(text: str) -> Graph:
        """Parse a graph's text, of several lines or of one.

        Raises
        ------
        ValueError
            If it is no such text.
        """
        lines = text.replace("; ", "\n  ").splitlines()
        first, *lines, last = lines if len(lines) > 2 else ("", "", "")
        head, tail = _HEAD.fullmatch(first), _RETURN.fullmatch(last)
        if head is None or tail is None:
            raise ValueError(f"the text of an epilogue begins with operands and ends with a return, got {text!r}")
        parts = [part for part in head[1].split(", ") if part]
        tables = tuple(Table(m[1], m[2], int(m[3])) for part in parts if (m := _TABLE.fullmatch(part)))  # type: ignore[arg-type]
        operands = tuple(_parsed_operand(part) for part in parts if not _TABLE.fullmatch(part))
        nodes: list[Node] = []
        for line in lines:
            match = _NODE.fullmatch(line)
            if match is None or int(match[1]) != len(nodes):
                raise ValueError(f"line {len(nodes)} of an epilogue must be `v{len(nodes)} = op(...)`, got {line!r}")
            _, op, width, arguments = match.groups()
            parts = [part for part in arguments.split(", ") if part]
            inputs = tuple(int(part[1:]) for part in parts if re.fullmatch(r"v\d+", part))
            (value,) = [_literal(part) for part in parts if not re.fullmatch(r"v\d+", part)] or [None]
            nodes.append(infer(op, inputs, value, nodes, operands, tables, width=int(width or 1)))
        results = []
        for part in tail[1].split(", "):
            name, _, node = part.rpartition(": ")
            results.append(Result(name, int(node[1:])))
        return Graph(operands, tuple(nodes), tuple(results), tables)

    @cached_property
    def transposed(self) -> Graph | None:
        """Graph of the transposed product's results: rows become columns; None where columns are parted.

        Examples
        --------
        >>> text = ["(bias: row)", "  v0 = acc()", "  v1 = operand('bias')", "  v2 = add(v0, v1)", "  return v2"]
        >>> Graph.parse(chr(10).join(text)).transposed.operands[0].shape
        'column'
        """
        if self.uses("part"):
            return None
        operands = tuple(replace(operand, shape=_TURNED[operand.shape]) for operand in self.operands)
        nodes: list[Node] = []
        for node in self.nodes:
            op = _TRANSPOSED.get(node.op, node.op)
            value = node.value
            if op == "reduce":
                kind, _, dim = str(value).partition(" ")
                value = f"{kind} {1 - int(dim)}" if dim else kind
            nodes.append(infer(op, node.inputs, value, nodes, operands, self.tables, line=node.line))
        return Graph(operands, tuple(nodes), self.results, self.tables)

    def of_packed_heads(self, group: int) -> Graph:
        """Return the graph of a score function on rows that are the queries of `group` heads, a query's heads together.

        Row r is query r // group, of head r % group of those that share keys.

        Examples
        --------
        >>> text = ["()", "  v0 = acc()", "  v1 = row_index()", "  v2 = float(v1)", "  v3 = add(v0, v2)", "  return v3"]
        >>> print(Graph.parse(chr(10).join(text)).of_packed_heads(8))
        ()
          v0 = acc()
          v1 = row_index()
          v2 = floordiv(v1, 8)
          v3 = float(v2)
          v4 = add(v0, v3)
          return v4
        """
        nodes: list[Node] = []
        numbers: list[int] = []

        def add(op: str, *inputs: int, value: Attribute = None, line: Line | None = None) -> int:
            nodes.append(infer(op, inputs, value, nodes, self.operands, self.tables, line=line))
            return len(nodes) - 1

        for node in self.nodes:
            if node.op in ("row_index", "row_count"):
                place = add("floordiv", add(node.op), value=group)
            elif node.op == "head_index":
                first = add("mul", add("head_index"), add("const", value=group))
                place = add("add", first, add("mod", add("row_index"), value=group))
            else:
                place = add(node.op, *(numbers[n] for n in node.inputs), value=node.value, line=node.line)
            numbers.append(place)
        results = tuple(replace(result, node=numbers[result.node]) for result in self.results)
        return Graph(self.operands, tuple(nodes), results, self.tables)

    def operand(self, name: str) -> Operand:
        """Return an operand by its name."""
        return next(operand for operand in self.operands if operand.name == name)

    def reduction(self, result: Result) -> Reduction | None:
        """Return the reduction of a result; None for a tile."""
        node = self.nodes[result.node]
        if node.op != "reduce":
            return None
        kind, _, dim = str(node.value).partition(" ")
        return Reduction(kind, int(dim) if dim else None)

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """Reductions of the results that are reduced."""
        found = [self.reduction(result) for result in self.results]  # torch.compile takes no := in a generator
        return tuple(each for each in found if each is not None)

    def width(self, result: Result) -> int:
        """Return the ratio of the accumulators' columns to those of a result, or of its unreduced tile."""
        node = self.nodes[result.node]
        return self.nodes[node.inputs[0]].width if node.op == "reduce" else node.width

    def dtype(self, result: Result) -> str | None:
        """Return the dtype that the function rounds a result to; None where the caller chooses it."""
        node = self.nodes[result.node]
        if node.op == "reduce":
            return "float32"
        return str(node.value) if node.op == "to" else None

    @property
    def widest(self) -> int:
        """Largest width of a node, in columns; the number of accumulator columns must be a multiple of the width."""
        return max([1, *(node.width for node in self.nodes)])

    @cached_property
    def instructions(self) -> float:
        """Estimate the instructions for each element of the accumulators.

        Examples
        --------
        >>> from cutepy.epilogues import silu, swiglu
        >>> silu.graph.instructions, swiglu.graph.instructions
        (11.0, 6.0)
        """
        computed = (node for node in self.nodes if node.shape == "tile" and node.op not in (*SOURCES, "part"))
        return sum((10 if node.op in (*FUNCTIONS, "div") else 1) / node.width for node in computed)

    def uses(self, op: str) -> bool:
        """Return whether the graph has a kind of node."""
        return any(node.op == op for node in self.nodes)


_HEAD = re.compile(r"\((.*)\)")
_NODE = re.compile(r"  v(\d+) = (\w+)(?:/(\d+))?\((.*)\)")
_RETURN = re.compile(r"  return (.+)")
_OPERAND = re.compile(r"(\w+): (\w+)(?:/(\d+))?")
_TABLE = re.compile(r"(\w+): (f32|i32|bool)\[(\d+)\]")


_TRANSPOSED = {
    "row_index": "column_index",
    "column_index": "row_index",
    "row_count": "column_count",
    "column_count": "row_count",
}
_TURNED: dict[Shape, Shape] = {"scalar": "scalar", "row": "column", "column": "row", "tile": "tile"}


def _over(width: int) -> str:
    return f"/{width}" if width > 1 else ""


def _parsed_operand(text: str) -> Operand:
    match = _OPERAND.fullmatch(text)
    if match is None or match[2] not in (*SHAPES, "integer"):
        raise ValueError(
            f"an operand of an epilogue must be `name: kind`, with a kind of {', '.join(SHAPES)}, got {text!r}"
        )
    name, kind, width = match.groups()
    if kind == "integer":
        return Operand(name, "scalar", "i32")
    return Operand(name, kind, "f32", int(width or 1))  # type: ignore[arg-type]


def _literal(text: str) -> Attribute:
    if text in ("True", "False"):
        return text == "True"
    if text.startswith("'"):
        return text[1:-1]
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def infer(
    op: str,
    inputs: Sequence[int],
    value: Attribute,
    nodes: Sequence[Node],
    operands: Iterable[Operand],
    tables: Iterable[Table] = (),
    *,
    width: int = 1,
    line: Line | None = None,
) -> Node:
    """Make a node of an operation on others, with inferred type, shape and width.

    Raises
    ------
    EpilogueError
        If the operation doesn't take such values.
    """
    if any(not 0 <= n < len(nodes) for n in inputs):
        raise EpilogueError.at(f"{op} takes earlier values, got {inputs}", line)
    given = [nodes[n] for n in inputs]
    shape: Shape = joined_shape(*(node.shape for node in given))
    widths = {node.width for node in given if by_columns(node.shape)}
    if len(widths) > 1:
        raise EpilogueError.at(f"{op} takes values of one width, got {_widths(widths)}", line)
    width = widths.pop() if widths else width
    if op == "gather":
        return Node(op, tuple(inputs), value, _gathered(given, value, tables, line), shape, width, line)
    if op == "scatter":
        types = [given[0].type, _gathered(given[1:], value, tables, line)] if given else []
        if types != ["f32", "f32"]:
            raise EpilogueError.at(f"scatter takes a float, of a table of floats, got {', '.join(types)}", line)
        return Node(op, tuple(inputs), value, "f32", shape, width, line)
    found = _inferred(op, given, value, operands, line)
    kind, own_shape, own_width = found
    return Node(op, tuple(inputs), value, kind, own_shape or shape, own_width or width, line)


def _widths(widths: Iterable[int]) -> str:
    return " and ".join("N columns" if width == 1 else f"N/{width}" for width in sorted(widths))


def _inferred(
    op: str, given: Sequence[Node], value: Attribute, operands: Iterable[Operand], line: Line | None
) -> tuple[Type, Shape | None, int | None]:
    """Return the type of an operation's result, and its shape and width where these don't follow from the inputs'."""
    types = [node.type for node in given]
    expected: dict[str, Any] = {"where": 3, "to": 1, "part": 1, "reduce": 1}
    arity = PRIMITIVES[op].arity if op in PRIMITIVES else expected.get(op, 0)
    if len(given) != arity:
        raise EpilogueError.at(f"{op} takes {arity} values, got {len(given)}", line)
    if op in PRIMITIVES:
        primitive = PRIMITIVES[op]
        if types[0] not in primitive.takes or len(set(types)) > 1:
            raise EpilogueError.at(
                f"{op} takes values of one type, {' or '.join(primitive.takes)}, got {', '.join(types)}", line
            )
        _check_constant(op, value, line)
        return primitive.gives or types[0], None, None
    if op == "acc":
        return "f32", "tile", 1
    if op == "const":
        return type_of(value), "scalar", 1
    if op == "operand":
        operand = next((each for each in operands if each.name == value), None)
        if operand is None:
            raise EpilogueError.at(f"there is no operand {value}", line)
        return operand.type, operand.shape, operand.width
    if op == "row_index":
        return "i32", "column", 1
    if op == "column_index":
        return "i32", "row", None
    if op in PLACES or op in COUNTS:
        return "i32", "scalar", 1
    if op == "where" and types[0] == "bool" and types[1] == types[2] and types[1] in TYPES:
        return types[1], None, None
    if op == "to" and types == ["f32"] and value in ROUNDED:
        return "f32", None, None
    if op == "part" and by_columns(given[0].shape) and value in (0, 1):
        if (parts := 2 * given[0].width) > MOST_PARTS:
            raise EpilogueError.at(
                f"columns are interleaved in {MOST_PARTS} parts at most, got {parts}; part the results further outside",
                line,
            )
        return types[0], None, 2 * given[0].width
    kind, _, dim = str(value).partition(" ")
    if op == "reduce" and types == ["f32"] and given[0].shape == "tile" and kind in REDUCTIONS and dim in _REDUCED:
        return "f32", _REDUCED[dim], None if dim == "0" else 1
    raise EpilogueError.at(f"no operation {op} takes values of {', '.join(types) or 'nothing'} and {value!r}", line)


def _gathered(given: Sequence[Node], value: Attribute, tables: Iterable[Table], line: Line | None) -> Type:
    """Return the type of a table's elements, once the indices are as many integers as it has dimensions."""
    table = next((each for each in tables if each.name == value), None)
    if table is None:
        raise EpilogueError.at(f"there is no table {value}", line)
    types = [node.type for node in given]
    if len(types) != table.rank or any(kind != "i32" for kind in types):
        raise EpilogueError.at(
            f"{table.name} takes {table.rank} integers as its indices, got {', '.join(types) or 'none'}", line
        )
    return table.type


_REDUCED: dict[str, Shape] = {"": "scalar", "0": "row", "1": "column"}


def _check_constant(op: str, value: Attribute, line: Line | None) -> None:
    if op not in BY_CONSTANT:
        if value is not None:
            raise EpilogueError.at(f"{op} takes no constant, got {value!r}", line)
    elif not isinstance(value, int) or not (0 < value < 2**31 if op in ("floordiv", "mod") else 0 <= value < 32):
        raise EpilogueError.at(f"{op} takes a constant in range, got {value!r}", line)
