"""`with_derivative`: add the derivatives of a score function's result to its graph, by reverse mode over primitives.

The score of an element depends on no other element. So its derivative with respect to the product is one number for
each element, and so is its derivative with respect to an element of a table that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from cutepy.epilogues.graph import Attribute, Graph, Node, Result, infer
from cutepy.epilogues.operations import LARGEST

DERIVATIVE = "derivative"
"""Name of the result that `with_derivative` adds: the derivative by the accumulators."""
GRADIENT = "gradient"
"""Names of the results of elements of tables begin with it."""


class _Nodes:
    """Nodes of a graph, to which others are added; equal ones are one."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, list(graph.nodes)
        self._known = {(node.op, node.inputs, repr(node.value)): n for n, node in enumerate(self.nodes)}

    def add(self, op: str, *inputs: int, value: Attribute = None) -> int:
        """Return the node of an operation; multiplications by 1 and 0 and additions of 0 are left out."""
        if op == "mul":
            for one, other in (inputs, inputs[::-1]):
                if self.is_constant(one, 1.0):
                    return other
                if self.is_constant(one, 0.0):
                    return one
        if op in ("add", "sub") and self.is_constant(inputs[1], 0.0):
            return inputs[0]
        key = (op, inputs, repr(value))
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(infer(op, inputs, value, self.nodes, self.graph.operands, self.graph.tables))
        return self._known[key]

    def constant(self, value: float) -> int:
        """Return the node of a number."""
        return self.add("const", value=value)

    def is_constant(self, n: int, value: float) -> bool:
        """Return whether a node is such a number."""
        return self.nodes[n].op == "const" and self.nodes[n].value == value

    def scaled(self, n: int, factor: float) -> int:
        """Return the node of a product with a number."""
        return self.add("mul", n, self.constant(factor))


Adjoint = Callable[[_Nodes, Sequence[int], int, int, Node], Sequence[int | None]]
"""(nodes, inputs, result, adjoint of the result, the node) -> the adjoint of each input; None of what has none."""


def _by_slope(slope: Callable[[_Nodes, int, int], int]) -> Adjoint:
    """Make the rule of a function of one number from its slope at (input, result)."""
    return lambda nodes, inputs, result, adjoint, _: [nodes.add("mul", adjoint, slope(nodes, inputs[0], result))]


def _chosen(first: str) -> Adjoint:
    """Make the rule of a clamp, which gives all to the first where a comparison holds, as torch's."""

    def rule(nodes: _Nodes, inputs: Sequence[int], result: int, adjoint: int, _: Node) -> list[int | None]:
        kept, zero = nodes.add(first, *inputs), nodes.constant(0.0)
        return [nodes.add("where", kept, adjoint, zero), nodes.add("where", kept, zero, adjoint)]

    return rule


def _extreme(first: str) -> Adjoint:
    """Make the derivative rule of a maximum or minimum; equal values share the gradient, as in torch."""

    def rule(nodes: _Nodes, inputs: Sequence[int], result: int, adjoint: int, _: Node) -> list[int | None]:
        x, y = inputs
        half, zero = nodes.scaled(adjoint, 0.5), nodes.constant(0.0)
        shared = nodes.add("where", nodes.add("eq", x, y), half, zero)
        return [
            nodes.add("where", nodes.add(first, x, y), adjoint, shared),
            nodes.add("where", nodes.add(first, y, x), adjoint, shared),
        ]

    return rule


def _absolute(nodes: _Nodes, x: int, _: int) -> int:
    zero = nodes.constant(0.0)
    negative = nodes.add("where", nodes.add("lt", x, zero), nodes.constant(-1.0), zero)
    return nodes.add("where", nodes.add("gt", x, zero), nodes.constant(1.0), negative)


def _quotient(nodes: _Nodes, inputs: Sequence[int], result: int, adjoint: int, _: Node) -> list[int | None]:
    y = inputs[1]
    over = nodes.add("div", adjoint, y)
    return [over, nodes.add("neg", nodes.add("mul", over, result))]


