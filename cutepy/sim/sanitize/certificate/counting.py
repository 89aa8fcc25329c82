"""Where further rounds of a loop may be put in, by what a run shows of the comparisons that count them.

A branch on how many rounds there were, or are left, goes one way for some rounds, and the other way for the rest. With
further rounds some comparisons are of numbers that lie further apart: their outcomes stay. The argument stands in
docs/certificate_reference.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.sanitize.certificate.affine import Sum, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction, Register
    from cutepy.sim.sanitize.certificate.comparisons import Comparison
    from cutepy.sim.sanitize.certificate.origins import Origin


@dataclass(frozen=True)
class Counting:
    """What is known of the comparisons that steer a loop, and of what they compare.

    Attributes
    ----------
    comparisons : tuple of Comparison
    exit : Comparison or None
        The one by which the loop is left, if it is known, and the only one.
    registers : tuple of Register
        All that are in the sums.
    origins : dict of int to tuple of Origin
        Where their values come from when threads come to the loop, by number of the register.
    """

    comparisons: tuple[Comparison, ...] = ()
    exit: Comparison | None = None
    registers: tuple[Register, ...] = ()
    origins: dict[int, tuple[Origin, ...]] = field(default_factory=dict)

    def numbers(self, held: Sequence[Sequence[int]]) -> Array:
        """Return what the registers hold where each round begins, by round and register, as signed numbers."""
        found = [[signed(x, r.bits) for r, x in zip(self.registers, each, strict=True)] for each in held]
        return np.array(found, np.int64).reshape(len(held), -1)

    def window(self, numbers: Array, first: int, last: int, period: int) -> tuple[int, int] | Instruction:
        """Return between which rounds further ones may be put in; or a comparison that would turn.

        Parameters
        ----------
        numbers : array
            As of `numbers`.
        first, last : int
            Between which rounds these repeat, and all counters advance alike.
        period : int
            After how many.
        """
        if not self.comparisons:
            return first, last
        values = [dict(zip((r.index for r in self.registers), row, strict=True)) for row in numbers.tolist()]
        counted = {r: values[first + period][r] - values[first][r] for r in values[0]}
        before = self._before(values, counted)
        for one in self.comparisons:
            for sides in one.sides:
                if any(r not in before for side in sides for r, _ in side.terms):
                    return one.instruction
                shifts = [[_moved(side, by) for side in sides] for by in (before, _sum(before, counted))]
                for n, here in enumerate(values):
                    compared = [signed(_value(side, here), one.bits) for side in sides]
                    if any(
                        _wraps(x, by, one.bits, period) for some in shifts for x, by in zip(compared, some, strict=True)
                    ):
                        return one.instruction
                    if not one.stays(*compared, *shifts[0]):  # no more rounds may come after this one
                        last = min(last, n)
                    if not one.stays(*compared, *shifts[1]):
                        first = max(first, n + 1)
            if last - first < 2 * period:
                return one.instruction
        return first, last

    def grows(self, numbers: Array, first: int, period: int) -> int:
        """Return by how much the number that bounds the loop is to differ for one period more.

        That is 0 where the rounds say it, which count by one, or where nothing is asked of it.
        """
        if not self.comparisons or self.exit is None:
            return 0
        values = [dict(zip((r.index for r in self.registers), row, strict=True)) for row in numbers.tolist()]
        counted = {r: values[first + period][r] - values[first][r] for r in values[0]}
        step = self._step(values, counted)
        return 0 if step is None or abs(step) == period else step

    def _before(self, values: Sequence[dict[int, int]], counted: dict[int, int]) -> dict[int, int]:
        """Return by how much registers differ where a loop is come to that goes around one period more, if known."""
        start = values[0]
        bound = next(
            (
                (start[r] - one.offset) * one.factor
                for r, (one, *more) in self.origins.items()
                if abs(one.factor) == 1 and not more and not one.is_cut
            ),
            None,
        )
        found: dict[int, int] = {}
        step = self._step(values, counted)
        for register, origins in self.origins.items():
            by = {_differs(one, start[register], bound, step) for one in origins} - {_ANOTHER}
            if len(by) == 1 and isinstance(only := by.pop(), int):
                found[register] = only
        return found

    def _step(self, values: Sequence[dict[int, int]], counted: dict[int, int]) -> int | None:
        """Return by how much the number that bounds the loop differs, if it goes around one period more."""
        if self.exit is None:
            return None
        ((first, second),) = self.exit.sides
        apart = first.plus(second, -1)
        left = [_value(apart, here) for here in values]
        if len({b - a for a, b in pairwise(left)}) != 1 or left[0] == left[1]:
            return None
        factor = 0
        for register, by in apart.terms:
            origins = self.origins.get(register)
            if origins is None or len(origins) != 1 or origins[0].is_cut:
                return None
            factor += by * origins[0].factor
        if not factor:
            return None
        step, rest = divmod(-_moved(apart, counted), factor)
        return None if rest else step


_ROUNDS = 1 << 20
"""Further rounds of which all is known that is said of any number: counters have so many bits."""


def _wraps(value: int, by: int, bits: int, period: int) -> bool:
    """Tell whether a number leaves its bits in as many rounds, if it moves by so much in each period."""
    return abs(value + by * (_ROUNDS // period)) >= 1 << bits - 1


_ANOTHER = "another"


def _differs(one: Origin, value: int, bound: int | None, step: int | None) -> int | str | None:
    """Return by how much what comes from somewhere differs, if a bound does by a step; None if that is not known."""
    if not one.is_known:
        return 0
    if not one.factor:
        return 0 if one.offset == value else _ANOTHER
    if step is None:
        return None
    by = one.factor * step
    if not one.is_cut:
        return by if bound is None or one.factor * bound + one.offset == value else _ANOTHER
    if bound is None:
        return None
    plain = one.factor * bound + one.offset
    cut = plain if one.most is None else min(plain, one.most)
    cut = cut if one.least is None else max(cut, one.least)
    if cut != value:
        return _ANOTHER
    if by > 0:
        is_over = one.most is not None and plain >= one.most
    else:
        is_over = one.least is not None and plain <= one.least
    return 0 if is_over else None


def _value(one: Sum, values: dict[int, int]) -> int:
    return one.offset + sum(by * values[r] for r, by in one.terms)


def _moved(one: Sum, by: dict[int, int]) -> int:
    return sum(factor * by[r] for r, factor in one.terms)


def _sum(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {key: value + other[key] for key, value in one.items()}
