"""`gemm`: the matrix product of the tensor cores as an operation of PyTorch."""

from __future__ import annotations

import math
from typing import Any, overload

import torch
from torch.overrides import handle_torch_function, has_torch_function_variadic

from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.reference import ACTIVATION_FUNCTIONS
from cutepy.kernels.gemm.signature import Activation, OutputMajor
from cutepy.ops import shardings
from cutepy.ops.checking import check_dimensions, describe
from cutepy.ops.eager import unobserved
from cutepy.ops.flops import of_products
from cutepy.ops.fused import multiply_with
from cutepy.ops.invariance import register_both
from cutepy.ops.multiply import as_matrix, multiply
from cutepy.ops.naming import refuse_operands_of_none
from cutepy.ops.rules import one_by_one
from cutepy.ops.scaling import refuse_gradients


@overload
def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
) -> torch.Tensor: ...


@overload
def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    epilogue: Epilogue,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
    **operands: Any,  # noqa: ANN401
) -> Any: ...  # noqa: ANN401


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
    epilogue: Epilogue | None = None,
    **operands: Any,
) -> Any:
    """Compute activation(a @ b.mT + c + bias), summed in fp32, or in int32 of integers, as torch's `linear` does.

    A function (..., K), (N, K) -> (..., N), or of batches (..., M, K), (..., N, K) -> (..., M, N). On a Hopper GPU one
    kernel does it all; on the CPU the result is computed in float64 and rounded once, except within
    `cutepy.simulate()`, where the kernel runs.

    Tensors may have any shape and strides. What TMA can't reach is copied first: operands in which neither extent is
    contiguous, or which don't start, or whose rows don't follow each other, at multiples of 16 bytes, unless threads
    are expected to load multiples of 4 or 8 in less time; 8-bit and 32-bit operands that are not contiguous along K. A
    K that is no multiple of 16 bytes costs copies of both operands if not, such an N one of the result.

    All products of a batch are one launch, and matrices that are broadcast are not copied; only a batch with more than
    three dimensions that no view joins takes several launches. Leading dimensions of a that no view joins are a batch
    that shares b, or are copied together where that is expected to be faster.

    Parameters
    ----------
    a : Tensor, (..., K), float16, bfloat16, float8_e4m3fn, float8_e5m2, float32, int8 or uint8
        float32 is rounded to tf32, of 11 significant bits, where torch's settings allow that
        (`torch.set_float32_matmul_precision("high")`).
    b : Tensor, (N, K) or (..., N, K), of a's dtype, or the other 8-bit float, or the other 8-bit integer
        With a batch, a is (..., M, K), and the batches are broadcast.
    c : Tensor, (..., N) or (..., M, N), float16, bfloat16 or float32, optional
        Added in fp32; of the result's shape, or one that broadcasts to it.
    bias : Tensor, (N,), float16, bfloat16 or float32, optional
        Added in fp32.
    activation : "relu", "gelu", "gelu_tanh" or "silu", optional
        Of the fp32 sum, before it is rounded. Where a gradient will be asked for, all but "relu" are applied to the
        rounded sum instead, which is kept for it.
    out : Tensor, optional
        Receives the result. It may be `c` itself, and must share no memory with another input; no argument may require
        grad, and `torch.vmap` refuses it.
    out_dtype : float16, bfloat16, float32 or int32, optional
        Of the result; `out`'s or a's dtype if not given, bfloat16 for 8-bit inputs. int32 is for integers, whose sums
        are then given as they are, and their default without c, bias, activation and epilogue.
    out_major : "row" or "col"
        Which extent of the result's matrices is contiguous: N, or M. Not read with `out`.
    epilogue : Epilogue, optional
        What is done with the fp32 sums instead: a function that `cutepy.epilogue` made.
    **operands
        The epilogue's operands by name: numbers, and tensors on a's device. Rows have shape (N,); columns the result's
        without its last dimension; tiles the result's, or what broadcasts to it. N is that of what they meet.

    Returns
    -------
    Tensor, tuple or dict
        Contiguous, each matrix in the order asked for; or `out`. With an epilogue, what its function returns.

    Raises
    ------
    TypeError
        If an argument is no tensor or has a dtype that the kernel lacks, or a is float32 and must not be rounded: allow
        it, convert it, or use `torch.autocast`.
    ValueError
        If shapes, devices or memory don't fit, or K of integers is so long that int32 may not hold a sum; the message
        names the argument.
    NotImplementedError
        If 8-bit operands require grad: their gradients would need scales. A bias may.

    Examples
    --------
    >>> import torch
    >>> a, b = torch.ones(2, 3, 4).bfloat16(), torch.ones(5, 4).bfloat16()
    >>> gemm(a, b, bias=torch.full((5,), -5.0), activation="relu").shape
    torch.Size([2, 3, 5])
    """
    if epilogue is not None or operands:
        named = {"c": c, "bias": bias, **operands}
        return _with_epilogue(a, b, epilogue, named, activation, out, out_dtype, out_major)
    if not torch.compiler.is_compiling() and unobserved((a, b, c, bias, out)):
        result = multiply(a, b, bias, activation, out_dtype, c, out_major, out)
        if out is not None:
            torch.autograd.graph.increment_version(out)
        return result
    if has_torch_function_variadic(a, b, c, bias, out):  # tensors of others, torch.fx's stand-ins, modes
        named = {"c": c, "bias": bias, "activation": activation, "out": out, "out_dtype": out_dtype}
        hand_over: Any = handle_torch_function
        return hand_over(gemm, (a, b, c, bias, out), a, b, out_major=out_major, **named)
    try:
        if out is not None:
            if not torch.compiler.is_compiling() and out.is_neg():  # torch would write to a copy
                raise ValueError("out must not be a lazy negative; pass a new tensor, or out.resolve_neg()")
            if out_dtype not in (None, out.dtype):
                describe(a, b, bias, activation, out_dtype, c, out_major, out)
            _gemm_out(a, b, bias, activation, out, c)
            return out
        if activation in ("gelu", "gelu_tanh", "silu") and torch.is_grad_enabled() and _requires_grad(a, b, bias, c):
            return ACTIVATION_FUNCTIONS[activation](_gemm(a, b, bias, None, out_dtype, c, out_major))
        return _gemm(a, b, bias, activation, out_dtype, c, out_major)
    except (AttributeError, RuntimeError):
        # It says what the dispatcher tells in words of its own.
        describe(a, b, bias, activation, out_dtype, c, out_major, out)
        raise


