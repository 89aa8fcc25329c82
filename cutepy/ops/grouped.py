"""`grouped_gemm`: products of groups whose extents only the device knows, as an operation of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.errors import EpilogueError
from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Operand
from cutepy.epilogues.operations import LARGEST
from cutepy.epilogues.reference import check_operand, compute, same_shape
from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.operands import OUTPUT_DTYPES, Description, dtype_name, new_result
from cutepy.kernels.gemm.scales import Scales
from cutepy.kernels.grouped.config import GRADIENTS, Along, has_one_for_each, unit
from cutepy.kernels.grouped.op import launch_groups
from cutepy.kernels.grouped.reference import grouped_reference
from cutepy.ops import shardings
from cutepy.ops.checking import (
    as_tensor,
    check_apart,
    check_epilogue,
    check_results_apart,
    check_tensor,
    check_without_overlap,
    out_name,
    refuse_operands_of_none,
    refusing_its_own_names,
    untraced,
)
from cutepy.ops.operands import (
    bound,
    differentiate,
    in_double,
    outs_of,
    passed,
    refuse_gradients,
    scales_of,
    split,
    without_symbols,
)
from cutepy.ops.registration import register_both
from cutepy.runtime.execution import EXECUTION

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
FLOAT8 = tuple(getattr(torch, name) for name in LARGEST)
_FORMS: dict[tuple[int, int], Along] = {(2, 3): "m", (3, 2): "n", (2, 2): "k", (3, 3): "m"}


@refusing_its_own_names
def grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    out: Any = None,  # noqa: ANN401
    out_dtype: torch.dtype | None = None,
    epilogue: Epilogue | None = None,
    **operands: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Compute a @ b.mT for each group of rows, columns or K, by one launch that never waits for the host.

    The device reads the extents of the groups. `offs` has the end of each group, at which the next group begins, as in
    `torch.nn.functional.grouped_mm`. Ends may be any integers, and groups may be empty. The dimensions of a and b
    choose one of four forms, with b as in `gemm`:

    - a (M, K), b (G, N, K), `offs` along M: out (M, N), rows of a by the matrix of their group (experts).
    - a (G, M, K), b (N, K), `offs` along N: out (M, N), its columns in groups; M is contiguous.
    - a (M, K), b (N, K), `offs` along K: out (G, M, N), a product of each group (gradients by the experts' weights).
    - a (G, M, K), b (G, N, K), and `counts`: out (G, M, N), only the first `counts[g]` rows of group g (masked).

    Rows (or columns) of out that belong to no group, after the last end or beyond a count, are left as they are: of a
    new out they mean nothing. A group without K has a product of zeros.

    Ends must ascend. Ends in host memory are checked. Ends on the GPU are not, since the host would have to wait: where
    groups overlap, a row gets the result of one of its groups, and not of the same group each time. No ends or counts
    lead to accesses beyond the tensors: numbers below 0 count as 0, and numbers beyond the extent as the extent.

    On the CPU the result is computed in float64 and rounded once, except within `cutepy.simulate()`, where the kernel
    runs. What TMA can't reach is copied first: tensors whose contiguous extent is no multiple of 16 bytes, or is the
    one along which groups are, and those that don't start, or whose rows are not apart, at such multiples.

    Parameters
    ----------
    a : Tensor, (M, K) or (G, M, K), float16 or bfloat16
    b : Tensor, (N, K) or (G, N, K), of a's dtype
    offs : Tensor, (G,), int32
        The groups' ends, ascending. Not with two tensors of three dimensions.
    counts : Tensor, (G,), int32
        The groups' rows, with two tensors of three dimensions.
    out : Tensor, optional
        Receives the result; with an epilogue of several, a tuple or dict of tensors as its function returns. It must
        share no memory with an input, and no argument may require grad.
    out_dtype : float16, bfloat16 or float32, optional
        Of the result; `out`'s or a's dtype if not given.
    epilogue : Epilogue, optional
        Function of the fp32 sums before they are stored, as in `gemm`, but for reductions.
    **operands
        The epilogue's operands by name: numbers, and tensors on a's device. Rows have shape (N,), columns (M,), tiles
        the result's, or what broadcasts to it. Where groups don't follow one another along it, a row or column may be
        (G, N) or (G, M), one for each group, such as the experts' biases.

    Returns
    -------
    Tensor, (M, N) or (G, M, N), tuple or dict
        Or `out`. With an epilogue, what its function returns.

    Raises
    ------
    TypeError
        If an argument is no tensor, or has a dtype that the kernel lacks.
    ValueError
        If shapes, devices or memory don't fit; the message names the argument.

    Examples
    --------
    >>> import torch
    >>> tokens, weights = torch.ones(6, 8).bfloat16(), torch.ones(2, 4, 8).bfloat16()
    >>> grouped_gemm(tokens, weights, offs=torch.tensor([2, 6], dtype=torch.int32)).shape
    torch.Size([6, 4])
    """
    groups, along = read_form(a, b, offs, counts)
    if epilogue is None:
        if operands:
            refuse_operands_of_none("grouped_gemm", operands)
        epilogue = identity
    return grouped_with(a, b, groups, along, epilogue, operands, out, out_dtype)


