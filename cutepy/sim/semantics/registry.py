"""Registry of the instructions whose meaning is written on the builder."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from cutepy.sim.ptx.model import Instruction
from cutepy.sim.semantics.builder import Builder

Meaning = Callable[[Builder[Any], Instruction], None]


class Entry(NamedTuple):
    """An opcode whose meaning is on the builder.

    Attributes
    ----------
    function : callable
        ``function(builder, instruction)`` reads operands, computes and writes results on any builder.
    refuses : frozenset of str
        Modifiers that may follow the opcode, and are not simulated.
    applies : callable
        Tells of an instruction's parts whether the function computes it; others of the opcode are defined elsewhere.
    """

    function: Meaning
    refuses: frozenset[str]
    applies: Callable[[tuple[str, ...]], bool]


MEANINGS: dict[str, Entry] = {}
"""Opcode, or the beginning of one -> its meaning."""


def meaning(
    *names: str, refuses: str = "", applies: Callable[[tuple[str, ...]], bool] = lambda parts: True
) -> Callable[[Meaning], Meaning]:
    """Register the meaning of instructions, by the first part of their opcode or by a longer prefix of it.

    Parameters
    ----------
    *names : str
        Opcodes, or their beginnings.
    refuses : str
        Modifiers of theirs that are not simulated.
    applies : callable
        Tells of an instruction's parts whether the function computes it.
    """

    def register(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(names, Entry(function, frozenset(refuses.split()), applies)))
        return function

    return register


def meaning_of(i: Instruction) -> Meaning | None:
    """Return the function that computes an instruction; None if its meaning is not on the builder."""
    return _of_opcode(i.parts)


@lru_cache(maxsize=1 << 12)
def _of_opcode(parts: tuple[str, ...]) -> Meaning | None:
    found = MEANINGS.get(".".join(parts[:2])) or MEANINGS.get(parts[0])
    return found.function if found is not None and found.applies(parts) else None
