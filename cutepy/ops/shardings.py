"""Shardings of operations over devices: the letters of each operation's tensors, and those that may be sharded.

Letters: rows "m", columns "n", the summed extent "k", batches "b..." counted from the last, groups "g"; of attention
the batch "b" and the heads "h". Each function takes an operation's arguments. Operands that are sharded along "k" give
partial sums, which only a linear epilogue allows: additions, no activation. An extent whose indices an epilogue reads
is not sharded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cutepy.epilogues.graph import Graph
from cutepy.epilogues.standard import standard_of
from cutepy.host.launches import OptionalTensor
from cutepy.kernels.gemm.scales import TENSOR, Block
from cutepy.ops.distributed import Letter, Letters, Sharding, aligned, letters


def of_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype | None = None,
    out_major: str = "row",
    scale_a: OptionalTensor = None,
    scale_b: OptionalTensor = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
) -> Sharding:
    """Shard an epilogue of a product, or of each of a batch; its reductions are partial results."""
    scales = [] if scale_a is None else [(scale_a, Block(*blocks[:2])), (scale_b, Block(*blocks[2:]))]
    return of_epilogue(Graph.parse(epilogue), a, b, tensors, kinds, scales)


def of_gemm_out(
    a: torch.Tensor,
    b: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    outs: Sequence[torch.Tensor],
    *scales: Any,  # noqa: ANN401
) -> Sharding:
    """Shard the same written to tensors, which hold no partial results."""
    return _written(of_gemm(a, b, tensors, numbers, kinds, epilogue, None, "row", *scales), 2 + len(tensors))


def _written(found: Sharding, before: int) -> Sharding:
    """Extend a sharding by results that are written to inputs, along the dimensions that all results have."""
    inputs = (*found.inputs[:before], *found.outputs, *found.inputs[before:])
    kept = [set(_names(letters)) for letters in found.outputs]
    return Sharding(inputs, (), tuple(name for name in found.along if all(name in each for each in kept)))


def _of_product(a: torch.Tensor, b: torch.Tensor) -> tuple[Letters, Letters, Letters, list[int]]:
    """Give the letters of a, b and the product, and the product's shape."""
    if b.dim() == 2:  # leading dimensions of a are rows
        leading = letters(*(f"b{n}" for n in reversed(range(a.dim() - 1))))
        return (*leading, *letters("k")), letters("n", "k"), (*leading, *letters("n")), [*a.shape[:-1], b.shape[0]]
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    names = letters(*(f"b{n}" for n in reversed(range(len(batch)))))
    of_a, of_b = ((*names, *letters(rows, "k")) for rows in ("m", "n"))
    shape = [*batch, a.shape[-2], b.shape[-2]]
    of_out = (*names, *letters("m", "n"))
    return (
        aligned(a, of_a, [*batch, *a.shape[-2:]]),
        aligned(b, of_b, [*batch, *b.shape[-2:]]),
        of_out,
        shape,
    )


