"""From a problem to what is launched for it: the kernel, compiled, and how it is to see the tensors."""

import math
from collections.abc import Callable
from typing import Any

import torch

from cutepy.kernels.gemm.choice import Chosen, choose
from cutepy.kernels.gemm.compilation import compile_gemm
from cutepy.kernels.gemm.config import GemmConfig
from cutepy.kernels.gemm.model import fillable_sms
from cutepy.kernels.gemm.operands import Description, Matrix, Problem, dtype_name, matrix
from cutepy.kernels.gemm.signature import GemmSignature, OperandMajor, OutputMajor
from cutepy.kernels.gemm.tuned import tuned
from cutepy.layouts.sm90.arch import SM_COUNT
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Given = torch.Tensor | None
Launch = Callable[[torch.Tensor, torch.Tensor, Given, Given, Given], torch.Tensor]
"""Multiplies (a, b, c, bias, out), into a new tensor if out is None; gives the result."""
Way = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides by which a tensor is seen."""

MOST_TILES = 2**31 - 2**16
"""A CTA's last step beyond them stays within 32 bits."""
OPERAND_MAJORS: tuple[OperandMajor, OperandMajor] = ("mn", "k")
OUTPUT_MAJORS: tuple[OutputMajor, OutputMajor] = ("col", "row")
"""By the mode that is contiguous."""

# Torch's compiled code allocates and makes views by these, at a third of what operators cost a call.
_empty_on_gpu: Callable[..., torch.Tensor] | None = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
_view: Callable[..., torch.Tensor] = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", torch.as_strided)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", lambda: -1)


def plan_gemm(problem: Problem, views: Problem, chosen: Chosen | None = None) -> Launch:
    """Choose and compile the kernel of a problem, whose tensors are seen as matrices, or batches, that TMA reaches.

    The result, and C, may have more columns than B has rows, as many as fill their last 16 bytes: what the kernel
    writes there means nothing.

    Parameters
    ----------
    problem, views : Problem
        The tensors as they are, and as they are seen.
    chosen : Chosen, optional
        How to compute it; by default what was found by tuning on such a GPU, or else what the model expects to be
        fastest.

    Raises
    ------
    ValueError
        If the GPU is no Hopper, an extent or stride is more than TMA holds, or there are more tiles than a kernel
        counts.
    """
    sm_count = sm_count_of(problem.a.device)
    a, b, out = reached("a", views.a), reached("b", views.b), reached("out", views.out)
    c = None if views.c is None else reached("c", views.c)
    turned, config = chosen or choose_on(views.a.device, _signature(views, a, b, c, out), *_extents(views))
    way_a, way_b = _way(problem.a, views.a, a), _way(problem.b, views.b, b)
    if turned:
        views = _turned(views)
        a, b, c, out = b, a, c and _turned_matrix(c), _turned_matrix(out)
    m, n, _, batch = _extents(views)
    check_tiles(config, m, n, batch)
    kernel = compile_gemm(config)
    sms = fillable_sms(config.cluster_m * config.cluster_n * config.split_k, sm_count)
    way_c, way_out = _way(problem.c, views.c, c), _way(problem.out, views.out, out)
    as_they_are = not (way_a or way_b or way_c or way_out)
    shape, stride, dtype, device = problem.out
    index = None if EXECUTION.backend is not None else device.index  # of the GPU that must be current
    empty: Any = _empty_on_gpu if index is not None and _empty_on_gpu else lambda *_: problem.out.new()

    def launch(a: torch.Tensor, b: torch.Tensor, c: Given, bias: Given, out: Given) -> torch.Tensor:
        if index is not None and index != _current_device():
            with torch.cuda.device(index):
                return launch(a, b, c, bias, out)
        if out is None:
            out = empty(shape, stride, dtype)
        if as_they_are:
            kernel(a, b, c, out, sms, bias)
        else:
            first, second = _see(a, way_a), _see(b, way_b)
            if turned:
                first, second = second, first
            kernel(first, second, _see(c, way_c), _see(out, way_out), sms, bias)
        return out

    return launch


