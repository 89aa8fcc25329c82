"""Launch attention: choose, compile if necessary, and call the kernels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import torch

from cutepy.host.compilation import compile
from cutepy.host.declared import Deferred
from cutepy.host.function import Function
from cutepy.host.launches import maker_of
from cutepy.host.parallel_compilation import Variant
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.kernels.attention.choice import (
    INVARIANT_SPLITS,
    SHORT,
    are_few,
    choose_backward,
    choose_batches,
    choose_decode,
    choose_forward,
    ctas_of,
    gradients_by_counter,
    of_pages,
    splits_of,
    width_of_batches,
)
from cutepy.kernels.attention.config import (
    DQ_COLUMNS,
    NO_SCORING,
    BackwardConfig,
    CachedKeys,
    ForwardConfig,
    Lengths,
    ScoreSettings,
    SharedKeys,
)
from cutepy.kernels.attention.tuned import AttentionChoice, Problem, tuned
from cutepy.kernels.gemm.gpu import HOPPER, gpu_of
from cutepy.kernels.gemm.operands import UNIT_BYTES
from cutepy.kernels.gemm.workspaces import Workspaces, workspaces_of
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

SOURCES = ("cutepy.epilogues", "cutepy.layouts", "cutepy.device", "cutepy.kernels.attention")
"""Packages whose source, with a configuration, is the key of a compiled kernel."""
NOTHING_READ = (None, None, None, None)
"""Tables, sinks, lists of blocks and scales that a kernel without functions of the scores takes."""


def plan_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    lengths: Lengths | None = None,
    most_queries: int | None = None,
    scoring: ScoreSettings = NO_SCORING,
    result: str = "",
    scales: tuple[bool, ...] = (),
    block: int = 0,
    page: int = 0,
    packed: int = 1,
    chosen: AttentionChoice | None = None,
) -> Callable[..., None]:
    """Choose and compile attention for tensors of this description, which have elements and have been checked.

    Parameters
    ----------
    q, k, v : Tensor (batch, tokens, heads, head), or, with `lengths`, (tokens, heads, head)
    scale : float
        Factor of the scores, positive.
    left, right : int or None
        Keys before and after a query's position that it sees; None for all.
    lengths : Lengths, optional
        True or None for each: those of its tensors that will be given.
    most_queries : int, optional
        Queries of the longest sequence, by which tiles are chosen; with `lengths`.
    scoring : ScoreSettings
        Functions of the scores and sinks; without `lengths` also lists of blocks.
    result : str
        Of O, where q has 8 bits.
    scales : tuple of bool
        Which of q, k and v have scales, (batch, heads, blocks) of float32.
    block : int
        Tokens of a block of scales; 0 if all tokens are one.
    page : int
        Keys of a page, where `lengths` are those of sequences whose keys are in pages.
    packed : int
        Heads whose queries are rows of one tile. With `scoring`, or pages, no heads are.
    chosen : AttentionChoice, optional
        Instead of tuning's or the rules' choice; without `lengths`, `scoring` and `block`.

    Returns
    -------
    callable
        Takes q, k, v, O of their dtype (batch, queries, heads, head of v), the logarithms of the rows' sums (batch,
        heads, queries), fp32, and the lengths, if any, or a tuple of them, and writes O and the logarithms. Rows are
        contiguous; other strides and the addresses are multiples of 16 bytes. With `lengths` O is (queries, heads, head
        of v), and the logarithms have a batch of one. What the scoring reads, and the scales, come next
        (`forward_reads`), then the table of pages.
    """
    if lengths is None and chosen is None:
        left, right = _bounds_that_hide(left, right, q.shape[1], k.shape[1])
    bounds = left is not None, right is not None
    queries = q.shape[1] if most_queries is None else most_queries
    asked = dtype_name(q.dtype), q.shape[-1], v.shape[-1], queries
    is_uneven = bounds[1] or lengths is not None or scoring.blocks is not None
    of_batches = lengths is None and not scoring.suffix and not block and not page and packed == 1
    sm_count = gpu_of(q.device).sm_count
    if not of_batches:
        ctas = ctas_of(queries, is_uneven, sm_count)
        config = choose_forward(*asked, left=bounds[0], right=bounds[1])
        config = of_pages(scored_forward(config, scoring), page)
        config = replace(config, packed=1 if scoring.suffix or page else packed)
        if block:
            config = replace(config, block=block, tile_n=min(block, config.tile_n))
    elif chosen := chosen or tuned_for("forward", q, k, v, left, right):
        config, ctas = chosen.config, _ctas_of(chosen, q.device)  # type: ignore[assignment]
    else:
        config = choose_batches(*asked, q.shape[2] // k.shape[2], left=bounds[0], right=bounds[1])
        width = width_of_batches(config)
        ctas = sm_count if config.dynamic else ctas_of(queries, is_uneven, sm_count, width=width)
    config = replace(config, result=result)
    function = compile_forward(config, lengths, is_paged=page > 0, scales=scales)
    rest = scale, left or 0, right or 0, ctas
    if config.dynamic:
        count_tiles = _tiles_of(q.device)
        return lambda q, k, v, o, lse, lengths=None, read=NOTHING_READ, table=None: function(
            q, k, v, o, lse, *rest, lengths, table, None, None, *read, None, count_tiles()
        )
    return lambda q, k, v, o, lse, lengths=None, read=NOTHING_READ, table=None: function(
        q, k, v, o, lse, *rest, lengths, table, None, None, *read, None, None
    )


def _bounds_that_hide(left: int | None, right: int | None, queries: int, keys: int) -> tuple[int | None, int | None]:
    """Return the bounds of a window that hide a key from some query, and None for one that does not.

    Examples
    --------
    >>> _bounds_that_hide(4096, 0, 100, 100), _bounds_that_hide(98, 0, 1, 100)
    ((None, 0), (98, None))
    """
    # Queries are at positions keys - queries to keys - 1.
    hides_early, hides_late = left is not None and left < keys - 1, right is not None and right < queries - 1
    return left if hides_early else None, right if hides_late else None


def _tiles_of(device: torch.device) -> Callable[[], torch.Tensor]:
    """Return a function that gives the current stream's counter of tiles, of a dynamic configuration."""
    workspaces = (workspaces_of if EXECUTION.backend is None else Workspaces)(device, gpu_of(device).sm_count)
    return lambda: workspaces.take(0).counters


