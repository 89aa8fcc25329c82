"""Launch of products: one plan for all tensors of a description, kept in a cache, past autograd.

On the GPU and in the simulator a launch follows the plan of the kernel (`cutepy.kernels.gemm.op`). For tensors of the
CPU, and for empty products, a launch computes in float64 and rounds once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from cutepy.epilogues.reference import compute
from cutepy.host.launches import Launches, OptionalTensor
from cutepy.kernels.gemm.op import plan_gemm
from cutepy.kernels.gemm.operands import UNIT_BYTES, Problem
from cutepy.kernels.gemm.routes import Launch
from cutepy.kernels.gemm.scales import Scales
from cutepy.ops.checking import (
    check_apart,
    check_precision,
    check_results_apart,
    check_without_overlap,
    describe,
    described,
    out_name,
    tf32_allowed,
)
from cutepy.ops.operands import Rows, in_double
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE
from cutepy.runtime.untraced import keep_untraced, untraced

_launches: Launches[Launch] = Launches()
_ALONG_K: tuple[OptionalTensor, OptionalTensor] = (None, None)


@untraced("a product past torch's dispatcher")
def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: str,
    operands: Sequence[Any] = (),
    out_dtype: torch.dtype | None = None,
    out_major: str = "row",
    outs: Sequence[OptionalTensor] = (None,),
    scales: Scales | None = None,
    named: bool = False,
) -> Sequence[torch.Tensor]:
    """Compute an epilogue's results of a @ b.mT, into `outs` or new tensors.

    Parameters
    ----------
    a, b, out_dtype, out_major
        As `cutepy.ops.gemm` takes them.
    epilogue : str
        The text of its graph.
    operands : sequence of Tensor or number
        In the order of the graph's.
    outs : sequence of (Tensor or None)
        For each result.
    scales : Scales, optional
        Of 8-bit a and b (N, K), whose sums are scaled before.
    named : bool
        True if the operands are C and a bias, of `gemm` without an epilogue.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit `cutepy.ops.gemm`.
    """
    try:
        # All that decides the launch.
        key: tuple[Any, ...]
        key = (
            epilogue,
            out_dtype,
            out_major,
            named,
            EXECUTION.backend is None,
            INVARIANCE.on,
            a.shape,
            a.stride(),
            a.dtype,
            a.device,
            b.shape,
        )
        key += (b.stride(), b.dtype, b.device)
        address = a.data_ptr() | b.data_ptr()
        along_k = _ALONG_K
        if scales is not None:
            operands = _scaled_first(scales, operands, a.shape[:-1])
            along_k = scales.along_k
            key += scales.how
        for value in operands:
            if isinstance(value, torch.Tensor):
                key += (value.shape, value.stride(), value.dtype, value.device)
                address |= value.data_ptr()
            else:
                key += (type(value),)
        if (out := outs[0]) is not None:
            key += ("out", out.shape, out.stride(), out.dtype, out.device)
            address |= out.data_ptr()
            for other in outs[1:]:
                key += (other.shape, other.stride(), other.dtype, other.device)  # type: ignore[union-attr]
                address |= other.data_ptr()  # type: ignore[union-attr]
        if address % UNIT_BYTES:
            tensors = (each for each in (a, b, *operands, *outs) if isinstance(each, torch.Tensor))
            key += tuple(math.gcd(each.data_ptr(), UNIT_BYTES) for each in tensors)
        launch = _launches.get(key)
    except (AttributeError, TypeError, RuntimeError):
        describe(a, b, epilogue, operands, out_dtype, out_major, outs, named=named)  # says which argument is wrong
        raise
    if launch is None:
        own = operands if scales is None else operands[len(scales.of_results) :]
        problem = describe(a, b, epilogue, own, out_dtype, out_major, outs, named=named)
        if scales is not None:
            graph = scales.before(problem.graph)
            problem = problem._replace(epilogue=graph.text, scale_rows=scales.rows, tma_scales=scales.by_tma)
        problem = problem.at(_placed(a), _placed(b), [*map(_placed, operands)], [*map(_placed, outs)])
        launch = _launches.keep(key, _find_launch(problem, scales, into=outs[0] is not None))
    return launch(a, b, operands, outs, along_k)


keep_untraced()  # where a graph breaks around a call, what it calls runs as it is


def _scaled_first(scales: Scales, operands: Sequence[Any], leading: Sequence[int]) -> tuple[Any, ...]:
    """Put the scales that don't differ along K before an epilogue's operands; those of a's rows have their extents."""
    of_results = scales.of_results
    if not scales.of_a.k and scales.of_a.rows and len(leading) != 1:
        of_results = (of_results[0].view(leading), *of_results[1:])
    return (*of_results, *operands)


