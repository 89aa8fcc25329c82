"""Registers that an instruction reads and writes.

References
----------
PTX ISA, "Instruction Set": the syntax line of each instruction.
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Address, Instruction, Register, Vector, registers_in


def is_wgmma(instruction: Instruction) -> bool:
    """Return whether an instruction is an asynchronous warpgroup MMA."""
    return instruction.traits.is_warpgroup_mma


def accumulators(instruction: Instruction) -> tuple[Register, ...]:
    """Return the accumulator registers of a wgmma, in order."""
    vector = instruction.operands[0]
    assert isinstance(vector, Vector)
    return tuple(item for item in vector.items if isinstance(item, Register))


def results(instruction: Instruction) -> int:
    """Return how many operands are written; they are the first."""
    operands = instruction.operands
    if not operands or isinstance(operands[0], Address) or is_wgmma(instruction):
        return 0
    form = instruction.traits.form
    if form is None:
        return 1
    return next((n for n, word in enumerate(form.words) if word != "result"), len(form.words))


def has_destination(instruction: Instruction) -> bool:
    """Return whether the first operand is written."""
    return results(instruction) > 0


def written(instruction: Instruction) -> tuple[Register, ...]:
    """Return the registers that an instruction writes."""
    found: tuple[Register, ...] | None = instruction.derived.get("written")
    if found is None:
        found = instruction.derived["written"] = _written(instruction)
    return found


def _written(instruction: Instruction) -> tuple[Register, ...]:
    if is_wgmma(instruction):
        return accumulators(instruction)
    return tuple([r for operand in instruction.operands[: results(instruction)] for r in registers_in(operand)])


def read(instruction: Instruction) -> tuple[Register, ...]:
    """Return the registers that an instruction reads; a guarded one also reads its destinations."""
    found: tuple[Register, ...] | None = instruction.derived.get("read")
    if found is None:
        found = instruction.derived["read"] = _read(instruction)
    return found


def _read(instruction: Instruction) -> tuple[Register, ...]:
    found: list[Register] = []
    count = results(instruction)
    for n, operand in enumerate(instruction.operands):
        if n >= count or instruction.predicate is not None:
            found.extend(registers_in(operand))
    if instruction.predicate is not None:
        found.append(instruction.predicate[0])
    return tuple(found)