def tuned_for(
    kind: Literal["forward", "backward"],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    left: int | None,
    right: int | None,
) -> AttentionChoice | None:
    """Return the winner of tuning for tensors of this description, (batch, tokens, heads, head), on this kind of GPU.

    None if there is no winner; also within `batch_invariant`, since the winner depends on the batch.
    """
    if q.device.type != "cuda" or EXECUTION.backend is not None or INVARIANCE.on:
        return None
    return _tuned(kind, q.device, q.dtype, q.shape, v.shape, left, right)


@cache
def _tuned(
    kind: Literal["forward", "backward"],
    device: torch.device,
    dtype: torch.dtype,
    of_q: torch.Size,
    of_v: torch.Size,
    left: int | None,
    right: int | None,
) -> AttentionChoice | None:
    """Look a winner up once: gradients ask in each call."""
    (batch, queries, heads, head), (_, keys, kv_heads, head_v) = of_q, of_v
    extents = batch, queries, keys, heads, kv_heads, head, head_v
    return tuned(torch.cuda.get_device_name(device), Problem(kind, dtype_name(dtype), *extents, left, right))


def _ctas_of(chosen: AttentionChoice, device: torch.device) -> int:
    """Return how many CTAs to launch at most."""
    return gpu_of(device).sm_count if chosen.is_persistent else 1 << 30


