"""`cutepy bench fused`: time products with fused epilogues against fused peers and our own unfused pair.

The unfused pair is our product into a buffer, then one elementwise kernel. What fusing saves of it is told as the gain:

    gain = (T_unfused - T_fused) / (T_unfused - T_least)
    T_least = T_plain + (operand bytes - product bytes + result bytes) / bandwidth

All T are device times. T_plain is the product alone, which the pair begins with, so that T_unfused - T_plain is the
whole second kernel. What only the epilogue reads (bias, residual, scales) the fused kernel must read too, at the cost
of its bytes; a result that is narrower than the product spares bytes that the product alone writes. The bandwidth is
that of a copy on an H200. A gain of 1 says that the epilogue is free but for its bytes; it may be above 1 where the
tensor cores' work hides these, and below where it hides the bytes that are spared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import typer

from cutepy.benchmark import Report, Row
from cutepy.benchmark.protocol import Contender
from cutepy.benchmark.roofline import BYTES_PER_US
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.ops import gemm
from cutepy.suites.gemm_epilogue_problems import Buffers, FusedProblem, buffers
from cutepy.suites.measurement import Output, measure_all, timed
from cutepy.testing.numerics import epilogue_tolerance, gemm_tolerance, relative_error

UNFUSED, PLAIN = "unfused, compiled", "plain"
"""Contenders: our product with torch.compile's kernel for the rest; our product alone."""

Peer = Callable[[FusedProblem, Buffers], "Contender | None"]
"""Function that returns the launcher of a problem on one set of buffers; None if unsupported."""


def ours(problem: FusedProblem, made: Buffers) -> Contender:
    """Multiply by `gemm` with the epilogue."""
    function = problem.kind.epilogue
    names = [each.name for each in function.operands]
    named: list[dict[str, Any]] = [dict(zip(names, own, strict=True)) for own in made.operands]
    return lambda i: gemm(made.a[i], made.b[i], epilogue=function, **named[i])


def plain(problem: FusedProblem, made: Buffers) -> Contender:
    """Multiply by `gemm`, without the rest."""
    return lambda i: gemm(made.a[i], made.halves[i], out=made.product[i])


def unfused(problem: FusedProblem, made: Buffers) -> Contender:
    """Multiply by `gemm`, and compute the rest in one kernel of torch.compile."""

    def rest(product: torch.Tensor, *operands: torch.Tensor) -> torch.Tensor:
        return _finish(problem.kind.step, product, operands)

    multiply, compiled = plain(problem, made), torch.compile(rest, dynamic=False)
    return lambda i: compiled(multiply(i), *made.operands[i])


def torch_compile(problem: FusedProblem, made: Buffers) -> Contender:
    """Compile the whole with torch.compile: Triton's templates with fused epilogues where they win."""

    def whole(a: torch.Tensor, b: torch.Tensor, *operands: torch.Tensor) -> torch.Tensor:
        return _finish(problem.kind.step, a @ b.mT, operands)

    compiled = torch.compile(whole, dynamic=False, mode="max-autotune-no-cudagraphs")
    return lambda i: compiled(made.a[i], made.halves[i], *made.operands[i])


def _finish(step: Callable[..., torch.Tensor], product: torch.Tensor, operands: Iterable[torch.Tensor]) -> torch.Tensor:
    """Compute a step in fp32, and round."""
    return step(product.float(), *(each.float() for each in operands)).to(product.dtype)


def quack(problem: FusedProblem, made: Buffers) -> Contender | None:
    """Multiply by QuACK, tuned, which must be installed; gates are even columns. Scales are unsupported."""
    if problem.what == "scales":
        return None
    from quack import gemm_interface as theirs  # type: ignore[import-not-found]

    a, b, operands = made.a, made.b, made.operands
    if problem.what == "residual":
        return lambda i: theirs.gemm_add(a[i], b[i].mT, operands[i][0], tuned=True, split_k=None)
    activation = {"swiglu": "swiglu", "bias_gelu": "gelu_tanh_approx"}[problem.what]
    biases = [own[0] if own else None for own in operands]

    def launch(i: int) -> torch.Tensor:
        result: torch.Tensor
        _, result = theirs.gemm_act(
            a[i], b[i].mT, bias=biases[i], activation=activation, store_preact=False, tuned=True
        )
        return result

    return launch


