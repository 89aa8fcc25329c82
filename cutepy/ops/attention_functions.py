"""Functions of attention's scores as operations of PyTorch take them.

A function is no argument of an operation: it is traced, its graph is passed as text, and the tensors that it uses as a
list. Beside these an operation takes sinks: logits that join the rows' sums.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from cutepy.epilogues import scores
from cutepy.epilogues.derivatives import tables_derived
from cutepy.epilogues.function_state import state_of
from cutepy.epilogues.graph import Graph
from cutepy.host.launches import Launches
from cutepy.kernels.attention.config import ScoreSettings
from cutepy.kernels.attention.op import table_dtype
from cutepy.ops.attention_arguments import Tensors as Tensors

Read = tuple[torch.Tensor | None, list[torch.Tensor], str]
"""Sinks, tables of the graph, and its text, which is empty without functions."""


def read_by(q: torch.Tensor, functions: tuple[Any, ...], sinks: torch.Tensor | None, dropout_p: float = 0.0) -> Read:
    """Trace the functions of scores, masks and weights.

    Parameters
    ----------
    functions : tuple
        A soft cap, slopes, a score function, a mask function, and their operands, each None if there is none: those of
        `cutepy.ops.attention`, as all others.
    """
    if sinks is not None and sinks.is_floating_point():
        sinks = sinks.float()
    soft_cap, slopes, score, mask, operands = functions
    if soft_cap is slopes is score is mask is operands is None and not dropout_p:
        return sinks, [], ""
    _check_functions(q, soft_cap, slopes, operands)
    # Seeds are drawn on the device by torch's generator, as CUDA graphs and torch.compile know to repeat it.
    seeds: tuple[torch.Tensor, ...] = ()
    if dropout_p:
        seeds = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32, device=q.device).unbind()
    text, tables = traced(soft_cap, slopes, score, mask, operands or {}, dropout_p, seeds)
    return sinks, tables, text


def _check_functions(q: torch.Tensor, soft_cap: float | None, slopes: torch.Tensor | None, operands: object) -> None:
    """Check a soft cap, slopes and operands beside q, (batch, queries, heads, head) or packed, without the batch."""
    is_number = isinstance(soft_cap, (int, float, torch.SymFloat))
    if soft_cap is not None and not (is_number and soft_cap > 0 and math.isfinite(soft_cap)):
        raise ValueError(f"soft_cap must be a positive number, got {soft_cap!r}; pass None to bend no scores")
    if operands is not None and not isinstance(operands, Mapping):
        raise TypeError(
            f"operands must map names of parameters to tensors and numbers, got {type(operands).__name__}; pass a dict"
        )
    if slopes is None or q.dim() not in (3, 4):
        return
    # Only the lengths have the number of packed sequences.
    is_packed, heads = q.dim() == 3, q.shape[-2]
    has_batch = slopes.dim() == 2 and (is_packed or slopes.shape[0] == q.shape[0])
    if not (slopes.dim() == 1 or has_batch) or slopes.shape[-1] != heads:
        batch = "sequences" if is_packed else q.shape[0]
        raise ValueError(
            f"alibi_slopes must be one for each head, of shape ({heads},) or ({batch}, {heads}), got "
            f"{tuple(slopes.shape)}; select or expand them"
        )


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
    passed = {name: each for name, each in operands.items() if isinstance(each, torch.Tensor)}
    numbers = tuple((name, each) for name, each in operands.items() if name not in passed)
    kinds = tuple((name, each.dim(), str(each.dtype)) for name, each in passed.items())
    given = [*([] if slopes is None else [slopes]), *seeds]
    dropped = dropout_p if dropout_p else 0.0  # a default that torch.compile has made a symbol is a constant here
    found = _trace(soft_cap, None if slopes is None else slopes.dim(), score, mask, numbers, kinds, dropped)
    given += passed.values()
    own = iter(found.own)
    return found.text, [given[place] if place >= 0 else next(own) for place in found.indices]


class _TracedGraph:
    """Text of a graph, and for each table its place among the tensors that are passed; -1 for the next of its own."""

    def __init__(self, text: str, indices: tuple[int, ...], own: tuple[torch.Tensor, ...]) -> None:
        self.text, self.indices, self.own = text, indices, own


def _trace(
    soft_cap: float | None,
    slopes: int | None,
    score: scores.ScoreFunction | None,
    mask: scores.MaskFunction | None,
    numbers: tuple[tuple[str, Any], ...],
    kinds: tuple[tuple[str, int, str], ...],
    dropout_p: float,
) -> _TracedGraph:
    """Trace functions unless a trace of them is still valid; of passed tensors only kinds count.

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
            return _TracedGraph(kept.text, kept.indices, tuple(state.tensors[place] for place in kept.own))
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
    found = scores.trace_scores(chain, mask, {**dict(numbers), **stand_ins}, weight, standing)
    indices = tuple(_place(tensor, standing, -1) for tensor in found.tensors)
    own = tuple(tensor for tensor, place in zip(found.tensors, indices, strict=True) if place < 0)
    result = _TracedGraph(found.graph.line if found else "", indices, own)
    if key is not None and state is not None and not found.computes:
        read = tuple(map(weakref.ref, state.tensors))
        kept_own = tuple(_place(tensor, state.tensors, -1) for tensor in own)
        if -1 not in kept_own:
            _graphs.keep(key, _StoredGraph(result.text, indices, kept_own, read))
    return result


