"""Definedness of a result's bits, given that of the operands', as masks by lane.

A bit of a result has a value where every value of the undefined bits gives the same: `and` with a 0, `or` with a 1, a
product of integers with 0, an operand that is not selected, a byte that is shifted away. Bits of a sum, a difference or
a product have a value below the lowest bit that a source lacks, as carries go up. An order, a minimum or a maximum lies
between its results for the least and the greatest values of its sources (interval arithmetic), so that bits above the
first in which these two differ have a value. `Definedness` follows the meaning of instructions (`semantics`);
arithmetic of floats and the exchange of lanes have rules of their own in `Operands`.

References
----------
PTX ISA, "Logic and Shift Instructions", "Data Movement and Conversion Instructions", "setp", "selp", "bfi", "bfe".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from cutepy.sim.machine.lanes import WARP, Array
from cutepy.sim.machine.observer import Step
from cutepy.sim.mechanisms.warp import source_lane
from cutepy.sim.ptx.model import Immediate, Instruction, NegatedPredicate, Operand, Pair, Register
from cutepy.sim.semantics import meaning_of
from cutepy.sim.semantics.builder import Builder, evaluate
from cutepy.sim.semantics.types import constant_bits, width
from cutepy.sim.translate.effects import written

_ONE, _NONE = np.uint64(1), np.uint64(0)
_RELATIONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_TABLES = {"and": 0b1000, "or": 0b1110, "xor": 0b0110}
"""Truth tables of two inputs: bit `2a + b` is the result for bits a and b."""


def exchanges(i: Instruction) -> bool:
    """Return whether an instruction brings values that other lanes have."""
    return i.traits.gathers or (i.traits.exchanges and i.traits.moves)


def passes_on(i: Instruction) -> bool:
    """Return whether results of an instruction have no value where its sources have none; all others give values."""
    return i.traits.is_pure or exchanges(i)


def full(bits: int) -> np.uint64:
    """Return the mask of all bits of a width; of more than 64 bits the mask of 64 stands for all."""
    return np.uint64((1 << min(bits, 64)) - 1)


class Bits(NamedTuple):
    """A value that may lack some bits.

    Attributes
    ----------
    bits : int
        Width.
    data : int or array of uint64
        The bits; zeros where they are not known, and anything where they have no value.
    lacks : int or array of uint64
        Mask of the bits that have no value.
    is_known : bool
        True if `data` has them.
    """

    bits: int
    data: Any
    lacks: Any = 0
    is_known: bool = True

    @property
    def number(self) -> int | None:
        """The value of a constant."""
        return self.data if isinstance(self.data, int) else None


def _all_or_none(lacks: Any, bits: int) -> Array:  # noqa: ANN401
    return np.where(lacks != 0, full(bits), _NONE)


def _from_lowest(bits: int, *values: Bits) -> Array:
    """Return the mask from the lowest bit that any value lacks up."""
    lacks = np.asarray(reduce(operator.or_, (x.lacks for x in values)), np.uint64)
    return (lacks | (~lacks + np.uint64(1))) & full(bits)


def _of_product(bits: int, x: Bits, y: Bits) -> Array:
    zero = [(one.data == 0) & (one.lacks == 0) for one in (x, y)]
    return np.where(zero[0] | zero[1], _NONE, _from_lowest(bits, x, y))


def _of_equality(bits: int, x: Bits, y: Bits) -> Array:
    """Return the mask of a comparison for equality: where bits with values differ, it has a value."""
    differs = (x.data ^ y.data) & ~np.asarray(x.lacks | y.lacks, np.uint64) if x.is_known and y.is_known else _NONE
    return np.where(differs != 0, _NONE, _all_or_none(x.lacks | y.lacks, bits))


def _of_selection(bits: int, condition: Bits, x: Bits, y: Bits) -> Array:
    """Return the mask of one of two values: where the condition has none, bits in which both are equal have one."""
    lacks = [np.asarray(one.lacks, np.uint64) for one in (x, y)]
    either = lacks[0] | lacks[1] | np.asarray(x.data ^ y.data, np.uint64) if x.is_known and y.is_known else full(bits)
    return np.where(condition.lacks != 0, either, np.where(condition.data != 0, *lacks))


def _ends(x: Bits, signed: bool) -> tuple[Array, Array]:
    """Return the least and the greatest number that a value may be."""
    sign = np.uint64(1 << x.bits - 1) if signed else _NONE  # flipped, the order of signed numbers is that of unsigned
    data, lacks = np.asarray(x.data, np.uint64) ^ sign, np.asarray(x.lacks if x.is_known else full(x.bits), np.uint64)
    return (data & ~lacks) ^ sign, (data | lacks) ^ sign


def _between(operation: str, falls: bool = False) -> Callable[..., Array]:
    """Return the rule of an operation that rises with its second operand, and rises or `falls` with its first."""

    def rule(bits: int, x: Bits, y: Bits) -> Array:
        of_x, of_y = (_ends(one, operation[0] == "s") for one in (x, y))
        pairs = zip(of_x[::-1] if falls else of_x, of_y, strict=True)
        low, high = (np.asarray(evaluate(operation, x.bits, bits, *pair), np.uint64) for pair in pairs)
        differs = low ^ high
        for by in (1, 2, 4, 8, 16, 32):
            differs = differs | differs >> np.uint64(by)
        return np.where((x.lacks | y.lacks) != 0, differs, _NONE)

    return rule


def _of_order(relation: str) -> Callable[..., Array]:
    """Return the rule of a comparison: that x is greater is that y is less."""
    rule = _between(relation[0] + relation[1:].replace("g", "l"), falls=True)
    return (lambda bits, x, y: rule(bits, y, x)) if "g" in relation else rule


def _of_extreme(operation: str) -> Callable[..., Array]:
    """Return the rule of a minimum or a maximum: a bound on its value, and a selection by either comparison."""
    relations = [operation[0] + relation for relation in (("lt", "le") if "min" in operation else ("gt", "ge"))]

    def rule(bits: int, x: Bits, y: Bits) -> Array:
        found = _between(operation)(bits, x, y)
        for relation in relations:
            holds = np.asarray(evaluate(relation, bits, 1, x.data, y.data), np.uint64)
            found = found & _of_selection(bits, Bits(1, holds, _of_order(relation)(1, x, y)), x, y)
        return found

    return rule


def _moving(operation: str) -> Callable[..., Array]:
    """Return the rule of an operation that moves bits: the mask is moved like them, by amounts that have values."""

    def rule(bits: int, x: Bits, *by: Bits) -> Array:
        moved = np.asarray(evaluate(operation, x.bits, bits, x.lacks, *(one.data for one in by)), np.uint64)
        return np.where(by[0].lacks != 0, full(bits), moved) if by else moved

    return rule


_RULES: dict[str, Callable[..., Array]] = {
    "add": _from_lowest,
    "sub": _from_lowest,
    "mul": _of_product,
    "eq": _of_equality,
    "ne": _of_equality,
    "select": _of_selection,
    **{f"{sign}{relation}": _of_order(f"{sign}{relation}") for sign in "us" for relation in ("lt", "le", "gt", "ge")},
    **{operation: _of_extreme(operation) for operation in ("umin", "umax", "smin", "smax")},
    **{name: _moving(name) for name in ("shl", "lshr", "ashr", "trunc", "zext", "sext", "brev")},
}


class Definedness(Builder[Bits]):
    """Operations on values that may lack bits.

    Parameters
    ----------
    operands : Operands
        Of the instruction.

    Attributes
    ----------
    lacks : dict of Operand to array of uint64
        Mask of the bits that each destination lacks.
    """

    def __init__(self, operands: Operands) -> None:
        self._operands = operands
        self._read: dict[tuple[Operand, str], Bits] = {}
        self.lacks: dict[Operand, Array] = {}

    def read(self, operand: Operand, kind: str) -> Bits:
        """Return an operand's low bits."""
        if isinstance(operand, Immediate):
            return self.constant(width(kind), constant_bits(operand, kind))
        if isinstance(operand, NegatedPredicate):
            return self.invert(self.read(operand.operand, kind))
        if (operand, kind) not in self._read:
            ones = full(width(kind))
            data, lacks = self._operands.value(operand) & ones, self._operands.mask(operand) & ones
            self._read[operand, kind] = Bits(width(kind), data, lacks, self._operands.knows(operand))
        return self._read[operand, kind]

    def write(self, operand: Operand, value: Bits, signed: bool = False) -> None:
        """Note which bits a destination lacks."""
        if isinstance(operand, Register):
            self.lacks[operand] = np.asarray(self.resized(value, operand.bits, signed).lacks, np.uint64)

    def constant(self, bits: int, number: int) -> Bits:
        """Return a constant."""
        return Bits(bits, number & (1 << bits) - 1)

    def unknown(self, reason: str = "") -> Exception:
        """Make the error for a form of an instruction, which its translation would have refused."""
        return ValueError(reason)

    def _table(self, table: int, rows: int, inputs: tuple[Bits, ...]) -> Bits:
        """Return the bits in which results differ for two values of the undefined bits."""
        may_be: list[Any] = [_NONE, _NONE]
        for row in range(rows):
            bits = [row >> n & 1 for n in reversed(range(len(inputs)))]
            pairs = [*zip(inputs, bits, strict=True)]
            if any(x is y and m != n for x, m in pairs for y, n in pairs):
                continue  # the same register has one value
            possible: Any = full(inputs[0].bits)
            for x, bit in pairs:
                data = np.asarray(x.data, np.uint64)
                possible = possible & (x.lacks | (data if bit else ~data))
            may_be[table >> row & 1] = may_be[table >> row & 1] | possible
        known = all(x.is_known for x in inputs)
        return Bits(inputs[0].bits, np.asarray(may_be[1]), np.asarray(may_be[0] & may_be[1]), known)

    def _apply(self, operation: str, bits: int, *values: Bits) -> Bits:
        if operation in _TABLES:
            return self._table(_TABLES[operation], 4, values)
        data = np.asarray(evaluate(operation, values[0].bits, bits, *(x.data for x in values)), np.uint64)
        if operation in _RULES:
            lacks = _RULES[operation](bits, *values)
        else:
            lacks = _all_or_none(reduce(operator.or_, (x.lacks for x in values)), bits)
        return Bits(bits, data, lacks, all(x.is_known for x in values))

    def _apply_floats(self, operation: str, bits: int, values: tuple[Bits, ...], given: tuple[Any, ...]) -> Bits:
        lacks = _all_or_none(reduce(operator.or_, (x.lacks for x in values)), bits)
        data: Any = _NONE
        is_known = False
        if operation == "compare" and all(x.is_known for x in values) and values[0].bits > 16:
            size = values[0].bits // 8
            a, b = (np.asarray(x.data, f"u{size}").view(f"f{size}") for x in values)
            unordered, (kind, relation) = np.isnan(a) | np.isnan(b), (given[0][0], given[0][1:])
            found = _RELATIONS[relation](a, b) if relation in _RELATIONS else np.False_
            found = found & ~unordered if kind == "o" else found | unordered
            data, is_known = np.asarray(~unordered if given[0] == "ord" else found, np.uint64), True
        return Bits(bits, data, lacks, is_known)