def of_epilogue(
    graph: Graph,
    a: torch.Tensor,
    b: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    kinds: str,
    scales: Sequence[tuple[Any, Block]] = (),
) -> Sharding:
    """Shard an epilogue of tensors of any leading dimensions, which come before those of scales.

    Parameters
    ----------
    tensors : sequence of Tensor
        The graph's operands that are tensors.
    kinds : str
        A letter for each operand: "t" of a tensor.
    scales : sequence of (Tensor, Block)
        Of a and b, if there are.
    """
    of_a, of_b, of_out, shape = _of_product(a, b)
    batch, rows = (of_out[:-2], of_out[-2:-1]) if b.dim() > 2 else ((), of_out[:-1])
    inputs, given = [of_a, of_b], iter(tensors)
    for operand, kind in zip(graph.operands, kinds, strict=True):
        if kind == "t":
            tensor, columns, count = next(given), Letter("n", operand.width), shape[-1] // operand.width
            full, extents = {
                "scalar": ((), []),
                "row": ((*batch, columns), [*shape[: len(batch)], count]),
                "column": ((*batch, *rows), shape[:-1]),
                "tile": ((*batch, *rows, columns), [*shape[:-1], count]),
            }[operand.shape]
            inputs.append(aligned(tensor, full, extents))
    count = len(inputs)
    along = [
        *([] if graph.uses("product_index") else _names(batch)),
        *([] if graph.uses("row_index") else _names(rows)),
        *([] if graph.uses("column_index") else ["n"]),
        *(["k"] if _is_linear(graph) else []),
    ]
    for (scale, block), own in zip(scales, (rows, letters("n")), strict=False):
        inputs.append(_of_scale(scale, block, own))
        if block.rows and not {*_names(inputs[-1])} & {*_names(own)}:
            along = [name for name in along if name not in _names(own)]
    outputs, joined = [], []
    for result in graph.results:
        reduction, columns = graph.reduction(result), Letter("n", graph.width(result))
        kept = {None: (), 0: (columns,), 1: rows}
        outputs.append((*batch, *((*rows, columns) if reduction is None else kept[reduction.dim])))
        joined.append("sum" if reduction is None else reduction.kind)
    return Sharding(tuple(inputs), tuple(outputs), tuple(along), tuple(joined), frozenset(range(2, count)))


def of_joined_linear(x: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]) -> Sharding:
    """Shard products of one input along its rows, and along K; the columns of a result belong to several weights."""
    rows = letters(*(f"b{n}" for n in range(x.dim() - 1)))
    of_weights, of_biases = [(None, *letters("k"))] * len(weights), [(None,)] * len(biases)
    inputs = ((*rows, *letters("k")), *of_weights, *of_biases)
    return Sharding(
        inputs, ((*rows, None),), (*_names(rows), "k"), ("sum",), frozenset(range(1 + len(weights), len(inputs)))
    )


def of_joined_linear_gradient(dy: torch.Tensor, weights: Sequence[torch.Tensor]) -> Sharding:
    """Shard the gradient of their input along its rows and columns."""
    rows = letters(*(f"b{n}" for n in range(dy.dim() - 1)))
    of_weights = [(None, *letters("k"))] * len(weights)
    return Sharding(((*rows, None), *of_weights), ((*rows, *letters("k")),), (*_names(rows), "k"))


def _is_linear(graph: Graph) -> bool:
    """Return whether an epilogue gives the sums, or adds to them: parts of sums then add up."""
    standard = standard_of(graph)
    return standard is not None and standard.activation is None


def _names(letters: Letters) -> list[str]:
    return [letter.name for letter in letters if letter is not None]


def _of_scale(scale: torch.Tensor, block: Block, rows: Letters) -> Letters:
    """Give the letters of the scales of a tensor (rows..., K); without its rows' where they are one dimension."""
    if block == TENSOR:
        return (None,) * scale.dim()
    of_k = Letter("k", block.k) if block.k else None
    if block.rows > 1:
        rows = (Letter(rows[0].name, block.rows),) if len(rows) == 1 and rows[0] else (None,)
    if scale.dim() == len(rows) + 1:
        return (*rows, of_k)
    return rows if scale.dim() == len(rows) == 1 and not block.k else (None,) * (scale.dim() - 1) + (of_k,)


def of_grouped(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    out_dtype: torch.dtype | None = None,
    scale_a: OptionalTensor = None,
    scale_b: OptionalTensor = None,
    blocks: Sequence[int] = (),
    promotes: bool = False,
    zero: bool = False,
) -> Sharding:
    """Shard products of groups along all extents but those which groups part; each group's matrices by groups."""
    graph = Graph.parse(epilogue)
    inputs, of_out, free = _of_groups(a, b, along)
    extents = [groups.shape[0], a.shape[-2], b.shape[-2]][-len(of_out) :]
    given = _of_operands(graph, tensors, kinds, of_out[:-2], extents, each=letters("g"))
    inputs = (*inputs, *given, *_of_scales((scale_a, scale_b), blocks))
    outputs = tuple((*of_out[:-1], Letter("n", graph.width(result))) for result in graph.results)
    counted = {name for name, index in _INDICES.items() if graph.uses(index)}
    free = tuple(name for name in free if name not in counted)
    if along != "k" and _is_linear(graph):
        free = (*free, "k")
    return Sharding(inputs, outputs, free, once=frozenset(range(3, 3 + len(given))))


