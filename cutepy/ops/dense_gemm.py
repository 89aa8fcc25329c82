"""`gemm`: the matrix product of the tensor cores as an operation of PyTorch.

Every product is an epilogue of a @ b.mT, also a product with C, a bias or an activation. `apply_epilogue` calls
`multiply` directly if no mode, transform or subclass of torch observes the call; otherwise it calls one operation
through torch's dispatcher.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, overload

import torch
from torch.overrides import handle_torch_function, has_torch_function

from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph
from cutepy.epilogues.reference import compute
from cutepy.epilogues.standard import standard, standard_of
from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.operands import INTEGER_DTYPES, OUTPUT_DTYPES, SUMS_DTYPE
from cutepy.kernels.gemm.output_signature import OutputMajor
from cutepy.kernels.gemm.reference import ACTIVATION_FUNCTIONS
from cutepy.kernels.gemm.scales import Scales
from cutepy.kernels.gemm.signature import ACTIVATIONS, Activation
from cutepy.ops import shardings
from cutepy.ops.checking import (
    check_dimensions,
    check_epilogue,
    check_operands,
    check_tensor,
    describe,
    out_name,
    refuse_operands_of_none,
    result_shape,
)
from cutepy.ops.multiply import multiply
from cutepy.ops.operands import (
    Rows,
    as_matrix,
    bound,
    differentiate,
    outs_of,
    passed,
    refuse_gradients,
    scales_of,
    split,
    without_symbols,
)
from cutepy.ops.operation import GRADIENT, road, unobserved
from cutepy.ops.registration import lowered_tensors, one_by_one, register_both

_NAMED = {
    (c, bias, activation): standard(c, bias, activation)
    for c in (False, True)
    for bias in (False, True)
    for activation in (None, *ACTIVATIONS)
}
"""The epilogues that `gemm` has names for. A dictionary, since torch.compile looks into a function that caches."""


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
    out: Any = ...,  # noqa: ANN401
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
    out: Any = None,
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
    epilogue: Epilogue | None = None,
    **operands: Any,
) -> Any:
    """Compute activation(a @ b.mT + c + bias), summed in fp32, or in int32 of integers, as torch's `linear` does.

    The function maps (..., K), (N, K) -> (..., N), or batches (..., M, K), (..., N, K) -> (..., M, N). On a Hopper GPU
    one kernel computes the result. On the CPU the result is computed in float64 and rounded once, except within
    `cutepy.simulate()`, where the kernel runs.

    Tensors may have any shape and strides. Operands that TMA can't reach are copied first. TMA needs a contiguous
    extent, and an address and a row pitch that are multiples of 16 bytes; 8-bit and 32-bit operands must be contiguous
    along K. Operands at multiples of 4 or 8 bytes are not copied if loads by threads are expected to take less time. A
    K that is no multiple of 16 bytes thus costs copies of both operands, and such an N costs a copy of the result.

    One launch computes all products of a batch, and broadcast matrices are not copied. A batch with more than three
    dimensions that no view joins takes several launches. Leading dimensions of a that no view joins become a batch that
    shares b, or are copied to one matrix if that is expected to be faster.

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
        Function of the fp32 sum, before rounding. If a gradient may be needed, all activations but "relu" are applied
        to the rounded sum, which is kept for the gradient.
    out : Tensor, optional
        Receives the result; with an epilogue of several, a tuple or dict of tensors as its function returns. It may be
        `c` itself, or another tile of its columns, and must share no memory with another input; no argument may require
        grad, and `torch.vmap` refuses it.
    out_dtype : float16, bfloat16, float32 or int32, optional
        Dtype of the result. Default: the dtype of `out`, or of a, or bfloat16 for 8-bit inputs. Integers have int32
        sums without rounding, which is their default without c, bias, activation and epilogue.
    out_major : "row" or "col"
        Contiguous extent of the results' matrices: N, or M. Not read with `out`.
    epilogue : Epilogue, optional
        Function of the fp32 sums, made by `cutepy.epilogue`, in place of c, bias and activation.
    **operands
        The epilogue's operands by name: numbers, and tensors on a's device. A row has shape (N,), a column the shape of
        the result without its last dimension, a tile the shape of the result or one that broadcasts to it. N is the
        number of columns at the point of the epilogue that uses the operand.

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
    if epilogue is None:
        if operands:
            refuse_operands_of_none("gemm", operands)
        given: tuple[Any, ...] = (
            ((c,) if bias is None else (c, bias)) if c is not None else () if bias is None else (bias,)
        )
        try:
            finish = _NAMED[c is not None, bias is not None, activation]
        except (KeyError, TypeError):
            raise ValueError(f"activation must be {', '.join(ACTIVATIONS)} or None, got {activation!r}") from None
        outs: Sequence[Any] = (out,)
        way = 0 if torch.compiler.is_compiling() else road((a, b, c, bias, out))
        if unobserved(way):
            (result,) = multiply(a, b, finish.text, given, out_dtype, out_major, outs, None, True)
            if out is not None:
                torch.autograd.graph.increment_version(out)
            return result
    else:
        check_epilogue(epilogue)
        if activation is not None:
            raise ValueError(
                "activation must be left out with an epilogue, which says all that is done with the product"
            )
        named = {name: value for name, value in {"c": c, "bias": bias, **operands}.items() if value is not None}
        given = tuple(epilogue.bind(named).values())
        if has_torch_function((a, b, *given)):  # tensors of others, torch.fx's stand-ins, modes
            hand_over: Any = handle_torch_function
            options = {"epilogue": epilogue, "out": out, "out_dtype": out_dtype, "out_major": out_major}
            return hand_over(gemm, (a, b, *given), a, b, **options, **named)
        return apply_epilogue(a, b, epilogue, given, out, out_dtype, out_major)
    if not way and has_torch_function((a, b, c, bias, out)):
        options = {"c": c, "bias": bias, "activation": activation, "out": out, "out_dtype": out_dtype}
        hand_over = handle_torch_function
        return hand_over(gemm, (a, b, c, bias, out), a, b, out_major=out_major, **options)
    try:
        for operand, tensor in zip(finish.operands, given, strict=True):
            check_tensor(operand.name, tensor, OUTPUT_DTYPES)
        given = lowered_tensors(
            given
        )  # as a and b, which the operation casts; an epilogue's operands keep their dtypes
        if out is None and out_dtype is None and a.dtype in INTEGER_DTYPES and finish == identity:
            out_dtype = SUMS_DTYPE
        later = activation in ("gelu", "gelu_tanh", "silu") and out is None
        if later and (
            way > GRADIENT or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (a, b, *given)))
        ):
            finish = _NAMED[c is not None, bias is not None, None]
            total = _dispatched(a, b, finish, given, outs, out_dtype, out_major, way=way, named=True)[0]
            return ACTIVATION_FUNCTIONS[activation](total)
        return _dispatched(a, b, finish, given, outs, out_dtype, out_major, way=way, named=True)[0]
    except (AttributeError, RuntimeError, EpilogueError):
        # It says what the dispatcher tells in words of its own.
        describe(a, b, finish.text, given, out_dtype, out_major, outs, named=True)
        raise


