"""Reachable instructions: constant propagation from lanes' registers finds the code that they may still execute.

Constant propagation begins at the block of the lanes, and has values for each lane. A value that differs on two paths
is unknown, and so is the result of each instruction other than plain integer arithmetic. A branch on an unknown
predicate may go both ways. So the result is a superset of the instructions that the lanes can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cutepy.sim.machine.group import value_of
from cutepy.sim.machine.memory import OFFSET_MASK, RANK_SHIFT
from cutepy.sim.ptx.model import Address, Immediate, Register, Special
from cutepy.sim.semantics.evaluation import results_of
from cutepy.sim.translate.control_flow import EXIT
from cutepy.sim.translate.effects import written

if TYPE_CHECKING:
    from cutepy.sim.machine.group import Group
    from cutepy.sim.machine.lanes import Array
    from cutepy.sim.ptx.model import Instruction, Operand
    from cutepy.sim.translate.control_flow import ControlFlow


_Values = dict[int, "Array"]


class ReachableInstruction(NamedTuple):
    """An instruction that lanes may execute.

    Attributes
    ----------
    instruction : Instruction
    may : array of bool, (CTAs, threads)
        The lanes of the group that may.
    will : array of bool, (CTAs, threads)
        Those that do once all waits before it end: no branch on an unknown predicate leads around it.
    address : array of uint64 or None
        Last of its addresses, by lane; None if unknown.
    mask : array of uint64 or None
        Of a copy to several CTAs, the bits that name them, by lane; None if these are unknown.
    """

    instruction: Instruction
    may: Array
    will: Array
    address: Array | None
    mask: Array | None = None


class ReachableCode:
    """Instructions that a group of lanes may still execute.

    Parameters
    ----------
    flow : ControlFlow
    g : Group
    is_at_block : bool
        True if the group stands at the beginning of its block, so that its registers have the values from there.

    Attributes
    ----------
    is_complete : bool
        True if no function is called or returned from, so that nothing is left out.
    """

    def __init__(self, flow: ControlFlow, g: Group, is_at_block: bool) -> None:
        self._flow, self._g = flow, g
        self._shape = g.ctas.count, g.threads.count
        everything = np.ones(self._shape, bool)
        live = flow.live_in[g.block] if is_at_block else ()
        start = {r: v for r in live if (v := _bits(value_of(g, r))) is not None}
        self._in: dict[int, tuple[Array, _Values]] = {g.block: (everything, start)}
        self._conditions: dict[int, Array | None] = {}
        self._propagate()
        sure = self._surely(everything)
        self._found = [*self._list(sure)]
        self.is_complete = (g.join is None or not g.join.depth) and not any(
            one.instruction.traits.calls for one in self._found
        )

    def those(self, brings: Callable[[Instruction], bool]) -> Iterator[ReachableInstruction]:
        """Yield the instructions of some kind that lanes may execute."""
        return (one for one in self._found if brings(one.instruction))

    def _propagate(self) -> None:
        """Propagate values until nothing changes: a block's lanes only become more, and its known values fewer."""
        left = [self._g.block]
        while left:
            n = left.pop()
            mask, entering = self._in[n]
            values = dict(entering)
            for i in self._flow.blocks[n].instructions:
                self._execute(i, values)
            for to, lanes in self._ways(n, mask, values):
                if to != EXIT and lanes.any() and self._merge(to, lanes, values):
                    left.append(to)

    def _ways(self, n: int, mask: Array, values: _Values) -> list[tuple[int, Array]]:
        block = self._flow.blocks[n]
        condition = None
        if block.condition is not None:
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
        """Return the lanes that come to a block for all values of unknown predicates, if every loop ends."""
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

    def _list(self, sure: dict[int, Array]) -> Iterator[ReachableInstruction]:
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
                    yield ReachableInstruction(i, may, will & may, self._address(i, values), self._mask(i, values))
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
        """Note the contents of registers after an instruction: a value, or that it is unknown."""
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
        if i.parts[0] == "mapa" and i.parts[1:] == ("shared::cluster", "u32"):
            base, rank = (self._read(x, values) for x in i.operands[1:])
            if base is None or rank is None:
                return None
            field = rank + np.uint64(not self._g.ctas.residents.ranked)
            return (base & np.uint64(OFFSET_MASK)) | (field << np.uint64(RANK_SHIFT))
        found = results_of(i, lambda x: self._read(x, values))
        if len(found) != 1 or found[0][1].data is None:
            return None
        return np.atleast_2d(np.asarray(found[0][1].data, np.uint64))

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