def _with_epilogue(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue | None,
    named: dict[str, Any],
    activation: Activation | None,
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    out_major: str,
) -> Any:  # noqa: ANN401
    if epilogue is None:
        refuse_operands_of_none("gemm", {name: value for name, value in named.items() if name not in ("c", "bias")})
    operands = {name: value for name, value in named.items() if value is not None}
    if activation is not None or out is not None:
        given = "activation" if activation is not None else "out"
        raise ValueError(f"{given} must be left out with an epilogue, which says all that is done with the product")
    tensors = [value for value in operands.values() if isinstance(value, torch.Tensor)]
    if has_torch_function_variadic(a, b, *tensors):
        hand_over: Any = handle_torch_function
        options = {"epilogue": epilogue, "out_dtype": out_dtype, "out_major": out_major}
        return hand_over(gemm, (a, b, *tensors), a, b, **options, **operands)
    return multiply_with(a, b, epilogue, operands, out_dtype, out_major)


def _requires_grad(*tensors: torch.Tensor | None) -> bool:
    return any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def _fake_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
    c: torch.Tensor | None = None,
    out_major: str = "row",
) -> torch.Tensor:
    shape, stride, dtype = describe(a, b, bias, activation, out_dtype, c, out_major).out[:3]
    return a.new_empty_strided(shape, stride, dtype=dtype)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
    a, b, bias, activation, _, c, _ = inputs
    refuse_gradients(a, b)
    # The sum that an activation took is computed again: `gemm` asks for it, where a gradient is wanted, anyway.
    again = activation not in (None, "relu")
    ctx.save_for_backward(a, b, *((bias, c, None) if again else (None, None, output if activation else None)))
    ctx.activation, ctx.out_dtype = activation, output.dtype
    ctx.c_shape = None if c is None else c.shape


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
    a, b, bias, c, output = ctx.saved_tensors
    if ctx.activation == "relu":
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
    elif ctx.activation is not None:
        total = gemm(a, b, c=c, bias=bias, out_dtype=ctx.out_dtype)
        if ctx.activation == "silu":
            grad = _silu_backward(grad, total)
        else:
            approximate = "tanh" if ctx.activation == "gelu_tanh" else "none"
            grad = torch.ops.aten.gelu_backward(grad, total, approximate=approximate)
    grad_a, grad_b, grad_bias, grad_c = None, None, None, None
    lowered = grad.to(a.dtype) if any(ctx.needs_input_grad[:2]) else grad
    if ctx.needs_input_grad[0]:
        grad_a = gemm(lowered, b.mT).sum_to_size(a.shape)
    if ctx.needs_input_grad[1]:
        if math.prod(b.shape[:-2]) == 1:  # all rows met the same matrix: the product sums over them
            grad_b = gemm(as_matrix(lowered).mT, as_matrix(a).mT).view(b.shape)
        else:
            grad_b = gemm(lowered.mT, a.mT).sum_to_size(b.shape)
    if ctx.needs_input_grad[2]:
        grad_bias = as_matrix(grad).sum(0, dtype=torch.float32)  # autograd rounds it to the bias's dtype
    if ctx.needs_input_grad[5]:
        grad_c = grad if grad.shape == ctx.c_shape else grad.float().sum_to_size(ctx.c_shape)
    return grad_a, grad_b, grad_bias, None, None, grad_c, None


