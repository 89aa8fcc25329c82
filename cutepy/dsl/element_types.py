"""The DSL's element types, by torch's names for them."""

from __future__ import annotations

from typing import Any

from cutepy.dsl.version import require

_NAMES = {
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "Float32",
    "float64": "Float64",
    "float8_e4m3fn": "Float8E4M3FN",
    "float8_e5m2": "Float8E5M2",
    "float8_e8m0fnu": "Float8E8M0FNU",
    "float4_e2m1fn_x2": "Float4E2M1FN",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "Uint8",
    "uint16": "Uint16",
    "uint32": "Uint32",
    "uint64": "Uint64",
    "bool": "Boolean",
}
# Looked up when this module is imported: traced code may read globals, but import nothing.
_TYPES: dict[str, Any] = {dtype: getattr(require("cutlass", name), name) for dtype, name in _NAMES.items()}


def element_type(dtype: str) -> Any:  # noqa: ANN401
    """Give the DSL's element type of a name of torch's.

    Raises
    ------
    ValueError
        If the DSL has none.
    """
    if dtype not in _TYPES:
        raise ValueError(f"dtype must be one of {', '.join(_TYPES)}, got {dtype}")
    return _TYPES[dtype]


def dtype_of(element: Any) -> str:  # noqa: ANN401
    """Give torch's name of one of the DSL's element types.

    Raises
    ------
    ValueError
        If torch has none.
    """
    found = next((dtype for dtype, known in _TYPES.items() if known is element), None)
    if found is None:
        raise ValueError(f"the element type must be one of {', '.join(_NAMES.values())}, got {element}")
    return found
