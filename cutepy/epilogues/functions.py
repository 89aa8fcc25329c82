"""Library of epilogues: activations, gated pairs, masks and reductions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from cutepy.epilogues.constants import as_python
from cutepy.epilogues.errors import EpilogueError, callers_line
from cutepy.epilogues.tracing import Epilogue, Integer, Scalar, epilogue
from cutepy.epilogues.values import ATTRIBUTES, METHODS, TORCH_FUNCTIONS, Value, apply, lift, where


def _elementary(op: str, what: str) -> Epilogue:
    def function(acc: Value) -> Value:
        return apply(op, acc)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Compute {what} of each element."
    return epilogue(function)


exp = _elementary("exp", "e to the power")
exp2 = _elementary("exp2", "2 to the power")
log = _elementary("log", "the natural logarithm")
log2 = _elementary("log2", "the logarithm to base 2")
sqrt = _elementary("sqrt", "the square root")
rsqrt = _elementary("rsqrt", "1 over the square root")
sin = _elementary("sin", "the sine")
cos = _elementary("cos", "the cosine")
tanh = _elementary("tanh", "the hyperbolic tangent")
tanh_approx = _elementary("tanh_approx", "the hyperbolic tangent, by one instruction, within 2^-11 of itself,")
sigmoid = _elementary("sigmoid", "the logistic function 1 / (1 + exp(-x))")
erf = _elementary("erf", "the error function")
floor = _elementary("floor", "the largest whole number that is not above")


def maximum(x: Any, y: Any) -> Value:  # noqa: ANN401
    """Return the larger of x and y, at least one of them a value; NaN if one is."""
    return apply("maximum", x, y)


def minimum(x: Any, y: Any) -> Value:  # noqa: ANN401
    """Return the smaller of x and y, at least one of them a value; NaN if one is."""
    return apply("minimum", x, y)


def clamp(x: Value, low: Any = None, high: Any = None) -> Value:  # noqa: ANN401
    """Return x limited to low from below, and to high from above."""
    x = x if low is None else apply("clamp_min", x, low)
    return x if high is None else apply("clamp_max", x, high)


@epilogue
def identity(acc: Value) -> Value:
    """Return the accumulators unchanged."""
    return acc


@epilogue
def relu(acc: Value) -> Value:
    """Return max(x, 0); NaN stays."""
    return where(acc <= 0.0, 0.0, acc)  # at 0 too, where torch's derivative is 0


@epilogue
def relu_squared(acc: Value) -> Value:
    """Return relu(x)^2."""
    positive: Value = relu(acc)
    return positive**2


@epilogue
def leaky_relu(acc: Value, slope: Scalar = 0.01) -> Value:  # type: ignore[assignment]
    """Return x where x >= 0, else slope * x."""
    return where(acc <= 0.0, slope * acc, acc)  # at 0 too, where torch's derivative is the slope


@epilogue
def gelu(acc: Value) -> Value:
    """Return x Phi(x), with Phi the normal distribution function."""
    result: Value = 0.5 * acc * (1.0 + erf(acc * 0.7071067811865476))
    return result


@epilogue
def gelu_tanh(acc: Value) -> Value:
    """Return the approximation of gelu by tanh; (1 + tanh u) / 2 is the logistic function of 2 u."""
    return acc * sigmoid(1.5957691216057308 * (acc + 0.044715 * acc * acc * acc))  # type: ignore[no-any-return]


@epilogue
def silu(acc: Value) -> Value:
    """Return x sigmoid(x)."""
    return acc * sigmoid(acc)  # type: ignore[no-any-return]


@epilogue
def softplus(acc: Value) -> Value:
    """Return log(1 + exp x), and x above 20."""
    return where(acc > 20.0, acc, log(1.0 + exp(clamp(acc, high=20.0))))


def _gated(function: Callable[[Value], Value], acc: Value) -> Value:
    gate, up = acc.interleaved(2)
    return function(gate) * up


@epilogue
def glu(acc: Value) -> Value:
    """Return sigmoid(gate) * up, of even and odd columns."""
    return _gated(sigmoid, acc)


@epilogue
def reglu(acc: Value) -> Value:
    """Return relu(gate) * up, of even and odd columns."""
    return _gated(relu, acc)


@epilogue
def swiglu(acc: Value) -> Value:
    """Return silu(gate) * up, of even and odd columns."""
    return _gated(silu, acc)


@epilogue
def geglu(acc: Value) -> Value:
    """Return gelu(gate) * up, of even and odd columns."""
    return _gated(gelu, acc)


@epilogue
def geglu_tanh(acc: Value) -> Value:
    """Return gelu_tanh(gate) * up, of even and odd columns."""
    return _gated(gelu_tanh, acc)


def amax(x: Value, dim: int | None = None) -> Value:
    """Return the largest magnitude over the rows (0), the columns (1), or all: a result; 0 for an empty range."""
    return abs(x).max(dim)


def sum_of_squares(x: Value, dim: int | None = None) -> Value:
    """Sum the squares over the rows (0), the columns (1), or all: a result."""
    return (x * x).sum(dim)


def uniform(x: Value, seed: Integer) -> Value:
    """Return a pseudo-random number in [0, 1) for each element's place and the seed, the same in kernel and torch.

    The place is the row, the column, and the product's index within the batch (`x.product`), so that the products of a
    batch, and the groups that have matrices of their own, differ. Examples of `torch.vmap` are products by themselves,
    each the first of its own: what differs there is the seed, if it is mapped too.

    Rounds of murmur3's finaliser over product, row and column; good for dropout, not for secrets.

    Raises
    ------
    EpilogueError
        If the seed is no integer.
    """
    if not isinstance(x, Value):
        raise EpilogueError.at(f"uniform and dropout take a value of an epilogue first, got {x!r}", callers_line())
    given = lift(x.trace, seed)
    if given.node.type == "f32":
        got = f"floats of a {given.node.shape}" if isinstance(seed, Value) else repr(seed)
        raise EpilogueError.at(
            f"uniform and dropout take an integer as their seed, got {got}; declare it `seed: Integer`", callers_line()
        )
    # The finaliser maps 0 to 0, so that the first product gets the numbers of a single one.
    seeded = mixed(x.product) ^ (given ^ 0x3C6EF372)
    bits = mixed(x.column ^ mixed(x.row ^ mixed(seeded)))
    result: Value = ((bits >> 8) & 0xFFFFFF) * 2.0**-24
    return result


def mixed(x: Any) -> Any:  # noqa: ANN401
    """Mix the bits of an integer (murmur3's finaliser): a value, or a Python integer, whose lower 32 bits count."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ _logical_shift(x, shift)) * factor
    return x ^ _logical_shift(x, 16)


def _logical_shift(x: Any, bits: int) -> Any:  # noqa: ANN401
    return (x >> bits) & ((1 << (32 - bits)) - 1)


def dropout(x: Value, p: Any, seed: Integer) -> Value:  # noqa: ANN401
    """Return 0 with probability p, 0 to 1, else x / (1 - p); place and seed decide, as in `uniform`."""
    given = as_python(p)
    if not isinstance(given, Value) and not (isinstance(given, (int, float)) and 0 <= given <= 1):
        raise EpilogueError.at(f"dropout takes a probability p of 0 to 1, or a Scalar, got {p!r}", callers_line())
    dropped = uniform(x, seed) < p
    # Dropped elements are divided by 1, since for p = 1 the derivative of x / 0 would be NaN.
    return where(dropped, 0.0, x / where(dropped, 1.0, 1.0 - p))


ACTIVATIONS: Mapping[str, Epilogue] = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
"""Activations by their names in `gemm`."""


def _torch_gelu(x: Value, approximate: str = "none") -> Value:
    if approximate not in ("none", "tanh"):
        raise EpilogueError.at(f"gelu is approximated by 'none' or 'tanh', got {approximate!r}", callers_line())
    return (gelu_tanh if approximate == "tanh" else gelu)(x)  # type: ignore[no-any-return]


def _torch_softplus(input: Value, beta: Any = 1, threshold: Any = 20) -> Value:  # noqa: ANN401
    if (as_python(beta), as_python(threshold)) != (1, 20):
        raise TypeError(f"beta must be 1 and threshold 20, got {beta!r} and {threshold!r}")
    return softplus(input)  # type: ignore[no-any-return]


def _truth(x: Any) -> Any:  # noqa: ANN401
    """Return whether numbers are nonzero, which NaN is; for a Python number, Python's truth."""
    if not isinstance(x, Value):
        return bool(as_python(x))
    return x if x.node.type == "bool" else x != 0


def _logical(op: str, input: Any, other: Any) -> Value:  # noqa: ANN401
    return apply(op, _truth(input), _truth(other))


def _filled(like: Value, fill: Any, dtype: object = None) -> Value:  # noqa: ANN401
    """Return a constant, of a value's type unless torch's dtype of it is given."""
    name = like.node.type if dtype is None else str(dtype).removeprefix("torch.")
    kind = bool if name == "bool" else int if "int" in name or name == "i32" else float
    return lift(like.trace, kind(fill))


def _new(like: Value, size: Any, fill: Any, dtype: object = None, device: object = None) -> Value:  # noqa: ANN401
    """Return a new constant, as a tensor of one element makes it, such as `b.new_ones((), dtype=torch.bool)`."""
    if tuple(size) not in ((), (1,)):
        raise EpilogueError.at(
            f"a function computes one element at a time, so that a new one has shape (), got {tuple(size)}",
            callers_line(),
        )
    return _filled(like, fill, dtype)


def _as_float(x: Value) -> Value:
    return x if x.node.type == "f32" else apply("float", x)


def _torch_dtype(x: Value) -> Any:  # noqa: ANN401
    import torch

    return {"f32": torch.float32, "i32": torch.int32, "bool": torch.bool}[x.node.type]


_OPERATORS = {
    "add": "add",
    "sub": "sub subtract",
    "mul": "mul multiply",
    "div": "div divide true_divide",
    "lt": "lt less",
    "le": "le less_equal",
    "gt": "gt greater",
    "ge": "ge greater_equal",
    "eq": "eq",
    "ne": "ne not_equal",
}

TORCH_FUNCTIONS.update(
    {
        **{each.name: each for each in (exp, exp2, log, log2, sqrt, rsqrt, sin, cos, tanh, sigmoid, erf, floor)},
        **{each.name: each for each in (relu, silu)},
        "abs": abs,
        "absolute": abs,
        "bitwise_not": lambda input: ~input,
        "clamp": lambda input, min=None, max=None: clamp(input, min, max),
        "clip": lambda input, min=None, max=None: clamp(input, min, max),
        "floor_divide": lambda input, other: input // other,
        "full_like": lambda input, fill_value, dtype=None: _filled(input, fill_value, dtype),
        "gelu": _torch_gelu,
        "leaky_relu": lambda input, negative_slope=0.01: leaky_relu(input, negative_slope),
        "logical_not": lambda input: ~_truth(input),
        **{f"logical_{op}": functools.partial(_logical, op) for op in ("and", "or", "xor")},
        "maximum": maximum,
        "minimum": minimum,
        "neg": lambda input: -input,
        "ones_like": lambda input, dtype=None: _filled(input, 1, dtype),
        "pow": lambda input, exponent: input**exponent,
        "reciprocal": lambda input: 1.0 / input,
        "remainder": lambda input, other: input % other,
        "softplus": _torch_softplus,
        "square": lambda input: input * input,
        "where": where,
        "zeros_like": lambda input, dtype=None: _filled(input, 0, dtype),
        **{f"bitwise_{op}": functools.partial(apply, op) for op in ("and", "or", "xor")},
        **{name: functools.partial(apply, op) for op, names in _OPERATORS.items() for name in names.split()},
    }
)

METHODS.update(
    {
        **{name: function for name, function in TORCH_FUNCTIONS.items() if name not in ("where", *ACTIVATIONS)},
        "bool": _truth,
        "contiguous": lambda input: input,
        "detach": lambda input: input,
        "float": _as_float,
        "int": lambda input: input.to("int32"),
        "long": lambda input: input.to("int64"),
        "new_full": _new,
        "new_ones": lambda input, size=(), dtype=None, device=None: _new(input, size, 1, dtype, device),
        "new_zeros": lambda input, size=(), dtype=None, device=None: _new(input, size, 0, dtype, device),
        "where": lambda input, condition, other: where(condition, input, other),
    }
)
ATTRIBUTES.update(
    {"device": lambda x: None, "dtype": _torch_dtype, "ndim": lambda x: 0, "shape": lambda x: ()},
)
