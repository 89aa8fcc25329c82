"""Attention with functions of its scores as an operation of PyTorch, and its gradients.

A function is no argument of an operation: it is traced, its graph is passed as text, and the tensors that it uses as a
list. Lists of blocks (`cutepy.ops.block_masks`) are a list of tensors too.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from cutepy.epilogues import scores
from cutepy.epilogues.function_state import state_of
from cutepy.epilogues.graph import Graph
from cutepy.host.launches import Launches, described
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.config import Scoring
from cutepy.kernels.attention.op import backward_reads, forward_reads, launch_backward, plan_forward, table_dtype
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    AS_THEY_ARE,
    adds_in_order,
    check,
    flops,
    flops_backward,
    grads_like,
    reachable,
    results_like,
    way_to,
)
from cutepy.ops.block_masks import lists_of
from cutepy.ops.registration import register_both
from cutepy.runtime.execution import EXECUTION

Tensors = Sequence[torch.Tensor]

_launches: Launches[Any] = Launches()


def scored_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    functions: tuple[Any, ...],
    block_mask: Any,  # noqa: ANN401
    sinks: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
    dropout_p: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Trace what makes scores, masks and weights, and compute attention with it; arguments are those of `prepare`."""
    prepared = prepare(q, k, functions, block_mask, sinks, left, right, dropout_p)
    result: tuple[torch.Tensor, torch.Tensor] = _scored(q, k, v, *prepared, scale, left, right, deterministic)
    return result


def prepare(
    q: torch.Tensor,
    k: torch.Tensor,
    functions: tuple[Any, ...],
    block_mask: Any,  # noqa: ANN401
    sinks: torch.Tensor | None,
    left: int | None,
    right: int | None,
    dropout_p: float = 0.0,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor], str, list[int]]:
    """Return the sinks, tables, lists of blocks, text of functions, and extents of a block that an operation takes.

    Parameters
    ----------
    functions : tuple
        A soft cap, slopes, a score function, a mask function, and their operands, each None if there is none: those of
        `cutepy.ops.attention`, as all others.
    """
    soft_cap, slopes, score, mask, operands = functions
    blocks: list[torch.Tensor] = []
    size: list[int] = []
    if block_mask is not None:
        if mask is not None or left is not None or right is not None:
            raise ValueError(
                "a block mask is all that hides keys, got also a mask, a window or causal; put it into the function "
                "that the block mask is made of"
            )
        mask = block_mask.mask_mod
        blocks, size = lists_of(block_mask, q, k)
    if sinks is not None and sinks.is_floating_point():
        sinks = sinks.float()
    # Seeds are drawn on the device by torch's generator, as CUDA graphs and torch.compile know to repeat it.
    drawn = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=q.device) if dropout_p else q.new_empty(0)
    text, tables = traced(soft_cap, slopes, score, mask, operands or {}, dropout_p, drawn.unbind())
    return sinks, tables, blocks, text, size


def traced(
    soft_cap: float | None,
    slopes: torch.Tensor | None,
    score: scores.ScoreFunction | None,
    mask: scores.MaskFunction | None,
    operands: Mapping[str, Any],
    dropout_p: float = 0.0,
    seeds: Sequence[torch.Tensor] = (),
) -> tuple[str, list[torch.Tensor]]:
    """Trace functions to the text of one graph in one line, empty without any, and the tensors that are its tables."""
    if soft_cap is not None and not (soft_cap > 0 and math.isfinite(soft_cap)):
        raise ValueError(f"soft_cap must be a positive number, got {soft_cap}")
    if slopes is not None and slopes.dim() not in (1, 2):
        raise ValueError(f"alibi_slopes must be (heads,) or (batch, heads), got shape {tuple(slopes.shape)}")
    passed = {name: each for name, each in operands.items() if isinstance(each, torch.Tensor)}
    numbers = tuple((name, each) for name, each in operands.items() if name not in passed)
    kinds = tuple((name, each.dim(), str(each.dtype)) for name, each in passed.items())
    given = [*([] if slopes is None else [slopes]), *seeds]
    found = _trace(soft_cap, None if slopes is None else slopes.dim(), score, mask, numbers, kinds, dropout_p)
    given += passed.values()
    own = iter(found.own)
    return found.text, [given[place] if place >= 0 else next(own) for place in found.places]


