"""The comparisons of a kernel's code that count the rounds of loops, by which they are left, and what comes to them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from cutepy.sim.sanitize.certificate.affine import sums_from
from cutepy.sim.sanitize.certificate.comparisons import Comparison, compares
from cutepy.sim.sanitize.certificate.counters import counts
from cutepy.sim.sanitize.certificate.counting import Counting
from cutepy.sim.sanitize.certificate.origins import Origin, Origins
from cutepy.sim.translate.effects import read, written

if TYPE_CHECKING:
    from cutepy.sim.ptx.model import Instruction
    from cutepy.sim.sanitize.certificate.dependence import Dependence
    from cutepy.sim.sanitize.certificate.natural_loops import NaturalLoop


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

    def of(self, head: int, blocks: frozenset[int]) -> tuple[dict[int, Comparison], Comparison | None]:
        """Return the comparisons of counters, by index, and the one by which the loop is left."""
        makers: dict[int, list[Instruction]] = {}
        for b in blocks:
            for i in self._code.flow.blocks[b].instructions:
                for r in written(i):
                    makers.setdefault(r.index, []).append(i)
        counters = {index for index, some in makers.items() if counts(self._registers[index], some)}
        found: dict[int, Comparison] = {}
        for index, sides in sums_from(self._code.flow, head, self._loops).items():
            one = Comparison(self._code.instructions[index], tuple(product(sides[0], sides[1])))
            known = all(r in counters or r not in makers for r in one.registers)
            if compares(one.instruction) and known and one.registers & counters:
                found[index] = one
        leaving = self._code.leaving(blocks)
        condition = self._code.flow.blocks[leaving[0]].condition if len(leaving) == 1 else None
        if condition is None:
            return found, None
        tests = self._code.makers(leaving[0], None, condition[0].index)
        out = found.get(tests[0].index) if len(tests) == 1 else None
        return found, out if out is not None and len(out.sides) == 1 else None

    def counting(
        self, head: int, blocks: frozenset[int], used: Sequence[Comparison], out: Comparison | None
    ) -> Counting:
        """Return what a run is asked of the comparisons that are used, and of the one by which the loop is left."""
        inside = frozenset(i.index for b in blocks for i in self._code.flow.blocks[b].instructions)
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
