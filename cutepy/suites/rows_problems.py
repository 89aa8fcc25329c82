"""Problems of `cutepy bench rows`, their buffers, and the errors of results from float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch

from cutepy import benchmark

Operation = Literal["rms_norm", "layer_norm", "softmax", "cross_entropy", "swiglu"]
Suite = Literal["forward", "backward", "decode"]
OPERATIONS, SUITES = get_args(Operation), get_args(Suite)
ROWS, COLUMNS = 16384, (256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
DECODE_ROWS, DECODE_COLUMNS = (1, 8, 64), (4096, 8192, 16384)
EPS = 1e-5
_CHUNK_ELEMS = 1 << 26
"""Elements that are compared in float64 at a time."""
_VECTORS = {"rms_norm": 1, "layer_norm": 2}
"""Vectors of a row's extent: the weight, and the bias."""
_READ, _WRITTEN = {"swiglu": 2}, {"cross_entropy": 0}
"""Matrices that are read, and written, by the forward pass, if not one."""

Result = Callable[[int], "Sequence[torch.Tensor]"]
"""Function that computes the results of one set: y, or the gradients of the inputs, the weight and the bias."""


@dataclass(frozen=True)
class RowsProblem:
    """Operation on bfloat16 rows: norms with a weight, and a bias of layer_norm; losses of each row.

    Attributes
    ----------
    operation : str
    suite : str
        "forward", "backward", or "decode": forward of few rows.
    rows, columns : int
        Columns of the gate, and of the other factor, of swiglu.
    """

    operation: Operation
    suite: Suite
    rows: int
    columns: int

    def __str__(self) -> str:
        return f"{self.operation} {self.suite} {self.rows}x{self.columns}"

    @property
    def vectors(self) -> int:
        """Vectors of a row's extent: the weight, and the bias."""
        return _VECTORS.get(self.operation, 0)

    @property
    def matrices(self) -> int:
        """Matrices of rows that are inputs."""
        return _READ.get(self.operation, 1)

    @property
    def results(self) -> int:
        """Tensors that are computed."""
        return self.matrices + self.vectors if self.suite == "backward" else 1

    @property
    def flops(self) -> float:
        """Operations that the sums take: a multiplication and an addition for each element."""
        return 2.0 * self.rows * self.columns

    @property
    def bytes(self) -> float:
        """Bytes of rows that must move, once each: inputs and the result; or its gradient, inputs, their gradients."""
        written = _WRITTEN.get(self.operation, 1)
        moved = written + self.matrices * (2 if self.suite == "backward" else 1)
        return 2.0 * moved * self.rows * self.columns


def rows_problems(
    operations: Sequence[Operation], suites: Sequence[Suite], columns: Sequence[int] = ()
) -> list[RowsProblem]:
    """List problems; of each suite's own columns if none are given.

    Examples
    --------
    >>> print(*rows_problems(["rms_norm"], ["decode"], [4096]), sep=", ")
    rms_norm decode 1x4096, rms_norm decode 8x4096, rms_norm decode 64x4096
    """
    return [
        RowsProblem(operation, suite, rows, each)
        for operation in operations
        for suite in suites
        for each in columns or (DECODE_COLUMNS if suite == "decode" else COLUMNS)
        for rows in (DECODE_ROWS if suite == "decode" else (ROWS,))
    ]


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, with more bytes than the L2 cache.

    Attributes
    ----------
    inputs : list of tuple of Tensor (rows, columns)
        One tuple of each set.
    dy : list of Tensor
        Gradients of the result, one of each set; of "backward" only.
    vectors : list of Tensor
        The weight, and the bias of layer_norm, (columns,); the labels of cross_entropy, (rows,).
    """

    inputs: list[tuple[torch.Tensor, ...]]
    dy: list[torch.Tensor]
    vectors: list[torch.Tensor]


def buffers(problem: RowsProblem, device: str = "cuda") -> Buffers:
    """Make sets of random normal tensors."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16)

    shape = problem.rows, problem.columns
    made = Buffers([], [], [drawn(problem.columns) for _ in range(problem.vectors)])
    if problem.operation == "cross_entropy":
        made.vectors.append(torch.randint(problem.columns, (problem.rows,), device=device))
    for _ in range(benchmark.buffer_sets(int(problem.bytes))):
        made.inputs.append(tuple(drawn(*shape) for _ in range(problem.matrices)))
        if problem.suite == "backward":
            made.dy.append(drawn(problem.rows) if problem.operation == "cross_entropy" else drawn(*shape))
    return made


def largest_error(problem: RowsProblem, made: Buffers, results: Sequence[torch.Tensor]) -> float:
    """Return the largest relative Frobenius error of the first set's results from float64; NaN if one holds one."""
    if len(results) != problem.results:
        raise ValueError(f"{problem} must have {problem.results} results, got {len(results)}")
    matrices = problem.matrices if problem.suite == "backward" else 1
    rows, sums = results[:matrices], results[matrices:]
    differences, norms = [0.0] * matrices, [0.0] * matrices
    totals = [torch.zeros(problem.columns, device=rows[0].device, dtype=torch.float64) for _ in sums]
    for chunk in _chunks(problem):
        wanted = _wanted(problem, made, chunk)
        for number, want in enumerate(wanted[:matrices]):
            differences[number] += float((rows[number][chunk].double() - want).square().sum())
            norms[number] += float(want.square().sum())
        for total, each in zip(totals, wanted[matrices:], strict=True):
            total += each
    errors = [math.sqrt(difference / norm) for difference, norm in zip(differences, norms, strict=True)]
    errors += [float((s.double() - t).norm() / t.norm()) for s, t in zip(sums, totals, strict=True)]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def _chunks(problem: RowsProblem) -> Iterator[slice]:
    step = max(1, _CHUNK_ELEMS // problem.columns)
    for first in range(0, problem.rows, step):
        yield slice(first, first + step)


def _wanted(problem: RowsProblem, made: Buffers, chunk: slice) -> list[torch.Tensor]:
    """Compute results of some rows in float64, and their parts of sums."""
    backward = problem.suite == "backward"
    inputs = [each[chunk].double().requires_grad_(backward) for each in made.inputs[0]]
    if problem.operation == "cross_entropy":
        result = torch.nn.functional.cross_entropy(inputs[0], made.vectors[0][chunk], reduction="none")
        vectors = []
    else:
        vectors = [each.double().requires_grad_(backward) for each in made.vectors]
        result = _in_float64(problem, *inputs, *vectors)
    if not backward:
        return [result]
    return list(torch.autograd.grad(result, [*inputs, *vectors], made.dy[0][chunk].double()))


def _in_float64(problem: RowsProblem, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Compute an operation by definition."""
    if problem.operation == "softmax":
        return torch.softmax(x, -1)
    if problem.operation == "swiglu":
        return torch.nn.functional.silu(x) * others[0]
    centred = x - x.mean(-1, keepdim=True) if problem.operation == "layer_norm" else x
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS) * others[0]
    return y + others[1] if problem.operation == "layer_norm" else y