def _product(nodes: _Nodes, inputs: Sequence[int], result: int, adjoint: int, _: Node) -> list[int | None]:
    x, y = inputs
    return [nodes.add("mul", adjoint, y), nodes.add("mul", adjoint, x)]


def _choice(nodes: _Nodes, inputs: Sequence[int], result: int, adjoint: int, _: Node) -> list[int | None]:
    zero = nodes.constant(0.0)
    return [None, nodes.add("where", inputs[0], adjoint, zero), nodes.add("where", inputs[0], zero, adjoint)]


def _rounded(nodes: _Nodes, inputs: Sequence[int], result: int, adjoint: int, node: Node) -> list[int | None]:
    largest = LARGEST.get(str(node.value))
    if largest is None:
        return [adjoint]
    within = nodes.add("le", nodes.add("abs", inputs[0]), nodes.constant(largest))
    return [nodes.add("where", within, adjoint, nodes.constant(0.0))]


_TANH = _by_slope(lambda nodes, x, y: nodes.add("sub", nodes.constant(1.0), nodes.add("mul", y, y)))

ADJOINTS: dict[str, Adjoint] = {
    "neg": lambda nodes, inputs, result, adjoint, _: [nodes.add("neg", adjoint)],
    "abs": _by_slope(_absolute),
    "exp": _by_slope(lambda nodes, x, y: y),
    "exp2": _by_slope(lambda nodes, x, y: nodes.scaled(y, math.log(2.0))),
    "log": lambda nodes, inputs, result, adjoint, _: [nodes.add("div", adjoint, inputs[0])],
    "log2": lambda nodes, inputs, result, adjoint, _: [
        nodes.scaled(nodes.add("div", adjoint, inputs[0]), 1.0 / math.log(2.0))
    ],
    "sqrt": lambda nodes, inputs, result, adjoint, _: [nodes.add("div", nodes.scaled(adjoint, 0.5), result)],
    "rsqrt": _by_slope(lambda nodes, x, y: nodes.scaled(nodes.add("mul", y, nodes.add("mul", y, y)), -0.5)),
    "sin": _by_slope(lambda nodes, x, y: nodes.add("cos", x)),
    "cos": _by_slope(lambda nodes, x, y: nodes.add("neg", nodes.add("sin", x))),
    "tanh": _TANH,
    "tanh_approx": _TANH,
    "sigmoid": _by_slope(
        lambda nodes, x, y: nodes.add("mul", y, nodes.add("sub", nodes.constant(1.0), y)),
    ),
    "erf": _by_slope(
        lambda nodes, x, y: nodes.scaled(
            nodes.add("exp", nodes.add("neg", nodes.add("mul", x, x))), 2.0 / math.sqrt(math.pi)
        )
    ),
    "floor": lambda nodes, inputs, result, adjoint, _: [None],
    "add": lambda nodes, inputs, result, adjoint, _: [adjoint, adjoint],
    "sub": lambda nodes, inputs, result, adjoint, _: [adjoint, nodes.add("neg", adjoint)],
    "mul": _product,
    "div": _quotient,
    "maximum": _extreme("gt"),
    "minimum": _extreme("lt"),
    "clamp_min": _chosen("ge"),
    "clamp_max": _chosen("le"),
    "where": _choice,
    "to": _rounded,
}
"""Rules of the operations whose results are floats, by their names; of a comparison nothing is derived."""


