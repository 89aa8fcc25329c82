"""`cutepy bench rows`: time normalisations against peers and a copy of the same bytes, and check every result."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from cutepy.suites.measuring import Output, measure_all, timed
from cutepy.suites.rows_problems import EPS, Buffers, Result, RowsProblem, buffers, largest_error

if TYPE_CHECKING:
    import torch

    from cutepy.benchmark import Report, Row

Peer = Callable[[RowsProblem, Buffers], "Result | None"]
"""Function that returns what computes a problem's results; None if unsupported."""

COPY = "copy"
"""Contender that copies as many bytes as the problem moves."""
LARGEST_ERROR = 2.0**-7
"""Of the norm of a result: two roundings to bfloat16."""


def ours(problem: RowsProblem, made: Buffers) -> Result:
    """Normalise by cutepy."""
    from cutepy import ops

    return _either(problem, made, getattr(ops, problem.norm))


def of_torch(problem: RowsProblem, made: Buffers) -> Result:
    """Normalise by torch's own kernels."""
    import torch

    return _either(problem, made, getattr(torch.nn.functional, problem.norm))


def torch_compile(problem: RowsProblem, made: Buffers) -> Result:
    """Normalise by the kernels that torch.compile makes."""
    import torch

    function = getattr(torch.nn.functional, problem.norm)
    return _either(problem, made, torch.compile(function, dynamic=False, mode="max-autotune-no-cudagraphs"))


def quack(problem: RowsProblem, made: Buffers) -> Result | None:
    """Normalise by QuACK, which must be installed; layer_norm forward only, with float32 vectors."""
    # The package's attribute of this name is a function.
    theirs = importlib.import_module("quack.rmsnorm")
    if problem.norm == "rms_norm":
        return _either(problem, made, lambda x, shape, weight, eps: theirs.rmsnorm(x, weight, eps=eps))
    if problem.suite == "backward":
        return None
    weight, bias = (each.float() for each in made.vectors)
    return lambda i: (theirs.layernorm_fwd(made.x[i], weight, bias, eps=EPS),)


PEERS: dict[str, Peer] = {"torch": of_torch, "torch.compile": torch_compile, "QuACK": quack}
"""Peers that `--peer` knows."""


def _either(problem: RowsProblem, made: Buffers, norm: Callable[..., Any]) -> Result:
    """Return forward, or backward of results that are there."""
    import torch

    shape = (problem.columns,)
    if problem.suite != "backward":
        return lambda i: (norm(made.x[i], shape, *made.vectors, eps=EPS),)
    kept: dict[tuple[int, object], tuple[list[torch.Tensor], torch.Tensor]] = {}

    def gradients(i: int) -> Sequence[torch.Tensor]:
        # Autograd computes a gradient on the stream of the result, of which a captured graph knows its own only.
        stream = torch.cuda.current_stream() if made.x[i].is_cuda else None
        if (i, stream) not in kept:
            own = [each.detach().requires_grad_() for each in (made.x[i], *made.vectors)]
            kept[i, stream] = own, norm(own[0], shape, *own[1:], eps=EPS)
        inputs, result = kept[i, stream]
        return torch.autograd.grad(result, inputs, made.dy[i], retain_graph=True)

    return gradients


def copy(problem: RowsProblem, made: Buffers) -> Callable[[int], Any]:
    """Copy half of the bytes that the problem moves, by which all of them are moved."""
    import torch

    elems = int(problem.bytes) // 4
    sources = [torch.randn(elems, device=made.x[0].device, dtype=torch.bfloat16) for _ in made.x]
    target = torch.empty_like(sources[0])
    return lambda i: target.copy_(sources[i])


def run_rows(
    problems: Sequence[RowsProblem], peers: Mapping[str, Peer], output: Output, *, between: str = "none"
) -> int:
    """Measure our normalisations against peers, and a copy.

    Parameters
    ----------
    problems : sequence of RowsProblem
    peers : mapping of str to Peer
        By the names to print.
    output : Output
        What to write, and what to compare with.
    between : str
        Kernel of `cutepy.suites.measuring.COMPANY` to launch between two launches.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    measure = partial(_measure, peers, between=between)
    return measure_all("rows", problems, measure, _complaint, output, partial(bandwidths, problems))


def bandwidths(problems: Sequence[RowsProblem], report: Report) -> str:
    """Format the bandwidth of each problem as a part of a copy's, one a line."""
    lines = []
    for problem in problems:
        rows = report.of(str(problem))
        if rows.keys() >= {"cutepy", COPY}:
            own, copied = (rows[name].terabytes_per_second for name in ("cutepy", COPY))
            lines.append(f"{problem}: {own:.2f} TB/s, {own / copied:.2f} of a copy's")
    return "\n".join(lines)


def _complaint(problem: RowsProblem, rows: list[Row]) -> str | None:
    # not `>`: NaN must fail
    right = all(row.error <= LARGEST_ERROR for row in rows if row.contender == "cutepy")
    return None if right else f"{problem} is beyond its tolerance"


def _measure(peers: Mapping[str, Peer], problem: RowsProblem, between: str = "none") -> list[Row]:
    """Measure a problem; peers that don't support it are left out."""
    import torch

    torch.compiler.reset()  # otherwise torch refuses to compile one function for ever more extents
    made = buffers(problem)
    contenders, errors = dict[str, Callable[[int], Any]](), dict[str, float]()
    for name, peer in {"cutepy": ours, **peers}.items():
        try:
            launch = peer(problem, made)
            results = None if launch is None else launch(0)
        except Exception as error:  # an error of any compiler; the other contenders are still worth measuring
            if name == "cutepy" or isinstance(error, ImportError):
                raise
            typer.echo(f"{name} doesn't take {problem}: {error}", err=True)
            continue
        if launch is None or results is None:
            continue
        errors[name], contenders[name] = largest_error(problem, made, results), _keeping(launch, len(made.x))
        del results
    contenders[COPY], errors[COPY] = copy(problem, made), 0.0
    rows = timed(problem, contenders, errors, sets=len(made.x), between=between)
    return [replace(row, peer=row.contender != COPY) for row in rows]


def _keeping(launch: Result, sets: int) -> Callable[[int], Any]:
    """Keep each set's results until its next, so that results too take turns in memory, and no cache holds them all."""
    kept: list[Any] = [None] * sets

    def launched(i: int) -> Any:  # noqa: ANN401
        kept[i] = launch(i)
        return kept[i]

    return launched