def of_grouped_out(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: str,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
    kinds: str,
    epilogue: str,
    outs: Sequence[torch.Tensor],
    *scales: Any,  # noqa: ANN401
) -> Sharding:
    """Shard the same written to tensors."""
    found = of_grouped(a, b, groups, along, tensors, numbers, kinds, epilogue, None, *scales)
    return _written(found, 3 + len(tensors))


def _of_groups(a: torch.Tensor, b: torch.Tensor, along: str) -> tuple[tuple[Letters, ...], Letters, tuple[str, ...]]:
    """Give the letters of a, b and groups, those of the product, and which of the product's may be sharded."""
    padded = a.dim() == b.dim() == 3
    of_a, of_b = (letters(*("g",) * (tensor.dim() - 2), rows, "k") for tensor, rows in ((a, "m"), (b, "n")))
    if padded:
        return (of_a, of_b, letters("g")), letters("g", "m", "n"), ("g", "n")
    # Ends are those of the whole extent, so that it is not parted, and each device has all of them.
    of_out = letters("g", "m", "n") if along == "k" else letters("m", "n")
    return (of_a, of_b, (None,)), of_out, tuple(name for name in ("m", "n") if name != along)


def _of_operands(
    graph: Graph, tensors: Sequence[torch.Tensor], kinds: str, batch: Letters, extents: Sequence[int], each: Letters
) -> list[Letters]:
    """Give the letters of an epilogue's operands that are tensors; rows and columns may have one for `each` product."""
    found: list[Letters] = []
    given = iter(tensors)
    for operand, kind in zip(graph.operands, kinds, strict=True):
        if kind == "n":
            continue
        tensor, columns = next(given), Letter("n", operand.width)
        if operand.shape == "scalar":
            found.append((None,) * tensor.dim())
        elif operand.shape == "tile":
            shape = [*extents[:-1], extents[-1] // operand.width]
            found.append(aligned(tensor, (*batch, *letters("m"), columns), shape))
        else:
            own = (*each, columns if operand.shape == "row" else Letter("m"))
            found.append(own[len(own) - tensor.dim() :])
    return found


def _of_scales(scales: Sequence[OptionalTensor], blocks: Sequence[int]) -> list[Letters]:
    """Give the letters of the scales of a and b, of which each has its block's rows and K."""
    found: list[Letters] = []
    for n, (scale, rows) in enumerate(zip(scales, "mn", strict=True)):
        if scale is not None:
            block = Block(*blocks[2 * n : 2 * n + 2])
            own: list[Letter | None] = [Letter("g")]
            own += [Letter(rows, block.rows)] if block.rows else []
            own += [Letter("k", block.k)] if block.k else []
            found.append(tuple(own[len(own) - scale.dim() :]) if scale.dim() else ())
    return found


_INDICES = {"g": "product_index", "m": "row_index", "n": "column_index"}


def of_quantise(x: torch.Tensor, block: tuple[int, int], scale: torch.Tensor) -> Sharding:
    """Shard quantisation along extents of which each part has scales of its own."""
    rows = letters(*(f"b{n}" for n in range(x.dim() - 1)))
    of_x, of_scale = (*rows, Letter("k")), _of_scale(scale, Block(*block), rows)
    return Sharding((of_x,), (of_x, of_scale), tuple(_names(of_scale)))


def of_dequantise(x: torch.Tensor, scale: torch.Tensor, block: Block) -> Sharding:
    """Shard dequantisation along extents that share their scales, or have scales that are sharded with them."""
    rows = letters(*(f"b{n}" for n in range(x.dim() - 1)))
    of_x, of_scale = (*rows, Letter("k")), _of_scale(scale, block, rows)
    shared = [*([] if block.rows else _names(rows)), *([] if block.k else ["k"])]
    return Sharding((of_x, of_scale), (of_x,), (*_names(of_scale), *shared))


def of_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> Sharding:
    """Shard attention along the batch and the heads: a head of k and v stays with those of q that share it."""
    of_q, of_k = _of_heads(q, k)
    return Sharding((of_q, of_k, of_k), (of_q, letters("b", "h", None)), ("b", "h"))


def of_attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: OptionalTensor,
    *_: object,
) -> Sharding:
    """Shard the gradients of attention alike."""
    of_q, of_k = _of_heads(q, k)
    of_rows = [letters("b", "h", None)] * (1 if dlse is None else 2)
    return Sharding((of_q, of_q, of_k, of_k, of_q, *of_rows), (of_q, of_k, of_k), ("b", "h"))


