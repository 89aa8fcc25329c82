"""`cutepy bench gemm`: time the GEMM against its peers, and check every result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cutepy.benchmark import Row
from cutepy.benchmark.protocol import Contender
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.ops import gemm
from cutepy.suites.gemm_problems import GemmProblem, buffers, poison, tf32, tolerance
from cutepy.suites.gemm_tuning import compile_chosen
from cutepy.suites.measurement import Output, has_hopper, measure_all, timed
from cutepy.suites.peers import Peer
from cutepy.suites.sweeps import summary
from cutepy.testing.numerics import relative_error


def run_gemm(
    problems: Sequence[GemmProblem],
    peers: Mapping[str, Peer],
    output: Output,
    *,
    summed: bool = False,
    between: str = "none",
) -> int:
    """Measure our GEMM against peers; the chosen kernels are compiled first, in parallel.

    Parameters
    ----------
    problems : sequence of GemmProblem
    peers : mapping of str to Peer
        By the names to print.
    output : Output
        Files to write and to compare with.
    summed : bool
        True to sum up how fast we are, in the mean and by classes.
    between : str
        Kernel of `cutepy.suites.measurement.COMPANY` to launch between two products.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    if has_hopper():
        compile_chosen(problems)
    extents = {str(problem): (problem.m, problem.n, problem.k) for problem in problems}
    sums = partial(summary, extents) if summed else None
    return measure_all("gemm", problems, partial(_measure, peers, between=between), _complaint, output, sums)


def _complaint(problem: GemmProblem, rows: list[Row]) -> str | None:
    right = all(row.error <= tolerance(problem) for row in rows)
    return None if right else f"{problem} is beyond its tolerance"


@tf32()
def _measure(peers: Mapping[str, Peer], problem: GemmProblem, between: str = "none") -> list[Row]:
    """Measure a problem; peers that don't support it are left out."""
    sets = buffers(problem)
    a, b, out = sets
    contenders: dict[str, Contender] = {"cutepy": lambda index: gemm(a[index], b[index], out=out[index])}
    contenders |= {name: made for name, peer in peers.items() if (made := peer(problem, sets)) is not None}
    reference = gemm_reference(a[0], b[0])
    errors = {}
    for name, contender in contenders.items():
        poison(out[0])
        contender(0)
        errors[name] = relative_error(out[0], reference)
    del reference
    return timed(problem, contenders, errors, sets=len(a), between=between)
