"""The public operation: check the tensors, choose and compile a kernel once, launch it."""

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

from cutepy.dsl.compile import (
    ABSENT,
    Compiled,
    Int32Argument,
    MatrixArgument,
    StreamArgument,
    compile_sm90a,
    symbolic_matrix,
    symbolic_stream,
)
from cutepy.kernels.gemm.config import GemmConfig, GemmSignature, OperandMajor, OutputMajor, select_config
from cutepy.kernels.gemm.operands import (
    Description,
    Matrix,
    check_address,
    check_device,
    check_operands,
    check_options,
    check_out,
    check_overlap,
    describe,
    describe_new_out,
    matrix,
)

_NAMES = ("a", "b", "c", "out")
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
    """Compute D = A B^T (+ C) on a Hopper GPU, with fp32 accumulators.

    A function (M, K), (N, K), (M, N) -> (M, N). The launch is asynchronous on torch's current stream. The first call
    for each combination of types, majors and tile compiles for about a second; every later size reuses that kernel.
    Of 8-bit products the tensor core keeps about 14 bits while it sums them (`cutepy.testing.numerics`).

    Parameters
    ----------
    a : Tensor, (M, K), float16, bfloat16, float8_e4m3fn or float8_e5m2, on a Hopper GPU
        K-major (stride 1 along K) or, for 16-bit types, M-major. Its contiguous extent, its other stride and its
        address are multiples of 16 bytes.
    b : Tensor, (N, K), of a's dtype, or the other 8-bit float
        The same, with N for M.
    c : Tensor, (M, N), float16, bfloat16 or float32, optional
        Added in fp32 before the result is rounded. Row- or column-major, aligned as the others.
    out : Tensor, (M, N), optional
        Receives the result; its dtype and strides then decide those of D, aligned as the others. It may be `c`
        itself, and must overlap nothing else.
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
    check_options(out_dtype, out_major)
    plan = _plan(
        describe("a", a),
        describe("b", b),
        None if c is None else describe("c", c),
        None if out is None else describe("out", out),
        out_dtype,
        out_major,
    )
    if out is None:
        rows, columns = plan.out.shape
        out = torch.empty_strided((rows, columns), plan.out.stride, dtype=plan.out.dtype, device=plan.out.device)
    else:
        for name, tensor in zip(_NAMES, (a, b, c), strict=False):
            if tensor is not None:
                check_overlap(out, name, tensor)
    if plan.kernel is None:
        return out.zero_() if c is None else out.copy_(c)
    arguments = [
        ABSENT if form is None else _argument(name, tensor, form)
        for name, tensor, form in zip(_NAMES, (a, b, c, out), plan.matrices, strict=True)
    ]
    with _on_device(out.device.index):
        plan.kernel(*arguments, plan.sm_count, _stream(torch._C._cuda_getCurrentRawStream(out.device.index)))
    return out


def _argument(name: str, tensor: torch.Tensor | None, form: Matrix) -> MatrixArgument:
    assert tensor is not None
    rows, columns = tensor.shape
    return MatrixArgument(check_address(name, tensor.data_ptr()), rows, columns, form.leading_stride)


@dataclass(frozen=True)
class _Plan:
    """What is done for tensors of one description: the result's description, the matrices' forms, the kernel.

    There is no kernel where there is nothing to multiply.
    """

    out: Description
    matrices: tuple[Matrix | None, ...] = ()
    kernel: Compiled | None = None
    sm_count: Int32Argument | None = None


@lru_cache(maxsize=4096)
def _plan(
    a: Description,
    b: Description,
    c: Description | None,
    out: Description | None,
    out_dtype: torch.dtype | None,
    out_major: str,
) -> _Plan:
    """Check everything but addresses, and choose and compile the kernel."""
    m, n, k = check_operands(a, b, c)
    if out is None:
        result = describe_new_out((m, n), out_dtype, out_major, a)
    else:
        check_out(out, out_dtype, (m, n))
        result = out
    if m * n * k == 0:  # nothing to multiply, so no demands on strides
        check_device(a, b=b, c=c, out=out)
        return _Plan(result)
    matrices = (
        matrix("a", a, "KM"),
        matrix("b", b, "KN"),
        None if c is None else matrix("c", c, "NM"),
        matrix("out", result, "NM"),
    )
    check_device(a, b=b, c=c, out=out)
    device = a.device.index
    sm_count = torch.cuda.get_device_properties(device).multi_processor_count
    kernel = _kernel(select_config(_signature(*matrices), m, n, k, sm_count), device)
    return _Plan(result, matrices, kernel, Int32Argument(sm_count))


def _signature(a: Matrix, b: Matrix, c: Matrix | None, d: Matrix) -> GemmSignature:
    operand_majors: tuple[OperandMajor, OperandMajor] = ("mn", "k")
    output_majors: tuple[OutputMajor, OutputMajor] = ("col", "row")
    return GemmSignature(
        a_dtype=a.dtype,
        b_dtype=b.dtype,
        out_dtype=d.dtype,
        a_major=operand_majors[a.contiguous_mode],
        b_major=operand_majors[b.contiguous_mode],
        out_major=output_majors[d.contiguous_mode],
        c_dtype=c.dtype if c else None,
        c_major=output_majors[c.contiguous_mode] if c else None,
    )


@cache
def _kernel(config: GemmConfig, device: int) -> Compiled:
    """Keep each compiled kernel, one for every device: its attributes are set where it is first loaded."""
    return compile_gemm(config)


def compile_gemm(config: GemmConfig) -> Compiled:
    """Compile the kernel of a configuration; needs no GPU.

    The result is called with `MatrixArgument`s of A, B, C (or `ABSENT`) and D, an `Int32Argument` with the number of
    SMs to fill, and a `StreamArgument`.
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
def _stream(handle: int) -> StreamArgument:
    return StreamArgument(handle)


def _on_device(device: int) -> AbstractContextManager[Any]:
    """Make `device` current for a launch; costs nothing where it is already."""
    return nullcontext() if torch.cuda.current_device() == device else torch.cuda.device(device)
