"""Fold the leading dimensions of a product into the rows of one matrix, or into a batch, by views alone.

The leading dimensions of a product are modes. A mode has a stride in each tensor: the results, A, B, and each operand
of the epilogue; the stride is 0 where the tensor is broadcast. Neighbouring modes join into one mode if they step
evenly in all tensors. A mode along which B and row operands are constant may become rows of one matrix or products of a
batch. The longest such mode becomes the rows, and the others the batch. Another mode becomes the rows if only then TMA
reaches A, or else the results, or else the tiles, or threads reach A.

If an epilogue counts rows or products, or reduces along rows, their order is kept: only neighbouring modes join.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from cutepy.epilogues.graph import Graph
from cutepy.kernels.gemm.operands import Description, Problem, matrix
from cutepy.kernels.gemm.output_signature import MAX_BATCH_MODES


class _Mode(NamedTuple):
    """A mode of a product: its extent, and its strides in the results, in A, B and the operands."""

    extent: int
    steps: tuple[int, ...]


class _Kind(NamedTuple):
    """The modes of a tensor: whether it has M, and how many columns behind: N over a width, or K; -1 if none."""

    has_rows: bool
    columns: int = -1


def keeps_order(problem: Problem) -> bool:
    """Return whether a result depends on the order of rows or of products, as scales along K do."""
    graph = problem.graph
    along_rows = any(reduction.dim != 1 for reduction in graph.reductions)
    counts = graph.uses("row_index") or graph.uses("product_index")
    return problem.scale_rows is not None or along_rows or counts


def join(problem: Problem) -> Problem | None:
    """Find views that make a product one of matrices, or of a batch with as few modes as possible.

    Parameters
    ----------
    problem : Problem
        Not empty. Operands are broadcast as the epilogue allows. Tiles and results may have more columns than there
        are, to be written by whole units.

    Returns
    -------
    Problem or None
        Of a (batch..., M, K), b (batch..., N, K), tiles and results (batch..., M, N), rows (batch..., N) and columns
        (batch..., M); None if the batch has more modes than a kernel takes, or rows can't be joined in their order.

    Examples
    --------
    Rows apart in a batch that shares b make one matrix:

    >>> import torch
    >>> from cutepy.epilogues.functions import identity
    >>> def described(*shape, stride):
    ...     return Description(shape, stride, torch.float16, torch.device("cuda"))
    >>> out, b = described(2, 3, 8, stride=(24, 8, 1)), described(8, 16, stride=(16, 1))
    >>> views = join(Problem(identity.text, described(2, 3, 16, stride=(96, 32, 1)), b, (), (out,)))
    >>> print(views.results[0], views.a, sep=", ")
    shape (6, 8) with strides (8, 1), shape (6, 16) with strides (32, 1)

    Where no stride leads from one to the next they stay a batch, and b is broadcast:

    >>> views = join(Problem(identity.text, described(2, 3, 16, stride=(16, 32, 1)), b, (), (out,)))
    >>> print(views.a, views.b, sep=", ")
    shape (2, 3, 16) with strides (16, 32, 1), shape (2, 8, 16) with strides (0, 16, 1)
    """
    graph = problem.graph
    modes, kinds = _modes(problem, graph), _kinds(problem, graph)
    count, batched = len(modes), len(problem.b.shape) > 2
    first_a = len(problem.results)
    if keeps_order(problem):
        products = _merged(mode for mode in modes[: count - 1 if batched else 0] if mode.extent > 1)
        candidates = _merged(mode for mode in modes[count - 1 if batched else 0 :] if mode.extent > 1)
        if len(candidates) > 1:
            return None
        joined = [*products, *candidates]
    else:
        joined = _merged(sorted((m for m in modes if m.extent > 1), key=lambda mode: -mode.steps[0]))
        # Tensors without rows, B among them, are the same along what is to be the rows.
        fixed = [n for n, kind in enumerate(kinds) if kind is not None and not kind.has_rows]
        shared = (mode for mode in joined if not any(mode.steps[n] for n in fixed))
        candidates = sorted(shared, key=lambda mode: -mode.extent)
    splits = []
    for rows in candidates or [_single_row(kinds)]:
        batch = [mode for mode in joined if mode is not rows]
        if len(batch) > MAX_BATCH_MODES:
            return None  # as many are left of every split
        seen = [
            tensor if tensor is None or kind is None else _seen(tensor, n, kind, rows, batch)
            for n, (tensor, kind) in enumerate(zip(_tensors(problem), kinds, strict=True))
        ]
        extents, steps = [mode.extent for mode in batch], [mode.steps[first_a + 1] for mode in batch]
        b = problem.b._replace(shape=(*extents, *problem.b.shape[-2:]), stride=(*steps, *problem.b.stride[-2:]))
        whole: Any = {"a": seen[first_a], "results": tuple(seen[:first_a]), "operands": tuple(seen[first_a + 2 :])}
        splits.append(problem._replace(b=b, **whole))
    return max(splits, key=_reached)  # of equals the first


def _tensors(problem: Problem) -> list[Description | None]:
    return [*problem.results, problem.a, problem.b, *problem.operands]


def _kinds(problem: Problem, graph: Graph) -> list[_Kind | None]:
    """Return the modes of results, A, B and operands; None of a tensor with none of a product's."""
    n = problem.b.shape[-2]
    found: list[_Kind | None] = []
    for result, described in zip(graph.results, problem.results, strict=True):
        reduction, columns = graph.reduction(result), described.shape[-1] if described.shape else -1
        if reduction is None:
            found.append(_Kind(True, columns))
        else:
            found.append(_Kind(reduction.dim == 1, columns if reduction.dim == 0 else -1))
    found += [_Kind(True, problem.a.shape[-1]), _Kind(False)]
    for operand, given in zip(graph.operands, problem.operands, strict=True):
        columns = n // operand.width
        if given is None or operand.shape == "scalar":
            found.append(None)
        elif operand.shape == "tile":
            found.append(_Kind(True, max((columns, *given.shape[-1:]))))
        else:
            found.append(_Kind(False, columns) if operand.shape == "row" else _Kind(True))
    return found