def apply_epilogue(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    given: tuple[Any, ...],
    out: Any,  # noqa: ANN401
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None = None,
) -> Any:  # noqa: ANN401
    """Compute an epilogue of a @ b.mT: the part of `gemm` with an epilogue. With `scales` the sums are scaled first.

    Parameters
    ----------
    given : tuple
        The epilogue's operands in their order.
    out : Tensor, tuple, dict or None
        As the epilogue returns its results.
    """
    outs: Sequence[Any] = [None] * len(epilogue.graph.results) if out is None else outs_of(epilogue, out)
    seen = (a, b, *given, *outs) if scales is None else (a, b, *given, *outs, scales.a, scales.b)
    way = 0 if torch.compiler.is_compiling() else road(seen)
    if unobserved(way):
        results = multiply(a, b, epilogue.text, given, out_dtype, out_major, outs, scales)
        if out is not None:
            for each in outs:
                torch.autograd.graph.increment_version(each)
    else:
        results = _dispatched(a, b, epilogue, given, outs, out_dtype, out_major, scales, way=way)
    return epilogue.pack(results) if out is None else out


def _dispatched(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    given: Sequence[Any],
    outs: Sequence[Any],
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None = None,
    *,
    way: int,
    named: bool = False,
) -> Sequence[torch.Tensor]:
    """Compute by the operation of torch, along a road (`cutepy.ops.operation.road`)."""
    if not way:
        given = without_symbols(epilogue.graph, given, a.device)
    if torch.compiler.is_compiling() and not named:  # where a traced program says best what is wrong
        shape = result_shape(a, b)
        check_operands(epilogue.graph, given, shape, a.device, batched=b.dim() > 2)
    tensors, numbers, kinds = split(epilogue.graph, given)
    if outs[0] is None:
        how = tensors, numbers, kinds, epilogue.line, out_dtype, out_major
        return _gemm.along(way, (a, b, *how, *(_UNSCALED if scales is None else passed(scales))))  # type: ignore[no-any-return]
    for name, out in zip(map(out_name, epilogue.graph.results), outs, strict=True):
        if not torch.compiler.is_compiling() and out.is_neg():  # torch would write to a copy
            raise ValueError(f"{name} must not be a lazy negative; pass a new tensor, or {name}.resolve_neg()")
    if any(out_dtype not in (None, out.dtype) for out in outs):
        describe(a, b, epilogue.text, given, out_dtype, out_major, outs)
    _gemm_out(a, b, tensors, numbers, kinds, epilogue.line, list(outs), *passed(scales))
    return outs


