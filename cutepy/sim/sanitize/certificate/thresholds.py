"""The comparisons of a kernel's code that count the rounds of loops, by which they are left, and what comes to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING

from cutepy.sim.sanitize.certificate.affine import sums_from
from cutepy.sim.sanitize.certificate.comparisons import Comparison, compares
from cutepy.sim.sanitize.certificate.counters import counts
from cutepy.sim.sanitize.certificate.counting import Counting
from cutepy.sim.sanitize.certificate.natural_loops import dominators
from cutepy.sim.sanitize.certificate.origins import Origin, Origins
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.translate.control_flow import ControlFlow


class Thresholds:
    """Finds the comparisons that count.

    Parameters
    ----------
    flow : ControlFlow
    loops : sequence of (int, frozenset of int)
        All loops, as head and blocks.
    reaching : callable
        Yields the instructions that may have made what is read somewhere: by block, instruction (None for its branch)
        and number of the register.
    """

    def __init__(
        self,
        flow: ControlFlow,
        loops: Sequence[tuple[int, frozenset[int]]],
        reaching: Callable[[int, Instruction | None, int], Iterable[Instruction]],
    ) -> None:
        self._flow, self._loops, self._reaching = flow, loops, reaching
        self._instructions = {i.index: i for block in flow.blocks for i in block.instructions}
        self._at = {i.index: (b, n) for b, block in enumerate(flow.blocks) for n, i in enumerate(block.instructions)}
        self._registers = {r.index: r for i in self._instructions.values() for r in (*written(i), *read(i))}
        order, self._dominators = dominators(flow)
        self._before: dict[int, list[int]] = {}
        for block in order:
            for to in flow.blocks[block].successors:
                self._before.setdefault(to, []).append(block)
        self._origins = Origins(
            lambda i, register: self._reaching(self._at[i.index][0], i, register),
            lambda i: bool(self._around(self._at[i.index][0])),
            self._is_of_the_round,
            self._dominates,
        )

    def of(self, head: int, blocks: frozenset[int]) -> tuple[dict[int, Comparison], Comparison | None]:
        """Return the comparisons of counters, by index, and the one by which the loop is left."""
        makers: dict[int, list[Instruction]] = {}
        for b in blocks:
            for i in self._flow.blocks[b].instructions:
                for r in written(i):
                    makers.setdefault(r.index, []).append(i)
        counters = {index for index, some in makers.items() if counts(self._registers[index], some)}
        found: dict[int, Comparison] = {}
        for index, sides in sums_from(self._flow, head, self._loops).items():
            one = Comparison(self._instructions[index], tuple(product(sides[0], sides[1])))
            known = all(r in counters or r not in makers for r in one.registers)
            if compares(one.instruction) and known and one.registers & counters:
                found[index] = one
        leaving = [b for b in blocks if set(self._flow.blocks[b].successors) - blocks]
        condition = self._flow.blocks[leaving[0]].condition if len(leaving) == 1 else None
        if condition is None:
            return found, None
        tests = list(self._reaching(leaving[0], None, condition[0].index))
        out = found.get(tests[0].index) if len(tests) == 1 else None
        return found, out if out is not None and len(out.sides) == 1 else None

    def counting(
        self, head: int, blocks: frozenset[int], used: Sequence[Comparison], out: Comparison | None
    ) -> Counting:
        """Return what a run is asked of the comparisons that are used, and of the one by which the loop is left."""
        inside = frozenset(i.index for b in blocks for i in self._flow.blocks[b].instructions)
        indices = sorted(frozenset[int]().union(*(one.registers for one in (*used, out) if one is not None)))
        origins: dict[int, tuple[Origin, ...]] = {}
        for register in indices:
            makers = self._entering(head, blocks, register)
            known = None if makers is None else self._origins.of(makers, head, inside)
            if known:
                origins[register] = known
        registers = tuple(self._registers[index] for index in indices)
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
        waiting = [b for b in self._before.get(head, ()) if b not in blocks]
        seen = set(waiting)
        while waiting:
            block = waiting.pop()
            if block in blocks:
                return None
            for i in reversed(self._flow.blocks[block].instructions):
                if any(r.index == register for r in written(i)):
                    found[i.index] = i
                    break
            else:
                more = [b for b in self._before.get(block, ()) if b not in seen]
                seen.update(more)
                waiting += more
        return list(found.values())

    def _around(self, block: int) -> frozenset[int]:
        """Return the loops around a block, by their heads."""
        return frozenset(head for head, blocks in self._loops if block in blocks)

    def _is_of_the_round(self, i: Instruction, head: int) -> bool:
        block = self._at[i.index][0]
        return block != head and block in self._dominators[head] and self._around(block) <= self._around(head)

    def _dominates(self, one: Instruction, other: Instruction) -> bool:
        (first, n), (second, m) = self._at[one.index], self._at[other.index]
        return n < m if first == second else first in self._dominators[second]
