"""Constant expressions: the values that PTX computes before it runs.

References
----------
PTX ISA, "Constants", "Constant Expressions", "Integer Constant Expression Evaluation": integers have 64 bits and a
sign or none, floats are doubles, operators and their precedence are those of C.
"""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from cutepy.sim.ptx.model import Immediate
from cutepy.sim.ptx.tokens import PtxSyntaxError, Tokens, integer

WARP_SIZE = "WARP_SZ"
_WORD = 1 << 64


class Constant(NamedTuple):
    """A value: an int of 64 bits, which may be without a sign, or a float.

    Attributes
    ----------
    value : int or float
    is_unsigned : bool
    bits : tuple of (int, int) or None
        Of a float that was written as bits: these, and how many there are.
    """

    value: int | float
    is_unsigned: bool = False
    bits: tuple[int, int] | None = None

    @property
    def immediate(self) -> Immediate:
        """The value as an operand."""
        if self.bits is not None:
            return Immediate(*self.bits)
        if isinstance(self.value, float):
            return Immediate(int.from_bytes(struct.pack("<d", self.value), "little"), 64)
        return Immediate(self.value)


_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": lambda a, b: _quotient(a, b), "%": lambda a, b: a - b * _quotient(a, b)},
)
"""Binary operators, the loosest first."""
_LEVEL = {name: level for level, names in enumerate(_LEVELS) for name in names}
_TRUTHS = frozenset("|| && == != < <= > >=".split())
_SHIFTS = frozenset(("<<", ">>"))


def evaluate(text: str) -> Constant:
    """Evaluate a constant expression.

    Raises
    ------
    PtxSyntaxError
        If it is none.

    Examples
    --------
    >>> [evaluate(text).value for text in ("~0", "(1<<4)|3", "5 > 3 ? 7 : 9", "-7/2", "1.0+2.5", "WARP_SZ*2")]
    [-1, 19, 7, -3, 3.5, 64]
    """
    tokens = Tokens(text)
    value = expression(tokens)
    tokens.finish()
    return value


def expression(tokens: Tokens) -> Constant:
    """Take a constant expression from the front."""
    condition = _binary(tokens, 0)
    if not tokens.take_if("?"):
        return condition
    first = expression(tokens)
    tokens.expect(":")
    second = expression(tokens)
    return first if condition.value else second


def _binary(tokens: Tokens, level: int) -> Constant:
    left = _unary(tokens)
    while (found := _LEVEL.get(tokens.next[1], -1)) >= level:
        name = tokens.pop()[1]
        left = _combined(tokens, name, _LEVELS[found][name], left, _binary(tokens, found + 1))
    return left


def _combined(tokens: Tokens, name: str, function: Callable[[int, int], int], a: Constant, b: Constant) -> Constant:
    if isinstance(a.value, float) or isinstance(b.value, float):
        if name not in "+-*/" or not (isinstance(a.value, float) and isinstance(b.value, float)):
            raise tokens.error(f"{name} takes integers, or two floats and is one of + - * /")
        if name == "/" and b.value == 0:
            raise tokens.error("division by zero")
        by_name = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
        return Constant(by_name[name](a.value, b.value))
    if name in ("/", "%") and b.value == 0:
        raise tokens.error("division by zero")
    is_unsigned = a.is_unsigned or (b.is_unsigned and name not in _SHIFTS)
    left, right = (_wrapped(v.value, is_unsigned) for v in (a, b))  # type: ignore[arg-type]
    if name in _SHIFTS:
        right = int(b.value) % 64
    return Constant(_wrapped(int(function(left, right)), is_unsigned), is_unsigned and name not in _TRUTHS)


def _unary(tokens: Tokens) -> Constant:
    kind, text = tokens.pop()
    if text in ("-", "+", "~", "!"):
        inner = _unary(tokens)
        if isinstance(inner.value, float):
            if text in ("~", "!") or inner.bits is not None:
                raise tokens.error(f"{text} does not take {inner.value}")
            return Constant(-inner.value if text == "-" else inner.value)
        if text == "!":
            return Constant(int(not inner.value))
        changed = {"-": -inner.value, "+": inner.value, "~": ~inner.value}[text]
        return Constant(_wrapped(changed, inner.is_unsigned), inner.is_unsigned)
    if text == "(":
        cast = tokens.pop()[1] if tokens.next[1] in (".s64", ".u64") else ""
        if cast:
            tokens.expect(")")
            value = _unary(tokens).value
            return Constant(_wrapped(int(value), cast == ".u64"), cast == ".u64")
        value_inside = expression(tokens)
        tokens.expect(")")
        return value_inside
    if text == WARP_SIZE:
        return Constant(32)
    if kind != "number":
        raise tokens.error(f"expected a constant, got {text!r}")
    return _literal(text)


def _literal(text: str) -> Constant:
    for letters, code, digits in (("fF", "<f", 8), ("dD", "<d", 16)):
        if text[:1] == "0" and text[1:2] in tuple(letters) and len(text) == digits + 2:
            bits = int(text[2:], 16)
            return Constant(
                float(struct.unpack(code, bits.to_bytes(digits // 2, "little"))[0]), False, (bits, 4 * digits)
            )
    if "." in text or ("e" in text.lower() and text[:2].lower() != "0x"):
        return Constant(_decimal(text))
    value = integer(text)
    is_unsigned = text.endswith("U") or value >= _WORD // 2
    return Constant(_wrapped(value, is_unsigned), is_unsigned)


def _decimal(text: str) -> float:
    """Return the double nearest to a decimal literal.

    As ptxas, refuse one that is too large for a double, or so small that its double loses bits.
    """
    value = float(text)
    is_small = value < sys.float_info.min and any(digit in "123456789" for digit in text.lower().partition("e")[0])
    if math.isinf(value) or (is_small and (not value or Decimal(text) != Decimal(value))):
        least, most = sys.float_info.min, sys.float_info.max
        reason = (
            f"expected a float that a double holds, 0 or from {least} to {most}, got {text}; write its bits instead"
        )
        raise PtxSyntaxError(f"{reason}, as 0d7FF0000000000000 for infinity", text)
    return value


def _wrapped(value: int, is_unsigned: bool) -> int:
    value %= _WORD
    return value if is_unsigned or value < _WORD // 2 else value - _WORD


def _quotient(a: int, b: int) -> int:
    """Divide, rounding towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient
