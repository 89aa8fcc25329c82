"""The DSL's element types, by torch's names for them."""

from __future__ import annotations

from typing import Any

from cutepy.dsl.version import require
from cutepy.runtime.dtypes import DTYPES

# Resolved when this module is imported: traced code may read globals, but not import.
_TYPES: dict[str, Any] = {dtype: getattr(require("cutlass", t.dsl), t.dsl) for dtype, t in DTYPES.items() if t.dsl}
_TF32: Any = require("cutlass", "TFloat32").TFloat32


def element_type(dtype: str) -> Any:  # noqa: ANN401
    """Return the DSL's element type for a name of torch's.

    Raises
    ------
    ValueError
        If the DSL has none.
    """
    if dtype not in _TYPES:
        raise ValueError(f"dtype must be one of {', '.join(_TYPES)}, got {dtype}")
    return _TYPES[dtype]


def multiplied_type(dtype: str) -> Any:  # noqa: ANN401
    """Return the DSL's element type of the tensor cores for a type: TFloat32 for float32.

    Raises
    ------
    ValueError
        If the DSL has none.
    """
    return _TF32 if dtype == "float32" else element_type(dtype)


def dtype_of(element: Any) -> str:  # noqa: ANN401
    """Return torch's name for an element type of the DSL.

    Raises
    ------
    ValueError
        If torch has none.
    """
    found = next((dtype for dtype, known in _TYPES.items() if known is element), None)
    if found is None:
        raise ValueError(
            f"the element type must be one of {', '.join(known.__name__ for known in _TYPES.values())}, got {element}"
        )
    return found
