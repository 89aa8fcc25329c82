"""Views of the kernel's tensor arguments in CuTe's order of modes (traced)."""

import cutlass.cute as cute


def without(kinds, given, own):
    """Return operands or results with None in the place of those that pass through shared memory.

    Tensors are seen with the modes of a batch after their `own`.
    """
    indices = [kind.place for kind in kinds]
    seen = [batch_last(each, own) if isinstance(each, cute.Tensor) else each for each in given]
    return tuple(None if n in indices else each for n, each in enumerate(seen))


def batch_last(tensor, own=2):
    """Return a tensor (batch..., rows, columns) as (rows, columns, batch...), the order of CuTe's modes."""
    modes = cute.rank(tensor)
    if modes <= own:
        return tensor
    mode = [*range(modes - own, modes), *range(modes - own)]
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=mode))
