"""Comparisons of loop counters: their sides as affine forms, and the rounds in which their outcomes turn.

A branch on the number of rounds so far, or still to come, goes one way for some rounds, and the other way for the rest.
With further rounds some comparisons are of numbers that lie further apart: their outcomes stay. `Thresholds` finds the
comparisons in the code. `Counting` looks in a run's values for the window where further rounds may be inserted, and for
the round in which a constant ends the loop. The package's docstring has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.sanitize.certificate.any_rounds.affine import Sum, signed, sums_from
from cutepy.sim.sanitize.certificate.any_rounds.counters import counts
from cutepy.sim.sanitize.certificate.any_rounds.origins import PURE, Origin, Origins
from cutepy.sim.sanitize.certificate.dependence import Walk
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction, Register
    from cutepy.sim.sanitize.certificate.dependence import Dependence, NaturalLoop


_SIGNED = {"lt": -1, "ge": -1, "le": 0, "gt": 0}
_UNSIGNED = {"lo": -1, "hs": -1, "ls": 0, "hi": 0}
_TYPES = ("s32", "u32", "b32", "s64", "u64", "b64")


@dataclass(frozen=True)
class Comparison:
    """A comparison in or after a loop, of sums of what registers hold where a round begins.

    Attributes
    ----------
    instruction : Instruction
    sides : tuple of (Sum, Sum)
        What is compared; by some ways to it other sums than by others.
    """

    instruction: Instruction
    sides: tuple[tuple[Sum, Sum], ...]

    @property
    def is_equality(self) -> bool:
        """True for eq and ne."""
        return bool({"eq", "ne"} & set(self.instruction.parts))

    @property
    def registers(self) -> frozenset[int]:
        """Registers in the sums, by number."""
        return frozenset(r for sides in self.sides for side in sides for r, _ in side.terms)

    def turns_after(self, first: int, second: int, by_first: int, by_second: int) -> int | None:
        """Return after how many steps the outcome turns, if two numbers change by so much in each; None if never."""
        apart, by = first - second, by_first - by_second
        if not by:
            return None
        if self.is_equality:
            count, rest = divmod(-apart, by)
            return count if not rest and count > 0 else None
        edge = self._edge()
        if (apart > edge) == (by > 0):
            return None
        return (edge - apart) // by + 1 if by > 0 else -((edge - apart) // -by)

    def _edge(self) -> int:
        """Return the greatest difference of one outcome: a < b is false from 0 on, a <= b behind it."""
        parts = set(self.instruction.parts)
        return next(x for name, x in (_SIGNED | _UNSIGNED).items() if name in parts)

    @property
    def bits(self) -> int:
        """Bits of each number that is compared."""
        return 64 if "64" in self.instruction.parts[-1] else 32

    def stays(self, first: int, second: int, by_first: int, by_second: int) -> bool:
        """Tell whether the outcome stays if two numbers that are compared go on changing by so much each time."""
        is_unsigned = self.instruction.parts[-1][0] == "u" and not self.is_equality
        if is_unsigned and min(first, second, by_first, by_second) < 0:
            return False
        by = by_first - by_second
        if not by:
            return True
        apart = first - second
        if self.is_equality:
            return apart * by > 0
        return (apart > self._edge()) == (by > 0)


def compares(i: Instruction) -> bool:
    """Tell whether an instruction compares integers."""
    relations = {"eq", "ne", *_SIGNED, *_UNSIGNED}
    return i.parts[0] == "setp" and i.parts[-1] in _TYPES and bool(relations & set(i.parts))


@dataclass(frozen=True)
class Limit:
    """A comparison with a constant by which a loop may be left.

    Attributes
    ----------
    comparison : Comparison
    starts : dict of int to int
        The largest value of each register, by number, that is clamped to a constant where the loop begins.
    is_alone : bool
        Whether nothing but constants ends the loop: then one of them is the number that bounds it.
    """

    comparison: Comparison
    starts: dict[int, int]
    is_alone: bool = False


class Thresholds:
    """Finds the comparisons that count.

    Parameters
    ----------
    code : Dependence
    loops : sequence of NaturalLoop
        All of it.
    """

    def __init__(self, code: Dependence, loops: Sequence[NaturalLoop]) -> None:
        self._code, self._loops = code, loops
        self._registers = {r.index: r for i in code.instructions.values() for r in (*written(i), *read(i))}
        self._origins = Origins(code, loops)
        self._comparisons: dict[int, dict[int, Comparison]] = {}

    def of(self, head: int, blocks: frozenset[int]) -> tuple[dict[int, Comparison], Comparison | None]:
        """Return the comparisons of counters, by index, and the one by which the loop is left."""
        makers = self._makers(blocks)
        counters = {index for index, some in makers.items() if counts(self._registers[index], some)}
        found: dict[int, Comparison] = {}
        for index, one in self._compared(head).items():
            known = all(r in counters or r not in makers for r in one.registers)
            if known and one.registers & counters:
                found[index] = one
        leaving = self._code.leaving(blocks)
        condition = self._code.flow.blocks[leaving[0]].condition if len(leaving) == 1 else None
        if condition is None:
            return found, None
        tests = self._code.makers(leaving[0], None, condition[0].index)
        out = found.get(tests[0].index) if len(tests) == 1 else None
        return found, out if out is not None and len(out.sides) == 1 else None

    def limits(self, head: int, blocks: frozenset[int]) -> list[Limit]:
        """Return the comparisons with constants that may end a loop.

        The conditions of the loop's exits are followed back through its rounds: to the comparisons that make them, and
        to those that decide over what makes them.
        """
        code, compared, makers = self._code, self._compared(head), self._makers(blocks)
        leaving = code.leaving(blocks)
        inside = frozenset(i.index for b in blocks for i in code.flow.blocks[b].instructions)
        walk: Walk[None] = Walk(code, lambda over, _: over not in blocks or over in leaving, lambda _: None)
        for n in leaving:
            condition = code.flow.blocks[n].condition
            if condition is not None:
                walk.begin(n, None, condition[0], None)
        found: list[Limit] = []
        is_open = False
        for i, _, _ in walk.values():
            block = code.block_of(i)
            is_open |= i.parts[0] not in PURE
            walk.pass_on(i, None)
            if block not in blocks:
                continue
            walk.decide(block)
            one = compared.get(i.index)
            if one is None or one.registers.isdisjoint(makers):
                continue
            origins = {r: self._origin(head, blocks, inside, r) for r in one.registers}
            starts = {r: o.most for r, o in origins.items() if o is not None and o.most is not None}
            if all(r in starts or (o is not None and not o.factor) for r, o in origins.items()):
                found.append(Limit(one, starts))
        return [replace(one, is_alone=not is_open) for one in found]

    def registers_of(self, comparisons: Iterable[Comparison]) -> list[Register]:
        """Return the registers in the sums of comparisons, in order."""
        return [self._registers[n] for n in sorted(frozenset[int]().union(*(one.registers for one in comparisons)))]

    def _origin(self, head: int, blocks: frozenset[int], inside: frozenset[int], register: int) -> Origin | None:
        """Return where a register's value comes from, where a loop is come to, if that is a single place."""
        makers = self._entering(head, blocks, register)
        known = self._origins.of(makers, head, inside) if makers else None
        if known is not None and known[1:] and not any(one.factor for one in known):
            return known[0]._replace(is_known=False)
        return known[0] if known is not None and not known[1:] else None

    def _makers(self, blocks: frozenset[int]) -> dict[int, list[Instruction]]:
        """Return what writes each register in some blocks, by number of the register."""
        makers: dict[int, list[Instruction]] = {}
        for b in blocks:
            for i in self._code.flow.blocks[b].instructions:
                for r in written(i):
                    makers.setdefault(r.index, []).append(i)
        return makers

    def _compared(self, head: int) -> dict[int, Comparison]:
        """Return the comparisons of integers that are sums of what registers hold where a round begins, by index."""
        if head not in self._comparisons:
            every, sums = self._code.instructions, sums_from(self._code.flow, head, self._loops).items()
            found = {index: Comparison(every[index], tuple(product(sides[0], sides[1]))) for index, sides in sums}
            self._comparisons[head] = {index: one for index, one in found.items() if compares(one.instruction)}
        return self._comparisons[head]

    def counting(
        self, head: int, blocks: frozenset[int], used: Sequence[Comparison], out: Comparison | None
    ) -> Counting:
        """Return what a run is asked of the comparisons that are used, and of the one by which the loop is left."""
        inside = frozenset(i.index for b in blocks for i in self._code.flow.blocks[b].instructions)
        registers = tuple(self.registers_of(one for one in (*used, out) if one is not None))
        origins: dict[int, tuple[Origin, ...]] = {}
        for register in (r.index for r in registers):
            makers = self._entering(head, blocks, register)
            known = None if makers is None else self._origins.of(makers, head, inside)
            if known:
                origins[register] = known
        return Counting(tuple(used), out, registers, self._of_one_bound(origins, out))

    @staticmethod
    def _of_one_bound(origins: dict[int, tuple[Origin, ...]], out: Comparison | None) -> dict[int, tuple[Origin, ...]]:
        """Leave out what comes from another number than the one that bounds the loop."""
        bounding = out.registers if out is not None else ()
        roots = {one.root for r in bounding for one in origins.get(r, ()) if one.factor}
        if len(roots) > 1:
            roots = set()
        return {r: some for r, some in origins.items() if all(not one.factor or one.root in roots for one in some)}

    def _entering(self, head: int, blocks: frozenset[int], register: int) -> list[Instruction] | None:
        """Return what may have made a register's value where a loop is come to; None if the loop itself may have."""
        found: dict[int, Instruction] = {}
        waiting = [b for b in self._code.before.get(head, ()) if b not in blocks]
        seen = set(waiting)
        while waiting:
            block = waiting.pop()
            if block in blocks:
                return None
            for i in reversed(self._code.flow.blocks[block].instructions):
                if any(r.index == register for r in written(i)):
                    found[i.index] = i
                    break
            else:
                more = [b for b in self._code.before.get(block, ()) if b not in seen]
                seen.update(more)
                waiting += more
        return list(found.values())