class _Traced:
    """Text of a graph, and for each table its place among the tensors that are passed; -1 for the next of its own."""

    def __init__(self, text: str, places: tuple[int, ...], own: tuple[torch.Tensor, ...]) -> None:
        self.text, self.places, self.own = text, places, own


def _trace(
    soft_cap: float | None,
    slopes: int | None,
    score: scores.ScoreFunction | None,
    mask: scores.MaskFunction | None,
    numbers: tuple[tuple[str, Any], ...],
    kinds: tuple[tuple[str, int, str], ...],
    dropout_p: float,
) -> _Traced:
    """Trace functions, unless they have been, and are what they were; of tensors that are passed, only kinds count.

    torch.compile calls it once, and takes its result for constant: a function's own tensors are then those that it has
    when it is compiled.
    """
    state = state_of(score, mask, numbers)
    key = None if state is None else (soft_cap, slopes, dropout_p, state.key, kinds)
    kept = _graphs.get(key) if key is not None else None
    if kept is not None:
        # A tensor that died may have left its id to another.
        assert state is not None
        if all(reference() is tensor for reference, tensor in zip(kept.read, state.tensors, strict=True)):
            return _Traced(kept.text, kept.places, tuple(state.tensors[place] for place in kept.own))
    chain = [] if soft_cap is None else [scores.soft_cap(soft_cap)]
    standing: list[torch.Tensor] = []
    if slopes is not None:
        standing.append(torch.empty((1,) * slopes))
        chain.append(scores.alibi(standing[0]))
    weight = None
    if dropout_p:
        standing += [torch.empty((), dtype=torch.int32) for _ in range(2)]
        weight = scores.dropout(dropout_p, *standing[-2:])
    if score is not None:
        chain.append(score)
    stand_ins = {name: torch.empty((1,) * rank, dtype=getattr(torch, dtype[6:])) for name, rank, dtype in kinds}
    standing += stand_ins.values()
    found = scores.trace_scores(chain, mask, {**dict(numbers), **stand_ins}, weight)
    places = tuple(_place(tensor, standing, -1) for tensor in found.tensors)
    own = tuple(tensor for tensor, place in zip(found.tensors, places, strict=True) if place < 0)
    result = _Traced(found.graph.line if found else "", places, own)
    if key is not None and state is not None and not found.computes:
        read = tuple(map(weakref.ref, state.tensors))
        kept_own = tuple(_place(tensor, state.tensors, -1) for tensor in own)
        if -1 not in kept_own:
            _graphs.keep(key, _Kept(result.text, places, kept_own, read))
    return result


def _place(tensor: torch.Tensor, among: Sequence[torch.Tensor], missing: int) -> int:
    """Return the place of a tensor among others."""
    return next((n for n, each in enumerate(among) if each is tensor), missing)


class _Kept(NamedTuple):
    """Graph of functions in a state, whose tensors are not kept alive.

    Attributes
    ----------
    text : str
    places : tuple of int
        As of `_Traced`.
    own : tuple of int
        The place of each of its own tensors among those of the state.
    read : tuple of weak references
        To the tensors of the state.
    """

    text: str
    places: tuple[int, ...]
    own: tuple[int, ...]
    read: tuple[weakref.ref[torch.Tensor], ...]


_graphs: Launches[_Kept] = Launches()


# As torch.compiler.assume_constant_result does, which imports the compiler for it.
_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]


def scoring_of(functions: str, tables: Tensors, sinks: torch.Tensor | None, block_size: Sequence[int]) -> Scoring:
    """Return what a kernel is compiled for."""
    text = functions.replace("; ", "\n  ")
    size = (block_size[0], block_size[1]) if block_size else None
    return Scoring(text, tuple(map(table_dtype, tables)), sinks is not None, size)


