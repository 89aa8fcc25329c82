"""`cutepy bench loss`: time a linear layer's cross entropy with its gradients, and find its peak memory."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import typer
from torch.nn import functional

from cutepy import ops
from cutepy.benchmark import Report, Row
from cutepy.suites.measurement import Output, measure_all, timed

LARGEST_ERROR = 2.0**-6
"""Of the norm of a result: roundings of logits and of their gradients to bfloat16."""
_CHUNK = 1024
"""Rows that are compared in float64 at a time."""
Loss = Callable[..., Any]
"""Function (hidden, weight, labels) -> mean loss."""


@dataclass(frozen=True)
class LossProblem:
    """Mean cross entropy of hidden @ weight.T in bfloat16, forward and backward.

    Attributes
    ----------
    rows, features, classes : int
    """

    rows: int
    features: int
    classes: int

    def __str__(self) -> str:
        return f"linear cross entropy {self.rows}x{self.features}x{self.classes}"

    @property
    def flops(self) -> float:
        """Operations of three products."""
        return 6.0 * self.rows * self.features * self.classes

    @property
    def bytes(self) -> float:
        """Bytes of the inputs, and of their gradients."""
        return 4.0 * self.features * (self.rows + self.classes)


PROBLEMS = (LossProblem(8192, 4096, 128256), LossProblem(16384, 2048, 32000))


class Tensors(NamedTuple):
    """Tensors of a problem.

    Attributes
    ----------
    hidden : list of Tensor (rows, features)
        One of each set.
    weight : Tensor (classes, features)
    labels : Tensor (rows,)
        A sixteenth of them doesn't count.
    """

    hidden: list[torch.Tensor]
    weight: torch.Tensor
    labels: torch.Tensor


def make(problem: LossProblem, device: str = "cuda", sets: int = 2) -> Tensors:
    """Make random tensors."""
    chance = torch.Generator(device).manual_seed(0)
    hidden = [
        torch.randn(problem.rows, problem.features, generator=chance, device=device).bfloat16() for _ in range(sets)
    ]
    weight = torch.randn(problem.classes, problem.features, generator=chance, device=device) * problem.features**-0.5
    labels = torch.randint(problem.classes, (problem.rows,), generator=chance, device=device)
    labels[::16] = -100
    return Tensors(hidden, weight.bfloat16(), labels)


def ours(chunk_rows: int | None = None) -> Loss:
    """Compute by cutepy, with the logits of so many rows."""
    return functools.partial(ops.linear_cross_entropy, chunk_rows=chunk_rows)


def of_torch() -> Loss:
    """Compute by torch's own kernels, with all logits."""
    return lambda hidden, weight, labels: functional.cross_entropy(functional.linear(hidden, weight), labels)


def torch_compile() -> Loss:
    """Compute by the kernels that torch.compile makes."""
    return torch.compile(of_torch(), dynamic=False)


def torch_chunked() -> Loss:
    """Compute by torch's own linear_cross_entropy, in chunks."""
    options: Any = torch.nn.LinearCrossEntropyOptions()
    function: Any = torch.nn.functional.linear_cross_entropy
    return functools.partial(function, options=options)


def quack() -> Loss:
    """Compute by QuACK, which must be installed, in chunks of 4,096 rows."""
    theirs = importlib.import_module("quack.linear_cross_entropy")
    return theirs.chunked_linear_cross_entropy  # type: ignore[no-any-return]


def liger() -> Loss:
    """Compute by Liger, which must be installed, in chunks that it chooses."""
    theirs = importlib.import_module("liger_kernel.transformers.functional")
    return theirs.liger_fused_linear_cross_entropy  # type: ignore[no-any-return]


PEERS: dict[str, Callable[[], Loss]] = {
    "torch": of_torch,
    "torch.compile": torch_compile,
    "torch chunked": torch_chunked,
    "QuACK": quack,
    "Liger": liger,
}
"""Peers that `--peer` knows."""
OURS: dict[str, Callable[[], Loss]] = {"cutepy": ours, "cutepy, 4096 rows": functools.partial(ours, 4096)}


def run_loss(problems: Sequence[LossProblem], peers: Mapping[str, Callable[[], Loss]], output: Output) -> int:
    """Measure a linear layer's cross entropy against peers.

    Parameters
    ----------
    problems : sequence of LossProblem
    peers : mapping of str to callable
        Each makes a function of hidden, weight and labels.
    output : Output
        Files to write and to compare with.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    peaks: dict[str, dict[str, int]] = {}
    measure = functools.partial(_measure, {**OURS, **peers}, peaks)
    return measure_all("loss", problems, measure, _complaint, output, functools.partial(_memory, peaks))


def _memory(peaks: Mapping[str, Mapping[str, int]], report: Report) -> str:
    """Format the peak memory of each problem, one contender a line."""
    return "\n".join(
        f"{problem}, {name}: {peak / 1e9:.2f} GB at most, its gradients included"
        for problem, of_problem in peaks.items()
        for name, peak in of_problem.items()
    )


def _complaint(problem: LossProblem, rows: list[Row]) -> str | None:
    # not `>`: NaN must fail
    right = all(row.error <= LARGEST_ERROR for row in rows if row.contender in OURS)
    return None if right else f"{problem} is beyond its tolerance"


def _measure(
    contenders: Mapping[str, Callable[[], Loss]], peaks: dict[str, dict[str, int]], problem: LossProblem
) -> list[Row]:
    torch.compiler.reset()
    made = make(problem)
    exact = in_float64(made)
    steps, errors, peak = dict[str, Callable[[int], Any]](), dict[str, float](), peaks.setdefault(str(problem), {})
    for name, contender in contenders.items():
        try:
            run = functools.partial(step, contender(), made)
            errors[name] = error_of(run(0), exact)
        except Exception as error:  # an error of any compiler; the other contenders are still worth measuring
            if name in OURS or isinstance(error, ImportError):
                raise
            typer.echo(f"{name} doesn't take {problem}: {error}", err=True)
            continue
        steps[name], peak[name] = run, _peak(run)
    del exact
    return timed(problem, steps, errors, sets=len(made.hidden))


def step(loss: Loss, made: Tensors, index: int) -> Sequence[torch.Tensor]:
    """Compute the loss of a set, and its gradients."""
    hidden, weight = (each.detach().requires_grad_() for each in (made.hidden[index], made.weight))
    found = loss(hidden, weight, made.labels)
    return (found, *torch.autograd.grad(found, (hidden, weight)))


def _peak(run: Callable[[int], Any]) -> int:
    """Return the most bytes that a step has beyond those that there were."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(0)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def in_float64(made: Tensors) -> Sequence[torch.Tensor]:
    """Compute the loss of the first set and its gradients in float64, some rows at a time."""
    weight, count = made.weight.double(), (made.labels != -100).sum()
    loss, of_weight, of_hidden = weight.new_zeros(()), torch.zeros_like(weight), []
    for hidden, labels in zip(made.hidden[0].split(_CHUNK), made.labels.split(_CHUNK), strict=True):
        logits = (hidden.double() @ weight.t()).requires_grad_()
        part = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / count
        (grad,) = torch.autograd.grad(part, logits)
        loss = loss + part.detach()
        of_hidden.append((grad @ weight).float())
        of_weight += grad.t() @ hidden.double()
    return loss, torch.cat(of_hidden), of_weight


def error_of(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """Return the largest relative Frobenius error of the loss and the gradients."""
    return max(
        float((ours.detach().double() - truth.double()).norm() / truth.double().norm())
        for ours, truth in zip(found, exact, strict=True)
    )
