"""Products of tensors of any shape and strides, by a kernel that takes what TMA can reach.

TMA moves 16-byte units: a matrix must have one contiguous extent, in whole units, with the rows of units apart, and
start at one; the matrices of a batch must be whole units apart. What is so goes to the kernel as it is; so do operands
that are so of 8 or 4 bytes, which threads can load, where a copy is expected to cost more than they do. The rest is
copied first, padded by zeros. One launch computes all products of a batch.

What is done for tensors of one description is a route, found once: a later call looks it up, and goes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches
from cutepy.kernels.gemm.joining import join
from cutepy.kernels.gemm.op import Given, Launch, plan_gemm
from cutepy.kernels.gemm.operands import UNIT_BYTES, Problem, address_bytes
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.kernels.gemm.signature import Activation
from cutepy.ops.checking import describe
from cutepy.ops.copies import cheapest
from cutepy.ops.overlap import check_apart, overlaps_itself, span_bytes
from cutepy.ops.precision import check_precision, tf32_allowed
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

_launches: Launches[Launch] = Launches()


def multiply(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: Given = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
    c: Given = None,
    out_major: str = "row",
    out: Given = None,
) -> torch.Tensor:
    """Compute activation(a @ b.mT + c + bias), unseen by autograd: by the kernel on the GPU or in the simulator.

    On the CPU otherwise by the reference.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what `cutepy.ops.gemm` takes.
    """
    try:
        # All that decides the route. The words tell which tensors there are.
        key: tuple[Any, ...]
        key = (
            activation,
            out_dtype,
            out_major,
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
        if bias is not None:
            key += ("bias", bias.shape, bias.stride(), bias.dtype, bias.device)
        if c is not None:
            key += ("c", c.shape, c.stride(), c.dtype, c.device)
            address |= c.data_ptr()
        if out is not None:
            key += ("out", out.shape, out.stride(), out.dtype, out.device)
            address |= out.data_ptr()
        if address % UNIT_BYTES:
            key += tuple(map(address_bytes, (a, b, c, out)))
        launch = _launches.get(key)
    except (AttributeError, TypeError, RuntimeError):
        describe(a, b, bias, activation, out_dtype, c, out_major, out)  # says which argument is of a wrong type
        raise
    if launch is None:
        problem = describe(a, b, bias, activation, out_dtype, c, out_major, out)
        launch = _find_launch(problem.at(a, b, c, out), a, b, c, bias, out)
        _launches.keep(key, launch)
    return launch(a, b, c, bias, out)


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Join the leading dimensions of a tensor into one; a copy where they are not apart by one stride."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)


def _find_launch(problem: Problem, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> Launch:
    """Find what multiplies tensors of a problem, and have its kernel compiled."""
    if out is None:
        return _checking_precision(_plan(problem, bias), a)
    if overlaps_itself(problem.out):
        raise ValueError(f"out must not overlap itself, got {problem.out}; pass one whose elements lie apart")
    return _checking_precision(_checking_overlap(_plan(problem, bias), a, b, c, bias, out), a)


def _checking_precision(launch: Launch, a: torch.Tensor) -> Launch:
    """Check each time that float32 may be rounded, which may have changed."""
    if a.dtype != torch.float32:
        return launch

    def checked(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        if not tf32_allowed():
            check_precision("a", a)
        return launch(a, b, c, bias, out)

    return checked


def _checking_overlap(launch: Launch, *tensors: Given) -> Launch:
    """Check first that the result is apart from the inputs; here, where every road of torch ends."""
    span_a, span_b, span_c, span_bias, span = (0 if tensor is None else span_bytes(tensor) for tensor in tensors)

    def checked(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        assert out is not None
        start = out.data_ptr()
        # What nearly no call finds, so the least is asked to find it: an input ends behind where the result begins,
        # and begins before its end.
        if (
            -span_a < (a.data_ptr() - start) < span
            or -span_b < (b.data_ptr() - start) < span
            or (c is not None and -span_c < (c.data_ptr() - start) < span)
            or (bias is not None and -span_bias < (bias.data_ptr() - start) < span)
        ):
            check_apart(out, c, a=a, b=b, bias=bias)
        return launch(a, b, c, bias, out)

    return checked


def _plan(problem: Problem, bias: Given) -> Launch:
    """Decide what of a, b, c and out is copied, and how all is seen."""
    on_cpu = problem.a.device.type == "cpu" and EXECUTION.backend is None
    if on_cpu or math.prod(problem.out.shape) * problem.a.shape[-1] == 0:
        return partial(_multiply_by_reference, problem)
    views = join(problem)
    if views is None:
        return _Parts(problem).multiply
    copies = cheapest(views)
    if any(copies.made) or copies.indirect or not (bias is None or bias.is_contiguous()):
        return copies.followed_by(plan_gemm(copies.rest, copies.joined), problem.out)
    return plan_gemm(problem, views)


def _multiply_by_reference(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given
) -> torch.Tensor:
    out = problem.out.new() if out is None else out
    return out.copy_(gemm_reference(a, b, c, bias, problem.activation))


class _Parts(NamedTuple):
    """Multiply one part of the batch after another, along its shortest dimension."""

    problem: Problem

    def multiply(self, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        out = self.problem.out.new() if out is None else out
        batch = out.shape[:-2]
        dimension = min(range(len(batch)), key=batch.__getitem__)
        a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
        addends = [None] * batch[dimension] if c is None else c.expand(out.shape).unbind(dimension)
        parts = zip(a.unbind(dimension), b.unbind(dimension), addends, out.unbind(dimension), strict=True)
        for part_a, part_b, part_c, part in parts:
            multiply(part_a, part_b, bias, self.problem.activation, c=part_c, out=part)
        return out
