"""Plan launches of softmax, losses and activations for tensors of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from cutepy.device import rules
from cutepy.host.launches import OptionalTensor
from cutepy.host.specs import TensorSpec, dtype_name
from cutepy.kernels.rows.compilation import (
    SCALE,
    SCALES,
    VECTOR_BYTES,
    check_rows,
    compile_rows,
    elems_of,
    numbers_spec,
    specs_of,
)
from cutepy.kernels.rows.config import (
    DENORMAL_STEP,
    KEY_BITS,
    LIMITS,
    CrossEntropyConfig,
    GatedConfig,
    QuantiseConfig,
    RotaryConfig,
    SampleConfig,
    SelectionConfig,
    SoftmaxConfig,
)
from cutepy.kernels.rows.tiling import (
    LEAST_CTA,
    NORM,
    SAMPLE,
    SELECTION,
    SOFTMAX,
    SOFTMAX_GRADIENT,
    SUM_WARPS,
    RowFit,
    RowTiling,
    part_few_rows,
    pieces_of_selection,
    power_of_two,
    room_of_selection,
    sorters_of,
    staged_bytes,
    stages_rows,
    tile_lanes,
    tile_pieces,
    tile_rows,
)
from cutepy.layouts.sm90 import arch

Launch = Callable[..., None]


def _tile(fit: RowFit, staged: Sequence[torch.Tensor], *others: OptionalTensor) -> tuple[RowTiling, int]:
    """Choose the tiling of the rows of tensors (rows, columns) that are read and written together.

    Returns
    -------
    RowTiling, int
        And the bytes of shared memory that an element takes where the rows of `staged` wait there.

    Raises
    ------
    ValueError
        If there are more rows than a launch has indices for.
    """
    rows, columns = staged[0].shape
    check_rows(rows)
    elems = elems_of(*staged, *others)
    taken = staged_bytes(columns, elems, *(each.element_size() for each in staged))
    return tile_rows(columns, elems, fit, taken), taken


def _part(*tensors: OptionalTensor, held: int = 8, in_warp: int = 0) -> RowTiling:
    """Part the rows of tensors (rows, columns) over CTAs without a cluster: nothing is reduced over a row.

    Each of 128 threads of a CTA holds `held` elements, measured as `RowFit`; or each lane `in_warp` of a row that one
    warp can hold so.
    """
    given = [each for each in tensors if each is not None]
    rows, columns = given[0].shape
    check_rows(rows)
    elems = elems_of(*given)
    pieces = -(-columns // elems)
    vectors = max(1, (in_warp if columns <= in_warp * arch.WARP_THREADS else held) // elems)
    threads = min(LEAST_CTA, power_of_two(-(-pieces // vectors)))
    return RowTiling(elems, threads, vectors, power_of_two(-(-pieces // (vectors * threads))))


def plan_quantise(x: torch.Tensor, y: torch.Tensor, *, scaled: str) -> Launch:
    """Plan and compile the quantisation of rows, with one scale for the "tensor", for each "row" or each "block".

    Returns
    -------
    callable
        Launches (x, y, scales): of a tensor (1,), else (rows, 1 or blocks), fp32, which it computes.
    """
    rows, columns = x.shape
    check_rows(rows)
    elems = elems_of(x, y)
    width = max(elems, 4)  # 8-bit floats are converted by fours
    taken = staged_bytes(columns, elems, x.element_size())
    least = rules.K_BLOCK // width if scaled == "block" else 1
    tiling = part_few_rows(tile_rows(columns, width, NORM, taken, least), rows)
    staged = stages_rows(tiling, rows, taken)
    of_x, of_y = specs_of(elems, x=x, y=y)
    config = QuantiseConfig(tiling, dtype_name(y.dtype), scaled, staged)
    if scaled != "tensor":
        found = compile_rows("quantise:Quantise", config, of_x, of_y, None, SCALES, None)
        return lambda x, y, scales: found(x, y, None, scales, None)
    find = compile_rows("quantise:Quantise", QuantiseConfig(tiling, staged=staged), of_x, None, None, None, SCALES)
    divide = compile_rows("quantise:Quantise", config, of_x, of_y, SCALE, None, None)
    limit = LIMITS[config.dtype]

    def launch(x: torch.Tensor, y: torch.Tensor, scale: torch.Tensor) -> None:
        largest = x.new_empty((rows, 1), dtype=torch.float32)
        find(x, None, None, None, largest)
        most = largest.amax()
        # By a number, torch's CUDA kernel multiplies with the reciprocal, which may round to another scale.
        scale.copy_(torch.where(most == 0, 1.0, most / most.new_full((), limit) + DENORMAL_STEP))
        divide(x, y, scale, None, None)

    return launch


def plan_softmax(x: torch.Tensor, y: torch.Tensor, *, logarithm: bool) -> Launch:
    """Plan and compile the softmax for rows of this description: launches (x, y)."""
    of_many, taken = _tile(SOFTMAX, [x], y)
    tiling = part_few_rows(of_many, x.shape[0], SOFTMAX)
    staged = stages_rows(tiling, x.shape[0], taken)
    config = SoftmaxConfig(tiling, logarithm, staged, rolls=staged and tiling.ctas > 1)
    return compile_rows("softmax:Softmax", config, *specs_of(tiling.elems, x=x, y=y))


def plan_softmax_backward(dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor, *, logarithm: bool) -> Launch:
    """Plan and compile the gradient of a softmax for rows of this description: launches (dy, y, dx)."""
    tiling, taken = _tile(SOFTMAX_GRADIENT, [dy, y], dx)
    config = SoftmaxConfig(tiling, logarithm, taken > 0)
    return compile_rows("softmax:SoftmaxBackward", config, *specs_of(tiling.elems, dy=dy, y=y, dx=dx))


def plan_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    losses: torch.Tensor,
    *,
    smooths: bool,
    adds_z: bool,
) -> Launch:
    """Plan and compile the cross entropy for logits (rows, columns) of this description.

    Returns
    -------
    callable
        Launches: (logits, target, weight, losses, lse, ignore_index, smoothing, z).
    """
    check_rows(logits.shape[0])
    tiling = tile_pieces(logits.shape[1], elems_of(logits, weight))
    config = CrossEntropyConfig(tiling, smooths, adds_z)
    of_logits, of_weight = specs_of(tiling.elems, logits=logits, weight=weight)
    vectors = numbers_spec(target.dtype), of_weight, *[numbers_spec(losses.dtype)] * 2
    return compile_rows("cross_entropy:CrossEntropy", config, of_logits, *vectors, 1, 1.0, 1.0)


def plan_cross_entropy_backward(
    dlosses: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: OptionalTensor,
    dlogits: torch.Tensor,
    *,
    smooths: bool,
    adds_z: bool,
) -> Launch:
    """Plan and compile the gradient of a cross entropy for logits of this description; dlogits may be the logits.

    Returns
    -------
    callable
        Launches: (dlosses, logits, target, weight, lse, dlogits, ignore_index, smoothing, z).
    """
    # The sum of the weights takes a whole row.
    sums = smooths and weight is not None
    if sums:
        check_rows(logits.shape[0])
        tiling = tile_rows(logits.shape[1], elems_of(logits, dlogits, weight))
    else:
        tiling = _part(logits, dlogits, weight, held=16, in_warp=32)
    config = CrossEntropyConfig(tiling, smooths, adds_z)
    of_logits, of_weight, of_dlogits = specs_of(tiling.elems, logits=logits, weight=weight, dlogits=dlogits)
    of_row, of_target = numbers_spec(dlosses.dtype), numbers_spec(target.dtype)
    specs = of_row, of_logits, of_target, of_weight, of_row, of_dlogits, 1, 1.0, 1.0
    return compile_rows("cross_entropy:CrossEntropyBackward", config, *specs)


def plan_mean(
    losses: torch.Tensor, target: torch.Tensor, weight: OptionalTensor, total: torch.Tensor, *, divides: bool
) -> Launch:
    """Plan and compile the sum or the mean of losses of this description.

    Returns
    -------
    callable
        Launches: (losses, target, weight, total (1,), divisor (1,) of float32 or None, classes, ignore_index).
    """
    check_rows(losses.shape[0])
    (of_weight,) = specs_of(1, weight=weight)
    results = TensorSpec(dtype_name(total.dtype), (1,), align=2), SCALE if divides else None
    return compile_rows(
        "mean:MeanOfLosses", SUM_WARPS, numbers_spec(), numbers_spec(target.dtype), of_weight, *results, 1, 1
    )


def _heads_spec(
    name: str, tensor: torch.Tensor, elems: int, extents: tuple[str, str, str] = ("batch", "tokens", "heads")
) -> TensorSpec:
    """Describe a tensor (batch, tokens, heads, head) whose heads are any whole vectors apart."""
    strides = tuple(f"{name}_{extent}" for extent in ("batch", "token", "head"))
    return TensorSpec(
        dtype_name(tensor.dtype),
        (*extents, tensor.shape[3]),
        strides=(*strides, 1),
        divisibility=dict.fromkeys(strides, elems),
        align=elems * tensor.element_size(),
    )


def _table_spec(name: str, tensor: torch.Tensor, elems: int) -> TensorSpec:
    """Describe a table of angles (rows, width), which is read in vectors of 16 bytes at most."""
    unit = min(VECTOR_BYTES, elems * tensor.element_size())
    strides, divisibility = (name, 1), {name: unit // tensor.element_size()}
    return TensorSpec(
        dtype_name(tensor.dtype), ("rows", tensor.shape[1]), strides=strides, divisibility=divisibility, align=unit
    )


def plan_rotary(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: OptionalTensor,
    y: torch.Tensor,
    *,
    interleaved: bool,
) -> Launch:
    """Plan and compile the rotation for heads of this description: x, y (batch, tokens, heads, head).

    Returns
    -------
    callable
        Launches: (x, cos, sin, positions, y, offset, sign).

    Raises
    ------
    ValueError
        If a launch has no indices for so many heads.
    """
    batch, tokens, heads, head = x.shape
    width, elems = cos.shape[1], elems_of(x, y, cos, sin)
    check_rows(batch * tokens * heads)
    while width % elems or head % elems:
        elems //= 2
    config = RotaryConfig(elems, head, width, interleaved)
    places = None
    if positions is not None:
        size = positions.element_size()
        places = TensorSpec(
            dtype_name(positions.dtype), ("batch", "tokens"), strides=("p_batch", "p_token"), align=size
        )
    tables = _table_spec("cos", cos, elems), _table_spec("sin", sin, elems)
    ends = _heads_spec("x", x, elems), _heads_spec("y", y, elems)
    return compile_rows("rotary:Rotary", config, ends[0], *tables, places, ends[1], 1, 1.0)


def plan_rotary_cached(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    lengths: torch.Tensor,
    table: OptionalTensor,
    y: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    interleaved: bool,
) -> Launch:
    """Plan and compile the rotation of new tokens into a cache, for tensors of this description.

    Returns
    -------
    callable
        Launches these arguments.

    Raises
    ------
    ValueError
        If a launch has no indices for so many heads.
    """
    batch, tokens, heads, head = q.shape
    width, elems = cos.shape[1], elems_of(q, k, v, keys, values, y, cos, sin)
    check_rows(batch * tokens * (heads + 2 * k.shape[2]))
    while width % elems or head % elems:
        elems //= 2
    config = RotaryConfig(elems, head, width, interleaved)
    of_tables = _table_spec("cos", cos, elems), _table_spec("sin", sin, elems)
    new, cached = ("batch", "tokens", "kv_heads"), ("places" if table is not None else "batch", "room", "kv_heads")
    size = lengths.element_size()
    of_lengths = TensorSpec(dtype_name(lengths.dtype), ("batch",), strides=("length",), align=size)
    of_table = None
    if table is not None:
        of_table = TensorSpec(dtype_name(table.dtype), ("batch", "pages"), strides=("table", 1), align=4)
    return compile_rows(
        "rotary_cached:RotaryCached",
        config,
        _heads_spec("q", q, elems),
        *(_heads_spec(name, each, elems, new) for name, each in (("k", k), ("v", v))),
        *of_tables,
        of_lengths,
        of_table,
        _heads_spec("y", y, elems),
        *(_heads_spec(name, each, elems, cached) for name, each in (("keys", keys), ("values", values))),
    )


def plan_gated(gate: torch.Tensor, up: torch.Tensor, y: torch.Tensor, *, activation: str) -> Launch:
    """Plan and compile the gated activation for rows of this description: launches (gate, up, y)."""
    tiling = _part(gate, up, y)
    return compile_rows("gated:Gated", GatedConfig(tiling, activation), *specs_of(tiling.elems, gate=gate, up=up, y=y))


def plan_gated_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, dgate: torch.Tensor, dup: torch.Tensor, *, activation: str
) -> Launch:
    """Plan and compile the gradients of a gated activation: launches (dy, gate, up, dgate, dup)."""
    tiling = _part(gate, up, dy, dgate, dup)
    specs = specs_of(tiling.elems, dy=dy, gate=gate, up=up, dgate=dgate, dup=dup)
    return compile_rows("gated:GatedBackward", GatedConfig(tiling, activation), *specs)


def plan_topk(x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor, *, largest: bool) -> Launch:
    """Plan and compile the selection of the largest elements for rows of this description.

    Returns
    -------
    callable
        Launches (x, y, indices): y, indices (rows, k).
    """
    (rows, columns), k = x.shape, y.shape[1]
    check_rows(rows)
    lanes = tile_lanes(columns, elems_of(x), k) if x.element_size() == 2 else None
    if lanes is not None:
        config = SelectionConfig(lanes, k, power_of_two(k), lanes.threads, largest, columns == lanes.columns)
        return compile_rows("selection:TopKOfLanes", config, *specs_of(lanes.elems, x=x), *_selected_specs(y, indices))
    tiling = tile_rows(-(-columns // pieces_of_selection(rows, columns, k)), elems_of(x), SELECTION)
    pieces = -(-columns // tiling.columns)
    check_rows(rows, pieces)
    if pieces == 1:
        select = _compile_selection(tiling, k, largest, x, None, y, indices)
        return lambda x, y, indices: select(x, None, y, indices)
    found, sources = _candidates(x, pieces * k)
    first = _compile_selection(tiling, k, largest, x, None, found, sources)
    tiling = tile_rows(pieces * k, elems_of(found, sources), SELECTION)
    second = _compile_selection(tiling, k, largest, found, sources, y, indices)

    def launch(x: torch.Tensor, y: torch.Tensor, indices: torch.Tensor) -> None:
        found, sources = _candidates(x, pieces * k)
        first(x, None, found, sources)
        second(found, sources, y, indices)

    return launch


def _candidates(x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make empty candidates of each row, and their indices, rows of whole vectors apart."""
    room = x.shape[0], -(-count // VECTOR_BYTES) * VECTOR_BYTES
    return x.new_empty(room)[:, :count], x.new_empty(room, dtype=torch.int32)[:, :count]


def _compile_selection(
    tiling: RowTiling,
    k: int,
    largest: bool,
    x: torch.Tensor,
    sources: OptionalTensor,
    y: torch.Tensor,
    indices: torch.Tensor,
) -> Launch:
    room = room_of_selection(tiling, k)
    fills = sources is None and x.shape[1] % tiling.columns == 0
    config = SelectionConfig(tiling, k, room, sorters_of(tiling, room), largest, fills)
    specs = specs_of(tiling.elems, x=x, sources=sources)
    return compile_rows("selection:TopK", config, *specs, *_selected_specs(y, indices))


def _selected_specs(y: torch.Tensor, indices: torch.Tensor) -> list[TensorSpec]:
    """Describe the elements of each row that are selected, and their indices."""
    return [
        TensorSpec(dtype_name(each.dtype), ("rows", "selected"), strides=(name, 1), align=each.element_size())
        for name, each in (("y", y), ("indices", indices))
    ]


def plan_sample(
    logits: torch.Tensor, seeds: OptionalTensor, classes: torch.Tensor, *, k: int, cuts: bool, greedy: bool
) -> Launch:
    """Plan and compile the sampling for rows of this description.

    Returns
    -------
    callable
        Launches (logits, seeds, classes, seed, offset, inverse, p).
    """
    tiling = tile_rows(logits.shape[1], elems_of(logits), SAMPLE)
    check_rows(logits.shape[0], tiling.ctas)
    config = SampleConfig(tiling, KEY_BITS[dtype_name(logits.dtype)], k, cuts, greedy)
    of_seeds = None if seeds is None else TensorSpec("int64", (1,), align=8)
    specs = *specs_of(tiling.elems, logits=logits), of_seeds, numbers_spec(classes.dtype)
    return compile_rows("sampling:Sample", config, *specs, 1, 1, 1.0, 1.0)
