"""`cutepy bench attention`: time attention against peers, and check every result against float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from cutepy.benchmark import Row
from cutepy.suites.attention_peers import Peer, available, ours
from cutepy.suites.attention_problems import AttentionProblem, buffers, wanted
from cutepy.suites.measurement import Output, measure_all, timed
from cutepy.testing.numerics import relative_error

LARGEST_ERROR, LARGEST_ERROR_E4M3 = 2.0**-7, 2.0**-5
"""Of the norm of a result: two roundings to bfloat16; one of probabilities to e4m3."""


def run_attention(
    problems: Sequence[AttentionProblem], peers: Mapping[str, Peer], output: Output, *, between: str = "none"
) -> int:
    """Measure our attention against peers.

    Parameters
    ----------
    problems : sequence of AttentionProblem
    peers : mapping of str to Peer
        By the names to print.
    output : Output
        Files to write and to compare with.
    between : str
        Kernel of `cutepy.suites.measurement.COMPANY` to launch between two launches.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    return measure_all("attention", problems, partial(_measure, peers, between=between), _complaint, output)


def _complaint(problem: AttentionProblem, rows: list[Row]) -> str | None:
    most = LARGEST_ERROR_E4M3 if problem.suite == "e4m3" else LARGEST_ERROR
    right = all(row.error <= most for row in rows if row.contender == "cutepy")
    return None if right else f"{problem} is beyond its tolerance"


def _measure(peers: Mapping[str, Peer], problem: AttentionProblem, between: str = "none") -> list[Row]:
    """Measure a problem; peers that don't support it are left out."""
    made = buffers(problem)
    entries = {"cutepy": ours(problem, made)}
    entries |= {name: found for name, peer in peers.items() if (found := available(peer, problem, made)) is not None}
    reference = wanted(problem, made)
    errors = {name: relative_error(entry(0).reshape(reference.shape), reference) for name, entry in entries.items()}
    del reference
    return timed(problem, entries, errors, sets=len(made.q), between=between)