def _placed(value: Any) -> Any:  # noqa: ANN401
    """Describe a tensor with the alignment of its address; None stands for an argument that is no tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    return described(value)._replace(address_bytes=math.gcd(value.data_ptr(), UNIT_BYTES))


def _find_launch(problem: Problem, scales: Scales | None, *, into: bool) -> Launch:
    """Find the launch of a product for tensors of a problem, into given results or new ones, and compile its kernel."""
    on_cpu = problem.a.device.type == "cpu" and EXECUTION.backend is None
    if on_cpu or not math.prod(problem.leading) * problem.b.shape[-2] * problem.a.shape[-1]:
        launch = _by_reference(problem, scales)
    else:
        launch = plan_gemm(problem)
    if into:
        launch = _checking_overlap(launch, problem)
    return _checking_precision(launch) if problem.a.dtype == torch.float32 else launch


def _checking_precision(launch: Launch) -> Launch:
    """Check each time that float32 may be rounded, which may have changed."""

    def checked(a: torch.Tensor, *rest: Any) -> Sequence[torch.Tensor]:  # noqa: ANN401
        if not tf32_allowed():
            check_precision("a", a)
        return launch(a, *rest)

    return checked


def _checking_overlap(launch: Launch, problem: Problem) -> Launch:
    """Check first that results are apart from the inputs, and from each other: every way through torch calls this.

    A tile may receive a result of its width: each element is read before it is written.
    """
    graph, results = problem.graph, problem.results
    names = [out_name(result) for result in graph.results]
    for name, out in zip(names, results, strict=True):
        check_without_overlap(name, out)
    spans = [(n, each.span_bytes) for n, each in enumerate(problem.operands) if each is not None]
    indices = [n for n, _ in spans]
    span_a, span_b = problem.a.span_bytes, problem.b.span_bytes
    thorough, span = len(results) > 1, results[0].span_bytes
    tiles = [
        {each.name for each in graph.operands if each.shape == "tile" and each.width == graph.width(result)}
        if graph.reduction(result) is None
        else set()
        for result in graph.results
    ]

    def check(
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[Any],
        along_k: Sequence[OptionalTensor],
    ) -> None:
        inputs = {"a": a, "b": b} | {graph.operands[n].name: operands[n] for n in indices}
        pairs = zip(("scale_a", "scale_b"), along_k, strict=True)
        inputs |= {name: scale for name, scale in pairs if scale is not None}
        for n, (name, out) in enumerate(zip(names, outs, strict=True)):
            check_apart(name, out, inputs, tiles[n])
        check_results_apart(names, outs)

    def checked(
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[Any],
        along_k: tuple[OptionalTensor, OptionalTensor],
    ) -> Sequence[torch.Tensor]:
        if thorough or along_k is not _ALONG_K:
            check(a, b, operands, outs, along_k)
            return launch(a, b, operands, outs, along_k)
        # What nearly no call finds, so the least is asked to find it: an input ends behind where the result begins,
        # and begins before its end.
        start = outs[0].data_ptr()
        if -span_a < (a.data_ptr() - start) < span or -span_b < (b.data_ptr() - start) < span:
            check(a, b, operands, outs, along_k)
        for n, own in spans:
            if -own < (operands[n].data_ptr() - start) < span:
                check(a, b, operands, outs, along_k)
        return launch(a, b, operands, outs, along_k)

    return checked


def _by_reference(problem: Problem, scales: Scales | None) -> Launch:
    """Compute in float64, and round once."""
    graph, rows = problem.graph, Rows(problem.leading, len(problem.b.shape) > 2)

    def launch(
        a: torch.Tensor,
        b: torch.Tensor,
        operands: Sequence[Any],
        outs: Sequence[OptionalTensor],
        along_k: tuple[OptionalTensor, OptionalTensor],
    ) -> Sequence[torch.Tensor]:
        wide_a, wide_b = in_double(a, b, scales, along_k)
        acc, n = rows.joined(wide_a @ wide_b.mT), b.shape[-2]
        pairs = zip(graph.operands, operands, strict=True)
        given = {each.name: rows.operand(each, value, n) for each, value in pairs}
        found = compute(graph, acc, given, torch.float64)
        made = [each.new() if out is None else out for each, out in zip(problem.results, outs, strict=True)]
        return [
            each.copy_(rows.result(graph, place, value))
            for place, (each, value) in enumerate(zip(made, found, strict=True))
        ]

    return launch
