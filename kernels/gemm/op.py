"""The public operation: check the tensors, choose and compile a kernel once, launch it."""

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from typing import Any

import torch

from cutepy.dsl.compile import Compiled, compile_sm90a, symbolic_matrix, symbolic_stream
from cutepy.kernels.gemm.config import GemmConfig, GemmSignature, OperandMajor, OutputMajor, select_config
from cutepy.kernels.gemm.operands import (
    OUTPUT_DTYPES,
    check_device,
    check_dtype,
    check_new_out,
    check_operands,
    check_out,
    matrix,
)

_COMPILING = threading.Lock()


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
) -> torch.Tensor:
    """Compute D = A B^T (+ C) on a Hopper GPU, with fp32 accumulation.

    A function (M, K), (N, K), (M, N) -> (M, N). The launch is asynchronous on torch's current stream. The first call
    for each combination of types, majors and tile compiles for about a second; every later size reuses that kernel.

    Parameters
    ----------
    a : Tensor, (M, K), float16, bfloat16, float8_e4m3fn or float8_e5m2, on a Hopper GPU
        K-major (stride 1 along K) or, for 16-bit types, M-major. Its other stride and its address are multiples of
        16 bytes.
    b : Tensor, (N, K), of a's dtype, or the other 8-bit float
        The same, with N for M.
    c : Tensor, (M, N), float16, bfloat16 or float32, optional
        Added in fp32 before the result is rounded. Row- or column-major, other stride and address multiples of 16
        bytes.
    out : Tensor, (M, N), optional
        Receives the result; its dtype and strides then decide those of D. It may be `c` itself, and must overlap
        nothing else.
    out_dtype : float16, bfloat16 or float32, optional
        Of the result; a's dtype if not given, bfloat16 for 8-bit inputs.
    out_major : "row" or "col"
        "row" makes a contiguous (M, N) result, "col" the transpose of a contiguous (N, M) one. Not read with `out`.

    Returns
    -------
    Tensor, (M, N)
        `out`, or a new tensor. With K = 0 it is C or zeros; with M = 0 or N = 0 it is empty.

    Raises
    ------
    TypeError
        If an argument is no tensor or has a dtype that the kernel lacks.
    ValueError
        If ranks, extents, strides, alignment, devices or memory overlap are not as above. The message names the
        argument. Nothing has been launched then.

    Examples
    --------
    >>> import torch
    >>> gemm(torch.zeros(4, 8), torch.zeros(4, 8))
    Traceback (most recent call last):
    ...
    TypeError: a must have dtype float16, bfloat16, float8_e4m3fn or float8_e5m2, got float32; convert it with a.to(torch.bfloat16)
    """  # noqa: E501
    m, n, k = check_operands(a, b, c)
    if out is None:
        dtype = out_dtype or (torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype)
        check_dtype("out_dtype", dtype, OUTPUT_DTYPES)
        check_new_out((m, n, k), dtype, out_major)
    else:
        check_out(out, out_dtype, (m, n), {"a": a, "b": b, "c": c})
        dtype = out.dtype
    degenerate = m * n * k == 0  # nothing to multiply, so no demands on strides
    matrices = []
    if not degenerate:
        matrices = [matrix("a", a, "KM"), matrix("b", b, "KN"), None if c is None else matrix("c", c, "NM")]
        if out is not None:
            matrix("out", out, "NM")
    check_device(a, b=b, c=c, out=out)
    if out is None:
        out = _empty(m, n, dtype, out_major, a.device)
    if degenerate:
        return out.zero_() if c is None else out.copy_(c)
    matrices.append(matrix("out", out, "NM"))
    device = a.device.index
    kernel, sm_count = _prepared(*(x and (x.dtype, x.contiguous_mode) for x in matrices), (m, n, k), device)
    with _on_device(device):
        kernel(*(x and x.argument for x in matrices), sm_count, _stream(torch.cuda.current_stream().cuda_stream))
    return out


@lru_cache(maxsize=4096)
def _prepared(
    a: tuple[str, int],
    b: tuple[str, int],
    c: tuple[str, int] | None,
    d: tuple[str, int],
    shape_mnk: tuple[int, int, int],
    device: int,
) -> tuple[Compiled, int]:
    """Choose and compile the kernel for a problem; each of a, b, c, d is (dtype, contiguous mode)."""
    operand_majors: tuple[OperandMajor, OperandMajor] = ("mn", "k")
    output_majors: tuple[OutputMajor, OutputMajor] = ("col", "row")
    signature = GemmSignature(
        a_dtype=a[0],
        b_dtype=b[0],
        out_dtype=d[0],
        a_major=operand_majors[a[1]],
        b_major=operand_majors[b[1]],
        out_major=output_majors[d[1]],
        c_dtype=c[0] if c else None,
        c_major=output_majors[c[1]] if c else None,
    )
    sm_count = torch.cuda.get_device_properties(device).multi_processor_count
    return _kernel(select_config(signature, *shape_mnk, sm_count), device), sm_count


@cache
def _kernel(config: GemmConfig, device: int) -> Compiled:
    """Keep each compiled kernel, one for every device: its attributes are set where it is first loaded."""
    return compile_gemm(config)


def compile_gemm(config: GemmConfig) -> Compiled:
    """Compile the kernel of a configuration; needs no GPU.

    The result is called with `MatrixArgument`s of A, B, C (or None) and D, the number of SMs to fill, and a stream.
    """
    from cutlass import Int32

    from cutepy.kernels.gemm.kernel import Gemm

    signature = config.signature
    matrices = [
        symbolic_matrix(dtype, int(major in ("k", "row"))) if dtype else None
        for dtype, major in (
            (signature.a_dtype, signature.a_major),
            (signature.b_dtype, signature.b_major),
            (signature.c_dtype, signature.c_major),
            (signature.out_dtype, signature.out_major),
        )
    ]
    with _COMPILING:
        Gemm.kernel.set_name_prefix(config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        return compile_sm90a(Gemm(config), *matrices, Int32(1), symbolic_stream())


@lru_cache(maxsize=256)
def _stream(handle: int) -> object:
    from cuda.bindings.driver import CUstream

    return CUstream(handle)


def _on_device(device: int) -> AbstractContextManager[Any]:
    """Make `device` current for a launch; costs nothing where it is already."""
    return nullcontext() if torch.cuda.current_device() == device else torch.cuda.device(device)


def _empty(m: int, n: int, dtype: torch.dtype, out_major: str, device: torch.device) -> torch.Tensor:
    if out_major == "row":
        return torch.empty((m, n), dtype=dtype, device=device)
    return torch.empty((n, m), dtype=dtype, device=device).t()
