"""The table of the instructions that are written as machine code: each module of a family adds its own.

What is not here numpy computes: the results are those of `translate`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from cutepy.sim.native.lanes import Lanes, UnsupportedError
from cutepy.sim.ptx.model import Instruction
from cutepy.sim.translate.emitter import translator_of

Writes = Callable[[Lanes, Instruction], None]
_TABLE: dict[str, Writes] = {}


def of(*names: str) -> Callable[[Writes], Writes]:
    """Register what writes instructions, by the first part of their opcode."""

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
    if i.parts[0] not in _TABLE or translator_of(i.opcode) is None:
        raise UnsupportedError
    lanes.instruction = i
    try:
        _TABLE[i.parts[0]](lanes, i)
        lanes.finish()
    except (AssertionError, LookupError, StopIteration, TypeError, ValueError) as error:
        raise UnsupportedError from error


def need(condition: object) -> None:
    """Leave an instruction to numpy unless a condition holds."""
    if not condition:
        raise UnsupportedError
