"""Linear layouts over F2: layouts of powers of two as linear maps of bits, and their algebra.

`to_linear` and `to_layout` convert from and to CuTe's layouts, exactly.
"""

import importlib
from typing import Any

from .conversion import (
    Conversion as Conversion,
    Move as Move,
    ShufflePlan as ShufflePlan,
    conversion as conversion,
)
from .convert import to_layout as to_layout, to_linear as to_linear
from .layout import LinearLayout as LinearLayout
from .swizzling import OptimalSwizzle as OptimalSwizzle, Use as Use, optimal_swizzle as optimal_swizzle

__all__ = [
    "Conversion",
    "LinearLayout",
    "Move",
    "OptimalSwizzle",
    "ShufflePlan",
    "Use",
    "conversion",
    "optimal_swizzle",
    "parse_linear",
    "to_layout",
    "to_linear",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import `parse_linear` on first use: it reads the notation, a floor above, and is listed here with its layouts."""
    if name == "parse_linear":
        return importlib.import_module("cutepy.layouts.notation.linear_text").parse_linear
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names, `parse_linear` among them."""
    return sorted({*globals(), *__all__})
