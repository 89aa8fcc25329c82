"""Registers that an instruction reads and writes.

References
----------
PTX ISA, "Instruction Set": the syntax line of each instruction.
"""

from __future__ import annotations

from cutepy.sim.ptx.model import Address, Instruction, Register, Vector, registers_in

_COLLECTIVE_MMA = "wgmma.mma_async"


def is_wgmma(instruction: Instruction) -> bool:
    """Tell whether an instruction is an asynchronous warpgroup MMA."""
    return instruction.opcode.startswith(_COLLECTIVE_MMA)


def accumulators(instruction: Instruction) -> tuple[Register, ...]:
    """Return the accumulator registers of a wgmma, in order."""
    vector = instruction.operands[0]
    assert isinstance(vector, Vector)
    return tuple(item for item in vector.items if isinstance(item, Register))


def has_destination(instruction: Instruction) -> bool:
    """Tell whether the first operand is written."""
    operands = instruction.operands
    if not operands or isinstance(operands[0], Address) or is_wgmma(instruction):
        return False
    form = instruction.traits.form
    return form is None or form.words[:1] == ("result",)


def written(instruction: Instruction) -> tuple[Register, ...]:
    """Return the registers that an instruction writes."""
    found: tuple[Register, ...] | None = instruction.derived.get("written")
    if found is None:
        found = instruction.derived["written"] = _written(instruction)
    return found


def _written(instruction: Instruction) -> tuple[Register, ...]:
    if is_wgmma(instruction):
        return accumulators(instruction)
    if not has_destination(instruction):
        return ()
    return tuple(registers_in(instruction.operands[0]))


def read(instruction: Instruction) -> tuple[Register, ...]:
    """Return the registers that an instruction reads; a guarded one reads what it may leave as it was."""
    found: tuple[Register, ...] | None = instruction.derived.get("read")
    if found is None:
        found = instruction.derived["read"] = _read(instruction)
    return found


def _read(instruction: Instruction) -> tuple[Register, ...]:
    found: list[Register] = []
    operands = instruction.operands
    if has_destination(instruction):
        if instruction.predicate is not None:
            found.extend(registers_in(operands[0]))
        operands = operands[1:]
    for operand in operands:
        found.extend(registers_in(operand))
    if instruction.predicate is not None:
        found.append(instruction.predicate[0])
    return tuple(found)
