"""`cutepy bench grouped`: time products of groups (mixture of experts) against peers, and check every result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from cutepy.benchmark import Row
from cutepy.kernels.grouped.reference import grouped_reference
from cutepy.ops import dequantise
from cutepy.suites.grouped_peers import Peer, ours
from cutepy.suites.grouped_problems import GroupedProblem, buffers
from cutepy.suites.measurement import Output, measure_all, timed
from cutepy.testing.numerics import gemm_tolerance, promoted_tolerance, relative_error


def run_grouped(problems: Sequence[GroupedProblem], peers: Mapping[str, Peer], output: Output) -> int:
    """Measure our grouped product against peers.

    Parameters
    ----------
    problems : sequence of GroupedProblem
    peers : mapping of str to Peer
        By the names to print.
    output : Output
        Files to write and to compare with.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    return measure_all("grouped", problems, partial(_measure, peers), _complaint, output)


def _complaint(problem: GroupedProblem, rows: list[Row]) -> str | None:
    terms = problem.k if problem.along == "m" else max(problem.sizes)
    bound = gemm_tolerance(terms, 16, "bfloat16") if problem.kind == "bfloat16" else promoted_tolerance("bfloat16")
    right = all(row.error <= bound for row in rows if problem.kind == "bfloat16" or row.contender == "cutepy")
    return None if right else f"{problem} is beyond its tolerance"


def _measure(peers: Mapping[str, Peer], problem: GroupedProblem) -> list[Row]:
    """Measure a problem; peers that don't support it are left out."""
    made = buffers(problem)
    a, b = made.a[0], made.b[0]
    entries = {"cutepy": ours(problem, made)}
    entries |= {name: entry for name, peer in peers.items() if (entry := peer(problem, made)) is not None}
    if problem.kind != "bfloat16":
        a = dequantise(a, made.scale_a[0])
        pairs = zip(b, made.scale_b[0], strict=True) if b.dim() > 2 else [(b, made.scale_b[0])]
        wide = [dequantise(*pair) for pair in pairs]
        b = torch.stack(wide) if b.dim() > 2 else wide[0]
    shape = (problem.tokens, problem.n) if problem.along == "m" else (problem.groups, problem.n, problem.k)
    reference = grouped_reference(a, b, made.ends, a.new_empty(shape, dtype=torch.float64), problem.along)
    errors = {name: relative_error(entry.result(), reference) for name, entry in entries.items()}
    del reference, a, b
    return timed(problem, {name: entry.launch for name, entry in entries.items()}, errors, sets=len(made.a))
