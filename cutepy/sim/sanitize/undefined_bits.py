"""Bits of a result that have no value, given those of the operands, as masks by lane.

A bit of a result has a value where every value of the undefined bits gives the same: `and` with a 0, `or` with a 1, a
product of integers with 0, an operand that is not selected, a byte that is shifted away. Arithmetic is not followed by
bits: its result has no value at all if a source lacks a bit.

References
----------
PTX ISA, "Logic and Shift Instructions", "Data Movement and Conversion Instructions", "setp", "selp", "bfi", "bfe".
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from cutepy.sim.machine.lanes import WARP
from cutepy.sim.mechanisms.warp import source_lane
from cutepy.sim.ptx.model import Immediate, Negated, Pair, Register, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.machine.observer import Step
    from cutepy.sim.ptx.model import Instruction, Operand

_ARITHMETIC = frozenset(
    """add addc sub subc mul mul24 mad mad24 madc fma div rem neg abs cvt setp set min max sqrt rsqrt rcp ex2 lg2 sin
    cos tanh popc clz brev sad dp2a dp4a copysign testp cvta""".split()
)
_TABLES = {"and": 0xC0, "or": 0xFC, "xor": 0x3C, "not": 0x0F}
"""Truth tables of lop3: bit `4a + 2b + c` is the result for bits a, b and c."""
_OTHERS = frozenset("mov selp slct lop3 prmt bfi bfe shf shl shr shfl vote redux match".split())
PASSES_ON = _ARITHMETIC | _OTHERS | frozenset(_TABLES)
"""Opcodes whose results have no value where their sources have none; all others give values."""
_ONE = np.uint64(1)
_COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}

_COMPARABLE = {
    **{f"{kind}{bits}": "i" if kind == "s" else "u" for kind in "usb" for bits in (16, 32, 64)},
    "f32": "f",
    "f64": "f",
}
"""Types of comparisons that are evaluated, and what numpy calls them."""
GATHERS = frozenset("shfl vote redux match".split())
"""Opcodes whose results are made of what other lanes have."""


def full(bits: int) -> np.uint64:
    """Return the mask of all bits of a width; of more than 64 bits the mask of 64 stands for all."""
    return np.uint64((1 << min(bits, 64)) - 1)


def _low(counts: Array) -> Array:
    """Return masks of the lowest bits, by how many."""
    counts = np.minimum(counts.astype(np.uint64), np.uint64(64))
    return np.where(counts >= 64, ~np.uint64(0), (_ONE << np.minimum(counts, np.uint64(63))) - _ONE)


def _shifted(mask: Array, counts: Array, how: Callable[[Array, Array], Array]) -> Array:
    """Shift masks by counts that may be 64 or more."""
    return np.where(counts >= 64, np.uint64(0), how(mask, np.minimum(counts, np.uint64(63))))


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
        if isinstance(operand, Register):
            return self._lacking(operand)
        if isinstance(operand, Negated):
            return self._lacking(operand.operand)
        if isinstance(operand, Vector):
            width = max((x.bits for x in operand.items if isinstance(x, Register)), default=0)
            parts = [self.mask(x) << np.uint64(n * width & 63) for n, x in enumerate(operand.items)]
            if width * len(parts) > 64:
                return np.asarray(np.bitwise_and.reduce([self.mask(x) for x in operand.items]))
            return np.asarray(np.bitwise_or.reduce(parts))
        return self._none

    def value(self, operand: Operand) -> Array:
        """Return the bits of an operand; zeros where they are not known."""
        if isinstance(operand, Immediate):
            return np.full(self._shape, operand.value & (1 << 64) - 1, np.uint64)
        if isinstance(operand, Negated):
            return self.value(operand.operand) ^ _ONE
        if not isinstance(operand, Register) or not self._knows(operand):
            return self._none
        found = self._step.value(operand.index)
        if found.dtype != bool:
            found = found.view(f"u{found.dtype.itemsize}")
        return np.broadcast_to(found.astype(np.uint64), self._shape)

    def _knows(self, operand: Operand) -> bool:
        """Tell whether the value of an operand is at hand: not that of accumulators and special registers."""
        if isinstance(operand, Register):
            return operand.bits <= 64 and self._step.holds(operand.index)
        return isinstance(operand, Immediate | Negated)

    def of_results(self, i: Instruction) -> list[Array]:
        """Return which bits have no value of each register that an instruction writes, in order."""
        to = i.operands[0]
        name, sources = i.parts[0], i.operands[1:]
        if isinstance(to, Vector):
            width = max((x.bits for x in to.items if isinstance(x, Register)), default=0)
            whole = self.mask(sources[0])
            if width * len(to.items) > 64:
                return [whole & full(x.bits) for x in to.items if isinstance(x, Register)]
            parts = ((n, x) for n, x in enumerate(to.items) if isinstance(x, Register))
            return [whole >> np.uint64(n * width) & full(width) for n, x in parts]
        if isinstance(to, Pair):
            first, second = (x if isinstance(x, Register) else None for x in (to.first, to.second))
        else:
            first, second = (to if isinstance(to, Register) else None), None
        whole, flag = self._one(i, name, sources, 1 if first is None else first.bits)
        found = [] if first is None else [whole & full(first.bits)]
        return found if second is None else [*found, flag & _ONE]

    def _one(self, i: Instruction, name: str, sources: tuple[Operand, ...], bits: int) -> tuple[Array, Array]:
        """Return the mask of a result of some width, and that of the predicate beside it."""
        all_bits = full(bits)
        if name == "mov":
            return self.mask(sources[0]), self._none
        if name in _TABLES:
            return self._bitwise(_TABLES[name], sources), self._none
        if name == "lop3":
            return self._lop3(i, sources)
        if name == "shfl":
            return self._shuffled(i, sources, all_bits)
        if name in ("vote", "redux", "match"):
            found = self._gathered(i, sources, all_bits)
            return found, found
        masks = [self.mask(x) for x in sources]
        lacks = np.bitwise_or.reduce([mask != 0 for mask in masks])
        if name in ("setp", "set"):
            found, opposite = self._compared(i, sources, masks)
            return np.where(found, all_bits, np.uint64(0)), np.where(opposite, _ONE, np.uint64(0))
        if name in ("selp", "slct"):
            picks = self.value(sources[2]) != 0
            chosen = np.where(picks, masks[0], masks[1]) if name == "selp" else masks[0] & masks[1]
            return np.where(masks[2] != 0, all_bits, chosen), self._none
        if name in ("shl", "shr", "shf", "bfe", "bfi", "prmt"):
            return self._moved(i, sources, masks, bits), self._none
        if name in ("mul", "mul24", "mad", "mad24") and i.parts[-1][0] in "us":
            zero = [(self.value(x) == 0) & (mask == 0) for x, mask in zip(sources[:2], masks[:2], strict=True)]
            lacks = (masks[0] | masks[1] != 0) & ~(zero[0] | zero[1])
            if len(masks) > 2:
                lacks |= masks[2] != 0
        if name == "sub" and sources[0] == sources[1] and i.parts[-1][0] in "us":
            return self._none, self._none
        if name == "cvt":
            return self._converted(i, sources, masks, bits, np.where(lacks, all_bits, np.uint64(0))), self._none
        if i.parts[-1].endswith("x2"):
            half = full(bits // 2)
            every = np.bitwise_or.reduce(masks)
            low, high = every & half != 0, every & (half << np.uint64(bits // 2)) != 0
            found = np.where(low, half, np.uint64(0)) | np.where(high, half << np.uint64(bits // 2), np.uint64(0))
            return found, self._none
        found = np.where(lacks, all_bits, np.uint64(0))
        return found, found

    def _bitwise(self, table: int, sources: tuple[Operand, ...]) -> Array:
        """Return the bits that two values of what is undefined give different results."""
        values, masks = [self.value(x) for x in sources], [self.mask(x) for x in sources]
        may_be = [self._none, self._none]
        for row in range(8):
            bits = [row >> 2 & 1, row >> 1 & 1, row & 1]
            if any(bits[len(sources) :]):
                continue
            if any(x == y and bits[m] != bits[n] for m, x in enumerate(sources) for n, y in enumerate(sources)):
                continue  # the same register has one value
            possible = ~self._none
            for value, mask, bit in zip(values, masks, bits, strict=False):
                possible = possible & (mask | (value if bit else ~value))
            may_be[table >> row & 1] = may_be[table >> row & 1] | possible
        return np.asarray(may_be[0] & may_be[1])

    def _lop3(self, i: Instruction, sources: tuple[Operand, ...]) -> tuple[Array, Array]:
        table = sources[3]
        assert isinstance(table, Immediate)
        found = self._bitwise(table.value, sources[:3])
        if len(sources) < 5:
            return found, self._none
        values = [self.value(x) for x in sources[:3]]
        known = self._none
        for row in range(8):
            if table.value >> row & 1:
                each = (v if row >> 2 - n & 1 else ~v for n, v in enumerate(values))
                known = known | np.bitwise_and.reduce(list(each))
        is_set = (known & ~found & full(32)) != 0
        return found, self._joined(i.parts[1], is_set, (found & full(32) != 0) & ~is_set, sources[4])

    def _joined(self, how: str, value: Array, lacks: Array, other: Operand) -> Array:
        """Join a predicate that may have no value with another one by `and`, `or` or `xor`."""
        mask, known = self.mask(other) != 0, self.value(other) != 0
        if how == "xor":
            return np.where(lacks | mask, _ONE, np.uint64(0))
        decides = ~value & ~lacks, ~known & ~mask
        if how == "or":
            decides = value & ~lacks, known & ~mask
        return np.where((lacks | mask) & ~decides[0] & ~decides[1], _ONE, np.uint64(0))

    def _compared(self, i: Instruction, sources: tuple[Operand, ...], masks: list[Array]) -> tuple[Array, Array]:
        """Tell which lanes get no value of a comparison, and of its opposite."""
        unknown, kind = masks[0] | masks[1], i.parts[-1]
        lacks = unknown != 0
        a, b = self.value(sources[0]), self.value(sources[1])
        compares = next((x for x in i.parts[1:] if x in _COMPARE), None)
        are_known = self._knows(sources[0]) and self._knows(sources[1])
        if are_known and compares in ("eq", "ne") and kind[0] in "usb":
            lacks &= (a ^ b) & ~unknown & full(int(kind[1:])) == 0
        how = next((x for x in i.parts[1:] if x in ("and", "or", "xor")), "xor")
        if len(sources) < 3 or compares is None or not are_known or kind not in _COMPARABLE:
            return lacks, lacks
        size = int(kind[1:]) // 8
        a, b = (x.astype(f"u{size}").view(f"{_COMPARABLE[kind]}{size}") for x in (a, b))
        with np.errstate(invalid="ignore"):
            value = np.asarray(_COMPARE[compares](a, b))
        one, other = (self._joined(how, x, lacks, sources[2]) != 0 for x in (value, ~value))
        return one, other

    def _converted(
        self, i: Instruction, sources: tuple[Operand, ...], masks: list[Array], bits: int, all_or_none: Array
    ) -> Array:
        to, of = i.parts[-2], i.parts[-1]
        if len(sources) == 2 and to.endswith("x2"):  # the first source is the upper half
            half = np.uint64(bits // 2)
            upper, lower = (np.where(mask != 0, full(bits // 2), np.uint64(0)) for mask in masks)
            return np.asarray(upper << half | lower)
        if "sat" in i.parts or to[0] not in "us" or of[0] not in "us":
            return all_or_none
        width = int(of[1:])
        found = masks[0] & full(width)
        if of[0] == "s":
            found = np.where(found >> np.uint64(width - 1) & _ONE != 0, found | ~full(width), found)
        return np.asarray(found & full(int(to[1:])))

    def _moved(self, i: Instruction, sources: tuple[Operand, ...], masks: list[Array], bits: int) -> Array:
        """Return what is shifted, or put together of parts, by counts that must have values."""
        name, all_bits = i.parts[0], full(bits)
        values = [self.value(x) for x in sources]
        if name in ("shl", "shr"):
            steers = masks[1] != 0
            counts = values[1] & full(32)
            if name == "shl":
                found = _shifted(masks[0], counts, np.left_shift)
            else:
                found = _shifted(masks[0], counts, np.right_shift)
                sign = (masks[0] >> np.uint64(bits - 1)) & _ONE != 0
                filled = all_bits ^ _low(np.maximum(bits - counts.astype(np.int64), 0))
                if i.parts[-1][0] == "s":
                    found = np.where(sign, found | filled, found)
        elif name == "shf":
            steers = masks[2] != 0
            counts = values[2] & full(32)
            counts = counts & np.uint64(31) if "wrap" in i.parts else np.minimum(counts, np.uint64(32))
            both = masks[1] << np.uint64(32) | masks[0]
            found = both << counts >> np.uint64(32) if "l" in i.parts else both >> counts
        elif name == "bfe":
            steers = (masks[1] | masks[2]) != 0
            field = _low(values[2] & full(8))
            found = _shifted(masks[0], values[1] & full(8), np.right_shift) & field
            if i.parts[-1][0] == "s":
                found = np.where(found != 0, all_bits, found)
        elif name == "bfi":
            steers = (masks[2] | masks[3]) != 0
            field, at = _low(values[3] & full(8)), values[2] & full(8)
            placed = _shifted(field, at, np.left_shift)
            found = _shifted(masks[0] & field, at, np.left_shift) | (masks[1] & ~placed)
        else:
            steers = masks[2] != 0
            both = masks[1] << np.uint64(32) | masks[0]
            found = self._none
            if len(i.parts) > 2:
                found = np.where(both != 0, all_bits, found)
            else:
                for n in range(4):
                    picks = values[2] >> np.uint64(4 * n)
                    byte = both >> (picks & np.uint64(7)) * np.uint64(8) & full(8)
                    signs = np.where(byte >> np.uint64(7) != 0, full(8), np.uint64(0))
                    found = found | np.where(picks & np.uint64(8) != 0, signs, byte) << np.uint64(8 * n)
        return np.where(steers, all_bits, found & all_bits)

    def _shuffled(self, i: Instruction, sources: tuple[Operand, ...], all_bits: np.uint64) -> tuple[Array, Array]:
        """Return what other lanes have; lanes that are not here are taken to have values."""
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

    def _gathered(self, i: Instruction, sources: tuple[Operand, ...], all_bits: np.uint64) -> Array:
        """Return what whole warps make of what their lanes have."""
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
    """Return where what each lane gathers comes from, given where what each lane has comes from; 0 is nowhere."""
    i = step.instruction
    if i.parts[0] == "shfl":
        place, _ = Operands(step, lambda r: np.zeros(origins.shape, np.uint64)).places(i)
        brought = np.take_along_axis(origins, place, axis=1)
        return np.where(brought != 0, brought, origins)
    warps = step.threads.ids // WARP
    return np.stack([origins[:, warps == warp].max(axis=1) for warp in warps.tolist()], axis=1)
