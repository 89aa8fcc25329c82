"""`scaled_gemm` and `scaled_grouped_gemm`: products of 8-bit floats and their scales."""

from __future__ import annotations

from typing import Any

import torch

from cutepy.epilogues.tracing import Epilogue, Row, epilogue as make_epilogue
from cutepy.epilogues.values import Value
from cutepy.kernels.gemm.operands import OUTPUT_DTYPES, dtype_name
from cutepy.kernels.gemm.output_signature import OutputMajor
from cutepy.kernels.gemm.scales import Block, Scales
from cutepy.ops.checking import check_epilogue, check_tensor, refuse_operands_of_none, refusing_its_own_names
from cutepy.ops.dense_gemm import apply_epilogue
from cutepy.ops.distributed import Sharding, compute_here, holds_distributed
from cutepy.ops.grouped import FLOAT8, describe_groups, grouped_with, read_form
from cutepy.ops.quantising import read_group_scale, read_scale
from cutepy.ops.shardings import of_epilogue


@refusing_its_own_names
def scaled_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    out: Any = None,  # noqa: ANN401
    out_dtype: torch.dtype | None = None,
    out_major: OutputMajor = "row",
    use_fast_accum: bool = False,
    epilogue: Epilogue | None = None,
    **operands: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Compute (a scaled) @ (b scaled).mT + bias of 8-bit floats: a function (..., K), (N, K) -> (..., N).

    The shape of a scale chooses its blocks, and the scales of a and b may have different blocks:

    - one element: one scale for the whole tensor;
    - (..., 1) or (N, 1): one scale for each row;
    - (..., ceil(K / 128)): one scale for each 128 elements of a row ("1x128");
    - (ceil(N / 128), ceil(K / 128)): one scale for each block of 128 x 128, also of a matrix a.

    The tensor cores keep 14 bits of the sums of 8-bit products. So sums are promoted: after every 128 of K they are
    multiplied by the scales of the blocks, if scales differ along K, and added up in fp32. Scales may have any strides;
    a 1x128 scale that is contiguous along the rows, as `quantise` returns it, is read fastest. On the CPU the result is
    computed in float64 and rounded once.

    Parameters
    ----------
    a : Tensor, (..., K), float8_e4m3fn or float8_e5m2
    b : Tensor, (N, K), of the same dtype or the other
    scale_a, scale_b : Tensor, float32
    bias : Tensor, (N,), float16, bfloat16 or float32, optional
        Added in fp32.
    out : Tensor, optional
        Receives the result, as in `gemm`; its dtype is the result's.
    out_dtype : float16, bfloat16, float32, float8_e4m3fn or float8_e5m2, optional
        Of the result; bfloat16 if not given. 8-bit results saturate, and NaN stays NaN, as of `torch._scaled_mm`.
    out_major : "row" or "col"
        Contiguous extent of the result: N, or the rows.
    use_fast_accum : bool
        Let the tensor cores sum all of K: faster, and less accurate the longer K is; for scales of tensors and rows.
    epilogue : Epilogue, optional
        Function of the scaled sums (`cutepy.epilogue`) in place of a bias.
    **operands
        The epilogue's operands by name, as of `gemm`.

    Returns
    -------
    Tensor, tuple or dict
        With an epilogue, what its function returns.

    Raises
    ------
    TypeError
        If an argument is no tensor or has a dtype that the kernel lacks.
    ValueError
        If shapes or devices don't fit, or fast accumulation is asked for with scales of blocks.
    NotImplementedError
        If a, b or scales require grad; a bias and an epilogue's operands may.

    Examples
    --------
    >>> import torch
    >>> from cutepy.ops import quantise
    >>> x, weight = torch.randn(2, 3, 300), torch.randn(200, 300)
    >>> a, scale_a = quantise(x)
    >>> b, scale_b = quantise(weight, (128, 128))
    >>> a.shape, scale_a.shape, scale_b.shape
    (torch.Size([2, 3, 300]), torch.Size([2, 3, 3]), torch.Size([2, 3]))
    >>> scaled_gemm(a, b, scale_a, scale_b).shape
    torch.Size([2, 3, 200])
    """
    if epilogue is None and operands:
        refuse_operands_of_none("scaled_gemm", operands)
    if holds_distributed((a, b, scale_a, scale_b, bias, *operands.values())):
        if out is not None:
            raise NotImplementedError("out must be left out with DTensors of scaled products; copy the result")
        given = operands if bias is None else operands | {"bias": bias}
        given = choose_epilogue(epilogue, bias, out_dtype).bind(given)  # in the order of the sharding's inputs
        tensors = {"a": a, "b": b, **given, "scale_a": scale_a, "scale_b": scale_b}
        options = {"out_dtype": out_dtype, "out_major": out_major, "use_fast_accum": use_fast_accum}
        return compute_here(scaled_gemm, _sharding, (), **tensors, **options, epilogue=epilogue)
    out_dtype = _dtype_of(out, out_dtype, epilogue)
    check_scaled(a, b, scale_a, scale_b, out_dtype)
    if b.dim() != 2 or a.dim() < 1 or a.shape[-1] != b.shape[-1]:
        raise ValueError(f"a must be (..., K) and b (N, K), got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    (scale_a, of_a), (scale_b, of_b) = read_scale("scale_a", scale_a, a.shape), read_scale("scale_b", scale_b, b.shape)
    scales = make_scales(scale_a, scale_b, of_a, of_b, use_fast_accum)
    finish = choose_epilogue(epilogue, bias, out_dtype)
    if bias is not None:
        operands["bias"] = bias
    values = tuple(finish.bind(operands).values())
    return apply_epilogue(a, b, finish, values, out, None if out_dtype in FLOAT8 else out_dtype, out_major, scales)


def _dtype_of(out: Any, out_dtype: torch.dtype | None, epilogue: Epilogue | None) -> torch.dtype | None:  # noqa: ANN401
    """Give the dtype of a result without an epilogue: that of `out` if there is one."""
    if epilogue is None and isinstance(out, torch.Tensor):
        if out_dtype not in (None, out.dtype):
            raise TypeError(f"out_dtype must be out's dtype {dtype_name(out.dtype)} or be left out, got {out_dtype}")
        return out.dtype
    return out_dtype


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
    out: Any = None,  # noqa: ANN401
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
    out : Tensor, optional
        Receives the result, as in `grouped_gemm`; its dtype is the result's.
    out_dtype : float16, bfloat16, float32, float8_e4m3fn or float8_e5m2, optional
        Of the result; bfloat16 if not given. 8-bit results saturate; there are none where groups are along N.
    use_fast_accum : bool
        Let the tensor cores sum all of K, for scales of tensors, groups and rows.
    epilogue : Epilogue, optional
        Function of the scaled sums in place of a bias, as in `grouped_gemm`.
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
    out_dtype = _dtype_of(out, out_dtype, epilogue)
    check_scaled(a, b, scale_a, scale_b, out_dtype)
    groups, along = read_form(a, b, offs, counts)
    describe_groups(a, b, groups, along, scaled=True)  # what scales are read by
    (scale_a, of_a), (scale_b, of_b) = (
        read_group_scale(name, scale, tensor.shape, groups.shape[0], along == "k")
        for name, scale, tensor in (("scale_a", scale_a, a), ("scale_b", scale_b, b))
    )
    scales = make_scales(scale_a, scale_b, of_a, of_b, use_fast_accum)
    finish = choose_epilogue(epilogue, bias, out_dtype)
    if bias is not None:
        operands["bias"] = bias
    rounded = None if out_dtype in FLOAT8 else out_dtype
    return grouped_with(a, b, groups, along, finish, operands, out, rounded, scales)


def _sharding(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out_dtype: torch.dtype | None,
    epilogue: Epilogue | None,
    out_major: str,
    use_fast_accum: bool,
    **operands: Any,  # noqa: ANN401
) -> Sharding:
    chosen = choose_epilogue(epilogue, operands.get("bias") if epilogue is None else None, out_dtype)
    scales = [
        (scale_a, read_scale("scale_a", scale_a, a.shape)[1]),
        (scale_b, read_scale("scale_b", scale_b, b.shape)[1]),
    ]
    given = list(chosen.bind(operands).values())
    kinds = "".join("t" if isinstance(value, torch.Tensor) else "n" for value in given)
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    return of_epilogue(chosen.graph, a, b, tensors, kinds, scales)


def check_scaled(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype | None
) -> None:
    """Check the types of 8-bit operands, scales and result, and their devices."""
    for name, tensor, allowed in (
        ("a", a, FLOAT8),
        ("b", b, FLOAT8),
        ("scale_a", scale_a, (torch.float32,)),
        ("scale_b", scale_b, (torch.float32,)),
    ):
        check_tensor(name, tensor, allowed)
        if tensor.device != a.device:
            raise ValueError(f"{name} must be on a's device {a.device}, got {tensor.device}")
    if out_dtype not in (None, *FLOAT8, *OUTPUT_DTYPES):
        names = ", ".join(dtype_name(dtype) for dtype in (*OUTPUT_DTYPES, *FLOAT8))
        raise TypeError(f"out_dtype must be {names} or None, got {out_dtype}")


def make_scales(scale_a: torch.Tensor, scale_b: torch.Tensor, of_a: Block, of_b: Block, fast: bool) -> Scales:
    """Put scales together, with sums that are promoted unless the tensor cores are to sum all of K."""
    if fast and (of_a.k or of_b.k):
        raise ValueError("fast accumulation sums all of K before it scales, which scales of blocks don't allow")
    return Scales(scale_a, scale_b, of_a, of_b, promotes=not fast)


def choose_epilogue(epilogue: Epilogue | None, bias: torch.Tensor | None, out_dtype: torch.dtype | None) -> Epilogue:
    """Give the epilogue, by default the one that adds a bias and rounds to 8 bits."""
    if epilogue is None:
        return _PLAIN[bias is not None, out_dtype if out_dtype in FLOAT8 else None]
    check_epilogue(epilogue)
    if out_dtype in FLOAT8:
        raise ValueError("an 8-bit out_dtype must be left out with an epilogue, which rounds its results itself")
    return epilogue


def _plain(adds: bool, rounded: torch.dtype | None) -> Epilogue:
    def unbiased(acc: Value) -> Value:
        return acc if rounded is None else acc.to(rounded)

    def biased(acc: Value, bias: Row) -> Value:
        return unbiased(acc + bias)

    return make_epilogue(biased if adds else unbiased)


_PLAIN = {(adds, dtype): _plain(adds, dtype) for adds in (False, True) for dtype in (None, *FLOAT8)}