PEERS: Mapping[str, Peer] = {"torch.compile": torch_compile, "QuACK": quack}
"""Peers that come with cutepy."""


def gain(problem: FusedProblem, unfused_us: float, plain_us: float, fused_us: float) -> tuple[float, float]:
    """Return the microseconds that fusion saves, and the most it can save; the gain is their ratio.

    Examples
    --------
    >>> problem = FusedProblem("swiglu", 1000, 4240, 64)
    >>> tuple(round(each, 6) for each in gain(problem, 14.0, 10.0, 9.0))
    (5.0, 5.0)
    """
    return unfused_us - fused_us, unfused_us - plain_us - problem.added_bytes / BYTES_PER_US


def gains(problems: Iterable[FusedProblem], report: Report) -> str:
    """Format the gain of each problem, one a line."""
    lines = []
    for problem in problems:
        rows = report.of(str(problem))
        if not rows.keys() >= {"cutepy", UNFUSED, PLAIN}:
            lines.append(f"{problem}: no gain is known, as the unfused pair was not measured")
            continue
        saved, most = gain(problem, *(rows[name].device_us for name in (UNFUSED, PLAIN, "cutepy")))
        ratio = f"gain {saved / most:.2f}" if most > 0 else "no gain to be had"
        lines.append(f"{problem}: {ratio}, {saved:.1f} of {most:.1f} us that fusing can save")
    return "\n".join(lines)


def run_fused(problems: Sequence[FusedProblem], peers: Mapping[str, Peer], output: Output) -> int:
    """Measure fused epilogues against peers.

    Returns
    -------
    int
        Exit status: 1 where a result is wrong or slower than it was, 2 where nothing could be measured.
    """
    return measure_all("fused", problems, partial(_measure, peers), _complaint, output, partial(gains, problems))


def tolerance(problem: FusedProblem, contender: str) -> float:
    """Return the allowed relative error of a contender's result; products rounded first have more."""
    if contender == PLAIN:
        return gemm_tolerance(problem.k, 16, problem.dtype)
    rounds = contender in (UNFUSED, "torch.compile")
    return epilogue_tolerance(problem.k, 16, problem.dtype, condition=problem.kind.condition, rounds_product=rounds)


def _complaint(problem: FusedProblem, rows: list[Row]) -> str | None:
    # not `>`: NaN must fail
    wrong = [row.contender for row in rows if not row.error <= tolerance(problem, row.contender)]
    return f"{problem} is beyond its tolerance: {'; '.join(wrong)}" if wrong else None


def _measure(peers: Mapping[str, Peer], problem: FusedProblem) -> list[Row]:
    """Measure a problem; contenders that don't support it are left out."""
    torch.compiler.reset()  # otherwise torch refuses to compile one function for ever more extents
    made = buffers(problem)
    product = gemm_reference(made.a[0], made.halves[0])
    reference = problem.kind.step(product, *(each.double() for each in made.operands[0]))
    contenders, errors = dict[str, "Contender"](), dict[str, float]()
    for name, maker in {"cutepy": ours, UNFUSED: unfused, PLAIN: plain, **peers}.items():
        if (launch := maker(problem, made)) is None:
            continue
        made.product[0].fill_(float("nan"))
        try:
            result = launch(0)
        except Exception as error:  # an error of any compiler; the other contenders are still worth measuring
            if name in ("cutepy", PLAIN) or isinstance(error, ImportError):
                raise
            typer.echo(f"{name} doesn't take {problem}: {error}", err=True)
            continue
        errors[name] = relative_error(result, product if name == PLAIN else reference)
        contenders[name] = _keeping(launch, len(made.a))
        del result
    del product, reference
    rows = timed(problem, contenders, errors, sets=len(made.a))
    moved = {PLAIN: problem.plain_bytes}
    return [
        replace(row, bytes=moved.get(row.contender, row.bytes), peer=row.contender not in (UNFUSED, PLAIN))
        for row in rows
    ]


def _keeping(launch: Contender, sets: int) -> Contender:
    """Keep each set's result until its next, so that results too take turns in memory, and no cache holds them all."""
    kept: list[Any] = [None] * sets

    def launched(i: int) -> torch.Tensor:
        kept[i] = launch(i)
        result: torch.Tensor = kept[i]
        return result

    return launched
