"""Operands and scales of an epilogue as arguments of torch's operations: flattened, rebuilt, differentiated.

An operation takes the epilogue's text, its operands that are tensors in one list, numbers in another, and a letter for
each operand that tells which it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from cutepy.epilogues.graph import Graph, Operand
from cutepy.epilogues.reference import check_operand
from cutepy.epilogues.symbols import is_symbol
from cutepy.epilogues.tracing import Epilogue
from cutepy.kernels.gemm.scales import Block, Scales
from cutepy.ops.quantising import expanded

NUMBER, TENSOR = "n", "t"


def split(graph: Graph, values: Sequence[Any]) -> tuple[list[torch.Tensor], list[float], str]:
    """Part operands into tensors, numbers, and a letter for each.

    Raises
    ------
    EpilogueError
        If one is neither a tensor nor a number.
    """
    tensors: list[torch.Tensor] = []
    numbers: list[float] = []
    kinds = ""
    for operand, value in zip(graph.operands, values, strict=True):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            kinds += TENSOR
        else:
            check_operand(operand, value, ())
            numbers.append(float(value))
            kinds += NUMBER
    return tensors, numbers, kinds


def without_symbols(graph: Graph, values: Sequence[Any], device: torch.device) -> list[Any]:
    """Give operands with tensors of one element in the place of numbers that are symbols.

    A traced program takes such tensors as they come, where it would be compiled again for each value of a number.
    """
    return [_held(operand.type, value, device) for operand, value in zip(graph.operands, values, strict=True)]


def bound(graph: Graph, tensors: Sequence[torch.Tensor], numbers: Sequence[float], kinds: str) -> tuple[Any, ...]:
    """Put the tensors and numbers that an operation is passed in the order of the graph's operands."""
    from_tensors, from_numbers = iter(tensors), iter(numbers)
    values: list[Any] = []
    for operand, kind in zip(graph.operands, kinds, strict=True):
        value = next(from_tensors) if kind == TENSOR else next(from_numbers)
        values.append(int(value) if kind == NUMBER and operand.type == "i32" else value)
    return tuple(values)


def outs_of(epilogue: Epilogue, out: Any) -> list[torch.Tensor]:  # noqa: ANN401
    """List the tensors that receive an epilogue's results: one, a tuple or a dict of them, as it returns these.

    Raises
    ------
    TypeError
        If they are not as many, or have other names.
    """
    names = [result.name for result in epilogue.graph.results]
    if names == [""]:
        return [out]
    if names[0] == "0":
        if isinstance(out, (tuple, list)) and len(out) == len(names):
            return list(out)
        wanted = f"a tuple of {len(names)} tensors"
    else:
        if isinstance(out, Mapping) and out.keys() == set(names):
            return [out[name] for name in names]
        wanted = f"a dict of tensors with the keys {', '.join(names)}"
    got = f"the keys {', '.join(map(str, out))}" if isinstance(out, Mapping) else type(out).__name__
    raise TypeError(f"out must be {wanted}, as {epilogue.name} returns its results, got {got}")


class Rows(NamedTuple):
    """The rows of a product with one matrix B, and of all that goes with it, as those of one matrix.

    Attributes
    ----------
    leading : tuple of int
        The extents of the product before N.
    batched : bool
        Whether B is a batch: then all stays as it is.
    """

    leading: Sequence[int]
    batched: bool

    @property
    def as_they_are(self) -> bool:
        """True if there is nothing to join."""
        return self.batched or len(self.leading) == 1

    def joined(self, tensor: torch.Tensor) -> torch.Tensor:
        """Join the rows of a product."""
        return tensor if self.as_they_are else as_matrix(tensor)

    def operand(self, operand: Operand, value: Any, n: int) -> Any:  # noqa: ANN401
        """Join the rows of an operand, of a product of N columns."""
        if self.as_they_are or not isinstance(value, torch.Tensor) or operand.shape in ("scalar", "row"):
            return value
        if operand.shape == "column":
            return value.reshape(-1)
        columns = n // operand.width
        return value.expand(*(self.leading or (1,)), columns).reshape(math.prod(self.leading), columns)

    def result(self, graph: Graph, place: int, value: torch.Tensor) -> torch.Tensor:
        """View a result with the product's rows."""
        reduction = graph.reduction(graph.results[place])
        if self.as_they_are or (reduction is not None and reduction.dim != 1):
            return value
        return value.view((*self.leading, *value.shape[1:]))


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Join the leading dimensions of a tensor into one; a copy where they are not apart by one stride."""
    rank = tensor.dim()
    return tensor if rank == 2 else tensor.unsqueeze(0) if rank == 1 else tensor.flatten(0, -2)


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


def passed(scales: Scales | None) -> tuple[Any, ...]:
    """Return the operation's last arguments: both scales, their block sizes, and whether sums are promoted."""
    return () if scales is None else (scales.a, scales.b, [*scales.of_a, *scales.of_b], scales.promotes)


