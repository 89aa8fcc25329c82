"""Constant values of registers in PTX, without a launch.

A register is evaluated several times, each time with other values of everything that only a launch determines:
parameters, indices of threads and CTAs, memory. A result that is the same each time is constant; of a descriptor word,
each field by itself. Registers that a loop carries take the value with which they enter it, or also later ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from cutepy.sim.ptx import Address, Function, Immediate, Instruction, Operand, Register, Special, Symbol, Vector
from cutepy.sim.semantics.evaluation import results_of
from cutepy.sim.translate.effects import written

_TRIALS = 12
_DEEPEST = 6
"""Largest number of loop iterations to follow."""
_MOST_STEPS = 20_000
"""Number of evaluated registers after which loop iterations are no longer followed."""
_SMALL = {"tid": 1024, "laneid": 32, "warpid": 32, "cluster_ctarank": 16, "cluster_ctaid": 4}
"""Upper bounds of special registers."""
_WORD = (1 << 64) - 1


class Values:
    """Values of the operands of a function's instructions.

    Parameters
    ----------
    function : Function
    shared : mapping of str to int
        Addresses of shared variables.
    """

    def __init__(self, function: Function, shared: Mapping[str, int]) -> None:
        self._writes: dict[Register, list[Instruction]] = {}
        for i in function.instructions:
            for register in _written(i):
                self._writes.setdefault(register, []).append(i)
        entering = [_Trial(self._writes, shared, seed, later=False) for seed in range(_TRIALS)]
        self._entering = entering
        self._any = [*entering, *(_Trial(self._writes, shared, seed, later=True) for seed in range(_TRIALS))]

    def always(self, operand: Operand, read: Callable[[int], int] = lambda word: word) -> int | None:
        """Return an operand's value, or `read` of it, if it is the same at every use; else None."""
        return _agreed(self._any, operand, read)

    def first(self, operand: Operand, read: Callable[[int], int] = lambda word: word) -> int | None:
        """Return the same for the value at loop entry."""
        return _agreed(self._entering, operand, read)

    def address(self, operand: Operand) -> tuple[int | None, bool]:
        """Return an address at its first use, if known, and whether it is constant."""
        if not isinstance(operand, Address):
            return None, False
        first = self.first(operand.base)
        return (
            None if first is None else first + operand.offset,
            first is not None and self.always(operand.base) == first,
        )


def _written(i: Instruction) -> tuple[Register, ...]:
    try:
        return written(i)
    except (AssertionError, LookupError):  # operands that could not be parsed
        return ()


def _agreed(trials: list[_Trial], operand: Operand, read: Callable[[int], int]) -> int | None:
    try:
        values = {read(trial.value(operand)) for trial in trials}
    except RecursionError:  # a chain of thousands of instructions
        return None
    return values.pop() if len(values) == 1 else None


class _Trial:
    """One choice of the values that only a launch determines, with the registers that follow."""

    def __init__(
        self, writes: Mapping[Register, list[Instruction]], shared: Mapping[str, int], seed: int, *, later: bool
    ) -> None:
        self._writes, self._shared, self._later = writes, shared, later
        self._random = random.Random(seed)
        self._known: dict[object, int] = {}
        self._open: dict[Register, int] = {}
        self._steps = 0

    def value(self, operand: Operand) -> int:
        if isinstance(operand, Register):
            return self._register(operand)
        if isinstance(operand, Immediate):
            return operand.value & _WORD
        if isinstance(operand, Symbol):
            if operand.name not in self._shared:
                return self._unknown(operand, 64)
            return self._shared[operand.name] + operand.offset & _WORD
        if isinstance(operand, Special):
            return self._special(operand)
        if isinstance(operand, Vector):
            bits = 16 if len(operand.items) == 4 else 32
            # A pair is of 32-bit registers, or of 16-bit ones.
            if operand.items and isinstance(operand.items[0], Register):
                bits = operand.items[0].bits
            return sum((self.value(item) & (1 << bits) - 1) << n * bits for n, item in enumerate(operand.items))
        return self._unknown(operand, 64)

    def _unknown(self, key: object, bits: int) -> int:
        if key not in self._known:
            self._known[key] = self._random.getrandbits(bits)
        return self._known[key]

    def _special(self, operand: Special) -> int:
        name = operand.name.split(".")[0]
        if operand not in self._known:
            self._known[operand] = self._random.randrange(_SMALL.get(name, 1 << 16))
        return self._known[operand]

    def _register(self, register: Register) -> int:
        found = self._known.get(register)
        if found is not None:
            return found
        writes = self._writes.get(register, [])
        if not writes:
            return self._unknown(register, register.bits)
        depth = self._open.get(register, 0)
        self._steps += 1
        if depth > _DEEPEST or (depth and self._steps > _MOST_STEPS):
            return self._unknown((register, "turns"), min(register.bits, 3))
        pick = self._random.choice(writes) if self._later and depth < _DEEPEST else writes[0]
        self._open[register] = depth + 1
        try:
            value = self._computed(pick, register)
        finally:
            self._open[register] = depth
        if not depth:
            self._known[register] = value
        return value

    def _computed(self, i: Instruction, register: Register) -> int:
        """Evaluate an instruction's result in a register."""
        mask = (1 << register.bits) - 1
        name = i.parts[0]
        if i.predicate is not None and name != "selp":
            # Only a launch determines whether a predicated instruction runs, or the old value stays.
            before = [write for write in self._writes[register] if write.index < i.index]
            if before and self._random.random() < 0.5:
                return self._computed(before[-1], register)
        # Lanes agree on uniform values. The addresses of one variable in all CTAs and state spaces are taken for equal.
        if (i.traits.maps or (i.traits.gathers and i.traits.moves)) and "param" not in i.parts:
            return self.value(i.operands[1]) & mask
        found = dict(results_of(i, self.value)).get(register)
        if found is None or found.data is None:
            return self._unknown((i.index, register), register.bits)
        return int(found.data) & mask
