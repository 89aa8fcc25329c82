"""Products with an epilogue that a Python function describes, as an operation of PyTorch.

The operation takes matrices, or a batch of them, and the epilogue's text, so that a program that holds it can be
exported; `gemm` brings tensors of any leading dimensions there, and the results back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Operand
from cutepy.epilogues.reference import check_operand, compute, expected_shape, same_shape
from cutepy.epilogues.tracing import Epilogue
from cutepy.host.launches import Launches, described
from cutepy.kernels.gemm.results import result_descriptions
from cutepy.kernels.gemm.routes import find_route
from cutepy.kernels.gemm.scales import Scales
from cutepy.ops import shardings
from cutepy.ops.checking import check_sums, describe
from cutepy.ops.distributed import Sharding, compute_here, holds_distributed
from cutepy.ops.eager import unobserved
from cutepy.ops.epilogue_derivatives import differentiate
from cutepy.ops.flops import of_products
from cutepy.ops.invariance import register_both
from cutepy.ops.operands import are_read, widened
from cutepy.ops.precision import check_precision
from cutepy.ops.scaling import in_double, passed, refuse_gradients, scales_of
from cutepy.ops.symbols import with_tensors
from cutepy.ops.tracing import untraced
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

NUMBER, TENSOR = "n", "t"


def multiply_with(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, Any],
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None = None,
) -> Any:  # noqa: ANN401
    """Compute an epilogue of a @ b.mT: what `gemm` does with one.

    With scales, of 8-bit a and b (N, K), sums are scaled before; a's leading dimensions are rows, of its scales too.

    Raises
    ------
    EpilogueError
        If operands are missing, unknown, or of other shapes than the epilogue says.
    """
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be made by cutepy.epilogue, got {epilogue!r}; decorate the function")
    given = epilogue.bind(operands)
    if not torch.compiler.is_compiling() and (key := _key(a, b, epilogue, given, out_dtype, out_major, scales)):
        launch = _launches.get(key)
        if launch is not None:
            return epilogue.pack(launch(a, b, tuple(given.values()), scales))
    else:
        key = None
        # What torch.compile traces of matrices stays in its graph.
        apart = a.dim() > 2 or not torch.compiler.is_dynamo_compiling()
        if scales is None and apart and holds_distributed((a, b, *given.values())):
            return compute_here(multiply_with, _sharding, (a, b, epilogue, given, out_dtype, out_major))
    a, b = lowered_by_autocast(a), lowered_by_autocast(b)
    shape = tuple(describe(a, b, None, None, out_dtype, None, out_major).out.shape)
    graph = epilogue.graph
    if key is None:
        given = with_tensors(graph, given, a.device)
    batched = b.dim() > 2
    _check(graph, given, shape, a.device, batched=batched)
    if key is not None and 0 not in (*a.shape, *b.shape) and _is_plain(graph, given, shape):
        # Checked and found once for tensors like these; nothing else would see the call.
        values = tuple(given.values())
        launch = _launches.keep(key, find_route(graph, a, b, values, out_dtype, out_major, scales).launch)
        return epilogue.pack(launch(a, b, values, scales))
    given = widened(given)
    # Extents as torch.jit.trace follows them, but for a batch's, which may have been broadcast.
    shape = (*shape[:-2], a.shape[-2], b.shape[-2]) if batched else (*a.shape[:-1], b.shape[-2])
    kinds, tensors, numbers = "", [], []
    for operand in graph.operands:
        value = given[operand.name]
        if isinstance(value, torch.Tensor):
            kinds += TENSOR
            tensors.append(_as_seen(operand, value, shape, batched))
        else:
            kinds += NUMBER
            numbers.append(float(value))
    if batched:
        a = a.expand(*shape[:-2], *a.shape[-2:]).flatten(0, -3)
        b = b.expand(*shape[:-2], *b.shape[-2:]).flatten(0, -3)
    else:
        a = a.reshape(math.prod(shape[:-1]), a.shape[-1])
    results = _gemm_epilogue(a, b, tensors, numbers, kinds, epilogue.text, out_dtype, out_major, *passed(scales))
    return epilogue.pack([_unflattened(graph, n, result, shape, batched) for n, result in enumerate(results)])


def _sharding(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    operands: Mapping[str, Any],
    out_dtype: torch.dtype | None,
    out_major: str,
) -> Sharding:
    return shardings.of_epilogue(epilogue.graph, a, b, *tensors_of(epilogue.graph, operands))


def tensors_of(graph: Graph, operands: Mapping[str, Any]) -> tuple[list[torch.Tensor], str]:
    """List an epilogue's operands that are tensors, and tell for each operand whether it is one."""
    given = [operands[operand.name] for operand in graph.operands]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    return tensors, "".join(TENSOR if isinstance(value, torch.Tensor) else NUMBER for value in given)