def grouped_with(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    epilogue: Epilogue,
    operands: Mapping[str, Any],
    out: Any,  # noqa: ANN401
    out_dtype: torch.dtype | None,
    scales: Scales | None = None,
) -> Any:  # noqa: ANN401
    """Compute an epilogue of the product of each group, of scaled sums if there are scales.

    Raises
    ------
    EpilogueError
        If operands are missing, unknown, or of other shapes than the epilogue and the groups say, or the epilogue
        reduces, or parts columns that are in groups, or rounds them to 8 bits.
    """
    check_epilogue(epilogue)
    given = without_symbols(epilogue.graph, tuple(epilogue.bind(operands).values()), a.device)
    if torch.compiler.is_compiling():  # where a traced program says best what is wrong
        shape: tuple[int, ...] = (a.shape[-2], b.shape[-2])
        shape = (groups.shape[0], *shape) if along == "k" or a.dim() == b.dim() == 3 else shape
        _check_epilogue(epilogue.graph, given, shape, along, groups)
    tensors, numbers, kinds = split(epilogue.graph, given)
    how = (tensors, numbers, kinds, epilogue.line)
    scaling: Any = passed(scales) or _UNSCALED
    if out is None:
        return epilogue.pack(_grouped(*(a, b, groups, along, *how, out_dtype, *scaling, False)))
    outs = outs_of(epilogue, out)
    for name, each in zip(map(out_name, epilogue.graph.results), outs, strict=True):
        if out_dtype is not None and isinstance(each, torch.Tensor) and out_dtype != each.dtype:
            raise TypeError(
                f"out_dtype must be {name}'s dtype {dtype_name(each.dtype)} or be left out, got {out_dtype}"
            )
    _grouped_out(*(a, b, groups, along, *how, outs, *scaling))
    return out


_UNSCALED: tuple[Any, ...] = (None, None, [], False)


@untraced
def read_form(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, counts: torch.Tensor | None
) -> tuple[torch.Tensor, Along]:
    """Tell by the dimensions along which extent groups are, and give their ends or counts.

    Raises
    ------
    TypeError
        If a or b is no tensor.
    ValueError
        If there is no such form, or it has the other of the two.
    """
    groups = offs if counts is None else counts
    along = _FORMS.get((as_tensor("a", a).dim(), as_tensor("b", b).dim()))
    if along is None:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"a must be (M, K) or (G, M, K), and b (N, K) or (G, N, K), got {shapes}")
    name, other = ("counts", "offs") if a.dim() == b.dim() == 3 else ("offs", "counts")
    if groups is None or (offs is not None and counts is not None) or (offs is None) != (name == "counts"):
        what = "rows" if name == "counts" else f"ends along {along.upper()}"
        raise ValueError(f"{name}, the groups' {what}, must be given with such a and b, and {other} must not")
    return groups, along


