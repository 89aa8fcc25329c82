"""`cutepy bench gemm`: time the GEMM against cuBLAS, on problems that were chosen and on such as nobody chose."""

import math
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cutepy.suites.measuring import measure_all
from cutepy.suites.sweeps import summary

_SQUARES = (512, 1024, 2048, 4096, 8192)
_LLAMA_3_8B = ((4096, 6144, 4096), (4096, 4096, 4096), (4096, 28672, 4096), (4096, 4096, 14336))
_SKINNY = ((128, 4096, 7168), (64, 7168, 2048), (16, 8192, 8192), (8448, 9216, 512))
_BATCHED = ((32, 1024, 1024, 128), (32, 1024, 128, 1024), (128, 256, 256, 256), (8, 2048, 2048, 2048))

# Extents (M, N, K), or (L, M, N, K) of a batch.
GEMM_SUITES: dict[str, tuple[tuple[int, ...], ...]] = {
    "squares": tuple((size, size, size) for size in _SQUARES),
    "llama": _LLAMA_3_8B,
    "skinny": _SKINNY,
    "batched": _BATCHED,
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
        """Inputs once, and a result of 16-bit elements once."""
        width = 1 if self.dtype.startswith("float8") else 2
        return float(math.prod(self.batch) * (width * (self.m + self.n) * self.k + 2 * self.m * self.n))


def gemm_problems(suites: list[str], dtypes: list[str]) -> list[GemmProblem]:
    """List the problems of the named suites in each dtype, each once."""
    every = ((extents, dtype) for dtype in dtypes for suite in suites for extents in GEMM_SUITES[suite])
    problems = (GemmProblem(m, n, k, dtype, tuple(batch)) for (*batch, m, n, k), dtype in every)
    return list(dict.fromkeys(problems))


_LARGEST = 16384
_MOST_FLOPS = 1.5e12


def random_problems(count: int, seed: int) -> list[GemmProblem]:
    """Draw problems that nobody chose.

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


def run_sweep(count: int, seed: int, json_path: Path | None = None) -> int:
    """Measure random problems as `run_gemm` does, and sum up how fast we are; the exit status is the same.

    Parameters
    ----------
    count, seed : int
        Of `random_problems`.
    json_path : Path, optional
        Where to write the figures.
    """
    problems = random_problems(count, seed)
    sums = partial(summary, {str(problem): (problem.m, problem.n, problem.k) for problem in problems})
    return measure_all("gemm", problems, _measure_gemm, _complaint, json_path, sums)


def run_gemm(suites: list[str], dtypes: list[str], json_path: Path | None = None) -> int:
    """Measure our GEMM against torch.mm and torch.bmm (cuBLAS).

    Parameters
    ----------
    suites : list of str
        Of `GEMM_SUITES`.
    dtypes : list of str
        Of the operands, by torch's names.
    json_path : Path, optional
        Where to write the figures.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong, 2 where nothing could be measured.
    """
    return measure_all("gemm", gemm_problems(suites, dtypes), _measure_gemm, _complaint, json_path)


def _complaint(problem: GemmProblem, rows: list[Any]) -> str | None:
    right = all(row.error <= gemm_tolerance_of(problem) for row in rows)
    return None if right else f"{problem} is beyond its tolerance"


def out_dtype(dtype: str) -> str:
    """Name the result's dtype: the operands', or bfloat16 for 8-bit floats."""
    return "bfloat16" if dtype.startswith("float8") else dtype


def gemm_tolerance_of(problem: GemmProblem) -> float:
    """Give the relative error that a result may have."""
    from cutepy.testing.numerics import gemm_tolerance

    return gemm_tolerance(problem.k, 8 if problem.dtype.startswith("float8") else 16, out_dtype(problem.dtype))


def gemm_buffers(problem: GemmProblem) -> tuple[list[Any], list[Any], list[Any]]:
    """Make sets of A, B and results on the GPU, more bytes of them than the L2 cache has, of random normal values."""
    import torch

    from cutepy.benchmark import buffer_sets

    dtype, result_dtype = getattr(torch, problem.dtype), getattr(torch, out_dtype(problem.dtype))
    sets = range(buffer_sets(int(problem.bytes)))

    def operand(rows: int, major: str) -> torch.Tensor:
        extents = (rows, problem.k) if major == "k" else (problem.k, rows)
        drawn = torch.randn((*problem.batch, *extents), device="cuda").to(dtype)
        return drawn if major == "k" else drawn.mT

    a = [operand(problem.m, problem.a_major) for _ in sets]
    b = [operand(problem.n, problem.b_major) for _ in sets]
    out = [torch.empty((*problem.batch, problem.m, problem.n), device="cuda", dtype=result_dtype) for _ in sets]
    return a, b, out


def _measure_gemm(problem: GemmProblem) -> list[Any]:
    import torch

    from cutepy.benchmark import Row, compare
    from cutepy.kernels.gemm.reference import gemm_reference
    from cutepy.ops import gemm
    from cutepy.testing.numerics import relative_error

    dtype, result_dtype = getattr(torch, problem.dtype), getattr(torch, out_dtype(problem.dtype))
    a, b, out = gemm_buffers(problem)
    one = torch.ones((), device="cuda")

    def torch_mm(index: int) -> None:
        if dtype.itemsize > 1:
            multiply = torch.bmm if problem.batch else torch.mm
            multiply(a[index], b[index].mT, out=out[index])
            return
        # Fast accumulation sums 8-bit products in the tensor core alone, as our kernel does. It takes no batch.
        products = (
            zip(a[index], b[index], out[index], strict=True) if problem.batch else [(a[index], b[index], out[index])]
        )
        for x, y, result in products:
            torch._scaled_mm(x, y.t(), one, one, out_dtype=result_dtype, use_fast_accum=True, out=result)

    contenders = {"cutepy": lambda index: gemm(a[index], b[index], out=out[index]), "cuBLAS": torch_mm}
    reference = gemm_reference(a[0], b[0])
    errors = {}
    for name, contender in contenders.items():
        out[0].fill_(float("nan"))
        contender(0)
        errors[name] = relative_error(out[0], reference)
    del reference
    timings = compare(contenders, sets=len(a))
    return [
        Row(str(problem), name, timing.device_us, timing.call_us, problem.flops, problem.bytes, errors[name])
        for name, timing in timings.items()
    ]