@lru_cache(maxsize=1024)
def _of_few(epilogue: str) -> str | None:
    """Name an activation whose derivative needs no sums: "" for an addend alone, or its relu; None of all others."""
    known = standard_of(Graph.parse(epilogue))
    if known is None or known.is_transposed or known.activation not in (None, "relu"):
        return None
    return known.activation or ""


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    a, b, tensors, ctx.numbers, ctx.kinds, ctx.epilogue, _, _, scale_a, scale_b, ctx.blocks, ctx.promotes = inputs
    refuse_gradients(a, b, scale_a, scale_b)
    ctx.shapes = [tensor.shape for tensor in tensors]
    result = output[0]
    few = _of_few(ctx.epilogue) if scale_a is None else None
    ctx.few = few if all(len(shape) <= result.dim() for shape in ctx.shapes) else None
    kept = tensors if ctx.few is None else [result] if ctx.few else []
    ctx.a_shape, ctx.a_dtype, ctx.b_shape = a.shape, a.dtype, b.shape
    # Each operand is that of the other's gradient, unless sums are computed again: a frozen weight needs no input.
    needs_a, needs_b = (True, True) if ctx.few is None else ctx.needs_input_grad[1::-1]
    ctx.save_for_backward(a if needs_a else None, b if needs_b else None, scale_a, scale_b, *kept)


def _backward(ctx: Any, grads: Sequence[torch.Tensor]) -> tuple[Any, ...]:  # noqa: ANN401
    """Differentiate the epilogue in torch, at sums computed again where it needs them; gradients are products again."""
    a, b, scale_a, scale_b, *kept = ctx.saved_tensors
    if ctx.few is None:
        grad_acc, by_tensor = _by_sums(ctx, a, b, scale_a, scale_b, kept, grads)
    else:
        grad_acc = torch.ops.aten.threshold_backward(grads[0], kept[0], 0) if ctx.few else grads[0]
        by_tensor = ctx.shapes and [
            _added(grad_acc, shape, operand.shape) if needed else None
            for operand, shape, needed in zip(
                Graph.parse(ctx.epilogue).operands, ctx.shapes, ctx.needs_input_grad[2] or (), strict=True
            )
        ]
    grad_a = grad_b = None
    needs_a, needs_b = ctx.needs_input_grad[:2]
    lowered = grad_acc.to(ctx.a_dtype) if needs_a or needs_b else grad_acc
    if needs_a:
        grad_a = gemm(lowered, b.mT)
        grad_a = grad_a if grad_a.shape == ctx.a_shape else grad_a.sum_to_size(ctx.a_shape)
    if needs_b:
        if len(ctx.b_shape) == 2 or math.prod(ctx.b_shape[:-2]) == 1:  # all rows met one matrix: the product sums
            grad_b = gemm(as_matrix(lowered).mT, as_matrix(a).mT)
            grad_b = grad_b if len(ctx.b_shape) == 2 else grad_b.view(ctx.b_shape)
        else:
            grad_b = gemm(lowered.mT, a.mT).sum_to_size(ctx.b_shape)
    return grad_a, grad_b, by_tensor or None, *(None,) * 9


def _added(grad: torch.Tensor, shape: torch.Size, kind: str) -> torch.Tensor:
    """Return the gradient of an addend: summed in fp32 where that is broadcast; autograd rounds it to its dtype."""
    if grad.shape == shape:
        return grad
    if kind == "row" and len(shape) == 1:
        return as_matrix(grad).sum(0, dtype=torch.float32)
    if kind == "row":
        return grad.sum(-2, dtype=torch.float32)
    return grad.float().sum_to_size(shape)


