"""Reference of an epilogue in torch: its graph in fp32 or float64, on any device, differentiable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cutepy.epilogues.constants import number_for
from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.graph import Graph, Node, Operand
from cutepy.epilogues.operations import LARGEST, REDUCTIONS
from cutepy.epilogues.symbols import surely

Functions = Mapping[str, Callable[..., Any]]

_FUNCTIONS: Functions = {
    **{op: getattr(torch, op) for op in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh")},
    **{op: getattr(torch, op) for op in ("sigmoid", "erf", "floor", "neg", "abs", "add", "sub", "mul", "div")},
    **{op: getattr(torch, op) for op in ("maximum", "minimum", "clamp_min", "clamp_max")},
    **{op: getattr(torch, op) for op in ("lt", "le", "gt", "ge", "eq", "ne", "where")},
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "int": lambda x: x.to(torch.int32),
    "tanh_approx": torch.tanh,
}
_BY_CONSTANT: Functions = {
    "floordiv": lambda x, n: torch.div(x, n, rounding_mode="floor"),
    "mod": torch.remainder,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
}
INTEGERS = (torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)
"""Dtypes of integer arguments; all integer values have 32 bits and a sign."""
_REDUCED: Functions = dict(zip(REDUCTIONS, (torch.sum, torch.amax, torch.amin), strict=True))
_DIMS = {"0": (-2,), "1": (-1,), "": (-2, -1)}


def compute(
    graph: Graph,
    acc: torch.Tensor,
    operands: Mapping[str, Any],
    dtype: torch.dtype = torch.float32,
    *,
    cast: bool = True,
) -> list[torch.Tensor]:
    """Compute an epilogue's results.

    Parameters
    ----------
    graph : Graph
    acc : Tensor, (..., M, N)
        The product.
    operands : mapping of str to Tensor or number
        Rows (N,) or (..., N), columns (..., M), tiles (..., M, N) or what broadcasts to that, scalars; N over the
        operand's width.
    dtype : float32 or float64
        To compute in.
    cast : bool
        True if results that the epilogue rounds itself are given in the dtype that it rounds to.

    Returns
    -------
    list of Tensor
        Of `dtype`, but for what the epilogue rounds itself.

    Raises
    ------
    EpilogueError
        If an operand has another shape.
    """
    if not isinstance(acc, torch.Tensor) or acc.dim() < 2:
        got = f"shape {tuple(acc.shape)}" if isinstance(acc, torch.Tensor) else type(acc).__name__
        raise EpilogueError(f"the accumulators must be a tensor (..., M, N), got {got}")
    if acc.shape[-1] % graph.widest:
        raise EpilogueError(
            f"N must be a multiple of {graph.widest}, whose columns are interleaved, got {acc.shape[-1]}; pad B"
        )
    read = {
        operand.name: _operand(operand, operands[operand.name], acc.shape, dtype, acc.device)
        for operand in graph.operands
    }
    values: list[torch.Tensor] = []
    for node in graph.nodes:
        sources = [graph.nodes[n] for n in node.inputs]
        values.append(_value(node, [values[n] for n in node.inputs], sources, acc, read, dtype))
    results = []
    for result in graph.results:
        value, rounded, reduced = values[result.node], graph.dtype(result), graph.reduction(result)
        if reduced is None:
            value = value.expand(*acc.shape[:-1], acc.shape[-1] // graph.width(result))
            value = value.to(getattr(torch, rounded)) if rounded and cast else value
        results.append(value)
    return results


def compute_scores(
    graph: Graph,
    scores: torch.Tensor,
    tables: Sequence[torch.Tensor],
    dtype: torch.dtype = torch.float32,
    *,
    first: int = 0,
    queries: int | None = None,
    first_batch: int = 0,
    differences: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Compute the results of score and mask functions, by their names.

    Parameters
    ----------
    graph : Graph
        Of `trace_scores`.
    scores : Tensor (batch, heads, rows, keys)
        Scaled products of rows, queries from `first` on, with keys; an expanded number will do for a mask.
    tables : sequence of Tensor
        Of the graph's tables.
    dtype : dtype
        To compute in.
    queries : int, optional
        Number of queries; as many as rows if not given.
    first_batch : int
        Index of the first of the batch, as of a sequence by itself.
    differences : Tensor, as scores, optional
        Derivatives by the results, for graphs that scatter.

    Returns
    -------
    dict of str to Tensor
        Of shapes that broadcast to that of `scores`; of a scatter that of its table, with sums over all scores.
    """
    batch, heads, rows, keys = scores.shape
    named = {
        table.name: tensor if table.type == "bool" else tensor.to(torch.int64 if table.type == "i32" else dtype)
        for table, tensor in zip(graph.tables, tables, strict=True)
    }

    def counted(end: int, *shape: int, begin: int = 0) -> torch.Tensor:
        return torch.arange(begin, end, dtype=torch.int32, device=scores.device).view(shape)

    sources = {
        "row_index": lambda: counted(first + rows, -1, 1, begin=first),
        "column_index": lambda: counted(keys, -1),
        "head_index": lambda: counted(heads, -1, 1, 1),
        "batch_index": lambda: counted(first_batch + batch, -1, 1, 1, 1, begin=first_batch),
        "row_count": lambda: scores.new_tensor(rows if queries is None else queries, dtype=torch.int32),
        "column_count": lambda: scores.new_tensor(keys, dtype=torch.int32),
    }
    values: list[torch.Tensor] = []
    for node in graph.nodes:
        given = [values[n] for n in node.inputs]
        if node.op in sources:
            values.append(sources[node.op]())
        elif node.op == "gather":
            found = named[str(node.value)][tuple(index.long() for index in given)]
            values.append(found.to(torch.int32) if node.type == "i32" else found)
        elif node.op == "scatter":
            assert differences is not None
            zeros, parts = torch.zeros_like(named[str(node.value)]), differences * given[0]
            indices = tuple(index.long().expand(parts.shape) for index in given[1:])
            # Where nothing is seen a derivative may be infinite or NaN.
            parts = torch.where(differences == 0, 0.0, parts)
            values.append(zeros.index_put(indices, parts, accumulate=True) if indices else zeros + parts.sum())
        else:
            values.append(_value(node, given, [graph.nodes[n] for n in node.inputs], scores, {}, dtype))
    return {result.name: values[result.node] for result in graph.results}


