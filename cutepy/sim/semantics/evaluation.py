"""Evaluation of instructions on integers and arrays, of which some may be unknown: constant folding.

The result is known where the known operands decide it: 0 and anything is 0, and a selection by a known predicate is
what it selects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cutepy.sim.ptx.model import Immediate, Instruction, NegatedPredicate, Operand, Register
from cutepy.sim.semantics.builder import Builder, evaluate, meaning_of
from cutepy.sim.semantics.types import constant_bits, width

_NO_MEANING = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""Errors of Python for operands of another form than an instruction takes."""


class Data(NamedTuple):
    """A value, if it is known.

    Attributes
    ----------
    bits : int
        Width.
    data : int, array of uint64 or None
        Its bits; None if they are unknown.
    sources : frozenset of Register
        The registers that decide it.
    """

    bits: int
    data: Any
    sources: frozenset[Register] = frozenset()

    @property
    def number(self) -> int | None:
        """The value, if it is one integer."""
        return self.data if isinstance(self.data, int) else None


class Evaluator(Builder[Data]):
    """Operations on values that may be unknown.

    Parameters
    ----------
    value_of : callable
        Returns the bits of an operand that is no constant, such as a register: an int, an array of uint64, or None.

    Attributes
    ----------
    results : list of (Operand, Data)
        Destinations and their values.
    """

    def __init__(self, value_of: Callable[[Operand], Any]) -> None:
        self._value_of = value_of
        self._read: dict[tuple[Operand, str], Data] = {}
        self.results: list[tuple[Operand, Data]] = []

    def read(self, operand: Operand, kind: str) -> Data:
        """Return an operand's low bits."""
        if isinstance(operand, Immediate):
            return self.constant(width(kind), constant_bits(operand, kind))
        if isinstance(operand, NegatedPredicate):
            return self.invert(self.read(operand.operand, kind))
        if (operand, kind) not in self._read:
            data = self._value_of(operand)
            data = None if data is None else data & (1 << width(kind)) - 1
            sources = frozenset({operand}) if isinstance(operand, Register) else frozenset[Register]()
            self._read[operand, kind] = Data(width(kind), data, sources)
        return self._read[operand, kind]

    def write(self, operand: Operand, value: Data, signed: bool = False) -> None:
        """Note a result."""
        if isinstance(operand, Register):
            self.results.append((operand, self.resized(value, operand.bits, signed)))

    def constant(self, bits: int, number: int) -> Data:
        """Return a constant."""
        return Data(bits, number & (1 << bits) - 1)

    def unknown(self, reason: str = "") -> Exception:
        """Make an error that `results_of` takes for: no meaning."""
        return ValueError(reason)

    def _make(self, operation: str, bits: int, *values: Data) -> Data:
        return self._apply(operation, bits, *values)

    def _apply(self, operation: str, bits: int, *values: Data) -> Data:
        sources = frozenset[Register]().union(*(v.sources for v in values))
        if any(v.data is None for v in values):
            return Data(bits, None, sources)
        return Data(bits, evaluate(operation, values[0].bits, bits, *(v.data for v in values)), sources)

    def _apply_floats(self, operation: str, bits: int, values: tuple[Data, ...], given: tuple[Any, ...]) -> Data:
        return Data(bits, None, frozenset[Register]().union(*(v.sources for v in values)))


def results_of(i: Instruction, value_of: Callable[[Operand], Any]) -> list[tuple[Operand, Data]]:
    """Return the registers that an instruction writes, and their values.

    Parameters
    ----------
    i : Instruction
        Its guard is taken to hold.
    value_of : callable
        As of `Evaluator`.

    Returns
    -------
    list of (Operand, Data)
        Empty if the instruction's meaning is not on the builder.
    """
    function = meaning_of(i)
    if function is None:
        return []
    evaluator = Evaluator(value_of)
    try:
        function(evaluator, i)
    except _NO_MEANING:
        return []
    return evaluator.results
