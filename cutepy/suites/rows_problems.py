"""Problems of `cutepy bench rows`, their buffers, and the errors of results from float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    import torch

Norm = Literal["rms_norm", "layer_norm"]
Suite = Literal["forward", "backward", "decode"]
NORMS, SUITES = get_args(Norm), get_args(Suite)
ROWS, COLUMNS = 16384, (256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
DECODE_ROWS, DECODE_COLUMNS = (1, 8, 64), (4096, 8192, 16384)
EPS = 1e-5
_CHUNK_ELEMS = 1 << 26
"""Elements that are compared in float64 at a time."""

Result = Callable[[int], "Sequence[torch.Tensor]"]
"""Function that computes the results of one set: y, or the gradients of x, the weight and the bias."""


@dataclass(frozen=True)
class RowsProblem:
    """Normalisation of bfloat16 rows with a weight, and a bias of layer_norm.

    Attributes
    ----------
    norm : str
    suite : str
        "forward", "backward", or "decode": forward of few rows.
    rows, columns : int
    """

    norm: Norm
    suite: Suite
    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.norm} {self.suite} {self.rows}x{self.columns}"

    @property
    def vectors(self) -> int:
        """Vectors of a row's extent: the weight, and the bias."""
        return 1 if self.norm == "rms_norm" else 2

    @property
    def flops(self) -> float:
        """Operations that the sums take: a multiplication and an addition for each element."""
        return 2.0 * self.rows * self.columns

    @property
    def bytes(self) -> float:
        """Bytes of rows: x and y, or dy, x and dx; once each."""
        return 2.0 * (3 if self.suite == "backward" else 2) * self.rows * self.columns


def rows_problems(norms: Sequence[Norm], suites: Sequence[Suite], columns: Sequence[int] = ()) -> list[RowsProblem]:
    """List problems; of each suite's own columns if none are given.

    Examples
    --------
    >>> print(*rows_problems(["rms_norm"], ["decode"], [4096]), sep=", ")
    rms_norm decode 1x4096, rms_norm decode 8x4096, rms_norm decode 64x4096
    """
    return [
        RowsProblem(norm, suite, rows, each)
        for norm in norms
        for suite in suites
        for each in columns or (DECODE_COLUMNS if suite == "decode" else COLUMNS)
        for rows in (DECODE_ROWS if suite == "decode" else (ROWS,))
    ]


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, with more bytes than the L2 cache.

    Attributes
    ----------
    x, dy : list of Tensor (rows, columns)
        One of each set; `dy` of "backward" only.
    vectors : list of Tensor (columns,)
        The weight, and the bias of layer_norm.
    """

    x: list[torch.Tensor]
    dy: list[torch.Tensor]
    vectors: list[torch.Tensor]


def buffers(problem: RowsProblem, device: str = "cuda") -> Buffers:
    """Make sets of random normal tensors."""
    import torch

    from cutepy.benchmark import buffer_sets

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16)

    shape, made = (
        (problem.rows, problem.columns),
        Buffers([], [], [drawn(problem.columns) for _ in range(problem.vectors)]),
    )
    for _ in range(buffer_sets(int(problem.bytes))):
        made.x.append(drawn(*shape))
        if problem.suite == "backward":
            made.dy.append(drawn(*shape))
    return made


def largest_error(problem: RowsProblem, made: Buffers, results: Sequence[torch.Tensor]) -> float:
    """Return the largest relative Frobenius error of the first set's results from float64; NaN if one holds one."""
    import torch

    wanted = 1 + problem.vectors if problem.suite == "backward" else 1
    if len(results) != wanted:
        raise ValueError(f"{problem} must have {wanted} results, got {len(results)}")
    rows, *sums = results
    difference = norm = 0.0
    totals = [torch.zeros(problem.columns, device=rows.device, dtype=torch.float64) for _ in sums]
    for chunk, found in zip(_chunks(problem), rows.split(_chunk_rows(problem)), strict=True):
        want, *own = _wanted(problem, made, chunk)
        difference += float((found.double() - want).square().sum())
        norm += float(want.square().sum())
        for total, each in zip(totals, own, strict=True):
            total += each
    errors = [math.sqrt(difference / norm)]
    errors += [float((s.double() - t).norm() / t.norm()) for s, t in zip(sums, totals, strict=True)]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def _chunk_rows(problem: RowsProblem) -> int:
    return max(1, _CHUNK_ELEMS // problem.columns)


def _chunks(problem: RowsProblem) -> Iterator[slice]:
    step = _chunk_rows(problem)
    for first in range(0, problem.rows, step):
        yield slice(first, first + step)


def _wanted(problem: RowsProblem, made: Buffers, chunk: slice) -> list[torch.Tensor]:
    """Compute results of some rows in float64, and their parts of sums."""
    import torch

    x, *vectors = (each.double() for each in (made.x[0][chunk], *made.vectors))
    centred = x - x.mean(-1, keepdim=True) if problem.norm == "layer_norm" else x
    factors = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    normal = centred * factors
    if problem.suite != "backward":
        y = normal * vectors[0]
        return [y + vectors[1] if problem.norm == "layer_norm" else y]
    dy = made.dy[0][chunk].double()
    grad = dy * vectors[0]
    dx = grad - normal * (grad * normal).mean(-1, keepdim=True)
    if problem.norm == "layer_norm":
        dx = dx - grad.mean(-1, keepdim=True)
    sums = [(dy * normal).sum(0), dy.sum(0)]
    return [dx * factors, *sums[: problem.vectors]]
