"""Attention as an operation of PyTorch: softmax(scale Q K^T) V with causal and windowed masks, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from cutepy.epilogues.scores import MaskFunction, ScoreFunction
from cutepy.host.launches import Launches, described, maker_of
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.op import plan_backward, plan_forward
from cutepy.kernels.gemm.operands import UNIT_BYTES
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    ALL_KEYS,
    AS_THEY_ARE,
    View,
    Window,
    adds_in_order,
    bounds,
    check,
    check_dropout,
    factor,
    flops,
    flops_backward,
    go,
    grads_like,
    results_like,
    turned,
    unread,
    way_back,
    way_to,
)
from cutepy.ops.attention_scales import FLOAT8, refuse_scales
from cutepy.ops.checking import require_tensors
from cutepy.ops.foreign_arguments import refuse_unknown
from cutepy.ops.operation import GRADIENT, only_launches, road
from cutepy.ops.quantised_attention import quantised_attention
from cutepy.ops.registration import eager, register_both
from cutepy.ops.scored_attention import scored_attention
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Launch = Callable[..., tuple[torch.Tensor, torch.Tensor]]
"""Takes q, k and v, and perhaps the other arguments of the operation, which it knows."""
OutputLaunch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_launches: Launches[Launch | OutputLaunch] = Launches()
_of_gradients: Launches[Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = Launches()


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: Window = ALL_KEYS,
    scale: float | None = None,
    return_lse: bool = False,
    soft_cap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    score: ScoreFunction | None = None,
    mask: MaskFunction | None = None,
    operands: Mapping[str, Any] | None = None,
    block_mask: Any = None,  # noqa: ANN401
    sinks: torch.Tensor | None = None,
    deterministic: bool = False,
    dropout_p: float = 0.0,
    q_scale: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Compute softmax(scale q k^T) v for each head.

    Several heads of q may share one of k and v: head h of q uses head h // (heads / kv heads). The last query is at the
    position of the last key. A query that sees no key has an output of zeros.

    Parameters
    ----------
    q : Tensor (batch, queries, heads, head)
        float16, bfloat16 or float8_e4m3fn, head a multiple of 16 up to 256. Any strides; rows that are not contiguous,
        or begin elsewhere than at multiples of 16 bytes, are copied first.
    k : Tensor (batch, keys, kv heads, head)
    v : Tensor (batch, keys, kv heads, head of v)
    causal : bool
        True if a query sees no key after its position.
    window : (int or None, int or None)
        Keys before and after a query's position that it sees; -1 or None for all. A number -n below -1 begins
        n after its position, or ends n before it.
    scale : float, optional
        Positive factor of the scores; 1 / sqrt(head) if not given.
    return_lse : bool
        True to return the natural logarithms of the rows' sums of exp(score) too.
    soft_cap : float, optional
        Positive number that scores are bent to stay below: soft_cap * tanh(score / soft_cap), to within 2^-11 of it.
    alibi_slopes : Tensor (heads,) or (batch, heads), optional
        Factors of the distance between a key and a query's position, which is subtracted from their score. Behind the
        soft cap.
    score : callable, optional
        ``score(s, b, h, i, j, **operands)``, the score of query i and key j from the scaled one: see
        `cutepy.ops.flex_attention`. Behind the soft cap and the slopes.
    mask : callable, optional
        ``mask(b, h, i, j, **operands)``, true where query i sees key j.
    operands : mapping of str to Tensor or number, optional
        Passed to the functions that have parameters of these names. Tensors that change scores are differentiable, as
        are those that the functions use otherwise.
    block_mask : BlockMask, optional
        Blocks that are seen, of `cutepy.ops.block_mask` or torch's `create_block_mask`, in place of a mask.
    sinks : Tensor (heads,), optional
        Logits that join the sums of each head's rows, and so the logarithms. Differentiable.
    deterministic : bool
        True for gradients that are the same from run to run, as after `torch.use_deterministic_algorithms(True)`: parts
        of dQ are added in a fixed order, for which CTAs wait. Not with a block mask, nor for gradients of tensors that
        functions use.
    dropout_p : float
        Probability that a key is dropped after the softmax; the others get 1 / (1 - dropout_p) times their weight.
        What is dropped follows from the place and a seed that torch's generator draws.
    q_scale, k_scale, v_scale : Tensor, optional
        Positive factors of float8_e4m3fn, float32: one element, (batch, kv heads) for heads, or
        (batch, kv heads, ceil(keys / 128)) for each 128 tokens of them; of q also with its own heads.
    out_dtype : float16 or bfloat16, optional
        Of the output of float8_e4m3fn; bfloat16 if not given.

    Returns
    -------
    Tensor (batch, queries, heads, head of v), or a pair of it and a Tensor (batch, heads, queries) of float32
        Differentiable, but for float8_e4m3fn.

    Raises
    ------
    TypeError
        If the dtypes are others, or differ.
    ValueError
        If the shapes don't match, or a setting is out of range.
    NotImplementedError
        If a gradient, or dropout, is asked for that there isn't.

    Examples
    --------
    >>> import torch
    >>> q, k, v = (torch.randn(2, 100, 4, 64, dtype=torch.bfloat16) for _ in range(3))
    >>> attention(q, k, v, causal=True).shape
    torch.Size([2, 100, 4, 64])
    """
    try:
        left, right = (None, 0 if causal else None) if window is ALL_KEYS else bounds(window, causal=causal)
        if dropout_p != 0.0:
            check_dropout(dropout_p)
        elif (
            (soft_cap is None and alibi_slopes is None and score is None and mask is None and operands is None)
            and (block_mask is None and sinks is None and q_scale is None and k_scale is None and v_scale is None)
            and (out_dtype is None or out_dtype == q.dtype)
            and q.dtype != FLOAT8
        ):
            if return_lse:
                return _attention(q, k, v, factor(q, scale), left, right, deterministic)
            return _output(q, k, v, scale, left, right, deterministic)
        scale, scales = factor(q, scale), (q_scale, k_scale, v_scale)
        functions = (soft_cap, alibi_slopes, score, mask, operands)
        if q.dtype == FLOAT8:
            o, lse = quantised_attention(
                q, k, v, scales, functions, block_mask, sinks, scale, left, right, out_dtype, dropout_p
            )
        else:
            refuse_scales(q, scales, out_dtype)
            how = scale, left, right, deterministic, dropout_p
            o, lse = scored_attention(q, k, v, functions, block_mask, sinks, *how)
        return (o, lse) if return_lse else o
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(attention, locals())
        raise


