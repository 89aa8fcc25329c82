"""Views of the kernels' tensor arguments in CuTe's order of modes (traced)."""

import cutlass.cute as cute


def modes(tensor, *order):
    """View a tensor with its modes in another order."""
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, list(order)))


def rows_first(tensor):
    """View (batch, tokens, heads, head) as (tokens, head, heads, batch): matrices of tokens, and their batch."""
    return modes(tensor, 1, 3, 2, 0)