def check_scoring(
    q: torch.Tensor, k: torch.Tensor, sinks: torch.Tensor | None, tables: Tensors, functions: str
) -> None:
    """Check what the functions and the sinks are given."""
    batch, queries, heads, _ = q.shape
    if sinks is not None and (sinks.shape != (heads,) or sinks.dtype != torch.float32 or sinks.device != q.device):
        raise ValueError(
            f"sinks must be float32 of shape ({heads},), one for each head, on {q.device}, got {sinks.dtype} of shape "
            f"{tuple(sinks.shape)} on {sinks.device}"
        )
    if not functions:
        return
    graph = Graph.parse(functions)
    extents = {
        "batch_index": (batch, "the batch"),
        "head_index": (heads, "the head"),
        "row_index": (queries, "the query"),
        "column_index": (k.shape[1], "the key"),
    }
    for table, tensor in zip(graph.tables, tables, strict=True):
        if tensor.device != q.device and tensor.dim():
            raise ValueError(
                f"a tensor of shape {tuple(tensor.shape)} that a score or mask function uses must be on {q.device}, "
                f"got {tensor.device}"
            )
        for node in graph.nodes:
            if node.op != "gather" or node.value != table.name:
                continue
            varying = [m for m, n in enumerate(node.inputs) if graph.nodes[n].shape != "scalar"]
            if sum((tensor.shape[mode] - 1) * tensor.stride(mode) for mode in varying) >= 2**31:
                raise ValueError(
                    f"a tensor that a score or mask function indexes by queries and keys must reach over less than "
                    f"2^31 elements in dimensions {varying}, got shape {tuple(tensor.shape)} and strides "
                    f"{tensor.stride()}"
                )
            for mode, source in enumerate(node.inputs):
                count, name = extents.get(graph.nodes[source].op, (0, ""))
                if tensor.shape[mode] < count:
                    raise ValueError(
                        f"a tensor of shape {tuple(tensor.shape)} is indexed by {name} in dimension {mode}, which must "
                        f"have {count} elements at least, got {tensor.shape[mode]}"
                    )


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    *rest: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, torch.Tensor]:
    _, functions, _, scale, *_ = rest
    check(q, k, v, scale)
    check_scoring(q, k, sinks, tables, functions)
    return results_like(q, v)


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(q, k, v, scale)
    check_scoring(q, k, sinks, tables, functions)
    scored = reference.Scored(functions, tables, sinks, blocks, block_size)
    o, lse = scored.forward(q, k, v, scale, left, right)
    return o.contiguous(), lse


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)
    q, k, v, sinks, tables, blocks, *ctx.how = inputs
    for table in tables:
        if table.requires_grad:
            raise NotImplementedError(
                f"no gradient is computed of tensors that a score or mask function uses, got one of shape "
                f"{tuple(table.shape)} that requires grad; detach it, or use torch's flex_attention"
            )
    ctx.save_for_backward(q, k, v, *output, *([] if sinks is None else [sinks]), *tables, *blocks)
    ctx.counts = int(sinks is not None), len(tables)


def _backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
    q, k, v, o, lse, *rest = ctx.saved_tensors
    has_sinks, count = ctx.counts
    sinks, tables, blocks = (rest[0] if has_sinks else None), rest[has_sinks:][:count], rest[has_sinks + count :]
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, dsinks = _scored_backward(do, q, k, v, o, lse, dlse, sinks, tables, blocks, *ctx.how)
    return dq, dk, dv, (dsinks if has_sinks else None), None, None, None, None, None, None, None, None