def of_scored_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: OptionalTensor,
    tables: Sequence[torch.Tensor],
    blocks: Sequence[torch.Tensor],
    functions: str,
    *_: object,
) -> Sharding:
    """Shard attention with functions of its scores along the batch and the heads, where no function counts these."""
    of_q, of_k = _of_heads(q, k)
    inputs = (of_q, of_k, of_k, *_of_scoring(sinks, tables, blocks))
    return Sharding(inputs, (of_q, letters("b", "h", None)), _apart(functions, blocks))


def of_quantised_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_scale: OptionalTensor,
    k_scale: OptionalTensor,
    v_scale: OptionalTensor,
    sinks: OptionalTensor,
    tables: Sequence[torch.Tensor],
    blocks: Sequence[torch.Tensor],
    functions: str,
    *_: object,
) -> Sharding:
    """Shard attention of 8-bit floats along the batch and the heads; scales have heads of q, or of k and v."""
    of_q, of_k = _of_heads(q, k)
    scales = [each for each in (q_scale, k_scale, v_scale) if each is not None]
    of_scales = [letters("b", Letter("h", max(q.shape[2] // max(each.shape[1], 1), 1)), None) for each in scales]
    inputs = (of_q, of_k, of_k, *of_scales, *_of_scoring(sinks, tables, blocks))
    return Sharding(inputs, (of_q, letters("b", "h", None)), _apart(functions, blocks))


def of_scored_attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: OptionalTensor,
    sinks: OptionalTensor,
    tables: Sequence[torch.Tensor],
    blocks: Sequence[torch.Tensor],
    functions: str,
    *_: object,
) -> Sharding:
    """Shard the gradients alike; those of the sinks are sums over the batch, those of tables over the heads too."""
    of_q, of_k = _of_heads(q, k)
    of_rows = [letters("b", "h", None)] * (1 if dlse is None else 2)
    inputs = (of_q, of_q, of_k, of_k, of_q, *of_rows, *_of_scoring(sinks, tables, blocks))
    of_sinks = letters(None if sinks is None else "h")
    return Sharding(inputs, (of_q, of_k, of_k, of_sinks, (None,)), _apart(functions, blocks))


def _of_scoring(sinks: OptionalTensor, tables: Sequence[torch.Tensor], blocks: Sequence[torch.Tensor]) -> list[Letters]:
    """Give the letters of sinks, and of tables and lists of blocks, which each device has whole."""
    of_sinks = [] if sinks is None else [letters("h")]
    return [*of_sinks, *((None,) * each.dim() for each in (*tables, *blocks))]


def _apart(functions: str, blocks: Sequence[torch.Tensor]) -> tuple[str, ...]:
    """Give the letters along which attention's functions and lists don't count."""
    if blocks:
        return ()
    graph = Graph.parse(functions) if functions else None
    counted = {"b": "batch_index", "h": "head_index"}
    return tuple(name for name, op in counted.items() if graph is None or not graph.uses(op))


def _of_heads(q: torch.Tensor, k: torch.Tensor) -> tuple[Letters, Letters]:
    """Give the letters of q, and of k and v, a head of which stands for several of q; packed ones have no batch."""
    group = max(q.shape[-2] // max(k.shape[-2], 1), 1)
    of_q, of_k = letters("b", None, "h", None), letters("b", None, Letter("h", group), None)
    return of_q[-q.dim() :], of_k[-q.dim() :]


def of_attention_varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> Sharding:  # noqa: ANN401
    """Shard attention of packed sequences along the heads, where no function counts these."""
    of_q, of_k = _of_heads(q, k)
    of_rest, along = _of_sequences(*rest)
    return Sharding((of_q, of_k, of_k, *of_rest), (of_q, letters("h", None)), along)


def of_quantised_attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_scale: OptionalTensor,
    k_scale: OptionalTensor,
    v_scale: OptionalTensor,
    out_dtype: torch.dtype,
    *rest: Any,  # noqa: ANN401
) -> Sharding:
    """Shard attention of packed sequences of 8-bit floats alike; scales have heads of k and v."""
    of_q, of_k = _of_heads(q, k)
    of_scales = [letters(None, of_k[1], None) for each in (q_scale, k_scale, v_scale) if each is not None]
    of_rest, along = _of_sequences(*rest)
    return Sharding((of_q, of_k, of_k, *of_scales, *of_rest), (of_q, letters("h", None)), along)


def of_attention_varlen_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: OptionalTensor,
    *rest: Any,  # noqa: ANN401
) -> Sharding:
    """Shard the gradients of attention of packed sequences alike."""
    of_q, of_k = _of_heads(q, k)
    of_rows = [letters("h", None)] * (1 if dlse is None else 2)
    of_rest, along = _of_sequences(*rest)
    given = (of_q, of_q, of_k, of_k, of_q, *of_rows, *of_rest)
    return Sharding(given, (of_q, of_k, of_k, letters(None if rest[5] is None else "h"), (None,)), along)


def _of_sequences(*rest: Any) -> tuple[list[Letters], tuple[str, ...]]:  # noqa: ANN401
    """Return the letters of the arguments after q, k and v, and those along which no function counts."""
    *lengths, table, sinks, tables, functions = rest[:8]
    of_lengths: list[Letters] = [(None,) * each.dim() for each in (*lengths, table) if each is not None]
    along = tuple(name for name in _apart(functions, ()) if name == "h")
    return [*of_lengths, *_of_scoring(sinks, tables, ())], along


def of_attention_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: OptionalTensor,
    table: OptionalTensor,
    sinks: OptionalTensor,
    tables: Sequence[torch.Tensor],
    functions: str,
    *rest: Any,  # noqa: ANN401
) -> Sharding:
    """Shard attention with cached keys along the heads, and along the batch, where no function counts these."""
    of_q, of_k = _of_heads(q, k)
    of_scales = [letters("b", of_k[2], None) for each in rest[4:7] if each is not None]
    of_k = of_k if table is None else (None, *of_k[1:])
    of_rest = [letters("b", *(None,) * (each.dim() - 1)) for each in (lengths, table) if each is not None]
    inputs = (of_q, of_k, of_k, *of_rest, *_of_scoring(sinks, tables, ()), *of_scales)
    return Sharding(inputs, (of_q, letters("b", "h", None)), _apart(functions, ()))


def of_attention_mla(
    q: torch.Tensor, cache: torch.Tensor, lengths: OptionalTensor, table: OptionalTensor, *_: object
) -> Sharding:
    """Shard latent attention along the heads, which share the cache, and along the batch, unless it is in pages."""
    of_cache = letters("b" if table is None else None, *(None,) * (cache.dim() - 1))
    of_rest = [letters("b", *(None,) * (each.dim() - 1)) for each in (lengths, table) if each is not None]
    of_q = letters("b", None, "h", None)
    return Sharding((of_q, of_cache, *of_rest), (of_q, letters("b", "h", None)), ("b", "h"))


def of_norm(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    eps: float,
    centres: bool,
    *_: object,
) -> Sharding:
    """Shard a normalisation by its rows."""
    rows, full = _of_rows(x)
    vectors = ((None,) for each in (weight, bias) if each is not None)
    inputs = (full, *((full,) if residual is not None else ()), *vectors)
    total, means = full if residual is not None else (None,), rows if centres else (None,)
    return Sharding(inputs, (full, total, rows, means), tuple(_names(rows)))


def of_norm_quantised(
    x: torch.Tensor,
    residual: OptionalTensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    scale: OptionalTensor,
    eps: float,
    centres: bool,
    dtype: torch.dtype,
    block: int,
    return_amax: bool = False,
) -> Sharding:
    """Shard a normalisation to 8-bit floats by its rows, with their scales; parts have largest magnitudes."""
    rows, full = _of_rows(x)
    vectors = ((None,) for each in (weight, bias, scale) if each is not None)
    inputs = (full, *((full,) if residual is not None else ()), *vectors)
    total, scales = full if residual is not None else (None,), full if scale is None else (None,)
    if return_amax:
        return Sharding(inputs, (full, (), total), tuple(_names(rows)), ("sum", "max", "sum"))
    return Sharding(inputs, (full, scales, total), tuple(_names(rows)))


def of_norm_backward(
    dy: torch.Tensor,
    dtotal: OptionalTensor,
    x: torch.Tensor,
    weight: OptionalTensor,
    factors: torch.Tensor,
    means: torch.Tensor,
    centres: bool,
    *_: object,
) -> Sharding:
    """Shard its gradients by rows: those of weight and bias are partial sums."""
    rows, full = _of_rows(x)
    inputs = (
        full,
        *((full,) if dtotal is not None else ()),
        full,
        *(((None,),) if weight is not None else ()),
        rows,
        rows if centres else (None,),
    )
    return Sharding(inputs, (full, (None,), (None,)), tuple(_names(rows)))


def _of_rows(x: torch.Tensor) -> tuple[Letters, Letters]:
    """Give the letters of the extents of rows, and of a tensor of rows, which are whole."""
    rows = letters(*(f"b{n}" for n in range(x.dim() - 1)))
    return rows, (*rows, None)


def of_softmax(x: torch.Tensor, *_: object) -> Sharding:
    """Shard a softmax by its rows."""
    rows, full = _of_rows(x)
    return Sharding((full,), (full,), tuple(_names(rows)))


def of_softmax_backward(dy: torch.Tensor, y: torch.Tensor, *_: object) -> Sharding:
    """Shard its gradient by rows."""
    rows, full = _of_rows(y)
    return Sharding((full, full), (full,), tuple(_names(rows)))


def of_cross_entropy(logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, *_: object) -> Sharding:
    """Shard a cross entropy by its rows."""
    rows, full = _of_rows(logits)
    vectors = ((None,),) if weight is not None else ()
    return Sharding((full, rows, *vectors), (rows, rows), tuple(_names(rows)))


def of_cross_entropy_backward(
    dloss: torch.Tensor, logits: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, *_: object
) -> Sharding:
    """Shard its gradient by rows."""
    rows, full = _of_rows(logits)
    vectors = ((None,),) if weight is not None else ()
    return Sharding((rows, full, rows, *vectors, rows), (full,), tuple(_names(rows)))


def of_cross_entropy_backward_(*arguments: Any) -> Sharding:  # noqa: ANN401
    """Shard the gradient that takes the logits' place."""
    return of_cross_entropy_backward(*arguments)._replace(outputs=())


def of_mean_of_losses(
    losses: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    classes: int,
    ignore_index: int,
    divides: bool,
    dtype: torch.dtype,
) -> Sharding:
    """Shard a sum of losses by rows: it is partial, unless it is divided, or rounded before it is complete."""
    rows = letters(None if divides or dtype != torch.float32 else "m")
    vectors = ((None,),) if weight is not None else ()
    return Sharding((rows, rows, *vectors), ((), (None,)), tuple(_names(rows)))


def of_linear_losses(
    x: torch.Tensor,
    matrix: torch.Tensor,
    target: torch.Tensor,
    bias: OptionalTensor,
    weight: OptionalTensor,
    *_: object,
) -> Sharding:
    """Shard losses of a linear layer's results by their rows."""
    rows, full = _of_rows(x)
    vectors = ((None,),) * sum(each is not None for each in (bias, weight))
    return Sharding((full, (None, None), rows, *vectors), (rows,), tuple(_names(rows)))


def of_linear_cross_entropy(*arguments: Any) -> Sharding:  # noqa: ANN401
    """Shard their sum, and its gradients, by rows: the sum, and gradients of the matrix and the bias, are partial."""
    factors, needs = arguments[9], arguments[10:13]
    found = of_linear_losses(*arguments)
    (rows,), full = found.outputs, found.inputs[0]
    of_gradients = (full, (None, None), (None,))
    gradients = (letters if needed else (None,) for letters, needed in zip(of_gradients, needs, strict=True))
    of_factors = () if factors is None else (rows,)
    return found._replace(inputs=(*found.inputs, *of_factors), outputs=((), *gradients))


def of_topk(x: torch.Tensor, *_: object) -> Sharding:
    """Shard a selection by its rows."""
    rows, full = _of_rows(x)
    return Sharding((full,), (full, full), tuple(_names(rows)))


def of_sample(logits: torch.Tensor, seeds: OptionalTensor, *_: object) -> Sharding:
    """Shard no samples: each is drawn by the index of its row among all."""
    whole = (None,) * logits.dim()
    return Sharding((whole, *(((None,),) if seeds is not None else ())), (whole[1:],), ())


def of_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: OptionalTensor, *_: object) -> Sharding:
    """Shard a rotary embedding along the batch and the heads."""
    of_x, whole = letters("b", None, "h", None), (None, None)
    of_positions = () if positions is None else (letters("b", None),)
    return Sharding((of_x, whole, whole, *of_positions), (of_x,), ("b", "h"))


