"""What is done for products of groups, found once for tensors of one description: copies for TMA, and a launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.functions import identity
from cutepy.epilogues.graph import Graph, Operand
from cutepy.kernels.gemm.operands import UNIT_BYTES, Description
from cutepy.kernels.gemm.routes import as_vector, narrowed
from cutepy.kernels.grouped.config import RAGGED, Along
from cutepy.kernels.grouped.op import GroupedProblem, Launch, has_one_for_each, plan_grouped, reached
from cutepy.runtime.execution import EXECUTION
from cutepy.runtime.invariance import INVARIANCE

Take = Callable[[Any], Any]

_MOST_LAUNCHES = 4096
_launches: dict[tuple[Any, ...], Launch] = {}


def launch_groups(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    results: Sequence[torch.Tensor],
    epilogue: str = identity.text,
    operands: Sequence[Any] = (),
) -> None:
    """Compute an epilogue of the product of each group into results, by the kernel; what belongs to no group stays.

    All has been checked. Rows and columns have one dimension, or one for each group where that may be.
    """
    key: tuple[Any, ...] = (along, epilogue, EXECUTION.backend is None, INVARIANCE.on)
    for each in (a, b, groups, *operands, *results):
        if isinstance(each, torch.Tensor):
            key += (each.shape, each.stride(), each.dtype, each.device, each.data_ptr() % UNIT_BYTES == 0)
        else:
            key += (type(each),)
    launch = _launches.get(key)
    if launch is None:
        if len(_launches) >= _MOST_LAUNCHES:
            _launches.clear()
        launch = _launches[key] = _route(a, b, groups, along, results, epilogue, operands)
    launch(a, b, groups, operands, results)


class _Route(NamedTuple):
    """Copy what TMA can't reach, launch, and copy back what could not be written to.

    Attributes
    ----------
    launch : Launch
    a, b : callable or None
        What becomes of them first, if something does.
    operands, results : tuple of (callable or None)
        Of each.
    """

    launch: Launch
    a: Take | None
    b: Take | None
    operands: tuple[Take | None, ...]
    results: tuple[Take | None, ...]

    def compute(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        groups: torch.Tensor,
        operands: Sequence[Any],
        results: Sequence[torch.Tensor],
    ) -> None:
        given = [_taken(take, each) for take, each in zip(self.operands, operands, strict=True)]
        written = [_taken(take, each) for take, each in zip(self.results, results, strict=True)]
        self.launch(_taken(self.a, a), _taken(self.b, b), groups.contiguous(), given, written)
        for result, got in zip(results, written, strict=True):
            if got is not result:
                result.copy_(got[..., : result.shape[-2], : result.shape[-1]])


def _taken(take: Take | None, given: Any) -> Any:  # noqa: ANN401
    return given if take is None else take(given)


def _route(
    a: torch.Tensor,
    b: torch.Tensor,
    groups: torch.Tensor,
    along: Along,
    results: Sequence[torch.Tensor],
    epilogue: str,
    operands: Sequence[Any],
) -> Launch:
    """Decide what is copied, and have the kernel compiled."""
    count, graph = groups.shape[0], Graph.parse(epilogue)
    if not count or not math.prod(results[0].shape):
        return _nothing
    padded = a.dim() == b.dim() == results[0].dim() == 3
    modes = RAGGED[along]
    (take_a, seen_a), (take_b, seen_b) = _reaching("a", a, modes[0]), _reaching("b", b, modes[1])
    taken = [
        _taking(operand, each, along, padded, results[0].shape, count)
        for operand, each in zip(graph.operands, operands, strict=True)
    ]
    made = [_reaching("out", each, modes[2]) for each in results]
    seen = tuple(description for _, description in made)
    given = tuple(description for _, description in taken)
    problem = GroupedProblem(seen_a, seen_b, seen, count, along, padded, epilogue, given)
    plan, takes = plan_grouped(problem), (take_a, take_b, *(take for take, _ in (*taken, *made)))
    if groups.is_contiguous() and not any(takes):
        return plan
    return _Route(plan, take_a, take_b, tuple(t for t, _ in taken), tuple(t for t, _ in made)).compute


def _nothing(*_: Any) -> None:  # noqa: ANN401
    """Compute nothing."""


def _reaching(name: str, tensor: torch.Tensor, ragged_mode: int | None) -> tuple[Take | None, Description]:
    """Tell how matrices become such that TMA reaches, None if they are, and what these are."""
    given = Description.of(tensor)
    found = reached(name, given, ragged_mode)
    if found is not None and tensor.data_ptr() % UNIT_BYTES == 0 and 0 not in given.shape:
        return None, given
    copy = partial(_copied, mode=1 if ragged_mode is None else 1 - ragged_mode)
    return copy, Description.of(copy(tensor.to("meta")))._replace(device=tensor.device)


def _copied(tensor: torch.Tensor, mode: int) -> torch.Tensor:
    """Copy matrices to such that are contiguous along a mode, in whole units of 16 bytes, the rest zero.

    Without any K a copy has some, of zeros.
    """
    rows = tensor if mode == 1 else tensor.mT
    (count, given), unit = rows.shape[-2:], UNIT_BYTES // tensor.dtype.itemsize
    copy = rows.new_empty((*rows.shape[:-2], max(count, 1), max(-(-given // unit), 1) * unit))
    copy[..., :count, :given] = rows
    copy[..., given:] = 0
    copy[..., count:, :] = 0
    return copy if mode == 1 else copy.mT


def _taking(
    operand: Operand,
    given: Any,  # noqa: ANN401
    along: Along,
    padded: bool,
    shape: Sequence[int],
    groups: int,
) -> tuple[Take | None, Description | None]:
    """Tell how an operand becomes what the kernel takes, and what that is; of a number, that there is none."""
    if not isinstance(given, torch.Tensor):
        return (int if operand.type == "i32" else float), None
    narrow = narrowed(given.dtype)
    if operand.shape == "tile":
        whole = given.expand(*shape[:-1], shape[-1] // operand.width)
        take, seen = _reaching(operand.name, whole, RAGGED[along][2])
        if take is None and whole.shape == given.shape:
            return None, seen
        return partial(_tile, shape=tuple(whole.shape), take=take), seen
    extents: tuple[int, ...] = (1,)
    if operand.shape != "scalar":
        each = has_one_for_each(operand.shape, along, padded)
        extents = (groups, given.shape[-1]) if each else (given.shape[-1],)
    take_vector = partial(as_vector, dtype=narrow, shape=extents)
    return take_vector, Description.of(take_vector(given.to("meta")))._replace(device=given.device)


def _tile(tensor: torch.Tensor, shape: tuple[int, ...], take: Take | None) -> torch.Tensor:
    result: torch.Tensor = _taken(take, tensor.expand(shape))
    return result