def _place(tensor: torch.Tensor, among: Sequence[torch.Tensor], missing: int) -> int:
    """Return the place of a tensor among others."""
    return next((n for n, each in enumerate(among) if each is tensor), missing)


class _StoredGraph(NamedTuple):
    """Graph of functions in a state, whose tensors are not kept alive.

    Attributes
    ----------
    text : str
    indices : tuple of int
        As of `_TracedGraph`.
    own : tuple of int
        The place of each of its own tensors among those of the state.
    read : tuple of weak references
        To the tensors of the state.
    """

    text: str
    indices: tuple[int, ...]
    own: tuple[int, ...]
    read: tuple[weakref.ref[torch.Tensor], ...]


_graphs: Launches[_StoredGraph] = Launches()


# As torch.compiler.assume_constant_result does, which imports the compiler for it.
_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]


def scoring_of(
    functions: str,
    tables: Tensors,
    sinks: torch.Tensor | None,
    block_size: Sequence[int] = (),
    derived: Sequence[int] = (),
) -> ScoreSettings:
    """Return the settings that a kernel is compiled for; `derived` are the tables whose gradients it sums, by index."""
    text = functions.replace("; ", "\n  ")
    size = (block_size[0], block_size[1]) if block_size else None
    names = tuple(Graph.parse(functions).tables[n].name for n in derived)
    return ScoreSettings(text, tuple(map(table_dtype, tables)), sinks is not None, size, names)


def check_scoring(
    q: torch.Tensor,
    sinks: torch.Tensor | None,
    tables: Tensors,
    functions: str,
    extents: tuple[int, int | None, int | None],
) -> None:
    """Check the arguments of the functions and the sinks, beside q (..., heads, head).

    Parameters
    ----------
    extents : (int, int or None, int or None)
        Matrices of scores, of the batch or of sequences; their queries and keys, None if only the device knows these.

    Raises
    ------
    ValueError
        If sinks are no logits of the heads, or tensors that functions use are elsewhere, too large, or too small.
    """
    heads = q.shape[-2]
    if sinks is not None and (sinks.shape != (heads,) or sinks.dtype != torch.float32 or sinks.device != q.device):
        raise ValueError(
            f"sinks must be float32 of shape ({heads},), one for each head, on {q.device}, got {sinks.dtype} of shape "
            f"{tuple(sinks.shape)} on {sinks.device}; convert, expand or move them"
        )
    if not functions:
        return
    graph = Graph.parse(functions)
    for tensor in tables:
        if tensor.device != q.device and tensor.dim():
            raise ValueError(
                f"a tensor of shape {tuple(tensor.shape)} that a score or mask function uses must be on {q.device}, "
                f"got {tensor.device}; move it"
            )
    check_reach(graph, tables)
    batch, queries, keys = extents
    counted = {
        "batch_index": (batch, "the batch"),
        "head_index": (heads, "the head"),
        "row_index": (queries, "the query"),
        "column_index": (keys, "the key"),
    }
    for tensor, inputs in _uses(graph, tables):
        for mode, source in enumerate(inputs):
            count, name = counted.get(graph.nodes[source].op, (None, ""))
            if count is not None and tensor.shape[mode] < count:
                raise ValueError(
                    f"a tensor of shape {tuple(tensor.shape)} is indexed by {name} in dimension {mode}, which must "
                    f"have {count} elements at least, got {tensor.shape[mode]}; pad it"
                )


