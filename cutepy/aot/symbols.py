"""Symbolic conditions and costs: Python functions of extents, traced and written as C++."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutepy.aot.names import SpecError

SM_COUNT = "sm_count"
"""Name of the device's number of multiprocessors in costs and arguments."""
_MOST_WAYS = 256


class _Fork(BaseException):
    """Exception of a branch that has not been decided yet."""


@dataclass(frozen=True, eq=False)
class Symbol:
    """Symbolic number or comparison whose value is known when the exported library is called.

    Attributes
    ----------
    cpp, python : str
        The expression in both languages, which binds tighter than any operator.
    kind : str
        "int", "double" or "bool".
    decided : mapping of str to bool
        Outcomes of conditions so far.
    """

    cpp: str
    python: str
    kind: str
    decided: Mapping[str, bool] = field(repr=False)

    def __bool__(self) -> bool:
        if self.cpp not in self.decided:
            raise _Fork(self.cpp)
        return self.decided[self.cpp]

    def __neg__(self) -> Symbol:
        return Symbol(f"(-{self.cpp})", f"(-{self.python})", self._number, self.decided)

    def __abs__(self) -> Symbol:
        return self if self._with(">=", 0) else -self

    def __index__(self) -> int:
        raise TypeError(f"{self.python} is known only when the exported library is called; round by // if need be")

    __hash__ = None  # type: ignore[assignment]
    __int__ = __float__ = __round__ = __trunc__ = __floor__ = __index__

    def __ceil__(self) -> Symbol:
        if self.kind != "double":
            return self
        rounded: Symbol = _called(math.ceil, "static_cast<int64_t>(std::ceil({}))", "math.ceil({})", "int", self)
        return rounded

    @property
    def _number(self) -> str:
        return "double" if self.kind == "double" else "int"

    def _with(self, operator: str, other: object, *, reflected: bool = False) -> Any:  # noqa: ANN401
        if not isinstance(other, Symbol):
            if not isinstance(other, int | float):
                return NotImplemented
            other = _constant(other, self.decided)
        left, right = (other, self) if reflected else (self, other)
        kind = "double" if "double" in (self._number, other._number) else "int"
        python = f"({left.python} {operator} {right.python})"
        if operator == "/":
            return Symbol(f"(static_cast<double>({_bare(left.cpp)}) / {right.cpp})", python, "double", self.decided)
        if operator in ("//", "%"):
            if kind == "double":
                raise TypeError(f"{python} must be of integers")
            name = "floor_div" if operator == "//" else "floor_mod"
            return Symbol(f"{name}({_bare(left.cpp)}, {_bare(right.cpp)})", python, kind, self.decided)
        if operator not in ("+", "-", "*"):
            kind = "bool"
        return Symbol(f"({left.cpp} {operator} {right.cpp})", python, kind, self.decided)


def _operation(operator: str, *, reflected: bool = False) -> Callable[[Symbol, object], Any]:
    return lambda self, other: self._with(operator, other, reflected=reflected)


for _name, _operator in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%"}.items():
    setattr(Symbol, f"__{_name}__", _operation(_operator))
    setattr(Symbol, f"__r{_name}__", _operation(_operator, reflected=True))
for _name, _operator in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    setattr(Symbol, f"__{_name}__", _operation(_operator))


def minimum(left: Any, right: Any) -> Any:  # noqa: ANN401
    """Return the smaller of two numbers without a branch."""
    return _called(min, "std::min<{kind}>({}, {})", "min({}, {})", "", left, right)


def maximum(left: Any, right: Any) -> Any:  # noqa: ANN401
    """Return the larger of two numbers without a branch."""
    return _called(max, "std::max<{kind}>({}, {})", "max({}, {})", "", left, right)


def sixth(value: Any) -> Any:  # noqa: ANN401
    """Return the sixth power."""
    return _called(lambda x: x**6, "sixth({})", "({}) ** 6", "double", value)


def sixth_root(value: Any) -> Any:  # noqa: ANN401
    """Return the sixth root."""
    return _called(lambda x: x ** (1 / 6), "sixth_root({})", "({}) ** (1 / 6)", "double", value)