@untraced
def describe_groups(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    graph: Graph = identity.graph,
    operands: Sequence[Any] = (),
    out_dtype: torch.dtype | None = None,
    outs: Sequence[torch.Tensor | None] = (None,),
    *,
    scaled: bool = False,
) -> list[Description]:
    """Check all that can be told without data, and describe the results; only 8-bit dtypes, which need scales, mix."""
    dtypes = FLOAT8 if scaled else SIXTEEN_BITS
    check_tensor("a", a, dtypes)
    check_tensor("b", b, (a.dtype,) if a.dtype in SIXTEEN_BITS else dtypes)
    name = "counts" if a.dim() == b.dim() == 3 else "offs"
    check_groups(name, groups)
    for other, tensor in (("b", b), (name, groups)):
        if tensor.device != a.device:
            raise ValueError(f"{other} must be on a's device {a.device}, got {tensor.device}")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            f"b must be (..., N, K) with a's K = {a.shape[-1]}, got shape {tuple(b.shape)}; the product is "
            "a @ b.mT, so pass the transpose of what a @ b takes"
        )
    count = groups.shape[0]
    for other, tensor in (("a", a), ("b", b)):
        if tensor.dim() == 3 and tensor.shape[0] != count:
            raise ValueError(f"{other} must have a matrix for each of the {count} {name}, got {tuple(tensor.shape)}")
    padded = a.dim() == b.dim() == 3
    shape: tuple[int, ...] = (a.shape[-2], b.shape[-2])
    if padded or along == "k":
        shape = (count, *shape)
    _check_epilogue(graph, operands, shape, along, groups)
    open_dtype = out_dtype or (a.dtype if a.dtype in SIXTEEN_BITS else torch.bfloat16)
    given = [out for out, result in zip(outs, graph.results, strict=True) if graph.dtype(result) is None]
    if given and given[0] is not None:
        check_tensor("out", given[0], OUTPUT_DTYPES)
        open_dtype = given[0].dtype
    elif open_dtype not in OUTPUT_DTYPES:
        raise TypeError(f"out_dtype must be torch.float16, torch.bfloat16 or torch.float32, got {open_dtype}")
    found = []
    for result, out in zip(graph.results, outs, strict=True):
        name, rounded = out_name(result), graph.dtype(result)
        dtype = getattr(torch, rounded) if rounded else open_dtype
        own = (*shape[:-1], shape[-1] // graph.width(result))
        if out is None:
            found.append(new_result(own, dtype, "col" if along == "n" else "row", a.device))
            continue
        check_tensor(name, out, (dtype,))
        if out.device != a.device:
            raise ValueError(f"{name} must be on a's device {a.device}, got {out.device}")
        if not same_shape(out.shape, own):
            raise ValueError(f"{name} must have shape {tuple(own)}, got {tuple(out.shape)}")
        found.append(Description.of(out))
    return found


def _check_epilogue(
    graph: Graph, operands: Sequence[Any], shape: tuple[int, ...], along: Along, groups: torch.Tensor
) -> None:
    """Check that groups can have an epilogue, and its operands."""
    if graph.reductions:
        raise EpilogueError("the epilogue reduces, which an epilogue of groups can't; reduce its result")
    if shape[-1] % graph.widest or (along == "n" and graph.widest > 1):
        where = "and not in groups, " if along == "n" else ""
        raise EpilogueError(
            f"N must be a multiple of {graph.widest}, {where}where columns are interleaved, got {shape[-1]}"
        )
    if along == "n" and any(graph.dtype(result) in LARGEST for result in graph.results):
        raise EpilogueError("results must have 16 bits at least where groups are along N; exchange a and b")
    for operand, value in zip(graph.operands, operands, strict=True):
        _check_operand(operand, value, along, shape, groups)


def check_groups(name: str, groups: object) -> None:
    """Check the tensor that says where groups are, without its values."""
    tensor = as_tensor(name, groups)
    if tensor.dim() != 1:
        shape = tuple(tensor.shape)
        raise ValueError(f"{name} must be a tensor (G,) with an element for each group, got shape {shape}")
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} must have dtype int32, got {dtype_name(tensor.dtype)}; convert it with .int()")


