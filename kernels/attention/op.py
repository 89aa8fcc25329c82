"""Launch attention: choose, compile if necessary, and call the kernels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.kernels.attention.choice import choose_backward, choose_forward, ctas_of
from cutepy.kernels.attention.config import DQ_COLUMNS, NO_SCORING, BackwardConfig, ForwardConfig, Scoring
from cutepy.kernels.gemm.gpu import gpu_of
from cutepy.kernels.gemm.operands import UNIT_BYTES

SOURCES = ("cutepy.epilogues", "cutepy.layouts", "cutepy.device", "cutepy.kernels.attention")
"""Packages whose source, with a configuration, is the key of a compiled kernel."""


def plan_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    scoring: Scoring = NO_SCORING,
) -> Callable[..., None]:
    """Choose and compile what computes attention for tensors like these, which have elements and have been checked.

    Parameters
    ----------
    q, k, v : Tensor (batch, tokens, heads, head)
    scale : float
        Factor of the scores, positive.
    left, right : int or None
        Keys before and behind a query's position that it sees; None for all.
    scoring : Scoring
        Functions of the scores, sinks and lists of blocks.

    Returns
    -------
    callable
        Takes q, k, v, O of their dtype (batch, queries, heads, head of v) and the logarithms of the rows' sums (batch,
        heads, queries), fp32, and writes the last two. Rows are contiguous; other strides and the addresses are
        multiples of 16 bytes. What the scoring reads follows (`forward_reads`).
    """
    bounds = left is not None, right is not None
    config = choose_forward(dtype_name(q.dtype), q.shape[3], v.shape[3], q.shape[1], left=bounds[0], right=bounds[1])
    config = scored_forward(config, scoring)
    ctas = ctas_of(q.shape[1], bounds[1] or scoring.blocks is not None, gpu_of(q.device).sm_count)
    function, rest = compile_forward(config), (scale, left or 0, right or 0, ctas)
    return lambda q, k, v, o, lse, *read: function(q, k, v, o, lse, *rest, *read)


def launch_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    scale: float,
    left: int | None,
    right: int | None,
    scoring: Scoring = NO_SCORING,
    read: tuple[Any, ...] = (),
) -> torch.Tensor:
    """Compute the gradients of Q, K and V into `grads`; arguments are those of `plan_forward`, and its results.

    `dlse` is the gradient of the logarithms, if they have one. dQ is summed in an order that differs from run to run.
    `read` is what the scoring reads. Returns the rows' sums of dO * O, less `dlse`, (batch, heads, queries).
    """
    bounds = left is not None, right is not None
    config = choose_backward(dtype_name(q.dtype), q.shape[3], left=bounds[0], right=bounds[1])
    if scoring.suffix:
        config = replace(config, scoring=scoring)
    batch, queries, heads, _ = q.shape
    dq, dk, dv = grads
    sums = q.new_empty(batch, heads, *config.sums_shape(queries), dtype=torch.float32)
    stats = q.new_zeros(batch, heads, 2, -(-queries // 4) * 4, dtype=torch.float32)
    compile_statistics(config)(o, do, lse, stats, sums)
    if dlse is not None:
        stats[:, :, 1, :queries] -= dlse
    ctas = ctas_of(queries, bounds[1] or scoring.blocks is not None, gpu_of(q.device).sm_count)
    compile_backward(config)(q, k, v, do, stats, sums, dk, dv, scale, left or 0, right or 0, ctas, *read)
    compile_rows_of_dq(config)(sums, dq, scale)
    return stats[:, :, 1, :queries]


def scored_forward(config: ForwardConfig, scoring: Scoring) -> ForwardConfig:
    """Return a configuration with functions of the scores, and tiles that are whole parts of their blocks."""
    if not scoring.suffix:
        return config
    config = replace(config, scoring=scoring)
    if scoring.blocks:
        tile_m, tile_n = 128, next(n for n in (config.tile_n, 64) if scoring.blocks[1] % n == 0)
        config = replace(config, tile_m=tile_m, tile_n=tile_n, warpgroups=2)
    return config


def forward_reads(
    scoring: Scoring, tables: Sequence[torch.Tensor], sinks: torch.Tensor | None, lists: Sequence[torch.Tensor]
) -> tuple[Any, ...]:
    """Return what a forward kernel takes of the tensors that a scoring reads."""
    return (tuple(map(_in_memory, tables)) or None, sinks, tuple(lists) or None) if scoring.suffix else ()


def backward_reads(scoring: Scoring, tables: Sequence[torch.Tensor], lists: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Return what a backward kernel takes."""
    return (tuple(map(_in_memory, tables)) or None, tuple(lists) or None) if scoring.suffix else ()