_launches: Launches[Callable[..., list[torch.Tensor]]] = Launches()


def _key(
    a: torch.Tensor,
    b: torch.Tensor,
    epilogue: Epilogue,
    given: Mapping[str, Any],
    out_dtype: torch.dtype | None,
    out_major: str,
    scales: Scales | None,
) -> tuple[Any, ...] | None:
    """Give all that decides what is done with matrices; None where others than a kernel would see the call."""
    tensors = [value for value in (*given.values(), *(scales or ())) if isinstance(value, torch.Tensor)]
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() == b.dim() == 2):
        return None
    device = unobserved((a, b, *tensors))
    if not device or (device == "cpu" and EXECUTION.backend is None):
        return None
    check_precision("a", a)
    how = (epilogue.text, out_dtype, out_major, EXECUTION.backend is None, INVARIANCE.on, scales and scales.how)
    return *how, *described(a, b, *given.values())


def _is_plain(graph: Graph, given: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    """Tell whether all operands are what the kernel takes, so that none is converted or broadcast."""
    return are_read(given.values()) and all(
        not isinstance(given[operand.name], torch.Tensor)
        or operand.shape == "scalar"
        or same_shape(given[operand.name].shape, expected_shape(operand, shape))
        for operand in graph.operands
    )


def lowered_by_autocast(tensor: torch.Tensor) -> torch.Tensor:
    """Cast to autocast's dtype within `torch.autocast`, as `gemm` does; operands keep theirs."""
    if (
        isinstance(tensor, torch.Tensor)
        and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and torch.amp.is_autocast_available(tensor.device.type)
        and torch.is_autocast_enabled(tensor.device.type)
    ):
        return tensor.to(torch.get_autocast_dtype(tensor.device.type))
    return tensor


@untraced
def _check(
    graph: Graph, given: Mapping[str, Any], shape: Sequence[int], device: torch.device, *, batched: bool
) -> None:
    full = tuple(shape) if len(shape) > 1 else (1, *shape)
    if full[-1] % graph.widest:
        raise EpilogueError(
            f"N must be a multiple of {graph.widest}, whose columns are interleaved, got {full[-1]}; pad b"
        )
    for operand in graph.operands:
        value = given[operand.name]
        if operand.shape == "column" and len(shape) == 1 and isinstance(value, torch.Tensor) and value.dim() == 0:
            value = value.reshape(1)  # of the one row of a vector
        # Without a batch of b, a's leading dimensions are rows, of which a row knows nothing.
        check_operand(operand, value, full if batched or operand.shape != "row" else full[-2:])
        if isinstance(value, torch.Tensor):
            if value.device != device:
                raise EpilogueError(f"{operand.name} must be on a's device {device}, got {value.device}")


def _as_seen(operand: Operand, value: torch.Tensor, shape: Sequence[int], batched: bool) -> torch.Tensor:
    """See an operand as the operation takes it: leading dimensions are rows, or one dimension of a batch."""
    full = tuple(shape) if len(shape) > 1 else (1, *shape)
    if operand.shape == "scalar":
        return value.reshape(())
    if operand.shape == "row":
        return value if value.dim() == 1 else value.flatten(0, -2)
    expected = expected_shape(operand, full)
    whole = value.expand(expected)
    if operand.shape == "column":
        return whole.flatten(0, -2) if batched else whole.reshape(-1)
    return whole.flatten(0, -3) if batched else whole.reshape(math.prod(expected[:-1]), expected[-1])


def _unflattened(graph: Graph, n: int, result: torch.Tensor, shape: Sequence[int], batched: bool) -> torch.Tensor:
    reduction = graph.reduction(graph.results[n])
    batch, rows = (shape[:-2], shape[-2:-1]) if batched else ((), shape[:-1])
    if reduction is None:
        return result.view(*batch, *rows, result.shape[-1]) if batched or len(shape) != 2 else result
    tail = {0: result.shape[-1:], 1: rows, None: ()}[reduction.dim]
    return result.view((*batch, *tail))


def bound(graph: Graph, tensors: Sequence[torch.Tensor], numbers: Sequence[float], kinds: str) -> dict[str, Any]:
    """Give each operand its tensor or number."""
    from_tensors, from_numbers = iter(tensors), iter(numbers)
    bound: dict[str, Any] = {}
    for operand, kind in zip(graph.operands, kinds, strict=True):
        value = next(from_tensors) if kind == TENSOR else next(from_numbers)
        bound[operand.name] = int(value) if kind == NUMBER and operand.type == "i32" else value
    return bound


def _refer(
    a: torch.Tensor,
    b: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype | None = None,
    out_major: str = "row",
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
) -> list[torch.Tensor]:
    """Compute in float64, and round once."""
    check_sums(a, b)
    graph, scales = Graph.parse(epilogue), scales_of(scale_a, scale_b, blocks, promotes)
    scaled, wide_a, wide_b, operands = in_double(graph, a, b, bound(graph, tensors, numbers, kinds), scales)
    results = compute(scaled, wide_a @ wide_b.mT, operands, torch.float64)
    found = result_descriptions(graph, a, b, out_dtype, out_major)
    return [each.new().copy_(result) for each, result in zip(found, results, strict=True)]


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype | None = None,
    out_major: str = "row",
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
) -> list[torch.Tensor]:
    found = result_descriptions(Graph.parse(epilogue), a, b, out_dtype, out_major)
    return [a.new_empty_strided(each.shape, each.stride, dtype=each.dtype) for each in found]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    a, b, tensors, ctx.numbers, ctx.kinds, ctx.epilogue, _, _, scale_a, scale_b, ctx.blocks, ctx.promotes = inputs
    refuse_gradients(a, b, scale_a, scale_b)
    ctx.save_for_backward(a, b, scale_a, scale_b, *tensors)


