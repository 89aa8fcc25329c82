"""`gemm`: the matrix product of the tensor cores as an operation of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from cutepy.kernels.gemm.config import Activation
from cutepy.kernels.gemm.operands import OUTPUT_DTYPES, dtype_name
from cutepy.kernels.gemm.reference import ACTIVATION_FUNCTIONS, gemm_reference
from cutepy.ops.checking import check_dimensions, check_tensor, describe_result
from cutepy.ops.multiply import Launch, as_matrix, find_launch, multiply_into
from cutepy.ops.overlap import check_apart
from cutepy.ops.registration import register
from cutepy.ops.rules import one_by_one

_MOST_LAUNCHES = 4096
_launches: dict[tuple[Any, ...], Launch | None] = {}


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Compute activation(a @ b.mT + bias) with fp32 accumulators, as `torch.nn.functional.linear` does.

    A function (..., K), (N, K) -> (..., N), or of batches (..., M, K), (..., N, K) -> (..., M, N). On a Hopper GPU one
    kernel does it all; on the CPU the result is computed in float64 and rounded once, except within
    `cutepy.simulate()`, where the kernel runs.

    Tensors may have any shape and strides. What TMA can't reach is copied first: operands in which neither extent is
    contiguous, or which don't start, or whose rows don't follow each other, at multiples of 16 bytes; 8-bit operands
    that are not contiguous along K. A K that is no multiple of 16 bytes costs copies of both operands, such an N one of
    the result.

    All products of a batch are one launch, and matrices that are broadcast are not copied; only a batch with more than
    three dimensions that no view joins takes several launches. Leading dimensions of a that no view joins are a batch
    that shares b, or are copied together where that is expected to be faster.

    Parameters
    ----------
    a : Tensor, (..., K), float16, bfloat16, float8_e4m3fn or float8_e5m2
    b : Tensor, (N, K) or (..., N, K), of a's dtype, or the other 8-bit float
        With a batch, a is (..., M, K), and the batches are broadcast.
    bias : Tensor, (N,), float16, bfloat16 or float32, optional
        Added in fp32.
    activation : "relu", "gelu", "gelu_tanh" or "silu", optional
        Of the fp32 sum, before it is rounded. Where a gradient will be asked for, all but "relu" are applied to the
        rounded sum instead, which is kept for it.
    out : Tensor, optional
        Receives the result. It must share no memory with an input, and no argument may require grad; `torch.vmap`
        refuses it.
    out_dtype : float16, bfloat16 or float32, optional
        Of the result; `out`'s or a's dtype if not given, bfloat16 for 8-bit inputs.

    Returns
    -------
    Tensor
        Contiguous, or `out`.

    Raises
    ------
    TypeError
        If an argument is no tensor or has a dtype that the kernel lacks; float32 inputs are refused, since the tensor
        cores would round them: convert them, or use `torch.autocast`.
    ValueError
        If shapes, devices or memory don't fit; the message names the argument.
    NotImplementedError
        If 8-bit operands require grad: their gradients would need scales. A bias may.

    Examples
    --------
    >>> import torch
    >>> a, b = torch.ones(2, 3, 4).bfloat16(), torch.ones(5, 4).bfloat16()
    >>> gemm(a, b, bias=torch.full((5,), -5.0), activation="relu").shape
    torch.Size([2, 3, 5])
    """
    if out is not None:
        check_tensor("out", out, OUTPUT_DTYPES)
        if not torch.compiler.is_compiling() and out.is_neg():  # torch would write to a copy
            raise ValueError("out must not be a lazy negative; pass a new tensor, or out.resolve_neg()")
        if out_dtype not in (None, out.dtype):
            raise TypeError(
                f"out_dtype must be out's dtype {dtype_name(out.dtype)} or be left out, got {dtype_name(out_dtype)}"
            )
    try:
        if out is not None:
            _gemm_out(a, b, bias, activation, out)
            return out
        if activation in ("gelu", "gelu_tanh", "silu") and torch.is_grad_enabled() and _any_requires_grad(a, b, bias):
            return ACTIVATION_FUNCTIONS[activation](_gemm(a, b, bias, None, out_dtype))
        return _gemm(a, b, bias, activation, out_dtype)
    except RuntimeError:
        describe_result(a, b, bias, activation, out_dtype)  # says what the dispatcher tells in words of its own
        raise


