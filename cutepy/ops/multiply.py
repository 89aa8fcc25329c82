"""Products of tensors of any shape and strides, by a kernel that takes what TMA can reach.

TMA moves 16-byte units: a matrix must have one contiguous extent, in whole units, with the rows of units apart, and
start at one; the matrices of a batch must be whole units apart. What is so goes to the kernel as it is; the rest is
copied first, padded by zeros. One launch computes all products of a batch.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

from cutepy.dsl import execution
from cutepy.host.function import Function
from cutepy.kernels.gemm.config import Activation, expected_us
from cutepy.kernels.gemm.op import Plan, plan_gemm
from cutepy.kernels.gemm.operands import Description, describe_new_out
from cutepy.kernels.gemm.reference import gemm_reference
from cutepy.ops.joining import Views, join, reachable

_UNIT_BYTES = 16

_backends = execution.backends()

# What a copy costs: the host's work for another launch, and the bytes that the GPU's memory moves. Estimates for an
# H200; they decide only whether ragged batches of rows are copied together, where some 20 us are at stake.
_COPY_US = 20
_COPY_BYTES_PER_US = 3e6

View = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides."""


class Launch(NamedTuple):
    """One launch that computes a product, ready to be made: nothing is copied or decided any more.

    Attributes
    ----------
    kernel : Function
        Takes a, b, None, out, the SMs to fill, and bias.
    sm_count : int
    shape, dtype, device
        Of the result.
    views : tuple or None
        How a, b and out are to be seen, None for one that is taken as it is; None if all are.
    """

    kernel: Function
    sm_count: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    views: tuple[View | None, View | None, View | None] | None

    def __call__(
        self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Launch, into a new tensor unless one is given."""
        result = torch.empty(self.shape, dtype=self.dtype, device=self.device) if out is None else out
        out = result
        if self.views is not None:
            view_a, view_b, view_out = self.views
            if view_a is not None:
                a = a.as_strided(*view_a)
            if view_b is not None:
                b = b.as_strided(*view_b)
            if view_out is not None:
                out = out.as_strided(*view_out)
        index = self.device.index
        if index is None or _backends or index == torch._C._cuda_getDevice():
            self.kernel(a, b, None, out, self.sm_count, bias)
        else:
            with torch.cuda.device(index):
                self.kernel(a, b, None, out, self.sm_count, bias)
        return result


def find_launch(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: Activation | None
) -> Launch | None:
    """Tell how tensors of these descriptions are multiplied by one launch; None where it takes more than that.

    Results have the strides of `out`. Addresses are left to be checked at each call.
    """
    if out.numel() * a.shape[-1] == 0 or not (bias is None or bias.is_contiguous()):
        return None
    route = find_route(_describe(out), _describe(a), _describe(b), _describe(bias), activation)
    plan = route.plan
    if plan is None or plan.kernel is None or not route.direct or route.views is None:
        return None
    # An extent of 1 may leave a stride open that the kernel wants to be whole units.
    a_stride, b_stride, _, out_stride = plan.strides
    views = (
        _view(a, route.views.a, a_stride),
        _view(b, route.views.b, b_stride),
        _view(out, route.views.out, out_stride),
    )
    return Launch(plan.kernel, plan.sm_count, tuple(out.shape), out.dtype, out.device, views if any(views) else None)


def _view(tensor: torch.Tensor, seen: Description, stride: tuple[int, ...] | None) -> View | None:
    """Say how a tensor is to be seen; None if it is so already."""
    view = (tuple(seen.shape), stride or tuple(seen.stride))
    return None if view == (tuple(tensor.shape), tensor.stride()) else view


def multiply_into(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: Activation | None
) -> None:
    """Compute out = activation(a @ b.mT + bias) on the GPU, or in the simulator.

    Parameters
    ----------
    out : Tensor, (..., N) or (..., M, N)
    a : Tensor, (..., K), or (..., M, K) if b has a batch
    b : Tensor, (N, K) or (..., N, K)
        The batches of a and b are broadcast.
    bias : Tensor, (N,), optional
    activation : str, optional
    """
    if bias is not None:
        bias = bias.contiguous()
    if out.numel() * a.shape[-1] == 0:
        out.copy_(gemm_reference(a, b, None, bias, activation))
        return
    route = find_route(_describe(out), _describe(a), _describe(b), _describe(bias), activation)
    if route.views is None:
        _multiply_parts(out, a, b, bias, activation)
        return
    copy_a, copy_b = (c or t.data_ptr() % _UNIT_BYTES != 0 for c, t in zip(route.copied, (a, b), strict=True))
    out, a, b = _see(route.views, out, a, b)
    if copy_a or copy_b:
        # Copies are contiguous along K, in whole units; if that takes more columns, both operands have them.
        unit, k = _UNIT_BYTES // a.dtype.itemsize, a.shape[-1]
        columns = -(-k // unit) * unit
        a = _padded_copy(a, columns, _place_of_rows(route.views.out)) if copy_a or columns > k else a
        b = _padded_copy(b, columns) if copy_b or columns > k else b
        route = find_route_of_copies(_describe(out), _describe(a), _describe(b), _describe(bias), activation)
        assert route.views is not None
        out, a, b = _see(route.views, out, a, b)
    assert route.plan is not None
    if route.direct and out.data_ptr() % _UNIT_BYTES == 0:
        route.plan.run(a, b, None, out, bias)
        return
    result = route.plan.new_out()
    route.plan.run(a, b, None, result, bias)
    out.copy_(result[..., : out.shape[-1]])


def _see(views: Views, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.as_strided(seen.shape, seen.stride) for tensor, seen in zip(tensors, views, strict=True)]


def _multiply_parts(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: Activation | None
) -> None:
    """Multiply one part of the batch after another, along its shortest dimension."""
    batch = out.shape[:-2]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    dimension = min((d for d, extent in enumerate(batch) if extent > 1), key=lambda d: batch[d])
    for parts in zip(out.unbind(dimension), a.unbind(dimension), b.unbind(dimension), strict=True):
        multiply_into(*parts, bias, activation)


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Join the leading dimensions of a tensor into one; a copy where they are not apart by one stride."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)


class Route(NamedTuple):
    """How two tensors are multiplied.

    Attributes
    ----------
    views : Views or None
        What is multiplied; None if it takes more than one launch.
    plan : Plan or None
        None if operands must be copied first.
    copied : tuple of bool
        Whether a and b must be.
    direct : bool
        Whether the kernel writes to `out` itself, rather than to a tensor that `plan` describes.
    """

    views: Views | None
    plan: Plan | None
    copied: tuple[bool, bool]
    direct: bool


@lru_cache(maxsize=4096)
def find_route(
    out: Description, a: Description, b: Description, bias: Description | None, activation: Activation | None
) -> Route:
    """Decide what is copied, and have the kernel compiled, for tensors none of which is empty."""
    views = join(out, a, b)
    if views is None:
        return Route(None, None, (False, False), False)
    copied = (not reachable(views.a), not reachable(views.b))
    if not any(copied):
        copied = (_gathering_pays(views), False)
    if any(copied):
        return Route(views, None, copied, False)
    return _planned(views, bias, activation)


@lru_cache(maxsize=4096)
def find_route_of_copies(
    out: Description, a: Description, b: Description, bias: Description | None, activation: Activation | None
) -> Route:
    """Have the kernel compiled for views of which the operands that TMA can't reach are copied: nothing is again.

    A copy has all its rows, whole units apart, so there are rows that TMA reaches; and it has no more modes.
    """
    views = join(out, a, b)
    assert views is not None
    return _planned(views, bias, activation)


def _planned(views: Views, bias: Description | None, activation: Activation | None) -> Route:
    out, a, b = views
    direct = reachable(out)
    if not direct:
        columns = -(-out.shape[-1] * out.dtype.itemsize // _UNIT_BYTES) * _UNIT_BYTES // out.dtype.itemsize
        out = describe_new_out((*out.shape[:-1], columns), out.dtype, "row", a)
    plan = plan_gemm(a, b, None, out, bias, None, "row", activation, wider_out=not direct)
    return Route(views, plan, (False, False), direct)


def _gathering_pays(views: Views) -> bool:
    """Tell whether a batch that shares b, whose last tiles are part empty, is better one product of a copied a."""
    out, a, b = views
    *batch, m, k = a.shape
    if not batch or any(b.stride[:-2]) or 0 in a.stride:
        return False
    copy = _padded_copy(torch.empty(a.shape, dtype=a.dtype, device="meta"), k, _place_of_rows(out))
    gathered = join(out, a._replace(stride=copy.stride()), b)
    if gathered is None or len(gathered.a.shape) > 2:
        return False
    n, bits = b.shape[-2], 8 * a.dtype.itemsize
    copy_us = _COPY_US + 2 * math.prod(a.shape) * a.dtype.itemsize / _COPY_BYTES_PER_US
    apart_us = expected_us(m, n, k, bits, batch=math.prod(batch))
    return expected_us(gathered.a.shape[0], n, k, bits) + copy_us < apart_us


def _place_of_rows(out: Description) -> int:
    """Tell how many modes of a batch step farther in the result than its rows do."""
    return sum(step > out.stride[-2] for step in out.stride[:-2])


def _padded_copy(tensor: torch.Tensor, columns: int, place: int = -2) -> torch.Tensor:
    """Copy matrices to such with contiguous rows of more columns, the others zero; one that a batch repeats only once.

    With `place`, that many modes of the batch step farther than the rows, as those of the result do, to be joined.
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


def _describe(tensor: torch.Tensor | None) -> Description | None:
    if tensor is None:
        return None
    return Description(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