def _product(a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.cutepy.gemm(a, b, out_dtype=out_dtype)
    return product


def _backward(ctx: Any, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:  # noqa: ANN401
    """Differentiate the epilogue in torch, at the product computed again in fp32; gradients are products again."""
    a, b, scale_a, scale_b, *tensors = ctx.saved_tensors
    graph = Graph.parse(ctx.epilogue)
    if scale_a is None:
        acc = _product(a, b, torch.float32)
    else:
        scales = scale_a, scale_b, ctx.blocks, ctx.promotes
        (acc,) = _gemm_epilogue(a, b, [], [], "", identity.text, torch.float32, "row", *scales)

    def epilogue(acc: torch.Tensor, given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return compute(graph, acc, bound(graph, given, ctx.numbers, ctx.kinds), cast=False)

    grad_acc, grad_tensors = differentiate(epilogue, acc, tensors, grads)
    grad_a = grad_b = None
    lowered = grad_acc.to(a.dtype)
    if ctx.needs_input_grad[0]:
        grad_a = _product(lowered, b.mT)
    if ctx.needs_input_grad[1]:
        grad_b = _product(lowered.mT, a.mT)
    return grad_a, grad_b, grad_tensors or None, *(None,) * 9


@register_both(
    "cutepy::gemm_epilogue(Tensor a, Tensor b, Tensor[] tensors, float[] numbers, str kinds, str epilogue, "
    'ScalarType? out_dtype=None, str out_major="row", Tensor? scale_a=None, Tensor? scale_b=None, '
    "int[] blocks=[], bool promotes=False) -> Tensor[]",
    reference=_refer,
    fake=_fake,
    setup_context=_keep_for_backward,
    backward=_backward,
    sharding=shardings.of_gemm_epilogue,
    flops=of_products,
)
def _gemm_epilogue(
    a: torch.Tensor,
    b: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype | None = None,
    out_major: str = "row",
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
) -> list[torch.Tensor]:
    check_sums(a, b)
    graph = Graph.parse(epilogue)
    if a.numel() * b.numel() == 0:
        return _refer(a, b, tensors, numbers, kinds, epilogue, out_dtype, out_major)
    scales = scales_of(scale_a, scale_b, blocks, promotes)
    operands = tuple(bound(graph, tensors, numbers, kinds).values())
    return find_route(graph, a, b, operands, out_dtype, out_major, scales).launch(a, b, operands, scales)