def _silu_backward(grad: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Multiply by silu's derivative: as torch does it, or, if that may be differentiated, by what has a derivative."""
    if not torch.is_grad_enabled():
        result: torch.Tensor = torch.ops.aten.silu_backward(grad, total)
        return result
    wide = total.float()
    gate = wide.sigmoid()
    return (grad.float() * gate * (1 + wide * (1 - gate))).to(grad.dtype)


def _vmap_gemm(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[torch.Tensor, int]:  # noqa: ANN401
    """Make the examples of a, b and c a batch, broadcast where one has none; one by one if each has its bias."""
    a, b, bias, activation, out_dtype, c, out_major = arguments
    of_a, of_b, of_bias, _, _, of_c, _ = in_dims
    if of_bias is not None:
        return one_by_one(_gemm)(info, in_dims, *arguments)  # type: ignore[no-any-return]
    check_dimensions(_example_shape(a, of_a), _example_shape(b, of_b))
    a = a.unsqueeze(0) if of_a is None else a.movedim(of_a, 0)
    if of_a is None and of_b is None:
        a = a.expand(info.batch_size, *a.shape[1:])
    shared = of_b is None and b.dim() == 2
    one_row = a.dim() == 2 and not shared
    if one_row:
        a = a.unsqueeze(1)
    # The batches of the examples align at the right, below those that examples make.
    rank = a.dim()
    if not shared:
        b = b.unsqueeze(0) if of_b is None else b.movedim(of_b, 0)
        rank = max(rank, b.dim())
        a, b = _aligned(a, rank), _aligned(b, rank)
    if of_c is not None:
        c = _aligned(c.movedim(of_c, 0), rank)
    result = _gemm(a, b, bias, activation, out_dtype, c, out_major)
    return result.squeeze(-2) if one_row else result, 0


def _aligned(examples: torch.Tensor, rank: int) -> torch.Tensor:
    """Give examples dimensions of 1, below the one that tells them apart."""
    aligned: torch.Tensor = examples.unflatten(0, (examples.shape[0], *[1] * (rank - examples.dim())))
    return aligned


def _example_shape(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)


@register_both(
    "cutepy::gemm(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, ScalarType? out_dtype=None, "
    'Tensor? c=None, str out_major="row") -> Tensor',
    reference=multiply,
    fake=_fake_gemm,
    setup_context=_keep_for_backward,
    backward=_backward,
    autocast="lower",
    vmap=_vmap_gemm,
    sharding=shardings.of_gemm,
    flops=of_products,
)
def _gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
    c: torch.Tensor | None = None,
    out_major: str = "row",
) -> torch.Tensor:
    return multiply(a, b, bias, activation, out_dtype, c, out_major)


def _check_out(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation | None,
    out: torch.Tensor,
    c: torch.Tensor | None = None,
) -> None:
    """Check all that can be told without data; gives nothing, as the operation does: the result exists."""
    describe(a, b, bias, activation, None, c, "row", out)


def _multiply_into(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation | None,
    out: torch.Tensor,
    c: torch.Tensor | None = None,
) -> None:
    multiply(a, b, bias, activation, None, c, "row", out)


_gemm_out = register_both(
    "cutepy::gemm_out(Tensor a, Tensor b, Tensor? bias, str? activation, Tensor(a!) out, Tensor? c=None) -> ()",
    reference=_multiply_into,
    fake=_check_out,
    autocast="lower",
    sharding=shardings.of_gemm_out,
    flops=of_products,
)(_multiply_into)
