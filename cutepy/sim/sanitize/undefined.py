"""Undefined registers and local memory, reported where a result or a branch depends on them.

Compilers read what is undefined where it does not matter: they move it, select beside it, and store whole vectors and
structures. So a register that no instruction ever gives a value is told where it is added to or computed with, or
decides where an access, a branch or a wait goes. Local memory is told where all of what a thread loads is unwritten,
and it comes to anything but moves, selections and other local memory.

References
----------
PTX ISA, "mma": D = A * B + C, whatever C holds; "Local State Space".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.ptx.model import Address, FrameSlot, Immediate, Instruction, Register, Vector, registers_in
from cutepy.sim.sanitize.diagnoses import Diagnosis
from cutepy.sim.sanitize.order.uses import once, uses_of
from cutepy.sim.translate.effects import has_destination, is_wgmma, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cutepy.sim.machine.events import Access, LocalCopy
    from cutepy.sim.machine.lanes import Array, Residents
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Function, Operand
    from cutepy.sim.sanitize.order.uses import Uses

_COMPUTES = frozenset("add addc sub subc mul mul24 mad mad24 madc fma div rem neg abs cvt setp min max".split())
"""Opcodes whose result is undefined if a source is; others may use a part of the bits."""
_KEEPS = frozenset("mov selp slct and or xor not lop3 prmt bfi bfe shf shl shr cvta".split())
"""Opcodes that may ignore an undefined source."""
_PASSES = frozenset(("shfl",))
"""Opcodes that give a lane what another lane has of the first source."""
_USES = frozenset("mbarrier bar barrier atom red redux".split())
"""Opcodes that wait by their sources, or combine them with what others have."""
_NOT_STORED = Diagnosis("local-memory-not-written")


class _Effect(NamedTuple):
    """Transfer of definedness by an instruction: the registers that it writes, each with its sources, and how."""

    instruction: Instruction
    to: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]
    needs_all: bool


@once
def _without_values(function: Function) -> dict[int, str]:
    """Return the instructions that make something of a register that none gives a value, and its name, by index."""
    valued = with_values(function)
    found = {}
    for effect in map(_effect, function.instructions):
        register = next((r for r in _mattering(effect) if r.index not in valued), None)
        if register is not None:
            found[effect.instruction.index] = register.name
    return found


@once
def with_values(function: Function) -> set[int]:
    """Return the registers that some instruction gives a value, by index: not by what it makes of that alone.

    Accumulators of wgmma are among them: `sums.py` tells of those that have none.
    """
    sums = {r.index for i in function.instructions if is_wgmma(i) for r in written(i)}
    return _fixpoint(function, sums, frozenset())[0]


def givers(function: Function, registers: frozenset[int]) -> list[Instruction]:
    """Return the instructions that give registers values which are not made of these registers themselves.

    An instruction that reads what it writes gives no value to a register that has none: `mul` of a sum by a factor, an
    MMA that always accumulates.
    """
    return [i for i in _fixpoint(function, set(), registers)[1] if any(r.index in registers for r in written(i))]


def _fixpoint(function: Function, given: set[int], never: frozenset[int]) -> tuple[set[int], list[Instruction]]:
    """Return the registers that get values, and the instructions that give them.

    Those that are given have values, and those of `never` have none, whatever writes them.
    """
    effects = [_effect(i) for i in function.instructions]
    valued = {r.index for i in function.instructions for operand in i.operands for r in _frames_in(operand)} | given
    waiting = [effect for effect in effects if effect.to]
    giving: list[Instruction] = []
    before = -1
    while len(giving) + len(valued) != before:
        before = len(giving) + len(valued)
        left = []
        for effect in waiting:
            done = True
            for to, sources in zip(effect.to, effect.sources, strict=True):
                fine = not sources or (all if effect.needs_all else any)(s in valued for s in sources)
                if fine and to not in never:
                    valued.add(to)
                done &= fine
            if done:
                giving.append(effect.instruction)
            else:
                left.append(effect)
        waiting = left
    return valued, giving


def _frames_in(operand: Operand) -> Iterator[Register]:
    """Yield the registers by which a function knows its frame: no instruction writes them, the call gives them."""
    found = operand.base if isinstance(operand, Address) else operand
    if isinstance(found, FrameSlot):
        yield from registers_in(found)
    elif isinstance(found, Vector):
        for item in found.items:
            yield from _frames_in(item)


def _effect(i: Instruction) -> _Effect:
    to = tuple(r.index for r in written(i))
    kind = i.parts[0]
    if always_accumulates(i):
        return _Effect(i, to, tuple((r,) for r in to), False)
    if kind in ("mma", "wmma") and "mma" in i.parts[:2] and len(i.operands) > 3:
        sums = tuple((r.index,) for r in registers_in(i.operands[3]))
        if len(sums) == len(to):
            return _Effect(i, to, sums, True)
    if kind in _COMPUTES or kind in ("mov", "selp"):
        values = [x for x in i.operands[1:] if not isinstance(x, Address)]
        registers = tuple(r.index for x in values for r in registers_in(x))
        is_known = kind not in _COMPUTES and any(not _is_of_registers(x) for x in values)
        return _Effect(i, to, ((() if is_known else registers),) * len(to), kind in _COMPUTES)
    if kind in _PASSES:
        source = tuple(r.index for r in registers_in(i.operands[1]))
        return _Effect(i, to, tuple(source if r.type != "pred" else () for r in written(i)), False)
    return _Effect(i, to, ((),) * len(to), False)


def always_accumulates(i: Instruction) -> bool:
    """Tell whether an instruction is a wgmma that adds to what is in its registers, whatever the kernel computes."""
    if not is_wgmma(i):
        return False
    scale = i.operands[5 if "sp" in i.parts else 3]
    return isinstance(scale, Immediate) and scale.value != 0


def _is_of_registers(operand: Operand) -> bool:
    if isinstance(operand, Vector):
        return all(map(_is_of_registers, operand.items))
    return isinstance(operand, Register)


def _mattering(effect: _Effect) -> Iterator[Register]:
    """Yield the registers that must have values."""
    i = effect.instruction
    if i.predicate is not None:
        yield i.predicate[0]
    for operand in i.operands:
        if isinstance(operand, Address):
            yield from registers_in(operand)
    kind = i.parts[0]
    if kind in ("mma", "wmma") and "mma" in i.parts[:2]:
        for operand in i.operands[1:]:
            yield from registers_in(operand)
    elif is_wgmma(i):
        for operand in i.operands[1:]:
            yield from registers_in(operand)
    elif kind in _COMPUTES or kind in _USES:
        for operand in i.operands[1 if has_destination(i) else 0 :]:
            yield from registers_in(operand)


class Undefined:
    """Undefined registers and local memory of a run, and the instructions that depend on them."""

    def __init__(self) -> None:
        self._function: Function | None = None
        self._registers: dict[int, str] = {}
        self._residents: Residents | None = None
        self._written: Array = np.zeros(0, bool)
        self._matters: dict[int, bool] = {}
        self._told_of: int | None = None

    def look_at(self, function: Function) -> None:
        """Begin with a kernel, if it is another one."""
        if self._function is not function:
            self._function, self._registers = function, _without_values(function)
            self._residents, self._matters = None, {}

    def stops_at(self, i: Instruction) -> bool:
        """Tell whether an instruction makes something of registers that have no value."""
        return i.index in self._registers

    def guard(self, step: Step) -> Diagnosis | None:
        """Say what is wrong if lanes come to the guard of an instruction, and its predicate has no value."""
        found, guard = self._registers.get(step.instruction.index), step.instruction.predicate
        if found is None or guard is None or guard[0].name != found:
            return None
        self._told_of = step.instruction.index
        return _no_value(found)

    def execute(self, step: Step) -> Diagnosis | None:
        """Say what is wrong with an instruction, if lanes execute it."""
        found = self._registers.get(step.instruction.index)
        guard, told_of = step.instruction.predicate, self._told_of
        self._told_of = None
        if found is None or step.instruction.index == told_of:
            return None
        if guard is None or guard[0].name == found:
            return _no_value(found)
        return _no_value(found) if step.executing().any() else None

    def access(self, access: Access) -> Diagnosis | None:
        """Take an access to local memory, and say what is wrong with it."""
        if access.ctas.residents is not self._residents:
            self._residents, self._written = access.ctas.residents, np.zeros(0, bool)
        return _NOT_STORED if self._reads_nothing(access) else None

    def copy(self, copy: LocalCopy) -> None:
        """Take a copy of arguments or results of a call."""
        if copy.ctas.residents is not self._residents:
            self._residents, self._written = copy.ctas.residents, np.zeros(0, bool)
        self._grow(int(max(copy.source.max(), copy.to.max())) + copy.size_bytes)
        within = np.arange(copy.size_bytes)
        self._written[copy.to[..., None] + within] = self._written[copy.source[..., None] + within]

    def _grow(self, end: int) -> None:
        if end > len(self._written):
            grown = np.zeros(2 * end, bool)
            grown[: len(self._written)] = self._written
            self._written = grown

    def _reads_nothing(self, access: Access) -> bool:
        """Tell whether a thread reads what nothing has written, and something comes of it."""
        starts = np.asarray(access.addresses).reshape(-1)
        self._grow(int(starts.max()) + access.size_bytes)
        at = starts[:, None] + np.arange(access.size_bytes)
        if access.operation != "read":
            self._written[at] = True
            return False
        if self._written[at].any(axis=1).all():
            return False
        i = access.instruction
        if i.index not in self._matters:
            assert self._function is not None
            uses = uses_of(self._function)
            self._matters[i.index] = any(_comes_to_something(uses, i, r) for r in written(i))
        return self._matters[i.index]


def _comes_to_something(uses: Uses, i: Instruction, register: Register) -> bool:
    """Tell whether a value is used for more than moves, selections and stores to local memory."""
    seen, waiting = set(), [(i, register.index)]
    while waiting:
        source, value = waiting.pop()
        for use in uses.after(source, value):
            user = use.instruction
            if user is None or _decides(user, value):
                return True
            if (user.index, value) in seen:
                continue
            seen.add((user.index, value))
            if user.parts[0] == "mov" or user.parts[0] in _COMPUTES:
                waiting += [(user, to.index) for to in written(user) if value in _indices(user.operands[1:])]
            elif user.parts[0] not in _KEEPS and not (user.parts[0] == "st" and "local" in user.parts):
                return True
    return False


def _decides(i: Instruction, value: int) -> bool:
    """Tell whether a value says where an instruction goes, or whether it is executed."""
    guard = () if i.predicate is None else (i.predicate[0].index,)
    return value in guard or value in _indices(x for x in i.operands if isinstance(x, Address))


def _indices(operands: Iterable[Operand]) -> set[int]:
    return {r.index for operand in operands for r in registers_in(operand)}


def _no_value(register: str) -> Diagnosis:
    return Diagnosis("register-without-value", register=register)