def choose_on(device: torch.device, signature: GemmSignature, m: int, n: int, k: int, batch: int) -> Chosen:
    """Choose what tuning on such a GPU found, or else what the model expects to be fastest."""
    if device.type == "cuda" and EXECUTION.backend is None:
        found = tuned(torch.cuda.get_device_name(device), signature, m, n, k, batch)
        if found is not None and not (INVARIANCE.on and found.config.split_k > 1):
            return found
    return choose(signature, m, n, k, sm_count_of(device), batch=batch)


def _extents(views: Problem) -> tuple[int, int, int, int]:
    """Give M, N, K and the products of a batch."""
    *batch, m, k = views.a.shape
    return m, views.b.shape[-2], k, math.prod(batch)


def _turned(views: Problem) -> Problem:
    """See a product as that of the transposed result."""
    return views._replace(a=views.b, b=views.a, c=views.c and _transposed(views.c), out=_transposed(views.out))


def _transposed(tensor: Description) -> Description:
    (*batch, rows, columns), (*steps, down, along) = tensor.shape, tensor.stride
    return tensor._replace(shape=(*batch, columns, rows), stride=(*steps, along, down))


def _turned_matrix(found: Matrix) -> Matrix:
    *steps, down, along = found.stride
    return Matrix(1 - found.contiguous_mode, (*steps, along, down))


def _way(given: Description | None, seen: Description | None, found: Matrix | None) -> Way | None:
    """Tell how a tensor is to be seen; None where it is so already.

    An extent of 1 may leave a stride open that the kernel wants to be whole units.
    """
    if given is None or seen is None or found is None:
        return None
    way = (seen.shape, found.stride)
    return None if way == given[:2] else way


def _see(tensor: Any, way: Way | None) -> Any:  # noqa: ANN401
    """View a tensor by shape and strides; as it is without these."""
    return tensor if way is None else _view(tensor, *way)


def _signature(views: Problem, a: Matrix, b: Matrix, c: Matrix | None, out: Matrix) -> GemmSignature:
    return GemmSignature.standard(
        a_dtype=dtype_name(views.a.dtype),
        b_dtype=dtype_name(views.b.dtype),
        out_dtype=dtype_name(views.out.dtype),
        a_major=OPERAND_MAJORS[a.contiguous_mode],
        b_major=OPERAND_MAJORS[b.contiguous_mode],
        out_major=OUTPUT_MAJORS[out.contiguous_mode],
        c_dtype=dtype_name(views.c.dtype) if views.c else None,
        c_major=OUTPUT_MAJORS[c.contiguous_mode] if c else None,
        bias_dtype=dtype_name(views.bias) if views.bias else None,
        activation=views.activation,
        batch_modes=len(views.a.shape) - 2,
    )


def check_tiles(config: GemmConfig, m: int, n: int, batch: int) -> None:
    """Check that a kernel can count the tiles of a batch.

    Raises
    ------
    ValueError
        If there are too many.
    """
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n) * batch
    if tiles >= MOST_TILES:
        raise ValueError(
            f"a batch must have fewer than {MOST_TILES} tiles, which a kernel counts in 32 bits, got {batch} "
            f"products of {m}x{n} in tiles of {config.tile_m}x{config.tile_n}; split it"
        )


def reached(name: str, tensor: Description) -> Matrix:
    """Tell how TMA reaches a tensor that has been copied if it had to be.

    Raises
    ------
    ValueError
        If an extent or stride is more than TMA holds.
    """
    found = matrix(tensor)
    if found is None:  # all else has been copied to where TMA reaches it
        raise ValueError(
            f"{name} must have extents below 2**31 and strides below 2**40 bytes, which TMA can hold, got {tensor}; "
            "split it"
        )
    return found


def sm_count_of(device: torch.device) -> int:
    """Count the SMs of a Hopper GPU; within the simulator, of the one that it stands for."""
    if device.type != "cuda":
        return SM_COUNT  # of the GPU that the simulator stands for
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) != (9, 0):
        raise ValueError(
            f"a must be on a Hopper GPU (compute capability 9.0), got {device} with {major}.{minor}; "
            "wgmma exists on no other"
        )
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