def plan_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    given: Lengths | None,
    most_keys: int,
    page: int = 0,
    sharing: int | None = None,
    scoring: ScoreSettings = NO_SCORING,
    cached: CachedKeys | None = None,
    result: str = "",
    scales: tuple[bool, ...] = (),
) -> Callable[..., None]:
    """Choose and compile attention of few queries with many keys, which CTAs share.

    Parameters
    ----------
    q : Tensor (batch, queries, heads, head)
        At most 64 queries, those of heads that share keys one after another.
    k, v : Tensor (batch, keys, heads, head), or, with lengths, (keys, heads, head)
    scale, left, right
        As of `plan_forward`.
    given : Lengths or None
        True or None for each tensor of lengths, of keys only.
    most_keys : int
        Keys of the longest sequence, at most.
    page : int
        Keys of a page; 0 if they are not in pages.
    sharing : int or None
        Queries that share a position.
    scoring : ScoreSettings
        Functions of the scores of these rows, and sinks.
    cached : CachedKeys, optional
        Places of cached keys, if they are not one after another.
    result, scales
        As of `plan_forward`; scales are (sequences, heads, 1), of the heads of k.

    Returns
    -------
    callable
        Takes q, k, v, O, the logarithms, the lengths, or a tuple of them, and the table of pages, or None for these, as
        `plan_forward`'s, and what the scoring reads.
    """
    bounds = left is not None, right is not None
    dtype, head, head_v = dtype_name(q.dtype), q.shape[3], v.shape[-1]
    batch, queries, heads, _ = q.shape
    of_page: dict[str, Any] = {
        "left": bounds[0],
        "right": bounds[1],
        "page": page,
        "scoring": scoring,
        "result": result,
    }
    choose = partial(choose_decode, dtype, head, head_v, **of_page)
    config = choose(is_split=False)
    if INVARIANCE.on:
        splits = INVARIANT_SPLITS
    else:
        splits = splits_of(batch * heads, most_keys, config.tile_n, gpu_of(q.device).sm_count)
    rest = scale, left or 0, right or 0, 1 << 30
    options: dict[str, Any] = {"is_cached": True, "is_paged": page > 0, "sharing": sharing, "scales": scales}
    options["cached"] = None if cached is None else cached.given
    if splits == 1:
        function = compile_forward(config, given, **options)
        return lambda q, k, v, o, lse, lengths, table, read=NOTHING_READ: function(
            q, k, v, o, lse, *rest, lengths, table, None, sharing, *read, cached, None
        )
    config = choose(is_split=True)
    function, combine = compile_forward(config, given, **options), compile_combine(config)
    make_parts = maker_of(q, (batch, queries, splits * heads, head_v), torch.float32)
    make_lses = maker_of(q, (batch, splits * heads, queries), torch.float32)

    def launch(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        lengths: Lengths | tuple[torch.Tensor | None, ...] | None,
        table: torch.Tensor | None,
        read: tuple[Any, ...] = NOTHING_READ,
    ) -> None:
        parts, lses = make_parts(), make_lses()
        function(q, k, v, parts, lses, *rest, lengths, table, splits, sharing, *read, cached, None)
        combine(parts, lses, o, lse, None)

    return launch


def plan_cached(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    given: Lengths | None,
    page: int = 0,
    scoring: ScoreSettings = NO_SCORING,
    cached: CachedKeys | None = None,
    result: str = "",
    scales: tuple[bool, ...] = (),
) -> Callable[..., None]:
    """Choose and compile attention of many queries with cached keys, as `plan_decode` of few."""
    bounds = left is not None, right is not None
    config = choose_forward(dtype_name(q.dtype), q.shape[3], v.shape[-1], q.shape[1], left=bounds[0], right=bounds[1])
    config = of_pages(scored_forward(replace(config, result=result), scoring), page)
    ctas = ctas_of(q.shape[1], bounds[1] or given is not None, gpu_of(q.device).sm_count)
    options: dict[str, Any] = {"is_cached": True, "is_paged": page > 0, "scales": scales}
    function = compile_forward(config, given, **options, cached=None if cached is None else cached.given)
    rest = scale, left or 0, right or 0, ctas
    return lambda q, k, v, o, lse, lengths, table, read=NOTHING_READ: function(
        q, k, v, o, lse, *rest, lengths, table, None, None, *read, cached, None
    )


