"""Linear layouts over F2: layouts of powers of two as linear maps of bits, and their algebra.

`to_linear` and `to_layout` convert from and to CuTe's layouts, exactly.
"""

from .conversion import (
    Conversion as Conversion,
    Move as Move,
    ShufflePlan as ShufflePlan,
    conversion as conversion,
)
from .convert import to_layout as to_layout, to_linear as to_linear
from .layout import LinearLayout as LinearLayout
from .swizzling import OptimalSwizzle as OptimalSwizzle, Use as Use, optimal_swizzle as optimal_swizzle
from .text import parse_linear as parse_linear

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
