"""Problems of `cutepy bench gemm` and `cutepy tune gemm`: selected and random ones."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from cutepy import benchmark
from cutepy.runtime.dtypes import DTYPES
from cutepy.testing.numerics import gemm_tolerance

_SQUARES = (512, 1024, 2048, 4096, 8192)
_LLAMA_3_8B = ((4096, 6144, 4096), (4096, 4096, 4096), (4096, 28672, 4096), (4096, 4096, 14336))
_SKINNY = ((128, 4096, 7168), (64, 7168, 2048), (16, 8192, 8192), (8448, 9216, 512))
_BATCHED = ((32, 1024, 1024, 128), (32, 1024, 128, 1024), (128, 256, 256, 256), (8, 2048, 2048, 2048))
_CUBES = (512, 768, 1000, 1024, 1536, 2048, 2304, 3072, 4096, 6144, 8192, 12288, 16384)
_SHORT = (*((8448, 9216, k) for k in (64, 128, 256, 512, 1024, 2048)), (8192, 8192, 512))
_LAYERS = ((4096, 7168), (7168, 2048), (8192, 8192), (14336, 4096), (4096, 14336), (6144, 6144))
_ROWS = tuple((m, *layer) for layer in _LAYERS for m in (1, 4, 16, 32, 64, 128, 192, 256))

# Extents (M, N, K), or (L, M, N, K) of a batch.
GEMM_SUITES: dict[str, tuple[tuple[int, ...], ...]] = {
    "squares": tuple((size, size, size) for size in _SQUARES),
    "llama": _LLAMA_3_8B,
    "skinny": _SKINNY,
    "batched": _BATCHED,
    "cubes": tuple((size, size, size) for size in _CUBES),
    "short": _SHORT,
    "rows": _ROWS,
}


@dataclass(frozen=True)
class GemmProblem:
    """One product to measure, or a batch of them, with row-major results; majors are "k" or "mn"."""

    m: int
    n: int
    k: int
    dtype: str
    batch: tuple[int, ...] = ()
    a_major: str = "k"
    b_major: str = "k"

    def __str__(self) -> str:
        majors = "" if self.a_major == self.b_major == "k" else f" {self.a_major},{self.b_major}"
        return f"{self.dtype}{majors} {'x'.join(map(str, (*self.batch, self.m, self.n, self.k)))}"

    @property
    def flops(self) -> float:
        """A multiplication and an addition for each term."""
        return 2.0 * math.prod(self.batch) * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Bytes of the inputs and of the result, once each."""
        width, result = (DTYPES[dtype].bits // 8 for dtype in (self.dtype, out_dtype(self.dtype)))
        return float(math.prod(self.batch) * (width * (self.m + self.n) * self.k + result * self.m * self.n))


def gemm_problems(suites: list[str], dtypes: list[str]) -> list[GemmProblem]:
    """List the problems of the named suites in each dtype, each once."""
    every = ((extents, dtype) for dtype in dtypes for suite in suites for extents in GEMM_SUITES[suite])
    problems = (GemmProblem(m, n, k, dtype, tuple(batch)) for (*batch, m, n, k), dtype in every)
    return list(dict.fromkeys(problems))


_LARGEST = 16384
_MOST_FLOPS = 1.5e12


def random_problems(count: int, seed: int) -> list[GemmProblem]:
    """Draw random problems.

    M, N and K are log-uniform, M from 1, N and K from 64, up to 16384, below 1.5 TFLOP. A quarter are of 8-bit floats;
    of the others half have operands of any majors. Contiguous extents are whole units of 16 bytes, as torch._scaled_mm
    and TMA want them.

    Examples
    --------
    >>> print(*random_problems(3, seed=1), sep=", ")
    float16 1655x264x1000, bfloat16 2109x104x72, float8_e4m3fn 67x4384x64
    """
    chance, found = random.Random(seed), list[GemmProblem]()
    while len(found) < count:
        dtype = chance.choices(("float16", "bfloat16", "float8_e4m3fn"), (3, 3, 2))[0]
        unit = 16 if dtype.startswith("float8") else 8
        any_major = unit == 8 and chance.random() < 0.5
        majors = [chance.choice(("k", "mn")) if any_major else "k" for _ in "ab"]
        m, n, k = (math.exp(chance.uniform(math.log(least), math.log(_LARGEST))) for least in (1, 64, 64))
        rows = round(m) if majors[0] == "k" else max(unit, round(m / unit) * unit)
        problem = GemmProblem(rows, round(n / unit) * unit, round(k / unit) * unit, dtype, (), *majors)
        if problem.flops < _MOST_FLOPS:
            found.append(problem)
    return found


def out_dtype(dtype: str) -> str:
    """Return the result's dtype: the operands', bfloat16 for 8-bit floats, or int32 for integers."""
    return {"int8": "int32"}.get(dtype, "bfloat16" if dtype.startswith("float8") else dtype)


def tolerance(problem: GemmProblem) -> float:
    """Return the allowed relative error of a result: 0 for integers."""
    if problem.dtype == "int8":
        return 0.0
    return gemm_tolerance(problem.k, DTYPES[problem.dtype].bits, out_dtype(problem.dtype))


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """Let torch, and `gemm`, round float32 to tf32 within the context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def poison(result: torch.Tensor) -> None:
    """Fill a result with a value that no product gives."""
    result.fill_(float("nan") if result.is_floating_point() else -(2**31))


class Buffers(NamedTuple):
    """Sets of the tensors of a problem, with more bytes than the L2 cache.

    Attributes
    ----------
    a, b, out : list of Tensor
        (..., M, K), (..., N, K) and (..., M, N), one of each set.
    """

    a: list[torch.Tensor]
    b: list[torch.Tensor]
    out: list[torch.Tensor]


def buffers(problem: GemmProblem, device: str = "cuda", *, most: int | None = None) -> Buffers:
    """Make sets of random operands, normal or any integers, and of results: `most` sets at most."""
    dtype, result_dtype = getattr(torch, problem.dtype), getattr(torch, out_dtype(problem.dtype))
    enough = benchmark.buffer_sets(int(problem.bytes))
    sets = range(enough if most is None else min(enough, most))

    def operand(rows: int, major: str) -> torch.Tensor:
        extents = (rows, problem.k) if major == "k" else (problem.k, rows)
        shape = (*problem.batch, *extents)
        if dtype == torch.int8:
            return torch.randint(-128, 128, shape, device=device, dtype=dtype)
        drawn = torch.randn(shape, device=device).to(dtype)
        return drawn if major == "k" else drawn.mT

    a = [operand(problem.m, problem.a_major) for _ in sets]
    b = [operand(problem.n, problem.b_major) for _ in sets]
    out = [torch.empty((*problem.batch, problem.m, problem.n), device=device, dtype=result_dtype) for _ in sets]
    return Buffers(a, b, out)