def _called(function: Callable[..., Any], cpp: str, python: str, kind: str, *values: Any) -> Any:  # noqa: ANN401
    """Call a function: of symbols by its patterns in both languages, of numbers at once.

    Without a kind the result is an int64_t if all operands are, else a double.
    """
    symbols = [value for value in values if isinstance(value, Symbol)]
    if not symbols:
        return function(*values)
    decided = symbols[0].decided
    operands = [value if isinstance(value, Symbol) else _constant(value, decided) for value in values]
    kind = kind or ("double" if any(each._number == "double" for each in operands) else "int")
    called = cpp.format(*(_bare(each.cpp) for each in operands), kind={"int": "int64_t"}.get(kind, kind))
    return Symbol(called, python.format(*(_bare(each.python) for each in operands)), kind, decided)


def _constant(value: float, decided: Mapping[str, bool]) -> Symbol:
    if isinstance(value, bool):
        return Symbol(str(value).lower(), str(value), "bool", decided)
    if isinstance(value, int):
        return Symbol(str(value), str(value), "int", decided)
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return Symbol(f"({sign}std::numeric_limits<double>::infinity())", repr(value), "double", decided)
    return Symbol(repr(value), repr(value), "double", decided)


@dataclass(frozen=True)
class TracedExpression:
    """Traced function: an expression, or a condition with both branches.

    Examples
    --------
    >>> def waves(m, sm_count):
    ...     return -(-m // 128) / sm_count if m > 128 else 1
    >>> for line in trace(waves, {"m", "sm_count"}).lines:
    ...     print(line)
    if (m > 128) {
      return static_cast<double>(-floor_div(-m, 128)) / sm_count;
    }
    return 1;
    """

    value: Symbol | None = None
    condition: str = ""
    ways: tuple[TracedExpression, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Body of a C++ function."""
        if self.value is not None:
            return [f"return {_bare(self.value.cpp)};"]
        yes, no = self.ways
        return [f"if ({_bare(self.condition)}) {{", *(f"  {line}" for line in yes.lines), "}", *no.lines]

    @property
    def text(self) -> str:
        """Python text, if it is one expression."""
        return "" if self.value is None else _bare(self.value.python)


class of:
    """Rename a function's parameters that have other names.

    Examples
    --------
    >>> import operator
    >>> trace(of(("lda", "k"), operator.ge), {"lda", "k"}).text
    'lda >= k'
    """

    def __init__(self, names: Sequence[str], function: Callable[..., Any]) -> None:
        self._names, self._function = tuple(names), function
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in self._names]
        )

    def __call__(self, **values: Any) -> Any:  # noqa: ANN401
        """Call the function."""
        return self._function(*(values[name] for name in self._names))


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names of a function."""
    return tuple(inspect.signature(function).parameters)


def trace(function: Callable[..., Any], known: set[str]) -> TracedExpression:
    """Trace a function on symbols, once for each path through it.

    It may use + - * / // %, comparisons, `min`, `max`, `abs`, `math.ceil`, and anything that branches on those; what it
    calls, too.

    Raises
    ------
    SpecError
        If it does anything else, is of names that are not known, or has too many ways.
    """
    names = parameters(function)
    if unknown := set(names) - known:
        raise SpecError(
            f"{_described(function)} has parameters {', '.join(sorted(unknown))}, which no tensor names; "
            f"the names are {', '.join(sorted(known))}"
        )
    ways = 0

    def explore(decided: Mapping[str, bool]) -> TracedExpression:
        nonlocal ways
        ways += 1
        if ways > _MOST_WAYS:
            raise SpecError(f"{_described(function)} has more than {_MOST_WAYS} paths")
        try:
            result = function(**{name: Symbol(name, name, "int", decided) for name in names})
            value = result if isinstance(result, Symbol) else _constant(_checked(result), decided)
            return TracedExpression(value)
        except _Fork as fork:
            condition = str(fork)
        except Exception as error:
            raise SpecError(f"{_described(function)} can't be written in C++: {error}") from error
        yes, no = (explore({**decided, condition: way}) for way in (True, False))
        return yes if yes.lines == no.lines else TracedExpression(None, condition, (yes, no))

    return explore({})


def _checked(result: object) -> float:
    if not isinstance(result, int | float):
        raise TypeError(f"it must return a number or the answer to a comparison, got {result!r}")
    return result


def _described(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    place = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
    return f"{getattr(function, '__name__', function)}{place}"


def _bare(text: str) -> str:
    """Drop the brackets around a whole text."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for n, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if n == len(text) - 1 else text
    return text
