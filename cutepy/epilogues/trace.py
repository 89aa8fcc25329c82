"""Trace of an epilogue's function: records its operations in one run, and builds the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutepy.epilogues.errors import EpilogueError, Line, callers_line
from cutepy.epilogues.graph import Attribute, Graph, Node, Operand, Result, Table, infer
from cutepy.epilogues.operations import by_columns

_MOST_NODES = 4096


class Trace:
    """Record of a function's operations so far.

    How many times a value's columns the accumulators have is known of the accumulators and of their parts; a row or
    tile operand has the width of what it is combined with, so widths are classes that are joined, and settled at the
    end.

    Attributes
    ----------
    noun, remedy : str
        For errors: the kind of function, and how it is given other numbers than Python's.
    tables : list of Table
        Of the tensors that the function has used so far.
    """

    noun = "an epilogue"
    remedy = "declare it as an operand, such as `bias: Row`, and pass it to the operation"

    def __init__(self, operands: Sequence[Operand], line: Line) -> None:
        self.operands, self.line = tuple(operands), line
        self.tables: list[Table] = []
        self.nodes: list[Node] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self._widths: list[int | None] = []  # width of each class; None while it is open
        self._parents: list[int] = []
        self._classes: list[int | None] = []  # width class of each node

    def add(self, op: str, inputs: Sequence[int] = (), value: Attribute = None, width_class: int | None = None) -> int:
        """Record an operation; equal operations on equal values share a node."""
        for n in inputs:
            if self.nodes[n].op == "reduce":
                raise EpilogueError.at(
                    "a reduction is complete only after the last tile, so it can only be returned; "
                    "compute with it after the product",
                    callers_line(),
                )
        key = (
            op,
            tuple(inputs),
            repr(value),
            width_class,
        )  # in text 1, 1.0 and True differ, and zeros have their signs
        if key in self._known:
            return self._known[key]
        line = self.line if op in ("acc", "operand") else callers_line()
        if len(self.nodes) >= _MOST_NODES:
            raise EpilogueError.at(f"{self.noun} has at most {_MOST_NODES} operations; make it shorter", line)
        joined = width_class
        for n in inputs:
            joined = self._join(joined, self._classes[n], line)
        if op == "part":
            assert joined is not None
            joined = self._new_class(2 * self.settle(joined))
        # Widths are settled at the end; until then the nodes of the trace have none.
        node = infer(op, inputs, value, self.nodes, self.operands, self.tables, line=line)
        node = Node(node.op, node.inputs, node.value, node.type, node.shape, 1, line)
        if not by_columns(node.shape):
            joined = None
        elif joined is None:
            joined = self._new_class(1 if op == "acc" else None)
        self.nodes.append(node)
        self._classes.append(joined)
        self._known[key] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def scalar_of(self, given: object) -> int | None:
        """Return the node of a one-element value that is no Python number; None for others."""
        return None

    def column_index(self, of: int) -> int:
        """Return a node with the column index of each element of the value `of`, as wide as that value."""
        found = self._classes[of]
        if found is None:
            raise EpilogueError.at(
                f"a {self.nodes[of].shape} has no columns; ask a value that varies along them", callers_line()
            )
        return self.add("column_index", width_class=self._root(found))

    def _new_class(self, width: int | None) -> int:
        self._widths.append(width)
        self._parents.append(len(self._parents))
        return len(self._parents) - 1

    def _root(self, n: int) -> int:
        while self._parents[n] != n:
            n = self._parents[n]
        return n

    def _join(self, one: int | None, other: int | None, line: Line | None) -> int | None:
        if one is None or other is None:
            return one if other is None else other
        one, other = self._root(one), self._root(other)
        widths = self._widths[one], self._widths[other]
        if one != other and None not in widths and widths[0] != widths[1]:
            raise EpilogueError.at(
                f"values of one width were required, got one of {_columns(widths[0])} and one of "
                f"{_columns(widths[1])}; take parts of both, by interleaved(2)",
                line,
            )
        self._parents[other] = one
        self._widths[one] = widths[0] or widths[1]
        return one

    def settle(self, width_class: int) -> int:
        """Return the width of a class of values of equal width; fix it at 1 if nothing has determined it."""
        root = self._root(width_class)
        self._widths[root] = self._widths[root] or 1
        return self._widths[root] or 1

    def graph(self, results: Sequence[tuple[str, int]]) -> Graph:
        """Build the graph of the results, with the widths known now; an unused operand is refused."""
        needed = {n for _, n in results}
        for n in reversed(range(len(self.nodes))):
            if n in needed:
                needed.update(self.nodes[n].inputs)
        widths = {
            str(node.value): self.settle(found)
            for node, found in zip(self.nodes, self._classes, strict=True)
            if node.op == "operand" and found is not None
        }
        operands = tuple(Operand(o.name, o.shape, o.type, widths.get(o.name, 1)) for o in self.operands)
        nodes: list[Node] = []
        place: dict[int, int] = {}
        known: dict[tuple[Any, ...], int] = {}
        for n in sorted(needed):
            node, found = self.nodes[n], self._classes[n]
            width = 1 if found is None else self.settle(found)
            inputs = tuple(place[i] for i in node.inputs)
            final = infer(node.op, inputs, node.value, nodes, operands, self.tables, width=width, line=node.line)
            key = (final.op, final.inputs, repr(final.value), final.width)
            if key not in known:
                known[key] = len(nodes)
                nodes.append(final)
            place[n] = known[key]
        read = {node.value for node in nodes if node.op == "operand"}
        for operand in operands:
            if operand.name not in read:
                raise EpilogueError(f"operand {operand.name} is read by no result; leave it out")
        indexed = {node.value for node in nodes if node.op == "gather"}
        tables = tuple(table for table in self.tables if table.name in indexed)
        return Graph(operands, tuple(nodes), tuple(Result(name, place[n]) for name, n in results), tables)


def _columns(width: int | None) -> str:
    return "N columns" if width == 1 else f"N/{width}"
