"""Reachable instructions: constant propagation from lanes' registers finds the code that they may still execute.

Values are propagated from the block where the lanes stand, lane by lane. A value that two paths leave different is
unknown, and so is the result of whatever is not plain integer arithmetic. A branch on an unknown predicate may go both
ways. So the instructions found are a superset of those that the lanes can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.group import inherited
from cutepy.sim.machine.memory import OFFSET_MASK, RANK_SHIFT
from cutepy.sim.ptx.model import Address, Immediate, Register, Special
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction, Operand
    from cutepy.sim.translate.control_flow import ControlFlow


_MOST_VISITS = 8
_Values = dict[int, "Array"]


class Prospect(NamedTuple):
    """An instruction that lanes may execute.

    Attributes
    ----------
    instruction : Instruction
    may : array of bool, (CTAs, threads)
        The lanes of the group that may.
    will : array of bool, (CTAs, threads)
        Those that do once all waits before it end: no branch on an unknown predicate leads around it.
    address : array of uint64 or None
        What the last of its addresses is, by lane; None if that is unknown.
    mask : array of uint64 or None
        Of a copy to several CTAs, the bits that name them, by lane; None if these are unknown.
    """

    instruction: Instruction
    may: Array
    will: Array
    address: Array | None
    mask: Array | None = None


class Prospects:
    """Instructions that a group of lanes may still execute.

    Parameters
    ----------
    flow : ControlFlow
    g : Group
    is_at_block : bool
        Whether the group stands at the beginning of its block, so that its registers have the values from there.

    Attributes
    ----------
    is_complete : bool
        Whether no function is called or returned from, so that nothing is left out.
    """

    def __init__(self, flow: ControlFlow, g: Group, is_at_block: bool = True) -> None:
        self._flow, self._g = flow, g
        self._shape = g.ctas.count, g.threads.count
        everything = np.ones(self._shape, bool)
        start = {r: v for r in flow.live_in[g.block] if (v := self._now(r)) is not None} if is_at_block else {}
        self._in: dict[int, tuple[Array, _Values]] = {g.block: (everything, start)}
        self._conditions: dict[int, Array | None] = {}
        self._propagate()
        sure = self._surely(everything)
        self._found = [*self._list(sure)]
        self.is_complete = (g.join is None or not g.join.depth) and not any(
            one.instruction.parts[0] == "call" for one in self._found
        )

    def those(self, brings: Callable[[Instruction], bool]) -> Iterator[Prospect]:
        """Yield what lanes may execute of some kind of instruction."""
        return (one for one in self._found if brings(one.instruction))

    def _now(self, index: int) -> Array | None:
        g = self._g
        value = g.registers[index] if g.registers[index] is not None or g.join is None else inherited(g, index)
        return _bits(value)

    def _propagate(self) -> None:
        visits: dict[int, int] = {}
        left = [self._g.block]
        while left:
            n = left.pop()
            visits[n] = visits.get(n, 0) + 1
            mask, entering = self._in[n]
            values = dict(entering)
            if visits[n] > _MOST_VISITS:
                values.clear()
                mask = np.ones(self._shape, bool)
                self._in[n] = mask, {}
            for i in self._flow.blocks[n].instructions:
                self._execute(i, values)
            for to, lanes in self._ways(n, mask, values):
                if to != EXIT and lanes.any() and self._merge(to, lanes, values):
                    left.append(to)

    def _ways(self, n: int, mask: Array, values: _Values) -> list[tuple[int, Array]]:
        block = self._flow.blocks[n]
        condition = None
        if block.condition is not None and len(block.successors) == 2:
            register, negated = block.condition
            held = values.get(register.index)
            condition = None if held is None else (held != 0) ^ negated
        self._conditions[n] = condition
        if condition is None:
            return [(to, mask) for to in block.successors]
        taken = np.broadcast_to(condition, self._shape)
        return [*zip(block.successors, (mask & taken, mask & ~taken), strict=True)]

    def _merge(self, to: int, mask: Array, values: _Values) -> bool:
        """Let lanes enter a block with these values, and tell whether that is new there."""
        live = self._flow.live_in[to]
        if to not in self._in:
            self._in[to] = mask, {r: v for r, v in values.items() if r in live}
            return True
        old_mask, old = self._in[to]
        both = mask & old_mask
        merged: _Values = {}
        for r, before in old.items():
            after = values.get(r)
            if after is before:
                merged[r] = before
            elif after is not None and not (both & (before != after)).any():
                merged[r] = before if not (mask & ~old_mask).any() else np.where(old_mask, before, after)
        is_new = len(merged) < len(old) or bool((mask & ~old_mask).any())
        self._in[to] = mask | old_mask, merged
        return is_new

    def _surely(self, everything: Array) -> dict[int, Array]:
        """Return the lanes that come to a block whatever the unknown predicates are, if every loop ends."""
        sure = {self._g.block: everything}
        left = [self._g.block]
        while left:
            n = left.pop()
            condition, block = self._conditions.get(n), self._flow.blocks[n]
            if condition is not None:
                taken = np.broadcast_to(condition, self._shape)
                ways = [*zip(block.successors, (sure[n] & taken, sure[n] & ~taken), strict=True)]
            elif len(block.successors) == 1:
                ways = [(block.successors[0], sure[n])]
            else:
                ways = [(self._flow.join[n], sure[n])]
            for to, lanes in ways:
                if to != EXIT and to in self._in:
                    grown = lanes if to not in sure else lanes | sure[to]
                    if to not in sure or (grown & ~sure[to]).any():
                        sure[to] = grown
                        left.append(to)
        return sure

    def _list(self, sure: dict[int, Array]) -> Iterator[Prospect]:
        nobody = np.zeros(self._shape, bool)
        for n, (mask, entering) in sorted(self._in.items()):
            values = dict(entering)
            for i in self._flow.blocks[n].instructions:
                may, will = mask, sure.get(n, nobody)
                if i.predicate is not None:
                    held = values.get(i.predicate[0].index)
                    allowed = None if held is None else (held != 0) ^ i.predicate[1]
                    may, will = (may, nobody) if allowed is None else (may & allowed, will & allowed)
                if may.any():
                    yield Prospect(i, may, will & may, self._address(i, values), self._mask(i, values))
                self._execute(i, values)

    def _address(self, i: Instruction, values: _Values) -> Array | None:
        addresses = [x for x in i.operands if isinstance(x, Address)]
        if not addresses or not isinstance(addresses[-1].base, Register):
            return None
        base = values.get(addresses[-1].base.index)
        return None if base is None else base + np.uint64(addresses[-1].offset & (1 << 64) - 1)

    def _mask(self, i: Instruction, values: _Values) -> Array | None:
        if "multicast::cluster" not in i.parts:
            return None
        last = max((n for n, x in enumerate(i.operands) if isinstance(x, Address)), default=len(i.operands))
        return None if last + 1 >= len(i.operands) else self._read(i.operands[last + 1], values)

    def _execute(self, i: Instruction, values: _Values) -> None:
        """Note what an instruction leaves in registers: a value, or that it is unknown."""
        results = written(i)
        if not results:
            return
        found = self._result(i, values) if len(results) == 1 and isinstance(i.operands[0], Register) else None
        if found is not None:
            found = found & np.uint64((1 << max(results[0].bits, 1)) - 1)
        if i.predicate is not None:
            held, old = values.get(i.predicate[0].index), values.get(results[0].index)
            if held is None or found is None or old is None:
                found = None
            else:
                found = np.where((held != 0) ^ i.predicate[1], found, old)
        for r in results:
            values.pop(r.index, None)
        if found is not None:
            values[results[0].index] = found

    def _result(self, i: Instruction, values: _Values) -> Array | None:
        operands = [self._read(x, values) for x in i.operands[1:]]
        if any(x is None for x in operands):
            return None
        with np.errstate(all="ignore"):
            return _evaluate(i, [x for x in operands if x is not None])

    def _read(self, x: Operand, values: _Values) -> Array | None:
        if isinstance(x, Immediate):
            return None if x.float_bits else np.full((1, 1), x.value & (1 << 64) - 1, np.uint64)
        if isinstance(x, Register):
            return values.get(x.index)
        if isinstance(x, Special):
            name = x.name.lstrip("%")
            return _bits(self._g.threads.special.get(name, self._g.ctas.special.get(name)))
        return None


def _bits(value: Array | None) -> Array | None:
    """Return a value's bits, if it is an integer or a predicate."""
    if value is None or value.dtype.kind not in "biu" or value.ndim != 2:
        return None
    unsigned = value if value.dtype.kind != "i" else value.view(f"u{value.dtype.itemsize}")
    return unsigned.astype(np.uint64)


