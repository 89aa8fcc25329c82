"""Numbers that a traced program doesn't know: symbols of `torch.compile` and `torch.export`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cutepy.epilogues.graph import Graph
from cutepy.epilogues.symbols import is_symbol


def with_tensors(graph: Graph, given: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Give an epilogue's operands with tensors of one element in the place of numbers that are symbols.

    A program takes such tensors as they come, where it would be compiled again for each value of a number.

    Examples
    --------
    >>> from cutepy.epilogues.functions import identity
    >>> with_tensors(identity.graph, {}, torch.device("cpu"))
    {}
    """
    return {operand.name: _held(operand.type, given[operand.name], device) for operand in graph.operands}


def _held(kind: str, value: Any, device: torch.device) -> Any:  # noqa: ANN401
    if not is_symbol(value):
        return value
    if isinstance(value, (int, torch.SymInt)):
        dtype = torch.int32 if kind == "i32" else torch.float32
        return torch.full((), value, dtype=dtype, device=device)  # type: ignore[arg-type]
    if kind == "i32":  # is refused
        return value
    # torch.compile knows of products, and of few other operations, how to have a tensor in the place of the float.
    return (torch.ones((), dtype=torch.float64, device=device) * value).float()
