"""Oracle of the grouped GEMM: one product for each group in float64, on the device of the operands."""

import torch


def grouped_reference(
    a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, out: torch.Tensor, along: str
) -> torch.Tensor:
    """Compute the product of each group in float64 into `out`, rounded once.

    Elements outside all groups keep their values.

    Parameters
    ----------
    a : Tensor, (M, K) or (G, M, K)
    b : Tensor, (N, K) or (G, N, K)
    ends : Tensor, (G,)
        Of the groups along the extent that they have; where all have matrices for each group, how much of it each uses.
    out : Tensor, (M, N) or (G, M, N)
    along : "m", "n" or "k"
        Extent that the groups divide.

    Examples
    --------
    >>> a, b = torch.ones(3, 2), torch.ones(2, 1, 2)
    >>> grouped_reference(a, b, torch.tensor([1, 2]), torch.zeros(3, 1), "m").tolist()
    [[2.0], [2.0], [0.0]]
    """
    padded = a.dim() == b.dim() == out.dim() == 3
    start = 0
    for g, end in enumerate(ends.tolist()):
        end = max(end, 0)
        rows, columns, terms = (slice(start, end) if along == mode else slice(None) for mode in "mnk")
        own_a, own_b, own = (x[g] if x.dim() == 3 else x for x in (a, b, out))
        own[rows, columns] = own_a[rows, terms].double() @ own_b[columns, terms].double().mT
        start = 0 if padded else end
    return out
