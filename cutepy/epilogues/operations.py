"""Primitives of epilogues, with argument and result types.

Values are fp32 ("f32"), 32-bit integers that wrap ("i32"), or truth values ("bool").
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Type = Literal["f32", "i32", "bool"]
Shape = Literal["scalar", "row", "column", "tile"]
"""Shape of a value: a scalar, a row (varies with the column), a column (varies with the row), or a tile."""
TYPES: tuple[Type, ...] = get_args(Type)
SHAPES: tuple[Shape, ...] = get_args(Shape)


class Primitive(NamedTuple):
    """Function of values, each of one type.

    Attributes
    ----------
    arity : int
    takes : tuple of str
        Types that its arguments may have, all of one, from the narrowest on: others are converted to one of them.
    gives : str
        The result's type; that of the arguments if empty.
    """

    arity: int
    takes: tuple[Type, ...]
    gives: Type | Literal[""] = ""


FUNCTIONS = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "tanh_approx", "sigmoid", "erf")
"""Primitives of about ten instructions, with the special function unit; so has `div`."""
_REAL = Primitive(1, ("f32",))
_ARITHMETIC = Primitive(2, ("i32", "f32"))
_COMPARISON = Primitive(2, ("i32", "f32"), "bool")
_LOGIC = Primitive(2, ("bool", "i32"))

PRIMITIVES: dict[str, Primitive] = {
    **dict.fromkeys((*FUNCTIONS, "floor"), _REAL),
    "neg": Primitive(1, ("i32", "f32")),
    "abs": Primitive(1, ("i32", "f32")),
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum", "clamp_min", "clamp_max"), _ARITHMETIC),
    "div": Primitive(2, ("f32",)),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _COMPARISON),
    **dict.fromkeys(("and", "or", "xor"), _LOGIC),
    "not": Primitive(1, ("bool", "i32")),
    # With a constant: the divisor, which is positive, or the number of bits to shift by.
    **dict.fromkeys(("floordiv", "mod", "shl", "shr"), Primitive(1, ("i32",))),
    "float": Primitive(1, ("bool", "i32"), "f32"),
    "int": Primitive(1, ("bool",), "i32"),
}
"""Primitives by name. For equal values maximum and minimum share the derivative, clamp_min and clamp_max give it to the
first, as torch's do. `where` and operations that are not functions of values alone are in `graph.infer`.
"""

BY_CONSTANT = ("floordiv", "mod", "shl", "shr")
SIGNLESS = ("add", "sub", "mul", "and", "or", "xor", "eq", "ne")
"""Primitives whose 32-bit results are the same for signed and unsigned integers."""
PLACES = ("row_index", "column_index", "product_index", "batch_index", "head_index")
"""Indices of an element: its row and column, and of which product, or of which batch and head of attention, it is."""
COUNTS = ("row_count", "column_count")
"""Extents of attention's scores: queries and keys."""
SOURCES = ("acc", "operand", "const", *PLACES, *COUNTS)
MOST_PARTS = 8
"""Largest number of interleaved parts: a subtile of 128 columns then has 16 bytes of the narrowest type in each."""
REDUCTIONS = ("sum", "max", "min")
ROUNDED = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that a value may be rounded to."""
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""Saturation value of 8-bit floats."""


def joined_shape(*shapes: Shape) -> Shape:
    """Return the shape of a function's result.

    Examples
    --------
    >>> joined_shape("row", "scalar"), joined_shape("row", "column")
    ('row', 'tile')
    """
    by_column = any(shape in ("row", "tile") for shape in shapes)
    by_row = any(shape in ("column", "tile") for shape in shapes)
    return SHAPES[by_column + 2 * by_row]


def by_columns(shape: Shape) -> bool:
    """Return whether a value varies along the columns, so that it has a width."""
    return shape in ("row", "tile")
