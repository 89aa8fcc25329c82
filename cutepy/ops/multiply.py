"""Products of tensors of any shape and strides, by a kernel that takes what TMA can reach.

TMA moves 16-byte units: a matrix must have one contiguous extent, in whole units, with the rows of units apart, and
start at one. What is so goes to the kernel as it is; the rest is copied first, padded by zeros. Batches are launched
one product after another.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

import torch

from cutepy.host.function import Function
from cutepy.kernels.gemm.config import Activation
from cutepy.kernels.gemm.op import Plan, plan_gemm
from cutepy.kernels.gemm.operands import Description, matrix
from cutepy.kernels.gemm.reference import gemm_reference

_UNIT_BYTES = 16


class Launch(NamedTuple):
    """One launch that computes a product, ready to be made: nothing is copied or decided any more.

    Attributes
    ----------
    kernel : Function
        Takes a, b, None, out, the SMs to fill, and bias.
    sm_count : int
    shape, dtype, device
        Of the result.
    rows : int
        Of the matrices that a and the result are to be seen as; 0 if they are matrices.
    """

    kernel: Function
    sm_count: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    rows: int

    def __call__(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Allocate the result and launch."""
        out = result = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        if self.rows:
            a, out = a.view(self.rows, -1), out.view(self.rows, -1)
        index = self.device.index
        if index is None or index == torch._C._cuda_getDevice():
            self.kernel(a, b, None, out, self.sm_count, bias)
        else:
            with torch.cuda.device(index):
                self.kernel(a, b, None, out, self.sm_count, bias)
        return result


def find_launch(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: Activation | None
) -> Launch | None:
    """Tell how tensors of these descriptions are multiplied by one launch; None where it takes more than that.

    The result is taken to be contiguous. Addresses are left to be checked at each call.
    """
    if b.dim() != 2 or not (a.dim() == 2 or a.is_contiguous()) or not (bias is None or bias.is_contiguous()):
        return None
    rows, matrix_a = as_matrix(out), as_matrix(a)
    route = find_route(_describe(rows), _describe(matrix_a), _describe(b), _describe(bias), activation)
    plan = route.plan
    if plan is None or plan.kernel is None or not route.direct or any(plan.strides):
        return None
    return Launch(
        plan.kernel, plan.sm_count, tuple(out.shape), out.dtype, out.device, 0 if a.dim() == 2 else matrix_a.shape[0]
    )


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
    if b.dim() == 2:
        rows = as_matrix(out)
        _multiply_matrices(rows, as_matrix(a), b, bias, activation)
        if rows.data_ptr() != out.data_ptr() and out.numel():
            out.copy_(rows.view(out.shape))
        return
    batch = out.shape[:-2]
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    for index in itertools.product(*map(range, batch)):
        _multiply_matrices(out[index], a[index], b[index], bias, activation)


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Join the leading dimensions of a tensor into one; a copy where they are not apart by one stride."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)


class Route(NamedTuple):
    """How two matrices are multiplied.

    Attributes
    ----------
    plan : Plan or None
        None if operands must be copied first.
    copied : tuple of bool
        Whether a and b must be.
    k : int
        The K extent that copies are padded to.
    direct : bool
        Whether the kernel writes to `out` itself, rather than to a tensor that `plan` describes.
    """

    plan: Plan | None
    copied: tuple[bool, bool]
    k: int
    direct: bool


@lru_cache(maxsize=4096)
def find_route(
    out: Description, a: Description, b: Description, bias: Description | None, activation: Activation | None
) -> Route:
    """Decide what is copied, and have the kernel compiled."""
    (m, k), n = a.shape, b.shape[0]
    if m * n * k == 0:
        return Route(plan_gemm(a, b, None, out, bias, None, "row", activation), (False, False), k, True)
    copied = (not _reachable(a), not _reachable(b))
    if any(copied):
        # A K extent that is not in whole units is padded in both, unless the other is not contiguous along it.
        unit = _UNIT_BYTES // a.dtype.itemsize
        padded = -(-k // unit) * unit
        return Route(None, copied if padded == k else (True, True), padded, False)
    direct = _reachable(out)
    if not direct:
        columns = -(-n * out.dtype.itemsize // _UNIT_BYTES) * _UNIT_BYTES // out.dtype.itemsize
        out = Description((m, columns), (columns, 1), out.dtype, out.device)
    plan = plan_gemm(a, b, None, out, bias, None, "row", activation, wider_out=not direct)
    return Route(plan, (False, False), k, direct)


def _reachable(tensor: Description) -> bool:
    """Tell whether TMA can reach a matrix as it is, but for its address."""
    try:
        matrix("tensor", tensor, "KM")
    except ValueError:
        return False
    return True


def _multiply_matrices(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: Activation | None
) -> None:
    route = find_route(_describe(out), _describe(a), _describe(b), _describe(bias), activation)
    if a.numel() * b.numel() == 0:
        out.copy_(gemm_reference(a, b, None, bias, activation))
        return
    copy_a, copy_b = (c or t.data_ptr() % _UNIT_BYTES != 0 for c, t in zip(route.copied, (a, b), strict=True))
    if copy_a or copy_b:
        a = _padded_copy(a, route.k) if copy_a else a
        b = _padded_copy(b, route.k) if copy_b else b
        _multiply_matrices(out, a, b, bias, activation)
        return
    assert route.plan is not None
    if route.direct and out.data_ptr() % _UNIT_BYTES == 0:
        route.plan.run(a, b, None, out, bias)
        return
    if route.direct:
        result = torch.empty_like(out)
        route.plan.run(a, b, None, result, bias)
    else:
        result = route.plan.new_out()
        route.plan.run(a, b, None, result, bias)
    out.copy_(result[:, : out.shape[1]])


def _padded_copy(tensor: torch.Tensor, columns: int) -> torch.Tensor:
    """Copy a matrix to a contiguous one with more columns, the others zero."""
    rows, given = tensor.shape
    if tensor.dtype.itemsize == 1 and tensor.dtype != torch.uint8:  # torch has few operations on 8-bit floats
        return _padded_copy(tensor.view(torch.uint8), columns).view(tensor.dtype)
    copy = tensor.new_empty((rows, columns))
    copy[:, :given] = tensor
    if columns > given:
        copy[:, given:] = 0
    return copy


def _describe(tensor: torch.Tensor | None) -> Description | None:
    if tensor is None:
        return None
    return Description(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
