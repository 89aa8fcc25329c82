"""The public operation: check the tensors, choose a kernel, have it compiled once, launch it."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch

from cutepy.dsl.h200 import SM_COUNT
from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec
from cutepy.kernels.gemm.config import (
    Activation,
    GemmConfig,
    GemmSignature,
    OperandMajor,
    OutputMajor,
    select_config,
)
from cutepy.kernels.gemm.operands import (
    Description,
    Matrix,
    check_address,
    check_bias,
    check_device,
    check_operands,
    check_options,
    check_out,
    check_overlap,
    describe,
    describe_new_out,
    dtype_name,
    matrix,
)
from cutepy.kernels.gemm.reference import gemm_reference

_MOST_TILES = 2**31 - 2**16
"""A CTA's last step beyond them stays within 32 bits."""

SOURCES = ("cutepy.layouts", "cutepy.device", "cutepy.kernels.gemm")
"""What decides the code of a kernel, besides its configuration."""


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
) -> torch.Tensor:
    """Compute D = activation(A B^T + C + bias) on a Hopper GPU, with fp32 accumulators.

    A function (M, K), (N, K), (M, N), (N,) -> (M, N), or one of batches: a, b and c then have the same one to three
    dimensions before those of the matrices, and one launch computes all products. The launch is asynchronous on torch's
    current stream. The first call for each combination of types, majors, batch dimensions and tile compiles for about a
    second, or finds what an earlier process compiled on the disk; every later size reuses that kernel. Within
    `cutepy.simulate()` it runs on the CPU.
    Of 8-bit products the tensor core keeps about 14 bits while it sums them (`cutepy.testing.numerics`).

    Parameters
    ----------
    a : Tensor, ([batch,] M, K), float16, bfloat16, float8_e4m3fn or float8_e5m2, on a Hopper GPU
        K-major (stride 1 along K) or, for 16-bit types, M-major. Its contiguous extent, its other strides and its
        address are multiples of 16 bytes. The strides of a batch may be 0: `expand` a matrix that products share.
    b : Tensor, ([batch,] N, K), of a's dtype, or the other 8-bit float
        The same, with N for M.
    c : Tensor, ([batch,] M, N), float16, bfloat16 or float32, optional
        Added in fp32 before the result is rounded. Row- or column-major, aligned as the others.
    out : Tensor, ([batch,] M, N), optional
        Receives the result; its dtype and strides then decide those of D, aligned as the others. It may be `c`
        itself, and must overlap nothing else.
    out_dtype : float16, bfloat16 or float32, optional
        Of the result; a's dtype if not given, bfloat16 for 8-bit inputs.
    out_major : "row" or "col"
        "row" makes a contiguous (M, N) result, "col" the transpose of a contiguous (N, M) one. Not read with `out`.
    bias : Tensor, (N,), float16, bfloat16 or float32, contiguous, optional
        Added to each row, of each product of a batch, in fp32 before the result is rounded.
    activation : "relu", "gelu", "gelu_tanh" or "silu", optional
        Of the sum, in fp32, as the functions of torch.nn.functional compute it.

    Returns
    -------
    Tensor, ([batch,] M, N)
        `out`, or a new tensor. With K = 0 the product is zeros; with M = 0, N = 0 or no batch the result is empty.

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
    check_options(out_dtype, out_major, activation)
    left = describe("a", a)
    plan = plan_gemm(
        left,
        describe("b", b),
        None if c is None else describe("c", c),
        None if out is None else describe("out", out),
        None if bias is None else describe("bias", bias),
        out_dtype,
        out_major,
        activation,
    )
    if left.device.type == "cpu":
        check_device(left)  # what was planned within `cutepy.simulate()` runs only there
    inputs = (a, b, c, bias)
    if out is None:
        out = plan.new_out()
    else:
        for name, tensor in zip(("a", "b", "c", "bias"), inputs, strict=True):
            if tensor is not None:
                check_overlap(out, name, tensor)
    for name, tensor in zip(("a", "b", "c", "out"), (a, b, c, out), strict=True):
        if tensor is not None and plan.kernel is not None:
            check_address(name, tensor.data_ptr())
    plan.run(a, b, c, out, bias)
    return out


@dataclass(frozen=True)
class Plan:
    """What is done for tensors of one description.

    Attributes
    ----------
    out : Description
        Of the result.
    kernel : Function or None
        None where there is nothing to multiply.
    strides : tuple
        For each of a, b, c, out: the strides to pass instead of its own, where an extent of 1 leaves them open.
    sm_count : int
        SMs to fill.
    activation : str or None
        What `kernel` applies too.
    """

    out: Description
    kernel: Function | None = None
    strides: tuple[tuple[int, ...] | None, ...] = ()
    sm_count: int = 0
    activation: Activation | None = None

    def new_out(self) -> torch.Tensor:
        """Allocate the result."""
        shape, stride, dtype, device = self.out
        return torch.empty_strided(shape, stride, dtype=dtype, device=device)

    def run(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor | None,
        out: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> None:
        """Launch for tensors that have been described and checked, at addresses that are multiples of 16 bytes."""
        if self.kernel is None:
            out.copy_(gemm_reference(a, b, c, bias, self.activation))
            return
        matrices: tuple[torch.Tensor | None, ...] = (a, b, c, out)
        if any(self.strides):
            matrices = tuple(
                tensor if tensor is None or stride is None else tensor.as_strided(tensor.shape, stride)
                for tensor, stride in zip(matrices, self.strides, strict=True)
            )
        with _on_device(out):
            self.kernel(*matrices, self.sm_count, bias)


@lru_cache(maxsize=4096)
def plan_gemm(
    a: Description,
    b: Description,
    c: Description | None,
    out: Description | None,
    bias: Description | None,
    out_dtype: torch.dtype | None,
    out_major: str,
    activation: Activation | None,
    *,
    wider_out: bool = False,
) -> Plan:
    """Check everything but addresses and overlap, and choose and compile the kernel.

    With `wider_out`, `out` may have more columns than b has rows, as many as fill its last 16 bytes: what the kernel
    writes there means nothing.

    Raises
    ------
    TypeError, ValueError
        As `gemm`.
    """
    batch, (m, n, k) = check_operands(a, b, c)
    products = math.prod(batch)
    check_bias(bias, n)
    if out is None:
        result = describe_new_out((*batch, m, n), out_dtype, out_major, a)
    else:
        check_out(out, out_dtype, (*batch, m, out.shape[-1] if wider_out else n))
        result = out
    if products * m * n * k == 0:  # nothing to multiply, so no demands on strides
        check_device(a, b=b, c=c, out=out, bias=bias)
        return Plan(result, activation=activation)
    descriptions = (a, b, c, result)
    matrices = (
        matrix("a", a, "KM"),
        matrix("b", b, "KN"),
        None if c is None else matrix("c", c, "NM"),
        matrix("out", result, "NM"),
    )
    check_device(a, b=b, c=c, out=out, bias=bias)
    sm_count = _sm_count(a.device)
    signature = _signature(*matrices, None if bias is None else dtype_name(bias.dtype), activation)
    config = select_config(signature, m, n, k, sm_count, batch=products)
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n) * products
    if tiles >= _MOST_TILES:
        raise ValueError(
            f"a batch must have fewer than {_MOST_TILES} tiles, which a kernel counts in 32 bits, got {products} "
            f"products of {m}x{n} in tiles of {config.tile_m}x{config.tile_n}; split it"
        )
    strides = tuple(
        None if form is None or given is None or form.strides == given.stride else form.strides
        for form, given in zip(matrices, descriptions, strict=True)
    )
    return Plan(result, compile_gemm(config), strides, sm_count, activation)


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


def _signature(
    a: Matrix, b: Matrix, c: Matrix | None, d: Matrix, bias_dtype: str | None, activation: Activation | None
) -> GemmSignature:
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
        bias_dtype=bias_dtype,
        activation=activation,
        batch_modes=len(a.batch_strides),
    )


@cache
def compile_gemm(config: GemmConfig) -> Function:
    """Compile the kernel of a configuration, unless memory or disk has it; needs no GPU.

    The result is called with tensors A, B, C (or None) and D, the number of SMs to fill, and the bias (or None); it
    tells its `ptx`, `sass` and `resources`.
    """
    kernel = Deferred("cutepy.kernels.gemm.kernel:Gemm", config)
    # `describe` refuses what torch negates, and so do the operations of `cutepy.ops`.
    arguments: dict[str, Any] = {**examples(config.signature)}
    return compile(kernel, **arguments, sources=SOURCES).of_resolved()


def _sm_count(device: torch.device) -> int:
    if device.type != "cuda":
        return SM_COUNT  # of the GPU that the simulator stands for
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _on_device(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Make a GPU current for a launch; costs nothing where it is already."""
    if not tensor.is_cuda or torch.cuda.current_device() == tensor.device.index:
        return nullcontext()
    return torch.cuda.device(tensor.device)
