"""Scales before an epilogue: a graph that multiplies the accumulators by operands first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from cutepy.epilogues.graph import Graph, Node, Operand, Result, infer
from cutepy.epilogues.operations import Shape


@lru_cache(maxsize=1024)
def scaled(graph: Graph, shapes: tuple[Shape, ...]) -> Graph:
    """Return an epilogue's graph with the accumulators first multiplied by operands of these shapes.

    Examples
    --------
    >>> from cutepy.epilogues import identity
    >>> print(scaled(identity.graph, ("column", "scalar")))
    (scale0: column, scale1: scalar)
      v0 = acc()
      v1 = operand('scale0')
      v2 = mul(v0, v1)
      v3 = operand('scale1')
      v4 = mul(v2, v3)
      return v4
    """
    taken = {operand.name for operand in graph.operands}
    free = (name for n in range(len(taken) + len(shapes)) if (name := f"scale{n}") not in taken)
    scales = [Operand(name, shape) for name, shape in zip(free, shapes, strict=False)]
    operands = (*scales, *graph.operands)
    nodes: list[Node] = []

    def add(op: str, inputs: Iterable[int] = (), value: object = None, **known: Any) -> int:  # noqa: ANN401
        nodes.append(infer(op, tuple(inputs), value, nodes, operands, **known))  # type: ignore[arg-type]
        return len(nodes) - 1

    sums = add("acc")
    for scale in scales:
        sums = add("mul", (sums, add("operand", value=scale.name)))
    moved: list[int] = []
    for node in graph.nodes:
        inputs = [moved[n] for n in node.inputs]
        moved.append(sums if node.op == "acc" else add(node.op, inputs, node.value, width=node.width, line=node.line))
    return Graph(operands, tuple(nodes), tuple(Result(each.name, moved[each.node]) for each in graph.results))
