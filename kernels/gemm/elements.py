"""Element types that the GEMM takes and returns."""

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8")
INPUTS = ("float16", "bfloat16", "float32", *FLOAT8, *INTEGERS)
"""Element types of A and B; float32 is multiplied as tf32."""
OUTPUTS = ("float16", "bfloat16", "float32")
"""Element types of C, D and the bias."""
SUMS = "int32"
"""Further element types of D: unrounded integer accumulators."""


def multipliable(a_dtype: str, b_dtype: str) -> bool:
    """Return whether wgmma multiplies these element types: equal types, two 8-bit floats, or two 8-bit integers."""
    return a_dtype == b_dtype or any({a_dtype, b_dtype} <= set(kinds) for kinds in (FLOAT8, INTEGERS))
