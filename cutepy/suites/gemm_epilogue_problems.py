"""Problems of `cutepy bench fused`: products of an MLP's extents, with epilogues for cutepy and for torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from cutepy import benchmark, epilogues
from cutepy.epilogues import Column, Epilogue, Row, Tile, Value, epilogue

TOKENS = (4096, 512)
DTYPES = ("bfloat16", "float16")


@epilogue
def bias_gelu(acc: Value, bias: Row) -> Value:
    """Return gelu, approximated by tanh, of the accumulators plus a bias."""
    return epilogues.gelu_tanh(acc + bias)  # type: ignore[no-any-return]


@epilogue
def residual_add(acc: Value, residual: Tile) -> Value:
    """Add a residual."""
    return acc + residual


@epilogue
def both_scales(acc: Value, by_row: Column, by_column: Row) -> Value:
    """Scale rows and columns."""
    return acc * by_row * by_column


def _swiglu_of_halves(product: torch.Tensor) -> torch.Tensor:
    gate, up = product.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def _bias_gelu(product: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(product + bias, approximate="tanh")


def _residual_add(product: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return product + residual


def _both_scales(product: torch.Tensor, by_row: torch.Tensor, by_column: torch.Tensor) -> torch.Tensor:
    return product * by_row.unsqueeze(-1) * by_column


class Kind(NamedTuple):
    """Kind of epilogue after a product.

    Attributes
    ----------
    epilogue : Epilogue
        Epilogue of cutepy.
    step : callable
        The same in torch, of a product and the epilogue's operands; of gated ones gates are the product's first half.
    n, k : int
        Of the layer of Llama 3 8B, or of one of its size: columns of the product, and of the tokens.
    condition : float
        As `cutepy.testing.numerics.epilogue_tolerance` takes it, for normal products, biases and residuals.
    scales : bool
        True if operands are fp32 and positive; they are of the product's dtype otherwise.
    """

    epilogue: Epilogue
    step: Callable[..., torch.Tensor]
    n: int
    k: int
    condition: float
    scales: bool = False


KINDS: Mapping[str, Kind] = {
    "swiglu": Kind(epilogues.swiglu, _swiglu_of_halves, 2 * 14336, 4096, 2.3),
    "bias_gelu": Kind(bias_gelu, _bias_gelu, 14336, 4096, 1.0),
    "residual": Kind(residual_add, _residual_add, 4096, 14336, 1.0),
    "scales": Kind(both_scales, _both_scales, 4096, 4096, 1.0, scales=True),
}


@dataclass(frozen=True)
class FusedProblem:
    """Product, (m, k) x (n, k), with its epilogue.

    Attributes
    ----------
    what : str
        A key of `KINDS`.
    m, n, k : int
        Tokens, and extents of the weight; a gated result has n / 2 columns.
    dtype : str
        Of 16 bits: "bfloat16" or "float16".
    """

    what: str
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        return f"{self.dtype} {self.what} {self.m}x{self.n}x{self.k}"

    @property
    def kind(self) -> Kind:
        """Kind of the epilogue."""
        return KINDS[self.what]

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term of the product."""
        return 2.0 * self.m * self.n * self.k

    @property
    def operand_bytes(self) -> float:
        """Bytes that only the epilogue reads."""
        elems = {"row": self.n, "column": self.m, "tile": self.m * self.n}
        return (4.0 if self.kind.scales else 2.0) * sum(elems[each.shape] for each in self.kind.epilogue.operands)

    @property
    def result_bytes(self) -> float:
        """Bytes of the result."""
        return 2.0 * self.m * self.n / self.kind.epilogue.graph.widest

    @property
    def plain_bytes(self) -> float:
        """Bytes of the product's inputs and of the product, once each."""
        return 2.0 * ((self.m + self.n) * self.k + self.m * self.n)

    @property
    def bytes(self) -> float:
        """Bytes of all inputs, the epilogue's too, and of the result, once each."""
        return self.plain_bytes + self.added_bytes

    @property
    def added_bytes(self) -> float:
        """Bytes that a fused kernel moves beyond the product alone; negative for a narrower result."""
        return self.operand_bytes + self.result_bytes - 2.0 * self.m * self.n


def fused_problems(whats: Iterable[str], tokens: Sequence[int], dtypes: Iterable[str]) -> list[FusedProblem]:
    """List the problems.

    Examples
    --------
    >>> print(*fused_problems(["residual"], [4096, 512], ["bfloat16"]), sep=", ")
    bfloat16 residual 4096x4096x14336, bfloat16 residual 512x4096x14336
    """
    return [
        FusedProblem(what, m, KINDS[what].n, KINDS[what].k, dtype) for dtype in dtypes for what in whats for m in tokens
    ]


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, with more bytes than the L2 cache.

    Attributes
    ----------
    a, b : list of Tensor
        One of each set; columns of gated products are gate and up in turns.
    halves : list of Tensor
        The same weights as who doesn't fuse would rather have them: all gates, then all ups, so that rows of either are
        contiguous. `b` where nothing is gated.
    product : list of Tensor
        Room for the products of contenders that don't fuse.
    operands : list of list of Tensor
        The epilogue's, in its order.
    """

    a: list[torch.Tensor]
    b: list[torch.Tensor]
    halves: list[torch.Tensor]
    product: list[torch.Tensor]
    operands: list[list[torch.Tensor]]


def buffers(problem: FusedProblem, device: str = "cuda") -> Buffers:
    """Make sets of random normal operands, whose products are standard normal too."""
    dtype, m, n, k = getattr(torch, problem.dtype), problem.m, problem.n, problem.k
    shapes = {"row": (n,), "column": (m,), "tile": (m, n)}
    made = Buffers([], [], [], [], [])
    for _ in range(benchmark.buffer_sets(int(problem.bytes))):
        b = (torch.randn(n, k, device=device) * k**-0.5).to(dtype)
        gated = problem.kind.epilogue.graph.widest > 1
        drawn = [torch.randn(shapes[each.shape], device=device) for each in problem.kind.epilogue.operands]
        made.a.append(torch.randn(m, k, device=device).to(dtype))
        made.b.append(b)
        made.halves.append(torch.cat((b[::2], b[1::2])) if gated else b)
        made.product.append(torch.empty(m, n, device=device, dtype=dtype))
        made.operands.append([each.abs() + 0.5 if problem.kind.scales else each.to(dtype) for each in drawn])
    return made
