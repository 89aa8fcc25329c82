"""Standard epilogues of `gemm`: activation(acc + c + bias), each part optional."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from cutepy.epilogues.functions import ACTIVATIONS, identity
from cutepy.epilogues.graph import Graph
from cutepy.epilogues.tracing import Epilogue, Row, Tile, epilogue
from cutepy.epilogues.values import Value


class Standard(NamedTuple):
    """Standard epilogue, by its parts.

    Attributes
    ----------
    c, bias : bool
        True if they are added.
    activation : str or None
        A key of `ACTIVATIONS`.
    is_transposed : bool
        True for the transposed product, where the bias is a column.
    """

    c: bool = False
    bias: bool = False
    activation: str | None = None
    is_transposed: bool = False


@cache
def standard(c: bool = False, bias: bool = False, activation: str | None = None) -> Epilogue:
    """Return the graph of activation(acc + c + bias), `c` a tile and `bias` a row, without absent parts.

    Examples
    --------
    >>> standard(c=True)
    epilogue added(c: tile)
      v0 = acc()
      v1 = operand('c')
      v2 = add(v0, v1)
      return v2
    >>> standard(activation="silu").name
    'silu'
    """
    finish: Any = identity if activation is None else ACTIVATIONS[activation]
    if c and bias:

        def added(acc: Value, c: Tile, bias: Row) -> Value:
            return finish(acc + c + bias)  # type: ignore[no-any-return]

    elif c:

        def added(acc: Value, c: Tile) -> Value:  # type: ignore[misc]
            return finish(acc + c)  # type: ignore[no-any-return]

    elif bias:

        def added(acc: Value, bias: Row) -> Value:  # type: ignore[misc]
            return finish(acc + bias)  # type: ignore[no-any-return]

    else:
        return finish  # type: ignore[no-any-return]
    return epilogue(added)


def standard_of(graph: Graph) -> Standard | None:
    """Return the parts of a graph that is a standard epilogue; None for other graphs.

    Examples
    --------
    >>> standard_of(standard(bias=True, activation="relu").graph.transposed)
    Standard(c=False, bias=True, activation='relu', is_transposed=True)
    """
    shapes = {operand.name: operand.shape for operand in graph.operands}
    if not shapes.keys() <= {"c", "bias"}:
        return None
    is_transposed = shapes.get("bias") == "column"
    for activation in (None, *ACTIVATIONS):
        each = standard(c="c" in shapes, bias="bias" in shapes, activation=activation).graph
        if graph == (each.transposed if is_transposed else each):
            return Standard("c" in shapes, "bias" in shapes, activation, is_transposed)
    return None
