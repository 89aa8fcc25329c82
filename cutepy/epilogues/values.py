"""Values of an epilogue while its function is traced: operators record operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cutepy.epilogues.constants import Number, as_python, constant, type_of
from cutepy.epilogues.errors import EpilogueError, Line, callers_line
from cutepy.epilogues.graph import Attribute, Node
from cutepy.epilogues.operations import PRIMITIVES, ROUNDED, SIGNLESS, TYPES, Type, by_columns
from cutepy.epilogues.trace import Trace


def _recorded(trace: Trace, op: str, inputs: Sequence[int] = (), value: Attribute = None) -> Value:
    return Value(trace, trace.add(op, inputs, value))


def _read(trace: Trace, operand: object) -> Value | Number:
    """Take a value of a trace, or a number, whose type the other operand determines."""
    number = as_python(operand)
    if isinstance(number, Value):
        if number.trace is not trace:
            kind = trace.noun.partition(" ")[2]
            raise EpilogueError.at(f"a value of another {kind} was kept; compute it in this one", callers_line())
        return number
    if isinstance(number, (bool, int, float)):
        return number
    scalar = trace.scalar_of(operand)
    if scalar is None:
        raise _foreign(trace, operand, callers_line())
    return Value(trace, scalar)


def _foreign(trace: Trace, operand: object, line: Line | None) -> EpilogueError:
    what = f"{type(operand).__module__}.{type(operand).__name__}"
    return EpilogueError.at(
        f"{trace.noun} computes with its operands and with Python's numbers, got a {what}; {trace.remedy}", line
    )


def _type(given: Value | Number) -> Type:
    return given.node.type if isinstance(given, Value) else type_of(given)


def _converted(trace: Trace, given: Value | Number, kind: Type, *, wraps: bool = False) -> Value:
    """Convert a value or a number to a value of a type at least as wide."""
    if not isinstance(given, Value):
        number = constant(given, kind, wraps=wraps, line=callers_line())
        return _recorded(trace, "const", value=number)
    node = given.node
    if node.type == kind:
        return given
    if node.op == "const":
        return _converted(trace, node.value, kind)  # type: ignore[arg-type]
    return _recorded(trace, "float" if kind == "f32" else "int", [given.index])


def lift(trace: Trace, operand: object) -> Value:
    """Convert a value or a number to a value of a trace; an integer to its 32 bits."""
    given = _read(trace, operand)
    return _converted(trace, given, _type(given), wraps=True)


def apply(op: str, *operands: object, constant: int | None = None) -> Value:
    """Apply a primitive to values and numbers, converted to one type."""
    trace = next(operand.trace for operand in operands if isinstance(operand, Value))
    given = [_read(trace, operand) for operand in operands]
    primitive = PRIMITIVES[op]
    wide = _widest(given)
    fitting = [kind for kind in TYPES[::-1] if kind in primitive.takes and TYPES.index(kind) <= TYPES.index(wide)]
    if not fitting:
        names = " or ".join(_TYPE_NAMES[kind] for kind in primitive.takes)
        raise EpilogueError.at(f"{op} takes {names}, got {_TYPE_NAMES[wide]}{_HINTS.get(op, '')}", callers_line())
    inputs = [_converted(trace, each, fitting[0], wraps=op in SIGNLESS).index for each in given]
    return _recorded(trace, op, inputs, constant)


def _widest(given: Sequence[Value | Number]) -> Type:
    return max(map(_type, given), key=TYPES[::-1].index)


_TYPE_NAMES = {"f32": "floats", "i32": "integers", "bool": "truth values"}
_HINTS = {"and": "; compare first", "or": "; compare first", "xor": "; compare first", "not": "; compare first"}


def numpys_refusal(what: str) -> str:
    """Return the error for a NumPy function, with its replacement."""
    return (
        f"{what} computes with no value of an epilogue; use cutepy.epilogues' functions, such as exp(x), "
        "clamp(x, low, high) and where(condition, x, y), and x.sum(1), x.max(1) and x.min(1) for results"
    )


def _refused(what: str) -> Callable[..., Any]:
    """Make a special method that refuses a conversion to a Python object."""

    def method(self: Value, *_: object, **__: object) -> Any:  # noqa: ANN401
        raise EpilogueError.at(what, callers_line())

    return method


def _refuses(operator: str, instead: str) -> Callable[..., Any]:
    """Make the method of an operator that no kernel computes."""

    def method(self: Value, *_: object) -> Any:  # noqa: ANN401
        raise EpilogueError.at(f"no kernel computes {operator}; {instead}", callers_line())

    return method


class Value:
    """Traced value: numbers for each element of a tile, row or column.

    Operators, comparisons, `cutepy.epilogues`' functions and torch's functions of the same names take it.
    """

    __slots__ = ("index", "trace")
    __hash__ = None  # type: ignore[assignment]  # `==` gives a value, so that values can't be keys
    __array_ufunc__ = None

    def __init__(self, trace: Trace, index: int) -> None:
        self.trace, self.index = trace, index

    @property
    def node(self) -> Node:
        """Operation that computed the value."""
        return self.trace.nodes[self.index]

    def __repr__(self) -> str:
        return f"<{self.node.type} {self.node.shape} v{self.index} = {self.node.op}>"

    # Conversions that would need the numbers.
    def _unknown(self, *_: object) -> Any:  # noqa: ANN401
        raise EpilogueError.at(
            "Python can't decide by a value that is known only in the kernel; use where(condition, x, y) for `if` and "
            "`x if condition else y`, & and | for `and` and `or`, maximum and minimum for `max` and `min`",
            callers_line(),
        )

    __bool__ = _unknown
    __float__ = __complex__ = _refused(
        "a value is no number that math's functions, float() and complex() can take, since it is known only in the "
        "kernel; use cutepy.epilogues' functions, such as exp(x) and sqrt(x), or torch's of the same names"
    )
    __int__ = _refused(
        "a value is no int of Python, since it is known only in the kernel; floor(x) is the next whole number"
    )
    __index__ = _refused(
        "a value can't index a list or count a loop, since it is known only in the kernel; use where(condition, x, y) "
        "to choose, or pass the list as a Row or Column"
    )
    __len__ = _refused(
        "a value has no length, since one kernel serves all extents; declare what depends on one, such as "
        "`n: Integer`, and pass it"
    )
    __array__ = _refused(
        "NumPy makes no array of a value, which is known only in the kernel; use cutepy.epilogues' functions"
    )

    def __array_function__(self, function: Any, *_: object) -> Any:  # noqa: ANN401
        """Refuse NumPy's functions, whose results would be arrays; __array_ufunc__ handles ufuncs."""
        raise EpilogueError.at(numpys_refusal(f"NumPy's {function.__name__}"), callers_line())

    def _no_elements(self, *_: object) -> Any:  # noqa: ANN401
        raise EpilogueError.at(
            "a value can't be indexed: a function computes each element from those at the same place; "
            "x.interleaved(2) gives the even and the odd columns, x.row, x.column and x.product the place",
            callers_line(),
        )

    __iter__ = __getitem__ = __setitem__ = __contains__ = _no_elements

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_"):
            raise _in_place(name, callers_line())
        if name in METHODS:
            return functools.partial(METHODS[name], self)
        if name in ATTRIBUTES:
            return ATTRIBUTES[name](self)
        known = ", ".join(n for n in ("column", "interleaved", "max", "min", "product", "row", "sum", "to"))
        raise EpilogueError.at(
            f"a value has no {name}; it has {known}, operators, and torch's methods {', '.join(sorted(METHODS))}",
            callers_line(),
        )

    def __add__(self, other: object) -> Value:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Value:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Value:
        return apply("sub", self, other)

    def __rsub__(self, other: object) -> Value:
        return apply("sub", other, self)

    def __mul__(self, other: object) -> Value:
        return apply("mul", self, other)

    def __rmul__(self, other: object) -> Value:
        return apply("mul", other, self)

    def __truediv__(self, other: object) -> Value:
        return apply("div", self, other)

    def __rtruediv__(self, other: object) -> Value:
        return apply("div", other, self)

    def __pow__(self, exponent: object) -> Value:
        exponent = as_python(exponent)
        if isinstance(exponent, float) and exponent == 0.5:
            return apply("sqrt", self)
        power = self
        if isinstance(exponent, float) and exponent.is_integer():  # gives floats, of integers too
            power, exponent = _converted(self.trace, self, "f32"), int(exponent)
        if not isinstance(exponent, int) or not 1 <= exponent <= 16:
            raise EpilogueError.at(
                f"exponents are whole numbers from 1 to 16, or 0.5, got {exponent!r}; x ** y is exp2(y * log2(x)) "
                "of a positive x",
                callers_line(),
            )
        # by repeated squaring, from the exponent's highest bit on
        base = power
        for bit in bin(exponent)[3:]:
            power = power * power * base if bit == "1" else power * power
        return power

    def __rpow__(self, base: object) -> Value:
        base = as_python(base)
        if isinstance(base, (int, float)) and base == 2:
            return apply("exp2", self)
        raise EpilogueError.at(
            f"the base must be 2 where a value is the exponent, got {base!r}; x ** y is exp2(y * log2(x)) "
            "of a positive x",
            callers_line(),
        )

    def __floordiv__(self, other: object) -> Value:
        return apply("floordiv", self, constant=self._constant("//", other, 1, 2**31))

    def __mod__(self, other: object) -> Value:
        return apply("mod", self, constant=self._constant("%", other, 1, 2**31))

    def __lshift__(self, other: object) -> Value:
        return apply("shl", self, constant=self._constant("<<", other, 0, 32))

    def __rshift__(self, other: object) -> Value:
        return apply("shr", self, constant=self._constant(">>", other, 0, 32))

    def _constant(self, operator: str, other: object, first: int, end: int) -> int:
        other = as_python(other)
        if self.node.type != "i32" or not isinstance(other, int) or not first <= other < end:
            raise EpilogueError.at(
                f"{operator} takes an integer value and a constant of Python from {first} to {end - 1}, got "
                f"{_TYPE_NAMES[self.node.type]} and {other!r}",
                callers_line(),
            )
        return int(other)

    def __neg__(self) -> Value:
        return apply("neg", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return apply("abs", self)

    def __lt__(self, other: object) -> Value:
        return apply("lt", self, other)

    def __le__(self, other: object) -> Value:
        return apply("le", self, other)

    def __gt__(self, other: object) -> Value:
        return apply("gt", self, other)

    def __ge__(self, other: object) -> Value:
        return apply("ge", self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return apply("ne", self, other)

    def __and__(self, other: object) -> Value:
        return apply("and", self, other)

    def __or__(self, other: object) -> Value:
        return apply("or", self, other)

    def __xor__(self, other: object) -> Value:
        return apply("xor", self, other)

    def __invert__(self) -> Value:
        return apply("not", self)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    __rfloordiv__ = __rmod__ = _refuses("// and % by a value", "they take a constant of Python on their right")
    __rlshift__ = __rrshift__ = _refuses("<< and >> by a value", "they take a constant of Python on their right")
    __divmod__ = __rdivmod__ = _refuses("divmod", "write x // n and x % n")
    __matmul__ = __rmatmul__ = _refuses("products of matrices in an epilogue", "it computes each element by itself")
    __round__ = __trunc__ = __ceil__ = __floor__ = _refuses(
        "round and math's functions", "floor(x + 0.5) rounds, and the functions of cutepy.epilogues take values"
    )

    @property
    def row(self) -> Value:
        """Row index of each element, from 0: an integer."""
        return _recorded(self.trace, "row_index")

    @property
    def column(self) -> Value:
        """Column index of each element among this value's columns, from 0: an integer."""
        return Value(self.trace, self.trace.column_index(self.index))

    @property
    def product(self) -> Value:
        """Index of the product within the batch, from 0; 0 without a batch: an integer.

        A batch of several modes is counted through, the last mode fastest.
        """
        return _recorded(self.trace, "product_index")

    def interleaved(self, parts: int) -> tuple[Value, ...]:
        """Split the columns in turn: of two parts, columns 0, 2, 4 and so on, and columns 1, 3, 5 and so on."""
        if parts not in (2, 4):
            raise EpilogueError.at(f"columns are interleaved in 2 or 4 parts, got {parts!r}", callers_line())
        if not by_columns(self.node.shape):
            raise EpilogueError.at(f"a {self.node.shape} has no columns to part", callers_line())
        halves = tuple(_recorded(self.trace, "part", [self.index], n) for n in (0, 1))
        if parts == 2:
            return halves
        quarters = [half.interleaved(2) for half in halves]
        return tuple(quarter[n] for n in (0, 1) for quarter in quarters)

    def to(self, dtype: object) -> Value:
        """Round to a dtype, in fp32 registers; of a result, its dtype. 8-bit floats saturate, NaN stays.

        Integers and truth values become int32, whatever integers are asked for; truth values of integers are whether
        they are not 0.
        """
        name = str(dtype).removeprefix("torch.")
        if self.node.type != "f32" and name in ("int32", "int64", "bool"):
            if name != "bool":
                return _converted(self.trace, self, "i32")
            return self if self.node.type == "bool" else self != 0
        if name not in ROUNDED:
            raise EpilogueError.at(f"values are rounded to {', '.join(ROUNDED)}, got {dtype!r}", callers_line())
        return _recorded(self.trace, "to", [_converted(self.trace, self, "f32").index], name)

    def sum(self, dim: int | None = None) -> Value:
        """Sum over the rows (dim 0: N sums), the columns (1: M sums), or all: a result."""
        return self._reduced("sum", dim)

    def max(self, dim: int | None = None) -> Value:
        """Return the largest over the rows (dim 0: N values), the columns (1: M values), or all: a result.

        Of no numbers it is -inf, and 0 of magnitudes, `abs(x)`.
        """
        return self._reduced("max", dim)

    def min(self, dim: int | None = None) -> Value:
        """Return the least over the rows (dim 0: N values), the columns (1: M values), or all; inf without elements."""
        return self._reduced("min", dim)

    def _reduced(self, kind: str, dim: int | None) -> Value:
        if dim not in (None, 0, 1, -1, -2):
            raise EpilogueError.at(
                f"dim is 0 or -2, the rows, 1 or -1, the columns, or None, got {dim!r}", callers_line()
            )
        if self.node.shape != "tile" or self.node.type == "bool":
            raise EpilogueError.at(
                f"numbers of the product's rows and columns are reduced, got {_TYPE_NAMES[self.node.type]} of a "
                f"{self.node.shape}; reduce that outside, or what was computed with it",
                callers_line(),
            )
        value = kind if dim is None else f"{kind} {dim % 2}"
        return _recorded(self.trace, "reduce", [_converted(self.trace, self, "f32").index], value)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: object,
        arguments: Sequence[Any] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Compute one of torch's functions by the function of `cutepy.epilogues` with its name."""
        return apply_torch(function, arguments, named or {})


def where(condition: object, x: object, y: object) -> Value:
    """Return x where the condition holds, else y."""
    value = next((each for each in (condition, x, y) if isinstance(each, Value)), None)
    if value is None:
        raise EpilogueError.at("where takes values of an epilogue, got none", callers_line())
    trace = value.trace
    test, *both = (_read(trace, each) for each in (condition, x, y))
    if _type(test) != "bool":
        raise EpilogueError.at("where takes a condition, such as x > 0, got numbers", callers_line())
    given = [(test, "bool"), *((each, _widest(both)) for each in both)]
    return _recorded(trace, "where", [_converted(trace, each, kind).index for each, kind in given])


TORCH_FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Implementations of torch's functions, by their names; the library fills it."""
METHODS: dict[str, Callable[..., Any]] = {}
"""Implementations of the methods of torch's tensors, by their names; the library fills it."""
ATTRIBUTES: dict[str, Callable[[Value], Any]] = {}
"""Attributes of torch's tensors that a value has as a tensor of one element; the library fills it."""


def _in_place(name: str, line: Line | None) -> EpilogueError:
    plain = name.strip("_")
    instead = f"`y = {plain}(x)`" if plain in TORCH_FUNCTIONS else "what gives a new one"
    return EpilogueError.at(
        f"{name} would change a value in place, but values stay what they are; write {instead}, and go on with that",
        line,
    )


def _is_neutral(option: str, value: object) -> bool:
    """Return whether an option of torch's functions has its neutral value, as in `torch.add(x, y, alpha=1)`."""
    return option in _NEUTRAL and not isinstance(value, Value) and value == _NEUTRAL[option]


_NEUTRAL = {"alpha": 1, "rounding_mode": None}


def _is_plain(argument: object) -> bool:
    """Return whether an argument is a dtype, a device, or a shape without extents."""
    return type(argument).__name__ in ("dtype", "device") or (isinstance(argument, (tuple, list)) and not argument)


def apply_torch(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Value:
    """Compute a torch function of values.

    Raises
    ------
    EpilogueError
        If it has no counterpart, gets an unsupported argument, or would change a value in place.
    """
    # A torch.ops operator's name includes its overload, such as "relu.default".
    name = getattr(function, "__name__", str(function)).partition(".")[0]
    line = callers_line()
    for argument in (*arguments, *named.values()):
        if not isinstance(as_python(argument), (Value, int, float, str, type(None))) and not _is_plain(argument):
            trace = next(each.trace for each in (*arguments, *named.values()) if isinstance(each, Value))
            if trace.scalar_of(argument) is None:
                raise _foreign(trace, argument, line)
    written = {key: value for key, value in named.items() if key in ("inplace", "out")}
    if name.endswith("_") or any(value is not None and value is not False for value in written.values()):
        raise _in_place(name if name.endswith("_") else f"{name} with {min(written)}=", line)
    counterpart = TORCH_FUNCTIONS.get(name)
    if counterpart is None:
        raise EpilogueError.at(
            f"torch's {name} is none of the functions that a kernel computes of each element; "
            f"it can {', '.join(sorted(TORCH_FUNCTIONS))}",
            line,
        )
    named = {key: value for key, value in named.items() if key not in written and not _is_neutral(key, value)}
    try:
        result: Value = counterpart(*arguments, **named)
    except TypeError as error:
        raise EpilogueError.at(f"torch's {name} is computed without some of its options: {error}", line) from error
    return result
