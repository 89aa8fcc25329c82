"""The oracle: D = A B^T (+ C) in float64, on whatever device the operands are."""

import torch


def gemm_reference(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> torch.Tensor:
    """Compute A B^T (+ C) in float64 from the operands' exact values.

    Parameters
    ----------
    a : Tensor, (M, K)
    b : Tensor, (N, K)
    c : Tensor, (M, N), optional

    Returns
    -------
    Tensor, (M, N), float64
        Exact up to float64 rounding: products of two 16-bit or 8-bit floats have at most 22 significant bits.

    Examples
    --------
    >>> import torch
    >>> gemm_reference(torch.eye(2, dtype=torch.float16), torch.tensor([[1.0, 2.0], [3.0, 4.0]]).half()).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    product = a.double() @ b.double().t()
    return product if c is None else product + c.double()
