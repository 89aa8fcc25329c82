"""Products of groups with an epilogue that a Python function describes, as an operation of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Operand
from cutepy.epilogues.operations import LARGEST
from cutepy.epilogues.reference import check_operand, compute, same_shape
from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.operands import Description, new_result
from cutepy.kernels.gemm.scales import Scales
from cutepy.kernels.grouped.config import GRADIENTS, Along, has_one_for_each
from cutepy.kernels.grouped.op import launch_groups
from cutepy.kernels.grouped.reference import grouped_reference
from cutepy.ops import shardings
from cutepy.ops.epilogue_derivatives import differentiate
from cutepy.ops.flops import of_groups
from cutepy.ops.fused import NUMBER, TENSOR, bound
from cutepy.ops.grouped_forms import check_ends
from cutepy.ops.invariance import register_both
from cutepy.ops.operands import widened
from cutepy.ops.scaling import in_double, passed, refuse_gradients, scales_of
from cutepy.ops.symbols import with_tensors
from cutepy.ops.tracing import untraced
from cutepy.runtime.execution import EXECUTION


def grouped_with(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    epilogue: Epilogue,
    operands: Mapping[str, Any],
    product: Description,
    scales: Scales | None = None,
) -> Any:  # noqa: ANN401
    """Compute an epilogue of the product of each group: what `grouped_gemm` does with one, of scaled sums if there are.

    Raises
    ------
    EpilogueError
        If operands are missing, unknown, or of other shapes than the epilogue and the groups say, or the epilogue
        reduces, or parts columns that are in groups, or rounds them to 8 bits.
    """
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue must be made by cutepy.epilogue, got {epilogue!r}; decorate the function")
    graph = epilogue.graph
    given = widened(with_tensors(graph, epilogue.bind(operands), groups.device))
    if graph.reductions:
        raise EpilogueError(f"{epilogue.name} reduces, which an epilogue of groups can't; reduce its result")
    if product.shape[-1] % graph.widest or (along == "n" and graph.widest > 1):
        where = "and not in groups, " if along == "n" else ""
        raise EpilogueError(
            f"N must be a multiple of {graph.widest}, {where}where columns are interleaved, got {product.shape[-1]}"
        )
    if along == "n" and any(graph.dtype(result) in LARGEST for result in graph.results):
        raise EpilogueError("results must have 16 bits at least where groups are along N; exchange a and b")
    kinds, tensors, numbers = "", [], []
    for operand in graph.operands:
        value = given[operand.name]
        _check(operand, value, along, product.shape, groups)
        if isinstance(value, torch.Tensor):
            kinds += TENSOR
            tensors.append(value)
        else:
            kinds += NUMBER
            numbers.append(float(value))
    given_so = (tensors, numbers, kinds, epilogue.text, product.dtype)
    return epilogue.pack(_grouped_epilogue(a, b, groups, along, *given_so, *passed(scales)))


@untraced
def _check(operand: Operand, value: Any, along: Along, shape: Sequence[int], groups: torch.Tensor) -> None:  # noqa: ANN401
    """Check an operand's shape, dtype and device."""
    full = tuple(shape)
    if isinstance(value, torch.Tensor):
        if value.device != groups.device:
            raise EpilogueError(f"{operand.name} must be on a's device {groups.device}, got {value.device}")
        if operand.shape in ("row", "column"):
            count, padded = groups.shape[0], len(full) == 3 and along != "k"
            extent = full[-1] // operand.width if operand.shape == "row" else full[-2]
            one, many = (extent,), (count, extent)
            may_be_many = has_one_for_each(operand.shape, along, padded)
            if not same_shape(value.shape, one) and not (may_be_many and same_shape(value.shape, many)):
                # Written one by one: torch.compile joins no texts of symbols.
                allowed = f"{one} or {many}" if may_be_many else f"{one}"
                raise EpilogueError(f"{operand.name} must have shape {allowed}, got {tuple(value.shape)}")
            operand, value = replace(operand, shape="tile"), value.new_empty(()).expand(1)
    check_operand(operand, value, full)


@cache
def _dense(text: str, tiles: frozenset[str]) -> Graph:
    """Give an epilogue's graph whose operands of these names are tiles."""
    graph = Graph.parse(text)
    operands = tuple(replace(each, shape="tile") if each.name in tiles else each for each in graph.operands)
    return replace(graph, operands=operands)


def _spread(operand: Operand, value: Any, along: Along, groups: torch.Tensor, shape: Sequence[int]) -> Any:  # noqa: ANN401
    """Give each element of the result its element of a row or column, of all groups or of its own."""
    if operand.shape not in ("row", "column") or not isinstance(value, torch.Tensor):
        return value
    if value.dim() == 2 and len(shape) == 2:
        of = torch.bucketize(torch.arange(shape[0 if along == "m" else 1], device=groups.device), groups, right=True)
        value = value[of.clamp(max=groups.shape[0] - 1)]
        return value if operand.shape == "row" else value.mT
    value = value.unsqueeze(-2) if operand.shape == "row" and value.dim() == 2 else value
    return value if operand.shape == "row" else value.unsqueeze(-1)