def check_ends(a: torch.Tensor, groups: torch.Tensor, along: Along, *, padded: bool) -> None:
    """Check where groups end if the host has that, as on the CPU and in the simulator; a GPU isn't waited for.

    Raises
    ------
    ValueError
        If ends descend, or groups of 8-bit operands along K begin within 128.
    """
    if groups.device.type != "cpu" or padded:
        return
    ends, step = groups.tolist(), unit(along, 8 * a.dtype.itemsize)
    for group, (before, end) in enumerate(pairwise(ends), 1):
        if end < before:
            raise ValueError(
                f"offs must ascend, since each group begins where the one before it ends, got {end} after {before} "
                f"for group {group}; give an empty group the end of the one before it"
            )
    for group, end in enumerate(ends):
        if end % step and end < a.shape[-1]:
            raise ValueError(
                f"offs along K must be multiples of {step}, or K, where operands have 8 bits, got {end} for group "
                f"{group}; fill each group up with zeros"
            )


def _check_operand(operand: Operand, value: Any, along: Along, shape: Sequence[int], groups: torch.Tensor) -> None:  # noqa: ANN401
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
    """Compute an epilogue in torch, of the product of all groups; rows that are not `owned` get no gradient."""
    spread = {each.name: _spread(each, given[each.name], along, groups, acc.shape) for each in graph.operands}
    if owned is not None:
        # A zero gradient is not enough: times what happens to be there, such as a NaN, it may be none.
        for name, value in spread.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                spread[name] = torch.where(owned, value, 0)
    tiles = frozenset(name for name, value in spread.items() if isinstance(value, torch.Tensor) and value.dim())
    return compute(_dense(graph.text, tiles), acc, spread, dtype, cast=cast)


class Request(NamedTuple):
    """Arguments of `cutepy::grouped_gemm`, in the order of its schema."""

    a: torch.Tensor
    b: torch.Tensor
    groups: torch.Tensor
    along: Along
    tensors: Sequence[torch.Tensor]
    numbers: Sequence[float]
    kinds: str
    epilogue: str
    out_dtype: torch.dtype | None = None
    scale_a: torch.Tensor | None = None
    scale_b: torch.Tensor | None = None
    blocks: Sequence[int] = ()
    promotes: bool = False
    zero: bool = False

    @property
    def graph(self) -> Graph:
        """The epilogue's graph."""
        return Graph.parse(self.epilogue)

    @property
    def operands(self) -> tuple[Any, ...]:
        """The epilogue's operands in their order."""
        return bound(self.graph, self.tensors, self.numbers, self.kinds)

    @property
    def scales(self) -> Scales | None:
        """The scales, if there are."""
        return scales_of(self.scale_a, self.scale_b, self.blocks, self.promotes)

    def described(self, outs: Sequence[torch.Tensor] | None = None) -> list[Description]:
        """Check all that can be told without data, and describe the results."""
        given: Sequence[torch.Tensor | None] = outs or [None] * len(self.graph.results)
        how = (self.graph, self.operands, self.out_dtype, given)
        return describe_groups(*self[:4], *how, scaled=self.scale_a is not None)


def _fake(*given: Any) -> list[torch.Tensor]:  # noqa: ANN401
    asked = Request(*given)
    return [asked.a.new_empty_strided(each.shape, each.stride, dtype=each.dtype) for each in asked.described()]


