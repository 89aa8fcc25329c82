"""Table of the instructions that machine code is written for: those with a meaning, and those that modules here add.

numpy computes all others. `MachineCode` writes the instructions whose meaning is on the builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutepy.sim.native.floating import compute
from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.native.writer import Value
from cutepy.sim.ptx.model import Instruction, Operand
from cutepy.sim.semantics import meaning_of
from cutepy.sim.semantics.builder import Builder
from cutepy.sim.translate.emitter import refused_modifier

_INTRINSICS = {"popc": ("ctpop", ""), "clz": ("ctlz", "<{is_zero_poison = false}> "), "brev": ("bitreverse", "")}
_RELATIONS = frozenset(("eq", "ne", *(sign + relation for sign in "us" for relation in ("lt", "le", "gt", "ge"))))


class MachineCode(Builder[Value]):
    """Operations on the lanes of a warp, as the writer has them.

    Parameters
    ----------
    lanes : Lanes
        Lanes whose registers are used.
    """

    shifts_saturate = False

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    def read(self, operand: Operand, kind: str) -> Value:
        """Return an operand's bits, read as a kind."""
        return self._lanes.read(operand, kind)

    def read_wide(self, operand: Operand, kind: str) -> Value:
        """Return the low bits of an operand that may be wider than the kind."""
        return self._lanes.read_wide(operand, kind)

    def write(self, operand: Operand, value: Value, signed: bool = False) -> None:
        """Give a destination a value, extended if it is wider."""
        self._lanes.write(operand, value, signed)

    def constant(self, bits: int, number: int) -> Value:
        """Return a constant."""
        return self._lanes.w.constant(bits, number)

    def unknown(self, reason: str = "") -> Exception:
        """Leave a form of an instruction to numpy, which says why it has no meaning."""
        return UnsupportedError(reason)

    def _apply(self, operation: str, bits: int, *values: Value) -> Value:
        w = self._lanes.w
        if operation in _RELATIONS:
            return w.compare(operation, *values)
        if operation == "select":
            return w.select(*values)
        if operation in ("trunc", "zext", "sext"):
            return w.resized(values[0], bits, operation == "sext")
        if operation in _INTRINSICS:
            name, more = _INTRINSICS[operation]
            return w.resized(w.intrinsic(name, *values, more=more), bits)
        if operation[1:] in ("min", "max"):
            return w.intrinsic(operation, *values)
        return w.binary(operation, *values)

    def _apply_floats(self, operation: str, bits: int, values: tuple[Value, ...], given: tuple[Any, ...]) -> Value:
        return compute(self._lanes, operation, bits, values, given)


Writes = Callable[[Lanes, Instruction], None]
_TABLE: dict[str, Writes] = {}


def of(*names: str) -> Callable[[Writes], Writes]:
    """Register the function that writes instructions, by the first part of their opcode."""

    def register(function: Writes) -> Writes:
        _TABLE.update(dict.fromkeys(names, function))
        return function

    return register


def write_instruction(lanes: Lanes, i: Instruction) -> None:
    """Write an instruction; a store is another matter.

    Raises
    ------
    UnsupportedError
        If numpy computes it.
    """
    function = meaning_of(i)
    if (function is None and i.parts[0] not in _TABLE) or refused_modifier(i.opcode) is not None:
        raise UnsupportedError
    lanes.instruction = i
    try:
        if function is not None:
            function(MachineCode(lanes), i)
        else:
            _TABLE[i.parts[0]](lanes, i)
        lanes.finish()
    except (AssertionError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise UnsupportedError from error


def need(condition: object) -> None:
    """Leave an instruction to numpy unless a condition holds."""
    if not condition:
        raise UnsupportedError
