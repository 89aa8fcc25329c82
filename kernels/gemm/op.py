"""From a problem to what is launched for it: the kernel, compiled, and how it is to see the tensors."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.many import Variant
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.choice import Chosen, choose, fillable_sms
from cutepy.kernels.gemm.config import GemmConfig, GemmSignature, OperandMajor, OutputMajor
from cutepy.kernels.gemm.operands import Description, Matrix, Problem, dtype_name, matrix
from cutepy.kernels.gemm.tuned import tuned
from cutepy.layouts.sm90.arch import SM_COUNT
from cutepy.runtime.execution import EXECUTION

SOURCES = ("cutepy.epilogues", "cutepy.layouts", "cutepy.device", "cutepy.kernels.gemm")
"""The packages whose content, with a configuration, decides what is compiled."""

Given = torch.Tensor | None
Launch = Callable[[torch.Tensor, torch.Tensor, Given, Given, Given], torch.Tensor]
"""Multiplies (a, b, c, bias, out), into a new tensor if out is None; gives the result."""
Way = tuple[tuple[int, ...], tuple[int, ...]]
"""Shape and strides by which a tensor is seen."""

_MOST_TILES = 2**31 - 2**16
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
    a, b, out = _matrix("a", views.a), _matrix("b", views.b), _matrix("out", views.out)
    c = None if views.c is None else _matrix("c", views.c)
    turned, config = chosen or _choose(views, _signature(views, a, b, c, out), sm_count)
    way_a, way_b = _way(problem.a, views.a, a), _way(problem.b, views.b, b)
    if turned:
        views = _turned(views)
        a, b, c, out = b, a, c and _turned_matrix(c), _turned_matrix(out)
    _check_tiles(views, config)
    kernel = compile_gemm(config)
    sms = fillable_sms(config.cluster_m * config.cluster_n * config.split_k, sm_count)
    way_c, way_out = _way(problem.c, views.c, c), _way(problem.out, views.out, out)
    as_they_are = not (way_a or way_b or way_c or way_out)
    shape, stride, dtype, device = problem.out
    index = None if EXECUTION.backend is not None else device.index  # of the GPU that must be current
    empty: Any = _empty_on_gpu if index is not None and _empty_on_gpu else lambda *_: new_tensor(problem.out)

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


def _choose(views: Problem, signature: GemmSignature, sm_count: int) -> Chosen:
    """Choose what tuning found, or else what the model expects to be fastest."""
    *extents, m, k = views.a.shape
    n, batch = views.b.shape[-2], math.prod(extents)
    device = views.a.device
    if device.type == "cuda" and EXECUTION.backend is None:
        found = tuned(torch.cuda.get_device_name(device), signature, m, n, k, batch)
        if found is not None:
            return found
    return choose(signature, m, n, k, sm_count, batch=batch)


def _turned(views: Problem) -> Problem:
    """See a product as that of the transposed result."""
    return views._replace(a=views.b, b=views.a, c=views.c and _transposed(views.c), out=_transposed(views.out))


def _transposed(tensor: Description) -> Description:
    (*batch, rows, columns), (*steps, down, along) = tensor.shape, tensor.stride
    return tensor._replace(shape=(*batch, columns, rows), stride=(*steps, along, down))


def _turned_matrix(found: Matrix) -> Matrix:
    *steps, down, along = found.stride
    return Matrix(1 - found.contiguous_mode, (*steps, along, down))


def new_tensor(described: Description) -> torch.Tensor:
    """Allocate a tensor."""
    return torch.empty_strided(*described[:2], dtype=described.dtype, device=described.device)


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
    return GemmSignature(
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


def _check_tiles(views: Problem, config: GemmConfig) -> None:
    *extents, m, _ = views.a.shape
    batch, n = math.prod(extents), views.b.shape[-2]
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n) * batch
    if tiles >= _MOST_TILES:
        raise ValueError(
            f"a batch must have fewer than {_MOST_TILES} tiles, which a kernel counts in 32 bits, got {batch} "
            f"products of {m}x{n} in tiles of {config.tile_m}x{config.tile_n}; split it"
        )


def _matrix(name: str, tensor: Description) -> Matrix:
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


def examples(signature: GemmSignature) -> Mapping[str, TensorSpec | int | None]:
    """Describe the arguments of the kernels of a signature: A, B, C, D, the SMs to fill, and the bias."""
    described: dict[str, TensorSpec | int | None] = {}
    for name, dtype, major in (
        ("a", signature.a_dtype, signature.a_major),
        ("b", signature.b_dtype, signature.b_major),
        ("c", signature.c_dtype, signature.c_major),
        ("d", signature.out_dtype, signature.out_major),
    ):
        described[name] = None
        if dtype is not None:
            pitch, batch = f"{name}_pitch", [f"{name}_batch{mode}" for mode in range(signature.batch_modes)]
            steps = [f"{extent}_stride" for extent in batch]
            described[name] = TensorSpec(
                dtype,
                (*batch, f"{name}_rows", f"{name}_columns"),
                strides=(*steps, pitch, 1) if major in ("k", "row") else (*steps, 1, pitch),
                divisibility=dict.fromkeys((*steps, pitch), 16 // getattr(torch, dtype).itemsize),
            )
    described["sm_count"] = 1
    bias = signature.bias_dtype
    described["bias"] = TensorSpec(bias, ("n",), align=getattr(torch, bias).itemsize) if bias else None
    return described


def variant(config: GemmConfig) -> Variant:
    """Say what is compiled for a configuration, for `cutepy.compile_many`."""
    kernel = Deferred("cutepy.kernels.gemm.kernel:Gemm", config)
    return Variant(kernel, named=examples(config.signature), name=config.name, sources=SOURCES)


@cache
def compile_gemm(config: GemmConfig) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU.

    The result is called with tensors A, B, C (or None) and D, the number of SMs to fill, and the bias (or None); it
    tells its `ptx`, `sass` and `resources`. Callers see to it that no tensor is one that torch negates when it reads
    it: that is not looked for.
    """
    asked = variant(config)
    return compile(asked.function, **asked.named, sources=asked.sources).of_resolved()
