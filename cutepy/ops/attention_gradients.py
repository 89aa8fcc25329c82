"""Launch of attention's gradients: one plan for all tensors of a description, kept in a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from cutepy.host.launches import Launches, described
from cutepy.kernels.attention.config import Lengths
from cutepy.kernels.attention.op import backward_reads, plan_backward
from cutepy.ops.attention_arguments import Tensors, View, go, way_to
from cutepy.ops.attention_functions import of_tables, scoring_of
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE


class GradientSettings(NamedTuple):
    """Settings of attention's gradients: the arguments that are numbers and text.

    Attributes
    ----------
    scale : float
    left, right : int or None
        The band's bounds.
    is_ordered : bool
        True if sums must be the same from run to run.
    functions : str
        As of `cutepy.ops.attention_functions`.
    block_size : sequence of int
        Queries and keys of a block.
    derived : sequence of int
        Places of the tables that get gradients.
    most_keys : int or None
        Keys of the longest sequence, where there are lengths.
    """

    scale: float
    left: int | None
    right: int | None
    is_ordered: bool
    functions: str
    block_size: Sequence[int] = ()
    derived: Sequence[int] = ()
    most_keys: int | None = None


class _Plan(NamedTuple):
    ways: tuple[View | None, ...]
    launch: Callable[..., torch.Tensor]


_plans: Launches[_Plan] = Launches()


def launch_gradients(
    given: tuple[torch.Tensor, ...],
    lse: torch.Tensor,
    dlse: torch.Tensor | None,
    grads: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    settings: GradientSettings,
    tables: Tensors,
    dtables: torch.Tensor,
    lists: Tensors = (),
    lengths: Lengths | None = None,
) -> torch.Tensor:
    """Write the gradients of q, k and v, and add those of tables.

    Parameters
    ----------
    given : tuple of Tensor
        dO, q, k, v and o.
    lse, dlse, grads, lengths
        As `plan_backward`'s function takes them.
    tables, dtables
        As of `cutepy.ops.attention_functions`.
    lists : sequence of Tensor
        Lists of a block mask.

    Returns
    -------
    Tensor
        The rows' statistics.
    """
    of_lengths = None if lengths is None else (lengths.count, *map(type, lengths.tensors))
    numbers = *settings.block_size, None, *settings.derived, settings.most_keys
    modes = EXECUTION.backend is None, INVARIANCE.on
    key = (*settings[:5], *numbers, of_lengths, len(tables), *modes, *described(*given, dlse, *tables, *lists))
    plan = _plans.get(key)
    if plan is None:
        plan = _plans.keep(key, _find_plan(given, dlse, settings, tables, lengths))
    read = backward_reads(tables, lists, of_tables(dtables, tables, settings.derived))
    passed = None if lengths is None else lengths.tensors
    return plan.launch(*go(plan.ways, given), lse, dlse, grads, passed, read)


def _find_plan(
    given: tuple[torch.Tensor, ...],
    dlse: torch.Tensor | None,
    settings: GradientSettings,
    tables: Tensors,
    lengths: Lengths | None,
) -> _Plan:
    """Plan the launch for gradients of tensors of this description, and compile the kernels."""
    ways = tuple(map(way_to, given))
    _, q, k, v, _ = go(ways, given)
    scoring = scoring_of(settings.functions, tables, None, settings.block_size, settings.derived)
    how = *settings[:3], lengths, settings.most_keys, scoring
    return _Plan(ways, plan_backward(q, k, v, *how, has_dlse=dlse is not None, is_ordered=settings.is_ordered))
