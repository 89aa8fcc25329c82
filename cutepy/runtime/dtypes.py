"""Element types by torch's names: widths, and their names in DLPack, the DSL and PTX."""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """An element type.

    Attributes
    ----------
    code, bits : int
        DLPack's code, and the width of an element.
    dsl, ptx : str
        The DSL's class and PTX's type; "" where there is none.
    """

    code: int
    bits: int
    dsl: str = ""
    ptx: str = ""


DTYPES = {
    "bool": DType(6, 8, "Boolean"),
    "int8": DType(0, 8, "Int8", "s8"),
    "int16": DType(0, 16, "Int16", "s16"),
    "int32": DType(0, 32, "Int32", "s32"),
    "int64": DType(0, 64, "Int64", "s64"),
    "uint8": DType(1, 8, "Uint8", "u8"),
    "uint16": DType(1, 16, "Uint16", "u16"),
    "uint32": DType(1, 32, "Uint32", "u32"),
    "uint64": DType(1, 64, "Uint64", "u64"),
    "float16": DType(2, 16, "Float16", "f16"),
    "bfloat16": DType(4, 16, "BFloat16", "bf16"),
    "float32": DType(2, 32, "Float32", "f32"),
    "float64": DType(2, 64, "Float64", "f64"),
    "complex32": DType(5, 32),
    "complex64": DType(5, 64),
    "complex128": DType(5, 128),
    "float8_e4m3fn": DType(10, 8, "Float8E4M3FN", "e4m3"),
    "float8_e4m3fnuz": DType(11, 8),
    "float8_e5m2": DType(12, 8, "Float8E5M2", "e5m2"),
    "float8_e5m2fnuz": DType(13, 8),
    "float8_e8m0fnu": DType(14, 8, "Float8E8M0FNU", "ue8m0"),
    "float4_e2m1fn_x2": DType(17, 4, "Float4E2M1FN", "e2m1"),
}
"""Element types of DLPack, by torch's names, most of which are numpy's too."""


def dlpack_type(dtype: str) -> tuple[int, int]:
    """Return DLPack's (code, bits) of an element type, by torch's or numpy's name for it.

    Examples
    --------
    >>> dlpack_type("bfloat16"), dlpack_type("float8_e4m3fn"), dlpack_type("bool")
    ((4, 16), (10, 8), (6, 8))
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one that DLPack knows ({', '.join(DTYPES)}), got {dtype!r}")
    return DTYPES[dtype][:2]
