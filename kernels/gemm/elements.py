"""What the elements of operands and results may be."""

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8")
INPUTS = ("float16", "bfloat16", "float32", *FLOAT8, *INTEGERS)
"""What A and B may be; float32 is multiplied as tf32."""
OUTPUTS = ("float16", "bfloat16", "float32")
"""What C, D and the bias may be."""
SUMS = "int32"
"""What D may be besides: the sums of products of integers, as they are."""


def multipliable(a_dtype: str, b_dtype: str) -> bool:
    """Tell whether an instruction multiplies elements of these types: of one, or two 8-bit floats, or two integers."""
    return a_dtype == b_dtype or any({a_dtype, b_dtype} <= set(kinds) for kinds in (FLOAT8, INTEGERS))