def _evaluate(
    graph: Graph,
    acc: torch.Tensor,
    given: Mapping[str, Any],
    along: Along,
    groups: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    *,
    cast: bool = True,
    owned: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Compute an epilogue in torch, of the product of all groups; no gradient comes from what is not `owned`."""
    spread = {each.name: _spread(each, given[each.name], along, groups, acc.shape) for each in graph.operands}
    if owned is not None:
        # A zero gradient is not enough: times what happens to be there, such as a NaN, it may be none.
        for name, value in spread.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                spread[name] = torch.where(owned, value, 0)
    tiles = frozenset(name for name, value in spread.items() if isinstance(value, torch.Tensor) and value.dim())
    return compute(_dense(graph.text, tiles), acc, spread, dtype, cast=cast)


def _results(
    graph: Graph, a: torch.Tensor, b: torch.Tensor, groups: torch.Tensor, along: Along, dtype: torch.dtype
) -> list[Description]:
    batched = along == "k" or a.dim() == b.dim() == 3
    found = []
    for result in graph.results:
        extents = (a.shape[-2], b.shape[-2] // graph.width(result))
        rounded = graph.dtype(result)
        shape = (groups.shape[0], *extents) if batched else extents
        own = getattr(torch, rounded) if rounded else dtype
        found.append(new_result(shape, own, "col" if along == "n" else "row", a.device))
    return found


def _compute(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
) -> list[torch.Tensor]:
    graph, scales = Graph.parse(epilogue), scales_of(scale_a, scale_b, blocks, promotes)
    given = bound(graph, tensors, numbers, kinds)
    results = [each.new() for each in _results(graph, a, b, groups, along, out_dtype)]
    padded = a.dim() == b.dim() == 3
    check_ends(a, groups, along, padded=padded)
    if a.device.type == "cpu" and EXECUTION.backend is None:
        graph, wide_a, wide_b, given = in_double(graph, a, b, given, scales)
        extents = (a.shape[-2], b.shape[-2])
        acc = wide_a.new_zeros((groups.shape[0], *extents) if padded or along == "k" else extents)
        grouped_reference(wide_a, wide_b, groups, acc, along)
        for result, value in zip(results, _evaluate(graph, acc, given, along, groups, torch.float64), strict=True):
            result.copy_(value)
    else:
        launch_groups(a, b, groups, along, results, graph, tuple(given.values()), scales)
    return results


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
) -> list[torch.Tensor]:
    found = _results(Graph.parse(epilogue), a, b, groups, along, out_dtype)
    return [a.new_empty_strided(each.shape, each.stride, dtype=each.dtype) for each in found]


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    a, b, groups, ctx.along, tensors, ctx.numbers, ctx.kinds, ctx.epilogue, _, scale_a, scale_b, *ctx.scaling = inputs
    refuse_gradients(a, b, scale_a, scale_b)
    ctx.save_for_backward(a, b, groups, scale_a, scale_b, *tensors)


def _owned(groups: torch.Tensor, along: Along, shape: Sequence[int]) -> torch.Tensor | None:
    """Tell which elements of the product belong to a group; None if all do."""
    if along == "k":
        return None
    mode = -2 if along == "m" else -1
    places = torch.arange(shape[mode], device=groups.device)
    owned = places < (groups[-1] if len(shape) == 2 else groups[:, None])
    return owned.unsqueeze(-1 if along == "m" else -2)


def _product(
    a: torch.Tensor, b: torch.Tensor, groups: torch.Tensor, along: str, dtype: torch.dtype | None = None
) -> torch.Tensor:
    product: torch.Tensor = torch.ops.cutepy.grouped_gemm(a, b, groups, along, dtype, along != "k")
    return product


def _backward(ctx: Any, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:  # noqa: ANN401
    """Differentiate the epilogue in torch, at the product computed again in fp32; gradients are products again."""
    a, b, groups, scale_a, scale_b, *tensors = ctx.saved_tensors
    graph, along = Graph.parse(ctx.epilogue), ctx.along
    if scale_a is None:
        acc = _product(a, b, groups, along, torch.float32)
    else:
        scaled = (identity.text, torch.float32, scale_a, scale_b, *ctx.scaling)
        (acc,) = _grouped_epilogue(a, b, groups, along, [], [], "", *scaled)
    owned = _owned(groups, along, acc.shape)
    acc = acc if owned is None else torch.where(owned, acc, 0)

    def epilogue(acc: torch.Tensor, given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        values = bound(graph, given, ctx.numbers, ctx.kinds)
        return _evaluate(graph, acc, values, along, groups, cast=False, owned=owned)

    grad_acc, grad_tensors = differentiate(epilogue, acc, tensors, grads, owned)
    grad_a = grad_b = None
    lowered = grad_acc.to(a.dtype)
    of_a, of_b = GRADIENTS[along]
    if ctx.needs_input_grad[0]:
        grad_a = _product(lowered, b.mT, groups, of_a)
    if ctx.needs_input_grad[1]:
        grad_b = _product(lowered.mT, a.mT, groups, of_b)
    return grad_a, grad_b, None, None, grad_tensors or None, *(None,) * 8


_grouped_epilogue = register_both(
    "cutepy::grouped_gemm_epilogue(Tensor a, Tensor b, Tensor groups, str along, Tensor[] tensors, float[] numbers, "
    "str kinds, str epilogue, ScalarType out_dtype, Tensor? scale_a=None, Tensor? scale_b=None, int[] blocks=[], "
    "bool promotes=False) -> Tensor[]",
    reference=_compute,
    fake=_fake,
    setup_context=_keep_for_backward,
    backward=_backward,
    sharding=shardings.of_groups_epilogue,
    flops=of_groups,
)(_compute)