@lru_cache(maxsize=1024)
def with_derivative(graph: Graph, result: str = "score", tables: Collection[str] = ()) -> Graph:
    """Return a graph with more results: the derivatives of another by the accumulators, and by elements of tables.

    That by the accumulators is left out where it is 1. Of each read of a table that the result is derived by there is
    one, "gradient0" and so on: a scatter, to the element that is read.

    Parameters
    ----------
    graph : Graph
        Without parts and reductions.
    result : str
        Name of the result to derive.
    tables : collection of str
        Names of the tables, of floats, to derive by: a tuple or a frozenset.

    Examples
    --------
    >>> from cutepy.epilogues.scores import trace_scores
    >>> print(with_derivative(trace_scores(lambda s, b, h, i, j: 3.0 * s * s).graph))
    ()
      v0 = acc()
      v1 = const(3.0)
      v2 = mul(v1, v0)
      v3 = mul(v2, v0)
      v4 = mul(v0, v1)
      v5 = add(v2, v4)
      return score: v3, derivative: v5
    >>> import torch
    >>> slopes = torch.ones(8)
    >>> print(with_derivative(trace_scores(lambda s, b, h, i, j: s + slopes[h] * j).graph, tables=("t0",)))
    (t0: f32[1])
      v0 = acc()
      v1 = head_index()
      v2 = column_index()
      v3 = gather(v1, 't0')
      v4 = float(v2)
      v5 = mul(v3, v4)
      v6 = add(v0, v5)
      v7 = scatter(v4, v1, 't0')
      return score: v6, gradient0: v7
    """
    nodes = _Nodes(graph)
    (root,) = (each.node for each in graph.results if each.name == result)
    depends = {
        n
        for n, node in enumerate(graph.nodes)
        if node.op == "acc" or (node.op == "gather" and str(node.value) in tables)
    }
    for n, node in enumerate(graph.nodes):
        if node.type == "f32" and any(i in depends for i in node.inputs):
            depends.add(n)
    adjoints = {root: nodes.constant(1.0)} if root in depends else {}
    derivative, scatters = nodes.constant(0.0), []
    for n in range(root, -1, -1):
        if n not in adjoints:
            continue
        node = graph.nodes[n]
        if node.op == "acc":
            derivative = adjoints[n]
            continue
        if node.op == "gather":
            scatters.append(nodes.add("scatter", adjoints[n], *node.inputs, value=node.value))
            continue
        found = ADJOINTS[node.op](nodes, node.inputs, n, adjoints[n], node)
        for i, adjoint in zip(node.inputs, found, strict=True):
            if i in depends and adjoint is not None:
                adjoints[i] = nodes.add("add", adjoints[i], adjoint) if i in adjoints else adjoint
    results = [] if nodes.is_constant(derivative, 1.0) else [Result(DERIVATIVE, derivative)]
    results += [Result(f"{GRADIENT}{n}", scatter) for n, scatter in enumerate(scatters)]
    return _without_unused(graph, nodes.nodes, (*graph.results, *results))


def tables_derived(graph: Graph, tables: Collection[str], result: str = "score") -> tuple[str, ...]:
    """Return those of a graph's tables that a result has a derivative by; none where it has no such result.

    Examples
    --------
    >>> from cutepy.epilogues.scores import trace_scores
    >>> import torch
    >>> slopes, allowed = torch.ones(8), torch.ones(8)
    >>> graph = trace_scores(lambda s, b, h, i, j: s * slopes[h], lambda b, h, i, j: j < allowed[h]).graph
    >>> tables_derived(graph, ("t0", "t1"))
    ('t0',)
    """
    if not any(each.name == result for each in graph.results):
        return ()
    found = {node.value for node in with_derivative(graph, result, tuple(tables)).nodes if node.op == "scatter"}
    return tuple(name for name in tables if name in found)


def _without_unused(graph: Graph, nodes: Sequence[Node], results: Sequence[Result]) -> Graph:
    """Return the graph of some results, with the nodes that they need."""
    needed = {each.node for each in results}
    for n in range(len(nodes) - 1, -1, -1):
        if n in needed:
            needed.update(nodes[n].inputs)
    place: dict[int, int] = {}
    kept: list[Node] = []
    for n in sorted(needed):
        node = nodes[n]
        inputs = [place[i] for i in node.inputs]
        place[n] = len(kept)
        kept.append(
            infer(node.op, inputs, node.value, kept, graph.operands, graph.tables, width=node.width, line=node.line)
        )
    return Graph(graph.operands, tuple(kept), tuple(Result(r.name, place[r.node]) for r in results), graph.tables)