def _any_requires_grad(*tensors: torch.Tensor | None) -> bool:
    return any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors)


def _fake_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    shape, dtype = describe_result(a, b, bias, activation, out_dtype)
    return a.new_empty(shape, dtype=dtype)


def _reference_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    _, dtype = describe_result(a, b, bias, activation, out_dtype)
    return gemm_reference(a, b, None, bias, activation).to(dtype)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ANN401
    a, b, bias, activation, _ = inputs
    if a.dtype.itemsize == 1 and (a.requires_grad or b.requires_grad):
        raise NotImplementedError(
            "gemm has no derivative by 8-bit operands, since gradients would need scales of their own; "
            "detach the operands, or convert them to bfloat16"
        )
    kept = output if activation == "relu" else None
    # The sum that an activation took is computed again: `gemm` asks for it, where a gradient is wanted, anyway.
    ctx.save_for_backward(a, b, bias, kept)
    ctx.activation, ctx.out_dtype = activation, output.dtype


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
    a, b, bias, output = ctx.saved_tensors
    if ctx.activation == "relu":
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
    elif ctx.activation is not None:
        total = gemm(a, b, bias=bias, out_dtype=ctx.out_dtype)
        if ctx.activation == "silu":
            grad = _silu_backward(grad, total)
        else:
            approximate = "tanh" if ctx.activation == "gelu_tanh" else "none"
            grad = torch.ops.aten.gelu_backward(grad, total, approximate=approximate)
    grad_a, grad_b, grad_bias = None, None, None
    lowered = grad.to(a.dtype) if any(ctx.needs_input_grad[:2]) else grad
    if ctx.needs_input_grad[0]:
        grad_a = gemm(lowered, b.mT).sum_to_size(a.shape)
    if ctx.needs_input_grad[1]:
        if b.shape[:-2].numel() == 1:  # all rows met the same matrix: the product sums over them
            grad_b = gemm(as_matrix(lowered).mT, as_matrix(a).mT).view(b.shape)
        else:
            grad_b = gemm(lowered.mT, a.mT).sum_to_size(b.shape)
    if ctx.needs_input_grad[2]:
        grad_bias = as_matrix(grad).sum(0, dtype=torch.float32).to(bias.dtype)
    return grad_a, grad_b, grad_bias, None, None