def expected_shape(operand: Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that an operand must have, or broadcast to, for accumulators of a shape.

    Examples
    --------
    >>> expected_shape(Operand("bias", "row", width=2), (128, 64)), expected_shape(Operand("s", "column"), (4, 128, 64))
    ((32,), (4, 128))
    """
    *batch, m, n = shape
    columns = n // operand.width
    return {"scalar": (), "row": (columns,), "column": (*batch, m), "tile": (*batch, m, columns)}[operand.shape]


def same_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two shapes are equal, the last extents first.

    Tuples of different lengths are compared from the left on, which tells `torch.export` that what differs there must
    differ; and of symbols in them torch.compile finds no equal one.

    Examples
    --------
    >>> same_shape((33, 48), [33, 48]), same_shape((48,), (33, 48)), same_shape((33, 1), (33, 48))
    (True, False, False)
    """
    return surely_same_shape(shape, other) or (
        len(shape) == len(other) and all(x == y for x, y in zip(reversed(shape), reversed(other), strict=True))
    )


def surely_same_shape(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two shapes are equal for all values of their symbols.

    Examples
    --------
    >>> surely_same_shape((33, 48), [33, 48]), surely_same_shape((48,), (33, 48))
    (True, False)
    """
    return len(shape) == len(other) and all(surely(x == y) for x, y in zip(shape, other, strict=True))


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Return whether tensors of a shape broadcast to another.

    Examples
    --------
    >>> broadcasts((48,), (33, 48)), broadcasts((33, 1), (33, 48)), broadcasts((33,), (33, 48))
    (True, True, False)
    """
    # Each extent is compared by itself: torch.compile finds no symbolic extent in a tuple.
    trailing = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(
        surely(extent == 1) or surely(extent == wanted) or extent == 1 or extent == wanted
        for extent, wanted in trailing
    )


def check_operand(operand: Operand, given: object, shape: tuple[int, ...]) -> None:
    """Check the shape and dtype of an operand's tensor.

    Raises
    ------
    EpilogueError
        If it does not fit the operand's kind.
    """
    if not isinstance(given, torch.Tensor):
        if operand.shape != "scalar" or number_for(operand.name, operand.type, given) is None:
            kind = ("an int" if operand.type == "i32" else "a number") + " or " if operand.shape == "scalar" else ""
            raise EpilogueError(f"{operand.name} must be {kind}a tensor {_wanted(operand)}, got {type(given).__name__}")
        return
    expected, batch = expected_shape(operand, shape), shape[:-2]
    if operand.shape == "scalar":
        fits, beside = given.numel() == 1, ""
    elif operand.shape == "tile":
        fits, beside = broadcasts(given.shape, expected), ", or broadcast to it"
    elif operand.shape == "row" and batch:
        of_each = (*batch, *expected)
        fits = same_shape(given.shape, expected) or same_shape(given.shape, of_each)
        beside = f", or with the batch before it {of_each}"
    else:
        fits, beside = same_shape(given.shape, expected), ""
    if not fits:
        raise EpilogueError(
            f"{operand.name} must have shape {_wanted(operand)} = {expected}{beside}, got {tuple(given.shape)}"
        )
    if operand.type == "i32" and given.dtype not in INTEGERS:
        # Wider integers would lose their upper bits, and on a GPU nothing waits to check the values.
        raise EpilogueError(
            f"{operand.name} must have an integer dtype of at most 32 bits, such as int32, got {given.dtype}; "
            "convert it with .int()"
        )
    if operand.type == "f32" and not given.dtype.is_floating_point:
        raise EpilogueError(f"{operand.name} must have a float dtype, got {given.dtype}; convert it")


def _wanted(operand: Operand) -> str:
    """Format the required shape of an operand."""
    shape = {"row": "(N,)", "column": "(M,)", "tile": "(M, N)", "scalar": "()"}[operand.shape]
    return shape.replace("N", f"N/{operand.width}") if operand.width > 1 else shape


def _operand(
    operand: Operand,
    given: object,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    check_operand(operand, given, shape)
    kind = torch.int32 if operand.type == "i32" else dtype
    if not isinstance(given, torch.Tensor):
        return torch.tensor(given, dtype=kind, device=device)
    if given.device != device:
        raise EpilogueError(f"{operand.name} must be on {device}, got {given.device}")
    if operand.shape == "scalar":
        return given.reshape(()).to(kind)
    if operand.shape == "column":
        return given.to(kind).unsqueeze(-1)
    return given.to(kind).unsqueeze(-2) if operand.shape == "row" else given.to(kind)


def _value(
    node: Node,
    given: list[torch.Tensor],
    sources: Sequence[Node],
    acc: torch.Tensor,
    operands: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Compute a node from its `sources`; rows have no rows mode, columns a last extent of 1.

    Rows of each product have an extent of 1 in their place, and the index of a product two.
    """
    op, value = node.op, node.value
    result: torch.Tensor
    if op == "acc":
        result = acc.to(dtype)
    elif op == "operand":
        result = operands[str(value)]
    elif op == "const":
        kind = dtype if node.type == "f32" else torch.int32 if node.type == "i32" else torch.bool
        result = torch.tensor(value, dtype=kind, device=acc.device)
    elif op == "row_index":
        result = torch.arange(acc.shape[-2], dtype=torch.int32, device=acc.device).unsqueeze(-1)
    elif op == "column_index":
        result = torch.arange(acc.shape[-1] // node.width, dtype=torch.int32, device=acc.device)
    elif op == "product_index":
        *batch, _, _ = acc.shape
        index = torch.arange(math.prod(batch), dtype=torch.int32, device=acc.device)
        result = index.view(*batch, 1, 1) if batch else index.view(())
    elif op == "part":
        result = given[0][..., value::2]
    elif op == "to":
        result = rounded(given[0], str(value))
    elif op == "float":
        result = given[0].to(dtype)
    elif op == "reduce":
        result = _reduced(given[0].expand(*acc.shape[:-1], -1), str(value), sources[0])
    elif op in _BY_CONSTANT:
        result = _BY_CONSTANT[op](given[0], value)
    else:
        result = _FUNCTIONS[op](*given)
    return result


def _reduced(x: torch.Tensor, how: str, source: Node) -> torch.Tensor:
    """Reduce a tile, such as "max 1" along columns; the neutral element leaves the others unchanged."""
    kind, _, dim = how.partition(" ")
    dims = _DIMS[dim]
    if kind == "sum" or all(x.shape[mode] for mode in dims):
        result: torch.Tensor = _REDUCED[kind](x, dim=dims)
        return result
    kept = [extent for mode, extent in enumerate(x.shape, -x.dim()) if mode not in dims]
    least = 0.0 if source.op == "abs" else -math.inf
    return x.new_full(kept, least if kind == "max" else math.inf)


def rounded(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Round to a dtype's values; 8-bit floats saturate, and pass gradients through within their range."""
    to: torch.dtype = getattr(torch, dtype)
    if dtype not in LARGEST:
        return x.to(to).to(x.dtype)
    within = x.clamp(-LARGEST[dtype], LARGEST[dtype])
    # The difference is 0 or NaN, as x is finite or NaN; torch would round the gradient to 8 bits too.
    return within.detach().to(to).to(x.dtype) + (within - within.detach())
