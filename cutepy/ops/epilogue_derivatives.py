"""The derivative of an epilogue, by torch: gradients by the sums, and by the operands that are tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def differentiate(
    evaluate: Callable[[torch.Tensor, Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    acc: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor | None],
    owned: torch.Tensor | None = None,
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
    owned : Tensor, bool, optional
        Which elements of the results mean something: gradients of the others count as zero.
    """
    floating = [n for n, tensor in enumerate(tensors) if tensor.is_floating_point()]

    def epilogue(acc: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        all_given = list(tensors)
        for n, tensor in zip(floating, given, strict=True):
            all_given[n] = tensor
        return tuple(evaluate(acc, all_given))

    differentiated: Any = torch.func.vjp(epilogue, acc, *(tensors[n] for n in floating))
    results, pull = differentiated
    whole = []
    for result, grad in zip(results, grads, strict=True):
        own = torch.zeros_like(result) if grad is None else grad.to(result.dtype)
        whole.append(own if owned is None else torch.where(owned, own, 0))
    grad_acc, *by_tensor = pull(tuple(whole))
    grad_tensors: list[torch.Tensor | None] = [None] * len(tensors)
    for n, gradient in zip(floating, by_tensor, strict=True):
        grad_tensors[n] = gradient
    return grad_acc, grad_tensors
