"""`cutepy bench scaled`: time products of 8-bit floats with scales against peers, and check every result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import typer
from torch.nn.functional import ScalingType, scaled_mm

from cutepy import benchmark
from cutepy.benchmark.protocol import Contender
from cutepy.ops import dequantise, quantise, scaled_gemm
from cutepy.suites.measurement import Output, measure_all, timed
from cutepy.testing.numerics import gemm_tolerance, promoted_tolerance, relative_error

EXTENTS = ((4096, 7168, 4096), (64, 7168, 4096), (8192, 8192, 8192))
"""Extents M, N and K."""
BLOCKS = {"tensor": ((0, 0), (0, 0)), "row": ((1, 0), (1, 0)), "block": ((1, 128), (128, 128))}
"""Blocks of A and B with one scale."""


@dataclass(frozen=True)
class ScaledProblem:
    """Product of e4m3 matrices with one kind of scales; `fast` sums in the tensor cores alone."""

    m: int
    n: int
    k: int
    kind: str
    fast: bool = False

    def __str__(self) -> str:
        return f"fp8 {self.kind}{' fast' if self.fast else ''} {self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""
        return 2.0 * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes of the inputs, and of a bfloat16 result, once each; the scales are few."""
        return float((self.m + self.n) * self.k + 2 * self.m * self.n)


class Buffers(NamedTuple):
    """Sets of operands and scales, with more bytes than the L2 cache."""

    a: list[torch.Tensor]
    b: list[torch.Tensor]
    scale_a: list[torch.Tensor]
    scale_b: list[torch.Tensor]


Peer = Callable[[ScaledProblem, Buffers], "Contender | None"]
"""Function that returns the launcher of a problem on one set of buffers; None if unsupported."""


def buffers(problem: ScaledProblem, device: str = "cuda") -> Buffers:
    """Quantise sets of random normal operands."""
    of_a, of_b = BLOCKS[problem.kind]
    sets = Buffers([], [], [], [])
    for _ in range(benchmark.buffer_sets(int(problem.bytes))):
        (a, scale_a), (b, scale_b) = (
            quantise(torch.randn(rows, problem.k, device=device), block)
            for rows, block in ((problem.m, of_a), (problem.n, of_b))
        )
        for kept, made in zip(sets, (a, b, scale_a, scale_b), strict=True):
            kept.append(made)
    return sets


def ours(problem: ScaledProblem, sets: Buffers) -> Contender:
    """Multiply by `scaled_gemm`."""
    return lambda i: scaled_gemm(*(each[i] for each in sets), use_fast_accum=problem.fast)


def torch_scaled_mm(problem: ScaledProblem, sets: Buffers) -> Contender | None:
    """Multiply by torch's `scaled_mm`, which calls cuBLASLt, or CUTLASS for rows; None where it has no such kernel."""
    kinds = {
        "tensor": (ScalingType.TensorWise, ScalingType.TensorWise),
        "row": (ScalingType.RowWise, ScalingType.RowWise),
        "block": (ScalingType.BlockWise1x128, ScalingType.BlockWise128x128),
    }
    scale_b = sets.scale_b
    if problem.kind == "block":  # (K / 128, N / 128), K contiguous and padded to a multiple of 4
        scale_b = [torch.nn.functional.pad(each, (0, -each.shape[1] % 4)).t() for each in scale_b]
    if problem.kind == "row":
        scale_b = [each.t() for each in scale_b]
    of_a, of_b = kinds[problem.kind]

    def launch(i: int) -> torch.Tensor:
        own = (sets.a[i], sets.b[i].t(), sets.scale_a[i], of_a, scale_b[i], of_b)
        return scaled_mm(*own, output_dtype=torch.bfloat16, use_fast_accum=problem.fast)

    try:
        launch(0)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        typer.echo(f"torch doesn't multiply {problem}: {error}", err=True)
        return None
    return launch


def deep_gemm(problem: ScaledProblem, sets: Buffers) -> Contender | None:
    """Multiply by DeepGEMM, which must be installed; blocks only."""
    if problem.kind != "block":
        return None
    import deep_gemm as theirs  # type: ignore[import-not-found]

    multiply = getattr(theirs, "fp8_gemm_nt", None) or theirs.gemm_fp8_fp8_bf16_nt
    out = torch.empty(problem.m, problem.n, device=sets.a[0].device, dtype=torch.bfloat16)

    def launch(i: int) -> torch.Tensor:
        multiply((sets.a[i], sets.scale_a[i]), (sets.b[i], sets.scale_b[i]), out)
        return out

    return launch


PEERS: dict[str, Peer] = {"torch": torch_scaled_mm, "DeepGEMM": deep_gemm}
"""Peers that come with cutepy."""


def run_scaled(problems: list[ScaledProblem], peers: Mapping[str, Peer], output: Output) -> int:
    """Measure `scaled_gemm` against peers.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    return measure_all("scaled", problems, partial(_measure, peers), _complaint, output)


def _complaint(problem: ScaledProblem, rows: list[benchmark.Row]) -> str | None:
    bound = gemm_tolerance(problem.k, 8, "bfloat16") if problem.fast else promoted_tolerance("bfloat16")
    right = all(row.error <= bound for row in rows if row.contender == "cutepy")
    return None if right else f"{problem} is beyond its tolerance"


def _measure(peers: Mapping[str, Peer], problem: ScaledProblem) -> list[benchmark.Row]:
    sets = buffers(problem)
    contenders: dict[str, Contender] = {"cutepy": ours(problem, sets)}
    contenders |= {name: made for name, peer in peers.items() if (made := peer(problem, sets)) is not None}
    a, b = (dequantise(x[0], s[0], torch.float64) for x, s in ((sets.a, sets.scale_a), (sets.b, sets.scale_b)))
    reference = a @ b.mT
    errors = {name: relative_error(launch(0), reference) for name, launch in contenders.items()}
    del a, b, reference
    return timed(problem, contenders, errors, sets=len(sets.a))
