"""Products of tensors of any shape and strides, by a kernel that takes what TMA can reach.

TMA moves 16-byte units: a matrix must have one contiguous extent, in whole units, with the rows of units apart, and
start at one; the matrices of a batch must be whole units apart. What is so goes to the kernel as it is; the rest is
copied first, padded by zeros. One launch computes all products of a batch.

What is done for tensors of one description is a route, found once: a later call looks it up, and goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from cutepy.dsl import execution
from cutepy.kernels.gemm.config import Activation, expected_us
from cutepy.kernels.gemm.op import plan_gemm
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description, Problem, matrix
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.ops.checking import describe, new_result
from cutepy.ops.joining import join
from cutepy.ops.overlap import check_apart, overlaps_itself, span_bytes

Given = torch.Tensor | None
Route = Callable[[torch.Tensor, torch.Tensor, Given, Given, Given], torch.Tensor]
"""Multiplies (a, b, c, bias, out), into a new tensor if out is None."""

_MOST_ROUTES = 4096
_routes: dict[tuple[Any, ...], Route] = {}
_backends = execution.backends()

# What a copy costs: the host's work for another launch, and the bytes that the GPU's memory moves. Estimates for an
# H200; they decide only whether ragged batches of rows are copied together, where some 20 us are at stake.
_COPY_US = 20
_COPY_BYTES_PER_US = 3e6

# Torch's compiled code allocates and makes views by these, at a third of what operators cost a call.
_guards = torch._C._dynamo.guards
_empty_on_gpu: Callable[..., torch.Tensor] | None = getattr(_guards, "_empty_strided_cuda", None)
_view: Callable[..., torch.Tensor] = getattr(_guards, "_reinterpret_tensor", torch.as_strided)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)


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
        key = (a.shape, a.stride(), a.dtype, a.device, b.shape, b.stride(), b.dtype, b.device, activation, out_dtype)
        key += (out_major, not _backends)
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
        route = _routes.get(key)
    except (AttributeError, TypeError, RuntimeError):
        describe(a, b, bias, activation, out_dtype, c, out_major, out)  # says which argument is of a wrong type
        raise
    if route is None:
        route = _find_route(a, b, bias, activation, out_dtype, c, out_major, out)
        if len(_routes) >= _MOST_ROUTES:
            _routes.clear()
        _routes[key] = route
    return route(a, b, c, bias, out)


def multiply_by_reference(
    problem: Problem, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given
) -> torch.Tensor:
    """Compute a problem in float64, and round once."""
    out = _empty(problem.out) if out is None else out
    return out.copy_(gemm_reference(a, b, c, bias, problem.activation))


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Join the leading dimensions of a tensor into one; a copy where they are not apart by one stride."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)


def _is_misaligned(tensor: Given) -> bool:
    return tensor is not None and tensor.data_ptr() % UNIT_BYTES != 0


def _find_route(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: Given,
    activation: Activation | None,
    out_dtype: torch.dtype | None,
    c: Given,
    out_major: str,
    out: Given,
) -> Route:
    """Check the arguments, and find what multiplies them."""
    problem = describe(a, b, bias, activation, out_dtype, c, out_major, out)
    if out is None:
        return _route(problem, (a, b, c, out), bias)
    if overlaps_itself(problem.out):
        raise ValueError(f"out must not overlap itself, got {problem.out}; pass one whose elements lie apart")
    check_apart(out, c, a=a, b=b, bias=bias)
    return _apart(_route(problem, (a, b, c, out), bias), (a, b, c, bias), out)


def _apart(route: Route, inputs: tuple[Given, ...], given: torch.Tensor) -> Route:
    """Check that the result is apart from the inputs; here every road of torch ends, and it is known what is the same."""
    span = span_bytes(given)
    span_a, span_b, span_c, span_bias = (0 if tensor is None else span_bytes(tensor) for tensor in inputs)

    def checked(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        assert out is not None
        start = out.data_ptr()
        end = start + span
        if (  # what nearly no call finds, so the least is asked to find it
            (a.data_ptr() < end and start < a.data_ptr() + span_a)
            or (b.data_ptr() < end and start < b.data_ptr() + span_b)
            or (bias is not None and bias.data_ptr() < end and start < bias.data_ptr() + span_bias)
            or (c is not None and c.data_ptr() < end and start < c.data_ptr() + span_c)
        ):
            check_apart(out, c, a=a, b=b, bias=bias)
        return route(a, b, c, bias, out)

    return checked


def _route(problem: Problem, tensors: tuple[Given, ...], bias: Given) -> Route:
    """Decide what of a, b, c and out is copied and how all is seen, and have the kernel compiled."""
    reference = problem.a.device.type == "cpu" and not _backends
    if reference or math.prod(problem.out.shape) * problem.a.shape[-1] == 0:
        return partial(multiply_by_reference, problem)
    views = join(problem)
    if views is None:
        return _Parts(problem)
    *copied, indirect = (
        seen is not None and (matrix(seen) is None or _is_misaligned(tensor))
        for tensor, seen in zip(tensors, views[:4], strict=True)
    )
    if not any(copied):
        copied[0] = _gathering_pays(views)
    if any(copied) or indirect or not (bias is None or bias.is_contiguous()):
        return _copying(problem, views, copied, indirect)
    return _launching(problem, views)


def _launching(problem: Problem, views: Problem) -> Route:
    """Launch, and nothing else: all is read and written where it lies."""
    kernel, sm_count, strides = plan_gemm(views)
    shape, stride, dtype, device = problem.out
    index = None if _backends else device.index
    empty = None if index is None else _empty_on_gpu
    ways = [
        None if seen is None or (seen.shape, seen_stride) == given[:2] else (seen.shape, seen_stride)
        for given, seen, seen_stride in zip(problem[:4], views[:4], strides, strict=True)
    ]
    way_a, way_b, way_c, way_out = ways
    as_they_are = not any(ways)

    def launch(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        if index is not None and index != _current_device():
            with torch.cuda.device(index):
                return launch(a, b, c, bias, out)
        if out is None:
            if empty is None:
                out = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            else:
                out = empty(shape, stride, dtype)
        if as_they_are:
            kernel(a, b, c, out, sm_count, bias)
        else:
            kernel(_see(a, way_a), _see(b, way_b), _see(c, way_c), _see(out, way_out), sm_count, bias)
        return out

    return launch


def _see(tensor: Any, way: tuple[tuple[int, ...], tuple[int, ...]] | None) -> Any:  # noqa: ANN401
    """View a tensor by shape and strides; as it is without these."""
    return tensor if way is None else _view(tensor, *way)


def _empty(result: Description) -> torch.Tensor:
    shape, stride, dtype, device = result
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)


class _Parts(NamedTuple):
    """Multiply one part of the batch after another, along its shortest dimension."""

    problem: Problem

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        out = _empty(self.problem.out) if out is None else out
        batch = out.shape[:-2]
        dimension = min((d for d, extent in enumerate(batch) if extent > 1), key=lambda d: batch[d])
        a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
        addends = [None] * batch[dimension] if c is None else c.expand(out.shape).unbind(dimension)
        parts = zip(a.unbind(dimension), b.unbind(dimension), addends, out.unbind(dimension), strict=True)
        for part_a, part_b, part_c, part in parts:
            multiply(part_a, part_b, bias, self.problem.activation, c=part_c, out=part)
        return out


class _Copies(NamedTuple):
    """Copy what TMA can't reach, then launch.

    Attributes
    ----------
    out : Description
        Of the result.
    views : Problem
        How all is seen, before it is copied.
    copies : tuple
        Columns of the copies of a, b and c, and the place of their rows; None for what is not copied.
    indirect : bool
        Whether the kernel writes to a tensor of its own, which may have more columns.
    launch : Route
    """

    out: Description
    views: Problem
    copies: tuple[tuple[int, int] | None, ...]
    indirect: bool
    launch: Route

    def __call__(self, a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        out = _empty(self.out) if out is None else out
        a, b, c, seen = (
            tensor if tensor is None else tensor.as_strided(view.shape, view.stride)
            for tensor, view in zip((a, b, c, out), self.views[:4], strict=True)
        )
        a, b, c = (
            tensor if copy is None else _padded_copy(tensor, *copy)
            for tensor, copy in zip((a, b, c), self.copies, strict=True)
        )
        result = self.launch(a, b, c, bias if bias is None else bias.contiguous(), None if self.indirect else seen)
        if self.indirect:
            seen.copy_(result[..., : seen.shape[-1]])
        return out


def _copying(problem: Problem, views: Problem, copied: list[bool], indirect: bool) -> Route:
    a, b, c, out = views[:4]
    if indirect:
        out = new_result((*out.shape[:-1], _whole_units(out)), out.dtype, "row", out.device)
    columns, place = _whole_units(a), _place_of_rows(out)
    if any(copied[:2]) and columns > a.shape[-1]:  # a copy is contiguous along K; more columns must be both operands'
        copied[:2] = True, True
    wanted = (columns, place), (columns, -2), (_whole_units(c) if c else 0, place)
    copies = tuple(copy if is_copied else None for copy, is_copied in zip(wanted, copied, strict=True))
    described = (
        tensor if copy is None else _described_copy(tensor, *copy)
        for tensor, copy in zip((a, b, c), copies, strict=True)
    )
    rest = Problem(*described, out, problem.bias, problem.activation)
    joined = join(rest)
    assert joined is not None, "a copy has no more modes than what is copied"
    return _Copies(problem.out, views, copies, indirect, _launching(rest, joined))


def _whole_units(tensor: Description) -> int:
    """Round the columns of a matrix up to whole units."""
    return -(-tensor.shape[-1] * tensor.dtype.itemsize // UNIT_BYTES) * UNIT_BYTES // tensor.dtype.itemsize


def _gathering_pays(views: Problem) -> bool:
    """Tell whether a batch that shares b, whose last tiles are part empty, is better one product of a copied a."""
    a, b, _, out = views[:4]
    *batch, m, k = a.shape
    if not batch or any(b.stride[:-2]) or 0 in a.stride:
        return False
    gathered = join(views._replace(a=_described_copy(a, k, _place_of_rows(out))))
    if gathered is None or len(gathered.a.shape) > 2:
        return False
    n, bits = b.shape[-2], 8 * a.dtype.itemsize
    copy_us = _COPY_US + 2 * math.prod(a.shape) * a.dtype.itemsize / _COPY_BYTES_PER_US
    apart_us = expected_us(m, n, k, bits, batch=math.prod(batch))
    return expected_us(gathered.a.shape[0], n, k, bits) + copy_us < apart_us


def _place_of_rows(out: Description) -> int:
    """Tell how many modes of a batch step farther in the result than its rows do."""
    return sum(step > out.stride[-2] for step in out.stride[:-2])


def _described_copy(tensor: Description, columns: int, place: int) -> Description:
    copy = _padded_copy(torch.empty_strided(*tensor[:2], dtype=tensor.dtype, device="meta"), columns, place)
    return tensor._replace(shape=tuple(copy.shape), stride=copy.stride())


def _padded_copy(tensor: torch.Tensor, columns: int, place: int) -> torch.Tensor:
    """Copy matrices to such with contiguous rows of more columns, the others zero; one that a batch repeats only once.

    At `place`, that many modes of the batch step farther than the rows, as those of the result do, to be joined.
    """
    if tensor.dtype.itemsize == 1 and tensor.dtype != torch.uint8:  # torch has few operations on 8-bit floats
        return _padded_copy(tensor.view(torch.uint8), columns, place).view(tensor.dtype)
    *extents, given = tensor.shape
    once = tensor
    for dimension in range(tensor.dim() - 2):
        if tensor.stride(dimension) == 0:
            once = once.narrow(dimension, 0, 1)
    once = once.movedim(-2, place)
    copy = once.new_empty((*once.shape[:-1], columns))
    copy[..., :given] = once
    if columns > given:
        copy[..., given:] = 0
    return copy.movedim(place, -2).expand(*extents, columns)
