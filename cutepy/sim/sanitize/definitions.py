"""Defining instructions of registers: the instructions that give a register a value.

An instruction that reads a register which it writes gives that register no value of its own: `mul` of a sum by a
factor, an MMA that always accumulates. Neither does a move of a register that has none.

References
----------
PTX ISA, "mma": D = A * B + C, whatever C holds; "wgmma.mma_async": scale-d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cutepy.sim.ptx.model import Address, FrameSlot, Immediate, Instruction, Register, Vector, registers_in
from cutepy.sim.translate.effects import is_wgmma, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cutepy.sim.ptx.model import Function, Operand


class _Effect(NamedTuple):
    """Transfer of definedness by an instruction: the registers that it writes, each with its sources, and how."""

    instruction: Instruction
    to: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]
    needs_all: bool


def defining_instructions(function: Function, registers: frozenset[int]) -> list[Instruction]:
    """Return the instructions that give registers values which are not made of these registers themselves."""
    effects = [_effect(i) for i in function.instructions]
    valued = {r.index for r in given_registers(function)}
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
                if fine and to not in registers:
                    valued.add(to)
                done &= fine
            if done:
                giving.append(effect.instruction)
            else:
                left.append(effect)
        waiting = left
    return [i for i in giving if any(r.index in registers for r in written(i))]


def given_registers(function: Function) -> Iterator[Register]:
    """Yield the registers that no instruction needs to write: calls give them, and they hold places in local memory."""
    for i in function.instructions:
        for operand in i.operands:
            yield from _frames_in(operand)
        if "stack" in i.traits.qualities:  # the stack's end, behind a frame's
            yield from (r for operand in i.operands for r in registers_in(operand) if r.name == "%stack")


def _frames_in(operand: Operand) -> Iterator[Register]:
    """Yield the registers by which a function knows its frame."""
    found = operand.base if isinstance(operand, Address) else operand
    if isinstance(found, FrameSlot):
        yield from registers_in(found)
    elif isinstance(found, Vector):
        for item in found.items:
            yield from _frames_in(item)


def _effect(i: Instruction) -> _Effect:
    to = tuple(r.index for r in written(i))
    is_strict = i.traits.is_strict
    if always_accumulates(i):
        return _Effect(i, to, tuple((r,) for r in to), False)
    if i.traits.is_warp_mma and len(i.operands) > 3:
        sums = tuple((r.index,) for r in registers_in(i.operands[3]))
        if len(sums) == len(to):
            return _Effect(i, to, sums, True)
    if is_strict or i.traits.renames or i.parts[0] == "selp":
        values = [x for x in i.operands[1:] if not isinstance(x, Address)]
        registers = tuple(r.index for x in values for r in registers_in(x))
        is_known = not is_strict and any(not _is_of_registers(x) for x in values)
        return _Effect(i, to, ((() if is_known else registers),) * len(to), is_strict)
    if i.traits.shuffles:
        source = tuple(r.index for r in registers_in(i.operands[1]))
        return _Effect(i, to, tuple(source if r.type != "pred" else () for r in written(i)), False)
    return _Effect(i, to, ((),) * len(to), False)


def always_accumulates(i: Instruction) -> bool:
    """Return whether an instruction is a wgmma that always adds to the contents of its registers."""
    if not is_wgmma(i):
        return False
    scale = i.operands[scale_d(i)]
    return isinstance(scale, Immediate) and scale.value != 0


def scale_d(i: Instruction) -> int:
    """Return which operand of a wgmma says whether it accumulates."""
    return 5 if i.traits.is_sparse else 3


def _is_of_registers(operand: Operand) -> bool:
    if isinstance(operand, Vector):
        return all(map(_is_of_registers, operand.items))
    return isinstance(operand, Register)