def _modes(problem: Problem, graph: Graph) -> list[_Mode]:
    """Give the modes before N and K, M the last of a batch's, in their order."""
    leading, kinds, b = problem.leading, _kinds(problem, graph), len(problem.results) + 1
    strides = []
    for n, (tensor, kind) in enumerate(zip(_tensors(problem), kinds, strict=True)):
        if tensor is None or kind is None:
            strides.append((0,) * len(leading))
            continue
        behind = 2 if n == b else int(kind.columns >= 0)
        own = len(tensor.shape) - behind
        count = len(leading) if kind.has_rows else max(len(leading) - 1, 0)
        steps = _aligned(tensor.shape[: max(own, 0)], tensor.stride[: max(own, 0)], count)
        strides.append(steps if kind.has_rows or not leading else (*steps, 0))
    return [_Mode(extent, tuple(each[n] for each in strides)) for n, extent in enumerate(leading)]


def _aligned(shape: Sequence[int], stride: Sequence[int], count: int) -> tuple[int, ...]:
    """Align the strides of a given number of leading dimensions at the right, 0 where they are broadcast."""
    steps = [0 if extent == 1 else step for extent, step in zip(shape, stride, strict=True)]
    return (*[0] * (count - len(steps)), *steps[max(len(steps) - count, 0) :])


def _merged(modes: Iterable[_Mode]) -> list[_Mode]:
    def add(done: list[_Mode], mode: _Mode) -> list[_Mode]:
        pairs = zip(done[-1].steps, mode.steps, strict=True) if done else ()
        if done and all(outer == mode.extent * inner for outer, inner in pairs):
            return [*done[:-1], _Mode(done[-1].extent * mode.extent, mode.steps)]
        return [*done, mode]

    return reduce(add, modes, [])


def _single_row(kinds: Sequence[_Kind | None]) -> _Mode:
    """Give the mode of one row, whose strides are never used: the columns, so that rows don't overlap."""
    return _Mode(1, tuple(max(kind.columns, 1) if kind is not None and kind.has_rows else 0 for kind in kinds))


def _seen(tensor: Description, place: int, kind: _Kind, rows: _Mode, batch: Sequence[_Mode]) -> Description:
    """See a tensor by the modes of a batch, rows if it has them, and columns if it has them."""
    modes = [*batch, rows] if kind.has_rows else batch
    shape, stride = [mode.extent for mode in modes], [mode.steps[place] for mode in modes]
    if kind.columns >= 0:
        whole = bool(tensor.shape) and tensor.shape[-1] == kind.columns
        shape, stride = [*shape, kind.columns], [*stride, tensor.stride[-1] if whole else 0]
    return tensor._replace(shape=tuple(shape), stride=tuple(stride))


def _reached(views: Problem) -> tuple[bool, ...]:
    graph = views.graph
    results = (each for each, of in zip(views.results, graph.results, strict=True) if graph.reduction(of) is None)
    pairs = zip(views.operands, graph.operands, strict=True)
    tiles = (each for each, of in pairs if each is not None and of.shape == "tile")
    reached = (all(matrix(each) is not None for each in group) for group in (results, tiles))
    return matrix(views.a, is_operand=True) is not None, *reached, matrix(views.a, by_threads=True) is not None
