"""`scaled_grouped_gemm`: products of groups of 8-bit floats and their scales."""

from __future__ import annotations

from typing import Any

import torch

from cutepy.epilogues.tracing import Epilogue
from cutepy.ops.grouped_forms import describe_groups, read_form
from cutepy.ops.grouped_fused import grouped_with
from cutepy.ops.naming import refuse_operands_of_none, refusing_its_own_names
from cutepy.ops.quantising import read_group_scale
from cutepy.ops.scaled import FLOAT8, check_scaled, choose_epilogue, make_scales


@refusing_its_own_names
def scaled_grouped_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    offs: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    epilogue: Epilogue | None = None,
    **operands: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Compute (a scaled) @ (b scaled).mT + bias of 8-bit floats for each group of rows, columns or K, by one launch.

    Groups are those of `grouped_gemm`, in its four forms, and read on the device. A scale has the shape of what it
    scales, in blocks, as of `scaled_gemm`; where a tensor has a matrix for each group, it has the groups first:

    - one element: a scale of all;
    - (M, 1), or (G, N, 1), or both without the 1: one of each row; (G, 1, 1): one of each group;
    - (M, ceil(K / 128)), or (G, N, ceil(K / 128)): one of each 128 of a row ("1x128");
    - (G, ceil(N / 128), ceil(K / 128)): one of each block of 128 x 128 of each group's matrix. Rows that follow one
      another in groups have none, for groups may begin within 128 of them.

    With `offs` along K, both a and b are contiguous along K, and groups begin at multiples of 128 of it: so must ends
    be, but for K itself. A group that has fewer is filled up with zeros. Then there are 128 x 128 blocks too, and
    scales of rows may differ from group to group: (G, M, 1) and (G, N, 1), or (G, 1, 1).

    Sums are promoted, as there. On the CPU the result is computed in float64 and rounded once.

    Parameters
    ----------
    a : Tensor, (M, K) or (G, M, K), float8_e4m3fn or float8_e5m2
    b : Tensor, (N, K) or (G, N, K), of the same dtype or the other
    scale_a, scale_b : Tensor, float32, of any strides
    offs : Tensor, (G,), int32
        The groups' ends, ascending. Not with two tensors of three dimensions.
    counts : Tensor, (G,), int32
        The groups' rows, with two tensors of three dimensions.
    bias : Tensor, (N,) or, where columns are not in groups, (G, N), optional
        Added in fp32.
    out_dtype : float16, bfloat16, float32, float8_e4m3fn or float8_e5m2, optional
        Of the result; bfloat16 if not given. 8-bit results saturate; there are none where groups are along N.
    use_fast_accum : bool
        Let the tensor cores sum all of K, for scales of tensors, groups and rows.
    epilogue : Epilogue, optional
        What is done with the scaled sums instead of adding a bias, as in `grouped_gemm`.
    **operands
        The epilogue's operands by name.

    Returns
    -------
    Tensor, (M, N) or (G, M, N), tuple or dict
        With an epilogue, what its function returns. What belongs to no group means nothing.

    Raises
    ------
    TypeError
        If an argument is no tensor or has a dtype that the kernel lacks.
    ValueError
        If shapes or devices don't fit, or fast accumulation is asked for with scales of blocks; on the host also if
        ends descend, or are not at multiples of 128 of K.
    NotImplementedError
        If a, b or scales require grad; a bias and an epilogue's operands may.

    Examples
    --------
    >>> import torch
    >>> from cutepy.ops import quantise
    >>> a, scale_a = quantise(torch.randn(6, 256))
    >>> experts = [quantise(torch.randn(136, 256), (128, 128)) for _ in range(2)]
    >>> b, scale_b = map(torch.stack, zip(*experts))
    >>> scale_a.shape, b.shape, scale_b.shape
    (torch.Size([6, 2]), torch.Size([2, 136, 256]), torch.Size([2, 2, 2]))
    >>> scaled_grouped_gemm(a, b, scale_a, scale_b, offs=torch.tensor([2, 6], dtype=torch.int32)).shape
    torch.Size([6, 136])
    """
    if epilogue is None and operands:
        refuse_operands_of_none("scaled_grouped_gemm", operands)
    check_scaled(a, b, scale_a, scale_b, out_dtype)
    groups, along = read_form(a, b, offs, counts)
    rounded = None if out_dtype in FLOAT8 else out_dtype
    product = describe_groups(a, b, groups, along, rounded, dtypes=FLOAT8)
    (scale_a, of_a), (scale_b, of_b) = (
        read_group_scale(name, scale, tensor.shape, groups.shape[0], along == "k")
        for name, scale, tensor in (("scale_a", scale_a, a), ("scale_b", scale_b, b))
    )
    scales = make_scales(scale_a, scale_b, of_a, of_b, use_fast_accum)
    epilogue = choose_epilogue(epilogue, bias, out_dtype)
    if bias is not None:
        operands["bias"] = bias
    return grouped_with(a, b, groups, along, epilogue, operands, product, scales)