def _by_sums(
    ctx: Any,  # noqa: ANN401
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    tensors: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor | None],
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Differentiate at the product in fp32, computed again: by the sums, and by the operands that are tensors."""
    graph, scales = Graph.parse(ctx.epilogue), scales_of(scale_a, scale_b, ctx.blocks, ctx.promotes)
    (acc,) = _gemm(a, b, [], [], "", identity.line, torch.float32, "row", *passed(scales))
    rows, n = Rows(acc.shape[:-1], b.dim() > 2), b.shape[-2]

    def evaluate(acc: torch.Tensor, given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        values = zip(graph.operands, bound(graph, given, ctx.numbers, ctx.kinds), strict=True)
        seen = {operand.name: rows.operand(operand, value, n) for operand, value in values}
        found = compute(graph, rows.joined(acc), seen, cast=False)
        return [rows.result(graph, place, value) for place, value in enumerate(found)]

    return differentiate(evaluate, acc, tensors, grads)


class Request(NamedTuple):
    """Arguments of `cutepy::gemm`, in the order of its schema."""

    a: torch.Tensor
    b: torch.Tensor
    tensors: Sequence[torch.Tensor]
    numbers: Sequence[float]
    kinds: str
    epilogue: str
    out_dtype: torch.dtype | None = None
    out_major: str = "row"
    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    blocks: Sequence[int] = ()
    promotes: bool = False

    @property
    def graph(self) -> Graph:
        """The epilogue's graph."""
        return Graph.parse(self.epilogue)

    @property
    def product(self) -> tuple[torch.Tensor, torch.Tensor, str, tuple[Any, ...], torch.dtype | None, str]:
        """First arguments of `describe` and `multiply`."""
        operands = bound(self.graph, self.tensors, self.numbers, self.kinds)
        return self.a, self.b, self.graph.text, operands, self.out_dtype, self.out_major

    @property
    def scales(self) -> Scales | None:
        """The scales, if there are."""
        return scales_of(self.scale_a, self.scale_b, self.blocks, self.promotes)


def _fake(*given: Any) -> list[torch.Tensor]:  # noqa: ANN401
    asked = Request(*given)
    found = describe(*asked.product, outs=[None] * len(asked.graph.results)).results
    return [asked.a.new_empty_strided(each.shape, each.stride, dtype=each.dtype) for each in found]


_UNSCALED = tuple(Request._field_defaults.values())[2:]
"""The last arguments of products without scales."""


def _compute(*given: Any) -> list[torch.Tensor]:  # noqa: ANN401
    a, b, tensors, numbers, kinds, epilogue, out_dtype, out_major, *scales = given
    graph = Graph.parse(epilogue)
    operands = bound(graph, tensors, numbers, kinds) if numbers else tensors
    outs = (None,) * len(graph.results)
    return list(multiply(a, b, graph.text, operands, out_dtype, out_major, outs, scales_of(*scales)))


def _into(*given: Any) -> tuple[Request, Sequence[torch.Tensor]]:  # noqa: ANN401
    """Separate the arguments of `cutepy::gemm_out` from its output tensors."""
    *product, outs = given[:7]
    return Request(*(*product, None, "row", *given[7:])), outs


def _check_out(*given: Any) -> None:  # noqa: ANN401
    """Check all that can be told without data; gives nothing, as the operation does: the results exist."""
    asked, outs = _into(*given)
    describe(*asked.product, outs=outs)


def _compute_into(*given: Any) -> None:  # noqa: ANN401
    asked, outs = _into(*given)
    multiply(*asked.product, outs=outs, scales=asked.scales)


