"""Tolerances of numerical tests, each with its derivation; nothing else sets one.

Errors are relative in the Frobenius norm, ||X - R|| / ||R||, against a float64 reference R from the same inputs.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
"""Largest relative error of rounding to nearest, by output type."""

OPERAND_ERROR = {32: 2.0**-11 * math.sqrt(2 / 3), 16: 0.0, 8: 0.0}
"""Error of a product of two operands that are rounded first, in the mean square, relative to the product.

float32 is rounded to the nearest tf32, of 11 bits. What that adds is anything up to 2**-11 of the value's power of two,
of either sign: 2**-11 / sqrt(3) of the value at most in the mean square, and sqrt(2) as much of a product. Cut off
instead, it would be 2**-11 of a value in the mean, always of the value's sign, and more than this of a product.
"""

STEP_ERROR = {32: 2.0**-22, 16: 2.0**-22, 8: 2.0**-12}
"""Error of one wgmma step (sum the products of one K extent, add the accumulator), relative to the largest addend.

The tensor core aligns all addends to the largest exponent and cuts what lies below: at 2**-23 of the largest for 16-bit
inputs and tf32, which keep fp32's 24 bits, and at 2**-13 for 8-bit inputs, whose products are summed in a narrower
adder: on an H200, 2**14 + 2 is exact and 2**14 + 1 is 2**14 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2, finds 14
bits). A cut of
up to q, of either sign as its product is, is q / sqrt(3) in the mean square, and 32 of them 3.3 q. A largest addend is
on average 1.4 times its power of two, of which q is a fraction, so that a step errs by about 2 q: by the values above.
"""

STEP_BIAS = {32: 2.0**-24, 16: 2.0**-24, 8: 2.0**-18}
"""Largest mean relative loss of the accumulator in one step: truncation of the accumulator always has its own sign. For
16-bit inputs and tf32 the accumulator loses on average half of the last of 24 bits. For 8-bit inputs it loses much less
than the 13 bits of the products let one expect: measured errors grow almost as sqrt(K)
(`tests/testing/test_numerics.py`).
"""

_STEP_EXTENT = {32: 8, 16: 16, 8: 32}


def gemm_tolerance(k: int, operand_bits: int, out_dtype: str) -> float:
    """Bound the relative Frobenius error of D = A B^T (+ C) for independent zero-mean random A and B.

    Rounding D to its type errs by at most u |d| in each element, hence by u in the norm. The sum over K takes
    n = ceil(K / step) steps, and two kinds of error add up, with S_i for the partial sums, of which ||S_i|| is
    sqrt(i / n) ||S_n|| up to chance.

    Cuts of products have the signs of the products, which are independent: their squares add up. Step i errs by
    e ||S_i||, so all by e sqrt(sum of i / n) = e sqrt((n + 1) / 2) times ||S_n||. Twice the square, and a step more for
    short sums, whose largest addend is a product and not the sum, give e sqrt(n + 2).

    Cuts of the accumulator have its sign: step i loses b S_i, and the S_i are not independent. The products of step j
    are in n - j + 1 of them, so their sum has the norm b sqrt(sum of j**2 / n) = b n / sqrt(3) times ||S_n||.

    Roundings of the operands, by r of a product, are independent from product to product as they are of zero mean: they
    err by r of the sum.

    The bound is u + sqrt(r**2 + e**2 (n + 2) + b**2 n**2 / 3). One lost step of n errs by 1 / sqrt(n), which is more
    than the bound for K up to 65536, so that no lost step passes.

    Parameters
    ----------
    k : int
        Extent of the sum.
    operand_bits : 32, 16 or 8
        Width of the inputs: float32, which is rounded to tf32, 16-bit or 8-bit floats.
    out_dtype : str
        "float16", "bfloat16" or "float32".

    Examples
    --------
    >>> f"{gemm_tolerance(4096, 16, 'float16'):.1e}", f"{gemm_tolerance(4096, 16, 'float32'):.1e}"
    ('5.0e-04', '9.7e-06')
    """
    steps = -(-k // _STEP_EXTENT[operand_bits])
    random = STEP_ERROR[operand_bits] * math.sqrt(steps + 2)
    biased = STEP_BIAS[operand_bits] * steps / math.sqrt(3)
    return UNIT_ROUNDOFF[out_dtype] + math.hypot(OPERAND_ERROR[operand_bits], random, biased)


PROMOTED_STEPS = 4
"""Steps of 32 that the tensor cores sum by themselves where sums of 8-bit products are promoted every 128 of K."""


def promoted_tolerance(out_dtype: str) -> float:
    """Bound the relative Frobenius error of a product of 8-bit operands whose sums are promoted every 128 of K.

    A block of 128 of K is a sum of four steps. Its error is bounded as in `gemm_tolerance`: e sqrt(4 + 2) of its norm.
    Errors of different blocks are independent, so the same fraction bounds the sum of the blocks, whatever their
    scales. The sum in fp32 adds an error below 2**-24 sqrt(blocks), which is below 2**-17 for K below 2**20. The bound
    doesn't grow with K.

    Parameters
    ----------
    out_dtype : str
        "float16", "bfloat16" or "float32".

    Examples
    --------
    >>> f"{promoted_tolerance('float32'):.1e}", f"{gemm_tolerance(8192, 8, 'float32'):.1e}"
    ('6.1e-04', '4.0e-03')
    """
    biased = STEP_BIAS[8] * PROMOTED_STEPS / math.sqrt(3)
    return UNIT_ROUNDOFF[out_dtype] + math.hypot(STEP_ERROR[8] * math.sqrt(PROMOTED_STEPS + 2), biased) + 2.0**-17


def epilogue_tolerance(
    k: int, operand_bits: int, out_dtype: str, *, condition: float = 1.0, rounds_product: bool = False
) -> float:
    """Bound the relative Frobenius error of f(A B^T), f computed in fp32 or better and rounded once.

    An error that is e of each product x at most errs by e |x f'(x)| in a result, hence by e ||x f'(x)|| / ||f(x)|| in
    the norm: e times the condition of f on such products; of an f of several products such terms add up. Sums over K
    err by g - u, g from `gemm_tolerance` and u its rounding, or by g where the product is rounded to the result's type
    before f is computed. Rounding the result adds u.

    Parameters
    ----------
    k, operand_bits, out_dtype
        As `gemm_tolerance` takes them.
    condition : float
        Of f: 1 of the identity.
    rounds_product : bool
        True if the product is rounded to the result's type first, as that of two kernels is.

    Examples
    --------
    >>> f"{epilogue_tolerance(4096, 16, 'bfloat16', condition=2.3):.1e}"
    '3.9e-03'
    >>> f"{epilogue_tolerance(4096, 16, 'bfloat16', condition=2.3, rounds_product=True):.1e}"
    '1.3e-02'
    """
    rounding, product = UNIT_ROUNDOFF[out_dtype], gemm_tolerance(k, operand_bits, out_dtype)
    return rounding + condition * (product if rounds_product else product - rounding)


def relative_error(result: "torch.Tensor", reference: "torch.Tensor") -> float:
    """Return ||result - reference|| / ||reference|| in the Frobenius norm; NaN if either holds one.

    Parameters
    ----------
    result, reference : Tensor
        Of one shape; compared in float64. Two zero or empty tensors have error 0; where only the reference is zero, it
        is infinite.
    """
    difference, norm = float((result.double() - reference.double()).norm()), float(reference.double().norm())
    if difference == 0 or norm != 0:
        return difference and difference / norm
    return difference * math.inf