_COMPARED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "div": np.floor_divide, "rem": np.remainder,
}  # fmt: skip
_SIGNS = {"s16": 16, "s32": 32, "s64": 64}
_WORDS = {"u16": 16, "u32": 32, "u64": 64, "b16": 16, "b32": 32, "b64": 64, "pred": 1, **_SIGNS}
_MODIFIERS = frozenset(("lo", "wide", *_COMPARED))


def _evaluate(i: Instruction, x: list[Array]) -> Array | None:
    """Return the result of plain integer arithmetic, whose upper bits are not yet cut off; None of anything else."""
    name, *rest = i.parts
    if name == "mapa" and len(x) == 2 and rest == ["shared::cluster", "u32"]:
        return (x[0] & np.uint64(OFFSET_MASK)) | ((x[1] + np.uint64(1)) << np.uint64(RANK_SHIFT))
    kinds = [part for part in rest if part in _WORDS]
    if not kinds or any(part not in _WORDS and part not in _MODIFIERS for part in rest):
        return None
    kind = kinds[-1]
    bits = _WORDS[kind]
    v = [_extended(one, kind, bits) for one in x]
    result: Array | None = None
    if name == "setp" and len(v) == 2 and rest[0] in _COMPARED:
        return _COMPARED[rest[0]](*v).astype(np.uint64)
    if name == "mov" and len(v) == 1:
        result = v[0]
    elif name == "cvt" and len(v) == 1 and len(kinds) == 2:
        result = _extended(v[0].astype(np.uint64), kinds[0], _WORDS[kinds[0]])
    elif name == "not" and len(v) == 1:
        return (x[0] == 0).astype(np.uint64) if kind == "pred" else ~x[0]
    elif name == "selp" and len(v) == 3:
        result = np.where(x[2] != 0, x[0], x[1])
    elif name in ("shl", "shr") and len(v) == 2:
        by = np.minimum(x[1] & np.uint64(0xFFFFFFFF), np.uint64(63))
        if (by >= bits).any():
            return None
        result = x[0] << by if name == "shl" else v[0] >> by.astype(v[0].dtype)
    elif name in ("mul", "mad") and len(v) == (3 if name == "mad" else 2) and {"lo", "wide"} & set(rest):
        result = v[0] * v[1]
        if name == "mad":
            result = result.astype(np.uint64) + x[2]
    elif name in ("div", "rem") and len(v) == 2:
        if (v[0] < 0).any() or (v[1] <= 0).any():
            return None
        result = _ARITHMETIC[name](*v)
    elif name in _ARITHMETIC and name != "mul" and len(v) == 2:
        result = _ARITHMETIC[name](*v)
    return None if result is None else result.astype(np.uint64)


def _extended(value: Array, kind: str, bits: int) -> Array:
    """Return a value as a type says: cut to its bits, and with its sign."""
    cut = value & np.uint64((1 << bits) - 1)
    if kind not in _SIGNS:
        return cut
    up = np.uint64(64 - bits)
    return (cut << up).view(np.int64) >> np.int64(64 - bits)