def check_reach(graph: Graph | None, tables: Tensors) -> None:
    """Check that 32 bits tell the places in tables, or their gradients, that differ within a tile of scores.

    Raises
    ------
    ValueError
        If they don't.
    """
    if graph is None:
        return
    for tensor, inputs in _uses(graph, tables):
        varying = [mode for mode, source in enumerate(inputs) if graph.nodes[source].shape != "scalar"]
        if sum((tensor.shape[mode] - 1) * tensor.stride(mode) for mode in varying) >= 2**31:
            raise ValueError(
                f"a tensor that a score or mask function indexes by queries and keys must reach over less than "
                f"2^31 elements in dimensions {varying}, got shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()}; copy a part of it"
            )


def _uses(graph: Graph, tables: Tensors) -> list[tuple[torch.Tensor, tuple[int, ...]]]:
    """List each use of a table, with the nodes of its indices."""
    named = {table.name: tensor for table, tensor in zip(graph.tables, tables, strict=True)}
    return [(named[str(node.value)], node.inputs) for node in graph.nodes if node.op == "gather"]


def derived_of(functions: str, needed: Sequence[bool] | bool) -> list[int]:
    """Return the indices of the tables that get gradients: those that need one and change a score.

    Examples
    --------
    >>> slopes = torch.ones(8)
    >>> text, _ = traced(None, None, lambda s, b, h, i, j: s * slopes[h], None, {})
    >>> derived_of(text, [True]), derived_of(text, [False]), derived_of("", False)
    ([0], [], [])
    """
    if isinstance(needed, bool) or not any(needed):  # of no tables
        return []
    graph = Graph.parse(functions)
    floats = [table.name for table, is_needed in zip(graph.tables, needed, strict=True) if is_needed]
    names = tables_derived(
        graph, [table.name for table in graph.tables if table.name in floats and table.type == "f32"]
    )
    return [n for n, table in enumerate(graph.tables) if table.name in names]


def dtables_like(q: torch.Tensor, tables: Tensors, derived: Sequence[int]) -> torch.Tensor:
    """Make the zeros that the gradients of derived tables are summed in, one after another."""
    if not derived:
        return q.new_empty(0, dtype=torch.float32)
    return q.new_zeros(sum(tables[n].numel() for n in derived), dtype=torch.float32)


def of_tables(dtables: torch.Tensor, tables: Tensors, derived: Sequence[int]) -> list[torch.Tensor | None]:
    """View the gradient of each table; None of those that are not derived."""
    found: list[torch.Tensor | None] = [None] * len(tables)
    first = 0
    for n in derived:
        found[n] = dtables[first : first + tables[n].numel()].view(tables[n].shape)
        first += tables[n].numel()
    return found


def gradients_of(dtables: torch.Tensor, tables: Tensors, derived: Sequence[int]) -> list[torch.Tensor | None] | None:
    """Return the gradient of each table as autograd takes it, in the table's dtype and on its device."""
    found = zip(of_tables(dtables, tables, derived), tables, strict=True)
    return [None if each is None else each.to(table) for each, table in found] or None


def beside(q: torch.Tensor, tables: Tensors) -> Tensors:
    """Return the tables on the device of q: a single element may be elsewhere, as torch takes it."""
    return tables and [each if each.dim() or each.device == q.device else each.to(q.device) for each in tables]


def dsinks_like(q: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Make the empty gradient of sinks; without elements if there are none."""
    return q.new_empty(0 if sinks is None else sinks.shape[0], dtype=torch.float32)


def dsinks_of(sinks: torch.Tensor, stats: torch.Tensor) -> torch.Tensor:
    """Compute the gradient of sinks from the rows' statistics that `plan_backward`'s function returns."""
    # A sink has the share exp(sink - lse) of each row, and a value of 0. Rows beyond the last have no lse, and add 0.
    shares = torch.exp2(sinks[:, None] * math.log2(math.e) - stats[:, :, 0]).clamp(max=1.0)
    return -(shares * stats[:, :, 1]).sum((0, 2))
