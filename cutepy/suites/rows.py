"""`cutepy bench rows`: time operations on rows against peers and a copy of the same bytes, and check every result."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import typer

from cutepy import ops
from cutepy.benchmark import Report, Row
from cutepy.suites.measurement import Output, measure_all, timed
from cutepy.suites.rows_problems import EPS, Buffers, Result, RowsProblem, buffers, largest_error

Peer = Callable[[RowsProblem, Buffers], "Result | None"]
"""Function that returns what computes a problem's results; None if unsupported."""

COPY = "copy"
"""Contender that copies as many bytes as the problem moves."""
LARGEST_ERROR = 2.0**-7
"""Of the norm of a result: two roundings to bfloat16."""


def ours(problem: RowsProblem, made: Buffers) -> Result:
    """Compute by cutepy."""
    if problem.operation == "cross_entropy":  # losses of peers other than torch's are float32
        return _either(problem, made, functools.partial(ops.cross_entropy, out_dtype=torch.float32))
    return _either(problem, made, getattr(ops, problem.operation))


def of_torch(problem: RowsProblem, made: Buffers) -> Result:
    """Compute by torch's own kernels."""
    return _either(problem, made, _function_of_torch(problem))


def torch_compile(problem: RowsProblem, made: Buffers) -> Result:
    """Compute by the kernels that torch.compile makes."""
    function = _function_of_torch(problem)
    return _either(problem, made, torch.compile(function, dynamic=False, mode="max-autotune-no-cudagraphs"))


def _function_of_torch(problem: RowsProblem) -> Callable[..., Any]:
    functional = torch.nn.functional
    if problem.operation == "swiglu":
        return lambda gate, up: functional.silu(gate) * up
    return (
        functools.partial(torch.softmax, dim=-1)
        if problem.operation == "softmax"
        else getattr(functional, problem.operation)
    )


def quack(problem: RowsProblem, made: Buffers) -> Result | None:
    """Compute by QuACK, which must be installed; layer_norm forward only, with float32 vectors; no swiglu."""
    # Attributes of the package of these names are functions.
    if problem.operation in ("softmax", "cross_entropy"):
        theirs = importlib.import_module(f"quack.{problem.operation}")
        return _either(problem, made, getattr(theirs, problem.operation))
    theirs = importlib.import_module("quack.rmsnorm")
    if problem.operation == "rms_norm":
        return _either(problem, made, lambda x, shape, weight, eps: theirs.rmsnorm(x, weight, eps=eps))
    if problem.suite == "backward" or problem.operation == "swiglu":
        return None
    weight, bias = (each.float() for each in made.vectors)
    return lambda i: (theirs.layernorm_fwd(made.inputs[i][0], weight, bias, eps=EPS),)


PEERS: dict[str, Peer] = {"torch": of_torch, "torch.compile": torch_compile, "QuACK": quack}
"""Peers that `--peer` knows."""


def _either(problem: RowsProblem, made: Buffers, function: Callable[..., Any]) -> Result:
    """Return forward, or backward of results that are there."""

    def called(*given: torch.Tensor) -> Any:  # noqa: ANN401
        if problem.vectors:
            x, *vectors = given
            return function(x, (problem.columns,), *vectors, eps=EPS)
        if problem.operation == "cross_entropy":
            return function(*given, made.vectors[0], reduction="none")
        return function(*given)

    vectors = made.vectors[: problem.vectors]
    if problem.suite != "backward":
        return lambda i: (called(*made.inputs[i], *vectors),)
    kept: dict[tuple[int, object], tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]] = {}

    def gradients(i: int) -> Sequence[torch.Tensor]:
        # Autograd computes a gradient on the stream of the result, of which a captured graph knows its own only.
        stream = torch.cuda.current_stream() if made.dy[i].is_cuda else None
        if (i, stream) not in kept:
            own = [each.detach().requires_grad_() for each in (*made.inputs[i], *vectors)]
            result = called(*own)
            kept[i, stream] = own, result, made.dy[i].to(result.dtype)
        inputs, result, dy = kept[i, stream]
        return torch.autograd.grad(result, inputs, dy, retain_graph=True)

    return gradients


def copy(problem: RowsProblem, made: Buffers) -> Callable[[int], Any]:
    """Copy half of the bytes that the problem moves, by which all of them are moved."""
    elems = int(problem.bytes) // 4
    sources = [torch.randn(elems, device=made.inputs[0][0].device, dtype=torch.bfloat16) for _ in made.inputs]
    target = torch.empty_like(sources[0])
    return lambda i: target.copy_(sources[i])


def run_rows(
    problems: Sequence[RowsProblem], peers: Mapping[str, Peer], output: Output, *, between: str = "none"
) -> int:
    """Measure our operations on rows against peers, and a copy.

    Parameters
    ----------
    problems : sequence of RowsProblem
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
    measure = functools.partial(_measure, peers, between=between)
    return measure_all("rows", problems, measure, _complaint, output, functools.partial(bandwidths, problems))


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
        errors[name], contenders[name] = largest_error(problem, made, results), _keeping(launch, len(made.inputs))
        del results
    contenders[COPY], errors[COPY] = copy(problem, made), 0.0
    rows = timed(problem, contenders, errors, sets=len(made.inputs), between=between)
    return [replace(row, peer=row.contender != COPY) for row in rows]


def _keeping(launch: Result, sets: int) -> Callable[[int], Any]:
    """Keep each set's results until its next, so that results too take turns in memory, and no cache holds them all."""
    kept: list[Any] = [None] * sets

    def launched(i: int) -> Any:  # noqa: ANN401
        kept[i] = launch(i)
        return kept[i]

    return launched