def plan_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    lengths: Lengths | None = None,
    most_keys: int | None = None,
    scoring: ScoreSettings = NO_SCORING,
    *,
    has_dlse: bool = False,
    is_ordered: bool = False,
    chosen: AttentionChoice | None = None,
) -> Callable[..., torch.Tensor]:
    """Choose and compile the gradients of Q, K and V for tensors of this description.

    dQ is summed in an order that differs from run to run, unless `is_ordered`, which needs scores without lists of
    blocks. With `lengths`, its tensors, tiles are dealt out by the keys of the longest sequence.

    Parameters
    ----------
    q, k, v, scale, left, right, scoring, chosen
        As of `plan_forward`.
    lengths : Lengths, optional
        Tensors of as many sequences as those of the launches.
    most_keys : int, optional
        Keys of the longest sequence; with `lengths`.
    has_dlse : bool
        True if the logarithms have a gradient.

    Returns
    -------
    callable
        Takes dO, Q, K, V, O, the logarithms, their gradient of any strides or None, the gradients to write, the
        lengths, if any, and what the scoring reads and adds to (`backward_reads`). Returns the rows' statistics, of
        `Backward`.
    """
    if lengths is None and chosen is None:
        left, right = _bounds_that_hide(left, right, q.shape[1], k.shape[1])
    bounds = left is not None, right is not None
    # Where no key is seen, all is 0.
    is_ordered = is_ordered and not (left is not None and right is not None and left + right < 0)
    given = None if lengths is None else lengths.given
    if lengths is None and not scoring.suffix:
        chosen = chosen or tuned_for("backward", q, k, v, left, right)
    queries, heads, head = q.shape[-3:]
    longest = queries if lengths is None or most_keys is None else most_keys
    config, statistics, backward, rows_of_dq = _backward_of(
        dtype_name(q.dtype),
        head,
        v.shape[-1],
        bounds,
        scoring,
        given,
        is_ordered,
        has_dlse,
        chosen,
        lengths is None and chosen is None and queries <= SHORT,
        is_short=are_few(longest, right=bounds[1]),
    )
    if lengths is None:
        batch, tiles = q.shape[0], -(-queries // config.tile_q)
    else:
        batch, tiles = 1, queries // config.tile_q + lengths.count + 1
    make_stats = maker_of(q, (batch, heads, 2, tiles * config.tile_q), torch.float32)
    make_sums = maker_of(q, (batch, heads, *config.sums_shape(tiles)), torch.float32)
    # In order, CTAs wait for others: all are on the GPU at one time.
    is_uneven = (bounds[1] or lengths is not None or scoring.blocks is not None) and not config.ordered
    ctas = ctas_of(longest, is_uneven, gpu_of(q.device).sm_count, max(head, v.shape[-1]))
    if config.dynamic:
        ctas = gpu_of(q.device).sm_count
    elif chosen is not None and not config.ordered:
        ctas = _ctas_of(chosen, q.device)
    of_counters = batch, heads, tiles * config.warpgroups
    rest, is_batch = (scale, left or 0, right or 0, ctas), q.dim() == 4
    count_tiles = _tiles_of(q.device) if config.dynamic else None

    def launch(
        do: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        dlse: torch.Tensor | None,
        grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        lengths: Lengths | tuple[torch.Tensor | None, ...] | None = None,
        read: tuple[Any, ...] = NOTHING_READ[:3],
    ) -> torch.Tensor:
        dq, dk, dv = grads
        stats, sums = make_stats(), make_sums()
        if dlse is not None:  # of sums over rows it is one number, expanded
            dlse = dlse.contiguous()
        rows_o, rows_do, rows_dq = (o, do, dq) if is_batch else (o[None], do[None], dq[None])
        statistics(rows_o, rows_do, lse, dlse, stats, sums, lengths)
        counters = q.new_zeros(of_counters, dtype=torch.int32) if config.ordered else None
        taken = None if count_tiles is None else count_tiles()
        backward(q, k, v, do, stats, sums, dk, dv, *rest, lengths, counters, *read, taken)
        rows_of_dq(sums, rows_dq, scale, lengths)
        return stats

    return launch


@cache
def _backward_of(
    dtype: str,
    head: int,
    head_v: int,
    bounds: tuple[bool, bool],
    scoring: ScoreSettings,
    given: Lengths | None,
    is_ordered: bool,
    has_dlse: bool,
    chosen: AttentionChoice | None,
    is_dealt: bool,
    *,
    is_short: bool,
) -> tuple[BackwardConfig, Function, Function, Function]:
    """Choose the configuration of a backward pass, and compile its kernels: statistics, gradients, rows of dQ."""
    left, right = bounds
    config = choose_backward(
        dtype, head, head_v, left=left, right=right, scoring=scoring, is_ragged=given is not None, is_short=is_short
    )
    if chosen is not None:
        config = chosen.config  # type: ignore[assignment]
    config = replace(config, ordered=is_ordered, dynamic=config.dynamic and not is_ordered)
    if is_dealt:
        config = gradients_by_counter(config, SHORT)
    statistics = compile_statistics(config, given, has_dlse=has_dlse)
    return config, statistics, compile_backward(config, given), compile_rows_of_dq(config, given)


def scored_forward(config: ForwardConfig, scoring: ScoreSettings) -> ForwardConfig:
    """Return a configuration with functions of the scores, and tiles that are whole parts of their blocks.

    Weights are computed beside the accumulators, for which three warpgroups have too few registers.
    """
    if not scoring.suffix:
        return config
    config = replace(config, scoring=scoring)
    if config.transposes:  # functions' values take the registers of wider tiles
        config = replace(config, tile_n=min(config.tile_n, 128))
    if scoring.weighs:
        config = replace(config, tile_m=128, warpgroups=2)
    if scoring.blocks:
        tile_m, tile_n = 128, next(n for n in (config.tile_n, 64) if scoring.blocks[1] % n == 0)
        config = replace(config, tile_m=tile_m, tile_n=tile_n, warpgroups=2)
    return config


def forward_reads(
    tables: Sequence[torch.Tensor],
    sinks: torch.Tensor | None,
    lists: Sequence[torch.Tensor],
    scales: Sequence[torch.Tensor | None] = (),
) -> tuple[Any, ...]:
    """Return a forward kernel's arguments of the tensors that a scoring reads, and of scales of Q, K and V, if any."""
    given = tuple(scales) if any(each is not None for each in scales) else None
    if sinks is None and not tables and not lists and given is None:
        return NOTHING_READ
    return (tuple(map(_in_memory, tables)) or None, sinks, tuple(lists) or None, given)


def backward_reads(
    tables: Sequence[torch.Tensor],
    lists: Sequence[torch.Tensor],
    dtables: Sequence[torch.Tensor | None] = (),
) -> tuple[Any, ...]:
    """Return a backward kernel's arguments: `dtables` are the gradients of tables, None for those without."""
    given = tuple(None if each is None else _in_memory(each) for each in dtables)
    return (
        tuple(map(_in_memory, tables)) or None,
        tuple(lists) or None,
        given if any(each is not None for each in given) else None,
    )


def _in_memory(table: torch.Tensor) -> torch.Tensor:
    """Return a table as a kernel reads it: truth values as bytes, and a single element in one dimension."""
    table = table.view(torch.uint8) if table.dtype == torch.bool else table
    return table if table.dim() else table.reshape(1)


def table_dtype(table: torch.Tensor) -> str:
    """Return the dtype of a table, as a kernel reads it."""
    return "uint8" if table.dtype == torch.bool else dtype_name(table.dtype)


def _rows(dtype: str, name: str, tokens: str, heads: str, head: int, *, is_ragged: bool = False) -> TensorSpec:
    """Describe (batch, tokens, heads, head), or (tokens, heads, head): any strides that TMA takes."""
    batch = () if is_ragged else ("batch",)
    strides = tuple(f"{name}_{mode}" for mode in (*batch, "token", "head"))
    return TensorSpec(
        dtype,
        (*batch, tokens, heads, head),
        strides=(*strides, 1),
        divisibility=dict.fromkeys(strides, UNIT_BYTES // getattr(torch, dtype).itemsize),
        nonempty=(*batch, tokens, heads),
    )


def _lengths(given: Lengths | None) -> Lengths | None:
    """Describe the lengths that are given."""
    if given is None:
        return None
    extents = {"q_begins": "bounds", "k_begins": "bounds", "q_used": "sequences", "k_used": "sequences"}
    return Lengths(
        **{
            name: TensorSpec("int32", (extent,), align=4) if getattr(given, name) else None
            for name, extent in extents.items()
        }
    )


_STATS = TensorSpec("float32", ("batch", "heads", 2, "padded"), divisibility={"padded": 4})
_SUMS = TensorSpec("float32", ("batch", "heads", "rows", DQ_COLUMNS))
_COUNTERS = TensorSpec("int32", ("batch", "heads", "parts"), align=4)
_LSE = TensorSpec("float32", ("batch", "heads", "queries"))


def _counter(config: ForwardConfig | BackwardConfig) -> dict[str, TensorSpec]:
    """Describe the counter of tiles, the first of some flags, if a kernel takes one."""
    return {"counter": TensorSpec("int32", ("flags",), align=4)} if config.dynamic else {}


def _dtables_specs(scoring: ScoreSettings) -> tuple[TensorSpec | None, ...] | None:
    """Describe the gradients of tables, contiguous; None where there are none."""
    if scoring.graph is None or not scoring.derived:
        return None
    specs = []
    for table in scoring.graph.tables:
        shape = tuple(f"{table.name}_{mode}" for mode in range(table.rank)) or (1,)
        specs.append(TensorSpec("float32", shape, align=4) if table.name in scoring.derived else None)
    return tuple(specs)


def _score_specs(scoring: ScoreSettings, heads: str = "heads") -> dict[str, Any]:
    """Describe the tensors that functions of scores read: tables of any strides, sinks of `heads`, lists of blocks."""
    tables = []
    for table, dtype in zip([] if scoring.graph is None else scoring.graph.tables, scoring.dtypes, strict=True):
        names = [f"{table.name}_{mode}" for mode in range(table.rank)]
        steps = tuple(f"{name}_stride" for name in names) or (1,)
        tables.append(TensorSpec(dtype, tuple(names) or (1,), strides=steps, align=getattr(torch, dtype).itemsize))
    sinks = TensorSpec("float32", (heads,), align=4) if scoring.sinks else None
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


def _scale_specs(given: tuple[bool, ...]) -> dict[str, Any]:
    """Describe the scales of Q, K and V that are given, of any strides: those of blocks of tokens, or of heads."""
    if not any(given):
        return {}
    specs = (
        TensorSpec(
            "float32",
            tuple(f"{name}_scale_{mode}" for mode in ("batch", "heads", "blocks")),
            strides=tuple(f"{name}_scale_stride{mode}" for mode in range(3)),
            align=4,
        )
        for name in "qkv"
    )
    return {"scales": tuple(spec if is_given else None for spec, is_given in zip(specs, given, strict=True))}


def _variant(kernel: str, config: ForwardConfig | BackwardConfig, *examples: Any, **named: Any) -> Variant:  # noqa: ANN401
    """Describe a kernel of a configuration as `cutepy.compile_many` takes it."""
    found = Deferred(f"cutepy.kernels.attention.{kernel}", config)
    return Variant(found, examples, named=named, name=config.name, sources=SOURCES, arch=HOPPER)


def _compiled(variant: Variant) -> Function:
    """Compile a variant, unless the disk has it."""
    found = compile(variant.function, *variant.examples, arch=variant.arch, sources=variant.sources, **variant.named)
    return found.without_lazy_check()


@cache
def compile_forward(config: ForwardConfig, lengths: Lengths | None = None, **options: Any) -> Function:  # noqa: ANN401
    """Compile the forward kernel of a configuration, unless memory or disk has it; needs no GPU.

    Parameters are those of `forward_variant`.
    """
    return _compiled(forward_variant(config, lengths, **options)).with_smem_plan(config.smem)


def forward_variant(
    config: ForwardConfig,
    lengths: Lengths | None = None,
    *,
    is_cached: bool = False,
    is_paged: bool = False,
    sharing: int | None = None,
    scales: tuple[bool, ...] = (),
    cached: CachedKeys | None = None,
) -> Variant:
    """Describe the forward kernel of a configuration.

    `lengths` has True for each of its tensors that will be given; `cached` has 1 for each number. Queries are in one
    matrix as keys are, unless the keys are cached. `scales` tells which of Q, K and V have scales.

    Raises
    ------
    ValueError
        If the configuration begins tiles early or finds them by fast divisors, and there are lengths; or if threads
        store parts, and there are none, or queries have lengths.
    """
    if lengths is not None and (config.begins_early or config.divides_fast or config.dynamic):
        raise ValueError(
            "begins_early, divides_fast and dynamic must be False with lengths, of which a CTA may have no tile; use "
            "what choose_forward gives, without for_batches"
        )
    has_queries = lengths is not None and not is_cached
    if config.stores_rows and (has_queries or not config.is_split):
        raise ValueError(
            "stores_rows must be False without is_split, and with lengths of queries, whose parts TMA stores; use it "
            "for cached keys"
        )
    of_results = "results" if config.is_split else "heads"
    q, k, v, o = (
        _rows(dtype, name, tokens, heads, head, is_ragged=is_ragged)
        for dtype, name, tokens, heads, head, is_ragged in (
            (config.dtype, "q", "queries", "heads", config.head, has_queries),
            (config.dtype, "k", "keys", "kv_heads", config.head, lengths is not None),
            (config.dtype, "v", "keys", "kv_heads", config.head_v, lengths is not None),
            (config.out_dtype, "o", "queries", of_results, config.head_v, has_queries),
        )
    )
    lse = TensorSpec("float32", ("batch", of_results, "queries"))
    table = TensorSpec("int32", ("sequences", "pages")) if is_paged else None
    splits = 1 if config.is_split else None
    given = _lengths(lengths), table, splits, None if sharing is None else 1
    read = _score_specs(config.scoring, "heads" if sharing is None else "all_heads") | _scale_specs(scales)
    examples = q, k, v, o, lse, 1.0, 1, 1, 1, *given
    return _variant("forward:Forward", config, *examples, **read, cached=cached, **_counter(config))


def backward_variants(
    config: BackwardConfig, lengths: Lengths | None = None, *, has_dlse: bool = False
) -> tuple[Variant, Variant, Variant]:
    """Describe the kernels of the gradients: of the rows' statistics, of K, V and the sums of dQ, and of dQ's rows."""
    is_ragged, given = lengths is not None, _lengths(lengths)
    q, do, k, v, dk, dv = (
        _rows(config.dtype, name, tokens, heads, head, is_ragged=is_ragged)
        for name, tokens, heads, head in (
            ("q", "queries", "heads", config.head),
            ("do", "queries", "heads", config.head_v),
            ("k", "keys", "kv_heads", config.head),
            ("v", "keys", "kv_heads", config.head_v),
            ("dk", "keys", "kv_heads", config.head),
            ("dv", "keys", "kv_heads", config.head_v),
        )
    )
    read = {name: spec for name, spec in _score_specs(config.scoring).items() if name != "sinks"}
    read["dtables"] = _dtables_specs(config.scoring)
    read |= _counter(config)
    examples = q, k, v, do, _STATS, _SUMS, dk, dv, 1.0, 1, 1, 1, given, _COUNTERS if config.ordered else None
    o, do, dq = (
        _rows(config.dtype, name, "queries", "heads", head)
        for name, head in (("o", config.head_v), ("do", config.head_v), ("dq", config.head))
    )
    dlse = _LSE if has_dlse else None
    return (
        _variant("rows:Statistics", config, o, do, _LSE, dlse, _STATS, _SUMS, given),
        _variant("backward:Backward", config, *examples, **read),
        _variant("rows:RowsOfDq", config, _SUMS, dq, 1.0, given),
    )


@cache
def compile_backward(config: BackwardConfig, lengths: Lengths | None = None) -> Function:
    """Compile the backward kernel of a configuration, unless memory or disk has it; needs no GPU."""
    return _compiled(backward_variants(config, lengths)[1]).with_smem_plan(config.smem)


@cache
def compile_statistics(config: BackwardConfig, lengths: Lengths | None = None, *, has_dlse: bool = False) -> Function:
    """Compile the kernel before backward, unless memory or disk has it; needs no GPU."""
    return _compiled(backward_variants(config, lengths, has_dlse=has_dlse)[0])


@cache
def compile_rows_of_dq(config: BackwardConfig, lengths: Lengths | None = None) -> Function:
    """Compile the kernel after backward, unless memory or disk has it; needs no GPU."""
    return _compiled(backward_variants(config, lengths)[2])


@cache
def compile_combine(config: ForwardConfig, shared: SharedKeys | None = None) -> Function:
    """Compile the kernel that combines parts of the keys, unless memory or disk has it; needs no GPU.

    `shared` has True for lengths and for bounds that will be given, if sequences share keys.
    """
    parts = _rows("float32", "parts", "queries", "results", config.head_v)
    o = _rows(config.result_dtype, "o", "queries", "heads", config.head_v)
    lses = TensorSpec("float32", ("batch", "results", "queries"))
    if shared is None:
        kernel = Deferred("cutepy.kernels.attention.combine:Combine", config.head_v)
        return compile(kernel, parts, lses, o, _LSE, None, arch=HOPPER, sources=SOURCES).without_lazy_check()
    kernel = Deferred("cutepy.kernels.attention.combine:Combine", config.head_v, (config.tile_m, config.tile_n))
    given = SharedKeys(
        _rows("float32", "shared_parts", "tokens", "shared_results", config.head_v, is_ragged=True),
        TensorSpec("float32", ("shared_results", "tokens")),
        1,
        1,
        TensorSpec("int32", ("batch",), align=4) if shared.lengths else None,
        *(1 if each else None for each in (shared.right, shared.sharing)),
    )
    return compile(kernel, parts, lses, o, _LSE, given, arch=HOPPER, sources=SOURCES).without_lazy_check()
