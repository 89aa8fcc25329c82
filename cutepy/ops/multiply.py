"""Products of tensors of any shape and strides, by a kernel that takes what TMA can reach.

TMA moves 16-byte units: a matrix must have one contiguous extent, in whole units, with the rows of units apart, and
start at one; the matrices of a batch must be whole units apart. What is so goes to the kernel as it is; the rest is
copied first, padded by zeros. One launch computes all products of a batch.

What is done for tensors of one description is a route, found once: a later call looks it up, and goes.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches
from cutepy.kernels.gemm.choice import expected_us
from cutepy.kernels.gemm.joining import join
from cutepy.kernels.gemm.op import Given, Launch, plan_gemm
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, Problem, matrix, new_result, padded_copy, whole_units
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.kernels.gemm.signature import Activation
from cutepy.ops.checking import describe
from cutepy.ops.overlap import check_apart, overlaps_itself, span_bytes
from cutepy.ops.precision import check_precision, tf32_allowed
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

_launches: Launches[Launch] = Launches()

# What a copy costs: the host's work for another launch, and the bytes that the GPU's memory moves. Estimates for an
# H200; they decide only whether ragged batches of rows are copied together, where some 20 us are at stake.
_COPY_US = 20
_COPY_BYTES_PER_US = 3e6


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
            key += tuple(map(_is_misaligned, (a, b, c, out)))
        launch = _launches.get(key)
    except (AttributeError, TypeError, RuntimeError):
        describe(a, b, bias, activation, out_dtype, c, out_major, out)  # says which argument is of a wrong type
        raise
    if launch is None:
        problem = describe(a, b, bias, activation, out_dtype, c, out_major, out)
        launch = _find_launch(problem, a, b, c, bias, out)
        _launches.keep(key, launch)
    return launch(a, b, c, bias, out)


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Join the leading dimensions of a tensor into one; a copy where they are not apart by one stride."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)


def _is_misaligned(tensor: Given) -> bool:
    return tensor is not None and tensor.data_ptr() % UNIT_BYTES != 0


def _find_launch(problem: Problem, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> Launch:
    """Find what multiplies tensors of a problem, and have its kernel compiled."""
    if out is None:
        return _checking_precision(_plan(problem, (a, b, c, out), bias), a)
    if overlaps_itself(problem.out):
        raise ValueError(f"out must not overlap itself, got {problem.out}; pass one whose elements lie apart")
    return _checking_precision(_checking_overlap(_plan(problem, (a, b, c, out), bias), a, b, c, bias, out), a)


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


def _plan(problem: Problem, tensors: tuple[Given, ...], bias: Given) -> Launch:
    """Decide what of a, b, c and out is copied, and how all is seen."""
    on_cpu = problem.a.device.type == "cpu" and EXECUTION.backend is None
    if on_cpu or math.prod(problem.out.shape) * problem.a.shape[-1] == 0:
        return partial(_multiply_by_reference, problem)
    views = join(problem)
    if views is None:
        return _Parts(problem).multiply
    *copied, indirect = (
        seen is not None and (matrix(seen, is_operand=place < 2) is None or _is_misaligned(tensor))
        for place, (tensor, seen) in enumerate(zip(tensors, views[:4], strict=True))
    )
    if not any(copied):
        copied[0] = _gathering_pays(views)
    if any(copied) or indirect or not (bias is None or bias.is_contiguous()):
        return _copying(problem, views, copied, indirect)
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


class _Copy(NamedTuple):
    """A copy's columns, and the place of its rows among the modes of a batch (`padded_copy`)."""

    columns: int
    place: int


class _Copies(NamedTuple):
    """Copy what TMA can't reach, then launch.

    Attributes
    ----------
    out : Description
        Of the result.
    views : Problem
        How all is seen, before it is copied.
    copies : tuple of (_Copy or None)
        Of a, b and c.
    indirect : bool
        Whether the kernel writes to a tensor of its own, which may have more columns.
    launch : Launch
    """

    out: Description
    views: Problem
    copies: tuple[_Copy | None, _Copy | None, _Copy | None]
    indirect: bool
    launch: Launch

    def multiply(self, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        out = self.out.new() if out is None else out
        views, (copy_a, copy_b, copy_c) = self.views, self.copies
        seen = _seen(out, views.out)
        a, b = _copied(_seen(a, views.a), copy_a), _copied(_seen(b, views.b), copy_b)
        if c is not None and views.c is not None:
            c = _copied(_seen(c, views.c), copy_c)
        if bias is not None:
            bias = bias.contiguous()
        if self.indirect:
            seen.copy_(self.launch(a, b, c, bias, None)[..., : seen.shape[-1]])
        else:
            self.launch(a, b, c, bias, seen)
        return out


def _copying(problem: Problem, views: Problem, copied: list[bool], indirect: bool) -> Launch:
    a, b, c, out = views[:4]
    if indirect:
        out = new_result((*out.shape[:-1], _whole_units(out)), out.dtype, "row", out.device)
    columns, place = _whole_units(a), _place_of_rows(out)
    copy_a, copy_b, copy_c = copied
    if (copy_a or copy_b) and columns > a.shape[-1]:  # a copy is contiguous along K; more columns must be both's
        copy_a = copy_b = True
    copies = (
        _Copy(columns, place) if copy_a else None,
        _Copy(columns, -2) if copy_b else None,
        _Copy(_whole_units(c), place) if copy_c and c else None,
    )
    a, b, c = (_description(tensor, copy) for tensor, copy in zip((a, b, c), copies, strict=True))
    rest = views._replace(a=a, b=b, c=c, out=out)
    joined = join(rest)
    assert joined is not None, "a copy has no more modes than what is copied"
    return _Copies(problem.out, views, copies, indirect, plan_gemm(rest, joined)).multiply


def _seen(tensor: torch.Tensor, view: Description) -> torch.Tensor:
    return tensor.as_strided(view.shape, view.stride)


def _copied(tensor: torch.Tensor, copy: _Copy | None) -> torch.Tensor:
    return tensor if copy is None else padded_copy(tensor, *copy)


def _description(tensor: Description | None, copy: _Copy | None) -> Any:  # noqa: ANN401
    """Describe a copy; None where there is no tensor."""
    if tensor is None or copy is None:
        return tensor
    made = padded_copy(torch.empty_strided(*tensor[:2], dtype=tensor.dtype, device="meta"), *copy)
    return tensor._replace(shape=tuple(made.shape), stride=made.stride())


def _whole_units(tensor: Description) -> int:
    """Round the columns of a matrix up to whole units."""
    return int(whole_units(tensor.shape[-1], tensor.dtype))


def _gathering_pays(views: Problem) -> bool:
    """Tell whether a batch that shares b, whose last tiles are part empty, is better one product of a copied a."""
    a, b, _, out = views[:4]
    *batch, m, k = a.shape
    if not batch or any(b.stride[:-2]) or 0 in a.stride:
        return False
    gathered = join(views._replace(a=_description(a, _Copy(k, _place_of_rows(out)))))
    if gathered is None or len(gathered.a.shape) > 2:
        return False
    n, bits = b.shape[-2], 8 * a.dtype.itemsize
    copy_us = _COPY_US + 2 * math.prod(a.shape) * a.dtype.itemsize / _COPY_BYTES_PER_US
    apart_us = expected_us(m, n, k, bits, batch=math.prod(batch), shared=True)
    return expected_us(gathered.a.shape[0], n, k, bits) + copy_us < apart_us


def _place_of_rows(out: Description) -> int:
    """Tell how many modes of a batch step farther in the result than its rows do."""
    return sum(step > out.stride[-2] for step in out.stride[:-2])