def _silu_backward(grad: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Multiply by silu's derivative: as torch does it, or, if that may be differentiated, by what has a derivative."""
    if not torch.is_grad_enabled():
        result: torch.Tensor = torch.ops.aten.silu_backward(grad, total)
        return result
    wide = total.float()
    gate = wide.sigmoid()
    return (grad.float() * gate * (1 + wide * (1 - gate))).to(grad.dtype)


def _vmap_gemm(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[torch.Tensor, int]:  # noqa: ANN401
    """Make the examples of a and b a batch, broadcast where one has none; multiply one by one if each has its bias."""
    a, b, *rest = arguments
    if any(d is not None for d in in_dims[2:]):
        return one_by_one(_gemm)(info, in_dims, *arguments)  # type: ignore[no-any-return]
    of_a, of_b = in_dims[:2]
    check_dimensions(_example_shape(a, of_a), _example_shape(b, of_b))
    a = a.unsqueeze(0) if of_a is None else a.movedim(of_a, 0)
    if of_b is None and b.dim() == 2:
        return _gemm(a, b, *rest), 0
    b = b.unsqueeze(0) if of_b is None else b.movedim(of_b, 0)
    one_row = a.dim() == 2
    if one_row:
        a = a.unsqueeze(1)
    # The batches of the examples align at the right, below those that examples make.
    rank = max(a.dim(), b.dim())
    a, b = (t.unflatten(0, (t.shape[0], *[1] * (rank - t.dim()))) for t in (a, b))
    result = _gemm(a, b, *rest)
    return result.squeeze(-2) if one_row else result, 0


def _example_shape(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)


@register(
    "cutepy::gemm(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, ScalarType? out_dtype=None) -> Tensor",
    reference=_reference_gemm,
    fake=_fake_gemm,
    setup_context=_keep_for_backward,
    backward=_backward,
    autocast="lower",
    vmap=_vmap_gemm,
)
def _gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    # All that decides the launch, but for addresses; what is found for it once holds from then on.
    key: tuple[Any, ...]
    try:
        key = (a.shape, a.stride(), a.dtype, a.device, b.shape, b.stride(), b.dtype, b.device, activation, out_dtype)
        if bias is not None:
            key += (bias.shape, bias.stride(), bias.dtype, bias.device)
        launch = _launches.get(key)
    except (AttributeError, TypeError, RuntimeError):
        describe_result(a, b, bias, activation, out_dtype)  # says which argument is of a wrong type
        raise
    if launch is not None and (a.data_ptr() | b.data_ptr()) % 16 == 0:
        return launch(a, b, bias)
    shape, dtype = describe_result(a, b, bias, activation, out_dtype)
    out = torch.empty(shape, dtype=dtype, device=a.device)
    multiply_into(out, a, b, bias, activation)
    _keep_launch(key, out, a, b, bias, activation)
    return out


def _keep_launch(
    key: tuple[Any, ...],
    out: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation | None,
) -> None:
    """Remember how tensors of a key are multiplied."""
    if key not in _launches:
        if len(_launches) >= _MOST_LAUNCHES:
            _launches.clear()
        _launches[key] = find_launch(out, a, b, bias, activation)


def _check_out(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, out: torch.Tensor
) -> None:
    """Check all that can be told without data; gives nothing, as the operation does: the result exists."""
    check_tensor("out", out, OUTPUT_DTYPES)
    shape, _ = describe_result(a, b, bias, activation, out.dtype)
    if list(out.shape) != shape or out.device != a.device:
        raise ValueError(f"out must be {tuple(shape)} on {a.device}, got {tuple(out.shape)} on {out.device}")


def _reference_gemm_out(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, activation: str | None, out: torch.Tensor
) -> None:
    _check_out(a, b, bias, activation, out)
    check_apart(out, a=a, b=b, bias=bias)
    out.copy_(gemm_reference(a, b, None, bias, activation))


@register(
    "cutepy::gemm_out(Tensor a, Tensor b, Tensor? bias, str? activation, Tensor(a!) out) -> ()",
    reference=_reference_gemm_out,
    fake=_check_out,
    autocast="lower",
)
def _gemm_out(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: Activation | None,
    out: torch.Tensor,
) -> None:
    # With the result's description in the place of its dtype, which sets these keys apart from those without.
    key: tuple[Any, ...]
    try:
        key = (a.shape, a.stride(), a.dtype, a.device, b.shape, b.stride(), b.dtype, b.device, activation)
        key += (out.shape, out.stride(), out.dtype, out.device)
        if bias is not None:
            key += (bias.shape, bias.stride(), bias.dtype, bias.device)
        launch = _launches.get(key)
    except (AttributeError, TypeError, RuntimeError):
        _check_out(a, b, bias, activation, out)  # says which argument is of a wrong type
        raise
    if launch is None:
        _check_out(a, b, bias, activation, out)
    # Here, where every road of torch ends, and has decided which tensors are the same memory.
    check_apart(out, a=a, b=b, bias=bias)
    if launch is not None and (a.data_ptr() | b.data_ptr() | out.data_ptr()) % 16 == 0:
        launch(a, b, bias, out)
        return
    multiply_into(out, a, b, bias, activation)
    _keep_launch(key, out, a, b, bias, activation)