def scales_of(
    a: torch.Tensor | None, b: torch.Tensor | None, blocks: Sequence[int] = (), promotes: bool = False
) -> Scales | None:
    """Give the scales of these arguments, None without any."""
    if a is None or b is None:
        return None
    return Scales(a, b, Block(*blocks[:2]), Block(*blocks[2:]), promotes)


def in_double(
    a: torch.Tensor, b: torch.Tensor, scales: Scales | None, along_k: tuple[torch.Tensor | None, torch.Tensor | None]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Convert a and b to float64, multiplied by the scales that differ along K."""
    wide = [a.double(), b.double()]
    if scales is not None:
        for n, (scale, block) in enumerate(zip(along_k, (scales.of_a, scales.of_b), strict=True)):
            if scale is not None:
                # Rows of a dense product are those of one matrix to its scales.
                rows = wide[n] if scale.dim() == wide[n].dim() else as_matrix(wide[n])
                wide[n] = (rows * expanded(scale.double(), block, rows.shape)).view(wide[n].shape)
    return wide[0], wide[1]


def refuse_gradients(a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor | None) -> None:
    """Refuse gradients by scales and by 8-bit operands.

    Raises
    ------
    NotImplementedError
        If one of them requires grad.
    """
    for name, scale in zip(("scale_a", "scale_b"), scales, strict=False):
        if scale is not None and scale.requires_grad:
            raise NotImplementedError(f"products have no derivative by scales; detach {name}")
    if a.dtype.itemsize == 1 and (a.requires_grad or b.requires_grad):
        raise NotImplementedError(
            "products have no derivative by 8-bit operands, since gradients would need scales of their own; "
            "detach the operands, or convert them to bfloat16"
        )


def differentiate(
    evaluate: Callable[[torch.Tensor, Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    acc: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor | None],
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Pull the gradients of an epilogue's results back: (results...) -> (acc, tensors).

    Parameters
    ----------
    evaluate : callable
        The epilogue in plain torch: (acc, tensors) -> results.
    acc : Tensor
        The sums.
    tensors : sequence of Tensor
        The operands that are tensors; those of no floats have no gradient.
    grads : sequence of (Tensor or None)
        Of each result; None is zero.
    """
    floating = [n for n, tensor in enumerate(tensors) if tensor.is_floating_point()]

    def epilogue(acc: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        all_given = list(tensors)
        for n, tensor in zip(floating, given, strict=True):
            all_given[n] = tensor
        return tuple(evaluate(acc, all_given))

    differentiated: Any = torch.func.vjp(epilogue, acc, *(tensors[n] for n in floating))
    results, pull = differentiated
    pairs = zip(results, grads, strict=True)
    whole = tuple(torch.zeros_like(result) if grad is None else grad.to(result.dtype) for result, grad in pairs)
    grad_acc, *by_tensor = pull(whole)
    grad_tensors: list[torch.Tensor | None] = [None] * len(tensors)
    for n, gradient in zip(floating, by_tensor, strict=True):
        grad_tensors[n] = gradient
    return grad_acc, grad_tensors