@register_both(
    "cutepy::scored_attention(Tensor q, Tensor k, Tensor v, Tensor? sinks, Tensor[] tables, Tensor[] blocks, "
    "str functions, int[] block_size, float scale, int? left, int? right, bool deterministic) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("q", "k", "v"),
    sharding=shardings.of_scored_attention,
    flops=flops,
)
def _scored(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    tables = [beside(table, q) for table in tables]
    key = (functions, *block_size, scale, left, right, EXECUTION.backend is None, len(tables))
    key = (*key, *described(q, k, v, sinks, *tables, *blocks))
    launch = _launches.get(key)
    if launch is None:
        check(q, k, v, scale)
        check_scoring(q, k, sinks, tables, functions)
        scoring = scoring_of(functions, tables, sinks, block_size)
        launch = _launches.keep(key, _find_launch(q, k, v, scale, left, right, scoring))
    return launch((q, k, v), sinks, tables, blocks)  # type: ignore[no-any-return]


def beside(table: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return a table on the device of q: a single element may be elsewhere, as torch takes it."""
    return table if table.dim() or table.device == q.device else table.to(q.device)


def _find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    scoring: Scoring,
) -> Any:  # noqa: ANN401
    """Decide all that is done for tensors like these, and have the kernel compiled."""
    if 0 in q.shape or not k.shape[1]:
        return of_nothing
    launch = plan_forward(q, k, v, scale, left, right, scoring=scoring)
    ways = tuple(map(way_to, (q, k, v)))

    def run(
        given: tuple[torch.Tensor, ...], sinks: torch.Tensor | None, tables: Tensors, blocks: Tensors
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = results_like(given[0], given[2])
        if ways != AS_THEY_ARE:
            given = tuple(each if way is None else way(each) for way, each in zip(ways, given, strict=True))
        launch(*given, o, lse, None, forward_reads(tables, sinks, blocks[:4]))
        return o, lse

    return run


def of_nothing(
    given: tuple[torch.Tensor, ...],
    sinks: torch.Tensor | None,
    tables: Tensors = (),
    blocks: Tensors = (),
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of no queries, or of no keys: sinks are all that rows have."""
    o, lse = results_like(given[0], given[2], dtype)
    return o.zero_(), lse.fill_(-math.inf) if sinks is None else lse.copy_(sinks[:, None].expand_as(lse))


def _fake_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    sinks: torch.Tensor | None,
    *_: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return *grads_like(q, k, v), _dsinks_like(q, sinks)


def _dsinks_like(q: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    return q.new_empty(0 if sinks is None else sinks.shape[0], dtype=torch.float32)


def _reference_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    scored = reference.Scored(functions, tables, sinks, blocks, block_size)
    dq, dk, dv, dsinks = scored.backward(do, q, k, v, dlse, scale, left, right)
    return dq.contiguous(), dk.contiguous(), dv.contiguous(), _dsinks_like(q, sinks) if dsinks is None else dsinks


@register_both(
    "cutepy::scored_attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dlse, "
    "Tensor? sinks, Tensor[] tables, Tensor[] blocks, str functions, int[] block_size, float scale, int? left, "
    "int? right, bool deterministic) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_reference_backward,
    fake=_fake_backward,
    sharding=shardings.of_scored_attention_backward,
    flops=flops_backward,
)
def _scored_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tables: Tensors,
    blocks: Tensors,
    functions: str,
    block_size: Sequence[int],
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    is_ordered = adds_in_order(deterministic=deterministic, has_lists=bool(blocks))
    grads, dsinks = grads_like(q, k, v), _dsinks_like(q, sinks)
    tables = [beside(table, q) for table in tables]
    if 0 in q.shape or not k.shape[1]:
        for each in (*grads, dsinks):
            each.zero_()
        if sinks is not None and dlse is not None:
            dsinks += dlse.sum((0, 2))
        return *grads, dsinks
    scoring = scoring_of(functions, tables, None, block_size)
    read = backward_reads(tables, blocks[4:])
    do, q, k, v, o = map(reachable, (do, q, k, v, o))
    given = do, q, k, v, o, lse, dlse, grads, scale, left, right
    deltas = launch_backward(*given, scoring=scoring, read=read, is_ordered=is_ordered)
    if sinks is not None:
        # A sink has the share exp(sink - lse) of each row, and a value of 0.
        shares = torch.exp(sinks[:, None] - lse.masked_fill(lse == -math.inf, math.inf))
        dsinks = -(shares * deltas).sum((0, 2))
    return *grads, dsinks