class Operands:
    """The operands of an instruction that lanes are about to execute.

    Parameters
    ----------
    step : Step
    lacking : callable
        Returns which bits of a register have no value, by lane: uint64, (CTAs, threads).
    """

    def __init__(self, step: Step, lacking: Callable[[Register], Array]) -> None:
        self._step, self._lacking = step, lacking
        self._shape = step.ctas.count, step.threads.count
        self._none = np.zeros(self._shape, np.uint64)

    def mask(self, operand: Operand) -> Array:
        """Return which bits of an operand have no value."""
        register = operand.operand if isinstance(operand, NegatedPredicate) else operand
        return self._lacking(register) if isinstance(register, Register) else self._none

    def value(self, operand: Operand) -> Array:
        """Return the bits of an operand; zeros where they are not known."""
        if isinstance(operand, Immediate):
            return np.full(self._shape, operand.value & (1 << 64) - 1, np.uint64)
        if isinstance(operand, NegatedPredicate):
            return self.value(operand.operand) ^ _ONE
        if not isinstance(operand, Register) or not self.knows(operand):
            return self._none
        found = self._step.value(operand.index)
        if found.dtype != bool:
            found = found.view(f"u{found.dtype.itemsize}")
        return np.broadcast_to(found.astype(np.uint64), self._shape)

    def knows(self, operand: Operand) -> bool:
        """Return whether the value of an operand is at hand: not that of accumulators and special registers."""
        if isinstance(operand, Register):
            return operand.bits <= 64 and self._step.holds(operand.index)
        return isinstance(operand, Immediate | NegatedPredicate)

    def of_results(self, i: Instruction) -> list[Array]:
        """Return which bits have no value of each register that an instruction writes, in order."""
        function = meaning_of(i)
        if function is not None:
            b = Definedness(self)
            function(b, i)
            return [np.broadcast_to(b.lacks[r], self._shape) for r in written(i)]
        to, sources = i.operands[0], i.operands[1:]
        registers = (to.first, to.second) if isinstance(to, Pair) else (to,)
        bits = full(registers[0].bits) if isinstance(registers[0], Register) else _ONE
        if i.traits.shuffles:
            masks = self._shuffled(i, sources, bits)
        elif i.traits.transposes:
            masks = (self._transposed(sources[0]),) * 2
        elif i.traits.gathers:
            masks = (self._gathered(i, sources, bits),) * 2
        else:
            masks = (_all_or_none(np.bitwise_or.reduce([self.mask(x) for x in sources]), 64),) * 2
        return [mask & full(x.bits) for mask, x in zip(masks, registers, strict=False) if isinstance(x, Register)]

    def _shuffled(self, i: Instruction, sources: tuple[Operand, ...], all_bits: np.uint64) -> tuple[Array, Array]:
        """Return the values of other lanes; lanes that are not here are taken to have values."""
        steers = (self.mask(sources[1]) | self.mask(sources[2])) != 0
        masks = self.mask(sources[0])
        place, is_here = self.places(i)
        brought = np.where(is_here, np.take_along_axis(masks, place, axis=1), np.uint64(0))
        return np.where(steers, all_bits, brought), np.where(steers, _ONE, np.uint64(0))

    def places(self, i: Instruction) -> tuple[Array, Array]:
        """Return which of the lanes each one shuffles from, and whether that is here."""
        ids = self._step.threads.ids
        b, c = (self.value(x).astype(np.int64) for x in i.operands[2:4])
        lane, _ = source_lane(i.parts[2], np.broadcast_to(ids % WARP, b.shape).astype(np.int64), b, c)
        wanted = ids // WARP * WARP + np.asarray(lane)
        place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        return place, ids[place] == wanted

    def _transposed(self, source: Operand) -> Array:
        """Return the values of each lane in a warp's matrix of 8 rows: its lanes are here, or have values."""
        masks, found = self.mask(source), np.zeros(self._shape, np.uint64)
        for half, (place, is_here, of) in enumerate(self.halves()):
            brought = np.where(is_here, masks[:, place], _NONE)
            found |= (brought >> (16 * of).astype(np.uint64) & full(16)) << np.uint64(16 * half)
        return found

    def halves(self) -> list[tuple[Array, Array, Array]]:
        """Return where each half of a transposed matrix's registers comes from: lane, whether it is here, and half."""
        ids = self._step.threads.ids
        row, column = np.divmod(ids % WARP, 4)
        wanted = [ids // WARP * WARP + (2 * column + half) * 4 + row // 2 for half in range(2)]
        places = [np.minimum(np.searchsorted(ids, each), len(ids) - 1) for each in wanted]
        return [(place, ids[place] == each, row % 2) for place, each in zip(places, wanted, strict=True)]

    def _gathered(self, i: Instruction, sources: tuple[Operand, ...], all_bits: np.uint64) -> Array:
        """Return the results of whole warps from their lanes' values."""
        executing = self._step.executing()
        lacks = (self.mask(sources[0]) != 0) & executing
        value = self.value(sources[0]) != 0
        ids = self._step.threads.ids
        warps = ids // WARP
        found = np.zeros(lacks.shape, np.uint64)
        for warp in np.unique(warps).tolist():
            here = warps == warp
            some = lacks[:, here].any(axis=1)
            if "any" in i.parts and i.parts[0] == "vote":
                some &= ~(value & ~lacks & executing)[:, here].any(axis=1)
            elif "all" in i.parts and i.parts[0] == "vote":
                some &= ~(~value & ~lacks & executing)[:, here].any(axis=1)
            masks = np.where(some, all_bits, np.uint64(0))
            if "ballot" in i.parts:
                each = np.where(lacks[:, here], _ONE << (ids[here] % WARP).astype(np.uint64), np.uint64(0))
                masks = np.bitwise_or.reduce(each, axis=1)
            found[:, here] = masks[:, None]
        return found


def from_lanes(step: Step, origins: Array) -> Array:
    """Return the origins of the values that lanes gather, given the origins of each lane's values; 0 is nowhere."""
    i = step.instruction
    if i.traits.transposes:
        found = (origins[:, place] for place, *_ in Operands(step, lambda r: np.zeros(0, np.uint64)).halves())
        return reduce(np.maximum, found)
    if i.traits.shuffles:
        place, _ = Operands(step, lambda r: np.zeros(origins.shape, np.uint64)).places(i)
        brought = np.take_along_axis(origins, place, axis=1)
        return np.where(brought != 0, brought, origins)
    warps = step.threads.ids // WARP
    return np.stack([origins[:, warps == warp].max(axis=1) for warp in warps.tolist()], axis=1)