def _output(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    left: int | None,
    right: int | None,
    deterministic: bool,
    *,
    by_heads: bool = False,
) -> torch.Tensor:
    """Compute attention without functions of scores, and without the logarithms.

    With `by_heads` tensors are (batch, heads, tokens, head), and so is the output.
    """
    way = 0 if torch.compiler.is_compiling() else road((q, k, v))
    if not only_launches(way):
        if by_heads:
            q, k, v = turned(q), turned(k), turned(v)
        o, _ = _attention.along(way, (q, k, v, factor(q, scale), left, right, deterministic))
        return turned(o) if by_heads else o
    is_derived = way > GRADIENT
    launch = _launch_of(q, k, v, scale, left, right, has_lse=is_derived, by_heads=by_heads)
    if not is_derived:
        return launch(q, k, v)  # type: ignore[no-any-return]
    differentiated = _differentiated_by_heads if by_heads else _attention.differentiated
    o, _ = differentiated(launch, (q, k, v, factor(q, scale), left, right, deterministic))  # type: ignore[misc]
    return o  # type: ignore[no-any-return]


def _launch_of(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    left: int | None,
    right: int | None,
    *,
    has_lse: bool,
    by_heads: bool = False,
) -> Any:  # noqa: ANN401
    """Return the launch for tensors of this description: it gives the output, with `has_lse` also the logarithms.

    With `by_heads` q, k, v and the output have heads before tokens: a plan has the views of them that kernels take.
    """
    # All that decides the launch.
    key: tuple[Any, ...]
    key = (scale, left, right, has_lse, by_heads, EXECUTION.backend is None, INVARIANCE.on, q.shape, q.stride())
    key += (q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device, v.shape, v.stride(), v.dtype, v.device)
    if (q.data_ptr() | k.data_ptr() | v.data_ptr()) % UNIT_BYTES:
        key += tuple(math.gcd(each.data_ptr(), UNIT_BYTES) for each in (q, k, v))
    launch = _launches.get(key)
    if launch is None:
        scale, see = factor(q, scale), turned if by_heads else None
        seen = (turned(q), turned(k), turned(v)) if by_heads else (q, k, v)
        check(*seen, scale)
        launch = _launches.keep(key, _find_launch(q, k, v, scale, left, right, see, has_lse=has_lse))
    return launch


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute attention with the arguments of `torch.nn.functional.scaled_dot_product_attention`.

    A query that sees no key has an output of zeros, as torch's has.

    Parameters
    ----------
    query, key, value : Tensor (..., heads, tokens, head)
        With `enable_gqa`, heads of query may share those of key and value. Modes before the heads are broadcast;
        tensors of three modes have one head.
    attn_mask : Tensor, optional
        Added to the scores, and differentiable, or of truth values: whether a query sees a key. Broadcast to
        (..., heads, queries, keys). Or one of torch's causal biases, of which nothing is read.
    dropout_p : float
        Probability of each key to be dropped, as of `cutepy.ops.attention`.
    is_causal : bool
        True if a query sees no key after its own index: torch aligns the first query with the first key.
    scale : float, optional
        Positive factor of the scores; 1 / sqrt(head) if not given.
    """
    try:
        if dropout_p != 0.0:
            check_dropout(dropout_p)
        elif attn_mask is None and _is_plain(of_query := query.shape, of_key := key.shape, value.shape, enable_gqa):
            right = of_query[2] - of_key[2] if is_causal else None
            return _output(query, key, value, scale, None, right, False, by_heads=True)
        return _padded(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except (AttributeError, IndexError, TypeError, ValueError):
        require_tensors(scaled_dot_product_attention, locals())
        raise


def _padded(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """Compute attention of arguments that need checks, broadcasts or padding first, or have a mask or dropout."""
    if min(each.dim() for each in (query, key, value)) < 3:
        raise ValueError(
            f"query, key and value must be (..., heads, tokens, head), got shapes {tuple(query.shape)}, "
            f"{tuple(key.shape)} and {tuple(value.shape)}; view them so"
        )
    if query.dim() == 3:
        query, key, value = (each.unsqueeze(1) for each in (query, key, value))
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
        return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale).squeeze(1)
    if not enable_gqa and query.shape[-3] != key.shape[-3]:
        raise ValueError(
            f"query and key must have the same heads, got {query.shape[-3]} and {key.shape[-3]}; use enable_gqa=True"
        )
    if is_causal and attn_mask is not None:
        raise ValueError(
            f"a causal call must have no attn_mask, got one of shape {tuple(attn_mask.shape)}; put both into one"
        )
    right, scale = query.shape[-2] - key.shape[-2] if is_causal else None, factor(query, scale)
    if variant := getattr(attn_mask, "variant", None):  # torch's CausalBias, whose module is not imported for it
        right, attn_mask = (0 if variant.name == "LOWER_RIGHT" else query.shape[-2] - key.shape[-2]), None
    batch = torch.broadcast_shapes(*(each.shape[:-3] for each in (query, key, value)))
    widths = _widths(query, key, value)
    q, k, v = (
        _of_batch(torch.nn.functional.pad(each, (0, width - each.shape[-1])) if width > each.shape[-1] else each, batch)
        for each, width in zip((query, key, value), widths, strict=True)
    )
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    if attn_mask is None and not dropout_p:
        o = _output(q, k, v, scale, None, right, False)
    else:
        score = mask = operands = None
        if attn_mask is not None:
            shape = (*batch, *query.shape[-3:-1], key.shape[-2])
            operands = {"table": _of_batch(_mask_of(attn_mask, shape), batch)}
            score, mask = (None, _seen) if attn_mask.dtype == torch.bool else (_added, None)
        functions = (None, None, score, mask, operands)
        o, _ = scored_attention(q, k, v, functions, None, None, scale, None, right, False, dropout_p)
    o = o.transpose(1, 2)[..., : value.shape[-1]]
    return o if len(batch) == 1 else o.reshape(*batch, *o.shape[1:])


def _is_plain(query: torch.Size, key: torch.Size, value: torch.Size, enable_gqa: bool) -> bool:
    """Return whether tensors of these shapes need neither padding nor broadcasting, nor are refused for their heads."""
    if not len(query) == len(key) == len(value) == 4 or not (enable_gqa or query[1] == key[1]):
        return False
    return query[0] == key[0] == value[0] and query[3] == value[3] and query[3] % 16 == 0


def _widths(*given: torch.Tensor) -> tuple[int, int, int]:
    """Return how wide rows of q, k and v must be: as kernels take them, and equal where they have gradients."""
    width, of_values = (-(-given[n].shape[-1] // 16) * 16 for n in (0, 2))
    if torch.is_grad_enabled() and any(each.requires_grad for each in given):
        width = of_values = max(width, of_values)
    return width, width, of_values


def _of_batch(tensor: torch.Tensor, batch: torch.Size) -> torch.Tensor:
    """View a tensor, with its modes before the last three broadcast to those of a batch, with a batch of one mode."""
    if tensor.dim() == 4 and tensor.shape[:1] == batch:
        return tensor
    return tensor.expand(*batch, *tensor.shape[-3:]).reshape(-1, *tensor.shape[-3:])


def _mask_of(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """View a mask, broadcast to all scores."""
    if not (mask.is_floating_point() or mask.dtype == torch.bool):
        raise TypeError(f"attn_mask must hold truth values or floats, got {mask.dtype}; convert it")
    places = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.dim() > len(shape) or any(extent not in (1, wanted) for extent, wanted in places):
        raise ValueError(
            f"attn_mask must broadcast to (..., heads, queries, keys), here {shape}, got shape {tuple(mask.shape)}; "
            "slice or expand it"
        )
    return mask.expand(shape)


def _added(s: Any, b: Any, h: Any, i: Any, j: Any, table: Any) -> Any:  # noqa: ANN401
    return s + table[b, h, i, j]


def _seen(b: Any, h: Any, i: Any, j: Any, table: Any) -> Any:  # noqa: ANN401
    return table[b, h, i, j]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = ALL_KEYS,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    **unknown: object,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, None]:
    """Compute attention with the arguments of flash-attn's `flash_attn_func`.

    The scales of float8_e4m3fn are those of `attention`. With `return_attn_probs` the results are the output, the
    logarithms of the rows' sums, and None for what is dropped.
    """
    if unknown:
        refuse_unknown(flash_attn_func, unknown)
    results = attention(
        q,
        k,
        v,
        causal=causal,
        window=window_size,
        scale=softmax_scale,
        soft_cap=softcap or None,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
        dropout_p=dropout_p,
        q_scale=q_descale,
        k_scale=k_descale,
        v_scale=v_descale,
        return_lse=return_attn_probs,
    )
    return (*results, None) if return_attn_probs else results


def _fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(q, k, v, scale)
    return results_like(q, v)


def _reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    check(q, k, v, scale)
    o, lse = reference.forward(q, k, v, scale, left, right)
    return o.contiguous(), lse


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)
    q, k, v, *ctx.how = inputs
    ctx.save_for_backward(q, k, v, *output)


def _backward(
    ctx: Any,  # noqa: ANN401
    do: torch.Tensor | None,
    dlse: torch.Tensor | None,
    *,
    by_heads: bool = False,
) -> tuple[Any, ...]:
    q, k, v, o, lse = ctx.saved_tensors
    given = torch.zeros_like(o) if do is None else do, q, k, v, o
    way = 0 if torch.compiler.is_compiling() else road((*given, lse, dlse))
    if only_launches(way) and way < GRADIENT:
        grads: Iterable[torch.Tensor] = _launch_gradients(*given, lse, dlse, *ctx.how, by_heads=by_heads)
    elif by_heads:
        grads = map(turned, _attention_backward.along(way, (*map(turned, given), lse, dlse, *ctx.how)))
    else:
        grads = _attention_backward.along(way, (*given, lse, dlse, *ctx.how))
    return *grads, None, None, None, None


@register_both(
    "cutepy::attention",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("q", "k", "v"),
    sharding=shardings.of_attention,
    flops=flops,
)
def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _launch_of(q, k, v, scale, left, right, has_lse=True)(q, k, v)  # type: ignore[no-any-return]


_differentiated_by_heads = eager(_attention, _keep, partial(_backward, by_heads=True))


def _see_nothing(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor) -> None:
    """Compute attention without keys, or of nothing."""
    o.zero_()
    lse.fill_(-math.inf)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    see: View | None,
    *,
    has_lse: bool,
) -> Launch | OutputLaunch:
    """Plan the launch for tensors of this description, and compile the kernel.

    `see` views the tensors, and the output.
    """
    ways = way_to(q, see), way_to(k, see), way_to(v, see)
    is_taken, (take_q, take_k, take_v) = ways != AS_THEY_ARE, (way or _as_it_is for way in ways)
    if see is not None:
        q, k, v = see(q), see(k), see(v)
    batch, queries, heads, _ = q.shape
    shape, rows = (batch, queries, heads, v.shape[3]), (batch, heads, queries)
    make, back = maker_of(q, shape, q.dtype), way_back(shape, see)
    launch = _see_nothing if 0 in q.shape or not k.shape[1] else plan_forward(q, k, v, scale, left, right)
    if not has_lse:
        lse = unread(q, rows)

        def run_output(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            o = make()
            if is_taken:
                q, k, v = take_q(q), take_k(k), take_v(v)
            launch(q, k, v, o, lse)
            return o if back is None else back(o)

        return run_output
    make_lse = maker_of(q, rows, torch.float32)

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = make(), make_lse()
        if is_taken:
            q, k, v = take_q(q), take_k(k), take_v(v)
        launch(q, k, v, o, lse)
        return o if back is None else back(o), lse

    return run


def _fake_backward(do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: object) -> Any:  # noqa: ANN401
    return grads_like(q, k, v)


def _reference_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dq, dk, dv = reference.backward(do, q, k, v, dlse, scale, left, right)
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


@register_both(
    "cutepy::attention_backward",
    reference=_reference_backward,
    fake=_fake_backward,
    sharding=shardings.of_attention_backward,
    flops=flops_backward,
)
def _attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _launch_gradients(do, q, k, v, o, lse, dlse, scale, left, right, deterministic)


def _launch_gradients(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    *how: Any,  # noqa: ANN401
    by_heads: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients; with `by_heads` they, dO, q, k, v and o have heads before tokens."""
    scale, left, right, deterministic = how
    asked = scale, left, right, adds_in_order(deterministic=deterministic)
    key = (*asked, by_heads, EXECUTION.backend is None, INVARIANCE.on, *described(do, q, k, v, o, dlse))
    launch = _of_gradients.get(key)
    if launch is None:
        see = turned if by_heads else None
        launch = _of_gradients.keep(key, _find_gradients(do, q, k, v, o, dlse, *asked, see))
    return launch(do, q, k, v, o, lse, dlse)


def _find_gradients(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    dlse: torch.Tensor | None,
    scale: float,
    left: int | None,
    right: int | None,
    is_ordered: bool,
    see: View | None,
) -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Plan the launch for gradients of tensors of this description, and compile the kernels.

    `see` views the tensors, and the gradients.
    """
    ways = tuple(way_to(each, see) for each in (do, q, k, v, o))
    if see is not None:
        q, k, v = see(q), see(k), see(v)
    make_dq, make_dk, make_dv = (maker_of(each, each.shape) for each in (q, k, v))
    backs = tuple(way_back(each.shape, see) for each in (q, k, v))
    if 0 in q.shape or not k.shape[1]:
        return lambda *_: go(backs, (make_dq().zero_(), make_dk().zero_(), make_dv().zero_()))  # type: ignore[return-value]
    launch = plan_backward(q, k, v, scale, left, right, has_dlse=dlse is not None, is_ordered=is_ordered)

    def run(
        do: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        dlse: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        grads = make_dq(), make_dk(), make_dv()
        if any(ways):
            do, q, k, v, o = go(ways, (do, q, k, v, o))
        launch(do, q, k, v, o, lse, dlse, grads)
        return grads if see is None else go(backs, grads)  # type: ignore[return-value]

    return run