def _compute(*given: Any) -> list[torch.Tensor]:  # noqa: ANN401
    asked = Request(*given)
    results = [each.new().zero_() if asked.zero else each.new() for each in asked.described()]
    multiply_groups(*asked[:4], results, asked.graph, asked.operands, asked.scales, new=True)
    return results


def multiply_groups(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    outs: Sequence[torch.Tensor],
    graph: Graph = identity.graph,
    operands: Sequence[Any] = (),
    scales: Scales | None = None,
    *,
    new: bool = False,
) -> None:
    """Compute into outs, unseen by autograd: by the kernel on the GPU or in the simulator, on the CPU by the reference.

    What belongs to no group stays; of `new` outs it means nothing.
    """
    padded = a.dim() == b.dim() == 3
    check_ends(a, groups, along, padded=padded)
    if not groups.shape[0]:
        return
    if a.device.type != "cpu" or EXECUTION.backend is not None:
        launch_groups(a, b, groups, along, outs, graph, operands, scales)
        return
    along_k: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
    if scales is not None:
        graph, operands, along_k = scales.before(graph), (*scales.of_results, *operands), scales.along_k
    wide_a, wide_b = in_double(a, b, scales, along_k)
    extents = (a.shape[-2], b.shape[-2])
    acc = wide_a.new_zeros((groups.shape[0], *extents) if padded or along == "k" else extents)
    grouped_reference(wide_a, wide_b, groups, acc, along)
    given = {each.name: value for each, value in zip(graph.operands, operands, strict=True)}
    owned = None if new else _owned(groups, along, acc.shape)
    for out, value in zip(outs, _evaluate(graph, acc, given, along, groups, torch.float64), strict=True):
        out.copy_(value if owned is None else torch.where(owned, value, out.to(value.dtype)))


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    a, b, groups, ctx.along, tensors, ctx.numbers, ctx.kinds, ctx.epilogue, _, scale_a, scale_b, *scaling, _ = inputs
    ctx.scaling = scaling
    refuse_gradients(a, b, scale_a, scale_b)
    ctx.a_dtype = a.dtype
    # Each operand is that of the other's gradient, unless the product is computed again.
    is_plain = Graph.parse(ctx.epilogue) == identity.graph
    needs_a, needs_b = ctx.needs_input_grad[1::-1] if is_plain else (True, True)
    ctx.save_for_backward(a if needs_a else None, b if needs_b else None, groups, scale_a, scale_b, *tensors)


def _owned(groups: torch.Tensor, along: Along, shape: Sequence[int]) -> torch.Tensor | None:
    """Tell which elements of the product belong to a group; None if all do."""
    if along == "k":
        return None
    mode = -2 if along == "m" else -1
    positions = torch.arange(shape[mode], device=groups.device)
    owned = positions < (groups[-1] if len(shape) == 2 else groups[:, None])
    return owned.unsqueeze(-1 if along == "m" else -2)


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    out_dtype: torch.dtype | None = None,
    scaling: Any = _UNSCALED,  # noqa: ANN401
) -> torch.Tensor:
    """Multiply groups; rows outside of all groups have no influence: their product is zero."""
    how = [], [], "", identity.line, out_dtype, *scaling
    (product,) = _grouped(*(a, b, groups, along, *how, along != "k"))
    return product


