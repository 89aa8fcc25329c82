"""Fold the leading dimensions of a product into the rows of one matrix, or into a batch, by views alone.

The leading dimensions of a product are modes, each with a stride in the result, in each operand and in what is added, 0
where one is broadcast. Neighbours that step evenly in all of them join into one mode. Those along which b stays the
same are rows of one matrix as well as products of a batch: the longest makes the rows, and the others the batch, unless
TMA reaches a, or else the result, or what is added, or threads reach a, only with other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from cutepy.kernels.gemm.operands import Description, Problem, matrix
from cutepy.kernels.gemm.signature import MAX_BATCH_MODES


class _Mode(NamedTuple):
    """A mode of a product: its extent, and its strides in elements."""

    extent: int
    out: int
    a: int
    b: int
    c: int


def join(problem: Problem) -> Problem | None:
    """Find views that make a product one of matrices, or of a batch with as few modes as possible.

    Parameters
    ----------
    problem : Problem
        Of out (..., N), not empty; a (..., K); b (N, K), or (..., N, K) where the last of the leading dimensions of out
        and a is M; and c of any shape that broadcasts to out's. Batches are broadcast. N is taken from b for b and c.

    Returns
    -------
    Problem or None
        Of out (batch..., M, N), a (batch..., M, K), b (batch..., N, K) and c (batch..., M, N); None if the batch has
        more modes than a kernel takes.

    Examples
    --------
    Rows apart in a batch that shares b make one matrix:

    >>> import torch
    >>> def described(*shape, stride):
    ...     return Description(shape, stride, torch.float16, torch.device("cuda"))
    >>> out, b = described(2, 3, 8, stride=(24, 8, 1)), described(8, 16, stride=(16, 1))
    >>> views = join(Problem(described(2, 3, 16, stride=(96, 32, 1)), b, None, out, None, None))
    >>> print(views.out, views.a, sep=", ")
    shape (6, 8) with strides (8, 1), shape (6, 16) with strides (32, 1)

    Where no stride leads from one to the next they stay a batch, and b is broadcast:

    >>> views = join(Problem(described(2, 3, 16, stride=(16, 32, 1)), b, None, out, None, None))
    >>> print(views.a, views.b, sep=", ")
    shape (2, 3, 16) with strides (16, 32, 1), shape (2, 8, 16) with strides (0, 16, 1)
    """
    a, b, c, out = problem[:4]
    modes = _merged(_leading_modes(problem))
    n, k = b.shape[-2:]
    shared = sorted((mode for mode in modes if mode.b == 0), key=lambda mode: -mode.extent)
    splits = []
    for rows in shared or [_Mode(1, n, k, 0, n)]:
        batch = [mode for mode in modes if mode is not rows]
        if len(batch) > MAX_BATCH_MODES:
            return None  # as many are left of every split
        extents = [mode.extent for mode in batch]
        views = problem._replace(
            a=_seen(a, (*extents, rows.extent, k), (*(mode.a for mode in batch), rows.a, a.stride[-1])),
            b=_seen(b, (*extents, n, k), (*(mode.b for mode in batch), *b.stride[-2:])),
            out=_seen(out, (*extents, rows.extent, out.shape[-1]), (*(m.out for m in batch), rows.out, out.stride[-1])),
        )
        if c is not None:
            columns, step = max((n, *c.shape[-1:])), _aligned(c.shape, c.stride, len(out.shape))[-1]
            shape, stride = (*extents, rows.extent, columns), (*(mode.c for mode in batch), rows.c, step)
            views = views._replace(c=_seen(c, shape, stride))
        splits.append(views)
    return max(splits, key=_reached)  # of equals the first


def _reached(views: Problem) -> tuple[bool, ...]:
    others = (each is None or matrix(each) is not None for each in (views.out, views.c))
    return matrix(views.a, is_operand=True) is not None, *others, matrix(views.a, by_threads=True) is not None


def _leading_modes(problem: Problem) -> Iterable[_Mode]:
    """Give the modes before N and K, a's M among them, from the farthest apart in the result to the closest."""
    a, b, c, out = problem[:4]
    count = len(out.shape) - 1
    shared = (0,) if count else ()
    modes = zip(
        out.shape[:-1],
        out.stride[:-1],
        _aligned(a.shape[:-1], a.stride[:-1], count),
        (*_aligned(b.shape[:-2], b.stride[:-2], count - len(shared)), *shared),
        _aligned(c.shape, c.stride, count + 1)[:-1] if c else [0] * count,
        strict=True,
    )
    return sorted((_Mode(*mode) for mode in modes if mode[0] > 1), key=lambda mode: -mode.out)


def _aligned(shape: Sequence[int], stride: Sequence[int], count: int) -> tuple[int, ...]:
    """Align the strides of leading dimensions at the right, 0 where they are broadcast."""
    steps = [0 if extent == 1 else step for extent, step in zip(shape, stride, strict=True)]
    return (*[0] * (count - len(steps)), *steps)


def _merged(modes: Iterable[_Mode]) -> list[_Mode]:
    def add(done: list[_Mode], mode: _Mode) -> list[_Mode]:
        if done and all(outer == mode.extent * inner for outer, inner in zip(done[-1][1:], mode[1:], strict=True)):
            return [*done[:-1], _Mode(done[-1].extent * mode.extent, *mode[1:])]
        return [*done, mode]

    return reduce(add, modes, [])


def _seen(tensor: Description, shape: tuple[int, ...], stride: tuple[int, ...]) -> Description:
    return tensor._replace(shape=shape, stride=stride)
