"""Attention with functions of its scores as an operation of PyTorch, and its gradients.

Functions are passed as `cutepy.ops.attention_functions` has them. Lists of blocks (`cutepy.ops.block_masks`) are a list
of tensors too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.attention import reference
from cutepy.kernels.attention.config import ScoreSettings
from cutepy.kernels.attention.op import forward_reads, plan_forward
from cutepy.kernels.gemm.operands import dtype_name
from cutepy.ops import shardings
from cutepy.ops.attention_arguments import (
    BACKWARD,
    FORWARD,
    adds_in_order,
    check,
    flops,
    flops_backward,
    go,
    grads_like,
    results_like,
    way_to,
)
from cutepy.ops.attention_functions import (
    Tensors,
    beside,
    check_scoring,
    derived_of,
    dsinks_like,
    dsinks_of,
    dtables_like,
    gradients_of,
    read_by,
    scoring_of,
)
from cutepy.ops.attention_gradients import GradientSettings, launch_gradients
from cutepy.ops.block_masks import lists_of
from cutepy.ops.registration import register_both
from cutepy.ops.schemas import schema_of
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

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
    """Trace the functions of scores, masks and weights, and compute attention with them; arguments as of `prepare`."""
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
    blocks: list[torch.Tensor] = []
    size: list[int] = []
    if block_mask is not None:
        if not hasattr(block_mask, "mask_mod"):
            raise TypeError(
                f"block_mask must be made by cutepy.ops.block_mask or torch's create_block_mask, got "
                f"{type(block_mask).__name__}; pass a function as mask"
            )
        if functions[3] is not None or left is not None or right is not None:
            raise ValueError(
                "a block mask is all that hides keys, got also a mask, a window or causal; put it into the function "
                "that the block mask is made of"
            )
        functions = (*functions[:3], block_mask.mask_mod, functions[4])
        blocks, size = lists_of(block_mask, q, k)
    sinks, tables, text = read_by(q, functions, sinks, dropout_p)
    return sinks, tables, blocks, text, size


class _AttentionArguments(NamedTuple):
    """Arguments of the operation after q, k and v.

    Attributes
    ----------
    sinks : Tensor (heads,), float32, or None
    tables : list of Tensor
    blocks : list of Tensor
        Lists of a block mask (`cutepy.ops.block_masks`).
    functions : str
        As of `cutepy.ops.attention_functions`.
    block_size : list of int
        Queries and keys of a block.
    scale : float
    left, right : int or None
        The band's bounds.
    deterministic : bool
    """

    sinks: torch.Tensor | None
    tables: Tensors
    blocks: Tensors
    functions: str
    block_size: Sequence[int]
    scale: float
    left: int | None
    right: int | None
    deterministic: bool

    @property
    def how(self) -> tuple[float, int | None, int | None]:
        """Scale and bounds."""
        return self.scale, self.left, self.right

    def check(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Check all that can be told without data."""
        check(q, k, v, self.scale)
        check_scoring(q, self.sinks, self.tables, self.functions, (*q.shape[:2], k.shape[1]))

    def reference(self, derived: Sequence[int] = ()) -> reference.ReferenceAttention:
        """Return the reference in plain torch."""
        return reference.ReferenceAttention(
            self.functions, self.tables, self.sinks, self.blocks, self.block_size, derived=derived
        )


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    _AttentionArguments(*rest).check(q, k, v)
    return results_like(q, v)


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    given = _AttentionArguments(*rest)
    given.check(q, k, v)
    o, lse = given.reference().forward(q, k, v, *given.how)
    return o.contiguous(), lse