@dataclass(frozen=True)
class Counting:
    """Comparisons that affect a loop, with the registers that they compare.

    Attributes
    ----------
    comparisons : tuple of Comparison
    exit : Comparison or None
        The one by which the loop is left, if it is known, and the only one.
    registers : tuple of Register
        All that are in the sums.
    origins : dict of int to tuple of Origin
        Where their values come from when threads come to the loop, by number of the register.
    limits : tuple of Limit
        The comparisons with constants that may end the loop.
    limiting : tuple of Register
        All that are in the sums of these.
    """

    comparisons: tuple[Comparison, ...] = ()
    exit: Comparison | None = None
    registers: tuple[Register, ...] = ()
    origins: dict[int, tuple[Origin, ...]] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()
    limiting: tuple[Register, ...] = ()

    @property
    def noted(self) -> tuple[Register, ...]:
        """The registers whose values are noted where a round begins."""
        return *self.registers, *self.limiting

    def with_limits(self, limits: Sequence[Limit], registers: Sequence[Register]) -> Counting:
        """Return the same, with comparisons that limit the rounds and the registers in their sums."""
        return replace(self, limits=tuple(limits), limiting=tuple(registers))

    def numbers(self, held: Sequence[Sequence[int]]) -> Array:
        """Return what the registers hold where each round begins, by round and register, as signed numbers."""
        found = [[signed(x, r.bits) for r, x in zip(self.registers, each, strict=False)] for each in held]
        return np.array(found, np.int64).reshape(len(held), -1)

    def limit(self, held: Sequence[Sequence[int]], first: int, period: int) -> tuple[int, Instruction] | None:
        """Return how many rounds may begin before a constant ends the loop, and the comparison; None without one.

        Parameters
        ----------
        held : sequence of sequence of int
            What is noted where each round begins.
        first : int
            A round from which on rounds repeat, and so does how counters advance.
        period : int
            After how many.
        """
        registers = enumerate(self.limiting, len(self.registers))
        values = {r.index: [signed(each[n], r.bits) for each in held] for n, r in registers}
        found: list[tuple[int, Instruction]] = []
        for one in self.limits:
            lift = {r: start - values[r][0] for r, start in one.starts.items()}
            rows = [
                {r: values[r][n] + lift.get(r, 0) for r in one.comparison.registers}
                for n in range(first, first + 2 * period)
            ]
            turns: list[int] = []
            for sides, n in product(one.comparison.sides, range(period)):
                here, later = ([_value(side, row) for side in sides] for row in (rows[n], rows[n + period]))
                by = (b - a for a, b in zip(here, later, strict=True))
                count = one.comparison.turns_after(*here, *by)
                turns += [] if count is None else [first + n + count * period]
            if turns and not (one.is_alone and min(turns) < len(held)):  # else it is the one that ended the loop
                found.append((min(turns), one.comparison.instruction))
        return min(found, key=lambda some: some[0], default=None)

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
