"""Registers that some paths give a value and others do not, followed by lane.

A register whose value may be read before anything has written it, and that some instruction writes, is live where the
kernel begins. For these, and for what is made of them, it is followed which lanes have a value. It is told where a
lane without one stores it, reaches an address or a branch by it, multiplies matrices by it, or synchronises by it.

Compilers read what is undefined where it does not matter, so moves, selections and the bits of a word pass it on: what
is packed or masked together has no value only if none of its registers has one, and of a vector that is stored the
same holds. What is computed has none if one of its sources has none, and what a warp votes on or reduces if one of its
lanes has none; what a shuffle brings is taken to have one. Accumulators of wgmma are left to `sums.py`, and
registers that nothing ever writes to `undefined.py`. Kernels that call functions are not looked at.

References
----------
PTX ISA, "Data Movement and Conversion Instructions", "selp".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, registers_in
from cutepy.sim.sanitize.order.uses import whole_flow
from cutepy.sim.sanitize.undefined import with_values
from cutepy.sim.translate.effects import accumulators, has_destination, is_wgmma, read, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.machine.step import Step
    from cutepy.sim.ptx.model import Function

_COMPUTES = frozenset(
    """add addc sub subc mul mul24 mad mad24 madc fma div rem neg abs cvt setp set min max sqrt rsqrt rcp ex2 lg2 sin
    cos tanh popc clz brev sad dp2a dp4a copysign testp""".split()
)
_KEEPS = frozenset("mov and or xor not lop3 prmt bfi bfe shf shl shr cvta slct".split())
_GATHERS = frozenset("vote redux match".split())
_MATTERS = frozenset("mma wmma mbarrier bar barrier atom".split())
"""Opcodes with results for which each source must have a value."""
_ONE_SIDED = (
    "{} has a value on other paths only, from `{}` ({}): on the path that these threads took nothing has written it; "
    "write it before the paths part"
)


class OneSided:
    """Which lanes have values in registers that are written on some paths only."""

    def __init__(self) -> None:
        self._function: Function | None = None
        self._followed: set[int] = set()
        self._first: dict[int, Instruction] = {}
        self._begins: set[int] = set()
        self._residents: Residents | None = None
        self._empty: dict[int, Array] = {}
        self._guards: set[int] = set()

    def look_at(self, function: Function) -> None:
        """Begin with a kernel, if it is another one."""
        if self._function is function:
            return
        self._function, self._residents = function, None
        self._followed, self._begins, self._first = set(), set(), {}
        instructions = function.instructions
        if any(i.parts[0] == "call" for i in instructions):
            return
        sums = {r.index for i in instructions if is_wgmma(i) for r in accumulators(i)}
        for i in instructions:
            for register in written(i):
                self._first.setdefault(register.index, i)
        self._begins = {r for r in whole_flow(function).live_in[0] if r in self._first} - sums
        if self._begins:
            self._begins &= with_values(function)
        self._followed = set(self._begins)
        self._guards = {i.predicate[0].index for i in instructions if i.predicate is not None and i.parts[0] != "bra"}
        before = -1
        while len(self._followed) > before:
            before = len(self._followed)
            for i in instructions:
                if _passes_on(i) and any(r.index in self._followed for r in read(i)):
                    self._followed.update(r.index for r in written(i) if r.index not in sums)

    def stops_at(self, i: Instruction) -> bool:
        """Tell whether an instruction reads or writes a register that is followed."""
        return bool(self._followed) and any(r.index in self._followed for r in (*read(i), *written(i)))

    def execute(self, step: Step) -> str | None:
        """Follow an instruction, and say what is wrong if something comes of what has no value."""
        i = step.instruction
        if not self.stops_at(i):
            return None
        if step.ctas.residents is not self._residents:
            self._residents = step.ctas.residents
            shape = self._residents.count, math.prod(step.threads.block)
            self._empty = {r: np.full(shape, r in self._begins) for r in self._followed}
        at = np.ix_(step.ctas.slots, step.threads.ids)
        executed = step.executing()
        wrong = None if i.predicate is None else self._tell(i.predicate[0], at, np.ones_like(executed))
        for registers in _mattering(i):
            if wrong is None and registers and self._lacks_all(registers, at, executed):
                wrong = self._tell(registers[0], at, executed)
        to = [r for r in written(i) if r.index in self._followed]
        if to:
            empty = self._of_results(step, at)
            for register in to:
                held = self._empty[register.index]
                held[at] = np.where(executed, empty, held[at])
                if wrong is None and register.index in self._guards:  # who is guarded off is not seen there
                    wrong = self._tell(register, at, executed)
        return wrong

    def _lacks(self, registers: list[Register], at: tuple[Array, ...], how: np.ufunc) -> Array:
        never = np.zeros((at[0].shape[0], at[1].shape[1]), bool)
        each = [self._empty[r.index][at] if r.index in self._followed else never for r in registers]
        return np.asarray(how.reduce(each)) if each else never

    def _lacks_all(self, registers: list[Register], at: tuple[Array, ...], executed: Array) -> bool:
        return bool((self._lacks(registers, at, np.logical_and) & executed).any())

    def _tell(self, register: Register, at: tuple[Array, ...], executed: Array) -> str | None:
        """Say that a register has no value, once: it is taken for one that has, from then on."""
        held = self._empty.get(register.index)
        if held is None or not (held[at] & executed).any():
            return None
        held[at] &= ~executed
        first = self._first[register.index]
        where = first.source if first.source is not None else f"line {first.line} of the PTX"
        return _ONE_SIDED.format(register.name, first.text.strip(), where)

    def _of_results(self, step: Step, at: tuple[Array, ...]) -> Array:
        """Tell which lanes get no value."""
        i = step.instruction
        sources = [list(registers_in(x)) for x in i.operands[1:] if not isinstance(x, Address)]
        every = [r for found in sources for r in found]
        if not _passes_on(i):
            return self._lacks([], at, np.logical_or)
        if i.parts[0] == "selp":
            one, other = (self._lacks(found, at, np.logical_and) if found else np.False_ for found in sources[:2])
            picks = step.value(sources[2][0].index).astype(bool)
            return np.where(picks, one, other) | self._lacks(sources[2], at, np.logical_and)
        if i.parts[0] in _COMPUTES:
            return self._lacks(every, at, np.logical_or)
        if i.parts[0] in _GATHERS:
            lacks = self._lacks(every, at, np.logical_or) & step.executing()
            warps = step.threads.ids // WARP
            return np.stack([lacks[:, warps == warp].any(axis=1) for warp in warps.tolist()], axis=1)
        return self._lacks(every, at, np.logical_and)


def _passes_on(i: Instruction) -> bool:
    """Tell whether what an instruction makes has no value where its sources have none."""
    return i.parts[0] in _COMPUTES | _KEEPS | _GATHERS or i.parts[0] == "selp"


def _mattering(i: Instruction) -> Iterator[list[Register]]:
    """Yield registers of which, each time, one must have a value."""
    for operand in i.operands:
        if isinstance(operand, Address):
            yield from ([r] for r in registers_in(operand))
    if has_destination(i) and i.parts[0] not in _MATTERS:
        return
    if i.parts[0] in ("st", "stmatrix"):
        if "local" not in i.parts:
            yield [r for x in i.operands if not isinstance(x, Address) for r in registers_in(x)]
        return
    results = 1 if has_destination(i) or is_wgmma(i) else 0
    for operand in i.operands[results:]:
        if not isinstance(operand, Address | Immediate):
            yield from ([r] for r in registers_in(operand))