def _keep(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:  # noqa: ANN401
    ctx.set_materialize_grads(False)
    q, k, v, *rest = inputs
    given = _AttentionArguments(*rest)
    ctx.derived, ctx.how = derived_of(given.functions, ctx.needs_input_grad[4]), rest[3:]
    ctx.save_for_backward(q, k, v, *output, given.sinks, *given.tables, *given.blocks)
    ctx.count = len(given.tables)


def _backward(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[Any, ...]:  # noqa: ANN401
    q, k, v, o, lse, sinks, *rest = ctx.saved_tensors
    tables, blocks, derived = rest[: ctx.count], rest[ctx.count :], ctx.derived
    do = torch.zeros_like(o) if do is None else do
    given = sinks, tables, blocks, *ctx.how
    dq, dk, dv, dsinks, dtables = _scored_backward(do, q, k, v, o, lse, dlse, *given, derived)
    grads = None if sinks is None else dsinks, gradients_of(dtables, tables, derived)
    return dq, dk, dv, *grads, *(None,) * (len(_AttentionArguments._fields) - 2)


@register_both(
    f"cutepy::scored_attention({FORWARD}, {schema_of(_AttentionArguments)}) -> (Tensor, Tensor)",
    reference=_reference,
    fake=_fake,
    setup_context=_keep,
    backward=_backward,
    autocast=("q", "k", "v"),
    sharding=shardings.of_scored_attention,
    flops=flops,
)
def _scored(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    given = _AttentionArguments(*rest)
    sinks, blocks, tables = given.sinks, given.blocks, beside(q, given.tables)
    key = (given.functions, *given.block_size, *given.how, EXECUTION.backend is None, INVARIANCE.on, len(tables))
    key = (*key, *described(q, k, v, sinks, *tables, *blocks))
    launch = _launches.get(key)
    if launch is None:
        given._replace(tables=tables).check(q, k, v)
        scoring = scoring_of(given.functions, tables, sinks, given.block_size)
        launch = _launches.keep(key, find_launch(q, k, v, *given.how, scoring))
    return launch((q, k, v), sinks, tables, blocks)  # type: ignore[no-any-return]


def find_launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    left: int | None,
    right: int | None,
    scoring: ScoreSettings,
    dtype: torch.dtype | None = None,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Plan the launch for tensors of this description, and compile the kernel.

    Results have q's dtype, or another; `options` are those of `plan_forward`.
    """
    if 0 in q.shape or not k.shape[1]:
        return partial(_of_nothing, dtype)
    result = "" if dtype is None else dtype_name(dtype)
    launch = plan_forward(q, k, v, scale, left, right, scoring=scoring, result=result, **options)
    ways = tuple(map(way_to, (q, k, v)))

    def run(
        given: tuple[torch.Tensor, ...],
        sinks: torch.Tensor | None,
        tables: Tensors,
        blocks: Tensors,
        scales: Sequence[torch.Tensor | None] = (),
    ) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = results_like(given[0], given[2], dtype)
        launch(*go(ways, given), o, lse, None, forward_reads(tables, sinks, blocks[:4], scales))
        return o, lse

    return run


def _of_nothing(
    dtype: torch.dtype | None, given: tuple[torch.Tensor, ...], sinks: torch.Tensor | None, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of no queries, or of no keys: sinks are all that rows have."""
    o, lse = results_like(given[0], given[2], dtype)
    return o.zero_(), lse.fill_(-math.inf) if sinks is None else lse.copy_(sinks[:, None].expand_as(lse))


Grads = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Gradients of q, k, v and the sinks, and those of tables, one after another."""


def _fake_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    *rest: Any,  # noqa: ANN401
) -> Grads:
    *given, derived = rest
    return *grads_like(q, k, v), dsinks_like(q, given[0]), dtables_like(q, given[1], derived)


def _reference_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    *rest: Any,  # noqa: ANN401
) -> Grads:
    *given, derived = rest
    asked = _AttentionArguments(*given)
    dq, dk, dv, dsinks, dtables = asked.reference(derived).backward(do, q, k, v, dlse, *asked.how)
    dsinks = dsinks_like(q, None) if dsinks is None else dsinks
    return dq.contiguous(), dk.contiguous(), dv.contiguous(), dsinks, dtables


@register_both(
    f"cutepy::scored_attention_backward({BACKWARD}, {schema_of(_AttentionArguments)}, int[] derived) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
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
    *rest: Any,  # noqa: ANN401
) -> Grads:
    *asked, derived = rest
    given = _AttentionArguments(*asked)
    sinks, blocks, tables = given.sinks, given.blocks, beside(q, given.tables)
    is_ordered = adds_in_order(deterministic=given.deterministic, has_lists=bool(blocks), has_tables=bool(derived))
    grads, dsinks, dtables = grads_like(q, k, v), dsinks_like(q, sinks), dtables_like(q, tables, derived)
    if 0 in q.shape or not k.shape[1]:
        for each in (*grads, dsinks):
            each.zero_()
        if sinks is not None and dlse is not None:
            dsinks += dlse.sum((0, 2))
        return *grads, dsinks, dtables
    settings = GradientSettings(*given.how, is_ordered, given.functions, given.block_size, derived)
    stats = launch_gradients((do, q, k, v, o), lse, dlse, grads, settings, tables, dtables, blocks[4:])
    return *grads, dsinks if sinks is None else dsinks_of(sinks, stats), dtables
