"""See the product of tensors of any shapes as one of matrices, or of a batch of matrices, by views alone.

The leading dimensions of a product are modes, each with a stride in the result and in each operand, 0 where an operand
is broadcast. Neighbours that step evenly in all three join into one mode. Those along which b stays the same are rows
of one matrix as well as products of a batch: the longest makes the rows, and the others the batch, unless TMA reaches
a, or else the result, only with other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from cutepy.kernels.gemm.config import MAX_BATCH_MODES
from cutepy.kernels.gemm.operands import Description, matrix


class Views(NamedTuple):
    """The tensors of a product as its kernel takes them: (batch..., M, N), (batch..., M, K) and (batch..., N, K)."""

    out: Description
    a: Description
    b: Description


class _Mode(NamedTuple):
    """A mode of a product: its extent, and its strides in elements."""

    extent: int
    out: int
    a: int
    b: int


def join(out: Description, a: Description, b: Description) -> Views | None:
    """Find views that make a product one of matrices, or of a batch with as few modes as possible.

    Parameters
    ----------
    out : Description, (..., N)
        Not empty.
    a : Description, (..., K)
    b : Description, (N, K), or (..., N, K) where the last of the leading dimensions of out and a is M
        Batches are broadcast.

    Returns
    -------
    Views or None
        None if the batch has more modes than a kernel takes.

    Examples
    --------
    Rows apart in a batch that shares b make one matrix:

    >>> import torch
    >>> def described(*shape, stride):
    ...     return Description(shape, stride, torch.float16, torch.device("cuda"))
    >>> b = described(8, 16, stride=(16, 1))
    >>> views = join(described(2, 3, 8, stride=(24, 8, 1)), described(2, 3, 16, stride=(96, 32, 1)), b)
    >>> print(views.out, views.a, sep=", ")
    shape (6, 8) with strides (8, 1), shape (6, 16) with strides (32, 1)

    Where no stride leads from one to the next they stay a batch, and b is broadcast:

    >>> views = join(described(2, 3, 8, stride=(24, 8, 1)), described(2, 3, 16, stride=(16, 32, 1)), b)
    >>> print(views.a, views.b, sep=", ")
    shape (2, 3, 16) with strides (16, 32, 1), shape (2, 8, 16) with strides (0, 16, 1)
    """
    modes = _merged(_leading_modes(out, a, b))
    n, k = b.shape[-2:]
    shared = sorted((mode for mode in modes if mode.b == 0), key=lambda mode: -mode.extent)
    splits = []
    for rows in shared or [_Mode(1, n, k, 0)]:
        batch = [mode for mode in modes if mode is not rows]
        if len(batch) > MAX_BATCH_MODES:
            return None  # as many are left of every split
        extents = [mode.extent for mode in batch]
        views = Views(
            _seen(out, (*extents, rows.extent, n), (*(mode.out for mode in batch), rows.out, out.stride[-1])),
            _seen(a, (*extents, rows.extent, k), (*(mode.a for mode in batch), rows.a, a.stride[-1])),
            _seen(b, (*extents, n, k), (*(mode.b for mode in batch), *b.stride[-2:])),
        )
        splits.append(views)
    return max(splits, key=lambda views: (reachable(views.a), reachable(views.out)))  # of equals the first


def reachable(tensor: Description) -> bool:
    """Tell whether TMA can reach a matrix, or a batch of them, as it is, but for its address."""
    try:
        matrix("tensor", tensor, "KM")
    except ValueError:
        return False
    return True


def _leading_modes(out: Description, a: Description, b: Description) -> Iterable[_Mode]:
    """Give the modes before N and K, a's M among them, from the farthest apart in the result to the closest."""
    count = len(out.shape) - 1
    shared = (0,) if count else ()
    modes = zip(
        out.shape[:-1],
        out.stride[:-1],
        _aligned(a.shape[:-1], a.stride[:-1], count),
        (*_aligned(b.shape[:-2], b.stride[:-2], count - len(shared)), *shared),
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
