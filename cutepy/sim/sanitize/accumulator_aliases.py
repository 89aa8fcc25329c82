"""Values that alias in-flight accumulators: values moved to a register before the MMA in flight writes its sum there.

Code may write a constant, or another value, to the register of an accumulator, or to a virtual register that joins the
accumulator where paths meet. The assembler assigns both to one hardware register, because MMAs accumulate in place. The
MMA in flight then overwrites the value. The loss is harmless if nothing reads the value, as where the next MMA begins
new sums by scale-d = 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set as AbstractSet
from typing import NamedTuple

from cutepy.sim.ptx.model import Immediate, Instruction, NegatedPredicate, Operand, Register
from cutepy.sim.sanitize.definitions import scale_d
from cutepy.sim.semantics.evaluation import results_of
from cutepy.sim.translate.effects import accumulators, is_wgmma, written


class AccumulatorAlias(NamedTuple):
    """A value in the place of a sum in flight.

    Attributes
    ----------
    mma : Instruction
        Instructions that may write there.
    by : Instruction
        Instruction that put the value there.
    is_lost : bool
        True if the MMA writes over it whatever comes. Otherwise it has a name of its own, and is lost only if it meets
        sums that are in flight.
    """

    mma: Instruction
    by: Instruction
    is_lost: bool


class Names:
    """The registers of a kernel that are names of sums, and those whose value is known.

    Parameters
    ----------
    instructions : iterable of Instruction
        Of the kernel.

    Attributes
    ----------
    sums : set of int
        Registers that MMAs write.
    constants : dict of int to Immediate
        Registers that have this value whenever they have any.
    """

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        every = list(instructions)
        self.sums = {r.index for i in every if is_wgmma(i) for r in accumulators(i)}
        self._writers: dict[int, list[Instruction]] = {}
        for i in every:
            for register in written(i):
                self._writers.setdefault(register.index, []).append(i)
        self.constants = {
            register: value for register, writers in self._writers.items() if (value := _value_of(writers)) is not None
        }
        self._beginning = {i.index for i in every if is_wgmma(i) and self._value(i.operands[scale_d(i)]) == 0}
        self._classes = self._joined(every)

    def _joined(self, instructions: Iterable[Instruction]) -> dict[int, list[int]]:
        """Return, by register, all that moves join with it, of the classes that have sums."""
        parent: dict[int, int] = {}

        def root(register: int) -> int:
            while (above := parent.get(register, register)) != register:
                register = above
            return register

        for i in instructions:
            if is_rename(i):
                to, source = (operand.index for operand in i.operands if isinstance(operand, Register))
                if not self.is_constant(source):
                    parent[root(to)] = root(source)
        found: dict[int, list[int]] = {}
        for register in {*parent, *parent.values(), *self.sums}:
            found.setdefault(root(register), []).append(register)
        return {r: members for members in found.values() if self.sums & {*members} for r in members}

    def is_constant(self, register: int) -> bool:
        """Return whether a register only ever is made a constant, so that it has no place of its own."""
        return all(makes_constant(i) for i in self._writers.get(register, ()))

    def place(self, register: int, flying: AbstractSet[int]) -> int | None:
        """Return the sum whose place a register may have, if any of its names is in flight."""
        names = self._classes.get(register, [])
        in_flight = [r for r in names if r in flying]
        return next((r for r in (*in_flight, *names) if r in self.sums), None) if in_flight else None

    def begins(self, mma: Instruction) -> bool:
        """Return whether an MMA surely reads none of its accumulators."""
        return mma.index in self._beginning

    def _value(self, operand: Operand) -> int | None:
        if isinstance(operand, Immediate):
            return operand.value
        if isinstance(operand, NegatedPredicate):
            value = self._value(operand.operand)
            return None if value is None else 1 - value
        if not isinstance(operand, Register):
            return None
        if operand.index in self.constants:
            return self.constants[operand.index].value
        writers = self._writers.get(operand.index, ())
        made = writers[0] if len(writers) == 1 else None
        if made is None or made.parts[0] != "setp" or made.predicate is not None:
            return None
        return next((result.data for to, result in results_of(made, self._value) if to == operand), None)


def is_rename(i: Instruction) -> bool:
    """Return whether an instruction gives another name to a value."""
    return i.traits.renames and i.predicate is None and all(isinstance(operand, Register) for operand in i.operands)


def makes_constant(i: Instruction) -> bool:
    """Return whether an instruction makes a constant."""
    return i.traits.renames and isinstance(i.operands[1], Immediate)


def _value_of(writers: Iterable[Instruction]) -> Immediate | None:
    """Return the one constant that instructions make, if that is all they do."""
    values = {i.operands[1] if makes_constant(i) else None for i in writers}
    (value,) = values if len(values) == 1 else (None,)
    return value if isinstance(value, Immediate) else None


def absorb(mine: dict[int, AccumulatorAlias], others: Mapping[int, AccumulatorAlias]) -> bool:
    """Add the aliases that another path may have left; return whether there were more."""
    changed = False
    for register, other in others.items():
        if register not in mine or (other.is_lost and not mine[register].is_lost):
            mine[register] = other
            changed = True
    return changed
