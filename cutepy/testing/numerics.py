"""The tolerances of numerical tests, each with its derivation. Nothing else sets one.

Errors are relative in the Frobenius norm, ||X - R|| / ||R||, against a float64 reference R from the same inputs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
"""Largest relative error of rounding to nearest, by output type."""

ACCUMULATION_ERROR = {16: 2.0**-22, 8: 2.0**-12}
"""Largest relative error of one wgmma step (sum the products of one K extent, add the accumulator), by input width.

The tensor core aligns the products and the accumulator to the largest exponent and truncates below it: at 2**-23 of
the largest for 16-bit inputs, which keep fp32's 24 bits, and at about 2**-13 for 8-bit inputs, whose products are
summed in a narrower adder (DeepSeek-V3, arXiv 2412.19437, section 3.3.2, finds about 14 bits). A factor of 2 covers
that several terms are truncated in one step.
"""

_STEP_EXTENT = {16: 16, 8: 32}


def gemm_tolerance(k: int, operand_bits: int, out_dtype: str) -> float:
    """Bound the relative Frobenius error of D = A B^T (+ C) for independent zero-mean random A and B.

    Rounding D to its type errs by at most u |d| in each element, hence by u in the norm. The sum over K takes
    n = ceil(K / step) steps, and step i errs by at most e times the partial sum S_i in each element. For independent
    zero-mean entries ||S_i|| is sqrt(i / n) ||S_n|| up to chance, and the sum of sqrt(i / n) over the steps is below
    2/3 (n + 2). So the errors add up to at most 2/3 (n + 2) e ||S_n||, taking all to have one sign (they are
    truncations, so many do).

    Parameters
    ----------
    k : int
        Extent of the sum.
    operand_bits : 16 or 8
        Width of the inputs.
    out_dtype : str
        "float16", "bfloat16" or "float32".

    Examples
    --------
    >>> f"{gemm_tolerance(4096, 16, 'float16'):.1e}", f"{gemm_tolerance(4096, 16, 'float32'):.1e}"
    ('5.3e-04', '4.1e-05')
    """
    steps = -(-k // _STEP_EXTENT[operand_bits])
    return UNIT_ROUNDOFF[out_dtype] + 2 / 3 * (steps + 2) * ACCUMULATION_ERROR[operand_bits]


def relative_error(result: "torch.Tensor", reference: "torch.Tensor") -> float:
    """Give ||result - reference|| / ||reference|| in the Frobenius norm; NaN if the result holds one.

    Parameters
    ----------
    result, reference : Tensor
        Of one shape; compared in float64. Two zero or empty tensors have error 0.
    """
    difference = float((result.double() - reference.double()).norm())
    return difference and difference / float(reference.double().norm())