def _vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Make the examples a batch, or rows where they share B: one launch.

    One by one where there are scales, or the epilogue counts products, or takes an integer of each example.
    """
    a, b, tensors, numbers, kinds, epilogue, out_dtype, out_major, scale_a, *_ = arguments
    of_a, of_b, of_tensors, *_ = in_dims
    graph, count = Graph.parse(epilogue), info.batch_size
    if of_tensors is None:
        of_tensors = [None] * len(tensors)
    a_shape, b_shape = _example_shape(a, of_a), _example_shape(b, of_b)
    check_dimensions(a_shape, b_shape)
    indices = [n for n, kind in enumerate(kinds) if kind == "t"]
    mapped = [graph.operands[n] for n, dim in zip(indices, of_tensors, strict=True) if dim is not None]
    if scale_a is not None or graph.uses("product_index") or any(each.type == "i32" for each in mapped):
        return one_by_one(_gemm)(info, in_dims, *arguments)  # type: ignore[no-any-return]

    def of_examples(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
        return tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

    in_order = graph.uses("row_index") or any(each.dim != 1 for each in graph.reductions)
    of_each = any(each.shape in ("row", "scalar") for each in mapped)
    joins = len(b_shape) == 2 and (of_b is not None or in_order or of_each)
    # Of one matrix B that all share, examples are rows; of one of each, a batch, and the rows of an example M.
    leading = a_shape[:-1] if len(b_shape) == 2 else (*torch.broadcast_shapes(a_shape[:-2], b_shape[:-2]), a_shape[-2])
    rows = (math.prod(leading),) if joins else leading
    rank = 1 + len(rows)
    a = _below(of_examples(a, of_a).reshape(count, *rows, a_shape[-1]) if joins else of_examples(a, of_a), rank + 1)
    if joins or len(b_shape) > 2:
        b = _below(of_examples(b, of_b), rank + 1)
    operands, given = list(graph.operands), []
    for place, tensor, dim in zip(indices, tensors, of_tensors, strict=True):
        operand, shape = graph.operands[place], _example_shape(tensor, dim)
        if operand.shape == "scalar":
            if dim is not None:  # as a column that repeats it
                tensor = of_examples(tensor, dim).reshape(count, *[1] * len(rows)).expand(count, *rows)
                operands[place] = replace(operand, shape="column")
        elif operand.shape == "row":
            if dim is not None or tensor.dim() > 1:
                tensor = _below(of_examples(tensor, dim), rank).expand(count, *rows[:-1], shape[-1])
        elif operand.shape == "column":
            tensor = of_examples(tensor, dim).reshape(count, *rows)
        elif dim is not None or joins or len(shape) > len(leading) + 1:
            columns = b_shape[-2] // operand.width
            whole = shape[len(shape) - len(leading) - 1 :] if len(shape) > len(leading) else shape
            tensor = _below(of_examples(tensor, dim).reshape(count, *whole), len(leading) + 2)
            if joins:
                tensor = tensor.expand(count, *leading, columns).reshape(count, *rows, columns)
        given.append(tensor)
    line = replace(graph, operands=tuple(operands)).line if operands != list(graph.operands) else epilogue
    results = _gemm(a, b, given, numbers, kinds, line, out_dtype, out_major)
    if joins:
        results = [
            result
            if reduction is not None and reduction.dim != 1
            else result.reshape(count, *leading, *result.shape[2:])
            for result, reduction in zip(results, map(graph.reduction, graph.results), strict=True)
        ]
    return results, 0


def _below(examples: torch.Tensor, rank: int) -> torch.Tensor:
    """Give examples dimensions of 1, below the one that tells them apart."""
    aligned: torch.Tensor = examples.unflatten(0, (examples.shape[0], *[1] * (rank - examples.dim())))
    return aligned


def _example_shape(tensor: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)


def of_products(a: Sequence[int], b: Sequence[int], *_: object, **__: object) -> int:
    """Count 2 M N K for each product of a batch, a (..., K) or (..., M, K) and b (..., N, K).

    Examples
    --------
    >>> of_products((2, 3, 16), (8, 16)), of_products((2, 3, 16), (2, 8, 16)), of_products((16,), (8, 16))
    (1536, 1536, 256)
    """
    if len(b) == 2:
        return 2 * math.prod(a) * b[-2]
    batch: Sequence[int] = torch.broadcast_shapes(a[:-2], b[:-2])
    return 2 * math.prod(batch) * a[-2] * b[-2] * a[-1]


_TAKES = "Tensor a, Tensor b, Tensor[] tensors, float[] numbers, str kinds, str epilogue"
_SCALES = "Tensor? scale_a=None, Tensor? scale_b=None, int[] blocks=[], bool promotes=False"

_gemm = register_both(
    f'cutepy::gemm({_TAKES}, ScalarType? out_dtype=None, str out_major="row", {_SCALES}) -> Tensor[]',
    reference=_compute,
    fake=_fake,
    setup_context=_keep_for_backward,
    backward=_backward,
    autocast=("a", "b"),
    vmap=_vmap,
    sharding=shardings.of_gemm,
    flops=of_products,
)(_compute)

_gemm_out = register_both(
    f"cutepy::gemm_out({_TAKES}, Tensor(a!)[] outs, {_SCALES}) -> ()",
    reference=_compute_into,
    fake=_check_out,
    autocast=("a", "b"),
    sharding=shardings.of_gemm_out,
    flops=of_products,
)(_compute_into)
