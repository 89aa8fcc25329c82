"""Oracle of the GEMM: activation(A B^T + C + bias) in float64, on the device of the operands."""

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

ACTIVATION_FUNCTIONS: Mapping[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}
"""Torch's functions by the names of activations."""


def gemm_reference(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Compute activation(A B^T + C + bias) in float64 from the operands' exact values.

    Parameters
    ----------
    a : Tensor, (..., M, K)
    b : Tensor, (..., N, K)
    c : Tensor, (..., M, N), optional
    bias : Tensor, (N,), optional
    activation : str, optional
        A key of `ACTIVATION_FUNCTIONS`.

    Returns
    -------
    Tensor, (..., M, N), float64
        Without an activation exact up to float64 rounding: products of two 16-bit or 8-bit floats have at most 22
        significant bits.

    Examples
    --------
    >>> import torch
    >>> gemm_reference(torch.eye(2, dtype=torch.float16), torch.tensor([[1.0, 2.0], [3.0, 4.0]]).half()).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    product = a.double() @ b.double().mT
    for addend in (c, bias):
        if addend is not None:
            product = product + addend.double()
    return ACTIVATION_FUNCTIONS[activation](product)
