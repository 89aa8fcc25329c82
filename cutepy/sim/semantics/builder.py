"""Typed operations that the meaning of instructions is written with, and their evaluation.

A value has a number of bits, 1 for a predicate, and no sign: operations have it. `Builder` folds constants and what
needs no computing, such as a sum with 0; a back end makes the rest (`_apply`).

`of` registers the instructions whose meaning is written on the builder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from cutepy.sim.ptx.model import Instruction, Operand


class AnyValue(Protocol):
    """Attributes of a value, in each back end.

    Attributes
    ----------
    bits : int
    number : int or None
        Its value, if it is a constant.
    """

    @property
    def bits(self) -> int:
        """Width."""

    @property
    def number(self) -> int | None:
        """Value of a constant."""


V = TypeVar("V", bound=AnyValue)


class Builder(ABC, Generic[V]):
    """Operations on values of a back end."""

    shifts_saturate = True
    """True if shifts of the back end by the width or more leave zeros, or the sign; else the builder limits them."""

    # The back end.

    @abstractmethod
    def read(self, operand: Operand, kind: str) -> V:
        """Return an operand's bits, of the width of a kind."""

    def read_wide(self, operand: Operand, kind: str) -> V:
        """Return the low bits of an operand that may be wider than the kind."""
        return self.read(operand, kind)

    @abstractmethod
    def write(self, operand: Operand, value: V, signed: bool = False) -> None:
        """Give a destination a value, extended if it is wider; no register changes before the instruction ends."""

    @abstractmethod
    def constant(self, bits: int, number: int) -> V:
        """Return a constant, of the low bits of a number."""

    @abstractmethod
    def unknown(self, reason: str = "") -> Exception:
        """Make the error for a form of an instruction that has no meaning."""

    @abstractmethod
    def _apply(self, operation: str, bits: int, *values: V) -> V:
        """Compute an operation of `EVALUATIONS` whose result has some bits."""

    def floats(self, operation: str, bits: int, *values: V, given: tuple[Any, ...] = ()) -> V:
        """Compute an operation of floats, whose special cases each back end has.

        Parameters
        ----------
        operation : str
            Such as "add", "flush" or "narrow": `translate.expressions` has them all.
        bits : int
            Width of the result. What has 16 is the bits of an f16 or bf16.
        *values
        given : tuple
            Parameters that are no values, such as a rounding.
        """
        return self._apply_floats(operation, bits, values, given)

    @abstractmethod
    def _apply_floats(self, operation: str, bits: int, values: tuple[V, ...], given: tuple[Any, ...]) -> V:
        """Compute an operation of floats."""

    # Arithmetic.

    def _make(self, operation: str, bits: int, *values: V) -> V:
        numbers = [v.number for v in values]
        if None in numbers:
            return self._apply(operation, bits, *values)
        return self.constant(bits, evaluate(operation, values[0].bits, bits, *numbers))

    def add(self, a: V, b: V) -> V:
        """Add, modulo the width."""
        if a.number == 0 or b.number == 0:
            return b if a.number == 0 else a
        return self._make("add", a.bits, a, b)

    def sub(self, a: V, b: V) -> V:
        """Subtract, modulo the width."""
        if a is b:
            return self.constant(a.bits, 0)
        return a if b.number == 0 else self._make("sub", a.bits, a, b)

    def negate(self, a: V) -> V:
        """Subtract from 0."""
        return self.sub(self.constant(a.bits, 0), a)

    def mul(self, a: V, b: V) -> V:
        """Multiply, modulo the width."""
        for one, other in ((a, b), (b, a)):
            if one.number in (0, 1):
                return other if one.number else one
        return self._make("mul", a.bits, a, b)

    def udiv(self, a: V, b: V) -> V:
        """Divide unsigned numbers; the divisor is not 0."""
        return a if b.number == 1 else self._make("udiv", a.bits, a, b)

    def mul_high(self, a: V, b: V, signed: bool) -> V:
        """Return the upper half of a product, of 64 bits out of products of 32 by 32."""
        if a.bits < 64:
            wide = self.mul(self.resized(a, 2 * a.bits, signed), self.resized(b, 2 * a.bits, signed))
            return self.resized(self.lshr(wide, self.constant(32, a.bits)), a.bits)
        low, half = self.constant(64, 0xFFFFFFFF), self.constant(32, 32)
        a0, b0 = self.and_(a, low), self.and_(b, low)
        a1, b1 = self.lshr(a, half), self.lshr(b, half)
        middle = self.add(self.mul(a1, b0), self.lshr(self.mul(a0, b0), half))
        carry = self.add(self.mul(a0, b1), self.and_(middle, low))
        high = self.add(self.add(self.mul(a1, b1), self.lshr(middle, half)), self.lshr(carry, half))
        if signed:
            zero = self.constant(64, 0)
            for x, y in ((a, b), (b, a)):
                high = self.sub(high, self.select(self.compare("slt", x, zero), y, zero))
        return high

    def extreme(self, operation: str, a: V, b: V, signed: bool) -> V:
        """Return the smaller ("min") or the larger ("max")."""
        return a if a is b else self._make(("s" if signed else "u") + operation, a.bits, a, b)

    def magnitude(self, a: V) -> V:
        """Return the absolute value; that of the least number is itself."""
        return self.extreme("max", a, self.negate(a), signed=True)

    def add_saturated(self, a: V, b: V, subtract: bool = False) -> V:
        """Add or subtract signed numbers of 32 bits, clamped."""
        x, y = self.resized(a, 64, True), self.resized(b, 64, True)
        exact = self.sub(x, y) if subtract else self.add(x, y)
        low, high = self.constant(64, -(1 << 31)), self.constant(64, (1 << 31) - 1)
        return self.resized(self.extreme("max", self.extreme("min", exact, high, True), low, True), 32)

    # Bits.

    def and_(self, a: V, b: V) -> V:
        """Intersect bits."""
        for one, other in ((a, b), (b, a)):
            if one.number == 0 or one is other:
                return one
            if one.number == (1 << one.bits) - 1:
                return other
        return self._make("and", a.bits, a, b)

    def or_(self, a: V, b: V) -> V:
        """Unite bits."""
        for one, other in ((a, b), (b, a)):
            if one.number == (1 << one.bits) - 1 or one is other:
                return one
            if one.number == 0:
                return other
        return self._make("or", a.bits, a, b)

    def xor(self, a: V, b: V) -> V:
        """Tell where bits differ."""
        if a is b:
            return self.constant(a.bits, 0)
        for one, other in ((a, b), (b, a)):
            if one.number == 0:
                return other
        return self._make("xor", a.bits, a, b)

    def invert(self, a: V) -> V:
        """Return the complement."""
        return self.xor(a, self.constant(a.bits, -1))

    def logic(self, operation: str, a: V, b: V) -> V:
        """Apply "and", "or" or "xor"."""
        return {"and": self.and_, "or": self.or_, "xor": self.xor}[operation](a, b)

    def table(self, table: int, a: V, b: V, c: V) -> V:
        """Apply a truth table to each bit: bit `4a + 2b + c` is the result for bits a, b and c."""
        return self._table(table & 0xFF, 8, (a, b, c))

    def _table(self, table: int, rows: int, inputs: tuple[V, ...]) -> V:
        """Split a table at its first input, so that each input that decides nothing is dropped."""
        ones = (1 << rows) - 1
        if table in (0, ones):
            return self.constant(inputs[0].bits if inputs else 1, -(table != 0))
        # Split at an input for which one half is trivial, or at the first.
        for n, x in sorted(enumerate(inputs), key=lambda pair: self._rank(table, rows, pair[0])):
            low, high = _halves(table, rows, n)
            rest, half, full = (*inputs[:n], *inputs[n + 1 :]), rows // 2, (1 << rows // 2) - 1
            if low == high:
                return self._table(low, half, rest)
            if low == 0 or high == 0:
                chosen = x if low == 0 else self.invert(x)
                return chosen if low | high == full else self.and_(chosen, self._table(low | high, half, rest))
            if low == full or high == full:
                chosen = x if high == full else self.invert(x)
                return self.or_(chosen, self._table(low & high, half, rest))
            if low ^ high == full:
                return self.xor(x, self._table(low, half, rest))
            return self.xor(self._table(low, half, rest), self.and_(x, self._table(low ^ high, half, rest)))
        raise AssertionError

    @staticmethod
    def _rank(table: int, rows: int, n: int) -> int:
        low, high = _halves(table, rows, n)
        full = (1 << rows // 2) - 1
        return 0 if low == high else 1 if {low, high} & {0, full} else 2 if low ^ high == full else 3

    def _shift(self, operation: str, a: V, by: V, within: bool) -> V:
        bits = a.bits
        if by.number is None and not within:
            if not self.shifts_saturate:
                large = self.compare("uge", by, self.constant(by.bits, bits))
                last = self.constant(by.bits, bits - 1)
                found = self._shift(operation, a, self.select(large, last, by), within=True)
                return found if operation == "ashr" else self.select(large, self.constant(bits, 0), found)
            if by.bits > bits:
                by = self.extreme("min", by, self.constant(by.bits, bits), signed=False)
        if by.number is not None:
            if by.number >= bits and operation != "ashr":
                return self.constant(bits, 0)
            by = self.constant(bits, min(by.number, bits - 1))
        return a if by.number == 0 else self._make(operation, bits, a, self.resized(by, bits))

    def shl(self, a: V, by: V, within: bool = False) -> V:
        """Shift left; by the width or more gives 0. `within` says that the amount is smaller than the width."""
        return self._shift("shl", a, by, within)

    def lshr(self, a: V, by: V, within: bool = False) -> V:
        """Shift right and fill with zeros; by the width or more gives 0."""
        return self._shift("lshr", a, by, within)

    def ashr(self, a: V, by: V, within: bool = False) -> V:
        """Shift right and fill with the sign; by the width or more leaves the sign alone."""
        return self._shift("ashr", a, by, within)

    def shr(self, a: V, by: V, signed: bool) -> V:
        """Shift right as a type says."""
        return self._shift("ashr" if signed else "lshr", a, by, False)

    def low_ones(self, count: V, bits: int) -> V:
        """Return a number whose low bits, so many, are set: all for the width or more."""
        one = self.constant(bits, 1)
        return self.sub(self.shl(one, count), one)

    def count_ones(self, a: V) -> V:
        """Count the bits that are set, in 32 bits."""
        return self._make("popc", 32, a)

    def leading_zeros(self, a: V) -> V:
        """Count leading zeros, in 32 bits."""
        return self._make("clz", 32, a)

    def reverse(self, a: V) -> V:
        """Reverse the bits."""
        return self._make("brev", a.bits, a)

    # Choice and width.

    def compare(self, relation: str, a: V, b: V) -> V:
        """Compare: eq, ne, or one of lt, le, gt, ge after a letter of the sign, u or s."""
        if a is b:
            return self.constant(1, (relation[-1] == "e" and relation != "ne") or relation == "eq")
        return self._make(relation, 1, a, b)

    def is_zero(self, a: V) -> V:
        """Compare with 0."""
        return self.compare("eq", a, self.constant(a.bits, 0))

    def select(self, condition: V, a: V, b: V) -> V:
        """Take `a` where the condition holds, and else `b`."""
        if a is b:
            return a
        if condition.number is not None:
            return a if condition.number else b
        return self._make("select", a.bits, condition, a, b)

    def resized(self, a: V, bits: int, signed: bool = False) -> V:
        """Extend by the sign or by zeros, or cut off."""
        if bits == a.bits:
            return a
        return self._make("trunc" if bits < a.bits else "sext" if signed else "zext", bits, a)

    def joined(self, low: V, high: V) -> V:
        """Put two values side by side in one of twice their bits."""
        bits = 2 * low.bits
        return self.or_(self.shl(self.resized(high, bits), self.constant(32, low.bits)), self.resized(low, bits))

    def part(self, a: V, position: int, bits: int) -> V:
        """Take some bits from a position on."""
        return self.resized(self.lshr(a, self.constant(32, position)), bits)


def _halves(table: int, rows: int, n: int) -> tuple[int, int]:
    """Return the tables that are left where an input is 0, and where it is 1."""
    count = rows.bit_length() - 1
    place = count - 1 - n
    low = high = 0
    for row in range(rows // 2):
        at = (row >> place) << place + 1 | row & (1 << place) - 1
        low |= (table >> at & 1) << row
        high |= (table >> (at | 1 << place) & 1) << row
    return low, high


# Evaluation, of integers as of uint64 arrays: upper bits are cut off at the end.


def _least(a: Any, b: Any) -> Any:  # noqa: ANN401
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def _most(a: Any, b: Any) -> Any:  # noqa: ANN401
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def _popc(a: Any) -> Any:  # noqa: ANN401
    return a.bit_count() if isinstance(a, int) else np.bitwise_count(a).astype(np.uint64)


def _clz(n: int, a: Any) -> Any:  # noqa: ANN401
    for by in (1, 2, 4, 8, 16, 32):
        a = a | a >> by
    return n - _popc(a)


def _ashr(n: int, a: Any, by: Any) -> Any:  # noqa: ANN401
    by, ones = _least(by, n - 1), (1 << n) - 1
    return a >> by | (ones ^ ones >> by) * (a >> n - 1)


EVALUATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda n, a, b: a + b,
    "sub": lambda n, a, b: a - b,
    "mul": lambda n, a, b: a * b,
    "udiv": lambda n, a, b: a // b,
    "and": lambda n, a, b: a & b,
    "or": lambda n, a, b: a | b,
    "xor": lambda n, a, b: a ^ b,
    "shl": lambda n, a, by: a << _least(by, n),
    "lshr": lambda n, a, by: a >> _least(by, n),
    "ashr": _ashr,
    "umin": lambda n, a, b: _least(a, b),
    "umax": lambda n, a, b: _most(a, b),
    # Flipping the sign's bit turns the order of signed numbers into that of unsigned ones.
    "smin": lambda n, a, b: _least(a ^ 1 << n - 1, b ^ 1 << n - 1) ^ 1 << n - 1,
    "smax": lambda n, a, b: _most(a ^ 1 << n - 1, b ^ 1 << n - 1) ^ 1 << n - 1,
    "eq": lambda n, a, b: a == b,
    "ne": lambda n, a, b: a != b,
    "ult": lambda n, a, b: a < b,
    "ule": lambda n, a, b: a <= b,
    "ugt": lambda n, a, b: a > b,
    "uge": lambda n, a, b: a >= b,
    "slt": lambda n, a, b: a ^ 1 << n - 1 < b ^ 1 << n - 1,
    "sle": lambda n, a, b: a ^ 1 << n - 1 <= b ^ 1 << n - 1,
    "sgt": lambda n, a, b: a ^ 1 << n - 1 > b ^ 1 << n - 1,
    "sge": lambda n, a, b: a ^ 1 << n - 1 >= b ^ 1 << n - 1,
    "select": lambda n, c, a, b: b ^ (a ^ b) * c,
    "trunc": lambda n, a: a,
    "zext": lambda n, a: a,
    "sext": lambda n, a: (a ^ 1 << n - 1) - (1 << n - 1),
    "popc": lambda n, a: _popc(a),
    "clz": _clz,
    "brev": lambda n, a: sum((a >> k & 1) << n - 1 - k for k in range(n)),
}
"""Operation -> its result, given the bits of the first operand and the operands, as unsigned numbers or arrays."""


def evaluate(operation: str, bits: int, result_bits: int, *values: Any) -> Any:  # noqa: ANN401
    """Compute an operation on unsigned integers, or on arrays of uint64.

    Parameters
    ----------
    operation : str
    bits, result_bits : int
        Width of the first operand and of the result.
    *values
        The operands.

    Examples
    --------
    >>> evaluate("sext", 8, 32, 0xFF) == 0xFFFFFFFF
    True
    """
    found = EVALUATIONS[operation](bits, *values)
    if isinstance(found, np.ndarray):
        return found.astype(np.uint64, copy=False) & np.uint64((1 << result_bits) - 1)
    return int(found) & (1 << result_bits) - 1


Meaning = Callable[[Builder[Any], Instruction], None]


class Entry(NamedTuple):
    """An opcode whose meaning is on the builder.

    Attributes
    ----------
    function : callable
        ``function(builder, instruction)`` reads operands, computes and writes results on any builder.
    refuses : frozenset of str
        Modifiers that may follow the opcode, and are not simulated.
    applies : callable
        Tells of an instruction's parts whether the function computes it; others of the opcode are defined elsewhere.
    """

    function: Meaning
    refuses: frozenset[str]
    applies: Callable[[tuple[str, ...]], bool]


MEANINGS: dict[str, Entry] = {}
"""Opcode, or the beginning of one -> its meaning."""


def meaning(
    *names: str, refuses: str = "", applies: Callable[[tuple[str, ...]], bool] = lambda parts: True
) -> Callable[[Meaning], Meaning]:
    """Register the meaning of instructions, by the first part of their opcode or by a longer prefix of it.

    Parameters
    ----------
    *names : str
        Opcodes, or their beginnings.
    refuses : str
        Modifiers of theirs that are not simulated.
    applies : callable
        Tells of an instruction's parts whether the function computes it.
    """

    def register(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(names, Entry(function, frozenset(refuses.split()), applies)))
        return function

    return register


def meaning_of(i: Instruction) -> Meaning | None:
    """Return the function that computes an instruction; None if its meaning is not on the builder."""
    return _of_opcode(i.parts)


@lru_cache(maxsize=1 << 12)
def _of_opcode(parts: tuple[str, ...]) -> Meaning | None:
    found = MEANINGS.get(".".join(parts[:2])) or MEANINGS.get(parts[0])
    return found.function if found is not None and found.applies(parts) else None
