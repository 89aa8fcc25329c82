"""How the kernel sees the tensors that it is called with (traced)."""

import cutlass.cute as cute


def without(kinds, given, own):
    """Give operands or results but for those that pass through shared memory, None in their places.

    Tensors are seen with the modes of a batch after their `own`.
    """
    places = [kind.place for kind in kinds]
    seen = [batch_last(each, own) if isinstance(each, cute.Tensor) else each for each in given]
    return tuple(None if n in places else each for n, each in enumerate(seen))


def batch_last(tensor, own=2):
    """See a tensor (batch..., rows, columns) as (rows, columns, batch...), the order of CuTe's modes."""
    modes = cute.rank(tensor)
    if modes <= own:
        return tensor
    mode = [*range(modes - own, modes), *range(modes - own)]
    return cute.make_tensor(tensor.iterator, cute.select(tensor.layout, mode=mode))