def of_rotary_cached(q: torch.Tensor, k: torch.Tensor, *rest: Any) -> Sharding:  # noqa: ANN401
    """Shard a rotary embedding into a cache along the heads, and along the batch, unless the cache is in pages."""
    of_q, of_k = _of_heads(q, k)
    of_cache = of_k if rest[6] is None else (None, *of_k[1:])
    of_rest = [letters("b", *(None,) * (each.dim() - 1)) for each in rest[5:7] if each is not None]
    inputs = (of_q, of_k, of_k, (None, None), (None, None), of_cache, of_cache, *of_rest)
    return Sharding(inputs, (of_q,), ("b", "h") if rest[6] is None else ("h",))


def of_gated(gate: torch.Tensor, up: OptionalTensor, activation: str) -> Sharding:
    """Shard a gated activation along all extents, but for columns that are two halves."""
    inputs, of_y = _of_gated(gate, up)
    return Sharding(inputs, (of_y,), tuple(_names(of_y)))


def of_gated_backward(dy: torch.Tensor, gate: torch.Tensor, up: OptionalTensor, activation: str) -> Sharding:
    """Shard its gradients alike."""
    inputs, of_y = _of_gated(gate, up)
    return Sharding((of_y, *inputs), (inputs[0], of_y if up is not None else (None,)), tuple(_names(of_y)))


def _of_gated(gate: torch.Tensor, up: OptionalTensor) -> tuple[tuple[Letters, ...], Letters]:
    rows, full = _of_rows(gate)
    if up is None:
        return (full,), full
    of_y = (*rows, *letters("n"))
    return (of_y, of_y), of_y