def _in_memory(table: torch.Tensor) -> torch.Tensor:
    """Return a table as a kernel reads it: truth values as bytes, and a single element in one dimension."""
    table = table.view(torch.uint8) if table.dtype == torch.bool else table
    return table if table.dim() else table.reshape(1)


def table_dtype(table: torch.Tensor) -> str:
    """Return the dtype of a table, as a kernel reads it."""
    return "uint8" if table.dtype == torch.bool else dtype_name(table.dtype)


def _rows(dtype: str, name: str, tokens: str, heads: str, head: int) -> TensorSpec:
    """Describe (batch, tokens, heads, head): any strides that TMA takes."""
    strides = tuple(f"{name}_{mode}" for mode in ("batch", "token", "head"))
    return TensorSpec(
        dtype,
        ("batch", tokens, heads, head),
        strides=(*strides, 1),
        divisibility=dict.fromkeys(strides, UNIT_BYTES // 2),
        nonempty=("batch", tokens, heads),
    )


_STATS = TensorSpec("float32", ("batch", "heads", 2, "padded"), divisibility={"padded": 4})
_SUMS = TensorSpec("float32", ("batch", "heads", "rows", DQ_COLUMNS))
_LSE = TensorSpec("float32", ("batch", "heads", "queries"))


def _score_specs(scoring: Scoring) -> dict[str, Any]:
    """Describe what the functions of scores read, tables of any strides; sinks; and lists of blocks."""
    tables = []
    for table, dtype in zip([] if scoring.graph is None else scoring.graph.tables, scoring.dtypes, strict=True):
        names = [f"{table.name}_{mode}" for mode in range(table.rank)]
        steps = tuple(f"{name}_stride" for name in names) or (1,)
        tables.append(TensorSpec(dtype, tuple(names) or (1,), strides=steps, align=getattr(torch, dtype).itemsize))
    sinks = TensorSpec("float32", ("heads",), align=4) if scoring.sinks else None
    lists = None
    if scoring.blocks:
        places = ("batch", "heads", "block_rows")
        lists = tuple(
            TensorSpec(
                "int32",
                (*places, "blocks")[:rank],
                strides=tuple(f"list{n}_{mode}" for mode in range(rank)),
                align=4,
            )
            for n, rank in enumerate((3, 4, 3, 4))
        )
    return {"tables": tuple(tables) or None, "sinks": sinks, "lists": lists} if scoring.suffix else {}


@cache
def compile_forward(config: ForwardConfig) -> Function:
    """Compile the forward kernel of a configuration, unless memory or disk has it; needs no GPU."""
    q, o = (
        _rows(config.dtype, name, "queries", "heads", head) for name, head in (("q", config.head), ("o", config.head_v))
    )
    k, v = (
        _rows(config.dtype, name, "keys", "kv_heads", head) for name, head in (("k", config.head), ("v", config.head_v))
    )
    kernel = Deferred("cutepy.kernels.attention.forward:Forward", config)
    found = compile(kernel, q, k, v, o, _LSE, 1.0, 1, 1, 1, sources=SOURCES, **_score_specs(config.scoring))
    return found.without_lazy_check().with_smem_plan(config.smem)


@cache
def compile_backward(config: BackwardConfig) -> Function:
    """Compile the backward kernel of a configuration, unless memory or disk has it; needs no GPU."""
    q, do = (_rows(config.dtype, name, "queries", "heads", config.head) for name in ("q", "do"))
    k, v, dk, dv = (_rows(config.dtype, name, "keys", "kv_heads", config.head) for name in ("k", "v", "dk", "dv"))
    kernel = Deferred("cutepy.kernels.attention.backward:Backward", config)
    read = {name: spec for name, spec in _score_specs(config.scoring).items() if name != "sinks"}
    found = compile(kernel, q, k, v, do, _STATS, _SUMS, dk, dv, 1.0, 1, 1, 1, sources=SOURCES, **read)
    return found.without_lazy_check().with_smem_plan(config.smem)


@cache
def compile_statistics(config: BackwardConfig) -> Function:
    """Compile the kernel before backward, unless memory or disk has it; needs no GPU."""
    o, do = (_rows(config.dtype, name, "queries", "heads", config.head) for name in ("o", "do"))
    kernel = Deferred("cutepy.kernels.attention.rows:Statistics", config.head)
    return compile(kernel, o, do, _LSE, _STATS, _SUMS, sources=SOURCES).without_lazy_check()


@cache
def compile_rows_of_dq(config: BackwardConfig) -> Function:
    """Compile the kernel after backward, unless memory or disk has it; needs no GPU."""
    dq = _rows(config.dtype, "dq", "queries", "heads", config.head)
    kernel = Deferred("cutepy.kernels.attention.rows:RowsOfDq", config)
    return compile(kernel, _SUMS, dq, 1.0, sources=SOURCES).without_lazy_check()
