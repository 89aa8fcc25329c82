"""Table of the instructions that machine code is written for: those with a meaning, and those that modules here add.

numpy computes all others.
"""

from __future__ import annotations

from collections.abc import Callable

from cutepy.sim.native.builder import MachineCode
from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics import meaning_of
from cutepy.sim.translate.emitter import refused_modifier

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
