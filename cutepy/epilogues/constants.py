"""Conversion of Python's and NumPy's numbers in epilogues to a kernel's types."""

from __future__ import annotations

import math
import sys

from cutepy.epilogues.errors import EpilogueError, Line
from cutepy.epilogues.operations import Type

Number = bool | int | float
LARGEST_FLOAT = 3.4028235e38
"""Largest fp32 number."""


def as_python(given: object) -> object:
    """Convert a number of NumPy's to a Python number; return anything else unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> as_python(np.float32(0.5)), as_python(np.int64(3)), as_python(np.bool_(True)), as_python("x")
    (0.5, 3, True, 'x')
    """
    numpy = sys.modules.get("numpy")  # without NumPy there are no such numbers
    if numpy is not None and isinstance(given, (numpy.generic, numpy.ndarray)) and given.shape == ():
        return given.item()
    return given


def type_of(number: object) -> Type:
    """Return the natural type of a number.

    Examples
    --------
    >>> type_of(True), type_of(1), type_of(1.0)
    ('bool', 'i32', 'f32')
    """
    if isinstance(number, bool):
        return "bool"
    return "i32" if isinstance(number, int) else "f32"


def constant(
    number: Number, kind: Type, *, wraps: bool = False, what: str = "a constant", line: Line | None = None
) -> Number:
    """Convert a number to a type at least as wide as its own.

    Parameters
    ----------
    number : bool, int or float
    kind : "f32", "i32" or "bool"
    wraps : bool
        True if only the bits of integers count, not their sign, so that those up to 2**32 - 1 are taken too.
    what : str
        That it is, for the message.
    line : Line, optional
        That asks for it.

    Raises
    ------
    EpilogueError
        If the type has no such number.

    Examples
    --------
    >>> constant(3000000000, "f32"), constant(3000000000, "i32", wraps=True), constant(True, "i32")
    (3000000000.0, -1294967296, 1)
    """
    if kind == "bool":
        return bool(number)
    if kind == "i32":
        integer, end = int(number), 2**32 if wraps else 2**31
        if not -(2**31) <= integer < end:
            raise EpilogueError.at(
                f"{what} must be within the integers of 32 bits, {-(2**31)} to {end - 1}, got {integer}; "
                "floats reach farther",
                line,
            )
        return (integer + 2**31) % 2**32 - 2**31
    try:
        real = float(number)
    except OverflowError:  # of an int; no float is too large for itself
        real = math.nan
    # NaN is compared with nothing else, since torch.compile can't compare symbols with it.
    if number == number if real != real else LARGEST_FLOAT < abs(real) < math.inf:
        raise EpilogueError.at(f"{what} must be within the fp32 numbers, up to {LARGEST_FLOAT}, got {number}", line)
    return real


def number_for(name: str, kind: Type, given: object, line: Line | None = None) -> int | float | None:
    """Convert a number passed for a scalar to the scalar's type; None if it is no number.

    Raises
    ------
    EpilogueError
        If the type has no such number.

    Examples
    --------
    >>> number_for("n", "i32", 3), number_for("scale", "f32", 3), number_for("n", "i32", 1.5)
    (3, 3.0, None)
    """
    number = as_python(given)
    if isinstance(number, int) or (isinstance(number, float) and kind == "f32"):
        return constant(number, kind, what=name, line=line)
    return None
