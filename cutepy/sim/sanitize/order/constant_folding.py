"""Constant folding of small integers and predicates, and the registers that a result depends on."""

from __future__ import annotations

from collections.abc import Mapping

from cutepy.sim.ptx.model import Instruction, Operand, Register, registers_in
from cutepy.sim.semantics.evaluation import results_of
from cutepy.sim.translate.effects import read

_MOST, _MOST_COUNTED = 127, 3
"""The largest number that is known, which all types have; and the largest one that is computed, so that loops end."""


def value_of(i: Instruction, values: Mapping[int, int]) -> int | None:
    """Return the value of an instruction's first operand after it, if that is known.

    Parameters
    ----------
    i : Instruction
    values : mapping of int to int
        Known values of registers by index, from 0 to 127.
    """
    if i.parts[0] == "vote":
        given = _known(i.operands[1], values)
        return given if ("all" in i.parts and given == 0) or ("any" in i.parts and given == 1) else None
    counts = not i.traits.moves and i.traits.kind not in ("conversion", "comparison")
    most = _MOST_COUNTED if counts else _MOST
    found = (result.data for to, result in results_of(i, lambda x: _known(x, values)) if to == i.operands[0])
    return next((value for value in found if value is not None and value <= most), None)


def _known(operand: Operand, values: Mapping[int, int]) -> int | None:
    return values.get(operand.index) if isinstance(operand, Register) else None


def sources_of(i: Instruction, values: Mapping[int, int]) -> set[int]:
    """Return the registers that an instruction's result depends on, by index, where the values of others are known.

    `or` with 0 leaves the other operand, a selection the one that is selected.
    """
    results = results_of(i, lambda x: _known(x, values))
    if not results:
        return {r.index for r in read(i)}
    guard = () if i.predicate is None else (i.predicate[0], *registers_in(i.operands[0]))
    return {r.index for r in guard}.union(*({r.index for r in result.sources} for _, result in results))
