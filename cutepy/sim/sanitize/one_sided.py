"""Registers that only some paths to a use write, followed by lane and bit.

A register whose value may be read before anything has written it, and that some instruction writes, is live where the
kernel begins. For these, and for what is made of them, it is followed which bits have a value in each lane
(`undefined_bits.py`), and which register began it. It is told where a lane without a value stores it, reaches an
address or a branch by it, multiplies matrices by it, or synchronises by it.

Compilers read what is undefined where it does not matter, so a store is told only if no bit of all that it stores has
a value. Accumulators of wgmma are left to `sums.py`, and registers that nothing ever writes to `undefined.py`. Kernels
that call functions are not looked at.

References
----------
PTX ISA, "Data Movement and Conversion Instructions", "selp".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import Threads
from cutepy.sim.ptx.model import Address, Immediate, Instruction, Register, registers_in
from cutepy.sim.sanitize.diagnoses import Diagnosis
from cutepy.sim.sanitize.order.uses import whole_flow
from cutepy.sim.sanitize.undefined import givers, with_values
from cutepy.sim.sanitize.undefined_bits import GATHERS, PASSES_ON, Operands, from_lanes, full
from cutepy.sim.translate.effects import accumulators, has_destination, is_wgmma, read, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Function

_MATTERS = frozenset("mma wmma mbarrier bar barrier atom".split())
"""Opcodes with results for which each source must have a value."""
_BRANCHES = frozenset("bra ret exit".split())
_THREAD_BITS = 16
"""An origin is a register and the thread that lacks it: shuffles and votes bring what other threads lack."""
_SHOWN = 3
"""Writes of a register that a report names."""


class Lacking(NamedTuple):
    """A use of what has no value.

    Attributes
    ----------
    who : str
        The threads that lack it.
    diagnosis : Diagnosis
        The register that has no value, the writes that these threads have not executed, and what to do.
    """

    who: str
    diagnosis: Diagnosis


class OneSided:
    """Lanes that have values in registers that only some paths write."""

    def __init__(self) -> None:
        self._function: Function | None = None
        self._followed: set[int] = set()
        self._begins: dict[int, Register] = {}
        self._residents: Residents | None = None
        self._bits: dict[int, Array] = {}
        self._origins: dict[int, Array] = {}

    def look_at(self, function: Function) -> None:
        """Begin with a kernel, if it is another one."""
        if self._function is function:
            return
        self._function, self._residents = function, None
        self._followed, self._begins = set(), {}
        instructions = function.instructions
        if any(i.parts[0] == "call" for i in instructions):
            return
        sums = {r.index for i in instructions if is_wgmma(i) for r in accumulators(i)}
        named = {r.index: r for i in instructions for r in written(i)}
        begins = (whole_flow(function).live_in[0] & named.keys()) - sums
        if begins:
            begins &= with_values(function)
        self._begins = {r: named[r] for r in begins}
        self._followed = set(begins)
        before = -1
        while len(self._followed) > before:
            before = len(self._followed)
            for i in instructions:
                if i.parts[0] in PASSES_ON and any(r.index in self._followed for r in read(i)):
                    self._followed.update(r.index for r in written(i) if r.index not in sums)

    def stops_at(self, i: Instruction) -> bool:
        """Tell whether an instruction reads or writes a register that is followed."""
        return bool(self._followed) and any(r.index in self._followed for r in (*read(i), *written(i)))

    def guard(self, step: Step) -> Lacking | None:
        """Say what is wrong if lanes come to the guard of an instruction, and its predicate has no value."""
        guard = step.instruction.predicate
        if guard is None or guard[0].index not in self._followed:
            return None
        return self._tell([guard[0]], step, self._begin(step), np.True_, 0)

    def execute(self, step: Step) -> Lacking | None:
        """Follow an instruction, and say what is wrong if something comes of what has no value."""
        i = step.instruction
        if not self.stops_at(i):
            return None
        at = self._begin(step)
        wrong: Lacking | None = None
        if i.predicate is not None and i.parts[0] in _BRANCHES:
            wrong = self._tell([i.predicate[0]], step, at, np.True_, 0)
        for registers, bits in _mattering(i):
            if wrong is None and registers:
                wrong = self._tell(registers, step, at, step.executing(), bits)
        self._write(step, at)
        return wrong

    def _begin(self, step: Step) -> tuple[Array, ...]:
        """Take the lanes of a step; those of CTAs that have just become resident lack all that begins so."""
        if step.ctas.residents is not self._residents:
            self._residents = step.ctas.residents
            shape = self._residents.count, math.prod(step.threads.block)
            self._bits = {r: np.full(shape, full(register.bits)) for r, register in self._begins.items()}
            threads = np.broadcast_to(np.arange(shape[1]), shape)
            self._origins = {r: r << _THREAD_BITS | threads for r in self._begins}
        return np.ix_(step.ctas.slots, step.threads.ids)

    def _mask(self, register: Register, at: tuple[Array, ...]) -> Array:
        held = self._bits.get(register.index)
        return np.zeros((len(at[0]), at[1].shape[1]), np.uint64) if held is None else held[at]

    def _write(self, step: Step, at: tuple[Array, ...]) -> None:
        """Note which bits an instruction gives no value."""
        i = step.instruction
        to = [r for r in written(i) if r.index in self._followed]
        sources = [r for r in read(i) if r.index in self._bits]
        if not to or not (sources or any(r.index in self._bits for r in to)):
            return
        executed = step.executing()
        none = np.zeros(executed.shape, np.uint64)
        lacking = [none] * len(written(i))
        if sources and i.parts[0] in PASSES_ON:
            lacking = Operands(step, lambda r: self._mask(r, at)).of_results(i)
        guarded = none != 0 if i.predicate is None else self._mask(i.predicate[0], at) != 0
        origin = np.zeros(executed.shape, np.int64)
        own = {r.index for x in i.operands[1:] for r in registers_in(x)}
        own |= set() if i.predicate is None else {i.predicate[0].index}
        for register in sources:
            if register.index in own:
                origin = np.where(self._bits[register.index][at] != 0, self._origins[register.index][at], origin)
        if i.parts[0] in GATHERS and origin.any():
            origin = from_lanes(step, origin)
        for register, bits in zip(written(i), lacking, strict=True):
            if register.index not in self._followed:
                continue
            bits = np.where(guarded, full(register.bits), bits)
            if register.index not in self._bits:
                if not bits.any():
                    continue
                shape = self._residents.count, math.prod(step.threads.block)  # type: ignore[union-attr]
                self._bits[register.index] = np.zeros(shape, np.uint64)
                self._origins[register.index] = np.zeros(shape, np.int64)
            held, origins = self._bits[register.index], self._origins[register.index]
            held[at] = np.where(executed | guarded, bits, held[at])
            origins[at] = np.where(executed | guarded, origin, origins[at])
            if not held.any():
                del self._bits[register.index], self._origins[register.index]

    def _tell(
        self, registers: list[Register], step: Step, at: tuple[Array, ...], executed: Array | np.bool_, width: int
    ) -> Lacking | None:
        """Say that registers have no value, once: they are taken for such as have, from then on.

        Of a width of 0 any bit counts; else all of the lowest bits of each register must lack a value.
        """
        lacks = executed
        for register in registers:
            mask, bits = self._mask(register, at), full(min(width, register.bits))
            lacks = lacks & ((mask != 0) if width == 0 else (mask & bits) == bits)
        if not lacks.any():
            return None
        register = registers[0]
        origins = self._origins[register.index][at][np.broadcast_to(lacks, (len(at[0]), step.threads.count))]
        first = int(origins[0]) >> _THREAD_BITS
        begun = np.unique(origins[origins >> _THREAD_BITS == first] & (1 << _THREAD_BITS) - 1)
        held = self._bits[register.index]
        held[at] = np.where(lacks, np.uint64(0), held[at])
        who = step.threads.ids[np.broadcast_to(lacks, (len(at[0]), step.threads.count)).any(axis=0)]
        block = step.threads.block
        return Lacking(
            Threads(who, block).describe(), self._say(register, first, Threads(begun.astype(np.intp), block).describe())
        )

    def _say(self, register: Register, first: int, who: str) -> Diagnosis:
        assert self._function is not None
        begun = self._begins[first]
        writes = [
            f"`{i.text.strip()}` ({i.source if i.source is not None else f'line {i.line} of the PTX'})"
            for i in givers(self._function, frozenset([first]))
        ]
        name, shown, more = begun.name, ", ".join(writes[:_SHOWN]), len(writes) - _SHOWN
        if register.index == first and more <= 0:
            return Diagnosis("register-of-other-paths", register=name, writes=shown, threads=who)
        if register.index == first:
            return Diagnosis("register-of-more-paths", register=name, writes=shown, more=more, threads=who)
        made = register.name
        if more <= 0:
            return Diagnosis("register-made-of-other-paths", register=name, writes=shown, threads=who, made=made)
        return Diagnosis("register-made-of-more-paths", register=name, writes=shown, more=more, threads=who, made=made)


def _mattering(i: Instruction) -> Iterator[tuple[list[Register], int]]:
    """Yield registers of which one must have a value, and in how many of its lowest bits; 0 for: in each bit."""
    for operand in i.operands:
        if isinstance(operand, Address):
            yield from (([r], 0) for r in registers_in(operand))
    if has_destination(i) and i.parts[0] not in _MATTERS:
        return
    if i.parts[0] in ("st", "stmatrix"):
        if "local" not in i.parts:
            size = i.parts[-1].lstrip("busf")
            bits = int(size) if size.isdigit() else 64
            yield [r for x in i.operands if not isinstance(x, Address) for r in registers_in(x)], bits
        return
    results = 1 if has_destination(i) or is_wgmma(i) else 0
    for operand in i.operands[results:]:
        if not isinstance(operand, Address | Immediate):
            yield from (([r], 64) for r in registers_in(operand))
