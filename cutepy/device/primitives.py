"""Primitives of epilogues on registers: fp32, integers that wrap at 32 bits, and booleans (traced)."""

import math
from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32

LOG2_E = 1.4426950408889634
TYPES = {"f32": Float32, "i32": Int32, "bool": Boolean}


def logistic(x):
    """Compute 1 / (1 + exp(-x)) from the fast base-2 power and reciprocal."""
    return cute.arch.rcp_approx(1.0 + cute.math.exp2(x * -LOG2_E, fastmath=True))


def exp(x):
    """Compute exp of a register, or of many, by the fast base-2 power."""
    return cute.math.exp2(x * LOG2_E, fastmath=True)


def select(condition, x, y):
    """Return x where the condition holds, else y, without a branch."""
    kind = type(x) if isinstance(x, cutlass.Numeric) else type(y)
    return kind(cutlass.select_(condition, kind(x), kind(y)))


def constant(kind: str, value):
    """Return a constant of a type by name.

    The DSL takes equal constants for one, so -0.0 would become 0.0: it is made by negation.
    """
    if kind == "f32" and value == 0 and math.copysign(1.0, value) < 0:
        return -Float32(Float32(0.0).ir_value())
    return TYPES[kind](value)


def wrapping(x):
    """Return an integer whose arithmetic wraps at 32 bits.

    Integers from layouts are index-like: the compiler assumes that they never overflow, and that their products keep
    the divisors of the factors.
    """
    return Int32(x) | 0  # a bitwise operation, which indices do not have; it vanishes in compiled code


def _floordiv(x, n):
    if n & (n - 1) == 0:
        return x >> (n.bit_length() - 1)
    # Division of non-negative x as is; for negative x the complement of the quotient of -1 - x.
    negative = x < 0
    quotient = select(negative, ~x, x).to(cutlass.Uint32) // cutlass.Uint32(n)
    quotient = quotient.to(Int32)
    return select(negative, ~quotient, quotient)


def _mod(x, n):
    return x & (n - 1) if n & (n - 1) == 0 else x - _floordiv(x, n) * n


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "abs": lambda x: select(x < 0, -x, x) if isinstance(x, Int32) else cute.math.absf(x),
    "exp": cute.math.exp,
    "exp2": cute.math.exp2,
    "log": cute.math.log,
    "log2": cute.math.log2,
    "sqrt": cute.math.sqrt,
    "rsqrt": cute.math.rsqrt,
    "sin": cute.math.sin,
    "cos": cute.math.cos,
    "tanh": cute.math.tanh,
    "tanh_approx": lambda x: cute.math.tanh(x, fastmath=True),
    "sigmoid": logistic,
    "erf": cute.math.erf,
    "floor": cute.math.floor,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "maximum": lambda x, y: _extreme(cute.arch.fmax, x, y),
    "minimum": lambda x, y: _extreme(cute.arch.fmin, x, y),
    "clamp_min": lambda x, y: _extreme(cute.arch.fmax, x, y),
    "clamp_max": lambda x, y: _extreme(cute.arch.fmin, x, y),
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x: x ^ True if isinstance(x, Boolean) else ~x,
    "float": lambda x: x.to(Float32),
    "int": lambda x: x.to(Int32),
    "where": select,
}
"""Primitives by their names in `cutepy.epilogues.operations`."""
BY_CONSTANT: dict[str, Callable[[Any, int], Any]] = {
    "floordiv": _floordiv,
    "mod": _mod,
    "shl": lambda x, n: x << n,
    "shr": lambda x, n: x >> n,
}
"""Primitives of an integer and a constant."""
REDUCTIONS: dict[str, tuple[float, Callable[[Any, Any], Any]]] = {
    "sum": (0.0, lambda x, y: x + y),
    "max": (-float("inf"), lambda x, y: _extreme(cute.arch.fmax, x, y)),
    "min": (float("inf"), lambda x, y: _extreme(cute.arch.fmin, x, y)),
}
"""Neutral element and binary operation of each kind of reduction."""


def _extreme(function, x, y):
    """Return the larger or smaller value; NaN propagates, unlike in the plain instruction."""
    if isinstance(x, Int32) or isinstance(y, Int32):
        return select(x > y if function is cute.arch.fmax else x < y, x, y)
    return function(x, y, nan=True)
