"""From a problem to what is launched for it: the kernel, compiled, and how it is to see the tensors."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from cutepy.dsl.h200 import SM_COUNT
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.config import GemmConfig, GemmSignature, OperandMajor, OutputMajor, select_config
from cutepy.kernels.gemm.operands import Description, Matrix, Problem, dtype_name, matrix

SOURCES = ("cutepy.layouts", "cutepy.device", "cutepy.kernels.gemm")
"""The packages whose content, with a configuration, decides what is compiled."""

_MOST_TILES = 2**31 - 2**16
"""A CTA's last step beyond them stays within 32 bits."""
_OPERAND_MAJORS: tuple[OperandMajor, OperandMajor] = ("mn", "k")
_OUTPUT_MAJORS: tuple[OutputMajor, OutputMajor] = ("col", "row")


class Plan(NamedTuple):
    """What computes a problem: `kernel(a, b, c, out, sm_count, bias)`, of tensors with these strides.

    Attributes
    ----------
    kernel : Function
    sm_count : int
        SMs to fill.
    strides : tuple
        Those of a, b, c and out; None without C. They are not the tensors' where an extent of 1 leaves them open.
    """

    kernel: Function
    sm_count: int
    strides: tuple[tuple[int, ...] | None, ...]


def plan_gemm(problem: Problem) -> Plan:
    """Choose and compile the kernel for matrices, or for batches of one shape, that TMA reaches.

    The result, and C, may have more columns than B has rows, as many as fill their last 16 bytes: what the kernel
    writes there means nothing.

    Raises
    ------
    ValueError
        If the GPU is no Hopper, an extent or stride is more than TMA holds, or there are more tiles than a kernel
        counts.
    """
    matrices = [_matrix(name, tensor) for name, tensor in zip(problem._fields[:4], problem[:4], strict=True)]
    a, b, c, out = matrices
    assert a and b and out
    *extents, m, k = problem.a.shape
    batch, n = math.prod(extents), problem.b.shape[-2]
    sm_count = _sm_count(problem.a.device)
    signature = GemmSignature(
        a_dtype=dtype_name(problem.a.dtype),
        b_dtype=dtype_name(problem.b.dtype),
        out_dtype=dtype_name(problem.out.dtype),
        a_major=_OPERAND_MAJORS[a.contiguous_mode],
        b_major=_OPERAND_MAJORS[b.contiguous_mode],
        out_major=_OUTPUT_MAJORS[out.contiguous_mode],
        c_dtype=dtype_name(problem.c.dtype) if problem.c else None,
        c_major=_OUTPUT_MAJORS[c.contiguous_mode] if c else None,
        bias_dtype=dtype_name(problem.bias) if problem.bias else None,
        activation=problem.activation,
        batch_modes=len(extents),
    )
    config = select_config(signature, m, n, k, sm_count, batch=batch)
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n) * batch
    if tiles >= _MOST_TILES:
        raise ValueError(
            f"a batch must have fewer than {_MOST_TILES} tiles, which a kernel counts in 32 bits, got {batch} "
            f"products of {m}x{n} in tiles of {config.tile_m}x{config.tile_n}; split it"
        )
    return Plan(compile_gemm(config), sm_count, tuple(found and found.stride for found in matrices))


def _matrix(name: str, tensor: Description | None) -> Matrix | None:
    if tensor is None:
        return None
    found = matrix(tensor)
    if found is None:  # all else has been copied to where TMA reaches it
        raise ValueError(
            f"{name} must have extents below 2**31 and strides below 2**40 bytes, which TMA can hold, got {tensor}; "
            "split it"
        )
    return found


def _sm_count(device: torch.device) -> int:
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


@cache
def compile_gemm(config: GemmConfig) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU.

    The result is called with tensors A, B, C (or None) and D, the number of SMs to fill, and the bias (or None); it
    tells its `ptx`, `sass` and `resources`. Callers see to it that no tensor is one that torch negates when it reads
    it: that is not looked for.
    """
    kernel = Deferred("cutepy.kernels.gemm.kernel:Gemm", config)
    arguments: dict[str, Any] = {**examples(config.signature)}
    return compile(kernel, **arguments, sources=SOURCES).of_resolved()
