"""`CrossEntropyLoss`: torch's layer by `cutepy.ops.cross_entropy`."""

from __future__ import annotations

import torch

from cutepy.ops.checking import as_tensor
from cutepy.ops.cross_entropies import cross_entropy
from cutepy.ops.operation import past_modes


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Compute the cross entropy of logits and labels by `cutepy.ops.cross_entropy`.

    It is a `torch.nn.CrossEntropyLoss`: made by the same arguments, with the same buffers. Targets that are
    probabilities are torch's to compute.

    Attributes
    ----------
    weight : Tensor (classes,), or None
    ignore_index : int
    reduction : str
    label_smoothing : float

    Examples
    --------
    >>> import torch
    >>> CrossEntropyLoss(label_smoothing=0.1)(torch.zeros(2, 4), torch.tensor([1, 3]))
    tensor(1.3863)
    """

    @past_modes
    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the loss: parameters and results are those of `torch.nn.CrossEntropyLoss`."""
        if as_tensor("target", target).is_floating_point():
            return super().forward(input, target)
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