def _backward(ctx: Any, grads: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:  # noqa: ANN401
    """Differentiate the epilogue in torch, at the product computed again in fp32; gradients are products again."""
    a, b, groups, scale_a, scale_b, *tensors = ctx.saved_tensors
    graph, along = Graph.parse(ctx.epilogue), ctx.along
    grad_tensors: list[torch.Tensor | None] = []
    if graph == identity.graph:
        (grad_acc,) = grads
        assert grad_acc is not None, "is asked for by its only result"
    else:
        acc = _product(a, b, groups, along, torch.float32, (scale_a, scale_b, *ctx.scaling))
        owned = _owned(groups, along, acc.shape)
        acc = acc if owned is None else torch.where(owned, acc, 0)

        def epilogue(acc: torch.Tensor, given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            bound_values = bound(graph, given, ctx.numbers, ctx.kinds)
            values = {each.name: value for each, value in zip(graph.operands, bound_values, strict=True)}
            return _evaluate(graph, acc, values, along, groups, cast=False, owned=owned)

        grad_acc, grad_tensors = differentiate(epilogue, acc, tensors, grads)
    grad_a = grad_b = None
    lowered = grad_acc.to(ctx.a_dtype)
    of_a, of_b = GRADIENTS[along]
    if ctx.needs_input_grad[0]:
        grad_a = _product(lowered, b.mT, groups, of_a)
    if ctx.needs_input_grad[1]:
        grad_b = _product(lowered.mT, a.mT, groups, of_b)
    return grad_a, grad_b, None, None, grad_tensors or None, *(None,) * 9


def _into(*given: Any) -> tuple[Request, Sequence[torch.Tensor]]:  # noqa: ANN401
    """Separate the arguments of `cutepy::grouped_gemm_out` from its output tensors."""
    *product, outs = given[:9]
    return Request(*(*product, None, *given[9:])), outs


def _check_out(*given: Any) -> None:  # noqa: ANN401
    """Check all that can be told without data; gives nothing, as the operation does: the results exist."""
    asked, outs = _into(*given)
    asked.described(outs)


def _compute_into(*given: Any) -> None:  # noqa: ANN401
    asked, outs = _into(*given)
    described, graph, operands = asked.described(outs), asked.graph, asked.operands
    names = [out_name(result) for result in graph.results]
    inputs: dict[str, Any] = {name: getattr(asked, name) for name in ("a", "b", "groups", "scale_a", "scale_b")}
    inputs |= dict(zip((each.name for each in graph.operands), operands, strict=True))
    tensors_in = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for name, out, description in zip(names, outs, described, strict=True):
        check_without_overlap(name, description)
        check_apart(name, out, tensors_in)
    check_results_apart(names, outs)
    multiply_groups(*asked[:4], outs, graph, operands, asked.scales)


def of_groups(a: Sequence[int], b: Sequence[int], *_: object, **__: object) -> int:
    """Count 2 M N K where groups part one of them, 2 G M N K where each has both matrices: as if groups had all rows.

    Examples
    --------
    >>> of_groups((6, 16), (2, 8, 16)), of_groups((2, 6, 16), (8, 16)), of_groups((2, 6, 16), (2, 8, 16))
    (1536, 1536, 3072)
    """
    return 2 * math.prod(a[-2:]) * b[-2] * (a[0] if len(a) == len(b) == 3 else 1)


_TAKES = "Tensor a, Tensor b, Tensor groups, str along, Tensor[] tensors, float[] numbers, str kinds, str epilogue"
_SCALES = "Tensor? scale_a=None, Tensor? scale_b=None, int[] blocks=[], bool promotes=False"

_grouped = register_both(
    f"cutepy::grouped_gemm({_TAKES}, ScalarType? out_dtype=None, {_SCALES}, bool zero=False) -> Tensor[]",
    reference=_compute,
    fake=_fake,
    setup_context=_keep_for_backward,
    backward=_backward,
    autocast=("a", "b"),
    sharding=shardings.of_grouped,
    flops=of_groups,
)(_compute)

_grouped_out = register_both(
    f"cutepy::grouped_gemm_out({_TAKES}, Tensor(a!)[] outs, {_SCALES}) -> ()",
    reference=_compute_into,
    fake=_check_out,
    autocast=("a", "b"),
    sharding=shardings.of_grouped_out,
    flops=of_groups,
)(_compute_into)
